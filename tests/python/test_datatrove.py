# SPDX-License-Identifier: Apache-2.0
"""Files that datatrove wrote: every document in place, equal to its Megatron copy; what is cut,
missing or contradicts another file is refused by name."""

import os
import subprocess

import numpy
import pytest
from in_place_kit import serve_all
from stream_kit import Written, write_megatron

tokenizer = pytest.importorskip("datatrove.pipeline.tokens.tokenizer")

SEED = 2718


def write(folder, name, documents, width, loss=False):
    file = tokenizer.TokenizedFile(
        str(folder),
        name,
        save_loss_metadata=loss,
        tokenizer_name_or_path="a|b",
        save_final_metadata=True,
        token_size=width,
    )
    for document in documents:
        file.write(document.tolist(), numpy.ones(len(document), bool) if loss else None)
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
        write(folder / "several", f"0000{i}_unshuffled.ds", part, 2, loss=True)
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


def cut_tokens(path):
    os.truncate(path, os.path.getsize(path) - 2)


def cut_index(path):
    os.truncate(f"{path}.index", os.path.getsize(f"{path}.index") - 8)


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
