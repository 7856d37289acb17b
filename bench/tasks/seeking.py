# SPDX-License-Identifier: Apache-2.0
"""Seeking without a state token: planning up to a row, several times over.

Positions take turns, each time in a process of its own. The first seek of a position, which may
read the index from the disk and writes the token (resume.py), is not counted."""

from engine import summarise
from tasks.several import several_by_turns


class Seeking:
    def __init__(self, bench):
        self.bench = bench
        self.keys = bench.task(sources=bench.settings["index"], num_epochs="endless")

    def _plan_ms(self, entry):
        """Up to the row of this position; it must end in the token that is known."""
        again = self.bench.scratch / "token-again"
        found = self.bench.loop("seek", {**self.keys, "row": entry["row"], "state": again})
        known = self.bench.scratch / f"token-{entry['documents']}"
        self.bench.check("token of a row that was planned again", True,
                         again.read_bytes() == known.read_bytes())
        return 1000 * found["seek"]["seconds"]

    def times(self, positions):
        """These entries of resume.py, with the times of planning, and of starts without a token: to
        the first batch with one, and planning before."""
        times = several_by_turns([lambda entry=entry: self._plan_ms(entry) for entry in positions],
                                 self.bench.settings["seeks"])
        return [{**entry, "plan_ms": summarise(found), "without_token_ms": summarise(
                    [plan + start for plan, start in zip(found, entry["with_token_ms"]["values"])])}
                for entry, found in zip(positions, times)]
