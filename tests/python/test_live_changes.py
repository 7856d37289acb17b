# SPDX-License-Identifier: Apache-2.0
"""Kills around a change of the running stream, other weights or more documents: rows from its step
on are the oracle's with the record, or, if the journal lacks it, the oracle's without."""

import os
import signal
import subprocess
import time

import pytest
from live_kit import STEP_ROWS, GrowingStream, LiveStream, take
from stream_kit import Ranks, token_of

IN_FORCE = "weights from row {} on, as the run journal has them"


@pytest.fixture(params=["weights", "documents"])
def stream(request, tmp_path, program):
    if request.param == "weights":
        return LiveStream(tmp_path)
    return GrowingStream(tmp_path, program)


def grows(stream):
    """A start at row 0, without a checkpoint, takes all documents."""
    return isinstance(stream, GrowingStream)


@pytest.mark.parametrize("turns", [0, 3, 30])
def test_a_kill_after_the_command(engines, program, folder, stream, turns):
    """Before any checkpoint, with one before the step, and with one after it."""
    row = 10 * STEP_ROWS
    rows = stream.rows_from(row)
    engine = stream.start(engines, program, folder)
    with Ranks(engine, 2) as ranks:
        take(ranks.turns(2), rows)
        token = token_of(ranks.loaders[0]) if grows(stream) else None
        stream.prepare()
        stream.change(program, engine, 10)
        take(ranks.turns(turns), rows)
        if turns:
            engine.checkpoint()
            token = token_of(ranks.loaders[0])
        engine.kill()
    engine = stream.start(engines, program, folder)
    with Ranks(engine, 2, token) as ranks:
        seen = take(ranks.turns(), rows)
    assert max(seen) >= len(rows) - 1
    if turns < 30 and not grows(stream):
        assert IN_FORCE.format(row) in engine.log()
    assert engine.stop() == 0


@pytest.mark.parametrize("turns", [0, 20])
def test_trainers_of_a_killed_engine_go_on(engines, program, folder, stream, turns):
    """Trainers that attached before the command attach to the next engine, which has the record:
    before its row, and after it."""
    rows = stream.rows_from(10 * STEP_ROWS)
    engine = stream.start(engines, program, folder, checkpoint_steps=4)
    with Ranks(engine, 2, restart_timeout=60) as ranks:
        seen = take(ranks.turns(3), rows)
        if grows(stream):
            engine.checkpoint()
        stream.prepare()
        stream.change(program, engine, 10)
        seen += take(ranks.turns(turns), rows)
        engine.kill()
        engine = stream.start(engines, program, folder, checkpoint_steps=4)
        seen += take(ranks.turns(), rows)
    assert sorted(set(seen))[: len(rows)] == list(range(len(rows)))
    engine.kill()


@pytest.mark.parametrize("delay", [0, 1, 2, 4, 8, 16])
def test_a_kill_around_the_journalling(engines, program, folder, stream, delay):
    """The record is in the journal and holds, or is not there and does not."""
    engine = stream.start(engines, program, folder)
    stream.prepare()
    command = [program, *stream.command(folder, 1)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as done:
        time.sleep(delay / 1000)
        os.kill(engine.pid, signal.SIGKILL)
        done.wait(60)
    engine.kill()
    found = [entry["row"] for entry in stream.entries(folder)]
    assert found in ([], [STEP_ROWS])
    if grows(stream) and not found and not list((folder / "c").glob("*.rpc")):
        return
    engine = stream.start(engines, program, folder)
    with Ranks(engine, 2) as ranks:
        take(ranks.turns(12), stream.rows_from(*found))
    if not grows(stream):
        assert (IN_FORCE.format(STEP_ROWS) in engine.log()) == bool(found)
    engine.kill()


def test_a_record_that_is_not_journalled_is_missed(
    engines, broken, folder, stream, monkeypatch
):
    monkeypatch.setenv("RP_DEFECT", "lose_live_records")
    with pytest.raises(AssertionError, match="other tokens"):
        test_a_kill_after_the_command(engines, broken, folder, stream, 0)
