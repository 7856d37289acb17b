# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share: where things are, and the library they load."""

import ctypes
import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "tests" / "oracle")]

from ringpack import _library  # noqa: E402


@pytest.fixture(scope="session")
def compiler():
    path = shutil.which(os.environ.get("CC", "cc"))
    if path is None:
        pytest.skip("needs a C compiler")
    return [path, "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include"]


@pytest.fixture(scope="session")
def fake_path(compiler, tmp_path_factory):
    path = tmp_path_factory.mktemp("fake") / "libringpack-fake.so"
    source = Path(__file__).with_name("fake_client.c")
    subprocess.run([*compiler, "-g", "-shared", "-fPIC", "-o", path, source], check=True)
    return path


@pytest.fixture
def fake(fake_path, monkeypatch):
    """The package loads fake_client.c; whatever a test does, every lease comes back once."""
    monkeypatch.setenv("RINGPACK_LIBRARY", str(fake_path))
    monkeypatch.setattr(_library, "_loaded", None)
    functions = ctypes.CDLL(str(fake_path))
    for name in ("fake_faults", "fake_released", "fake_living"):
        getattr(functions, name).restype = ctypes.c_uint64
    gc.collect()  # what earlier tests left in tracebacks
    faults = functions.fake_faults()
    yield functions
    assert functions.fake_faults() == faults, "a lease came back twice, or two threads were inside"
