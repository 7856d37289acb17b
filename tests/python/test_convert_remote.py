# SPDX-License-Identifier: Apache-2.0
"""`ringpack convert` of URLs: the same bytes as from copies on a disk, in the order of the same
lists; each object is on this machine only while it is read; finished parts are not fetched
again."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy
import pytest
import test_litdata
import test_mds
from convert_kit import convert, documents, refused, some_documents, start, written
from remote_kit import (  # with the fixtures `bucket`, `environment` and `store`
    QUICK,
    bucket,
    environment,
    store,
)
from stream_kit import wait_until

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

BARE = "--no-append-eos"


def write_parquet(path, rows):
    column = pyarrow.array(rows, pyarrow.list_(pyarrow.int32()))
    parquet.write_table(pyarrow.table({"input_ids": column}), path)


def write_folder(folder, count=5):
    """Parquet files with a README, which is no document."""
    folder.mkdir(parents=True)
    for number in range(count):
        write_parquet(folder / f"part-{number:02}.parquet", some_documents(number, 40))
    (folder / "README.md").write_text("no document")
    return folder


def left_beside(prefix):
    return sorted(path.name for path in Path(prefix).parent.iterdir() if "fetched" in path.name)


def test_a_folder_of_parquet_in_a_bucket(program, folder, bucket):
    here = write_folder(folder / "here")
    shutil.copytree(here, bucket / "data")
    convert(program, BARE, "-o", folder / "local", here)
    for what, *more in (
        ["s3://b/data/", "--workers", 2, "--group-bytes", 2000],
        ["s3://b/data/*.parquet"],
        ["s3://b/data/", "--as", "parquet", "--glob", "*.parquet"],
    ):
        convert(program, BARE, "--force", *more, "-o", folder / "remote", what)
        assert written(folder / "remote") == written(folder / "local")
    assert left_beside(folder / "remote") == []


def test_forms_in_a_bucket(program, folder, bucket):
    """In the order of their own lists; text, lines and Megatron data sets by their names."""
    rows = [row or [1] for row in some_documents(3, 44)]
    here = folder / "here"
    (here / "lines").mkdir(parents=True)
    arrays = [numpy.array(row, "i4") for row in rows]
    test_litdata.write_dataset(here / "litdata", arrays)
    columns = {"tokens": "ndarray:int32"}
    test_mds.write_dataset(here / "mds", columns, test_mds.rows_of(arrays, "int32"))
    for number in range(2):
        lines = [json.dumps({"input_ids": row}) for row in rows[number::2]]
        (here / "lines" / f"{number}.jsonl").write_text("\n".join(lines))
    ids = [BARE, "--vocab-size", 50000]
    convert(program, *ids, "-o", here / "lines" / "megatron", here / "lines" / "0.jsonl")
    shutil.copytree(here, bucket, dirs_exist_ok=True)
    for form in "litdata", "mds":
        convert(program, BARE, "-o", folder / f"{form}-local", here / form)
        convert(program, BARE, "-o", folder / form, f"s3://b/{form}/")
        assert documents(folder / form) == rows
        assert written(folder / form) == written(folder / f"{form}-local")
    names = "lines/0.jsonl", "lines/1.jsonl", "lines/megatron.idx", "lines/megatron.bin"
    convert(program, *ids, "-o", folder / "lines", *[f"s3://b/{name}" for name in names])
    assert documents(folder / "lines") == [*rows[::2], *rows[1::2], *rows[::2], *rows[::2]]
    said = refused(program, BARE, "-o", folder / "x", "s3://b/none/", words=["no object matches"])
    assert "s3://b/none/" in said


def test_parts_of_many_machines(program, folder, bucket):
    here = folder / "here"
    here.mkdir()
    for number in range(7):
        lines = [json.dumps({"input_ids": row or [1]}) for row in some_documents(number, 9)]
        (here / f"{number}.jsonl").write_text("\n".join(lines))
    shutil.copytree(here, bucket / "data")
    options = [BARE, "--vocab-size", 50000]
    convert(program, *options, "-o", folder / "local", here)
    options += ["--group-bytes", 1, "-o", folder / "remote"]
    for part in 1, 0, 2:
        convert(program, *options, "--part", f"{part}/3", "s3://b/data/")
    convert(program, *options, "--merge", "s3://b/data/")
    assert written(folder / "remote") == written(folder / "local")


def test_side_columns_of_objects(program, folder, bucket):
    """As in files; a bad row is told by its URL."""
    here = folder / "here"
    here.mkdir()
    for number in range(4):
        rows = [row or [1] for row in some_documents(number, 9)]
        rows = [{"input_ids": row, "w": [number + i / 8 for i in range(len(row))]} for row in rows]
        if number < 2:
            lines = [json.dumps(row) for row in rows]
            (here / f"{number}.jsonl").write_text("\n".join(lines))
        else:
            parquet.write_table(pyarrow.Table.from_pylist(rows), here / f"{number}.parquet")
    shutil.copytree(here, bucket / "data")
    options = [BARE, "--vocab-size", 50000, "--side-column", "w=w:f32"]
    convert(program, *options, "-o", folder / "local", here)
    options += ["--group-bytes", 1, "-o", folder / "remote"]
    for part in 1, 0:
        convert(program, *options, "--part", f"{part}/2", "s3://b/data/")
    convert(program, *options, "--merge", "s3://b/data/")
    assert written(folder / "remote") == written(folder / "local")
    column, expected = (folder / f"{name}.w.col" for name in ("remote", "local"))
    assert column.read_bytes() == expected.read_bytes()
    (bucket / "data" / "1.jsonl").write_text('{"input_ids": [1, 2], "w": [1]}')
    refused(program, *options, "--force", "s3://b/data/",
            words=["s3://b/data/1.jsonl", "jsonl", ":1: `w`: expected 2 values"])


def test_a_killed_conversion_goes_on(program, folder, store):
    """Finished parts are not fetched again, unless their object has changed."""
    here = write_folder(folder / "here")
    shutil.copytree(here, store.folder, dirs_exist_ok=True)
    convert(program, BARE, "-o", folder / "local", here)
    urls = [f"{store.base}/{path.name}?sig=S3CR3T" for path in sorted(here.glob("*.parquet"))]
    options = [BARE, "--group-bytes", 1, "--workers", 1, "-o", folder / "remote", *urls]
    process = start(program, *options)
    parts = folder / "remote.parts"
    wait_until(lambda: len(list(parts.glob("*.json"))) >= 3, "three parts")
    process.kill()
    said = "".join(process.communicate())
    for left in folder.glob("fetched-*"):
        shutil.rmtree(left)
    done = len(list(parts.glob("*.json")))
    write_parquet(store.folder / "part-00.parquet", some_documents(0, 40) + [[5]])
    store.asked.clear()
    convert(program, *options)
    ranges = [path for path in store.asked if path.startswith("/part-")]
    again = {path.split("?")[0] for path in ranges if ranges.count(path) > 1}
    assert "/part-00.parquet" in again and len(again) <= 5 - done + 1
    wanted = documents(folder / "local")
    assert documents(folder / "remote") == [*wanted[:40], [5], *wanted[40:]]
    assert left_beside(folder / "remote") == []
    kept = subprocess.run(["grep", "-rl", "S3CR3T", folder], capture_output=True, text=True).stdout
    assert "S3CR3T" not in said and kept == ""


def test_what_is_refused_names_the_object(program, folder, store, monkeypatch):
    monkeypatch.setenv("RINGPACK_OBJECT_PATIENCE", QUICK.format(1))
    (store.folder / "bad.parquet").write_bytes(b"PAR1 and nothing else")
    url = f"{store.base}/bad.parquet?sig=S3CR3T"
    said = refused(program, BARE, "-o", folder / "x", url, words=[f"{store.base}/bad.parquet: "])
    assert "S3CR3T" not in said
    for path, words in (
        ("none.parquet", ["404", "not found"]),
        ("folder/", ["have no lists"]),
    ):
        said = refused(program, BARE, "-o", folder / "x", f"{store.base}/{path}?sig=S3CR3T",
                       words=[*words, store.base])  # fmt: skip
        assert "S3CR3T" not in said
    assert left_beside(folder / "x") == []


def test_empty_objects_of_a_folder_are_skipped(program, folder, bucket):
    """As the _SUCCESS that Spark leaves; one that was named is refused."""
    here = write_folder(folder / "here")
    shutil.copytree(here, bucket / "data")
    (bucket / "data" / "_SUCCESS").touch()
    (bucket / "data" / "empty.parquet").touch()
    convert(program, BARE, "-o", folder / "local", here)
    said = convert(program, BARE, "-o", folder / "remote", "s3://b/data/")
    assert written(folder / "remote") == written(folder / "local")
    assert "1 too small" in said, said
    refused(program, BARE, "-o", folder / "x", "s3://b/data/empty.parquet",
            words=["s3://b/data/empty.parquet: found an empty object"])  # fmt: skip


def test_a_document_is_refused_by_the_name_of_its_object(program, folder, store):
    """Text that waits for the tokenizer is of the object read last, whose copy is gone soon."""
    for name in "ab":
        line = json.dumps({"prompt": "a" if name == "a" else "z", "completion": ""})
        (store.folder / f"{name}.jsonl").write_text(line)
    urls = [f"{store.base}/{name}.jsonl" for name in "ab"]
    common = BARE, "--tokenizer", "bytes", "--vocab-size", 100, "-o", folder / "x"
    refused(program, *common, *urls, words=[f"{urls[1]}: ", "b.jsonl:1: token ids", "found 122"])
    refused(program, *common, *urls[::-1], words=[f"{urls[1]}: ", "found 122"])


def test_the_mask_of_a_megatron_data_set_in_a_bucket(program, folder, bucket):
    lines = [json.dumps({"input_ids": [1, 2, 3], "labels": [-100, 2, -100]})] * 5
    (folder / "a.jsonl").write_text("\n".join(lines))
    (bucket / "data").mkdir()
    common = BARE, "--vocab-size", 100
    convert(program, *common, "-o", bucket / "data" / "masked", folder / "a.jsonl")
    spans = (bucket / "data" / "masked.spans").read_bytes()
    for url in "s3://b/data/masked.bin", "s3://b/data/":
        convert(program, *common, "--force", "-o", folder / "out", url)
        assert written(folder / "out") == written(bucket / "data" / "masked"), url
        assert (folder / "out.spans").read_bytes() == spans
