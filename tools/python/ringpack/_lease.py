# SPDX-License-Identifier: Apache-2.0
"""The lease of a batch, and the memory that its views keep.

Invariants
  L1  Each reader of the memory of a batch holds a reference to its Lease: a Batch that is open, or
      the base object of an array over a section.
  L2  A Lease with one reference, a local variable, has no views, and no code can make any. Its
      owner may end it by hand and give the object a new batch (Client.step).
  L3  Each reader of the numbers of a batch, and each object that may still return it, holds a
      reference to its Terms. Terms with one reference, a local variable, may be filled in again.
      Only Pins keeps a bare BatchInfo: a client that has pins fills in none again
      (Client.give_back, Client.step).
"""

import ctypes
import math
import sys
import weakref
from collections.abc import Callable
from ctypes import byref
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ._interpreter import HAS_LOCK
from ._library import BF16, DTYPES, OF_DOCUMENT, RECORDS, SECTION_SIDES, SECTIONS, BatchInfo

if TYPE_CHECKING:
    from ._client import Client

OF_ROWS = frozenset({"rows", "doc_lens", "cu_seqlens", "provenance", "row_plans"})
"""Sections without an entry for each token."""
_WORD = 8  # bytes of each number in Terms.words
ROWS_WORD = BatchInfo.rows.offset // _WORD  # and seq_len
_EMPTY = bytes(BatchInfo(struct_size=ctypes.sizeof(BatchInfo)))
_copy_batch = BatchInfo.from_buffer_copy

# How many references an object has. CPython counts them, and where it has its lock no other thread
# changes the count in between.
getrefcount: Any = getattr(sys, "getrefcount", None)
if getrefcount is None or not HAS_LOCK:

    def getrefcount(_: object) -> int:
        return 0


def _count_one_local() -> int:
    local = object()
    count = int(getrefcount(local))
    second = local
    return count if int(getrefcount(second)) == count + 1 else -1


ONE_LOCAL = _count_one_local()
"""getrefcount(local) of an object whose only reference is this local variable; -1, which is never
equal, if references are not counted."""


class Place(NamedTuple):
    """A section that a run has, as numpy takes it."""

    number: int  # enum rp_section
    word: int  # place in Terms.words of the section's address
    rows: int  # the largest batches'
    shapes: tuple[tuple[int, ...], ...]  # shapes of their views: ROWS, FLAT, ONE_ROW
    shapes_of: Callable[[int], tuple[tuple[int, ...], ...]]  # those of batches of other rows
    dtype: Any  # numpy.dtype
    is_record: bool  # torch has no tensors of these
    is_by_token: bool  # it has an entry for each token
    is_bf16: bool  # a column of bfloat16, which numpy has as uint16
    buffer_at: Callable[[int], Any]  # all of its memory as an object that has room for a lease


class Terms:
    """The struct rp_batch that the library fills in about a batch."""

    __slots__ = ("argument", "info", "words")

    def __init__(self) -> None:
        self.info: BatchInfo = _copy_batch(_EMPTY)
        self.argument: Any = byref(self.info)  # as the library takes it
        # The same memory as u64: a number is read, and one is set, in half the time.
        self.words: Any = memoryview(self.info).cast("B").cast("Q")

    def is_filled(self) -> bool:
        """Whether there is a batch in it: none has 0 rows."""
        return bool(self.words[ROWS_WORD])

    def clear(self) -> None:
        self.words[ROWS_WORD] = 0


class Held(weakref.ref["Lease"]):
    """The loan of the library for a lease, present or future, and a weak reference to the lease.
    It outlives a lease whose end was cut short by an exception."""

    __slots__ = ("terms",)

    terms: Terms


class Lease:
    """The right to read one batch. Its end returns the batch to the engine (C1). Whoever makes one
    fills it in, as one is made in every step of a loop that still has a view: __init__ would cost
    as much as the object."""

    __slots__ = ("__weakref__", "client", "exports", "held")

    client: "Client"
    held: Held
    exports: dict[str, weakref.ref[Any]]  # memory of sections; all views of one share it, if any

    def __del__(self) -> None:
        try:
            held = self.held
        except AttributeError:  # an exception came in before it had one
            return
        self.client.give_back(held)

    def viewed(self) -> list[str]:
        """Names of the sections with live views."""
        alive = {name for name, view in list(self.exports.items()) if view() is not None}
        return [name for name in self.client.layout if name in alive]


def _buffer_of(size: int) -> Any:
    """A type whose instances are in memory of the library, and have a lease on it."""
    return type("SectionBuffer", (ctypes.c_char * size,), {"__slots__": ("lease",)})


def layout_of(geometry: Any) -> dict[str, Place]:
    """The sections that the run has, by name."""
    import numpy  # here, so that `import ringpack` takes no longer than its own modules

    length, documents = geometry.seq_len, geometry.max_docs_per_row

    def shapes_of_side(width: int, count: int, rows: int) -> tuple[tuple[int, ...], ...]:
        last = (count,) if count > 1 else ()
        return (rows, width, *last), (rows * width, *last), (1, rows * width, *last)

    def shapes_of(name: str, rows: int) -> tuple[tuple[int, ...], ...]:
        usual = {
            "rows": (rows,),
            "cu_seqlens": (rows * (documents + 1) + 1,),
            "doc_lens": (rows, documents),
            "provenance": (rows, documents),
            "row_plans": (rows,),
        }
        shape = usual.get(name, (rows, length))
        count = math.prod(shape)
        return shape, (count,), (1, count)

    def place_of(number: int, shapes: Any, is_by_token: bool, name: str = "") -> Place:
        section = geometry.sections[number]
        return Place(
            number=number,
            word=BatchInfo.sections.offset // _WORD + number,
            rows=geometry.rows,
            shapes=shapes(geometry.rows),
            shapes_of=shapes,
            dtype=numpy.dtype(RECORDS.get(name) or DTYPES[section.dtype]),
            is_record=name in RECORDS,
            is_by_token=is_by_token,
            is_bf16=section.dtype == BF16,
            buffer_at=_buffer_of(section.bytes).from_address,
        )

    layout = {
        name: place_of(number, partial(shapes_of, name), name not in OF_ROWS, name)
        for number, name in enumerate(SECTIONS)
        if geometry.sections[number].offset
    }
    for number, side in enumerate(geometry.sides, SECTION_SIDES):
        if side.of:
            width = documents if side.of == OF_DOCUMENT else length
            shapes = partial(shapes_of_side, width, side.count)
            is_by_token = side.of != OF_DOCUMENT
            layout[side.name.decode()] = place_of(number, shapes, is_by_token)
    return layout
