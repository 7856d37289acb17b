# SPDX-License-Identifier: Apache-2.0
"""Alerts of a real engine: each fires once for its incident, none without one, and no command
keeps the engine from serving. unit/test_alert.c has weeks of incidents under its own clock."""

import json
import os
import subprocess
import threading
import time

import pytest
import ringpack
from stream_kit import LONG, PATIENCE, Corpus, Engine, Ranks, Stream, wait_until

KINDS = ["starved", "skew", "disk_free", "save_failed", "copy_failed", "engine_failed"]
ROWS, WORLD = 2, 2
TELL = """#!{python} -S
import json, os
names = [name for name in os.environ if name.startswith("RINGPACK_ALERT")]
told = {{name[9:].lower(): os.environ[name] for name in names}}
with open({path!r}, "a") as file:
    file.write(json.dumps(told) + "\\n")
"""


class Run:
    """An engine of two ranks with alerts, and what its command was told."""

    def __init__(self, program, folder, **keys):
        self.folder, self.kept = folder, folder / "kept"
        self.stream = Stream(Corpus(folder, [("megatron", "u16", 1, [200])], 3), {"num_epochs": 90})
        self.pages, self.tell = folder / "pages", folder / "tell it"
        self.tell.write_text(TELL.format(python=os.sys.executable, path=str(self.pages)))
        self.tell.chmod(0o755)
        config = {
            **self.stream.config(),
            "batch_size": ROWS,
            "dp_world_size": WORLD,
            "checkpoint_dir": str(self.kept),
            "checkpoint_copy_dir": str(folder / "copied"),
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
        assert [commands[kind] for kind in KINDS] == [1, 1, 0, 1, 0, 0]
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
    assert run.alerts() == {"disk_free": 1}
    done = threading.Event()

    def read():
        with Ranks(run.engine, WORLD) as ranks:
            list(ranks.turns(50))
        run.stat()
        done.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return done


def children(run):
    path = f"/proc/{run.engine.pid}/task"
    found = [open(f"{path}/{task}/children").read().split() for task in os.listdir(path)]
    return [int(pid) for each in found for pid in each]


def test_nobody_waits_for_a_command_that_hangs(start):
    run = start(**HANG)
    wait_until(lambda: children(run), "the command")
    assert answers_during(run).wait(PATIENCE)
    (pid,) = children(run)
    os.kill(pid, 9)
    wait_until(lambda: run.stat()["alerts"][2]["command_failures"] == 1, "its end")
    assert "alert_command: " in run.engine.log() and "ended with signal 9" in run.engine.log()


def test_an_engine_that_waits_for_its_command_is_noticed(start, broken, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "wait_for_alert_command")
    run = start(of=broken, **HANG)
    wait_until(lambda: children(run), "the command")
    asked = threading.Event()
    threading.Thread(target=lambda: (run.stat(), asked.set()), daemon=True).start()
    assert not asked.wait(1), "it does not wait"
    for pid in children(run):
        os.kill(pid, 9)
    assert asked.wait(PATIENCE)


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
