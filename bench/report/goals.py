# SPDX-License-Identifier: Apache-2.0
"""The goals that were set for speed, what this run found, and whether it meets them.

    python bench/report/goals.py RESULT.json

A goal is judged by the median of the repetitions (ratios are taken within each repetition first).
What a run left out (--no-cold, no --peers) is `not measured`, and meets nothing.
"""

import json
import sys
from pathlib import Path

from chart import number

# what, its metric, sense, bound, unit, factor from the JSON's unit
METRICS = [
    ("page cache, min: CPU of plain loop / engine's", "hot_min_per_loop_cpu", ">=", 0.8, "x", 1),
    ("page cache, min: tokens/s / plain loop's", "hot_min_per_loop", ">=", 0.8, "x", 1),
    ("page cache, min: at one trainer", "hot_min", ">=", 800, "Mtok/s", 1e-6),
    ("page cache, hf: CPU of plain loop / engine's", "hot_hf_per_loop_cpu", ">=", 0.8, "x", 1),
    ("page cache, hf: tokens/s / plain loop's", "hot_hf_per_loop", ">=", 0.8, "x", 1),
    ("past it, block: tokens/s / fio's, sequential", "cold_block_per_fio", ">=", 0.95, "x", 1),
    ("past it, document: tokens/s / fio's, random", "cold_document_per_fio", ">=", 0.9, "x", 1),
    ("past it, block: CPU / (fio's and widening)", "cold_block_cpu_per_limit", "<=", 1.2, "x", 1),
    ("past it, document: CPU / (fio's and widening)", "cold_document_cpu_per_limit", "<=", 1.2,
     "x", 1),
    ("plan, lookahead: per document", "plan_ns_per_document", "<=", 60, "ns", 1),
    ("plan, lookahead: tokens that are no padding", "fill", ">=", 99.9, "%", 100),
    ("hand-over: a batch taken and read / bare ring", "ring_read_per_bare", "<=", 1.2, "x", 1),
    ("hand-over: next() in Python beyond C", "next_python_overhead_ns", "<=", 5, "us", 1e-3),
    ("state token", "state_dict_us", "<=", 1, "ms", 1e-3),
    ("state token at every step: time / without", "state_dict_time_ratio", "<=", 1.02, "x", 1),
    ("full checkpoint: bytes/s / plain write and fsync", "save_per_plain_write", ">=", 0.8, "x", 1),
    ("p99 of next() during it / without, a batch a ms", "next_steps_p99_ratio", "<=", 1.1, "x", 1),
    ("p99 of next() during it / without, flat out", "next_flat_out_p99_ratio", "<=", 1.1, "x", 1),
    ("memory, most documents / fewest", "memory_many_per_few", "<=", 1.02, "x", 1),
]
CHECK_OF_SYSTEM_CALLS = "batches taken and returned where a system call is death"


def of_metrics(result):
    for label, name, sense, bound, unit, factor in METRICS:
        metric = result["metrics"].get(name)
        yield label, metric and metric["median"] * factor, sense, bound, unit
    for documents in result["settings"].get("memory_documents", []):
        metric = result["metrics"][f"memory_{documents}_per_said"]
        yield (f"memory / what plan says, {documents:,d} documents: off by",
               100 * abs(metric["median"] - 1), "<=", 10, "%")


def of_positions(result):
    rows, empty = result["positions"], result["metrics"]["empty_process_ms"]["median"]
    deepest = rows[-1]
    with_token = [row["with_token_ms"]["median"] for row in rows]
    yield ("seeking without a token", deepest["documents"] / deepest["plan_ms"]["median"] / 1e3,
           ">=", 10, "M/s")
    yield ("first batch with a token, deepest, above an empty process", with_token[-1] - empty,
           "<=", 20, "ms")
    yield ("first batch with a token, slowest position - row 0", max(with_token) - with_token[0],
           "<=", 5, "ms")
    checkpoint = result["metrics"]["resume_checkpoint_ms"]["median"]
    yield ("first batch from a checkpoint, above an empty process", checkpoint - empty, "<=", 20,
           "ms")
    forbidden = result["checks"].get(CHECK_OF_SYSTEM_CALLS)
    yield ("hand-over: system calls when nobody sleeps", forbidden and 0, "<=", 0, "")


def of_manifests(result):
    rows = [row["first_batch_ms"]["median"] for row in result.get("manifests", [])]
    if rows:
        yield ("first batch with a manifest, slowest - one shard", max(rows) - rows[0], "<=", 10,
               "ms")


def time_of(entry):
    return entry["process_ms"]["median"] if entry["process_ms"] else entry["more_than_ms"]


def of_peers(result):
    peers = result.get("peers") or {"ratios": {}, "resume": []}
    for name in [f"{kind}, {who}" for kind in ("lognormal", "text")
                 for who in ("whole documents", "any")]:
        yield f"peers, {name}: tokens/s / best", peers["ratios"].get(name), ">=", 40, "x"
    rows = max((entry["rows"] for entry in peers["resume"]), default=0)
    ours = [time_of(e) for e in peers["resume"] if e["rows"] == rows and "ringpack" in e["name"]]
    others = [time_of(e) for e in peers["resume"]
              if e["rows"] == rows and "ringpack" not in e["name"]]
    yield (f"peers, resume at {rows:,d} samples: best / ringpack's",
           min(others) / min(ours) if ours and others else None, ">=", 5, "x")


def goals(result):
    """[(label, found or None, sense, bound, unit, met)]"""
    found = []
    for rows in of_metrics(result), of_positions(result), of_manifests(result), of_peers(result):
        for label, value, sense, bound, unit in rows:
            met = value is not None and (value >= bound if sense == ">=" else value <= bound)
            found.append((label, value, sense, bound, unit, met))
    return found


def print_goals(result):
    rows = goals(result)
    print(f"\n{'goal':62s}{'found':>10s}{'bound':>12s}")
    for label, value, sense, bound, unit, met in rows:
        shown = "-" if value is None else number(value)
        verdict = "met" if met else "not measured" if value is None else "NOT MET"
        print(f"  {label:60s}{shown:>10s}{sense:>5s}{bound:>7g} {unit:7s}{verdict}")
    measured = [row for row in rows if row[1] is not None]
    print(f"  {sum(row[-1] for row in measured)} of {len(measured)} that were measured are met")


if __name__ == "__main__":
    print_goals(json.loads(Path(sys.argv[1]).read_text()))
