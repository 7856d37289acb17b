# SPDX-License-Identifier: Apache-2.0
"""The delivery of other loaders from the same corpus, by classes (peers/peer_list.py).

Flow: every peer tries 0, 1 and 2 workers, and with the best number delivers an epoch that is
checked (each token once, the right batch after a saved state). Then come rounds: in each of a class
ringpack runs, each member of the class runs with the number of workers that was best, and ringpack
runs again; the order of the members turns with the round. A ratio is taken within a round, between
the mean of ringpack's two runs and the member's one, so the machine's load strikes both.

A peer that cannot be installed, fails, or delivers something else is in the result by its name,
with the reason; the others continue.
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
RESUME_SEQ_LEN = 512  # so that 16 M rows are in 16 M documents
RESUMES = 3  # from each state
LIMIT_SECONDS = 200  # for one measurement
LOOKED_AT_TOKENS = 20_000_000  # in a checked epoch, with documents as in the one task
RESUMED_AT_ONCE = 4  # peers in one piece of time
PIECE_SECONDS = 55


class Peers:
    def __init__(self, bench, options):
        self.bench, self.settings = bench, bench.settings
        self.python, self.names = options.python, options.names
        self.alone, self.beside = options.alone, options.beside
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
        self.failed, self.epochs = {}, {}
        self.workers, self.by_workers = {}, {}  # by corpus and name

    def _run(self, program, given, *options, prefix=()):
        """A program of the peers' folder; `prefix` is the command that runs it alone, or with
        others."""
        environment = {**os.environ, "RINGPACK": self.bench.program,
                       "RINGPACK_LIBRARY": self.bench.library,
                       "RINGPACK_LOOP": self.bench.loop_program, "PYTHONWARNINGS": "ignore"}
        command = [*prefix, self.python, HERE / program, *options]
        done = subprocess.run(list(map(str, command)), input=json.dumps(given), text=True,
                              capture_output=True, env=environment)
        if done.returncode:
            raise Failed(f"{program}: {done.stderr.strip()[-2000:]}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    def _arguments(self, name, corpus):
        return [name, "--corpus", str(self.corpora[corpus]), *self._common()]

    def _common(self):
        return ["--folder", str(self.folder), "--run-dir", str(self.bench.run_dir), "--seq-len",
                str(self.settings["seq_len"])]

    def _ask(self, tasks, prefix):
        """The values of each measurement, by turns; None for one that failed, whose reason is
        kept."""
        tasks = [[str(word) for word in (*task[:2], *self._common(), *task[2:])] for task in tasks]
        answers = self._run("round.py", tasks, LIMIT_SECONDS, prefix=prefix)
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

    def _look(self, names):
        """{name: {corpus: what an epoch of it is like}} of the peers with a right delivery."""
        tasks = [(name, corpus) for name in names for corpus in self.looked_at]
        answers = self._ask([(name, "verify", "--corpus", self.looked_at[corpus], "--workers",
                              self.workers.get((corpus, name), 0)) for name, corpus in tasks],
                            self.beside)
        found = {}
        for (name, corpus), answer in zip(tasks, answers):
            if answer is None:
                self._drop(name, f"an epoch took more than {LIMIT_SECONDS} s")
            else:
                found.setdefault(name, {})[corpus] = answer
        return {name: epochs for name, epochs in found.items() if name not in self.failed}

    def _piece(self, kind, corpus, rounds):
        """Some more rounds of a class, as many as fit into one piece of time."""
        names = self._standing(kind)
        found = self._run("rounds.py", {
            "ours": self._arguments(OURS[kind], corpus), "tried": WORKERS,
            "members": [self._arguments(name, corpus) for name in names],
            "workers": {name: self.workers[corpus, name] for name in names
                        if (corpus, name) in self.workers},
            "seconds": self.seconds, "budget": PIECE_SECONDS, "first": len(rounds),
            "most": self.settings["repeats"] - len(rounds)}, prefix=self.alone)
        for name, reason in found["failed"].items():
            self._drop(name, reason)
        for name, rates in found["by_workers"].items():
            self.by_workers[corpus, name] = rates
            self.workers[corpus, name] = int(max(rates, key=rates.get))
        rounds += found["rounds"]
        print(f"  peers: {len(rounds)} rounds of {corpus}, {kind}", file=sys.stderr)

    def speeds(self, save):
        rounds = {(corpus, kind): [] for corpus in self.corpora for kind in CLASSES}
        for (corpus, kind), found in rounds.items():
            if self._standing(kind):
                self._piece(kind, corpus, found)
        self.epochs = self._look(self._standing())
        while self._lacking(rounds):
            save(self._result(rounds, []))
            for kind, corpus, found in self._lacking(rounds):
                self._piece(kind, corpus, found)
        return rounds

    def _lacking(self, rounds):
        return [(kind, corpus, found) for (corpus, kind), found in rounds.items()
                if self._standing(kind) and len(found) < self.settings["repeats"]]

    def _entries(self, rounds):
        members = [self._entry(name, corpus, found)
                   for (corpus, kind), found in rounds.items() if found
                   for name in self._standing(kind)]
        return members + self._of_ringpack(rounds)

    def _entry(self, name, corpus, rounds):
        pairs = [found[name] for found in rounds if name in found]
        epoch, ours = self.epochs[name][corpus], self.epochs[OURS[PEERS[name].kind]][corpus]
        tokens, better = epoch["fill"] * self.settings["seq_len"], ours["fill"] / epoch["fill"]
        return {"corpus": corpus, "name": name, "kind": PEERS[name].kind,
                "delivers": PEERS[name].delivers, "workers": self.workers[corpus, name],
                "by_workers": {workers: rate * tokens for workers, rate
                               in self.by_workers[corpus, name].items()},
                "tokens_per_second": summarise([rate * tokens for rate, _ in pairs]),
                "ringpack_per_this": with_interval([better * mine / rate for rate, mine in pairs]),
                **epoch}

    def _of_ringpack(self, rounds):
        """Its own entries: of each corpus and class in whose rounds it ran."""
        found = []
        for (corpus, kind), each in rounds.items():
            rates = [next(iter(pairs.values()))[1] for pairs in each if pairs]
            if rates:
                name = OURS[kind]
                epoch = self.epochs[name][corpus]
                tokens = epoch["fill"] * self.settings["seq_len"]
                found.append({"corpus": corpus, "name": name, "kind": kind, "workers": 0,
                              "delivers": PEERS[name].delivers, "ours": True,
                              "tokens_per_second": summarise([rate * tokens for rate in rates]),
                              **epoch})
        return found

    def _in_tokens(self, rounds):
        """Rounds of rows a second, in real tokens a second."""
        size = self.settings["seq_len"]
        return {(corpus, kind): [{
            name: (rate * size * self.epochs[name][corpus]["fill"],
                   ours * size * self.epochs[OURS[kind]][corpus]["fill"])
            for name, (rate, ours) in pairs.items() if name not in self.failed} for pairs in each]
            for (corpus, kind), each in rounds.items()}

    # ---- time to resume --------------------------------------------------------------------------

    def _resume(self, names, corpus, rows):
        """Of several peers: their states, then the resumes by turns."""
        options = {name: ["--corpus", corpus, "--seq-len", RESUME_SEQ_LEN, "--repeated", "--state",
                          self.folder / f"state-{name.replace(' ', '-')}"] for name in names}
        states = [(name, "state", *options[name], "--position", rows) for name in names]
        resumes = [(name, "resume", *options[name]) for name in names] * RESUMES
        self._ask(states, self.beside)
        answers = self._ask(resumes, self.alone)
        return [self._resume_entry(name, rows, answers[at :: len(names)])
                for at, name in enumerate(names) if name not in self.failed]

    def _resume_entry(self, name, rows, found):
        entry = {"name": name, "kind": PEERS[name].kind, "rows": rows}
        if None in found:
            return {**entry, "process_ms": None, "more_than_ms": 1000 * LIMIT_SECONDS}
        return {**entry, **{f"{key}_ms": summarise([1000 * each[f"{key}_seconds"]
                                                   for each in found])
                            for key in ("process", "load")}}

    def resumes(self, save, rounds):
        """By rows before the state. States so deep are made from one of the beginning, except
        ringpack's, which plans up to the row."""
        corpus = make_index(self.folder.parent, self.settings["index_documents"]).resolve()
        names = [name for name in self._standing() if not PEERS[name].no_deep_resume]
        entries = []
        for rows in self.settings["resume_rows"]:
            for first in range(0, len(names), RESUMED_AT_ONCE):
                entries += self._resume(names[first : first + RESUMED_AT_ONCE], corpus, rows)
                save(self._result(rounds, entries))

    # ---- how full the rows are -------------------------------------------------------------------

    def fills(self):
        """Of ringpack's ways to pack, by their plans; an epoch of the same corpora."""
        return {kind: {packing: self.bench.plan({
            "sources": corpus, "seq_len": self.settings["seq_len"], "packing": packing,
            "batch_size": self.settings["batch_size"], "num_epochs": 1,
        })["efficiency"] for packing in ("lookahead", "best_fit", "concat")}
            for kind, corpus in self.corpora.items()}

    def run(self, save):
        """Hand over each value as it comes."""
        rounds = self.speeds(save)
        save(self._result(rounds, []))
        self.resumes(save, rounds)

    def _result(self, rounds, resumes):
        absent = [{"name": name, "kind": kind, "reason": reason}
                  for name, (kind, reason) in ABSENT.items()]
        rounds = {key: [pairs for pairs in each if pairs] for key, each in rounds.items()}
        return {"speed": self._entries(rounds), "ratios": ratios(self._in_tokens(rounds)),
                "resume": resumes, "fills": self.fills(),
                "failed": absent + [{"name": name, "kind": PEERS[name].kind, "reason": reason}
                                    for name, reason in self.failed.items()],
                "no_deep_resume": {name: PEERS[name].no_deep_resume for name in self._standing()
                                   if PEERS[name].no_deep_resume},
                "versions": versions()}


def versions():
    """The versions of the compared packages, without their dependencies."""
    lists = [(HERE / name).read_text().split("\n# needed")[0].splitlines()
             for name in ("requirements.txt", "requirements-alone.txt")]
    return [line for lines in lists for line in lines if "==" in line]


def with_interval(values):
    return {"median": statistics.median(values), "interval": interval_of_median(values),
            "values": values}


def ratios(rounds):
    """ringpack over the best member of a class within each round, by corpus and class. A class
    without a measured member has none."""
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
