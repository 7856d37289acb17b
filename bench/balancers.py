# SPDX-License-Identifier: Apache-2.0
"""Other methods of sharing out the documents of a step to ranks and micro-batches (steps.py).

Each takes steps of ranks of micro-batches of lengths, and gives such steps of the same documents.
"""

import heapq
from itertools import count


def documents_of(step):
    """In the order of the stream: micro-batch by micro-batch, rank by rank."""
    return [length for micro in zip(*step) for own in micro for length in own]


def by_turns(rows, ranks):
    """Rows to ranks by turns."""
    return [rows[rank::ranks] for rank in range(ranks)]


def next_fit_rows(documents, seq_len):
    rows, room = [[]], seq_len
    for length in documents:
        if length > room and rows[-1]:
            rows.append([])
            room = seq_len
        rows[-1].append(length)
        room -= length
    return rows


def next_fit(steps, seq_len, _k):
    return [by_turns(next_fit_rows(documents_of(step), seq_len), len(step)) for step in steps]


def by_length(steps, seq_len, _k):
    return [by_turns(next_fit_rows(sorted(documents_of(step), reverse=True), seq_len), len(step))
            for step in steps]


def differencing(items, bins, cost):
    """Karmarkar-Karp into `bins`: of the partial solutions, the two of the greatest difference are
    joined, the costliest part of one with the cheapest of the other."""
    number, heap = count(), []
    for item in items:
        sums = [(cost(item), item)] + [(0, None)] * (bins - 1)  # a part is an item, a pair or None
        heap.append((-sums[0][0], next(number), sums))
    heapq.heapify(heap)
    while len(heap) > 1:
        one, other = heapq.heappop(heap)[2], heapq.heappop(heap)[2]
        joined = [(a + b, y if x is None else x if y is None else (x, y))
                  for (a, x), (b, y) in zip(one, reversed(other))]
        joined.sort(key=lambda part: -part[0])
        heapq.heappush(heap, (joined[-1][0] - joined[0][0], next(number), joined))
    return [flat(part) for _, part in heap[0][2]]


def flat(part):
    found, left = [], [part]
    while left:
        part = left.pop()
        if isinstance(part, tuple):
            left += part
        elif part is not None:
            found.append(part)
    return found


def partitioned(steps, _seq_len, k):
    def cost(length):
        return length * (k + length)

    found = []
    for step in steps:
        ranks = differencing(documents_of(step), len(step), cost)
        found.append([differencing(own, len(step[0]), cost) for own in ranks])
    return found


LEVELS = 3
ROOM = 1.25


def queues(steps, seq_len, k):
    """A level is a range of lengths: above a half of a row, a quarter, an eighth. A step takes the
    documents of one level at most; documents that wait at the end are dropped."""
    waiting, rest, found = [[] for _ in range(LEVELS)], [], []
    for step in steps:
        ranks, bins = len(step), sum(map(len, step))
        own, rest = rest, []
        for length in own + documents_of(step):
            level = next((n for n in range(LEVELS) if length << n + 1 > seq_len), None)
            (rest if level is None else waiting[level]).append(length)
        micro = [(0, n, []) for n in range(bins)]
        level = next((level for level in waiting if len(level) >= bins), [])
        given, level[:] = level[:bins], level[bins:]
        for n, length in enumerate(given):
            micro[n] = (length * (k + length), n, [length])
        rest = fill(micro, sorted(rest, reverse=True), ROOM * seq_len, bins * seq_len, k)
        filled = [held for _, n, held in sorted(micro, key=lambda part: part[1])]
        if all(filled):
            found.append(by_turns(filled, ranks))
    return found


def fill(micro, documents, room, tokens, k):
    """Documents to the micro-batch that costs least of those with room, while the step lacks
    tokens. Returns the others. `micro` is changed in place."""
    heapq.heapify(micro)
    left, full = [], []
    sums = {n: sum(held) for _, n, held in micro}
    given = sum(sums.values())
    for length in documents:
        while micro and sums[micro[0][1]] + length > room:
            full.append(heapq.heappop(micro))
        if not micro or given + length > tokens:
            left.append(length)
        else:
            cost, n, held = micro[0]
            held.append(length)
            heapq.heapreplace(micro, (cost + length * (k + length), n, held))
            sums[n] += length
            given += length
        while full:
            heapq.heappush(micro, full.pop())
    return left


METHODS = {"sorted": by_length, "next-fit": next_fit, "partitioned": partitioned, "queues": queues}
