# SPDX-License-Identifier: Apache-2.0
"""What others deliver of the same corpus, by classes (peers/peer_list.py).

Flow: every peer tries 0, 1 and 2 workers, and with the best number delivers an epoch that is looked
at (each token once, the right batch behind a saved state). Then come rounds: in a round of a class
ringpack runs, each member of the class runs with the number of workers that was best, and ringpack
runs again; the order of the members turns with the round. A ratio is taken within a round, between
the mean of ringpack's two runs and the member's one, so what the machine does strikes both.

A peer that cannot be installed, fails, or delivers something else is in the result by its name,
with the reason; the others go on.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from corpora.text_corpus import make_text_corpus
from corpora.token_corpus import make_corpus, make_index
from engine import Failed, summarise
from intervals import interval_of_median
from peer_list import ABSENT, CLASSES, OURS, PEERS

HERE = Path(__file__).resolve().parent.parent / "peers"
WORKERS = [0, 1, 2]
RESUME_SEQ_LEN = 512  # so that 16 M rows lie in 16 M documents
RESUMES = 3  # from each state
LIMIT_SECONDS = 60  # for one measurement
LOOKED_AT_TOKENS = 20_000_000  # of an epoch that is looked at, of documents as in the one task
ROUNDS_MAX = {"lognormal": 99, "text": 1}  # the second corpus shows whether the first is odd


class Peers:
    def __init__(self, bench, options):
        self.bench, self.settings = bench, bench.settings
        self.python, self.alone, self.names = options.python, options.alone, options.names
        self.seconds = options.seconds
        self.folder = Path(options.data).resolve() / "peers"
        self.folder.mkdir(exist_ok=True)
        size = self.settings["tokens"]
        self.corpora = {"lognormal": Path(make_corpus(options.data, size)).resolve()}
        few = make_corpus(options.data, min(size, LOOKED_AT_TOKENS))
        self.looked_at = {"lognormal": Path(few).resolve()}
        if options.text:
            self.corpora["text"] = self.looked_at["text"] = make_text_corpus(
                bench.program, options.data, self.settings["text_tokens"])
        self.failed = {}

    def _ask(self, tasks):
        """What each measurement found, by turns; None for one that failed, whose reason is kept."""
        environment = {**os.environ, "RINGPACK": self.bench.program,
                       "RINGPACK_LIBRARY": self.bench.library,
                       "RINGPACK_LIMITS": self.bench.limits_program, "PYTHONWARNINGS": "ignore"}
        common = ["--folder", self.folder, "--run-dir", self.bench.run_dir, "--seconds",
                  self.seconds, "--seq-len", self.settings["seq_len"]]
        tasks = [[str(word) for word in (*task[:2], *common, *task[2:])] for task in tasks]
        command = [*self.alone, self.python, HERE / "round.py", LIMIT_SECONDS]
        done = subprocess.run(list(map(str, command)), input=json.dumps(tasks), text=True,
                              capture_output=True, env=environment)
        if done.returncode:
            raise Failed(f"a round of {[task[0] for task in tasks]}: {done.stderr.strip()[-2000:]}")
        answers = json.loads(done.stdout.strip().splitlines()[-1])
        for task, answer in zip(tasks, answers):
            if "failed" in answer and not answer.get("slow"):
                self._drop(task[0], f"{task[1]}: {answer['failed']}")
        return [answer.get("found") for answer in answers]

    def _drop(self, name, reason):
        if PEERS[name].kind == "":
            raise Failed(f"{name}, {reason}")
        if name not in self.failed:
            print(f"  peers: {name} is left out: {reason}", file=sys.stderr)
            self.failed[name] = reason

    def _standing(self, kind=None):
        return [name for name in self.names if name not in self.failed
                and (kind is None or PEERS[name].kind == kind)]

    # ---- tokens a second -------------------------------------------------------------------------

    def _look_at(self, name):
        """An epoch of each corpus, and how many workers are best; None where it fails."""
        tried = WORKERS if PEERS[name].kind else [0]
        speed = (name, "speed", "--corpus", self.corpora["lognormal"], "--workers", *tried)
        rates, *epochs = self._ask([speed, *((name, "verify", "--corpus", corpus, "--workers",
                                              "best") for corpus in self.looked_at.values())])
        if rates is None or None in epochs:
            self._drop(name, f"it took more than {LIMIT_SECONDS} s")
            return None
        best = int(max(rates, key=rates.get))
        print(f"  peers: {name:18s} workers {best}", file=sys.stderr)
        return {"workers": best, "by_workers": rates, "epochs": dict(zip(self.corpora, epochs))}

    def _round(self, kind, corpus, entries, number):
        """{name: tokens a second of it, of ringpack around it}"""
        names = self._standing(kind)
        turn = number % len(names)
        order = [OURS[kind], *names[turn:], *names[:turn], OURS[kind]]
        rows = self._ask([(name, "speed", "--corpus", self.corpora[corpus], "--workers",
                           entries[name]["workers"]) for name in order])
        rates = [found and rate_of(found) * entries[name]["epochs"][corpus]["fill"]
                 * self.settings["seq_len"] for name, found in zip(order, rows)]
        if None in (rates[0], rates[-1]):
            raise Failed(f"{OURS[kind]} was not measured")
        ours = statistics.fmean((rates[0], rates[-1]))
        return {name: (rate, ours) for name, rate in zip(order[1:-1], rates[1:-1]) if rate}

    def speeds(self, save):
        entries = {}
        for name in self.names:
            entry = self._look_at(name)
            if entry:
                entries[name] = entry
        rounds = {(corpus, kind): [] for corpus in self.corpora for kind in CLASSES}
        for number in range(self.settings["repeats"]):
            for (corpus, kind), found in rounds.items():
                if self._standing(kind) and number < ROUNDS_MAX[corpus]:
                    found.append(self._round(kind, corpus, entries, number))
            print(f"  peers: round {number + 1}", file=sys.stderr)
            save(self._result(self._entries(rounds, entries), ratios(rounds), []))
        return self._entries(rounds, entries), ratios(rounds)

    def _entries(self, rounds, entries):
        members = [self._entry(name, corpus, entries[name], found)
                   for (corpus, kind), found in rounds.items() if found
                   for name in self._standing(kind)]
        return members + self._of_ringpack(rounds, entries)

    def _entry(self, name, corpus, entry, rounds):
        pairs = [found[name] for found in rounds if name in found]
        fill = self.settings["seq_len"] * entry["epochs"]["lognormal"]["fill"]
        return {"corpus": corpus, "name": name, "kind": PEERS[name].kind,
                "delivers": PEERS[name].delivers, "workers": entry["workers"],
                "by_workers": {w: rate * fill for w, rate in entry["by_workers"].items()},
                "tokens_per_second": summarise([rate for rate, _ in pairs]),
                "ringpack_per_this": with_interval([ours / rate for rate, ours in pairs]),
                **entry["epochs"][corpus]}

    def _of_ringpack(self, rounds, entries):
        """Its own entries: of each corpus and class in whose rounds it ran."""
        found = []
        for (corpus, kind), each in rounds.items():
            if each:
                name = OURS[kind]
                ours = [next(iter(pairs.values()))[1] for pairs in each]
                found.append({"corpus": corpus, "name": name, "kind": kind, "workers": 0,
                              "delivers": PEERS[name].delivers, "ours": True,
                              "tokens_per_second": summarise(ours),
                              **entries[name]["epochs"][corpus]})
        return found

    # ---- time to resume --------------------------------------------------------------------------

    def _resume(self, name, corpus, rows):
        options = ["--corpus", corpus, "--seq-len", RESUME_SEQ_LEN, "--repeated", "--state",
                   self.folder / "state"]
        made = self._ask([(name, "state", "--position", rows, *options)])
        entry = {"name": name, "kind": PEERS[name].kind, "rows": rows}
        if made == [None]:
            return None
        asked = [(name, "resume", *options)]
        first = self._ask(asked)
        if first == [None]:
            return {**entry, "process_ms": None, "more_than_ms": 1000 * LIMIT_SECONDS}
        few = first[0]["process_seconds"] > LIMIT_SECONDS / 10
        more = [] if few else self._ask(asked * (RESUMES - 1))
        times = [found for found in first + more if found]
        return {**entry, **{f"{key}_ms": summarise([1000 * found[f"{key}_seconds"]
                                                   for found in times])
                            for key in ("process", "load")}}

    def resumes(self):
        """By rows that lie behind. States so deep are made from one of the beginning, except those
        of ringpack, which plans up to the row."""
        corpus = make_index(self.folder.parent, self.settings["index_documents"]).resolve()
        entries = []
        for name in self._standing():
            for rows in self.settings["resume_rows"] if not PEERS[name].no_deep_resume else []:
                entry = self._resume(name, corpus, rows)
                if entry:
                    entries.append(entry)
        return entries

    # ---- how full the rows are -------------------------------------------------------------------

    def fills(self):
        """Of ringpack's ways to pack, by their plans; an epoch of the same corpora."""
        return {kind: {packing: self.bench.plan({
            "sources": corpus, "seq_len": self.settings["seq_len"], "packing": packing,
            "batch_size": self.settings["batch_size"], "num_epochs": 1,
        })["efficiency"] for packing in ("lookahead", "best_fit", "concat")}
            for kind, corpus in self.corpora.items()}

    def run(self, save):
        """Hand over what is found after each round, and at the end."""
        entries, found = self.speeds(save)
        save(self._result(entries, found, self.resumes()))

    def _result(self, entries, found, resumes):
        absent = [{"name": name, "kind": kind, "reason": reason}
                  for name, (kind, reason) in ABSENT.items()]
        return {"speed": entries, "ratios": found, "resume": resumes, "fills": self.fills(),
                "failed": absent + [{"name": name, "kind": PEERS[name].kind, "reason": reason}
                                    for name, reason in self.failed.items()],
                "no_deep_resume": {name: PEERS[name].no_deep_resume for name in self._standing()
                                   if PEERS[name].no_deep_resume},
                "versions": versions()}


def rate_of(found):
    (rate,) = found.values()
    return rate


def versions():
    """Of what is compared; what it needs besides is left out."""
    lists = [(HERE / name).read_text().split("\n# needed")[0].splitlines()
             for name in ("requirements.txt", "requirements-alone.txt")]
    return [line for lines in lists for line in lines if "==" in line]


def with_interval(values):
    return {"median": statistics.median(values), "interval": interval_of_median(values),
            "values": values}


def ratios(rounds):
    """ringpack over the best member of a class within each round, by corpus and class. A class
    nobody was measured of has none."""
    found = []
    for (corpus, kind), each in rounds.items():
        if not each:
            continue
        best = [max(pairs.items(), key=lambda pair: pair[1][0]) for pairs in each]
        names = [name for name, _ in best]
        found.append({"corpus": corpus, "kind": kind, "ours": OURS[kind],
                      "best": max(set(names), key=names.count),
                      **with_interval([ours / rate for _, (rate, ours) in best])})
    return found
