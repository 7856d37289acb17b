# SPDX-License-Identifier: Apache-2.0
"""One attachment to an engine, and the leases that came from it.

Invariants
  C1  A lease is returned exactly once: by Lease.__del__, when the last view of it is gone. That may
      be on any thread, which the C library allows; all else is done by one thread at a time.
  C2  A forked child never enters the client of its parent: not to read, not to release.
"""

import ctypes
import os
import threading
import weakref
from ctypes import byref

from ._library import (
    DTYPES,
    NEXT_BATCH,
    NEXT_END,
    RECORDS,
    SECTIONS,
    BatchInfo,
    ClientOptions,
    Counts,
    Error,
    library,
    raise_error,
)
from .errors import LeaseError, UsageError

END = object()
"""What Client.next returns at the end of the stream."""


class Memory:
    """One section of one lease, as numpy takes it: the base object of every array over it."""

    __slots__ = ("__array_interface__", "__weakref__", "lease")


class Lease:
    """The right to read one batch. Its end returns the batch to the engine (C1)."""

    __slots__ = ("__weakref__", "client", "exports", "info")

    def __init__(self, client, info):
        self.client, self.info = client, info
        self.exports = {}  # (name, flat, writable) -> weak reference to a Memory

    def __del__(self):
        self.client.give_back(self.info)

    def memory(self, name, flat, writable):
        """A section as an object that numpy makes an array of. `writable` is what the array claims:
        torch accepts no other; the memory itself is always read-only."""
        key = (name, flat, writable)
        known = self.exports.get(key)
        memory = known() if known is not None else None
        if memory is None:
            section, shape, flat_shape, description = self.client.layout[name]
            memory = Memory()
            memory.lease = self
            memory.__array_interface__ = {
                "version": 3,
                "data": (self.info.sections[section], not writable),
                "shape": flat_shape if flat else shape,
                **description,
            }
            self.exports[key] = weakref.ref(memory)
        return memory

    def viewed(self):
        """Names of the sections of which views are alive."""
        alive = {name for (name, _, _), view in list(self.exports.items()) if view() is not None}
        return [name for name in SECTIONS if name in alive]


class Client:
    """Attaches when it is made. Options are those of struct rp_client_options."""

    def __init__(
        self, *, run, run_dir, rank, world, rows, seq_len, state, connect_timeout, restart_timeout
    ):
        self._c = library()
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._leases = {}  # (attach, batch number) -> weak reference to a Lease
        self._client = ctypes.c_void_p()
        options = ClientOptions(
            run=run.encode(),
            run_dir=None if run_dir is None else os.fsencode(run_dir),
            rank=rank,
            world=world,
            rows=rows,
            seq_len=seq_len,
            state=state,
            state_bytes=len(state) if state else 0,
            connect_timeout_ns=_nanoseconds(connect_timeout),
            restart_timeout_ns=_nanoseconds(restart_timeout),
        )
        error = Error()
        code = self._c.rp_client_attach(byref(self._client), byref(options), byref(error))
        if code < 0:
            self._client = None
            raise_error(code, error)
        self.geometry = self._c.rp_client_geometry(self._client).contents
        self.layout = _layout(self.geometry)

    def next(self, timeout_ns):
        """A new Lease, None when nothing came in time, or END."""
        self._check_process()
        info, error = BatchInfo(), Error()
        for _ in range(2):
            with self._lock:
                code = self._c.rp_client_next(self._client, timeout_ns, byref(info), byref(error))
            if code != UsageError.code or self._leases:
                break  # otherwise other threads have just returned all the leases that were out
        if code == NEXT_BATCH:
            lease = Lease(self, info)
            self._leases[info.lease, info.number] = weakref.ref(lease)
            return lease
        if code == UsageError.code and self._leases:
            raise LeaseError(
                f"no slot of the ring is free: {self._held()}",
                "drop those views (del), take copies (batch.copy()), lower keep, or give the "
                "engine a larger prefetch_factor",
            )
        if code < 0:
            raise_error(code, error)
        return END if code == NEXT_END else None

    def give_back(self, info):
        """Return a lease. Any thread."""
        if self.is_ours():
            self._c.rp_client_release(self._client, byref(info))
            self._leases.pop((info.lease, info.number), None)

    def state(self):
        """The state token after the last batch, as bytes."""
        self._check_process()
        buffer = ctypes.create_string_buffer(self.geometry.state_bytes)
        with self._lock:
            size = self._c.rp_client_state(self._client, buffer, len(buffer))
            if size > len(buffer):
                buffer = ctypes.create_string_buffer(size)
                size = self._c.rp_client_state(self._client, buffer, size)
        return buffer.raw[:size]

    def next_row(self):
        self._check_process()
        return self._c.rp_client_next_row(self._client)

    def counts(self):
        self._check_process()
        counts = Counts()
        with self._lock:
            self._c.rp_client_counts(self._client, byref(counts))
        return {name: getattr(counts, name) for name, _ in Counts._fields_}

    def digest(self, info):
        halves = (ctypes.c_uint64 * 2)()
        self._c.rp_batch_digest(byref(self.geometry), byref(info), halves)
        return halves[1] << 64 | halves[0]

    def check_all_returned(self):
        """The engine gives the rank's ring to nobody else while leases on it are out."""
        if self._leases:
            raise LeaseError(
                f"cannot go to another position: {self._held()}",
                "drop those views (del), or take copies (batch.copy())",
            )

    def detach(self):
        """Detach. Leases that are out stay readable; the last one frees the memory and the rank."""
        if self.is_ours():
            with self._lock:
                self.geometry = None  # it lies in the client
                self._c.rp_client_detach(self._client)

    def is_ours(self):
        """Whether this is the process that attached (C2)."""
        return os.getpid() == self._process

    def _check_process(self):
        if not self.is_ours():
            raise UsageError(
                f"this loader was attached in process {self._process}, and this is its fork "
                f"{os.getpid()}",
                "make a Loader in each process that reads, after the fork",
            )

    def _held(self):
        """The leases that are out, for messages."""
        held = []
        for reference in list(self._leases.values()):
            lease = reference()
            if lease is not None:
                views = ", ".join(lease.viewed())
                held.append(
                    f"batch {lease.info.number} ({f'views of {views}' if views else 'open'})"
                )
        return ", ".join(held) + " still on lease"


def _nanoseconds(seconds):
    """0 is the library's default; UINT64_MAX its "for ever"."""
    if seconds is None:
        return 0
    return 2**64 - 1 if seconds == float("inf") else max(1, int(seconds * 1e9))


def _layout(geometry):
    """Name -> (number, shape, shape of the flat view, type) of the sections that the run has."""
    rows, length, documents = geometry.rows, geometry.seq_len, geometry.max_docs_per_row
    shapes = {
        "rows": (rows,),
        "cu_seqlens": (rows * (documents + 1) + 1,),
        "doc_lens": (rows, documents),
        "provenance": (rows, documents),
    }
    layout = {}
    for number, name in enumerate(SECTIONS):
        section = geometry.sections[number]
        if not section.offset:
            continue
        shape = shapes.get(name, (rows, length))
        flat = (shape[0] * shape[1],) if len(shape) == 2 else shape
        if name in RECORDS:
            size = section.bytes // flat[0] if flat[0] else 0
            description = {"typestr": f"|V{size}", "descr": RECORDS[name]}
        else:
            description = {"typestr": DTYPES[section.dtype]}
        layout[name] = (number, shape, flat, description)
    return layout
