# SPDX-License-Identifier: Apache-2.0
"""The corpus in the page cache: one core alone, the engine with one trainer, the hand-over."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from engine import Engine, Failed

HAND_OVER_BATCHES = 2000
PACKAGE = Path(__file__).resolve().parent.parent / "tools" / "python"

# Runs in a process of its own, as a trainer would. The ring is full before the first next().
PYTHON_TRAINER = """
import json, sys, time
import ringpack
loader = ringpack.Loader(run="bench", run_dir=sys.argv[1], start_engine=False)
batches, looks = int(sys.argv[2]), sys.argv[3] == "look"
with loader:
    steps = iter(loader)
    next(steps)
    begin = time.perf_counter_ns()
    for _ in range(batches - 1):
        batch = next(steps)
        if looks:
            batch["input_ids"]
    print(json.dumps((time.perf_counter_ns() - begin) / (batches - 1)))
"""


class Hot:
    def __init__(self, bench):
        self.bench = bench
        self.expected = None

    def check(self):
        """What every run must deliver: rows by `ringpack plan`, the digest by the plain loop."""
        bench = self.bench
        plan = bench.plan(bench.task())
        self.expected = {"tokens": plan["tokens"], "next_row": plan["rows"]}
        for profile in "min", "hf":
            loop = bench.limits("digest", bench.task(profile=profile))["digest"]
            self.expected.setdefault("digest", loop["digest"])
            bench.check("digest, plain loop", self.expected["digest"], loop["digest"])
            bench.check("rows, plain loop against ringpack plan", plan["rows"], loop["rows"])
            self._drain(profile, "--digest")

    def limits(self):
        sample = {}
        for profile in "min", "hf":
            stages = "pack,concat" + (",memcpy,plan" if profile == "min" else "")
            found = self.bench.limits(stages, self.bench.task(profile=profile))
            for stage, name in ("pack", "loop"), ("concat", "loop_concat"):
                loop = found[stage]
                sample[f"{name}_{profile}"] = loop["tokens_per_second"]
                sample[f"{name}_{profile}_cpu"] = 1e9 * loop["cpu_seconds"] / loop["tokens"]
            slots = self.bench.limits("pack", self.bench.task(profile=profile, slots=8))
            sample[f"loop_{profile}_8_batches"] = slots["pack"]["tokens_per_second"]
            if profile == "min":
                sample["memcpy"] = found["memcpy"]["tokens_per_second"]
                sample["plan"] = found["plan"]["tokens_per_second"]
                sample["plan_ns_per_document"] = (
                    1e9 * found["plan"]["seconds"] / found["plan"]["documents"])
                sample["fill"] = found["plan"]["fill"]
        return sample

    def _drain(self, profile, *options):
        """One run of the whole stream: (tokens a second from `ready` on, CPU s of the engine)."""
        bench = self.bench
        bench.warm()
        with Engine(bench, bench.task(profile=profile), "--fresh") as engine:
            with bench.trainer(*options) as report:
                found = report()
                seconds = time.monotonic() - engine.ready
            engine.end()
            cpu = engine.cpu_seconds
            bench.note(f"page cache: {engine.said().splitlines()[0]}")
        name = " digested" if options else ""
        for key in "tokens", "next_row":
            bench.check(f"{key} at the trainer{name}", self.expected[key], found[key])
        if options:
            bench.check("digest, ringpack", self.expected["digest"], found["digest"])
        return found["tokens"] / seconds, 1e9 * cpu / found["tokens"]

    def _trainer(self, profile):
        rate, cpu = self._drain(profile)
        digested, _ = self._drain(profile, "--digest")
        return {f"hot_{profile}": rate, f"hot_{profile}_cpu": cpu,
                f"hot_{profile}_digested": digested}

    def trainer_min(self):
        return self._trainer("min")

    def trainer_hf(self):
        return self._trainer("hf")

    def _filled(self):
        bench = self.bench
        bench.warm()
        keys = bench.task(seq_len=512, batch_size=1, num_epochs="endless",
                          prefetch_factor=2 * HAND_OVER_BATCHES)
        return Engine(bench, keys, "--fresh")

    def hand_over(self):
        """Batches that are ready: ns per next() and release, in C and in Python."""
        bench, count = self.bench, str(HAND_OVER_BATCHES)
        with self._filled():
            time.sleep(0.5)  # the ring fills
            with bench.trainer("--batches", count) as report:
                found = report()
        if found["waits"]:
            bench.note(f"hand-over: the C trainer waited {found['waits']} times")
        seconds = found["seconds"] - found["first_batch_seconds"]
        sample = {"next_c_ns": 1e9 * seconds / (HAND_OVER_BATCHES - 1)}
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "RINGPACK": bench.program,
                       "RINGPACK_LIBRARY": bench.library}
        for name in "next_python_ns", "next_python_look_ns":
            with self._filled():
                time.sleep(0.5)
                command = [sys.executable, "-c", PYTHON_TRAINER, bench.run_dir, count,
                           "look" if "look" in name else "skip"]
                done = subprocess.run(command, capture_output=True, text=True, env=environment)
                if done.returncode:
                    raise Failed(f"the Python trainer: {done.stderr.strip()}")
                sample[name] = json.loads(done.stdout)
        sample["next_python_overhead_ns"] = sample["next_python_ns"] - sample["next_c_ns"]
        return sample
