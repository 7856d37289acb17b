# SPDX-License-Identifier: Apache-2.0
"""The lease of a batch, and the memory that its views keep.

Invariants
  L1  Whoever can read the memory of a batch holds a reference to its Lease: a Batch that is open,
      or the base object of an array over a section.
  L2  A Lease that nothing but one local variable refers to has no views, and nothing can make any.
      Its owner may end it by hand and give the object a new batch (Client.step).
"""

import ctypes
import math
import sys
import weakref
from ctypes import byref
from typing import TYPE_CHECKING, Any, NamedTuple

from ._library import DTYPES, RECORDS, SECTIONS, BatchInfo

if TYPE_CHECKING:
    from ._client import Client

_ANY_SHAPE = -1  # in Lease.exports
_EMPTY = bytes(BatchInfo(struct_size=ctypes.sizeof(BatchInfo)))
_copy_batch = BatchInfo.from_buffer_copy

# How many references an object has. CPython counts them, and where it has its lock no other thread
# changes the count in between.
getrefcount: Any = getattr(sys, "getrefcount", None)
if getrefcount is None or not getattr(sys, "_is_gil_enabled", lambda: True)():

    def getrefcount(_: object) -> int:
        return 0


def _count_one_local() -> int:
    local = object()
    count = int(getrefcount(local))
    second = local
    return count if int(getrefcount(second)) == count + 1 else -1


ONE_LOCAL = _count_one_local()
"""What getrefcount(local) says of an object that only this local variable refers to; -1, which is
never equal, where references are not counted."""


class Place(NamedTuple):
    """A section that a run has, as numpy takes it."""

    section: int  # its number
    shapes: tuple[tuple[int, ...], ...]  # of its views: ROWS, FLAT, ONE_ROW
    description: dict[str, Any]  # for __array_interface__
    dtype: Any  # what numpy.ndarray takes; None: records, of which there are no tensors
    buffer: Any  # type of all of its memory, with room for the lease


def new_batch() -> BatchInfo:
    """What the library fills in."""
    return _copy_batch(_EMPTY)


class Memory:
    """One section of one lease, as numpy takes it: the base object of every array over it."""

    __slots__ = ("__array_interface__", "__weakref__", "lease")
    __array_interface__: dict[str, Any]
    lease: "Lease"


class Held:
    """What the library has lent for a lease, or is to lend. It outlives a lease whose end was cut
    short by an exception."""

    __slots__ = ("argument", "info", "lease")

    def __init__(self, info: BatchInfo):
        self.info: BatchInfo = info
        self.argument: Any = byref(info)  # as the library takes it
        self.lease: Any = None  # weakref.ref[Lease]


class Lease:
    """The right to read one batch. Its end returns the batch to the engine (C1)."""

    __slots__ = ("__weakref__", "client", "exports", "held")

    def __init__(self, client: "Client", held: Held):
        self.client: Client = client
        self.held: Held = held
        # (name, shape) -> the memory, while a view of it lives
        self.exports: dict[tuple[str, int], weakref.ref[Any]] = {}

    def __del__(self) -> None:
        self.client.give_back(self.held)

    def memory(self, name: str, shape: int) -> Memory:
        """A section as an object that numpy makes a read-only array of."""
        key = (name, shape)
        known = self.exports.get(key)
        memory = known() if known is not None else None
        if memory is None:
            place = self.client.layout[name]
            memory = Memory()
            memory.lease = self
            memory.__array_interface__ = {
                "version": 3,
                "data": (self.held.info.sections[place.section], True),
                "shape": place.shapes[shape],
                **place.description,
            }
            self.exports[key] = weakref.ref(memory)
        return memory

    def buffer(self, name: str, place: "Place") -> Any:
        """A section as a buffer that numpy makes an array of which claims to be writable: torch
        accepts no other without a warning. The memory itself is always read-only."""
        key = (name, _ANY_SHAPE)
        known = self.exports.get(key)
        buffer = known() if known is not None else None
        if buffer is None:
            buffer = place.buffer.from_address(self.held.info.sections[place.section])
            buffer.lease = self
            self.exports[key] = weakref.ref(buffer)
        return buffer

    def viewed(self) -> list[str]:
        """Names of the sections of which views are alive."""
        alive = {name for (name, _), view in list(self.exports.items()) if view() is not None}
        return [name for name in SECTIONS if name in alive]


def _buffer_of(size: int) -> Any:
    """A type whose instances lie in memory of the library, and have a lease on it."""
    return type("SectionBuffer", (ctypes.c_char * size,), {"__slots__": ("lease",)})


def layout_of(geometry: Any) -> dict[str, Place]:
    """The sections that the run has, by name."""
    rows, length, documents = geometry.rows, geometry.seq_len, geometry.max_docs_per_row
    usual = {
        "rows": (rows,),
        "cu_seqlens": (rows * (documents + 1) + 1,),
        "doc_lens": (rows, documents),
        "provenance": (rows, documents),
    }
    layout: dict[str, Place] = {}
    for number, name in enumerate(SECTIONS):
        section = geometry.sections[number]
        if not section.offset:
            continue
        shape = usual.get(name, (rows, length))
        count = math.prod(shape)
        shapes = shape, (count,), (1, count)
        if name in RECORDS:
            size = section.bytes // count if count else 0
            description: dict[str, Any] = {"typestr": f"|V{size}", "descr": RECORDS[name]}
        else:
            description = {"typestr": DTYPES[section.dtype]}
        layout[name] = Place(
            number, shapes, description, DTYPES[section.dtype], _buffer_of(section.bytes)
        )
    return layout
