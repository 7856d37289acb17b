# SPDX-License-Identifier: Apache-2.0
"""The page of benchmarks, from bench/results/latest.json and peers.json."""

import json
import sys
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "report"))
from goals import FORMAT, goals  # noqa: E402


def page(folder):
    run, peers = (json.loads((folder / f"{name}.json").read_text()) for name in ("latest", "peers"))
    machine, when = run["machine"], datetime.strptime(run["date"], "%Y-%m-%dT%H:%M:%SZ")
    parts = [
        "# Benchmarks\n",
        "What a run of `tools/bench` found on one machine. "
        "[How it is measured](measuring.md) says what each number means; ratios within a run say "
        "more than times.\n",
        "![tokens per second at the trainer](../bench/results/chart.svg)\n",
        f"{when:%d %B %Y}, commit `{machine['commit']}`, {machine['cpu']} with {machine['cores']} "
        f"cores, {machine['memory_bytes'] / 2**30:.0f} GiB, "
        f"Linux {machine['kernel'].split('-')[0]}, {machine['compiler']}.\n",
        "## Goals\n",
        "A goal is judged by the median and the interval that holds the true median with a "
        "probability of 95 %: met or not met if the whole interval is on one side of the bound, "
        "else undecided. Too few values have no interval, and decide nothing. What stands between "
        "ringpack and the goals that are not met is in [How it is measured](measuring.md).\n",
        *without_turns(run),
        "| goal | found | 95 % interval | bound | verdict |\n|---|---:|---:|---:|---|",
        *(goal(*found) for found in goals(run)),
        "\n## Every number\n",
        "| number | median | least | most | 95 % interval |\n|---|---:|---:|---:|---:|",
        *(row(name, found) for name, found in sorted(run["metrics"].items())),
        "\n## First batch after a resume\n",
        "Medians, with their 95 % intervals where there were enough values.\n",
        "| row | documents before it | state token | with the token | planned from row 0 |",
        "|---:|---:|---:|---:|---:|",
        *(position(found) for found in run["positions"]),
        "\n## Starts with a corpus index\n",
        "| shards | documents | first batch | `ringpack index` |\n|---:|---:|---:|---:|",
        *(corpus_index(found) for found in run.get("indexes", [])),
        "\n## Other loaders\n",
        "The same corpus at one consumer, in a Python loop on the same two cores; each with the "
        "number of workers at which it is fastest. Classes are not to be compared: who packs by "
        "itself, who is given a packer, and windows of a corpus, which nobody packs. "
        "[Comparison](../start/comparison.md) has what they promise.\n",
        "![tokens per second and resume of several loaders](../bench/results/peers.svg)\n",
        f"Run of {peers['date'][:10]}, commit `{peers['machine']['commit']}`. The last column: "
        "ringpack's tokens a second in the same rounds over those of this loader, and the 95 % "
        "interval where there were enough rounds.\n",
        "| class | loader | what it delivers | workers | Mtok/s | ringpack / this |\n"
        "|---|---|---|---:|---:|---:|",
        *(peer(found) for found in speeds(peers)),
    ]
    return "\n".join(parts) + "\n"


def without_turns(run):
    """The remark on a run whose values did not take turns."""
    if run["format"] < FORMAT:
        yield "This run is of the time before values had intervals: it decides no goal of times.\n"


def goal(label, found, sense, bound, unit, verdict):
    sign = {">=": "≥", "<=": "≤"}[sense]
    shown = "" if found.value is None else f"{value(found.value)} {unit}"
    ends = found.interval
    between = interval(ends) if ends and ends[0] != ends[1] else ""
    return f"| {label} | {shown} | {between} | {sign} {bound:g} {unit} | {verdict} |"


def interval(ends):
    return "–".join(value(end) for end in ends or [])


def row(name, found):
    values = " | ".join(value(found[key]) for key in ("median", "min", "max"))
    return f"| `{name}` | {values} | {interval(found.get('interval'))} |"


def value(number):
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def timed(summary, unit):
    """A median with its interval; of a run of format 1, one time."""
    if not isinstance(summary, dict):
        return f"{value(summary)} {unit}"
    between = interval(summary.get("interval"))
    return f"{value(summary['median'])} {unit}" + (f" ({between})" if between else "")


def position(found):
    times = " | ".join(timed(found[name], "ms") for name in ("with_token_ms", "without_token_ms"))
    size = f"{found['token_bytes']} bytes"
    return f"| {found['row']:,} | {found['documents']:,} | {size} | {times} |"


def corpus_index(found):
    times = f"{timed(found['first_batch_ms'], 'ms')} | {timed(found['index_seconds'], 's')}"
    return f"| {found['shards']:,} | {found['documents']:,} | {times} |"


def speeds(run):
    return sorted(run["speed"], key=lambda peer: (peer["kind"], peer["corpus"],
                                                  -peer["tokens_per_second"]["median"]))


def peer(found):
    speed = found["tokens_per_second"]["median"] / 1e6
    name = f"{found['name']} ({found['corpus']})"
    ratio = found.get("ringpack_per_this")
    times = f"{timed(ratio, '×')}" if ratio else ""
    return (f"| {found['kind']} | {name} | {found['delivers']} | {found['workers']} | {speed:,.0f} "
            f"| {times} |")
