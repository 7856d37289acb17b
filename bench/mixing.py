#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The largest distance of a source from its asked share, by method of mixing.

    build/venv/bin/python bench/mixing.py              10,000 random mixtures and ramps
    build/venv/bin/python bench/mixing.py --mixtures 500

A mixture has 2 to 16 sources with random weights; the lengths of a source's documents are lognormal
with a scale of their own. In a ramp the weights move over the middle half, in 8 levels, to other
random ones. After each document, the distance of a source is the difference of the
tokens that were taken from it and the tokens that its weights asked for until then; it is divided by
the longest document of the mixture. The methods:

    due       STREAM2.md section 6.2: of the sources that are behind the mean, the one that will first
              be one longest document behind
    credit    the source with the greatest credit in tokens
    greedy    the source whose share of the items exceeds its taken items most, as BlendedDataset of
              Megatron Core does it; counts begin again at a change of weights
    interleave  item k by the counts of a fixed interleaving of sources, as MixedMapDataset of Grain
              does it; k begins again at a change of weights

The last two count items, and were made for items of one length, which the second part of the table
has. Grain rounds weights to whole numbers of which the least is 100.
"""

import argparse

import numpy

SOURCES, LEVELS, UNIT = 16, 8, 2**32


def apportion(weights, active):
    """Shares that sum to 2^32; the greatest rests get 1 more (section 6.1, by floating point)."""
    exact = weights / weights.sum(axis=1, keepdims=True) * UNIT
    shares = numpy.floor(exact).astype(numpy.int64)
    left = UNIT - shares.sum(axis=1)
    rank = numpy.argsort(numpy.argsort(-numpy.where(active, exact - shares, -1), axis=1), axis=1)
    return shares + (rank < left[:, None])


class Due:
    def __init__(self, shape):
        self.credit, self.longest = numpy.zeros(shape, numpy.int64), numpy.zeros(shape[0], int)

    def begin(self, shares, active):
        self.shares, self.active = shares, active

    def choose(self):
        sums = numpy.where(self.active, self.credit, 0).sum(axis=1)
        mean = (sums // self.active.sum(axis=1))[:, None]
        ahead = self.credit - mean - self.longest[:, None] * UNIT
        due = ahead // numpy.maximum(self.shares, 1)
        is_behind = self.active & (self.credit >= mean)
        return numpy.where(is_behind, due, numpy.iinfo(numpy.int64).min).argmax(axis=1)

    def charge(self, rows, chosen, tokens):
        self.credit += tokens[:, None] * self.shares
        self.credit[rows, chosen] -= tokens * UNIT
        self.longest = numpy.maximum(self.longest, tokens)


class Credit(Due):
    def choose(self):
        least = numpy.iinfo(numpy.int64).min
        return numpy.where(self.active, self.credit, least).argmax(axis=1)


class Greedy:
    def __init__(self, shape):
        self.shape = shape

    def begin(self, shares, active):
        self.shares, self.active = shares / UNIT, active
        self.taken, self.item = numpy.zeros(self.shape), 0

    def choose(self):
        error = self.shares * max(self.item, 1) - self.taken
        return numpy.where(self.active, error, -numpy.inf).argmax(axis=1)

    def charge(self, rows, chosen, _tokens):
        self.taken[rows, chosen] += 1
        self.item += 1


class Interleave(Greedy):
    def begin(self, shares, active):
        """Proportions as whole numbers, the least of them 100."""
        super().begin(shares, active)
        least = numpy.where(active, shares, UNIT).min(axis=1, keepdims=True)
        self.whole = (shares * 100 // least) * active

    def counts(self, items):
        left, counts = self.whole.sum(axis=1), numpy.zeros(self.shape, numpy.int64)
        k = numpy.full(self.shape[0], items)
        for source in range(self.shape[1]):
            part = self.whole[:, source]
            rest = k * (left - part) // numpy.maximum(left, 1)
            counts[:, source] = numpy.where(part > 0, k - rest, 0)
            k, left = numpy.where(part > 0, rest, k), left - part
        return counts

    def choose(self):
        return (self.counts(self.item + 1) - self.counts(self.item)).argmax(axis=1)


def farthest(method, draw, mixtures, documents, is_equal, is_ramp):
    """Of each mixture: the largest distance of any source at any time, in longest documents."""
    shape, rows = (mixtures, SOURCES), numpy.arange(mixtures)
    active = numpy.arange(SOURCES) < draw.integers(2, SOURCES + 1, mixtures)[:, None]
    ends = [numpy.exp(draw.uniform(-3, 3, shape)) * active for _ in range(2)]
    scale, way = numpy.exp(draw.uniform(2, 6, shape)), method(shape)
    taken, asked, worst = numpy.zeros(shape), numpy.zeros(shape), numpy.zeros(mixtures)
    longest, level_before = numpy.zeros(mixtures), None
    for item in range(documents):
        level = int((item / documents - 0.25) * 2 * LEVELS) if is_ramp else 0
        level = min(max(level, 0), LEVELS)
        if level != level_before:
            one, two = (end / end.sum(axis=1, keepdims=True) for end in ends)
            shares = apportion(one * (LEVELS - level) + two * level, active)
            way.begin(shares, active)
            level_before = level
        chosen = way.choose()
        drawn = scale[rows, chosen] * numpy.exp(draw.normal(0, 1.2, mixtures))
        tokens = numpy.full(mixtures, 512) if is_equal else drawn.clip(1, 2**17).astype(int)
        way.charge(rows, chosen, tokens)
        taken[rows, chosen] += tokens
        asked += tokens[:, None] * (shares / UNIT)
        longest = numpy.maximum(longest, tokens)
        worst = numpy.maximum(worst, numpy.abs(taken - asked).max(axis=1))
    return worst / longest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mixtures", type=int, default=10000)
    parser.add_argument("--documents", type=int, default=2000, help="of a mixture")
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args()
    print("distance in longest documents      largest   99 %  median   mixtures above 1")
    for is_equal, is_ramp in (False, False), (False, True), (True, False), (True, True):
        for method in Due, Credit, Greedy, Interleave:
            draw, found = numpy.random.default_rng(options.seed), []
            for first in range(0, options.mixtures, 1000):
                count = min(1000, options.mixtures - first)
                found.append(farthest(method, draw, count, options.documents, is_equal, is_ramp))
            found = numpy.concatenate(found)
            name = "one length" if is_equal else "documents"
            name += f", {'ramp' if is_ramp else 'fixed'}: {method.__name__.lower()}"
            line = f"{found.max():8.2f}{numpy.quantile(found, 0.99):7.2f}{numpy.median(found):8.2f}"
            print(f"{name:34s}{line}{(found > 1).mean():12.1%}", flush=True)


if __name__ == "__main__":
    main()
