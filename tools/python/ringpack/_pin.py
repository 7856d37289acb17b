# SPDX-License-Identifier: Apache-2.0
"""Page-locked rings: copies to the GPU that overlap with the training step, and read no garbage.

A copy with non_blocking=True from page-locked memory returns before it has read. So a batch that
the trainer has let go is marked with CUDA events, and its slot goes back to the engine only when
the GPU has passed all of them. An event covers only the stream that it is recorded on. The streams
of a batch are

* the current streams whenever a view of the batch was made, whenever batch.to() had copied, and
  when its last view died: one on each device that this process uses;
* the streams that batch.record_stream() named.

A copy on any other stream cannot be seen from here: a view that was made before `with
torch.cuda.stream(s):` and copied inside it. tools/python/docs/pytorch.md has the remedy.
"""

from collections import deque
from typing import Any

from ._log import logger
from ._views import import_torch

_PORTABLE_READ_ONLY = 0x01 | 0x08  # cudaHostRegisterPortable | cudaHostRegisterReadOnly


def devices_used(torch: Any) -> list[int]:
    """The devices on which this process can have copied anything. A look-up of another one's
    current stream would be cheap; an event recorded there would take memory of that GPU."""
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if has_context is None:
        return [torch.cuda.current_device()]
    return [device for device in range(torch.cuda.device_count()) if has_context(device)]


class Pins:
    """The ring of one client, registered with CUDA."""

    def __init__(self, torch: Any, asked: bool = True):
        self._asked = asked
        self._torch, self._cuda = torch, torch.cuda
        self._runtime = self._cuda.cudart()
        self._attach = self._address = 0  # number and place of the ring that is registered
        self._streams: dict[int, set[Any]] = {}  # id of a BatchInfo that is out -> its streams
        self._marked: deque[tuple[list[Any], Any]] = deque()  # events, BatchInfo; oldest first

    def cover(self, geometry: Any, info: Any) -> None:
        """Register the ring of this batch, if it is a new one; by default not before the
        process uses a GPU, as that would make it use one."""
        if info.lease == self._attach or not (self._asked or self._cuda.is_initialized()):
            return
        self._forget()
        self._attach = info.lease
        slot = info.sections[0] - geometry.sections[0].offset
        address = slot - (info.number & (geometry.slots - 1)) * geometry.slot_bytes
        size = geometry.slots * geometry.slot_bytes
        status = self._runtime.cudaHostRegister(address, size, _PORTABLE_READ_ONLY)
        if int(status) == 0:
            self._address = address
        else:
            logger().warning(
                "the ring was not page-locked (cudaHostRegister: %s): copies to the GPU are "
                "complete when they return",
                status,
            )

    def locks(self) -> bool:
        return self._address != 0

    def note(self, info: Any) -> None:
        """This batch may be copied, or was, on the streams that are current now."""
        streams = self._streams.setdefault(id(info), set())
        for device in devices_used(self._torch):
            streams.add(self._cuda.current_stream(device))

    def note_stream(self, info: Any, stream: Any) -> None:
        """This batch was copied on that stream."""
        self._streams.setdefault(id(info), set()).add(stream)

    def mark(self, info: Any) -> None:
        """No holder of this batch is left, but the GPU may be reading it."""
        self.note(info)
        events = []
        for stream in self._streams.pop(id(info), ()):
            event = self._cuda.Event()
            event.record(stream)
            events.append(event)
        self._marked.append((events, info))

    def passed(self, wait: bool = False) -> list[Any]:
        """Return the batches that the GPU has finished; `wait` for the oldest, if it has not."""
        done: list[Any] = []
        while self._marked:
            entry = self._marked[0]
            events, info = entry
            if wait and not done:
                for event in events:
                    event.synchronize()
            elif not all(event.query() for event in events):
                break
            done.append(info)
            if self._marked and self._marked[0] is entry:  # else a signal handler closed the loader
                self._marked.popleft()
        return done

    def close(self) -> list[Any]:
        """Wait for the GPU; the ring is as it was before. Returns all that was marked."""
        self._forget()
        done = [info for _, info in self._marked]
        self._marked.clear()
        return done

    def _forget(self) -> None:
        if self._address:
            for device in devices_used(self._torch):  # also for batches that are not marked yet
                self._cuda.synchronize(device)
            self._runtime.cudaHostUnregister(self._address)
        self._address = self._attach = 0


def pin_ring(client: Any, asked: bool = True) -> None:
    """Page-lock the ring of a new client, where torch has a GPU."""
    torch = import_torch()
    if torch.cuda.is_available():
        client.pins = Pins(torch, asked)
    elif asked:
        logger().warning("pin_memory=True: torch has no GPU here, no memory is page-locked")
