# SPDX-License-Identifier: Apache-2.0
"""One attachment to an engine, and the leases that came from it.

Invariants
  C1  A lease is returned exactly once: by Lease.__del__, when the last view of it is gone. That may
      be on any thread, which the C library allows; all else is done by one thread at a time.
  C2  A forked child never enters the client of its parent: not to read, not to release.
  C3  An exception that comes from outside while a batch is taken (Ctrl-C) costs no batch: `taking`
      has its lease until the caller has it, the state stays before it, the next call gives it.
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
        if self.taken():
            self.client.give_back(self.info)

    def taken(self):
        """Whether the library has filled it: no batch has 0 rows."""
        return self.info.rows != 0

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
        self._returning = threading.RLock()  # a return may come in the middle of another
        self._leases = {}  # (attach, batch number) -> weak reference to a Lease, its BatchInfo
        self.taking = None  # C3; whoever gets a lease from next() clears it when the lease is safe
        self._error = Error()
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
        code = self._c.rp_client_attach(byref(self._client), byref(options), byref(self._error))
        if code < 0:
            raise_error(code, self._error)
        self.geometry = self._c.rp_client_geometry(self._client).contents
        self.layout = _layout(self.geometry)
        self._before = ctypes.create_string_buffer(self.geometry.state_bytes)
        self._before_bytes = 0

    def next(self, timeout_ns):
        """A new Lease, None when nothing came in time, or END."""
        self._check_process()
        lease = self.taking
        if lease is None:
            lease = self.taking = Lease(self, BatchInfo())
        if not lease.taken():
            code = self._enter_next(timeout_ns, lease.info)
            if code != NEXT_BATCH:
                return self._no_batch(code)
        self._leases[lease.info.lease, lease.info.number] = weakref.ref(lease), lease.info
        return lease

    def _enter_next(self, timeout_ns, info):
        arguments = self._client, timeout_ns, byref(info), byref(self._error)
        with self._lock:
            self._before, self._before_bytes = self._copy_state(self._before)
            code = self._c.rp_client_next(*arguments)
            if code == UsageError.code:  # no slot is free, unless some of these leases are dead
                self._return_dead()
                code = self._c.rp_client_next(*arguments)
        return code

    def _return_dead(self):
        """Return the leases whose end was cut short by an exception from outside (C3)."""
        with self._returning:
            for reference, info in list(self._leases.values()):
                if reference() is None:
                    self.give_back(info)

    def _no_batch(self, code):
        if code == UsageError.code:
            raise LeaseError(
                f"no slot of the ring is free: {self._held()}",
                "drop those views (del), take copies (batch.copy()), lower keep, or give the "
                "engine a larger prefetch_factor",
            )
        if code < 0:
            raise_error(code, self._error)
        return END if code == NEXT_END else None

    def give_back(self, info):
        """Return a lease. Any thread; the library refuses a second time."""
        if self.is_ours():
            with self._returning:
                self._c.rp_client_release(self._client, byref(info))
                self._leases.pop((info.lease, info.number), None)

    def state(self):
        """The state token after the last batch that the caller got, as bytes."""
        self._check_process()
        with self._lock:
            if self.taking is not None and self.taking.taken():
                return self._before.raw[: self._before_bytes]
            buffer, size = self._copy_state(ctypes.create_string_buffer(len(self._before)))
        return buffer.raw[:size]

    def _copy_state(self, buffer):
        """The library's token in buffer, or in a larger one; and its length."""
        size = self._c.rp_client_state(self._client, buffer, len(buffer))
        if size > len(buffer):
            return self._copy_state(ctypes.create_string_buffer(size))
        return buffer, size

    def next_row(self):
        """Global row of that state."""
        self._check_process()
        if self.taking is not None and self.taking.taken():
            return self.taking.info.next_row - self.geometry.rows * self.geometry.world
        return self._c.rp_client_next_row(self._client)

    def identity(self):
        """Of the stream, as text."""
        self._check_process()
        halves = (ctypes.c_uint64 * 2)()
        self._c.rp_client_identity(self._client, halves)
        return f"{halves[1]:016x}{halves[0]:016x}"

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
            self.taking = None
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
        for reference, _ in list(self._leases.values()):
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
