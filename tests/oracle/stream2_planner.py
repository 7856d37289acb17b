# SPDX-License-Identifier: Apache-2.0
"""Sections 5, 6 and 9.2 of engine/plan/STREAM2.md, written only from that page: state, pieces, the
choice of a source, the next item, and the actions at a boundary."""

from collections import namedtuple

import plan_digest
from stream2_calendar import REBUILD, apportion

COUNTS = (
    "documents passed_over empty tokens_read truncated dropped left_out emitted padding placed"
).split()

Piece = namedtuple("Piece", "source item offset length e r")  # section 5
Fragment = namedtuple("Fragment", "source document offset length")


class NoRow(Exception):
    """The row cannot be planned."""


class SourceState:
    """Section 6.3. Everything else that is known of a source is a parameter."""

    def __init__(self, name, n):
        self.name, self.n, self.before = name, n, 0
        self.e = self.r = self.p = self.t = self.taken = self.withheld = self.credit = 0


class Entry:
    """An entry of the pool."""

    def __init__(self, piece, rows):
        self.piece, self.turn, self.rows = piece, 0, rows


class OpenRow:
    """best_fit: a row that waits for more pieces."""

    def __init__(self, opened_at, pieces):
        self.opened_at, self.pieces = opened_at, pieces


class State:
    """The state before a planned row. There is no other state."""

    def __init__(self):
        self.sources, self.fifo, self.pool, self.open = [], [], [], []
        self.pool_row = self.X = 0
        self.stopped = False
        self.count = dict.fromkeys(COUNTS, 0)
        self.rows, self.digest = 0, plan_digest.OF_NOTHING  # rows planned, and D of them

    def waiting(self):
        """Every piece that was taken and is in no emitted row."""
        pieces = self.fifo + [entry.piece for entry in self.pool]
        return pieces + [piece for row in self.open for piece in row.pieces]


class Feed:
    """Gives the pieces of planned row q, and changes `state`. `limits`: by name, in place of those
    of the calendar."""

    def __init__(self, calendar, state, limits=None):
        self.calendar, self.state, self.q = calendar, state, state.rows
        self.now = calendar.in_force(self.q)
        if limits is not None:
            self.now.limits = limits
        self.L, self.a, self.W, self.P = (
            self.now.seq_len, self.now.align, self.now.window, self.now.spread
        )  # fmt: skip
        self.k = calendar.stream.get("group", 1)
        self.D = self.now.max_docs_per_row // self.k  # D' of section 7
        self.nominal = calendar.nominal_shares(self.q)
        self.none_left = False  # next_item() gave none in this row

    # ---- 9.2 Actions at a boundary

    def boundary(self):
        state, calendar = self.state, self.calendar
        # 1
        for name in calendar.joining(self.q):
            if name not in [own.name for own in state.sources]:
                assert calendar.numbers[name] == len(state.sources)
                state.sources.append(SourceState(name, self.now.documents[name]))
        state.stopped = False
        # 2
        state.fifo = [piece for piece in state.fifo if self.stays(piece)]
        state.pool = [entry for entry in state.pool if self.stays(entry.piece)]
        for row in state.open:
            row.pieces = [piece for piece in row.pieces if self.stays(piece)]
        state.open = [row for row in state.open if row.pieces]
        if not state.pool:
            state.pool_row = 0
        # 3
        stage, record = calendar.stage_at(self.q), calendar.record_at(self.q)
        if self.q > 0 and any(name in stage or name in record for name in REBUILD):
            pieces = [*state.fifo, *(piece for row in state.open for piece in row.pieces)]
            pieces += [entry.piece for entry in state.pool]
            state.fifo, state.pool, state.open = [], [], []
            state.count["placed"] = state.pool_row = 0
            for piece in pieces:
                self.enter_again(piece)

    def stays(self, piece):
        without = self.now.without.get(self.source(piece).name, set())
        if without.isdisjoint(self.source(piece).documents_of(piece.item)):
            return True
        self.withhold("dropped", piece, piece.length)
        return False

    def enter_again(self, piece):
        source = self.source(piece)
        if source.atomic and self.size(piece) > self.L:
            if source.too_long == "error":
                raise NoRow("%s: an item is too long" % source.name)
            if source.too_long == "drop":
                return self.withhold("dropped", piece, piece.length)
            self.withhold("truncated", piece, piece.length - self.L)
            piece = piece._replace(length=self.L)
        piece = self.trim(piece)
        if piece is not None:
            self.enter(piece)
        return None

    # ---- 5. Pieces

    def source(self, piece):
        return self.calendar.sources[self.state.sources[piece.source].name]

    def round_up(self, length):
        return -(-length // self.a) * self.a

    def size(self, piece):
        if self.k == 1:
            return self.round_up(piece.length)
        source = self.source(piece)
        return sum(self.round_up(source.length(d)) for d in source.documents_of(piece.item))

    def size_of_row(self, pieces):
        return sum(self.size(piece) for piece in pieces)

    def gap(self, pieces):
        return self.L - self.size_of_row(pieces)

    def fragments(self, piece):
        """The fragments of a whole piece."""
        if self.k == 1:
            return [Fragment(piece.source, piece.item, piece.offset, piece.length)]
        source = self.source(piece)
        return [
            Fragment(piece.source, d, 0, source.length(d)) for d in source.documents_of(piece.item)
        ]

    def labelled(self, piece, tokens=None):
        """Whether the first tokens of the piece are (of a group: all of one document)."""
        if tokens is not None:
            piece = piece._replace(length=tokens)
        source = self.source(piece)
        return any(source.labelled(f.document, f.offset, f.length) for f in self.fragments(piece))

    def withhold(self, count, piece, tokens):
        """Tokens that were taken and will never be in a row."""
        self.state.count[count] += tokens
        self.state.sources[piece.source].withheld += tokens

    def leave_out(self, piece, tokens):
        """The piece without its first tokens, or None."""
        self.withhold("left_out", piece, tokens)
        return cut(piece, tokens)[1]

    def trim(self, piece):
        """The rest of a piece, or None if it is gone."""
        if piece is None:
            return None
        if not self.source(piece).atomic:
            while piece.length > self.L and not self.labelled(piece, self.L):
                piece = self.leave_out(piece, self.L)
            if piece.length > self.L:
                return piece
        if not self.labelled(piece):
            return self.leave_out(piece, piece.length)
        return piece

    # ---- 6.2 Choosing a source

    def exhausted(self, j):
        own = self.state.sources[j]
        limits = self.now.limits[own.name]
        return (limits["max_epochs"] > 0 and own.e >= limits["max_epochs"]) or (
            limits["max_tokens"] > 0 and own.t >= limits["max_tokens"]
        )

    def on_exhausted(self, j):
        return self.now.limits[self.state.sources[j].name]["on_exhausted"]

    def shares(self):
        """Of the active sources."""
        waits = [
            j
            for j in range(len(self.state.sources))
            if self.state.sources[j].name in self.now.limits
            and self.exhausted(j)
            and self.on_exhausted(j) == "continue"
        ]
        active = {j: nominal for j, nominal in self.nominal.items() if j not in waits}
        return apportion(active) if active else {}

    def choose(self, s):
        c = {j: self.state.sources[j].credit for j in s}
        mean = sum(c.values()) // len(c)
        due = {j: (c[j] - mean - self.state.X * 2**32) // s[j] for j in s if c[j] >= mean}
        return max(sorted(due), key=lambda j: due[j])  # max() takes the first of equals

    def charge(self, s, chosen, n):
        for j in s:
            self.state.sources[j].credit += n * s[j]
        self.state.sources[chosen].credit -= n * 2**32
        self.state.X = max(self.state.X, n)

    # ---- 6.3 next_item()

    def next_item(self):
        state, begun = self.state, set()
        while True:
            # 1
            s = {} if state.stopped else self.shares()
            if not s:
                self.none_left = True
                return None
            j = self.choose(s)
            own = state.sources[j]
            # 2
            if self.exhausted(j):
                if self.on_exhausted(j) == "error":
                    raise NoRow("%s: a limit is reached" % own.name)
                state.stopped = self.none_left = True
                return None
            # 3
            e, r = own.e, own.r
            if own.r == own.p == 0:
                begun.add(j)
            source = self.calendar.sources[own.name]
            u = source.order(e, r, own.n)[own.p]
            self.advance(own, source)
            # 4, 5, 6
            piece = self.visit(s, j, u, e, r)
            if piece is not None:
                return piece
            if own.e > e and j in begun and not self.exhausted(j):
                raise NoRow("%s: an epoch without a piece" % own.name)

    def advance(self, own, source):
        own.p += 1
        if own.p == own.n // self.k:
            own.p, own.r = 0, own.r + 1
            if own.r == source.R:
                own.r, own.before = 0, own.n
                own.e, own.n = own.e + 1, self.now.documents[own.name]

    def visit(self, s, j, u, e, r):
        """Steps 4 to 6: the piece of item u, or None."""
        own, count, k = self.state.sources[j], self.state.count, self.k
        source, long_doc = self.calendar.sources[own.name], self.calendar.stream["long_doc"]
        if source.count(u, self.now.without.get(own.name, set())) <= r:
            count["passed_over"] += k
            return None
        lengths = [source.length(d) for d in source.documents_of(u)]
        n = sum(lengths)
        count["documents"] += k
        count["tokens_read"] += n
        if 0 in lengths:
            count["empty"] += k
            count["dropped"] += n
            return None
        too_long = n > self.L
        if source.atomic:
            too_long = sum(map(self.round_up, lengths)) > self.L
            if too_long and source.too_long == "error":
                raise NoRow("%s: item %d is too long" % (own.name, u))
        rule = source.too_long if source.atomic else long_doc
        if too_long and rule == "drop":
            count["dropped"] += n
            return None
        if too_long and rule == "truncate":
            count["truncated"] += n - self.L
            n = self.L
        if n > 2**27 - 1:
            raise NoRow("%s: document %d has %d tokens" % (own.name, u, n))
        self.charge(s, j, n)
        own.t += n
        own.taken += k
        return self.trim(Piece(j, u, 0, n, e, r))


def cut(piece, tokens):
    """The piece of the first tokens, and the rest or None."""
    first = piece._replace(length=tokens)
    if tokens == piece.length:
        return first, None
    return first, piece._replace(offset=piece.offset + tokens, length=piece.length - tokens)
