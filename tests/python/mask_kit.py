# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of masks: masks at random, and a stream whose labels are compared with the
oracle's (engine/plan/STREAM.md, section 10)."""

import subprocess

import numpy
from state import row_digest
from stream_kit import Engine, Ranks, Taken
from stream_oracle import assert_batch


def spans_of(trained):
    """The spans of a document, of a flag for each token. Token 0 is never trained."""
    edges = numpy.flatnonzero(numpy.diff([0, 0, *trained[1:], 0]))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]


def random_flags(generator, length):
    """No token, every token, an answer at the end, turns of a chat, or noise."""
    flags = numpy.zeros(length, bool)
    kind = generator.integers(5)
    if kind == 1:
        flags[:] = True
    elif kind == 2:
        flags[generator.integers(length + 1) :] = True
    elif kind == 3:
        edges = numpy.sort(generator.integers(0, length + 1, 6))
        for begin, end in edges.reshape(-1, 2):
            flags[begin:end] = True
    elif kind == 4:
        flags = generator.random(length) < 0.5
    return flags


def index(program, *arguments, check=True):
    return subprocess.run(
        [program, "index", "-q", *arguments], check=check, capture_output=True, text=True
    )


def labelled(stream, first=0):
    rows = enumerate(stream.rows)
    return sum(row_digest(stream.spec, n, row, True) for n, row in rows if n >= first) % 2**128


def serve(program, folder, stream, run="masks", **more):
    return Engine(program, folder, {**stream.config(), "run": run, "batch_size": 4, **more})


def check_whole_stream(program, folder, stream, run="masks", **more):
    engine = serve(program, folder, stream, run, profile="full", **more)
    taken, digest = Taken(stream), 0
    with Ranks(engine) as ranks:
        for batches in ranks.turns():
            assert_batch(batches[0], stream)
            taken.add(batches)
            digest = (digest + batches[0].digest(labels=True)) % 2**128
    taken.assert_all()
    assert digest == labelled(stream)
    assert engine.stop() == 0
