# SPDX-License-Identifier: Apache-2.0
"""MDS shards, written byte by byte as MDSWriter of mosaicml-streaming 0.13 writes them (RP_LONG=1:
by itself): every document in place, equal to its Megatron copy; other shards are refused."""

import itertools
import json
import os
import struct
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

SEED = 31415
ROOT = os.path.join(os.path.dirname(__file__), "../..")
NUMBERS = {"uint8": 8, "int8": 9, "uint16": 16, "int16": 17, "uint32": 32, "int32": 33}
NUMBERS |= {"uint64": 64, "int64": 65, "float32": 132}


def make_documents(number, count=40, limit=30000, longest=300):
    generator = numpy.random.default_rng(SEED + number)
    lengths = generator.integers(1, longest, count)
    return [generator.integers(0, limit, n) for n in lengths]


def encode(encoding, value):
    """A value as its column has it."""
    if encoding in ("str", "json", "pkl"):
        return value.encode()
    if encoding == "int":
        return struct.pack("<q", value)
    if encoding == "bytes":
        return value.tobytes()
    _, *given = encoding.split(":")
    head = b"" if given else bytes([NUMBERS[value.dtype.name]])
    if len(given) < 2:
        code = next(i for i in range(4) if max(value.shape) < 1 << (8 << i))
        shape = numpy.array(value.shape, f"<u{1 << code}")
        head += bytes([value.ndim << 2 | code]) + shape.tobytes()
    return head + value.tobytes()


def size_of(encoding):
    """Of a column of fixed size; else None."""
    parts = encoding.split(":")
    if len(parts) == 3:
        return numpy.dtype(parts[1]).itemsize * numpy.prod([int(n) for n in parts[2].split(",")])
    return 8 if encoding == "int" else None


def write_shard(path, columns, rows):
    names = sorted(columns)
    sizes = [size_of(columns[name]) for name in names]
    header = {
        "column_encodings": [columns[name] for name in names],
        "column_names": names,
        "column_sizes": [None if size is None else int(size) for size in sizes],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": 67108864,
        "version": 2,
    }
    samples = []
    for row in rows:
        values = [encode(columns[name], row[name]) for name in names]
        heads = [len(value) for value, size in zip(values, sizes) if size is None]
        samples.append(struct.pack(f"<{len(heads)}I", *heads) + b"".join(values))
    text = json.dumps(header, sort_keys=True).encode()
    offsets = itertools.accumulate(map(len, samples), initial=8 + 4 * len(samples) + len(text))
    table = numpy.array([len(samples), *offsets], "<u4").tobytes()
    path.write_bytes(table + text + b"".join(samples))
    return {**header, "samples": len(samples)}


def write_dataset(folder, columns, rows, at_once=15, name="shard.{:05}.mds"):
    folder.mkdir(parents=True, exist_ok=True)
    shards = []
    for i, first in enumerate(range(0, len(rows), at_once)):
        path = folder / name.format(i)
        path.parent.mkdir(exist_ok=True)
        entry = write_shard(path, columns, rows[first : first + at_once])
        data = {"basename": name.format(i), "bytes": path.stat().st_size, "hashes": {}}
        shards.append({**entry, "raw_data": data, "zip_data": None})
    (folder / "index.json").write_text(json.dumps({"shards": shards, "version": 2}))
    return folder


def rows_of(documents, dtype, column="tokens", **more):
    return [{column: d.astype(dtype), **{k: f(i) for k, f in more.items()}} for i, d in
            enumerate(documents)]  # fmt: skip


# ---- the forms: each writes documents, and returns paths, documents and declarations -------------


def of_type(dtype):
    def make(folder):
        documents = make_documents(1, limit=100 if "8" in dtype else 30000)
        rows = rows_of(documents, dtype)
        return [write_dataset(folder, {"tokens": f"ndarray:{dtype}"}, rows)], documents, {}

    return make


def bare_arrays(folder):
    documents = make_documents(2)
    rows = rows_of(documents, "uint32")
    return [write_dataset(folder, {"tokens": "ndarray"}, rows)], documents, {}


def of_bytes(dtype):
    def make(folder):
        documents = make_documents(3)
        rows = rows_of(documents, dtype)
        declared = {"dtype": dtype.replace("uint", "u").replace("int", "i")}
        return [write_dataset(folder, {"tokens": "bytes"}, rows)], documents, declared

    return make


def fixed_shape(folder):
    documents = [d[:17] for d in make_documents(4) if len(d) >= 17]
    rows = rows_of(documents, "int32", "input_ids", id=lambda i: i)
    columns = {"id": "int", "input_ids": "ndarray:int32:17"}
    return [write_dataset(folder, columns, rows)], documents, {}


def two_dimensions(folder):
    documents = [d[: len(d) // 2 * 2].reshape(2, -1) for d in make_documents(5) if len(d) > 1]
    rows = [{"tokens": d.astype("uint16")} for d in documents]
    flat = [d.reshape(-1) for d in documents]
    return [write_dataset(folder, {"tokens": "ndarray:uint16"}, rows)], flat, {}


def long_ones(folder):
    """Whose length takes four bytes."""
    documents = make_documents(6, count=2) + [numpy.arange(70000) % 30000]
    rows = rows_of(documents, "uint16")
    return [write_dataset(folder, {"tokens": "ndarray:uint16"}, rows)], documents, {}


def other_columns(folder):
    """Of fixed and of variable size, before and after the tokens; a pickle that is never loaded."""
    documents = make_documents(7)
    rows = rows_of(
        documents,
        "uint16",
        "input_ids",
        a=lambda i: "x" * (i % 5),
        b=lambda i: i,
        w=lambda i: numpy.ones(3, "uint16"),
        x=lambda i: "never loaded" * (i % 3),
        z=lambda i: numpy.arange(i, dtype="uint16"),
    )
    columns = {"input_ids": "ndarray:uint16", "a": "str", "b": "int", "w": "ndarray:uint16:3"}
    columns |= {"x": "pkl", "z": "ndarray:uint16"}
    return [write_dataset(folder, columns, rows)], documents, {}


def a_named_column(folder):
    documents = make_documents(8)
    rows = rows_of(documents, "int64", "b", a=lambda i: numpy.arange(3))
    columns = {"a": "ndarray:int64", "b": "ndarray:int64"}
    return [write_dataset(folder, columns, rows)], documents, {"column": "b"}


def the_only_array(folder):
    documents = make_documents(9)
    rows = rows_of(documents, "int64", "ids", text=lambda i: f"row {i}")
    return [write_dataset(folder, {"text": "str", "ids": "ndarray:int64"}, rows)], documents, {}


def the_order_of_the_index(folder):
    """Names that sort differently, in folders of their own, as merge_index leaves them."""
    documents = make_documents(10, count=60)
    rows = rows_of(documents, "uint16")
    name = "{}/shard.00000.mds"
    return (
        [write_dataset(folder, {"tokens": "ndarray:uint16"}, rows, 5, name)],
        documents,
        {},
    )


def single_files(folder):
    documents = make_documents(11)
    write_dataset(folder, {"tokens": "ndarray:uint16"}, rows_of(documents, "uint16"))
    (folder / "index.json").unlink()
    return sorted(folder.glob("*.mds")), documents, {}


FORMS = {
    **{dtype: of_type(dtype) for dtype in NUMBERS if dtype != "float32"},
    "bare arrays": bare_arrays,
    "bytes i64": of_bytes("int64"),
    "bytes u16": of_bytes("uint16"),
    "fixed shape": fixed_shape,
    "two dimensions": two_dimensions,
    "long ones": long_ones,
    "other columns": other_columns,
    "a named column": a_named_column,
    "the only array": the_only_array,
    "the order of the index": the_order_of_the_index,
    "single files": single_files,
}


def test_every_form_equals_its_megatron_copy(program, folder):
    forms = {name: make(folder / name) for name, make in FORMS.items()}
    assert_equal_to_copies(program, folder, forms)


def test_killed_and_resumed(program, folder):
    names = "bytes i64", "other columns", "the order of the index"
    forms = {name: FORMS[name](folder / name) for name in names}
    assert_killed_and_resumed(program, folder, forms)


def test_inspect_says_what_it_is(program, folder):
    [path], documents, _ = other_columns(folder / "x")
    ask = [program, "inspect", "--json", "--scan", *sorted(path.glob("*.mds"))]
    said = json.loads(subprocess.run(ask, check=True, capture_output=True).stdout)
    assert {one["format"] for one in said} == {"mds"}
    assert {one["column"] for one in said} == {"input_ids"}
    assert {one["dtype"] for one in said} == {"u16"}
    assert sum(one["tokens"] for one in said) == sum(map(len, documents))
    assert max(one["token_max"] for one in said) == max(map(max, documents))


# ---- refusals ------------------------------------------------------------------------------


def one_shard(folder, columns, rows):
    write_shard(folder / "x.mds", columns, rows)
    return folder / "x.mds"


def of_column(encoding, *values, name="tokens"):
    def make(folder):
        return one_shard(folder, {name: encoding}, [{name: value} for value in values])

    return make


def two_arrays(folder):
    row = {"a": numpy.arange(3), "b": numpy.arange(3)}
    return one_shard(folder, {"a": "ndarray:int64", "b": "ndarray:int64"}, [row])


def compressed_file(folder):
    path = folder / "shard.00000.mds.zstd"
    path.write_bytes(b"(\xb5/\xfd" + bytes(40))
    return path


def compressed_folder(folder):
    write_dataset(folder / "d", {"tokens": "ndarray"}, rows_of(make_documents(20), "uint16"))
    index = json.loads((folder / "d/index.json").read_text())
    for shard in index["shards"]:
        name = shard["raw_data"]["basename"]
        os.rename(folder / "d" / name, folder / "d" / f"{name}.zstd")
        shard["zip_data"] = {"basename": f"{name}.zstd", "bytes": 7, "hashes": {}}
    (folder / "d/index.json").write_text(json.dumps(index))
    return folder / "d"


def no_index(folder):
    path = write_dataset(folder / "d", {"tokens": "ndarray"}, rows_of(make_documents(21), "uint16"))
    (path / "index.json").unlink()
    return path


def elsewhere(folder):
    path = write_dataset(folder / "d", {"tokens": "ndarray"}, rows_of(make_documents(22), "uint16"))
    text = (path / "index.json").read_text()
    (path / "index.json").write_text(text.replace("shard.00001.mds", "../shard.00001.mds"))
    return path


def cut(folder):
    path = one_shard(folder, {"tokens": "ndarray"}, rows_of(make_documents(23), "uint16"))
    os.truncate(path, os.path.getsize(path) - 1)
    return path


def shape_that_lies(folder):
    path = one_shard(folder, {"tokens": "ndarray:uint16"}, rows_of(make_documents(24), "uint16"))
    data = bytearray(path.read_bytes())
    (first,) = struct.unpack_from("<I", data, 8)  # the beginning of the second sample
    data[first + 5] ^= 1
    path.write_bytes(data)
    return path


ARRAY = numpy.arange(5, dtype="uint16")
FLOATS = numpy.ones(3, "float32")
REFUSALS = {
    "pickle": (of_column("pkl", "x"), "is a pickle", "ndarray:uint16"),
    "text": (of_column("str", "x", name="text"), "of text", "--tokenizer", "--column text"),
    "text as tokens": (of_column("str", "x"), "of text", "--tokenizer", "--column tokens"),
    "json": (of_column("json", "[1]"), "tokens are JSON", "ringpack convert"),
    "bytes": (of_column("bytes", ARRAY), "holds bytes", "--dtype"),
    "floats": (of_column("ndarray:float32", FLOATS), "ndarray:float32", "column:"),
    "bare floats": (of_column("ndarray", FLOATS), "sample 0", "integers"),
    "several types": (of_column("ndarray", ARRAY, ARRAY.astype("int64")), "ringpack convert"),
    "two arrays": (two_arrays, "a (ndarray:int64), b (ndarray:int64)", "column:"),
    "no array": (of_column("int", 1, name="a"), "a (int)", "column:"),
    "compressed": (compressed_file, "MDS shard that is compressed", "ringpack convert"),
    "compressed folder": (compressed_folder, "compressed", "ringpack convert"),
    "no index.json": (no_index, "without index.json", "order"),
    "elsewhere": (elsewhere, "entry 1 of `shards`", "in the folder"),
    "cut": (cut, "end of sample 39", "cut short"),
    "a shape that lies": (shape_that_lies, "sample 1", "shape"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_by_name(program, folder, name):
    make, *words = REFUSALS[name]
    assert_refused(program, make(folder), *words)


# ---- the library itself --------------------------------------------------------------------

LIBRARY = """
import json, sys, numpy
sys.path.insert(0, sys.argv[1])
from peer_streaming import stand_in_for_torchvision  # stands in when it is imported
from streaming import MDSWriter
for folder, columns, dtype, documents in json.load(sys.stdin):
    with MDSWriter(out=folder, columns=columns, size_limit=4000) as writer:
        for document in documents:
            ids = numpy.array(document, dtype)
            value = ids.tobytes() if columns["tokens"] == "bytes" else ids
            writer.write({"tokens": value, "text": "x" * len(document), "n": 1})
"""


@pytest.mark.skipif(not LONG or not peers_python(), reason="RP_LONG=1, and bench/peers/setup")
def test_what_the_library_writes(program, folder):
    """The same bytes as this file's own writer for the columns, and the same documents."""
    forms, orders = {}, []
    for i, (encoding, dtype) in enumerate(
        [("ndarray", "uint16"), ("ndarray:uint32", "uint32"), ("bytes", "int64")]
    ):
        documents = make_documents(40 + i)
        columns = {"tokens": encoding, "text": "str", "n": "int"}
        declared = {"dtype": "i64"} if encoding == "bytes" else {}
        orders.append((str(folder / f"{i}"), columns, dtype, [d.tolist() for d in documents]))
        forms[encoding] = ([folder / f"{i}"], documents, declared)
    command = [peers_python(), "-c", LIBRARY, os.path.join(ROOT, "bench/peers")]
    subprocess.run(command, input=json.dumps(orders), text=True, check=True)
    first = folder / "0" / "shard.00000.mds"
    (count,) = struct.unpack_from("<I", first.read_bytes())
    rows = rows_of(
        forms["ndarray"][1][:count],
        "uint16",
        text=lambda i: "x" * len(forms["ndarray"][1][i]),
        n=lambda i: 1,
    )
    write_shard(folder / "own", {"tokens": "ndarray", "text": "str", "n": "int"}, rows)
    size_limit = b'"size_limit": '
    own, theirs = ((folder / "own").read_bytes(), first.read_bytes())
    assert own.split(size_limit)[0][4 * count + 8 :] == theirs.split(size_limit)[0][4 * count + 8 :]
    assert own.split(b"}", 1)[1] == theirs.split(b"}", 1)[1]
    assert_equal_to_copies(program, folder, forms)
