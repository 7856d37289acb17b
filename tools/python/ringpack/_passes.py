# SPDX-License-Identifier: Apache-2.0
"""The loops of a Loader: the begin of one, its length, and the begin of the next.

A *pass* is one loop over a finite stream, from its first row to its end. A loop after the end
begins the next pass, unless restart=False. With restart=True each loop is a pass of its own, as
over a DataLoader: also after a loop that was left before the end. A loop begins in mid-stream only
if a state was loaded, or next() was called, since the last loop; and a loaded state of the end
is the beginning of the next pass.
"""

import os
import sys
from typing import TYPE_CHECKING, Any, Optional

from ._accelerate import OneAhead, check_asked, find_prepared
from ._calendar import ends_of
from ._client import Client
from ._engine import ask_program, count_batches
from ._log import logger
from ._position import Positioned
from ._token import epochs_of
from .batch import Batch
from .errors import UsageError

if TYPE_CHECKING:
    from .loader import Loader


_ENDLESS = -1  # a length


class Pass:
    """One loop over a loader. It has the loader's state, as torchdata requires of an iterator."""

    def __init__(self, loader: "Loader", fetcher: Any = None):
        self._loader, self._fetcher = loader, fetcher
        self._number: Optional[int] = None  # passes before this one; None: it has not begun
        self._has_ended = False
        loader._begins = True

    def __iter__(self) -> "Pass":
        return self

    def __next__(self) -> Batch:
        loader = self._loader
        if self._number not in (None, loader._passes):
            self._refuse()
        if loader._begins:
            loader._begin_pass(self._fetcher)
            self._number, self._has_ended = loader._passes, False
        batch: Optional[Batch] = loader.next()
        if batch is None:
            batch = loader._after_end()
        if batch is None:
            self._has_ended = True
            raise StopIteration
        loader._looped = loader._took = True
        return batch

    def _refuse(self) -> None:
        """Another loop has begun the next pass: the batches to come are the other loop's."""
        if self._has_ended:
            raise StopIteration
        raise UsageError(
            "another loop over this loader has begun at the first row, inside of this loop",
            "one loop at a time; a loop inside of another one needs a Loader of its own, or a "
            "stream: Loader(streams={'train': {}, 'eval': {'num_epochs': 1}})",
        )

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self._loader.state_dict()
        return state

    def load_state_dict(self, state: Any) -> None:
        self._loader.load_state_dict(state)


def _fetcher_of_loop() -> Any:
    """The object of Lightning, or of accelerate, that calls this loop. It takes batches before it
    trains them, to know which batch is the last one: Lightning only if it knows no length."""
    frame: Any = sys._getframe(2)
    prepared = find_prepared(frame)
    if prepared is not None:  # a StatefulDataLoader keeps the states itself
        return None if getattr(prepared, "use_stateful_dataloader", False) else OneAhead
    for _ in range(12):
        if frame is None:
            break
        if frame.f_globals.get("__name__", "").endswith("pytorch.loops.fetchers"):
            return frame.f_locals.get("self")
        frame = frame.f_back
    return None


def restart_of(restart: Optional[bool], kind: str, num_epochs: Any) -> Optional[bool]:
    """Whether loops begin at the first row; None: only after the end."""
    if restart is not None or kind != "torch":
        return bool(restart)
    is_finite = num_epochs is not None and str(num_epochs) not in ("0", "endless")
    return True if is_finite else None


class Passing(Positioned):
    """See Loader."""

    _first: Optional[bytes] = None  # the token of row 0, once known
    _passes = 0  # begun by loops at the first row, after others
    _begins = False  # the next step of a loop is its first one
    _looped = False  # a loop has taken batches since a state was loaded
    _took = False  # this loop has
    _rewound = False  # this loop has begun at the first row
    _told = False  # that a loop that was left is begun again
    _restart: Optional[bool]  # None: only after the end
    _look_ahead_given: Optional[int]
    _set_look_ahead: Any

    if not TYPE_CHECKING:

        @property
        def __class__(self):
            """As ever; but isinstance() reads it, and accelerate calls that."""
            check_asked(self, sys._getframe(1))
            return type(self)

    def __iter__(self) -> Any:
        """A loop: with restart=True a pass of its own, otherwise it continues where the last one
        stopped; with return_type="torch" a pass begins after the end in any case."""
        self._settle_again()
        fetcher = _fetcher_of_loop() if self._look_ahead_given is None else None
        if fetcher is not None or self._restarts_loops():
            return self._new_pass(fetcher)
        if self._trail:  # the loop before had taken batches that it never used
            self._move_back()
        if self.stage_ended:
            logger().warning(
                "a stage has ended: a loop over this loader gives nothing; the next rows have "
                "another seq_len, and a new loader of the same config begins there"
            )
        elif self._ended:
            logger().warning(
                "the stream has ended: a loop over it gives nothing (see num_epochs; restart=True "
                "begins each loop at the first row)"
            )
        return self

    def _new_pass(self, fetcher: Any) -> Pass:
        return Pass(self, fetcher)  # type: ignore[arg-type]

    def _restarts_loops(self) -> bool:
        if self._restart is False or self.stage_ended:
            return False
        return self._ended or self._says_finite()

    def _says_finite(self) -> bool:
        """Whether the stream has an end, as far as that is known without an engine."""
        place = self._client or self._left
        if place is not None:
            return ends_of(place).epochs != 0
        return self._token is None or epochs_of(self._token) != 0

    def _note_first(self, client: Client) -> None:
        if self._first is None and client.next_row() == 0:
            self._first = client.state()

    def _begin_pass(self, fetcher: Any) -> None:
        """The first step of a loop."""
        self._begins = self._rewound = self._took = False
        if self._look_ahead_given is None:
            holds = fetcher is not None and getattr(fetcher, "length", None) is None
            self._set_look_ahead(None, getattr(fetcher, "prefetch_batches", 0) if holds else 0)
        self.attach()
        if not self._restarts_loops():
            if self._trail:
                self._move_back()
        elif self._looped and (self._ended or self._restart):
            if not self._ended and not self._told:
                self._told = True
                logger().info(
                    "this loop begins at row 0 again; the one before it was left at row %d, where "
                    "restart=False continues",
                    self.next_row,
                )
            self.reset()
            self._passes += 1
        elif self._trail:
            self._move_back()

    def _after_end(self) -> Optional[Batch]:
        """If the state of the end was loaded, a loop begins the next pass."""
        if self.stage_ended:
            return None
        if not self._took and not self._rewound and self._token is not None:
            self.reset()
            self._rewound = True
            return self.next()  # type: ignore[attr-defined, no-any-return]
        self._looped = True
        return None

    def _move_back(self) -> None:
        place = self._client
        if place is not None and len(self._trail) > 1:
            self._attach_again()

    def _attach_again(self) -> None:
        """At the same position, which is behind batches that were taken ahead. Other streams
        stay."""
        super().load_state_dict(super().state_dict())

    def reset(self) -> None:
        """Go to the first row of the stream: the next batch is the first one again. Other streams
        stay where they are."""
        super().load_state_dict({"ringpack_state": self._first_token()})

    def _first_token(self) -> bytes:
        if self._first is None:
            self._first = self._plan_first()
        return self._first

    def _plan_first(self) -> bytes:
        self._settle()
        if self._config is None:
            raise UsageError(
                "the first row cannot be gone to: this loader was attached to a running engine at "
                f"row {self.next_row}, and does not describe the stream",
                "give it the config or the corpus of that engine, or load a state of row 0",
            )
        import tempfile  # here: it takes a tenth of the time of `import ringpack`

        arguments, text = self._config
        with tempfile.TemporaryDirectory(prefix="ringpack-first-") as folder:
            token = os.path.join(folder, "token")
            wanted = [*arguments, "--step", "0", "-o", token]
            ask_program("state", (wanted, text), self._program, self._folder)
            with open(token, "rb") as file:
                return file.read()

    def __bool__(self) -> bool:
        return True  # a question about the loader, and not about its length

    def __len__(self) -> int:
        """Batches of this rank in one pass, which is the whole stream from row 0 on, as `ringpack
        plan` counts them: well under 1 us per document, once. Steps of skipped rows are not
        counted. TypeError: it is endless, or not described here."""
        if self._length is None:
            self._settle()
            if self._config is None:
                raise TypeError("the length is not known: the engine's config is not this loader's")
            epochs, last = ends_of(self.attach()._client)
            found = None
            if epochs or last is not None:
                found = count_batches(self._config, self._program, self._folder, last)
            self._length = _ENDLESS if found is None else found
        if self._length == _ENDLESS:
            raise TypeError("an endless stream has no length")
        return self._length

    def set_epoch(self, epoch: int) -> None:
        """Has no effect: the stream holds every epoch (num_epochs), each in its own order, and the
        state has the position. If loops do not restart, UsageError for another epoch after the
        stream's end."""
        if self._ended and epoch > 0 and not self._restarts_loops():
            raise UsageError(
                f"epoch {epoch} was asked for, and the stream has ended",
                "give num_epochs to the engine; one loop goes through all of them, and "
                "batch.epoch is its epoch. restart=True begins each loop at the first row",
            )

