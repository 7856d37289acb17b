# SPDX-License-Identifier: Apache-2.0
"""Errors that a user can act on: the difference, both values, the permitted changes; the gone
process."""

import json
import pickle
import shutil
import subprocess

import numpy
import pytest
import ringpack
from ringpack import CheckpointMismatchError
from stream_oracle import INPUTS, assert_batch

OTHERS = {  # field -> another value of it, and the words for the two
    "seed": (8, "7", "8"),
    "seq_len": (49, "48", "49"),
    "shuffle": ("none", "document", "none"),
    "packing": ("best_fit", "lookahead", "best_fit"),
    "packing_buffer": (9, "8", "9"),
    "row_gap": ("split", "pad", "split"),
    "long_doc": ("drop", "split", "drop"),
    "max_docs_per_row": (5, "6", "5"),
    "plan_partitions": (2, "1", "2"),
}


@pytest.fixture
def state(make):
    """After the first batch of make()."""
    with make() as loader:
        next(loader)
        return loader.state_dict()


@pytest.mark.parametrize("field", OTHERS)
def test_what_differs_is_told_with_both_values(make, state, field):
    value, was, now = OTHERS[field]
    loader = make(**{field: value})
    loader.load_state_dict(state)
    with pytest.raises(CheckpointMismatchError) as raised:
        loader.attach()
    error = raised.value
    assert (error.field, error.expected, error.found) == (field, was, now)
    assert f"set {field} back to {was}" in error.hint
    assert "may change: batch_size, dp_world_size" in str(error)
    assert field not in error.MAY_CHANGE
    again = pickle.loads(pickle.dumps(error))
    assert (again.field, str(again)) == (field, str(error))


def test_another_corpus_and_other_weights_are_told(make, corpora, state):
    two = [{"path": corpora[0]}, {"path": corpora[1]}]
    with make(corpus=two) as loader:
        state_of_two = loader.state_dict()
    for saved, corpus, field in (
        (state, two, "number of sources"),
        (state, corpora[1], "documents of source code"),
        (state_of_two, [{"path": corpora[0], "weight": 3}, two[1]], "weight of source books"),
    ):
        loader = make(corpus=corpus)
        loader.load_state_dict(saved)
        with pytest.raises(CheckpointMismatchError) as raised:
            loader.attach()
        assert raised.value.field == field
        assert raised.value.expected != raised.value.found
        assert raised.value.hint


CHANGES = {
    "batch_size": 5,
    "global_batch_size": 6,
    "drop_last": True,
    "profile": "hf",
    "sections": ["loss_mask"],
    "token_dtype": "i64",
    "label_mode": "aligned",
    "pad_id": 9,
    "readers": 2,
    "packers": 2,
    "packer_processes": True,
    "prefetch_factor": 16,
    "prefetch_bytes": "8m",
    "io": "pread",
    "io_depth": 8,
    "o_direct": "off",
    "vocab_size": 60000,
    "cpus": "0",
    "verify_blocks": "off",
    "index": "/tmp",
    "cache_dir": "/tmp",
    "cache_bytes": "8m",
    "run": "elsewhere",
    "num_epochs": 3,
}


AHEAD = {  # keys of stream version 2, of which only rows that are ahead depend
    "stages": [{"until": "row 999"}, {"spread": 8}],
    "skip": {"rows": ["500-600"]},
    "grow": False,
    "cost": 50,
    "removed": {"gone": 0},
}


def test_what_may_change_ahead_does(make):
    with make(stream_version=2) as loader:
        next(loader)
        state, wanted = loader.state_dict(), numpy.array(next(loader)["input_ids"])
    for key, value in AHEAD.items():
        with make(stream_version=2, **{key: value}) as loader:
            loader.load_state_dict(state)
            batch = next(loader)
            assert batch.first_row == 3 and (batch["input_ids"] == wanted).all(), key


def test_what_may_change_does(make, program, state, expected, corpora, folder):
    for key, value in CHANGES.items():
        with make(**{key: value}) as loader:
            loader.load_state_dict(state)
            batch = next(loader)
            assert batch.first_row == 3, key
            if key not in ("token_dtype", "label_mode", "pad_id", "profile"):
                assert_batch(batch, expected)
    for end in ".bin", ".idx":
        shutil.copy(corpora[0] + end, folder / f"moved{end}")
    moved = make(corpus=folder / "moved")
    moved.load_state_dict(state)
    assert_batch(next(moved), expected)
    config = {"sources": [corpora[0]], "seq_len": 8, "batch_size": 1}
    (folder / "indexed.yaml").write_text(json.dumps(config))
    made = [program, "index", "-q", "-c", folder / "indexed.yaml", "-o", folder / "corpus.rpi"]
    subprocess.run(made, check=True, capture_output=True)
    with make(index=str(folder / "corpus.rpi")) as loader:
        loader.load_state_dict(state)
        assert_batch(next(loader), expected)
    for rank in 0, 1:
        with make(dp_rank=rank, dp_world_size=2, ranks=f"{rank}-{rank}", start_engine=True) as half:
            half.load_state_dict(state)
            assert next(half).first_row == 3 + 3 * rank
    tried = {*CHANGES, *AHEAD, "paths of the corpus", "dp_world_size", "ranks"}
    tried |= {"columns", "label_columns", "document_columns"}  # test_columns.py
    assert tried == set(CheckpointMismatchError.MAY_CHANGE)


def test_a_mistake_in_a_corpus_of_dicts_names_the_parameter(make, corpora):
    """Not the memory that it is handed over in; the line is the number of the source."""
    corpus = [{"path": corpora[0]}, {"path": corpora[1], "weigth": 2}]
    with pytest.raises(ringpack.ConfigError, match="^corpus:2:.* did you mean `weight`"):
        make(corpus=corpus).attach()


def test_geometry_is_told_with_both_values(make, folder):
    with make(run="mine") as loader:
        loader._detach()
        for wrong, field, expected, found in (
            ({"seq_len": 50}, "seq_len", "50", "48"),
            ({"batch_size": 4}, "batch_size", "4", "3"),
            ({"dp_rank": 0, "dp_world_size": 2}, "dp_world_size", "2", "1"),
        ):
            with pytest.raises(CheckpointMismatchError) as raised:
                ringpack.Loader(run="mine", run_dir=folder, **wrong).attach()
            error = raised.value
            assert (error.field, error.expected, error.found) == (field, expected, found)


def test_a_dead_engine_is_waited_for_and_then_named(make, folder):
    owner = make(run="mortal", **{**INPUTS, "num_epochs": 50}).attach()
    with pytest.raises(ringpack.BusyError, match="rank 0 is taken"):
        ringpack.Loader(run="mortal", run_dir=folder, connect_timeout=0.1).attach()
    owner._detach()
    with ringpack.Loader(run="mortal", run_dir=folder, restart_timeout=0.3) as loader:
        next(loader)
        owner._engine.process.kill()
        with pytest.raises(ringpack.EngineGoneError) as raised:
            while True:
                next(loader)
    assert "the engine died at row" in str(raised.value)
    assert "no successor came within 0.3 s" in str(raised.value)
    assert "mortal" in str(raised.value)


def test_a_checkpoint_of_an_engine_that_keeps_none(make, folder):
    with make() as loader:
        next(loader).close()
        with pytest.raises(ringpack.UsageError, match="this engine has no checkpoint_dir"):
            ringpack.checkpoint(loader.run, folder)
