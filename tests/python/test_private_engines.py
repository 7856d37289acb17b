# SPDX-License-Identifier: Apache-2.0
"""A private engine raises no alert: the alert_command of the config is a program of the user, or of
the stranger whose checkpoint is replayed."""

import json
import os
import subprocess
import time

import numpy
import pytest
import ringpack
from stream_kit import Engine, wait_until, write_megatron

KEYS = {"seq_len": 64, "batch_size": 2, "num_epochs": 1, "alert_disk_free": "8000t"}


@pytest.fixture
def config(tmp_path):
    """A run whose disk of checkpoints has never enough room, and the file that its alert makes."""
    tell = tmp_path / "tell"
    tell.write_text(f"#!/bin/sh\necho \"$RINGPACK_ALERT\" >> '{tmp_path}/told'\n")
    tell.chmod(0o700)
    documents = numpy.random.default_rng(5).integers(1, 999, (400, 1500))
    sources = [write_megatron(tmp_path / "web", list(documents), "u16")]
    keys = {**KEYS, "sources": sources, "alert_command": [str(tell)]}
    (tmp_path / "c.json").write_text(json.dumps({**keys, "checkpoint_dir": str(tmp_path / "kept")}))
    return keys


def use(program, folder, environment=None):
    """verify and bench: their alerts, and whether they left a run record."""
    states, told = folder / "states", set()
    environment = {**os.environ, "XDG_STATE_HOME": str(states), **(environment or {})}
    for verb, *words in ("verify", "--kills", "2", "--rows", "40"), ("bench", "--seconds", "0.1"):
        done = subprocess.run([program, verb, "-c", folder / "c.json", *words], env=environment,
                              capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        if (folder / "told").exists():
            told.add(verb)
            (folder / "told").unlink()
    return told, states.exists()


def test_verify_and_bench(program, tmp_path, config):
    assert use(program, tmp_path) == (set(), False)


def test_replay(program, tmp_path, config):
    """An engine that fails raises an alert; a replay's does not."""
    subprocess.run([program, "index", "-q", *tmp_path.glob("*.bin")], check=True)
    (tmp_path / "run").mkdir()
    kept = tmp_path / "kept"
    engine = Engine(program, tmp_path / "run", {**config, "checkpoint_dir": str(kept)})
    wait_until((tmp_path / "told").exists, "the alert of the run itself")
    engine.stop()
    told = (tmp_path / "told").read_text()
    assert "disk_free" in told, "the run itself has alerts"
    (path,) = tmp_path.glob("*.bin")
    with path.open("r+b") as file:  # a document that is read late, so that the engine starts
        file.seek(700000)
        file.write(b"xx")
    with ringpack.Replay(kept, program=program) as replay:
        with pytest.raises(ringpack.RingpackError):
            for step in range(10**6):
                replay.step(step)
    time.sleep(0.5)  # a program that is run is not waited for
    assert (tmp_path / "told").read_text() == told


def test_an_engine_that_tells_is_found(broken, tmp_path, config):
    assert use(broken, tmp_path, {"RP_DEFECT": "alert_for_tools"})[0]
