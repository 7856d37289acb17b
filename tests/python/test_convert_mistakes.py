# SPDX-License-Identifier: Apache-2.0
"""`ringpack convert` with obstacles: files that would be lost, options without effect, lines that
Python cannot read, a Python without packages, a foreign script."""

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from convert_kit import WORKER_PYTHON, convert, documents, refused

BARE = "--no-append-eos"
WORKER = Path(__file__).parents[2] / "tools" / "python" / "ringpack" / "_convert" / "worker.py"


@pytest.mark.parametrize("ending", [".bin", ".idx", ".spans", ".tokens.json", ".bin.rpi"])
def test_files_of_an_earlier_output_are_kept(program, tmp_path, ending):
    (tmp_path / "a.txt").write_text("ab")
    kept = tmp_path / f"out{ending}"
    kept.write_text("kept")
    common = "-o", tmp_path / "out", tmp_path / "a.txt"
    refused(program, *common, words=[f"out{ending}: it exists already", "--force"])
    assert kept.read_text() == "kept" and len(list(tmp_path.iterdir())) == 2
    convert(program, "--force", *common)
    assert documents(tmp_path / "out") == [[97, 98, 256]]
    assert not kept.exists() or kept.read_bytes() != b"kept"


LINES = {
    "messages": ({"messages": [{"role": "user", "content": "a"}]}, "assistant_masks"),
    "prompt": ({"prompt": "a", "completion": "b"}, "completion_mask"),
}
CHOICES = ["--mask", "spam"], ["--mask-value", "ignore"], ["--mask-of", "next"]


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice[0])
def test_masks_that_lines_of_text_cannot_have(program, tmp_path, kind, choice):
    line, made = LINES[kind]
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
    common = "-o", tmp_path / "out", tmp_path / "a.jsonl"
    words = ["a.jsonl:1: " + " ".join(choice), f"`{kind}` lines", f"`{made}`", "--mask none"]
    refused(program, *choice, *common, words=words)
    if kind == "prompt":
        convert(program, "--mask", made, "--mask-value", "train", "--mask-of", "token", *common)
        assert (tmp_path / "out.spans").exists()
        convert(program, "--mask", "none", *choice[2:], "--force", *common)
        assert not (tmp_path / "out.spans").exists()


def test_a_line_that_is_too_deep_is_refused_by_its_number(program, tmp_path):
    line = {"prompt": "a", "completion": "b"}
    deep = json.dumps(line)[:-1] + ', "x": ' + "[" * 1500 + "]" * 1500 + "}"
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(line)}\n{deep}\n")
    try:
        json.loads(deep)
    except RecursionError:
        words = ["a.jsonl:2: expected JSON", "RP_E_FORMAT"]
        refused(program, "-o", tmp_path / "out", tmp_path / "a.jsonl", words=words)
    else:  # a Python that reads more
        convert(program, "-o", tmp_path / "out", tmp_path / "a.jsonl")


def without_numpy(place):
    (place / "stub").mkdir()
    (place / "stub" / "numpy.py").write_text("raise ImportError('no numpy here')")
    return {"PYTHONPATH": str(place / "stub")}


def test_zstd_without_numpy_is_no_document(program, tmp_path):
    environment = without_numpy(tmp_path)
    (tmp_path / "a.txt.zst").write_bytes(b"whatever")
    words = ["no numpy here", "a.txt.zst"]
    refused(program, "-o", tmp_path / "out", tmp_path / "a.txt.zst", words=words, env=environment)
    assert not list(tmp_path.glob("out*"))
    for option in "--decompress", "--decode":
        done = subprocess.run([sys.executable, WORKER, option, "zstd"], input=b"", check=False,
                              capture_output=True, env={**os.environ, **environment})  # fmt: skip
        assert done.returncode == 1 and done.stdout == b"" and b"no numpy here" in done.stderr


def test_a_script_of_somebody_else_does_not_run(program, tmp_path):
    """One above the program, as in a directory that everybody may write to."""
    copy = tmp_path / "deep" / "bin" / "ringpack"
    copy.parent.mkdir(parents=True)
    shutil.copy(program, copy)
    theirs = f"open({str(tmp_path / 'ran')!r}, 'w')"
    for place in tmp_path, tmp_path / "deep", tmp_path / "tools" / "python" / "ringpack":
        place.mkdir(parents=True, exist_ok=True)
        (place / "convert_worker.py").write_text(theirs)
        (place / "_convert").mkdir()
        (place / "_convert" / "worker.py").write_text(theirs)
    (tmp_path / "a.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    convert(copy, "-o", tmp_path / "out", tmp_path / "a.jsonl")  # the module of the package
    assert documents(tmp_path / "out") == [[97, 98, 256]] and not (tmp_path / "ran").exists()
    package = tmp_path / "ringpack"  # a wheel's
    shutil.copytree(WORKER.parents[1], package)
    (package / "bin").mkdir(exist_ok=True)
    shutil.copy(program, package / "bin")
    environment = {**WORKER_PYTHON, "PYTHONPATH": ""}
    convert(package / "bin" / "ringpack", "--force", "-o", tmp_path / "out", tmp_path / "a.jsonl",
            env=environment, cwd=tmp_path / "deep")  # fmt: skip
    assert documents(tmp_path / "out") == [[97, 98, 256]] and not (tmp_path / "ran").exists()


def mds_shard(folder, samples, said=None):
    """An MDS shard of columns `tokens` (ids of a shape) and `n` (8 bytes), with its index."""
    bodies = [struct.pack("<I", len(tokens)) + tokens + bytes(8) for tokens in samples]
    ends = numpy.cumsum([8 + 4 * len(bodies), *map(len, bodies)])
    data = struct.pack("<I", len(bodies)) + ends.astype("<u4").tobytes() + b"".join(bodies)
    folder.mkdir()
    (folder / "shard.00000.mds").write_bytes(data)
    shard = {"column_names": ["tokens", "n"], "column_encodings": ["ndarray:uint16", "int"],
             "column_sizes": [None, 8], "compression": None, "format": "mds",
             "samples": len(bodies),
             "raw_data": {"basename": "shard.00000.mds", "bytes": len(data), "hashes": {}},
             "zip_data": None, **(said or {})}
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    return folder


def ids_of_shape(count, *ids):
    return bytes([1 << 2, count]) + numpy.array(ids, "<u2").tobytes()


MDS_LIES = {
    "a shape": ([ids_of_shape(5, 1, 2)], {}, "expected 5 ids, as its shape says, found 2"),
    "samples": ([ids_of_shape(2, 1, 2)], {"samples": 2}, "expected 2 samples, as index.json says"),
    "a size": ([ids_of_shape(2, 1, 2)], {"column_sizes": [None, 9]}, "found sizes of 15"),
    "less": ([ids_of_shape(2, 1, 2)], {"column_sizes": [None, 4]}, "found sizes of 10"),
}


@pytest.mark.parametrize("case", MDS_LIES)
def test_sizes_of_mds_that_lie(program, tmp_path, case):
    samples, said, words = MDS_LIES[case]
    honest = mds_shard(tmp_path / "fine", [ids_of_shape(2, 1, 2), ids_of_shape(1, 3)])
    convert(program, "--no-append-eos", "-o", tmp_path / "out", honest)
    assert documents(tmp_path / "out") == [[1, 2], [3]]
    lying = mds_shard(tmp_path / "lies", samples, said)
    refused(program, "--no-append-eos", "-o", tmp_path / "x", lying,
            words=["RP_E_CORRUPT", "shard.00000.mds", words])


@pytest.mark.parametrize("count, sizes, words", [
    (1, [6], "expected columns of 4 bytes, found sizes of 6"),
    (1, [2], "expected columns of 4 bytes, found sizes of 2"),
    (2, [4], "expected 2 samples, as index.json says, found 1"),
])
def test_sizes_of_litdata_that_lie(program, tmp_path, count, sizes, words):
    folder = tmp_path / "lit"
    folder.mkdir()
    body = struct.pack("<I", sizes[0]) + numpy.array([1, 2], "<u2").tobytes()
    data = struct.pack("<III", 1, 12, 12 + len(body)) + body
    (folder / "chunk-0-0.bin").write_bytes(data)
    config = {"compression": None, "data_format": ["no_header_numpy:5"], "data_spec": "",
              "item_loader": "PyTreeLoader", "encryption": None}
    chunks = [{"filename": "chunk-0-0.bin", "chunk_size": count, "chunk_bytes": len(body)}]
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))
    refused(program, "--no-append-eos", "-o", tmp_path / "x", folder,
            words=["RP_E_CORRUPT", "chunk-0-0.bin", words])
