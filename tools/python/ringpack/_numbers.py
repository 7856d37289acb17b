# SPDX-License-Identifier: Apache-2.0
"""Numbers of a batch, as properties: fields of struct rp_batch."""

from typing import TYPE_CHECKING, Any, Optional

from ._library import KNOWN_COST, KNOWN_STEP
from .errors import RingpackError

if TYPE_CHECKING:
    from .batch import Batch

_OF_STEP = (
    "Over all rows of this batch's step, of all ranks, micro-batches and nodes: the same number in "
    "each batch of the step, known before the first one. RingpackError: this engine cannot know it."
)
_COST = (
    "Cost of the rows of this batch by the run's cost model, an int: the sum of l·(K + l) over all "
    "fragments, l being the places of the fragment (engine/plan/STREAM2.md, section 8), which is "
    "proportional to the time of a model. K is the key `cost`; without it, the deal's. None: the "
    "run has neither."
)


def number_of(name: str, text: str) -> Any:
    return property(lambda batch: getattr(batch._terms.info, name), doc=text)


def known_sum(batch: "Batch", name: str) -> Optional[int]:
    """A sum of the batch's step; None if it cannot be known."""
    info = batch._terms.info
    return int(getattr(info, name)) if info.known & KNOWN_STEP else None


def sum_of_step(name: str, text: str) -> Any:
    def read(batch: "Batch") -> int:
        number = known_sum(batch, name)
        if number is None:
            raise RingpackError(
                f"batch {batch.number}: {name} is not known: its step began before the row from "
                "which this engine can plan, or the index of a document in it is damaged",
                "sum up tokens_loss over the ranks in this step, or resume at a step boundary; "
                "the next step is known",
            )
        return number

    return property(read, doc=f"{text} {_OF_STEP}")


def cost_of_rows() -> Any:
    def read(batch: "Batch") -> Optional[int]:
        info = batch._terms.info
        return int(info.cost) if info.known & KNOWN_COST else None

    return property(read, doc=_COST)


def nanoseconds(seconds: Optional[float]) -> int:
    """As the library takes a timeout: 0 is its default, UINT64_MAX its "for ever"."""
    if seconds is None:
        return 0
    if seconds >= 2**64 / 1e9:
        return 2**64 - 1
    return max(1, int(seconds * 1e9))
