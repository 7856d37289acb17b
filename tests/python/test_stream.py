# SPDX-License-Identifier: Apache-2.0
"""Engine == oracle, byte for byte: every section of every batch, every state token, every digest.

The oracle (tests/oracle) is written only from engine/plan/STREAM.md."""

import itertools

import pytest
from stream import count_steps, rank_rows
from stream_kit import LONG, Corpus, Engine, Ranks, Stream
from stream_oracle import assert_batch

SEED = 20260
# format, dtype, weight, documents of each shard
LAYOUTS = [
    [("megatron", "u16", 3, [31, 20]), ("raw", "u16", 1, [25])],
    [("npy", "u32", 5, [30]), ("llmc", "u16", 2, [17, 12]), ("megatron", "i32", 1, [9])],
    [("megatron", "i64", 1, [55])],
    [("llmc", "u32", 1, [21]), ("raw", "u32", 2, [16, 15])],
    [("megatron", "u8", 1, [40]), ("npy", "u16", 4, [26]), ("megatron", "i16", 2, [15])],
]
WORLDS = [(1, 3, 3), (2, 2, 8), (3, 1, 6), (4, 2, 8)]  # ranks, batch_size, global_batch_size

FILLS = {"lookahead": ["pad", "split"], "best_fit": ["pad", "split"], "concat": ["pad"]}
CASES = [
    (packing, fill, long_doc, shuffle, lanes)
    for packing in FILLS
    for fill, long_doc, shuffle, lanes in itertools.product(
        FILLS[packing], ["split", "truncate", "drop"], ["document", "block", "none"], [1, 3]
    )
]


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    return [
        Corpus(tmp_path_factory.mktemp("layout"), layout, SEED + n)
        for n, layout in enumerate(LAYOUTS)
    ]


def inputs_of(number, case):
    """The case, and everything else of the stream and its batches by rotation."""
    packing, fill, long_doc, shuffle, lanes = case
    inputs = {
        "packing": packing,
        "fill": fill,
        "long_doc": long_doc,
        "shuffle": shuffle,
        "lanes": lanes,
    }
    inputs |= {
        "seed": SEED * (number + 1) ** 4 % 2**64,
        "num_epochs": 1 + number % 2,
        "window": [8, 1, 20][number % 3],
    }
    inputs |= {
        "block_documents": 2,
        "window_blocks": 2,
        "max_docs_per_row": [6, 48, 2, 1][number % 4],
    }
    inputs |= {"token_dtype": ["i32", "i64", "u16"][number % 3], "pad_id": [0, 7][number % 2]}
    return {**inputs, "label_mode": ["shifted", "aligned"][number // 2 % 2]}


def assert_run(engine, stream, world, rows, step, drop_last=False, turns=None):
    """From row 0 to the end (or a number of turns): rows to ranks, sections, states, the digest."""
    digest, last = 0, len(stream.rows)
    steps = count_steps(last, 0, step, drop_last)
    with Ranks(engine, world) as ranks:
        tokens = ranks.tokens()
        assert tokens == [stream.state(0, tokens[0])] * world
        k = 0
        for k, batches in enumerate(ranks.turns(turns), 1):
            for rank, batch in enumerate(batches):
                assert batch["rows"]["row"].tolist() == rank_rows(0, k - 1, rank, rows, world)
                assert_batch(batch, stream)
                digest += batch.digest()
            assert ranks.tokens() == [stream.state(k * rows * world, tokens[0])] * world, (
                f"state after turn {k}"
            )
    if turns is None:
        assert k == steps * step // (rows * world)
    end = min(k * rows * world, last)
    assert digest % 2**128 == sum(stream.row_digests[:end]) % 2**128


@pytest.mark.parametrize("number", range(len(CASES) * (20 if LONG else 1)))
def test_engine_equals_oracle(program, folder, layouts, number):
    """`number` also rotates the settings outside of the case; RP_LONG=1 meets more combinations."""
    case, number = CASES[number % len(CASES)], number + number // len(CASES)
    inputs = inputs_of(number, case)
    corpus, (world, rows, step) = layouts[number % len(layouts)], WORLDS[number // 3 % len(WORLDS)]
    if inputs["token_dtype"] == "u16" and corpus.sources[0]["format"] == "llmc":
        inputs["token_dtype"] = "i32"  # ids of Llama 3's EOS need more than 16 bits
    stream = Stream(corpus, inputs)
    drop_last = number % 5 == 0
    shape = {
        "batch_size": rows,
        "dp_world_size": world,
        "global_batch_size": step,
        "drop_last": drop_last,
    }
    machine = {"prefetch_bytes": "64kb", "packers": 1 + number % 2, "readers": 1 + number % 3}
    machine["io"] = ["auto", "io_uring", "mapped", "pread"][number // 2 % 4]
    engine = Engine(program, folder, {**stream.config(), **shape, **machine, "profile": "full"})
    try:
        assert_run(engine, stream, world, rows, step, drop_last)
        assert engine.wait() == 0, engine.log()  # it ends by itself when all have had everything
    finally:
        engine.kill()


@pytest.mark.parametrize("packing", ["lookahead", "concat", "best_fit"])
def test_endless(program, folder, layouts, packing):
    inputs = {"packing": packing, "num_epochs": 0, "long_doc": "split", "lanes": 1}
    stream = Stream(layouts[0], inputs, rows=240)
    engine = Engine(
        program, folder, {**stream.config(), "batch_size": 3, "dp_world_size": 2, "profile": "full"}
    )
    try:
        assert_run(engine, stream, 2, 3, 6, turns=30)
        assert engine.stop() == 0
    finally:
        engine.kill()


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(
    "world, rows, step", [(1, 1, 1), (2, 3, 24), (4, 1, 4), (1, 7, 21), (3, 5, 15)]
)
def test_tail(program, folder, layouts, drop_last, world, rows, step):
    """The same number of micro-batches on every rank; the last padded, or dropped (section 6)."""
    stream = Stream(layouts[2], {"num_epochs": 1})
    shape = {
        "batch_size": rows,
        "dp_world_size": world,
        "global_batch_size": step,
        "drop_last": drop_last,
    }
    engine = Engine(program, folder, {**stream.config(), **shape, "profile": "full"})
    try:
        assert_run(engine, stream, world, rows, step, drop_last)
    finally:
        engine.kill()


def test_another_seed_is_noticed(program, folder, layouts):
    """The control of this file: an engine that serves another stream differs from the oracle."""
    stream = Stream(layouts[0])
    engine = Engine(
        program, folder, {**stream.config(), "seed": 8, "batch_size": 3, "profile": "full"}
    )
    try:
        with Ranks(engine) as ranks, pytest.raises(AssertionError):
            assert_batch(ranks.turn()[0], stream)
    finally:
        engine.kill()
