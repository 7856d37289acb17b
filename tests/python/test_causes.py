# SPDX-License-Identifier: Apache-2.0
"""The cause that `ringpack stat` names for a wait, while each stage of a real engine is stopped in
turn, at random moments: 100 times with RP_LONG=1."""

import contextlib
import os
import random
import threading
import time

import numpy
import pytest
import ringpack
from remote_kit import store  # noqa: F401
from stage_kit import Stopped, StoppedPackers, is_allowed
from stream_kit import LONG, PATIENCE, Engine, random_documents, wait_until, write_megatron

SEED = int(os.environ.get("RP_SEED", 7))
WORLD = 2


class Trainers:
    """Both ranks read without end, each in a thread, until they are paused."""

    def __init__(self, engine):
        self.engine, self.ends = engine, threading.Event()
        self.runs = [threading.Event() for _ in range(WORLD)]
        self.threads = [threading.Thread(target=self.train, args=[rank]) for rank in range(WORLD)]

    def train(self, rank):
        place = {"run": self.engine.run, "run_dir": self.engine.folder, "dp_rank": rank}
        with ringpack.Loader(**place, dp_world_size=WORLD, connect_timeout=PATIENCE) as loader:
            while not self.ends.is_set():
                with contextlib.suppress(ringpack.EngineTimeoutError):
                    loader.next(timeout=0.5)
                while not self.runs[rank].wait(PATIENCE):
                    pass

    @contextlib.contextmanager
    def paused(self, rank):
        self.runs[rank].clear()
        try:
            yield
        finally:
            self.runs[rank].set()

    def __enter__(self):
        for thread, runs in zip(self.threads, self.runs):
            runs.set()
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join()


class Silence:
    """A store without answers inside the `with`."""

    def __init__(self, store):  # noqa: F811
        self.answers = threading.Event()
        self.answers.set()
        store.fault = self.delay

    def delay(self, _):
        self.answers.wait(PATIENCE)
        return False

    def __enter__(self):
        self.answers.clear()

    def __exit__(self, *_):
        self.answers.set()


def config_of(source, **keys):
    return {
        "sources": [str(source)],
        "seq_len": 64,
        "batch_size": 4,
        "dp_world_size": WORLD,
        "num_epochs": "endless",
        "prefetch_bytes": 65536,
        "prefetch_factor": 2,
        **keys,
    }


def write_corpus(folder):
    documents = random_documents(numpy.random.default_rng(SEED), 400, 64, 30000)
    return write_megatron(folder / "corpus", documents, "u16")


def ranks_of(engine):
    return ringpack.stat(engine.run, engine.folder)["ranks"]


def seconds_of(engine, cause):
    """That rank 0 has waited for this cause."""
    return ranks_of(engine)[0]["cause_seconds"][cause]


def settled(engine):
    """The ranks, as soon as one waits and no batch comes any more."""
    found = []

    def look():
        ranks = ranks_of(engine)
        found.append(([rank["tail"] for rank in ranks], [rank["cause"] for rank in ranks], ranks))
        waits = max(rank["waiting_seconds"] for rank in ranks) > 0.05
        time.sleep(0.02)
        return waits and len(found) > 3 and all(each[:2] == found[-1][:2] for each in found[-4:])

    wait_until(look, "a wait that lasts")
    return found[-1][2]


def assert_cause(engine, cause):
    """On a busy machine a wait may also last because a thread with work is not run: the cause is
    right then, but another one. So it has some tries."""
    wanted = [(cause, None, None)] * WORLD
    if cause == "trainer":
        wanted = [("trainer", 1, 0), ("none", None, None)]
    for _ in range(20):
        ranks = settled(engine)
        told = [(rank["cause"], rank["cause_rank"], rank["cause_replica"]) for rank in ranks]
        if told == wanted:
            return
    raise AssertionError(f"{told}, and not {wanted}")


def stages_of(engine, trainers):
    return {
        "disk": lambda: Stopped(engine, "read"),
        "plan": lambda: Stopped(engine, "plan"),
        "pack": lambda: StoppedPackers(engine),
        "trainer": lambda: trainers.paused(1),
    }


def test_each_cause_is_named(program, folder, store):  # noqa: F811
    """Of files, and of objects in a store that answers late."""
    print(f"RP_SEED={SEED}")
    generator = random.Random(SEED)
    corpus = write_corpus(store.folder)
    files = config_of(corpus, run="files", io="pread", packer_processes=True)
    objects = config_of(store.url(corpus), run="objects", shuffle="block", block_documents=16)
    engines = [Engine(program, folder, config) for config in (files, objects)]
    silence = Silence(store)
    try:
        if not is_allowed(engines[0].pid):
            pytest.skip("needs the right to trace a child")
        with Trainers(engines[0]) as near, Trainers(engines[1]) as far:
            stages = {
                **{("files", name): (engines[0], stop) for name, stop in
                   stages_of(engines[0], near).items()},
                ("objects", "network"): (engines[1], lambda: silence),
                ("objects", "plan"): (engines[1], lambda: Stopped(engines[1], "plan")),
                ("objects", "trainer"): (engines[1], lambda: far.paused(1)),
            }
            chosen = list(stages)
            if LONG:
                chosen += generator.choices(list(stages), k=100 - len(chosen))
            for run, cause in chosen:
                engine, stop = stages[run, cause]
                time.sleep(generator.random() / 20)
                with stop():
                    assert_cause(engine, cause)
                    before = seconds_of(engine, cause)
                    wait_until(lambda: seconds_of(engine, cause) > before)
    finally:
        silence.answers.set()
        for engine in engines:
            engine.kill()


def test_a_wrong_cause_is_noticed(broken, folder, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "blame_next_stage")
    engine = Engine(broken, folder, config_of(write_corpus(folder), io="pread"))
    try:
        if not is_allowed(engine.pid):
            pytest.skip("needs the right to trace a child")
        with Trainers(engine), Stopped(engine, "read"):
            with pytest.raises(AssertionError, match="pack"):
                assert_cause(engine, "disk")
    finally:
        engine.kill()
