# SPDX-License-Identifier: Apache-2.0
"""The rows of a config as the engine's planner orders them: lengths of documents, row by row.

    build/venv/bin/python bench/planned_rows.py --output rows.json

makes the rows for balance_gpu.py: a long-context mix, in the order of the planner and dealt over
windows of 1 to 8 steps.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from corpora.length_corpus import make_mix  # noqa: E402

PART = 2048  # rows of a call


class PlannedRow(NamedTuple):
    lengths: tuple  # tokens of each fragment
    parts: tuple  # (source, document, offset) of each


class Plan:
    """A config, and keys in place of its own, asked for its rows."""

    def __init__(self, program, config):
        self.program, self.config = program, dict(config)

    def rows(self, count, **keys):
        """Rows 0 to count - 1; fewer if the stream ends."""
        found = []
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config.yaml"
            path.write_text(json.dumps({**self.config, **keys}))  # JSON is YAML
            for first in range(0, count, PART):
                last = min(first + PART, count) - 1
                said = self._ask("explain", "-c", path, f"--row={first}-{last}", "--limit=0",
                                 "--json", f"--cache-dir={folder}")
                found += [self._row(row) for row in json.loads(said)["rows"] if row["fragments"]]
        return found

    def _ask(self, *words):
        done = subprocess.run([self.program, *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"planned_rows.py: {done.stderr.strip()}")
        return done.stdout

    @staticmethod
    def _row(row):
        parts = [(part["source_number"], part["document"], part["offset"])
                 for part in row["fragments"]]
        return PlannedRow(tuple(part["tokens"] for part in row["fragments"]), tuple(parts))


def config_of(sources, seq_len, ranks, step, **keys):
    return {"stream_version": 2, "sources": sources, "seq_len": seq_len, "batch_size": 1,
            "dp_world_size": ranks, "global_batch_size": step, **keys}


def deal(steps, step, tier, cost, order="middle", bundle=1):
    return {"window": steps * step, "step": step, "tier": tier, "bundle": bundle, "order": order,
            "cost": cost}


def permutation(rows, dealt):
    """The planned row at each place of the dealt stream: the same rows in another order."""
    place = {row.parts: q for q, row in enumerate(rows)}
    found = [place[row.parts] for row in dealt]
    if sorted(found) != list(range(len(rows))):
        sys.exit("planned_rows.py: dealt rows are not the planned rows in another order")
    return found


def dealt_set(program, folder, seq_len, shape, windows, cost):
    """Rows in the order of the planner, and the order of each deal window."""
    ranks, micro_batches, steps = shape
    step = ranks * micro_batches
    tokens = seq_len * step * (steps + 1)
    sources = make_mix(folder, "long-context mix", tokens)
    plan = Plan(program, config_of(sources, seq_len, ranks, step))
    rows = plan.rows(steps * step)
    orders = {str(window): permutation(rows, plan.rows(len(rows),
                                                       deal=deal(window, step, ranks, cost)))
              for window in windows}
    return {"seq_len": seq_len, "ranks": ranks, "micro_batches": micro_batches, "steps": steps,
            "cost": cost, "rows": [row.lengths for row in rows], "orders": orders}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="build/release/bin/ringpack")
    parser.add_argument("--data", default="build/bench")
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    found = {
        "timed": dealt_set(options.program, options.data, 131072, (8, 8, 8), (1, 2, 4, 8), 15072),
        "trained": dealt_set(options.program, options.data, 8192, (4, 2, 32), (8,), 15072),
    }
    Path(options.output).write_text(json.dumps(found))
    for name, part in found.items():
        print(f"{name}: {len(part['rows'])} rows of {part['seq_len']:,} tokens")


if __name__ == "__main__":
    main()
