# SPDX-License-Identifier: Apache-2.0
"""What names of files and sources hold reaches no terminal as a control character."""

import json
import os
import pty
import subprocess
import sys

import numpy
import pytest
from stream_kit import Engine, write_megatron

EVIL = "a\033]0;owned\007\r\u009b31m\nb"
SHOWN = r"a\033]0;owned\007\015\302\23331m"


def controls(text):
    return [letter for letter in text if ord(letter) < 32 or 127 <= ord(letter) < 160]


def on_terminal(*command):
    """What a command writes to a terminal, which is its stdout and its stderr."""
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


def test_a_pipe_gets_names_as_they_are(program, corpus):
    done = subprocess.run([program, "inspect", corpus], capture_output=True, check=True)
    assert str(corpus).encode() in done.stdout
    done = subprocess.run([program, "inspect", "--json", corpus], capture_output=True, check=True)
    assert json.loads(done.stdout)[0]["path"] == str(corpus)


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
