# SPDX-License-Identifier: Apache-2.0
"""Corpora of which only the lengths matter: an index, and a .bin that is a hole.

A source is a pure function of its name, its tokens and its seed, so an existing one is used again.
"""

import math
from pathlib import Path

import numpy

from .token_corpus import write_index

# median, sigma, shortest, longest of lognormal lengths; None: log-uniform
SOURCES = {
    "web": (400, 1.2, 16, 16384),
    "code": (600, 1.6, 16, 262144),
    "books": (3000, 1.8, 64, 2_000_000),
    "chat": (900, 0.9, 32, 32768),
    "long": (None, None, 8192, 262144),
}
# sources and their shares of the tokens
MIXES = {
    "web-like": {"web": 1},
    "code": {"code": 1},
    "books": {"books": 1},
    "chat": {"chat": 1},
    "long-context mix": {"web": 2, "long": 1},
}


def draw_lengths(name, tokens, seed):
    """Lengths whose sum is `tokens` or a little more."""
    median, sigma, shortest, longest = SOURCES[name]
    random, parts, found = numpy.random.default_rng([seed, *name.encode()]), [], 0
    while found < tokens:
        if median is None:
            drawn = numpy.exp(random.uniform(math.log(shortest), math.log(longest), 4096))
        else:
            drawn = random.lognormal(math.log(median), sigma, 4096)
        parts.append(numpy.clip(drawn, shortest, longest).astype("<i4"))
        found += int(parts[-1].sum())
    lengths = numpy.concatenate(parts)
    ends = numpy.cumsum(lengths, dtype="<i8")
    return lengths[: int(numpy.searchsorted(ends, tokens)) + 1]


def make_source(folder, name, tokens, seed=0):
    """The path of the .bin."""
    path = Path(folder).resolve() / f"lengths-{name}-{tokens}-{seed}.bin"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        lengths = draw_lengths(name, tokens, seed)
        found = write_index(path.with_suffix(".idx"), len(lengths), lambda: [lengths])
        with open(path, "wb") as file:
            file.truncate(2 * found)
    return path


def make_mix(folder, mix, tokens, seed=0):
    """Sources of a config, each with enough tokens for its share of `tokens`."""
    shares = MIXES[mix]
    return [{"name": name, "weight": share,
             "path": str(make_source(folder, name,
                                     int(1.1 * tokens * share / sum(shares.values())), seed))}
            for name, share in shares.items()]
