# SPDX-License-Identifier: Apache-2.0
"""ringpack.hf.check_documents finds whether a model keeps the documents of a row apart: its answer
equals a comparison with each document by itself, for families of every kind."""

import numpy
import pytest
import ringpack
from hf_kit import (  # noqa: F401
    VOCABULARY,
    corpus,
    load,
    losses,
    make_model,
    torch,
    train_with,
    transformers,
    weights,
)
from ringpack._documents import measure_leak

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"intermediate_size": 32, "num_key_value_heads": 2}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1}
MAMBA |= {"mamba_chunk_size": 16}
APART = {
    "Llama": {},
    "Mistral": {},
    "Qwen3": {"head_dim": 8},
    "Gemma": {"head_dim": 8},
    "GPT2": {},
    "GPTJ": {"rotary_dim": 4, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "Mixtral": {"num_local_experts": 2, "num_experts_per_tok": 1},
}
TOGETHER = {
    "Bloom": {"n_layer": 2, "n_head": 4},
    "Falcon": {},
    "FalconMamba": {"state_size": 8},
    "Jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 1, "mamba_d_state": 8},
    "Mamba": {"state_size": 8},
    "Mamba2": {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 16},
    "MiniMax": {"num_local_experts": 2, "num_experts_per_tok": 1},
    "Mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2},
    "OPT": {"ffn_dim": 32, "word_embed_proj_dim": 32, "max_position_embeddings": 64},
    "RecurrentGemma": {"lru_width": 32, "num_hidden_layers": 3},
    "Rwkv": {"attention_hidden_size": 32},
}
# For these transformers itself refuses seq_idx if their kernels are not installed.
KERNELS = {
    "Bamba": {**MAMBA, "attn_layer_indices": [1]},
    "GraniteMoeHybrid": {
        **MAMBA, "layer_types": ["mamba", "attention"], "num_local_experts": 2,
        "num_experts_per_tok": 1, "shared_intermediate_size": 16,
    },
    "FalconH1": {**MAMBA, "mamba_d_ssm": 64},
    "NemotronH": {
        "layers_block_type": ["mamba", "attention"], "mamba_num_heads": 8, "mamba_head_dim": 8,
        "ssm_state_size": 8, "n_groups": 1, "chunk_size": 16, "head_dim": 8,
    },
    "Lfm2": {"layer_types": ["conv", "full_attention"], "block_multiple_of": 8},
    "Qwen3Next": {
        "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2,
        "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
        "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16, "head_dim": 8,
        "shared_expert_intermediate_size": 16,
    },
}  # fmt: skip


def make_family(name, options):
    config = getattr(transformers, name + "Config")
    ids = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    if name == "GPT2":
        options = {"n_embd": 32, "n_layer": 2, "n_head": 4, **options}
    small = SMALL if name not in ("GPT2", "GPTJ", "Bloom", "Mpt") else {"hidden_size": 32}
    small = {} if name in ("GPT2", "GPTJ", "Mpt") else small
    torch.manual_seed(1)
    ending = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    model = getattr(transformers, name + ending)(config(**{**small, **ids, **options}))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


@pytest.fixture(scope="module")
def batches(program, corpus, tmp_path_factory):  # noqa: F811
    """One of each profile: the batch of most documents."""
    taken = []
    for profile in "hf", "trl":
        with ringpack.Loader(
            corpus=corpus, seq_len=48, batch_size=2, seed=3, profile=profile,
            return_type="torch", num_epochs=1, run_dir=tmp_path_factory.mktemp("run"),
        ) as loader:  # fmt: skip
            kept = [batch.copy() for batch in loader]
        taken.append(max(kept, key=lambda batch: len(batch["cu_seq_lens_q"])))
    return taken


def difference(model, batch):
    """The difference of the batch's logits from each document's own."""
    tokens, ends = batch["input_ids"].flatten(), batch["cu_seq_lens_q"].tolist()
    model.eval()
    with torch.no_grad():
        packed = model(**batch).logits.flatten(0, -2)
        parts = [tokens[None, begin:end] for begin, end in zip(ends, ends[1:])]
        alone = [model(input_ids=part, use_cache=False).logits[0] for part in parts]
    return (packed - torch.cat(alone)).abs().max().item()


@pytest.mark.parametrize("name", [*APART, *TOGETHER])
def test_the_answer_is_that_of_documents_alone(batches, name):
    model = make_family(name, {**APART, **TOGETHER}[name])
    for batch in batches:
        if name in APART:
            ringpack.hf.check_documents(model, batch)
            assert difference(model, batch) < 1e-4 and measure_leak(model, batch) < 1e-4
        else:
            with pytest.raises(ringpack.UsageError, match=f"{name}For.* see each other") as raised:
                ringpack.hf.check_documents(model, batch)
            assert "max_docs_per_row=1" in raised.value.hint
            assert difference(model, batch) > 1e-2 and measure_leak(model, batch) > 0.3


@pytest.mark.parametrize("name", KERNELS)
def test_hybrids_are_refused_without_their_kernels(batches, name):
    """By transformers, because the batch has seq_idx; with their kernels they answer."""
    model = make_family(name, KERNELS[name])
    for batch in batches:
        try:
            ringpack.hf.check_documents(model, batch)
        except ValueError as failure:
            assert "can't keep packed sequences apart without" in str(failure)
            continue
        assert difference(model, batch) < 1e-4


def test_the_question_changes_nothing(batches):
    model = make_family("Llama", {"attention_dropout": 0.5})
    model.lm_head.eval()
    model.train()
    model.model.layers[0].eval()
    modes = [module.training for module in model.modules()]
    before = torch.random.get_rng_state()
    ringpack.hf.check_documents(model, batches[0])
    assert torch.equal(torch.random.get_rng_state(), before)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_trainer_asks_its_model(load, train_with, caplog):  # noqa: F811
    def train(name, options, check=True, **changes):
        trainer = train_with()
        trainer.model = trainer.model_wrapped = make_family(name, options)
        with load(**changes) as loader:
            ringpack.hf.attach(trainer, loader, check=check)
            trainer.train()
            assert loader.next_row == 8
        return trainer

    for evaluates in False, True:
        trainer = train_with()
        trainer.model = trainer.model_wrapped = make_family("OPT", TOGETHER["OPT"])
        with load() as loader, load(num_epochs=1, run="held-out") as held:
            ringpack.hf.attach(trainer, loader, held)
            with pytest.raises(ringpack.UsageError, match="OPTForCausalLM lets documents"):
                trainer.evaluate() if evaluates else trainer.train()
    # One document in each row: no other to see.
    alone = train("OPT", TOGETHER["OPT"], max_docs_per_row=1)
    assert numpy.isfinite(list(losses(alone).values())).all()
    train("OPT", TOGETHER["OPT"], check=False)

    class Odd(type(make_model())):
        def forward(self, input_ids=None, labels=None, **others):
            assert labels is not None
            return super().forward(input_ids=input_ids, labels=labels, **others)

    trainer = train_with()
    trainer.model = trainer.model_wrapped = Odd(make_model().config)
    with load() as loader:
        ringpack.hf.attach(trainer, loader).train()
    assert "whether Odd keeps documents of a row apart is not known: AssertionError" in caplog.text
