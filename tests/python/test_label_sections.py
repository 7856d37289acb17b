# SPDX-License-Identifier: Apache-2.0
"""Labels further ahead (mtp), of another type or with another ignore_index: by hand from the
documents, with masks, cuts, padding inside rows and slices of context-parallel processes."""

import subprocess

import numpy
import pytest
import ringpack
from context_kit import LENGTH, ROWS, group, per_document, write_corpus
from stream_oracle import write_megatron

HEADS = 4
NAMES = ["labels", *(f"labels_{ahead}" for ahead in range(2, HEADS + 1))]


@pytest.fixture(scope="module")
def masked(program, tmp_path_factory):
    """Documents, and for each token whether it is trained."""
    folder, generator = tmp_path_factory.mktemp("labels"), numpy.random.default_rng(4)
    lengths = [1, 2, 3, 4, 200, 64, 130, *generator.integers(1, 50, 40)]
    documents = [generator.integers(1, 250, length) for length in lengths]
    trained = [generator.random(length) < 0.7 for length in lengths]
    write_megatron(folder / "web", documents)
    write_megatron(folder / "web_loss", [flags.astype(int) for flags in trained])
    command = [program, "index", "-q", "--mask", "loss", folder / "web.bin"]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "web.bin", documents, trained


def labels_by_hand(batch, documents, trained, align, across, ahead):
    """Of the token that is `ahead` further, if it is in the same fragment, or with `across` the
    first one after it in its document."""
    made = numpy.full((ROWS, LENGTH), -100)
    for row, (info, parts) in enumerate(zip(batch["rows"], batch["provenance"])):
        place = 0
        for document, offset, _, length in parts[: info["fragments"]].tolist():
            tokens, flags = documents[document], trained[document]
            for own in range(length):
                at, end = offset + own + ahead, offset + length + across
                if at < min(end, len(tokens)) and flags[at]:
                    made[row, place + own] = tokens[at]
            place += -(-length // align) * align
    return made


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("align", [1, 4])
def test_labels_of_more_tokens(program, masked, folder, align, across):
    corpus, documents, trained = masked
    keys = {"seq_len": LENGTH, "batch_size": ROWS, "seed": 2, "run_dir": folder}
    keys |= {"align": align, "label_across_cuts": across, "profile": "full", "mtp": HEADS}
    keys |= {"packing_buffer": 4}
    source, count = {"path": corpus, "mask": "loss"}, 0
    with ringpack.Loader(corpus=source, **keys) as loader:
        for batch in loader:
            assert [name for name in batch if name.startswith("labels")] == NAMES
            for ahead, name in enumerate(NAMES, 1):
                wanted = labels_by_hand(batch, documents, trained, align, across, ahead)
                assert batch[name].dtype == numpy.int32 and (batch[name] == wanted).all(), name
                assert (batch.flat()[name] == wanted.ravel()).all()
            count += 1
    assert count > 5


def test_slices_have_the_labels_of_the_whole_row(program, folder, tmp_path):
    pytest.importorskip("torch")
    corpus = write_corpus(tmp_path)
    more = {"return_type": "torch", "mtp": HEADS, "ignore_index": -1, "label_dtype": "i64"}
    with group(corpus, folder, 2, split="document", **more) as (whole, parts):
        for _, batch, *slices in zip(range(4), whole, *parts):
            ends = batch["cu_seqlens"][: batch.segments + 1].tolist()
            assert (batch["labels"] == -1).any()
            for rank, part in enumerate(slices):
                own = per_document(ends, 2, rank)
                for name in NAMES:
                    found = part[name].numpy().ravel()
                    assert found.dtype == numpy.int64 and (found == batch[name].ravel()[own]).all()
                    assert (part.to("cpu")[name].numpy().ravel() == found).all()


@pytest.mark.parametrize("return_type", ["numpy", "torch", "jax"])
def test_type_and_ignored_label(program, folder, tmp_path, return_type):
    pytest.importorskip(return_type)
    keys = {"corpus": write_corpus(tmp_path), "seq_len": LENGTH, "batch_size": ROWS, "seed": 2}
    keys |= {"run_dir": folder, "profile": "torchtitan", "return_type": return_type}
    plain = ringpack.Loader(**{**keys, "return_type": "numpy"}, run="plain")
    other = ringpack.Loader(**keys, run="other", ignore_index=-1, label_dtype="i32")
    with plain, other:
        for _, batch, found in zip(range(4), plain, other):
            labels = numpy.asarray(found["labels"])
            assert labels.dtype == numpy.int32 and list(found) == ["input", "positions", "labels"]
            wanted = numpy.where(batch["labels"] == -100, -1, batch["labels"])
            assert (labels == wanted).all() and (wanted == -1).any()
            assert (numpy.asarray(found.copy()["labels"]) == wanted).all()
            assert (numpy.asarray(found["input"]) == batch["input"]).all()


def test_mistakes_are_refused(program, folder, tmp_path):
    keys = {"corpus": write_corpus(tmp_path), "seq_len": LENGTH, "batch_size": ROWS}
    keys["run_dir"] = folder
    for text, more in {
        "mtp is 0": {"mtp": 0},
        "mtp is -1": {"mtp": -1},
        "label_dtype is 'u16'": {"label_dtype": "u16"},
        "ignore_index is 0": {"ignore_index": 0},
        "ignore_index is -2147483649": {"ignore_index": -(2**31) - 1},
    }.items():
        with pytest.raises(ValueError, match=text):
            ringpack.Loader(**keys, **more)
    for text, more in {
        "mtp changes labels, which the run lacks": {"mtp": 2},
        "ignore_index changes labels": {"ignore_index": -1, "profile": "grain"},
        "mtp is 65, and a row has 64 tokens": {"mtp": 65, "profile": "full"},
        "mtp needs labels that are shifted": {"mtp": 2, "profile": "hf"},
    }.items():
        with pytest.raises(ringpack.UsageError, match=text) as raised:
            next(ringpack.Loader(**keys, **more))
        assert raised.value.hint
