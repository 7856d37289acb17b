# SPDX-License-Identifier: Apache-2.0
"""Several streams in one Loader: `streams` of its config, each with an engine and a run of its own.

Invariants
  S1  The main stream is `train`, or else the first; it is the Loader's own. Another stream is a
      Loader of the run RUN.NAME that starts nothing: the engine of the main stream starts its.
  S2  Each loop over another stream is a pass from its first row, unless a state was loaded, or
      next() was called, since the last one. Between two passes it is not attached, so no rank
      waits for it, and its position is its first row.
  S3  The loader of the main stream visits the others when it attaches: from then on it knows their
      names, first tokens and rooms, so that a signal handler that saves attaches nowhere. A loader
      that describes no stream has their names from its engine.
  S4  A state of several streams is one array: the token of the main stream and zeros, as a state
      of one stream, and then for each other stream a header and its token and zeros (_state.py).
      Its length is constant, and a reader of one stream finds the main one.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional, Union

from ._arguments import FilePath, suggestion
from ._attached import TRY_S
from ._client import Client, Left
from ._library import ask_engine
from ._log import logger
from ._passes import Pass, Passing
from ._position import check_batch
from ._state import STATE_KEY, import_state, join_states, split_states, state_in_form, token_of
from ._state import bytes_in as state_bytes
from ._token import next_row_of
from .batch import Batch
from .errors import PASSING, CheckpointMismatchError, EngineGoneError, UsageError

MAIN = "train"


def main_of(names: Sequence[str]) -> str:
    """S1."""
    return MAIN if MAIN in names else names[0]


def other_than_main(names: Sequence[str]) -> list[str]:
    return [name for name in names if name != main_of(names)]


class WholePass(Pass):
    """A loop over another stream than the main one (S2)."""

    _is_over = False

    def __next__(self) -> Batch:
        if self._is_over:
            raise StopIteration
        try:
            return super().__next__()
        except StopIteration:
            self._end("the pass has ended")
            raise

    def _end(self, why: str) -> None:
        loader: Any = self._loader
        if not self._is_over and loader._pass is self._mark:
            self._is_over = True
            loader._end_pass(why)

    def __init__(self, loader: Any, fetcher: Any = None):
        super().__init__(loader, fetcher)
        self._mark = loader._pass = object()

    def __del__(self) -> None:
        if not sys.is_finalizing() and not self._is_over and not self._loader._begins:
            self._end("its pass was left; `batch.copy()`, or copy=True, outlives the pass")


class Streamed(Passing):
    """See Loader."""

    _arguments: dict[str, Any]  # the arguments of the constructor
    _names: Optional[tuple[str, ...]] = None  # all streams, once known; () if it has only one
    _others: dict[str, Any]  # Loaders of the other streams that are in use, by name
    _parent: Any = None  # the Loader of the main stream
    _name: Optional[str] = None  # this stream's name, if it is another
    _pass: Any = None  # mark of the loop that began last
    _room = 0  # bytes of this stream's tokens, if it is another; 0: not known
    _unplaced: Union[FilePath, dict[str, bytes], None] = None  # a state, while names are not known

    def _begin_position(self) -> None:
        super()._begin_position()
        self._others = {}

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of all streams; empty if there is only one, and before the first use of a
        loader that only attaches if its engine does not run yet."""
        if self._parent is not None:
            return self._parent.streams  # type: ignore[no-any-return]
        if self._names is None:
            with contextlib.suppress(EngineGoneError):
                self._names = self._find_names()
        return self._names or ()

    def _find_names(self) -> tuple[str, ...]:
        if not self._given.describes():
            return self._ask_names()
        if "stream" in self._given.options:
            return ()
        if "streams" in self._given.options:
            return tuple(self._given.options["streams"])
        if self._given.config is not None:
            from ._engine import streams_given

            return streams_given(self._given.config, self._program)
        return ()

    def _ask_names(self) -> tuple[str, ...]:
        import json

        told = json.loads(ask_engine("rp_run_stat", self.run, self._connection["run_dir"]))
        return tuple(told.get("streams") or ())

    def stream(self, name: str) -> Any:
        """The Loader of one of the streams of the config, or of the run; the same one each time.

        name: str; one of `streams`. The main stream (`train`, or else the first) is this loader.

        Each loop over another stream is a whole pass from its first row: also after one that was
        left early, and without a start of an engine. Rows that this loader has prefetched stay.
        The last batch of a loop that is left is closed; copies are yours.

        state_dict() of this loader also has the positions of the other streams. A state within a
        pass continues there once. close() also closes them.

        UsageError: there is no stream of that name, or only one stream."""
        if self._parent is not None:
            return self._parent.stream(name)
        names = self._names = self._names or self._find_names()
        if not names:
            raise UsageError(
                f"stream {name!r}: this loader has only one stream",
                "Loader(streams={'train': {}, 'eval': {'corpus': ..., 'num_epochs': 1}}), or "
                "`streams` in the config",
            )
        if name not in names:
            raise UsageError(
                f"there is no stream {name!r}" + suggestion(str(name), names) + "; the streams "
                f"are {', '.join(names)}",
                "give one of these names",
            )
        if name == main_of(names):
            return self
        if name not in self._others:
            self._others[name] = self._make_other(name)
        return self._others[name]

    def _make_other(self, name: str) -> Any:
        made = {**self._arguments, **self._arguments["options"]}
        del made["options"]
        made.update(restart=True, run=self._given.run or MAIN)  # _settle() has its run
        if self._given.describes():
            made.update(start_engine=False, stream=name)
        if made.get("digest_log") is not None:
            made["digest_log"] = os.path.join(made["digest_log"], name)
        other = type(self)(**made)
        other._parent, other._name = self, name
        other._connection.update(rows=0, seq_len=0)
        return other

    # ---- another stream -------------------------------------------------------------------------

    def _settle(self) -> None:
        if self._parent is None and "stream" in self._given.options:
            name = self._given.options["stream"]
            raise UsageError(
                f"stream={name!r}: a loader has all streams of its config",
                f"leave it out, and iterate over loader.stream({name!r})",
            )
        if self._parent is None or self._is_settled():
            super()._settle()
            return
        self._parent._settle()
        self._given = self._given._replace(run=self._parent.run)
        super()._settle()
        self._connection["run"] = f"{self._parent.run}.{self._name}"

    def _start_own_engine(self) -> None:
        if self._parent is None:
            super()._start_own_engine()
        else:
            self._parent._start_own_engine()

    def _attach_once(self) -> Client:
        client = super()._attach_once()
        if self._parent is None:
            try:
                self._visit_others()
            except BaseException:
                self._detach()
                raise
        return client

    def _visit_others(self) -> None:
        """S3."""
        if self._names is None:
            with contextlib.suppress(*PASSING):  # it died just now: at the next need
                self._names = self._find_names()
        self._place_others()
        for name in other_than_main(self._names or ()):
            other = self.stream(name)
            if other._client is None and (other._first is None or other._left is None):
                other._visit_first()

    def _place_others(self) -> None:
        """Go to the positions of a state that was loaded before the names were known."""
        names, given = self._names, self._unplaced
        if names is not None and given is not None:
            self._unplaced = None
            others = given if isinstance(given, dict) else self._read_others(given, names)
            self._tell_unknown(others)
            for name in other_than_main(names):
                self.stream(name)._go_to(others.get(name))

    def _revive(self) -> None:
        if self._parent is not None:
            self._parent._revive()
        else:
            super()._revive()

    def _new_pass(self, fetcher: Any) -> Pass:
        return super()._new_pass(fetcher) if self._parent is None else WholePass(self, fetcher)

    def _end_pass(self, why: str) -> None:
        """S2: detach, and stand at the first row."""
        user = self._user
        if user is not None and self._is_inside(user):
            return  # another call goes on
        client, first = self._client, self._first
        if client is not None and client.is_ours():
            for batch in list(self._open):
                batch.close(f"was closed: {why}")
            self._detach()
        if self._left is not None:
            facts = self._left.state_bytes, self._left.counts(), self._left.calendar()
            self._token, self._left = first, None if first is None else Left(first, *facts)
        self._ended = self._looped = self._took = self._rewound = False
        self._trail.clear()

    def __len__(self) -> int:
        was_idle = self._client is None
        try:
            return super().__len__()
        finally:
            if was_idle and self._client is not None and self._parent is not None:
                self._detach()  # S2; a position that was loaded stays

    def _visit(self, token: Optional[bytes], patience: Optional[float] = None) -> Left:
        """The engine's answer about a position; None: the first row.
        CheckpointMismatchError: it is of another stream."""
        self._settle()
        before, self._token = self._token, token
        try:
            if patience is None:
                client = self._find_engine(self._closes)
            else:
                client = self._try_engine(time.monotonic(), patience)
        except CheckpointMismatchError as failure:
            said = f"stream {self._name}: {failure.args[0]}"
            raise CheckpointMismatchError(said, failure.hint) from None
        finally:
            self._token = before
        try:
            if token is None and client.next_row() == 0:
                self._first = client.state()
            self._room = client.state_bytes
            return Left(client.state(), self._room, client.counts(), client.calendar())
        finally:
            client.detach()

    def _visit_first(self) -> None:
        """Get to know the first row and, if a state was loaded, compare its stream."""
        try:
            left = self._visit(None, TRY_S)
            self._left = left if self._token is None else self._visit(self._token, TRY_S)
        except PASSING:  # its first pass waits for it, or says why it cannot begin
            logger().debug("stream %s cannot be visited yet", self._name, exc_info=True)

    def _known(self) -> Optional[tuple[bytes, int]]:
        """The token of the position of another stream, and its room. None: not known without an
        engine."""
        if self._client is None and self._left is None and self._asked is None:
            if self._token is not None:
                return self._token, max(self._room, len(self._token))
            if self._parent._client is None:
                return None
            self._left = self._visit(None)
        return self._token_of_place()

    # ---- all streams ----------------------------------------------------------------------------

    def _states_of_others(self) -> dict[str, tuple[bytes, int]]:
        found = {name: self.stream(name)._known() for name in other_than_main(self.streams)}
        return {name: known for name, known in found.items() if known is not None}

    def state_dict(self, batch: Union[Batch, bool, None] = None, text: bool = False) -> Any:
        """The position after the last batch that was taken: the same bytes on every rank.

        {"ringpack_state": uint8 array, or tensor with return_type="torch"}, always of the same
        length for one stream, so that torch.distributed.checkpoint can load in place. text=True
        gives a string instead, for JSON. The copy is the caller's. Also after close(), and in a
        signal handler. With look_ahead=n it is n batches behind the last one. With `streams` it
        also has the positions of the other streams.

        batch: the position after that one, for loops that take batches before they use them."""
        plain = isinstance(batch, (bool, type(None)))
        text = bool(batch) if isinstance(batch, bool) else text
        if self._parent is not None or not self.streams:
            return super().state_dict(batch, text)
        token, room = self._token_of_place()
        if not plain:
            token = state_bytes(check_batch(batch).state_dict(text))
        others = self._states_of_others()
        state = join_states(token, room, others)
        return state_in_form(state, len(state), self._kind, text)

    def load_state_dict(self, state: Union[Mapping[str, Any], FilePath]) -> None:
        """Go to the position of a state_dict, of any rank of any world size; or of a file that
        ringpack.import_state reads.

        Before the first use it is only remembered, and checked when attaching; later the loader
        attaches again at once. Open batches are closed; views of them must be gone (LeaseError).
        CheckpointMismatchError: the state is of another stream; the loader stays where it was.
        In a signal handler, inside of next(): the call in progress goes there. With `streams`, a
        stream whose position the state lacks goes to its first row."""
        if self._parent is not None:
            super().load_state_dict(state)
            return
        names, given = self.streams, state
        others: Union[FilePath, dict[str, bytes]] = {}
        if isinstance(given, (str, os.PathLike)):
            state = import_state(given, self._program)
            others = given if self._names is None else self._read_others(given, names)
        elif isinstance(given, Mapping) and STATE_KEY in given:
            main, others = split_states(state_bytes(given))
            state = {STATE_KEY: main} if others else given
        if self._names is None:
            super().load_state_dict(state)
            self._unplaced = others
            return
        assert isinstance(others, dict)
        if self._client is not None and self._user is None:
            for name in other_than_main(names):
                self.stream(name)._check(others.get(name))
        super().load_state_dict(state)
        for name in other_than_main(names):
            if name in others or name in self._others:
                self.stream(name)._go_to(others.get(name))
        self._tell_unknown(others)

    def _tell_unknown(self, others: Iterable[str]) -> None:
        names = self._names or ()
        unknown = [name for name in others if name not in names]
        if unknown:
            logger().warning(
                "the state also has the position of stream %s, which this loader has not: %s",
                ", ".join(unknown),
                f"its streams are {', '.join(names)}" if names else "it has only one stream",
            )

    def _read_others(self, path: FilePath, names: Sequence[str]) -> dict[str, bytes]:
        main, others = token_of(import_state(path, self._program)), dict[str, bytes]()
        for name in other_than_main(names):
            with contextlib.suppress(UsageError):  # the file lacks it
                found = token_of(import_state(path, self._program, name))
                if found != main:  # else the file is of one stream
                    others[name] = found
        return others

    def _check(self, token: Optional[bytes]) -> None:
        """Whether this stream has that position; its pass stays, so an attached one is compared
        when it attaches there."""
        if self._client is None and token is not None and next_row_of(token) > 0:
            self._visit(token)

    def _go_to(self, token: Optional[bytes]) -> None:
        """The next pass begins there; None: at the first row. So does a position between two
        passes, whose stream may have been another one: a set for validation may change."""
        self._end_pass("another position was loaded")
        if token is not None and next_row_of(token) == 0:
            token = None
        if token is not None or self._left is None:
            self._token, self._left = token, None

    def close(self) -> None:
        """Detach, and end the engine if this loader started it. Views that are alive stay valid.
        The next use attaches again at this position, and starts such an engine again. After the
        end of a finite stream, other local ranks have time to take its last batches."""
        for other in list(self._others.values()):
            other.close()
        super().close()


