# SPDX-License-Identifier: Apache-2.0
"""`io: auto` beside each fixed way of reading, while the page cache holds all, half or nothing.

    build/venv/bin/python bench/adapt.py --build build [--tokens 200000000] [--rounds 3]
        [--states cold,hot,half,evicted,short] [--shuffles document,block,none]
        [--ways auto,mapped,buffered,direct]

States of the page cache: `cold`: nothing of the corpus is in it, and all of it fits. `short`: as
cold, and the engine is in a memory cgroup that holds half of the corpus (needs root, and cgroups of
version 1). `hot`: all of it. `half`: its first half. `evicted`: all of it, until a third of the run
is over; then nothing.

Every way delivers the same rows in each state: a round that is not timed comes first, whose
trainers hash every row. A timed round serves each way once, and begins one way later than the round
before. Reported are medians of tokens a second and of CPU seconds, and the medians of the ratios of
`auto` to the fixed way that was the fastest of the same round.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from corpora.token_corpus import make_corpus  # noqa: E402
from engine import Bench, Engine, Failed  # noqa: E402

WAYS = {"auto": {}, "mapped": {"io": "mapped"}, "buffered": {"io": "io_uring", "direct": "off"},
        "direct": {"io": "io_uring", "direct": "on"}}
EPOCHS = {"cold": 8, "hot": 8, "half": 8, "evicted": 8, "short": 1}
CGROUP = Path("/sys/fs/cgroup/memory/ringpack-bench-adapt")
ENGINE_BYTES = 160 << 20  # what an engine of this task takes beside the page cache


def forget(place, first=0):
    with place.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), first, 0, os.POSIX_FADV_DONTNEED)


def warm(place):
    with place.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 24)
        while file.readinto(buffer):
            pass


def prepare(place, state):
    forget(place)
    if state in ("hot", "half", "evicted"):
        warm(place)
    if state == "half":
        forget(place, place.stat().st_size // 2 // 4096 * 4096)


@contextlib.contextmanager
def confined(place, state):
    """For `short`: a cgroup that this process, and so the engine, is in meanwhile."""
    if state != "short":
        yield
        return
    CGROUP.mkdir(exist_ok=True)
    limit = ENGINE_BYTES + place.stat().st_size // 2
    (CGROUP / "memory.limit_in_bytes").write_text(str(limit))
    (CGROUP / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (CGROUP.parent / "cgroup.procs").write_text(str(os.getpid()))


def serve(bench, place, state, keys, *options):
    """The trainer's report, tokens a second until its end, and CPU seconds of the engine a Gtok."""
    prepare(place, state)
    task = bench.task(sources=place, num_epochs=EPOCHS[state], profile="min", **keys)
    with confined(place, state):
        engine = Engine(bench, task, "--fresh")
    with engine:
        timer = threading.Timer(bench.settings["evict_after"], forget, [place])
        if state == "evicted":
            timer.start()
        try:
            with bench.trainer(*options) as report:
                found = report()
                seconds = time.monotonic() - engine.ready
            engine.end()
        finally:
            timer.cancel()
    return found, found["tokens"] / seconds, 1e9 * engine.cpu_seconds / found["tokens"]


def measure(bench, place, state, keys, rounds):
    """Samples by way: (tokens a second, CPU seconds a Gtok) of each round."""
    ways = {name: WAYS[name] for name in bench.settings["ways"]}
    samples = {name: [] for name in ways}
    names = list(ways)
    for name in names:
        found, *_ = serve(bench, place, state, {**keys, **ways[name]}, "--digest")
        bench.check(f"digest of {state} {keys['shuffle']}", found["digest"], found["digest"])
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            found, speed, cpu = serve(bench, place, state, {**keys, **ways[name]})
            bench.check(f"tokens of {state} {keys['shuffle']}", found["tokens"], found["tokens"])
            samples[name].append((speed, cpu))
    return samples


def row(state, keys, samples):
    """A row of the table: Mtok/s (CPU seconds a Gtok) of each way, and the ratios of auto."""
    own = {"state": state, **keys, "samples": samples}
    middle = {name: [statistics.median(column) for column in zip(*values)]
              for name, values in samples.items()}
    fixed = [name for name in samples if name != "auto"]
    fastest = [max(fixed, key=lambda name: samples[name][number][0])
               for number in range(len(samples["auto"]))]
    own["fastest"] = statistics.mode(fastest)
    own["ratio"], own["cpu_ratio"] = [
        statistics.median(auto[i] / samples[name][number][i]
                          for number, (auto, name) in enumerate(zip(samples["auto"], fastest)))
        for i in range(2)
    ]
    cells = [f"{speed / 1e6:.0f} ({cpu:.2f})" for speed, cpu in middle.values()]
    print(f"| {state} | {keys['shuffle']} | {' | '.join(cells)} | {own['fastest']} "
          f"| {own['ratio']:.2f} | {own['cpu_ratio']:.2f} |", flush=True)
    return own


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--data", default="build/bench", help="where the corpus is kept")
    parser.add_argument("--tokens", type=int, default=200_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--states", default="cold,hot,half,evicted,short")
    parser.add_argument("--shuffles", default="document,block,none")
    parser.add_argument("--ways", default="auto,mapped,buffered,direct")
    parser.add_argument("--evict-after", type=float, default=0.7, help="seconds (`evicted`)")
    arguments = parser.parse_args()
    ways = arguments.ways.split(",")
    if "auto" not in ways or len(set(ways)) < 2 or not set(ways) <= WAYS.keys():
        parser.error(f"--ways {arguments.ways}: auto and at least one of the fixed ways, of "
                     f"{', '.join(WAYS)}")
    data = Path(arguments.data).resolve()
    place = make_corpus(data, arguments.tokens)
    settings = {"corpus": place, "seq_len": 4096, "batch_size": 8, "packing": "lookahead",
                "epochs": 1, "evict_after": arguments.evict_after,
                "ways": ways}
    bench = Bench(arguments.build, data, settings)
    print(f"| page cache | shuffle | {' | '.join(settings['ways'])} | best | auto, tokens/s "
          f"| auto, CPU |\n|---|---|{'---:|' * len(settings['ways'])}---|---:|---:|")
    rows = []
    try:
        for state in arguments.states.split(","):
            for shuffle in arguments.shuffles.split(","):
                keys = {"shuffle": shuffle}
                rows.append(row(state, keys, measure(bench, place, state, keys, arguments.rounds)))
    except Failed as failure:
        sys.exit(f"adapt.py: {failure}")
    finally:
        if CGROUP.exists():
            CGROUP.rmdir()
        shutil.rmtree(bench.scratch, ignore_errors=True)
    (data / "adapt.json").write_text(json.dumps({"rows": rows, "checks": bench.checks}, indent=1))


if __name__ == "__main__":
    main()
