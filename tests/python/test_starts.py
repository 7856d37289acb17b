# SPDX-License-Identifier: Apache-2.0
"""The row at which a run begins, and the earlier checkpoints after its starts and ends."""

import hashlib
import json
import os
import random
import re
import select
import shutil
import sys
import time
from pathlib import Path

import pytest
from failure_kit import Tape, assert_ended_by, finish
from refusal_kit import refused, run
from stream_kit import LONG, PATIENCE, Ranks

sys.path.append(str(Path(__file__).resolve().parents[1] / "kill"))
from kills import Ledger  # noqa: E402

SEED = int(os.environ.get("RP_SEED", random.SystemRandom().randrange(10**6)))
CRASHES = 1000 if LONG else 25


def saved_rows(place):
    """Of the checkpoints of a directory, by name: oldest first."""
    return sorted(path.name for path in place.glob("checkpoint-*.rpc"))


def read_and_save(program, folder, tape, engines, times):
    """A checkpoint after each three batches. Returns the state token after the last one."""
    engine = engines(program, folder, tape.config)
    with Ranks(engine) as ranks:
        for _ in range(times):
            tape.read(ranks, 3)
            engine.checkpoint()
        token = ranks.tokens()[0]
    assert engine.stop() == 0
    return token


def restart_idly(program, folder, tape, engines, times):
    """Starts without a trainer: half of them end in order, the others are killed."""
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


def hashes(place):
    return {path.name: hashlib.sha256(path.read_bytes()).digest() for path in place.glob("*.rpc")}


def crash_at_random_times(program, folder, tape, engines):
    """SIGKILL up to a fifth later than the start usually takes. Yields after each."""
    generator = random.Random(SEED)
    begin = time.monotonic()
    engines(program, folder, tape.config).kill()
    usual = time.monotonic() - begin
    for _ in range(CRASHES):
        engine = engines(program, folder, tape.config, wait=False)
        time.sleep(generator.uniform(0, 1.2 * usual))
        engine.kill()
        yield


def crash_at_points(program, folder, tape, engines):
    """SIGKILL at the system calls and stores that others can see, those that have killed seldom
    before others; who is not drawn is killed when it is ready. Yields after each."""
    ledger = Ledger(folder / "ledger", SEED)
    os.environ["RP_POINTS"] = str(ledger.path)
    try:
        for _ in range(CRASHES):
            engine = engines(program, folder, tape.config, wait=False)
            assert select.select([engine.ready], [], [], PATIENCE)[0]
            engine.kill()
            yield
    finally:
        del os.environ["RP_POINTS"]
    engine_kills = sum(ledger.read()[0].values())
    print(f"{engine_kills} of {CRASHES} engines died at a point", end=" ")


@pytest.mark.parametrize("crash", [crash_at_random_times, crash_at_points])
def test_crashes_at_start_lose_no_position(broken, program, folder, engines, crash):
    """Every checkpoint, its copy and the run record are unchanged."""
    print(f"seed {SEED}", end=" ")
    place, copies = folder / "checkpoints", folder / "copies"
    keys = {"checkpoint_dir": str(place), "checkpoint_mirror_dir": str(copies)}
    keys["checkpoint_keep"] = 3
    tape = Tape(folder, 50000, **keys)
    token = read_and_save(program, folder, tape, engines, 3)
    (record,) = (folder / "state-home").rglob("*.record")
    before = hashes(place), hashes(copies), record.read_text()
    assert len(before[0]) == 3
    for _ in crash(broken, folder, tape, engines):
        assert saved_rows(place) == sorted(before[0])
    engine = engines(program, folder, tape.config)
    newest = max(before[0])
    assert f"resuming from {place}/{newest}" in engine.log()
    assert engine.stop() == 0
    assert (hashes(place), hashes(copies), record.read_text()) == before
    assert sorted(os.listdir(place)) == [
        ".directory-id", ".lock", *sorted(before[0]), "run-journal.jsonl"]
    finish(program, folder, tape, token)


def save_without_copies(program, folder, engines):
    """How many checkpoints there are after five saves whose copies fail."""
    place, copies = folder / "checkpoints", folder / "copies"
    keys = {"checkpoint_dir": str(place), "checkpoint_mirror_dir": str(copies)}
    keys["checkpoint_keep"] = 2
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


def rewind_and_lose(program, folder, engines):
    """The first row of a run that was rewound from its third checkpoint to the first, was
    started once, and has then lost its directory; and the rows of the three."""
    place, copies = folder / "checkpoints", folder / "copies"
    keys = {"checkpoint_dir": str(place), "checkpoint_mirror_dir": str(copies)}
    tape = Tape(folder, 100000, **keys)
    read_and_save(program, folder, tape, engines, 3)
    listed = json.loads(run(program, "checkpoint", "list", "--json", place).stdout)
    rows = {entry["sequence"]: entry["next_row"] for entry in listed}
    said = run(program, "checkpoint", "rewind", place, "--to", str(min(rows)))
    assert said.returncode == 0 and "copies of them" in said.stdout
    restart_idly(program, folder, tape, engines, 1)
    shutil.rmtree(place)
    engine = engines(program, folder, tape.config)
    with Ranks(engine) as ranks:
        row = ranks.loaders[0].next_row
    engine.kill()
    return row, sorted(rows.values())


def test_a_rewind_holds_for_the_copies(program, folder, engines):
    row, rows = rewind_and_lose(program, folder, engines)
    assert len(rows) == 3 and row == rows[0]


def test_an_engine_that_forgets_rewound_copies_is_found_out(broken, folder, engines, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "forget_rewound_copies")
    row, rows = rewind_and_lose(broken, folder, engines)
    assert row == rows[-1]


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


# ---- the row at which a run begins ---------------------------------------------------------------


def refuses_to_start(program, folder, engines, config, *texts):
    engine = engines(program, folder, config, wait=False)
    assert_ended_by(engine, *texts)
    engine.log_path.unlink()


def test_required(program, folder, engines):
    """Refused without a checkpoint, before any file is made; else as ever."""
    place = folder / "checkpoints"
    tape = Tape(folder, 100000, checkpoint_dir=str(place))
    strict = {**tape.config, "resume": "required"}
    texts = ["resume: required", str(place)]
    refuses_to_start(program, folder, engines, strict, *texts, "does not exist")
    assert not place.exists()
    place.mkdir()
    refuses_to_start(program, folder, engines, strict, *texts, "has no checkpoint")
    token = read_and_save(program, folder, tape, engines, 2)
    engine = engines(program, folder, strict, wait=False)
    engine.wait_ready()
    assert engine.stop() == 0
    assert "resuming from" in engine.log()
    finish(program, folder, tape, token)
    where = ["-c", folder / "e2e.yaml", "--resume=required", "--fresh"]
    refused(program, "serve", *where, texts=["--fresh"])


def test_required_without_a_directory(program, folder, engines):
    engine = engines(program, folder, Tape(folder, 1000, resume="required").config, wait=False)
    assert_ended_by(engine, "resume", "checkpoint_dir")


def warnings_of_a_start(program, folder, engines, config, *options):
    """The lines about row 0 in the log of an engine that is killed once it is ready."""
    (folder / "e2e.log").unlink(missing_ok=True)
    engine = engines(program, folder, config, *options)
    engine.kill()
    return [line for line in engine.log().splitlines() if "no checkpoint in" in line]


def test_a_start_at_row_0_warns(program, folder, engines):
    """For a checkpoint directory without one: it may be one that is not mounted. Silent if the user
    chose row 0, if no directory is given, and if there is a checkpoint."""
    place = folder / "checkpoints"
    tape = Tape(folder, 100000, checkpoint_dir=str(place))
    begin = f"ringpack: warning: no checkpoint in {place}"
    made = ", which was made just now"
    for middle in (made, ""):  # the second start finds the directory that the first one made
        (line,) = warnings_of_a_start(program, folder, engines, tape.config)
        assert f"{begin}{middle}: starting at row 0; " in line, line
        assert "is the file system of that directory mounted?" in line
        assert "`resume: required`" in line
    assert not warnings_of_a_start(program, folder, engines, tape.config, "--fresh")
    alone = {key: value for key, value in tape.config.items() if key != "checkpoint_dir"}
    assert not warnings_of_a_start(program, folder, engines, alone)
    read_and_save(program, folder, tape, engines, 1)
    assert not warnings_of_a_start(program, folder, engines, tape.config)
    for path in place.glob("*.rpc"):  # by hand: in the same directory, so it is meant
        path.unlink()
    (line,) = warnings_of_a_start(program, folder, engines, tape.config)
    assert f"{begin}: starting at row 0; " in line, line
    assert "had a checkpoint at row 12 on 20" in (folder / "e2e.log").read_text()


@pytest.mark.parametrize("how", ["option", "key"])
def test_a_fresh_start_sets_aside(program, folder, engines, how):
    """Old checkpoints keep their names, copies included; no run continues from them there, but does
    once they are moved back."""
    place, copies = folder / "checkpoints", folder / "copies"
    tape = Tape(folder, 100000, checkpoint_dir=str(place), checkpoint_mirror_dir=str(copies))
    token = read_and_save(program, folder, tape, engines, 3)
    before = {path.name: path.read_bytes() for path in place.glob("checkpoint-*.rpc")}
    assert len(before) == 3
    config = {**tape.config, "resume": "fresh"} if how == "key" else tape.config
    engine = engines(program, folder, config, *(["--fresh"] if how == "option" else []))
    with Ranks(engine) as ranks:
        assert ranks.loaders[0].next_row == 0
    engine.kill()
    asides = list(place.glob("set-aside-*"))
    assert len(asides) == 1 and re.fullmatch(r"set-aside-\d{8}-1", asides[0].name)
    assert {path.name: path.read_bytes() for path in asides[0].iterdir()} == before
    assert len(list(copies.glob("set-aside-*/checkpoint-*.rpc"))) == 3
    assert asides[0].name in run(program, "checkpoint", "list", place).stdout

    engine = engines(program, folder, tape.config)  # neither from those nor from their copies
    with Ranks(engine) as ranks:
        assert ranks.loaders[0].next_row == 0
    assert engine.stop() == 0
    newest = saved_rows(place)[-1]
    assert newest > max(before), "a number was used twice"
    wanted = max(before)
    said = run(program, "checkpoint", "rewind", place, "--to", str(int(wanted[11:23])))
    assert said.returncode == 2 and f"mv {asides[0].name}/{wanted} ." in said.stderr
    (asides[0] / wanted).rename(place / wanted)
    said = run(program, "checkpoint", "rewind", place, "--to", str(int(wanted[11:23])))
    assert said.returncode == 0
    finish(program, folder, tape, token)
