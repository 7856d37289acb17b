# SPDX-License-Identifier: Apache-2.0
"""Alerts of a real engine: each fires once for its incident, none without one, no command keeps
the engine from serving, and the watcher that raises them ends with its engine.
unit/test_alert.c has weeks of incidents under its own clock."""

import contextlib
import copy
import json
import os
import signal
import subprocess
import threading
import time

import pytest
import ringpack
from stream_kit import LONG, PATIENCE, Corpus, Engine, Ranks, Stream, wait_until

KINDS = ["starved", "skew", "disk_free", "save_failed", "copy_failed", "engine_failed"]
KINDS += ["engine_silent"]
ROWS, WORLD = 2, 2
TELL = """#!{python} -S
import json, os
names = [name for name in os.environ if name.startswith("RINGPACK_ALERT")]
told = {{name[9:].lower(): os.environ[name] for name in names}}
with open({path!r}, "a") as file:
    file.write(json.dumps(told) + "\\n")
"""


class Run:
    """An engine of two ranks with alerts, and the environment of its commands."""

    known = None  # the oracle's stream, one for all corpora here

    def __init__(self, program, folder, **keys):
        self.folder, self.kept = folder, folder / "kept"
        corpus = Corpus(folder, [("megatron", "u16", 1, [200])], 3)
        Run.known = Run.known or Stream(corpus, {"num_epochs": 90})
        self.stream = copy.copy(Run.known)
        self.stream.sources = corpus.sources
        self.pages, self.tell = folder / "pages", folder / "tell it"
        self.tell.write_text(TELL.format(python=os.sys.executable, path=str(self.pages)))
        self.tell.chmod(0o755)
        config = {
            **self.stream.config(),
            "batch_size": ROWS,
            "dp_world_size": WORLD,
            "checkpoint_dir": str(self.kept),
            "checkpoint_mirror_dir": str(folder / "copied"),
            "alert_command": ["./tell it"],
            "io": "pread",
        }
        self.engine = Engine(program, folder, {**config, **keys})

    def stat(self):
        return ringpack.stat(self.engine.run, self.folder)

    def alerts(self):
        """Kind -> times, of those that were raised."""
        alerts = self.stat()["alerts"]
        assert [alert["alert"] for alert in alerts] == KINDS
        return {alert["alert"]: alert["times"] for alert in alerts if alert["times"]}

    def told(self):
        lines = self.pages.read_text().splitlines() if self.pages.exists() else []
        return [json.loads(line) for line in lines]

    def wait_told(self, count):
        wait_until(lambda: len(self.told()) >= count, "the command of an alert")
        assert len(self.told()) == count
        return self.told()[-1]

    def fail_save(self):
        """A save that fails, and one that succeeds."""
        away = self.folder / "away"
        os.rename(self.kept, away)
        with pytest.raises(ringpack.RingpackError):
            self.engine.checkpoint()
        os.rename(away, self.kept)
        self.engine.checkpoint()


@pytest.fixture
def start(program, folder):
    made = []

    def start(*, of=program, **keys):
        made.append(Run(of, folder, **keys))
        return made[-1]

    yield start
    for run in made:
        run.engine.kill()


def starve(run, ranks, times=1):
    """Rank 0 waits for room in the ring of rank 1 until an alert says so; then rank 1 follows."""
    first, second = ranks.loaders
    slots = run.stat()["ranks"][0]["slots"]
    for _ in range(slots - 1):  # each rank holds one
        first.next(timeout=600)
    waiting = threading.Thread(target=first.next, daemon=True)
    waiting.start()
    wait_until(lambda: run.alerts().get("starved", 0) == times, "the alert")
    wait_until(lambda: run.alerts().get("skew", 0) == times, "the alert")
    for _ in range(slots):
        second.next(timeout=600)
    waiting.join(600)


def test_each_alert_fires_once_and_none_is_false(start):
    run = start(alert_starved_ms=2000, alert_skew_rows=4, alert_disk_free="1k")
    with Ranks(run.engine, WORLD) as ranks:
        for _ in range(3):
            assert len(list(ranks.turns(20))) == 20
            run.engine.checkpoint()
        wait_until(lambda: run.stat()["disks"][0]["free_bytes"], "an answer of the disk")
        stat = run.stat()
        assert [disk["directory"] for disk in stat["disks"]] == [
            str(run.kept),
            str(run.folder / "copied"),
        ]
        assert not run.alerts() and not run.told(), "a false alert"

        starve(run, ranks)
        wait_until(lambda: len(run.told()) == 2)
        told = {each["alert"]: each for each in run.told()}
        starved, skew = told["starved"], told["skew"]
        assert int(starved["alert_value"]) >= int(starved["alert_limit"]) == 2000
        assert starved["alert_cause"] == "trainer" and "rank 0" in starved["alert_message"]
        assert starved["alert_run"] == run.engine.run
        assert int(starved["alert_pid"]) == run.engine.pid
        assert int(skew["alert_value"]) >= int(skew["alert_limit"]) == 4
        assert "rank 1 is" in skew["alert_message"]

        list(ranks.turns(2))
        run.fail_save()
        failed = run.wait_told(3)
        assert failed["alert"] == "save_failed" and "kept" in failed["alert_message"]
        log = "alert save_failed is over"
        wait_until(lambda: log in run.engine.log(), "the end of the alert")
        list(ranks.turns(20))
        assert run.alerts() == {"starved": 1, "skew": 1, "save_failed": 1}
        commands = {each["alert"]: each["commands"] for each in run.stat()["alerts"]}
        assert [commands[kind] for kind in KINDS] == [1, 1, 0, 1, 0, 0, 0]
        assert not any(each["command_failures"] for each in run.stat()["alerts"])
        if LONG:
            while any(alert["raised"] for alert in run.stat()["alerts"]):
                list(ranks.turns(1))
                time.sleep(0.5)
            starve(run, ranks, times=2)
            assert len(run.told()) == 3, "the last command was less than 5 minutes ago"

        os.truncate(next(run.folder.glob("*.bin")), 0)
        with pytest.raises(ringpack.RingpackError):
            list(ranks.turns())
    assert run.engine.wait() != 0
    last = run.wait_told(4)
    assert last["alert"] == "engine_failed" and ".bin" in last["alert_message"]


def test_many_alerts_run_one_command(start):
    run = start(alert_disk_free="8000t")
    assert run.wait_told(1)["alert"] == "disk_free"
    with Ranks(run.engine, WORLD) as ranks:
        for count in range(1, 6):
            list(ranks.turns(1))
            run.fail_save()
            wait_until(lambda: run.alerts().get("save_failed", 0) >= count, "the alert")
            wait_until(lambda: not run.stat()["alerts"][3]["raised"], "its end")
    assert [each["alert"] for each in run.told()] == ["disk_free", "save_failed"]
    assert run.stat()["alerts"][3]["commands"] == 1


HANG = {"alert_command": ["sleep", "1000"], "alert_disk_free": "8000t"}


def answers_during(run):
    """Whether the engine serves trainers and questions while its command hangs."""
    wait_until(lambda: run.alerts() == {"disk_free": 1}, "the count of its command")
    done = threading.Event()

    def read():
        with Ranks(run.engine, WORLD) as ranks:
            list(ranks.turns(50))
        run.stat()
        done.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return done


def children(pid):
    path, pids = f"/proc/{pid}/task", []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for task in os.listdir(path):
            pids += map(int, open(f"{path}/{task}/children").read().split())
    return pids


def is_gone(pid):
    """Ended, or a zombie whose parent is not ours."""
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")")[-1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def watcher(run):
    wait_until(lambda: len(children(run.engine.pid)) == 1, "the watcher")
    return children(run.engine.pid)[0]


def command(run):
    """The command of an alert, once it runs."""
    found = []
    wait_until(lambda: found.extend(children(watcher(run))) or found, "the command")
    return found[0]


def test_nobody_waits_for_a_command_that_hangs(start):
    run = start(**HANG)
    pid = command(run)
    assert answers_during(run).wait(PATIENCE)
    run.fail_save()
    wait_until(lambda: run.alerts() == {"disk_free": 1, "save_failed": 1}, "another alert")
    assert not is_gone(pid)
    os.kill(pid, 9)
    wait_until(lambda: run.stat()["alerts"][2]["command_failures"] == 1, "its end")
    assert "alert_command: " in run.engine.log() and "ended with signal 9" in run.engine.log()


def test_a_watcher_that_waits_for_its_command_is_noticed(start, broken, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "wait_for_alert_command")
    run = start(of=broken, **HANG)
    command(run)
    run.fail_save()
    time.sleep(3)
    assert "save_failed" not in run.alerts(), "it does not wait"


# ---- the watcher --------------------------------------------------------------------------------


def raised_again(run):
    """A watcher is killed while an alert lasts and its command hangs: is the alert raised twice?"""
    first, pid = watcher(run), command(run)
    wait_until(lambda: run.alerts() == {"disk_free": 1}, "the alert")
    os.kill(first, 9)
    wait_until(lambda: is_gone(pid), "the end of its command")
    wait_until(lambda: watcher(run) != first, "the next watcher")
    run.fail_save()
    wait_until(lambda: "save_failed" in run.alerts(), "an alert of the next watcher")
    assert "the process that raises alerts died; it is started again" in run.engine.log()
    time.sleep(3)  # disks are checked once a second
    return run.engine.log().count("alert disk_free:") > 1


def test_a_watcher_that_is_killed_is_started_again(start):
    run = start(**HANG)
    assert not raised_again(run)
    disk, failed = run.stat()["alerts"][2:4]
    assert disk["times"] == disk["commands"] == 1 and disk["command_failures"] >= 1
    assert failed["times"] == 1
    words = open(f"/proc/{watcher(run)}/cmdline").read().split("\0")
    assert words == ["ringpack", "watch-alerts", run.engine.run, ""], "others can read them"


def test_a_watcher_that_forgets_is_noticed(start, broken, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "forget_raised_alerts")
    assert raised_again(start(of=broken, **HANG))


def test_an_engine_that_is_killed_is_told_and_leaves_no_watcher(start):
    run = start()
    pid = watcher(run)
    run.stat()
    run.engine.kill()
    told = run.wait_told(1)
    assert told["alert"] == "engine_failed" and "was killed" in told["alert_message"]
    assert int(told["alert_pid"]) == run.engine.pid and told["alert_run"] == run.engine.run
    wait_until(lambda: is_gone(pid), "the end of the watcher")


def test_a_watcher_that_outlives_its_engine_is_noticed(start, broken, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "outlive_engine")
    run = start(of=broken)
    pid = watcher(run)
    run.engine.kill()
    time.sleep(3)
    alive = not is_gone(pid)
    os.kill(pid, 9)
    assert alive


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_end_of_an_engine_ends_a_command_that_hangs(start, how):
    run = start(**HANG)
    pid, of_watcher = command(run), watcher(run)
    getattr(run.engine, how)()
    for each in pid, of_watcher:
        wait_until(lambda each=each: is_gone(each), "its end")
    assert "was killed; the engine has ended" in run.engine.log()


@pytest.mark.skipif(not LONG, reason="RP_LONG=1: silence is an alert after 30 seconds")
def test_an_engine_that_is_stopped_is_told(start):
    run = start()
    watcher(run)
    with Ranks(run.engine, WORLD) as ranks:
        list(ranks.turns(3))
        os.kill(run.engine.pid, signal.SIGSTOP)
        told = run.wait_told(1)
        assert told["alert"] == "engine_silent" and "SIGSTOP" in told["alert_message"]
        os.kill(run.engine.pid, signal.SIGCONT)
        wait_until(lambda: "alert engine_silent is over" in run.engine.log(), "its answer")
        list(ranks.turns(3))
    assert run.alerts() == {"engine_silent": 1} and len(run.told()) == 1


@pytest.mark.skipif(not LONG, reason="RP_LONG=1: pauses grow to 10 seconds")
def test_a_watcher_that_dies_again_and_again_is_given_up(start):
    run = start()
    killed = set()

    def kill_next():
        for pid in children(run.engine.pid):
            killed.add(pid)
            os.kill(pid, 9)
        return "no alerts until the engine is started again" in run.engine.log()

    wait_until(kill_next, "the end of alerts")
    assert 10 <= len(killed) <= 11 and not children(run.engine.pid)
    run.stat()
    assert run.engine.stop() == 0


@pytest.mark.parametrize("words", ["no-such-program", "mail -s x", "./tell"])
def test_a_command_that_is_not_there_is_refused_at_start(program, folder, words):
    stream = Stream(Corpus(folder, [("megatron", "u16", 1, [20])], 3), {})
    path = folder / "config.yaml"
    path.write_text(json.dumps({**stream.config(), "batch_size": 2, "alert_command": words}))
    done = subprocess.run([program, "serve", "-c", path], capture_output=True, text=True)
    assert done.returncode == 2 and "there is no program `" in done.stderr
    assert words.lstrip("./") in done.stderr and "run_dir" not in done.stderr


def test_words_of_a_command(program, folder):
    """As a list, as a text, and as an option: words are separated by commas."""
    path = folder / "config.yaml"

    def shown(value, *options):
        path.write_text(json.dumps({"sources": ["web"], "alert_command": value}))
        command = [program, "config", "show", "-c", path, *options, "alert_command"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        return done.stdout.rstrip("\n") or done.stderr

    assert shown(["mail", "-s", "an alert", "root"]) == "mail,-s,an alert,root"
    assert shown("./page,--to,ops") == f"{folder}/./page,--to,ops"
    assert shown(["sub/page", "/x"]) == f"{folder}/sub/page,/x"
    assert shown("page", "--alert-command=./own,1") == "./own,1"
    assert "cannot contain a comma" in shown(["page", "a,b"])
