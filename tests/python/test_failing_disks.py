# SPDX-License-Identifier: Apache-2.0
"""A whole engine on a disk that is slow, hangs, or fails (a FUSE file system, faulty_disk.py), on
one that is full or over its quota, and on directories that go away. Every read is right or refused
by name, checkpoints stay, and once the disk is well no row was lost."""

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import ringpack
from failure_kit import Tape, assert_ended_by, finish, in_namespace
from refusal_kit import REFUSAL, run
from stream_kit import PATIENCE, Ranks, wait_until

IS_ROOT = os.geteuid() == 0
FOR_EVER = 10**9  # seconds, or until the fault is taken away
LOST_PAGE = "a page of it cannot be read any more, though the file is as long as before"
needs_root = pytest.mark.skipif(not IS_ROOT, reason="needs root, to mount")


class Disk:
    """The mounted file system; `path` is where an engine sees `kept`."""

    def __init__(self, folder):
        self.kept, self.path, self.fault_file = folder / "kept", folder / "disk", folder / "fault"
        for place in self.kept, self.path:
            place.mkdir()
        script = Path(__file__).with_name("faulty_disk.py")
        command = [sys.executable, script, self.kept, self.path, self.fault_file]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until(lambda: os.path.ismount(self.path), "the mount of the disk")

    @contextlib.contextmanager
    def failing(self, *calls, **fault):
        """These calls meet the fault within the block."""
        written = self.fault_file.with_suffix(".new")
        written.write_text(json.dumps({"calls": calls, "serial": time.monotonic(), **fault}))
        written.replace(self.fault_file)
        try:
            yield
        finally:
            self.fault_file.unlink()

    def close(self):
        subprocess.run(["umount", "-l", self.path], check=True)
        self.process.terminate()
        self.process.wait()


@pytest.fixture
def disk(folder):
    pytest.importorskip("mfusepy", reason="tools/setup installs it")
    if not IS_ROOT or not os.path.exists("/dev/fuse"):
        pytest.skip("needs root and /dev/fuse, to mount a disk that fails")
    made = Disk(folder)
    yield made
    made.close()


# ---- the corpus's disk ---------------------------------------------------------------------------

ways = pytest.mark.parametrize("io", ["pread", "io_uring", "mapped"])


@ways
def test_a_slow_disk(program, folder, disk, engines, io):
    """Everything comes, and a checkpoint does not wait for reads."""
    tape = Tape(disk.path, 60000, io=io, checkpoint_dir=str(folder / "checkpoints"))
    with disk.failing("read", suffix=".bin", delay=0.05):
        engine = engines(program, folder, tape.config)
        with Ranks(engine) as ranks:
            tape.read(ranks, 3)
            engine.checkpoint()
            tape.read(ranks)
        tape.assert_whole()
        assert engine.wait() == 0


@pytest.mark.parametrize("io", ["pread", "io_uring"])
def test_a_disk_that_hangs(program, folder, disk, engines, io):
    """No batch comes and no seat is lost: the engine still answers and saves; a first signal saves,
    a second one ends it, with the reads still in flight; afterwards no row is lost."""
    tape = Tape(disk.path, 3000000, io=io, checkpoint_dir=str(folder / "checkpoints"))
    engine = engines(program, folder, tape.config)
    ranks = Ranks(engine, restart_timeout=PATIENCE)
    with disk.failing("read", suffix=".bin", delay=FOR_EVER):
        with pytest.raises(ringpack.RingpackError) as raised:
            while True:
                tape.take([ranks.loaders[0].next(timeout=1.0)])
        assert "timeout" in type(raised.value).__name__.lower() or "RP_E_TIMEOUT" in str(raised)
        assert ringpack.stat(engine.run, folder)
        engine.checkpoint()
        token = ranks.tokens()[0]
        engine.process.terminate()
        wait_until(lambda: "no new rows to save" in engine.log(), "the last checkpoint")
        while engine.process.poll() is None:
            engine.process.send_signal(signal.SIGTERM)
            time.sleep(0.01)
        assert engine.wait() in (0, 128 + signal.SIGTERM)
    ranks.close()
    finish(program, folder, tape, token)


def test_a_disk_that_does_not_say_whether_files_changed(program, folder, disk, engines):
    """Neither a save nor a stop waits for it: the checkpoint has no contents, and says so."""
    tape = Tape(disk.path, 3000000, io="pread", checkpoint_dir=str(folder / "checkpoints"))
    engine = engines(program, folder, tape.config)
    with Ranks(engine, restart_timeout=PATIENCE) as ranks:
        tape.read(ranks, 3)
        time.sleep(1.1)  # so long the kernel knows the attributes of a file
        with disk.failing("getattr", suffix=".bin", delay=FOR_EVER):
            with pytest.warns(RuntimeWarning, match="without contents, because the disk"):
                engine.checkpoint()
            token = ranks.tokens()[0]
            engine.process.terminate()
            text = "ending without waiting for the disk"
            wait_until(lambda: text in engine.log(), "the end of the engine")
        assert engine.wait() == 0, engine.log()  # FUSE keeps a process that waits for it
    finish(program, folder, tape, token)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"io": "pread"}, "cannot read .* at offset"),
        ({"io": "io_uring"}, "cannot read .* at offset"),
        ({"io": "mapped"}, LOST_PAGE),
        ({"io": "mapped", "packer_processes": True, "packers": 2}, LOST_PAGE),
    ],
)
@pytest.mark.parametrize("name", ["EIO", "ESTALE"])
def test_a_disk_that_fails_for_ever(program, folder, disk, engines, options, said, name):
    """The file, the place and the reason; trainers hear of it; afterwards no row is lost."""
    tape = Tape(disk.path, 3000000, **options, checkpoint_dir=str(folder / "checkpoints"))
    engine = engines(program, folder, tape.config)
    with Ranks(engine, restart_timeout=PATIENCE) as ranks:
        tape.read(ranks, 3)
        with disk.failing("read", suffix=".bin", errno=name):
            with pytest.raises(ringpack.RingpackError, match=said):
                tape.read(ranks)
            token = ranks.tokens()[0]
            assert_ended_by(engine, tape.path, said.partition(" .*")[0])
    assert "saved" in engine.log()
    finish(program, folder, tape, token)


@pytest.mark.parametrize("options, times", [
    ({"io": "pread"}, 3), ({"io": "io_uring"}, 3), ({"io": "mapped"}, 8),
    ({"io": "mapped", "packer_processes": True, "packers": 2}, 8)])
def test_a_disk_that_fails_for_a_moment(program, folder, disk, engines, options, times):
    """Read again, without a trace."""
    tape = Tape(disk.path, 1500000, **options)
    engine = engines(program, folder, tape.config)
    with Ranks(engine) as ranks:
        tape.read(ranks, 3)
        with disk.failing("read", suffix=".bin", errno="EIO", times=times):
            tape.read(ranks)
    tape.assert_whole()
    assert engine.wait() == 0, engine.log()


@ways
def test_a_corpus_that_is_removed(program, folder, engines, io):
    """Open files live on. A file that is gone at the next start is refused by name."""
    place = folder / "corpus"
    place.mkdir()
    tape = Tape(place, 1500000, io=io, checkpoint_dir=str(folder / "checkpoints"))
    engine = engines(program, folder, tape.config)
    with Ranks(engine) as ranks:
        tape.read(ranks, 3)
        place.rename(folder / "away")
        tape.read(ranks, 300)
        token = ranks.tokens()[0]
    assert engine.stop() == 0
    again = engines(program, folder, tape.config, wait=False)
    assert_ended_by(again, tape.path, "No such file")
    (folder / "away").rename(place)
    finish(program, folder, tape, token)


# ---- the checkpoints' disk -----------------------------------------------------------------------

SAVING = [
    (["fsync"], "EIO", "sync"),
    (["fsync"], "ENOSPC", "sync"),
    (["write"], "EIO", "write"),
    (["write"], "ENOSPC", "No space left"),
    (["fallocate"], "ENOSPC", "No space left"),
    (["fallocate", "write"], "EDQUOT", "quota"),
    (["create"], "EROFS", "Read-only"),
    (["create"], "EACCES", "Permission denied"),
    (["create"], "ESTALE", "Stale file handle"),
    (["rename"], "EIO", "name"),
]


def names_kept(place):
    """After the removal of old ones, which comes after `checkpoint` has returned."""
    wait_until(lambda: len(list(place.glob("*.rpc"))) <= 3, "removing what is too old")
    return names_in(place)


def names_in(place):
    """Without the names that FUSE gives removed files that are still open."""
    return {name for name in os.listdir(place) if not name.startswith(".fuse_hidden")}


def test_saves_on_a_disk_that_fails(program, folder, disk, engines):
    """Each is refused by name and keeps the earlier ones; the stream continues; the next works."""
    place = disk.path / "checkpoints"
    tape = Tape(folder, 200000, checkpoint_dir=str(place))
    engine = engines(program, folder, tape.config)
    with Ranks(engine) as ranks:
        for number, (calls, name, text) in enumerate(SAVING):
            tape.read(ranks, 2)
            kept = names_kept(place)
            with disk.failing(*calls, suffix=".tmp", errno=name):
                with pytest.raises(ringpack.RingpackError, match=text) as raised:
                    engine.checkpoint()
            assert raised.value.hint
            assert names_in(place) == kept, f"{number}: {calls} {name}"
            engine.checkpoint()
        names_kept(place)
        assert run(program, "checkpoint", "verify", place).returncode == 0
        token = ranks.tokens()[0]
    assert engine.stop() == 0
    finish(program, folder, tape, token)


def test_a_disk_that_changes_what_was_saved(program, folder, disk, engines):
    """A save is acknowledged, and read back then: it is named, no older one goes for it, and the
    engine saves again; an engine that ends reports that its last save is bad."""
    place = disk.path / "checkpoints"
    tape = Tape(folder, 200000, checkpoint_dir=str(place))
    engine = engines(program, folder, tape.config)
    with Ranks(engine) as ranks:
        for _ in range(4):
            tape.read(ranks, 2)
            engine.checkpoint()
        kept = names_kept(place)
        tape.read(ranks, 2)
        newest = max(int(name[11:23]) for name in kept if name.endswith(".rpc"))
        with disk.failing("read back", suffix=f"{newest + 1:012}.rpc"):
            bad = engine.checkpoint()
            wait_until(lambda: "saving again" in engine.log(), "reading back")
            wait_until(lambda: f"{newest + 2:012}.rpc: row" in engine.log(), "another save")
        said = engine.log()
        assert f"{bad}: the disk returned other bytes than were written" in said
        assert kept - set(os.listdir(place)) < kept, "all older ones were removed"
        tape.read(ranks, 2)
        token = ranks.tokens()[0]
        wait_until(lambda: len(list(place.glob("*.rpc"))) == 4, "removing what is too old")
        with disk.failing("read back", suffix=".rpc"):
            kept = {path.name for path in place.glob("*.rpc")}
            assert engine.stop() == 2
        assert kept <= set(os.listdir(place)), "an older one was removed for a bad one"
        assert len(list(place.glob("*.rpc"))) == len(kept) + 1, "bad saves fill the disk"
    assert engine.log().count("cannot be trusted") == 1 + 3
    finish(program, folder, tape, token)


def test_a_refused_save_hides_no_bad_one(program, folder, disk, engines):
    """`stat` counts a bad save as failed. If the save at the end is refused, the bad one is the
    last, and the engine ends with its error."""
    place = disk.path / "checkpoints"
    shape = {"dp_world_size": 2, "global_batch_size": 8}
    tape = Tape(folder, 200000, checkpoint_dir=str(place), **shape)
    engine = engines(program, folder, tape.config)
    with Ranks(engine, 2) as ranks:
        tape.read(ranks, 2)
        token = ranks.tokens()[0]
        engine.checkpoint()
        wait_until(lambda: not ringpack.stat(engine.run, folder)["save_under_way"], "reading back")
        row = ringpack.stat(engine.run, folder)["save_row"]
        tape.read(ranks, 2)
        with disk.failing("read back", suffix=".rpc"):
            engine.checkpoint()
            wait_until(lambda: engine.log().count("cannot be trusted") == 3, "reading back")
        stat = ringpack.stat(engine.run, folder)
        assert (stat["saves"], stat["save_failures"], stat["save_row"]) == (4, 3, row)
        assert "other bytes than were written" in stat["save_error"] and stat["unsaved_rows"] > 0
        assert len(list(place.glob("*.rpc"))) == 2, "bad saves fill the disk"
    one = Ranks(engine, 0)
    known = {"run": engine.run, "run_dir": folder, "dp_rank": 0, "dp_world_size": 2}
    one.loaders = [ringpack.Loader(**known, connect_timeout=PATIENCE)]
    with one:
        one.loaders[0].load_state_dict({"ringpack_state": token})
        one.loaders[0].attach()
        assert engine.stop() == 2
    assert "has not attached" in engine.log()
    assert "other bytes than were written" in engine.log().splitlines()[-2], engine.log()


def test_a_save_on_a_disk_that_hangs(program, folder, disk, engines):
    """The stream does not wait for it."""
    tape = Tape(folder, 300000, checkpoint_dir=str(disk.path / "checkpoints"))
    engine = engines(program, folder, tape.config)
    asked = threading.Thread(target=engine.checkpoint)
    with Ranks(engine) as ranks:
        tape.read(ranks, 2)
        with disk.failing("fsync", delay=FOR_EVER):
            asked.start()
            tape.read(ranks, 500)
            assert asked.is_alive()
        asked.join()
        token = ranks.tokens()[0]
    assert engine.stop() == 0
    finish(program, folder, tape, token)


def test_a_checkpoint_directory_that_vanishes(program, folder, engines):
    """Saves are refused by name, the stream continues; the end reports that none was saved."""
    place = folder / "checkpoints"
    tape = Tape(folder, 200000, checkpoint_dir=str(place))
    engine = engines(program, folder, tape.config)
    with Ranks(engine) as ranks:
        tape.read(ranks, 3)
        engine.checkpoint()
        shutil.copytree(place, folder / "kept")
        shutil.rmtree(place)
        with pytest.raises(ringpack.RingpackError, match="No such file") as raised:
            engine.checkpoint()
        assert "bring it back" in raised.value.hint
        tape.read(ranks, 20)
        token = ranks.tokens()[0]
    assert engine.stop() == 2
    assert len(REFUSAL.findall(engine.log())) == 1, engine.log()
    (folder / "kept").rename(place)
    finish(program, folder, tape, token)


def test_a_checkpoint_directory_that_is_lost(program, folder, engines):
    """Only the copies in the mirror are left: the stream continues from them."""
    place = folder / "checkpoints"
    keys = {"checkpoint_dir": str(place), "checkpoint_mirror_dir": str(folder / "copies")}
    tape = Tape(folder, 50000, **keys)
    engine = engines(program, folder, tape.config)
    with Ranks(engine) as ranks:
        tape.read(ranks, 20)
    assert engine.stop() == 0, engine.log()
    shutil.rmtree(place)
    log = finish(program, folder, tape)
    assert f"no checkpoint in {place}: the run continues from its mirror {folder}/copies" in log


def stat_until(program, engine, place, found):
    """Poll until the engine is found, or not, as expected; no more than a second or so."""
    wait_until(
        lambda: (run(program, "stat", engine.run, f"--run-dir={place}").returncode == 0) == found,
        "the engine to be found" if found else "the engine to be gone",
    )


@pytest.mark.parametrize("what", ["directory", "socket", "lock"])
def test_a_run_directory_that_vanishes(program, folder, engines, what):
    """Attached trainers read on, new ones find the engine again, a second engine is refused."""
    place = folder / "runs"
    tape = Tape(folder, 200000, run_dir=str(place))
    engine = engines(program, folder, tape.config)
    engine.folder = place
    with Ranks(engine) as ranks:
        tape.read(ranks, 3)
        if what == "directory":
            shutil.rmtree(place)
        else:
            (place / f"{engine.run}.{what[:4]}").unlink()
        tape.read(ranks, 3)
        second = run(program, "serve", "-c", folder / f"{engine.run}.yaml")
        assert second.returncode == 2 and f"process {engine.pid}" in second.stderr
        wait_until(lambda: "there is a new one" in engine.log(), "its names")
        stat_until(program, engine, place, True)
        token = ranks.tokens()[0]
    with Ranks(engine, token=token) as ranks:
        tape.read(ranks)
    tape.assert_whole()
    assert engine.wait() == 0, engine.log()
    assert not place.exists()


def test_an_engine_that_forgets_its_names_is_found_out(broken, folder, engines, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "forget_names")
    place = folder / "runs"
    engine = engines(broken, folder, Tape(folder, 100000, run_dir=str(place)).config)
    shutil.rmtree(place)
    time.sleep(3)
    stat_until(broken, engine, place, False)
    assert "there is a new one" not in engine.log()


@needs_root
def test_a_full_disk_at_start(program, folder, engines):
    """Known before the first batch, not at the first save."""
    place = folder / "checkpoints"
    place.mkdir()
    tape = Tape(folder, 20000, checkpoint_dir=str(place))
    prefix = in_namespace(
        f"mount -t tmpfs -o size=8k,mode=700 none {place} && ! cat /dev/zero > {place}/ballast"
    )
    engine = engines(program, folder, tape.config, wait=False, prefix=prefix)
    assert_ended_by(engine, str(place), "No space left")
    finish(program, folder, tape)


def test_a_run_record_on_a_disk_that_hangs_or_fails(program, folder, disk, engines):
    """Neither saves nor the stream wait for it, and the end names the lost record."""
    tape = Tape(folder, 200000, checkpoint_dir=str(folder / "checkpoints"))
    engine = engines(program, folder, tape.config, prefix=["env", f"XDG_STATE_HOME={disk.path}"])
    with Ranks(engine) as ranks:
        with disk.failing("fsync", errno="EIO"):
            tape.read(ranks, 3)
            engine.checkpoint()
            wait_until(lambda: "the run record is not written" in engine.log(), "the warning")
        with disk.failing("fsync", delay=FOR_EVER):
            for _ in range(3):
                tape.read(ranks, 3)
                engine.checkpoint()
            token = ranks.tokens()[0]
            ranks.close()
            engine.process.terminate()
            wait_until(lambda: "the run record is not up to date" in engine.log(), "the end")
    assert engine.wait() == 0, engine.log()
    finish(program, folder, tape, token)


def test_a_limit_of_file_sizes(program, folder, engines):
    """`ulimit -f` is an error, not a death by SIGXFSZ; of memory at the start, of a save later."""
    tape = Tape(folder, 200000, checkpoint_dir=str(folder / "checkpoints"))
    engine = engines(
        program, folder, tape.config, wait=False, prefix=["prlimit", "--fsize=4096:4096"]
    )
    assert_ended_by(engine, "limit of file sizes", "ulimit -f")
    engine = engines(program, folder, tape.config)
    with Ranks(engine) as ranks:
        tape.read(ranks, 3)
        engine.checkpoint()
        tape.read(ranks, 3)  # a save at the position of the newest one would write no file
        limit = resource.prlimit(engine.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        with pytest.raises(ringpack.RingpackError, match="File too large") as raised:
            engine.checkpoint()
        assert "limit of file" in raised.value.hint
        resource.prlimit(engine.pid, resource.RLIMIT_FSIZE, limit)
        tape.read(ranks, 3)
        engine.checkpoint()
        token = ranks.tokens()[0]
    assert engine.stop() == 0
    finish(program, folder, tape, token)
