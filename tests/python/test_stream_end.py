# SPDX-License-Identifier: Apache-2.0
"""Step boundaries, and that a finished stream is finished: engine/plan/STREAM.md section 6."""

import numpy
import pytest
import ringpack
from ringpack._state import token_of
from stream_kit import Engine, Ranks, wait_until

STEP = 12  # rows, of jobs that continue from the states of others with steps of 6


@pytest.fixture
def ended(make):
    """The state after the last batch of a stream, and its rows."""
    with make(global_batch_size=6) as loader:
        for batch in loader:
            assert batch.tokens_real or batch.first_row % 6
        return loader.state_dict(), loader.next_row


@pytest.mark.parametrize("batch_size", [1, 3, 4])
@pytest.mark.parametrize("drop_last", [False, True])
def test_no_batch_follows_the_end(make, ended, batch_size, drop_last):
    """A batch of only padding has no loss: the mean over none is not a number."""
    state, row = ended
    with make(batch_size=batch_size, global_batch_size=STEP, drop_last=drop_last) as loader:
        loader.load_state_dict(state)
        assert list(loader) == []
        assert loader.next_row == row
        assert (loader.state_dict()["ringpack_state"] == state["ringpack_state"]).all()


def test_the_same_loader_has_nothing_left_either(make, ended):
    with make(global_batch_size=6) as loader:
        rows = [batch.first_row for batch in loader]
        loader.load_state_dict(ended[0])
        assert list(loader) == [] and rows


def test_an_engine_from_that_state_has_nothing_left(make, ended, program, folder):
    path = folder / "state"
    path.write_bytes(token_of(ended[0]))
    with make(global_batch_size=STEP, state=path) as loader:
        assert list(loader) == []


def test_control_padding_behind_the_end_is_noticed(make, ended, broken, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "pad_after_end")
    with make(global_batch_size=STEP, program=broken) as loader:
        loader.load_state_dict(ended[0])
        assert {batch.tokens_real for batch in loader} == {0}


def test_ranks_that_begin_at_the_end_end_together(program, folder):
    """The rings hold the whole stream when the first rank attaches, so no other seat is moved."""
    numpy.arange(1, 301, dtype="<u2").tofile(folder / "few.bin")
    source = {"shards": [str(folder / "few.bin")], "format": "raw", "dtype": "u16", "eos": 300}
    config = {"sources": [source], "seq_len": 64, "batch_size": 1, "global_batch_size": 16}
    config |= {"dp_world_size": 2, "prefetch_factor": 8, "num_epochs": 1}
    state = None
    for run in "first", "second":
        engine = Engine(program, folder, {**config, "run": run})
        wait_until(lambda: ringpack.stat(run, folder)["ended"])
        with Ranks(engine, 2, state) as ranks:
            turns = list(ranks.turns())
            state = ranks.tokens()[0]
        assert len(turns) == (8 if run == "first" else 0)
        assert engine.stop() == 0


def last_row(make, looks, **changes):
    """The end row of a job that continues from a state at row 6 with steps of 12 rows. `looks`: it
    attaches before it loads the state."""
    with make(global_batch_size=6) as loader:
        batches = [next(loader), next(loader)]
        state, last = loader.state_dict(), 0
        assert batches[1].next_row == 6
    with make(global_batch_size=STEP, **changes) as loader:
        if not looks:
            loader.close()
        loader.load_state_dict(state)
        for batch in loader:
            last = batch.first_row + 3
    return last


def test_steps_begin_at_the_state_whenever_it_is_loaded(make):
    before, after = last_row(make, looks=False), last_row(make, looks=True)
    assert before == after and (before - 6) % STEP == 0


def test_control_steps_that_begin_elsewhere_are_noticed(make, broken, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "count_steps_from_attach")
    after = last_row(make, looks=True, program=broken)
    assert (after - 6) % STEP != 0


def test_a_state_that_is_refused_is_refused_each_time(make):
    """Try the newest, else the older one: the second of two bad states is reported like the
    first."""
    with make(seed=8) as loader:
        next(loader)
        foreign = loader.state_dict()
    with make() as loader:
        next(loader)
        good = loader.state_dict()
        next(loader)
        for _ in range(3):
            with pytest.raises(ringpack.CheckpointMismatchError, match="seed"):
                loader.load_state_dict(foreign)
        assert loader.next_row == 6, "it stays where it was"
        loader.load_state_dict(good)
        assert next(loader).first_row == 3
