# SPDX-License-Identifier: Apache-2.0
"""The effect on other ranks when one rank is killed and returns, again and again.

    build/venv/bin/python bench/neighbours.py --build build --kills 100 [--packer-processes]
                                              [--back 200]

Four ranks on one engine. Three of them take a batch and sleep, all the time, and log how long each
next() took. The fourth is killed with SIGKILL and started again, sooner than the rings of the
others run dry. With --back it attaches from its state token of that number of batches before, which
its ring does not have any more, and is killed again only when it had the time to catch up. Times
with and without kills are of the same processes, by turns. A second read shows in the bytes that
the engine read per batch that it delivered, to any rank.
"""

import argparse
import array
import json
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from corpora.token_corpus import make_corpus  # noqa: E402
from engine import PATIENCE, Bench, Engine, Failed  # noqa: E402

RANKS, VICTIM = 4, 0
THINK_US = 4000  # a neighbour's pause after each batch
CATCH_UP_US = 500  # the victim's pause: it catches up before the next kill
SLOTS = 32  # a ring holds SLOTS * THINK_US of batches
DOWN_S, UP_S = 0.02, 0.1  # the victim's times after a kill and before the next one
ROUND_KILLS = 10  # kills in a round; quiet rounds are as long
TOKENS = 20_000_000
MANY = 1_000_000  # more batches than any trainer takes


class Trainer:
    def __init__(self, bench, rank, think_us, *options, log=None):
        command = [bench.trainer_program, "attach", f"run_dir={bench.run_dir}", f"rank={rank}",
                   f"batches={MANY}", f"think_us={think_us}", *options]
        self.log = log
        if log:
            command.append(f"log={log}")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)

    def calls(self):
        """When each next() was called, and how long it took, in ns. After stop()."""
        _, said = self.process.communicate(timeout=60)
        if self.process.returncode:
            raise Failed(f"a neighbour: {said.decode().strip()}")
        words = array.array("Q", Path(self.log).read_bytes())
        return list(zip(words[0::2], words[1::2]))


def stat(bench):
    return bench.ask(bench.program, "stat", "bench", "--run-dir", bench.run_dir, "--json")


def wait_for_victim(bench):
    deadline = time.monotonic() + PATIENCE
    while stat(bench)["ranks"][VICTIM]["attached"] is not True:
        if time.monotonic() > deadline:
            raise Failed("the rank that was killed is not back")


def measure(bench, keys, kills, back):
    rounds = []  # (is it quiet, begin, end, batches, bytes read)
    up_s = UP_S + back * 2 * CATCH_UP_US / 1e6
    states = f"states={bench.scratch / 'states'}"
    with Engine(bench, keys, "--fresh"):
        neighbours = [Trainer(bench, rank, THINK_US, log=bench.scratch / f"calls.{rank}")
                      for rank in range(RANKS) if rank != VICTIM]
        victim = Trainer(bench, VICTIM, CATCH_UP_US, states)
        time.sleep(2 + 2 * back * THINK_US / 1e6)
        for number in range(2 * kills // ROUND_KILLS):
            before, begin = stat(bench), time.monotonic_ns()
            for _ in range(ROUND_KILLS):
                time.sleep(up_s)
                if number % 2:
                    victim.kill()
                time.sleep(DOWN_S)
                if number % 2:
                    victim = Trainer(bench, VICTIM, CATCH_UP_US, states, f"back={back}")
            end, after = time.monotonic_ns(), stat(bench)
            rounds.append((number % 2 == 0, begin, end, after["batches"] - before["batches"],
                           after["read_bytes"] - before["read_bytes"]))
        wait_for_victim(bench)
        for neighbour in neighbours:  # all of them first: each waits for room in the others' rings
            neighbour.stop()
        calls = [call for neighbour in neighbours for call in neighbour.calls()]
        victim.kill()
    return {name: summary(calls, [r for r in rounds if r[0] == is_quiet])
            for name, is_quiet in (("quiet", True), ("kills", False))}


def percentile(sorted_values, per_1000):
    return sorted_values[len(sorted_values) * per_1000 // 1000]


def summary(calls, rounds):
    """Percentiles of each round, and their median over rounds: other load comes in bursts."""
    took = [sorted(ns / 1000 for at, ns in calls if begin <= at < end)
            for _, begin, end, _, _ in rounds]
    batches, read = sum(r[3] for r in rounds), sum(r[4] for r in rounds)
    return {"calls": sum(map(len, took)),
            "p50_us": statistics.median(percentile(t, 500) for t in took),
            "p90_us": statistics.median(percentile(t, 900) for t in took),
            "p99_us": statistics.median(percentile(t, 990) for t in took),
            "max_us": statistics.median(t[-1] for t in took), "batches": batches,
            "read_bytes_per_batch": read / max(batches, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--data", default="build/bench")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--packer-processes", action="store_true")
    parser.add_argument("--io", default="pread", help="pread shows what is read twice")
    parser.add_argument("--back", type=int, default=0, metavar="BATCHES",
                        help="attach from the state token of so many batches before")
    options = parser.parse_args()
    if options.kills % ROUND_KILLS:
        parser.error(f"--kills: expected a multiple of {ROUND_KILLS}")
    Path(options.data).mkdir(parents=True, exist_ok=True)
    bench = Bench(options.build, options.data, {})
    keys = {"sources": make_corpus(Path(options.data), TOKENS), "seq_len": 2048, "batch_size": 2,
            "dp_world_size": RANKS, "num_epochs": "endless", "prefetch_factor": SLOTS,
            "io": options.io, "packer_processes": str(options.packer_processes).lower()}
    found = measure(bench, keys, options.kills, options.back)
    found["p99_ratio"] = found["kills"]["p99_us"] / found["quiet"]["p99_us"]
    found["read_ratio"] = (found["kills"]["read_bytes_per_batch"] /
                           max(found["quiet"]["read_bytes_per_batch"], 1))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
