# SPDX-License-Identifier: Apache-2.0
"""The statistics of the bench: intervals that hold the true value, slices that add up, and
verdicts that noise does not move. No clock is read here."""

import json
import os
import random
import statistics
import sys
from pathlib import Path

import numpy
import pytest

BENCH = Path(os.environ["RP_SOURCE_DIR"]) / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "report")]

import slices  # noqa: E402
from documents import replace_between  # noqa: E402
from end_to_end import summary_of  # noqa: E402
from engine import Failed, summarise  # noqa: E402
from goals import (  # noqa: E402
    MET, NOT_MEASURED, NOT_MET, UNDECIDED, Found, exactly, goals, of_indexes, rate_of, table,
)
from intervals import (  # noqa: E402
    Rounds, interval_by_rounds, interval_of_median, rank_of_interval,
)
from slices import PARTS, Side, rates, ratios, take_turns  # noqa: E402
from report import draw  # noqa: E402
from tasks.save import calls_in  # noqa: E402
from tasks.several import several_by_turns  # noqa: E402

SEED = 20
print(f"seed {SEED}")


# ---- intervals ----------------------------------------------------------------------------------


def test_ranks_are_those_of_the_tables():
    """Of the binomial distribution with p = 1/2, at 95 %."""
    known = {5: 0, 6: 1, 8: 1, 9: 2, 11: 2, 12: 3, 15: 4, 20: 6, 25: 8, 30: 10, 50: 18, 100: 40}
    assert {count: rank_of_interval(count) for count in known} == known


def test_interval_of_a_known_sample():
    assert interval_of_median([5, 1, 4, 2, 3]) is None
    assert interval_of_median([9, 1, 8, 2, 7, 3, 6, 4, 5]) == [2, 8]


def test_interval_holds_the_median_as_often_as_it_says():
    """Of a skewed distribution, whose median is 1."""
    source, held, tries = random.Random(SEED), 0, 2000
    for _ in range(tries):
        low, high = interval_of_median([source.lognormvariate(0, 1) for _ in range(12)])
        held += low <= 1 <= high
    assert 0.95 <= held / tries <= 0.98  # 0.961 by the binomial distribution


def test_bootstrap_draws_rounds():
    """Rounds that are all alike leave no doubt, whatever is in them; rounds that differ do."""
    alike, differ = [[1, 2, 90]] * 8, [[k, k, k] for k in range(8)]

    def most(rounds):
        return max(max(found) for found in rounds)

    def mean(rounds):
        return statistics.mean(value for found in rounds for value in found)

    assert interval_by_rounds(alike, most) == [90, 90]
    low, high = interval_by_rounds(differ, mean)
    assert low < 2.5 and high > 4.5
    assert interval_by_rounds(differ[:5], mean) is None
    parts = [Rounds(differ[:4], mean), Rounds(differ[4:], mean)]
    found = Rounds.summarise(parts)
    assert (found["median"], found["min"], found["max"], found["count"]) == (3.5, 1.5, 5.5, 8)


def test_the_interval_of_repetitions_holds_what_their_processes_differ_by():
    """Pairs of one repetition differ by 1 %, pairs of two repetitions by 3 %; the truth is 1."""
    source, tries = random.Random(SEED), 400
    held_by = {"repetitions": 0, "pairs": 0}
    for _ in range(tries):
        of_processes = [source.gauss(1, 0.03) for _ in range(6)]
        found = [[process * source.gauss(1, 0.01) for _ in range(5)] for process in of_processes]
        ends = {"repetitions": summary_of(found)["interval"],
                "pairs": interval_of_median([value for values in found for value in values])}
        for name, (low, high) in ends.items():
            held_by[name] += low <= 1 <= high
    assert held_by["repetitions"] >= 0.95 * tries  # 0.969 by the binomial distribution
    assert held_by["pairs"] < 0.85 * tries, "the processes of this test do not differ"


def test_fewer_repetitions_have_the_interval_of_their_pairs():
    found = summary_of([[1, 2, 3], [4, 5, 6]])
    assert (found["interval"], found["count"]) == ([1, 6], 6)
    assert summary_of([1, 2, 3])["interval"] is None


# ---- verdicts -----------------------------------------------------------------------------------


def verdict_of(values, sense=">=", bound=0.8):
    return Found(summarise(values)).verdict(sense, bound)


def test_a_bound_within_the_interval_is_not_judged():
    around = [0.79, 0.83, 0.80, 0.81, 0.82, 0.79]
    assert verdict_of(around) == UNDECIDED
    assert verdict_of(around, bound=0.785) == MET
    assert verdict_of(around, bound=0.84) == NOT_MET
    assert verdict_of(around, "<=", 0.84) == MET
    assert verdict_of(around, "<=", 0.785) == NOT_MET
    assert verdict_of(around, "<=", 0.81) == UNDECIDED
    assert verdict_of([2.0] * 5) == UNDECIDED  # too few values, however good they are
    assert exactly(0.8).verdict(">=", 0.8) == MET
    assert exactly(None).verdict(">=", 0.8) == NOT_MEASURED


def test_one_time_decides_nothing():
    """Neither as a time, nor as a rate."""
    once, often = summarise([10]), summarise([8, 9, 10, 11, 12, 13])
    assert Found(rate_of(once, 1000)).verdict(">=", 10) == UNDECIDED
    assert Found(rate_of(often, 1040)).verdict(">=", 80) == MET
    assert Found(once).verdict("<=", 10) == UNDECIDED
    assert Found(often).verdict("<=", 13) == MET


def test_a_corpus_index_is_judged_by_the_slowest_beyond_one_shard():
    rows = [{"above_first_ms": summarise([low + k for k in range(6)])} for low in (0, 2, 20, 4)]
    ((_, found, sense, bound, _),) = of_indexes({"indexes": rows})
    assert (found.value, found.verdict(sense, bound)) == (22.5, NOT_MET)
    ((_, found, sense, bound, _),) = of_indexes({})
    assert found.verdict(sense, bound) == NOT_MEASURED


def test_measurements_take_turns_until_their_time_is_over():
    log = []
    found = several_by_turns([lambda: log.append("A"), lambda: log.append("B")], 3)
    assert ("".join(log), found) == ("ABBAAB", [[None] * 3] * 2)
    assert [len(each) for each in several_by_turns([lambda: 1], 3, limit=1e-9)] == [1]


def test_results_of_an_unknown_format_are_refused():
    with pytest.raises(SystemExit, match="format 3"):
        goals({"format": 3})


def test_the_document_says_what_the_stored_run_found():
    result = json.loads((BENCH / "results/latest.json").read_text())
    text = (BENCH / "README.md").read_text()
    assert replace_between(text, "goals", table(result)) == text, (
        "run `build/venv/bin/python bench/report/goals.py bench/results/latest.json --docs`")
    assert (BENCH / "results/chart.svg").read_text() == draw(result), (
        "run `build/venv/bin/python bench/report/report.py bench/results/latest.json "
        "bench/results/chart.svg`")
    result["metrics"]["hot_min"]["median"] *= 2
    assert replace_between(text, "goals", table(result)) != text


# ---- calls --------------------------------------------------------------------------------------


def test_a_part_without_a_call_has_the_one_before():
    log = numpy.array([[1e9, 10], [2e9, 20], [3e9, 30]])
    parts = {(1.5, 3.5): [20, 30], (2.1, 2.9): [20], (4, 5): [30], (0, 0.5): [10], (1, 2): [10]}
    assert {part: calls_in(log, *part).tolist() for part in parts} == parts


# ---- slices -------------------------------------------------------------------------------------


class Machine:
    """Its speed moves by a quarter within minutes, and by a few percent from one call to the next;
    a clock that is not the real one says how far it is."""

    def __init__(self, seed):
        self.source, self.seconds = random.Random(seed), 0.0
        self.steps = [self.source.choice([0.75, 1.0]) for _ in range(1000)]

    def speed(self):
        return self.steps[int(self.seconds / 90)] * self.source.gauss(1, 0.03)


class SimulatedSide(Side):
    def __init__(self, machine, name, tokens_per_second):
        self.machine, self.name, self.rate = machine, name, tokens_per_second
        self.tokens = self.rows = 0

    def run(self, ms):
        seconds = ms / 1000
        tokens = self.rate * seconds * self.machine.speed()
        self.machine.seconds += seconds
        self.tokens += tokens
        return {"tokens": tokens, "seconds": seconds, "ms": ms}

    def check(self):
        pass


TRUE_RATIO, BOUND = 0.88, 0.8
TRIES = 40


def test_verdicts_of_pairs_do_not_move_where_those_of_sequential_medians_do():
    paired, sequential = [], []
    for seed in range(SEED, SEED + TRIES):
        machine = Machine(seed)
        sides = SimulatedSide(machine, "loop", 1e9), SimulatedSide(machine, "engine",
                                                                   TRUE_RATIO * 1e9)
        found = take_turns(sides, 12, 1000)
        values = ratios(rates(found["engine"]), rates(found["loop"]))
        paired.append(verdict_of(values, bound=BOUND))
        loop, ours = ([side.run(1000)["tokens"] for _ in range(90)] for side in sides)
        sequential.append(statistics.median(ours) / statistics.median(loop) >= BOUND)
    assert paired == [MET] * TRIES
    assert True in sequential and False in sequential, "the noise of this test flips no verdict"


class ScriptedSide(SimulatedSide):
    """Records the order, and drifts: each part of it is faster than the one before."""

    def __init__(self, log, name, factor):
        super().__init__(None, name, factor)
        self.log = log

    def run(self, ms):
        self.log.append((self.name, ms))
        tokens = self.rate * (1000 + len(self.log))
        self.tokens += tokens
        return {"tokens": tokens, "seconds": ms / 1000}


def test_slices_add_up_and_drift_cancels():
    log = []
    sides = ScriptedSide(log, "A", 1), ScriptedSide(log, "B", 2)
    found = take_turns(sides, 3, 400)
    assert [name for name, _ in log[:10]] == [*"AB", *"ABBAABBA"]
    assert {ms for _, ms in log} == {400 // PARTS}
    for side in sides:
        first = next(at for at, (name, _) in enumerate(log) if name == side.name)
        warm = side.rate * (1001 + first)
        assert sum(part["tokens"] for part in found[side.name]) + warm == side.tokens
    assert ratios(rates(found["B"]), rates(found["A"])) == [2, 2, 2]


class Plan:
    """The check of Side.check, with a stream of 7 tokens a row."""

    checks = {}

    def plan(self, keys, rows):
        return {"tokens": 7 * rows}

    def check(self, name, expected, found):
        if expected != found:
            raise Failed(name)


def test_a_slice_that_is_lost_or_counted_twice_ends_the_run():
    side = Side(Plan(), "side", {}, ["sh", "-c", """
        while read ms; do echo '{"tokens": 14, "rows": 2, "seconds": 1}'; done"""])
    side.run(1)
    side.run(1)
    side.check()
    side.tokens += 14
    with pytest.raises(Failed, match="tokens of all slices"):
        side.check()
    side.close()


def test_a_side_that_dies_is_named_with_what_it_said():
    side = Side(Plan(), "the loop", {}, ["sh", "-c", "echo no corpus >&2; exit 2"])
    with pytest.raises(Failed, match="the loop: no corpus"):
        side.run(1)
    side.close()


def test_a_side_that_never_answers_ends_the_run(monkeypatch):
    monkeypatch.setattr(slices, "PATIENCE", 0.1)
    side = Side(Plan(), "the engine", {}, ["sleep", "100"])
    with pytest.raises(Failed, match="the engine: a part of a slice did not end"):
        side.run(1)
    monkeypatch.undo()
    side.close()
