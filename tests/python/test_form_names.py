# SPDX-License-Identifier: Apache-2.0
"""Users' paths in the place of token files: `ringpack inspect` names each form, and the next
command; files that are never read are refused by name. And the caches of the libraries of Hugging
Face are read, or converted, in their place."""

import json
import os
import pickle
import subprocess

import numpy
import pytest
import test_mds
from convert_kit import convert, documents, some_documents
from in_place_kit import assert_equal_to_copies, assert_killed_and_resumed, assert_refused
from remote_kit import environment, store  # fixtures

pyarrow = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")
datasets = pytest.importorskip("datasets")


def table_of(rows):
    return pyarrow.table({"input_ids": pyarrow.array(rows, pyarrow.list_(pyarrow.int32()))})


def a_file(name, content=b"whatever it holds"):
    def make(folder):
        (folder / name).write_bytes(content)
        return folder / name

    return make


def a_folder(name):
    def make(folder):
        (folder / "d").mkdir()
        a_file(name)(folder / "d")
        (folder / "d" / "README.md").write_text("a card")
        return folder / "d"

    return make


def a_nested_folder(folder):
    (folder / "x" / "data").mkdir(parents=True)
    a_file("train-00000-of-00001.parquet")(folder / "x" / "data")
    return folder / "x"


def a_parquet_file(folder):
    parquet.write_table(table_of([[1, 2]]), folder / "without a suffix")
    return folder / "without a suffix"


def lance(folder):
    (folder / "x.lance" / "data").mkdir(parents=True)
    return folder / "x.lance"


def compressed_feather(folder):
    feather.write_feather(table_of([[1, 2]] * 9), folder / "x.arrow", compression="zstd")
    return folder / "x.arrow"


def a_dataset_dict(folder):
    rows = datasets.Dataset.from_dict({"input_ids": [[1], [2]]})
    datasets.DatasetDict(train=rows, test=rows).save_to_disk(str(folder / "d"))
    return folder / "d"


def pickled_npy(folder):
    numpy.save(folder / "x.npy", numpy.array([[1], [2, 3]], object), allow_pickle=True)
    return folder / "x.npy"


def pickled_column(folder):
    rows = [{"tokens": pickle.dumps([1, 2]).decode("latin1")}]
    return test_mds.write_dataset(folder / "d", {"tokens": "pkl"}, rows) / "shard.00000.mds"


CONVERT = "ringpack convert --no-append-eos -o PREFIX "
FORMS = {  # its form, and the words of the next step
    "text": (a_file("x.txt"), "unknown format", "text: `ringpack convert --tokenizer"),
    "a folder of text": (a_folder("x.txt"), "no token files", "`ringpack convert --tok", "*.npy"),
    "parquet": (a_file("x.parquet"), "Parquet", CONVERT),
    "parquet without a suffix": (a_parquet_file, "Parquet", "ringpack convert"),
    "a folder of parquet": (a_folder("train-00000-of-00001.parquet"), "/d: ", "Parquet", "/d`"),
    "a folder of folders": (a_nested_folder, "no token files", "for instance", "/x/data"),
    "feather": (a_file("x.feather"), "Feather", CONVERT),
    "compressed feather": (compressed_feather, "compressed", "ringpack convert"),
    "zstd mds": (a_folder("shard.00000.mds.zstd"), "compressed MDS", CONVERT),
    "jsonl": (a_file("x.jsonl"), "JSON lines", "--tokenizer FILE): `ringpack convert -o PREFIX "),
    "jsonl.zst": (a_folder("x.jsonl.zst"), "JSON lines", "`ringpack convert -o PREFIX "),
    "jsonl.gz": (a_file("x.jsonl.gz"), "JSON lines", "`ringpack convert -o PREFIX "),
    "hdf5": (a_file("x.h5"), "HDF5", CONVERT),
    "hdf5 by its magic": (a_file("x.bin", b"\x89HDF\r\n\x1a\n" * 4), "HDF5", "ringpack convert"),
    "tar": (a_folder("x-000000.tar"), "WebDataset", "ringpack convert"),
    "tfrecord": (a_file("x.tfrecord"), "TFRecord", CONVERT),
    "arrayrecord": (a_file("x.array_record"), "ArrayRecord", CONVERT),
    "lance": (lance, "Lance", CONVERT),
    "levanter": (a_folder("shard_ledger.json"), "a cache of levanter", CONVERT, "/d`"),
    "DatasetDict": (a_dataset_dict, "DatasetDict", "/d/train"),
    "zstd raw": (a_file("x.bin.zst", b"(\xb5/\xfd" * 9), "a zstd archive", "decompress it first"),
    "TNTIDX": (a_file("x.bin", b"TNTIDX\0\0" * 9), "TNTIDX", "Megatron's own tools"),
    "pickled npy": (pickled_npy, "npy header", "|O"),
    "pickled column": (pickled_column, "is a pickle", "ndarray:uint16"),
}


@pytest.mark.parametrize("name", FORMS)
def test_inspect_says_what_it_is_and_what_to_do(program, folder, name):
    make, *words = FORMS[name]
    path = make(folder)
    assert_refused(program, path, *words)
    assert_refused(program, path, *words, command="index")


def test_objects_that_are_encoded(program, folder, store):
    """A single one, and the files in a folder's own list."""
    a_file("x.parquet")(store.folder)
    url = f"{store.base}/x.parquet"
    assert_refused(program, f"{url}?sig=S3CR3T", "Parquet", f"{CONVERT}{url}`")
    (store.folder / "state.json").write_text('{"_data_files": [{"filename": "x.parquet"}]}')
    assert_refused(program, f"{store.base}/?sig=S3CR3T", "Parquet", f"{CONVERT}{url}`")


@pytest.mark.parametrize("form", ["parquet", "jsonl", "hdf5", "tar", "lance"])
def test_a_format_of_a_config_that_is_converted(program, folder, form):
    config = folder / "c.yaml"
    sources = [{"path": "s3://bucket/data/", "format": form}]
    config.write_text(json.dumps({"sources": sources, "seq_len": 8, "batch_size": 1}))
    done = subprocess.run([program, "plan", "-c", config], capture_output=True, text=True)
    assert done.returncode == 2 and f"found `{form}`" in done.stderr, done.stderr
    assert "convert it once" in done.stderr and "ringpack convert" in done.stderr, done.stderr


# ---- the caches of Hugging Face -----------------------------------------------------------------


def load_parquet(folder, name, parts, **splits):
    """The cache of load_dataset; the folder of its Arrow files."""
    (folder / name).mkdir()
    for number, rows in enumerate(parts):
        parquet.write_table(table_of(rows), folder / name / f"{number}.parquet")
    paths = [str(folder / name / f"{number}.parquet") for number in range(len(parts))]
    files = {split: [paths[i] for i in chosen] for split, chosen in splits.items()}
    cache = folder / f"{name}-cache"
    if len(files) == 1:  # a writer for each file: as many shards
        [[split, chosen]] = files.items()
        datasets.load_dataset(
            "parquet", data_files=files, split=split, cache_dir=str(cache), num_proc=len(chosen)
        )
    else:
        datasets.load_dataset("parquet", data_files=files, cache_dir=str(cache))
    [info] = cache.rglob("dataset_info.json")
    return info.parent


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    """One split of one file, one of two, and two splits."""
    folder = tmp_path_factory.mktemp("hub")
    parts = [[row for row in some_documents(number, 40)] for number in range(2)]
    arrays = [[numpy.array(row, "i8") for row in part] for part in parts]
    return {
        "one file": (load_parquet(folder, "one", parts[:1], train=[0]), arrays[0]),
        "two files": (load_parquet(folder, "two", parts, train=[0, 1]), sum(arrays, [])),
        "two splits": (load_parquet(folder, "splits", parts, train=[0], test=[1]), None),
    }


def test_the_cache_of_load_dataset_is_read_in_place(program, folder, caches):
    forms = {name: ([caches[name][0]], caches[name][1], {}) for name in ("one file", "two files")}
    assert len(list(caches["two files"][0].glob("*-of-00002.arrow"))) == 2
    assert_killed_and_resumed(program, folder, forms)
    assert_equal_to_copies(program, folder, forms)


def test_a_cache_that_is_no_whole_split_is_refused(program, folder, caches):
    path = caches["two splits"][0]
    assert_refused(program, path, "one split", f"'{path}/parquet-train*.arrow'", "-test*.arrow")
    path, _ = caches["two files"]
    copy = folder / "copy"
    copy.mkdir()
    for name in "dataset_info.json", "parquet-train-00001-of-00002.arrow":
        (copy / name).write_bytes((path / name).read_bytes())
    assert_refused(program, copy, "parquet-train: expected 2 Arrow files, found 1")


def test_the_cache_of_the_hub_is_converted(program, folder):
    """Its snapshots have links in the place of files."""
    rows = some_documents(4, 30)
    hub = folder / "datasets--user--name"
    (hub / "blobs").mkdir(parents=True)
    (hub / "snapshots" / "0123" / "data").mkdir(parents=True)
    parquet.write_table(table_of(rows), hub / "blobs" / "89abcd")
    link = hub / "snapshots" / "0123" / "data" / "train-00000-of-00001.parquet"
    os.symlink("../../../blobs/89abcd", link)
    os.symlink("/etc/passwd", hub / "snapshots" / "0123" / "other")
    convert(program, "--no-append-eos", "-o", folder / "out", hub / "snapshots" / "0123")
    assert documents(folder / "out") == rows
    assert_refused(program, link.parent, "Parquet", f"{CONVERT}{link.parent}`")
