# SPDX-License-Identifier: Apache-2.0
"""No character of a name of a file or source reaches a terminal as a control character."""

import json
import os
import pty
import subprocess
import sys

import numpy
import pytest
from stream_kit import Engine, write_megatron

RAW = "\u202e"  # turns the direction of the following text
EVIL = RAW + "a\033]0;owned\007\r\u009b31m\nb"
SHOWN = r"a\033]0;owned\007\015\302\23331m"


def controls(text):
    return [letter for letter in text if ord(letter) < 32 or 127 <= ord(letter) < 160]


def on_terminal(*command):
    """A command's output to a terminal, which is its stdout and its stderr."""
    master, slave = pty.openpty()
    with subprocess.Popen([*map(str, command)], stdin=slave, stdout=slave, stderr=slave):
        os.close(slave)
        parts = []
        while True:
            try:
                parts.append(os.read(master, 1 << 16))
            except OSError:  # the last process has closed it
                break
    os.close(master)
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.fixture
def corpus(folder):
    place = folder / EVIL
    place.mkdir()
    write_megatron(place / EVIL, numpy.split(numpy.arange(3000), 6), "u16")
    return place / f"{EVIL}.bin"


def plan_of(corpus, *options):
    source = f"--sources={corpus}"
    return ["plan", source, "--seq-len", "64", "--batch-size", "1", "--rows", "9", *options]


def check(program, corpus):
    commands = [
        ["inspect", corpus],
        ["index", corpus],  # with a line of its progress
        plan_of(corpus),
        plan_of(corpus, "--json"),
        plan_of(corpus, "--no-such-option=\033[2J"),
        plan_of(corpus, "--rows=\033[2J"),
        ["inspect", f"{corpus}.gone"],
        ["config", "show", f"--sources={corpus}"],
        ["\033c"],
    ]
    for command in commands:
        said = on_terminal(program, *command).replace("\r\033[K", "")
        assert set(controls(said)) <= {"\n", "\t"}, (command, said)
    assert SHOWN in on_terminal(program, "inspect", corpus)


def test_names_with_control_characters(program, corpus):
    check(program, corpus)


def piped(program, *command):
    done = subprocess.run([program, *map(str, command)], capture_output=True, check=True)
    return done.stdout.decode()


def test_a_pipe_gets_names_for_people_escaped(program, corpus):
    """A pager, a log or a ticket shows it to somebody."""
    show = ["config", "show", f"--sources={corpus}"]
    for command in (["inspect", corpus], plan_of(corpus), ["index", corpus], show):
        said = piped(program, *command)
        assert set(controls(said)) <= {"\n", "\t"} and RAW not in said, command
    assert SHOWN in piped(program, "inspect", corpus)


def test_a_pipe_gets_names_for_programs_as_they_are(program, corpus):
    assert json.loads(piped(program, "inspect", "--json", corpus))[0]["path"] == str(corpus)
    assert json.loads(piped(program, "inspect", "--js", corpus))[0]["path"] == str(corpus)
    row = ["explain", *plan_of(corpus)[1:6], "--row", "0"]
    assert str(corpus) in piped(program, *row, "--csv").replace('""', '"')
    assert RAW not in piped(program, *row)
    place = corpus.parent.parent
    other = write_megatron(place / f"x{RAW}y", numpy.split(numpy.arange(3000), 6), "u16")
    kept = place / "kept.yaml"
    kept.write_text(piped(program, "config", "init", other))
    assert json.loads(piped(program, "plan", "-c", kept, "--json"))


def test_the_log_of_an_engine(program, folder, corpus):
    config = {"sources": [{"path": str(corpus)}], "seq_len": 64, "batch_size": 1}
    config["checkpoint_dir"] = str(folder / EVIL / "checkpoints")
    engine = Engine(program, folder, config)
    engine.stop()
    log = engine.log()
    assert SHOWN in log and not set(controls(log)) - {"\n"}


def test_controls_are_found(broken, corpus, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "print_control_characters")
    with pytest.raises(AssertionError):
        check(broken, corpus)


def test_progress_of_convert_claims_nothing_before_the_first_token(program, folder, monkeypatch):
    """A worker that has read all bytes, and returns their tokens later."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    made.save(str(folder / "tokenizer.json"))
    (folder / "a.jsonl").write_text('{"text": "b"}\n' * 9)
    slow = folder / "slow"
    pump = "import os, time\nwhile part := os.read(0, 65536): time.sleep(0.5); os.write(1, part)"
    slow.write_text(f"#!/bin/sh\n{sys.executable} \"$@\" | {sys.executable} -c '{pump}'\n")
    slow.chmod(0o755)
    monkeypatch.setenv("RINGPACK_PYTHON", str(slow))
    options = "--tokenizer", folder / "tokenizer.json", "--no-append-eos", "-o", folder / "o"
    lines = on_terminal(program, "convert", *options, folder / "a.jsonl").split("\r\033[K")
    early = [line for line in lines if "converting" in line and " 0 tokens" in line]
    assert early and all("  0 %" in line and "? left" in line for line in early), lines
    assert (folder / "o.bin").stat().st_size == 18
