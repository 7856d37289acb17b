# SPDX-License-Identifier: Apache-2.0
"""A simulated CUDA: streams that stand still until a test moves them."""

import contextlib

import pytest

torch = pytest.importorskip("torch")


class FakeStream:
    """Stands still until a test moves it. `recorded`: events put on it; `reached`: those passed."""

    def __init__(self, device=0):
        self.device, self.recorded, self.reached = device, 0, 0

    def run(self):
        self.reached = self.recorded

    def record_event(self):
        event = FakeEvent()
        event.record(self)
        return event

    def wait_event(self, event):
        FakeCuda.awaited.append((self, event.stream, event.place))


class FakeEvent:
    """Is passed when its stream has come to its place."""

    def record(self, stream):
        self.stream = stream
        stream.recorded += 1
        self.place = stream.recorded

    def query(self):
        return self.stream.reached >= self.place

    def synchronize(self):
        FakeCuda.waits += 1
        self.stream.reached = max(self.stream.reached, self.place)


class FakeCuda:
    """torch.cuda of a machine with two GPUs; this process uses the first."""

    Event, Stream = FakeEvent, FakeStream
    status = 0

    @classmethod
    def reset(cls):
        cls.waits = cls.status = 0
        cls.calls, cls.used, cls.asked, cls.awaited = [], {0}, set(), []
        cls.current = {0: FakeStream(0), 1: FakeStream(1)}

    is_available = is_initialized = staticmethod(lambda: True)

    @classmethod
    def cudart(cls):
        return cls

    @classmethod
    def device_count(cls):
        return len(cls.current)

    @classmethod
    def current_device(cls):
        return 0

    @classmethod
    def current_stream(cls, device):
        number = getattr(device, "index", device)
        cls.asked.add(number)
        return cls.current[number]

    @classmethod
    @contextlib.contextmanager
    def stream(cls, side):
        number = getattr(side.device, "index", side.device)
        before, cls.current[number] = cls.current[number], side
        try:
            yield
        finally:
            cls.current[number] = before

    @classmethod
    def synchronize(cls, device):
        cls.current[device].run()

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
    used = lambda device: device in FakeCuda.used  # noqa: E731
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", used, raising=False)
    return FakeCuda
