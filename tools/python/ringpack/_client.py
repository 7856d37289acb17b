# SPDX-License-Identifier: Apache-2.0
"""One attachment to an engine, and the leases that came from it.

Invariants
  C1  A lease is returned exactly once: by Lease.__del__, when its last view is gone. That may be on
      any thread, which the C library allows; all other calls are made by one thread at a time.
  C2  A forked child never enters the client of its parent: not to read, not to release.
  C3  An exception that comes from outside while a batch is taken (Ctrl-C) costs no batch: `taking`
      has its lease until the caller has it, the state stays before it, the next call gives it. The
      result of `step` is in `passing` until it is returned.

  C4  No lock is held where Python code can run, because that may be a signal handler: the library
      has the locks. The library's client lives as long as this object, so a handler or another
      thread may close it between any two instructions. The library lends nothing after that. Of
      the batch in hand then, `_fate` has the word of whoever comes first: a step clears `taking`
      and looks at `revoked`, whoever closes sets `revoked` and looks at `taking`.

`step` runs in every step of a training loop, or `next` if views of the batch before are alive:
when a batch is ready it is one call of the library, no system call, and no lock but Python's own.
"""

import ctypes
import gc
import os
from ctypes import byref
from typing import TYPE_CHECKING, Any, Optional

from ._library import (
    NEXT_BATCH,
    NEXT_EMPTY,
    NEXT_END,
    BatchInfo,
    ClientOptions,
    Counts,
    Error,
    call_patiently,
    library,
    locate_documents,
    raise_error,
)
from ._arguments import FilePath
from ._calendar import Calendar
from ._engine import explain_rows
from ._lease import ONE_LOCAL, ROWS_WORD, Held, Lease, Place, Terms, getrefcount, layout_of
from ._numbers import nanoseconds
from ._token import digest_of, next_row_of
from .errors import ConcurrentCallError, LeaseError, UsageError, concurrent_call

if TYPE_CHECKING:
    from ._pin import Pins

END = object()
"""The result of Client.next at the end of the stream."""

_process = os.getpid()


def _note_fork() -> None:
    global _process
    _process = os.getpid()


os.register_at_fork(after_in_child=_note_fork)


class Client:
    """Attaches when it is made. Options: the fields of struct rp_client_options."""

    _client: Any = None

    def __init__(
        self,
        *,
        run: str,
        run_dir: Optional[FilePath],
        rank: int,
        world: int,
        rows: int,
        seq_len: int,
        replica: int,
        consumers_per_rank: int,
        state: Optional[bytes],
        connect_timeout: Optional[float],
        restart_timeout: Optional[float],
        monitor: int,
        digest_log: Optional[str],
        digest_steps: int,
        expected: Optional[bytes] = None,
    ):
        self._c, self._process = library(), _process
        self._take, self._release = self._c.rp_client_take, self._c.rp_client_release
        self._step = self._c.rp_client_step
        self._out: set[Held] = set()  # records of outstanding leases
        self.pins: Optional[Pins] = None  # pins of a ring that a GPU reads
        self.taking: Optional[Lease] = None  # C3; whoever gets it from next() clears this then
        self.revoked = self.closed = False  # C4
        self._fate: dict[int, Optional[Terms]] = {}  # C4: under 0, the batch that nobody gets
        self._passing: Optional[Terms] = None  # C3: the result of a step
        self._spare: Optional[Terms] = None  # a returned batch's
        self._run, self._replica = (run, run_dir), replica
        self._error = Error()
        self._error_argument = byref(self._error)
        self._client = ctypes.c_void_p()
        options = ClientOptions(
            struct_size=ctypes.sizeof(ClientOptions),
            run=run.encode(),
            run_dir=None if run_dir is None else os.fsencode(run_dir),
            rank=rank,
            world=world,
            rows=rows,
            seq_len=seq_len,
            replica=replica,
            replicas=consumers_per_rank,
            state=state,
            state_bytes=len(state) if state else 0,
            connect_timeout_ns=nanoseconds(connect_timeout),
            restart_timeout_ns=nanoseconds(restart_timeout),
            monitor=monitor,
            digest_log=None if digest_log is None else os.fsencode(digest_log),
            digest_steps=digest_steps,
            expected=expected,
            expected_bytes=len(expected or b""),
        )
        if digest_log is not None:
            os.makedirs(os.path.dirname(digest_log), exist_ok=True)
        c, client = self._c, self._client
        code = call_patiently(
            lambda _: c.rp_client_detach(client),  # NULL after a failure
            c.rp_client_attach,
            byref(client),
            byref(options),
            byref(self._error),
        )
        if code < 0:
            raise_error(code, self._error)
        # As `take`, `step` and `release` are given it: a c_void_p makes the call a fifth longer.
        self._place: Any = byref(ctypes.c_char.from_address(client.value or 0))
        self.geometry: Any = self._c.rp_client_geometry(self._client).contents
        self.state_bytes: int = self.geometry.state_bytes
        self.layout: dict[str, Place] = layout_of(self.geometry)

    # ---- batches --------------------------------------------------------------------------------

    def next(self, timeout_ns: int) -> Any:
        """A new Lease, None when no batch came in time, or END."""
        if self._process != _process:
            self._check_process()
        if self._passing is not None:
            self._return_passing()
        lease = self.taking
        if lease is None:
            terms = self._unused_terms()
            lease = Lease()
            lease.client, lease.exports = self, {}
            held = lease.held = Held(lease)
            held.terms = terms
            self._out.add(held)
            self.taking = lease
        terms = lease.held.terms
        if self.pins is not None:
            self._release_passed(self.pins)
        if not terms.words[ROWS_WORD]:  # is_filled()
            if self.closed:
                raise self._closed()
            code = self._take(self._place, terms.argument, self._error_argument)
            if code != NEXT_BATCH:
                code = self._next_slowly(code, timeout_ns, terms.argument)
                if code != NEXT_BATCH:
                    return self._no_batch(code)
        if self.pins is not None:
            self.pins.cover(self.geometry, terms.info)
        return lease

    def step(self, lease: Lease, timeout_ns: int) -> Any:
        """next(), after the end of a lease that only the caller has: the same object becomes the
        next one, and one call of the library returns a batch and takes the next."""
        if self._process != _process or self.taking is not None or self.pins is not None:
            self.give_back(lease.held)
            return self.next(timeout_ns)
        if self._passing is not None:
            self._return_passing()
        if self.closed:
            raise self._closed()
        terms, self._spare = self._spare, None  # _unused_terms(), without the call
        if terms is None or getrefcount(terms) != ONE_LOCAL:
            terms = Terms()
        terms.words[ROWS_WORD] = 0
        held = lease.held
        passing = self._passing = held.terms
        held.terms = terms  # from here on only `passing` returns the batch before
        self.taking = lease
        code = self._step(self._place, passing.argument, terms.argument, self._error_argument)
        self._passing = None
        self._spare = passing
        if code != NEXT_BATCH:
            if code == ConcurrentCallError.code:  # the batch before was not returned
                self._passing, self._spare = passing, None
            code = self._next_slowly(code, timeout_ns, terms.argument)
            if code != NEXT_BATCH:
                return self._no_batch(code)
        return lease

    def _unused_terms(self) -> Terms:
        """Terms that only the caller has (L3)."""
        terms, self._spare = self._spare, None
        if terms is None or getrefcount(terms) != ONE_LOCAL:
            return Terms()
        terms.clear()
        return terms

    def _next_slowly(self, code: int, timeout_ns: int, argument: Any) -> Any:
        """Wait for the batch that `take` did not have at once."""
        if self.closed:
            raise self._closed()
        if code == UsageError.code:  # no slot is free, unless some of these leases are dead
            code = self._take_again(argument)
        if code == UsageError.code:  # views in reference cycles keep theirs until a collection
            gc.collect()
            code = self._take_again(argument)
        if code == NEXT_EMPTY and timeout_ns:
            return self._c.rp_client_next(self._client, timeout_ns, argument, self._error_argument)
        return code

    def _take_again(self, argument: Any) -> Any:
        self._return_dead()
        if self.pins is not None:
            self._release_passed(self.pins, wait=True)
        return self._take(self._client, argument, self._error_argument)

    @staticmethod
    def _closed() -> UsageError:
        return UsageError(
            "this loader was closed while it was used: by a signal handler, or another thread",
            "state_dict() has its position, and the next use attaches there",
        )

    def _no_batch(self, code: int) -> Any:
        if code == UsageError.code:
            if self.closed:
                raise self._closed()
            raise LeaseError(
                f"no slot of the ring is free: {self._held()}",
                "drop those views (del), take copies (batch.copy(), or copy=True), lower keep, or "
                "give the engine a larger prefetch_factor",
            )
        if code == ConcurrentCallError.code:
            raise concurrent_call()
        if code < 0:
            raise_error(code, self._error)
        return END if code == NEXT_END else None

    # ---- returning them -------------------------------------------------------------------------

    def give_back(self, held: Held) -> None:
        """Return a lease, once however often it is called. Any thread.

        It is forgotten last: if the end of a lease is cut short, _return_dead finds it. Should
        both return it at once, the library refuses the second."""
        if self._process == _process and held in self._out:
            terms = held.terms
            if terms.words[ROWS_WORD]:  # is_filled()
                if self.pins is None:
                    self._release(self._place, terms.argument)
                    self._spare = terms
                else:
                    self.pins.mark(terms.info)
            self._out.discard(held)

    def _release_passed(self, pins: "Pins", wait: bool = False) -> None:
        for info in pins.passed(wait):
            self._release(self._client, byref(info))

    def _return_passing(self) -> None:
        """The library refuses a lease that a step which was cut short had returned. A step that was
        cut short before its lease had other terms leaves a lease that returns nothing: it may
        outlive the client."""
        if (passing := self._passing) is None:
            return  # another thread, which closes the loader, has returned it
        self._release(self._client, passing.argument)
        for held in list(self._out):
            if held.terms is passing:
                self._out.discard(held)
        self._passing = None

    def _return_dead(self) -> None:
        """Return the leases whose end was cut short by an exception from outside (C3)."""
        if self._passing is not None:
            self._return_passing()
        for held in list(self._out):
            if held() is None:
                self.give_back(held)

    def _forget_returned(self) -> None:
        """Forget the leases that the library has back already: where give_back was cut short in
        between, their end would release them once more, which a detached client does not refuse."""
        for held in list(self._out):
            if not self._c.rp_client_holds(self._client, held.terms.argument):
                self._out.discard(held)

    def _held(self) -> str:
        """The leases that are out, for messages."""
        told = []
        for held in list(self._out):
            lease, terms = held(), held.terms
            if lease is not None and lease is not self.taking and terms.is_filled():
                views = ", ".join(lease.viewed())
                state = f"views of {views}" if views else "open"
                told.append(f"batch {terms.info.number} ({state})")
        return ", ".join(told) + " still on lease" if told else ""

    def check_all_returned(self) -> None:
        """The engine gives the rank's ring to no other trainer while leases on it are out."""
        held = self._held()
        if held:
            gc.collect()  # as _next_slowly does
            held = self._held()
        if held:
            raise LeaseError(
                f"cannot go to another position: {held}",
                "drop those views (del), or take copies (batch.copy(), or copy=True)",
            )

    # ---- its position ---------------------------------------------------------------------------

    def _pending(self) -> Optional[Terms]:
        """The info of the batch that was lent and the caller has not got yet, or never gets."""
        if self._fate:
            return self._fate[0]
        lease = self.taking
        terms = lease.held.terms if lease is not None else None
        lease = None  # it would keep the slot
        return terms if terms is not None and terms.is_filled() else None

    def state(self) -> bytes:
        """The state token after the last batch that the caller got, as bytes."""
        self._check_process()
        c = self._c
        while True:
            pending = self._pending()
            token = self._copied(c.rp_client_state_before if pending else c.rp_client_state)
            if self._pending() is pending:  # else another thread took a batch meanwhile
                return token

    def state_after(self, info: BatchInfo) -> bytes:
        """The state token after a batch; empty if the library has forgotten it."""
        self._check_process()
        return self._copied(self._c.rp_client_state_after, byref(info))

    def _copied(self, copy: Any, *arguments: Any) -> bytes:
        size = self.state_bytes
        while True:
            buffer = ctypes.create_string_buffer(size)
            found = copy(self._client, *arguments, buffer, size)
            if found <= size:
                return buffer.raw[:found]
            size = found

    def stage_ended(self) -> bool:
        """Whether END was the end of a stage."""
        return bool(self._c.rp_client_stage_ended(self._client))

    def next_row(self) -> int:
        """Global row of that state."""
        self._check_process()
        terms, geometry = self._pending(), self.geometry
        if terms is not None:
            first_row, next_row = terms.info.first_row, terms.info.next_row
            return int(min(first_row - geometry.rank * terms.info.rows, next_row))
        return int(self._c.rp_client_next_row(self._client))

    def contract(self) -> str:
        """The contract of the run's engines and trainers: lines of named fields."""
        self._check_process()
        return self._copied(self._c.rp_client_contract).decode("ascii")

    def step_row(self) -> int:
        """First row of the step that has the next batch."""
        self._check_process()
        terms = self._pending()
        if terms is not None:
            return self.step_row_of(terms.info)
        return int(self._c.rp_client_step_row(self._client))

    def step_row_of(self, info: BatchInfo) -> int:
        """First row of the step of a batch."""
        rows, geometry = info.rows * self.geometry.world, self.geometry
        return int(info.first_row - geometry.rank * info.rows - info.micro_batch * rows)

    def calendar(self) -> Calendar:
        return Calendar(self.contract())

    def facts(self) -> dict[str, Any]:
        """The facts that the ranks of a job compare before they begin."""
        geometry = self.geometry
        return {
            "contract": self.contract(),
            "next_row": self.next_row(),
            "plan_digest": digest_of(self.state()),
            "step_boundary": self.step_row(),
            "dp_world_size": geometry.world,
            "dp_rank": geometry.rank,
            "replica": self._replica,
        }

    def counts(self) -> dict[str, int]:
        self._check_process()
        counts = Counts(struct_size=ctypes.sizeof(Counts))
        self._c.rp_client_counts(self._client, byref(counts))
        return {field[0]: getattr(counts, field[0]) for field in Counts._fields_[1:]}

    def locate(self, documents: Any) -> list[tuple[str, int]]:
        """File and row of each; `documents` are records of provenance."""
        return locate_documents(documents, *self._run)

    def explain(
        self, first: int, last: int, config: Optional[FilePath], program: Optional[FilePath]
    ) -> list[dict[str, Any]]:
        """The answer of `ringpack explain` about rows, of a config or of the engine that runs."""
        return explain_rows(first, last, self._run, config, program)

    def digest(self, info: BatchInfo, labels: bool) -> int:
        halves, error = (ctypes.c_uint64 * 2)(), Error()
        arguments = byref(self.geometry), byref(info), halves
        if not labels:
            self._c.rp_batch_digest(*arguments)
        else:
            code = self._c.rp_batch_labelled_digest(*arguments, byref(error))
            if code < 0:
                raise_error(code, error)
        return halves[1] << 64 | halves[0]

    # ---- the end --------------------------------------------------------------------------------

    def end(self) -> None:
        """Take no more batches: from here on the position stays. It may be repeated."""
        self.closed = self.revoked = True  # in this order, and before the look
        self._c.rp_client_close(self._client)
        self.settle(self._pending())

    def settle(self, terms: Optional[Terms]) -> Optional[Terms]:
        """The batch that no caller gets any more: this one, unless somebody said so before (C4)."""
        return self._fate.setdefault(0, terms)

    def detach(self) -> None:
        """Detach. Leases that are out stay readable; the last one frees the memory and the rank."""
        if self.is_ours():
            self.end()
            self.taking = None  # its reader, which this call may have interrupted, still has it
            self._return_dead()
            pins, self.pins = self.pins, None
            if pins is not None:
                for info in pins.close():
                    self._release(self._client, byref(info))
            self._forget_returned()

    def __del__(self) -> None:
        if self._client and self.is_ours():
            self._c.rp_client_detach(self._client)

    def is_ours(self) -> bool:
        """Whether this is the process that attached (C2)."""
        return self._process == _process

    def _check_process(self) -> None:
        if not self.is_ours():
            raise UsageError(
                f"this loader was attached in process {self._process}, and this is its fork "
                f"{os.getpid()}",
                "make a Loader in each process that reads, after the fork",
            )


class Left:
    """A position without a client: a detached client's, with its counts and calendar; or a state to
    be loaded."""

    def __init__(
        self,
        state: bytes,
        room: int,
        counts: Optional[dict[str, int]] = None,
        calendar: Optional[Calendar] = None,
    ):
        self._state, self.state_bytes, self._calendar = state, room, calendar
        self._counts = counts or {field[0]: 0 for field in Counts._fields_[1:]}

    def state(self) -> bytes:
        return self._state

    def calendar(self) -> Optional[Calendar]:
        return self._calendar

    def next_row(self) -> int:
        return next_row_of(self._state)

    def counts(self) -> dict[str, int]:
        return dict(self._counts)
