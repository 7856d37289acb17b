# SPDX-License-Identifier: Apache-2.0
"""Bounds of a median of few values, without knowledge of the noise's distribution.

Two intervals that hold the true value with a probability of 95 % or more, if what they are of is
independent:

* of a median: between two of the sorted values. A value is below the true median with probability
  1/2, so how many of n are below it is binomial, whatever the values' distribution (H. A. David and
  H. N. Nagaraja, Order Statistics, 3rd edition, 2003, section 7.1). n below 6 has no such interval.
* of anything else: the percentile interval of the bootstrap (B. Efron and R. J. Tibshirani, An
  Introduction to the Bootstrap, 1993, section 13.3), over whole rounds.

Values of one repetition share processes, and so their peculiarities (the places of their memory).
Six repetitions or more are judged by their medians, whose processes are different. The interval of
fewer repetitions is of all values, and so is one of rounds: it holds for these processes only, and
another run may differ by more.
"""

import math
import random
import statistics

CONFIDENCE = 0.95
DRAWS = 1000


def rank_of_interval(count):
    """k: the interval is from the k-th least value to the k-th greatest. 0: no interval."""
    rank, outside = 0, 0.0
    while rank < count:
        outside += 2 * math.comb(count, rank) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        rank += 1
    return rank


def interval_of_median(values):
    """[low, high], or None of too few values."""
    rank = rank_of_interval(len(values))
    ordered = sorted(values)
    return [ordered[rank - 1], ordered[-rank]] if rank else None


def interval_of_repetitions(repetitions):
    """[low, high] of the median, from a list of values for each repetition; or None."""
    return (interval_of_median([statistics.median(values) for values in repetitions])
            or interval_of_median([value for values in repetitions for value in values]))


def interval_by_rounds(rounds, statistic):
    """[low, high] of `statistic`, which is of a list of rounds; None of too few rounds."""
    if not rank_of_interval(len(rounds)):
        return None
    source = random.Random(0)
    found = sorted(statistic(source.choices(rounds, k=len(rounds))) for _ in range(DRAWS))
    outside = round(DRAWS * (1 - CONFIDENCE) / 2)
    return [found[outside], found[-1 - outside]]


class Rounds:
    """The values of several rounds, and a number of all of them together."""

    def __init__(self, rounds, statistic):
        self.rounds, self.statistic = rounds, statistic

    @staticmethod
    def summarise(parts):
        """Of the rounds of several repetitions."""
        statistic = parts[0].statistic
        rounds = [found for part in parts for found in part.rounds]
        each = [statistic(part.rounds) for part in parts]
        return {"median": statistic(rounds), "min": min(each), "max": max(each), "values": each,
                "interval": interval_by_rounds(rounds, statistic), "count": len(rounds)}
