# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of `ringpack convert`."""

import atexit
import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
from warm_python import SERVER, WarmPython

DTYPES = {4: "<i4", 8: "<u2"}
WORKER_PYTHON = {"RINGPACK_PYTHON": sys.executable}
PLACES = os.environ.get("PYTHONPATH")
# Packages that tools/setup keeps apart: small ones without their dependencies, and with RP_LONG set
# the large ones.
BESIDE = Path(sys.prefix) / "beside"
LONG = Path(sys.prefix) / "long" if "RP_LONG" in os.environ else None


@functools.cache
def warm_worker():
    """A Python that has imported what most workers do."""
    folder, owner = tempfile.TemporaryDirectory(), os.getpid()
    warm = WarmPython(Path(folder.name), "convert")
    atexit.register(lambda: os.getpid() == owner and (warm.close(), folder.cleanup()))
    return {"RINGPACK_PYTHON": warm.python, SERVER: warm.environment.get(SERVER, "")}


def worker_python(given=()):
    """Its variables; a test that chooses modules by PYTHONPATH has a worker that imports them."""
    if dict(os.environ, **dict(given)).get("PYTHONPATH") != PLACES:
        return WORKER_PYTHON
    return warm_worker()


def start(program, *options, **keywords):
    """Begin a conversion; its output goes to pipes."""
    given = keywords.pop("env", {})
    environment = {**os.environ, **worker_python(given), **given}
    command = [str(word) for word in (program, "convert", *options)]
    keywords = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **keywords}
    return subprocess.Popen(command, env=environment, **keywords)


def convert(program, *options, **keywords):
    """Convert, and give back the output."""
    process = start(program, *options, **keywords)
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return said


def refused(program, *options, words=(), **keywords):
    """A refused conversion: exit status 2, and a message with these words."""
    process = start(program, *options, **keywords)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 2, errors
    for word in words:
        assert word in errors, errors
    return errors


def written(prefix):
    """The bytes of the output; none of its parts is left."""
    assert not os.path.exists(f"{prefix}.parts")
    return [open(f"{prefix}{end}", "rb").read() for end in (".bin", ".idx", ".bin.rpi")]


def documents(prefix):
    """Lists of ids, after the documented layout."""
    index = open(f"{prefix}.idx", "rb").read()
    count = int.from_bytes(index[18:26], "little")
    lengths = numpy.frombuffer(index, "<i4", count, 34)
    tokens = numpy.fromfile(f"{prefix}.bin", DTYPES[index[17]])
    ends = lengths.cumsum()
    assert len(tokens) == (ends[-1] if count else 0)
    return [tokens[end - length : end].tolist() for end, length in zip(ends, lengths)]


def width(prefix):
    """Bytes of an id."""
    return numpy.dtype(DTYPES[open(f"{prefix}.idx", "rb").read()[17]]).itemsize


def some_documents(seed, count, top=50000):
    generator = numpy.random.default_rng(seed)
    lengths = [0, 1, *generator.integers(0, 300, count - 2)]
    return [generator.integers(0, top, length).tolist() for length in lengths]
