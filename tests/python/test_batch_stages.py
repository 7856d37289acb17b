# SPDX-License-Identifier: Apache-2.0
"""Steps and batches that change their sizes at stages, in the running engine: every batch of all
ranks has the rows that section 10.2 of STREAM2.md gives it, and these are the oracle's, through
kills, resumes with other ranks, skipped steps and runs that begin inside a step."""

import json
import random
import subprocess

import pytest
import ringpack
from calendars import random_stream
from ringpack.errors import CheckpointMismatchError, ConfigError
from served_kit import Served, batches_of
from step_kit import Steps
from stream2_kit import Stream2
from stream_kit import Corpus, Engine, Ranks, write_state

SEED = 5200
LAYOUTS = [
    [("megatron", "u16", 1, [110, 70]), ("raw", "u16", 1, [120])],
    [("npy", "u32", 1, [110]), ("megatron", "i32", 1, [80]), ("raw", "u16", 1, [60, 50])],
]
RAMPS = [  # global_batch_size and batch_size of three stages
    [(8, 2), (16, None), (32, None)],
    [(8, 1), (24, None), (8, 2)],
    [(8, 2), (16, 4), (16, 1)],
    [(16, 4), (8, None), (None, 2)],
]
WORLDS = [1, 2, 2, 1]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    return [
        Corpus(tmp_path_factory.mktemp("layout"), layout, SEED + n, seq_len=24)
        for n, layout in enumerate(LAYOUTS)
    ]


def ramped(stream, ramp, skip=()):
    """The stream with other sizes in its stages; L stays, so that one run reaches all of them."""
    stages = [dict(stage) for stage in stream.stages]
    stages[2].pop("seq_len", None)
    for stage, (step, rows) in zip(stages, ramp):
        stage |= {"global_batch_size": step} if step else {}
        stage |= {"batch_size": rows} if rows else {}
    made = Stream2(stream.corpus, stream.keys, stream.sources, stages, skip).run()
    assert len(made.rows) > made.stream["stages"][2]["from"] + 8, "it does not reach its last stage"
    return made


def stream_of(number, corpora, skip=()):
    rng = random.Random(SEED + number)
    counts = [sum(layout[3]) for layout in LAYOUTS[number % len(corpora)]]
    made = random_stream(rng, corpora[number % len(corpora)], counts)
    return rng, ramped(made, RAMPS[number % len(RAMPS)], skip)


def config_of(stream, world, **keys):
    own = {"dp_world_size": world, "batch_size": stream.stages[0]["batch_size"]}
    return {**stream.config(), **own, "profile": "full", **keys}


def read(ranks, served, expected, world, most=None):
    """Up to `most` micro-batches, compared with `expected`. True at the end."""
    for batches in ranks.turns(most):
        begin, rows, place, count = next(expected)
        assert batches[0].first_row == begin
        for loader, batch in zip(ranks.loaders, batches):
            Steps(served.stream, None).check(loader, batch)
            found = batch.batch_size, batch.micro_batch, batch.micro_batches
            assert found == (rows, place, count), f"row {begin}"
            assert batch["input_ids"].shape == (rows, batch.seq_len)
            assert len(batch["rows"]) == rows
            assert batch.flat()["labels"].size == rows * batch.seq_len
            ends = batch["cu_seqlens"]
            assert ends[batch.segments] == rows * batch.seq_len == ends[-1]
        assert len({batch.step for batch in batches}) == 1
        served.take(batches, world, rows)
        served.states(ranks)
    return most is None


def finish(served, expected):
    assert next(expected, None) is None
    assert served.digest == served.stream.digest


@pytest.mark.parametrize("number", range(4))
def test_sizes_change_in_the_running_engine(program, folder, corpora, number):
    """With a kill after a checkpoint at a random batch."""
    skip = () if number % 2 else range(8, 24)
    rng, stream = stream_of(number, corpora, skip)
    world = WORLDS[number]
    keys = {"checkpoint_dir": str(folder / "saved"), "packers": 1 + number % 2}
    config = config_of(stream, world, packer_processes=number == 1, **keys)
    served, expected = Served(stream), list(batches_of(stream, world))
    engine = Engine(program, folder, config)
    try:
        with Ranks(engine, world) as ranks:
            read(ranks, served, iter(expected), world, rng.randrange(len(expected)))
            engine.checkpoint()
        engine.kill()
        engine = Engine(program, folder, config)
        with Ranks(engine, world) as ranks:
            row = ranks.loaders[0].next_row
            rest = iter([batch for batch in expected if batch[0] >= row])
            served.rewind(row)
            read(ranks, served, rest, world)
            finish(served, rest)
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()


@pytest.mark.parametrize("number", range(6))
def test_other_ranks_go_on_at_each_side_of_a_boundary(program, folder, corpora, number):
    """From a state before, at and after a boundary, with other ranks and sizes: the stages begin at
    the same rows, and their sizes follow the present config."""
    _, stream = stream_of(0, corpora)
    token, served = None, Served(stream)
    boundary = stream.stream["stages"][1]["from"]
    stops = [boundary + 8 * (number % 3 - 1) or 8, stream.stream["stages"][2]["from"], None]
    for turn, stop in enumerate(stops):
        world, rows = [(1, 2), (2, 4), (4, 2), (8, 1)][(number + turn) % 4]
        sizes = [(8, rows), (16, rows), (32, rows)]
        stream = ramped(stream, sizes)
        served.stream = stream
        config = config_of(stream, world, packers=1 + turn % 2)
        arguments = () if token is None else ("--state", write_state(folder / "state", token))
        engine = Engine(program, folder, config, *arguments)
        try:
            with Ranks(engine, world) as ranks:
                if token is not None:
                    assert served.states(ranks) == token
                expected = list(batches_of(stream, world, served.row))
                before = [batch for batch in expected if stop is None or batch[0] < stop]
                read(ranks, served, iter(expected), world, None if stop is None else len(before))
                token = served.states(ranks)
                assert stop is None or served.row == stop
            assert (engine.wait() if stop is None else engine.stop()) == 0, engine.log()
        finally:
            engine.kill()
    finish(served, iter(()))


@pytest.mark.parametrize("base", [2, 6, 14, 22])
def test_a_run_that_begins_inside_a_step(program, folder, corpora, base):
    """Its steps begin at its row, and the sizes of a stage hold from the first step at or after its
    boundary. Steps of the trainers of a restarted engine stay where they were."""
    stream = ramped(stream_of(0, corpora)[1], [(8, 2), (16, 4), (8, 2)])
    token = write_state(folder / "state", engine_token(program, folder, stream, base))
    served, expected = Served(stream), list(batches_of(stream, 1, base))
    served.row, served.digest = base, sum(stream.row_digests[:base]) % 2**128
    served.digests[base] = served.digest
    config = config_of(stream, 1, checkpoint_dir=str(folder / "saved"))
    engine = Engine(program, folder, config, "--state", token)
    try:
        with Ranks(engine, 1) as ranks:
            read(ranks, served, iter(expected[:5]), 1, 5)
            engine.checkpoint()
            engine.kill()
            engine = Engine(program, folder, config)
            read(ranks, served, iter(expected[5:]), 1)
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    finish(served, iter(()))


def engine_token(program, folder, stream, row):
    """The state at a row that is inside a step of the calendar."""
    config = config_of(stream, 1)
    (folder / "state-of.json").write_text(json.dumps(config))
    output = folder / f"row-{row}"
    subprocess.run(
        [program, "state", "-c", folder / "state-of.json", "--row", str(row), "-o", output],
        check=True,
        capture_output=True,
    )
    return output.read_bytes()


# ---- positive control ----------------------------------------------------------------------------


def test_sizes_that_come_a_step_late_are_noticed(broken, folder, corpora, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "change_steps_late")
    with pytest.raises(AssertionError):
        test_sizes_change_in_the_running_engine(broken, folder, corpora, 0)
