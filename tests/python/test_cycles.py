# SPDX-License-Identifier: Apache-2.0
"""Unreachable views give their slots back before a caller hears that none is free."""

import gc

import pytest
import ringpack

SLOTS = 4


class Cycle:
    """Objects that only the garbage collector frees: a traceback, a closure, a hook."""

    def __init__(self, view):
        self.view, self.itself = view, self


@pytest.fixture
def no_collection():
    """The garbage collector does not happen to run in between."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_views_that_nothing_reaches_keep_no_slot(fake, no_collection):
    loader = ringpack.Loader(run="x")
    for number in range(3 * SLOTS):
        batch = next(loader)
        assert batch.number == number
        Cycle(batch["labels"])
    batch = next(loader)
    Cycle(batch["labels"])
    batch.release()
    Cycle(next(loader)["labels"])
    loader.load_state_dict(loader.state_dict())
    held = [next(loader)["labels"] for _ in range(SLOTS)]
    with pytest.raises(ringpack.LeaseError):
        next(loader)
    assert len(held) == SLOTS
    del held
    loader.close()
