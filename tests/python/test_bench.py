# SPDX-License-Identifier: Apache-2.0
"""The bench runs: every task once, at the smallest sizes, with every check of the delivery.

The times have no meaning here. A task that fails, a trainer that was given other rows than
`ringpack plan` says, or a digest that differs from the plain loop's ends the bench with an error.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(os.environ["RP_SOURCE_DIR"])
BUILD = os.environ["RP_BUILD_DIR"]


def run(*command):
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_task_runs_once(tmp_path):
    found = tmp_path / "once.json"
    run(SOURCE / "bench/end_to_end.py", "--build", BUILD, "--data", tmp_path / "data",
        "--output", found, "--size", "once", "--no-cold")
    metrics = json.loads(found.read_text())["metrics"]
    assert {"hot_min_per_loop", "hot_hf_per_mapped_loop_cpu", "hot_min_trainer_cpu",
            "mapped_verify_per_off", "pread_verify_cpu_per_off", "first_batch_above_ms",
            "next_python_ns", "next_python_look_overhead_ns", "ring_take_per_bare",
            "resume_checkpoint_ms", "memory_many_per_few"} <= metrics.keys()
    run(SOURCE / "bench/report/report.py", found, tmp_path / "once.svg")
    assert (tmp_path / "once.svg").read_text().startswith("<svg")
