# SPDX-License-Identifier: Apache-2.0
"""`ringpack convert` of every other encoded form, each written by its own library: the documents
are the written ones, by one worker and by three, and files without data are refused."""

import functools
import gzip
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy
import pytest
from convert_kit import BESIDE, LONG, convert, documents, refused, some_documents, written

BARE = "--no-append-eos"


def same_in_one_and_three(program, place, wanted, *arguments):
    """With RP_LONG set each file is a part as well, and three workers take them."""
    convert(program, *arguments, "-o", place / "one")
    assert documents(place / "one") == wanted
    if LONG:
        convert(program, "--group-bytes", 1, "--workers", 3, *arguments, "-o", place / "three")
        assert written(place / "three") == written(place / "one")


@functools.cache
def start_writer():
    """One process writes the shards of all tests: it imports torch. It ends with this one."""
    if not BESIDE.exists():
        pytest.skip("needs build/venv/beside, which tools/setup makes")
    return subprocess.Popen([sys.executable, Path(__file__).with_name("shard_writers.py")],
                            env={**os.environ, "PYTHONPATH": str(BESIDE)}, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def write_shards(kind, folder, packing, how, wanted):
    writer = start_writer()
    writer.stdin.write(json.dumps([kind, str(folder), packing, how, wanted]) + "\n")
    writer.stdin.flush()
    assert writer.stdout.readline() == f"{folder}\n", "the writer of shards has ended"


@pytest.fixture
def wanted():
    return [document or [1] for document in some_documents(7, 200)]


@pytest.mark.parametrize("packing, encoding", [
    ("zstd:3", "ndarray"), ("zstd", "bytes"),
    *([("gz", "ndarray:uint16"), ("none", "json")] if LONG else [])])
def test_mds(program, tmp_path, wanted, packing, encoding):
    pytest.importorskip("zstandard")
    folder = tmp_path / "mds"
    write_shards("mds", folder, packing, encoding, wanted)
    options = ("--dtype", "i64") if encoding == "bytes" else ()
    convert(program, BARE, *options, "-o", tmp_path / "out", folder)
    assert documents(tmp_path / "out") == wanted
    if encoding == "bytes":
        words = ["shard.00000.mds", "`tokens` holds bytes", "--dtype"]
        refused(program, BARE, "-o", tmp_path / "x", folder, words=words)
    index = json.loads((folder / "index.json").read_text())
    assert len(index["shards"]) > 3
    shard = sorted(folder.glob("shard.00002.*"))[0]
    shard.write_bytes(shard.read_bytes()[:-100])
    refused(program, BARE, *options, "-o", tmp_path / "x", folder, words=["shard.00002.mds"])


def test_mds_of_pickles(program, tmp_path, wanted):
    pytest.importorskip("zstandard")
    write_shards("mds", tmp_path / "mds", "zstd", "pkl", wanted)
    words = ["column `tokens` is a pickle, which runs whatever program it holds", "ndarray"]
    refused(program, BARE, "-o", tmp_path / "x", tmp_path / "mds", words=words)


MORE = [("none", "tree"), ("zstd-chunk", "tree"), ("zstd-sample", "tree"),
        ("zstd-chunk", "tokens")] if LONG else []


@pytest.mark.parametrize("packing, loader", [
    ("none", "tokens"), ("zstd-batch", "tree"), *MORE])
def test_litdata(program, tmp_path, wanted, packing, loader):
    pytest.importorskip("zstandard")
    wanted = wanted * 3
    write_shards("litdata", tmp_path / "lit", packing, loader, wanted)
    assert len(list((tmp_path / "lit").glob("chunk-*"))) > 10  # chunk-0-10 is after chunk-0-2
    convert(program, BARE, "-o", tmp_path / "one", tmp_path / "lit")
    assert documents(tmp_path / "one") == wanted


def test_jsonl_and_text_that_is_compressed(program, tmp_path, wanted):
    zstandard = pytest.importorskip("zstandard")
    lines = "".join(json.dumps({"input_ids": row}) + "\n" for row in wanted).encode()
    packed = zstandard.compress(lines[:5000]) + zstandard.compress(lines[5000:])  # two frames
    for name, data in ("a.jsonl", lines), ("b.jsonl.gz", gzip.compress(lines)), \
            ("c.jsonl.zst", packed):
        (tmp_path / name).write_bytes(data)
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.zst")]
    same_in_one_and_three(program, tmp_path, wanted * 3, BARE, "--vocab-size", 50000, *paths)
    (tmp_path / "d.txt.zst").write_bytes(zstandard.compress(b"ab"))
    convert(program, "-o", tmp_path / "text", tmp_path / "d.txt.zst")
    assert documents(tmp_path / "text") == [[97, 98, 256]]
    for cut in packed[:-3], b"not zstd", packed[: len(packed) // 2]:
        (tmp_path / "bad.jsonl.zst").write_bytes(cut)
        words = ["bad.jsonl.zst", "damaged or ends early"]
        options = (BARE, "--vocab-size", 50000, "-o", tmp_path / "x")
        refused(program, *options, tmp_path / "bad.jsonl.zst", words=words)
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "zstandard.py").write_text("raise ImportError('none')")
    refused(program, BARE, "-o", tmp_path / "x", paths[2], words=["pip install zstandard"],
            env={"PYTHONPATH": str(tmp_path / "stub")})


def test_hdf5(program, tmp_path):
    h5py = pytest.importorskip("h5py")
    wanted, place = [], tmp_path / "files"
    place.mkdir()
    generator = numpy.random.default_rng(3)
    for i in range(3):
        rows = generator.integers(0, 50000, (1100, 8))
        with h5py.File(place / f"{i}.h5", "w") as file:
            file.create_dataset("input_ids", data=rows, compression="gzip")
        wanted += rows.tolist()
    ragged = some_documents(8, 40)
    with h5py.File(place / "3.hdf5", "w") as file:
        kind = h5py.vlen_dtype(numpy.dtype("i4"))
        made = file.create_dataset("tokens", len(ragged), dtype=kind)
        for i, row in enumerate(ragged):
            made[i] = row
    same_in_one_and_three(program, tmp_path, wanted + ragged, BARE, place)
    (place / "3.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    refused(program, BARE, "-o", tmp_path / "x", place, words=["3.hdf5", "`hdf5`"])


def test_cerebras_rows(program, tmp_path):
    """Ids, mask and labels: the last label is a token that only it holds; padding goes."""
    h5py = pytest.importorskip("h5py")
    tokens = [[5, 6, 7, 8, 9], [5, 6, 7, 0, 0], [0] * 5]
    used = [4, 2, 0]
    rows = numpy.zeros((3, 3, 4), "i4")
    for row, line, count in zip(rows, tokens, used):
        row[0], row[2] = line[:4], line[1:]
        row[1, :count] = 1
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", data=rows, compression="gzip", chunks=(1, 3, 4))
    convert(program, BARE, "-o", tmp_path / "out", tmp_path / "a.h5")
    assert documents(tmp_path / "out") == [[5, 6, 7, 8, 9], [5, 6, 7], []]
    rows[0, 1, 0] = 0  # a prompt
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset("data", data=rows)
    convert(program, BARE, "--drop-labels", "-o", tmp_path / "b", tmp_path / "b.h5")
    assert written(tmp_path / "b") == written(tmp_path / "out")


@pytest.mark.parametrize("member", ["tokens.npy", "json", *(["npy", "txt"] if LONG else [])])
def test_webdataset(program, tmp_path, wanted, member):
    webdataset = pytest.importorskip("webdataset")
    place = tmp_path / "files"
    place.mkdir()
    text = ["number %d, é" % i for i in range(len(wanted))]
    for shard in range(3):
        with webdataset.TarWriter(str(place / f"{shard}.tar")) as sink:
            for i in range(shard, len(wanted), 3):
                value = {"tokens.npy": numpy.array(wanted[i], "u2"), "json": {"tokens": wanted[i]},
                         "npy": numpy.array(wanted[i], "i4"), "txt": text[i]}[member]
                sink.write({"__key__": f"sample{i:06d}", member: value, "cls": i})
    order = [i for shard in range(3) for i in range(shard, len(wanted), 3)]
    expected = [wanted[i] for i in order]
    if member == "txt":
        expected = [[*text[i].encode(), 256] for i in order]
    options = () if member == "txt" else (BARE,)
    same_in_one_and_three(program, tmp_path, expected, *options, place)
    whole = (place / "1.tar").read_bytes()
    (place / "1.tar").write_bytes(whole[: len(whole) // 2 - 100])
    refused(program, *options, "-o", tmp_path / "x", place, words=["1.tar"])


def test_pickles_in_tar_files(program, tmp_path):
    arrays = io.BytesIO()
    numpy.save(arrays, numpy.array([[1], [2, 3]], dtype=object), allow_pickle=True)
    for name, data, word in (("a.npy", arrays.getvalue(), "never loaded"),
                             ("a.pkl", pickle.dumps([1, 2]), "never is")):
        path = tmp_path / f"{name}.tar"
        with tarfile.open(path, "w") as archive:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        words = [f"{name}.tar: member {name}", word]
        refused(program, BARE, "-o", tmp_path / "x", path, words=words)


def test_tfrecord(program, tmp_path, wanted):
    tfrecord = pytest.importorskip("tfrecord")
    place = tmp_path / "files"
    place.mkdir()
    for shard in range(3):
        path = place / f"train.tfrecord-0000{shard}-of-00003"
        writer = tfrecord.TFRecordWriter(str(path))
        for row in wanted[shard * 60 : shard * 60 + 60]:
            writer.write({"input_ids": (row, "int"), "n": (len(row), "int")})
        writer.close()
    packed = place / "train2.tfrecord.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    expected = [*wanted[:180], *wanted[120:180]]
    same_in_one_and_three(program, tmp_path, expected, BARE, "--column", "input_ids", place)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    words = ["-00002-of-00003: row ", "checksum"]
    options = (BARE, "--column", "input_ids", "-o", tmp_path / "x")
    refused(program, *options, path, words=words)
    path.write_bytes(data[:-7])
    refused(program, *options, path, words=["-00002-of-00003: row "])


def test_arrayrecord(program, tmp_path, wanted):
    module = pytest.importorskip("array_record.python.array_record_module")
    example_pb2 = pytest.importorskip("tfrecord.example_pb2")
    place = tmp_path / "files"
    place.mkdir()
    for shard in range(3):
        writer = module.ArrayRecordWriter(str(place / f"{shard}.array_record"), "group_size:1")
        for row in wanted[shard * 60 : shard * 60 + 60]:
            example = example_pb2.Example()
            example.features.feature["tokens"].int64_list.value.extend(row)
            writer.write(example.SerializeToString())
        writer.close()
    same_in_one_and_three(program, tmp_path, wanted[:180], BARE, place)
    writer = module.ArrayRecordWriter(str(tmp_path / "bare.arrayrecord"), "group_size:1")
    for row in wanted:
        writer.write(numpy.array(row, "u2").tobytes())
    writer.close()
    convert(program, BARE, "--dtype", "u16", "-o", tmp_path / "bare", tmp_path / "bare.arrayrecord")
    assert documents(tmp_path / "bare") == wanted


def test_lance(program, tmp_path, wanted, monkeypatch):
    if not LONG:
        pytest.skip("RP_LONG=1 runs it, after RP_LONG=1 tools/setup")
    monkeypatch.syspath_prepend(str(LONG))
    monkeypatch.setenv("PYTHONPATH", str(LONG))
    lance, pyarrow = pytest.importorskip("lance"), pytest.importorskip("pyarrow")
    rows = pyarrow.array(wanted, type=pyarrow.list_(pyarrow.int32()))
    table = pyarrow.table({"tokens": rows, "n": list(range(len(wanted)))})
    place = tmp_path / "sets"
    place.mkdir()
    for i in range(3):
        lance.write_dataset(table.slice(i * 60, 60), str(place / f"{i}.lance"))
    same_in_one_and_three(program, tmp_path, wanted[:180], BARE, place)
    convert(program, BARE, "-o", tmp_path / "named", place / "1.lance")
    assert documents(tmp_path / "named") == wanted[60:120]


def write_jagged(tensorstore, place, rows, driver, metadata):
    """As levanter's JaggedArrayStore lays it out, with room that was not used."""
    ends = numpy.cumsum([len(row) for row in rows])
    arrays = {"offsets": numpy.array([len(rows), *ends, 0, 0], "i8")}
    arrays["data"] = numpy.array([*numpy.concatenate(rows), 0, 0, 0], "i4")
    for name, values in arrays.items():
        spec = {"driver": driver, "kvstore": f"file://{place}/{name}", "metadata": metadata}
        made = tensorstore.open(spec, create=True, dtype=values.dtype, shape=values.shape).result()
        made.write(values).result()


LAYOUTS = {  # zarr: version 2, and version 3 with compressed shards
    "zarr": {"chunks": [256]},
    "zarr3": {
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1024]}},
        "codecs": [
            {
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": [256],
                    "codecs": [{"name": "blosc", "configuration": {"cname": "zstd", "clevel": 5}}],
                },
            }
        ],
    },
}


def test_levanter(program, tmp_path, wanted, monkeypatch):
    if not LONG:
        pytest.skip("RP_LONG=1 runs it, after RP_LONG=1 tools/setup")
    monkeypatch.syspath_prepend(str(LONG))
    monkeypatch.setenv("PYTHONPATH", str(LONG))
    tensorstore = pytest.importorskip("tensorstore")
    place = tmp_path / "cache"
    for number, (driver, metadata) in enumerate(LAYOUTS.items()):
        rows = wanted[number * 100 : number * 100 + 100]
        cache = place / f"train-{number}"
        write_jagged(tensorstore, cache / "input_ids", rows, driver, metadata)
        ledger = {"total_num_rows": len(rows), "is_finished": True}
        (cache / "shard_ledger.json").write_text(json.dumps(ledger))
    same_in_one_and_three(program, tmp_path, wanted, BARE, place)
    lies = ({"total_num_rows": 101}, "found 100 rows"), ({"is_finished": False}, "a finished cache")
    for change, word in lies:
        (cache / "shard_ledger.json").write_text(json.dumps({**ledger, **change}))
        refused(program, BARE, "-o", tmp_path / "x", cache, words=["shard_ledger.json", word])
    (cache / "shard_ledger.json").write_text(json.dumps(ledger))
    shutil.rmtree(cache / "input_ids" / "data")
    write_jagged(tensorstore, cache / "short", wanted[:1], driver, metadata)
    (cache / "short" / "data").rename(cache / "input_ids" / "data")
    words = ["shard_ledger.json", "ends of rows"]
    refused(program, BARE, "-o", tmp_path / "x", "--column", "input_ids", cache, words=words)


def test_a_number_for_each_row_of_hdf5_is_no_document(program, tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("tokens", data=numpy.arange(49, dtype="i4"))
    refused(program, BARE, "-o", tmp_path / "x", tmp_path / "a.h5", words=["a.h5", "`tokens`"])
    rows = numpy.arange(98).reshape(49, 2)
    for flat in "tokens", "loss_mask", "attention_mask", "number":
        path = tmp_path / f"{flat}.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("input_ids", data=rows)
            file.create_dataset(flat, data=numpy.ones(49, "i4"))
        if flat != "number":
            refused(program, BARE, "-o", tmp_path / "x", path, words=[path.name, f"`{flat}`"])
    convert(program, BARE, "-o", tmp_path / "out", path)
    assert documents(tmp_path / "out") == rows.tolist()


def test_hidden_files_of_a_directory_are_counted(program, tmp_path):
    """Names that begin with a dot are left out below a directory, and read if they are named."""
    root = tmp_path / ".corpus"
    for name in "a.txt", ".DS_Store", ".git/HEAD", ".git/objects/b", "deep/.cache", "deep/c.txt":
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    options = ["--tokenizer", "bytes", "--no-append-eos", "-o", tmp_path / "out"]
    said = convert(program, *options, root)
    assert "in 2 documents from 2 files" in said
    assert "left out: 3 hidden files and directories; name one to read it" in said
    named = root / ".git", root / ".DS_Store"
    assert "left out" not in convert(program, *options, "--force", *named)
    assert [bytes(ids).decode() for ids in documents(tmp_path / "out")] == [
        ".git/HEAD", ".git/objects/b", ".DS_Store"
    ]
    refused(program, *options, "--force", root / "deep" / "..", "--glob", ".*",
            words=["no document", "name hidden files"])


def test_links_in_a_directory_are_counted(program, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("two")
    (tmp_path / "d" / "b.txt").symlink_to("../b.txt")
    options = ["--tokenizer", "bytes", "-o", tmp_path / "out"]
    assert "left out: 1 symbolic links" in convert(program, *options, tmp_path / "d")
    said = convert(program, *options, "--force", tmp_path / "d", tmp_path / "d" / "b.txt")
    assert "in 2 documents from 2 files" in said
