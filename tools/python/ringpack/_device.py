# SPDX-License-Identifier: Apache-2.0
"""The loader of device=: batches are copied to a device one step ahead.

One copy moves all sections of a batch: the range of its slot from the first to the last of them. On
a GPU it is queued on a stream of the loader's. The stream that is current when the batch is
returned waits for the copy; the host does not.

Invariants
  D1  `_ahead` has the batches that the library has lent, whose copies have begun, and which the
      caller has not got: at most two during next(), and one after it.
  D2  `_trail[0]` is the position, before all batches of `_ahead`. No batch is lost if an exception
      or a signal handler ends next(), or if the loop ends.
  D3  A batch stays open until the loader's next step, as without a device. Its slot goes back when
      the GPU has passed the copy (_pin.py).
"""

import ctypes
from collections import deque
from contextlib import nullcontext
from math import prod
from typing import Any, NamedTuple, Optional

import numpy

from ._attached import one_thread
from ._client import END, Client
from ._log import logger
from ._torch import TorchLoader
from ._views import Form, import_torch
from .batch import Batch, batch_of
from .errors import UsageError
from .loader import AGAIN


def _present(device: Any) -> Any:
    """The same device with its number. UsageError: torch has no such GPU."""
    cuda = import_torch().cuda
    if device.type == "cpu":
        return device
    count = cuda.device_count() if cuda.is_available() else 0
    if (device.index or 0) >= count:
        raise UsageError(
            f"device is {device}, and torch finds {count} GPUs here",
            "device='cpu' gives tensors on the CPU; nvidia-smi and CUDA_VISIBLE_DEVICES say which "
            "GPUs this process has",
        )
    return import_torch().device("cuda", cuda.current_device()) if device.index is None else device


_ALIGNED = 8  # bytes: the largest element of a section; a slot's size is a multiple of it


class _Part(NamedTuple):
    """A section in the copied range."""

    name: str  # in the batch
    dtype: Any  # torch.dtype
    first: int  # element of dtype
    shapes_of: Any  # function: rows of a batch -> shapes of the section
    shape: int  # ROWS, FLAT, ONE_ROW

    def of(self, rows: int) -> tuple[str, Any, tuple[int, ...], tuple[int, ...], int]:
        """Name, dtype, shape, strides and first element, in a batch with this number of rows."""
        shape = self.shapes_of(rows)[self.shape]
        strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
        return self.name, self.dtype, shape, strides, self.first


class _Begun(NamedTuple):
    """A batch whose copy has begun."""

    batch: Batch
    memory: Any  # on the device
    made: dict[str, Any]  # values that are no sections
    event: Any  # passed when the copy is complete; None: it is


class Copier:
    """Copies of the batches of one form to one device.

    is_static: each batch is copied again to the same memory, on the stream that uses it."""

    def __init__(self, device: Any, client: Client, form: Form, is_static: bool):
        torch = self._torch = import_torch()
        self._device, self._pins = device, client.pins
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        places = {name: at for name, at in form.places.items() if at[0] not in form.made}
        self._made = [name for name in form.names if name not in places]
        used = {name: places[name] for name in form.names if name in places}
        sections = [client.geometry.sections[client.layout[of].number] for of, _ in used.values()]
        first = min((section.offset for section in sections), default=0)
        end = max((section.offset + section.bytes for section in sections), default=0)
        self._range: Any = ctypes.c_char * (-(-(end - first) // _ALIGNED) * _ALIGNED)
        self._parts: list[_Part] = []
        self._first = 0  # number of the section with which the range begins
        self._by_rows: dict[int, list[Any]] = {}  # by rows of a batch: its parts
        for (name, (of, shape)), section in zip(used.items(), sections):
            place = client.layout[of]
            at, unaligned = divmod(section.offset - first, place.dtype.itemsize)
            assert not unaligned
            dtype = torch.from_numpy(numpy.empty(0, place.dtype)).dtype
            dtype = torch.bfloat16 if place.is_bf16 else dtype
            self._parts.append(_Part(name, dtype, at, place.shapes_of, shape))
            if section.offset == first:
                self._first = client.layout[of].number
        self._dtypes = {part.dtype for part in self._parts}
        self._static = self._allocate() if is_static else None
        self._static_views: dict[int, dict[str, Any]] = {}  # by rows of a batch
        if self._stream is not None and client.pins is None:
            logger().warning(
                "pin_memory=False: each copy to %s waits until the GPU has done all work before it",
                device,
            )

    def begin(self, batch: Batch) -> _Begun:
        stream, info = self._stream, batch._terms.info
        slot = self._range.from_address(info.sections[self._first] or 0)
        source = self._torch.from_numpy(numpy.ndarray(len(slot), numpy.uint8, slot))
        with nullcontext() if stream is None else self._torch.cuda.stream(stream):
            memory = self._allocate()
            memory.copy_(source, non_blocking=True)
            made = {name: self._moved(batch.made(name)) for name in self._made}
        if stream is None:
            return _Begun(batch, memory, made, None)
        if self._pins is not None:
            self._pins.note_stream(info, stream)
        return _Begun(batch, memory, made, stream.record_event())

    def finish(self, begun: _Begun) -> None:
        """Give the batch its tensors, for the current stream. It may be repeated."""
        batch, memory, made, event = begun
        if event is not None:
            current = self._torch.cuda.current_stream(self._device)
            current.wait_event(event)
            for tensor in (memory, *made.values()):
                if isinstance(tensor, self._torch.Tensor):
                    tensor.record_stream(current)
        rows = batch.batch_size
        if self._static is None:
            views = self._views_of(memory, rows)
        else:
            self._static.copy_(memory, non_blocking=True)
            if rows not in self._static_views:
                self._static_views[rows] = self._views_of(self._static, rows)
            views = self._static_views[rows]
        batch._made = {**views, **made}

    def _allocate(self) -> Any:
        size = ctypes.sizeof(self._range)
        return self._torch.empty(size, dtype=self._torch.uint8, device=self._device)

    def _moved(self, value: Any) -> Any:
        is_tensor = isinstance(value, self._torch.Tensor)
        return value.to(self._device, non_blocking=True) if is_tensor else value

    def _views_of(self, memory: Any, rows: int) -> dict[str, Any]:
        if rows not in self._by_rows:
            self._by_rows[rows] = [part.of(rows) for part in self._parts]
        typed = {dtype: memory.view(dtype) for dtype in self._dtypes}
        return {
            name: typed[dtype].as_strided(shape, strides, first)
            for name, dtype, shape, strides, first in self._by_rows[rows]
        }


class DeviceLoader(TorchLoader):
    """See Loader."""

    def _begin_position(self) -> None:
        super()._begin_position()
        self._ahead: deque[_Begun] = deque()  # D1
        self._copier: Any = None

    def _attach_once(self) -> Client:
        device = _present(self._device)
        client = super()._attach_once()
        self._copier = Copier(device, client, self._form, self._is_static)
        return client

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_copier": None}

    def _close_batches(self) -> None:
        ahead, self._ahead = self._ahead, deque()
        for begun in list(ahead):
            begun.batch.close("was closed when its loader left the position")
        super()._close_batches()

    @one_thread
    def next(self, timeout: Optional[float] = None) -> Any:
        """See Loader. The next batch is taken as well if it is there, and its copy begins."""
        self._enter()
        try:
            while True:
                client = self._attach()
                if not self._trail:
                    self._trail.append(client.state())
                while len(self._open) >= self._keep:
                    self._open.popleft().close(self._form.went_on)
                lease = None
                if not self._ahead:
                    lease = self._take(client, timeout)
                    if lease is None:
                        return None
                    if lease is AGAIN:
                        continue
                    self._begin_copy(client, lease)
                if len(self._ahead) == 1:
                    lease = client.next(0)
                    if lease is not None and lease is not END:
                        self._begin_copy(client, lease)
                lease = None
                given = self._hand_over(client)
                if given is not None:
                    return given
        finally:
            self._user = None

    def _begin_copy(self, client: Client, lease: Any) -> None:
        ahead = self._ahead
        if not ahead or ahead[-1].batch._lease is not lease:  # an exception came before (C3)
            ahead.append(self._copier.begin(batch_of(lease, self._form)))
        client.taking = None

    def _hand_over(self, client: Client) -> Any:
        """The oldest batch of `_ahead`, which then counts as taken; None if a signal handler has
        set another position."""
        client.revoked = False
        if client.closed:
            raise Client._closed()
        if self._asked is not None:
            return None
        batch = self._ahead[0].batch
        self._copier.finish(self._ahead[0])
        ahead = deque(list(self._ahead)[1:])
        trail = deque([*self._trail, client.state_after(batch._terms.info)], self._look_ahead + 1)
        given: Any = batch
        opened = deque([*self._open, batch])
        if self._copies:
            given = {name: batch._made[name] for name in self._form.names}
            opened.pop().close("was copied (copy=True)")
        if client.closed:
            raise Client._closed()
        if self._asked is not None:
            return None
        # No call follows, so no exception and no handler comes in before the caller has it (C3).
        self._ahead, self._trail, self._open = ahead, trail, opened
        return given

    def borrow(self, timeout: Optional[float] = None) -> Optional[Batch]:
        """See Loader."""
        raise UsageError(
            "borrow() lends a batch of the ring, and this loader copies batches to a device",
            "next() gives tensors that are yours; leave device out to borrow",
        )

    def check_ranks(self, all_gather: Any = None) -> str:
        """See Loader."""
        if self._ahead:  # ranks may differ in that
            self._attach_again()
        return super().check_ranks(all_gather)

    def _step_row(self) -> int:
        if not self._ahead:
            return super()._step_row()
        return int(self._client.step_row_of(self._ahead[0].batch._terms.info))

