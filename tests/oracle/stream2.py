# SPDX-License-Identifier: Apache-2.0
"""The stream of engine/plan/STREAM2.md, version 2, in the plainest Python. Here: sections 8 and 10,
rows in the order in which they are delivered.

Written only from that page, to be compared with it section by section: the same names, lists and
min/max instead of clever structures. It is slow on purpose. The other sections are in
stream2_source.py (2, 3, 4, 11), stream2_calendar.py (1, 6.1, 9, 14), stream2_planner.py (5, 6.2,
6.3, 9.2), stream2_packing.py (7), stream2_deal.py (8) and stream2_state.py (10.3, 12, 15).

A stream is a dict: "seed", "shuffle", "block_documents", "window_blocks", "group", "long_doc",
"bos_id", "eos_id", "label_across_cuts", "sources", "stages", and optionally "records" and "skip"
(row numbers).
"""

import copy
from collections import namedtuple

import plan_digest
from stream2_calendar import Calendar
from stream2_deal import cost_of_row, deal_rows
from stream2_packing import Planner
from stream2_planner import SourceState, State

# Row g: its planned number, its fragments, and whether it is delivered without them.
Row = namedtuple("Row", "g q fragments skipped")


class Plan:
    """The rows of the stream, one by one, in the order of g.

    `state` is that before planned row `first`, the first of the deal window in which g is.
    """

    def __init__(self, stream, calendar=None):
        self.stream = stream
        self.calendar = Calendar(stream) if calendar is None else calendar
        self.skip = set(stream.get("skip", []))
        self.next_row, self.window = 0, []
        self.after = None  # the state after the window
        self.limits, self.limits_end = None, 0  # a token's limits, up to this row (12.4)
        self.state = State()
        documents = self.calendar.in_force(0).documents
        for name in self.calendar.joining(0):
            self.state.sources.append(SourceState(name, documents[name]))

    @property
    def first(self):
        return self.state.rows

    @property
    def window_end(self):
        return self.first + len(self.window)

    def state_names(self):
        """Names of sources by number, with all that join in the calendar."""
        return list(self.calendar.numbers)

    def limits_at(self, q):
        """In force at row q."""
        own = self.calendar.in_force(q).limits
        return {**own, **self.limits} if q < self.limits_end else own

    # ---- 8. Deal windows

    def end_of_window(self):
        """The last row that a window which begins at `first` may reach."""
        deal = self.calendar.in_force(self.first).deal
        ends = [self.first + (1 if deal is None else deal["window"])]
        ends += [row for row in self.calendar.rows() if row > self.first]
        return min(ends)

    def plan_row(self, state):
        """The state after the next planned row, and its fragments. At the end: the same state."""
        tried = copy.deepcopy(state)
        planner = Planner(self.calendar, tried, self.limits_at(state.rows))
        row = planner.row()
        if not row:
            return state, []
        tried.digest = plan_digest.with_row(tried.digest, tried.rows, row, planner.L)
        tried.rows += 1
        return tried, row

    def plan_window(self):
        state, rows, deal = self.state, [], self.calendar.in_force(self.first).deal
        end = self.end_of_window()
        while state.rows < end:
            state, row = self.plan_row(state)
            if not row:
                break
            rows.append(row)
        order = range(len(rows))
        if deal is not None:
            order = deal_rows(deal, [self.cost(deal, row) for row in rows])
        for i, x in enumerate(order):
            g = self.first + i
            self.window.append(Row(g, self.first + x, rows[x], g in self.skip))
            for fragment in rows[x] if g in self.skip else []:  # 10.3
                state.sources[fragment.source].withheld += fragment.length
        self.after = state

    def cost(self, deal, row):
        a = self.calendar.in_force(self.first).align
        return cost_of_row(deal, [-(-fragment.length // a) * a for fragment in row])

    # ---- 10. Rows, the end

    def row(self):
        """The next row, or None at the end."""
        if not self.window:
            self.plan_window()
        if not self.window:
            return None
        row = self.window[self.next_row - self.first]
        self.next_row += 1
        if self.next_row == self.window_end:
            self.state, self.window = self.after, []
        return row

    # ---- 10.5 The ledger

    def ledger(self):
        """Of each source by name: planned, waiting, withheld, delivered, documents."""
        since = self.window[: self.next_row - self.first]
        ledger = {}
        for j, own in enumerate(self.state.sources):
            waiting = sum(piece.length for piece in self.state.waiting() if piece.source == j)
            delivered = own.t - waiting - own.withheld
            for row in since:
                if not row.skipped:
                    delivered += sum(f.length for f in row.fragments if f.source == j)
            ledger[own.name] = {
                "planned": own.t,
                "waiting": waiting,
                "withheld": own.withheld,
                "delivered": delivered,
                "taken": own.taken,
            }
        return ledger
