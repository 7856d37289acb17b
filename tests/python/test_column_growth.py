# SPDX-License-Identifier: Apache-2.0
"""Side columns of a run whose index grows: rows from the step on have the entries of the new shard,
in this engine and after a kill; a new shard without its column is refused by name."""

import pytest
from column_kit import Columns, assert_columns
from conftest import built
from live_kit import STEP_ROWS, GrowingStream, take
from stream_kit import Ranks

SEED = 3211
COLUMN = "0-1.weight.col"
TURNS = 45  # after the growth: rows of the new shard come from turn 37 on


@pytest.fixture
def stream(tmp_path, program):
    return GrowingStream(tmp_path, program)


@pytest.fixture
def columns(stream, program, tmp_path):
    """Of all shards; the new shard is away, with its column next to it."""
    sources = [dict(source) for source in stream.corpus.sources]
    new = str(stream.away / "0-1.bin")
    for number, source in enumerate(sources):
        source["shards"] = [str(stream.folder / f"{number}-0.bin"), new][: 2 - number]
    stream.corpus.sources, kept = sources, stream.corpus.sources
    made = Columns(stream.corpus, None, {"weight": ("<f4", 1)}, SEED)
    made.write(program, tmp_path)
    stream.corpus.sources = kept
    return made


def checked(turns, columns, rows, seen):
    for turn in turns:
        for batch in turn:
            assert_columns(batch, columns)
        seen += take([turn], rows)
    return seen


@pytest.mark.parametrize(
    "keys", [{"io": "pread"}, {"io": "mapped", "packer_processes": True}], ids=["pread", "mapped"]
)
def test_rows_of_a_new_shard_have_its_entries(
    engines, program, folder, stream, columns, keys
):
    keys = {**keys, "columns": ["weight"], "sections": ["provenance"]}
    engine, row, seen = stream.start(engines, program, folder, **keys), 8 * STEP_ROWS, []
    rows = stream.rows_from(row)
    with Ranks(engine, 2) as ranks:
        checked(ranks.turns(5), columns, rows, seen)
        stream.prepare()
        said = stream.change(program, engine, 8, 2)
        assert "0-1.bin: expected a column `weight`, found none" in said and "next: " in said, said
        (stream.away / COLUMN).rename(stream.folder / COLUMN)
        assert "row 32" in stream.change(program, engine, 8)
        checked(ranks.turns(TURNS), columns, rows, seen)
        assert max(seen) > row
        engine.checkpoint()
        state = ranks.tokens()[0]
    engine.kill()
    engine = stream.start(engines, program, folder, **keys)
    with Ranks(engine, 2, state) as ranks:
        checked(ranks.turns(), columns, rows, seen)
    assert sorted(set(seen))[: len(rows)] == list(range(len(rows)))
    assert engine.stop() == 0


def test_entries_of_another_shard_are_found(engines, folder, stream, columns):
    """By the program with a planted defect (tests/defects), which serves the rows well."""
    broken, keys = built("ringpack_take_entries_of_first_shard"), {"columns": ["weight"]}
    engine = stream.start(engines, broken, folder, **keys, sections=["provenance"])
    row, seen = 8 * STEP_ROWS, []
    rows = stream.rows_from(row)
    with Ranks(engine, 2) as ranks:
        checked(ranks.turns(5), columns, rows, seen)
        stream.prepare()
        (stream.away / COLUMN).rename(stream.folder / COLUMN)
        stream.change(broken, engine, 8)
        with pytest.raises(AssertionError, match="weight"):
            checked(ranks.turns(TURNS), columns, rows, seen)
    assert max(seen) >= row
