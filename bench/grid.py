# SPDX-License-Identifier: Apache-2.0
"""Every option that should matter, at several values: hot and cold, by `ringpack bench`.

Profiles are crossed with shuffles; every other axis is walked from one standard config. Each config
is checked before it is measured: its trainer's digest over an epoch of a small corpus must equal
the plain loop's (loop.c), which has no readers, packers or profiles.

The JSON is written after every config. One of the same commit and machine is continued: an
interrupted run is repeated to finish it, and to measure again the file is removed first.

    python bench/grid.py --build B --data D --output FILE.json [--seconds S]
"""

import argparse
import json
import os
import time
from pathlib import Path

from corpora.token_corpus import make_corpus
from end_to_end import describe_machine
from engine import Bench, Engine

STANDARD = {"profile": "min", "shuffle": "document", "readers": 1, "packers": 1,
            "batch_size": 8, "seq_len": 4096, "packing": "lookahead"}
AXES = {
    "packing": ["concat", "best_fit"],
    "readers": [2, 4],
    "packers": [2, 4],
    "batch_size": [1, 2, 32, 128],
    "seq_len": [512, 1024, 2048, 8192, 32768, 131072],
}
PROFILES = ["min", "hf", "megatron", "grain", "olmo", "torchtitan", "full"]
SHUFFLES = ["none", "block", "document"]
STREAM = ("shuffle", "seq_len", "packing")  # the inputs of the rows, and so of the digest


def all_points():
    for profile in PROFILES:
        for shuffle in SHUFFLES:
            yield {**STANDARD, "profile": profile, "shuffle": shuffle}
    for axis, values in AXES.items():
        for value in values:
            point = {**STANDARD, axis: value}
            if axis == "seq_len":  # a batch of 32768 tokens, or of one row
                point["batch_size"] = max(1, 32768 // value)
            yield point


def check(bench, point, corpus):
    keys = {"sources": corpus, **point}
    with Engine(bench, keys, "--fresh") as engine:
        with bench.trainer("--digest") as report:
            found = report()["digest"]
        engine.end()
    name = "digest, " + ", ".join(str(point[key]) for key in STREAM)
    if name not in bench.checks:
        loop = bench.loop("digest", {**keys, "profile": "min"})["digest"]["digest"]
        bench.check(name, loop, found)
    else:
        bench.check(name, bench.checks[name]["value"], found)


def measure(bench, point, corpus, seconds):
    """{"hot": {...}, "cold": {...}} of `ringpack bench`."""
    options = [f"--{key.replace('_', '-')}={value}" for key, value in point.items()]
    return bench.ask(bench.program, "bench", "--json", f"--seconds={seconds}",
                     f"--sources={corpus}", *options)


def describe(point):
    """The differences from the standard."""
    return ", ".join(f"{key} {value}" for key, value in point.items()
                     if value != STANDARD[key]) or "standard"


def print_row(point, found):
    cells = "".join(f"{found[run]['tokens_per_second'] / 1e6:9.0f}"
                    f"{found[run]['cpu_seconds_per_gtok']:8.2f}"
                    f"  {found[run]['held_back_by']:22s}" for run in ("hot", "cold"))
    print(f"{describe(point):34s}{cells}", flush=True)


def begin_or_go_on(output, seconds):
    """The result to add to: that in the file, if it is of the same commit, machine and length."""
    new = {"format": 2, "machine": describe_machine(), "seconds": seconds}
    if output.exists():
        old = json.loads(output.read_text())
        if {key: old.get(key) for key in new} == new:
            return old
    return {**new, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "checks": {},
            "points": []}


def write(output, result):
    """In one step: a run may be interrupted at any time."""
    beside = output.with_suffix(".tmp")
    beside.write_text(json.dumps(result, indent=1) + "\n")
    beside.replace(output)


def main():
    parser = argparse.ArgumentParser(description="Measure ringpack over its options.")
    parser.add_argument("--build", required=True, help="folder of a Release build")
    parser.add_argument("--data", required=True, help="folder for corpora and scratch files")
    parser.add_argument("--output", required=True, help="JSON file to write")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each run")
    parser.add_argument("--points", type=int, help="only the first so many configs")
    arguments = parser.parse_args()
    corpus = make_corpus(arguments.data, 200_000_000)
    small = make_corpus(arguments.data, 2_000_000)
    bench = Bench(arguments.build, arguments.data, {"corpus": str(corpus)})
    output = Path(arguments.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    result = begin_or_go_on(output, arguments.seconds)
    bench.checks = result["checks"]
    print(f"{'':34s}{'hot Mtok/s':>9s}{'s/Gtok':>8s}  {'held back by':20s}"
          f"{'cold Mtok/s':>9s}{'s/Gtok':>8s}  held back by")
    known = {describe(entry["config"]): entry for entry in result["points"]}
    for point in list(all_points())[: arguments.points]:
        found = known.get(describe(point))
        if not found:
            check(bench, point, small)
            found = measure(bench, point, corpus, arguments.seconds)
            result["points"].append({"config": point, "hot": found["hot"], "cold": found["cold"],
                                     "limits": found["limits"], "load": os.getloadavg()[0]})
            write(output, result)
        print_row(point, found)


if __name__ == "__main__":
    main()
