# SPDX-License-Identifier: Apache-2.0
"""The log of an engine: its forms, and the events that the documentation lists."""

import json
import os
import re
import socket
import subprocess

import pytest
from conftest import ROOT
from stream_kit import Corpus, Engine, Ranks, Stream

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
EVENT = re.compile(r'X\((\w+), (ERROR|WARNING|INFO),[\s\\]+"([^"]*)"\)')


def events():
    """Name, level and meaning, of the engine's table."""
    text = (ROOT / "engine" / "base" / "log.h").read_text()
    return [(name, level.lower(), meaning) for name, level, meaning in EVENT.findall(text)]


def test_the_documentation_has_every_event():
    page = (ROOT / "tools" / "python" / "docs" / "log.md").read_text().split("## Events")[1]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \|$", page, re.M)
    assert rows == events() and len(rows) > 15
    folders = ROOT / "engine", ROOT / "tools" / "ringpack"
    code = "".join(path.read_text() for folder in folders for path in folder.rglob("*.c"))
    used = set(re.findall(r"rp_log_event\(\s*RP_EVENT_(\w+)", code))
    assert used == {name for name, _, _ in events()}, "an event that is not logged, or not listed"


def run_once(program, folder, **keys):
    """The lines of an engine that starts, serves a trainer, saves and stops."""
    stream = Stream(Corpus(folder, [("megatron", "u16", 1, [30])], 5), {"num_epochs": 2})
    place = {"checkpoint_dir": str(folder / "kept \"\\\x01"), "batch_size": 2}
    engine = Engine(program, folder, {**stream.config(), **place, **keys})
    with Ranks(engine) as ranks:
        ranks.turn()
        engine.checkpoint()
    assert engine.stop() == 0
    return engine.log().splitlines()


def test_json(program, folder):
    levels = {name: level for name, level, _ in events()}
    lines = [json.loads(line) for line in run_once(program, folder, log_format="json")]
    for line in lines:
        assert list(line) == ["time", "level", "event", "pid", "message"]
        assert re.fullmatch(TIME, line["time"])
        assert line["level"] == levels.get(line["event"], line["level"])
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    names = [line["event"] for line in lines if line["event"]]
    for name in "started_at_row_0", "serving", "attached", "saved", "detached", "stopping":
        assert name in names, names
    (saved, *_) = [line["message"] for line in lines if line["event"] == "saved"]
    assert 'kept "\\\x01/checkpoint-' in saved, "escapes"
    date = subprocess.run(["date", "-u", "+%Y-%m-%dT%H"], capture_output=True, text=True).stdout
    assert lines[-1]["time"][:13] <= date.strip() and lines[0]["time"][:10] >= "2024-01-01"


@pytest.mark.parametrize("form", ["text", "plain"])
def test_text(program, folder, form):
    start = f"{TIME} ringpack: " if form == "text" else "ringpack: "
    lines = run_once(program, folder, log_format=form)
    assert all(re.match(start, line) for line in lines), lines
    assert any(re.match(start + "warning: no checkpoint in", line) for line in lines)


def test_the_journal(program, folder):
    """systemd says which descriptor is the journal: levels are priorities, and it has the time."""
    stream = Stream(Corpus(folder, [("megatron", "u16", 1, [30])], 5))
    config = folder / "config.yaml"
    keys = {"batch_size": 2, "checkpoint_dir": str(folder / "kept")}
    config.write_text(json.dumps({**stream.config(), **keys}))
    ours, theirs = socket.socketpair()
    info = os.fstat(theirs.fileno())
    for named, begin in (f"{info.st_dev}:{info.st_ino}", "<4>"), ("1:2", ""):
        command = [program, "serve", "-c", config, "--run-dir", folder, "--lifeline", "0"]
        environment = {**os.environ, "JOURNAL_STREAM": named}
        # its standard input is a pipe whose other end is closed
        with subprocess.Popen(["true"], stdout=subprocess.PIPE) as gone:
            subprocess.run(command, stdin=gone.stdout, stderr=theirs, env=environment, timeout=600)
        lines = ours.recv(1 << 16).decode().splitlines()
        warnings = [line for line in lines if "starting at row 0" in line]
        assert len(warnings) == 1 and re.match(begin or TIME, warnings[0]), lines
        for path in (folder / "kept").glob("*"):
            path.unlink()
