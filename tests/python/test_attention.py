# SPDX-License-Identifier: Apache-2.0
"""model(**batch) of profiles hf and trl keeps documents apart, for each attention of transformers.

The calls are as in docs/attention.md. FlashAttention is played: transformers chooses between its
dense and its varlen kernel, and these count their calls and compute on the CPU."""

import numpy
import pytest
import ringpack
from stream_oracle import INPUTS, write_megatron

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
torch.set_num_threads(1)
from transformers import masking_utils  # noqa: E402
from transformers import modeling_flash_attention_utils as flash  # noqa: E402
from transformers.integrations import flash_attention as flash_layer  # noqa: E402
from transformers.integrations import flex_attention as flex  # noqa: E402

LENGTH, VOCABULARY = INPUTS["seq_len"], 300
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
MODELS = {
    "llama": ("Llama", {**SMALL, "intermediate_size": 32, "num_key_value_heads": 1}),
    "qwen2": ("Qwen2", {**SMALL, "intermediate_size": 32, "num_key_value_heads": 2}),
    "gpt2": ("GPT2", {"n_embd": 16, "n_layer": 2, "n_head": 2}),
    "gpt-neox": ("GPTNeoX", {**SMALL, "intermediate_size": 32}),
}
NO_DROPOUT = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
BACK_ENDS = "eager", "sdpa", "flex_attention", "flash_attention_2"


def make_model(name):
    family, options = MODELS[name]
    config = getattr(transformers, family + "Config")(
        vocab_size=VOCABULARY,
        initializer_range=0.2,
        **options,
        **(NO_DROPOUT if name == "gpt2" else {}),
    )
    torch.manual_seed(1)
    class_name = family + ("LMHeadModel" if name == "gpt2" else "ForCausalLM")
    return getattr(transformers, class_name)(config)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    lengths = [5, 60, 1, 30, 3 * LENGTH, *numpy.random.default_rng(5).integers(1, 50, 60)]
    documents = [numpy.random.default_rng(n).integers(1, VOCABULARY, n) for n in lengths]
    return write_megatron(tmp_path_factory.mktemp("attention") / "corpus", documents)


@pytest.fixture(scope="module", params=[("hf", 1), ("hf", 3), ("trl", 1), ("trl", 3)], ids=str)
def batches(request, program, corpus, tmp_path_factory):
    """The row of most documents, and one that ends in padding: values, number of labels."""
    profile, rows = request.param
    with ringpack.Loader(
        corpus=corpus, seq_len=LENGTH, batch_size=rows, seed=3, profile=profile,
        return_type="torch", run_dir=tmp_path_factory.mktemp("run"),
    ) as loader:  # fmt: skip
        kept = [(batch.copy(), batch.tokens_loss, batch.tokens_real) for batch in loader]
    padded = min(kept, key=lambda batch: batch[2])
    assert padded[2] < rows * LENGTH
    return [max(kept, key=lambda batch: len(batch[0]["cu_seq_lens_q"]))[:2], padded[:2]]


class Kernels:
    """The calls of FlashAttention."""

    def __init__(self):
        self.varlen = 0

    def dense(self, query, key, value, **_):
        raise AssertionError("the dense kernel, which knows nothing of documents")

    def of_segments(self, query, key, value, cu_seqlens_q, cu_seqlens_k, causal, **_):
        assert cu_seqlens_q.tolist() == cu_seqlens_k.tolist() and causal
        assert cu_seqlens_q.dtype == torch.int32 and cu_seqlens_q[-1] == len(query)
        self.varlen += 1
        parts = []
        for begin, end in zip(cu_seqlens_q.tolist(), cu_seqlens_q.tolist()[1:]):
            part = [of[begin:end].transpose(0, 1) for of in (query, key, value)]
            made = torch.nn.functional.scaled_dot_product_attention(
                *part, is_causal=True, enable_gqa=True
            )
            parts.append(made.transpose(0, 1))
        return torch.cat(parts)


@pytest.fixture
def kernels(monkeypatch):
    played = Kernels()
    functions = (played.dense, played.of_segments, None, None, None)

    def arguments(is_causal, max_seqlen_q=None, max_seqlen_k=None, **_):
        return {"causal": is_causal, "max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k}

    monkeypatch.setattr(
        flash, "lazy_import_flash_attention", lambda *_, **__: (functions, (arguments, dict))
    )
    # FlashAttention takes half precision only; these take the model's
    monkeypatch.setattr(flash_layer, "get_target_dtype", lambda *_: None)
    return played


@pytest.fixture
def uncompiled(monkeypatch):
    """flex_attention as it is: to compile it takes a minute, without effect here."""
    make_mask = masking_utils.create_block_mask

    def plain(query, key, value, training=False, **options):
        return flex.flex_attention(query, key, value, **options)

    def plain_mask(*arguments, **options):
        return make_mask(*arguments, **{**options, "_compile": False})

    monkeypatch.setattr(masking_utils, "create_block_mask", plain_mask)
    monkeypatch.setattr(flex, "compile_friendly_flex_attention", plain)


def alone(model, batch):
    """Logits of each document by itself, end to end."""
    model.config._attn_implementation = "eager"
    tokens = batch["input_ids"].flatten()
    ends = batch["cu_seq_lens_q"].tolist()
    parts = [tokens[begin:end][None] for begin, end in zip(ends, ends[1:])]
    return torch.cat([model(input_ids=part, use_cache=False).logits[0] for part in parts])


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("name", MODELS)
def test_each_document_is_alone(batches, kernels, uncompiled, name, back_end):
    model = make_model(name)
    for batch, labels in batches:
        with torch.no_grad():
            wanted = alone(model, batch)
        flat = batch["labels"].flatten()
        loss = torch.nn.functional.cross_entropy(wanted[:-1], flat[1:], reduction="sum")
        model.config._attn_implementation = back_end
        for training in False, True:
            model.train(training)
            with torch.set_grad_enabled(training and back_end != "flex_attention"):  # has none here
                output = model(**batch)
            assert torch.allclose(output.logits.flatten(0, 1), wanted, atol=1e-4)
            assert torch.allclose(output.loss * labels, loss, rtol=1e-4)
    assert kernels.varlen == (2 * 2 * len(batches) if back_end.startswith("flash") else 0)


def test_the_names_are_needed(batches, kernels):
    """The control: with a cache, or without the lengths, documents see each other."""
    batch = batches[0][0]
    model = make_model("llama").eval()
    three = {name: batch[name] for name in ("input_ids", "labels", "position_ids")}
    with torch.no_grad():
        wanted = alone(model, batch)
        assert not torch.allclose(model(**three).logits.flatten(0, 1), wanted, atol=1e-2)
        model.config._attn_implementation = "flash_attention_2"
        if len(batch["input_ids"]) > 1:
            with pytest.raises(AssertionError, match="the dense kernel"):
                model(**three, use_cache=False)
