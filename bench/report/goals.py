# SPDX-License-Identifier: Apache-2.0
"""The goals that were set for speed, this run's values, and whether they meet them.

    python bench/report/goals.py RESULT.json [--docs]

With --docs the table of bench/README.md is written as well: it comes from
bench/results/latest.json.

A goal is judged by the median and its interval (../intervals.py): `met` or `NOT MET` if the whole
interval is on one side of the bound, else `undecided`, and so are too few values for an interval.
Sizes and counts are judged as they are. A number that a run left out (--no-cold) is `not measured`,
and meets no goal. peers.py judges the comparisons with other loaders.
"""

import json
import sys
from pathlib import Path

from chart import number
from documents import write_between

DOCUMENT = Path(__file__).resolve().parent.parent / "README.md"
FORMAT = 2  # version of the JSON; 1 has no intervals
MET, NOT_MET, UNDECIDED, NOT_MEASURED = "met", "NOT MET", "undecided", "not measured"

# label, its metric, sense, bound, unit, factor from the JSON's unit
METRICS = [
    ("page cache, min: CPU of plain loop / engine's", "hot_min_per_loop_cpu", ">=", 0.95, "x", 1),
    ("page cache, min: tokens/s / plain loop's", "hot_min_per_loop", ">=", 0.8, "x", 1),
    ("page cache, min: at one trainer", "hot_min", ">=", 800, "Mtok/s", 1e-6),
    ("page cache, hf: CPU of plain loop / engine's", "hot_hf_per_loop_cpu", ">=", 0.95, "x", 1),
    ("page cache, hf: tokens/s / plain loop's", "hot_hf_per_loop", ">=", 0.8, "x", 1),
    ("past it, block: tokens/s / fio's, sequential", "cold_block_per_fio", ">=", 0.95, "x", 1),
    ("past it, document: tokens/s / fio's, random", "cold_document_per_fio", ">=", 1.0, "x", 1),
    ("past it, block: CPU / (fio's and loop's)", "cold_block_cpu_per_limit", "<=", 1.2, "x", 1),
    ("past it, document: CPU / (fio's and loop's)", "cold_document_cpu_per_limit", "<=", 0.5,
     "x", 1),
    ("plan, lookahead: per document", "plan_ns_per_document", "<=", 60, "ns", 1),
    ("hand-over: a batch taken and read / bare ring", "ring_read_per_bare", "<=", 1.2, "x", 1),
    ("hand-over: next() in Python beyond C", "next_python_overhead_ns", "<=", 5, "us", 1e-3),
    ("hand-over: with a torch tensor, beyond C", "next_python_torch_overhead_ns", "<=", 2, "us",
     1e-3),
    ("hand-over: with one that is held, beyond C", "next_python_torch_held_overhead_ns", "<=", 2,
     "us", 1e-3),
    ("state token", "state_dict_us", "<=", 1, "ms", 1e-3),
    ("state token at every step: time / without", "state_dict_time_ratio", "<=", 1.02, "x", 1),
    ("full checkpoint: bytes/s / plain write and fsync", "save_per_plain_write", ">=", 0.8, "x", 1),
    ("p99 of next() during it / without, a batch a ms", "next_steps_p99_ratio", "<=", 1.1, "x", 1),
    ("p99 of next() during it / without, flat out", "next_flat_out_p99_ratio", "<=", 1.1, "x", 1),
    ("first batch at row 0, above an empty process", "first_batch_above_ms", "<=", 10, "ms", 1),
    ("first batch from a checkpoint, above an empty process", "resume_checkpoint_above_ms", "<=", 5,
     "ms", 1),
]
SIZES = [
    ("plan, lookahead: tokens that are no padding", "fill", ">=", 99.9, "%", 100),
    ("memory, most documents / fewest", "memory_many_per_few", "<=", 1.02, "x", 1),
]
CHECK_OF_SYSTEM_CALLS = "batches taken and returned where a system call is death"


class Found:
    """A median with its interval, in the unit of its goal. `exact`: judged without an interval."""

    def __init__(self, summary, factor=1, exact=False):
        values = summary if isinstance(summary, dict) else {"median": summary}
        self.value = None if values["median"] is None else values["median"] * factor
        self.count = values.get("count", len(values.get("values", [1])))
        ends = [values["median"]] * 2 if exact else values.get("interval")
        self.interval = ends and [end * factor for end in ends]

    def verdict(self, sense, bound):
        if self.value is None:
            return NOT_MEASURED
        if not self.interval:
            return UNDECIDED
        low, high = self.interval
        if sense == "<=":
            low, high, bound = -high, -low, -bound
        return MET if low >= bound else NOT_MET if high < bound else UNDECIDED

    def said(self):
        """The reason why a goal is undecided."""
        count = "1 value" if self.count == 1 else f"{self.count} values"
        if not self.interval:
            return f"{count}: too few"
        return count


def rate_of(summary, work):
    """A summary of times as one of rates."""
    ends = summary.get("interval")
    return {**summary, "median": work / summary["median"],
            "interval": ends and [work / end for end in reversed(ends)]}


def exactly(value):
    return Found(value, exact=value is not None)


NOTHING = exactly(None)


def of_metrics(result):
    for goals_of, exact in (METRICS, False), (SIZES, True):
        for label, name, sense, bound, unit, factor in goals_of:
            metric = result["metrics"].get(name)
            found = Found(metric, factor, exact) if metric else NOTHING
            yield label, found, sense, bound, unit
    for documents in result["settings"].get("memory_documents", []):
        metric = result["metrics"][f"memory_{documents}_per_said"]
        yield (f"memory / what plan says, {documents:,d} documents: off by",
               exactly(100 * abs(metric["median"] - 1)), "<=", 10, "%")


def of_positions(result):
    rows = result["positions"]
    deepest = rows[-1]  # and of the two goals below, the slowest position
    yield ("seeking without a token",
           Found(rate_of(deepest["plan_ms"], deepest["documents"] / 1e3)), ">=", 10, "M/s")
    for label, key, of, bound in (
        ("first batch with a token, above an empty process", "above_ms", rows, 10),
        ("first batch with a token, above that at row 0", "over_first_ms", rows[1:], 5),
    ):
        slowest = max((row[key] for row in of if key in row), default=None,
                      key=lambda summary: summary["median"])
        yield label, Found(slowest) if slowest else NOTHING, "<=", bound, "ms"
    forbidden = result["checks"].get(CHECK_OF_SYSTEM_CALLS)
    yield ("hand-over: system calls when nobody sleeps", exactly(forbidden and 0), "<=", 0, "")


def of_indexes(result):
    above = [row["above_first_ms"] for row in result.get("indexes", [])[1:]
             if "above_first_ms" in row]
    slowest = max(above, default=None, key=lambda summary: summary["median"])
    yield ("first batch with a corpus index, slowest - one shard",
           Found(slowest) if slowest else NOTHING, "<=", 10, "ms")


def goals(result):
    """[(label, value found, sense, bound, unit, verdict)]"""
    if result["format"] > FORMAT:
        sys.exit(f"goals.py: the result has format {result['format']}, and this program reads up to"
                 f" {FORMAT}: use the bench/report of the commit that made it")
    return [(label, found, sense, bound, unit, found.verdict(sense, bound))
            for part in (of_metrics, of_positions, of_indexes)
            for label, found, sense, bound, unit in part(result)]


def interval_text(found):
    if not found.interval or found.interval[0] == found.interval[1]:
        return ""
    return "–".join(number(end) for end in found.interval)


def print_goals(result):
    rows = goals(result)
    if result["format"] < FORMAT:
        print(f"\nformat {result['format']}: runs did not take turns, and the plain loop is that of"
              " one batch")
    print(f"\n{'goal':62s}{'found':>10s}{'95 % interval':>16s}{'bound':>13s}")
    for label, found, sense, bound, unit, verdict in rows:
        shown = "-" if found.value is None else number(found.value)
        if verdict == UNDECIDED:
            verdict += f" ({found.said()})"
        print(f"  {label:60s}{shown:>10s}{interval_text(found):>16s}{sense:>6s}{bound:>7g} "
              f"{unit:7s}{verdict}")
    counts = {verdict: [row[-1] for row in rows].count(verdict)
              for verdict in (MET, NOT_MET, UNDECIDED, NOT_MEASURED)}
    print("  " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if counts[UNDECIDED]:
        print("  undecided: the bound lies within the interval, or there are too few values; run "
              "longer (--repeats N), or on a quieter machine")


# ---- documents -----------------------------------------------------------------------------------


def table(result):
    """The text of bench/README.md on the stored run: every goal and its verdict."""
    machine = result["machine"]
    lines = [f"Run of {result['date'][:16].replace('T', ' ')} UTC, {machine['cpu']}, "
             f"{machine['cores']} cores, commit {machine['commit']}; "
             f"{result['settings']['repeats']} repetitions."]
    if result["format"] < FORMAT:
        lines[0] += " It is of the time before values had intervals, and decides no goal of times."
    lines += ["", "| goal | found | 95 % interval | bound | verdict |", "|---|---:|---:|---:|---|"]
    for label, found, sense, bound, unit, verdict in goals(result):
        shown = "" if found.value is None else f"{number(found.value)} {unit}"
        said = f"**{verdict}**" if verdict == NOT_MET else verdict
        lines.append(f"| {label} | {shown} | {interval_text(found)} | {sense} {bound:g} {unit} | "
                     f"{said} |")
    return "\n".join(lines) + "\n"


def main():
    result = json.loads(Path(sys.argv[1]).read_text())
    print_goals(result)
    if "--docs" in sys.argv[2:]:
        write_between(DOCUMENT, "goals", table(result))


if __name__ == "__main__":
    main()
