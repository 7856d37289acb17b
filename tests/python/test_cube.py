# SPDX-License-Identifier: Apache-2.0
"""The topology cube: readers, packers, ranks, contents, I/O and kind of workers never change a row.

Each corner of the cube begins the stream, saves a checkpoint in the middle, is killed with SIGKILL,
and is followed by another corner, which finishes the stream from that checkpoint. Every third one
has a stream of version 2 with a calendar."""

import itertools
import random

import pytest
from calendar_stream import CalendarStream
from stream_kit import Corpus, Engine, Ranks, Stream, Taken

SEED = 4711
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
    layout = [("megatron", "u16", 2, [150]), ("raw", "u16", 1, [90, 60])]
    corpus = Corpus(tmp_path_factory.mktemp("cube"), layout, SEED)
    corpus.index(program)
    inputs = {"packing": "lookahead", "fill": "split", "window": 8, "max_docs_per_row": 6}
    inputs |= {"shuffle": "document", "long_doc": "split", "seed": SEED}
    return CalendarStream(corpus, inputs, random.Random(SEED).choice, unit=48)


def shape_of(corner, rows):
    """The least that rings may be, so that readers, packers and ranks wait for each other."""
    world = corner["dp_world_size"]
    sizes = {"batch_size": rows, "global_batch_size": rows * world, "prefetch_factor": 2}
    return {**corner, **sizes, "prefetch_bytes": "64kb", "profile": "full"}


def test_every_corner_has_one_predecessor():
    followers = [str(successor(number)) for number in range(len(CUBE))]
    assert sorted(followers) == sorted(map(str, CUBE))


@pytest.mark.parametrize("number", range(len(CUBE)))
def test_killed_in_the_middle(program, folder, stream, calendar, number):
    rows = (3, 2)
    if number % 3 == 2:  # steps of both corners end where the stages do
        stream, rows = calendar, (4, 4)
    config = {**stream.config(), "checkpoint_dir": str(folder / "checkpoints")}
    taken, before, after = Taken(stream), CUBE[number], successor(number)
    first = Engine(program, folder, {**config, **shape_of(before, rows[0])})
    second = None
    try:
        ranks = Ranks(first, before["dp_world_size"])
        middle = len(stream.rows) // (2 * rows[0] * before["dp_world_size"])
        if stream is calendar:
            middle = 16 // before["dp_world_size"]  # row 64
        for batches in ranks.turns(middle):
            taken.add(batches)
        cut = ranks.loaders[0].next_row
        for batch in batches:
            batch.release()  # the cut is at the batches that every rank has given back
        first.checkpoint()
        ranks.turn()
        first.kill()
        ranks.close()

        second = Engine(program, folder, {**config, **shape_of(after, rows[1])})
        with Ranks(second, after["dp_world_size"]) as ranks:
            assert ranks.loaders[0].next_row == cut
            token = ranks.tokens()[0]
            assert token == stream.state(cut, token)
            for batches in ranks.turns():
                taken.add(batches)
            assert ranks.tokens()[0] == stream.state(len(stream.rows), token)
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
