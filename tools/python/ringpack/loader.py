# SPDX-License-Identifier: Apache-2.0
"""The loader: an endless or finite iterator of batches whose position can be saved and restored."""

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from threading import get_ident
from typing import Any, Optional, Union

from ._arguments import Corpus, FilePath, check_form, check_needs_no_engine
from ._arguments import monitor_of, whole, working_folder
from ._client import END, Client, Left
from ._engine import Engine, count_steps, place_given
from ._form import form_of
from ._lease import ONE_LOCAL, getrefcount
from ._log import logger
from ._pin import pin_ring
from ._placement import Given, Placed
from ._ranks import check_agreement, torch_all_gather
from ._state import STATE_KEY, digest_of, epochs_of, import_state, state_of, text_of, token_of
from ._views import import_torch
from .batch import Batch, batch_of, new
from .errors import PASSING, EngineStoppedError, EngineTimeoutError, RingpackError, UsageError
from .profiles import PROFILES

_SLICE_NS = 100_000_000  # a wait is cut into these, so that Ctrl-C and dead engines are noticed
_TRY_S = 0.5  # likewise for attaching; it grows where an engine takes longer to place the trainer
_SILENCE_S = 30.0  # without a batch, before a loop that waits for ever says so
_RESTARTS_MAX = 3  # of our own engine, without a batch in between


class Loader(Placed):
    """Iterate over the batches of one data-parallel rank.

    ``Loader(run="pretrain")`` attaches to a running engine (``ringpack serve``).
    ``Loader("config.yaml")`` or ``Loader(corpus="books.bin", seq_len=2048, batch_size=8)`` starts
    one as a child, which ends when this process ends, however it ends. On a node with several local
    ranks the first one starts it and the others attach to it.

    Parameters
    ----------
    config: path of a YAML config, for an engine that is started here.
    run: name of the run. run_dir: folder of its socket. Default: as the config says, else a name
        of this process, or of the job and the stream, and the engine's default folder.
    corpus: a path, a list of paths, or of dicts: the keys of a source in a config.
    seq_len, batch_size: tokens in a row; rows per batch of this rank. Checked against the engine.
    dp_rank, dp_world_size: default: from the launcher, torch.distributed or jax.distributed, else
        0 of 1.
    replicas: processes of this node that all need every batch of this rank, as tensor-, pipeline-
        or context-parallel neighbours do (1). replica: which of them this one is, from 0 on (0).
    profile: "hf", "trl", "megatron", "olmo", "torchtitan" or "grain": what a batch has, and under
        which names (ringpack.profiles); "min" or "full": under those of Batch.
    return_type: "numpy" (default), "torch" or "jax": what ``batch[name]`` gives, without a copy.
    flat: views are 1-D, over the whole batch, instead of (batch_size, seq_len).
    pin_memory: page-lock the ring where torch has a GPU, for copies with non_blocking=True.
    keep: newest batches that stay open (1); a step of the loop closes the older ones.
    start_engine: True: this process starts the engine; False: attach only; None (default): the
        first local rank starts it, if config or corpus is given.
    start_timeout: seconds to wait for an engine that starts here (600).
    connect_timeout: seconds until a running one has placed this rank (10, or start_timeout).
    restart_timeout: seconds to wait for the successor of a dead one (60).
    monitor: what to do with a batch that does not continue the one before it (a gap, a repeat,
        another stream): "raise" ProtocolError, "count" it in counts(); None: do not check.
    digest_log: folder for digests of what each rank is given, every digest_steps steps (100).
    program: path of `ringpack`; default: RINGPACK, else beside the package, else in PATH.
    options: every other key of the config (seed=1, packing="best_fit", num_epochs=3, ...), for an
        engine that is started here, and its accept_weights=True, fresh=True, state="FILE" and
        start_step=N (refused where a checkpoint is at another row): see `ringpack help serve`.

    The engine is started, or attached to, at the first use, by ``with`` or by ``attach()``; before
    that a loader can be pickled. A second thread at a time, and a fork, get UsageError. Relative
    paths begin in the folder where the loader was made. Errors: RingpackError, with a ``hint``.

    With return_type="torch" it is a torch.utils.data.IterableDataset too, which may be given to
    StatefulDataLoader(loader, batch_size=None). It is Stateful for torch.distributed.checkpoint.
    """

    _client: Any = None  # Client, while attached
    _engine: Any = None  # Engine, if it is ours

    def __new__(cls, *_: Any, **arguments: Any) -> "Loader":
        if cls is Loader and arguments.get("return_type") == "torch":
            import_torch()
            from ._torch import TorchLoader

            return super().__new__(TorchLoader)
        return super().__new__(cls)

    def __init__(
        self,
        config: Optional[FilePath] = None,
        *,
        run: Optional[str] = None,
        run_dir: Optional[FilePath] = None,
        corpus: Optional[Corpus] = None,
        seq_len: Optional[int] = None,
        batch_size: Optional[int] = None,
        dp_rank: Optional[int] = None,
        dp_world_size: Optional[int] = None,
        replica: Optional[int] = None,
        replicas: Optional[int] = None,
        profile: Optional[str] = None,
        return_type: str = "numpy",
        flat: bool = False,
        pin_memory: bool = False,
        keep: int = 1,
        start_engine: Optional[bool] = None,
        start_timeout: float = 600.0,
        connect_timeout: Optional[float] = None,
        restart_timeout: Optional[float] = None,
        monitor: Optional[str] = "raise",
        digest_log: Optional[FilePath] = None,
        digest_steps: int = 100,
        program: Optional[FilePath] = None,
        **options: Any,
    ):
        check_form(return_type, pin_memory, keep)
        describes = config is not None or corpus is not None
        if profile is not None and (describes or profile not in PROFILES):
            options["profile"] = profile
        if not describes:
            check_needs_no_engine(start_engine, options, Loader.__init__.__kwdefaults__)
        self._given = Given(
            config,
            corpus,
            *place_given(run, run_dir, config, corpus, program),
            seq_len,
            batch_size,
            (dp_rank, dp_world_size, replica, replicas),
            start_engine,
            start_timeout,
            connect_timeout,
            (digest_log, digest_steps),
            options,
        )
        self._connection = dict(
            rows=whole("batch_size", batch_size) or 0,
            seq_len=whole("seq_len", seq_len) or 0,
            restart_timeout=restart_timeout,
            monitor=monitor_of(monitor),
        )
        self._take_place(self._given.find_ranks())
        self._profile, self._kind, self._flat, self._keep = profile, return_type, bool(flat), keep
        self._pin_memory, self._folder, self._program = pin_memory, working_folder(), program
        self._start_timeout = start_timeout
        self._token: Optional[bytes] = None  # where to attach
        self._left: Optional[Left] = None  # what the client said at its end, if that is the place
        self._user: Optional[int] = None  # the thread that is in the loader
        self._open: deque[Batch] = deque()  # batches that are not closed yet, oldest first
        self._form: Any = None  # Form, once attached
        self._length: Optional[int] = None
        self._ended, self._moving, self._restarts, self._died_at = False, False, 0, None

    # ---- attach, detach -------------------------------------------------------------------------

    def attach(self) -> "Loader":
        """Start the engine, if this loader is to start it, and attach. Nothing when attached.

        EngineGoneError: no engine of that run in time. BusyError: another trainer has this rank.
        CheckpointMismatchError: the engine has another geometry, or the state another stream."""
        if self._client is not None:
            return self
        before = self._enter()
        try:
            client = self._find_engine()
            try:
                self._form = form_of(client, self._keep, self._profile, self._kind, self._flat)
            except UsageError:
                client.detach()
                raise
            if self._pin_memory:
                pin_ring(client)
            self._client, self._left, self._ended, self._moving = client, None, False, False
            logger().info("%s, row %d", self, client.next_row())
            return self
        finally:
            self._user = before

    def _enter(self) -> Optional[int]:
        """Refuse a second thread. Returns what is to be put back."""
        before, user = self._user, get_ident()
        if before is not None and before != user:
            raise UsageError(
                "two threads are in this loader at once",
                "let one thread at a time call it; batches and their views may go to any",
            )
        self._user = user
        return before

    def _find_engine(self) -> Client:
        """A Client of the engine, as soon as there is one that has room for this rank. Our own is
        started, and again if it has served a finite stream to its end."""
        self._settle()
        begin, told, attempt = time.monotonic(), False, _TRY_S
        deadline = begin + self._connect_timeout
        while True:
            if self._command is not None:
                self._start_engine()
            left = max(0.0, deadline - time.monotonic())
            try:
                return self._try_engine(begin, min(left, attempt))
            except PASSING as failure:
                if time.monotonic() >= deadline:
                    raise
                if isinstance(failure, EngineTimeoutError):  # it may be planning to our row
                    attempt *= 2
                if not told and time.monotonic() - begin > _SILENCE_S:
                    told = True
                    logger().warning("not attached for %g s: %s", _SILENCE_S, failure)

    def _start_engine(self) -> None:
        if self._engine is None:
            assert self._command is not None  # see the callers
            self._engine = Engine(*self._command, program=self._program, folder=self._folder)
            weakref.finalize(self, self._engine.stop)
        if not self._engine.runs():
            self._engine.start(self._start_timeout)

    def close(self) -> None:
        """Detach, and end the engine if this loader started it. Views that are alive stay valid.
        The next use attaches again at this position, and starts such an engine again."""
        self._detach()
        self._moving = False
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.stop()

    def _close_batches(self) -> None:
        while self._open:
            self._open.popleft().close("was closed when its loader left the position")

    def _detach(self) -> None:
        self._close_batches()
        client, self._client = self._client, None
        if client is not None and client.is_ours():
            self._token = client.state()  # attaching again goes on here
            self._left = Left(client)
            client.detach()

    def __enter__(self) -> "Loader":
        """Start the engine; and attach, if this rank is the only one. With others it attaches when
        first used: a state may be loaded before, and an attached rank would hold up the others."""
        self._settle()
        if self._ranks.world == 1 and self._ranks.replicas == 1:
            return self.attach()
        if self._command is not None:
            self._start_engine()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._client is not None or self._engine is not None:
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self._client is not None or self._engine is not None:
            raise TypeError(
                "an attached loader cannot be pickled: send it before its first use, or its state"
            )
        return {**self.__dict__, "_settled": False}  # the other process may be another rank

    # ---- batches --------------------------------------------------------------------------------

    def __iter__(self) -> "Loader":
        """The loader itself: a second loop goes on where the first one stopped."""
        if self._ended:
            logger().warning("the stream has ended: a loop over it gives nothing (see num_epochs)")
        return self

    def __next__(self) -> Batch:
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch

    def next(self, timeout: Optional[float] = None) -> Optional[Batch]:
        """The next batch, or None at the end of the stream (num_epochs).

        Closes the batch before it (with keep=n, the n-th before it). Waits at most `timeout`
        seconds (None: until there is one), then raises EngineTimeoutError; nothing is lost."""
        before = self._user and self._enter()
        self._user = get_ident()
        try:
            client = self._client
            if client is None:
                client = self.attach()._client
            opened, form, lease = self._open, self._form, None
            while len(opened) >= self._keep:
                lease = None  # of an older batch
                if (done := opened.popleft())._lease is not None:  # done.end(), without the call
                    lease, done._why, done._lease = done._lease, form.went_on, None
            if self._ended:
                return None
            wait_ns = _SLICE_NS if timeout is None else 0
            if lease is None or getrefcount(lease) != ONE_LOCAL:
                lease = None  # views of it are alive, and return the batch when they die
                lease = client.next(wait_ns)
            else:
                lease = client.step(lease, wait_ns)
            if lease is None or lease is END:
                if (lease := self._wait(client, lease, timeout)) is None:
                    return None
            batch = new(Batch)  # batch_of(), without the call
            batch._lease, batch._terms, batch._form = lease, lease.held.terms, form
            opened.append(batch)
            client.taking = None  # from here to the caller nothing can come in between (C3)
            return batch
        finally:
            self._user = before

    def borrow(self, timeout: Optional[float] = None) -> Optional[Batch]:
        """The next batch, to be closed by the caller: with `with`, release() or close(). The
        loader's steps do not close it. None at the end of the stream. As many batches as the ring
        has slots may be open at a time; for one more, LeaseError names them."""
        before = self._enter()
        try:
            client = self.attach()._client
            lease: Any = END if self._ended else client.next(0)
            if lease is None or lease is END:
                if (lease := self._wait(client, lease, timeout)) is None:
                    return None
            batch = batch_of(lease, self._form)
            client.taking = None
            return batch
        finally:
            self._user = before

    def _wait(self, client: Client, lease: Any, timeout: Optional[float]) -> Any:
        """Wait for a lease; None at the end of the stream."""
        begin = time.monotonic()
        deadline, told = None if timeout is None else begin + timeout, timeout is not None
        while lease is None:
            self._revive()
            if not told and time.monotonic() - begin > _SILENCE_S:
                told = True
                logger().warning("no batch for %g s: %s", _SILENCE_S, self._where_to_look())
            left = _SLICE_NS if deadline is None else 1e9 * (deadline - time.monotonic())
            lease = client.next(int(max(0, min(left, _SLICE_NS))))
            if lease is None and deadline is not None and time.monotonic() >= deadline:
                raise EngineTimeoutError(f"no batch within {timeout:g} s", self._where_to_look())
        if lease is END:
            if not self._ended and not client.counts()["batches"]:
                row = client.next_row()
                logger().warning("the stream ends at row %d: nothing to read (see num_epochs)", row)
            self._ended = True
            return None
        return lease

    def _where_to_look(self) -> str:
        return f"`ringpack stat {self.run}` tells what the engine waits for"

    def _revive(self) -> None:
        """Start our engine again if it died; the client finds it and goes on at its row."""
        if self._engine is None or self._engine.runs():
            return
        if self._engine.process.returncode == 0:
            raise EngineStoppedError(f"the engine (pid {self.engine_pid}) was stopped")
        row = self._client.next_row()
        if row != self._died_at:
            self._died_at, self._restarts = row, 0
        if self._restarts == _RESTARTS_MAX:
            raise self._engine.failure(f"{_RESTARTS_MAX + 1} times in a row")
        self._restarts += 1
        logger().warning("%s", self._engine.failure("and is started again"))
        self._engine.start(self._start_timeout)

    def __bool__(self) -> bool:
        return True  # a question about the loader, and not about its length

    def __len__(self) -> int:
        """Batches of this rank in the whole stream, from row 0 on, as `ringpack plan` counts them:
        well under 1 us per document, once. TypeError: it is endless, or not described here."""
        if self._length is None:
            self._settle()
            if self._config is None:
                raise TypeError("the length is not known: the engine's config is not this loader's")
            if epochs_of(self.attach()._client.state()) == 0:
                raise TypeError("an endless stream has no length")
            micro_batches = self._client.geometry.micro_batches
            self._length = micro_batches * count_steps(self._config, self._program, self._folder)
        return self._length

    def set_epoch(self, epoch: int) -> None:
        """Does nothing: the stream holds every epoch (num_epochs), each in an order of its own, and
        the state says where it stands. UsageError for another epoch after the stream's end."""
        if self._ended and epoch > 0:
            raise UsageError(
                f"epoch {epoch} was asked for, and the stream has ended",
                "give num_epochs to the engine; one loop goes through all of them",
            )

    # ---- state ----------------------------------------------------------------------------------

    def _place(self) -> Union[Client, Left]:
        """What knows the position: the client, or after close() the record that it left."""
        return self._left or self.attach()._client

    def state_dict(self, text: bool = False) -> dict[str, Any]:
        """The position after the last batch that was taken: the same bytes on every rank.

        {"ringpack_state": uint8 array, or tensor with return_type="torch"}, always of the same
        length for one stream, so that torch.distributed.checkpoint can load in place. text=True
        gives a string instead, for JSON. The copy is the caller's. Also after close()."""
        place = self._place()
        if text:
            return text_of(place.state())
        state = state_of(place.state(), place.state_bytes)
        if self._kind == "torch":
            state[STATE_KEY] = import_torch().from_numpy(state[STATE_KEY])
        return state

    def load_state_dict(self, state: Union[Mapping[str, Any], FilePath]) -> None:
        """Go to the position of a state_dict, of any rank of any world size; or of a file that
        ringpack.import_state reads.

        Before the first use it is only remembered, and checked when attaching; later the loader
        attaches again at once. Open batches are closed; views of them must be gone (LeaseError).
        CheckpointMismatchError: the state is of another stream; the loader stays where it was."""
        if isinstance(state, (str, os.PathLike)):
            state = import_state(state, self._program)
        token = token_of(state)
        if self._client is not None:
            self._close_batches()
            self._client.check_all_returned()
            self._detach()
            self._moving = True  # until it is attached again, here or at another state
        before = self._token, self._left
        self._token, self._left = token, None
        if self._moving:
            try:
                self.attach()
            except RingpackError:
                self._token, self._left = before
                raise

    def get_state(self) -> dict[str, Any]:
        """state_dict(text=True), as Grain's checkpoints ask for it."""
        return self.state_dict(text=True)

    set_state = load_state_dict  # as Grain's checkpoints ask for it

    def check_ranks(
        self, all_gather: Optional[Callable[[dict[str, Any]], Iterable[dict[str, Any]]]] = None
    ) -> str:
        """Compare what the ranks of a job are about to read; a collective call, before the loop.

        Nodes share nothing: each field of the contract is compared, and the position. `all_gather`
        gives every process the objects of all, in one order (default: torch.distributed's). Raises
        CheckpointMismatchError on every rank, with what differs and both values. Returns "whole"
        where all corpora are indexed (their whole content was compared), else "sampled"."""
        gather = all_gather or torch_all_gather
        facts, ranks = self.attach()._client.facts(), self._ranks
        said = {"replicas": ranks.replicas, "said_by": ranks.said_by}
        return check_agreement(list(gather({**facts, **said})))

    def contract(self) -> str:
        """What all processes of a job must agree on: lines of named fields."""
        return str(self.attach()._client.contract())

    # ---- what is going on -----------------------------------------------------------------------

    @property
    def next_row(self) -> int:
        """Global row of the present position."""
        return self._place().next_row()

    @property
    def plan_digest(self) -> Optional[str]:
        """Hash, in hexadecimal, of which documents are in all rows before next_row. None after a
        state of an older version. To ask for it costs a copy of the state."""
        return digest_of(self._place().state())

    @property
    def run(self) -> str:
        """Name under which the engine is found (`ringpack stat NAME`)."""
        self._settle()
        return str(self._connection["run"])

    @property
    def engine_pid(self) -> Optional[int]:
        """Process of the engine that this loader started, or None."""
        return self._engine.process.pid if self._engine and self._engine.process else None

    def counts(self) -> dict[str, int]:
        """Since attaching: batches, rows, tokens, waits, wait_ns, reattaches."""
        return self._place().counts()

    def __repr__(self) -> str:
        ranks = self._ranks
        engine = "not attached" if self._form is None else "engine already running"
        if self.engine_pid is not None:
            engine = f"engine started here, pid {self.engine_pid}"
        which = f", replica {ranks.replica} of {ranks.replicas}" if ranks.replicas > 1 else ""
        said = f"rank {ranks.rank} of {ranks.world}{which} ({ranks.said_by})"
        run = self._connection["run"] or "named at the first use"
        return f"{said}, run {run}, {engine}"
