# SPDX-License-Identifier: Apache-2.0
"""A sample of lives.py; `tools/campaign lives` has many more."""

import collections
import os
import random

import lives
import pytest
from conftest import built

SEED = int(os.environ.get("RP_SEED", random.SystemRandom().randrange(10**6)))


def test_lives_of_random_streams(program):
    counts = collections.Counter()
    for number in range(6):
        print(f"RP_SEED={SEED}, stream {number}")
        counts += lives.lives(program, number, SEED, kills=8)
    print(dict(counts))
    assert counts["streams"] == 6 and counts["kills"] > 20


def test_weights_that_let_a_source_join_earlier(program):
    """The life in which a state kept the documents of a source that would have joined later."""
    lives.lives(program, 1, 46862, kills=8)


@pytest.fixture
def grown_at_once():
    """The program with a planted defect (tests/defects)."""
    return built("ringpack_grow_epoch_at_once")


def is_found(program, kills, likely=0):
    """By one of 100 streams; `likely` found the defect last."""
    for number in (likely, *range(100)):
        try:
            lives.lives(program, number, 1, kills)
        except lives.Difference:
            return True
    return False


@pytest.mark.parametrize("defect, likely", [("take_late_weights", 92), ("change_steps_late", 0)])
def test_a_defect_is_found(broken, monkeypatch, defect, likely):
    """Weights at a step that a rank has begun; sizes of a stage one step late."""
    monkeypatch.setenv("RP_DEFECT", defect)
    assert is_found(broken, 2, likely)


def test_documents_that_join_an_epoch_that_is_begun_are_found(grown_at_once):
    assert is_found(grown_at_once, 2)
