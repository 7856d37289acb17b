# SPDX-License-Identifier: Apache-2.0
"""Ranks of a training that are forked from this process, which has imported their modules.

Ten seconds of a processor go into `import transformers`, and one into the steps of a test. A rank
sees the environment that torchrun gives to its ranks, and otherwise the same as `python SCRIPT`."""

import multiprocessing.connection
import multiprocessing.context
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

from job_kit import Job, free_port
from warm_python import configure_jax


def run_script(script, options):
    """In a child: as `python SCRIPT OPTIONS`."""
    import torch

    torch.set_num_threads(1)
    configure_jax()
    sys.argv = [str(word) for word in (script, *options)]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(str(script), run_name="__main__")


def launch(ranks, script, options, log, cwd, environment):
    """In a child: its children are the ranks. When one fails, all end."""
    os.setpgid(0, 0)
    os.chdir(cwd)
    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # pytest's are others
    sys.stderr = open(2, "w", buffering=1, closefd=False)
    os.environ.update(environment, WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
    started = []
    for rank in range(ranks):
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        started.append(Forked(target=run_script, args=(script, options)))
        started[-1].start()
    while running := [rank.sentinel for rank in started if rank.exitcode is None]:
        multiprocessing.connection.wait(running)
        if any(rank.exitcode for rank in started):
            os.killpg(0, signal.SIGKILL)


class Forked(multiprocessing.context.ForkProcess):
    """With the words of subprocess.Popen that a Job uses."""

    def poll(self):
        return self.exitcode

    @property
    def returncode(self):
        return self.exitcode

    def wait(self, timeout=None):
        self.join(timeout)
        if self.exitcode is None:
            raise subprocess.TimeoutExpired(self.name, timeout)
        return self.exitcode


class ForkedRanks(Job):
    """`torchrun --standalone --nproc-per-node RANKS SCRIPT OPTIONS`, without torchrun."""

    def __init__(self, ranks, script, options, log, cwd=".", **environment):
        self.log = log
        log.touch()
        port = str(free_port())
        import torch._dynamo  # noqa: F401  the first step of an optimizer does, which takes seconds

        own = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, **environment}
        self.process = Forked(target=launch, args=(ranks, script, options, log, cwd, own))
        self.process.start()
