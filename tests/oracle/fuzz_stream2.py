#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Differential fuzz of stream version 2: random streams, the engine's plan (through stream2_dump)
against the oracle.

    fuzz_stream2.py [--first I] [--cases K] [--dump PATH] [--plain]

Case I is always the same. It compares rows, state tokens, ledgers, contract and identity from row
0; then it resumes from tokens at random rows, with the same stream and with an edited one. A case
that differs is named with its stream, made smaller, and the exit status is 1.
"""

import argparse
import copy
import random
import sys

from stream2_calendar import reduce_weights
from stream2_calendar import reduce_weights
from stream2_engine import Engine, default_dump, oracle_run, record_lines
from stream2_random import random_stream
from stream2_rich import edit_stream, rich_stream
from stream2_state import Token

ROWS, ROWS_AFTER = 30, 9


def first_difference(expected, found):
    """Where two answers part, in a line; None if they are equal."""
    if "crashed" in found:
        return found["error"]
    if "rows" not in expected or "rows" not in found:
        if ("rows" in expected) == ("rows" in found):
            return None
        return "oracle: %s, engine: %s" % tuple(
            answer.get("error", "accepted") for answer in (expected, found)
        )
    for key in ("contract", "identity"):
        if expected[key] != found.get(key):
            return lines_that_differ(key, expected[key], str(found.get(key)))
    for i, (want, have) in enumerate(zip(expected["rows"], found["rows"])):
        for key in want:
            if key == "ledger":
                have["ledger"] = have["ledger"][: len(want["ledger"])]
            if want[key] != have.get(key):
                return "row %d of the run: %s" % (i, difference_of(key, want, have, found))
        if "end" in have and "end" not in want:
            return "row %d of the run: the engine ends" % i
    if ("error" in expected) != ("error" in found) or len(expected["rows"]) != len(found["rows"]):
        errors = [answer.get("error") for answer in (expected, found)]
        rows = [len(answer["rows"]) for answer in (expected, found)]
        return "oracle: %s after %d, engine: %s after %d" % (errors[0], rows[0], errors[1], rows[1])
    return None


def difference_of(key, want, have, found):
    if have.get(key) is None:
        return "%s is missing: %s" % (key, found.get("error"))
    if key == "token":
        return difference_of_tokens(want[key], have[key])
    return "%s: expected %s, found %s" % (key, want[key], have[key])


def lines_that_differ(key, expected, found):
    lines = [set(text.splitlines()) for text in (expected, found)]
    sides = (sorted(lines[0] - lines[1]), sorted(lines[1] - lines[0]))
    return "%s: expected %s, found %s" % (key, *sides)


def fields_of(token):
    """The fields of a token, by name."""
    state, header = token.state, vars(token)
    fields = {name: header[name] for name in "seed g p e chain_a chain_b skips fixed".split()}
    fields |= {name: vars(state)[name] for name in "rows digest pool_row X stopped count".split()}
    fields["fifo"], fields["history"] = state.fifo, token.history
    fields["pool"] = [vars(entry) for entry in state.pool]
    fields["open"] = [vars(row) for row in state.open]
    fields["sources"] = [(vars(own), was) for own, was in token.sources]
    return fields


def difference_of_tokens(expected, found):
    try:
        want, have = (fields_of(Token(bytes.fromhex(text))) for text in (expected, found))
    except Exception as refusal:  # whatever it is, the engine wrote it
        return "token: not readable: %s" % refusal
    for name in want:
        if want[name] != have[name]:
            return "token, %s: expected %s, found %s" % (name, want[name], have[name])
    pairs = zip(bytes.fromhex(expected), bytes.fromhex(found))
    return "token: the first byte that differs is %d" % next(
        i for i, (a, b) in enumerate(pairs) if a != b
    )


def compare_runs(engine, stream):
    """From row 0. Gives the difference, the oracle's answer and its plan."""
    rows = stream.get("rows", ROWS)
    expected, plan = oracle_run(stream, rows)
    return first_difference(expected, engine.run(stream, rows)), expected, plan


def compare_resumes(engine, rng, stream, expected, plan):
    """Continue at random rows, also with edits, and from tokens of the edited stream."""
    for edited in (False, True, True):
        g = rng.randrange(len(expected["rows"]))
        token = expected["rows"][g]["token"]
        row = Token(bytes.fromhex(token)).g
        other, weights, edits = (stream, None, [])
        if edited:
            other, weights, edits = edit_stream(rng, stream, row)
        difference, after, again = compare_resume(
            engine, other, token, expected["contract"], plan, weights, rng.random() < 0.8
        )
        where = "resumed at row %d, edits %s: " % (row, edits)
        if difference:
            return where + difference
        if again is None or not edited:
            continue
        token = rng.choice(after["rows"])["token"]
        difference = compare_resume(engine, other, token, after["contract"], again, None, True)[0]
        if difference:
            row = Token(bytes.fromhex(token)).g
            return where + "then resumed at row %d: %s" % (row, difference)
    return None


def other_weights(token, weights):
    """None if these weights are in force: only other ones are accepted, and become a record."""
    in_force = {own.name: was["weight"] for own, was in token.sources if was["weight"] > 0}
    return None if weights is None or reduce_weights(weights) == in_force else weights


def known_records(contract, calendar, token, position):
    """The text that a start has: the begun records, the whole contract, or none where the history
    of the token has them all."""
    history = Token(bytes.fromhex(token)).history
    entries = sum(line.startswith(("stage ", "record ")) for line in history.splitlines())
    ways = [record_lines(contract, calendar, position), contract]
    if entries == len(calendar.begun(position)):
        ways.append(None)
    return ways[int(token[-2:], 16) % len(ways)]


def compare_resume(engine, stream, token, contract, plan, weights, grow):
    state = Token(bytes.fromhex(token))
    position, weights = state.g, other_weights(state, weights)
    records = plan.calendar.records
    in_force = plan.calendar.in_force(max(position - 1, 0)).weight
    if weights is not None and reduce_weights(weights) == in_force:
        weights = None  # these are not other weights
    if any("documents" in entry for entry in stream["stages"] + stream["records"]):
        grow = False  # the stream says itself when it takes more documents
    expected, again = oracle_run(stream, ROWS_AFTER, token, records, weights, grow)
    text = known_records(contract, plan.calendar, token, position)
    found = engine.run(stream, ROWS_AFTER, token, text, weights, grow)
    return first_difference(expected, found), expected, again


def check_case(engine, case, plain=False, smaller=True):
    """None, or the difference; `smaller`: with a smaller stream that differs."""
    rng = random.Random("stream2/%d" % case)
    stream = {**random_stream(rng, plain=True), "records": []} if plain else rich_stream(rng)
    difference, expected, plan = compare_runs(engine, stream)
    if difference:
        return "from row 0: %s\n%s" % (difference, shrink(engine, stream) if smaller else "")
    if plan is None:
        return None
    return compare_resumes(engine, rng, stream, expected, plan)


# ---- Reduction to a smaller stream that differs --------------------------------------------------


def smaller_ones(stream):
    """Streams with something left out."""
    for i in range(1, len(stream["stages"])):
        yield {**stream, "stages": stream["stages"][:i] + stream["stages"][i + 1 :]}
    for i in range(len(stream.get("records", []))):
        yield {**stream, "records": stream["records"][:i] + stream["records"][i + 1 :]}
    for name in ("skip", "tokenizer", "bos_id", "eos_id", "label_across_cuts"):
        if stream.get(name):
            yield {key: value for key, value in stream.items() if key != name}
    for i, stage in enumerate(stream["stages"]):
        for name in set(stage) - {"from", "weight", "seq_len", "packing"}:
            stages = copy.copy(stream["stages"])
            stages[i] = {key: value for key, value in stage.items() if key != name}
            yield {**stream, "stages": stages}
    for i, source in enumerate(stream["sources"]):
        for name in set(source) - {"name", "lengths", "too_long", "sampled", "columns", "spans"}:
            sources = copy.copy(stream["sources"])
            sources[i] = {key: value for key, value in source.items() if key != name}
            yield {**stream, "sources": sources}


def shrink(engine, stream, tries=150):
    """Greedy."""
    shrunk = True
    while shrunk and tries > 0:
        shrunk = False
        for candidate in smaller_ones(stream):
            tries -= 1
            try:
                differs = compare_runs(engine, candidate)[0]
            except Exception:  # no stream any more
                differs = None
            if differs:
                stream, shrunk = candidate, True
                break
            if tries <= 0:
                break
    return brief(stream)


def brief(stream):
    keep = {**stream, "sources": []}
    for source in stream["sources"]:
        keep["sources"].append({k: v for k, v in source.items() if k not in ("sampled", "full")})
    return "smaller: %s\n  differs: %s" % (keep, "as above")


def main():
    parser = argparse.ArgumentParser(description="compare engine and oracle on random streams")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--dump", default=default_dump())
    parser.add_argument("--plain", action="store_true", help="simpler streams")
    parser.add_argument("--stop", type=int, default=5, help="after so many that differ")
    options = parser.parse_args()
    engine, differing = Engine(options.dump), 0
    for case in range(options.first, options.first + options.cases):
        try:
            difference = check_case(engine, case, options.plain)
        except Exception:  # the oracle's: its case must be known
            print("case %d: the oracle fails" % case)
            raise
        if difference:
            differing += 1
            print("case %d: %s" % (case, difference), flush=True)
            if differing >= options.stop:
                break
    engine.close()
    print("cases %d to %d: %d differ" % (options.first, case, differing))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
