# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the Python package: places of files, and the library they load."""

import ctypes
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "tests" / "oracle")]

import ringpack  # noqa: E402
from ringpack import _library  # noqa: E402

# Engines of all tests leave their run records here, and not in the user's home.
STATE_HOME = tempfile.TemporaryDirectory(prefix="rp-state")
os.environ["XDG_STATE_HOME"] = STATE_HOME.name
os.environ["XDG_CACHE_HOME"] = STATE_HOME.name + "/cache"  # and landmarks


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
    series = _library.SONAME.split(".so.")[1]
    compiler = [*compiler, f'-DPACKAGE_SERIES="{series}"']
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
    gc.collect()  # objects that earlier tests left in tracebacks
    faults = functions.fake_faults()
    yield functions
    assert functions.fake_faults() == faults, "two threads at once, or a client that was gone"


@pytest.fixture
def loader(fake):
    """A loader of the fake client."""
    with ringpack.Loader(run="x") as loader:
        yield loader


@pytest.fixture(scope="session")
def program():
    """The real program; the library and the program come from one build."""
    path = os.environ.get("RINGPACK")
    if not path or not os.environ.get("RINGPACK_LIBRARY"):
        pytest.skip("needs RINGPACK and RINGPACK_LIBRARY, as ctest sets them")
    return path


def built(name):
    """The path of a program of the build for tests; the test is skipped without it."""
    path = os.path.join(os.environ.get("RP_BIN_DIR", ""), name)
    if not os.path.exists(path):
        pytest.skip(f"needs {name}")
    return path


def planted(defect, folder):
    """A folder with the files of a planted defect (tests/defects), as it changes them."""
    place = folder / "defects"
    command = [ROOT / "tests" / "defects" / "run", "--into", place, defect]
    subprocess.run(command, check=True)
    return place


@pytest.fixture
def broken():
    """The program with one guarantee broken: of several, which stands in RP_DEFECT."""
    return built("ringpack-points")


@pytest.fixture
def folder():
    """A folder with a short name: the path of a socket has 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="rp") as path:
        yield Path(path)


@pytest.fixture
def engines(folder):
    """Start engines, as stream_kit has them, that are killed at the end, whatever happens, and
    before the folder is removed."""
    from stream_kit import Engine

    made = []

    def start(*arguments, **keywords):
        made.append(Engine(*arguments, **keywords))
        return made[-1]

    yield start
    for engine in made:
        engine.kill()


@pytest.fixture(scope="session")
def corpora(tmp_path_factory):
    """Two small sources with short, long and empty documents."""
    from stream_oracle import write_megatron

    place, generator = tmp_path_factory.mktemp("corpora"), numpy.random.default_rng(11)
    prefixes = []
    for name, count in ("books", 60), ("code", 40):
        lengths = [0, 1, 200, *generator.integers(1, 70, count)]
        documents = [generator.integers(1, 50000, length) for length in lengths]
        prefixes.append(write_megatron(place / name, documents))
    return prefixes


@pytest.fixture(scope="session")
def expected(corpora):
    from stream_oracle import Expected

    return Expected(corpora[:1])


@pytest.fixture
def make(program, corpora, folder):
    """Make loaders over the first source; all are closed at the end."""
    import ringpack
    from stream_oracle import KEYS, keys_of

    loaders = []

    def make_loader(**changes):
        known = {"run_dir": folder, "corpus": corpora[0], "batch_size": 3, "profile": "full"}
        loaders.append(ringpack.Loader(**keys_of({**known, **KEYS, **changes})))
        return loaders[-1]

    yield make_loader
    for loader in loaders:
        loader.close()
