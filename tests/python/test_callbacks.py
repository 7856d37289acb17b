# SPDX-License-Identifier: Apache-2.0
"""ringpack.callbacks: the logged values, and no disturbance by an engine that is gone."""

import os
import subprocess
import sys
import types

import pytest
import ringpack
from conftest import ROOT
from ringpack.callbacks import TensorBoard, Wandb
from stream_kit import LONG, wait_until

LOGGERS = ROOT / "build" / "venv" / "loggers"
NAMES = "tokens_per_second", "wait_share", "waits", "fill", "next_row"


class FakeLoader:
    """Each batch has 3 rows of 10 tokens, 6 of them padding, and takes half a second."""

    def __init__(self, stat=None):
        self.taken, self.said, self.asked = 0, stat, 0

    def take(self):
        self.taken += 1
        return types.SimpleNamespace(seq_len=10, next_row=3 * self.taken)

    def clock(self):
        return self.taken / 2

    def counts(self):
        taken = self.taken
        tokens = {"batches": taken, "rows": 3 * taken, "tokens": 24 * taken}
        return {**tokens, "waits": taken, "wait_ns": taken * 10**8, "reattaches": 0}

    run = "fake"

    def stat(self, run, run_dir):
        assert (run, run_dir) == ("fake", None)
        self.asked += 1
        if self.said is None:
            raise ConnectionError("no engine")
        return self.said


class Writer:
    def __init__(self):
        self.scalars, self.logged = [], []

    def add_scalar(self, name, value, step):
        self.scalars.append((step, name, value))

    def log(self, figures, step):
        self.logged.append((step, figures))


def drive(log, loader, calls):
    for step in range(calls):
        log(step, loader.take(), loader)


def test_figures_and_when():
    writer, loader = Writer(), FakeLoader()
    drive(TensorBoard(writer, every=10, clock=loader.clock), loader, 31)
    assert [step for step, name, _ in writer.scalars if name == "data/waits"] == [9, 19, 29]
    last = {name: value for step, name, value in writer.scalars if step == 19}
    assert last == {
        "data/tokens_per_second": pytest.approx(48),
        "data/wait_share": pytest.approx(0.2),
        "data/waits": 10,
        "data/fill": pytest.approx(0.8),
        "data/next_row": 60,
    }
    assert loader.asked == 0
    with pytest.raises(ValueError, match="every"):
        TensorBoard(writer, every=0)
    with pytest.raises(TypeError, match="every is 2.5: expected a whole number"):
        TensorBoard(writer, every=2.5)


def test_what_the_engine_says(monkeypatch):
    source = {"source": "web", "token_share": 0.75, "epochs": 1.5}
    stat = {"skew_rows": 4, "unsaved_rows": 7, "save_age_seconds": None, "ledger": [source]}
    writer, loader = Writer(), FakeLoader(stat)
    monkeypatch.setattr(ringpack, "stat", loader.stat)
    log = Wandb(writer, every=1, stat=True, prefix="", clock=loader.clock)
    drive(log, loader, 1)
    wait_until(lambda: log._asker.said == stat)
    drive(log, loader, 1)
    ((_, figures),) = writer.logged
    own = {"skew_rows": 4, "unsaved_rows": 7, "share/web": 0.75, "epochs/web": 1.5}
    assert {key: figures[key] for key in own} == own
    assert set(figures) == {*own, *NAMES}


def test_an_engine_that_is_gone(monkeypatch):
    writer, loader = Writer(), FakeLoader()
    monkeypatch.setattr(ringpack, "stat", loader.stat)
    log = Wandb(writer, every=1, stat=True, clock=loader.clock)
    drive(log, loader, 5)
    wait_until(lambda: loader.asked > 0)
    assert len(writer.logged) == 4
    assert all(set(figures) == {f"data/{n}" for n in NAMES} for _, figures in writer.logged)


def test_a_real_loader(make, folder):
    writer, loader = Writer(), make(num_epochs=2)
    log = TensorBoard(writer, every=3, stat=True, run_dir=folder)
    for step, batch in enumerate(loader):
        log(step, batch, loader)
    counts = loader.counts()
    assert writer.scalars and counts["batches"] > 3
    shares = [value for _, name, value in writer.scalars if name == "data/fill"]
    assert shares and all(0 < share <= 1 for share in shares)


REAL = {
    "tensorboard": """
from torch.utils.tensorboard import SummaryWriter
log = TensorBoard(SummaryWriter("logs"), every=2, clock=loader.clock)
drive(log, loader, 9)
log._writer.close()
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator("logs"); events.Reload()
assert [e.step for e in events.Scalars("data/next_row")] == [1, 3, 5, 7]
""",
    "wandb": """
import wandb
run = wandb.init(mode="offline", project="p", dir=".")
drive(Wandb(run, every=2, clock=loader.clock), loader, 9)
run.finish()
import pathlib
(kept,) = pathlib.Path("wandb").glob("offline-run-*/*.wandb")
assert b"data/next_row" in kept.read_bytes()
""",
}


@pytest.mark.skipif(not LONG, reason="needs RP_LONG=1")
@pytest.mark.parametrize("package", REAL)
def test_the_real_packages(package, tmp_path):
    if not (LOGGERS / package).exists():
        pytest.skip(f"needs {package}: RP_LONG=1 tools/setup")
    head = "from test_callbacks import *\nloader = FakeLoader()\n"
    here = os.path.dirname(__file__)
    path = os.pathsep.join([here, *sys.path, str(LOGGERS)])
    subprocess.run(
        [sys.executable, "-c", head + REAL[package]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
