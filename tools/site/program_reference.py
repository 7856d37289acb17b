# SPDX-License-Identifier: Apache-2.0
"""The program's help of its verbs and of the keys of a config, as pages of the site."""

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
        text = said(program, "help", verb)
        parts.append(f"## {verb}\n\n{purpose[0].upper()}{purpose[1:]}.\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


KEY = re.compile(r"^  ([a-z_]+) +(\S.*)\n {25}(.*)$", re.M)


def keys_page(program):
    """A heading for each key, so that each can be linked to."""
    keys, *nested = re.split(r"^(?=KEYS OF )", said(program, "config", "keys"), flags=re.M)
    return (
        "# Every key\n\nThe keys of a config, as `ringpack config keys` and the manual page "
        "`ringpack.yaml(5)` have them. Each is an option of `ringpack serve` too, with dashes for "
        "underscores, and an argument of `ringpack.Loader`.\n\n"
        f"{described(keys)}{''.join(map(nested_part, nested))}"
    )


def nested_part(text):
    title, about = text.split("\n")[:2]
    return f"# {title.capitalize()}\n\n{about}\n\n{described(text)}"


def described(text):
    parts = []
    for name, purpose, kind in KEY.findall(text):
        parts.append(
            f"## `{name}`\n\n{purpose[0].upper()}{purpose[1:]}.\n\n"
            f"{kind.replace('|', ' | ')}.\n\n"
        )
    return "".join(parts)
