# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in a step, on fake_client.c: no batch is lost, no lease is returned twice."""

import signal
import sys

import pytest
import ringpack
from fake_kit import SLOTS, tokens


def interrupt(*_):
    raise KeyboardInterrupt


def test_an_interrupt_while_a_batch_is_taken_costs_no_batch(loader, monkeypatch):
    next(loader)
    before = loader.state_dict(text=True), loader.next_row

    with monkeypatch.context() as patch:
        patch.setattr("ringpack.loader.new", interrupt)  # the library has lent it already
        for _ in range(2 * SLOTS):
            with pytest.raises(KeyboardInterrupt):
                next(loader)
            assert (loader.state_dict(text=True), loader.next_row) == before
    batch = next(loader)
    assert batch.number == 1 and loader.next_row == 4
    assert (batch["input_ids"] == tokens(1)).all()


def test_a_lease_whose_end_is_interrupted_comes_back(loader, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda _: None)  # Python tells of it there
        patch.setattr(loader._client, "give_back", interrupt)
        for _ in range(SLOTS):
            next(loader)
    for k in range(SLOTS, 3 * SLOTS):
        assert next(loader).number == k


class InterruptedSet(set):
    """Whose first discard is cut short before anything has been discarded."""

    interrupts = 1

    def discard(self, element):
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        super().discard(element)


class KeptForGpu(list):
    """The state that a ring for a GPU keeps until detach, as class Pins does."""

    mark = list.append

    def close(self):
        return self


@pytest.mark.parametrize("pinned", [False, True])
def test_a_lease_that_was_returned_is_not_returned_after_detach(fake, pinned):
    """Its end would be a use of freed memory: the interrupt came after the library had it back."""
    loader = ringpack.Loader(run="x")
    client = loader.attach()._client
    lease = client.next(-1)
    client.taking = None
    if pinned:
        client.pins = KeptForGpu()
    client._out = InterruptedSet(client._out)
    with pytest.raises(KeyboardInterrupt):
        client.give_back(lease.held)
    assert lease.held in client._out
    loader.close()
    after_detach = []
    client._release = lambda *release: after_detach.append(release)
    del lease
    assert not after_detach


def test_a_lease_whose_end_was_cut_short_is_returned_by_detach(fake, monkeypatch):
    loader = ringpack.Loader(run="x")
    client = loader.attach()._client
    batch = next(loader)
    view = batch["input_ids"]
    before = fake.fake_released()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda _: None)  # Python tells of it there
        patch.setattr(client, "give_back", interrupt)
        batch.close()
        del batch, view
    assert fake.fake_released() == before
    loader.close()
    assert fake.fake_released() == before + 1


def storm(loader):
    """SIGALRM every 200 us; its handler raises if it finds itself inside next()."""
    interrupts = taken = 0

    def interrupt_inside_next(_, frame):
        nonlocal interrupts
        codes = set()
        while frame is not None:
            codes.add(frame.f_code)
            frame = frame.f_back
        names = {code.co_name for code in codes}
        if type(loader).next.__code__ in codes and names.isdisjoint({"__del__", "__init__"}):
            interrupts += 1
            raise KeyboardInterrupt

    handler = signal.signal(signal.SIGALRM, interrupt_inside_next)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    try:
        while interrupts < 100:
            try:
                batch = loader.next()
            except KeyboardInterrupt:
                continue
            assert batch.number == taken
            after, taken = batch.state_dict(text=True), taken + 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert taken > SLOTS and loader.state_dict(text=True) == after


def test_interrupts_at_any_time_cost_no_batch(loader):
    storm(loader)
