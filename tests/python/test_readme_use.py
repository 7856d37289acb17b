# SPDX-License-Identifier: Apache-2.0
"""The commands of README.md, section "Use it", are run in their order, as a reader would."""

import os
import re
import sys

from conftest import ROOT
from job_kit import Job

README = (ROOT / "README.md").read_text()

CONFIG = """
run: pretrain
sources: [corpus]
seq_len: 256
batch_size: 2
global_batch_size: 8
num_epochs: endless
checkpoint_dir: checkpoints
checkpoint_steps: 2
"""
BEFORE = "ringpack convert -q --tokenizer bytes -o corpus /usr/share/common-licenses\n"
SERVED = "until ringpack stat pretrain > stat.txt 2>&1; do kill -0 $!; sleep 0.1; done\n"
TRAINED = """ringpack read pretrain --batches 16 > rows.txt
until grep -q saved log.txt; do kill -0 %%; sleep 0.1; done
"""


def commands():
    section = README.split("## Use it")[1].split("\n## ")[0]
    return [line.split("#")[0].strip() for line in re.findall("^    (ringpack .*)", section, re.M)]


def script():
    """serve stays in the background; a trainer takes batches before `stat`."""
    text = BEFORE
    for command in commands():
        is_server = command.startswith("ringpack serve")
        text += f"{command} 2> log.txt &\n{SERVED}{TRAINED}" if is_server else f"{command}\n"
    return text


def run(text, program, folder):
    (folder / "config.yaml").write_text(CONFIG)
    paths = [os.path.dirname(program), os.path.dirname(sys.executable), os.environ["PATH"]]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(paths),
        "XDG_RUNTIME_DIR": str(folder),
    }
    ends_well = "trap 'kill $(jobs -p) 2>/dev/null || :; wait' EXIT\n"
    command = ["bash", "-euo", "pipefail", "-mc", ends_well + text]
    return Job(command, folder / "log", cwd=folder, env=environment)


def test_the_commands_of_use_it(program, folder):
    verbs = [command.split()[1] for command in commands()]
    assert verbs == ["index", "plan", "serve", "stat", "explain", "doctor"]
    with run(script(), program, folder) as job:
        job.finish()
    assert "<html" in (folder / "step.html").read_text()


def test_control_a_command_that_fails_is_seen(program, folder):
    wrong = script().replace("explain checkpoints", "explain nowhere")
    assert wrong != script()
    with run(wrong, program, folder) as job:
        assert job.wait_for_end() != 0
    assert not (folder / "step.html").exists()
