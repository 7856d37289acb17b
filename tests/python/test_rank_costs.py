# SPDX-License-Identifier: Apache-2.0
"""Cost by rank, as delivered: stat, metrics and report, against the costs of the batches that the
ranks then read."""

import re
import subprocess

import pytest
import ringpack
from stream_kit import Corpus, Engine, Ranks, Stream

WORLD = 3
LAYOUT = [("raw", "u16", 1, [300])]


def serve(program, folder, corpus, **keys):
    stream = Stream(corpus, {"num_epochs": 1, "packing": "lookahead"})
    shape = {"batch_size": 1, "dp_world_size": WORLD, "global_batch_size": 2 * WORLD}
    config = {**stream.config(), **shape, "run": "costs", "prefetch_factor": 4, **keys}
    return Engine(program, folder, config)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return Corpus(tmp_path_factory.mktemp("plain"), LAYOUT, 31)


def told_by(program, verb, engine, *arguments):
    command = [program, verb, engine.run, "--run-dir", str(engine.folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def gauge(text, name, *labels):
    found = re.findall(rf"^ringpack_{name}(?:_total)?{{(.*)}} (\S+)$", text, re.M)
    return [float(value) for own, value in found if all(label in own for label in labels)]


def test_costs_are_of_the_published_batches(program, corpus, tmp_path):
    engine = serve(program, tmp_path, corpus, cost=50)
    try:
        with Ranks(engine, WORLD) as ranks:
            costs = [[batch.cost for batch in turn] for turn in ranks.turns(5)]
            stat = ringpack.stat(engine.run, engine.folder)
            metrics = told_by(program, "metrics", engine, "--once")
            report = told_by(program, "report", engine)
            costs += [[batch.cost for batch in turn] for turn in ranks.turns()]
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    published = {rank["tail"] for rank in stat["ranks"]}
    assert len(published) == 1 and 5 <= published.copy().pop() < len(costs)
    own = costs[: published.pop()]
    sums = [sum(column) for column in zip(*own)]
    assert [rank["cost"] for rank in stat["ranks"]] == sums
    assert stat["cost_imbalance"] == pytest.approx(max(sums) * WORLD / sum(sums))
    slowest = sum(map(max, own))
    assert stat["micro_step_imbalance"] == pytest.approx(slowest * WORLD / sum(sums))
    assert 1 < stat["cost_imbalance"] < stat["micro_step_imbalance"]
    for rank in range(WORLD):
        (cost,) = gauge(metrics, "rank_cost", f'rank="{rank}"')
        assert cost >= sums[rank]
    assert gauge(metrics, "micro_step_imbalance_ratio")[0] > 1
    assert "cost of its batches" in report and "barrier for each micro-step" in report


def test_costs_that_are_not_known(program, corpus, tmp_path):
    """Without a key `cost` and without a deal."""
    engine = serve(program, tmp_path, corpus)
    try:
        with Ranks(engine, WORLD) as ranks:
            list(ranks.turns(5))
            stat = ringpack.stat(engine.run, engine.folder)
            assert gauge(told_by(program, "metrics", engine, "--once"), "rank_cost") == []
    finally:
        engine.kill()
    assert [rank["cost"] for rank in stat["ranks"]] == [None] * WORLD
    assert stat["cost_imbalance"] is None and stat["micro_step_imbalance"] is None
