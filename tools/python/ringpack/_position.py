# SPDX-License-Identifier: Apache-2.0
"""The part of a Loader that says where it stands, goes elsewhere, and compares ranks."""

import os
from collections.abc import Callable, Iterable, Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any, Optional, Union

from ._arguments import FilePath
from ._attached import Attached, one_thread
from ._calendar import Range, add_skips, progress_of
from ._client import Client, Left
from ._ranks import check_agreement, torch_all_gather
from ._state import import_state, room_of, state_in_form, token_of
from ._token import describe_token, digest_of
from .batch import Batch
from .errors import RingpackError, UsageError

if TYPE_CHECKING:
    from ._options import SkipOptions


class JsonState(dict[str, Any]):
    """A state that Grain's checkpoints can write: they decode the bytes of its own iterators."""

    def decode(self) -> str:
        import json

        return json.dumps(self)


def check_batch(given: Any) -> Batch:
    if isinstance(given, Batch):
        return given
    raise TypeError(
        f"batch is of type {type(given).__name__}: expected a Batch of this loader; a copy of one, "
        "as a dict, has no position"
    )


class Positioned(Attached):
    """See Loader."""

    def _place(self) -> Union[Client, Left]:
        """The holder of the position: the client, or after close() the record that it left."""
        place: Any = self._asked or self._left or self._client
        if place is not None:
            return place  # type: ignore[no-any-return]
        user = self._user
        if user is not None and self._is_inside(user):  # a call attaches at present
            if self._token is None:
                raise UsageError(
                    "this loader is attaching for the first time: its position is not known yet",
                    "no batch was read by then, so it has no position to save",
                )
            return Left(self._token, len(self._token))
        self.attach()
        return self._place()

    def _token_of_place(self) -> tuple[bytes, int]:
        """The token of the position, and the room that tokens of this stream need."""
        place = self._place()
        token = self._position_of(place) if place is self._client else place.state()
        return token, place.state_bytes

    def state_dict(self, batch: Union[Batch, bool, None] = None, text: bool = False) -> Any:
        """The position after the last batch that was taken: the same bytes on every rank.

        {"ringpack_state": uint8 array, or tensor with return_type="torch"}, always of the same
        length for one stream, so that torch.distributed.checkpoint can load in place. text=True
        gives a string instead, for JSON. The copy is the caller's. Also after close(), and in a
        signal handler. With look_ahead=n it is n batches behind the last one.

        batch: the position after that one, for loops that take batches before they use them."""
        if isinstance(batch, bool):
            text = batch  # state_dict(True), as it was called
        elif batch is not None:
            return check_batch(batch).state_dict(text)
        token, room = self._token_of_place()
        return state_in_form(token, room, self._kind, text)

    def load_state_dict(self, state: Union[Mapping[str, Any], FilePath]) -> None:
        """Go to the position of a state_dict, of any rank of any world size; or of a file that
        ringpack.import_state reads.

        Before the first use it is only remembered, and checked when attaching; later the loader
        attaches again at once. Open batches are closed; views of them must be gone (LeaseError).
        CheckpointMismatchError: the state is of another stream; the loader stays where it was.
        In a signal handler, inside of next(): the call in progress goes there."""
        if isinstance(state, (str, os.PathLike)):
            state = import_state(state, self._program)
        target = Left(token_of(state), room_of(state))
        user = self._user
        if user == get_ident() and self._is_inside(user):
            self._asked = target
            self._begins = self._looped = self._rewound = False
            client = self._client
            if client is not None and client._pending() is not None:
                client.revoked = True
            return
        self._move_alone(target)
        self._looped = self._rewound = False

    @one_thread
    def _move_alone(self, target: Left) -> None:
        self._enter()
        try:
            self._move(target)
        finally:
            self._user = None

    def _move(self, target: Left) -> None:
        if self._client is not None:
            self._close_batches()
            self._client.check_all_returned()
            self._detach()
            self._moving = True  # until it is attached again, here or at another state
        before = self._token, self._left
        self._token, self._left = target.state(), None
        self._ended = False
        if self._moving:
            try:
                self._attach_once()
            except RingpackError:
                self._token, self._left = before
                raise

    # The protocol of an iterator in Grain's checkpoints: CheckpointSave(loader).

    def get_state(self) -> dict[str, Any]:
        """state_dict(text=True). Its decode() is the same as JSON text."""
        return JsonState(self.state_dict(text=True))

    def set_state(self, state: Union[Mapping[str, Any], FilePath, bytes]) -> None:
        """load_state_dict, also of JSON text in bytes."""
        if isinstance(state, bytes):
            import json

            self.load_state_dict(json.loads(state))
        else:
            self.load_state_dict(state)

    def start_prefetch(self) -> None:
        """Does nothing: an engine prefetches from its start."""

    @property
    def next_row(self) -> int:
        """Global row of the present position."""
        place = self._place()
        if place is self._client and not self._trail:
            row: int = place.next_row()
            return row
        return Left(*self._token_of_place()).next_row()

    @property
    def stage_ended(self) -> bool:
        """After a loop or a next() that gave no more batches: True if a stage has ended, whose
        rows have another seq_len than those that follow. A new loader of the same config, at this
        position or at its checkpoint, begins with the next stage. False at the end of the
        stream."""
        return self._ended and self._stage_ended

    @property
    def plan_digest(self) -> Optional[str]:
        """Hash, in hexadecimal, of the fragments of all rows before next_row. None after a state of
        an older version. Each access costs a copy of the state."""
        return digest_of(self._token_of_place()[0])

    def progress(self) -> dict[str, Any]:
        """The ledger at the loader's position. The same on every rank. Also after close().

        row, and step (number of steps begun before it); stage (from 0) and the row stage_end at
        which the next one begins (None: the last). documents, tokens and sources are those of
        ringpack.describe(): sources has the counts of each source by its name, with the limits in
        force and how much of them is left. Limits and weights count `planned` tokens; `delivered`
        is the sum of `length` in the provenance of all rows before counted_row, which is row, or
        with `deal` the row at which its deal window begins.

        Each call costs a copy of the state. In version 1, sources have only weight, planned,
        waiting and epochs, and `planned` counts from the last change of weights."""
        place = self._place()
        return progress_of(describe_token(self._token_of_place()[0]), place.calendar())

    @property
    def global_batch_size(self) -> int:
        """Rows of the step that has the next batch, of all ranks."""
        return int(self.attach()._client.calendar().global_batch_size(self._step_row()))

    @property
    def micro_batches(self) -> int:
        """Batches of this rank in the step that has the next batch: to accumulate."""
        return int(self.attach()._client.calendar().micro_batches(self._step_row()))

    def _step_row(self) -> int:
        """First row of the step that has the next batch."""
        return int(self.attach()._client.step_row())

    def skip(
        self,
        rows: Union[Range, Iterable[Range]] = (),
        steps: Union[Range, Iterable[Range]] = (),
    ) -> "SkipOptions":
        """Skip rows or steps that are ahead: they are planned and not delivered, and no other row
        changes its number. Returns the key `skip` of a config that has them and the earlier ones.

        rows, steps: numbers, texts "FIRST-END" without END, or pairs (FIRST, END), or lists of
        these; of the whole stream, from 0.

        Skips are part of the contract of all ranks, so a running engine takes none. If this loader
        started its engine and is its only rank, the engine ends here, and the next use starts it
        with the skips, at this position. Otherwise start the next engine with the returned key,
        from a state of this position.

        UsageError: rows before the position, no range, or a stream of version 1."""
        client = self.attach()._client
        if "stream_version=2" not in client.contract().splitlines():
            raise UsageError(
                "skip: the stream is of version 1, which has no skips",
                "a new stream can have them: `stream_version: 2`",
            )
        skips = add_skips(client.calendar(), self.next_row, rows, steps)
        if self._engine is not None and self._ranks.world * self._ranks.consumers_per_rank == 1:
            self._set_option("skip", skips)
            self._length = None
            self.close()
        return skips

    def counts(self) -> dict[str, int]:
        """Since attaching: batches, rows, tokens, waits, wait_ns, reattaches."""
        return self._place().counts()

    def check_ranks(
        self, all_gather: Optional[Callable[[dict[str, Any]], Iterable[dict[str, Any]]]] = None
    ) -> str:
        """Compare the next rows of all ranks of a job; a collective call, before the loop.

        Nodes share no memory: each field of the contract and the position are compared.
        `all_gather` gives every process the objects of all, in one order (default:
        torch.distributed's). Raises CheckpointMismatchError on every rank, with the field that
        differs and both values. Returns "whole" if all corpora are indexed (their whole content was
        compared), else "sampled"."""
        gather = all_gather or torch_all_gather
        facts, ranks = self.attach()._client.facts(), self._ranks
        said = {"consumers_per_rank": ranks.consumers_per_rank, "said_by": ranks.said_by}
        return check_agreement(list(gather({**facts, **said})))

    def contract(self) -> str:
        """The named fields on which all processes of a job must agree, one a line."""
        return str(self.attach()._client.contract())
