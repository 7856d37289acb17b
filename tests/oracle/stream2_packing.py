# SPDX-License-Identifier: Apache-2.0
"""Section 7 of engine/plan/STREAM2.md, written only from that page: how pieces become rows."""

from stream2_planner import Entry, Feed, OpenRow, cut


class Planner(Feed):
    """Plans row q onto the state."""

    def emit(self, pieces):
        """The fragments of a row."""
        row = [fragment for piece in pieces for fragment in self.fragments(piece)]
        tokens = sum(fragment.length for fragment in row)
        self.state.count["emitted"] += tokens
        self.state.count["padding"] += self.L - tokens
        return row

    def enter(self, piece):
        state = self.state
        if piece.length > self.L and self.now.packing != "concat":
            if not state.pool:
                state.pool_row = self.q
            state.pool.append(Entry(piece, -(-piece.length // self.L)))
        else:
            state.fifo.append(piece)

    def pool_gives(self):
        pool = self.state.pool
        return bool(pool) and (
            len(pool) >= self.P
            or self.none_left
            or self.state.stopped
            or (self.q - self.state.pool_row) * len(pool) >= 4 * self.P
        )

    def row_of_pool(self):
        pool = self.state.pool
        chosen = min(pool, key=lambda entry: entry.turn)  # the oldest among equals
        y = chosen.turn
        for entry in pool:
            entry.turn -= y
        row, rest = cut(chosen.piece, self.L)
        chosen.turn += 2**32 // chosen.rows
        chosen.piece = self.trim(rest)
        if chosen.piece is None or chosen.piece.length <= self.L:
            pool.remove(chosen)
            if chosen.piece is not None:
                self.state.fifo.append(chosen.piece)
        self.state.pool_row = self.q if pool else 0
        return self.emit([row])

    def row(self):
        """Planned row q; empty at the end."""
        if self.q > 0 and self.calendar.boundary(self.q):
            self.boundary()
        return getattr(self, self.now.packing)()

    def concat(self):
        fifo, row = self.state.fifo, []
        while self.gap(row) > 0 and len(row) < self.D:
            if not fifo:
                piece = self.next_item()
                if piece is None:
                    break
                self.enter(piece)
            x = fifo[0]
            if self.source(x).atomic:
                if self.size(x) > self.gap(row):
                    break
                row.append(fifo.pop(0))
                continue
            t = min(self.gap(row), x.length)
            if self.labelled(x, t):
                piece, rest = cut(x, t)
                row.append(piece)
            else:
                rest = self.leave_out(x, t)
            rest = self.trim(rest)
            fifo[:1] = [] if rest is None else [rest]
        return self.emit(row) if row else []

    def top_up(self):
        while len(self.state.fifo) < self.W and len(self.state.pool) < self.P:
            piece = self.next_item()
            if piece is None:
                return
            self.enter(piece)

    def lookahead(self):
        fifo, row = self.state.fifo, []
        self.top_up()  # 1
        if self.pool_gives():  # 2
            return self.row_of_pool()
        if not fifo:
            return []
        row.append(fifo.pop(0))
        while self.gap(row) > 0 and len(row) < self.D:  # 3
            self.top_up()
            gap = self.gap(row)
            sizes = [self.size(piece) for piece in fifo]
            best = largest_fit(sizes, gap)
            if best is None:
                break
            second = largest_fit(sizes, gap - sizes[best], other_than=best)
            sum_of_two = sizes[best] + (0 if second is None else sizes[second])
            pair = None
            if gap - sum_of_two < min(sizes) and len(row) + 2 <= self.D:
                pair = find_pair(sizes, gap, min(sizes), sum_of_two)
            chosen = [best] if pair is None else pair
            row += [fifo[i] for i in chosen]
            fifo[:] = [piece for i, piece in enumerate(fifo) if i not in chosen]
        if self.gap(row) > 0 and self.now.fill == "split" and len(row) < self.D:  # 4
            self.split_oldest(row)
        return self.emit(row)

    def split_oldest(self, row):
        fifo, gap = self.state.fifo, self.gap(row)
        for i, x in enumerate(fifo):
            if not self.source(x).atomic and self.labelled(x, gap):
                piece, rest = cut(x, gap)
                rest = self.trim(rest)
                row.append(piece)
                fifo[i : i + 1] = [] if rest is None else [rest]
                return

    def best_fit(self):
        state, count = self.state, self.state.count
        while True:
            if self.pool_gives():  # 1
                return self.row_of_pool()
            if not state.fifo:  # 2
                piece = self.next_item()
                if piece is not None:
                    self.enter(piece)
                    continue
                if self.pool_gives():
                    return self.row_of_pool()
                if not state.open:
                    return []
                return self.emit_open(self.fullest())
            x = state.fifo[0]
            if any(count["placed"] - row.opened_at >= 64 * self.W for row in state.open):  # 3
                return self.close(state.open[0])
            if self.size(x) == self.L:  # 4
                return self.emit([self.place_oldest()])
            fitting = [row for row in state.open if self.gap(row.pieces) >= self.size(x)]  # 5
            if fitting:
                chosen = min(fitting, key=lambda row: self.gap(row.pieces))
                chosen.pieces.append(self.place_oldest())
                if self.gap(chosen.pieces) == 0 or len(chosen.pieces) == self.D:
                    return self.emit_open(chosen)
            elif len(state.open) < self.W:  # 6
                opened_at = count["placed"]
                state.open.append(OpenRow(opened_at, [self.place_oldest()]))
                if self.D == 1:
                    return self.emit_open(state.open[-1])
            else:  # 7
                return self.close(self.fullest())

    def place_oldest(self):
        """All of x."""
        self.state.count["placed"] += 1
        return self.state.fifo.pop(0)

    def fullest(self):
        """The open row with the smallest gap, the first opened among equals."""
        return min(self.state.open, key=lambda row: self.gap(row.pieces))

    def emit_open(self, chosen):
        self.state.open.remove(chosen)
        return self.emit(chosen.pieces)

    def close(self, chosen):
        fifo, x = self.state.fifo, self.state.fifo[0]
        t = min(self.gap(chosen.pieces), x.length)
        if (
            self.now.fill == "split"
            and t > 0
            and not self.source(x).atomic
            and self.labelled(x, t)
        ):
            piece, rest = cut(x, t)
            chosen.pieces.append(piece)
            self.state.count["placed"] += rest is None  # the last token of x is placed
            rest = self.trim(rest)
            fifo[:1] = [] if rest is None else [rest]
        return self.emit_open(chosen)


def largest_fit(sizes, room, other_than=None):
    fitting = [i for i, size in enumerate(sizes) if size <= room and i != other_than]
    return max(fitting, key=lambda i: sizes[i], default=None)  # the oldest among equals


def find_pair(sizes, gap, least, sum_to_beat):
    firsts = [i for i, size in enumerate(sizes) if size <= gap - least]
    firsts.sort(key=lambda i: -sizes[i])  # stable: the oldest first among equals
    kept, kept_sum = None, sum_to_beat
    for x in firsts[:48]:
        y = largest_fit(sizes, gap - sizes[x], other_than=x)
        if y is not None and sizes[x] + sizes[y] > kept_sum:
            kept, kept_sum = [x, y], sizes[x] + sizes[y]
            if kept_sum == gap:
                break
    return kept
