# SPDX-License-Identifier: Apache-2.0
"""Documents that are appended to the index while the engine runs (`ringpack grow`): epochs from the
named step on have them, in this engine, in those after a kill, and on every node."""

import contextlib
import itertools
import os
import subprocess

import pytest
import ringpack
from live_kit import AFTER, BEFORE, GROWN, NEW, STEP_ROWS, GrowingStream, set_weights, take
from ringpack.errors import CheckpointMismatchError
from stream_kit import Ranks, token_of

@pytest.fixture
def stream(tmp_path, program):
    return GrowingStream(tmp_path, program)


def counted(engine):
    """Tokens and costs, which another flow of the engine continues."""
    stat = ringpack.stat(engine.run, engine.folder)
    return [stat["tokens"], *(rank["cost"] for rank in stat["ranks"])]


@pytest.mark.parametrize("number", range(3))
def test_rows_from_the_step_on(engines, program, folder, stream, number):
    keys = [{}, {"packer_processes": True, "io": "pread"}, {"prefetch_factor": 8, "io": "mapped"}]
    engine = stream.start(engines, program, folder, cost=50, **keys[number])
    row = 8 * STEP_ROWS
    rows, old = stream.rows_from(row), stream.rows_from()
    assert rows[:row] == old[:row] and rows[row:] != old[row:]
    with Ranks(engine, 2) as ranks:
        seen = take(ranks.turns(5), rows)
        before = counted(engine)
        stream.prepare()
        assert "row 32" in stream.change(program, engine, 8)
        assert all(now >= then > 0 for now, then in zip(counted(engine), before))
        engine.checkpoint()
        seen += take(ranks.turns(), rows)
    assert sorted(set(seen))[: len(rows)] == list(range(len(rows)))
    assert engine.stop() == 0 and [e["row"] for e in stream.entries(folder)] == [row]


def test_bad_commands_are_refused(engines, program, folder, stream):
    """And nothing is lost: the rows stay as the engine began them."""
    engine = stream.start(engines, program, folder)
    rows = stream.rows_from()
    with Ranks(engine, 2) as ranks:
        seen = take(ranks.turns(5), rows)
        for documents, message in (
            (GROWN, "expected 90 documents or more in the index, found 60"),
            ({"source-0": BEFORE - 1}, "expected 60 or more, as before, found 59"),
            ({"source-9": 1}, "the run has no source `source-9`"),
            ({"source-0": 0}, "expected a number of documents"),
        ):
            said = set_weights(program, engine, documents, 20, 2, "grow")
            assert message in said and "next: " in said, said
        stream.prepare()
        said = set_weights(program, engine, {"source-0": AFTER - 1}, 20, 2, "grow")
        assert "shards that end with document 89" in said and "end of a shard" in said
        for step in range(3):
            assert f"step {step} is begun" in stream.change(program, engine, step, 2)
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
        said = stream.change(program, engine, 20, 2)
        assert "fingerprint" in said or "changed" in said, said
        kept.rename(path)
        seen += take(ranks.turns(), rows)
    assert sorted(set(seen))[: len(rows)] == list(range(len(rows))) and stream.entries(folder) == []
    engine.kill()


def test_a_run_that_takes_documents_at_a_start_is_refused(engines, program, folder, stream):
    engine = stream.start(engines, program, folder, grow=True)
    stream.prepare()
    assert "start it with `grow: false`" in stream.change(program, engine, 20, 2)
    engine.kill()


class Nodes:
    """Two engines, of rank 0 and of rank 1, and a loader of each."""

    def __init__(self, engines, program, folder, stream):
        self.program, self.folder, self.engines = program, folder, []
        for rank in range(2):
            own = folder / str(rank)
            own.mkdir()
            keys = {"ranks": str(rank), "prefetch_factor": 4}
            self.engines.append(stream.start(engines, program, own, "--accept-weights", **keys))
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
        stream.prepare()
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


@pytest.mark.parametrize("leaving", [[0, 1], [1]])
def test_processes_that_return(engines, program, folder, stream, leaving):
    """Without a token, to where they were. Their rings were made with the contract before, and no
    process reads those any more."""
    engine = stream.start(engines, program, folder)
    rows = stream.rows_from(8 * STEP_ROWS)
    command = [program, "read", "live", "--run-dir", str(folder), "--batches", "6", "--rank"]
    processes = [subprocess.Popen([*command, str(rank)]) for rank in leaving]
    loaders = {
        rank: ringpack.Loader(
            dp_rank=rank, dp_world_size=2, run="live", run_dir=folder, connect_timeout=60
        )
        for rank in {0, 1} - set(leaving)
    }
    for loader in loaders.values():
        for _ in range(6):
            assert loader.next(timeout=60) is not None
    assert [process.wait(60) for process in processes] == [0] * len(processes)
    stream.prepare()
    stream.change(program, engine, 8)
    for loader in loaders.values():
        loader.close()
    with Ranks(engine, 2) as ranks:
        seen = take(ranks.turns(), rows)
    assert sorted(set(seen))[: len(rows) - 12] == list(range(12, len(rows)))
    assert engine.stop() == 0


@pytest.mark.parametrize("verb", ["grow", "weights"])
def test_a_late_node_refuses(engines, program, folder, stream, verb):
    """A rank of it has begun the step. It continues as before, and so does the other node."""
    rows, values = stream.rows_from(), GROWN if verb == "grow" else NEW
    nodes = Nodes(engines, program, folder, stream)
    seen = nodes.read(0, rows, 3) + nodes.read(1, rows, 24)
    for engine in nodes.engines:
        engine.checkpoint()
    if verb == "grow":
        stream.prepare()
    said = nodes.command(1, verb, values, 2)
    assert "step 10 is begun" in said and "name step" in said
    seen += nodes.read(0, rows) + nodes.read(1, rows)
    assert sorted(seen)[: len(rows)] == list(range(len(rows)))
    nodes.close()
