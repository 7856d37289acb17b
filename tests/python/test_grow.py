# SPDX-License-Identifier: Apache-2.0
"""Documents that are appended to the index while the engine runs (`ringpack grow`): epochs from the
named step on have them, in this engine, in those after a kill, and on every node."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import ringpack
from live_kit import STEP_ROWS, LiveStream, set_weights, take
from ringpack.errors import CheckpointMismatchError
from stream_kit import Ranks, token_of

BEFORE, AFTER = 60, 90
GROWN = {"source-0": AFTER}
NEW = {"source-0": 1, "source-1": 4}
FILES = "0-1.bin", "0-1.idx"


class GrowingStream(LiveStream):
    """The second shard of source-0 is away until append()."""

    def __init__(self, folder, program):
        super().__init__(folder, counts=(BEFORE, AFTER - BEFORE))
        self.folder, self.program, self.away = Path(folder), program, Path(folder) / "away"
        self.away.mkdir()
        for name in FILES:
            (self.folder / name).rename(self.away / name)
        for number, source in enumerate(self.corpus.sources):
            source["shards"] = [str(self.folder / f"{number}-*.bin")]
        self.index()

    def config(self, folder, **changes):
        index = {"index": str(self.folder / "corpus.rpi"), "grow": False}
        return super().config(folder, **{**index, **changes})

    def index(self, status=0):
        path = self.folder / "index.yaml"
        path.write_text(json.dumps(self.config(self.folder)))
        command = [self.program, "index", "-q", "-c", str(path)]
        assert subprocess.run(command, capture_output=True).returncode == status

    def append(self):
        for name in FILES:
            (self.away / name).rename(self.folder / name)
        self.index()

    def rows_from(self, *rows):
        """Those of the oracle; the documents join at each of `rows`."""
        first = {"from": 0, "documents": {"source-0": BEFORE}}
        return self.rows(first, *({"from": row, "documents": GROWN} for row in rows))


@pytest.fixture
def stream(tmp_path, program):
    return GrowingStream(tmp_path, program)


def start(engines, program, folder, stream, *arguments, **changes):
    return engines(program, folder, stream.config(folder, **changes), *arguments)


def grow(program, engine, step, status=0, documents=GROWN):
    return set_weights(program, engine, documents, step, status, "grow")


def counted(engine):
    """Tokens and costs, which another flow of the engine continues."""
    stat = ringpack.stat(engine.run, engine.folder)
    return [stat["tokens"], *(rank["cost"] for rank in stat["ranks"])]


def journalled(folder):
    lines = (Path(folder) / "c" / "run-journal.jsonl").read_text().splitlines()
    return [e["row"] for e in map(json.loads, lines) if e["event"] == "documents"]


@pytest.mark.parametrize("number", range(3))
def test_rows_from_the_step_on(engines, program, folder, stream, number):
    keys = [{}, {"packer_processes": True, "io": "pread"}, {"prefetch_factor": 8, "io": "mapped"}]
    engine = start(engines, program, folder, stream, cost=50, **keys[number])
    row = 8 * STEP_ROWS
    rows, old = stream.rows_from(row), stream.rows_from()
    assert rows[:row] == old[:row] and rows[row:] != old[row:]
    with Ranks(engine, 2) as ranks:
        seen = take(ranks.turns(5), rows)
        before = counted(engine)
        stream.append()
        assert "row 32" in grow(program, engine, 8)
        assert all(now >= then > 0 for now, then in zip(counted(engine), before))
        engine.checkpoint()
        seen += take(ranks.turns(), rows)
    assert sorted(set(seen))[: len(rows)] == list(range(len(rows)))
    assert engine.stop() == 0 and journalled(folder) == [row]


@pytest.mark.parametrize("turns", [0, 3, 30])
def test_a_kill_after_the_command(engines, program, folder, stream, turns):
    """Before any checkpoint, with one before the step, and with one after it."""
    row = 10 * STEP_ROWS
    rows = stream.rows_from(row)
    engine = start(engines, program, folder, stream)
    with Ranks(engine, 2) as ranks:
        take(ranks.turns(2), rows)
        token = token_of(ranks.loaders[0])
        stream.append()
        grow(program, engine, 10)
        take(ranks.turns(turns), rows)
        if turns:
            engine.checkpoint()
            token = token_of(ranks.loaders[0])
        engine.kill()
    engine = start(engines, program, folder, stream)
    with Ranks(engine, 2, token) as ranks:
        seen = take(ranks.turns(), rows)
    assert max(seen) >= len(rows) - 1
    assert engine.stop() == 0


def test_trainers_of_a_killed_engine_go_on(engines, program, folder, stream):
    rows = stream.rows_from(10 * STEP_ROWS)
    engine = start(engines, program, folder, stream, checkpoint_steps=4)
    with Ranks(engine, 2, restart_timeout=60) as ranks:
        seen = take(ranks.turns(3), rows)
        engine.checkpoint()
        stream.append()
        grow(program, engine, 10)
        engine.kill()
        engine = start(engines, program, folder, stream, checkpoint_steps=4)
        seen += take(ranks.turns(), rows)
    assert sorted(set(seen))[: len(rows)] == list(range(len(rows)))
    engine.kill()


@pytest.mark.parametrize("delay", [0, 1, 4, 8, 16])
def test_a_kill_around_the_journalling(engines, program, folder, stream, delay):
    engine = start(engines, program, folder, stream)
    stream.append()
    command = [program, "grow", "live", "source-0=90", "--at-step", "1", "--run-dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as done:
        time.sleep(delay / 1000)
        os.kill(engine.pid, signal.SIGKILL)
        done.wait(60)
    engine.kill()
    found = journalled(folder)
    assert len(found) <= 1
    if not found and not list((folder / "c").glob("*.rpc")):
        return  # a start at row 0 begins with all documents
    engine = start(engines, program, folder, stream)
    with Ranks(engine, 2) as ranks:
        take(ranks.turns(40), stream.rows_from(*found))
    engine.kill()


def test_bad_commands_are_refused(engines, program, folder, stream):
    """And nothing is lost: the rows stay as the engine began them."""
    engine = start(engines, program, folder, stream)
    rows = stream.rows_from()
    with Ranks(engine, 2) as ranks:
        seen = take(ranks.turns(5), rows)
        for documents, message in (
            (GROWN, "expected 90 documents or more in the index, found 60"),
            ({"source-0": BEFORE - 1}, "expected 60 or more, as before, found 59"),
            ({"source-9": 1}, "the run has no source `source-9`"),
            ({"source-0": 0}, "expected a number of documents"),
        ):
            said = grow(program, engine, 20, 2, documents)
            assert message in said and "next: " in said, said
        stream.append()
        said = grow(program, engine, 20, 2, {"source-0": AFTER - 1})
        assert "shards that end with document 89" in said and "end of a shard" in said
        for step in range(3):
            assert f"step {step} is begun" in grow(program, engine, step, 2)
        path = stream.folder / "0-0.bin"  # the shard before the new one gets other tokens
        content = bytearray(path.read_bytes())
        content[:2000] = content[1000:2000] + content[:1000]
        replaced = stream.folder / "new.bin"
        replaced.write_bytes(content)
        os.utime(replaced, (1, 1))
        kept = stream.folder / "kept.bin"
        os.link(path, kept)
        replaced.rename(path)
        stream.index()
        said = grow(program, engine, 20, 2)
        assert "fingerprint" in said or "changed" in said, said
        kept.rename(path)
        seen += take(ranks.turns(), rows)
    assert sorted(set(seen))[: len(rows)] == list(range(len(rows))) and journalled(folder) == []
    engine.kill()


def test_a_run_that_takes_documents_at_a_start_is_refused(engines, program, folder, stream):
    engine = start(engines, program, folder, stream, grow=True)
    stream.append()
    assert "start it with `grow: false`" in grow(program, engine, 20, 2)
    engine.kill()


class Nodes:
    """Two engines, of rank 0 and of rank 1, and a loader of each."""

    def __init__(self, engines, program, folder, stream):
        self.program, self.folder, self.engines = program, folder, []
        for rank in range(2):
            own = folder / str(rank)
            own.mkdir()
            keys = {"ranks": str(rank), "prefetch_factor": 4}
            self.engines.append(start(engines, program, own, stream, "--accept-weights", **keys))
        self.attach()

    def attach(self, token=None):
        self.loaders = [
            ringpack.Loader(
                dp_rank=rank, dp_world_size=2, run="live", run_dir=self.folder / str(rank),
                connect_timeout=60,
            )
            for rank in range(2)
        ]
        for loader in self.loaders:
            if token is not None:
                loader.load_state_dict({"ringpack_state": token})
            loader.attach()

    def detach(self):
        for loader in self.loaders:
            loader.close()

    def agree(self):
        """check_ranks, as rank 1 sees it."""
        facts = []
        with contextlib.suppress(CheckpointMismatchError):  # one fact of two
            self.loaders[0].check_ranks(lambda fact: facts.append(fact) or facts)
        self.loaders[1].check_ranks(lambda fact: [*facts, fact])

    def read(self, rank, rows, most=10000):
        loader = self.loaders[rank]
        batches = iter(lambda: loader.next(timeout=60), None)
        return take(([batch] for batch in itertools.islice(batches, most)), rows)

    def command(self, node, verb, values, status=0):
        return set_weights(self.program, self.engines[node], values, 10, status, verb)

    def close(self):
        self.detach()
        for engine in self.engines:
            engine.kill()


@pytest.mark.parametrize("verb", ["grow", "weights"])
def test_two_nodes(engines, program, folder, stream, verb):
    """Each engine gets the command, and both serve one stream. Until then, ranks that attach find
    the node without it."""
    row, values = 10 * STEP_ROWS, GROWN if verb == "grow" else NEW
    old, rows = stream.rows_from(), stream.rows_from(row)
    if verb == "weights":
        rows = stream.rows({"from": 0, "documents": {"source-0": BEFORE}}, (row, NEW))
    nodes = Nodes(engines, program, folder, stream)
    seen = nodes.read(0, rows, 4) + nodes.read(1, rows, 4)
    for engine in nodes.engines:
        engine.checkpoint()
    token = token_of(nodes.loaders[0])
    if verb == "grow":
        stream.append()
    nodes.command(0, verb, values)
    nodes.detach()
    nodes.attach(token)
    with pytest.raises(CheckpointMismatchError, match="record"):
        nodes.agree()
    nodes.command(1, verb, values)
    nodes.detach()
    nodes.attach(token)
    nodes.agree()
    seen += nodes.read(0, rows) + nodes.read(1, rows)
    assert sorted(seen)[: len(rows)] == list(range(len(rows))) and rows != old
    nodes.close()


@pytest.mark.parametrize("verb", ["grow", "weights"])
def test_a_late_node_refuses(engines, program, folder, stream, verb):
    """A rank of it has begun the step. It goes on as before, and so does the other node."""
    rows, values = stream.rows_from(), GROWN if verb == "grow" else NEW
    nodes = Nodes(engines, program, folder, stream)
    seen = nodes.read(0, rows, 3) + nodes.read(1, rows, 24)
    for engine in nodes.engines:
        engine.checkpoint()
    if verb == "grow":
        stream.append()
    said = nodes.command(1, verb, values, 2)
    assert "step 10 is begun" in said and "name step" in said
    seen += nodes.read(0, rows) + nodes.read(1, rows)
    assert sorted(seen)[: len(rows)] == list(range(len(rows)))
    nodes.close()
