# SPDX-License-Identifier: Apache-2.0
"""What the program says of its verbs and of the keys of a config, as pages of the site."""

import re
import subprocess


def said(program, *words):
    environment = {"COLUMNS": "100", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([program, *words], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{program} {' '.join(words)}: {done.stderr}")
    return done.stdout.rstrip()


def verbs_of(program):
    """(verb, its purpose)."""
    return re.findall(r"^  ([a-z]+) +(\S.*)$", said(program, "help"), re.M)


def verbs_page(program):
    verbs = verbs_of(program)
    parts = [
        "# The program\n\nWhat `ringpack help` and `ringpack help VERB` print; the manual pages "
        "`ringpack(1)` and `ringpack-VERB(1)` are made from the same text.\n",
        f"```text\n{said(program, 'help')}\n```\n",
    ]
    for verb, purpose in verbs:
        text = without_keys(said(program, "help", verb))
        parts.append(f"## {verb}\n\n{purpose[0].upper()}{purpose[1:]}.\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def without_keys(text):
    """Verbs that take a config list all of its keys, which have a page of their own."""
    begin = re.search(r"^ Keys of the config:$", text, re.M)
    if not begin:
        return text
    end = re.search(r"^ {0,2}(-\?, |\S)", text[begin.end() :], re.M)
    rest = text[begin.end() + end.start() :] if end else ""
    said_of_keys = " Keys of the config: as options; the page of keys has them"
    return f"{text[: begin.start()]}{said_of_keys}\n\n{rest}"


def keys_page(program):
    return (
        "# Every key\n\nThe keys of a config, as `ringpack config keys` and the manual page "
        "`ringpack.yaml(5)` have them. Each is an option of `ringpack serve` too, with dashes for "
        "underscores, and an argument of `ringpack.Loader`.\n\n"
        f"```text\n{said(program, 'config', 'keys')}\n```\n"
    )
