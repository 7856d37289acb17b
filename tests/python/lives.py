# SPDX-License-Identifier: Apache-2.0
"""Lives of a random stream of version 2 in which everything changes, for test_lives.py (a sample)
and `tools/campaign lives`: growth, sources that join, weights and documents by command while the
engine runs, documents that are appended between two starts, other sizes of steps, of batches and of
the job. Engines are killed at any time, also around their commands and while they begin; every
batch, state token and sum is the oracle's.

Stream number N of a seed is always the same; where a kill falls follows the machine's time. Each
life: an engine with ranks, batches and workers that are drawn begins at the last checkpoint. The
oracle also begins there, from its own token, with the records that the run's journal has.
"""

import collections
import json
import random
import subprocess
import tempfile
import time
from pathlib import Path

from calendars import batches_of_stages, drawn, everything, random_weights
from served_kit import Served, batches_of
from step_kit import Steps
from stream2_planner import NoRow
from stream_kit import IO_URING_WORKS, Corpus, Engine, Ranks, Written

LAYOUTS = [
    [("megatron", "u16", 1, [14, 10, 8]), ("raw", "u16", 1, [12, 10])],
    [("npy", "u32", 1, [12, 8, 6]), ("megatron", "i32", 1, [10, 8]), ("raw", "u16", 1, [18])],
]
FILES = {"megatron": ".bin", "npy": ".npy", "raw": ".bin"}
IO = ["pread", "mapped", "auto"] + ["io_uring"] * IO_URING_WORKS
# A command that comes too late, or at a row that may not change.
REFUSALS = ["is begun", "here set weights", "ramp", "the run is unchanged", "no room for its state"]
REFUSALS += ["the stream has ended", "a record with other", "as before, found"]


class Difference(AssertionError):
    """What differs from the oracle, and the engine's last lines."""


class GrowingCorpus(Corpus):
    """The last shard of the first source is appended in a life."""

    def __init__(self, folder, program, number, seed):
        super().__init__(folder, LAYOUTS[number % len(LAYOUTS)], seed, seq_len=24)
        self.program, (self.form, *_, counts) = program, LAYOUTS[number % len(LAYOUTS)][0]
        self.is_whole, self.last = False, len(counts) - 1
        self.away = self.folder / "away"
        self.away.mkdir()
        for path in self.folder.glob(f"0-{self.last}.*"):
            path.rename(self.away / path.name)
        for place, source in enumerate(self.sources):
            source["shards"] = [str(self.folder / f"{place}-*{FILES[source['format']]}")]

    def index(self, config):
        path = self.folder / "index.yaml"
        path.write_text(json.dumps(config))
        command = [self.program, "index", "-q", "-c", str(path)]
        subprocess.run(command, check=True, capture_output=True)

    def append(self, config):
        for path in self.away.iterdir():
            path.rename(self.folder / path.name)
        self.is_whole = True
        self.index(config)

    def without_last(self):
        first, *others = self.documents
        found = Written(self.sources, [first[: -self.counts[0][-1]], *others])
        found.counts = [self.counts[0][:-1], *self.counts[1:]]
        return found


class Run:
    """All lives of one stream."""

    def __init__(self, program, number, seed, folder):
        self.program, self.folder = program, Path(folder)
        self.rng = rng = random.Random(f"{seed}/{number}")
        self.files = GrowingCorpus(folder, program, number, rng.randrange(2**31))
        self.grows_at_start = rng.random() < 0.4
        self.counts = collections.Counter()
        self.draw()
        self.files.index(self.config())
        self.records, self.begin, self.plans = [], 0, {}
        self.served = Served(self.first)
        self.plan(0)
        self.safe = 0  # a checkpoint of this row, or of a later one, must be found

    def draw(self):
        """A stream of more than one stage's rows. With growth at a start, no stage has any."""
        while True:
            drawn.clear()
            made = everything(self.rng, self.files.without_last())
            keys = {**made.keys, "index": str(self.folder / "corpus.rpi")}
            keys["grow"] = self.grows_at_start
            stages = made.stages
            if self.grows_at_start:
                stages = [{k: v for k, v in s.items() if k != "documents"} for s in stages]
            else:  # a start at row 0 begins with these, also after a command
                present = sum(self.files.counts[0][:-1])
                stages[0]["documents"] = {"s0": present} | stages[0].get("documents", {})
            self.first = made.changed(keys=keys, stages=stages)
            self.first.sources[0]["max_epochs"] = 3
            if stages[0]["weight"]["s0"] and self.reaches_a_stage():
                return

    def reaches_a_stage(self):
        """All rows are skipped, or there is no row: such a stream is refused."""
        try:
            stream = self.first.run()
        except NoRow:  # a source without an item
            return False
        return len(stream.rows) > stream.stream["stages"][-1]["from"] + 16

    def config(self):
        return {**self.first.config(), "batch_size": 1}

    def plan(self, row):
        """The oracle's rows from a start at `row` on: of the files and records as they are now."""
        grows = self.grows_at_start and self.files.is_whole
        has_all = grows or not self.grows_at_start
        corpus = self.files if has_all else self.files.without_last()
        stream = self.first.changed(corpus=corpus, records=self.records)
        key = json.dumps([has_all, self.records, row if grows else 0])
        if key in self.plans:
            self.stream = self.plans[key]
        elif grows and row > 0 and not self.is_begun(row):
            self.stream = stream.resume(self.stream, row)
        elif not grows or row == 0:
            self.stream = self.plans[key] = stream.run()
        self.served.stream = self.stream
        self.served.end = self.stream.end_of_run(row)[0]

    def expect(self):
        """Batches from the present row on."""
        batches = batches_of(self.stream, self.world, self.begin, self.stages)
        self.expected = (batch for batch in batches if batch[0] >= self.served.row)

    def is_begun(self, row):
        """Whether the records of the rows as they are planned are all begun, and the only ones."""
        rows = [record["from"] for record in self.stream.plan.calendar.records]
        known = self.stream.stream["records"] == self.records
        return known and self.stream.corpus is self.files and max(rows) < row

    # ---- the engine --------------------------------------------------------------------------

    def begin_engine(self):
        """With another job, and ready."""
        rng = self.rng
        self.world = rng.choice([1, 1, 2, 4])
        self.stages = batches_of_stages(rng, self.first.stages, self.world)
        config = self.first.changed(stages=self.stages).config()
        config |= {
            "dp_world_size": self.world, "batch_size": self.stages[0]["batch_size"],
            "profile": "full", "run": "live", "checkpoint_dir": str(self.folder / "c"),
            "packers": rng.choice([1, 2]), "packer_processes": rng.choice([True, False, False]),
            "readers": rng.choice([1, 2]), "io": rng.choice(IO),
            "prefetch_factor": rng.choice([2, 2, 4]), "checkpoint_steps": rng.choice([1, 2, 5]),
            "checkpoint_contents": rng.choice([True, False]),
        }  # fmt: skip
        while True:
            self.engine = Engine(
                self.program, self.folder, config, "--accept-weights", wait=False
            )
            if rng.random() > 0.2:
                self.engine.wait_ready()
                return
            time.sleep(rng.uniform(0, 0.04))
            self.kill("beginning")

    def kill(self, kind):
        self.engine.kill()
        self.counts["kills"] += 1
        self.counts[f"kills {kind}"] += 1

    def journalled(self):
        """The records that hold after a start, in the oracle's words: one at a row."""
        path = self.folder / "c" / "run-journal.jsonl"
        entries = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
        found = {}
        for entry in entries:
            kind = entry["event"]
            if kind in ("weights", "documents"):
                values = (pair.rsplit("=", 1) for pair in entry[kind].split())
                value = {name: int(number) for name, number in values if int(number)}
                record = found.setdefault(entry["row"], {"from": entry["row"]})
                record[kind.replace("weights", "weight")] = value
        return list(found.values())

    # ---- commands ----------------------------------------------------------------------------

    def draw_command(self):
        """Words of `weights` or of `grow`, for a step that may be begun."""
        rng, names = self.rng, [source["name"] for source in self.first.sources]
        step = self.step + rng.choice([0, 1, 2, 3, 5, 8])
        verb, values = "weights", random_weights(rng, names)
        if not self.grows_at_start and rng.random() < 0.4:
            verb, values = "grow", {"s0": sum(self.files.counts[0])}
            if not self.files.is_whole:
                self.files.append(self.config())
        words = [f"{name}={value}" for name, value in values.items()]
        command = [self.program, verb, "live", *words, "--at-step", str(step)]
        return verb, [*command, "--run-dir", str(self.folder)]

    def command(self):
        """Returns whether the engine lives: else it was killed around the command."""
        verb, words = self.draw_command()
        pipe, known = subprocess.PIPE, self.records
        with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as process:
            if self.rng.random() < 0.4:
                time.sleep(self.rng.uniform(0, 0.02))
                self.kill(f"around {verb}")
                process.communicate(timeout=90)
                return False
            _, said = process.communicate(timeout=90)
        self.records = self.journalled()
        if process.returncode != 0:
            assert any(reason in said for reason in REFUSALS), said
            assert self.records == known, f"journalled, and refused: {said}"
            self.counts["refused"] += 1
            return True
        assert self.records != known, f"taken, and not journalled: {self.records}"
        self.counts[verb] += 1
        self.plan(self.begin)
        self.expect()
        return True

    # ---- a life ------------------------------------------------------------------------------

    def read(self, ranks, steps):
        """Micro-batches of up to so many steps. True at the end of the run."""
        while steps > 0:
            batches = ranks.turn()
            if batches is None:
                return True
            self.compare(ranks, batches)
            last = batches[0]
            self.step = last.step
            steps -= last.micro_batch + 1 == last.micro_batches
        return False

    def compare(self, ranks, batches):
        begin, rows, place, count = next(self.expected)
        assert batches[0].first_row == begin, f"batch of row {batches[0].first_row}, not {begin}"
        found = {(b.batch_size, b.micro_batch, b.micro_batches) for b in batches}
        assert found == {(rows, place, count)}, f"row {begin}: {found}"
        self.served.take(batches, self.world, rows)
        sums = Steps(self.stream, None)
        for loader, batch in zip(ranks.loaders, batches):
            sums.check(loader, batch)
        if place + 1 == count:
            self.served.states(ranks)

    def resume(self, ranks):
        row = self.begin = ranks.loaders[0].next_row
        assert self.safe <= row <= self.served.furthest, f"row {row}, saved was {self.safe}"
        self.records = self.journalled()
        self.plan(row)
        self.served.rewind(row)
        self.served.states(ranks)
        self.expect()
        self.step = 0

    def life(self, may_end=True):
        """True if the stream is over."""
        self.begin_engine()
        with Ranks(self.engine, self.world) as ranks:
            self.resume(ranks)
            while not self.read(ranks, self.rng.choice([0, 0, 0, 1, 1, 2]) if may_end else 1000):
                if self.rng.random() < 0.5 and not self.command():
                    return False
                if self.rng.random() < 0.3:
                    self.engine.checkpoint()
                    self.safe = self.saved()
                if may_end and self.rng.random() < 0.7:
                    self.kill("in a life")
                    return False
            end, is_stage = self.stream.end_of_run(self.begin)
            self.served.row = end
            self.served.states(ranks)
            assert [loader.stage_ended for loader in ranks.loaders] == [is_stage] * self.world
        assert self.engine.wait() == (4 if is_stage else 0)
        self.safe = end
        return not is_stage

    def append_now_and_then(self):
        """For the next start. At a checkpoint of row 0 all is begun, and growth is refused."""
        if self.grows_at_start and not self.files.is_whole and self.rng.random() < 0.2:
            if self.saved() > 0:
                self.files.append(self.config())
                self.counts["growth at a start"] += 1

    def saved(self):
        """The row of the newest checkpoint; 0 without one."""
        path = max((self.folder / "c").glob("checkpoint-*.rpc"), default=None)
        if path is None:
            return 0
        command = [self.program, "checkpoint", "show", str(path), "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)["next_row"]

    def live(self, kills):
        """Lives until so many kills, and one to the end of the stream."""
        try:
            while self.counts["kills"] < kills:
                self.counts["lives"] += 1
                if self.life():
                    break
                self.append_now_and_then()
            else:
                while not self.life(may_end=False):
                    self.counts["lives"] += 1
            assert self.served.digest == self.stream.digest, "other tokens in the digest"
            self.counts["rows"] += len(self.stream.rows)
        except AssertionError as difference:
            log = self.engine.log()[-3000:]
            facts = difference, self.first.config(), self.records, log
            raise Difference("\n".join(map(str, facts))) from None
        finally:
            self.engine.kill()


def lives(program, number, seed, kills=40):
    """Returns counts of all that happened."""
    with tempfile.TemporaryDirectory(prefix="rp") as folder:
        run = Run(program, number, seed, folder)
        run.live(kills)
        run.counts["streams"] = 1
        return run.counts + drawn
