# SPDX-License-Identifier: Apache-2.0
"""A sample of every_row.py; `tools/campaign points` and `tools/campaign chains` do all of it."""

import os
import random

import every_row
import pytest

SEED = int(os.environ.get("RP_SEED", random.SystemRandom().randrange(10**6)))
STEP = 41  # through the product of streams, so that a sample has all of each factor


@pytest.mark.parametrize("number", range(0, 8 * STEP, STEP))
def test_resume_at_every_row(program, number):
    print(f"RP_SEED={SEED}")
    assert every_row.at_every_row(program, number, SEED)[1] > 2


@pytest.mark.parametrize("number", range(0, 12 * STEP, STEP))
def test_five_resumes_with_other_topologies(program, number):
    print(f"RP_SEED={SEED}")
    every_row.chain(program, number, SEED)


@pytest.mark.parametrize("defect", ["lose_fragment_at_resume", "resume_one_row_on"])
def test_a_defect_is_noticed(broken, monkeypatch, defect):
    """The control of this file."""
    monkeypatch.setenv("RP_DEFECT", defect)
    with pytest.raises(AssertionError):
        every_row.at_every_row(broken, 0, 1)
    if defect == "lose_fragment_at_resume":
        with pytest.raises(AssertionError):
            for number in range(10):
                every_row.chain(broken, number, 1)
