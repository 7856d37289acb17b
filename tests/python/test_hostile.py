# SPDX-License-Identifier: Apache-2.0
"""Peers that write garbage into their control page and onto the socket, while the rows that others
read stay the oracle's, byte for byte, and the engine neither ends nor loses a descriptor. An engine
that believes their words must not get through.

RP_SECONDS says for how long; `tools/campaign hostile` does it for minutes."""

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import ringpack
from hostile_peer import Counts
from stream_kit import PATIENCE, Corpus, Engine, Ranks, Stream, Taken, token_of, wait_until

SECONDS = float(os.environ.get("RP_SECONDS", "4"))
SEED = int(os.environ.get("RP_SEED", random.SystemRandom().randrange(10**6)))
CONTESTED = 1  # the rank that a hostile peer takes whenever it is free
CONTROL_PASSES = 40  # until the hostile peer has had the rank in the middle of a pass: one or two


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    layout = [("megatron", "u16", 2, [260]), ("raw", "u16", 1, [200])]
    corpus = Corpus(tmp_path_factory.mktemp("hostile"), layout, 5)
    return Stream(corpus, {"num_epochs": 2, "fill": "split"})


class Hostile:
    """Hostile processes, which are killed and started again at random."""

    def __init__(self, folder, run, generator):
        self.folder, self.run, self.random = folder, run, generator
        self.counts = Counts(folder / "counts")
        self.processes = {}

    def start(self, kind):
        script = Path(__file__).with_name("hostile_peer.py")
        words = [kind, self.folder, self.run, CONTESTED, self.random.random()]
        self.processes[kind] = subprocess.Popen(
            [sys.executable, script, *map(str, words), self.folder / "counts"]
        )

    def turn(self):
        for kind in "words", "messages":
            process = self.processes.get(kind)
            if process and process.poll() is None and self.random.random() < 0.05:
                process.kill()
                process.wait()
            assert not process or process.poll() in (None, -9), f"{kind} succeeded, or broke"
            if not process or process.poll() is not None:
                self.start(kind)

    def stop(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.processes.clear()


def join(engine, rank):
    place = {"run": engine.run, "run_dir": engine.folder, "connect_timeout": PATIENCE}
    return ringpack.Loader(dp_rank=rank, dp_world_size=2, **place)


class Reader(threading.Thread):
    """Rank 0: reads all the time, from the first row to the last, and stays until it is released.
    As long as it is there, no other can be rank 0 or end the run."""

    def __init__(self, engine, taken, lock):
        super().__init__(daemon=True)
        self.engine, self.taken, self.lock, self.error = engine, taken, lock, None
        self.attached, self.ended, self.may_go = (threading.Event() for _ in range(3))

    def run(self):
        try:
            with join(self.engine, 0) as loader:
                self.attached.set()
                for batch in loader:
                    with self.lock:
                        self.taken.add([batch])
                self.ended.set()
                self.may_go.wait(PATIENCE)
        except BaseException as error:  # for the test
            self.error = error


def read_contested(engine, taken, lock, hostile, finish):
    """Rank 1: some batches at a time, and between them the rank is anybody's."""
    token, generator = None, hostile.random
    while True:
        with join(engine, CONTESTED) as loader:
            if token:
                loader.load_state_dict({"ringpack_state": token})
            loader.attach()
            for _ in range(generator.randrange(1, 30)):
                batch = loader.next(timeout=PATIENCE)
                if batch is None:
                    return finish()
                with lock:
                    taken.add([batch])
            token = token_of(loader)
        hostile.turn()
        time.sleep(generator.uniform(0, 0.08))


def open_fds(engine):
    """Without token files' descriptors, which are opened at the first read."""
    count = 0
    for entry in os.scandir(f"/proc/{engine.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            count += not os.readlink(entry.path).endswith(".bin")
    return count


def run_pass(program, folder, stream, hostile, number):
    """The whole stream, once. Returns its batches."""
    config = {**stream.config(), "run": hostile.run, "batch_size": 2, "dp_world_size": 2}
    config |= {"packer_processes": number % 2 == 1, "prefetch_bytes": "64kb"}
    config |= {"io": ["pread", "io_uring", "mapped"][number % 3], "checkpoint_steps": 20}
    config |= {"checkpoint_dir": str(folder / "checkpoints"), "prefetch_factor": 4}
    engine = Engine(program, folder, config, "--fresh")
    try:
        taken, lock = Taken(stream), threading.Lock()
        with Ranks(engine, 2) as ranks:  # all that there will be in the end
            fds = open_fds(engine)
            assert ranks.loaders[0].next_row == 0
        reader = Reader(engine, taken, lock)
        reader.start()
        assert reader.attached.wait(PATIENCE)
        hostile.turn()

        def finish():
            """The contested rank is there, and it is at the end."""
            assert reader.ended.wait(PATIENCE), reader.error or "rank 0 is not at the end"
            hostile.stop()
            wait_until(lambda: open_fds(engine) <= fds, "the end of all descriptors")
            reader.may_go.set()
            reader.join(PATIENCE)

        try:
            read_contested(engine, taken, lock, hostile, finish)
        except ringpack.EngineTimeoutError:
            print(ringpack.stat(engine.run, folder), engine.log()[-3000:])
            raise
        except ringpack.EngineGoneError:
            status = engine.process.poll()
            raise AssertionError(f"the engine ended: {status}\n{engine.log()[-3000:]}") from None
        taken.assert_all()
        assert engine.wait() == 0, engine.log()
        return len(taken.rows)
    finally:
        engine.kill()
        hostile.stop()


def test_others_stay_exact(program, folder, stream):
    print(f"RP_SEED={SEED}")
    hostile = Hostile(folder, f"hostile-{os.getpid()}", random.Random(SEED))
    begin, rows, passes = time.monotonic(), 0, 0
    while passes == 0 or time.monotonic() - begin < SECONDS:
        rows += run_pass(program, folder, stream, hostile, passes)
        passes += 1
    counts = hostile.counts.read()
    assert counts["attached"] and counts["pages"] and counts["quarantined"] and counts["messages"]
    done = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    print(f"{passes} passes, {rows:,} rows exact; {done}; seed {SEED}")


def test_an_engine_that_believes_its_peers_is_found_out(broken, folder, stream, monkeypatch):
    """The control of this file: a release word is taken as it stands."""
    monkeypatch.setenv("RP_DEFECT", "trust_release_word")
    monkeypatch.setattr(sys.modules[__name__], "PATIENCE", 10)  # with an engine that is gone
    hostile = Hostile(folder, f"hostile-{os.getpid()}", random.Random(SEED))
    wrong = AssertionError, ringpack.EngineTimeoutError  # an end, a lost or wrong row, or silence
    with pytest.raises(wrong):
        for number in range(CONTROL_PASSES):
            run_pass(broken, folder, stream, hostile, number)
    print(f"found out in pass {number + 1}; seed {SEED}")
