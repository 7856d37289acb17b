# SPDX-License-Identifier: Apache-2.0
"""The time of steps whose ranks wait for each other: rows as planned, dealt, and other methods.

    build/venv/bin/python bench/steps.py                    every mix: table, JSON
    build/venv/bin/python bench/steps.py --docs             also chart and documents
    build/venv/bin/python bench/steps.py -c FILE            the corpus and seq_len of a config

Rows are of the engine's planner. A row of documents of l tokens costs the sum of l * (K + l), K as
measured on a GPU (`ringpack calibrate`). A figure is the time of all steps relative to perfect
balance: with a barrier once a step (DDP), at each micro-batch (FSDP, expert parallelism), and with
1F1B in each rank, also interleaved (two parts of the layers on a stage). One deal in each mix is
compared with the engine's; the others are by the oracle.

The other methods work on the documents of one step, cut as the planner cut them:

    sorted       by length, longest first, into rows in this order, as length-grouped samplers do
    next-fit     in the order of the documents, as dp_balanced of Megatron Core forms micro-batches
    partitioned  by Karmarkar-Karp, first to ranks, then to micro-batches, as verl and slime do with
                 a driver's batch; a micro-batch may have more tokens than a row
    queues       as WLB-LLM: long documents wait until each micro-batch of a step can have one, the
                 others go to the micro-batch that costs least, up to 1.25 rows of tokens
"""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent),
                str(Path(__file__).resolve().parents[1] / "tests" / "oracle")]

import barriers  # noqa: E402
from balancers import METHODS  # noqa: E402
from corpora.length_corpus import MIXES, make_mix  # noqa: E402
from planned_rows import Plan, config_of, deal, permutation  # noqa: E402
from stream2_deal import deal_rows  # noqa: E402

K = 15_072  # a block 2048 wide, with 16 heads, 8 key heads, ffn 8192 on an H100
WINDOWS = (1, 2, 4, 8, 16)
PARTS = 2  # parts of a stage's layers, interleaved
SHAPES = [  # mix, seq_len, ranks, micro-batches of a step, stages of a pipeline, steps
    ("long-context mix", 131_072, 8, 8, 4, 96),
    ("long-context mix", 131_072, 4, 64, 8, 16),
    ("long-context mix", 32_768, 8, 8, 4, 96),
    ("books", 32_768, 8, 8, 4, 96),
    ("code", 32_768, 8, 8, 4, 96),
    ("chat", 8_192, 8, 8, 4, 96),
    ("web-like", 8_192, 8, 8, 4, 96),
]


def cost_of(lengths, k):
    return sum(length * (k + length) for length in lengths)


class Shape:
    def __init__(self, mix, seq_len, ranks, micro_batches, stages, steps):
        self.mix, self.seq_len, self.ranks = mix, seq_len, ranks
        self.micro_batches, self.stages, self.steps = micro_batches, stages, steps
        self.step = ranks * micro_batches

    def label(self):
        return (f"{self.mix}, rows of {self.seq_len:,} tokens, {self.ranks} ranks x "
                f"{self.micro_batches} micro-batches, {self.stages} stages")


def figures_of(steps, shape, k):
    """Of steps of ranks of micro-batches, each the lengths of its documents."""
    costs = [[[cost_of(own, k) for own in rank] for rank in step] for step in steps]
    found = barriers.figures(costs, shape.stages)
    found["interleaved"] = barriers.pipeline(costs, shape.stages, PARTS)
    long, tokens, most = [], 0, 0
    for step in steps:
        lengths = [length for rank in step for own in rank for length in own]
        long.append(sum(n for n in lengths if 2 * n > shape.seq_len) / sum(lengths))
        tokens += sum(lengths)
        most = max([most, *(sum(own) for rank in step for own in rank)])
    count = sum(len(rank) for step in steps for rank in step)
    return {**found, "long_share_deviation": barriers.deviation(long),
            "tokens_of_largest": most / shape.seq_len, "fill": tokens / count / shape.seq_len}


def dealt(rows, costs, shape, window, order, k):
    """Rows in the order of a deal; only whole windows."""
    given = {**deal(window, shape.step, shape.ranks, k, order), "K": k, "w": 0, "h": 0, "b": 1}
    size, found = window * shape.step, []
    for first in range(0, len(rows) - size + 1, size):
        found += [rows[first + q] for q in deal_rows(given, costs[first:first + size])]
    return found


def check_deal(plan, rows, costs, shape, order, k):
    """The engine deals a window of 2 steps as the oracle does."""
    count = 2 * shape.step
    given = deal(2, shape.step, shape.ranks, k, order)
    found = permutation(rows[:count], plan.rows(count, deal=given))
    if found != dealt(list(range(count)), costs[:count], shape, 2, order, k):
        sys.exit("steps.py: the engine deals another order than the oracle")


def measure(plan, shape, options):
    begin = time.monotonic()
    rows = plan.rows(shape.steps * shape.step)
    whole = len(rows) // shape.step * shape.step
    if whole < 2 * shape.step:
        sys.exit(f"steps.py: {len(rows)} rows: expected two steps of {shape.step} or more")
    rows = rows[:whole]
    costs = [cost_of(row.lengths, options.k) for row in rows]
    check_deal(plan, rows, costs, shape, options.order, options.k)
    lengths = [row.lengths for row in rows]
    methods = {"as planned": barriers.steps_of(lengths, shape.ranks, shape.step)}
    for window in WINDOWS:
        if window * shape.step <= whole:
            own = dealt(lengths, costs, shape, window, options.order, options.k)
            methods[f"dealt, window {window}"] = barriers.steps_of(own, shape.ranks, shape.step)
    for name, method in METHODS.items():
        methods[name] = method(methods["as planned"], shape.seq_len, options.k)
    found = {"label": shape.label(), **vars(shape), "k": options.k, "order": options.order,
             "methods": {name: figures_of(steps, shape, options.k)
                         for name, steps in methods.items() if steps}}
    print_table(found, time.monotonic() - begin)
    return found


HEADS = [("step", "step", ".4f"), ("micro_step", "micro-step", ".4f"), ("pipeline", "1F1B", ".3f"),
         ("interleaved", "interleaved", ".3f"),
         ("step_cost_spread", "steps differ", ".2%"),
         ("long_share_deviation", "long share differs", ".4f"),
         ("tokens_of_largest", "largest, rows", ".2f"), ("fill", "filled", ".2%")]


def print_table(found, seconds):
    print(f"\n{found['label']}  ({seconds:.0f} s)")
    print(f"  {'':18s}" + "".join(f"{head:>20s}" for _, head, _ in HEADS))
    for name, own in found["methods"].items():
        cells = "".join(f"{'-' if own[key] is None else format(own[key], form):>20s}"
                        for key, _, form in HEADS)
        print(f"  {name:18s}{cells}", flush=True)


def from_config(options):
    """The corpus of a config; its path must be absolute or below the current directory."""
    import yaml

    given = yaml.safe_load(Path(options.config).read_text())
    sources = given.get("sources") or [given["source"]]
    sources = [source if isinstance(source, dict) else {"path": source} for source in sources]
    folder = Path(options.config).resolve().parent
    for source in sources:
        source["path"] = str(folder / source["path"])
    shape = Shape(options.config, given.get("seq_len", 2048), options.ranks, options.micro_batches,
                  options.stages, options.steps or 96)
    kept = {key: given[key] for key in ("packing", "window", "fill", "spread", "shuffle", "seed",
                                        "long_doc", "num_epochs") if key in given}
    return [(shape, config_of(sources, shape.seq_len, shape.ranks, shape.step, **kept))]


def from_mixes(options):
    for mix, seq_len, ranks, micro_batches, stages, steps in SHAPES:
        if options.mix in (None, mix):
            shape = Shape(mix, seq_len, ranks, micro_batches, stages, options.steps or steps)
            sources = make_mix(options.data, mix, seq_len * shape.step * (shape.steps + 2))
            yield shape, config_of(sources, seq_len, ranks, shape.step)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-c", "--config")
    parser.add_argument("--program", default="build/release/bin/ringpack")
    parser.add_argument("--data", default="build/bench")
    parser.add_argument("--output", default="build/bench/steps.json")
    parser.add_argument("--mix", choices=MIXES)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--k", type=int, default=K)
    parser.add_argument("--order", default="middle", help="of a step's tiers")
    parser.add_argument("--ranks", type=int, default=8, help="with -c")
    parser.add_argument("--micro-batches", type=int, default=8, help="with -c")
    parser.add_argument("--stages", type=int, default=4, help="with -c")
    parser.add_argument("--docs", action="store_true")
    options = parser.parse_args()
    chosen = from_config(options) if options.config else from_mixes(options)
    found = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "shapes": []}
    for shape, config in chosen:
        found["shapes"].append(measure(Plan(options.program, config), shape, options))
    Path(options.output).parent.mkdir(parents=True, exist_ok=True)
    Path(options.output).write_text(json.dumps(found, indent=1))
    if options.docs:
        sys.path.insert(0, str(Path(__file__).resolve().parent / "report"))
        from steps_chart import write_documents

        write_documents(found)


if __name__ == "__main__":
    main()
