# SPDX-License-Identifier: Apache-2.0
"""Trainer.evaluate() on loaders: a whole pass each time, the mean over all labels, on one rank and
on two; and TRL's SFTTrainer, which trains, evaluates and resumes as the Trainer of transformers."""

import contextlib
import json
import math
import sys

import numpy
import pytest
import ringpack
from conftest import ROOT
from forked_ranks import ForkedRanks
from hf_kit import (  # noqa: F401
    LENGTH,
    VOCABULARY,
    corpus,
    load,
    losses,
    make_model,
    torch,
    train_with,
    transformers,
    weights,
    write,
)
from stream_kit import VERSION_1


@pytest.fixture(scope="module")
def held_out(tmp_path_factory):
    """Whose last rows are documents of one token: batches without a label."""
    place = tmp_path_factory.mktemp("held-out")
    lengths = numpy.random.default_rng(6).integers(2, 40, 30)
    return write(place / "held-out", [*lengths, *[1] * (6 * LENGTH)])


@pytest.fixture
def evaluated(load, held_out):  # noqa: F811
    def make(**changes):
        """Its batches without a label are the ones of version 1."""
        known = {"corpus": held_out, "num_epochs": 1, "run": "held-out", "shuffle": "none"}
        known |= VERSION_1
        return load(**{**known, **changes})

    return make


def mean_loss(model, loader):
    """By hand: of all labels."""
    total = labels = without = 0
    for batch in loader:
        count = int((batch["labels"][..., 1:] != -100).sum())
        without += count == 0
        if count:
            with torch.no_grad():
                total += model(**batch).loss.item() * count
        labels += count
    return total / labels, labels, without


def evaluations(trainer):
    return [entry for entry in trainer.state.log_history if "eval_loss" in entry]


def check_evaluations(trainer, loader, count):
    """Each had the whole stream; the last one was of the model as it is."""
    loss, labels, without = mean_loss(trainer.model.eval(), loader)
    found = evaluations(trainer)
    assert len(found) == count and without > 0
    for entry in found:
        assert (entry["eval_labels"], entry["eval_batches"]) == (labels, len(loader))
        assert entry["eval_batches_without_label"] == without
    assert math.isclose(found[-1]["eval_loss"], loss, rel_tol=1e-5)


def test_each_evaluation_is_whole(load, evaluated, train_with):  # noqa: F811
    """Also after one that was cut short, and without effect on the training."""
    with load() as loader:
        plain = ringpack.hf.attach(train_with(place="plain"), loader)
        plain.train()
    options = {"eval_strategy": "steps", "eval_steps": 2, "eval_on_start": True}
    with load() as loader, evaluated() as held:
        trainer = train_with(eval_dataset=held, **options)
        ringpack.hf.attach(trainer, loader)
        trainer.train()
        check_evaluations(trainer, held, 3)
        assert losses(trainer) == losses(plain) and torch.equal(weights(trainer), weights(plain))

        class Cut(Exception):
            pass

        step = trainer.prediction_step
        trainer.prediction_step = lambda *_, **__: (_ for _ in ()).throw(Cut)
        with pytest.raises(Cut):
            trainer.evaluate()
        trainer.prediction_step = step
        trainer.evaluate()
        check_evaluations(trainer, held, 4)


def test_the_streams_of_the_loader_are_evaluated(load, evaluated, corpus, train_with):  # noqa: F811
    held = evaluated()
    own = {"eval": {"corpus": held._given.corpus, "num_epochs": 1}}
    for streams, keys in (
        ({"train": {}, **own}, ["eval_loss"]),
        ({"train": {}, **own, "again": own["eval"]}, ["eval_eval_loss", "eval_again_loss"]),
    ):
        with load(streams=streams) as loader:
            trainer = ringpack.hf.attach(train_with(eval_strategy="no", max_steps=2), loader)
            trainer.train()
            found = trainer.evaluate()
            wanted, labels, _ = mean_loss(trainer.model, held)
            for key in keys:
                assert math.isclose(found[key], wanted, rel_tol=1e-5), key
            pid = ringpack.stat(loader.stream("eval").run, loader._given.run_dir)["pid"]
            assert trainer.evaluate()[keys[0]] == found[keys[0]]
            assert ringpack.stat(loader.stream("eval").run, loader._given.run_dir)["pid"] == pid


def test_several_loaders_by_their_names(load, evaluated, corpus, train_with):  # noqa: F811
    held = evaluated(), evaluated(run="other", corpus=corpus, batch_size=3)
    trainer = train_with()
    ringpack.hf.attach(trainer, load(), {"one": held[0], "two": held[1]})
    found = trainer.evaluate()
    for name, loader in zip(("one", "two"), held):
        loss, labels, _ = mean_loss(trainer.model, loader)
        assert found[f"eval_{name}_labels"] == labels
        assert math.isclose(found[f"eval_{name}_loss"], loss, rel_tol=1e-5)
    found = trainer.evaluate(held[1], metric_key_prefix="test")
    assert found["test_batches"] == len(held[1])


def test_a_stream_without_any_label_says_so(
    load, evaluated, train_with, tmp_path, caplog  # noqa: F811
):
    with evaluated(corpus=write(tmp_path / "short", [1] * 200)) as held:
        trainer = ringpack.hf.attach(train_with(), load(), held)
        found = trainer.evaluate()
    assert math.isnan(found["eval_loss"]) and found["eval_labels"] == 0
    assert "no batch of the evaluation has a label" in caplog.text


def test_what_cannot_be_evaluated_on_is_refused(load, evaluated, train_with):  # noqa: F811
    for changes, text in (
        ({"profile": None}, "profile=None"),
        ({"dp_rank": 0, "dp_world_size": 2}, "has 1 processes, and the loader is rank 0 of 2"),
    ):
        with pytest.raises(ringpack.UsageError, match=text):
            ringpack.hf.attach(train_with(), load(), evaluated(**changes))
    with evaluated(num_epochs="endless") as held:
        trainer = ringpack.hf.attach(train_with(), load(), held)
        with pytest.raises(ringpack.UsageError, match="endless"):
            trainer.evaluate()


RANKS = """
import json, sys
from pathlib import Path
import ringpack, transformers
sys.path[:0] = sys.argv[4:]
from hf_kit import LENGTH, make_model

corpus, held, place = sys.argv[1:4]
form = dict(seq_len=LENGTH, batch_size=1, seed=3, profile="hf", return_type="torch", run_dir=place)
train = ringpack.Loader(corpus=corpus, num_epochs="endless", **form)
held = ringpack.Loader(corpus=held, num_epochs=1, shuffle="none", **form)
trainer = transformers.Trainer(
    model=make_model(),
    args=transformers.TrainingArguments(
        place + "/out", max_steps=4, save_strategy="no", logging_steps=1, use_cpu=True,
        eval_steps=2, eval_strategy="steps", report_to="none", disable_tqdm=True,
        lr_scheduler_type="constant", eval_on_start=True, ddp_find_unused_parameters=False),
    eval_dataset=held)
ringpack.hf.attach(trainer, train)
with train, held:
    trainer.train()
    trainer.accelerator.wait_for_everyone()
if trainer.args.process_index == 0:
    Path(place + "/log.json").write_text(json.dumps(trainer.state.log_history))
"""


def test_two_ranks_evaluate_as_one(
    load, evaluated, train_with, corpus, held_out, folder  # noqa: F811
):
    """The same rows, half of them on each: the same loss."""
    options = {"eval_strategy": "steps", "eval_steps": 2, "eval_on_start": True}
    (folder / "ranks.py").write_text(RANKS)
    paths = [ROOT / "tests" / "python", ROOT / "tests" / "oracle"]
    words = [corpus, held_out, folder, *paths]
    with ForkedRanks(2, folder / "ranks.py", words, folder / "log") as job:
        with load() as loader, evaluated() as held:
            trainer = ringpack.hf.attach(train_with(eval_dataset=held, **options), loader)
            trainer.train()
        job.finish()
    entries = json.loads((folder / "log.json").read_text())
    found = [entry for entry in entries if "eval_loss" in entry]
    wanted = evaluations(trainer)
    assert len(found) == len(wanted) == 3
    for one, other in zip(found, wanted):
        assert one["eval_labels"] == other["eval_labels"]
        assert math.isclose(one["eval_loss"], other["eval_loss"], rel_tol=1e-5)
    trained = {entry["step"]: entry["loss"] for entry in entries if "loss" in entry}
    assert numpy.allclose(list(trained.values()), list(losses(trainer).values()), rtol=1e-5)


# ---- TRL ----------------------------------------------------------------------------------------


@pytest.fixture
def tune_with(tmp_path):
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{n}": n for n in range(VOCABULARY - 1)} | {"<e>": VOCABULARY - 1}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<e>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<e>")

    def make(place, **arguments):
        known = {"save_steps": 2, "logging_steps": 1, "use_cpu": True, "bf16": False}
        known |= {"report_to": "none", "disable_tqdm": True, "lr_scheduler_type": "constant"}
        known |= {"gradient_accumulation_steps": 2, "learning_rate": 1e-2}
        return trl.SFTTrainer(
            make_model(),
            args=trl.SFTConfig(str(tmp_path / place), **known, **arguments),
            train_dataset=datasets.Dataset.from_dict({"input_ids": [[0]], "labels": [[0]]}),
            processing_class=tokenizer,
        )

    return make


def test_sft_trainer(load, evaluated, tune_with, train_with):  # noqa: F811
    """Whole, and cut and resumed; in rows and as one row; against the Trainer of transformers."""

    def tune(place, profile, steps):
        with load(profile=profile) as loader, evaluated(profile=profile) as held:
            trainer = tune_with(place, max_steps=steps)
            trainer.args.eval_strategy, trainer.args.eval_steps = "steps", 2
            ringpack.hf.attach(trainer, loader, held)
            last = ringpack.hf.last_checkpoint(trainer.args.output_dir)
            with contextlib.redirect_stdout(sys.stderr):
                trainer.train(resume_from_checkpoint=last)
            assert loader.next_row == steps * 2 * 2
            check_evaluations(trainer, held, steps // 2)
        return trainer

    tuned = {}
    for profile in "trl", "hf":
        whole = tune(f"{profile}-whole", profile, 4)
        tune(f"{profile}-cut", profile, 2)
        resumed = tune(f"{profile}-cut", profile, 4)
        assert losses(resumed) == losses(whole) and len(losses(whole)) == 4
        assert torch.equal(weights(resumed), weights(whole))
        tuned[profile] = list(losses(whole).values())
    with load() as loader:
        options = {"learning_rate": 1e-2, "gradient_accumulation_steps": 2}
        plain = ringpack.hf.attach(train_with(**options), loader)
        plain.train()
    for found in tuned.values():
        assert numpy.allclose(found, list(losses(plain).values()), rtol=1e-4)


def test_labels_of_another_value_are_not_counted(load, evaluated, train_with):  # noqa: F811
    """Of a loader with ignore_index, whose loss is the caller's."""

    def loss_of(outputs, labels, **_):
        logits, labels = outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        return torch.nn.functional.cross_entropy(logits, labels, ignore_index=int(labels.min()))

    found = []
    for index in -100, -1:
        with load(run=f"train{index}") as loader, evaluated(
            ignore_index=index, run=f"held{index}"
        ) as held:
            trainer = train_with(eval_dataset=held)
            trainer.compute_loss_func = loss_of
            ringpack.hf.attach(trainer, loader)
            found.append(trainer.evaluate())
    for name in "eval_loss", "eval_labels", "eval_batches_without_label":
        assert found[0][name] == found[1][name] > 0
