# SPDX-License-Identifier: Apache-2.0
"""The batches of any step again, byte for byte as a run delivered them, without that run.

A step is found by its state token, which `ringpack state` makes. A private engine, with its own
run directory and without checkpoints, delivers the rows from there on as any engine would: bytes
take the same path as in the run. Only the run's config or one of its checkpoints is read, and
no file is changed.
"""

import os
import time
from typing import TYPE_CHECKING, Any, Optional, overload

from ._arguments import Corpus, FilePath, check_form, whole, working_folder
from ._checks import checked
from ._commands import engine_command
from ._engine import Engine, ask_program, is_kept
from ._numbers import known_sum
from .batch import Batch
from .errors import PASSING, CheckpointMismatchError, UsageError
from .loader import Loader
from .profiles import PROFILES

if TYPE_CHECKING:
    import tempfile

_RUN = "replay"
_TRY_S = 0.5  # one try to attach, before a check whether the engine still runs
_TRIES = 3  # for one step: the private engine exits at the end of the stream


class ReplayedBatch(dict[str, Any]):
    """A copy of a batch: the values of `batch[name]`, by name. It is the caller's."""

    def __init__(self, batch: Batch, rank: int, micro_batch: int):
        super().__init__(batch.copy())
        self.rank: int = rank
        self.micro_batch: int = micro_batch
        self.first_row: int = batch.first_row
        self.next_row: int = batch.next_row
        self.tokens_real: int = batch.tokens_real
        self.tokens_loss: int = batch.tokens_loss
        self.max_seqlen: int = batch.max_seqlen
        self.segments: int = batch.segments
        self.sum_len_squared: int = batch.sum_len_squared
        self.step_rows: Optional[int] = known_sum(batch, "step_rows")
        self.step_tokens: Optional[int] = known_sum(batch, "step_tokens")
        self.step_tokens_loss: Optional[int] = known_sum(batch, "step_tokens_loss")
        self.cost: Optional[int] = batch.cost


class Replay:
    """Give the batches of any step of a stream.

    ``Replay("config.yaml").step(48210)`` is the step as a list of micro-batches, each a list of the
    batches of all ranks; ``step(48210, rank=3)`` is the list of the batches of that rank.

    Parameters
    ----------
    config: path of a YAML config, of a checkpoint, or of a directory of checkpoints, which keep the
        config of their run. If the run's weights were changed, a checkpoint gives only the rows
        from its position on. UsageError if neither config nor corpus is given.
    corpus: see Loader; replaces a config. UsageError with a config, or with a checkpoint if it is
        more than paths (a weight, or a URL with a query).
    base_row: row at which step 0 begins. Default: row 0, if steps are counted from it. If a run's
        global batch was changed: the row of the change, with the config from after the change;
        steps are counted from that row.
    profile: names and shapes of a batch; see Loader.
    return_type: "numpy" (default), "torch" or "jax"; see Loader. ValueError for another word.
    flat: True: views are 1-D (False); see Loader.
    program: path of `ringpack`. Default: see Loader.
    start_timeout: seconds until the private engine is ready (600). EngineTimeoutError.
    options: other keys of the config, which replace the keys of the file: dp_world_size=8.

    The engine starts at the first step and ends with ``close()``, with ``with``, or with this
    process. Ascending steps cost least.
    """

    def __init__(
        self,
        config: Optional[FilePath] = None,
        *,
        corpus: Optional[Corpus] = None,
        base_row: Optional[int] = None,
        profile: Optional[str] = None,
        return_type: str = "numpy",
        flat: bool = False,
        program: Optional[FilePath] = None,
        start_timeout: float = 600.0,
        **options: Any,
    ):
        arguments = checked(locals())
        if config is None and corpus is None:
            raise UsageError("no stream was named", "Replay('config.yaml')")
        check_form(return_type)
        if profile is not None:
            options["profile"] = profile
        self._checkpoint = os.fspath(config) if config is not None and is_kept(config) else None
        described = None if self._checkpoint else config
        keys = {**options, "run": _RUN}
        self._arguments, self._text = engine_command(described, arguments["corpus"], keys)
        if self._checkpoint and self._text is not None:
            raise UsageError(
                "a checkpoint and a corpus with more than paths (a weight, or a URL with a query) "
                "were both given",
                "write the config of the run with this corpus, and give it: Replay('config.yaml')",
            )
        self._base_row = whole("base_row", base_row)
        self._program, self._timeout = program, arguments["start_timeout"]
        known = profile if profile in PROFILES else None  # only the engine knows the others
        self._form: dict[str, Any] = dict(profile=known, return_type=return_type, flat=flat)
        self._folder = working_folder()
        self._place: "Optional[tempfile.TemporaryDirectory[str]]" = None
        self._engine: Optional[Engine] = None
        self._loaders: list[Loader] = []
        self._next: Optional[int] = None  # next step of all loaders
        self._row = 0  # its first row
        self._sizes: dict[str, Any] = {}  # sizes of its steps, up to the row part_end

    @overload
    def step(self, step: int) -> list[list[ReplayedBatch]]: ...
    @overload
    def step(self, step: int, rank: int) -> list[ReplayedBatch]: ...
    def step(self, step: int, rank: Optional[int] = None) -> Any:
        """The micro-batches of a step, each a list of the batches of all ranks.

        step: int; number of the step. UsageError below 0, if the stream ends before it, or if all
            its rows are skipped.
        rank: int; give only the batches of this rank (None: of all). UsageError if there is no such
            rank."""
        wanted = whole("step", step)
        if wanted is None or wanted < 0:
            raise UsageError(f"step is {step}: expected 0 or more")
        for attempt in range(_TRIES):
            try:
                batches = self._take(wanted)
                break
            except PASSING:
                self._end_engine()
                if attempt + 1 == _TRIES:
                    raise
        if rank is None:
            return batches
        if not 0 <= rank < len(batches[0]):
            raise UsageError(f"rank is {rank}: the ranks are 0 to {len(batches[0]) - 1}")
        return [of_all[rank] for of_all in batches]

    def close(self) -> None:
        """End the private engine and remove its folder."""
        self._end_engine()
        place, self._place = self._place, None
        if place is not None:
            place.cleanup()

    def __enter__(self) -> "Replay":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_place", None) is not None:
            self.close()

    def __repr__(self) -> str:
        return f"<ringpack.Replay of {self._checkpoint or ' '.join(self._arguments) or 'a corpus'}>"

    # ---- the private engine ---------------------------------------------------------------------

    def _take(self, step: int, is_again: bool = False) -> list[list[ReplayedBatch]]:
        """The batches of a step; moves all ranks there first if they are elsewhere."""
        is_next = self._next == step and self._row != self._sizes["part_end"]
        if not is_next or self._engine is None or not self._engine.runs():
            self._go_to(step)
        self._next = None  # unknown if this step fails half-way
        batches: list[list[ReplayedBatch]] = []
        row = self._row
        for micro_batch in range(self._sizes["micro_batches"]):
            batches.append([])
            for rank, loader in enumerate(self._loaders):
                batch = loader.next(self._timeout)
                if batch is None and loader.stage_ended and not is_again:
                    self._end_engine()  # another one serves rows of the next seq_len
                    return self._take(step, is_again=True)
                if batch is None:
                    raise UsageError(f"step {step}: the stream ends before it")
                if batch.first_row != row:
                    batch.close()
                    raise UsageError(f"step {step}: no batch of it is delivered (skip)")
                batches[-1].append(ReplayedBatch(batch, rank, micro_batch))
                batch.close()
                row += self._sizes["batch_size"]
        self._next, self._row = step + 1, row
        return batches

    def _go_to(self, step: int) -> None:
        if self._place is None:
            import tempfile  # imported late: it takes a tenth of the time of `import ringpack`

            self._place = tempfile.TemporaryDirectory(prefix="ringpack-replay-")
        token = os.path.join(self._place.name, "token")
        wanted = [*self._arguments, "--step", str(step), "-o", token]
        wanted += ["--base-row", str(self._base_row)] if self._base_row is not None else []
        wanted += [self._checkpoint] if self._checkpoint else []
        said = ask_program("state", (wanted, self._text), self._program, self._folder)
        self._sizes, self._row = said, said["row"]
        self._close_loaders()
        runs = self._engine is not None and self._engine.runs()
        if not runs:
            self._start_engine(said, token)
        with open(token, "rb") as file:
            state = {"ringpack_state": file.read()}
        try:
            self._attach_all(said, state)
        except CheckpointMismatchError:
            if not runs:
                raise
            self._end_engine()  # it serves a stage of another seq_len
            self._start_engine(said, token)
            self._attach_all(said, state)

    def _attach_all(self, said: dict[str, Any], state: dict[str, Any]) -> None:
        assert self._place is not None, "the engine's run directory"
        for rank in range(said["dp_world_size"]):
            loader = Loader(
                run=_RUN,
                run_dir=self._place.name,
                dp_rank=rank,
                dp_world_size=said["dp_world_size"],
                connect_timeout=_TRY_S,
                start_engine=False,
                **self._form,
            )
            self._loaders.append(loader)
            loader.load_state_dict(state)
            self._attach(loader)

    def _attach(self, loader: Loader) -> None:
        """Attach, however long the engine plans, unless the engine ends meanwhile."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                loader.attach()
                return
            except PASSING:
                if self._engine is None or not self._engine.runs() or time.monotonic() > deadline:
                    raise

    def _start_engine(self, said: dict[str, Any], token: str) -> None:
        """Start an engine of all ranks that begins at a token, writes no checkpoints and has a run
        directory that only this object knows."""
        assert self._place is not None, "the token is there"
        own = {
            "run-dir": self._place.name,
            "state": token,
            "ranks": f"0-{said['dp_world_size'] - 1}",
            "consumers-per-rank": 1,
            "checkpoint-dir": "none",
        }
        arguments = [*self._arguments, "--private"]
        arguments += [f"--{key}={value}" for key, value in own.items()]
        if self._checkpoint:
            arguments += ["-c", said["checkpoint"], "--records-of", said["checkpoint"]]
        program, folder = self._program, self._folder
        self._engine = Engine(arguments, self._text, program=program, folder=folder)
        self._engine.start(self._timeout)

    def _close_loaders(self) -> None:
        loaders, self._loaders, self._next = self._loaders, [], None
        for loader in loaders:
            loader.close()

    def _end_engine(self) -> None:
        self._close_loaders()
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.stop()
