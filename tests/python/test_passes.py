# SPDX-License-Identifier: Apache-2.0
"""Loops over a finite stream: whole each time, on each rank, during a training, and in frameworks;
and positions of loops that take batches before they use them."""

import json
import os
import subprocess
import sys
import threading

import numpy
import pytest
import ringpack
from ringpack import _passes
from conftest import ROOT
from lightning_kit import MODEL, needs_lightning
from stream_kit import PATIENCE
from warm_python import warm_python

warm = warm_python()
torch = pytest.importorskip("torch")


@pytest.fixture
def short(make):
    """Loaders of a stream of seven batches."""
    return lambda **changes: make(**{"batch_size": 8, "num_epochs": 1, **changes})


def rows_of(batches):
    return [batch["rows"]["row"].tolist() for batch in batches]


# ---- passes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"return_type": "torch"}, {"restart": True}])
def test_each_loop_is_a_pass(short, options):
    with short(**options) as loader:
        whole = rows_of(loader)
        assert len(whole) == len(loader) == 7
        for count in 2, 0, 7, 5:
            assert rows_of(batch for _, batch in zip(range(count), loader)) == whole[:count]
            assert rows_of(loader) == whole
        assert rows_of([next(loader) for _ in range(0)]) == []
        start = loader.state_dict()
    other = short(**options)
    other.load_state_dict(start)  # the state of the end: the next pass
    assert rows_of(other) == whole


def loop_inside(loader):
    """Batches of a loop that another one over the same loader has interrupted, and its error."""
    taken = 0
    try:
        for _ in loader:
            taken += 1
            if taken == 2:
                assert len(rows_of(loader)) == 7
    except ringpack.UsageError as failure:
        return taken, failure
    return taken, None


def test_a_loop_inside_of_another_one_ends_it_by_name(short):
    """It ended without a word; the outer loop of an evaluation began again."""
    streams = {"train": {}, "eval": {"num_epochs": 1}}
    with short(restart=True) as loader, short(streams=streams) as train:
        for each in loader, train.stream("eval"):
            taken, failure = loop_inside(each)
            assert taken == 2 and "another loop over this loader" in str(failure)
            assert len(rows_of(each)) == 7
        old = iter(loader)
        assert len(rows_of(old)) == 7 and len(rows_of(loader)) == 7
        next(iter(loader))
        assert rows_of(old) == []


def test_control_a_loop_that_another_one_ends_unnoticed(short, monkeypatch):
    monkeypatch.setattr(_passes.Pass, "_refuse", lambda self: None)
    with short(restart=True) as loader:
        assert loop_inside(loader) == (2, None)


@pytest.mark.parametrize("options", [{}, {"return_type": "torch", "restart": False}])
def test_loops_go_on_where_that_is_asked_for(short, options):
    with short(**options) as loader:
        first = rows_of(batch for _, batch in zip(range(2), loader))
        rest = rows_of(loader)
        assert len(first) == 2 and len(rest) in (4, 5)  # zip() takes one more
        assert rows_of(loader) == []


def test_a_loaded_state_is_gone_on_from_once(short):
    with short(return_type="torch") as loader:
        whole, states = [], []
        for batch in loader:
            whole += rows_of([batch])
            states.append(loader.state_dict())
        for k in 0, 3, 5:
            loader.load_state_dict(states[k])
            assert rows_of(loader) == whole[k + 1 :]
            assert rows_of(loader) == whole
        loader.reset()
        assert loader.next_row == 0 and rows_of([next(loader)]) == whole[:1]
        assert rows_of(loader) == whole[1:], "a loop goes on after next()"
    resumed = short(return_type="torch")  # attaches in mid-stream: the first row has to be found
    resumed.load_state_dict(states[3])
    assert rows_of(resumed) == whole[4:] and rows_of(resumed) == whole


def test_an_endless_stream_goes_on(short):
    with short(return_type="torch", num_epochs="endless") as loader:
        rows = [next(iter(loader))["rows"]["row"].tolist() for _ in range(10)]
    assert [first for first, *_ in rows] == [8 * k for k in range(10)]


def test_by_default_a_loop_of_torch_goes_on_and_begins_again_after_the_end(make):
    with make(return_type="torch", batch_size=8, num_epochs=None) as loader:
        first = rows_of(batch for batch, _ in zip(loader, range(2)))
        whole = first + rows_of(loader)
        assert len(whole) in (6, 7) and rows_of(loader)[:2] == first
        list(loader)
        loader.close()
        assert rows_of(loader)[:2] == first, "after close(), too"


def test_a_pass_of_an_attached_loader_without_a_description(short, folder):
    with short(run="shared") as owner:
        next(owner)
        next(owner)
        owner._detach()
        with ringpack.Loader(run="shared", run_dir=folder, restart=True) as other:
            next(iter(other))
            with pytest.raises(ringpack.UsageError, match="does not describe the stream"):
                next(iter(other))


def test_each_rank_has_each_pass(short):
    """Also after passes that were cut short."""
    share = {"dp_world_size": 2, "run": "evaluation", "batch_size": 4, "return_type": "torch"}
    loaders = [short(dp_rank=rank, start_engine=rank == 0, **share) for rank in range(2)]
    passes, barrier = [[], []], threading.Barrier(2)

    def evaluate(rank):
        with loaders[rank] as loader:
            for limit in (2, 99, 99, 1, 99):
                taken = rows_of(batch for _, batch in zip(range(limit), loader))
                passes[rank].append([row for rows in taken for row in rows])
                barrier.wait(PATIENCE)

    threads = [threading.Thread(target=evaluate, args=(rank,)) for rank in range(2)]
    [thread.start() for thread in threads]
    [thread.join(PATIENCE) for thread in threads]
    whole = passes[0][1]
    assert sorted(passes[0][1] + passes[1][1]) == list(range(len(passes[0][1]) * 2))
    for rank in range(2):
        lengths = [len(rows) for rows in passes[rank][:5]]
        assert lengths == [8, len(whole), len(whole), 4, len(whole)]
        assert passes[rank][1] == passes[rank][2] == passes[rank][4]


def test_other_ranks_take_the_end_when_the_first_one_has_left(short):
    share = {"dp_world_size": 2, "run": "leaving", "batch_size": 4, "return_type": "torch"}
    first, second = (short(dp_rank=rank, start_engine=rank == 0, **share) for rank in range(2))
    taken = {}

    def read(rank, loader, wait):
        with loader:
            begun = loader.attach()
            wait()
            taken[rank] = len(rows_of(begun))

    left = threading.Event()
    other = threading.Thread(target=read, args=(1, second, lambda: left.wait(2)))
    other.start()
    read(0, first, lambda: None)
    left.set()
    other.join(PATIENCE)
    assert taken[0] == taken[1] == 7


# ---- look ahead ---------------------------------------------------------------------------------


def test_a_batch_has_its_position(short):
    with short(keep=3) as loader:
        batches = [next(loader) for _ in range(6)]
        states = [batch.state_dict(text=True) for batch in batches]
        assert states[-1] == loader.state_dict(text=True)
        assert states[1] == loader.state_dict(batches[1], text=True), "of one that is closed, too"
        rest = rows_of([next(loader)])
    for k, state in enumerate(states):
        with short(run=f"again-{k}") as other:
            other.load_state_dict(state)
            assert other.next_row == batches[k].next_row
            if k == 5:
                assert rows_of(other) == rest


def test_a_state_that_is_no_longer_known_says_so(make):
    with make(num_epochs="endless") as loader:
        first = next(loader)
        for _ in range(31):
            next(loader)
        assert first.state_dict()
        next(loader)
        with pytest.raises(ringpack.ReleasedError, match="no longer known"):
            first.state_dict()


@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize("options", [{}, {"copy": True}])
def test_look_ahead_keeps_the_position_behind(short, ahead, options):
    with short() as plain:
        whole, states = [], [plain.state_dict(text=True)]
        for batch in plain:
            whole.append(batch["rows"]["row"].tolist())
            states.append(plain.state_dict(text=True))
    with short(look_ahead=ahead, **options) as loader:
        for taken in range(1, 8):
            assert next(loader)["rows"]["row"].tolist() == whole[taken - 1]
            assert loader.state_dict(text=True) == states[max(0, taken - ahead)], taken
            assert loader.next_row == 8 * max(0, taken - ahead)
        for used in range(ahead):
            assert loader.next() is None
            assert loader.state_dict(text=True) == states[7 - ahead + used + 1]
    with short(look_ahead=ahead, **options) as loader:
        for _ in range(4):
            next(loader)
    assert loader.next()["rows"]["row"].tolist() == whole[4 - ahead], "the unused ones"


def test_the_epoch_of_a_batch(make):
    with make(num_epochs=3, batch_size=1) as loader, make(num_epochs=1, run="one") as one:
        epochs = [batch.epoch for batch in loader]
        rows = sum(batch.rows_real for batch in one)
    assert epochs == sorted(epochs) and set(epochs) == {0, 1, 2}
    assert abs(epochs.count(0) - rows) <= rows // 10, "rows are packed out of order"


# ---- defaults of torch --------------------------------------------------------------------------


def test_a_loader_of_torch_has_what_a_model_takes(make):
    with make(profile=None, return_type="torch", sections=["segment_ids"]) as loader:
        batch = next(loader)
        assert list(batch) == ["input_ids", "labels", "position_ids", "cu_seqlens", "max_seqlen"]
        assert batch["input_ids"].dtype == batch["labels"].dtype == torch.int64
        assert batch["cu_seqlens"][-1] == batch["input_ids"].numel()
        assert batch["segment_ids"].shape == batch["input_ids"].shape
        model = torch.nn.Sequential(torch.nn.Embedding(50000, 4), torch.nn.Linear(4, 50000))
        logits = model(batch["input_ids"]).flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, batch["labels"].flatten()).backward()


def test_sections_add_to_those_of_a_profile(make, folder):
    """Of a Loader, of a config, and of a Loader with a config that has the profile. Without a
    profile the list is the whole of it."""
    shape = {"seq_len": 64, "batch_size": 2, "num_epochs": 1}
    numpy.arange(4000, dtype="<u2").tofile(folder / "numbers.bin")
    source = {"path": "numbers.bin", "format": "raw", "dtype": "u16", "eos": 0}

    def load(name, keys, **given):
        path = folder / f"{name}.yaml"
        path.write_text(json.dumps({"run": name, "sources": [source], **shape, **keys}))
        return ringpack.Loader(path, run_dir=folder, **given)

    profile, more = {"profile": "grain"}, {"sections": ["labels", "loss_mask"]}
    for loader in (
        make(profile="grain", sections="labels,loss_mask"),
        load("config", {**profile, **more}, profile="grain"),
        load("option", profile, profile="grain", **more),
    ):
        with loader:
            batch = next(loader)
            assert list(batch) == ["inputs", "inputs_segment_ids", "inputs_positions"]
            assert batch["labels"].shape == batch["loss_mask"].shape
    alone = ["rows", "doc_lens", "input_ids", "labels", "loss_mask"]
    for loader in make(profile=None, **more), load("alone", more), load("too", {}, **more):
        with loader:
            assert [name for name in next(loader) if name != "row_plans"] == alone


# ---- frameworks ---------------------------------------------------------------------------------

LIGHTNING = MODEL + """
corpus = sys.argv[1]
def make(epochs):
    return ringpack.Loader(corpus=corpus, seq_len=48, batch_size=8, seed=1, num_epochs=epochs,
                           return_type="torch")
def fit(steps, path=None, **more):
    model, options = Model(), dict(accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, max_steps=steps, max_epochs=-1)
    trainer = lightning.Trainer(**{**options, **more})
    loader = make("endless")
    val = make(1)
    with loader, val:
        trainer.fit(model, loader, val if more else None, ckpt_path=path)
        trainer.save_checkpoint("at.ckpt")
    return model, len(val)
whole, first, rest = fit(9)[0].trained, fit(4)[0].trained, fit(9, "at.ckpt")[0].trained
assert len(whole) == 9 and whole == first + rest, (whole, first, rest)
model, length = fit(9, val_check_interval=4, num_sanity_val_steps=2)
assert model.validated == [2, length, length], (model.validated, length)
print("right")
"""


@needs_lightning
def test_lightning(program, corpora, folder, warm):
    """Resumed, and with validation, in one process."""
    paths = {"PYTHONPATH": str(ROOT / "tools" / "python"), "XDG_RUNTIME_DIR": str(folder)}
    environment = {**os.environ, **warm.environment, **paths}
    command = [warm.python, "-c", LIGHTNING, corpora[0]]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.stdout.strip().endswith("right"), done.stderr[-3000:]
