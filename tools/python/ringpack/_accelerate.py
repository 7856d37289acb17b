# SPDX-License-Identifier: Apache-2.0
"""Uses of a loader by accelerate that would lose its position or rows, refused by name.

accelerate does not announce itself to a data set. But isinstance(), which it calls in prepare(),
save_state() and load_state(), reads the class of the loader, and a loop has the frames of its
caller. accelerate is not imported here."""

import sys
from typing import Any

from .errors import UsageError

_FRAMES = 12  # from a loader to the caller in accelerate
_THE_WAY = (
    "leave the loader out of prepare(), it knows its rank; "
    "accelerator.register_for_checkpointing(loader) saves and restores its position"
)


class OneAhead:
    """The attribute of Lightning's fetcher, for a prepared DataLoader, which takes a batch before
    the loop gets the one before."""

    length, prefetch_batches = None, 1


def find_prepared(frame: Any) -> Any:
    """The prepared DataLoader whose loop this is, or None."""
    if "accelerate.data_loader" not in sys.modules:
        return None
    for _ in range(_FRAMES):
        if frame is None:
            break
        if frame.f_globals.get("__name__") == "accelerate.data_loader":
            return frame.f_locals.get("self")
        frame = frame.f_back
    return None


def check_ranks_of_prepared(world: int) -> None:
    """On several ranks a prepared DataLoader reads only on rank 0, or drops a share of each."""
    if world > 1:
        raise UsageError(
            f"a prepared DataLoader gives batches of one rank to all, and this loader is one of "
            f"{world} ranks, each with rows of its own: most rows would never be trained",
            _THE_WAY,
        )


def _check_save(loader: Any, accelerator: Any, prepared: Any, name: str) -> None:
    registered = any(held is loader for held in accelerator._custom_objects)
    stateful = bool(getattr(prepared, "use_stateful_dataloader", False))
    if registered and stateful:
        raise UsageError(
            f"accelerator.{name}(): the position of this loader is registered, and belongs to a "
            "StatefulDataLoader as well, which has taken other batches",
            _THE_WAY,
        )
    if not registered and not stateful:
        raise UsageError(
            f"accelerator.{name}() has no position of the loader in a prepared DataLoader: a "
            "resume would begin at row 0 again",
            _THE_WAY,
        )


def check_asked(loader: Any, frame: Any) -> None:
    """Called by isinstance() in `frame`, which reads the class of the loader."""
    if frame.f_globals.get("__name__") == "abc":  # isinstance() of an abstract class
        frame = frame.f_back
    first, prepared = frame.f_globals.get("__name__"), None
    if first not in ("accelerate.accelerator", "accelerate.checkpointing"):
        return
    for _ in range(_FRAMES):
        if frame is None or not frame.f_globals.get("__name__", "").startswith("accelerate."):
            return
        prepared = frame.f_locals.get("dataloader", prepared)
        name, accelerator = frame.f_code.co_name, frame.f_locals.get("self")
        if hasattr(accelerator, "_custom_objects"):
            if first == "accelerate.checkpointing" and name in ("save_state", "load_state"):
                _check_save(loader, accelerator, prepared, name)
                return
            if first == "accelerate.accelerator" and name == "prepare":
                if not any(held is loader for held in accelerator._custom_objects):
                    raise UsageError(
                        "accelerator.prepare() keeps no position of this loader: a resume would "
                        "begin at row 0 again",
                        _THE_WAY,
                    )
                return
        frame = frame.f_back
