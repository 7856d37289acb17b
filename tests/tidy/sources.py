# SPDX-License-Identifier: Apache-2.0
"""The files that the rules read, and the register of the rules."""

import functools
import glob
import os
import re
import subprocess
from collections import namedtuple

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
C_SOURCE = (".c", ".h", ".cc")
Finding = namedtuple("Finding", "path line text")
# name -> (function(files) -> findings, control: {path: text} that must be flagged)
RULES = {}


def rule(control):
    """Register a rule together with files that it must flag."""

    def register(function):
        RULES[function.__name__] = (function, control)
        return function

    return register


def read_tree():
    """path -> text of every file that git tracks or would track."""
    command = ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"]
    listed = subprocess.run(command, capture_output=True, text=True)
    if listed.returncode == 0:
        paths = [p for p in listed.stdout.split("\0") if p]
    else:  # an unpacked archive
        paths = [os.path.relpath(p, ROOT) for p in glob.glob(f"{ROOT}/**", recursive=True)]
        paths = [p for p in paths if not p.startswith("build/")]
    files = {}
    for path in sorted(paths):
        try:
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                files[path] = file.read()
        except (UnicodeDecodeError, IsADirectoryError, FileNotFoundError):
            continue  # golden binaries
    return files


def lines_of(files, *endings, within=""):
    for path, text in files.items():
        if path.endswith(endings) and path.startswith(within):
            for number, line in enumerate(text.split("\n"), 1):
                yield path, number, line


def blank_out(match):
    return re.sub(r"[^\n]", " ", match.group(0))


@functools.cache
def code_of(text):
    """C without comments and literals; lines keep their numbers."""
    tokens = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(tokens, blank_out, text, flags=re.S)


def code_lines(files, *endings):
    coded = {p: code_of(t) for p, t in files.items() if p.endswith(endings)}
    return lines_of(coded, *endings)
