# SPDX-License-Identifier: Apache-2.0
"""A start whose checkpoint directory is on a disk that is full, hangs or fails: it is refused by
name before a trainer gets a batch."""

import contextlib
import os
import select
import threading

import pytest
import ringpack
from failure_kit import Tape, assert_ended_by, finish, in_namespace
from stream_kit import Ranks, wait_until
from test_failing_disks import FOR_EVER, disk, needs_root  # noqa: F401


@needs_root
def test_a_start_that_ignores_its_trial_is_found_out(broken, folder, engines, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "ignore_trial")
    place = folder / "checkpoints"
    place.mkdir()
    tape = Tape(folder, 20000, checkpoint_dir=str(place), mount_guard_dir="none")
    full = f"mount -t tmpfs -o size=8k none {place} && ! cat /dev/zero > {place}/ballast"
    engines(broken, folder, tape.config, prefix=in_namespace(full))  # it is ready, on a full disk


def attach_in_vain(engine):
    """A trainer that waits for a batch until the engine has ended, and its batches."""
    got = []

    def train():
        with contextlib.suppress(ringpack.RingpackError):
            with ringpack.Loader(run=engine.run, run_dir=engine.folder, start_engine=False,
                                 connect_timeout=1) as loader:
                got.extend(batch.first_row for batch in loader)

    thread = threading.Thread(target=train)
    thread.start()
    return thread, got


@pytest.mark.parametrize("call, options", [
    # the kernel locks a directory while a name is made in it, and it cannot be listed then
    ("create", ("--state",)), ("rename", ("--state",)), ("fsync", ()), ("fsync", ("--fresh",))])
def test_a_trial_that_ends_late_and_badly(program, folder, disk, engines, call, options):
    """The trial write runs in parallel to the start. Whenever it ends, no trainer has got a batch
    before, and saved checkpoints are unchanged."""
    tape = Tape(folder, 60000, checkpoint_dir=str(disk.path))
    engine = engines(program, folder, tape.config)
    with Ranks(engine) as ranks:
        tape.read(ranks, 3)
        token = ranks.tokens()[0]
    assert engine.stop() == 0
    (folder / "token").write_bytes(token)
    before = {path.name: path.read_bytes() for path in disk.kept.iterdir()}
    if options == ("--state",):
        options = ("--state", folder / "token")
    with disk.failing(call, suffix="probe.tmp", delay=FOR_EVER, errno="EIO"):
        engine = engines(program, folder, tape.config, *options, wait=False)
        if "--fresh" not in options:  # which first waits whether it can save, before it sets aside
            socket = folder / "e2e.sock"
            wait_until(socket.exists, "the rest of the start")
        ready = os.dup(engine.ready)
        thread, got = attach_in_vain(engine)
        assert not select.select([ready], [], [], 0.1)[0]
    assert_ended_by(engine, disk.path, "a test write into the checkpoint directory failed")
    thread.join()
    assert got == [] and os.read(ready, 16) == b""
    os.close(ready)
    after = {path.name: path.read_bytes() for path in disk.kept.iterdir()}
    for names in before, after:
        del names[".lock"]  # has the pid of who held it last
    assert after == before
    finish(program, folder, tape, token)


def test_a_journal_that_hangs_at_the_start(program, folder, disk, engines):
    """The entry of a start is on the disk before a trainer gets a batch."""
    tape = Tape(folder, 60000, checkpoint_dir=str(disk.path))
    journal = disk.kept / "run-journal.jsonl"
    with disk.failing("fsync", suffix=".jsonl", delay=FOR_EVER):
        engine = engines(program, folder, tape.config, wait=False)
        wait_until(lambda: journal.exists() and journal.read_bytes(), "the entry")
        assert not select.select([engine.ready], [], [], 0.1)[0]
    engine.wait_ready()
    with Ranks(engine) as ranks:
        tape.read(ranks)
    tape.assert_whole()
    assert engine.wait() == 0, engine.log()
