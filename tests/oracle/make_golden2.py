#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the golden vectors of stream version 2 into tests/golden/stream-v2, from the oracle.

A file is a run, and for some streams a second one that continues from a state token of the first
with an edited stream. Each has its contract, identity, rows, content digest, and the tokens of
some rows. Files of a released version never change.
"""

import json
import os

from make_golden import as_text, draw
from stream2 import Row
from stream2_calendar import reduce_weights
from stream2_engine import oracle_run, stream_json
from stream2_planner import Fragment
from stream2_state import row_digest

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "stream-v2")
ROWS = 28


def lengths(salt, documents, longest):
    """Document d has 0 to `longest` tokens; most are short, and few are empty."""
    found = []
    for d in range(documents):
        below = longest if draw(salt, 0, d, 1, 4) == 0 else max(2, longest // 5)
        found.append(0 if draw(salt, 0, d, 0, 12) == 0 else 1 + draw(salt, 0, d, 2, below))
    return found


def source(name, salt, documents, longest, **more):
    sampled = {n: 1000 * salt + n for n in range(documents + 1)}
    own = {"name": name, "lengths": lengths(salt, documents, longest), "sampled": sampled}
    return {**own, "full": 77 + salt, "max_epochs": 1, **more}


def spans(salt, own_lengths):
    """Each third document has nothing trained; of the others a middle part is trained."""
    return [
        [] if d % 3 == 0 or n < 3 else [[1 + draw(salt, 1, d, 0, n // 2), n]]
        for d, n in enumerate(own_lengths)
    ]


def stream(number, sources, stages, **more):
    fixed = {"seed": 0x9E3779B97F4A7C15 * (number + 1) % 2**64, "shuffle": "document"}
    fixed |= {"long_doc": "split", "tokenizer": 2**100 + number}
    return {**fixed, "sources": sources, "stages": stages, **more}


PLAIN = {"packing": "lookahead", "window": 4, "fill": "pad", "spread": 4, "seq_len": 32}
BEST = {**PLAIN, "packing": "best_fit", "fill": "split"}
DEAL = {"window": 8, "step": 4, "tier": 2, "bundle": 1, "order": "middle", "K": 4}


def mixing_with_a_ramp():
    """A source waits, another joins; shares move over ten rows."""
    own = [source("web", 1, 60, 40), source("code", 2, 40, 20), source("maths", 3, 30, 30)]
    stages = [{"from": 0, "weight": {"web": 3, "code": 1.5, "maths": 0}, **PLAIN}]
    stages += [{"from": 8, "weight": {"web": 1, "code": 0, "maths": 2.25}, "ramp": 10}]
    return stream(0, own, stages)


def limits():
    """Limits in tokens and epochs; a stage raises one that was reached, a later one stops."""
    own = [source("a", 4, 20, 40, max_epochs=3)]
    own += [source("b", 5, 24, 30, max_epochs=0, max_tokens=90)]
    own += [source("c", 6, 30, 30, on_exhausted="stop")]
    stages = [{"from": 0, "weight": {"a": 2, "b": 1}, **PLAIN, "fill": "split"}]
    stages += [{"from": 9, "limits": {"b": {"max_tokens": 250}}}]
    stages += [{"from": 15, "weight": {"a": 1, "c": 3}, "max_docs_per_row": 3}]
    return stream(1, own, stages, long_doc="truncate", shuffle="none")


def spread():
    """Documents of many rows; a stage with longer rows, then one of concat."""
    own = [source("books", 7, 40, 200), source("notes", 8, 60, 12)]
    stages = [{**PLAIN, "from": 0, "weight": {"books": 1, "notes": 1}, "spread": 2, "seq_len": 16}]
    stages += [{"from": 12, "seq_len": 48, "spread": 3}]
    stages += [{"from": 18, "packing": "concat", "window": 0, "fill": "pad", "spread": 0}]
    return stream(2, own, stages, shuffle="block", block_documents=6, window_blocks=2)


def best_fit_with_align():
    """Inserted tokens, places of 4, labels across cuts; fragments without a label are left out."""
    own = [source("web", 9, 60, 50), source("chat", 10, 50, 60, drop_untrained="fragment")]
    own[1]["spans"] = spans(10, own[1]["lengths"])
    stages = [{"from": 0, "weight": {"web": 1, "chat": 1}, **BEST, "align": 4, "spread": 2}]
    stages += [{"from": 14, "align": 8, "window": 2}]
    ids = {"bos_id": 1, "eos_id": 2, "label_across_cuts": 1}
    return stream(3, own, stages, **ids)


def groups():
    """Three documents are always in one row; groups that are too long are dropped."""
    own = [source("pairs", 11, 60, 10, too_long="drop", max_epochs=2)]
    own += [source("more", 12, 45, 8, too_long="drop")]
    stages = [{"from": 0, "weight": {"pairs": 1, "more": 1}, **BEST, "align": 2}]
    stages += [{"from": 10, "max_docs_per_row": 6}]
    blocks = {"shuffle": "block", "block_documents": 6, "window_blocks": 3}
    return stream(4, own, stages, group=3, eos_id=5, **blocks)


def deal_and_skips():
    """Deal windows, a stage that ends one early, skipped rows; tokens inside windows."""
    own = [source("web", 13, 80, 40, max_epochs=2)]
    stages = [{"from": 0, "weight": {"web": 1}, **PLAIN, "deal": {**DEAL, "w": 8, "h": 1, "b": 2}}]
    other = {**DEAL, "order": "descending", "tier": 4, "bundle": 2}
    stages += [{"from": 12, "deal": other}, {"from": 24, "deal": None}]
    return stream(5, own, stages, skip=[2, 3, 4, 13, 26])


def selection_and_repeat():
    """A selection by a column, passes of an epoch, and documents that a stage takes out."""
    own = [source("web", 14, 40, 30, max_epochs=3), source("rest", 15, 20, 30)]
    scores = [draw(14, 2, d, 0, 6) for d in range(40)]
    own[0]["columns"] = {"score": {"values": scores, "roots": [[0, 2**127 + 5], [30, 9]]}}
    own[0] |= {"select": "score >= 2 or fraction < 0.25"}
    own[0] |= {"repeat": {2: "score >= 4", 3: "score == 5"}}
    stages = [{"from": 0, "weight": {"web": 2, "rest": 1}, "packing": "concat", "seq_len": 24}]
    stages += [{"from": 7, "without": {"web": [1, 3, 8, 9, 21, 33], "rest": [0, 4]}}]
    return stream(6, own, stages, eos_id=7)


def growth():
    """A run of two epochs; its second start has more documents and other weights (below)."""
    own = [source("web", 16, 30, 30, max_epochs=4), source("code", 17, 24, 30, max_epochs=4)]
    stages = [{"from": 0, "weight": {"web": 1, "code": 1}, **PLAIN}]
    stages += [{"from": 20, "weight": {"web": 3, "code": 1}, "ramp": 6}]
    return stream(7, own, stages)


def more_documents(first):
    own = [source("web", 16, 44, 30, max_epochs=4), source("code", 17, 24, 30, max_epochs=4)]
    return {**first, "sources": own}, {"web": 5, "code": 1.25}


def other_future(first):
    """Stages that are not begun are replaced; limits are raised; more rows are skipped."""
    own = [{**first["sources"][0], "max_epochs": 5}]
    ahead = {"from": 24, "packing": "best_fit", "align": 2, "deal": None}
    return {**first, "sources": own, "stages": [*first["stages"][:2], ahead],
            "skip": [*first["skip"][:4], 27, 28]}, None  # fmt: skip


# name: (the stream, the row of the second start and its edit)
AT_GROWTH = (9, more_documents)
CASES = {
    "mixing-ramp": (mixing_with_a_ramp, None),
    "limits": (limits, None),
    "spread": (spread, None),
    "best-fit-align": (best_fit_with_align, None),
    "group": (groups, None),
    "deal-skips": (deal_and_skips, (14, other_future)),
    "selection-repeat": (selection_and_repeat, None),
    "growth": (growth, AT_GROWTH),
}


def spec_of(described, second):
    """The spec in JSON. Only growth needs fingerprints of several numbers of documents; otherwise
    the last ones stand for all."""
    spec = stream_json(described)
    for own in spec["sources"]:
        own["prints"] = own["prints"] if second == AT_GROWTH else own["prints"][-1:]
    return spec


def content_digest(plan, rows):
    """Section 15, of the rows of a run."""
    made = [
        Row(row["g"], row["q"], [Fragment(*own) for own in row["fragments"]], row["skipped"])
        for row in rows
    ]
    return "%032x" % (sum(row_digest(plan, row) for row in made) % 2**128)


def run_of(described, token=None, records=(), weights=None):
    """The expected results of a run, and its plan."""
    found, plan = oracle_run(described, ROWS, token, records, weights)
    assert "error" not in found, found["error"]
    rows = [row for row in found["rows"] if "g" in row]
    chosen = {1, len(rows) // 2} | ({0, len(rows)} if "end" in found["rows"][-1] else set())
    made = {
        "contract": found["contract"],
        "identity": found["identity"],
        "rows": [
            [row["g"], row["q"], int(row["skipped"]), row.get("cost", 0), *row["fragments"]]
            for row in rows
        ],
        "digest": content_digest(plan, rows),
        "ends": int("end" in found["rows"][-1]),
        "states": [{"row": i, "token": found["rows"][i]["token"]} for i in sorted(chosen)],
    }  # fmt: skip
    return made, found, plan


def make(described, second):
    made, found, plan = run_of(described)
    spec = spec_of(described, second)
    made = {"stream_version": 2, "stream": spec, **made}
    if second is None:
        return made
    row, edit = second
    edited, weights = edit(described)
    token = found["rows"][row]["token"]
    again, _, _ = run_of(edited, token, plan.calendar.records, weights)
    other = spec_of(edited, second)
    other = {key: value for key, value in other.items() if value != spec[key]}
    again = {"stream": other, "token": token, **again}
    if weights is not None:
        reduced = reduce_weights(weights)
        again["weights"] = [reduced.get(own["name"], 0) for own in edited["sources"]]
    return {**made, "second": again}


def golden_files():
    """Name and text of every file."""
    for name, (make_stream, second) in CASES.items():
        yield name + ".json", as_text(make(make_stream(), second)) + "\n"


def main():
    os.makedirs(FOLDER, exist_ok=True)
    for name, text in golden_files():
        with open(os.path.join(FOLDER, name), "w") as file:
            file.write(text)
        print(name, len(text))


if __name__ == "__main__":
    main()
