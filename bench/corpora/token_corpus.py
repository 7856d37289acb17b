# SPDX-License-Identifier: Apache-2.0
"""Synthetic corpora for the measurements: lognormal lengths, Megatron's .bin and .idx.

A corpus is a pure function of its name, so an existing one is used again.
"""

import struct
from pathlib import Path

import numpy

MEDIAN, SIGMA, SHORTEST, LONGEST = 400, 1.2, 16, 16384
VOCABULARY = 50257
PART = 1 << 24  # documents in memory at a time


def draw_lengths(random, documents):
    drawn = random.lognormal(numpy.log(MEDIAN), SIGMA, documents)
    return numpy.clip(drawn, SHORTEST, LONGEST).astype("<i4")


def write_index(path, documents, parts):
    """`parts()` gives the lengths, part by part, at each call. Returns the tokens."""
    with open(path, "wb") as file:
        file.write(b"MMIDIDX\0\0")
        file.write(struct.pack("<QBQQ", 1, 8, documents, documents + 1))
        for lengths in parts():
            lengths.tofile(file)
        tokens = 0
        for lengths in parts():
            ends = tokens + numpy.cumsum(lengths, dtype="<i8")
            (2 * (ends - lengths)).tofile(file)
            tokens = int(ends[-1])
        for first in range(0, documents + 1, PART):
            numpy.arange(first, min(first + PART, documents + 1), dtype="<i8").tofile(file)
    return tokens


def make_corpus(folder, tokens, seed=0):
    """`tokens` u16 tokens, and the surplus of the last document. Returns the path of the .bin."""
    path = Path(folder) / f"lognormal-{tokens}-{seed}.bin"
    if not path.with_suffix(".idx").exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        random = numpy.random.default_rng(seed)
        lengths = draw_lengths(random, tokens // 500 + 1000)
        ends = numpy.cumsum(lengths, dtype="<i8")
        lengths = lengths[: int(numpy.searchsorted(ends, tokens)) + 1]
        with open(path, "wb") as file:
            left = int(lengths.sum(dtype="<i8"))
            while left:
                count = min(left, 1 << 24)
                random.integers(0, VOCABULARY, count, dtype="<u2").tofile(file)
                left -= count
        write_index(path.with_suffix(".idx"), len(lengths), lambda: [lengths])
    return path


def make_index(folder, documents, seed=0):
    """A corpus whose index takes space and whose .bin is a hole. Not for speed. With more documents
    than a PART the lengths repeat: to draw 10^9 of them takes minutes."""
    path = Path(folder) / f"hole-{documents}-{seed}.bin"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)

        drawn = draw_lengths(numpy.random.default_rng(seed), min(PART, documents))

        def parts():
            for first in range(0, documents, PART):
                yield drawn[:documents - first]

        tokens = write_index(path.with_suffix(".idx"), documents, parts)
        with open(path, "wb") as file:
            file.truncate(2 * tokens)
    return path


def aligned_reads(path, block=4096, width=2):
    """The whole blocks that a reader of single documents has to fetch: {bytes of a read: how
    many}."""
    with open(Path(path).with_suffix(".idx"), "rb") as file:
        file.seek(17)
        _, count = struct.unpack("<BQ", file.read(9))
        file.seek(34)
        lengths = numpy.fromfile(file, "<i4", count)
        starts = numpy.fromfile(file, "<i8", count)
    begins, sizes = starts // 2 * width, lengths.astype("<i8") * width
    first, last = begins // block, -(-(begins + sizes) // block)
    sizes, counts = numpy.unique((last - first) * block, return_counts=True)
    return dict(zip(sizes.tolist(), counts.tolist()))
