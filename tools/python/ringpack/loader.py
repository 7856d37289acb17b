# SPDX-License-Identifier: Apache-2.0
"""The loader: an endless or finite iterator of batches whose position can be saved and restored."""

import base64
import logging
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional, Union

import numpy

from ._client import END, Client
from ._engine import Engine, engine_command
from ._ranks import check_agreement, find_ranks
from .batch import KINDS, Batch, import_torch
from .errors import (
    BusyError,
    EngineGoneError,
    EngineStoppedError,
    EngineTimeoutError,
    RingpackError,
    UsageError,
)

logger = logging.getLogger("ringpack")
STATE_KEY = "ringpack_state"
_SLICE_NS = 100_000_000  # a wait is cut into these, so that Ctrl-C and dead engines are noticed
_RESTARTS_MAX = 3  # of our own engine, without a batch in between
FilePath = Union[str, os.PathLike]
_serial = iter(range(1 << 62))


class Loader:
    """Iterate over the batches of one data-parallel rank.

    ``Loader(run="pretrain")`` attaches to a running engine (``ringpack serve``).
    ``Loader("config.yaml")`` or ``Loader(corpus="books.bin", seq_len=2048, batch_size=8)`` starts
    one as a child, which ends when this process ends, however it ends. On a node with several local
    ranks the first one starts it and the others attach to it.

    Parameters
    ----------
    config: path of a YAML config, for an engine that is started here.
    run: name of the run. run_dir: folder of its socket, when it is not the default one.
    corpus: a path, a list of paths, or of dicts (name, path | shards, weight, format, dtype, eos).
    seq_len, batch_size: tokens in a row; rows per batch of this rank. Checked against the engine.
    dp_rank, dp_world_size: default: from torchrun, Open MPI or Slurm, else 0 of 1.
    return_type: "numpy" or "torch": what ``batch[name]`` gives, without a copy.
    flat: give 1-D views, not one row per row.
    keep: batches that stay open at a time; 2 keeps the one before the newest too.
    start_engine: True: this process starts the engine; False: attach only; None: as said above.
    start_timeout: seconds to wait for an engine that starts here (600).
    connect_timeout: seconds to wait for a running one (10; when a local rank starts it: 600).
    restart_timeout: seconds to wait for the successor of a dead one (60).
    program: path of `ringpack`; default: RINGPACK, else beside the package, else in PATH.
    options: every other key of the config (seed=1, packing="best_fit", profile="hf", ...), for an
        engine that is started here. `ringpack help serve` lists them.

    The engine is started, or attached to, at the first use, by ``with`` or by ``attach()``; before
    that a loader can be pickled. A loader belongs to one process: in a fork it refuses to work.
    """

    def __init__(
        self,
        config: Optional[FilePath] = None,
        *,
        run: Optional[str] = None,
        run_dir: Optional[FilePath] = None,
        corpus: Union[FilePath, dict, Iterable[Union[FilePath, dict]], None] = None,
        seq_len: Optional[int] = None,
        batch_size: Optional[int] = None,
        dp_rank: Optional[int] = None,
        dp_world_size: Optional[int] = None,
        return_type: str = "numpy",
        flat: bool = False,
        keep: int = 1,
        start_engine: Optional[bool] = None,
        start_timeout: float = 600.0,
        connect_timeout: Optional[float] = None,
        restart_timeout: Optional[float] = None,
        program: Optional[FilePath] = None,
        **options: Any,
    ):
        self._client = self._engine = None
        if return_type not in KINDS:
            raise ValueError(f"return_type is {return_type!r}: expected one of {', '.join(KINDS)}")
        if return_type == "torch":
            import_torch()
        if keep < 1:
            raise ValueError(f"keep is {keep}: expected 1 or more")
        ranks = find_ranks(dp_rank, dp_world_size, os.environ)
        describes = config is not None or corpus is not None
        if start_engine and not describes:
            raise UsageError(
                "start_engine=True needs a config or a corpus", "Loader('config.yaml')"
            )
        if options and not describes:
            raise TypeError(
                f"{', '.join(options)}: only an engine that is started here takes these; one that "
                "runs already has its own config"
            )
        starts = describes and (ranks.local == 0 if start_engine is None else start_engine)
        if run is None:
            alone = starts and ranks.world == 1
            run = f"python-{os.getpid()}-{next(_serial)}" if alone else ranks.job or "default"
        self._command = None  # of the engine, if it is ours
        if starts:
            keys = {"run": run, "run_dir": run_dir, "seq_len": seq_len, "batch_size": batch_size}
            self._command = engine_command(config, corpus, {**keys, **ranks.keys(), **options})
        if connect_timeout is None and describes and not starts:
            connect_timeout = start_timeout
        self._connection = dict(
            run=run,
            run_dir=run_dir,
            rank=ranks.rank,
            world=ranks.world,
            rows=batch_size or 0,
            seq_len=seq_len or 0,
            connect_timeout=connect_timeout,
            restart_timeout=restart_timeout,
        )
        self._kind, self._flat, self._keep = return_type, bool(flat), keep
        self._program, self._start_timeout = program, start_timeout
        self._ranks, self._token = ranks, None
        self._open = deque()  # batches that are not closed yet, oldest first
        self._ended, self._restarts = False, 0

    # ---- attach, detach -------------------------------------------------------------------------

    def attach(self) -> "Loader":
        """Start the engine, if that is ours to do, and attach. Does nothing when attached."""
        if self._client is not None:
            return self
        client = self._attach_to_own() if self._command is not None else self._attach_once()
        slots = client.geometry.slots
        if self._keep >= slots:
            client.detach()
            raise UsageError(
                f"keep={self._keep} leaves no room in a ring of {slots} batches",
                f"prefetch_factor={self._keep * 2}, or a lower keep",
            )
        self._client, self._ended = client, False
        engine = (
            f"started here, pid {self._engine.process.pid}" if self._engine else "already running"
        )
        logger.info(
            "rank %d of %d (%s), run %s, engine %s, row %d",
            self._ranks.rank,
            self._ranks.world,
            self._ranks.said_by,
            self._connection["run"],
            engine,
            client.next_row(),
        )
        return self

    def _attach_once(self, **changes):
        return Client(**{**self._connection, "state": self._token, **changes})

    def _attach_to_own(self):
        """Attach to our engine; one that served a finite stream to its end is started again."""
        deadline = time.monotonic() + self._start_timeout
        while True:
            if self._engine is None:
                self._engine = Engine(*self._command, program=self._program)
                weakref.finalize(self, self._engine.stop)
            if not self._engine.runs():
                self._engine.start(self._start_timeout)
            try:
                return self._attach_once(connect_timeout=0.1)
            except (EngineGoneError, BusyError):  # busy: others have yet to leave their old place
                if time.monotonic() >= deadline:
                    raise

    def close(self) -> None:
        """Detach, and end the engine if this loader started it. Views that are alive stay valid."""
        self._detach()
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.stop()

    def _close_batches(self):
        while self._open:
            self._open.popleft().close("was closed when its loader left the position")

    def _detach(self):
        self._close_batches()
        client, self._client = self._client, None
        if client is not None and client.is_ours():
            self._token = client.state()  # attaching again goes on here
            client.detach()

    def __enter__(self) -> "Loader":
        return self.attach()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self):
        if getattr(self, "_client", None) is not None or getattr(self, "_engine", None) is not None:
            self.close()

    def __getstate__(self):
        if self._client is not None or self._engine is not None:
            raise TypeError(
                "an attached loader cannot be pickled: send it before its first use, or its state"
            )
        return self.__dict__.copy()

    # ---- batches --------------------------------------------------------------------------------

    def __iter__(self) -> "Loader":
        """The loader itself: a second loop goes on where the first one stopped."""
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
        self.attach()
        while len(self._open) >= self._keep:
            self._open.popleft().close(f"was closed when the loader went on (keep={self._keep})")
        if self._ended:
            return None
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _SLICE_NS if deadline is None else int((deadline - time.monotonic()) * 1e9)
            lease = self._client.next(max(0, min(left, _SLICE_NS)))
            if lease is END:
                self._ended = True
                return None
            if lease is not None:
                self._restarts = 0
                batch = Batch(lease, self._kind, self._flat)
                self._open.append(batch)
                self._client.taking = None
                return batch
            self._revive()
            if deadline is not None and time.monotonic() >= deadline:
                raise EngineTimeoutError(
                    f"no batch within {timeout:g} s",
                    "`ringpack stat` tells what the engine waits for",
                )

    def _revive(self):
        """Start our engine again if it died; the client finds it and goes on at its row."""
        if self._engine is None or self._engine.runs():
            return
        if self._engine.process.returncode == 0:
            raise EngineStoppedError(f"the engine (pid {self.engine_pid}) was stopped")
        if self._restarts == _RESTARTS_MAX:
            raise self._engine.failure(f"{_RESTARTS_MAX + 1} times in a row")
        self._restarts += 1
        logger.warning("%s", self._engine.failure("and is started again"))
        self._engine.start(self._start_timeout)

    # ---- state ----------------------------------------------------------------------------------

    def state_dict(self, text: bool = False) -> dict[str, Any]:
        """The position after the last batch that was taken: the same bytes on every rank.

        {"ringpack_state": uint8 array, or tensor with return_type="torch"}, always of the same
        length for one stream, so that torch.distributed.checkpoint can load in place. text=True
        gives a string instead, for JSON. Changes nothing; the copy is the caller's."""
        self.attach()
        token = self._client.state()
        if text:
            return {STATE_KEY: base64.b64encode(token).decode()}
        array = numpy.zeros(max(self._client.geometry.state_bytes, len(token)), numpy.uint8)
        array[: len(token)] = numpy.frombuffer(token, numpy.uint8)
        return {STATE_KEY: import_torch().from_numpy(array) if self._kind == "torch" else array}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the position of a state_dict, of any rank of any world size.

        Before the first use it is only remembered, and checked when attaching; later the loader
        attaches again at once. Open batches are closed; views of them must be gone (LeaseError).
        CheckpointMismatchError: the state is of another stream; the loader stays where it was."""
        if STATE_KEY not in state:
            raise UsageError(
                f"the state has no {STATE_KEY!r}: found {', '.join(map(str, state)) or 'nothing'}",
                "give what state_dict() returned",
            )
        token = _token_of(state[STATE_KEY])
        attached = self._client is not None
        if attached:
            self._close_batches()
            self._client.check_all_returned()
            self._detach()
        before, self._token = self._token, token
        if attached:
            try:
                self.attach()
            except RingpackError:
                self._token = before
                raise

    def check_ranks(self, all_gather: Optional[Callable[[dict], Iterable[dict]]] = None) -> None:
        """Compare what the ranks of a job are about to read; a collective call, before the loop.

        Nodes share nothing, so a node with another corpus, seed or position would go unnoticed.
        `all_gather` gives every process the objects of all, in one order; without it
        torch.distributed does it where a process group is initialised. Raises
        CheckpointMismatchError on every rank, with the field and both values."""
        client = self.attach()._client
        facts = {
            "stream": client.identity(),
            "next_row": client.next_row(),
            "dp_world_size": client.geometry.world,
            "batch_size": client.geometry.rows,
            "dp_rank": client.geometry.rank,
        }
        check_agreement(list((all_gather or _torch_all_gather)(facts)))

    # ---- what is going on -----------------------------------------------------------------------

    @property
    def next_row(self) -> int:
        """Global row of the present position."""
        return self.attach()._client.next_row()

    @property
    def run(self) -> str:
        """Name under which the engine is found (`ringpack stat NAME`)."""
        return self._connection["run"]

    @property
    def engine_pid(self) -> Optional[int]:
        """Process of the engine that this loader started, or None."""
        return self._engine.process.pid if self._engine and self._engine.process else None

    def counts(self) -> dict[str, int]:
        """Since attaching: batches, rows, tokens, waits, wait_ns, reattaches."""
        return self.attach()._client.counts()


def _torch_all_gather(fact):
    distributed = import_torch().distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        raise UsageError(
            "check_ranks() found no process group of torch.distributed",
            "init_process_group() first, or give the job's own all_gather",
        )
    gathered = [None] * distributed.get_world_size()
    distributed.all_gather_object(gathered, fact)
    return gathered


def _token_of(value):
    """The token in what state_dict gave, also after a trip through JSON, torch.save or numpy."""
    if isinstance(value, str):
        try:
            token = base64.b64decode(value, validate=True)
        except ValueError:
            raise UsageError(
                f"{STATE_KEY} is text, but not base64", "give what state_dict(text=True) returned"
            ) from None
    elif isinstance(value, (bytes, bytearray, memoryview)):
        token = bytes(value)
    else:
        token = (
            numpy.asarray(value.cpu() if hasattr(value, "cpu") else value)
            .astype(numpy.uint8)
            .tobytes()
        )
    # Behind the token's own length, at offset 12 (STREAM.md section 8), is padding of state_dict.
    return token[: int.from_bytes(token[12:16], "little")] if len(token) >= 16 else token
