#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bubbles of pipelines by the order of a step's tiers.

    python3 bench/pipelines.py                     every mix, order and pipeline
    python3 bench/pipelines.py --mix code --search 20000

Rows of 131,072 tokens are packed from made-up documents, cost l * (K + l) for each document of l
tokens, and are dealt over windows of 8 steps of 8 ranks as STREAM2.md section 8 has it. A figure is
the makespan of a rank's micro-batches over that of equal micro-batches of the same cost in sum, the
mean of the ranks of a few steps; less than 1 is possible, since the first and last micro-batches
fill the bubble. `--search` adds the best order that annealing finds in that many tries, for each
rank's costs by themselves: no order of tiers can be expected to be better.
"""

import argparse
import math
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "oracle"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from barriers import makespan, schedule  # noqa: E402
from stream2_deal import deal_rows, places_of_tiers  # noqa: E402

PLACES, K, RANKS, STEPS = 131_072, 15_072, 8, 8
ORDERS = "descending", "middle", "wave", "late_wave"
PIPELINES = (4, 16), (8, 32), (8, 64), (16, 128)  # stages, micro-batches


def arranged(costs, order):
    """Costs in descending order, at the places of an order."""
    found = [0] * len(costs)
    for cost, place in zip(costs, places_of_tiers(len(costs), order)):
        found[place] = cost
    return found


def search(costs, stages, parts, tries, rng):
    """The least makespan of an order of the costs: annealing from `middle`."""
    plan = schedule(stages, len(costs), parts)
    now = arranged(costs, "middle")
    time = best = makespan(now, stages, parts, plan)
    heat = 0.006 * time
    for i in range(tries):
        other, a, b = now[:], rng.randrange(len(now)), rng.randrange(len(now))
        if rng.random() < 0.5:
            other[a], other[b] = other[b], other[a]
        else:
            other.insert(b, other.pop(a))
        found = makespan(other, stages, parts, plan)
        if found <= time or rng.random() < math.exp((time - found) / (heat * 1e-3 ** (i / tries))):
            now, time, best = other, found, min(best, found)
    return best


# ---- rows ----------------------------------------------------------------------------------------


def lognormal(median, sigma, most):
    def draw(rng):
        return max(1, min(int(rng.lognormvariate(math.log(median), sigma)), most))

    return draw


def long_context(rng):
    """Web-like documents; a third of the tokens is in documents of 8k to 256k."""
    web, least, most = 600 * math.exp(0.72), 8_192, 262_144
    long = (most - least) / math.log(most / least)
    if rng.random() < web / (web + 2 * long):
        return int(math.exp(rng.uniform(math.log(least), math.log(most))))
    return max(1, int(rng.lognormvariate(math.log(600), 1.2)))


MIXES = {
    "long-context": long_context,
    "web": lognormal(400, 1.2, 10**6),
    "code": lognormal(600, 1.6, 10**6),
    "books": lognormal(3_000, 1.8, 2 * 10**6),
}


def packed(draw, count, rng, window=64):
    """Costs of rows: the oldest document, then the longest of the window that fits; documents that
    are longer than the rest of a row are cut where none fits."""
    waiting, found = [], []
    for _ in range(count):
        room, cost = PLACES, 0
        while room:
            waiting += [draw(rng) for _ in range(window - len(waiting))]
            fit = [i for i, tokens in enumerate(waiting) if tokens <= room]
            at = 0 if room == PLACES or not fit else max(fit, key=waiting.__getitem__)
            take = min(waiting[at], room)
            cost += take * (K + take)
            room -= take
            waiting[at] -= take
            if not waiting[at]:
                waiting.pop(at)
        found.append(cost)
    return found


def ranks_of(costs, batches, steps=STEPS):
    """Costs of each rank's micro-batches, descending, dealt over windows of `steps` steps."""
    step = RANKS * batches
    deal = {"window": steps * step, "step": step, "tier": RANKS, "bundle": 1, "order": "descending"}
    found = []
    for first in range(0, len(costs), steps * step):
        own = costs[first:first + steps * step]
        rows = [own[row] for row in deal_rows(deal, own)]
        for at in range(0, len(rows), step):
            found += [rows[at + rank:at + step:RANKS] for rank in range(RANKS)]
    return found


def mean_of(ranks, stages, parts, figure):
    total = 0.0
    for own in ranks:
        equal = makespan([sum(own) / len(own)] * len(own), stages, parts)
        total += figure(own) / equal
    return total / len(ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mix", choices=MIXES, action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--search", type=int, metavar="TRIES")
    options = parser.parse_args()
    for mix in options.mix or MIXES:
        print(f"{mix}\n  {'stages':>6} {'batches':>8} {'parts':>6}", *(f"{o:>11}" for o in ORDERS))
        for stages, batches in PIPELINES:
            rng = random.Random(options.seed)
            rows = packed(MIXES[mix], STEPS * RANKS * batches, rng)
            ranks = ranks_of(rows, batches)[::STEPS + 1]
            for parts in (1, 2):
                line = [mean_of(ranks, stages, parts,
                                lambda own: makespan(arranged(own, order), stages, parts))
                        for order in ORDERS]
                if options.search:
                    line.append(mean_of(ranks[:1], stages, parts, lambda own: search(
                        own, stages, parts, options.search, rng)))
                print(f"  {stages:>6} {batches:>8} {parts:>6}", *(f"{x:>11.4f}" for x in line),
                      flush=True)


if __name__ == "__main__":
    main()
