# SPDX-License-Identifier: Apache-2.0
"""`ringpack stat`: its keys match its page, and its figures match the run."""

import json
import os
import pty
import subprocess
import threading
import types

import pytest
import ringpack
from stat_kit import assert_documented, documented, keys_of
from stream import Plan, lane_order
from stream_kit import Corpus, Engine, Ranks, Stream, wait_until
from watch_kit import FakeEngine, stat_of

ROWS, WORLD, STEP_ROWS = 2, 2, 8
LAYOUT = [("megatron", "u16", 3, [90]), ("megatron", "u16", 1, [40, 30])]
CONDITIONAL = ("cache_", "masks[].", "wait_history[].")  # no cache, no mask, too young


class Run:
    """An engine with two ranks and two sources."""

    def __init__(self, program, folder, stream):
        self.folder, self.stream = folder, stream
        self.kept, self.copied = folder / "kept", folder / "copied"
        self.config = {
            **self.stream.config(),
            "batch_size": ROWS,
            "dp_world_size": WORLD,
            "global_batch_size": STEP_ROWS,
            "profile": "full",
            "checkpoint_dir": str(self.kept),
            "checkpoint_mirror_dir": str(self.copied),
            "alert_disk_free": "1k",
        }
        self.engine = Engine(program, folder, self.config)

    def stat(self):
        return ringpack.stat(self.engine.run, self.folder)

    def ledger(self, row):
        """The tokens that the oracle's plan has taken from each source before the row."""
        plan = Plan(self.stream.spec)
        while plan.next_row < row:
            plan.row()
        documents, tokens = [0, 0], [0, 0]
        for number, lane in enumerate(plan.lanes):
            for source in range(2):
                tokens[source] += lane.mixed[source]
                documents[source] += lane.position[source] + sum(
                    len(lane_order(self.stream.spec, source, epoch, number))
                    for epoch in range(lane.epoch[source])
                )
        return documents, tokens


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    corpus = Corpus(tmp_path_factory.mktemp("stat"), LAYOUT, 5)
    return Stream(corpus, {"num_epochs": 3, "lanes": 3, "packing": "best_fit"})


@pytest.fixture
def run(program, folder, stream):
    made = Run(program, folder, stream)
    yield made
    made.engine.kill()


def page_of(program, run):
    """The page, as it is shown on a terminal."""
    master, slave = pty.openpty()
    command = [program, "stat", run.engine.run, "--run-dir", str(run.folder)]
    with subprocess.Popen(command, stdout=slave, stderr=slave) as process:
        os.close(slave)
        text = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            text += part
    os.close(master)
    assert process.returncode == 0, text
    return text.decode().replace("\r\n", "\n")


def read(run, turns):
    with Ranks(run.engine, WORLD) as ranks:
        assert len(list(ranks.turns(turns))) == turns


def test_every_key_is_documented(program, run):
    read(run, 3)
    found = keys_of(run.stat())
    assert not found - documented(), "keys without a row in docs/stat-keys.md"
    missing = {key for key in documented() - found if not key.startswith(CONDITIONAL)}
    assert not missing, "rows of docs/stat-keys.md without a key"
    said = subprocess.run(
        [program, "stat", run.engine.run, "--run-dir", str(run.folder)],
        check=True,
        capture_output=True,
    )
    differing = keys_of(json.loads(said.stdout)) ^ found  # no terminal: JSON
    assert not {key for key in differing if not key.startswith(CONDITIONAL)}


def test_rows_and_steps(run):
    before = run.stat()
    with Ranks(run.engine, WORLD) as ranks:
        list(ranks.turns(4))
        first, second = (loader.next_row for loader in ranks.loaders)
        assert first == second
        ranks.loaders[1].next()
        stat = run.stat()
        row = before["next_row"] + 3 * ROWS * WORLD  # the last batch of each is in hand
        assert stat["next_row"] == row
        assert stat["step"] == stat["steps"] == row // STEP_ROWS
        assert stat["skew_rows"] == ROWS
        assert [rank["behind_rows"] for rank in stat["ranks"]] == [ROWS, 0]
        assert {rank["state"] for rank in stat["ranks"]} == {"attached"}
        assert stat["unsaved_rows"] == row - stat["start_row"] and stat["save_row"] is None
    assert {rank["state"] for rank in run.stat()["ranks"]} == {"absent_known"}


def test_the_ledger_is_the_oracles(run):
    with Ranks(run.engine, WORLD) as ranks:
        for turn, _ in enumerate(ranks.turns(len(run.stream.rows) // 2 // (ROWS * WORLD))):
            if turn % 5:
                continue
            stat = run.stat()
            documents, tokens = run.ledger(stat["next_row"])
            ledger = stat["ledger"]
            assert stat["ledger_row"] == stat["next_row"]
            assert [source["source"] for source in ledger] == ["source-0", "source-1"]
            assert [source["documents"] for source in ledger] == documents
            assert [source["tokens"] for source in ledger] == tokens
            assert [source["epochs"] for source in ledger] == [
                pytest.approx(documents[0] / 90),
                pytest.approx(documents[1] / 70),
            ]
            assert [source["weight_share"] for source in ledger] == [0.75, 0.25]
            whole = max(1, sum(tokens))
            assert [source["token_share"] for source in ledger] == [
                pytest.approx(own / whole) for own in tokens
            ]


def waits_of(run, rank):
    own = run.stat()["ranks"][rank]
    assert sum(own["wait_histogram"]) == own["waits"] and len(own["wait_histogram"]) == 32
    assert own["wait_p50_seconds"] <= own["wait_p99_seconds"] <= own["wait_max_seconds"]
    return own


def test_waits(run):
    """Rank 0 waits for a batch that gets its room when rank 1 has released one."""
    before = waits_of(run, 0), waits_of(run, 1)
    with Ranks(run.engine, WORLD) as ranks:
        first, second = ranks.loaders

        def follow():
            for _ in range(20):
                second.next()

        slots = run.stat()["ranks"][0]["slots"]
        for _ in range(slots):
            first.next()
        waiting = threading.Thread(target=first.next)
        waiting.start()
        wait_until(lambda: run.stat()["ranks"][0]["waiting_seconds"] > 0.25)
        assert run.stat()["ranks"][1]["holds"] and not run.stat()["ranks"][1]["waiting_seconds"]
        follower = threading.Thread(target=follow)
        follower.start()
        waiting.join()
        for _ in range(19 - slots):
            first.next()
        follower.join()
        told = waits_of(run, 0), waits_of(run, 1)
        for own, old, loader in zip(told, before, ranks.loaders):
            counted = loader.counts()["wait_ns"] * 1e-9
            assert own["wait_seconds"] - old["wait_seconds"] == pytest.approx(counted, abs=1e-6)
            assert own["waiting_seconds"] == 0
        assert told[0]["waits"] > before[0]["waits"]
        assert told[0]["wait_max_seconds"] > 0.25
        assert sum(told[0]["wait_histogram"][18:]) >= 1, "longer than 2^17 us"
    stat = run.stat()
    for cause in "trainer", "disk", "pack":
        past = sum(period[cause] for period in stat["wait_history"])
        assert past == pytest.approx(sum(rank["cause_seconds"][cause] for rank in stat["ranks"]))
    assert 0 < len(stat["wait_history"]) <= 64 and stat["wait_history_seconds"] >= 1
    assert sum(period["trainer"] for period in stat["wait_history"]) > 0.1
    kept = waits_of(run, 0)
    assert kept["waits"] == told[0]["waits"], "they outlive the trainer"


def test_saves_and_copies(program, run):
    read(run, 4)
    path = run.engine.checkpoint()
    stat = run.stat()
    size = os.stat(path).st_size
    assert (stat["saves"], stat["save_failures"], stat["save_error"]) == (1, 0, None)
    assert (stat["save_bytes"], stat["unsaved_rows"]) == (size, 0)
    assert stat["save_row"] == stat["next_row"]
    assert 0 < stat["save_seconds"] and 0 <= stat["save_age_seconds"] < stat["up_seconds"]
    wait_until(lambda: run.stat()["save_read_back_seconds"])
    parts = [run.stat()[f"save_{part}_seconds"] for part in ("copy", "write", "sync", "name")]
    assert all(0 <= part < stat["save_seconds"] for part in parts), (parts, stat["save_seconds"])
    assert all(parts[1:]), "a save without contents copies none"
    assert sum(parts[1:]) < stat["save_seconds"], (parts, stat["save_seconds"])
    wait_until(lambda: run.stat()["copies"] == 1)
    stat = run.stat()
    assert (stat["copy_bytes"], stat["copy_row"]) == (size, stat["save_row"])
    assert (stat["copy_failures"], stat["copies_skipped"], stat["copy_error"]) == (0, 0, None)

    away = run.folder / "away"
    read(run, 6)
    os.rename(run.kept, away)
    with pytest.raises(ringpack.RingpackError):
        run.engine.checkpoint()
    stat = run.stat()
    assert (stat["saves"], stat["save_failures"]) == (1, 1) and stat["save_error"]
    assert stat["unsaved_rows"] > 0
    assert stat["checkpoint_dir"] == str(run.kept), "it is not looked for again: a disk may hang"
    os.rename(away, run.kept)
    os.rename(run.copied, away)
    run.engine.checkpoint()
    stat = run.stat()
    assert (stat["saves"], stat["save_error"]) == (2, None)
    wait_until(lambda: run.stat()["copy_failures"] == 1)
    assert run.stat()["copy_error"] and run.stat()["copies"] == 1
    os.rename(away, run.copied)

    lines = page_of(program, run).splitlines()
    page = "\n".join(lines)
    assert max(len(line) for line in lines if "the last try" not in line) <= 80, page
    assert lines[0].startswith(f"run {run.engine.run}, pid {run.engine.pid}, up ")
    for words in "last second", "last minute", "source-1", "absent_known", "saves", "memory":
        assert words in page
    assert "1 failed; the last try: succeeded" in page


def test_a_reason_that_is_missing_is_no_success(program, folder):
    FakeEngine(folder, "odd", stat_of("odd", saves=1, save_failures=3))
    shown = types.SimpleNamespace(engine=types.SimpleNamespace(run="odd"), folder=folder)
    assert "3 failed; the last try: -" in page_of(program, shown)


def test_speeds_of_late_end_when_nobody_reads(run):
    read(run, 8)
    stat = run.stat()
    assert stat["tokens_per_second_1min"] > 0 and stat["steps_per_second_1min"] > 0
    wait_until(lambda: run.stat()["steps_per_second_1s"] == 0)
    assert run.stat()["steps_per_second"] > 0
    assert_documented(run.stat())
