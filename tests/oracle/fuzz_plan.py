#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Differential fuzz: random specs, the engine's plan (through plan_dump) against the oracle.

    fuzz_plan.py [--seed N] [--cases K] [--first I] [--dump PATH]

Each case compares every row, the state token before every row, the counts and the digest; then it
resumes the engine from the oracle's token at random rows, also with other epochs and weights.
Every fourth
case has one dimension at an end of its range. Case I of a seed is always the same; one that
differs is kept as a spec and named, and the exit status is 1.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from oracle import make_spec
from state import identity, load_token, row_digest, save_token
from stream import FILL, LONG_DOC, PACKING, SHUFFLE, Plan, count_rows

ROWS_OF_ENDLESS = 60


def random_length(rng, L, kind):
    if kind == "zeros" and rng.random() < 0.6:
        return 0
    if kind == "full":
        return L if rng.random() < 0.95 else rng.randint(1, L)
    if kind == "coarse":
        return rng.choice([L // 2, (L - 1) // 2, L // 3, L // 4, 3, 2, L])
    if kind == "short":
        return rng.randint(0, max(1, L // 8))
    if kind == "long":
        return rng.randint(0, 5 * L)
    return min(int(rng.lognormvariate(0, 1.2) * L / 2), 20 * L)


def random_inputs(rng):
    L = rng.choice([1, 2, 7, 16, 64, 100, 256])
    lanes = rng.choice([1, 1, 1, 2, 3, 5])
    inputs = {
        "seed": hex(rng.getrandbits(64)),
        "seq_len": L,
        "shuffle": rng.choice(list(SHUFFLE)),
        "packing": rng.choice(list(PACKING)),
        "window": rng.choice([1, 2, 3, 8, 20, 64, 150]),
        "fill": rng.choice(list(FILL)),
        "long_doc": rng.choice(list(LONG_DOC)),
        "max_docs_per_row": rng.choice([1, 2, 3, 8, L, L, L]),
        "lanes": lanes,
        "num_epochs": rng.choice([0, 1, 1, 2, 3]),
        "block_documents": rng.choice([1, 2, 3, 7]),
        "window_blocks": rng.choice([1, 2, 5, 100]),
        "corpus_sampled": "%032x" % rng.getrandbits(128),
        "corpus_full": "%032x" % rng.choice([0, rng.getrandbits(128)]),
        "sources": [],
    }
    inputs["max_docs_per_row"] = min(inputs["max_docs_per_row"], L)
    B = inputs["block_documents"] if inputs["shuffle"] == "block" else 1
    for _ in range(rng.choice([1, 1, 2, 3, 6])):
        least = (lanes - 1) * B + 1  # so that every lane has a unit
        documents = least + rng.choice([0, 1, 2, 10, 50, 120])
        kind = rng.choice(["zeros", "full", "coarse", "short", "long", "lognormal", "lognormal"])
        lengths = [min(random_length(rng, L, kind), 20 * L) for _ in range(documents)]
        if inputs["long_doc"] != "split" and rng.random() < 0.2:
            lengths[rng.randrange(documents)] = rng.getrandbits(60)
        if inputs["num_epochs"] == 0:  # every lane always finds a document that it may deliver
            most = L if inputs["long_doc"] == "drop" else 20 * L
            lengths = [n if 0 < n <= most else rng.randint(1, L) for n in lengths]
        for lane in range(lanes):  # the engine refuses to read a lane again and again in vain
            if all(n == 0 or n > L for n in lengths[lane::lanes]):
                lengths[lane] = rng.randint(1, L)
        weight = rng.choice([1, 1, 2, 3, 1000, rng.randint(1, 2**32 - 1)])
        inputs["sources"].append({"weight": weight, "lengths": lengths})
    return inputs


def stretch(rng, inputs):
    """Take one dimension of the inputs to an end of its range."""
    L, sources = inputs["seq_len"], inputs["sources"]
    kind = rng.choice(["seed", "weights", "blocks", "ends", "lone", "giants", "sources", "lanes"])
    if kind == "seed":
        inputs["seed"] = hex(rng.choice([0, 2**32 - 1, 2**32, 2**63, 2**64 - 1]))
    elif kind == "weights":
        for source in sources:
            source["weight"] = rng.choice([1, 2**32 - 2, 2**32 - 1])
    elif kind == "blocks":
        inputs["shuffle"], inputs["lanes"] = "block", 1
        inputs["block_documents"] = rng.choice([1, 63, 64, 65, 2**31, 2**32 - 1])
        inputs["window_blocks"] = rng.choice([1, 2, 2**31, 2**32 - 1])
    elif kind == "ends" and inputs["num_epochs"] > 0:
        nothing = [0] * inputs["lanes"] * rng.choice([1, 60, 64, 65, 130])
        for source in sources:
            source["lengths"] = nothing + source["lengths"] + nothing
    elif kind == "lone":
        inputs["lanes"] = 1
        for source in sources:
            source["lengths"] = [rng.choice([1, L, max(1, L - 1)])]
    elif kind == "giants" and inputs["long_doc"] == "split":
        inputs["num_epochs"] = 0
        for source in sources:
            giants = [2**31 - 1, 2**31, 2**32 - 1, 2**32 + 1, 2**33 * L, 2**55 + 1]
            source["lengths"] = [rng.choice([max(1, n)] * 6 + giants) for n in source["lengths"]]
    elif kind == "sources":
        inputs["lanes"], inputs["num_epochs"] = 1, 0
        inputs["sources"] = [
            {"weight": rng.randint(1, 2**32 - 1), "lengths": [rng.randint(1, L)]}
            for _ in range(rng.choice([64, 200]))
        ]
    elif kind == "lanes":
        inputs["lanes"] = rng.choice([64, 99])
        inputs["num_epochs"], inputs["block_documents"] = 0, 1
        inputs["window"] = min(inputs["window"], 8)
        sources[:] = sources[:1]
        sources[0]["lengths"] = [rng.randint(1, L) for _ in range(inputs["lanes"] + 9)]


def oracle_lines(inputs, token=None, rows=None):
    """The expected output of plan_dump: a list of rows, then the summary."""
    spec = make_spec(inputs)

    def start():
        plan = Plan(spec)
        if token is not None:
            load_token(plan, token)
        return plan

    N, plan, lines, digest = count_rows(start()), start(), [], 0
    end = plan.next_row + (ROWS_OF_ENDLESS if rows is None else rows) if N is None else N
    while plan.next_row < end:
        line = {"row": plan.next_row, "state": save_token(plan).hex()}
        row = plan.row()
        line["fragments"] = [list(fragment) for fragment in row]
        lines.append(line)
        digest = (digest + row_digest(spec, line["row"], row)) % 2**128
    summary = {"next_row": plan.next_row, "N": N, "counts": plan.counts()}
    summary["state"], summary["digest"] = save_token(plan).hex(), "%032x" % digest
    summary["identity"] = identity(spec)
    return lines + [summary]


class Engine:
    def __init__(self, dump, folder):
        self.dump, self.folder = dump, folder

    def lines(self, inputs, token=None, accept_weights=False):
        """The parsed output of plan_dump, or its complaint in a list of one."""
        command = [self.dump, "--spec", self.keep("spec.json", json.dumps(inputs).encode())]
        command += ["--states", "--digest"]
        if inputs["num_epochs"] == 0:
            command += ["--rows", str(ROWS_OF_ENDLESS)]
        if token is not None:
            command += ["--from-token", self.keep("token", token)]
        if accept_weights:
            command += ["--accept-weights"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired:
            return ["plan_dump took more than 60 s"]
        if done.returncode != 0:
            return ["plan_dump: exit %d: %s" % (done.returncode, done.stderr.strip()[-2000:])]
        return [json.loads(line) for line in done.stdout.splitlines()]

    def keep(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(content)
        return path


def first_difference(expected, found):
    """Where two outputs part, in a line; None when they are equal."""
    for want, have in zip(expected, found):
        if isinstance(have, str):
            return have
        for key in want:
            if want[key] != have.get(key):
                where = "row %d" % want["row"] if "row" in want else "summary"
                return "%s, %s: expected %s, found %s" % (where, key, want[key], have.get(key))
    if len(expected) != len(found):
        return "expected %d lines, found %d" % (len(expected), len(found))
    return None


def as_older(inputs, token):
    """The token that a release without plan digests wrote in this place."""
    plan = Plan(make_spec(inputs))
    load_token(plan, token)
    plan.digest = None
    return save_token(plan)


def check_epochs(engine, rng, inputs, states):
    """Continue with more or fewer epochs, twice; also from the end of the stream."""
    most = max(sum(source["lengths"]) for source in inputs["sources"])
    for _ in range(2 if most < 2000 * inputs["seq_len"] else 0):
        token = bytes.fromhex(rng.choice(states + states[-1:]))
        before = inputs["num_epochs"]
        inputs["num_epochs"] = rng.choice([before + 1, before + 2, max(1, before - 1), 1])
        try:
            expected = oracle_lines(inputs, token)
        except ValueError as refusal:
            found = engine.lines(inputs, token)
            if "num_epochs differs" not in str(found[0]):
                return "%s, but the engine: %s" % (refusal, str(found[0])[:200])
            return None
        difference = first_difference(expected, engine.lines(inputs, token))
        if difference:
            return "%d epochs in the place of %d: %s" % (inputs["num_epochs"], before, difference)
        states = [line["state"] for line in expected]
    return None


def check_case(engine, rng, inputs):
    """None, or the difference."""
    expected = oracle_lines(inputs)
    difference = first_difference(expected, engine.lines(inputs))
    if difference:
        return "from row 0: " + difference
    for turn in range(2):
        token = bytes.fromhex(rng.choice(expected)["state"])
        if turn == 1:
            token = as_older(inputs, token)
        accept_weights = rng.random() < 0.5  # no change when the weights are the same
        found = engine.lines(inputs, token, accept_weights)
        difference = first_difference(oracle_lines(inputs, token), found)
        if difference:
            return "resumed, accept_weights %s: %s" % (accept_weights, difference)
    states = [line["state"] for line in expected]
    difference = check_epochs(engine, rng, json.loads(json.dumps(inputs)), states)
    if difference:
        return "resumed with other epochs: " + difference
    for source in inputs["sources"]:
        source["weight"] = rng.randint(1, 9)
    found = engine.lines(inputs, token, accept_weights=True)
    difference = first_difference(oracle_lines(inputs, token), found)
    return "resumed with other weights: " + difference if difference else None


def fuzz(dump, seed, first, cases):
    """Number of cases that differ."""
    differing = 0
    with tempfile.TemporaryDirectory(prefix="rp-fuzz-") as folder:
        engine = Engine(dump, folder)
        for case in range(first, first + cases):
            rng = random.Random("%d/%d" % (seed, case))
            inputs = random_inputs(rng)
            if case % 4 == 3:
                stretch(rng, inputs)
            original = json.dumps(inputs)
            difference = check_case(engine, rng, inputs)
            if difference is None:
                continue
            differing += 1
            kept = "fuzz-%d-%d.json" % (seed, case)
            with open(kept, "w") as file:
                file.write(original)
            print("seed %d case %d (%s): %s" % (seed, case, kept, difference), flush=True)
    return differing


def main():
    parser = argparse.ArgumentParser(description="compare engine and oracle on random specs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument(
        "--dump", default=os.path.join(os.environ.get("RP_BIN_DIR", "."), "plan_dump")
    )
    options = parser.parse_args()
    differing = fuzz(options.dump, options.seed, options.first, options.cases)
    print("seed %d: %d cases, %d differ" % (options.seed, options.cases, differing))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
