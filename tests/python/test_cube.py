# SPDX-License-Identifier: Apache-2.0
"""The topology cube: readers, packers, ranks, contents, I/O and kind of workers never change a row.

Each corner of the cube begins the stream, saves a checkpoint in the middle, is killed with SIGKILL,
and is followed by another corner, which finishes the stream from that checkpoint. Every third one
has a stream of version 2 with a calendar: growth, a source that joins, and steps and batches of
other sizes. Commands to a running engine are given by `tools/campaign lives`."""

import itertools
import random

import pytest
from calendars import of_inputs
from every_row import whole_steps
from stream_kit import Corpus, Engine, Ranks, Stream, Taken

SEED = 4711
UNIT = 48  # rows of a stage
CALENDAR = 4745  # a seed that draws all that the fixture asserts
CUBE = [
    {
        "readers": readers,
        "packers": packers,
        "dp_world_size": ranks,
        "checkpoint_contents": contents,
        "io": io,
        "packer_processes": processes,
    }
    for readers, packers, ranks, contents, io, processes in itertools.product(
        [1, 3], [1, 8], [1, 2, 4], [True, False], ["io_uring", "pread", "mapped"], [False, True]
    )
]


def successor(number):
    """Another corner; over the cube, every corner follows exactly one."""
    return CUBE[(number * 5 + 37) % len(CUBE)]


@pytest.fixture(scope="module")
def stream(program, tmp_path_factory):
    layout = [("megatron", "u16", 2, [150]), ("raw", "u16", 1, [90, 60])]
    corpus = Corpus(tmp_path_factory.mktemp("cube"), layout, SEED)
    corpus.index(program)
    return Stream(corpus, {"num_epochs": 1, "fill": "split", "seed": SEED})


@pytest.fixture(scope="module")
def calendar(program, tmp_path_factory):
    layout = [("raw", "u16", 1, [90, 60]), ("megatron", "u16", 2, [150])]
    corpus = Corpus(tmp_path_factory.mktemp("cube"), layout, SEED)
    corpus.index(program)
    inputs = {"packing": "lookahead", "fill": "split", "window": 8, "max_docs_per_row": 6}
    inputs |= {"shuffle": "document", "long_doc": "split", "seed": SEED}
    stream = of_inputs(random.Random(CALENDAR), corpus, inputs, UNIT).run()
    documents = [stage.get("documents") for stage in stream.stages]
    assert documents[0] and any(documents[1:]) and stream.stages[0]["weight"]["source-1"] == 0
    return stream


def shape_of(corner, rows):
    """The least that rings may be, so that readers, packers and ranks wait for each other."""
    world = corner["dp_world_size"]
    sizes = {"batch_size": rows, "global_batch_size": rows * world, "prefetch_factor": 2}
    return {**corner, **sizes, "prefetch_bytes": "64kb", "profile": "full"}


def sizes_at_stages(stream, corner, rows):
    """Steps of three batches in the second stage, and batches of twice the rows after it."""
    step = rows * corner["dp_world_size"]
    first, second, *later = stream.config()["stages"]
    larger = {"batch_size": 2 * rows, "global_batch_size": 2 * step}
    stages = [first, {**second, "global_batch_size": 3 * step}, *({**s, **larger} for s in later)]
    return {"stages": stages}


def test_every_corner_has_one_predecessor():
    followers = [str(successor(number)) for number in range(len(CUBE))]
    assert sorted(followers) == sorted(map(str, CUBE))


@pytest.mark.parametrize("number", range(len(CUBE)))
def test_killed_in_the_middle(program, folder, stream, calendar, number):
    rows, before, after = (3, 2), CUBE[number], successor(number)
    if number % 3 == 2:  # steps of both corners end where the stages do
        stream, rows = calendar, (4, 4)
    shapes = [shape_of(corner, own) for corner, own in zip((before, after), rows)]
    if stream is calendar:
        for shape, corner in zip(shapes, (before, after)):
            shape |= sizes_at_stages(stream, corner, 4)
    config = {**stream.config(), "checkpoint_dir": str(folder / "checkpoints")}
    taken = Taken(stream)
    first = Engine(program, folder, {**config, **shapes[0]})
    second = None
    try:
        ranks = Ranks(first, before["dp_world_size"])
        middle = len(stream.rows) // (2 * rows[0] * before["dp_world_size"])
        if stream is calendar:
            middle = UNIT // (4 * before["dp_world_size"]) + 1  # a step of the second stage
        for batches in whole_steps(ranks, middle):
            taken.add(batches)
        cut = ranks.loaders[0].next_row
        for batch in batches:
            batch.release()  # the cut is at the batches that every rank has given back
        first.checkpoint()
        ranks.turn()
        first.kill()
        ranks.close()

        second = Engine(program, folder, {**config, **shapes[1]})
        with Ranks(second, after["dp_world_size"]) as ranks:
            assert ranks.loaders[0].next_row == cut
            token = ranks.tokens()[0]
            assert token == stream.state(cut, token)
            for batches in ranks.turns():
                taken.add(batches)
            token = ranks.tokens()[0]
            assert token == stream.state(len(stream.rows), token)
        taken.assert_all()
        assert taken.digest == stream.digest, "other tokens"
        # with contents, unless no row was ready when the checkpoint was taken
        assert before["checkpoint_contents"] or "with contents" not in second.log()
    finally:
        first.kill()
        if second is not None:
            second.kill()


def test_rows_that_come_again_are_noticed(program, folder, stream):
    """The control of this file: a successor that begins at row 0 instead of the checkpoint."""
    config = {
        **stream.config(),
        "checkpoint_dir": str(folder / "checkpoints"),
        **shape_of(CUBE[0], 3),
    }
    taken = Taken(stream)
    for arguments in [], ["--fresh"]:
        engine = Engine(program, folder, config, *arguments)
        try:
            with Ranks(engine) as ranks:
                if arguments:
                    with pytest.raises(AssertionError, match="row 0 came twice"):
                        taken.add(ranks.turn())
                else:
                    taken.add(ranks.turn())
            assert engine.stop() == 0
        finally:
            engine.kill()
