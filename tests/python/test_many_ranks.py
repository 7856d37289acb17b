# SPDX-License-Identifier: Apache-2.0
"""The ends of the range: 64 ranks with batches of one row, and rows of 2^16 tokens; with RP_LONG=1
of 2^20, in every packing, mapped and read. Every section of every batch is the oracle's, byte for
byte; so is the digest of all rows."""

import numpy
import pytest
from stream_kit import LONG, Ranks, Stream, write_megatron
from stream_oracle import assert_batch

WORLD, SHORT_ROW = 64, 512
LONG_ROW = 1 << 20 if LONG else 1 << 16
PACKINGS = ("lookahead", "concat", "best_fit") if LONG else ("lookahead",)


class Source:
    """One source whose documents have these lengths."""

    def __init__(self, folder, lengths, seed):
        generator = numpy.random.default_rng(seed)
        self.documents = [[generator.integers(1, 50000, length) for length in lengths]]
        self.sources = [
            {"name": "one", "shards": [write_megatron(folder / "one", self.documents[0], "u16")],
             "weight": 1, "format": "megatron"}
        ]  # fmt: skip


def drain(engine, stream, world):
    """Take the whole stream, all ranks in turn."""
    digest = taken = 0
    with Ranks(engine, world) as ranks:
        for batches in ranks.turns():
            for batch in batches:
                assert_batch(batch, stream)
                digest += batch.digest()
                taken += batch.rows_real
    assert taken == len(stream.rows)
    assert digest % 2**128 == stream.digest


def test_64_ranks_with_batches_of_one_row(program, engines, folder):
    generator = numpy.random.default_rng(3)
    source = Source(folder, generator.integers(1, 700, 240), 3)
    inputs = {"seq_len": SHORT_ROW, "num_epochs": 1, "max_docs_per_row": 12}
    stream = Stream(source, inputs)
    assert len(stream.rows) > 2 * WORLD  # the rings of two slots go round
    config = {"batch_size": 1, "dp_world_size": WORLD, "prefetch_factor": 2, "profile": "full"}
    engine = engines(program, folder, {**stream.config(), **config})
    drain(engine, stream, WORLD)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("io", ("mapped", "pread") if LONG else ("mapped",))
def test_rows_of_many_tokens(program, engines, folder, packing, io):
    k = LONG_ROW >> 10
    lengths = [3, LONG_ROW - 1, 40 * k, 1500 * k, 7, 200 * k, 0, 90 * k]
    source = Source(folder, lengths, 5)
    inputs = {"seq_len": LONG_ROW, "num_epochs": 1, "packing": packing, "max_docs_per_row": 12}
    if packing == "concat":
        inputs["fill"] = None
    stream = Stream(source, {key: value for key, value in inputs.items() if value is not None})
    engine = engines(
        program,
        folder,
        {**stream.config(), "batch_size": 1, "prefetch_factor": 2, "profile": "full", "io": io},
    )
    drain(engine, stream, 1)
