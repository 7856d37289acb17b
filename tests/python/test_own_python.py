# SPDX-License-Identifier: Apache-2.0
"""A command of ours that starts Python in a foreign directory imports no module and runs no program
from there."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from convert_kit import documents

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
tokenizers = pytest.importorskip("tokenizers")
zstandard = pytest.importorskip("zstandard")

ROOT = Path(__file__).resolve().parents[2]
MODULES = ("numpy", "tokenizers", "pyarrow", "zstandard", "json", "runpy", "types", "signal",
           "sitecustomize", "usercustomize", "ringpack/__init__", "ringpack/_convert/worker",
           "ringpack/trainer")


@pytest.fixture
def data_set(tmp_path):
    """A folder with data, and with programs that say that they ran."""
    place = tmp_path / "data"
    for name in MODULES:
        path = place / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r} + chr(10))\n")
    for name in "python3", "python":
        (place / name).write_text(f"#!/bin/sh\necho {name} >>{tmp_path}/ran\n")
        (place / name).chmod(0o755)
    parquet.write_table(pyarrow.table({"input_ids": [[1, 0], [0, 1]]}), place / "a.parquet")
    (place / "a.txt.zst").write_bytes(zstandard.compress(b"hello"))
    model = tokenizers.models.WordLevel({"alpha": 0, "beta": 1, "[UNK]": 2}, unk_token="[UNK]")
    tokenizers.Tokenizer(model).save(str(place / "words.json"))
    return place


@pytest.fixture(params=["in a build", "installed"])
def command(request, program, tmp_path):
    """The program with its script, and without, as a package installs it."""
    if request.param == "in a build":
        return program
    (tmp_path / "bin").mkdir()
    return shutil.copy(program, tmp_path / "bin" / "ringpack")


def run(command, data_set, *words, **variables):
    """In the data set, with the current directory in each list where a name may stand for it."""
    environment = {
        **os.environ, "RINGPACK_PYTHON": sys.executable,
        "PYTHONPATH": f":{ROOT / 'tools' / 'python'}::.:", **variables,
    }
    environment.pop("PYTHONSAFEPATH", None)
    done = subprocess.run([str(word) for word in (command, *words)], cwd=data_set, text=True,
                          env=environment, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ran(data_set):
    path = data_set.parent / "ran"
    return path.read_text() if path.exists() else ""


def test_convert_and_explain(command, data_set, tmp_path):
    out = tmp_path / "out"
    run(command, data_set, "convert", "-q", "--no-append-eos", "-o", out, "a.parquet")
    assert documents(out) == [[1, 0], [0, 1]]
    run(command, data_set, "convert", "-q", "--tokenizer", "bytes", "-o", tmp_path / "z",
        "a.txt.zst")
    asked = ("--sources", out, "--seq-len", 8, "--batch-size", 1, "--row", 0)
    assert "alpha" in run(command, data_set, "explain", *asked, "--tokenizer", "words.json")
    assert ran(data_set) == ""


def test_calibrate(command, data_set, tmp_path):
    times = tmp_path / "times.jsonl"
    rows = [[64] * 64, [512] * 8, [4096], [2048, 64, 64], [256] * 16, [1024] * 4]
    times.write_text("".join(
        json.dumps({"lengths": row, "seconds": sum(n * (9000 + n) for n in row) / 1e9}) + "\n"
        for row in rows))
    assert "9,000" in run(command, data_set, "calibrate", "--times", times)
    assert ran(data_set) == ""


def test_a_python_of_the_path(command, data_set, tmp_path):
    """Names in PATH that mean the current directory are left out as well."""
    path = f":.:{Path(sys.executable).parent}"
    run(command, data_set, "convert", "-q", "--no-append-eos", "-o", tmp_path / "out", "a.parquet",
        PATH=path, RINGPACK_PYTHON="python3")
    assert ran(data_set) == ""


def test_trainers_of_the_demo(program, data_set):
    run(program, data_set, "demo", "--python", sys.executable, "--seconds", 1, "--corpus",
        make_corpus(program, data_set))
    assert ran(data_set) == ""


def make_corpus(program, data_set):
    text = data_set.parent / "text.txt"
    text.write_text("".join(f"line {i} of a text\n" for i in range(20000)))
    prefix = data_set.parent / "toy"
    subprocess.run([program, "convert", "-q", "--tokenizer", "bytes", "--split-bytes", "3000", "-o",
                    prefix, text], check=True)
    return prefix


def test_the_control_runs_what_is_there(broken, data_set, tmp_path):
    alone = tmp_path / "bin" / "ringpack"
    alone.parent.mkdir()
    shutil.copy(broken, alone)
    try:
        run(alone, data_set, "convert", "-q", "--no-append-eos", "-o", tmp_path / "out",
            "a.parquet", RP_DEFECT="import_from_here")
    except AssertionError:
        pass  # a program from there converts no file
    assert ran(data_set) != ""


def test_no_other_place_starts_python():
    """Whoever adds one starts it by python.h, and adds it to this test."""
    starts = re.compile(r'posix_spawnp?\(|exec[vl]p?e?\(|rp_job_spawn\(|popen\(|system\(')
    python = re.compile(r'\bpython\b|"python3"')
    found = {str(path.relative_to(ROOT / "tools" / "ringpack"))
             for path in (ROOT / "tools" / "ringpack").rglob("*.c")
             if starts.search(path.read_text()) and python.search(path.read_text())}
    assert found == {"cmd_calibrate.c", "convert/spawn.c", "demo/ranks.c"}
    package = ROOT / "tools" / "python" / "ringpack"
    assert not [path for path in package.rglob("*.py") if "sys.executable, \"-" in path.read_text()]
