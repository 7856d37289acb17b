# SPDX-License-Identifier: Apache-2.0
"""The engine's `select` and `repeat` against the oracle's: counts and hashes of random expressions
over random columns, with numbers at the borders of values."""

import json
import math
import os
import random
import struct
import subprocess
from fractions import Fraction

import pytest
from stream2_source import Source

DUMP = os.path.join(os.environ["RP_BIN_DIR"], "select_dump")
KINDS = {"u": 0, "s": 1, "f": 3}
NAMES = ("a", "lang_1", "_score", "Z" * 47)


def value_of(rng, kind):
    if kind == "u":
        return rng.choice((rng.randrange(6), rng.randrange(2**64), 2**64 - 1, 2**63, 10**18))
    if kind == "s":
        return rng.choice((rng.randrange(-3, 4), rng.randrange(-(2**63), 2**63), -(2**63)))
    return rng.choice((rng.uniform(-2, 2), float(rng.randrange(2**35, 2**63)), 0.1, -0.0,
                       float(rng.randrange(-3, 4)), math.inf,
                       struct.unpack("<f", struct.pack("<f", 0.1))[0], 2.0**53, 1e300, 5e-324))


def number_near(rng, value):
    """A decimal number of the grammar that is a value, or just next to it."""
    if isinstance(value, float):
        if not math.isfinite(value) or abs(value) >= 1e19:
            return rng.choice(("9999999999999999999", "-9999999999999999999.999999999999999999"))
        exact = Fraction(value)
        if rng.random() < 0.6:  # in the middle of two f64, or next to it
            exact = (exact + Fraction(math.nextafter(value, rng.choice((-math.inf, math.inf))))) / 2
        parts = int(exact * 10**18) + rng.choice((-1, 0, 0, 1))
        sign, parts = "-" if parts < 0 else "", abs(parts)
        return "%s%d.%018d" % (sign, parts // 10**18, parts % 10**18)
    value += rng.choice((-1, 0, 0, 1))
    value = max(-(10**19) + 1, min(10**19 - 1, value))
    parts = ("", "", ".0", ".000000000000000001", ".5", ".999999999999999999")
    return str(value) + rng.choice(parts)


def number_of(rng, columns, name):
    if name == "fraction":
        return "%.18f" % rng.choice((rng.random(), rng.randrange(2**32) / 2**32, 0, 1, 0.9))
    if name in columns and rng.random() < 0.9:
        return number_near(rng, rng.choice(columns[name]["values"]))
    return rng.choice(("0", "-1", "2", "7.25", "-0.0", "000012"))


def expression_of(rng, columns, depth=0):
    space = lambda: rng.choice(("", " ", "\n", "\t "))  # noqa: E731
    if depth < 5 and rng.random() < 0.6:
        inner = expression_of(rng, columns, depth + 1)
        form = rng.randrange(4)
        if form == 0:
            return f"({space()}{inner}{space()})"
        if form == 1:
            return f"not {inner}" if rng.random() < 0.5 else f"not({inner})"
        word = ("and", "or")[form - 2]
        return f"{inner} {word} {expression_of(rng, columns, depth + 1)}"
    name = rng.choice((*columns, "length", "shard", "document", "fraction"))
    if rng.random() < 0.2:
        numbers = (number_of(rng, columns, name) for _ in range(rng.randrange(1, 5)))
        return f"{name} in{space()}({space()}" + f"{space()},".join(numbers) + ")"
    sign = rng.choice(("<", "<=", "==", "!=", ">=", ">"))
    return f"{name}{space()}{sign}{space()}{number_of(rng, columns, name)}"


def entry_of(rng):
    documents = rng.choice((1, 5, 64, 65, 200))
    columns = {}
    for name in NAMES:
        kind = rng.choice("usf")
        roots, before = [], 0
        while before < documents:
            roots.append((before, rng.getrandbits(128)))
            before += rng.randrange(1, 100)
        columns[name] = {"kind": kind, "roots": roots,
                         "values": [value_of(rng, kind) for _ in range(documents)]}
    shards, left = [], documents
    while left:
        shards.append(rng.randrange(0, left + 1))
        left -= shards[-1]
    first = rng.randrange(documents) if rng.random() < 0.5 else 0
    entry = {"name": "web", "lengths": [rng.randrange(9) for _ in range(documents)],
             "shards": shards, "columns": columns, "documents": [first, None]}
    if rng.random() < 0.9:
        entry["select"] = expression_of(rng, columns)
    counts = sorted(rng.sample(range(2, 256), rng.randrange(3)))
    entry["repeat"] = {count: expression_of(rng, columns) for count in counts}
    if rng.random() < 0.3:
        entry["unseen"] = {"used": (), "hash": "%032x" % rng.getrandbits(128)}
    return entry


def spec_of(entry, source, group):
    def words(values):
        return [struct.pack(">d", value).hex() if isinstance(value, float)
                else "%x" % (value % 2**64) for value in values]

    columns = {
        name: {"kind": KINDS[column["kind"]], "words": words(column["values"]),
               "roots": [[before, "%x" % (root >> 64), "%x" % (root % 2**64)]
                         for before, root in column["roots"]]}
        for name, column in entry["columns"].items()
    }
    count = len(entry["lengths"])
    state = entry.get("unseen")
    words_of_state = [state["hash"][at : at + 16] for at in (0, 16)] if state else None
    return {"unseen": words_of_state, "first": source.first, "group": group,
            "select": entry.get("select"),
            "repeat": sorted(entry["repeat"].items()), "documents": count - source.first,
            "length": words(entry["lengths"]), "columns": columns,
            "shard": words(source.shard(d - source.first) for d in range(count))}


def run(specs):
    lines = "".join(json.dumps(spec) + "\n" for spec in specs)
    done = subprocess.run([DUMP], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("seed", range(5))
def test_counts_and_hashes_equal_the_oracle(seed):
    rng, specs, wanted = random.Random(seed), [], []
    for _ in range(200):
        entry, group = entry_of(rng), rng.choice((1, 1, 2, 64))
        source = Source({"seed": 7, "shuffle": "none", "group": group}, entry)
        documents = range(len(entry["lengths"]) - source.first)
        specs.append(spec_of(entry, source, group))
        wanted.append({"counts": [source.count_of_document(d, set()) for d in documents],
                       "passes": source.R, "selection": "%016x" % source.selection(len(documents))})
    for spec, found, expected in zip(specs, run(specs), wanted, strict=True):
        assert found == expected, (spec["select"], spec["repeat"])
    sums = [sum(expected["counts"]) for expected in wanted]
    assert sum(total > 0 for total in sums) > 50 and sum(total == 0 for total in sums) > 10


def test_example_of_the_page():
    columns = {"score": {"kind": "u", "values": [1, 4, 3, 5, 0, 2], "roots": []}}
    entry = {"name": "web", "lengths": [5] * 6, "columns": columns, "select": "score >= 2",
             "repeat": {2: "score >= 4", 3: "score >= 5"}}
    of_fraction = {"name": "web", "lengths": [5] * 6, "columns": {}, "select": "fraction < 0.9",
                   "repeat": {}}
    specs = [spec_of(one, Source({"seed": 7, "shuffle": "none"}, one), 1)
             for one in (entry, of_fraction)]
    found, fractions = run(specs)
    assert (found["counts"], found["passes"]) == ([0, 2, 1, 3, 0, 1], 3)
    assert fractions["counts"] == [1, 0, 1, 1, 0, 1]


def test_nan_is_refused_where_it_is_visited():
    columns = {"score": {"kind": "f", "values": [1.0, 2.0, math.nan], "roots": []}}
    entry = {"name": "web", "lengths": [5] * 3, "columns": columns,
             "select": "length < 9 or score >= 2", "repeat": {}}
    (found,) = run([spec_of(entry, Source({"seed": 7, "shuffle": "none"}, entry), 1)])
    assert "document 2" in found["error"] and "NaN" in found["error"]
