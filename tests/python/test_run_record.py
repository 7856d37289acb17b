# SPDX-License-Identifier: Apache-2.0
"""The run record: a checkpoint directory whose file system is not mounted is noticed at the start,
and no other start is in its way."""

import os
import re
import shutil

import pytest
from failure_kit import Tape, assert_ended_by, finish, in_namespace
from stream_kit import Ranks, wait_until

ID = re.compile(r"^id=([0-9a-f]{32})$", re.M)


class Place:
    """A run with checkpoints, and its record in a state home of its own."""

    def __init__(self, program, folder, engines, **keys):
        self.program, self.folder, self.engines = program, folder, engines
        self.path = folder / "mnt" / "checkpoints"
        self.tape = Tape(folder, 100000, checkpoint_dir=str(self.path), **keys)
        self.config = self.tape.config

    def start(self, *options, wait=True, prefix=(), **keys):
        (self.folder / "e2e.log").unlink(missing_ok=True)
        config = {**self.config, **keys}
        return self.engines(self.program, self.folder, config, *options, wait=wait, prefix=prefix)

    def train(self, *options, turns=3, **keys):
        """Read some batches, save, end. Returns the trainer's token."""
        engine = self.start(*options, **keys)
        with Ranks(engine) as ranks:
            self.tape.read(ranks, turns)
            token = ranks.tokens()[0]
        assert engine.stop() == 0, engine.log()
        return token

    def first_row(self, *options, **keys):
        """The row of a start, and its log."""
        engine = self.start(*options, **keys)
        with Ranks(engine) as ranks:
            row = ranks.loaders[0].next_row
        assert engine.stop() == 0
        return row, engine.log()

    def records(self):
        return sorted((self.folder / "state-home").rglob("*.record"))

    def record(self):
        (path,) = self.records()
        return path.read_text()

    def refused(self, *texts, **keys):
        before = [path.read_text() for path in self.records()]
        engine = self.start(wait=False, **keys)
        texts = [str(self.path), "expected the directory", "found another directory", *texts]
        assert_ended_by(engine, *texts, "Mount the directory's file system", "--resume fresh")
        assert [path.read_text() for path in self.records()] == before
        return engine.log()


@pytest.fixture
def place(program, folder, engines):
    return Place(program, folder, engines)


def unmount(place):
    """A mount point without its file system: there, and empty."""
    place.path.parent.rename(place.folder / "disk")
    place.path.parent.mkdir()


def mount(place):
    shutil.rmtree(place.path.parent)
    (place.folder / "disk").rename(place.path.parent)


def test_a_directory_that_is_not_mounted(place):
    """Refused, as often as it is tried, until the file system is there again."""
    token = place.train()
    assert "\nrow=12\n" in place.record()
    unmount(place)
    for _ in range(2):  # the first start has made the directory
        log = place.refused("saved row 12 (on 20", "with no checkpoint")
        assert f"rm {place.records()[0]}" in log
        assert not list(place.path.glob("*.rpc")) and not (place.path / ".directory-id").exists()
    mount(place)
    finish(place.program, place.folder, place.tape, token)


def test_the_device_is_named(place, tmp_path):
    """Of the file system that is mounted, and of the one below it."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount")
    place.path.mkdir(parents=True)
    mounted = in_namespace(f"mount -t tmpfs none {place.path}", "--propagation", "private")
    engine = place.start(prefix=mounted)
    with Ranks(engine) as ranks:
        place.tape.read(ranks, 3)
    assert engine.stop() == 0, engine.log()
    device = os.stat(place.path).st_dev
    log = place.refused("no checkpoint")
    then, now = re.findall(r"device (\d+:\d+)\)", log)
    assert now == f"{os.major(device)}:{os.minor(device)}" and then != now


@pytest.mark.parametrize("how", ["fresh", "forget", "none"])
def test_ways_to_begin_anew(place, how):
    place.train()
    shutil.rmtree(place.path)
    place.refused("no checkpoint")
    if how == "forget":
        place.records()[0].unlink()
    keys = {"mount_guard_dir": "none"} if how == "none" else {}
    row, _ = place.first_row(*(["--resume", "fresh"] if how == "fresh" else []), **keys)
    assert row == 0
    if how == "none":
        place.refused("no checkpoint")
    else:
        assert place.first_row()[0] == 0 and "\nrow=0\n" in place.record()


def test_an_engine_that_compares_no_ids_is_found_out(broken, folder, engines, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "ignore_directory_id")
    place = Place(broken, folder, engines)
    place.train()
    unmount(place)
    assert place.first_row()[0] == 0


def test_an_older_directory_is_refused_and_a_newer_one_is_not(place):
    """Only the loss of a position counts: another directory with checkpoints that are as new, for
    instance a copy without the hidden files, is taken."""
    place.train()
    shutil.copytree(place.path, place.folder / "older", ignore=shutil.ignore_patterns(".*"))
    token = place.train()
    shutil.copytree(place.path, place.folder / "newer", ignore=shutil.ignore_patterns(".*"))
    shutil.rmtree(place.path)
    shutil.copytree(place.folder / "older", place.path)
    texts = ["saved row 24 (on 20", "with checkpoints up to row 12"]
    place.refused(*texts)
    place.refused(*texts, resume="required")
    shutil.rmtree(place.path)
    shutil.copytree(place.folder / "newer", place.path)
    finish(place.program, place.folder, place.tape, token)


def test_a_copy_passes_for_its_original(place):
    """It has the same id: a directory that was restored from a backup is taken, with a warning if
    that is older."""
    place.train()
    shutil.copytree(place.path, place.folder / "backup")
    place.train()
    shutil.rmtree(place.path)
    (place.folder / "backup").rename(place.path)
    row, log = place.first_row()
    assert row == 12 and f"warning: {place.path} had a checkpoint at row 24 on 20" in log
    assert "warning" not in place.first_row()[1]


def test_copies_are_used_where_the_directory_was_lost(program, folder, engines):
    """As documented for checkpoint_mirror_dir; if they are older, a warning says so."""
    place = Place(program, folder, engines, checkpoint_mirror_dir=str(folder / "copies"))
    place.train()
    shutil.copytree(folder / "copies", folder / "older")
    place.train()
    for path in place.path, folder / "copies":
        shutil.rmtree(path)
    (folder / "older").rename(folder / "copies")
    row, log = place.first_row()
    assert row == 12 and "the run continues from its mirror" in log and "at row 24 on 20" in log


def test_links_and_moves(place):
    """One directory under two names has one record; one that was moved is found under its new name,
    with its id, and its old name is empty on purpose or by accident: the user says which."""
    place.train()
    (place.folder / "link").symlink_to(place.path)
    row, _ = place.first_row(checkpoint_dir=str(place.folder / "link"))
    assert row == 12 and len(place.records()) == 1
    first = ID.search(place.record())[1]
    moved = place.folder / "moved"
    place.path.rename(moved)
    assert place.first_row(checkpoint_dir=str(moved))[0] == 12
    assert [ID.search(path.read_text())[1] for path in place.records()] == [first, first]
    place.refused("no checkpoint")


def test_two_runs_have_two_records(place):
    """Two engines at once, of one name in two directories and of two names: no record is mixed
    up."""
    other = str(place.folder / "other")
    keys = {"checkpoint_dir": other, "run_dir": str(place.folder / "runs")}
    second = place.engines(place.program, place.folder, {**place.config, **keys})
    place.train()
    second.kill()
    assert len(place.records()) == 2
    place.tape.rows.clear()  # a third one, which begins at row 0
    place.train(run="third", checkpoint_dir=str(place.folder / "third"))
    assert len(place.records()) == 3
    unmount(place)
    place.refused("saved row 12 (on 20")
    assert place.first_row(checkpoint_dir=other)[0] == 0  # no checkpoint was saved there


def test_nothing_is_at_stake_at_row_0(place):
    assert place.first_row()[0] == 0
    shutil.rmtree(place.path)
    assert place.first_row()[0] == 0


def test_a_save_is_noted_while_the_engine_runs(place):
    """A kill leaves the record of the last save, which is written without a waiter."""
    engine = place.start()
    with Ranks(engine) as ranks:
        for row in 8, 20:  # the last batch that was read is held still
            place.tape.read(ranks, 3)
            engine.checkpoint()
            wait_until(lambda row=row: f"\nrow={row}\n" in place.record(), "the note")
    engine.kill()
    unmount(place)
    place.refused("saved row 20 (on 20")


@pytest.mark.parametrize("case", ["no home", "a file", "read-only"])
def test_without_a_state_home(place, case):
    """One line says so; everything else is as ever."""
    prefix = ["env", "-u", "XDG_STATE_HOME", "-u", "HOME"]
    if case == "a file":
        (place.folder / "file").touch()
        prefix = ["env", f"XDG_STATE_HOME={place.folder}/file"]
    if case == "read-only":
        if os.geteuid() != 0:
            pytest.skip("needs root to mount")
        home = place.folder / "home"
        home.mkdir()
        mounts = f"mount -t tmpfs -o ro none {home}"
        prefix = [*in_namespace(mounts), "env", f"XDG_STATE_HOME={home}"]
    engine = place.start(prefix=prefix)
    with Ranks(engine) as ranks:
        place.tape.read(ranks, 3)
        token = ranks.tokens()[0]
    assert engine.stop() == 0
    assert engine.log().count("no run record is kept: ") == 1
    assert "warning: the run record" not in engine.log() and not place.records()
    finish(place.program, place.folder, place.tape, token)


def test_a_damaged_record_is_left_out(place):
    """With a warning; the next note replaces it."""
    token = place.train()
    (path,) = place.records()
    path.write_text("id=nonsense\n")
    row, log = place.first_row()
    assert row == 12 and f"{path}: the record is damaged" in log and "\nrow=12\n" in place.record()
    (place.path / ".directory-id").write_text("nonsense")
    row, log = place.first_row()
    assert row == 12 and "damaged: the directory has no id" in log
    assert ID.search(place.record())[1] in (place.path / ".directory-id").read_text()
    finish(place.program, place.folder, place.tape, token)


def test_what_killed_engines_left_is_removed(place):
    """Temporary files of this record; none that another run or program may need."""
    place.train()
    (path,) = place.records()
    left = [path.with_name(f"{path.name}.tmp.{end}") for end in ("4711.0", "1.999")]
    others = [path.with_name(f"{path.name}.tmp.{end}") for end in ("", "1", "1.", "a.0", "1.0.bak")]
    others.append(path.with_name(f"other-{path.name}.tmp.1.0"))
    for name in [*left, *others]:
        name.touch()
    place.first_row()
    assert sorted(path.parent.iterdir()) == sorted([path, *others])


def test_the_users_home_is_the_standard(place):
    """Where XDG_STATE_HOME is not set."""
    home = place.folder / "home"
    engine = place.start(prefix=["env", "-u", "XDG_STATE_HOME", f"HOME={home}"])
    assert engine.stop() == 0
    (path,) = home.rglob("*.record")
    assert path.parent == home / ".local/state/ringpack" and path.name.startswith("e2e-")
    assert path.parent.stat().st_mode & 0o777 == 0o700
