# SPDX-License-Identifier: Apache-2.0
"""The loader: an endless or finite iterator of batches whose position can be saved and restored."""

import math
import time
from threading import get_ident
from typing import TYPE_CHECKING, Any, Optional

from ._arguments import PARAMETERS, Corpus, FilePath, check_device, check_form
from ._arguments import check_needs_no_engine, monitor_of, take_newer, tell_older_keys
from ._arguments import working_folder
from ._attached import SILENCE_S, one_thread
from ._checks import checked, seconds
from ._client import END, Client
from ._form import add_defaults
from ._lease import ONE_LOCAL, getrefcount
from ._log import logger
from ._made import wishes_of
from ._passes import restart_of
from ._placement import Given
from ._ranks import Ranks
from ._streams import Streamed
from ._views import import_torch
from .batch import Batch, batch_of, new
from .errors import EngineTimeoutError, ReleasedError
from .profiles import PROFILES, check_name, engine_keys, split_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import Options

_SLICE_NS = 100_000_000  # longest single wait: Ctrl-C and dead engines are noticed between waits
AGAIN = object()
"""Returned by a wait if a signal handler loaded another position meanwhile."""


class _Alias(str):
    """The name of a type, in place of its parts."""

    __repr__ = str.__str__


class _Signature:
    """The signature of a class for help(): __init__'s, rather than __new__'s."""

    def __get__(self, _: Any, owner: Any) -> Any:
        import inspect

        signature = inspect.signature(owner.__init__)
        aliases = {
            Optional[FilePath]: _Alias("Optional[FilePath]"),
            Optional[Corpus]: _Alias("Optional[Corpus]"),
        }
        short = [
            parameter.replace(annotation=aliases.get(parameter.annotation, parameter.annotation))
            for parameter in [*signature.parameters.values()][1:]
        ]
        return signature.replace(parameters=short)


class Loader(Streamed):
    """Iterate over the batches of one data-parallel rank.

    ``Loader(run="pretrain")`` attaches to a running engine (``ringpack serve``).
    ``Loader("config.yaml")`` or ``Loader(corpus="books.bin", seq_len=2048, batch_size=8)`` starts
    an engine as a child, which ends with this process, however this process ends. On a node with
    several local ranks, the first one starts the engine and the others attach to it.

    What to read
    ------------
    config: path of a YAML config; describes an engine that is started here. UsageError with corpus.
    corpus: a path, a list of paths, or of dicts with the keys of a source of the config. UsageError
        for rows in memory (a Dataset, a DataFrame, ...).
    seq_len: tokens per row, of the first stage. CheckpointMismatchError if the engine has another
        one, unless `stages` or `streams` are given here: where a config file has stages that change
        it, leave it out.
    batch_size: rows per batch of this rank. CheckpointMismatchError if the engine has another one.
    options: all other keys of the config (seed=1, packing="best_fit", num_epochs=3, ...), for an
        engine that is started here, and its accept_weights=True, fresh=True, state="FILE" and
        start_step=N: _options.py has their types, `ringpack help serve` their effects.

    Place of this process in its job
    --------------------------------
    dp_rank, dp_world_size: rank, and number of ranks; both or neither (UsageError). Default: from
        the launcher, torch.distributed or jax.distributed, else 0 of 1.
    consumers_per_rank: number of processes of this node that need every batch of this rank, as
        tensor-, pipeline- and context-parallel neighbours do (1).
    replica: number of this process among these, from 0 on (0). UsageError if consumers_per_rank > 1
        and it is missing, or dp_rank under a launcher.
    cp_size: number of processes of a context-parallel group, each of which gets its slices of every
        row (1): sections by token have seq_len / cp_size places; shift_labels is added to aligned
        labels. UsageError if seq_len is no multiple of 2 * cp_size. They are replicas: see there.
    cp_rank: number of this process in the group (0). Default: under a launcher, the groups are
        neighbouring ranks, and dp_rank, dp_world_size, replica and consumers_per_rank follow; else
        UsageError if it is missing.
    cp_split: "row" or "document": the part that is split into 2 * cp_size chunks, of
        which each process has an early and a late one. "document" needs align, a multiple of
        2 * cp_size, which an engine that is described by corpus gets by default. Default: "row",
        and "document" with profile="megatron_thd", which takes no other (UsageError).

    Form of batches
    ---------------
    profile: "hf", "trl", "pairs", "megatron", "megatron_rows", "megatron_thd", "olmo", "grain",
        "torchtitan" or "maxtext": names and shapes of a batch for this framework
        (ringpack.profiles); "min" or "full": the names of Batch; sections adds others. Default:
        "min"; with return_type="torch" and a corpus, input_ids, labels (the next tokens),
        position_ids (int64), cu_seqlens (exact) and max_seqlen. UsageError if the run lacks a
        section of the profile.
    return_type: "numpy" (default): ``batch[name]`` is a read-only array without a copy; "torch": a
        tensor, a copy that is yours; "jax": an array of JAX. ValueError for another word.
    flat: True: views are 1-D, over the whole batch; False (default): (batch_size, seq_len).
    copy: True: batches are dicts of arrays or tensors in memory of their own, which are yours, for
        frameworks that change or hold them. False: tensors are views of the ring, as arrays are,
        for loops that only read them: writing into one kills the process. Default: see return_type.
    pin_memory: page-lock the ring, for copies to a GPU with non_blocking=True. Default: with
        return_type="torch", once torch uses a GPU. ValueError if True without return_type="torch".
    device: "cuda", "cuda:N", a torch.device, or "cpu": ``batch[name]`` is a tensor there, which is
        yours; the next batch is copied meanwhile, on a stream of its own. Needs
        return_type="torch". UsageError, when it attaches, without that GPU.
    static: with device: the tensors of each batch have the memory of the batch before, as a CUDA
        graph needs. A batch is then valid until the next step (False).
    ignore_index: label of a position without one, in place of -100, negative. ValueError.
    label_dtype: "i32" or "i64": type of the labels. Default: as input_ids. ValueError.
    mtp: number of labels of each token (1): `labels_2` has the token after the next one of the
        same fragment, and so on; -100 past its end, or with label_across_cuts past the token after
        a cut. ValueError below 1.

    Loops
    -----
    keep: number of newest batches that stay open (1, or 1 + look_ahead); a step closes older ones.
        ValueError below 1; UsageError if the ring has no more slots than that.
    look_ahead: number of batches that the loop holds unused whenever it takes another one:
        state_dict() and the position are that far behind (0; found out for Lightning). ValueError
        below 0.
    restart: True: each loop over a finite stream begins at its first row, as over a DataLoader,
        except for the first loop of a loader, and the first one after a state was loaded or
        reset(): it continues after next(). False: a loop continues where the last one stopped, and
        is empty after the end. Default: False; with return_type="torch" True if
        num_epochs is given, else a loop continues where the last one stopped, and begins at the
        first row after the end.
    monitor: reaction to a batch that does not continue the one before it (a gap, a repeat, another
        stream): "raise" (default) ProtocolError, "count" it in counts(); None: do not check.
    digest_log: folder for digests of the batches that each rank gets. Default: none are written.
    digest_steps: number of steps from one digest to the next (100). ValueError below 1.

    Engine
    ------
    run: name of the run. Default: from the config, else a name made from this process, or from the
        job and the stream.
    run_dir: folder of the engine's socket. Default: from the config, else the engine's default.
    start_engine: True: this process starts the engine; False: attach only; None (default): the
        first local rank starts it if config or corpus is given. UsageError if True without either.
    start_timeout: seconds until an engine that starts here is ready (600). EngineTimeoutError.
    connect_timeout: seconds until a running engine has placed this rank (10, or start_timeout).
        EngineGoneError, EngineTimeoutError or BusyError.
    restart_timeout: seconds until a dead engine has a successor (60). EngineGoneError.
    program: path of `ringpack`. Default: RINGPACK, else the package's own, else from PATH.

    The first use, ``with`` or ``attach()`` starts the engine, or attaches to it; before that, and
    after close(), a loader can be pickled: a copy has an engine of its own, unless its run has a
    name. A call by a second thread at the same time, or in a fork, raises UsageError. Relative
    paths begin in the folder where the loader was made. Errors: RingpackError, with a ``hint``.

    With return_type="torch" it is also a torch.utils.data.IterableDataset, for
    StatefulDataLoader(loader, batch_size=None). It is Stateful for torch.distributed.checkpoint.
    """

    __signature__ = _Signature()

    def __new__(cls, *_: Any, **arguments: Any) -> "Loader":
        if cls is Loader and str(arguments.get("return_type")) == "torch":
            import_torch()
            if arguments.get("device") is not None:
                from ._device import DeviceLoader

                return super().__new__(DeviceLoader)
            from ._torch import TorchLoader

            return super().__new__(TorchLoader)
        return super().__new__(cls)

    def __init__(
        self,
        config: Optional[FilePath] = None,
        *,
        corpus: Optional[Corpus] = None,
        seq_len: Optional[int] = None,
        batch_size: Optional[int] = None,
        dp_rank: Optional[int] = None,
        dp_world_size: Optional[int] = None,
        consumers_per_rank: Optional[int] = None,
        replica: Optional[int] = None,
        cp_size: Optional[int] = None,
        cp_rank: Optional[int] = None,
        cp_split: Optional[str] = None,
        profile: Optional[str] = None,
        return_type: str = "numpy",
        flat: bool = False,
        copy: Optional[bool] = None,
        pin_memory: Optional[bool] = None,
        device: Any = None,
        static: bool = False,
        ignore_index: Optional[int] = None,
        label_dtype: Optional[str] = None,
        mtp: Optional[int] = None,
        keep: int = 1,
        look_ahead: Optional[int] = None,
        restart: Optional[bool] = None,
        monitor: Optional[str] = "raise",
        digest_log: Optional[FilePath] = None,
        digest_steps: int = 100,
        run: Optional[str] = None,
        run_dir: Optional[FilePath] = None,
        start_engine: Optional[bool] = None,
        start_timeout: float = 600.0,
        connect_timeout: Optional[float] = None,
        restart_timeout: Optional[float] = None,
        program: Optional[FilePath] = None,
        **options: "Unpack[Options]",
    ):
        arguments = {name: value for name, value in locals().items() if name != "self"}
        take_newer("replicas", "consumers_per_rank", arguments)
        self._arguments = arguments = checked(arguments)
        keys = self._keys_of(arguments)
        self._given = Given.of(arguments, keys)
        self._connection = {
            **self._given.expectations(),
            "restart_timeout": arguments["restart_timeout"],
            "monitor": monitor_of(monitor),
        }
        self._take_place(self._wish(arguments, keys))
        self._take_form(arguments, keys)
        self._folder, self._program = working_folder(), program
        self._begin_position()

    def _keys_of(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The keys of an engine that is described here."""
        keys, profile = dict(arguments["options"]), arguments["profile"]
        config, return_type = arguments["config"], arguments["return_type"]
        check_form(return_type, arguments["pin_memory"])
        tell_older_keys(keys)
        describes = config is not None or arguments["corpus"] is not None or "streams" in keys
        if describes:
            check_name(profile)
        if profile is not None and (describes or profile not in PROFILES):
            keys |= engine_keys(profile, keys.get("sections"))
        self._is_default = describes and add_defaults(keys, return_type, config is not None)
        if not describes:
            check_needs_no_engine(arguments["start_engine"], keys)
        return keys

    def _wish(self, arguments: dict[str, Any], keys: dict[str, Any]) -> Ranks:
        """Take the arguments that change sections: check the lengths that are known by now, and set
        align if it is this loader's to set."""
        given, ranks = self._given, self._given.find_ranks()
        by = split_of(arguments["profile"], arguments["cp_split"])
        of_labels = (arguments[name] for name in ("ignore_index", "label_dtype", "mtp"))
        self._wishes = wishes_of(ranks.group, by, *of_labels)
        split = self._wishes.split
        if split is not None and given.seq_len is not None:
            split.check_length(given.seq_len)
        if split is not None and split.by == "document":
            if given.corpus is not None:
                keys.setdefault("align", 2 * split.size)
            if isinstance(align := keys.get("align"), int):
                split.check_align(align)
        return ranks

    def _take_form(self, arguments: dict[str, Any], keys: dict[str, Any]) -> None:
        """Take the arguments about the form of batches, and about loops."""
        copy, kind, static = (arguments[name] for name in ("copy", "return_type", "static"))
        self._device = check_device(arguments["device"], kind, copy, static)
        self._profile, self._kind = arguments["profile"], kind
        self._flat, self._keep = arguments["flat"], arguments["keep"]
        self._copies, self._is_own, self._is_static = copy is True, copy is not False, static
        self._pin_memory = arguments["pin_memory"]
        self._restart = restart_of(arguments["restart"], kind, keys.get("num_epochs"))
        self._set_look_ahead(arguments["look_ahead"])

    def _set_look_ahead(self, given: Optional[int], found: int = 0) -> None:
        """found: look-ahead of the framework that loops; counts if `given` is None."""
        self._look_ahead_given = given
        self._look_ahead = found if given is None else given
        self._keep = max(self._keep, 1 + self._look_ahead)
        self._is_plain = self._copies or self._look_ahead > 0

    # ---- batches --------------------------------------------------------------------------------

    def __next__(self) -> Batch:
        batch: Optional[Batch] = self.next()
        if batch is None:
            raise StopIteration
        return batch

    @one_thread
    def next(self, timeout: Optional[float] = None) -> Any:
        """The next batch, or None at the end of the stream (num_epochs).

        Closes the batch before it (with keep=n, the n-th before it). Waits at most `timeout`
        seconds (None: without a limit), then raises EngineTimeoutError; no batch is lost."""
        me = get_ident()  # _enter() inlined
        if self._user is None:
            self._user = me
        else:
            self._enter()
        try:
            while True:
                client = self._client
                if client is None or self._asked is not None:
                    client = self._attach()
                opened, form, lease = self._open, self._form, None
                while len(opened) >= self._keep:
                    lease = None  # an older batch's
                    if (done := opened.popleft())._lease is not None:  # done.end() inlined
                        lease, done._why, done._lease = done._lease, form.went_on, None
                if self._ended:
                    return self._use_one()
                wait_ns = _SLICE_NS if timeout is None else 0
                if lease is None or getrefcount(lease) != ONE_LOCAL:
                    lease = None  # views of it are alive, and return the batch when they die
                    lease = client.next(wait_ns)
                else:
                    lease = client.step(lease, wait_ns)
                if lease is None or lease is END:
                    lease = self._wait(client, lease, timeout)
                    if lease is None:
                        return None
                    if lease is AGAIN:
                        continue
                batch = new(Batch)  # batch_of() inlined
                batch._lease, batch._terms, batch._form = lease, lease.held.terms, form
                opened.append(batch)
                if self._is_plain:
                    given = self._ready(client, batch)
                    client.taking = None
                else:
                    given = batch
                    client.taking = None  # no exception can come in from here to the caller (C3)
                if client.revoked and self._gives_up(client, batch):
                    lease = None
                    continue
                return given
        finally:
            self._user = None

    def _ready(self, client: Client, batch: Batch) -> Any:
        """A batch as copies, or of a loop that looks ahead; it does not count as taken yet."""
        if self._look_ahead and self._trailed != (mark := (batch._terms.info.lease, batch.number)):
            if not self._trail:
                self._trail.append(client.state())  # before this batch, which is not taken yet
            self._trail.append(client.state_after(batch._terms.info))
            self._trailed = mark
            if len(self._trail) > self._look_ahead + 1:
                self._trail.popleft()
        if not self._copies:
            return batch
        try:
            copies = batch.copy()
        except ReleasedError:
            if client.closed:
                raise client._closed() from None
            raise
        batch.close("was copied (copy=True)")
        return copies

    def _gives_up(self, client: Client, batch: Batch) -> bool:
        """Drop a batch that was about to be returned, as the loader was closed or a handler loaded
        another position: the position stays before it. False: it counts as returned."""
        if client.closed and client.settle(batch._terms) is None:
            return False
        batch.close("was given up: a signal handler left the position")
        client.revoked = False
        self._trailed = None
        if self._client is not client or client.closed:
            raise client._closed()
        return True

    @one_thread
    def borrow(self, timeout: Optional[float] = None) -> Optional[Batch]:
        """The next batch, to be closed by the caller: with `with`, release() or close(). The
        loader's steps do not close it. None at the end of the stream. At most as many batches as
        the ring has slots may be open; beyond that, LeaseError names them."""
        self._enter()
        try:
            while True:
                client = self._attach()
                lease = self._take(client, timeout)
                if lease is None:
                    return None
                if lease is AGAIN:
                    continue
                batch = batch_of(lease, self._form)
                client.taking = None
                if client.revoked and self._gives_up(client, batch):
                    lease = None
                    continue
                return batch
        finally:
            self._user = None

    def _take(self, client: Client, timeout: Optional[float]) -> Any:
        """A lease, or the result of _wait()."""
        lease: Any = END if self._ended else self._next(client, 0)
        return self._wait(client, lease, timeout) if lease is None or lease is END else lease

    def _wait(self, client: Client, lease: Any, timeout: Optional[float]) -> Any:
        """Wait for a lease; None at the end of the stream; AGAIN if the position is another one."""
        begin = time.monotonic()
        if timeout is not None:
            timeout = seconds("timeout", timeout, least=-math.inf)
        deadline, told = None if timeout is None else begin + timeout, timeout is not None
        while lease is None:
            if self._asked is not None:
                return AGAIN
            self._revive()
            if not told and time.monotonic() - begin > SILENCE_S:
                told = True
                logger().warning("no batch for %g s: %s", SILENCE_S, self._where_to_look())
            left = _SLICE_NS if deadline is None else 1e9 * (deadline - time.monotonic())
            lease = self._next(client, int(max(0, min(left, _SLICE_NS))))
            if lease is None and deadline is not None and time.monotonic() >= deadline:
                raise EngineTimeoutError(f"no batch within {timeout:g} s", self._where_to_look())
        if lease is END:
            if self._asked is not None:
                return AGAIN
            is_new = not self._ended and not client.counts()["batches"]
            if is_new and not client.stage_ended():
                row = client.next_row()
                logger().warning("the stream ends at row %d: nothing to read (see num_epochs)", row)
            self._ended, self._stage_ended = True, client.stage_ended()
            return self._use_one()
        return lease

    def _use_one(self) -> None:
        """At the end of the stream each further step of a loop that looks ahead uses one batch."""
        if len(self._trail) > 1:
            self._trail.popleft()

    def _where_to_look(self) -> str:
        return f"`ringpack stat {self.run}` shows where the engine waits"


PARAMETERS.update(Loader.__init__.__kwdefaults__ or {})
