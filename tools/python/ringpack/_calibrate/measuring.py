# SPDX-License-Identifier: Apache-2.0
"""K of a shape on a device: the longest rows that memory and time allow, timed and fitted."""

import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from .block import Block, Shape
from .rows import LEAST_TOKENS, Fit, Refused, Row, fit, measure, rows_of

TOKENS = {"cpu": 4096, "cuda": 131072}  # tokens of a row, if none are given
ROUNDS = 4  # a row is run so often at least: once for nothing, and its share of the clock's noise


class Calibration(NamedTuple):
    device: str
    attention: str
    tokens: int
    rows: list[Row]
    seconds: list[float]
    fit: Fit

    def held_out(self) -> list[float]:
        """Errors of the rows that were not fitted, as absolute shares, ascending."""
        errors = self.fit.errors(self.rows, self.seconds)
        return sorted(abs(e) for e, row in zip(errors, self.rows) if row.is_held_out)

    def as_json(self) -> dict[str, Any]:
        held_out = self.held_out()
        errors = self.fit.errors(self.rows, self.seconds)
        return {
            "cost": max(1, round(self.fit.k)),
            "k": self.fit.k,
            "second_cost": self.fit.second_cost,
            "device": self.device,
            "attention": self.attention,
            "tokens": self.tokens,
            "held_out_error_median": held_out[len(held_out) // 2] if held_out else None,
            "held_out_error_worst": held_out[-1] if held_out else None,
            "rows": [
                {
                    "name": row.name,
                    "window": row.window,
                    "is_held_out": row.is_held_out,
                    "seconds": seconds,
                    "error": error,
                }
                for row, seconds, error in zip(self.rows, self.seconds, errors)
            ],
        }


def fit_held_in(rows: Sequence[Row], seconds: Sequence[float]) -> Fit:
    fitted = [(row, s) for row, s in zip(rows, seconds) if not row.is_held_out]
    return fit([row for row, _ in fitted], [s for _, s in fitted])


def free_bytes(torch: Any, device: str) -> int:
    if device != "cpu":
        return int(torch.cuda.mem_get_info()[0])
    with open("/proc/meminfo") as file:
        found = dict(line.split(":") for line in file)
    return 1024 * int(found["MemAvailable"].split()[0])


def device_name(torch: Any, device: str) -> str:
    if device != "cpu":
        return str(torch.cuda.get_device_name())
    return f"cpu, {torch.get_num_threads()} of {os.cpu_count()} cores"


def _time_once(torch: Any, block: Block, tokens: int) -> float:
    """Seconds of the costliest row; inf if the device has too little memory for it."""
    try:
        block.seconds(Row("", (tokens,)))
        return block.seconds(Row("", (tokens,)))
    except (RuntimeError, MemoryError) as failure:
        if not isinstance(failure, MemoryError) and "memory" not in str(failure):
            raise
        return float("inf")
    finally:
        block.free()


def choose_tokens(torch: Any, block: Block, wanted: Optional[int], seconds: float) -> int:
    """`wanted` if it fits, or the largest default that does and leaves time for all rows."""
    device, item = block.device, block.dtype.itemsize
    tokens = wanted or TOKENS["cpu" if device == "cpu" else "cuda"]
    while True:
        needed, free = block.shape.bytes_needed(tokens, item), free_bytes(torch, device)
        took = float("inf") if needed > free else _time_once(torch, block, tokens)
        total = took * len(rows_of(tokens)) * ROUNDS / 2  # other rows cost less than the longest
        if total <= seconds:
            return tokens
        if wanted and took < float("inf"):
            return tokens  # longer than hoped for
        if wanted or tokens // 2 < LEAST_TOKENS:
            break
        tokens //= 2
    if took < float("inf"):
        raise Refused(
            f"a row of {tokens:,} tokens takes {took:.1f} s on {device_name(torch, device)}: too "
            f"long for {seconds:.0f} s",
            "use the GPU that trains, or give more time: --seconds",
        )
    raise Refused(
        f"a row of {tokens:,} tokens needs about {needed / 2**30:.1f} GiB for one block, and "
        f"{device_name(torch, device)} has {free / 2**30:.1f} GiB free",
        "end other processes on it, or give shorter rows: --tokens",
    )


def calibrate(
    torch: Any,
    shape: Shape,
    device: str,
    dtype: Any,
    wanted: Optional[int] = None,
    window: int = 0,
    seconds: float = 40.0,
) -> Calibration:
    """Measure K. `wanted`: tokens of a row; None: as many as memory and time allow."""
    needed, free = shape.bytes_needed(0, dtype.itemsize), free_bytes(torch, device)
    if needed > free:
        raise Refused(
            f"the weights of one block and their gradients need {needed / 2**30:.1f} GiB, and "
            f"{device_name(torch, device)} has {free / 2**30:.1f} GiB free",
            "end other processes on it, or use another device",
        )
    block = Block(torch, shape, device, dtype)
    tokens = choose_tokens(torch, block, wanted, seconds)
    rows = rows_of(tokens, window)
    times = measure(rows, block.seconds, seconds, time.monotonic)
    block.free()
    name = device_name(torch, device)
    return Calibration(name, block.kind, tokens, rows, times, fit_held_in(rows, times))
