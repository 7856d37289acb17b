# SPDX-License-Identifier: Apache-2.0
"""Many ranks on one engine, and batches of every size: the cost of a token, and the waits.

    build/venv/bin/python bench/ranks.py --build build/release
    build/venv/bin/python bench/ranks.py --build build/release --ranks 1,64 --shapes 1x512 --calls

A case is a number of ranks and a shape of a batch, ROWSxSEQ_LEN. Each rank is a C trainer, a
process of its own, which takes its batches as fast as they come. A case with several ranks is held
against one rank that takes the same tokens in batches of the same shape (`per_one_rank`), by turns,
and all figures are medians over --rounds. CPU seconds are of the engine and of all trainers, from
their starts to their ends; they and the counts depend on other load less than tokens/s do. --calls
counts system calls with strace, in a run of its own.
"""

import argparse
import array
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from corpora.token_corpus import make_corpus  # noqa: E402
from engine import PATIENCE, Bench, Engine, Failed  # noqa: E402

RANKS = (1, 2, 4, 8, 64)
SHAPES = ("1x512", "8x4096", "64x32768", "1x1048576")
TOKENS = 400_000_000  # taken in a round by all ranks together
BATCHES_MAX = 200_000  # for all ranks together
BATCHES_MIN = 24  # for each rank
RING_BYTES = 4 << 30  # for all rings together, as far as two slots a ring allow
SLOTS = 16
CORPUS_TOKENS = 20_000_000


class Trainers:
    """One process a rank, from their starts until all have ended. `wrapper` starts rank 0."""

    def __init__(self, bench, ranks, batches, wrapper=()):
        self.logs = [bench.scratch / f"next.{rank}" for rank in range(ranks)]
        self.processes = []
        try:
            for rank, log in enumerate(self.logs):
                command = [*(wrapper if rank == 0 else ()), bench.trainer_program, "attach",
                           f"run_dir={bench.run_dir}", f"rank={rank}", f"batches={batches}",
                           f"log={log}"]
                self.processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL,
                                                       stderr=subprocess.PIPE))
        except BaseException:
            self.kill()
            raise

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def end(self):
        """CPU seconds and context switches of all, and the calls of next() of each rank."""
        cpu = voluntary = involuntary = 0
        for rank, process in enumerate(self.processes):
            with process.stderr as said:
                complaint = said.read().decode().strip()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise Failed(f"the trainer of rank {rank}: {complaint}")
            cpu += usage.ru_utime + usage.ru_stime
            voluntary, involuntary = voluntary + usage.ru_nvcsw, involuntary + usage.ru_nivcsw
        calls = []
        for log in self.logs:
            words = array.array("Q", log.read_bytes())
            calls.append((words[0::2], words[1::2]))
        return cpu, voluntary, involuntary, calls


def keys_of(source, ranks, rows, seq_len):
    slot_bytes = 8 * rows * seq_len  # roughly
    slots = SLOTS
    while slots > 2 and ranks * slots * slot_bytes > RING_BYTES:
        slots //= 2
    return {"sources": source, "seq_len": seq_len, "batch_size": rows, "dp_world_size": ranks,
            "profile": "min", "num_epochs": "endless", "prefetch_factor": slots, "io": "mapped"}


def batches_of(ranks, rows, seq_len, tokens):
    """Batches of each rank."""
    total = min(tokens // (rows * seq_len), BATCHES_MAX)
    return max(BATCHES_MIN, total // ranks)


def peak_bytes(pid):
    """Resident memory of the engine, the rings that it has filled included."""
    text = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", text)[1])


def measure(bench, source, ranks, rows, seq_len, batches):
    """`batches`: of each rank."""
    with Engine(bench, keys_of(source, ranks, rows, seq_len), "--fresh") as engine:
        start = engine.ready - engine.begin
        trainers = Trainers(bench, ranks, batches)
        try:
            cpu, voluntary, involuntary, calls = trainers.end()
        finally:
            trainers.kill()
        memory = peak_bytes(engine.process.pid)
        engine.process.send_signal(signal.SIGTERM)
        engine.end()
    begin = min(at[0] for at, _ in calls)
    end = max(at[-1] + took[-1] for at, took in calls)
    taken, gtok = ranks * batches, ranks * batches * rows * seq_len / 1e9
    # the first lap faults in the pages of the rings
    took = sorted(ns for _, all_took in calls for ns in all_took[SLOTS:])
    usage = engine.usage
    return {"tokens_per_s": gtok * 1e9 / ((end - begin) / 1e9),
            "engine_cpu_per_gtok": engine.cpu_seconds / gtok, "trainers_cpu_per_gtok": cpu / gtok,
            "cpu_per_gtok": (engine.cpu_seconds + cpu) / gtok,
            "cpu_us_per_batch": 1e6 * (engine.cpu_seconds + cpu) / taken,
            "next_p50_us": took[len(took) // 2] / 1e3,
            "next_p99_us": took[len(took) * 99 // 100] / 1e3,
            "engine_sleeps_per_batch": usage.ru_nvcsw / taken,
            "engine_preempted_per_batch": usage.ru_nivcsw / taken,
            "trainer_sleeps_per_batch": voluntary / taken,
            "trainer_preempted_per_batch": involuntary / taken,
            "start_ms": 1e3 * start, "engine_peak_bytes": memory, "batches": taken}


def count_calls(bench, source, ranks, rows, seq_len, tokens):
    """System calls by name, of the engine and of the trainer of rank 0, for a batch of all ranks
    and for one of that rank."""
    batches = batches_of(ranks, rows, seq_len, tokens // 8)
    of_engine, of_trainer = bench.scratch / "calls.engine", bench.scratch / "calls.trainer"
    with Engine(bench, keys_of(source, ranks, rows, seq_len), "--fresh") as engine:
        tracer = subprocess.Popen(["strace", "-c", "-f", "-o", of_engine, "-p",
                                   str(engine.process.pid)], stderr=subprocess.PIPE)
        tracer.stderr.readline()  # it is attached
        trainers = Trainers(bench, ranks, batches, ("strace", "-c", "-f", "-o", of_trainer))
        try:
            trainers.end()
        finally:
            trainers.kill()
            tracer.send_signal(signal.SIGINT)
            tracer.communicate()
    return {"engine": calls_in(of_engine, ranks * batches),
            "trainer": calls_in(of_trainer, batches)}


def calls_in(path, batches):
    counts = {}
    for line in path.read_text().splitlines():
        words = line.split()
        if len(words) >= 5 and words[0][0].isdigit() and words[-1] != "total":
            counts[words[-1]] = round(int(words[3]) / batches, 3)
    return {name: count for name, count in counts.items() if count >= 0.01}


def median_of(samples):
    return {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}


def measure_case(bench, source, ranks, shape, options):
    rows, seq_len = map(int, shape.split("x"))
    batches = batches_of(ranks, rows, seq_len, options.tokens)
    many, one = [], []
    for number in range(options.rounds):
        pair = ((ranks, many), (1, one)) if ranks > 1 else ((1, many),)
        for count, samples in pair[::1 if number % 2 == 0 else -1]:
            samples.append(measure(bench, source, count, rows, seq_len, ranks * batches // count))
    found = median_of(many)
    if ranks > 1:
        found["per_one_rank"] = {
            name: statistics.median(m[name] / o[name] for m, o in zip(many, one))
            for name in ("tokens_per_s", "cpu_per_gtok", "engine_cpu_per_gtok")}
    if options.calls:
        found["calls_per_batch"] = count_calls(bench, source, ranks, rows, seq_len, options.tokens)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--data", default="build/bench")
    parser.add_argument("--ranks", default=",".join(map(str, RANKS)))
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of a round, of all ranks")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", action="store_true", help="count system calls, too")
    options = parser.parse_args()
    if options.calls and not shutil.which("strace"):
        parser.error("--calls needs strace")
    Path(options.data).mkdir(parents=True, exist_ok=True)
    bench = Bench(options.build, options.data, {})
    source = make_corpus(Path(options.data), CORPUS_TOKENS)
    for shape in options.shapes.split(","):
        for ranks in map(int, options.ranks.split(",")):
            found = measure_case(bench, source, ranks, shape, options)
            print(json.dumps({"ranks": ranks, "shape": shape, **found}), flush=True)


if __name__ == "__main__":
    main()
