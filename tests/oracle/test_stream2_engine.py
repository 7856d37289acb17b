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

CASES = int(os.environ.get("RP_STREAM2_CASES", "100"))
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
    "h above b": [8, 4, 2, 1, 0, 4, 0, 9, 2],
    "window above 2^20": [2**21, 4, 2, 1, 0, 4, 0, 0, 1],
}
def group_of(k, too_long):
    def edit(spec):
        spec.update(group=k)
        for own in spec["sources"]:
            own["too_long"] = too_long

    return edit


def tiny_share(spec):
    spec["sources"].append({**spec["sources"][0], "name": "2"})
    for own in spec["stages"][::2]:
        own["weight"] = [2**32 - 1, 2**32 - 1, 1]


def leave_concat(spec):
    spec["stages"][1].update(packing=1, window=0, fill=0, spread=0)
    spec["stages"][2].update(packing=0)


# name: (the edit, words of the message)
REFUSED = {
    "no stage at row 0": (stage(0, **{"from": 1}), "row 0"),
    "stages run backwards": (stage(2, **{"from": 5}), "from row 5"),
    "two stages at a row": (stage(2, **{"from": 10}), "from row 10"),
    "a ramp at row 0": (stage(0, ramp=5), "ramp"),
    "weights in a ramp": (more(**{"from": 25}, weight=[1, 1]), "ends at row 30"),
    "a ramp of 2^53 rows": (stage(2, ramp=2**53), "ramp"),
    "no weight above 0": (stage(2, weight=[0, 0]), "weight"),
    "a share of 0": (tiny_share, "share is 0"),
    "the name of another source": (source(1, name="0"), '"0"'),
    "an empty name": (source(1, name=""), "name"),
    "a name of 64 bytes": (source(1, name="n" * 64), "1 to 63 bytes"),
    "no document": (source(1, lengths=[]), "without a document"),
    "align that does not divide seq_len": (stage(1, align=3), "multiple of align 3"),
    "a row of no place": (stage(1, seq_len=0), "seq_len"),
    "a row above 2^24": (stage(1, seq_len=2**24 + 1), "seq_len"),
    "more fragments than places": (stage(1, max_docs_per_row=17), "max_docs_per_row"),
    "no fragment": (stage(1, max_docs_per_row=0), "max_docs_per_row"),
    "no window": (stage(0, window=0), "window"),
    "a window above 4096": (stage(0, window=4097), "window"),
    "a spread above 1024": (stage(0, spread=1025), "spread"),
    "concat with a window": (stage(1, packing=1, window=3, fill=0, spread=0), "window"),
    "lookahead after concat without a window": (leave_concat, "window is missing"),
    "a group that does not divide the documents": (group_of(3, 1), "multiple of group 3"),
    "a group of 65": (group_of(65, 1), "1 to 64"),
    "truncate in groups": (group_of(2, 2), "truncate"),
    "a block of no document": (lambda s: s.update(shuffle=2, block_documents=0), "block_doc"),
    "a source that shrinks": (record(**{"from": 3}, documents=[[0, 30]]), "40 or more"),
    "more documents than there are": (record(**{"from": 3}, documents=[[0, 41]]), "at most 40"),
    "a source beyond the list": (record(**{"from": 3}, documents=[[2, 41]]), "not in the config"),
    "limits beyond the list": (stage(1, limits=[[7, 1, {"max_epochs": 3}]]), "not in the config"),
    "a record of what a stage sets": (record(**{"from": 20}, weight=[1, 1]), "set weights"),
    "skips that overlap": (lambda s: s.update(skips=[[1, 5], [4, 9]]), "rows 4-9"),
    "skips that run backwards": (lambda s: s.update(skips=[[5, 4]]), "rows 5-4"),
    **{"deal: " + name: (stage(1, deal=deal), "deal: ") for name, deal in DEALS.items()},
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(engine, name):
    spec = base()
    edit, words = REFUSED[name]
    edit(spec)
    answer = engine.answer({"stream": spec, "rows": 40})
    assert "rows" not in answer and answer["code"] == RP_E_CONFIG, answer
    assert words in answer["error"]


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
    assert differences(engine, 0, CHUNK, plain=True) == {}


# ---- Planted defects

CONTROLS = sorted(
    path.name.split("stream2_dump_")[1]
    for path in Path(default_dump()).parent.glob("stream2_dump_*")
)


@pytest.mark.parametrize("defect", CONTROLS)
def test_planted_defect_is_found(defect):
    engine = Engine(default_dump("_" + defect))
    for case in range(CASES_OF_A_CONTROL):
        difference = check_case(engine, case, smaller=False)
        if difference:
            assert "ended with status" not in difference, difference
            print("%s: found by case %d: %s" % (defect, case, difference))
            return engine.close()
    pytest.fail("%s: not found in %d cases" % (defect, CASES_OF_A_CONTROL))
