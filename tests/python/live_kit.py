# SPDX-License-Identifier: Apache-2.0
"""Streams of version 2 whose weights change while the engine runs, and the rows of the oracle."""

import json
import subprocess
from pathlib import Path

from stream2 import Plan
from stream_kit import Corpus

SEQ_LEN, STEP_ROWS = 48, 4
STAGE = {"seq_len": SEQ_LEN, "packing": "lookahead", "window": 8, "fill": "pad", "spread": 4}


class LiveStream:
    """Two sources; `records` are [(row, weights)]."""

    def __init__(self, folder, deal=None):
        layout = [("megatron", "u16", 3, [60]), ("megatron", "u16", 1, [40])]
        self.corpus = Corpus(folder, layout, 5, SEQ_LEN)
        self.names = [source["name"] for source in self.corpus.sources]
        self.deal, self.known = deal, {}

    def config(self, folder, **changes):
        sources = [{**source, "max_epochs": 3} for source in self.corpus.sources]
        own = dict(STAGE)
        if self.deal:
            own["deal"] = {"cost" if key == "K" else key: v for key, v in self.deal.items()}
        return {
            "stream_version": 2, "run": "live", "seed": 7, **own, "max_docs_per_row": 8,
            "sources": sources, "dp_world_size": 2, "batch_size": 1, "prefetch_factor": 2,
            "global_batch_size": STEP_ROWS, "checkpoint_dir": str(Path(folder) / "c"), **changes,
        }

    def rows(self, *records):
        """The tokens of each row."""
        key = json.dumps(records)
        if key not in self.known:
            self.known[key] = self.plan(records)
        return self.known[key]

    def plan(self, records):
        sources = [
            {"name": name, "lengths": [len(d) for d in documents]}
            for name, documents in zip(self.names, self.corpus.documents)
        ]
        limits = {name: {"max_epochs": 3} for name in self.names}
        stage = {**STAGE, "from": 0, "max_docs_per_row": 8, "limits": limits}
        stage["weight"] = {source["name"]: source["weight"] for source in self.corpus.sources}
        if self.deal:
            stage["deal"] = self.deal
        stream = {
            "seed": 7, "shuffle": "document", "long_doc": "split", "sources": sources,
            "stages": [stage],
            "records": [{"from": row, "weight": weights} for row, weights in records],
        }
        plan, rows = Plan(stream), []
        names = list(plan.calendar.numbers)
        while (row := plan.row()) is not None:
            rows.append([])
            for f in row.fragments:
                tokens = self.corpus.documents[self.names.index(names[f.source])][f.document]
                rows[-1] += tokens[f.offset : f.offset + f.length].tolist()
        return rows


def set_weights(program, engine, weights, step, status=0):
    """`ringpack weights`; what it prints."""
    words = [f"{name}={weight}" for name, weight in weights.items()]
    command = [program, "weights", "live", *words, "--at-step", str(step)]
    done = subprocess.run(
        [*command, "--run-dir", str(engine.folder)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status, (done.stdout, done.stderr, engine.log())
    return done.stdout if status == 0 else done.stderr


def take(turns, rows):
    """Compare the rows of these turns with the oracle's, and return their numbers."""
    seen = []
    for batches in turns:
        for batch in batches:
            base = batch._form.client.geometry.base_row
            step = base + (batch.first_row - base) // STEP_ROWS * STEP_ROWS
            tokens = sum(map(len, rows[step : step + STEP_ROWS]))
            assert batch.step_tokens == tokens, f"other tokens in the step of row {step}"
            for (row, _, count), ids in zip(batch["rows"].tolist(), batch["input_ids"]):
                expected = rows[row] if row < len(rows) else []
                assert ids[:count].tolist() == expected, f"other tokens in row {row}"
                seen.append(row)
    return seen
