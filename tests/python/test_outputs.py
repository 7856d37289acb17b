# SPDX-License-Identifier: Apache-2.0
"""Outputs in directories that others may write to: each row of the table in
tools/python/docs/operating.md, by each verb that writes."""

import os
import re

import pytest
from refusal_kit import REFUSAL, run, write_good

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of other users")

OTHER, MEMBER = 54321, 54322  # users that no machine has
CONFIG = "seq_len: 48\nbatch_size: 2\nseed: 1\nsources: [{}]\n"


class World:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        folder.chmod(0o755)
        self.all = folder / "all"  # as /tmp
        self.elsewhere = folder / "elsewhere"
        for place, mode in ((self.all, 0o1777), (self.elsewhere, 0o755)):
            place.mkdir()
            place.chmod(mode)
        self.tape = write_good(folder)
        self.config = folder / "c.yaml"
        self.config.write_text(CONFIG.format(self.tape))
        self.text = folder / "text.txt"
        self.text.write_text("some words\n")
        self.token = folder / "state.token"
        self.run("state", "-c", self.config, "--row", 2, "-o", self.token)

    def run(self, *words, good=True, program=None, **keywords):
        done = run(program or self.program, *words, **keywords)
        if good:
            assert done.returncode == 0, done.stderr
        return done

    def link(self, owner=OTHER, target=None):
        """A symlink in the directory for all."""
        place = self.all / "out"
        place.symlink_to(target or self.elsewhere)
        os.lchown(place, owner, owner)
        return place

    def directory(self, mode, owner=OTHER, group=OTHER, parent=None):
        place = (parent or self.all) / "out"
        place.mkdir()
        os.chown(place, owner, group)
        place.chmod(mode)
        return place


# Commands that write a file in the directory D.
WRITERS = {
    "convert": lambda w, d: ("convert", "--tokenizer", "bytes", "-o", d / "x", w.text),
    "index": lambda w, d: ("index", "-c", w.config, "-o", d / "x.rpi"),
    "index --index-dir": lambda w, d: ("index", "--index-dir", d, w.tape),
    "export": lambda w, d: ("checkpoint", "export", w.token, "-o", d / "x.json"),
    "import": lambda w, d: ("checkpoint", "import", w.token, "-o", d / "x"),
    "state": lambda w, d: ("state", "-c", w.config, "--row", 2, "-o", d / "x"),
    "plan --svg": lambda w, d: ("plan", "-c", w.config, "--svg", d / "x.svg"),
    "explain": lambda w, d: ("explain", "-c", w.config, "--row", 2, "-o", d / "x.html"),
    "config init": lambda w, d: ("config", "init", w.tape, "-o", d / "x.yaml"),
}
# Commands that make or take a directory D. An engine that cannot use it ends at once.
DIRECTORIES = {
    "demo": lambda w, d: ("demo", "--dir", d),
    "serve": lambda w, d: ("serve", "-c", w.config, "--run-dir", w.folder, "--checkpoint-dir", d),
}
REFUSED = {**WRITERS, **DIRECTORIES}


@pytest.fixture
def world(program, folder):
    return World(program, folder)


def is_refused(done, *texts):
    assert done.returncode == 2, done.stderr
    assert REFUSAL.search(done.stderr), done.stderr
    assert "mkdir -m 700" in done.stderr, done.stderr
    assert not [text for text in texts if text not in done.stderr], done.stderr


@pytest.mark.parametrize("verb", REFUSED)
def test_a_link_of_another_user_is_not_followed(world, verb):
    link = world.link()
    done = world.run(*REFUSED[verb](world, link), good=False)
    is_refused(done, "symlink `out`", "is of user 54321", "mode 1777", "it is not followed")
    assert os.listdir(world.elsewhere) == []


@pytest.mark.parametrize("verb", REFUSED)
def test_nothing_is_made_below_a_link_of_another_user(world, verb):
    done = world.run(*REFUSED[verb](world, world.link() / "deeper"), good=False)
    is_refused(done, "it is not followed")
    assert os.listdir(world.elsewhere) == []


@pytest.mark.parametrize("verb", REFUSED)
def test_a_directory_for_all_of_another_user_is_not_used(world, verb):
    place = world.directory(0o777)
    done = world.run(*REFUSED[verb](world, place), good=False)
    is_refused(done, "directory `out`", "is of user 54321, mode 0777", "user 0, mode 1777")
    assert os.listdir(place) == []


@pytest.mark.parametrize("verb", WRITERS)
def test_the_control_writes_through_a_link(world, broken, verb, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "trust_any_output")
    world.run(*WRITERS[verb](world, world.link()), program=broken)
    assert os.listdir(world.elsewhere)


@pytest.mark.parametrize("verb", WRITERS)
def test_directories_that_people_have_are_used(world, verb):
    """In /tmp itself, an own directory, an own link, and root's and a project's."""
    own = world.all / "own"
    own.mkdir(mode=0o755)
    (world.all / "linked").symlink_to(world.elsewhere)
    project = world.folder / "project"
    project.mkdir()
    os.chown(project, OTHER, MEMBER)
    project.chmod(0o2775)
    shared = project / "shared"  # a member made it
    shared.symlink_to(world.elsewhere)
    os.lchown(shared, MEMBER, MEMBER)
    places = [world.all, own, world.all / "linked", project, world.directory(0o2775), shared]
    whole = world.folder / "whole"  # root's, as an emptyDir
    whole.mkdir()
    whole.chmod(0o777)
    for place in [*places, whole, world.folder / "whole/../all/./own"]:
        world.run(*WRITERS[verb](world, place))
        for file in world.elsewhere.iterdir():
            file.unlink()
        for name in os.listdir(own):
            (own / name).unlink()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_an_entry_of_another_user_in_tmp_is_not_replaced(world, kind):
    place = world.all / "x.svg"
    place.write_text("theirs") if kind == "file" else place.symlink_to(world.tape)
    os.lchown(place, OTHER, OTHER)
    done = world.run("plan", "-c", world.config, "--svg", place, good=False)
    is_refused(done, f"{place}: the ", "`x.svg`", "54321")
    assert os.readlink(place) if kind == "link" else place.read_text() == "theirs"


def test_a_link_at_the_place_of_a_file_is_replaced_and_not_followed(world):
    """By whoever it is, in a directory where its replacement is allowed."""
    wanted = world.folder / "wanted"
    wanted.write_text("kept")
    place = world.elsewhere / "x.svg"
    place.symlink_to(wanted)
    os.lchown(place, OTHER, OTHER)
    world.run("plan", "-c", world.config, "--svg", place)
    assert wanted.read_text() == "kept" and not place.is_symlink()


@pytest.mark.parametrize("option", ["--rows-log", "--digest-log"])
@pytest.mark.parametrize("kind", ["file", "link", "fifo", "hard link", "below a link"])
def test_a_log_is_not_appended_to_what_others_made(served, option, kind):
    world = served
    own = world.folder / "own"
    own.write_text("")
    place = world.all / "log"
    if kind == "file":
        place.write_text("")
    elif kind == "link":
        place.symlink_to(own)
    elif kind == "fifo":
        os.mkfifo(place)
    elif kind == "hard link":
        os.link(own, place)
    else:
        place = world.link() / "log"
    if kind in ("file", "link", "fifo"):
        os.lchown(place, OTHER, OTHER)
    done = world.run(*world.attached(option, place), good=False)
    is_refused(done, str(place), "2 names" if kind == "hard link" else "54321")
    assert own.read_text() == "" and os.listdir(world.elsewhere) == []


@pytest.mark.parametrize("option", ["--rows-log", "--digest-log"])
def test_a_log_is_appended_to_an_own_file(served, option):
    place = served.all / "log"
    place.write_text("")
    served.run(*served.attached(option, place))
    assert place.read_text()


def test_rows_go_to_a_link_of_ours_and_to_the_output(served):
    own = served.folder / "rows"
    (served.all / "log").symlink_to(own)
    served.run(*served.attached("--rows-log", served.all / "log"))
    assert re.match(r"0 \d+ 48 ", own.read_text())
    said = served.run(*served.attached("--rows-log", "/dev/stdout")).stdout
    assert re.match(r"4 \d+ \d+ ", said)


@pytest.fixture
def served(world):
    """An engine of the world's config, whose ranks take its only epoch again and again."""
    from stream_kit import Engine

    keys = {"seq_len": 48, "batch_size": 2, "num_epochs": "endless", "sources": [str(world.tape)]}
    engine = Engine(world.program, world.folder, {"run": "served", **keys})
    world.attached = lambda *words: (
        "read", "--run", "served", "--run-dir", world.folder, "--batches", 2, *words)
    yield world
    engine.kill()


def test_a_lock_of_another_user_is_not_taken(world):
    """It would be another run's engine's, or one without an engine that keeps all engines out."""
    place = world.folder / "whole"
    place.mkdir()
    place.chmod(0o777)
    lock = place / ".lock"
    lock.write_text("")
    os.chown(lock, OTHER, OTHER)
    done = world.run(*DIRECTORIES["serve"](world, place), good=False)
    is_refused(done, "the file `.lock`", "54321")
    assert lock.read_text() == ""


def test_a_user_who_is_not_root(world):
    """The rule is of users, not of root: the links of one's own and of root are followed."""
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    words = ("plan", "-c", world.config, "--svg")
    world.elsewhere.chmod(0o1777)
    is_refused(world.run(*words, world.link() / "x.svg", good=False, **nobody), "54321")
    os.lchown(world.all / "out", 0, 0)
    world.run(*words, world.all / "out" / "x.svg", **nobody)
    os.lchown(world.all / "out", 65534, 65534)
    world.run(*words, world.all / "out" / "y.svg", **nobody)
    assert sorted(os.listdir(world.elsewhere)) == ["x.svg", "y.svg"]


def test_links_in_a_circle_end(world):
    (world.folder / "a").symlink_to("b")
    (world.folder / "b").symlink_to("a")
    done = world.run("plan", "-c", world.config, "--svg", world.folder / "a/x.svg", good=False)
    assert done.returncode == 2 and "Too many levels of symbolic links" in done.stderr

