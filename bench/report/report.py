# SPDX-License-Identifier: Apache-2.0
"""The JSON of end_to_end.py as a table for people, and as a chart.

    python bench/report/report.py RESULT.json [CHART.svg]

Everything that is drawn comes from the file; bars begin at zero, whiskers are 95 % intervals, or
span all values where these are too few for one.
"""

import json
import math
import sys
from pathlib import Path

from chart import (BOUND, INK, LOOP, OURS, RULE, SOFT, WIDTH, documents_text, line, number, svg,
                   text, time_text)
from goals import print_goals

def beside_loop(profile):
    """Rows of runs that take turns with the plain loop."""
    rows = [
        ("loop_{}", "Mtok/s", 1e-6, "plain C loop, {}, one batch"),
        ("loop_{}_8_batches", "Mtok/s", 1e-6, "plain C loop, {}"),
        ("loop_{}_mapped", "Mtok/s", 1e-6, "the same from the page cache"),
        ("hot_{}", "Mtok/s", 1e-6, "ringpack, {}"),
        ("hot_{}_digested", "Mtok/s", 1e-6, "ringpack, {}, trainer hashes"),
        ("hot_{}_per_loop", "x", 1, "ringpack / loop, {}"),
        ("loop_{}_8_batches_cpu", "s/Gtok", 1, "CPU of the loop, {}"),
        ("loop_{}_mapped_cpu", "s/Gtok", 1, "the same from the page cache"),
        ("hot_{}_cpu", "s/Gtok", 1, "CPU of the engine, {}"),
        ("hot_{}_trainer_cpu", "s/Gtok", 1, "CPU of its trainer, {}"),
        ("hot_{}_per_loop_cpu", "x", 1, "CPU, loop / engine, {}"),
        ("hot_{}_per_mapped_loop_cpu", "x", 1, "the loop from the page cache"),
        ("mapped_{}_per_loop_cpu", "x", 1, "CPU, loop / from page cache"),
    ]
    return [(name.format(profile), unit, factor, label.format(profile))
            for name, unit, factor, label in rows]


# metric, unit, factor from the JSON's unit, meaning
TABLE = {
    "page cache, one trainer": [
        ("memcpy", "Mtok/s", 1e-6, "memcpy of the token files"),
        ("plan", "Mtok/s", 1e-6, "plan only"),
        ("plan_ns_per_document", "ns", 1, "plan, per document"),
        ("loop_concat_min", "Mtok/s", 1e-6, "plain C loop, min, concat"),
        *(row for profile in ("min", "hf") for row in beside_loop(profile)),
        ("fill", "%", 100, "tokens in rows that are no padding"),
    ],
    "page cache, indexed: blocks compared or not": [
        ("mapped_verify_on", "Mtok/s", 1e-6, "mapped, compared"),
        ("mapped_verify_off", "Mtok/s", 1e-6, "mapped, not compared"),
        ("mapped_verify_per_off", "x", 1, "compared / not"),
        ("mapped_verify_on_cpu", "s/Gtok", 1, "CPU of the engine, compared"),
        ("mapped_verify_off_cpu", "s/Gtok", 1, "CPU of the engine, not compared"),
        ("mapped_verify_cpu_per_off", "x", 1, "CPU, compared / not"),
        ("pread_verify_on", "Mtok/s", 1e-6, "read, compared"),
        ("pread_verify_off", "Mtok/s", 1e-6, "read, not compared"),
        ("pread_verify_per_off", "x", 1, "compared / not"),
        ("pread_verify_on_cpu", "s/Gtok", 1, "CPU of the engine, compared"),
        ("pread_verify_off_cpu", "s/Gtok", 1, "CPU of the engine, not compared"),
        ("pread_verify_cpu_per_off", "x", 1, "CPU, compared / not"),
    ],
    "past the page cache": [
        ("fio_sequential_bytes_per_second", "MB/s", 1e-6, "fio, sequential"),
        ("fio_sequential", "Mtok/s", 1e-6, "fio, sequential, in tokens"),
        ("cold_block", "Mtok/s", 1e-6, "ringpack, shuffle block"),
        ("cold_block_per_fio", "x", 1, "ringpack / fio"),
        ("fio_sequential_cpu", "s/Gtok", 1, "CPU of fio, sequential"),
        ("cold_block_cpu", "s/Gtok", 1, "CPU of the engine, block"),
        ("fio_random_iops", "kIOPS", 1e-3, "fio, random, sizes of documents"),
        ("fio_random", "Mtok/s", 1e-6, "fio, random, in tokens"),
        ("cold_document", "Mtok/s", 1e-6, "ringpack, shuffle document"),
        ("cold_document_per_fio", "x", 1, "ringpack / fio"),
        ("fio_random_cpu", "s/Gtok", 1, "CPU of fio, random"),
        ("cold_document_cpu", "s/Gtok", 1, "CPU of the engine, document"),
    ],
    "hand-over of ready batches": [
        ("next_c_ns", "ns", 1, "next and release, C"),
        ("next_python_ns", "ns", 1, "next and release, Python"),
        ("next_python_look_ns", "ns", 1, "the same with batch['input_ids']"),
        ("next_python_torch_ns", "ns", 1, "the same as a torch tensor"),
        ("next_python_torch_held_ns", "ns", 1, "one still held in the next step"),
        ("next_python_overhead_ns", "ns", 1, "Python - C"),
        ("next_python_look_overhead_ns", "ns", 1, "with batch['input_ids'] - C"),
        ("next_python_torch_overhead_ns", "ns", 1, "with a torch tensor - C"),
        ("next_python_torch_held_overhead_ns", "ns", 1, "with one still held - C"),
        ("ring_take_ns", "ns", 1, "batch of the task, C"),
        ("bare_ring_take_ns", "ns", 1, "bare ring, slots of that size"),
        ("ring_read_ns", "ns", 1, "batch of the task, read whole"),
        ("bare_ring_read_ns", "ns", 1, "bare ring, as much read"),
        ("ring_read_per_bare", "x", 1, "ringpack / bare ring, read"),
    ],
    "state tokens and full checkpoints": [
        ("state_dict_us", "us", 1, "state_dict() in Python"),
        ("state_dict_p99_us", "us", 1, "p99 of it"),
        ("state_dict_time_ratio", "x", 1, "time with one a step / without"),
        ("save_bytes", "MB", 1e-6, "full checkpoint"),
        ("save_bytes_per_second", "MB/s", 1e-6, "asked for until acknowledged"),
        ("buffered_write_bytes_per_second", "MB/s", 1e-6, "plain write and fsync, page cache"),
        ("plain_write_bytes_per_second", "MB/s", 1e-6, "the same past it"),
        ("plain_read_bytes_per_second", "MB/s", 1e-6, "plain read past it"),
        ("save_per_buffered_write", "x", 1, "checkpoint / write, page cache"),
        ("save_per_plain_write", "x", 1, "checkpoint / write past it"),
        ("checked_per_plain_write", "x", 1, "write, read back / write"),
        ("save_per_checked_write", "x", 1, "checkpoint / write, read back"),
        ("next_steps_p50_ns", "ns", 1, "p50 of next, a batch a ms"),
        ("next_steps_saving_p50_ns", "ns", 1, "the same during a save"),
        ("next_steps_p99_ns", "ns", 1, "p99 of next, a batch a ms"),
        ("next_steps_saving_p99_ns", "ns", 1, "the same during a save"),
        ("next_steps_p99_ratio", "x", 1, "during a save / without"),
        ("next_steps_plain_p99_ratio", "x", 1, "during another's plain write"),
        ("next_flat_out_p99_ns", "ns", 1, "p99 of next, flat out"),
        ("next_flat_out_saving_p99_ns", "ns", 1, "the same during a save"),
        ("next_flat_out_p99_ratio", "x", 1, "during a save / without"),
        ("next_flat_out_plain_p99_ratio", "x", 1, "during another's plain write"),
    ],
    "start, resume, checkpoint": [
        ("empty_process_ms", "ms", 1, "a process that does nothing"),
        ("first_batch_ms", "ms", 1, "first batch at row 0"),
        ("resume_checkpoint_ms", "ms", 1, "first batch from a full checkpoint"),
        ("resume_large_checkpoint_ms", "ms", 1, "first batch from one of 34 MB"),
        ("checkpoint_bytes", "MB", 1e-6, "full checkpoint"),
        ("checkpoint_seconds", "ms", 1e3, "full checkpoint, until durable"),
        ("memory_said_bytes", "MB", 1e-6, "memory of the engine, by plan"),
    ],
}


def memory_rows(result):
    return [(f"memory_{count}_bytes", "MB", 1e-6, f"memory, {documents_text(count)} documents")
            for count in result["settings"]["memory_documents"]]


def machine_line(result):
    m = result["machine"]
    return (f"{m['cpu']}, {m['cores']} cores, {m['memory_bytes'] / 2**30:.0f} GiB, "
            f"Linux {m['kernel']}, commit {m['commit']}")


def load_text(result):
    """Load of others, for the most part, which makes whiskers long."""
    before, after = (result["load"][when][0] for when in ("before", "after"))
    return f"load average {before:.1f} before, {after:.1f} after"


def interval_of(summary, factor=1):
    """As text; empty where too few values were found."""
    if not isinstance(summary, dict) or not summary.get("interval"):
        return ""
    return "–".join(number(end * factor) for end in summary["interval"])


def timed(summary, unit):
    """A median with its interval; of a run of format 1, one time."""
    value = summary["median"] if isinstance(summary, dict) else summary
    return f"{number(value):>9s} {unit:2s}{interval_of(summary):>17s}"


def print_positions(result):
    print(f"\n{'documents behind':>18s}{'token':>10s}{'first batch with it':>29s}"
          f"{'without':>29s}{'planning':>29s}   median, 95 % interval")
    for entry in result["positions"]:
        cells = "".join(timed(entry[key], "ms")
                        for key in ("with_token_ms", "without_token_ms", "plan_ms"))
        print(f"{entry['documents']:18,d}{entry['token_bytes']:8,d} B{cells}")


def print_indexes(result):
    if result.get("indexes"):
        print(f"\n{'shards':>12s}{'documents':>16s}{'first batch':>29s}{'index':>29s}"
              f"{'of 512 documents':>29s}   median, 95 % interval")
    for entry in result.get("indexes", []):
        print(f"{entry['shards']:12,d}{entry['documents']:16,d}"
              f"{timed(entry['first_batch_ms'], 'ms')}{timed(entry['index_seconds'], 's')}"
              + (timed(entry["first_batch_of_512_ms"], "ms")
                 if "first_batch_of_512_ms" in entry else ""))


def print_table(result):
    print(machine_line(result))
    print(f"{load_text(result)}; {result['settings']['repeats']} repetitions")
    for title, rows in [*TABLE.items(), ("memory of the engine", memory_rows(result))]:
        rows = [row for row in rows if row[0] in result["metrics"]]
        if rows:
            heads = "".join(f"{head:>12s}" for head in ("median", "min", "max"))
            print(f"\n{title:36s}{heads}{'95 % interval':>18s}")
        for name, unit, factor, label in rows:
            metric = result["metrics"][name]
            cells = "".join(f"{metric[k] * factor:12.3f}" if unit == "%"
                            else f"{number(metric[k] * factor):>12s}"
                            for k in ("median", "min", "max"))
            print(f"  {label:34s}{cells}{interval_of(metric, factor):>18s}  {unit}")
    print_positions(result)
    print_indexes(result)
    print()
    for name, entry in result["checks"].items():
        print(f"checked {entry['times']:3d} times: {name}")
    for note in result["notes"]:
        print(f"note: {note}")


# ---- the chart -----------------------------------------------------------------------------------

HEIGHT = 715
LEFT, RIGHT = 190, 112  # edges of the bars
BAR, GAP, GROUP_GAP = 22, 9, 20

BARS = [  # label, metric, colour; None begins a new group
    ("memcpy of the corpus", "memcpy", BOUND),
    None,
    ("plain C loop", "loop_min_8_batches", LOOP),
    ("from the page cache", "loop_min_mapped", LOOP),
    ("ringpack", "hot_min", OURS),
    None,
    ("plain C loop", "loop_hf_8_batches", LOOP),
    ("from the page cache", "loop_hf_mapped", LOOP),
    ("ringpack", "hot_hf", OURS),
]
GROUPS = ["profile min: i32 ids, cu_seqlens",
          "profile hf: i64 ids, labels, position_ids, cu_seqlens"]


def steps_of(most, count=5):
    """Round ticks from 0 to at least `most`."""
    rough = most / count
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * k for k in (1, 2, 2.5, 5, 10) if unit * k >= rough)
    return [step * i for i in range(math.ceil(most / step) + 1)]


def whisker_of(summary):
    """(low, high)"""
    return summary.get("interval") or (summary["min"], summary["max"])


def draw_bars(result, top):
    metrics, parts = result["metrics"], []
    bars = [bar for bar in BARS if bar is None or bar[1] in metrics]
    most = max(whisker_of(metrics[bar[1]])[1] for bar in bars if bar) / 1e6
    ticks = steps_of(most)
    scale = (WIDTH - LEFT - RIGHT) / ticks[-1]
    groups = iter(GROUPS)
    y, whiskers = top, []
    for bar in bars:
        if bar is None:
            y += GROUP_GAP
            parts.append(text(LEFT, y + 11, next(groups), 12, SOFT))
            y += 20
            continue
        label, name, colour = bar
        median = metrics[name]["median"] / 1e6
        low, high = (LEFT + end / 1e6 * scale for end in whisker_of(metrics[name]))
        ours = colour == OURS
        middle = y + BAR / 2
        parts.append(text(LEFT - 12, middle + 4.5, label, 13, anchor="end",
                          weight=600 if ours else 400))
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{median * scale:.1f}" '
                     f'height="{BAR}" rx="2" fill="{colour}"/>')
        whiskers += [line(low, middle, high, middle, INK, 1.2)]
        whiskers += [line(x, middle - 4, x, middle + 4, INK, 1.2) for x in (low, high)]
        end = max(high, LEFT + median * scale)
        said = f"{median:,.0f}"
        parts.append(text(end + 9, middle + 4.5, said, 13, weight=600 if ours else 400))
        y += BAR + GAP
    grid = []
    for tick in ticks:
        x = LEFT + tick * scale
        grid.append(line(x, top - 8, x, y + 2, RULE))
        grid.append(text(x, y + 19, f"{tick:,.0f}", 11.5, SOFT, "middle"))
    grid.append(text(WIDTH - 24, y + 19, "Mtok/s", 11.5, SOFT, "end"))
    return grid + parts + whiskers, y + 36


def draw_positions(result, top, bottom):
    rows = result["positions"]
    values = [r[k]["median"] for r in rows for k in ("with_token_ms", "without_token_ms")]
    first = math.floor(math.log10(min(values)))
    last = max(math.ceil(math.log10(max(values))), first + 1)
    across = (WIDTH - LEFT - RIGHT) / max(len(rows) - 1, 1)
    parts = []

    def place(ms):
        return bottom - (bottom - top) * (math.log10(ms) - first) / (last - first)

    for power in range(first, last + 1):
        y = place(10.0**power)
        parts.append(line(LEFT, y, WIDTH - RIGHT, y, RULE))
        parts.append(text(LEFT - 12, y + 4, time_text(10.0**power), 11.5, SOFT, "end"))
    for i, row in enumerate(rows):
        parts.append(text(LEFT + i * across, bottom + 20, documents_text(row["documents"]), 11.5,
                          SOFT, "middle"))
    for key, colour, label in (("without_token_ms", LOOP, "no token"),
                               ("with_token_ms", OURS, "state token")):
        points = [(LEFT + i * across, place(r[key]["median"])) for i, r in enumerate(rows)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" '
                     f'stroke-width="2.4"/>')
        for (x, y), r in zip(points, rows):
            low, high = whisker_of(r[key])
            parts.append(line(x, place(low), x, place(high), INK, 1.2))
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        x, y = points[-1]
        ours = colour == OURS
        parts.append(text(x + 12, y - 2, label, 12, weight=600 if ours else 400))
        parts.append(text(x + 12, y + 13, time_text(rows[-1][key]["median"]), 12, SOFT,
                          weight=600 if ours else 400))
    return parts


def whiskers_text(result):
    given = [result["metrics"][bar[1]].get("interval") for bar in BARS
             if bar and bar[1] in result["metrics"]]
    return "whiskers their 95 % intervals" if all(given) else "whiskers the least and the most"


def draw(result):
    s = result["settings"]
    about = [f"{s['tokens'] / 1e6:.0f} M u16 tokens, documents of lognormal length (median 400), "
             f"shuffled, packed to rows of {s['seq_len']} from the page cache.",
             f"Bars are medians, {whiskers_text(result)}. "
             "Loop and memcpy: one thread; private memory, or where it is said the page cache."]
    bars, y = draw_bars(result, 118)
    second = y + 30
    parts = [
        text(24, 38, "Tokens per second that reach one trainer", 20, weight=650),
        *(text(24, 61 + 18 * i, words, 12.5, SOFT) for i, words in enumerate(about)),
        *bars,
        line(24, y + 2, WIDTH - 24, y + 2, RULE),
        text(24, second + 4, "Milliseconds from the start of the process to the first batch", 16,
             weight=650),
        text(24, second + 25, f"By documents that lie behind; index of "
             f"{s['index_documents'] / 1e6:.0f} M documents; logarithmic axis. "
             "No token: all of them are planned again.", 12.5, SOFT),
        *draw_positions(result, second + 52, HEIGHT - 74),
        text(24, HEIGHT - 18, f"{machine_line(result)}, {result['date'][:10]}; {load_text(result)}",
             11, SOFT),
    ]
    return svg(parts, HEIGHT)


def main():
    result = json.loads(Path(sys.argv[1]).read_text())
    print_table(result)
    print_goals(result)
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(draw(result))


if __name__ == "__main__":
    main()
