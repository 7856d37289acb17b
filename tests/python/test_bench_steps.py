# SPDX-License-Identifier: Apache-2.0
"""The simulator of steps (bench/steps.py): known times, methods that lose no document, and a run in
which the engine's deal is compared with the oracle's."""

import json
import random
import subprocess
import sys
from collections import Counter

import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "bench"))

import balancers  # noqa: E402
import barriers  # noqa: E402


def test_times_of_known_steps():
    equal = [[[1, 1], [1, 1]]] * 3
    assert barriers.step_barrier(equal) == barriers.micro_step_barrier(equal) == 1
    assert barriers.pipeline(equal, 4) == 1
    steps = [[[1, 3], [3, 1]]]  # ranks cost the same, micro-batches do not
    assert barriers.step_barrier(steps) == 1 and barriers.micro_step_barrier(steps) == 1.5
    assert barriers.step_barrier([[[1], [3]]]) == 1.5
    for stages, count in (1, 5), (4, 8), (8, 3):
        assert barriers.makespan([1.0] * count, stages) == pytest.approx(3 * (count + stages - 1))
    for stages, count, parts in (4, 8, 2), (2, 6, 3):  # the bubble of a part
        takes = 3 * (count + (stages - 1) / parts)
        assert barriers.makespan([1.0] * count, stages, parts) == pytest.approx(takes)
    assert barriers.pipeline(equal, 2, 2) == 1 and barriers.pipeline(equal, 4, 2) is None
    assert barriers.makespan([4, 1, 1, 1], 2) > barriers.makespan([1, 1, 4, 1], 2)
    assert barriers.steps_of(list(range(9)), 2, 4) == [[[0, 2], [1, 3]], [[4, 6], [5, 7]]]


@pytest.mark.parametrize("name", ["sorted", "next-fit", "partitioned"])
def test_methods_keep_the_documents_of_each_step(name):
    draw = random.Random(3)
    steps = [[[tuple(draw.randint(1, 90) for _ in range(4)) for _ in range(3)]
              for _ in range(2)] for _ in range(4)]
    found = balancers.METHODS[name](steps, 360, 50)
    for before, after in zip(steps, found):
        lists = [Counter(n for rank in step for own in rank for n in own)
                 for step in (before, after)]
        assert lists[0] == lists[1] and len(after) == 2
    if name == "partitioned":
        costs = [[[sum(n * (50 + n) for n in own) for own in rank] for rank in step]
                 for step in found]
        assert barriers.step_barrier(costs) < 1.05


def test_documents_that_wait_are_delivered_once():
    documents = iter(range(1, 10**6))
    steps = [[[(next(documents) % 300 + 1,) * 2 for _ in range(3)] for _ in range(2)]
             for _ in range(20)]
    found = balancers.queues(steps, 360, 50)
    given = Counter(n for step in found for rank in step for own in rank for n in own)
    all_of = Counter(n for step in steps for rank in step for own in rank for n in own)
    assert given and not given - all_of
    assert max(sum(own) for step in found for rank in step for own in rank) <= 1.25 * 360


def test_a_simulation(program, tmp_path):
    """steps.py ends if the engine deals another order than the oracle."""
    command = [sys.executable, ROOT / "bench/steps.py", "--program", program, "--data", tmp_path,
               "--mix", "web-like", "--steps", "4", "--output", tmp_path / "steps.json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [shape] = json.loads((tmp_path / "steps.json").read_text())["shapes"]
    own = shape["methods"]
    assert own["dealt, window 4"]["micro_step"] < 1.02 < own["as planned"]["micro_step"]
    assert own["dealt, window 4"]["long_share_deviation"] <= own["as planned"][
        "long_share_deviation"]
