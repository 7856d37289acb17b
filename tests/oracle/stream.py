# SPDX-License-Identifier: Apache-2.0
"""The stream of engine/plan/STREAM.md, version 1, sections 1 to 6, in the plainest Python.

Written only from that page, to be read next to it: one part here per section there, the same names,
lists and min/max instead of clever structures. It is slow on purpose. The engine must equal it byte
for byte.
"""

from collections import namedtuple
from fractions import Fraction

import plan_digest

SHUFFLE = {"none": 0, "document": 1, "block": 2}
PACKING = {"lookahead": 0, "concat": 1, "best_fit": 2}
FILL = {"pad": 0, "split": 1}
LONG_DOC = {"split": 0, "truncate": 1, "drop": 2}
COUNTS = "documents empty tokens_read truncated dropped emitted padding placed".split()

# Tokens offset … offset + length - 1 of a document; called a fragment once it is in a row.
Piece = namedtuple("Piece", "source document offset length")


# ---- 1. Inputs -----------------------------------------------------------------------------------


class Spec:
    """The inputs of the stream. corpora[j].lengths are the documents of source j."""

    def __init__(self, inputs, corpora):
        self.seed = int(str(inputs["seed"]), 0)
        self.L = inputs["seq_len"]
        self.shuffle = inputs["shuffle"]
        self.packing = inputs["packing"]
        self.fill = inputs.get("fill", "pad")
        self.long_doc = inputs["long_doc"]
        self.D = inputs["max_docs_per_row"]
        self.lanes = inputs.get("lanes", 1)
        self.num_epochs = inputs["num_epochs"]
        # A field that a choice does not use is 0, so that equal streams have equal tokens.
        self.B = inputs["block_documents"] if self.shuffle == "block" else 0
        self.V = inputs["window_blocks"] if self.shuffle == "block" else 0
        self.W = inputs["window"] if self.packing != "concat" else 0
        if self.packing == "concat":
            self.fill = "pad"
        self.corpora = corpora
        # section 10; None: no mask
        self.spans = [source.get("spans") for source in inputs["sources"]]
        self.lengths = [
            drop_untrained(corpus.lengths, spans)
            if source.get("drop_untrained") and spans is not None
            else corpus.lengths
            for source, spans, corpus in zip(inputs["sources"], self.spans, corpora)
        ]
        self.weights = [source["weight"] for source in inputs["sources"]]
        self.corpus_sampled = int(inputs.get("corpus_sampled", "0"), 16)
        self.corpus_full = int(inputs.get("corpus_full", "0"), 16)
        self.tokenizer = int(inputs.get("tokenizer", "0"), 16)


def drop_untrained(lengths, spans):
    """Section 1.1: the lengths of a source where documents without spans count as empty."""
    return [n if own else 0 for n, own in zip(lengths, spans)]


def default_max_docs_per_row(inputs, lengths):
    """D if it is not given; lengths[j] are source j's."""
    L, W, lanes = inputs["seq_len"], inputs.get("window", 64), inputs.get("lanes", 1)

    def wanted(source):
        n = len(source)
        places = range(n)
        if n > 4096:
            places = [r * (n - 64) // 63 + i for r in range(64) for i in range(64)]
        x = sorted(min(L, source[d]) for d in places if source[d] > 0)
        for k in range(len(x)):
            if 100 * sum(x[: k + 1]) > sum(x):
                return -(-L // x[k]) + 1
        return 1

    most = L
    if inputs["packing"] == "best_fit":
        most = 2**22 // (24 * W * lanes)
    return max(min(L, max(32, L // 32)), min(L, max(map(wanted, lengths)), most))


# ---- 2. The generator and the permutation --------------------------------------------------------


def lo(x):
    return x & 0xFFFFFFFF


def hi(x):
    return x >> 32


def philox4x32(key, counter, rounds=10):
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(rounds):
        p, q = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = hi(q) ^ c1 ^ k0, lo(q), hi(p) ^ c3 ^ k1, lo(p)
        k0, k1 = lo(k0 + 0x9E3779B9), lo(k1 + 0xBB67AE85)
    return c0, c1, c2, c3


def philox2x32(key, counter, rounds=7):
    c0, c1 = counter
    for _ in range(rounds):
        p = 0xD256D193 * c0
        c0, c1 = hi(p) ^ key ^ c1, lo(p)
        key = lo(key + 0x9E3779B9)
    return c0, c1


def round_keys(seed, source, epoch, stage, v):
    b = philox4x32((lo(seed), hi(seed)), (lo(epoch), hi(epoch), source, 0))
    first = philox4x32((b[0], b[1]), (lo(v), hi(v), stage, 0))
    second = philox4x32((b[0], b[1]), (lo(v), hi(v), stage, 1))
    return (first + second)[:6]


def permute(n, keys, x):
    if n == 1:
        return 0
    b = max(2, (n - 1).bit_length())
    l = b // 2
    h = b - l
    while True:
        A, C = x >> l, x % 2**l
        for i in range(6):
            if i % 2 == 0:
                A ^= philox2x32(keys[i], (C, i))[0] % 2**h
            else:
                C ^= philox2x32(keys[i], (A, i))[0] % 2**l
        x = A * 2**l + C
        if x < n:
            return x


# ---- 3. The order of a source --------------------------------------------------------------------


def lane_order(spec, source, epoch, lane):
    """All documents that the lane sees of the source in the epoch, in order."""
    n = len(spec.lengths[source])
    units = -(-n // spec.B) if spec.shuffle == "block" else n
    numbers = range(lane, units, spec.lanes)  # k·Λ + λ for k = 0, 1, …
    if spec.shuffle == "none":
        return list(numbers)
    keys = round_keys(spec.seed, source, epoch, 0, 0)
    own = [permute(units, keys, x) for x in numbers]
    if spec.shuffle == "document":
        return own
    order = []
    for w, first in enumerate(range(0, len(own), spec.V)):
        listed = []
        for u in own[first : first + spec.V]:
            listed.extend(range(u * spec.B, min((u + 1) * spec.B, n)))
        keys = round_keys(spec.seed, source, epoch, 1, w * spec.lanes + lane)
        order.extend(listed[permute(len(listed), keys, q)] for q in range(len(listed)))
    return order


# ---- 4. The feed of a lane -----------------------------------------------------------------------


class OpenRow:
    """best_fit: a row that waits for more pieces."""

    def __init__(self, opened_at, fragments):
        self.opened_at = opened_at
        self.fragments = fragments


class Lane:
    """One lane: its feed, the pieces that packing holds back, and its counts. There is no other
    state."""

    def __init__(self, spec, number):
        sources = len(spec.lengths)
        self.spec, self.number = spec, number
        self.epoch, self.position, self.mixed = [0] * sources, [0] * sources, [0] * sources
        self.count = dict.fromkeys(COUNTS, 0)
        self.fifo, self.pending, self.open = [], None, []
        self.orders = [None] * sources  # a cache, not state: (epoch, order) of each source

    def order(self, j):
        if self.orders[j] is None or self.orders[j][0] != self.epoch[j]:
            self.orders[j] = (self.epoch[j], lane_order(self.spec, j, self.epoch[j], self.number))
        return self.orders[j][1]

    def finished(self, j):
        return self.spec.num_epochs > 0 and self.epoch[j] == self.spec.num_epochs

    def furthest_behind(self):
        """The unfinished source with the least mixed / weight, the lowest among equals."""
        unfinished = [j for j in range(len(self.mixed)) if not self.finished(j)]
        share = [Fraction(m, weight) for m, weight in zip(self.mixed, self.spec.weights)]
        return min(unfinished, key=lambda j: share[j], default=None)

    def next_document(self):
        spec = self.spec
        while True:
            j = self.furthest_behind()
            if j is None:
                return None
            d = self.order(j)[self.position[j]]
            self.position[j] += 1
            if self.position[j] == len(self.order(j)):
                self.epoch[j], self.position[j] = self.epoch[j] + 1, 0
            n = spec.lengths[j][d]
            self.count["documents"] += 1
            self.count["tokens_read"] += n
            if n == 0:
                self.count["empty"] += 1
                continue
            if n > spec.L and spec.long_doc == "drop":
                self.count["dropped"] += n
                continue
            if n > spec.L and spec.long_doc == "truncate":
                self.count["truncated"] += n - spec.L
                n = spec.L
            self.mixed[j] += n
            return Piece(j, d, 0, n)

    # ---- 5. Packing ------------------------------------------------------------------------------

    def next_row(self):
        """The lane's next row, a list of fragments; empty when the lane has ended."""
        if self.spec.packing == "concat":
            return self.concat()
        if self.spec.packing == "lookahead":
            return self.lookahead()
        return self.best_fit()

    def held(self):
        """Every piece that was read and not emitted."""
        pending = [] if self.pending is None else [self.pending]
        return self.fifo + pending + [piece for row in self.open for piece in row.fragments]

    def gap(self, row):
        return self.spec.L - sum(fragment.length for fragment in row)

    def emit(self, row):
        if row:
            self.count["emitted"] += self.spec.L - self.gap(row)
            self.count["padding"] += self.gap(row)
        return row

    def concat(self):
        row = []
        while self.gap(row) > 0 and len(row) < self.spec.D:
            if self.pending is None:
                self.pending = self.next_document()
                if self.pending is None:
                    break
            fragment, self.pending = take(self.pending, min(self.gap(row), self.pending.length))
            row.append(fragment)
        return self.emit(row)

    def top_up(self):
        while len(self.fifo) < self.spec.W and self.pending is None:
            piece = self.next_document()
            if piece is None:
                return
            if piece.length > self.spec.L:
                self.pending = piece
            else:
                self.fifo.append(piece)

    def take_fifo(self, i, tokens):
        fragment, rest = take(self.fifo[i], tokens)
        self.fifo[i : i + 1] = [] if rest is None else [rest]
        return fragment

    def lookahead(self):
        D, row = self.spec.D, []
        self.top_up()  # 1
        if self.pending is not None:  # 2
            fragment, rest = take(self.pending, self.spec.L)
            self.pending = rest if rest.length > self.spec.L else None
            if self.pending is None:
                self.fifo.append(rest)
            return self.emit([fragment])
        if not self.fifo:
            return row
        row.append(self.take_fifo(0, self.fifo[0].length))
        while self.gap(row) > 0 and len(row) < D:  # 3
            self.top_up()
            gap = self.gap(row)
            best = longest_fit(self.fifo, gap)
            if best is None:
                break
            least = min(piece.length for piece in self.fifo)
            pair = None
            rest = gap - self.fifo[best].length
            second = longest_fit(self.fifo, rest, other_than=best)
            second_length = 0 if second is None else self.fifo[second].length
            if rest - second_length < least and len(row) <= D - 2:
                pair = find_pair(self.fifo, gap, least, self.fifo[best].length + second_length)
            if pair is not None:
                a, b = pair
                row.append(self.fifo[a])
                row.append(self.fifo[b])
                self.fifo = [piece for i, piece in enumerate(self.fifo) if i not in (a, b)]
                continue
            row.append(self.take_fifo(best, self.fifo[best].length))
        if self.gap(row) > 0 and self.spec.fill == "split" and len(row) < D and self.fifo:  # 4
            row.append(self.take_fifo(0, self.gap(row)))
        return self.emit(row)

    def take_pending(self, tokens):
        fragment, self.pending = take(self.pending, tokens)
        if self.pending is None:
            self.count["placed"] += 1
        return fragment

    def close(self, chosen):
        self.open.remove(chosen)
        row = chosen.fragments
        if self.spec.fill == "split" and self.gap(row) > 0:
            row.append(self.take_pending(min(self.gap(row), self.pending.length)))
        return self.emit(row)

    def best_fit(self):
        L, D, W = self.spec.L, self.spec.D, self.spec.W

        def gap_of(row):  # min() takes the first of equals: the first opened
            return self.gap(row.fragments)

        while True:
            if self.pending is None:  # 1
                self.pending = self.next_document()
            if self.pending is None:
                if not self.open:
                    return []
                smallest = min(self.open, key=gap_of)
                self.open.remove(smallest)
                return self.emit(smallest.fragments)
            if any(self.count["placed"] - row.opened_at >= 64 * W for row in self.open):  # 2
                return self.close(self.open[0])
            if self.pending.length >= L:  # 3
                return self.emit([self.take_pending(L)])
            fitting = [row for row in self.open if gap_of(row) >= self.pending.length]  # 4
            if fitting:
                chosen = min(fitting, key=gap_of)
                chosen.fragments.append(self.take_pending(self.pending.length))
                if gap_of(chosen) == 0 or len(chosen.fragments) == D:
                    self.open.remove(chosen)
                    return self.emit(chosen.fragments)
            elif len(self.open) < W:  # 5
                opened_at = self.count["placed"]
                self.open.append(OpenRow(opened_at, [self.take_pending(self.pending.length)]))
                if D == 1:
                    return self.emit(self.open.pop().fragments)
            else:  # 6
                return self.close(min(self.open, key=gap_of))


def take(piece, tokens):
    """The fragment of the piece's first tokens, and the rest of the piece, if any."""
    fragment = piece._replace(length=tokens)
    if tokens == piece.length:
        return fragment, None
    return fragment, piece._replace(offset=piece.offset + tokens, length=piece.length - tokens)


def longest_fit(fifo, room, other_than=None):
    """Place of the longest piece that fits into room, the oldest among equals, if any fits."""
    fitting = [i for i, piece in enumerate(fifo) if piece.length <= room and i != other_than]
    # max() takes the first of equals
    return max(fitting, key=lambda i: fifo[i].length, default=None)


def find_pair(fifo, gap, least, sum_to_beat):
    firsts = [i for i, piece in enumerate(fifo) if piece.length <= gap - least]
    firsts.sort(key=lambda i: -fifo[i].length)  # stable: the oldest first among equals
    kept, kept_sum = None, sum_to_beat
    for a in firsts[:48]:
        b = longest_fit(fifo, gap - fifo[a].length, other_than=a)
        if b is not None and fifo[a].length + fifo[b].length > kept_sum:
            kept, kept_sum = (a, b), fifo[a].length + fifo[b].length
            if kept_sum == gap:
                break
    return kept


# ---- 6. Rows, and the end ------------------------------------------------------------------------


class Plan:
    """The rows of the stream, one by one."""

    def __init__(self, spec):
        self.spec, self.next_row, self.digest = spec, 0, plan_digest.OF_NOTHING
        self.lanes = [Lane(spec, number) for number in range(spec.lanes)]

    def row(self):
        lane = self.lanes[self.next_row % self.spec.lanes]
        row = lane.next_row()
        self.digest = plan_digest.with_row(self.digest, self.next_row, row, self.spec.L)
        self.next_row += 1
        return row

    def counts(self):
        """Sums over the lanes, `placed` aside; `buffered` are the tokens read and not emitted."""
        counts = {name: sum(lane.count[name] for lane in self.lanes) for name in COUNTS[:-1]}
        counts["buffered"] = sum(piece.length for lane in self.lanes for piece in lane.held())
        return counts


def count_rows(plan):
    """N, counted from where the plan stands (which is used up); None when the stream is endless."""
    if plan.spec.num_epochs == 0:
        return None
    N = plan.next_row
    while plan.next_row < N + plan.spec.lanes:  # a whole turn of the lanes without fragments
        if plan.row():
            N = plan.next_row
    return N


def rank_rows(base, k, r, M, R):
    """Rows of micro-batch k of rank r of R, with M rows each. Rows from N on have no fragments."""
    first = base + k * M * R + r * M
    return list(range(first, first + M))


def count_steps(N, base, G, drop_last):
    rows = max(0, N - base)
    return rows // G if drop_last else -(-rows // G)
