# SPDX-License-Identifier: Apache-2.0
"""The step of a loop that uses the lease of the batch before again, on fake_client.c: it poisons a
slot as soon as that is given back."""

import gc
import sys

import numpy
import pytest
import ringpack
from fake_kit import POISON, ROWS, SLOTS, tokens


counts_references = pytest.mark.skipif(
    ringpack._lease.ONE_LOCAL < 0, reason="without a lock no lease is used again"
)


@counts_references
def test_a_step_uses_the_lease_again_only_when_nothing_else_refers_to_it(fake):
    loader = ringpack.Loader(run="x", copy=False)
    batch = next(loader)
    lease = id(batch._lease)
    assert id(next(loader)._lease) == lease  # else the cases below would prove nothing
    holders = {
        "array": lambda batch: batch["input_ids"],
        "part of an array": lambda batch: batch["input_ids"][1:],
        "tensor": lambda batch: batch.view("input_ids", kind="torch"),
        "part of a tensor": lambda batch: batch.view("input_ids", kind="torch")[0, 1:3],
        "array of a tensor": lambda batch: batch.view("input_ids", kind="torch").numpy(),
        "storage": lambda batch: batch.view("labels", kind="torch").untyped_storage(),
        "lease": lambda batch: batch._lease,  # as in a thread that is inside batch.view()
    }
    for name, hold in holders.items():
        batch, released = next(loader), fake.fake_released()
        number, holder = batch.number, hold(batch)
        for _ in range(SLOTS - 1):
            batch = next(loader)
        assert (batch.view("input_ids") == tokens(number + SLOTS - 1)).all()
        assert fake.fake_released() - released == SLOTS - 2, name
        if name in ("array", "tensor"):
            assert (numpy.asarray(holder) == tokens(number)).all()
        del holder
        assert fake.fake_released() - released == SLOTS - 1, name


def test_control_a_lease_that_is_used_again_under_a_view_is_seen(loader, monkeypatch):
    """Were the references counted wrong, the tests here would see it."""
    view = next(loader)["input_ids"]
    monkeypatch.setattr("ringpack.loader.getrefcount", lambda _: ringpack.loader.ONE_LOCAL)
    next(loader)
    assert (view == POISON).all()


def numbers_of(batches):
    return [(batch.number, batch.first_row, batch.next_row) for batch in batches]


@pytest.mark.parametrize("holds", ["nothing", "views"])
def test_numbers_stay_as_they_are_while_anybody_can_read_them(loader, holds):
    """Of batches that are kept, of some that are dropped, and of those whose views return them."""
    kept, views = [], []
    for number in range(5 * SLOTS):
        batch = next(loader)
        if number % 3 != 1:
            kept.append(batch)
        if holds == "views":
            views = [*views, batch["input_ids"]][-2:]
    expected = [number for number in range(5 * SLOTS) if number % 3 != 1]
    assert numbers_of(kept) == [(k, k * ROWS, (k + 1) * ROWS) for k in expected]


@counts_references
def test_terms_are_filled_in_again(loader, monkeypatch):
    """Else the test above would prove nothing."""
    made, terms = [], ringpack._client.Terms
    monkeypatch.setattr("ringpack._client.Terms", lambda: made.append(1) or terms())
    for batch in loader:
        if batch.number == 5 * SLOTS:
            break
    assert len(made) <= 3


def test_control_terms_that_are_filled_in_again_under_a_batch_are_seen(loader, monkeypatch):
    monkeypatch.setattr("ringpack._client.getrefcount", lambda _: ringpack._client.ONE_LOCAL)
    kept = [next(loader) for _ in range(SLOTS)]
    assert len(set(numbers_of(kept))) < SLOTS


def test_a_python_that_does_not_count_references(fake, loader, monkeypatch):
    for module in "loader", "_client":
        monkeypatch.setattr(f"ringpack.{module}.getrefcount", lambda _: 0)
    before = fake.fake_released()
    for number in range(3 * SLOTS):
        batch = next(loader)
        assert batch.number == number and (batch["input_ids"] == tokens(number)).all()
    assert fake.fake_released() - before == 3 * SLOTS - 1


def cut_short(loader, line):
    """Whether there was no `line`-th line; the next batch, and the exception that was raised before
    that line of Client.step, Client.next and their callees, unless the end of a lease ate it."""
    left = line

    def trace(frame, event, _):
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        is_part = frame.f_code.co_filename.endswith(("_client.py", "_lease.py"))
        return trace if is_part and frame.f_code.co_name != "__del__" else None

    sys.settrace(trace)
    try:
        batch = loader.next()
        return left > 0, batch, None
    except KeyboardInterrupt as interrupt:
        return False, None, interrupt
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("holds", ["nothing", "a view"])
def test_an_interrupt_at_each_line_of_a_step_costs_no_batch(fake, monkeypatch, holds):
    """An exception before the n-th line, for each n; and in Client.next, which makes a lease if a
    view keeps the one before."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    for line in range(1, 100):
        with ringpack.Loader(run="x") as loader:
            batch = next(loader)
            view = batch["input_ids"] if holds == "a view" else None
            before = fake.fake_released()
            ended, batch, interrupt = cut_short(loader, line)
            if interrupt is not None:
                interrupt = None
                assert loader.next_row == ROWS
                batch = loader.next()
            assert view is None or (view == tokens(0)).all()
            view = None
            for number in range(1, 3 * SLOTS):  # every slot comes back
                assert batch.number == number and (batch["input_ids"] == tokens(number)).all()
                batch = next(loader)
            assert fake.fake_released() - before == 3 * SLOTS
        if ended:
            break
    assert line >= 12, "the lines of a step"


def test_a_lease_that_a_traceback_keeps_returns_nothing_after_the_client(fake, monkeypatch):
    """The fake client counts leases that are returned to one that is gone."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    for line in range(1, 100):
        living, faults = fake.fake_living(), fake.fake_faults()
        with ringpack.Loader(run="x") as loader:
            next(loader)
            ended, _, interrupt = cut_short(loader, line)
        interrupt = None
        gc.collect()
        assert (fake.fake_living(), fake.fake_faults()) == (living, faults), f"line {line}"
        if ended:
            break
    assert line >= 12, "the lines of a step"


@pytest.mark.parametrize("end", [next, lambda loader: loader._open[0].close()])
def test_a_batch_that_is_closed_always_says_why(loader, end):
    """Also to another thread: it is read before each instruction of the closing code."""
    batch, looks = next(loader), []

    def trace(frame, event, _):
        frame.f_trace_opcodes = True
        if event == "opcode":
            looks.append((batch.closed, getattr(batch, "_why", None)))
        return trace if frame.f_code.co_filename.endswith(("loader.py", "batch.py")) else None

    sys.settrace(trace)
    try:
        end(loader)
    finally:
        sys.settrace(None)
    assert len(looks) >= 10 and batch.closed
    assert (True, None) not in looks
