# SPDX-License-Identifier: Apache-2.0
"""A tiny model, a corpus, and makers of loaders and of trainers of transformers."""

import numpy
import pytest
import ringpack
from stream_oracle import write_megatron

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
LENGTH, VOCABULARY = 32, 300
torch.set_num_threads(1)


def write(place, lengths):
    generator = numpy.random.default_rng(7)
    return write_megatron(place, [generator.integers(1, VOCABULARY, n) for n in lengths])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    lengths = numpy.random.default_rng(5).integers(1, 50, 200)
    return write(tmp_path_factory.mktemp("hf") / "corpus", lengths)


@pytest.fixture
def load(program, corpus, folder):
    loaders = []

    def make(**changes):
        known = {"corpus": corpus, "seq_len": LENGTH, "batch_size": 2, "seed": 3, "profile": "hf"}
        known.update(return_type="torch", run_dir=folder, num_epochs="endless")
        loaders.append(ringpack.Loader(**{**known, **changes}))
        return loaders[-1]

    yield make
    for loader in loaders:
        loader.close()


def make_model():
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=2, bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip


@pytest.fixture
def train_with(tmp_path):
    def make(kind=transformers.Trainer, place="out", eval_dataset=None, **arguments):
        known = {"max_steps": 4, "save_steps": 1, "logging_steps": 1, "use_cpu": True}
        known.update(report_to="none", disable_tqdm=True, lr_scheduler_type="constant")
        given = transformers.TrainingArguments(str(tmp_path / place), **{**known, **arguments})
        return kind(model=make_model(), args=given, eval_dataset=eval_dataset)

    return make


def losses(trainer):
    return {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}


def weights(trainer):
    return torch.cat([of.flatten() for of in trainer.model.state_dict().values()])
