# SPDX-License-Identifier: Apache-2.0
"""The program of the page about Ray Train is killed in a step, and resumed with equal losses."""

import os
import shutil
import sys

import pytest
from conftest import ROOT
from job_kit import Job, lives_through_a_kill
from page_kit import DOCS, blocks, make_corpora

APART = ROOT / "build" / "venv" / "long"  # has ray, if RP_LONG was set
LINE = r"step (\d+) (loss \S+ held-out \S+)$"
STEPS = 5


def test_ray_train(program, folder, monkeypatch):
    monkeypatch.syspath_prepend(str(APART))
    ray = pytest.importorskip("ray")
    (folder / "train.py").write_text(blocks(DOCS / "ray.md")[0]["train.py"])
    make_corpora(program, folder / "corpora")
    paths = [str(ROOT / "tools" / "python"), *ray.__path__[0].rsplit("/", 1)[:1]]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "XDG_RUNTIME_DIR": str(folder),
        "OMP_NUM_THREADS": "1",
        "WORKERS": "2",
        "RAY_TMPDIR": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_worker_niceness": "0",
    }

    def start(run, log):
        if not (folder / run).exists():
            shutil.copytree(folder / "corpora", folder / run)
        command = [sys.executable, folder / "train.py", STEPS]
        return Job(command, folder / log, cwd=folder / run, env=environment)

    lives_through_a_kill(start, LINE, STEPS)
