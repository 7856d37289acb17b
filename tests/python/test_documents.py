# SPDX-License-Identifier: Apache-2.0
"""`batch.documents()`: of each fragment the file and the row that it comes from."""

import pytest
import ringpack
from stream_kit import Corpus, Engine, Ranks, Stream

LAYOUT = [("megatron", "u16", 2, [9, 14]), ("npy", "u16", 1, [8, 11])]
SECTIONS = ["input_ids", "provenance"]


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "a\\nb\nc"  # characters of a path
    folder.mkdir()
    return Corpus(folder, LAYOUT, 5)


def test_every_fragment_has_its_file_and_row(corpus, tmp_path, program):
    stream = Stream(corpus, {"num_epochs": 1})
    paths = iter(corpus.paths)
    files = [  # for each document of each source
        [(path, row) for count, path in zip(counts, paths) for row in range(count)]
        for _, _, _, counts in LAYOUT
    ]
    config = {**stream.config(), "batch_size": 3, "sections": SECTIONS}
    engine = Engine(program, tmp_path, config)
    seen = set()
    with Ranks(engine) as ranks:
        for (batch,) in ranks.turns():
            for row, fragments in zip(batch["rows"].tolist(), batch.documents()):
                number, count, _ = row
                assert len(fragments) == count
                for found, planned in zip(fragments, stream.rows[number] if count else []):
                    assert found[:4] == (
                        planned.source,
                        planned.document,
                        planned.offset,
                        planned.length,
                    )
                    assert (found.file, found.row) == files[found.source][found.document]
                    seen.add((found.file, found.row))
    engine.stop()
    assert {file for file, _ in seen} == set(corpus.paths)


def test_it_needs_a_living_engine(corpus, tmp_path, program):
    config = {**Stream(corpus).config(), "batch_size": 3, "sections": SECTIONS}
    engine = Engine(program, tmp_path, config)
    with Ranks(engine) as ranks:
        (batch,) = ranks.turn()
        engine.kill()
        with pytest.raises(ringpack.EngineGoneError):
            batch.documents()


def test_it_needs_provenance(corpus, tmp_path, program):
    config = {**Stream(corpus).config(), "batch_size": 3, "sections": ["input_ids"]}
    engine = Engine(program, tmp_path, config)
    with Ranks(engine) as ranks:
        with pytest.raises(KeyError, match="provenance"):
            ranks.turn()[0].documents()
    engine.stop()
