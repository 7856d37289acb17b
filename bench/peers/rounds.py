# SPDX-License-Identifier: Apache-2.0
"""Rounds of one class: ringpack, each member, and ringpack again, as many as there is time for.

    rounds.py < {"ours": ARGUMENTS, "members": [ARGUMENTS, ...], ...}    as tasks/peers.py writes it
    {"by_workers": ..., "rounds": ..., "failed": ...} on standard output

Every peer is a process of its own (`measure.py NAME serve`) that has loaded its modules before the
first round begins, and waits for a line while others are timed. So a round takes little more than
the measured times, and the two runs of a ratio follow each other directly.
"""

import json
import select
import statistics
import subprocess
import sys
import tempfile
import time

from round import MEASURE, reason_of

TRIAL_SECONDS = 0.5
PATIENCE_SECONDS = 200  # as for any other measurement of peers; only a hung one takes that long


class Gone(Exception):
    """A peer ended, or does not answer."""


class Peer:
    def __init__(self, arguments):
        self.name = arguments[0]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, str(MEASURE), arguments[0], "serve", *arguments[1:]], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)

    def answer(self):
        """The next line that is JSON: some libraries print to standard output."""
        while select.select([self.process.stdout], [], [], PATIENCE_SECONDS)[0]:
            line = self.process.stdout.readline()
            if not line:
                self.log.seek(0)
                raise Gone(reason_of(self.log.read()))
            if line.startswith("{"):
                return json.loads(line)
        raise Gone(f"no answer in {PATIENCE_SECONDS} s")

    def speed(self, workers, seconds):
        self.process.stdin.write(f"{workers} {seconds}\n")
        self.process.stdin.flush()
        return self.answer()["rows_per_second"]

    def end(self):
        self.process.kill()
        self.process.communicate()


class Rounds:
    def __init__(self, task):
        self.task, self.begin = task, time.monotonic()
        self.ours = Peer(task["ours"])
        self.members = {arguments[0]: Peer(arguments) for arguments in task["members"]}
        self.failed, self.by_workers, self.rounds = {}, {}, []

    def _of_member(self, name, ask):
        try:
            return ask(self.members[name])
        except (Gone, BrokenPipeError) as error:
            self.failed[name] = str(error)
            self.members.pop(name).end()
            return None

    def wait(self):
        self.ours.answer()
        for name in list(self.members):
            self._of_member(name, Peer.answer)

    def try_workers(self):
        """The peers whose best number of workers is unknown."""
        for name in [name for name in self.members if name not in self.task["workers"]]:
            rates = self._of_member(name, lambda peer: {
                workers: peer.speed(workers, TRIAL_SECONDS) for workers in self.task["tried"]})
            if rates:
                self.by_workers[name] = rates
                self.task["workers"][name] = max(rates, key=rates.get)

    def round(self, number):
        names = list(self.members)
        turn = number % max(len(names), 1)
        seconds, found = self.task["seconds"], {}
        before = self.ours.speed(0, seconds)
        for name in names[turn:] + names[:turn]:
            rate = self._of_member(
                name, lambda peer: peer.speed(self.task["workers"][peer.name], seconds))
            if rate:
                found[name] = rate
        ours = statistics.fmean((before, self.ours.speed(0, seconds)))
        self.rounds.append({name: (rate, ours) for name, rate in found.items()})

    def run(self):
        longest = 0
        for number in range(self.task["first"], self.task["first"] + self.task["most"]):
            begin = time.monotonic()
            if self.rounds and begin - self.begin + longest > self.task["budget"]:
                break
            self.round(number)
            longest = max(longest, time.monotonic() - begin)


def main():
    rounds = Rounds(json.load(sys.stdin))
    try:
        rounds.wait()
        rounds.try_workers()
        rounds.run()
    finally:
        for peer in (rounds.ours, *rounds.members.values()):
            peer.end()
    print(json.dumps({"by_workers": rounds.by_workers, "rounds": rounds.rounds,
                      "failed": rounds.failed}))


if __name__ == "__main__":
    main()
