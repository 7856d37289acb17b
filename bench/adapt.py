# SPDX-License-Identifier: Apache-2.0
"""`io: auto` against each fixed way of reading, for each state of the page cache.

    build/venv/bin/python bench/adapt.py --build build/release --cells cold/document,hot/block/on
    build/venv/bin/python bench/adapt.py --build build/release --seconds 40   # again and again
    build/venv/bin/python bench/adapt.py --build build/release --check        # digests of all ways
    build/venv/bin/python bench/adapt.py --show                               # what was found

A cell is STATE/SHUFFLE/DIRECT; a part that is left out, or `all`, stands for each of its values.
DIRECT is the key `o_direct`, and the fixed ways are those that do what it says.

cold     nothing of the corpus is in the page cache, and all of it fits
short    the same in a memory cgroup that holds half of the corpus; two epochs
hot      all of it is there
half     the first half of its file is
grows    one source of two files, the second of which nothing is there: as if it had been added
sources  two sources: all of the first is there, nothing of the second
evicted  all of it is there, until it is taken away after --evict-after seconds, mapped or not
shrinks  all of it is there, until after --evict-after seconds a memory cgroup holds half of it

A round serves each way twice, in the order A B B A; the state is made anew for each run. The
compared time is from the engine's readiness to the last batch. A fixed way that takes more than
twice the time of `auto` is ended then, and counts as that slow; one that is slower than the best
one by more than a fifth, by its median of two rounds or more, is left out of later rounds. The
rounds of one commit of engine/ are kept, so a cell is decided by as many calls as it takes: the
goal is that the ratio of tokens a second to the best fixed way's, of each round, has a median of at
least 0.95; its interval, and so the verdict, are as of all goals (intervals.py).
"""

import argparse
import contextlib
import json
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "report")]

from corpora.token_corpus import make_corpus  # noqa: E402
from engine import PATIENCE, Bench, Engine, Failed, summarise  # noqa: E402
from goals import Found  # noqa: E402
from page_cache import Cgroup, after, hold  # noqa: E402

BOUND = 0.95
LEFT_BEHIND = 0.8
TIMES_MOST = 2  # share of the time of `auto`
FIXED = {"mapped": {"io": "mapped"}, "buffered": {"io": "io_uring", "o_direct": "off"},
         "direct": {"io": "io_uring", "o_direct": "on"}}
# Share of each file that the page cache holds at the start
STATES = {"cold": [0], "short": [0], "hot": [1], "half": [0.5], "grows": [1, 0], "sources": [1, 0],
          "evicted": [1], "shrinks": [1]}
IN_CGROUP = ("short", "evicted", "shrinks")
SHUFFLES = ("document", "block", "none")
DIRECTS = ("auto", "on", "off")
EPOCHS, EPOCHS_SHORT = 8, 2
ENGINE_BYTES = 160 << 20  # memory of an engine of this task, without the page cache


def all_cells():
    return [(state, shuffle, direct)
            for state in STATES for shuffle in SHUFFLES for direct in DIRECTS]


def cells_of(text):
    """The cells that `cold,hot/block/all` names, in the order of all_cells."""
    chosen = set()
    for name in text.split(","):
        wanted = [*name.split("/"), "all", "all"][:3]
        found = [cell for cell in all_cells()
                 if all(want in ("all", part) for want, part in zip(wanted, cell))]
        if not found or name.count("/") > 2:
            raise Failed(f"--cells {name}: expected STATE/SHUFFLE/DIRECT, of {', '.join(STATES)}; "
                         f"{', '.join(SHUFFLES)}; {', '.join(DIRECTS)}; or `all`")
        chosen.update(found)
    return [cell for cell in all_cells() if cell in chosen]


def ways_of(cell):
    """{name: keys}. Ways that `direct` forbids are no rivals; `mapped` is one if no read is
    needed."""
    state, _, direct = cell
    names = {"auto": FIXED, "off": ["mapped", "buffered"],
             "on": ["mapped", "direct"] if state == "hot" else ["direct"]}[direct]
    return {"auto": {"o_direct": direct}, **{name: FIXED[name] for name in names}}


# ---- a run ---------------------------------------------------------------------------------------


class World:
    """The corpora, and the cgroup for the cells that need one."""

    def __init__(self, bench, tokens, evict_after, epochs=None):
        self.bench, self.tokens, self.evict_after = bench, tokens, evict_after
        self.epochs = epochs  # None: as the state has it
        self.cgroup = None

    def files(self, state):
        """Token files of the state, as many as it has shares."""
        data = self.bench.scratch.parent
        count = len(STATES[state])
        return [make_corpus(data, self.tokens // count, seed) for seed in range(count)]

    def sources(self, state):
        files = self.files(state)
        if state != "grows":
            return ",".join(map(str, files))
        folder = self.bench.scratch / "grows"
        for file in files if not folder.exists() else []:
            folder.mkdir(exist_ok=True)
            for end in ".bin", ".idx":
                (folder / file.with_suffix(end).name).hardlink_to(file.with_suffix(end))
        return folder

    def start(self, state, task):
        """The engine, with the page cache as the state says."""
        files, shares = self.files(state), STATES[state]
        if state not in IN_CGROUP:
            for file, share in zip(files, shares):
                hold(file, share)
            return Engine(self.bench, task, "--fresh")
        self.cgroup = self.cgroup or Cgroup()
        self.cgroup.limit(self.half_of(state) if state == "short" else None)
        with self.cgroup.inside():  # pages that are read in there can be taken away there
            for file, share in zip(files, shares):
                hold(file, share)
            return Engine(self.bench, task, "--fresh")

    def serve(self, cell, keys, *options, most=PATIENCE * 5):
        """The trainer's tokens and digest, the seconds until its end, and the engine's CPU seconds.
        No tokens: it took longer than `most` seconds, and was ended."""
        state, shuffle, _ = cell
        epochs = self.epochs or (EPOCHS_SHORT if state == "short" else EPOCHS)
        task = self.bench.task(sources=self.sources(state), shuffle=shuffle, profile="min",
                               num_epochs=epochs, **keys)
        with self.start(state, task) as engine:
            try:
                with self.bench.trainer(*options) as report, self.change(state):
                    found = report(most)
                    seconds = time.monotonic() - engine.ready
                engine.end()
            except subprocess.TimeoutExpired:
                engine.kill()
                found, seconds = {"tokens": 0}, most
        return found, seconds, engine.cpu_seconds

    def size_of(self, state):
        return sum(file.stat().st_size for file in self.files(state))

    def half_of(self, state):
        """Memory for an engine and half of the corpus."""
        return ENGINE_BYTES + self.size_of(state) // 2

    def change(self, state):
        """The change of the state in mid-run."""
        if state == "evicted":
            return after(self.evict_after, self.cgroup.reclaim, self.size_of(state), ENGINE_BYTES)
        if state == "shrinks":
            return after(self.evict_after, self.cgroup.limit, self.half_of(state))
        return contextlib.nullcontext()

    def close(self):
        if self.cgroup:
            self.cgroup.close()


def check(world, cell):
    """All ways give the same rows, whatever the page cache holds: in all cells that are of the same
    stream."""
    state, shuffle, _ = cell
    stream = f"{state if state in ('short', 'grows', 'sources') else 'one file'}, {shuffle}"
    for keys in ways_of(cell).values():
        found, *_ = world.serve(cell, keys, "--digest")
        world.bench.check(f"digest of {stream}", found["digest"], found["digest"])
    print(f"{'/'.join(cell)}: {len(ways_of(cell))} ways, one digest", flush=True)


# ---- rounds --------------------------------------------------------------------------------------


def run_round(world, cell, names):
    """Each way twice, A B B A: {way: its seconds and CPU seconds of both runs}, and the tokens."""
    ways, tokens, found = ways_of(cell), 0, {name: [] for name in names}
    for name in [*names, *reversed(names)]:
        most = PATIENCE * 5 if name == "auto" else TIMES_MOST * found["auto"][0][1]
        if found[name] and found[name][0][0] == 0:  # it was ended, and so is the same again
            found[name] *= 2
            continue
        report, seconds, cpu = world.serve(cell, ways[name], most=most)
        if report["tokens"]:
            world.bench.check(f"tokens of {'/'.join(cell)}", report["tokens"], report["tokens"])
        found[name].append((report["tokens"], seconds, cpu))
        tokens += report["tokens"] if name == "auto" else 0
    return {"tokens": tokens, "ways": {name: {"seconds": sum(run[1] for run in runs),
                                              "cpu_seconds": sum(run[2] for run in runs)}
                                       for name, runs in found.items()}}


def medians(rounds):
    """Tokens a second of each way, over the rounds that had it."""
    found = {}
    for each in rounds:
        for name, way in each["ways"].items():
            found.setdefault(name, []).append(each["tokens"] / way["seconds"])
    return {name: statistics.median(values) for name, values in found.items()}


def best_of(rounds):
    fixed = {name: value for name, value in medians(rounds).items() if name != "auto"}
    return max(fixed, key=fixed.get)


def contenders(cell, rounds):
    """The ways of the next round."""
    names = list(ways_of(cell))
    if not rounds:
        return names
    found = medians(rounds)
    least = (LEFT_BEHIND if len(rounds) > 1 else 1 / TIMES_MOST) * found[best_of(rounds)]
    return [name for name in names if name == "auto" or found[name] >= least]


def judge(rounds):
    """The verdict of a cell's rounds: `auto` against the best fixed way."""
    best = best_of(rounds)
    pairs = [(each["ways"]["auto"], each["ways"][best]) for each in rounds if best in each["ways"]]
    ratio = summarise([fixed["seconds"] / own["seconds"] for own, fixed in pairs])
    cpu = statistics.median(fixed["cpu_seconds"] / own["cpu_seconds"] for own, fixed in pairs)
    return {"best": best, "ratio": ratio, "cpu": cpu, "verdict": Found(ratio).verdict(">=", BOUND)}


class Results:
    """The rounds of all calls, in a file."""

    def __init__(self, path, what):
        self.path, self.what = path, what
        self.rounds = json.loads(path.read_text())["rounds"] if path.exists() else []

    def of(self, cell):
        return [each for each in self.rounds
                if each["cell"] == "/".join(cell) and each["what"] == self.what]

    def add(self, cell, found):
        self.rounds.append({"cell": "/".join(cell), "what": self.what, **found})
        self.path.write_text(json.dumps({"rounds": self.rounds}, indent=1))

    def show(self, cells):
        print("| cell | rounds | Mtok/s: auto | mapped | buffered | direct | best | auto / best "
              "| interval | CPU, best / auto | |\n"
              "|---|---:|---:|---:|---:|---:|---|---:|---|---:|---|")
        for cell in cells:
            rounds = self.of(cell)
            if not rounds:
                continue
            found, said = medians(rounds), judge(rounds)
            speeds = [f"{found[name] / 1e6:.0f}" if name in found else ""
                      for name in ("auto", *FIXED)]
            ends = said["ratio"]["interval"]
            print(f"| {'/'.join(cell)} | {said['ratio']['count']} | {' | '.join(speeds)} "
                  f"| {said['best']} | {said['ratio']['median']:.3f} "
                  f"| {f'{ends[0]:.3f} to {ends[1]:.3f}' if ends else 'too few'} "
                  f"| {said['cpu']:.2f} | {said['verdict']} |", flush=True)


def measure(world, results, cells, rounds_most, seconds):
    """Rounds of the cells by turns, while there is time: no round begins that would end too late
    if it took as long as the last one of its cell."""
    begin, took = time.monotonic(), {}
    for number in range(rounds_most):
        for cell in cells:
            at = time.monotonic()
            if at + took.get(cell, 0) > begin + seconds:
                continue
            results.add(cell, run_round(world, cell, contenders(cell, results.of(cell))))
            took[cell] = time.monotonic() - at


def commit_of_engine():
    def git(*words):
        done = subprocess.run(["git", "-C", HERE, *words], capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", "../engine")
    return (git("log", "-1", "--format=%h", "--abbrev=12", "--", "../engine") or "unknown") + (
        " with changes" if changed else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     epilog=__doc__.split("\n\n", 1)[1],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--data", default="build/bench", help="where corpora and results are kept")
    parser.add_argument("--cells", default="all")
    parser.add_argument("--tokens", type=int, default=200_000_000)
    parser.add_argument("--rounds", type=int, default=6, help="of each cell, in this call")
    parser.add_argument("--seconds", type=float, default=1e9, help="that this call may take")
    parser.add_argument("--epochs", type=int, help=f"a run ({EPOCHS}; of `short` {EPOCHS_SHORT})")
    parser.add_argument("--evict-after", type=float, default=0.7)
    parser.add_argument("--check", action="store_true", help="compare digests, and measure nothing")
    parser.add_argument("--show", action="store_true", help="only show what was measured")
    arguments = parser.parse_args()
    data = Path(arguments.data).resolve()
    what = {"commit": commit_of_engine(), "tokens": arguments.tokens,
            "evict_after": arguments.evict_after}
    if arguments.epochs:
        what["epochs"] = arguments.epochs
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("adapt.py: ended by SIGTERM"))
    bench = world = None
    try:
        cells = cells_of(arguments.cells)
        data.mkdir(parents=True, exist_ok=True)
        results = Results(data / "adapt.json", what)
        if not arguments.show:
            bench = Bench(arguments.build, data, {"corpus": None, "seq_len": 4096, "batch_size": 8,
                                                  "packing": "lookahead", "epochs": 1})
            world = World(bench, arguments.tokens, arguments.evict_after, arguments.epochs)
        if arguments.check:
            for cell in cells:
                check(world, cell)
        elif not arguments.show:
            measure(world, results, cells, arguments.rounds, arguments.seconds)
        if not arguments.check:
            results.show(cells)
    except Failed as failure:
        sys.exit(f"adapt.py: {failure}")
    finally:
        if world:
            world.close()
        if bench:
            shutil.rmtree(bench.scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
