# SPDX-License-Identifier: Apache-2.0
"""Two or more sides of a comparison, which take turns in slices of about a second.

A machine that is shared changes its speed by a quarter within minutes, and by little within a
second. So the sides live side by side, and one runs while the others are idle. A slice is of PARTS
parts, in the order A B, B A, A B, B A: a drift that favours A in one of them favours B in the next.
A pair is a slice of each side, and its ratio is one reported value.

Invariants: a slice of the engine begins and ends with full rings and threads that sleep (trainer.c,
workers.h), so it holds the work of as many tokens as the trainer took. The tokens of a side's
slices are those that `ringpack plan` has for as many rows: no slice is lost, and none is counted
twice.
"""

import contextlib
import json
import select
import subprocess
from collections import Counter

from engine import PATIENCE, Engine, Failed

PARTS = 4  # in a slice


class Side:
    """A program that runs a slice for each line that it reads (slice.h)."""

    def __init__(self, bench, name, keys, command):
        self.bench, self.name, self.keys = bench, name, keys
        self.tokens = self.rows = 0
        self.process = subprocess.Popen([*map(str, command)], stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, ms):
        """A part of a slice."""
        try:
            self.process.stdin.write(f"{ms}\n")
            self.process.stdin.flush()
            line = self._answer(PATIENCE + ms / 1000)
        except BrokenPipeError:
            line = ""
        if not line:
            self.process.wait(PATIENCE)
            raise Failed(f"{self.name}: {self.process.stderr.read().strip()}")
        found = json.loads(line)
        self.tokens += found["tokens"]
        self.rows += found["rows"]
        return found

    def _answer(self, seconds):
        """The next line, which a healthy program writes in less than that number of seconds."""
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            self.process.kill()
            raise Failed(f"{self.name}: a part of a slice did not end within {seconds:g} s")
        return self.process.stdout.readline()

    def check(self):
        """The sum of all slices against the plan."""
        plan = self.bench.plan(self.keys, rows=self.rows)
        self.bench.check(f"tokens of all slices beyond the plan's, {self.name}", 0,
                         self.tokens - plan["tokens"])

    def close(self):
        for pipe in self.process.stdin, self.process.stdout, self.process.stderr:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()


class LoopSide(Side):
    """The plain loop. `options`: slots=N, mapped=1."""

    def __init__(self, bench, name, keys, **options):
        words = [f"{key}={value}" for key, value in {**keys, **options}.items()]
        super().__init__(bench, name, keys, [bench.loop_program, "slices", *words])


class EngineSide(Side):
    """An engine and its trainer. `only`: keys that the plan does not know."""

    def __init__(self, bench, name, keys, **only):
        self.bench, self.run_name = bench, name.replace(" ", "-").replace(",", "")
        self.engine = Engine(bench, {"run": self.run_name, **keys, **only}, "--fresh")
        try:
            super().__init__(bench, name, keys,
                             [bench.trainer_program, "slices", f"run={self.run_name}",
                              f"run_dir={bench.run_dir}", f"engine={self.engine.process.pid}"])
        except BaseException:
            self.engine.__exit__()
            raise

    def stat(self):
        return self.bench.ask(self.bench.program, "stat", self.run_name, "--json", "--run-dir",
                              self.bench.run_dir)

    def close(self):
        try:
            super().close()
        finally:
            self.engine.__exit__()


def take_turns(sides, pairs, ms, parts=PARTS, loaded=lambda: None):
    """{name of a side: its slices}, as many of each as pairs. A short part comes first, which
    touches pages for the first time; it is checked, but not reported. `loaded` is called between it
    and the slices."""
    found = {side.name: [] for side in sides}
    order = list(sides)
    part_ms = max(ms // parts, 1)
    for side in sides:
        side.run(part_ms)
    loaded()
    for _ in range(pairs):
        slices = {side.name: Counter() for side in sides}
        for _ in range(parts):
            for side in order:
                slices[side.name].update(side.run(part_ms))
            order.reverse()
        for name, total in slices.items():
            found[name].append(total)
    for side in sides:
        side.check()
    return found


@contextlib.contextmanager
def side_by_side(*makers):
    """The sides that these functions make, until all are closed."""
    with contextlib.ExitStack() as stack:
        sides = []
        for make in makers:
            sides.append(make())
            stack.callback(sides[-1].close)
        yield sides


def rates(slices):
    """Tokens a second of each."""
    return [found["tokens"] / found["seconds"] for found in slices]


def cpu(slices, whose="cpu_seconds"):
    """CPU seconds a Gtok of each."""
    return [1e9 * found[whose] / found["tokens"] for found in slices]


def ratios(above, below):
    """Of each pair."""
    return [a / b for a, b in zip(above, below, strict=True)]
