# SPDX-License-Identifier: Apache-2.0
"""The part of a Loader that finds an engine, or starts it, attaches to it, and leaves it.

A loader may be called while it is being called: by a signal handler, which Python runs between any
two instructions, or by another thread. So no lock is held anywhere here, and

  * a call that takes batches or attaches is refused inside of another one (UsageError; of another
    thread ConcurrentCallError);
  * questions about the position are answered, also while another call waits or attaches;
  * close() closes at once, and the call that was in progress raises UsageError;
  * load_state_dict() in a handler is carried out by the call in progress, when the handler returns.
"""

import os
import re
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any, Optional, TypeVar

from ._client import Client, Left
from ._engine import STAGE_ENDED, Engine
from ._form import form_of
from ._interpreter import HAS_LOCK
from ._log import logger
from ._pin import pin_ring
from ._placement import Placed
from ._ranks import ask_frameworks
from ._token import describe_token, next_row_of
from .batch import Batch
from .errors import (
    PASSING,
    CheckpointMismatchError,
    EngineStoppedError,
    EngineTimeoutError,
    RingpackError,
    UsageError,
    concurrent_call,
)

TRY_S = 0.5  # a wait for an engine is cut into these; it grows where the engine takes longer
SILENCE_S = 30.0  # without a batch, before a loop that waits for ever says so
_RESTARTS_MAX = 3  # our own engine's, without a batch in between
_LAST_RANKS_S = 30.0  # time of other local ranks for the end of a finite stream
_OTHER_STAGE_S = 5.0  # time of the rank that starts the engine for starting it in our stage
_STEPS: set[Any] = set()  # the code that must not run twice at a time: of one_thread()
Step = TypeVar("Step", bound=Callable[..., Any])


def one_thread(step: Step) -> Step:
    """A step into which _enter() lets one thread at a time, if Python has its lock. Without it a
    look at `_user` and its change are two steps, so here a thread claims the loader before that. A
    claim ends with its call, whatever exception comes in; one of a fork's parent is void."""
    _STEPS.add(step.__code__)
    if HAS_LOCK:
        return step

    @wraps(step)
    def alone(self: Any, *arguments: Any, **named: Any) -> Any:
        claims, process, me = self._claims, os.getpid(), get_ident()
        try:
            user = claims.setdefault(process, me)  # each call's `me` is an object of its own
        except BaseException:  # from outside, at the end of that call
            if claims.get(process) is me:
                del claims[process]
            raise
        if user is not me:
            if user != me:
                raise concurrent_call()
            return step(self, *arguments, **named)  # by a signal handler, inside of a step
        try:
            return step(self, *arguments, **named)
        finally:
            del claims[process]  # no call, so no exception comes in from here to the caller (C3)

    return alone  # type: ignore[return-value]


class Attached(Placed):
    """See Loader, which has the arguments."""

    _client: Any = None  # Client, while attached
    _engine: Any = None  # Engine, if it is ours
    _user: Optional[int] = None  # the thread that is in a step of the loader
    _kind: str
    _pin_memory: Optional[bool]
    _note_first: Callable[[Client], None]  # _passes.py
    _move: Callable[[Left], None]  # _position.py
    _names: Optional[tuple[str, ...]] = None  # names of streams: _streams.py
    _closes = 0  # calls of close(): one that attaches meanwhile gives up

    def _begin_position(self) -> None:
        self._claims: dict[int, int] = {}  # by process, the thread that is in a step: one_thread()
        self._form: Any = None  # Form, once attached
        self._length: Optional[int] = None
        self._token: Optional[bytes] = None  # where to attach
        self._left: Optional[Left] = None  # the client's position at its end, if that is the place
        self._asked: Optional[Left] = None  # a signal handler's position
        self._open: deque[Batch] = deque()  # batches that are not closed yet, oldest first
        self._trail: deque[bytes] = deque()  # look_ahead: tokens, from the position to the newest
        self._trailed: Any = None  # lease and number of the batch after which its last one is
        self._ended, self._moving, self._restarts, self._died_at = False, False, 0, None
        self._stage_ended = False  # if it has ended: only a stage has
        self._begun: Optional[bytes] = None  # the state at which our engine was started again
        self._revived = False  # it died since, and was started without that state

    # ---- one call at a time ---------------------------------------------------------------------

    def _is_inside(self, user: int) -> bool:
        """Whether that thread, which said so, is in a step; of this thread, the caller's callers.
        Their variables are not looked at: Python would keep copies of these, and so a lease."""
        frame: Any = sys._current_frames().get(user)
        if user == get_ident():
            frame = sys._getframe(3)  # past this one, the frame that queries, and its caller
        elif not HAS_LOCK:  # frames of a thread that runs cannot be walked, and its claim is true
            return frame is not None
        while frame is not None:
            if frame.f_code in _STEPS:
                return True
            frame = frame.f_back
        return False

    def _enter(self) -> None:
        """Begin a step of this thread, whose caller ends it: `self._user = None`.

        Python may let another thread run at the end of a call. None is between a look at `_user`
        that finds no thread and its change; where there is no such rule (Python 3.9), the library
        still refuses a call inside of another one. Without a lock: one_thread()."""
        me, user = get_ident(), self._user
        if user is not None and self._is_inside(user):  # else an exception from outside ended it
            if user != me:
                raise concurrent_call()
            raise UsageError(
                "this loader is called inside of one of its own calls, by a signal handler",
                "state_dict(), counts() and close() may be called there; take batches in the loop",
            )
        self._user = me

    # ---- attach ---------------------------------------------------------------------------------

    def attach(self) -> Any:
        """Start the engine, if this loader is to start it, and attach. No effect when attached.

        EngineGoneError: no engine of that run in time. BusyError: another trainer has this rank.
        CheckpointMismatchError: the engine has another geometry, or the state another stream."""
        if self._client is None:
            self._attach_alone()
        return self

    @one_thread
    def _attach_alone(self) -> None:
        self._enter()
        try:
            self._attach()
        finally:
            self._user = None

    def _attach(self) -> Client:
        """Attach, and go to the position that a signal handler has set."""
        while True:
            client: Client = self._client or self._attach_once()
            asked = self._asked
            if asked is None:
                return client
            self._asked = None
            self._move(asked)

    def _attach_once(self) -> Client:
        closes = self._closes
        try:
            client = self._find_engine(closes)
            try:
                self._form = form_of(client, self)
            except UsageError:
                client.detach()
                raise
            if self._kind == "torch" and self._pin_memory is not False:
                pin_ring(client, asked=bool(self._pin_memory))
        except RingpackError as failure:
            if self._closes != closes:
                raise Client._closed() from failure
            raise
        self._open, self._trail, self._trailed = deque(), deque(), None
        self._ended, self._moving = False, False
        self._client = client
        self._left = None
        self._note_first(client)
        if self._closes != closes:
            self._detach()
            raise Client._closed()
        logger().info("%s, row %d", self, client.next_row())
        return client

    def _find_engine(self, closes: int) -> Client:
        """A Client of the engine, as soon as there is one that has room for this rank. Our own is
        started, and again if it has served a finite stream to its end."""
        self._settle()
        begin, told, attempt = time.monotonic(), False, TRY_S
        deadline = begin + self._connect_timeout
        while True:
            if self._closes != closes:
                raise Client._closed()
            asked = self._asked
            if asked is not None:
                self._token, self._left, self._asked = asked.state(), asked, None
            self._start_own_engine()
            left = max(0.0, deadline - time.monotonic())
            try:
                client = self._try_engine(begin, min(left, attempt))
                if not self._misses_documents(client):
                    return client
                client.detach()
                self._start_at(self._token or b"")
            except CheckpointMismatchError as failure:
                if self._token is None or not self._needs_restart(failure):
                    raise
                latest = deadline if self._engine is not None else begin + _OTHER_STAGE_S
                if time.monotonic() + 0.1 >= min(deadline, latest):
                    raise
                if self._engine is not None:
                    self._start_at(self._token)
                else:
                    time.sleep(0.05)
            except PASSING as failure:
                if time.monotonic() >= deadline:
                    raise
                if isinstance(failure, EngineTimeoutError):  # it may be planning to our row
                    attempt *= 2
                if not told and time.monotonic() - begin > SILENCE_S:
                    told = True
                    logger().warning("not attached for %g s: %s", SILENCE_S, failure)

    def _needs_restart(self, failure: CheckpointMismatchError) -> bool:
        """Whether an engine that starts at our state can serve it: it is in another stage, has less
        limits, or is of version 1, and the engine has begun as a new run."""
        is_other_stage = "this engine serves rows of seq_len" in str(failure)  # server/rejoin.c
        is_raised = "so a start has to raise its limits" in str(failure)  # planner_token_match.c
        is_older = "stream_version: 1 in the state token" in str(failure)  # plan/token.c
        return is_other_stage or is_raised or (is_older and self._config is not None)

    def _misses_documents(self, client: Client) -> bool:
        """Whether documents were appended since our state, and our engine, which began as a new run
        without them, does not take them: an engine that starts at the state does."""
        token, ranks = self._token, self._ranks
        if self._engine is None or token is None or self._begun == token:
            return False
        if ranks.world * ranks.consumers_per_rank > 1 or next_row_of(token) == 0:
            return False
        first = re.findall(r"^record\[0000\]\.documents\[(\d+)\]=(\d+)$", client.contract(), re.M)
        began = {int(number): int(count) for number, count in first}
        if not began:  # version 1
            return False
        sources = describe_token(token)["sources"].values()
        return any(own["next_epoch_documents"] < began.get(own["number"], 0) for own in sources)

    def _start_own_engine(self) -> None:
        """Start our engine, if there is to be one; at our state if it can start at no other
        place."""
        if self._command is None:
            return
        try:
            self._start_engine()
        except RingpackError as failure:
            removed = "rows from row 0 on cannot be planned" in str(failure)  # facade_removed.c
            if self._token is None or self._engine is None or not removed:
                raise
            self._start_at(self._token)

    def _start_engine(self) -> None:
        engine = self._engine
        if engine is None:
            assert self._command is not None  # see the callers
            engine = Engine(*self._command, program=self._program, folder=self._folder)
            self._engine, self._begun, self._revived = engine, None, False
            weakref.finalize(self, engine.stop)
        if not engine.runs():
            engine.start(self._given.start_timeout)
        if self._engine is not engine:  # closed meanwhile
            engine.stop()

    def _start_at(self, token: bytes) -> None:
        """Start our engine again, at a state that it cannot go to: see _needs_restart."""
        import tempfile

        engine, self._begun = self._engine, token
        engine.stop()
        with tempfile.NamedTemporaryFile(prefix="ringpack-state-") as file:
            file.write(token)
            file.flush()
            engine.once = ["--state", file.name]
            self._start_engine()

    def _revive(self) -> None:
        """Start our engine again if it died; the client finds it and continues at its row."""
        engine = self._engine
        if engine is None or engine.runs():
            return
        if engine.process.returncode in (0, STAGE_ENDED):
            raise EngineStoppedError(f"the engine (pid {engine.process.pid}) was stopped")
        row = None if self._client is None else self._client.next_row()
        if row != self._died_at:
            self._died_at, self._restarts = row, 0
        if self._restarts == _RESTARTS_MAX:
            raise engine.failure(f"{_RESTARTS_MAX + 1} times in a row")
        self._restarts += 1
        logger().warning("%s", engine.failure("and is started again"))
        try:
            engine.start(self._given.start_timeout)
        except CheckpointMismatchError:  # it could start only at that state; else see _next
            if self._begun is None:
                raise
            self._start_at(self._begun)
            return
        self._revived = True
        if self._engine is not engine:
            engine.stop()

    def _next(self, client: Client, timeout_ns: int) -> Any:
        """The client's next(). An engine that was started again where it has no checkpoint of
        this stream starts at the state at which the stream was begun."""
        try:
            return client.next(timeout_ns)
        except CheckpointMismatchError:
            if self._begun is None or not self._revived:
                raise
            self._revived = False
            self._start_at(self._begun)
            return None

    # ---- leave ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Detach, and end the engine if this loader started it. Views that are alive stay valid.
        The next use attaches again at this position, and starts such an engine again. After the
        end of a finite stream, other local ranks have time to take its last batches."""
        self._closes += 1
        ended = self._ended
        asked, self._asked = self._asked, None
        self._detach()
        if asked is not None:
            self._token, self._left = asked.state(), asked
        self._moving = False
        engine, self._engine = self._engine, None
        if engine is not None:
            if ended and (self._ranks.world > 1 or self._ranks.consumers_per_rank > 1):
                if len(self._names or ()) > 1:  # it stays at the end, for the evaluations
                    engine.cut_lifeline()
                engine.await_end(_LAST_RANKS_S)
            engine.stop()

    def _close_batches(self) -> None:
        opened, self._open = self._open, deque()
        for batch in list(opened):
            batch.close("was closed when its loader left the position")

    def _detach(self) -> None:
        client = self._client
        if client is None or not client.is_ours():
            self._close_batches()
            if client is not None:  # else another thread may have attached meanwhile
                self._client = None
            return
        client.end()
        self._close_batches()  # a step of another thread has none in hand that is not among them
        token = self._position_of(client)
        left = Left(token, client.state_bytes, client.counts(), client.calendar())
        if self._client is client:  # no call, as another thread may close it, too
            self._token, self._left, self._client = token, left, None  # the next attach goes there
        client.detach()

    def _position_of(self, client: Client) -> bytes:
        """The token of the position: behind the newest batch by look_ahead."""
        trail = self._trail
        return trail[0] if trail else client.state()

    def __enter__(self) -> Any:
        """Start the engine; and attach, if this rank is the only one. With others it attaches when
        first used: a state may be loaded before, and an attached rank would hold up the others.
        So does one whose launcher has not said its rank yet, as Lightning's says it later."""
        if self._ranks.half is not None and ask_frameworks() is None:
            return self
        self._settle()
        if self._ranks.world == 1 and self._ranks.consumers_per_rank == 1:
            return self.attach()
        if self._command is not None:
            self._start_engine()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # At the end of the interpreter the kernel detaches, and weakref.finalize ends the engine;
        # modules may be empty by then.
        if not is_finalizing() and (self._client is not None or self._engine is not None):
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self._client is not None or self._engine is not None:
            raise TypeError(
                "an attached loader cannot be pickled: send it before its first use, or its state"
            )
        # The other process may be another rank; and a form knows the client that has ended.
        own = {"_settled": False, "_process": 0, "_claims": {}, "_form": None, "_open": deque()}
        return {**self.__dict__, **own, "_connection": dict(self._connection)}

    # ---- which engine ---------------------------------------------------------------------------

    @property
    def run(self) -> str:
        """Name under which the engine is found (`ringpack stat NAME`)."""
        self._settle()
        return str(self._connection["run"])

    @property
    def engine_pid(self) -> Optional[int]:
        """Process of the engine that this loader started, or None."""
        engine = self._engine
        return engine.process.pid if engine and engine.process else None

    def __repr__(self) -> str:
        ranks = self._ranks
        engine = "not attached" if self._form is None else "engine already running"
        if self.engine_pid is not None:
            engine = f"engine started here, pid {self.engine_pid}"
        consumers = ranks.consumers_per_rank
        which = f", replica {ranks.replica} of {consumers}" if consumers > 1 else ""
        said = f"rank {ranks.rank} of {ranks.world}{which} ({ranks.said_by})"
        run = self._connection["run"] or "named at the first use"
        return f"{said}, run {run}, {engine}"
