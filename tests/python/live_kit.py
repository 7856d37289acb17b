# SPDX-License-Identifier: Apache-2.0
"""Streams of version 2 whose weights or documents change while the engine runs, and the rows of the
oracle."""

import json
import subprocess
from pathlib import Path

from stream2 import Plan
from stream_kit import Corpus

SEQ_LEN, STEP_ROWS = 48, 4
NEW = {"source-0": 1, "source-1": 4}
BEFORE, AFTER = 60, 90  # documents of source-0
GROWN = {"source-0": AFTER}
FILES = "0-1.bin", "0-1.idx"
STAGE = {"seq_len": SEQ_LEN, "packing": "lookahead", "window": 8, "fill": "pad", "spread": 4}


class LiveStream:
    """Two sources; `records` are [(row, weights)], or as the oracle has them. Live records give
    other weights, or of GrowingStream more documents."""

    verb, event, values, arguments = "weights", "weights", NEW, ["--accept-weights"]

    def __init__(self, folder, deal=None, counts=(60,)):
        layout = [("megatron", "u16", 3, list(counts)), ("megatron", "u16", 1, [40])]
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

    def start(self, engines, program, folder, *arguments, **changes):
        return engines(program, folder, self.config(folder, **changes), *self.arguments, *arguments)

    def prepare(self):
        """Before the first command."""

    def command(self, folder, step):
        """The words that record the change."""
        values = [f"{name}={value}" for name, value in self.values.items()]
        return [self.verb, "live", *values, "--at-step", str(step), "--run-dir", str(folder)]

    def change(self, program, engine, step, status=0):
        return set_weights(program, engine, self.values, step, status, self.verb)

    def entries(self, folder):
        """Its records in the run journal."""
        lines = (Path(folder) / "c" / "run-journal.jsonl").read_text().splitlines()
        return [entry for entry in map(json.loads, lines) if entry["event"] == self.event]

    def rows_from(self, *rows):
        """The tokens of each row; the values hold from each of `rows` on."""
        return self.rows(*((row, self.values) for row in rows))

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
            "records": [
                r if isinstance(r, dict) else {"from": r[0], "weight": r[1]} for r in records
            ],
        }
        plan, rows = Plan(stream), []
        names = list(plan.calendar.numbers)
        while (row := plan.row()) is not None:
            rows.append([])
            for f in row.fragments:
                tokens = self.corpus.documents[self.names.index(names[f.source])][f.document]
                rows[-1] += tokens[f.offset : f.offset + f.length].tolist()
        return rows


class GrowingStream(LiveStream):
    """The second shard of source-0 is away until prepare()."""

    verb, event, values, arguments = "grow", "documents", GROWN, []

    def __init__(self, folder, program):
        super().__init__(folder, counts=(BEFORE, AFTER - BEFORE))
        self.folder, self.program, self.away = Path(folder), program, Path(folder) / "away"
        self.away.mkdir()
        for name in FILES:
            (self.folder / name).rename(self.away / name)
        for number, source in enumerate(self.corpus.sources):
            source["shards"] = [str(self.folder / f"{number}-*.bin")]
        self.index()

    def config(self, folder, **changes):
        index = {"index": str(self.folder / "corpus.rpi"), "grow": False}
        return super().config(folder, **{**index, **changes})

    def index(self, status=0):
        path = self.folder / "index.yaml"
        path.write_text(json.dumps(self.config(self.folder)))
        command = [self.program, "index", "-q", "-c", str(path)]
        assert subprocess.run(command, capture_output=True).returncode == status

    def prepare(self):
        for name in FILES:
            (self.away / name).rename(self.folder / name)
        self.index()

    def rows_from(self, *rows):
        """The documents join at each of `rows`."""
        first = {"from": 0, "documents": {"source-0": BEFORE}}
        return self.rows(first, *({"from": row, "documents": GROWN} for row in rows))


def set_weights(program, engine, values, step, status=0, verb="weights"):
    """`ringpack weights`, or `grow`; what it prints."""
    words = [f"{name}={value}" for name, value in values.items()]
    command = [program, verb, "live", *words, "--at-step", str(step)]
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
            geometry = batch._form.client.geometry
            place = geometry.rank + batch.micro_batch * geometry.world
            step = batch.first_row - place * batch.batch_size
            tokens = sum(map(len, rows[step : step + STEP_ROWS]))
            assert batch.step_tokens == tokens, f"other tokens in the step of row {step}"
            for (row, _, count), ids in zip(batch["rows"].tolist(), batch["input_ids"]):
                expected = rows[row] if row < len(rows) else []
                assert ids[:count].tolist() == expected, f"other tokens in row {row}"
                seen.append(row)
    return seen
