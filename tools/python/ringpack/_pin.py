# SPDX-License-Identifier: Apache-2.0
"""Page-locked rings: copies to the GPU that run beside the training step, and read no garbage.

A copy with non_blocking=True from page-locked memory returns before it has read. So a batch that
the trainer has let go is marked on the CUDA stream, and its slot goes back to the engine only when
the GPU has come past the mark. Copies on other streams than the current one are the caller's care,
as with any tensor: keep the batch until they are done.
"""

import logging
from collections import deque
from typing import Any

from .batch import import_torch

logger = logging.getLogger("ringpack")
_PORTABLE_READ_ONLY = 0x01 | 0x08  # cudaHostRegisterPortable | cudaHostRegisterReadOnly


class Pins:
    """The ring of one client, registered with CUDA. `cuda` is torch.cuda."""

    def __init__(self, cuda: Any):
        self._cuda, self._runtime = cuda, cuda.cudart()
        self._attach = self._address = 0  # number and place of the ring that is registered
        self._marked: deque[tuple[Any, Any]] = deque()  # event, BatchInfo; oldest first

    def cover(self, geometry: Any, info: Any) -> None:
        """Register the ring that this batch lies in, if it is a new one."""
        if info.lease == self._attach:
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
            logger.warning(
                "the ring was not page-locked (cudaHostRegister: %s): copies to the GPU are "
                "complete when they return",
                status,
            )

    def mark(self, info: Any) -> None:
        """Nobody holds this batch any more, but the GPU may be reading it."""
        event = self._cuda.Event()
        event.record()
        self._marked.append((event, info))

    def passed(self, wait: bool = False) -> list[Any]:
        """What the GPU has done with; `wait` for the oldest, if it has not."""
        done: list[Any] = []
        while self._marked:
            event, info = self._marked[0]
            if wait and not done:
                event.synchronize()
            elif not event.query():
                break
            done.append(info)
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
            self._cuda.synchronize()  # also for batches that are not marked yet
            self._runtime.cudaHostUnregister(self._address)
        self._address = self._attach = 0


def pin_ring(client: Any) -> None:
    """Page-lock the ring of a new client, where torch has a GPU."""
    cuda = import_torch().cuda
    if cuda.is_available():
        client.pins = Pins(cuda)
    else:
        logger.warning("pin_memory=True: torch has no GPU here, nothing is page-locked")
