# SPDX-License-Identifier: Apache-2.0
"""The cost of taking batches that are ready, in C and in Python, against a bare ring."""

import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from corpora.token_corpus import make_corpus
from engine import Engine, Failed
from slices import ratios

BATCHES = 2000  # small ones
SLOTS = 256  # for the task's own batches
SMALL_TOKENS = 8_200_000  # 251 of them: the second lap is the end, and the engine rests then
SECOND_LAP = {"warm": SLOTS, "rest_ms": 200, "batches": 240}
FILL_SECONDS = 0.3  # until all of the small ones are there
ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tools" / "python"
PEERS_PYTHON = ROOT / "build" / "peers-venv" / "bin" / "python"  # it has torch (peers/setup)
TORCH_PROBE = "import torch, numpy; torch.from_numpy(numpy.zeros(1)); print(torch.__version__)"

# Runs in a process of its own, as a trainer would. The ring is full before the first next(). All
# kinds step by the same loop: an array or a tensor that is dropped before the next step, and a
# tensor that the loop's variable holds until the next one has its place. Several share the batches.
PYTHON_TRAINER = """
import itertools, json, sys, time
import ringpack
run_dir, batches, kind, *names = sys.argv[1:]
kinds = {"views": {"return_type": "torch", "copy": False}}
loader = ringpack.Loader(run="bench", run_dir=run_dir, start_engine=False,
                         **kinds.get(kind, {"return_type": kind}))
def skip(batches):
    for batch in itertools.islice(loader, batches):
        pass
def drop(batches):
    for batch in itertools.islice(loader, batches):
        batch["input_ids"]
def hold(batches):
    for batch in itertools.islice(loader, batches):
        ids = batch["input_ids"]
def ns_of(look, batches):
    look(1)
    begin = time.thread_time_ns()
    look(batches - 1)
    return (time.thread_time_ns() - begin) / (batches - 1)
looks = {"skip": skip, "drop": drop, "hold": hold}
with loader:
    print(json.dumps({name: ns_of(looks[name], int(batches) // len(names)) for name in names}))
"""

# Rounds of batches as fast as they come, by turns with a state token after each and without.
TOKEN_TRAINER = """
import json, statistics, sys, time
import ringpack
loader = ringpack.Loader(run="bench", run_dir=sys.argv[1], start_engine=False)
rounds, batches = int(sys.argv[2]), int(sys.argv[3])
ratios, us = [], []
def round_of(steps, saves):
    begin = time.perf_counter_ns()
    for _ in range(batches):
        next(steps)
        if saves:
            start = time.perf_counter_ns()
            loader.state_dict()
            us.append((time.perf_counter_ns() - start) / 1000)
    return time.perf_counter_ns() - begin
with loader:
    steps = iter(loader)
    round_of(steps, False)
    for number in range(rounds):
        first = number % 2 == 0
        one, other = round_of(steps, first), round_of(steps, not first)
        ratios.append(one / other if not first else other / one)
middle = [statistics.median(us[at : at + batches]) for at in range(0, len(us), batches)]
us.sort()
print(json.dumps({"ratios": ratios, "us": middle, "us_p99": us[len(us) * 99 // 100]}))
"""


def torch_version_of(python):
    """None: it has none that works, as numpy is missing, or it cannot be run at all."""
    try:
        done = subprocess.run([python, "-c", TORCH_PROBE], capture_output=True, text=True,
                              timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.split()[-1]


@functools.cache
def python_with_torch():
    """The peers' interpreter, if it is there; else the one that runs the bench; and the version of
    its torch. None: neither has torch."""
    for python in str(PEERS_PYTHON), sys.executable:
        version = torch_version_of(python)
        if version is not None:
            return python, version
    return None


class HandOver:
    def __init__(self, bench):
        self.bench = bench
        self.small = make_corpus(Path(bench.settings["corpus"]).parent, SMALL_TOKENS)
        self.tensor_looks = ["drop", "hold"]

    def _filled(self):
        bench = self.bench
        bench.warm()
        return Engine(bench, bench.task(seq_len=512, batch_size=1, num_epochs="endless",
                                        prefetch_factor=2 * BATCHES), "--fresh")

    def _two_laps(self):
        """A stream of two laps: the trainer takes one, which faults in the pages of the ring, and
        rests; then the second is there, the engine is done, and no process sleeps for another."""
        return Engine(self.bench, self.bench.task(sources=self.small, num_epochs=2, profile="min",
                                                  prefetch_factor=SLOTS), "--fresh")

    def _python(self, program, *arguments, python=sys.executable):
        bench = self.bench
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "RINGPACK": bench.program,
                       "RINGPACK_LIBRARY": bench.library}
        command = [python, "-c", program, bench.run_dir, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise Failed(f"the Python trainer: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def _attach(self, **options):
        return self.bench.trainer_of("attach", run_dir=self.bench.run_dir, **options)

    # ---- small batches, in C and in Python -------------------------------------------------------

    def _next_c(self):
        with self._filled():
            time.sleep(FILL_SECONDS)
            found = self._attach(warm=1, batches=BATCHES - 1)
        if found["waits"]:
            self.bench.note(f"hand-over: the C trainer waited {found['waits']} times")
        return found["cpu_ns"]

    def _next_python(self, kind, *looks, python=sys.executable):
        with self._filled():
            time.sleep(FILL_SECONDS)
            return self._python(PYTHON_TRAINER, BATCHES, kind, *looks, python=python)

    def _next_torch(self, python):
        """Views, dropped and held, take turns as the sides do: each is the first in a process in
        every other round. Copies, which are the default, have a process of their own."""
        found = self._next_python("views", *self.tensor_looks, python=python)
        self.tensor_looks.reverse()
        copied = self._next_python("torch", "drop", python=python)
        return found["drop"], found["hold"], copied["drop"]

    def next(self):
        """ns per next() and release of small batches, in C and in Python: with no view taken,
        with an array, with a tensor, and with one that is still held in the next step."""
        sides = {"": lambda: self._next_python("numpy", "skip")["skip"]}
        if not self.bench.settings["only_goals"]:
            sides["_look"] = lambda: self._next_python("numpy", "drop")["drop"]
        names, side_of_tensors = [*sides], self._side_of_tensors()
        in_c, *in_python, tensors = self._by_turns(self._next_c, *sides.values(), side_of_tensors)
        if tensors[0] is not None:
            names += ["_torch", "_torch_held", "_torch_copied"]
            in_python += zip(*tensors)
        found = {"next_c_ns": in_c}
        for name, ns in zip(names, in_python, strict=True):
            found[f"next_python{name}_ns"] = list(ns)
            found[f"next_python{name}_overhead_ns"] = [p - c for p, c in zip(ns, in_c)]
        return found

    def _side_of_tensors(self):
        """The measurement of three values; without torch, None."""
        python = python_with_torch()
        if python is None:
            self.bench.note("hand-over: no torch here (bench/peers/setup installs it): tensors were"
                            " not measured")
            return lambda: None
        interpreter, version = python
        whose = "the peers" if interpreter == str(PEERS_PYTHON) else "the bench"
        self.bench.note(f"hand-over: tensors by the interpreter of {whose}, torch {version}")
        return lambda: self._next_torch(interpreter)

    def _by_turns(self, *sides):
        """The values of each side, in rounds of a run each."""
        found = [[] for _ in sides]
        turn = list(zip(sides, found))
        for _ in range(self.bench.settings["hand_overs"]):
            for side, values in turn:
                values.append(side())
            turn.reverse()
        return found

    # ---- batches of the task, against a bare ring ------------------------------------------------

    def _take(self, **options):
        with self._two_laps():
            found = self._attach(**options, **SECOND_LAP)
        self.slot_bytes = found["slot_bytes"]
        return found

    def _take_awake(self, read):
        found = self._take(read=read)
        for key in "waits", "switches":
            self.bench.check(f"{key} of a trainer while all batches are ready", 0, found[key])
        return found["cpu_ns"]

    def _take_bare(self, read):
        return self.bench.trainer_of("bare", slots=SLOTS, slot_bytes=self.slot_bytes, read=read,
                                     **SECOND_LAP)["cpu_ns"]

    def ring(self):
        """Batches of the task, taken only and read whole, against a bare ring with slots of the
        same size; and with system calls forbidden."""
        settings, sample = self.bench.settings, {}
        for name, read in ("take", 0), ("read", 4 * settings["seq_len"] * settings["batch_size"]):
            ours, bare = self._by_turns(lambda: self._take_awake(read),
                                        lambda: self._take_bare(read))
            sample |= {f"ring_{name}_ns": ours, f"bare_ring_{name}_ns": bare,
                       f"ring_{name}_per_bare": ratios(ours, bare)}
        self.bench.check("batches taken and returned where a system call is death",
                         SECOND_LAP["batches"], self._take(strict=1)["batches"])
        return sample

    # ---- state tokens ----------------------------------------------------------------------------

    def state_token(self):
        """A state token after every step against never, by turns in one process."""
        bench = self.bench
        bench.warm()
        with Engine(bench, bench.task(num_epochs="endless"), "--fresh"):
            rounds, batches = (6, 200) if bench.settings["quick"] else (20, 500)
            found = self._python(TOKEN_TRAINER, rounds, batches)
        return {"state_dict_us": found["us"], "state_dict_p99_us": found["us_p99"],
                "state_dict_time_ratio": found["ratios"]}
