# SPDX-License-Identifier: Apache-2.0
"""ringpack's delivery to a trainer, against the limits of the machine.

Flow: every repetition runs every task once, in an order that turns by one each time. Compared
programs take turns (slices.py), with new processes in each repetition. Reported are medians over
the values of all repetitions, with an interval (intervals.py). No task is left out: one that fails
ends the run, one that cannot be done here leaves a note.

Invariant: every comparison of slices is checked. The rows of a timed trainer are counted against
`ringpack plan`; another run of the engine with the same config digests every row, and its digest
must equal the plain loop's, which shares only the plan with the engine.

Called by tools/bench; README.md explains each number.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

from corpora.token_corpus import make_corpus, make_index
from engine import Bench, field_of, summarise
from intervals import Rounds, interval_of_repetitions
from tasks.cold import Cold
from tasks.hand_over import HandOver
from tasks.hot import Hot
from tasks.corpus_index import CorpusIndex
from tasks.memory import Memory
from tasks.resume import Resume
from tasks.save import Save
from tasks.seeking import Seeking

SOURCE = Path(__file__).resolve().parent.parent


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=SOURCE, check=True)
        return done.stdout.strip().splitlines()[0]
    except (OSError, IndexError, subprocess.CalledProcessError):
        return "unknown"


def describe_machine():
    changed = first_line("git", "status", "--porcelain", "--untracked-files=no", "--", "engine")
    commit = first_line("git", "rev-parse", "--short=12", "HEAD")
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "cpu": field_of("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "huge_pages": huge.read_text().strip() if huge.exists() else "unknown",
        "compiler": first_line("gcc", "--version"),
        "commit": commit + ("" if changed == "unknown" else " with changes in engine/"),
    }


def run_repetitions(tasks, repeats):
    """[{metric: value} of each repetition]; the order turns, so that no task is always first."""
    samples = []
    for repeat in range(repeats):
        sample = {}
        turn = repeat % len(tasks)
        for task in tasks[turn:] + tasks[:turn]:
            begin = time.monotonic()
            sample.update(task())
            name = f"{type(task.__self__).__name__}.{task.__name__}".lower()
            print(f"  {repeat + 1}/{repeats}  {name:24s} {time.monotonic() - begin:6.1f} s",
                  file=sys.stderr)
        samples.append(sample)
    return samples


def summary_of(found):
    """The summary of the values of repetitions: numbers, lists of them (pairs), or rounds."""
    if isinstance(found[0], Rounds):
        return Rounds.summarise(found)
    repetitions = [each if isinstance(each, list) else [each] for each in found]
    return {**summarise([value for values in repetitions for value in values]),
            "interval": interval_of_repetitions(repetitions)}


def metrics_of(samples):
    names = dict.fromkeys(name for sample in samples for name in sample)
    return {name: summary_of([s[name] for s in samples if name in s]) for name in names}


# Six repetitions are the least that have an interval of their own (intervals.py). In each: `pairs`
# counts of slices, `starts` of an engine for each way to start, `saves` of a checkpoint,
# `hand_overs` of a full ring. In the whole run: `seeks` without a token to each position, and as
# many indexings of each corpus index. `only_goals`: numbers without a goal are left out.
SIZES = {
    "full": {
        "repeats": 6, "pairs": 5, "slice_ms": 1000, "starts": 4, "saves": 16, "hand_overs": 5,
        "seeks": 6, "limit_seconds": 10,
        "tokens": 200_000_000, "epochs": 10, "index_documents": 16_000_000,
        "positions": [0, 1_000_000, 4_000_000, 16_000_000, 64_000_000],
        "memory_documents": [10_000, 4_000_000],
        "corpus_index_shards": [1, 1000, 20_000], "corpus_index_documents": [10_000, 10_000_000],
    },
    "quick": {
        "repeats": 2, "pairs": 5, "slice_ms": 200, "starts": 5, "saves": 6, "hand_overs": 3,
        "seeks": 6, "limit_seconds": 4, "only_goals": True,
        "tokens": 200_000_000, "epochs": 2, "index_documents": 1_000_000,
        "positions": [0, 1_000_000], "memory_documents": [10_000, 1_000_000],
        "corpus_index_shards": [1, 1000], "corpus_index_documents": [10_000, 1_000_000],
    },
    "once": {
        "repeats": 1, "pairs": 1, "slice_ms": 20, "starts": 1, "saves": 1, "hand_overs": 1,
        "seeks": 1, "limit_seconds": 0.2,
        "tokens": 8_200_000, "epochs": 2, "index_documents": 10_000,
        "positions": [0, 10_000], "memory_documents": [1_000, 10_000],
        "corpus_index_shards": [1, 50], "corpus_index_documents": [10_000],
    },
}


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measure ringpack end to end.")
    parser.add_argument("--build", required=True, help="folder of a Release build")
    parser.add_argument("--data", required=True, help="folder for corpora and scratch files")
    parser.add_argument("--output", required=True, help="JSON file to write")
    parser.add_argument("--size", choices=SIZES, default="full", help="quick: less of everything,"
                        " about two minutes; once: the least of everything, to see that all runs")
    parser.add_argument("--repeats", type=int, help="repetitions (6; with --size quick 2)")
    parser.add_argument("--no-cold", action="store_true", help="leave out what reads the disk")
    parser.add_argument("--only-start", action="store_true",
                        help="starts, positions and memory only")
    parser.add_argument("--documents", type=int, help="in the index of `positions`, 20 bytes each,"
                        " and as many after its last one (16 million; quick: 1 million)")
    parser.add_argument("--shards", type=int, help="measure starts with a corpus index of so many"
                        " shards, too, which are names of a few files")
    return parser.parse_args()


def make_settings(arguments):
    settings = {
        "quick": arguments.size != "full",
        "only_goals": False,
        "seq_len": 4096,
        "batch_size": 8,
        "packing": "lookahead",
        "lengths": "lognormal, median 400, sigma 1.2, 16 to 16384",
        **SIZES[arguments.size],
    }
    if arguments.repeats:
        settings["repeats"] = arguments.repeats
    if arguments.documents:
        settings["index_documents"] = arguments.documents
        for key in "positions", "memory_documents", "corpus_index_documents":
            settings[key] = sorted({*settings[key], arguments.documents})
    if arguments.shards:
        shards = {*settings["corpus_index_shards"], arguments.shards}
        settings["corpus_index_shards"] = sorted(shards)
    return settings


def main():
    arguments = parse_arguments()
    settings = make_settings(arguments)
    settings["corpus"] = str(make_corpus(arguments.data, settings["tokens"]))
    settings["index"] = str(make_index(arguments.data, settings["index_documents"]))
    load_before = os.getloadavg()
    bench = Bench(arguments.build, arguments.data, settings)
    hot, hand_over, save, resume = Hot(bench), HandOver(bench), Save(bench), Resume(bench)
    turning = [resume.checkpoint, resume.large_checkpoint, resume.start, Memory(bench).engine]
    if not arguments.only_start:
        hot.check()
        turning += [hot.limits, hot.min, hot.hf, hot.digested, hand_over.next, hand_over.ring,
                    hand_over.state_token, save.steps, save.flat_out]
        turning += [] if settings["only_goals"] else [hot.verification]
    if not arguments.no_cold and not arguments.only_start:
        cold = Cold(bench)
        turning += [cold.block, cold.document]
    samples = run_repetitions(turning, settings["repeats"])
    positions = Seeking(bench).times(resume.positions())
    indexes = CorpusIndex(bench).starts()
    result = {
        "format": 2,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": describe_machine(),
        "load": {"before": load_before, "after": os.getloadavg()},
        "settings": settings,
        "checks": bench.checks,
        "notes": bench.notes,
        "metrics": metrics_of(samples),
        "positions": positions,
        "indexes": indexes,
        "harness_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    Path(arguments.output).parent.mkdir(parents=True, exist_ok=True)
    Path(arguments.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
