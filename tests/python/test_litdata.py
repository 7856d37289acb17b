# SPDX-License-Identifier: Apache-2.0
"""litData chunks, written byte by byte as optimize() of litData 0.2.76 writes them for TokensLoader
(RP_LONG=1: by itself): every document in place, in the order of index.json, equal to its Megatron
copy; other chunks are refused."""

import json
import os
import subprocess

import numpy
import pytest
from in_place_kit import (
    assert_equal_to_copies,
    assert_killed_and_resumed,
    assert_refused,
    peers_python,
)
from stream_kit import LONG

SEED = 27182
TYPES = {  # the number of a type, as torch's and as numpy's
    "tensor": {"u1": 11, "i1": 12, "<i2": 14, "<i4": 16, "<i8": 18, "<u2": 20},
    "numpy": {"i1": 0, "<i2": 1, "<i4": 2, "<i8": 3, "u1": 4, "<u2": 5, "<u4": 6, "<u8": 7},
}


def make_documents(number, count=40, limit=30000):
    generator = numpy.random.default_rng(SEED + number)
    return [generator.integers(0, limit, n) for n in generator.integers(0, 300, count)]


def write_chunk(path, documents, dtype):
    ends = numpy.cumsum([0, *map(len, documents)]) * numpy.dtype(dtype).itemsize
    table = numpy.array([len(documents), *(ends + 4 * (len(documents) + 2))], "<u4")
    path.write_bytes(table.tobytes() + b"".join(d.astype(dtype).tobytes() for d in documents))


def write_dataset(folder, documents, dtype="<i4", kind="tensor", at_once=4, **config):
    folder.mkdir(parents=True, exist_ok=True)
    chunks = []
    for i, first in enumerate(range(0, len(documents), at_once)):
        part = documents[first : first + at_once]
        name = f"chunk-0-{i}.bin"
        write_chunk(folder / name, part, dtype)
        tokens = sum(map(len, part))
        size = (folder / name).stat().st_size
        chunks.append(
            {"chunk_bytes": size, "chunk_size": len(part), "dim": tokens, "filename": name}
        )
    config = {
        "chunk_bytes": None,
        "chunk_size": 1000,
        "compression": None,
        "data_format": [f"no_header_{kind}:{TYPES[kind][dtype]}"],
        "data_spec": '[1, {"type": null, "context": null, "children_spec": []}]',
        "encryption": None,
        "item_loader": "TokensLoader",
        **config,
    }
    index = {"chunks": chunks, "config": config, "updated_at": "1767225600.0"}
    (folder / "index.json").write_text(json.dumps(index, sort_keys=True))
    return folder


def test_every_type_equals_its_megatron_copy(program, folder):
    """Ten chunks each: chunk-0-10 comes after chunk-0-2."""
    forms = {}
    for kind, types in TYPES.items():
        for number, dtype in enumerate(types):
            documents = make_documents(number, 44, 100 if dtype[-1] == "1" else 30000)
            name = f"{kind} {dtype.strip('<')}"
            forms[name] = ([write_dataset(folder / name, documents, dtype, kind)], documents, {})
    documents = make_documents(20, 8)
    write_dataset(folder / "files", documents)
    forms["files"] = ([folder / f"files/chunk-0-{i}.bin" for i in (0, 1)], documents, {})
    assert_equal_to_copies(program, folder, forms)


def test_killed_and_resumed(program, folder):
    forms = {}
    for number, (kind, dtype) in enumerate([("tensor", "<i8"), ("numpy", "<u2")]):
        documents = make_documents(60 + number, 44)
        forms[kind] = ([write_dataset(folder / kind, documents, dtype, kind)], documents, {})
    assert_killed_and_resumed(program, folder, forms)


def test_inspect_says_what_it_is(program, folder):
    documents = make_documents(30, 4)
    path = write_dataset(folder / "x", documents, "<u2") / "chunk-0-0.bin"
    ask = [program, "inspect", "--json", "--scan", path]
    [said] = json.loads(subprocess.run(ask, check=True, capture_output=True).stdout)
    assert (said["format"], said["dtype"]) == ("litdata", "u16")
    assert said["documents"] == 4 and said["tokens"] == sum(map(len, documents))


# ---- refusals ------------------------------------------------------------------------------


def with_config(**config):
    return lambda folder: write_dataset(folder / "d", make_documents(31), **config)


def a_chunk(make):
    return lambda folder: make(folder) / "chunk-0-0.bin"


def elsewhere(folder):
    path = write_dataset(folder / "d", make_documents(32)) / "index.json"
    path.write_text(path.read_text().replace("chunk-0-3.bin", "/etc/passwd"))
    return folder / "d"


def broken_index(folder):
    path = write_dataset(folder / "d", make_documents(33)) / "index.json"
    os.truncate(path, 100)
    return folder / "d"


def cut(folder):
    path = write_dataset(folder / "d", make_documents(34)) / "chunk-0-0.bin"
    os.truncate(path, os.path.getsize(path) - 4)
    return path


def other_width(folder):
    """The chunk is of one type, the index.json says another."""
    chunk = write_dataset(folder / "d", [numpy.arange(3)], "<u2") / "chunk-0-0.bin"
    index = folder / "d" / "index.json"
    index.write_text(index.read_text().replace("tensor:20", "tensor:16"))
    return chunk


PYTREE = with_config(item_loader="PyTreeLoader")
ZSTD = with_config(compression="zstd")
REFUSALS = {
    "PyTreeLoader": (PYTREE, "TokensLoader", "ringpack convert", "/d`"),
    "a chunk of PyTreeLoader": (a_chunk(PYTREE), "TokensLoader", "ringpack convert", "/d`"),
    "compressed": (ZSTD, "compressed", "ringpack convert"),
    "a compressed chunk": (a_chunk(ZSTD), "compressed", "ringpack convert"),
    "encrypted": (with_config(encryption={"algorithm": "fernet"}), "encrypted", "without"),
    "floats": (with_config(data_format=["no_header_tensor:1"]), "integers", "ringpack convert"),
    "two leaves": (with_config(data_format=["int", "str"]), "integers", "ringpack convert"),
    "elsewhere": (elsewhere, "entry 3 of `chunks`", "in the folder"),
    "a broken index.json": (broken_index, "index.json: expected JSON", "again"),
    "cut": (cut, "end of sample 3", "cut short"),
    "another width": (other_width, "sample 0", "multiple of 4 bytes"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_by_name(program, folder, name):
    make, *words = REFUSALS[name]
    assert_refused(program, make(folder), *words)


@pytest.mark.parametrize("command", ["inspect", "index"])
def test_a_mask_is_refused(program, folder, command):
    """Its chunks have only tokens, indexed or not; the message does not send to `index` again."""
    chunk = write_dataset(folder / "d", make_documents(36, 4)) / "chunk-0-0.bin"
    for _ in range(2):
        words = ["mask: expected loss", "a chunk of litData, which has only tokens"]
        assert_refused(program, chunk, *words, declared=["--mask", "loss"], command=command)
        assert not chunk.with_name("chunk-0-0.bin.rpi").exists() or command == "inspect"
        if command == "inspect":
            subprocess.run([program, "index", "-q", chunk], check=True, capture_output=True)


def test_a_chunk_needs_its_index(program, folder):
    """Until a sidecar knows its type."""
    path = write_dataset(folder / "d", make_documents(35, 4)) / "chunk-0-0.bin"
    subprocess.run([program, "index", "-q", path], check=True, capture_output=True)
    (folder / "d" / "index.json").unlink()
    subprocess.run([program, "inspect", "-q", path], check=True, capture_output=True)
    os.unlink(f"{path}.rpi")
    asked = subprocess.run(
        [program, "inspect", "--format", "litdata", path], capture_output=True, text=True
    )
    assert asked.returncode == 2 and "copy index.json" in asked.stderr, asked.stderr


# ---- the library itself --------------------------------------------------------------------

LIBRARY = """
import json, sys
import litdata, numpy, torch


def documents_of(work):
    dtype, is_tensor, documents = work
    for document in documents:
        ids = numpy.array(document, dtype)
        yield torch.from_numpy(ids) if is_tensor else ids


if __name__ == "__main__":
    for folder, *work in json.load(sys.stdin):
        litdata.optimize(documents_of, [work], output_dir=folder, chunk_size=1000, num_workers=1,
                         verbose=False, item_loader=litdata.TokensLoader(block_size=16))
"""


@pytest.mark.skipif(not LONG or not peers_python(), reason="RP_LONG=1, and bench/peers/setup")
def test_what_the_library_writes(program, folder):
    (folder / "write.py").write_text(LIBRARY)
    forms, orders = {}, []
    for i, (dtype, is_tensor) in enumerate([("int32", 1), ("int64", 1), ("uint16", 0)]):
        documents = make_documents(40 + i, 150)
        documents = [d for d in documents if len(d)]
        orders.append((str(folder / f"{i}"), dtype, is_tensor, [d.tolist() for d in documents]))
        forms[f"{i}"] = ([folder / f"{i}"], documents, {})
    command = [peers_python(), folder / "write.py"]
    subprocess.run(command, input=json.dumps(orders), text=True, check=True)
    assert (folder / "0" / "chunk-0-10.bin").exists()
    assert_equal_to_copies(program, folder, forms)
