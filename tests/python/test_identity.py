# SPDX-License-Identifier: Apache-2.0
"""A loader that describes a stream is given that stream or refused by the field that differs, and
the loaders of a job have runs of their own."""

import os
import shutil

import pytest
import ringpack
from stream_kit import PATIENCE
from stream_oracle import assert_batch

PLACE = {"run": "one", "start_engine": False, "connect_timeout": PATIENCE}
TWO = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "a"}


@pytest.mark.parametrize(
    "field, other",
    [
        ("seed", 8),
        ("packing", "best_fit"),
        ("row_gap", "split"),
        ("long_doc", "drop"),
        ("shuffle", "none"),
        ("num_epochs", 3),
        ("plan_partitions", 2),
        ("packing_buffer", 9),
        ("max_docs_per_row", 5),
        ("seq_len", 32),
        ("batch_size", 2),
        ("pad_id", 5),
        ("label_mode", "aligned"),
        ("token_dtype", "i64"),
        ("drop_last", True),
        ("global_batch_size", 12),
    ],
)
def test_each_field_of_a_description_is_compared(make, field, other):
    make(run="one").attach()
    with pytest.raises(ringpack.CheckpointMismatchError) as raised:
        make(**PLACE, **{field: other}).attach()
    error = raised.value
    assert error.field == field and error.expected == str(other).lower() != error.found
    assert "a run of its own" in error.hint


def test_without_the_comparison_a_wrong_stream_is_taken(make, broken, monkeypatch):
    """The defect that the test above finds."""
    monkeypatch.setenv("RP_DEFECT", "trust_description")
    make(run="one", dp_rank=0, dp_world_size=2, program=broken).attach()
    make(**PLACE, dp_rank=1, dp_world_size=2, seed=8).attach()


def other_paths(corpora, folder):
    """The corpus of `make`, and others with the same content: a link, a copy, a list, a config."""
    place, path = folder / "elsewhere", str(corpora[0])
    place.mkdir()
    for end in ".bin", ".idx":
        os.symlink(path + end, place / f"link{end}")
        shutil.copy(path + end, place / f"copy{end}")
    yield {}
    yield {"corpus": str(place / "link")}
    yield {"corpus": str(place / "copy.bin")}
    yield {"corpus": [{"path": path, "weight": 5, "name": "other"}]}
    config = place / "c.yaml"
    config.write_text(f"sources: [{place}/copy]\n")
    yield {"corpus": None, "config": config}


def test_one_corpus_by_other_paths_is_no_other_one(make, corpora, folder, expected):
    ranks = {"dp_world_size": 2, "num_epochs": 1}
    first = make(run="one", dp_rank=0, **ranks).attach()
    for changes in other_paths(corpora, folder):
        second = make(**PLACE, dp_rank=1, **ranks, **changes).attach()
        assert second.contract() == first.contract()
        second.close()
    assert_batch(next(first), expected)
    second = make(**PLACE, dp_rank=1, **ranks)
    assert_batch(next(second), expected)


def test_another_corpus_is_refused(make, corpora, folder):
    """Also one of as many documents, with one token that differs."""
    make(run="one").attach()
    copy = folder / "copy"
    for end in ".bin", ".idx":
        shutil.copy(f"{corpora[0]}{end}", f"{copy}{end}")
    data = bytearray((folder / "copy.bin").read_bytes())
    data[0] ^= 1
    (folder / "copy.bin").write_bytes(data)
    for corpus in (copy, corpora[1], list(corpora)):
        with pytest.raises(ringpack.CheckpointMismatchError, match="corpus|source") as raised:
            make(**PLACE, corpus=corpus).attach()
        assert raised.value.field and raised.value.field != "corpus_files"


def test_a_source_that_is_read_in_another_way_is_refused(make, corpora):
    make(run="one", corpus=[{"path": corpora[0], "weight": 1}, corpora[1]]).attach()
    other = [{"path": corpora[0], "weight": 2}, corpora[1]]
    with pytest.raises(ringpack.CheckpointMismatchError, match="weight of source") as raised:
        make(**PLACE, corpus=other).attach()
    assert (raised.value.expected, raised.value.found) == ("2", "1")


def test_a_loader_that_describes_nothing_takes_what_there_is(make, folder, expected):
    make(run="one", dp_rank=0, dp_world_size=2).attach()
    with ringpack.Loader(run="one", run_dir=folder, dp_rank=1, dp_world_size=2) as loader:
        assert_batch(next(loader), expected)


# ---- names --------------------------------------------------------------------------------------


@pytest.fixture
def as_rank(monkeypatch):
    def become(rank):
        for name, text in {**TWO, "RANK": f"{rank}", "LOCAL_RANK": f"{rank}"}.items():
            monkeypatch.setenv(name, text)

    return become


def test_loaders_of_a_job_have_names_of_their_own(make, corpora, as_rank, expected):
    """In any order of their making and use by a rank."""
    as_rank(0)
    train, held_out = make(), make(corpus=corpora[1])
    names = train.run, held_out.run
    assert names[0] != names[1] and all(name.startswith("torchrun-a-1-") for name in names)
    with train, held_out:
        as_rank(1)
        other_held_out, other_train = make(corpus=corpora[1]), make()
        # They are of another process: there no run has a name yet.
        ringpack._placement._named.clear()
        assert (other_train.run, other_held_out.run) == names
        for loader in (train, other_train):
            assert_batch(next(loader), expected)
        assert next(held_out).first_row == 0 and next(other_held_out).first_row == 3


def test_loaders_of_one_stream_count_while_they_live(make, as_rank):
    as_rank(0)
    first = make()
    name = first.run
    second = make()
    assert second.run == f"{name}-2"
    other = make(readers=2)  # the same stream, read by more threads
    assert other.run == f"{name}-3"
    assert make(seed=8).run.rpartition("-")[0] == name.rpartition("-")[0]


def test_a_rank_that_describes_another_stream_is_told_soon(make, as_rank, monkeypatch):
    monkeypatch.setattr(ringpack._placement, "_LOOK_S", 0.2)
    monkeypatch.setattr(ringpack._placement, "_STRANGE_S", 0.5)
    as_rank(0)
    with make() as train:
        as_rank(1)
        ringpack._placement._described.clear()
        with pytest.raises(ringpack.CheckpointMismatchError, match="no engine serves") as raised:
            make(seed=8, connect_timeout=PATIENCE).attach()
        assert (raised.value.field, raised.value.expected, raised.value.found) == ("seed", "8", "7")
        assert train.run in str(raised.value)


def test_the_same_corpus_by_another_path_finds_the_engine_of_the_job(
    make, corpora, as_rank, monkeypatch, folder
):
    monkeypatch.setattr(ringpack._placement, "_LOOK_S", 0.2)
    as_rank(0)
    copy = folder / "copy"
    for end in ".bin", ".idx":
        shutil.copy(f"{corpora[0]}{end}", f"{copy}{end}")
    with make() as train:
        as_rank(1)
        ringpack._placement._described.clear()
        assert make(corpus=copy, connect_timeout=PATIENCE).attach().run == train.run


def test_a_loader_without_a_description_finds_the_only_engine_of_its_job(make, as_rank, folder):
    as_rank(0)
    with make() as train:
        as_rank(1)
        assert ringpack.Loader(run_dir=folder).attach().run == train.run
        as_rank(0)
        with make(seed=8):
            as_rank(1)
            with pytest.raises(ringpack.UsageError, match="several engines"):
                ringpack.Loader(run_dir=folder).attach()
