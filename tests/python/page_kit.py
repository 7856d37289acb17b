# SPDX-License-Identifier: Apache-2.0
"""Programs and commands on the pages in tools/python/docs."""

import os
import re
import subprocess

from conftest import ROOT

DOCS = ROOT / "tools" / "python" / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
NAME = {"python": re.compile(r"# (\S+\.py)\n"), "c": re.compile(r"/\* (\S+\.c) \*/\n")}


def blocks(page):
    """name -> text of the files, and the script."""
    files, script = {}, ""
    for language, text in BLOCK.findall(page.read_text()):
        if language in NAME:
            name = NAME[language].match(text)
            assert name, f"{page.name}: a {language} block without the name of its file:\n{text}"
            files[name[1]] = text
        elif language == "sh":
            script += text
        elif language == "yaml" and (name := re.match(r"# (\S+\.yaml)\n", text)):
            files[name[1]] = text
    return files, script


def make_corpora(program, folder):
    """`corpus` and `held-out` in a new folder, by the commands on the pages."""
    folder.mkdir()
    script = blocks(DOCS / "flax.md")[1]
    path = os.pathsep.join((os.path.dirname(program), os.environ["PATH"]))
    command = ["sh", "-ec", script[: script.index("python ")]]
    subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, check=True)
