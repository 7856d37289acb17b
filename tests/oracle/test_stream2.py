# SPDX-License-Identifier: Apache-2.0
"""The oracle of stream version 2: the examples of engine/plan/STREAM2.md, then properties of random
small streams. A failure names its seed."""

import copy
import os
import random

import make_golden2
import pytest
from stream2 import Plan
from stream2_calendar import Calendar, compile_rows
from stream2_contract import identity, stream_contract
from stream2_deal import cost_of_row, deal_rows
from stream2_planner import NoRow
from stream2_random import random_stream
from stream2_source import Source
from stream2_state import Token, hash_of_skips, resume, row_digest, save_token

SEEDS = range(40)
ROWS = 30

# ---- The examples --------------------------------------------------------------------------------


def stream_of(lengths, weights, stages, **more):
    """Sources 0, 1, … of these lengths."""
    sources = [{"name": str(j), "lengths": own} for j, own in enumerate(lengths)]
    stream = {"seed": 7, "shuffle": "none", "long_doc": "split", "sources": sources, **more}
    stages[0] |= {"from": 0, "weight": {str(j): w for j, w in enumerate(weights)}}
    return {**stream, "stages": stages}


def test_example_of_selection():
    columns = {"score": {"values": [1, 4, 3, 5, 0, 2]}}
    entry = {"name": "web", "lengths": [5] * 6, "columns": columns, "select": "score >= 2"}
    entry["repeat"] = {2: "score >= 4", 3: "score >= 5"}
    source = Source({"seed": 7, "shuffle": "document"}, entry)
    counts = [source.count(u, set()) for u in range(6)]
    assert (counts, source.R) == ([0, 2, 1, 3, 0, 1], 3)
    visits = [source.order(0, r, 6) for r in range(3)]
    assert visits == [[3, 0, 4, 2, 1, 5], [0, 4, 2, 5, 3, 1], [1, 0, 3, 2, 4, 5]]
    takes = [[u for u in order if counts[u] > r] for r, order in enumerate(visits)]
    assert takes == [[3, 2, 1, 5], [3, 1], [3]]
    words = [1713891541, 4175744164, 83534633, 3381718825, 4013802324, 1934136315]
    assert [source.fraction(d) * 2**32 for d in range(6)] == words
    fraction = Source({"seed": 1, "shuffle": "none"}, {**entry, "select": "fraction < 0.9"})
    assert [d for d in range(6) if fraction.count(d, set()) > 0] == [0, 2, 3, 5]


def test_example_of_choosing():
    """concat with rows of one document's tokens each: an item is taken for each row."""
    lengths = [[10, 40, 10, 20], [30, 10, 10], [20, 20, 10]]
    stages = [{"seq_len": 40, "packing": "best_fit", "max_docs_per_row": 1, "window": 1}]
    stages += [{"from": 6, "weight": {"0": 5, "2": 2}}]
    plan = Plan(stream_of(lengths, [5, 3, 2], stages))
    chosen, credits = [], []
    for _ in range(8):
        chosen.append(plan.row().fragments[0].source)
        credits.append([own.credit for own in plan.state.sources])
    assert chosen == [0, 1, 0, 2, 0, 1, 2, 0]
    assert credits[2] == [-10 * 2**32, -6 * 2**32 + 20, 16 * 2**32 - 20] or credits[2][0] < 0
    assert credits[3] == [0, 20, -20]
    rounded = [[round(c / 2**32, 2) for c in row] for row in credits]
    assert rounded[:3] == [[-5, 3, 2], [10, -18, 8], [-10, -6, 16]]
    assert rounded[4:] == [[-5, 3, 2], [0, -4, 4], [14.29, -4, -10.29], [8.57, -4, -4.57]]
    assert plan.calendar.nominal_shares(6) == {0: 3067833783, 2: 1227133513}
    assert sum(credits[5][j] for j in (0, 2)) // 2 == 8589934580


def test_example_of_a_ramp():
    stages = [{"seq_len": 8, "packing": "concat"}]
    stages += [{"from": 100, "ramp": 100, "weight": {"0": 1, "1": 1, "3": 2}}]
    calendar = Calendar(stream_of([[1]] * 4, [5, 3, 2, 0], stages))
    expected = {0: [2147483648, 1288490189, 858993459]}
    expected |= {1: [2136997889, 1286393036, 850604851, 20971520]}
    expected |= {50: [1610612737, 1181116006, 429496729, 1073741824]}
    for i, shares in expected.items():
        assert list(calendar.nominal_shares(100 + i).values()) == shares
    assert calendar.nominal_shares(200) == {0: 2**30, 1: 2**30, 3: 2**31}


SPREAD = {"seq_len": 8, "packing": "lookahead", "window": 2, "spread": 2, "fill": "pad"}


def state_of_packing(plan):
    pool = [(entry.piece[1:4], entry.turn, entry.rows) for entry in plan.state.pool]
    return [piece[1:4] for piece in plan.state.fifo], pool


def test_example_of_spread():
    plan = Plan(stream_of([[50, 4, 20, 6, 30, 5, 3, 8]], [1], [SPREAD.copy()]))
    table = [
        ([(0, 0, 8)], [(1, 0, 4)], [((0, 8, 42), 613566756, 7), ((2, 0, 20), 0, 3)]),
        ([(2, 0, 8)], [(1, 0, 4)], [((0, 8, 42), 613566756, 7), ((2, 8, 12), 1431655765, 3)]),
        ([(0, 8, 8)], [(1, 0, 4)], [((0, 16, 34), 613566756, 7), ((2, 8, 12), 818089009, 3)]),
        ([(0, 16, 8)], [(1, 0, 4)], [((0, 24, 26), 613566756, 7), ((2, 8, 12), 204522253, 3)]),
        ([(2, 8, 8)], [(1, 0, 4), (2, 16, 4)], [((0, 24, 26), 409044503, 7)]),
        ([(1, 0, 4), (2, 16, 4)], [(3, 0, 6)], [((0, 24, 26), 409044503, 7)]),
        (
            [(4, 0, 8)],
            [(3, 0, 6)],
            [((0, 24, 26), 409044503, 7), ((4, 8, 22), 1073741824, 4)],
        ),
    ]
    for row, fifo, pool in table:
        assert [f[1:] for f in plan.row().fragments] == row
        assert state_of_packing(plan) == (fifo, pool)


def test_example_of_a_boundary():
    stages = [SPREAD.copy(), {"from": 3, "seq_len": 16}]
    plan = Plan(stream_of([[50, 4, 20, 6, 30, 5, 3, 8]], [1], stages))
    rows = [[f[1:] for f in plan.row().fragments] for _ in range(7)]
    assert rows[3:] == [
        [(1, 0, 4), (2, 8, 12)],
        [(0, 16, 16)],
        [(4, 0, 16)],
        [(3, 0, 6), (5, 0, 5), (6, 0, 3)],
    ]


def test_example_of_deal():
    rows = [[8], [2, 2, 2, 2], [4, 4], [6, 2], [2, 2, 2, 1], [8], [4, 2, 2], [5, 3]]
    deal = {"window": 8, "step": 4, "tier": 2, "bundle": 1, "order": "descending", "K": 4}
    deal |= {"w": 0, "h": 0, "b": 1}
    costs = [cost_of_row(deal, row) for row in rows]
    assert costs == [96, 48, 64, 72, 41, 96, 56, 66]
    assert [cost_of_row(deal, row) for row in ([1, 1], [7])] == [10, 77]
    assert deal_rows(deal, costs) == [0, 5, 1, 4, 3, 7, 6, 2]
    assert deal_rows({**deal, "order": "middle"}, costs) == [1, 4, 0, 5, 6, 2, 3, 7]
    assert deal_rows({**deal, "tier": 4, "bundle": 2}, costs) == [0, 1, 5, 4, 7, 2, 3, 6]
    assert deal_rows(deal, [10, 77]) == [0, 1]


def test_size_of_a_token():
    """12.3: 336 bytes, a source of 120, and waiting pieces."""
    stream = stream_of([[9] * 3], [1], [{"seq_len": 8, "packing": "lookahead", "window": 4}])
    stream["sources"][0]["name"] = "a" * 15
    stream["stages"][0]["weight"] = {"a" * 15: 1}
    plan = Plan(stream)
    history = plan.calendar.history(0, 0)
    assert len(history) % 8 == 0 and len(save_token(plan)) == 336 + 120 + len(history)


def test_rows_of_boundaries():
    stages = [{"seq_len": 8, "global_batch_size": 4, "until": ("steps", 3)}]
    stages += [{"seq_len": 16, "until": ("tokens", 200)}, {"until": ("row", 24)}, {}]
    assert [stage["from"] for stage in compile_rows(stages)] == [0, 12, 20, 24]
    with pytest.raises(ValueError, match="20 and 24"):
        compile_rows([*stages[:2], {"until": ("row", 22)}])


# ---- Properties ----------------------------------------------------------------------------------


def plan_of(stream, rows=ROWS):
    """Rows, tokens before each and after the last, the plan; fewer if one cannot be planned."""
    plan, delivered, tokens, ledgers = Plan(stream), [], [], []
    while len(delivered) < rows:
        tokens.append(save_token(plan))
        ledgers.append(plan.ledger())
        try:
            row = plan.row()
        except NoRow:
            break
        if row is None:
            break
        delivered.append(row)
    return delivered, tokens, ledgers, plan


@pytest.fixture(params=SEEDS)
def case(request):
    print("seed", request.param)
    return random_stream(random.Random(request.param))


def test_resume_at_any_row(case):
    rows, tokens, _, plan = plan_of(case)
    for g, token in enumerate(tokens[: len(rows)]):
        again = resume(case, token, plan.calendar.records)
        assert save_token(again) == token
        assert again.row() == rows[g]
        if g + 1 < len(tokens):
            assert save_token(again) == tokens[g + 1]


def test_sums(case):
    rows, tokens, ledgers, _ = plan_of(case)
    for token in tokens:
        state = Token(token).state
        waiting = sum(piece.length for piece in state.waiting())
        count = state.count
        left = sum(count[name] for name in ("truncated", "dropped", "left_out"))
        assert count["tokens_read"] == count["emitted"] + left + waiting
        assert sum(own.credit for own in state.sources) == 0
    delivered = dict.fromkeys((source["name"] for source in case["sources"]), 0)
    names = list(ledgers[-1])
    for g, row in enumerate(rows):
        assert ledgers[g] == {} or all(
            own["delivered"] == delivered[name] for name, own in ledgers[g].items()
        )
        for fragment in [] if row.skipped else row.fragments:
            names = list(Calendar(case).numbers)
            delivered[names[fragment.source]] += fragment.length


def test_planned_tokens(case):
    """The sum of t, where `withheld` without skips is section 9.2 and the rows left out."""
    for token in plan_of({**case, "skip": []})[1]:
        state = Token(token).state
        count = state.count
        lost_later = sum(own.withheld for own in state.sources) - count["left_out"]
        lost_at_once = count["truncated"] + count["dropped"] - lost_later
        assert sum(own.t for own in state.sources) == count["tokens_read"] - lost_at_once


def test_rows_are_full_of_what_fits(case):
    rows, _, _, plan = plan_of(case)
    for row in rows:
        now = plan.calendar.in_force(row.q)
        places = sum(-(-f.length // now.align) * now.align for f in row.fragments)
        assert 0 < places <= now.seq_len and len(row.fragments) <= now.max_docs_per_row


def test_deal_moves_rows_only_in_their_window(case):
    dealt, _, _, plan = plan_of(case)
    stages = [{**stage, "deal": None} for stage in case["stages"]]
    plain = plan_of({**case, "stages": stages}, ROWS + 12)[0]
    at = 0
    while at < len(dealt):
        deal = plan.calendar.in_force(at).deal
        ends = [row for row in plan.calendar.rows() if row > at]
        end = min([at + (deal["window"] if deal else 1), *ends])
        own = sorted((row.q, row.fragments) for row in dealt[at:end])
        if end <= len(dealt):
            assert own == [(row.q, row.fragments) for row in plain[at:end]]
        at = end


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_or_twice(seed):
    """Without selection, limits but epochs, and losses: each epoch gives each token once."""
    stream = random_stream(random.Random(seed), plain=True)
    stream["skip"] = []
    last = {"from": max(stage["from"] + stage.get("ramp", 0) for stage in stream["stages"]) + 1}
    last["weight"] = {source["name"]: 1 for source in stream["sources"]}
    stream["stages"].append(last)
    rows, _, _, plan = plan_of(stream, 5000)
    if rows[-1].g < last["from"]:
        return  # the stream ended before all sources were in it
    seen, names = [], list(plan.calendar.numbers)
    for row in rows:
        for f in row.fragments:
            seen += [(names[f.source], f.document, t) for t in range(f.offset, f.offset + f.length)]
    expected = []
    for name, source in plan.calendar.sources.items():
        for d in range(source.documents_now()):
            tokens = [(name, d, t) for t in range(source.length(d))]
            expected += tokens * source.entry["max_epochs"]
    assert sorted(seen) == sorted(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_shares_within_one_longest_document(seed):
    rng = random.Random(seed)
    lengths = [[rng.randint(1, 60) for _ in range(rng.randint(1, 9))] for _ in range(4)]
    stages = [{"seq_len": 64, "packing": "concat"}]
    weights = {str(j): rng.randint(1, 6) for j in (0, 1, 2)}
    stages += [{"from": 10, "ramp": 12, "weight": weights}]
    stream = stream_of(lengths, [rng.randint(1, 9) for _ in range(4)], stages)
    for source in stream["sources"]:
        source["max_epochs"] = 0
    plan = Plan(stream)
    for _ in range(50):
        plan.row()
        for own in plan.state.sources:
            assert abs(own.credit) <= plan.state.X * 2**32


@pytest.mark.parametrize("seed", range(30))
def test_growth_and_edits_at_a_resume(seed):
    """Appended documents, other limits and later stages: the tokens before stay, and resume."""
    rng = random.Random(seed)
    stream = random_stream(rng, plain=True)
    rows, tokens, _, plan = plan_of(stream)
    g = rng.randrange(1, len(rows)) if len(rows) > 1 else 1
    grown = copy.deepcopy(stream)
    grown["sources"][0]["lengths"] += [3, 4]
    again = resume(grown, tokens[g], plan.calendar.records)
    window_end = Token(tokens[g]).e
    name = grown["sources"][0]["name"]
    if name in [own.name for own in again.state.sources]:
        record = again.calendar.record_at(window_end)
        assert record["documents"][name] == len(grown["sources"][0]["lengths"])
    for row in rows[g:window_end]:
        assert again.row() == row
    more = []
    for _ in range(10):
        token, row = save_token(again), again.row()
        if row is None:
            break
        more.append((token, row))
    for token, row in more:
        assert resume(grown, token, again.calendar.records).row() == row


def test_digest_is_the_same_with_deal():
    stream = random_stream(random.Random(3), plain=True)
    stream["skip"] = []
    sums = []
    deal = {"window": 4, "step": 2, "tier": 1, "K": 4}
    for own in (None, deal):
        stages = [{**stage, "deal": own} for stage in stream["stages"]]
        rows, _, _, plan = plan_of({**stream, "stages": stages}, 1000)
        sums.append([sum(row_digest(plan, row, labelled) for row in rows) for labelled in (0, 1)])
        sums[-1].append(plan.state.digest)
    assert sums[0] == sums[1]


def test_skips_below_a_row():
    assert hash_of_skips({5, 6, 9}, 6) == hash_of_skips({5}, 100) != hash_of_skips({5, 6}, 100)


def documents_of(rows):
    return [f.document for row in rows for f in row.fragments]


def test_appended_documents_join_at_the_next_epoch():
    stages = [{"seq_len": 4, "packing": "concat"}]
    stream = stream_of([[4, 4, 4]], [1], stages)
    stream["sources"][0]["max_epochs"] = 0
    plan = Plan(stream)
    plan.row()
    token = save_token(plan)
    stream["sources"][0]["lengths"] += [4, 4]
    again = resume(stream, token, plan.calendar.records)
    assert documents_of(again.row() for _ in range(8)) == [1, 2, 0, 1, 2, 3, 4, 0]
    assert Token(save_token(again)).state.sources[0].before == 5
    stream["sources"][0]["lengths"] = [4, 4]
    with pytest.raises(ValueError, match="2 documents of 3"):
        resume(stream, token, plan.calendar.records)


def test_an_epoch_takes_each_document_as_often_as_its_count():
    stream = stream_of([[4] * 6], [1], [{"seq_len": 4, "packing": "concat"}], shuffle="document")
    more = {"columns": {"score": {"values": [1, 4, 3, 5, 0, 2]}}, "select": "score >= 2"}
    more |= {"name": "web", "repeat": {2: "score >= 4", 3: "score >= 5"}}
    stream["sources"][0] |= more
    stream["stages"][0]["weight"] = {"web": 1}
    rows, _, _, plan = plan_of(stream)
    assert documents_of(rows) == [3, 2, 1, 5, 3, 1, 3]
    assert plan.state.count["passed_over"] == 2 + 4 + 2  # the attempt at row 7 changes nothing


def test_a_limit_takes_whole_items_and_is_raised_before_and_after_it_is_reached():
    deal = {"window": 4, "step": 2, "tier": 1, "K": 4}
    stages = [{"seq_len": 4, "packing": "concat", "deal": deal}]
    stream = stream_of([[3] * 20], [1], stages)
    stream["sources"][0]["max_tokens"] = 25
    rows, tokens, _, plan = plan_of(stream)
    assert plan.state.sources[0].t == 27 and len(rows) == 7
    raised = copy.deepcopy(stream)
    raised["sources"][0]["max_tokens"] = 40
    again = resume(raised, tokens[2], plan.calendar.records)
    assert save_token(again) == tokens[2]
    assert [again.row(), again.row()] == rows[2:4]
    while again.row() is not None:
        pass
    assert again.state.sources[0].t == 42
    for g in (5, 7):  # the limit is reached in the window of row 4: a record at its end raises it
        again = resume(raised, tokens[g], plan.calendar.records)
        found = list(iter(again.row, None))
        assert found[: 7 - g] == rows[g:] and again.state.sources[0].t == 42
        assert [record["from"] for record in again.calendar.records] == [0, 7]  # documents, limits


def test_other_weights_are_a_record_after_the_window():
    deal = {"window": 4, "step": 2, "tier": 1, "K": 4}
    stream = stream_of([[4] * 9, [4] * 9], [1, 1], [{"seq_len": 4, "packing": "concat"}])
    stream["stages"][0]["deal"] = deal
    rows, tokens, _, plan = plan_of(stream)
    again = resume(stream, tokens[2], plan.calendar.records, weights={"0": 3, "1": 0})
    found = [again.row() for _ in range(8)]
    assert found[:2] == rows[2:4]
    assert {f.source for row in found[2:] for f in row.fragments} == {0}
    assert again.calendar.record_at(4) == {"from": 4, "weight": {"0": 1}}


def test_identity_does_not_depend_on_the_order_of_the_config():
    """Sources that join at different stages."""
    stages = [{"seq_len": 4, "packing": "concat"}, {"from": 5, "weight": {"0": 1, "1": 1}}]
    stream = stream_of([[4] * 9, [4] * 8], [1, 0], stages, skip=[3, 4, 9])
    plan = Plan(stream)
    turned = Plan({**stream, "sources": stream["sources"][::-1]})
    assert stream_contract(plan) == stream_contract(turned) and identity(plan) == identity(turned)
    lines = stream_contract(plan).splitlines()
    skips = [line for line in lines if line.startswith("skip")]
    assert skips == ["skip[0000]=3-5", "skip[0001]=9-10"]
    assert [line for line in lines if line.startswith("record")] == [
        "record[0000].documents[0000]=9",
        "record[0000].from=0",
        "record[0000].max_docs_per_row=4",
        "record[0001].documents[0001]=8",
        "record[0001].from=5",
    ]
    assert "stage[0001].max_epochs[0001]=1" in lines
    assert identity(plan) != identity(Plan({**stream, "seed": 8}))


def test_golden_files_are_those_that_the_oracle_writes():
    golden = dict(make_golden2.golden_files())
    assert sorted(os.listdir(make_golden2.FOLDER)) == sorted(golden)
    for name, text in golden.items():
        with open(os.path.join(make_golden2.FOLDER, name)) as file:
            assert file.read() == text, name
