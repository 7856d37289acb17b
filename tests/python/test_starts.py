# SPDX-License-Identifier: Apache-2.0
"""Where a run begins, and what its starts and ends leave of what was saved before."""

import shutil

import pytest
from failure_kit import Tape, finish
from stream_kit import Ranks


def saved_rows(place):
    """Of the checkpoints of a directory, by name: oldest first."""
    return sorted(path.name for path in place.glob("checkpoint-*.rpc"))


def read_and_save(program, folder, tape, engines, times):
    """A checkpoint after each three batches. Returns the state token behind the last one."""
    engine = engines(program, folder, tape.config)
    with Ranks(engine) as ranks:
        for _ in range(times):
            tape.read(ranks, 3)
            engine.checkpoint()
        token = ranks.tokens()[0]
    assert engine.stop() == 0
    return token


def restart_idly(program, folder, tape, engines, times):
    """Starts that nobody attaches to: half of them end in order, the others are killed."""
    for number in range(times):
        engine = engines(program, folder, tape.config)
        if number % 2:
            engine.kill()
        else:
            assert engine.stop() == 0, engine.log()


def test_idle_restarts_lose_no_position(program, folder, engines):
    place = folder / "checkpoints"
    tape = Tape(folder, 100000, checkpoint_dir=str(place), checkpoint_keep=3)
    token = read_and_save(program, folder, tape, engines, 3)
    before = saved_rows(place)
    assert len(before) == 3
    restart_idly(program, folder, tape, engines, 20)
    assert saved_rows(place) == before
    finish(program, folder, tape, token)


def test_an_engine_that_counts_equal_saves_is_found_out(broken, folder, engines, monkeypatch):
    place = folder / "checkpoints"
    tape = Tape(folder, 100000, checkpoint_dir=str(place), checkpoint_keep=3)
    read_and_save(broken, folder, tape, engines, 3)
    before = saved_rows(place)
    monkeypatch.setenv("RP_DEFECT", "count_equal_saves")
    restart_idly(broken, folder, tape, engines, 6)
    assert not set(saved_rows(place)) & set(before)


def save_without_copies(program, folder, engines):
    """How many checkpoints there are after five saves whose copies fail."""
    place, copies = folder / "checkpoints", folder / "copies"
    keys = {"checkpoint_dir": str(place), "checkpoint_copy_dir": str(copies), "checkpoint_keep": 2}
    tape = Tape(folder, 100000, **keys)
    engine = engines(program, folder, tape.config)
    shutil.rmtree(copies)
    with Ranks(engine) as ranks:
        for _ in range(5):
            tape.read(ranks, 3)
            engine.checkpoint()
        token = ranks.tokens()[0]
    assert engine.stop() == 0
    count = len(saved_rows(place))
    finish(program, folder, tape, token)
    return count, len(saved_rows(place)), len(saved_rows(copies))


def test_nothing_is_pruned_before_its_copy(program, folder, engines):
    count, later, copies = save_without_copies(program, folder, engines)
    assert count == 6  # one more at the end
    assert later == 2 and copies == 1  # the last run made a checkpoint and its copy


def test_an_engine_that_prunes_before_the_copy_is_found_out(broken, folder, engines, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "prune_before_copy")
    assert save_without_copies(broken, folder, engines)[0] == 2


def test_a_history_is_kept(program, folder, engines):
    """Of each ten steps the first one that was saved, and the newest two."""
    place = folder / "checkpoints"
    keys = {"checkpoint_keep": 2, "checkpoint_keep_every": 10, "checkpoint_steps": 3}
    tape = Tape(folder, 50000, checkpoint_dir=str(place), **keys)
    engine = engines(program, folder, tape.config)
    with Ranks(engine) as ranks:
        for _ in range(10):
            tape.read(ranks, 3)
            engine.checkpoint()
    assert engine.stop() == 0
    rows = [int(name.split("-")[1][:12]) for name in saved_rows(place)]
    assert len(rows) == 5, rows  # at the steps 3, 12, 21, and 27 and 30


@pytest.mark.parametrize("every", ["-1", "often"])
def test_a_history_that_is_none(program, folder, engines, every):
    tape = Tape(folder, 1000, checkpoint_keep_every=every)
    engine = engines(program, folder, tape.config, wait=False)
    assert engine.wait() == 2 and "checkpoint_keep_every" in engine.log()
