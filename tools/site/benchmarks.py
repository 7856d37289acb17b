# SPDX-License-Identifier: Apache-2.0
"""The page of benchmarks, from bench/results/latest.json and peers.json."""

import json
from datetime import datetime




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
        "## Every number\n",
        "| number | median | least | most | 95 % interval |\n|---|---:|---:|---:|---:|",
        *(row(name, found) for name, found in sorted(run["metrics"].items())),
        "\n## First batch after a resume\n",
        "| row | documents before it | state token | with the token | planned from row 0 |",
        "|---:|---:|---:|---:|---:|",
        *(position(found) for found in run["positions"]),
        "\n## Other loaders\n",
        "The same corpus at one consumer, in a Python loop on the same two cores; each with the "
        "number of workers at which it is fastest. Classes are not to be compared: who packs by "
        "itself, who is given a packer, and windows of a corpus, which nobody packs. "
        "[Comparison](../start/comparison.md) has what they promise.\n",
        "![tokens per second and resume of several loaders](../bench/results/peers.svg)\n",
        "| class | loader | what it delivers | workers | Mtok/s |\n|---|---|---|---:|---:|",
        *(peer(found) for found in speeds(peers)),
    ]
    return "\n".join(parts) + "\n"


def row(name, found):
    values = " | ".join(value(found[key]) for key in ("median", "min", "max"))
    ends = "–".join(value(end) for end in found.get("interval") or [])
    return f"| `{name}` | {values} | {ends} |"


def value(number):
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def position(found):
    names = "with_token_ms", "without_token_ms"
    times = " | ".join(f"{found[name]['median']:.0f} ms" for name in names)
    size = f"{found['token_bytes']} bytes"
    return f"| {found['row']:,} | {found['documents']:,} | {size} | {times} |"


def speeds(run):
    return sorted(run["speed"], key=lambda peer: (peer["kind"], peer["corpus"],
                                                  -peer["tokens_per_second"]["median"]))


def peer(found):
    speed = found["tokens_per_second"]["median"] / 1e6
    name = f"{found['name']} ({found['corpus']})"
    return f"| {found['kind']} | {name} | {found['delivers']} | {found['workers']} | {speed:,.0f} |"
