# SPDX-License-Identifier: Apache-2.0
"""SIGKILL and SIGSTOP at random, to any process: every row comes once, as the oracle has it, and no
file or process of ringpack is left. A failure shows its seed, and RP_SEED=n draws the same
again."""

import base64
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ringpack
import xxhash
from conftest import ROOT
from stream_kit import LONG, PATIENCE, Corpus, Engine, Ranks, Stream, Taken, wait_until

WORLD = 2
SEED = int(os.environ.get("RP_SEED", random.SystemRandom().randrange(10**6)))


@pytest.fixture(scope="module")
def stream(program, tmp_path_factory):
    layout = [("megatron", "u16", 2, [260]), ("raw", "u16", 1, [200])]
    corpus = Corpus(tmp_path_factory.mktemp("kill"), layout, 5)
    corpus.index(program)
    return Stream(corpus, {"num_epochs": 3, "fill": "split"})


class Job:
    """An engine and the trainers of all ranks, or several of each (replicas); each is started again
    when it dies."""

    def __init__(self, program, folder, stream, pause, replicas=1, **options):
        self.program, self.folder, self.stream, self.pause = program, folder, stream, pause
        self.config = {**stream.config(), "batch_size": 2, "dp_world_size": WORLD, **options}
        self.config["consumers_per_rank"] = self.replicas = replicas
        self.trainers, self.ended = [None] * WORLD * replicas, set()
        self.engine = Engine(program, folder, self.config)
        with Ranks(self.engine, WORLD, replica=0, consumers_per_rank=replicas) as ranks:
            state = base64.b64encode(ranks.tokens()[0]).decode()  # at step 0, the same on all ranks
        for seat in range(len(self.trainers)):
            self.log_of(seat).write_text(json.dumps({"rows": [], "state": state}) + "\n")
            self.start_trainer(seat)

    def log_of(self, seat):
        rank, replica = divmod(seat, self.replicas)
        return self.folder / f"rank-{rank}-{replica}.log"

    def start_trainer(self, seat):
        script = Path(__file__).with_name("kill_trainer.py")
        rank, replica = divmod(seat, self.replicas)
        names = [self.engine.run, self.folder, rank, WORLD, replica, self.replicas]
        names += [self.log_of(seat), self.pause]
        self.trainers[seat] = subprocess.Popen(
            [sys.executable, str(script), *map(str, names)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "tools" / "python")},
        )

    def kill_trainer(self, generator):
        generator.choice(self.trainers).kill()

    def kill_engine(self, _generator):
        self.engine.kill()

    def kill_packer(self, generator):
        packers = self.engine.packers()
        if packers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(generator.choice(packers), signal.SIGKILL)

    def kill_all(self, _generator):
        for trainer in self.trainers:
            trainer.kill()
        self.engine.kill()

    def stop_somebody(self, generator):
        """SIGSTOP for some milliseconds, which looks like a machine that hangs."""
        pids = [self.engine.pid, *self.engine.packers(), *(t.pid for t in self.trainers)]
        chosen = generator.sample(pids, generator.randint(1, len(pids)))
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        time.sleep(generator.uniform(0.005, 0.05))
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def revive(self):
        """Start dead processes again. A trainer that ended well has had all its rows; an engine
        that did, while a trainer was killed with the last ones in its hands, is needed once
        more."""
        for seat, trainer in enumerate(self.trainers):
            status = trainer.poll()
            assert status in (None, 0, -signal.SIGKILL), f"trainer {seat} gave up, see above"
            if status == 0:
                self.ended.add(seat)
            elif status is not None:
                self.start_trainer(seat)
        status = self.engine.process.poll()
        if status is not None and len(self.ended) < len(self.trainers):
            assert status in (0, -signal.SIGKILL), f"the engine failed:\n{self.engine.log()}"
            self.engine.kill()
            self.engine = Engine(self.program, self.folder, self.config)

    def finish(self):
        def all_ended():
            self.revive()
            return len(self.ended) == len(self.trainers)

        wait_until(all_ended, "the end of the stream")
        assert self.engine.stop() == 0, self.engine.log()

    def assert_every_row_once(self):
        for replica in range(self.replicas):
            self.assert_replica_has_every_row_once(replica)

    def assert_replica_has_every_row_once(self, replica):
        rows = {}
        for seat in range(replica, len(self.trainers), self.replicas):
            for line in self.log_of(seat).read_text().splitlines():
                for row, *content in json.loads(line)["rows"]:
                    assert row not in rows, f"row {row} came twice"
                    rows[row] = content
        assert set(range(len(self.stream.rows))) <= set(rows)
        for row, content in rows.items():
            made, _ = self.stream.batch(row, 1)
            tokens = made["rows"][0][2]
            assert content == [tokens, xxhash.xxh3_64_hexdigest(made["input_ids"].tobytes())], row

    def close(self):
        for trainer in self.trainers:
            if trainer.poll() is None:
                trainer.kill()
            trainer.wait()
        self.engine.kill()


def left_behind(folder, run):
    """Possible leftovers of ringpack: in its run directory, in /tmp and in /dev/shm."""
    own = (f"{run}.yaml", f"{run}.log", "checkpoints", "state-home")
    found = [str(path) for path in Path(folder).iterdir() if path.name not in own]
    found = [path for path in found if not re.search(r"/rank-\d-\d\.log$", path)]
    for place in "/dev/shm", "/tmp":
        found += [f"{place}/{name}" for name in os.listdir(place) if run in name]
    return found


KINDS = {
    "engine": [Job.kill_engine],
    "trainer": [Job.kill_trainer],
    "packer": [Job.kill_packer],
    "all": [Job.kill_all],
    "stop": [Job.stop_somebody],
    "replica": [Job.kill_trainer, Job.kill_trainer, Job.kill_engine, Job.stop_somebody],
    "anything": [
        Job.kill_engine,
        Job.kill_trainer,
        Job.kill_packer,
        Job.kill_packer,
        Job.kill_all,
        Job.stop_somebody,
    ],
}


@pytest.mark.parametrize("number", range(8 if LONG else 1))
@pytest.mark.parametrize("kind", KINDS)
def test_at_random(program, folder, stream, kind, number):
    seed = f"{SEED}/{kind}/{number}"
    generator = random.Random(seed)
    print(f"RP_SEED={SEED}")
    options = {
        "run": f"kill-{os.getpid()}-{kind}",
        "packers": 2,
        "packer_processes": kind in ("packer", "anything", "stop"),
        "prefetch_bytes": "64kb",
        "checkpoint_dir": str(folder / "checkpoints"),
        "io": generator.choice(["io_uring", "pread", "mapped"]),
        "checkpoint_steps": generator.choice([0, 3, 20]),
        "checkpoint_contents": generator.random() < 0.5,
    }
    options["replicas"] = 2 if kind == "replica" else 1
    job = Job(program, folder, stream, pause=0.008, **options)
    try:
        for _ in range(30 if LONG else 10):
            time.sleep(generator.uniform(0, 0.5 if kind in ("all", "trainer") else 0.2))
            job.revive()
            if job.ended:
                break
            generator.choice(KINDS[kind])(job, generator)
        job.finish()
        job.assert_every_row_once()
        assert left_behind(folder, options["run"]) == []
    finally:
        job.close()


def test_nothing_is_left(program, folder, stream):
    """After SIGKILL of everything, and the next start and stop."""
    run = f"left-{os.getpid()}"
    options = {"run": run, "packers": 2, "packer_processes": True}
    job = Job(program, folder, stream, pause=0.01, **options)
    packers = job.engine.packers()
    assert len(packers) >= 2
    wait_until(lambda: job.log_of(0).read_text().count("\n") > 2)
    job.kill_all(None)
    job.close()
    wait_until(lambda: not any(is_alive(pid) for pid in packers), "the end of the packers")
    assert left_behind(folder, run), "the control: a killed engine cannot tidy up"
    engine = Engine(program, folder, job.config)
    assert engine.stop() == 0
    assert left_behind(folder, run) == []


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_in_the_middle_of_checkpoints(program, folder, stream):
    """One checkpoint after the other, and SIGKILL at any moment: the next engine begins at one that
    was whole, at or after the last that was reported, never at row 0; and no debris piles up."""
    generator = random.Random(SEED)
    print(f"RP_SEED={SEED}")
    place = folder / "checkpoints"
    config = {**stream.config(), "batch_size": 2, "checkpoint_dir": str(place)}
    config |= {"checkpoint_steps": 1, "prefetch_factor": 4, "prefetch_bytes": "64kb"}
    reported = 0
    for life in range(60 if LONG else 15):
        engine = Engine(program, folder, config)
        try:
            with Ranks(engine) as ranks:
                start = ranks.loaders[0].next_row
                assert start >= reported, engine.log()
                taken = Taken(stream)
                for batches in ranks.turns(generator.randrange(1, 6)):
                    taken.add(batches)
                    batches[0].release()
                assert taken.rows == set(range(start, ranks.loaders[0].next_row))
                if not life:
                    engine.checkpoint()
                time.sleep(generator.uniform(0, 0.02))
                engine.kill()
        finally:
            engine.kill()
        saved = [line for line in engine.log().splitlines() if ": saved " in line]
        reported = int(saved[-1].split(": row ")[1].split(",")[0])
    assert reported > 0
    engine = Engine(program, folder, config)
    assert engine.stop() == 0
    names = sorted(path.name for path in place.iterdir())
    hidden = [name for name in names if not name.endswith(".rpc")]
    assert len(names) <= 6 and hidden == [".directory-id", ".lock", "run-journal.jsonl"], names
    listed = subprocess.run(
        [program, "checkpoint", "verify", str(place)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert listed.returncode == 0, listed.stderr


def test_a_trainer_that_skips_is_noticed(program, folder, stream):
    """The control of this file: a row that is lost, or comes twice, is seen in the logs."""
    job = Job(program, folder, stream, pause=0)
    try:
        job.finish()
        job.assert_every_row_once()
        path = job.log_of(0)
        lines = path.read_text().splitlines()
        path.write_text("\n".join(lines[:3] + lines[4:]))
        with pytest.raises(AssertionError):
            job.assert_every_row_once()
        path.write_text("\n".join([*lines, lines[3]]))
        with pytest.raises(AssertionError, match="twice"):
            job.assert_every_row_once()
    finally:
        job.close()


def test_the_state_of_a_run_that_is_watched(program, folder, stream):
    """`stat` shows ranks that come and go, so that a hung trainer is reported and keeps its
    seat."""
    engine = Engine(program, folder, {**stream.config(), "batch_size": 2, "dp_world_size": WORLD})
    try:
        ranks = Ranks(engine, WORLD)
        attached = [rank["attached"] for rank in ringpack.stat(engine.run, folder)["ranks"]]
        assert attached == [True] * WORLD
        ranks.loaders[1].close()
        wait_until(lambda: not ringpack.stat(engine.run, folder)["ranks"][1]["attached"])
        ranks.close()
    finally:
        engine.kill()
