# SPDX-License-Identifier: Apache-2.0
"""Files that datatrove wrote: every document in place, equal to its Megatron copy, with the labels
of its .loss files; a file that is cut, missing or contradicts another one is refused by name."""

import os
import subprocess

import numpy
import pytest
import ringpack
from in_place_kit import assert_killed_and_resumed, serve_all
from mask_kit import check_whole_stream, index, random_flags, serve, spans_of
from stream_kit import Ranks, Stream, Written, write_megatron

tokenizer = pytest.importorskip("datatrove.pipeline.tokens.tokenizer")

SEED = 2718


def write(folder, name, documents, width, flags=None):
    file = tokenizer.TokenizedFile(
        str(folder),
        name,
        save_loss_metadata=flags is not None,
        tokenizer_name_or_path="a|b",
        save_final_metadata=True,
        token_size=width,
    )
    for number, document in enumerate(documents):
        file.write(document.tolist(), None if flags is None else flags[number])
    file.close()
    return str(folder / name)


def make_documents(number, count, limit):
    generator = numpy.random.default_rng(SEED + number)
    return [generator.integers(0, limit, n) for n in generator.integers(0, 90, count)]


@pytest.fixture
def corpora(folder):
    """u16, u32 and a folder of several; and their Megatron copies."""
    (folder / "several").mkdir()
    narrow, wide = make_documents(1, 60, 60000), make_documents(2, 40, 120000)
    parts = [make_documents(3 + i, 20, 60000) for i in range(3)]
    for i, part in enumerate(parts):
        write(folder / "several", f"0000{i}_unshuffled.ds", part, 2)
    paths = {
        "narrow": write(folder, "narrow.ds", narrow, 2),
        "wide": write(folder, "wide.ds", wide, 4),
        "several": str(folder / "several"),
    }
    documents = [narrow, wide, sum(parts, [])]
    copies = [write_megatron(folder / f"{n}-copy", d, "i32") for n, d in zip(paths, documents)]
    return [
        Written(
            [{"name": n, "weight": 1, "shards": [p]} for n, p in zip(paths, shards)], documents
        )
        for shards in (paths.values(), copies)
    ]


def test_equal_to_the_megatron_copy(program, folder, corpora):
    read, copies = corpora
    wanted = serve_all(program, folder, copies)
    assert serve_all(program, folder, read) == wanted
    paths = [path for source in read.sources for path in source["shards"]]
    subprocess.run([program, "index", "-q", *paths], check=True, capture_output=True)
    assert serve_all(program, folder, read, io="pread") == wanted


def test_killed_and_resumed(program, folder):
    (folder / "several").mkdir()
    parts = [make_documents(3 + i, 20, 60000) for i in range(3)]
    for i, part in enumerate(parts):
        write(folder / "several", f"0000{i}_unshuffled.ds", part, 2)
    wide = make_documents(2, 40, 120000)
    forms = {
        "several": ([folder / "several"], sum(parts, []), {}),
        "wide": ([write(folder, "wide.ds", wide, 4)], wide, {}),
    }
    assert_killed_and_resumed(program, folder, forms)


def cut_tokens(path):
    os.truncate(path, os.path.getsize(path) - 2)


def cut_index(path):
    os.truncate(f"{path}.index", os.path.getsize(f"{path}.index") - 8)


def empty_index(path):
    os.truncate(f"{path}.index", 0)


def cut_entry(path):
    os.truncate(f"{path}.index", os.path.getsize(f"{path}.index") - 3)


def descend(path):
    with open(f"{path}.index", "r+b") as file:
        file.seek(24)
        file.write(bytes(8))


def lose_metadata(path):
    os.remove(f"{path}.metadata")


def other_width(path):
    with open(f"{path}.metadata", "w") as file:
        file.write("gpt2|3\n12 tokens\n")


@pytest.mark.parametrize(
    "harm, word",
    [
        (cut_tokens, "end of document"),
        (cut_index, "end of document 59"),
        (empty_index, " tokens, found none"),
        (cut_entry, "multiple of 8 bytes"),
        (descend, "end of document 3: expected"),
        (lose_metadata, "--dtype"),
        (other_width, "found `gpt2|3`"),
    ],
)
def test_refused_by_name(program, folder, harm, word):
    path = write(folder, "x.ds", make_documents(1, 61, 60000)[:61], 2)
    harm(path)
    asked = subprocess.run([program, "inspect", path], capture_output=True, text=True)
    assert asked.returncode == 2 and path in asked.stderr and word in asked.stderr, asked.stderr


# ---- masks --------------------------------------------------------------------------------------


class Masked:
    """A folder of three files and a wide one, each with a .loss. entries(flags) are its content."""

    def __init__(self, folder, entries=lambda flags: flags, **keys):
        generator = numpy.random.default_rng(SEED)
        (folder / "several").mkdir()
        parts = [make_documents(3 + i, 20, 60000) for i in range(3)]
        self.documents = [sum(parts, []), make_documents(2, 40, 120000)]
        flags = [[random_flags(generator, len(d)) for d in own] for own in self.documents]
        made = [[entries(f) for f in own] for own in flags]
        for i, part in enumerate(parts):
            own = made[0][20 * i : 20 * (i + 1)]
            write(folder / "several", f"0000{i}_unshuffled.ds", part, 2, own)
        wide = write(folder, "wide.ds", self.documents[1], 4, made[1])
        self.spans = [[spans_of(f) for f in own] for own in flags]
        paths = {"several": str(folder / "several"), "wide": wide}
        self.sources = [{"name": n, "weight": 1, "shards": [p], **keys} for n, p in paths.items()]

    def index(self, program):
        index(program, *(path for source in self.sources for path in source["shards"]))


@pytest.mark.parametrize("indexed", [False, True])
def test_loss_files_are_masks(program, folder, indexed):
    corpus = Masked(folder)
    if indexed:
        corpus.index(program)
    check_whole_stream(program, folder, Stream(corpus))


@pytest.mark.parametrize("keys", [{"mask": "loss"}, {"mask_value": "ignore"}, {"mask": "none"}])
def test_what_is_declared_counts(program, folder, keys):
    ignores = "mask_value" in keys
    corpus = Masked(folder, lambda flags: ~flags if ignores else flags, **keys)
    if keys.get("mask") == "none":
        corpus.spans = None
        os.truncate(f"{corpus.sources[1]['shards'][0]}.loss", 3)
    check_whole_stream(program, folder, Stream(corpus))


def test_a_mask_of_several_reads(program, folder):
    """The mask is longer than one read of it, and so is a document."""
    generator = numpy.random.default_rng(SEED)
    lengths = [700_001, 0, 700_003, 5, 1_500_001, 7]
    flags = [generator.random(n) < (i + 1) / 8 for i, n in enumerate(lengths)]
    path = write(folder, "x.ds", [numpy.zeros(n, int) for n in lengths], 2, flags)
    trained = sum(int(f[1:].sum()) for f in flags)
    said = subprocess.run([program, "inspect", path], capture_output=True, text=True).stdout
    assert f"mask         loss, {trained:,} of {sum(lengths):,} tokens trained" in said, said


def flip_an_entry(path):
    """Of the second token of the first document."""
    with open(f"{path}.loss", "r+b") as file:
        entry = file.read(2)[1]
        file.seek(1)
        file.write(bytes([entry ^ 1]))


def test_a_mask_that_changes(program, folder):
    """Spans are kept: without a sidecar from the start, which a state is compared with; with a
    sidecar from the index, until the file is indexed again."""
    corpus = Masked(folder)
    path = corpus.sources[1]["shards"][0]
    assert len(corpus.documents[1][0]) > 1

    def resume(token=None):
        engine = serve(program, folder, Stream(corpus))
        try:
            with Ranks(engine, token=token) as ranks:
                ranks.turn()
                return ranks.tokens()[0]
        finally:
            engine.stop()

    token = resume()
    resume(token)
    flip_an_entry(path)
    with pytest.raises(ringpack.CheckpointMismatchError, match="fingerprint"):
        resume(token)
    flip_an_entry(path)
    corpus.index(program)
    flip_an_entry(path)
    check_whole_stream(program, folder, Stream(corpus))
    resume(token)
    corpus.index(program)
    with pytest.raises(ringpack.CheckpointMismatchError, match="fingerprint"):
        resume(token)


def refusal(program, *arguments):
    asked = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert asked.returncode == 2, asked.stderr
    return asked.stderr


@pytest.mark.parametrize("change", [-1, 1])
def test_a_mask_of_another_length_is_refused(program, folder, change):
    documents = make_documents(1, 60, 60000)
    path = write(folder, "x.ds", documents, 2, [numpy.ones(len(d), bool) for d in documents])
    tokens = sum(map(len, documents))
    os.truncate(f"{path}.loss", tokens + change)
    for command in ("inspect", "index"):
        said = refusal(program, command, path)
        assert f"{path}.loss: expected a byte for each of the {tokens} tokens" in said, said
        assert f"found {tokens + change} bytes" in said and "--mask none" in said, said


def test_masks_that_are_not_there_are_refused(program, folder):
    documents = make_documents(1, 6, 60000)
    path = write(folder, "x.ds", documents, 2)
    said = refusal(program, "index", "--mask", "loss", path)
    assert f"mask `loss`: expected {path}.loss, found no such file" in said, said
    write(folder, "y.ds", documents, 2, [numpy.ones(len(d), bool) for d in documents])
    said = refusal(program, "index", "--mask", "labels", str(folder / "y.ds"))
    assert "mask `labels`: expected loss" in said and "y.ds.loss" in said, said


def test_a_long_mask_needs_a_sidecar(program, folder):
    tokens = 2**28 + 1
    path = write(folder, "x.ds", [], 2, [])
    os.truncate(path, 2 * tokens)
    os.truncate(f"{path}.loss", tokens)
    numpy.array([tokens], "<u8").tofile(f"{path}.index")
    said = refusal(program, "inspect", path)
    assert f"{path}.loss: too long to be read at every start" in said, said
    assert f"ringpack index --dtype u16 --mask loss {path}" in said, said
