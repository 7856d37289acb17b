# SPDX-License-Identifier: Apache-2.0
"""Loaders that are pickled, copied or forked before their first use, or after close(): each has an
engine of its own, and the position of the loader that it is a copy of."""

import copy
import os
import pickle

import pytest
import ringpack


def copies_of(loader):
    return [copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))]


def read_of_copies(make):
    """First rows and runs of a loader and its copies, all of them attached at a time."""
    loader = make()
    loaders = [loader, *copies_of(loader)]
    try:
        return [next(each).first_row for each in loaders], {each.run for each in loaders}
    finally:
        [each.close() for each in loaders]


def test_copies_of_a_loader_have_engines_of_their_own(make):
    rows, runs = read_of_copies(make)
    assert rows == [0, 0, 0, 0] and len(runs) == 4


def test_control_copies_with_one_name(make, monkeypatch):
    state = ringpack.Loader.__getstate__
    monkeypatch.setattr(
        ringpack.Loader, "__getstate__", lambda self: {**state(self), "_process": os.getpid()}
    )
    with pytest.raises(ringpack.BusyError):
        read_of_copies(make)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"return_type": "torch", "keep": 2},
        {"return_type": "torch", "device": "cpu"},
        {"streams": {"train": {}, "eval": {"num_epochs": 1}}},
    ],
)
def test_copies_of_a_closed_loader_continue_at_its_position(make, keys):
    if "return_type" in keys:
        pytest.importorskip("torch")
    loader = make(**keys)
    next(loader), next(loader)
    loader.close()
    for own in copies_of(loader):
        with own:
            assert own.next_row == 6 and own.counts()["batches"] == 0
            assert next(own).first_row == 6 and own.next_row == 9
    assert loader.next_row == 6


def test_a_fork_before_the_first_use_has_an_engine_of_its_own(make):
    """Both read at a time; with one name they would have one engine, or none."""
    loader, (read, write) = make(), os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            rows = [next(loader).first_row for _ in range(2)]
            status = 0 if rows == [0, 3] and os.read(read, 1) == b"x" else 2
        finally:
            os._exit(status)
    rows = [next(loader).first_row for _ in range(2)]
    os.write(write, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and rows == [0, 3]
