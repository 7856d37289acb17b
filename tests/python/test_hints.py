# SPDX-License-Identifier: Apache-2.0
"""The command that a message names can be typed as it is, whatever the names of files are."""

import re
import shlex
import subprocess

import numpy
import pytest
from refusal_kit import run
from stream_kit import write_megatron

NAMES = ["it's my data", 'a "b" $HOME', "-x;rm", "a&b(c)"]


def commands(said):
    return [shlex.split(command) for command in re.findall(r"`(ringpack [^`]*)`", said)]


@pytest.mark.parametrize("name", NAMES)
def test_paths_in_hints_are_words_of_a_shell(program, folder, name):
    place = folder / name
    place.mkdir()
    lines = place / "x y.jsonl"
    lines.write_text('{"text": "x"}\n')
    done = run(program, "inspect", lines)
    assert [command[-1] for command in commands(done.stderr)] == [str(lines)]
    tokens = numpy.arange(3000)
    path = place / "x.bin"
    write_megatron(place / "x", numpy.split(tokens, 6), "u16")
    subprocess.run([program, "index", "-q", path], check=True)
    path.write_bytes(path.read_bytes()[:-2] + b"\1\1")
    done = run(program, "inspect", path)
    [command] = [words for words in commands(done.stderr) if words[1] == "index"]
    assert command == ["ringpack", "index", str(path)]
    subprocess.run([program, *command[1:], "-q"], check=True)


def test_a_path_with_control_characters_is_a_word_of_a_shell(program, folder):
    """As bash has it, whose quotes with escapes shlex does not know."""
    lines = folder / "a\033[31m\nit's\\b \u009b.jsonl"
    lines.write_text('{"text": "x"}\n')
    done = run(program, "inspect", lines)
    [command] = re.findall(r"`ringpack ([^`]*)`", done.stderr)
    words = ["bash", "-c", f"printf '%s\\0' {command}"]
    done_by_shell = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done_by_shell.stdout.split("\0")[-2] == str(lines)


def test_a_path_that_is_too_long_for_a_hint(program, folder):
    """A command that is cut would be another; the message has the path."""
    place = folder / ("it's " * 40) / ("long " * 40)
    place.mkdir(parents=True)
    lines = place / "x.jsonl"
    lines.write_text('{"text": "x"}\n')
    done = run(program, "inspect", lines)
    assert str(lines) in done.stderr
    assert [command[-1] for command in commands(done.stderr)] == ["PATH"]


def test_a_path_that_begins_with_a_dash(program, folder):
    (folder / "-x.jsonl").write_text('{"text": "x"}\n')
    done = run(program, "inspect", "--", "-x.jsonl", cwd=folder)
    assert [command[-1] for command in commands(done.stderr)] == ["./-x.jsonl"]
