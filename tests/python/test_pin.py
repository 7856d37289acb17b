# SPDX-License-Identifier: Apache-2.0
"""Page-locked rings, on a CUDA that is none: what is registered, and when a slot may go back."""

import logging

import numpy
import pytest
import ringpack

torch = pytest.importorskip("torch")
SLOTS, POISON = 4, 0x5A5A5A5A


class FakeEvent:
    """Is passed when the fake stream has come to its place."""

    def record(self):
        FakeCuda.recorded += 1
        self.place = FakeCuda.recorded

    def query(self):
        return FakeCuda.reached >= self.place

    def synchronize(self):
        FakeCuda.waits += 1
        FakeCuda.reached = max(FakeCuda.reached, self.place)


class FakeCuda:
    """torch.cuda of a machine with a GPU; its stream stands still until a test moves it."""

    Event = FakeEvent
    status = 0

    @classmethod
    def reset(cls):
        cls.recorded = cls.reached = cls.waits = cls.status = 0
        cls.calls = []

    is_available = staticmethod(lambda: True)

    @classmethod
    def cudart(cls):
        return cls

    @classmethod
    def synchronize(cls):
        cls.reached = cls.recorded

    @classmethod
    def cudaHostRegister(cls, address, size, flags):
        cls.calls.append(("register", address, size, flags))
        return cls.status

    @classmethod
    def cudaHostUnregister(cls, address):
        cls.calls.append(("unregister", address))
        return 0


@pytest.fixture
def cuda(monkeypatch):
    FakeCuda.reset()
    monkeypatch.setattr(torch, "cuda", FakeCuda)
    return FakeCuda


def pinned(**changes):
    return ringpack.Loader(run="x", return_type="torch", pin_memory=True, **changes)


def test_the_ring_is_registered_once_and_unregistered(fake, cuda):
    with pinned() as loader:
        geometry = loader._client.geometry
        for batch in loader:
            if batch.number == 0:
                first = batch["rows"].ctypes.data - geometry.sections[0].offset
            if batch.number == 9:
                break
            cuda.reached = cuda.recorded
        size = geometry.slots * geometry.slot_bytes
        assert cuda.calls == [("register", first, size, 9)]
    assert cuda.calls[1:] == [("unregister", first)]


def test_a_slot_goes_back_when_the_gpu_has_read_it(fake, cuda):
    before = fake.fake_released()
    with pinned() as loader:
        address = next(loader)["input_ids"].numpy().ctypes.data  # the copy of batch 0 is under way
        for _ in range(SLOTS - 1):
            next(loader)
        assert fake.fake_released() == before, "nothing is given back while the stream stands"
        slot = numpy.ctypeslib.as_array((numpy.ctypeslib.ctypes.c_int32 * 4).from_address(address))
        assert slot.tolist() == [0, 1, 2, 3]
        next(loader)  # all slots are out: the loader waits for the oldest mark, and for no more
        assert cuda.waits == 1 and fake.fake_released() - before == 1
        cuda.reached = cuda.recorded
        next(loader)
        assert fake.fake_released() - before == SLOTS
        assert cuda.waits == 1
    assert fake.fake_released() - before == 6, "all, at the end"


def test_control_without_marks_the_gpu_would_read_garbage(fake, cuda):
    with pinned() as loader:
        address = next(loader)["input_ids"].numpy().ctypes.data
        loader._client.pins = None
        next(loader)
        slot = numpy.ctypeslib.as_array((numpy.ctypeslib.ctypes.c_int32 * 4).from_address(address))
        assert (slot == POISON).all()


def test_views_that_die_late_are_marked_then(fake, cuda):
    with pinned() as loader:
        view = next(loader)["input_ids"]
        next(loader)
        recorded = cuda.recorded
        del view
        assert cuda.recorded == recorded + 1


def test_a_ring_that_cannot_be_locked_is_told_and_read(fake, cuda, caplog):
    cuda.status = 801  # cudaErrorNotSupported
    with pinned() as loader:
        assert next(loader)["input_ids"][0, 1] == 1
        assert "was not page-locked (cudaHostRegister: 801)" in caplog.text
    assert [call[0] for call in cuda.calls] == ["register"]


def test_without_a_gpu_nothing_is_locked(fake, caplog):
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    caplog.set_level(logging.WARNING, "ringpack")
    with pinned() as loader:
        assert next(loader)["input_ids"][0, 1] == 1
    assert "no GPU here" in caplog.text
    with pytest.raises(ValueError, match="return_type='torch'"):
        ringpack.Loader(run="x", pin_memory=True)


def test_a_real_gpu_reads_what_was_lent(make, expected):
    if not torch.cuda.is_available():
        pytest.skip("has no GPU")
    with make(return_type="torch", pin_memory=True, profile="hf") as loader:
        copies = [
            (batch.first_row, batch.to("cuda", non_blocking=True)["input_ids"]) for batch in loader
        ]
    for row, copied in copies:
        wanted = expected.batch(row, 3)[0]["input_ids"]
        assert (copied.cpu().numpy() == wanted).all()
