# SPDX-License-Identifier: Apache-2.0
"""What others deliver of the same corpus: each peer in a process of its own (peers/measure.py).

Workers are tried from 0 to 2 in the first round; the later ones, and the text, go on with the best.
A round runs every peer and ringpack once, and ratios are taken within it. Before a peer counts, a
whole epoch of it is looked at: every token once, and the right batch behind a saved state.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from corpora.token_corpus import make_index
from engine import Failed, summarise
from corpora.text_corpus import make_text_corpus

HERE = Path(__file__).resolve().parent.parent / "peers"
PYTHON = HERE.parent.parent / "build" / "peers-venv" / "bin" / "python"
NAMES = ["grain first-fit", "grain best-fit", "grain concat", "streaming", "litdata",
         "torchdata packed", "torchdata windows", "megatron", "ringpack min", "ringpack grain"]
OTHERS = [name for name in NAMES if not name.startswith("ringpack")]
DELIVERS = {
    "grain first-fit": "whole documents; ids, segments, positions",
    "grain best-fit": "whole documents; ids, segments, positions",
    "grain concat": "documents cut at row ends; ids, segments, positions",
    "streaming": "no packing: windows cut before; ids",
    "litdata": "no packing: windows cut before; ids",
    "torchdata packed": "whole documents; ids, positions",
    "torchdata windows": "no packing: windows cut before; ids",
    "megatron": "documents cut at row ends; ids, labels, loss mask, positions",
    "ringpack min": "whole documents; ids, cu_seqlens",
    "ringpack grain": "whole documents; ids, segments, positions",
}
WORKERS = [0, 1, 2]
RESUME_SEQ_LEN = 512  # so that 16 M rows lie in 16 M documents
RESUME_LIMIT_SECONDS = 60
SLOW_SECONDS = 2  # of a resume: measured once only
ROUNDS_MAX = 3


class Slow(Exception):
    """It took longer than it may."""


class Peers:
    def __init__(self, bench, quick):
        subprocess.run([HERE / "setup"], check=True)
        self.bench, self.quick, self.settings = bench, quick, bench.settings
        self.folder = Path(self.settings["corpus"]).resolve().parent / "peers"
        self.folder.mkdir(exist_ok=True)
        self.seconds = 1 if quick else 2
        text = make_text_corpus(bench.program, self.folder.parent,
                                10_000_000 if quick else 30_000_000)
        self.corpora = {"lognormal": Path(self.settings["corpus"]).resolve(), "text": text}

    def _measure(self, name, action, corpus, *options, limit=600):
        environment = {**os.environ, "RINGPACK": self.bench.program,
                       "RINGPACK_LIBRARY": self.bench.library,
                       "RINGPACK_LIMITS": self.bench.limits_program, "PYTHONWARNINGS": "ignore"}
        command = [PYTHON, HERE / "measure.py", name, action, "--corpus", corpus, "--folder",
                   self.folder, "--run-dir", self.bench.run_dir, *map(str, options)]
        begun = ["--begun", repr(time.monotonic())]
        try:
            done = subprocess.run([*command, *begun], capture_output=True, text=True,
                                  timeout=limit, env=environment)
        except subprocess.TimeoutExpired as error:
            raise Slow(f"{name}, {action}: more than {limit} s") from error
        if done.returncode:
            raise Failed(f"{name}, {action}: {done.stderr.strip()[-2000:]}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    # ---- tokens a second -------------------------------------------------------------------------

    def _slots_per_second(self, name, corpus, workers):
        """By number of workers; padding counts."""
        found = self._measure(name, "speed", corpus, "--seconds", self.seconds, "--workers",
                              *workers)
        return {int(w): rows * self.settings["seq_len"] for w, rows in found.items()}

    def _first_round(self, kind, name, tried):
        """Try numbers of workers, verify what the best deliver."""
        corpus = self.corpora[kind]
        rates = self._slots_per_second(name, corpus, tried)
        best = max(rates, key=rates.get)
        epoch = self._measure(name, "verify", corpus, "--workers", best)
        print(f"  peers: {kind:9s} {name:18s} workers {best}, "
              f"{rates[best] * epoch['fill'] / 1e6:8.1f} Mtok/s", file=sys.stderr)
        return {"corpus": kind, "name": name, "delivers": DELIVERS[name], "workers": best,
                "by_workers": {w: rate * epoch["fill"] for w, rate in rates.items()},
                "values": [rates[best] * epoch["fill"]], **epoch}

    def speeds(self, rounds):
        turning = [self._first_round("lognormal", name, WORKERS if name in OTHERS else [0])
                   for name in NAMES]
        entries = turning + [self._first_round("text", entry["name"], [entry["workers"]])
                             for entry in turning]
        for turn in range(1, min(rounds, ROUNDS_MAX)):
            for entry in turning[turn:] + turning[:turn]:
                rates = self._slots_per_second(entry["name"], self.corpora[entry["corpus"]],
                                               [entry["workers"]])
                entry["values"].append(rates[entry["workers"]] * entry["fill"])
        for entry in entries:
            entry["tokens_per_second"] = summarise(entry.pop("values"))
        return entries

    # ---- time to resume --------------------------------------------------------------------------

    def _resume(self, name, corpus, rows):
        state = self.folder / "state"
        options = ["--seq-len", RESUME_SEQ_LEN, "--state", state, "--repeated"]
        self._measure(name, "state", corpus, "--position", rows, *options)
        entry = {"name": name, "rows": rows, "process_ms": [], "load_ms": []}
        for _ in range(self.settings["repeats"]):
            try:
                found = self._measure(name, "resume", corpus, *options,
                                      limit=RESUME_LIMIT_SECONDS)
            except Slow:
                return {**entry, "process_ms": None, "load_ms": None,
                        "more_than_ms": 1000 * RESUME_LIMIT_SECONDS}
            entry["process_ms"].append(1000 * found["process_seconds"])
            entry["load_ms"].append(1000 * found["load_seconds"])
            if found["process_seconds"] > SLOW_SECONDS:
                break
        return {**entry, "process_ms": summarise(entry["process_ms"]),
                "load_ms": summarise(entry["load_ms"])}

    def resumes(self):
        """By rows that lie behind. States so deep are made from one of the beginning, except those
        of ringpack, which plans up to the row."""
        corpus = make_index(self.folder.parent, self.settings["index_documents"]).resolve()
        entries = []
        for name in NAMES:
            for rows in self.settings["resume_rows"]:
                entry = self._resume(name, corpus, rows)
                entries.append(entry)
                shown = entry["process_ms"] and f"{entry['process_ms']['median']:.0f} ms"
                print(f"  peers: resume {name:18s} {rows:11,d} rows  {shown or 'too long'}",
                      file=sys.stderr)
        return entries

    # ---- how full the rows are -------------------------------------------------------------------

    def fills(self):
        """Of ringpack's ways to pack, by their plans; an epoch of the same corpora."""
        return {kind: {packing: self.bench.plan({
            **self.bench.task(), "sources": corpus, "packing": packing, "num_epochs": 1,
        })["efficiency"] for packing in ("lookahead", "best_fit", "concat")}
            for kind, corpus in self.corpora.items()}

    def run(self):
        entries = self.speeds(self.settings["repeats"])
        lists = [(HERE / name).read_text().split("\n# needed")[0].splitlines()
                 for name in ("requirements.txt", "requirements-alone.txt")]
        versions = [line for lines in lists for line in lines if "==" in line]
        return {"speed": entries, "resume": self.resumes(), "ratios": ratios(entries),
                "fills": self.fills(), "versions": versions}


def ratios(entries):
    """ringpack over the best of the others, within each round: by corpus, of those that pack whole
    documents as it does, and of any."""
    found = {}
    for kind in dict.fromkeys(entry["corpus"] for entry in entries):
        ours, packers, others = None, [], []
        for entry in (entry for entry in entries if entry["corpus"] == kind):
            values = entry["tokens_per_second"]["values"]
            if entry["name"] == "ringpack grain":
                ours = values
            elif not entry["name"].startswith("ringpack"):
                others.append(values)
                if entry["delivers"].startswith("whole"):
                    packers.append(values)
        for name, rivals in ("whole documents", packers), ("any", others):
            each = [mine / max(theirs) for mine, theirs in zip(ours, zip(*rivals))]
            found[f"{kind}, {name}"] = statistics.median(each)
    return found
