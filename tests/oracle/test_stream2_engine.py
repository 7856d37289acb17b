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
from stream2_engine import Engine, default_dump, stream_json

CASES = int(os.environ.get("RP_STREAM2_CASES", "400"))
CHUNK = 50
CASES_OF_A_CONTROL = 400
RP_E_CONFIG = -5002

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


# ---- Refused specs


def base():
    """A stream of two sources and three stages, in the engine's form."""
    stages = [dict(SPREAD), {"from": 10, "seq_len": 16}]
    stages += [{"from": 20, "ramp": 10, "weight": {"0": 1, "1": 2}}]
    return stream_json(stream_of([[5] * 40, [3] * 40], [1, 1], stages))


def stage(number, **values):
    return lambda spec: spec["stages"][number].update(values)


def source(number, **values):
    return lambda spec: spec["sources"][number].update(values)


def more(**values):
    return lambda spec: spec["stages"].append({**values, "limits": [], "without": []})


def record(**values):
    return lambda spec: spec["records"].append({**values, "limits": [], "without": []})


DEALS = {
    "window of no step": [3, 4, 2, 1, 0, 4, 0, 0, 1],
    "step of no tier": [8, 4, 3, 1, 0, 4, 0, 0, 1],
    "tier of no bundle": [8, 4, 2, 3, 0, 4, 0, 0, 1],
    "bundle 0": [8, 4, 2, 0, 0, 4, 0, 0, 1],
    "K 0": [8, 4, 2, 1, 0, 0, 0, 0, 1],
    "h above b": [8, 4, 2, 1, 0, 4, 9, 2, 1],
    "window above 2^20": [2**21, 4, 2, 1, 0, 4, 0, 0, 1],
}
REFUSED = {
    "no stage at row 0": stage(0, **{"from": 1}),
    "stages run backwards": stage(2, **{"from": 5}),
    "two stages at a row": stage(2, **{"from": 10}),
    "a ramp at row 0": stage(0, ramp=5),
    "weights in a ramp": more(**{"from": 25}, weight=[1, 1]),
    "a ramp of 2^53 rows": stage(2, ramp=2**53),
    "no weight above 0": stage(2, weight=[0, 0]),
    "a share of 0": lambda spec: (
        spec["sources"].append({**spec["sources"][0], "name": "2"}),
        [own.update(weight=[2**32 - 1, 2**32 - 1, 1]) for own in spec["stages"][::2]],
    ),
    "the name of another source": source(1, name="0"),
    "an empty name": source(1, name=""),
    "a name of 64 bytes": source(1, name="n" * 64),
    "no document": source(1, lengths=[]),
    "align that does not divide seq_len": stage(1, align=3),
    "a row of no place": stage(1, seq_len=0),
    "a row above 2^24": stage(1, seq_len=2**24 + 1),
    "more fragments than places": stage(1, max_docs_per_row=17),
    "no fragment": stage(1, max_docs_per_row=0),
    "no window": stage(0, window=0),
    "a window above 4096": stage(0, window=4097),
    "a spread above 1024": stage(0, spread=1025),
    "concat with a window": stage(1, packing=1, window=3, fill=0, spread=0),
    "lookahead after concat without a window": lambda spec: (
        stage(1, packing=1, window=0, fill=0, spread=0)(spec),
        stage(2, packing=0)(spec),
    ),
    "a group that does not divide the documents": lambda spec: (
        spec.update(group=3),
        [own.update(too_long=1) for own in spec["sources"]],
    ),
    "a group of 65": lambda spec: spec.update(group=65),
    "truncate in groups": lambda spec: (
        spec.update(group=2),
        [own.update(too_long=2) for own in spec["sources"]],
    ),
    "a block of no document": lambda spec: spec.update(shuffle=2, block_documents=0),
    "a source that shrinks": record(**{"from": 3}, documents=[[0, 30]]),
    "more documents than the index has": record(**{"from": 3}, documents=[[0, 41]]),
    "a source beyond the list": record(**{"from": 3}, documents=[[2, 41]]),
    "limits of a source beyond the list": lambda spec: spec["stages"][1].update(
        limits=[[7, 1, {"max_epochs": 3}]]
    ),
    "a record that sets what a stage sets": record(**{"from": 20}, weight=[1, 1]),
    "skips that overlap": lambda spec: spec.update(skips=[[1, 5], [4, 9]]),
    "skips that run backwards": lambda spec: spec.update(skips=[[5, 4]]),
    **{"deal: " + name: stage(1, deal=deal) for name, deal in DEALS.items()},
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(engine, name):
    spec = base()
    REFUSED[name](spec)
    answer = engine.answer({"stream": spec, "rows": 40})
    assert "rows" not in answer and answer["code"] == RP_E_CONFIG, answer


def test_not_refused(engine):
    assert "error" not in engine.answer({"stream": base(), "rows": 40})


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
