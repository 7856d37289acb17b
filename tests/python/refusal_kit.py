# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of refusals: a small good corpus, and the shape of every refusal."""

import re
import subprocess
from pathlib import Path

import numpy
from stream_kit import PATIENCE, write_megatron

REFUSAL = re.compile(r"^ringpack: error (\w+): (.+)$", re.MULTILINE)


def write_good(folder, name="good", seed=3, count=60):
    """A Megatron pair; path of its .bin."""
    generator = numpy.random.default_rng(seed)
    documents = [generator.integers(0, 30000, n) for n in generator.integers(1, 60, count)]
    return write_megatron(Path(folder) / name, documents, "u16")


def options(folder, **changes):
    """Arguments of `serve` for a small run; a change to None leaves the option out."""
    known = {"run": "refused", "run_dir": folder, "seq_len": 48, "batch_size": 2, "seed": 1}
    known = {key: value for key, value in {**known, **changes}.items() if value is not None}
    return [f"--{key.replace('_', '-')}={value}" for key, value in known.items()]


def run(program, *arguments, prefix=(), timeout=PATIENCE, **keywords):
    """The finished process; one that hangs fails the test."""
    command = [*prefix, program, *map(str, arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        **keywords,
    )


def assert_refusal(status, said, *texts):
    """Exit code 2; one error that names every one of `texts`; and the next step."""
    assert status == 2, f"exit {status}; it said:\n{said}"
    found = REFUSAL.findall(said)
    assert len(found) == 1, f"expected one error, it said:\n{said}"
    missing = [text for text in texts if str(text) not in said]
    assert not missing, f"missing {missing} in:\n{said}"
    assert "\n  next: " in said, f"no next step in:\n{said}"
    return found[0]


def refused(program, *arguments, texts=(), **keywords):
    """The command is refused as it should be. Returns the name of the error, and its text."""
    done = run(program, *arguments, **keywords)
    return assert_refusal(done.returncode, done.stderr, *texts)


def refused_serve(program, folder, source, *texts, **changes):
    """`serve` with this source is refused, and leaves no file in its run directory."""
    place = Path(folder) / "run"
    sources = [f"--source={source}"] if source is not None else []
    found = refused(program, "serve", *sources, *options(place, **changes), texts=texts)
    assert not place.exists() or list(place.iterdir()) == []
    return found
