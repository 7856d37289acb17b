# SPDX-License-Identifier: Apache-2.0
"""Side columns: values of each token in batches, equal to what the provenance of the batches says,
in both stream versions and all read modes; their identity; refusals by name."""

import json
import subprocess

import numpy
import pytest
import ringpack
from column_kit import Columns, assert_columns, column, read_all
from mask_kit import index
from stream_kit import VERSION_1, Corpus, Engine, write_megatron

SEED = 3207
LAYOUT = [
    ("megatron", "u16", 2, [17, 12]),
    ("raw", "u16", 1, [9]),
    ("npy", "i32", 1, [11]),
    ("llmc", "u32", 1, [10]),
]
KINDS = {"weight": ("<f4", 1), "logprob": ("<f2", 1), "teacher": ("<i4", 16)}
SEQ_LEN = 48


@pytest.fixture
def corpus(tmp_path):
    return Corpus(tmp_path, LAYOUT, SEED, SEQ_LEN)


@pytest.fixture
def columns(corpus, program, tmp_path):
    made = Columns(corpus, None, KINDS, SEED)
    made.write(program, tmp_path)
    return made


def config_of(corpus, **more):
    return {
        "sources": corpus.sources,
        "seq_len": SEQ_LEN,
        "batch_size": 3,
        "profile": "full",
        "columns": ["weight", "teacher"],
        "label_columns": ["logprob"],
        "seed": 5,
        **more,
    }


CASES = {
    "lookahead": {"io": "pread"},
    "split": {"fill": "split", "io": "io_uring", "packer_processes": True, "packers": 2},
    "aligned": {"label_mode": "aligned", "io": "mapped"},
    "concat": {"packing": "concat", "shuffle": "block", "block_documents": 4, "window_blocks": 2},
    "best_fit": {"packing": "best_fit", "long_doc": "truncate", "o_direct": "on"},
    "inserted": {"bos_id": 7, "eos_id": 8, "align": 4, "readers": 2},
    "across": {"label_across_cuts": True, "bos_id": 7, "fill": "split", "packers": 3},
    "version_1": {**VERSION_1, "fill": "split", "readers": 3},
    "small_ring": {"prefetch_bytes": 65536, "io": "pread", "o_direct": "off"},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("indexed", [False, True])
def test_every_entry_is_that_of_its_token(corpus, columns, program, tmp_path, case, indexed):
    if indexed:
        corpus.index(program)
    keys = CASES[case]
    engine = Engine(program, tmp_path, config_of(corpus, **keys))
    more = {
        "label_mode": keys.get("label_mode", "shifted"),
        "bos": int("bos_id" in keys),
        "eos": int("eos_id" in keys),
        "across": keys.get("label_across_cuts", False),
    }

    def check(batch):
        assert_columns(batch, columns, of_labels=["logprob"], **more)

    rows, loaders = read_all(engine, check)
    assert len(rows) > 20 and rows == sorted(rows)
    loaders[0].close()
    assert engine.stop() == 0
