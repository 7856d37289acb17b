# SPDX-License-Identifier: Apache-2.0
"""The engine's stream version 2 against the oracle: the examples of engine/plan/STREAM2.md, random
streams with resumes and edits, and planted defects that the comparison must find.

RP_STREAM2_CASES sets the number of random streams; `fuzz_stream2.py --first I --cases 1` repeats
case I."""

import copy
import os
from pathlib import Path

import pytest
from fuzz_stream2 import check_case, compare_runs
from stream2_engine import Engine, default_dump

CASES = int(os.environ.get("RP_STREAM2_CASES", "400"))
CHUNK = 50
CASES_OF_A_CONTROL = 400

# ---- The examples of the text, whose numbers test_stream2.py demands of the oracle


def stream_of(lengths, weights, stages, **more):
    sources = [{"name": str(j), "lengths": own} for j, own in enumerate(lengths)]
    first = {"from": 0, "weight": {str(j): w for j, w in enumerate(weights)}, **stages[0]}
    stream = {"seed": 7, "shuffle": "none", "long_doc": "split", "sources": sources, **more}
    return {**stream, "stages": [first, *stages[1:]]}


CHOOSING = [{"seq_len": 40, "packing": "best_fit", "max_docs_per_row": 1, "window": 1}]
CHOOSING += [{"from": 6, "weight": {"0": 5, "2": 2}}]
SPREAD = {"seq_len": 8, "packing": "lookahead", "window": 2, "spread": 2, "fill": "pad"}
BOOK = [[50, 4, 20, 6, 30, 5, 3, 8]]
RAMP = [{"seq_len": 8, "packing": "concat"}]
RAMP += [{"from": 100, "ramp": 100, "weight": {"0": 1, "1": 1, "3": 2}}]
SCORES = {
    "name": "web",
    "lengths": [5] * 6,
    "columns": {"score": {"values": [1, 4, 3, 5, 0, 2]}},
    "select": "score >= 2",
    "repeat": {2: "score >= 4", 3: "score >= 5"},
}
DEALT = [[8], [2, 2, 2, 2], [4, 4], [6, 2], [2, 2, 2, 1], [8], [4, 2, 2], [5, 3], [1, 1], [7]]
DEAL = {"window": 8, "step": 4, "tier": 2, "bundle": 1, "order": "descending", "K": 4}


def dealt(**deal):
    stage = {"seq_len": 8, "packing": "concat", "deal": {**DEAL, **deal}}
    return stream_of([[n for row in DEALT for n in row]], [1], [stage])


def selected():
    stream = stream_of([[1]], [1], [{"seq_len": 5, "packing": "concat", "weight": {"web": 1}}])
    return {**stream, "shuffle": "document", "sources": [SCORES]}


EXAMPLES = {
    "choosing": stream_of([[10, 40, 10, 20], [30, 10, 10], [20, 20, 10]], [5, 3, 2], CHOOSING),
    "ramp": stream_of([[3] * 900, [4] * 500, [5] * 400, [2] * 900], [5, 3, 2, 0], RAMP),
    "spread": stream_of(BOOK, [1], [SPREAD]),
    "boundary": stream_of(BOOK, [1], [SPREAD, {"from": 3, "seq_len": 16}]),
    "selection": selected(),
    "deal": dealt(),
    "deal from the middle": dealt(order="middle"),
    "deal of bundles": dealt(tier=4, bundle=2),
}


@pytest.fixture(scope="module")
def engine():
    engine = Engine(default_dump())
    yield engine
    engine.close()


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(engine, name):
    difference, expected, _ = compare_runs(engine, {**copy.deepcopy(EXAMPLES[name]), "rows": 300})
    assert difference is None
    assert len(expected["rows"]) > 4


# ---- Random streams


def differences(engine, first, cases, plain=False):
    found = {}
    for case in range(first, first + cases):
        difference = check_case(engine, case, plain)
        if difference:
            found[case] = difference
    return found


@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_random_streams(engine, first):
    assert differences(engine, first, CHUNK) == {}


def test_plain_streams(engine):
    assert differences(engine, 0, 2 * CHUNK, plain=True) == {}


# ---- Planted defects

CONTROLS = sorted(
    path.name.split("stream2_dump_")[1]
    for path in Path(default_dump()).parent.glob("stream2_dump_*")
)


@pytest.mark.parametrize("defect", CONTROLS)
def test_planted_defect_is_found(defect):
    engine = Engine(default_dump("_" + defect))
    for case in range(CASES_OF_A_CONTROL):
        if check_case(engine, case, smaller=False):
            break
    else:
        pytest.fail("%s: not found in %d cases" % (defect, CASES_OF_A_CONTROL))
    print("%s: found by case %d" % (defect, case))
    engine.close()
