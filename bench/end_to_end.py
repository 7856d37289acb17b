# SPDX-License-Identifier: Apache-2.0
"""What ringpack delivers to a trainer, beside what the machine could do at most.

Flow: every repetition runs every task once, in an order that turns by one each time, so a busy
moment of the machine strikes all of them alike; what is reported is the median, with the least and
the most beside it, and ratios are taken within a repetition. Nothing is left out: a task that fails
ends the run, one that cannot be done here leaves a note.

Invariant: every run of the engine is checked. What a timed trainer was given is counted against
`ringpack plan`; a second run of the same config digests every row, and its digest must be that of
the plain loop, which shares only the plan with the engine.

Called by tools/bench; README.md says what each number means.
"""

import argparse
import contextlib
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

from corpora.token_corpus import make_corpus, make_index
from engine import Bench, summarise
from tasks.cold import Cold
from tasks.hand_over import HandOver
from tasks.hot import Hot
from tasks.manifest import Manifest
from tasks.memory import Memory
from tasks.peers import Peers
from tasks.resume import Resume
from tasks.save import Save

SOURCE = Path(__file__).resolve().parent.parent


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=SOURCE, check=True)
        return done.stdout.strip().splitlines()[0]
    except (OSError, IndexError, subprocess.CalledProcessError):
        return "unknown"


def field_of(path, name):
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.split(":", 1)[1].strip()
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


def over(above, below):
    return lambda sample: sample[above] / sample[below]


def cpu_over_limit(ours, fio):
    """The limit of delivering from the disk: what fio takes to read, and one pass that widens."""
    return lambda sample: sample[ours] / (sample[fio] + sample["widen_cpu"])


RATIOS = {
    "hot_min_per_loop": over("hot_min", "loop_min"),
    "hot_hf_per_loop": over("hot_hf", "loop_hf"),
    "hot_min_per_loop_cpu": over("loop_min_cpu", "hot_min_cpu"),
    "hot_hf_per_loop_cpu": over("loop_hf_cpu", "hot_hf_cpu"),
    "mapped_verify_per_off": over("mapped_verify_on", "mapped_verify_off"),
    "mapped_verify_cpu_per_off": over("mapped_verify_on_cpu", "mapped_verify_off_cpu"),
    "pread_verify_per_off": over("pread_verify_on", "pread_verify_off"),
    "pread_verify_cpu_per_off": over("pread_verify_on_cpu", "pread_verify_off_cpu"),
    "cold_block_per_fio": over("cold_block", "fio_sequential"),
    "cold_document_per_fio": over("cold_document", "fio_random"),
    "cold_block_cpu_per_limit": cpu_over_limit("cold_block_cpu", "fio_sequential_cpu"),
    "cold_document_cpu_per_limit": cpu_over_limit("cold_document_cpu", "fio_random_cpu"),
    "ring_take_per_bare": over("ring_take_ns", "bare_ring_take_ns"),
    "ring_read_per_bare": over("ring_read_ns", "bare_ring_read_ns"),
}


def add_ratios(samples):
    for sample in samples:
        for name, ratio in RATIOS.items():
            with contextlib.suppress(KeyError):  # a task was left out
                sample[name] = ratio(sample)


SIZES = {
    "full": {
        "repeats": 5, "tokens": 200_000_000, "epochs": 10, "index_documents": 16_000_000,
        "positions": [0, 1_000_000, 4_000_000, 16_000_000, 64_000_000],
        "memory_documents": [10_000, 4_000_000], "resume_rows": [1_000_000, 4_000_000, 16_000_000],
        "manifest_shards": [1, 1000, 20_000], "manifest_documents": [10_000, 10_000_000],
    },
    "quick": {
        "repeats": 3, "tokens": 50_000_000, "epochs": 4, "index_documents": 1_000_000,
        "positions": [0, 1_000_000], "memory_documents": [10_000, 1_000_000],
        "resume_rows": [100_000, 1_000_000],
        "manifest_shards": [1, 1000], "manifest_documents": [10_000, 1_000_000],
    },
    "once": {
        "repeats": 1, "tokens": 8_200_000, "epochs": 2, "index_documents": 10_000,
        "positions": [0, 10_000], "memory_documents": [1_000, 10_000],
        "resume_rows": [10_000],
        "manifest_shards": [1, 50], "manifest_documents": [10_000],
    },
}


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measure ringpack end to end.")
    parser.add_argument("--build", required=True, help="folder of a Release build")
    parser.add_argument("--data", required=True, help="folder for corpora and scratch files")
    parser.add_argument("--output", required=True, help="JSON file to write")
    parser.add_argument("--size", choices=SIZES, default="full", help="quick: less of everything,"
                        " under a minute; once: the least of everything, to see that all runs")
    parser.add_argument("--repeats", type=int, help="repetitions (5; with --size quick 3)")
    parser.add_argument("--no-cold", action="store_true", help="leave out what reads the disk")
    parser.add_argument("--peers", action="store_true", help="measure the peers too")
    parser.add_argument("--only-start", action="store_true",
                        help="starts, positions and memory only")
    parser.add_argument("--documents", type=int, help="in the index of `positions`, 20 bytes each,"
                        " and as many behind its last one (16 million; quick: 1 million)")
    parser.add_argument("--shards", type=int, help="measure starts with a manifest of so many"
                        " shards, too, which are names of a few files")
    return parser.parse_args()


def make_settings(arguments):
    settings = {
        "quick": arguments.size != "full",
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
        for key in "positions", "memory_documents", "manifest_documents":
            settings[key] = sorted({*settings[key], arguments.documents})
    if arguments.shards:
        settings["manifest_shards"] = sorted({*settings["manifest_shards"], arguments.shards})
    return settings


def main():
    arguments = parse_arguments()
    settings = make_settings(arguments)
    settings["corpus"] = str(make_corpus(arguments.data, settings["tokens"]))
    settings["index"] = str(make_index(arguments.data, settings["index_documents"]))
    load_before = os.getloadavg()
    bench = Bench(arguments.build, arguments.data, settings)
    hot, hand_over, save, resume = Hot(bench), HandOver(bench), Save(bench), Resume(bench)
    turning = [resume.checkpoint, resume.start, Memory(bench).engine]
    if not arguments.only_start:
        hot.check()
        turning += [hot.limits, hot.trainer_min, hot.trainer_hf, hot.verification, hand_over.next,
                    hand_over.ring, hand_over.state_token, save.steps, save.flat_out]
    if not arguments.no_cold and not arguments.only_start:
        cold = Cold(bench)
        turning += [cold.fio, cold.block, cold.document]
    samples = run_repetitions(turning, settings["repeats"])
    positions = resume.positions()
    manifests = Manifest(bench).starts()
    peers = Peers(bench, settings["quick"]).run() if arguments.peers else None
    add_ratios(samples)
    names = dict.fromkeys(name for sample in samples for name in sample)
    result = {
        "format": 1,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": describe_machine(),
        "load": {"before": load_before, "after": os.getloadavg()},
        "settings": settings,
        "checks": bench.checks,
        "notes": bench.notes,
        "metrics": {name: summarise([s[name] for s in samples if name in s]) for name in names},
        "positions": positions,
        "manifests": manifests,
        "peers": peers,
        "harness_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    Path(arguments.output).parent.mkdir(parents=True, exist_ok=True)
    Path(arguments.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
