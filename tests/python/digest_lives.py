# SPDX-License-Identifier: Apache-2.0
"""Files of digests as the trainers of a job write them in many lives (engine/client/digest_log.c),
and their deliveries. No engine runs: so thousands of lives take a minute.

A job has lives: each begins at a state that an earlier one saved, with any number of ranks, on any
nodes, and is ended or killed. A node has a folder of its own, or all share one. At the end all
files are gathered; then files are lost, copied and renamed. The truth is kept with them: the rows
that the counting deliveries gave to each rank, and the ones among these that were not as planned.
"""

import hashlib
import json
import random
import shutil

EVERY, STEP = 16, 4  # rows of an interval, and of a batch of all ranks


def value(row, salt=0):
    """A content digest of a row."""
    return int.from_bytes(hashlib.sha256(f"{row} {salt}".encode()).digest()[:16], "big")


def plan(row, salt=0):
    return hashlib.sha256(f"plan {row} {salt}".encode()).hexdigest()[:32]


class Chain:
    """A file of entries."""

    def __init__(self, path, clock):
        self.path, self.clock = path, clock
        lines = path.read_text().splitlines() if path.exists() else []
        self.number = len(lines)
        self.hash = json.loads(lines[-1])["hash"] if lines else "0" * 64

    def add(self, **members):
        head = {"entry": self.number + 1, "after": self.hash, "time": self.clock(), **members}
        text = json.dumps(head, separators=(",", ":"))[:-1]
        self.number, self.hash = self.number + 1, hashlib.sha256(text.encode()).hexdigest()
        with self.path.open("a") as file:
            file.write(f'{text},"hash":"{self.hash}"}}\n')


class Job:
    """All lives of a job. `sound`: no event leaves room for doubt."""

    def __init__(self, seed, folder, sound, planted):
        self.random = random.Random(seed)
        self.folder, self.sound, self.planted = folder, sound, planted
        self.shared = sound or self.random.random() < 0.5
        self.rows = EVERY * self.random.randrange(3, 9)
        self.now = 10**9
        self.knows = True  # False: as older versions, which did not look into other files
        self.given = {}  # row: whether the delivery that counts is as planned
        self.nodes = 1 if self.shared else self.random.randrange(1, 4)
        self.place = {}  # (rank, world): the node where its file is
        for node in range(self.nodes):
            (folder / f"node{node}").mkdir(parents=True)

    def clock(self):
        """A wall clock that jumps, in both directions."""
        self.now += self.random.choice([0, 0.01, 5, -3600, 86400, -200000])
        return f"2026-01-{int(abs(self.now)) % 28 + 1:02}T08:{int(self.now) % 60:02}:00.000Z"

    def path(self, rank, world):
        node = self.place.setdefault((rank, world), self.random.randrange(self.nodes))
        if self.random.random() < 0.2:  # the rank moves; its file does, or a new one is begun
            new = self.random.randrange(self.nodes)
            name = f"rank-{rank:05}-of-{world:05}.jsonl"
            old = self.folder / f"node{node}" / name
            to = self.folder / f"node{new}" / name
            if old.exists() and self.random.random() < 0.7 and not to.exists():
                shutil.move(old, to) if self.random.random() < 0.5 else shutil.copy(old, to)
            self.place[rank, world] = node = new
        return self.folder / f"node{node}" / f"rank-{rank:05}-of-{world:05}.jsonl"

    def attach(self, rank, world, row):
        path = self.path(rank, world)
        chain = Chain(path, self.clock)
        ends = [
            json.loads(other.read_text().splitlines()[-1])["hash"][:16]
            for other in sorted(path.parent.iterdir())
            if not other.name.endswith(f"-of-{world:05}.jsonl") and other.stat().st_size
        ]
        seen = {"seen": " ".join(ends)} if self.knows else {}
        chain.add(event="attached", run="r", rank=rank, world=world, row=row, **seen)
        return chain

    def live(self, first, end, world, bad=None, is_killed=False):
        """Rows [first, end) are given to all ranks, rows of `bad` not as planned."""
        for row in [row for row in self.given if row >= first]:
            del self.given[row]
        self.given.update((row, row != bad) for row in range(first, end))
        salt = 1 if bad is not None and self.random.random() < 0.5 else 0  # another plan, or tokens
        # Another plan of the same tokens shows while the life has it. Rows of a part of an interval
        # are compared by the plan of its end, which may be another life's.
        is_plan_only = salt and self.sound
        for rank in range(world):
            chain, begin = self.attach(rank, world, first), first
            kept = end if not is_killed else end - end % EVERY
            for row in range(first, kept, STEP):
                if (row + STEP) % EVERY and row + STEP != kept:
                    continue
                mine = range(begin, row + STEP)[rank::world]
                has_bad = bad in mine and not is_plan_only
                follows = salt and bad is not None and rank == bad % world and row + STEP > bad
                chain.add(
                    event="digest", rank=rank, world=world, first_row=begin, row=row + STEP,
                    rows=len(mine), tokens=len(mine) * 10,
                    plan_digest=plan(row + STEP, 1 if follows else 0),
                    content_digest="%032x" % (
                        sum(value(r, 1 if has_bad and r == bad else 0) for r in mine) % 2**128),
                )  # fmt: skip
                begin = row + STEP

    def run(self):
        """Lives until all rows were given; a planted row is in one of the deliveries."""
        choose, position, lives = self.random, 0, []
        for _ in range(choose.randrange(6)):
            end = min(self.rows, position + STEP * choose.randrange(1, 12))
            lives.append((position, end, choose.choice([1, 2, 4]), choose.random() < 0.6))
            saved = choose.randrange(end + 1) if choose.random() < 0.5 else end
            position = saved - saved % (EVERY if self.sound else STEP)
        lives.append((position, self.rows, choose.choice([1, 2, 4]), False))
        lives = [life for life in lives if life[0] < life[1]]
        wrong = choose.randrange(len(lives)) if self.planted else None
        if self.sound and self.planted:
            wrong = len(lives) - 1
        for number, (first, end, world, is_killed) in enumerate(lives):
            bad = choose.randrange(first, end) if number == wrong else None
            self.live(first, end, world, bad, is_killed)
        return self.gather()

    def gather(self):
        """All files in one folder, in any order and with any names."""
        files = [path for node in sorted(self.folder.iterdir()) for path in node.iterdir()]
        self.random.shuffle(files)
        logs = self.folder / "logs"
        logs.mkdir()
        worlds = {}
        for path in files:
            worlds.setdefault(path.name.split("-of-")[1], []).append(path)
        lost = None
        several = [  # in a job of one rank, no other file may know that it is gone
            path
            for path in files
            if len({other.name for other in worlds[path.name.split("-of-")[1]]}) > 1
        ]
        if not self.sound and several and self.random.random() < 0.3:
            lost = self.random.choice(several)
        for number, path in enumerate(files):
            if path is lost:
                continue
            name = path.name if not (logs / path.name).exists() else f"rank-{number}-again.jsonl"
            if self.random.random() < 0.2:
                name = f"rank-x{number}.jsonl"
            shutil.copy(path, logs / name)
            if self.random.random() < 0.1:
                shutil.copy(path, logs / f"rank-copy{number}.jsonl")
        return logs


def whole(folder, rows, world):
    """The files of an undisturbed run."""
    job = Job(0, folder, True, False)
    job.live(0, rows, world)
    return job.gather()
