# SPDX-License-Identifier: Apache-2.0
"""A limit on processes (pids.max, ulimit -u) that others fill for a moment: no thread and no
process can be made. No row is lost by it, whenever it is, and the last save is not lost even if it
lasts."""

import errno
import json
import os
import random
import signal
import subprocess
import threading

import pytest
import ringpack
from failure_kit import Tape, finish
from refusal_kit import run
from stream_kit import PATIENCE, Ranks, wait_until

# While a file is there, there is no room. Each refusal adds a byte to a second file.
SHIM = """
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
static int is_full(void)
{
    const char *path = getenv("NO_ROOM"), *count = getenv("NO_ROOM_COUNT");
    if (!path || access(path, F_OK) != 0)
        return 0;
    int fd = open(count, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, "x", 1);
        close(fd);
    }
    return 1;
}
int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *with)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        dlsym(RTLD_NEXT, "pthread_create");
    return is_full() ? EAGAIN : real(thread, how, run, with);
}
pid_t fork(void)
{
    pid_t (*real)(void) = dlsym(RTLD_NEXT, "fork");
    if (!is_full())
        return real();
    errno = EAGAIN;
    return -1;
}
int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *files,
                const posix_spawnattr_t *how, char *const words[], char *const environment[])
{
    int (*real)(pid_t *, const char *, const posix_spawn_file_actions_t *,
                const posix_spawnattr_t *, char *const[], char *const[]) =
        dlsym(RTLD_NEXT, "posix_spawn");
    return is_full() ? EAGAIN : real(pid, path, files, how, words, environment);
}
"""


class Room:
    """Whether the engines of a test can make threads and processes."""

    def __init__(self, folder, shim):
        self.file, self.count = folder / "no-room", folder / "refusals"
        self.count.touch()
        self.prefix = ["env", f"NO_ROOM={self.file}", f"NO_ROOM_COUNT={self.count}",
                       f"LD_PRELOAD={shim}"]  # fmt: skip

    def refusals(self):
        return self.count.stat().st_size

    def fill(self, seconds=None):
        """For so long, or until it is freed."""
        self.file.touch()
        if seconds is not None:
            timer = threading.Timer(seconds, self.free)
            timer.daemon = True
            timer.start()

    def free(self):
        self.file.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def shim(compiler, tmp_path_factory):
    folder = tmp_path_factory.mktemp("no-room")
    source, path = folder / "shim.c", folder / "shim.so"
    source.write_text(SHIM)
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", path, source, "-ldl"], check=True)
    return path


@pytest.fixture
def room(folder, shim):
    return Room(folder, shim)


def keys_of(folder, processes):
    return {
        "checkpoint_dir": str(folder / "checkpoints"),
        "checkpoint_steps": 20,
        "checkpoint_mirror_dir": str(folder / "copies"),
        "packers": 2,
        "readers": 2,
        "packer_processes": processes,
        "io": "pread",
    }


@pytest.mark.parametrize("processes", [False, True])
def test_a_start_without_room(program, folder, engines, room, processes):
    """Each thread and process of a start is tried again."""
    tape = Tape(folder, 100000, **keys_of(folder, processes))
    room.fill(1)
    engine = engines(program, folder, tape.config, prefix=room.prefix)
    assert room.refusals() > 2
    with Ranks(engine) as ranks:
        tape.read(ranks)
    tape.assert_whole()
    assert engine.wait() == 0, engine.log()


@pytest.mark.parametrize("processes", [False, True])
def test_no_room_at_random_moments(program, folder, engines, room, processes):
    """While packers die, ranks come back, checkpoints are saved, and at the end."""
    chance = random.Random(processes)
    tape = Tape(folder, 400000, **keys_of(folder, processes))
    engine = engines(program, folder, tape.config, prefix=room.prefix)
    token = None
    for _ in range(5):
        with Ranks(engine, token=token) as ranks:
            tape.read(ranks, chance.randrange(5, 60))
            before = room.refusals()
            room.fill(1)
            if processes:
                os.kill(chance.choice(engine.packers()), signal.SIGKILL)
                wait_until(lambda: room.refusals() > before, "a fork without room")
            tape.read(ranks, chance.randrange(5, 60))
            engine.checkpoint()
            token = ranks.tokens()[0]
    room.fill(1)
    assert engine.stop() == 0, engine.log()
    assert run(program, "checkpoint", "verify", folder / "checkpoints").returncode == 0
    finish(program, folder, tape, token)


def test_a_trainer_that_comes_back_without_room(program, folder, engines, room):
    """From a state that is behind: the ring is made again, and another flow catches up."""
    tape = Tape(folder, 400000, **keys_of(folder, False))
    engine = engines(program, folder, tape.config, prefix=room.prefix)
    with Ranks(engine) as ranks:
        tape.read(ranks, 10)
        token = ranks.tokens()[0]
        tape.read(ranks, 50)
    tape.rows = {row for row in tape.rows if row < 10 * 4}
    before = room.refusals()
    room.fill(1)
    with Ranks(engine, token=token) as ranks:
        tape.read(ranks)
    assert room.refusals() > before
    tape.assert_whole()
    assert engine.wait() == 0, engine.log()


def test_the_last_save_without_room(program, folder, engines, room):
    """It is done without a thread: the room does not come back."""
    tape = Tape(folder, 400000, **keys_of(folder, False), checkpoint_contents=True)
    engine = engines(program, folder, tape.config, prefix=room.prefix)
    with Ranks(engine) as ranks:
        tape.read(ranks, 33)
        token = ranks.tokens()[0]
    room.fill()
    assert engine.stop() == 0, engine.log()
    room.free()
    assert "saved" in engine.log() and "row 132" in engine.log()
    listed = run(program, "checkpoint", "verify", folder / "checkpoints")
    assert listed.returncode == 0, listed
    finish(program, folder, tape, token)


def test_a_loader_without_room(program, folder, monkeypatch):
    """Its process starts the engine, and a thread that reads the log of it."""
    refused = {"process": 0, "thread": 0}

    class Popen(subprocess.Popen):
        def __init__(self, *arguments, **options):
            refused["process"] += 1
            if refused["process"] < 4:
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            super().__init__(*arguments, **options)

    start = threading.Thread.start

    def start_later(thread):
        refused["thread"] += 1
        if refused["thread"] < 4:
            raise RuntimeError("can't start new thread")
        start(thread)

    tape = Tape(folder, 20000)
    config = folder / "c.json"
    config.write_text(json.dumps({**tape.config, "run_dir": str(folder)}))
    monkeypatch.setattr(subprocess, "Popen", Popen)
    monkeypatch.setattr(threading.Thread, "start", start_later)
    with ringpack.Loader(str(config)) as loader:
        tape.take(loader)
    tape.assert_whole()
    assert min(refused.values()) >= 4


def test_an_alert_without_room(program, folder, engines, room):
    """Its command is run a little later."""
    told = folder / "told"
    tell = folder / "tell"
    tell.write_text(f"#!/bin/sh\necho $RINGPACK_ALERT >> {told}\n")
    tell.chmod(0o755)
    keys = {"alert_command": [str(tell)], "alert_skew_rows": 4, "dp_world_size": 2}
    tape = Tape(folder, 400000, **keys)
    engine = engines(program, folder, tape.config, prefix=room.prefix)
    with Ranks(engine, world=2) as ranks:
        for _ in range(2):
            assert ranks.loaders[0].next(timeout=PATIENCE)
        room.fill(3)  # a skew is an alert after a second
        wait_until(told.exists, "the command of the alert")
        assert room.refusals()
    engine.kill()
