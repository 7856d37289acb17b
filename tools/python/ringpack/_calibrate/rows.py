# SPDX-License-Identifier: Apache-2.0
"""Rows to be timed, and the least squares of their times.

The cost of a row is the sum of its documents' (engine/plan/STREAM2.md, section 8): a document of l
tokens costs K * l + l^2, or with attention to the last w tokens only K * l + 2 * w * l - w^2.
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

SHORTEST = 128  # tokens of a document in rows of equal documents
LENGTHS = 5  # in these rows, each a quarter of the one before
LEAST_TOKENS = 1024  # a row's: 1,024, 256 and 128 tokens a document
LARGEST_K = 2**24 - 1


class Refused(Exception):
    """K cannot be measured: a message, and the next thing to do."""

    def __init__(self, message: str, hint: str):
        super().__init__(message)
        self.hint = hint


class Row(NamedTuple):
    """A row: the tokens of each document, and of attention's window (0: none)."""

    name: str
    lengths: tuple[int, ...]
    window: int = 0
    is_held_out: bool = False

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @property
    def attention(self) -> int:
        return sum(attention(length, self.window) for length in self.lengths)


def attention(length: int, window: int = 0) -> int:
    """Twice the pairs of tokens that attention has in a document."""
    if window == 0 or length <= window:
        return length * length
    return 2 * window * length - window * window


def cost(lengths: Iterable[int], k: float) -> float:
    return sum(length * (k + length) for length in lengths)


def equal(tokens: int, length: int) -> Row:
    count = tokens // length
    return Row(f"{count} x {length:,}", (length,) * count)


def mixed(tokens: int, longest: int, length: int, is_held_out: bool = False) -> Row:
    """Documents of half of a row or of quarters, and the rest of the row in short ones."""
    first = (longest,) * (tokens // 2 // longest)
    rest = (length,) * ((tokens - sum(first)) // length)
    name = f"{len(first)} x {longest:,} + {len(rest)} x {length:,}"
    return Row(name, first + rest, 0, is_held_out)


def drawn(tokens: int, median: float, seed: int) -> Row:
    """Lognormal lengths, as of web pages."""
    draw, lengths = random.Random(seed), list[int]()
    while (left := tokens - sum(lengths)) > 0:
        length = int(draw.lognormvariate(math.log(median), 1.2))
        lengths.append(min(max(16, length), left))
    return Row(f"{len(lengths)} lognormal", tuple(lengths), 0, True)


def rows_of(tokens: int, window: int = 0) -> list[Row]:
    """The rows to be timed; with a window of attention all of them also under it."""
    lengths = [tokens // 4**i for i in range(LENGTHS) if tokens // 4**i >= SHORTEST]
    rows = [equal(tokens, length) for length in lengths]
    rows.append(mixed(tokens, tokens // 2, max(tokens // 64, 16)))
    rows.append(mixed(tokens, tokens // 4, max(tokens // 16, 16)))
    rows.append(equal(tokens, tokens // 2)._replace(is_held_out=True))
    rows.append(mixed(tokens, tokens // 4, max(tokens // 256, 16), True))
    rows.append(mixed(tokens, tokens // 8, max(tokens // 32, 16), True))
    rows += [drawn(tokens, tokens / parts, parts) for parts in (300, 20)]
    if window:
        rows += [row._replace(window=window) for row in rows if max(row.lengths) > window]
    return rows


class Fit(NamedTuple):
    """seconds of a row = second_cost * (K * tokens + attention)."""

    k: float
    second_cost: float

    def seconds(self, row: Row) -> float:
        return self.second_cost * (self.k * row.tokens + row.attention)

    def errors(self, rows: Sequence[Row], seconds: Sequence[float]) -> list[float]:
        """Of each row: fitted over measured, less 1."""
        return [self.seconds(row) / measured - 1 for row, measured in zip(rows, seconds)]


def fit(rows: Sequence[Row], seconds: Sequence[float]) -> Fit:
    """Least squares of relative errors. Refused if the rows do not tell K."""
    tokens = [row.tokens / measured for row, measured in zip(rows, seconds)]
    squares = [row.attention / measured for row, measured in zip(rows, seconds)]
    tt, ss = sum(t * t for t in tokens), sum(s * s for s in squares)
    ts = sum(t * s for t, s in zip(tokens, squares))
    determinant = tt * ss - ts * ts
    if determinant <= 1e-9 * tt * ss:
        raise Refused(
            "all rows have documents of about the same lengths: these times do not tell K",
            "give rows of short documents, and rows of long ones",
        )
    of_token = (ss * sum(tokens) - ts * sum(squares)) / determinant
    of_attention = (tt * sum(squares) - ts * sum(tokens)) / determinant
    longest = max(max(row.lengths) for row in rows)
    if of_attention <= 0 or of_token / of_attention > LARGEST_K:
        raise Refused(
            f"documents of {longest:,} tokens cost no more a token than short ones",
            "measure longer rows (--tokens), on the device that trains",
        )
    if of_token <= 0 or of_token / of_attention < 0.5:
        raise Refused(
            "short documents take no time: K would be 0",
            "give times of whole steps, or of forward and backward",
        )
    return Fit(of_token / of_attention, of_attention)


Timer = Callable[[Row], float]
"""Runs a row, and returns its seconds."""


def measure(
    rows: Sequence[Row], timer: Timer, seconds: float, clock: Callable[[], float]
) -> list[float]:
    """The least seconds of each row. Each is run once for nothing and twice or more for its time,
    in an order that changes, as long as `seconds` allow."""
    draw, order = random.Random(0), list(range(len(rows)))
    for row in rows:
        timer(row)
    found, begin, rounds = [math.inf] * len(rows), clock(), 0
    while rounds < 2 or (clock() - begin) * (rounds + 1) / rounds < seconds:
        draw.shuffle(order)
        for i in order:
            found[i] = min(found[i], timer(rows[i]))
        rounds += 1
    return found
