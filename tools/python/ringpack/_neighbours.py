# SPDX-License-Identifier: Apache-2.0
"""Tensor-, pipeline- and context-parallel neighbours: processes of one data-parallel rank, as
torch.distributed knows them."""

import os
import socket
import sys
from typing import Any

from .errors import UsageError


def place_among(dp_rank: int, dp_world_size: int, reads: bool = True) -> dict[str, Any]:
    """The arguments of a Loader that place this process among all: dp_rank, dp_world_size, and
    where they are needed replica, consumers_per_rank and ranks. All processes of the job call it
    together.

    reads: False for a process without a Loader."""
    place: dict[str, Any] = {"dp_rank": dp_rank, "dp_world_size": dp_world_size}
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return place
    node = os.environ.get("GROUP_RANK") or socket.gethostname()
    known: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(known, (dp_rank, node) if reads else (None, None))
    if not reads:
        return place
    here = sorted({rank for rank, at in known if at == node})
    counts = {rank: known.count((rank, node)) for rank in here}
    if len({*counts.values()}) > 1 or here != [*range(here[0], here[-1] + 1)]:
        raise UsageError(
            f"this node has processes of the data-parallel ranks {counts}: expected neighbouring "
            "ranks, and as many processes of each",
            "let data-parallel ranks follow one another on a node",
        )
    mine = [number for number, of in enumerate(known) if of == (dp_rank, node)]
    if len(mine) > 1:
        place.update(replica=mine.index(dist.get_rank()), consumers_per_rank=len(mine))
    if len(here) < dp_world_size:
        place["ranks"] = f"{here[0]}-{here[-1]}"
    return place
