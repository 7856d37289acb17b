# SPDX-License-Identifier: Apache-2.0
"""Whole jobs: a launcher with its ranks and engines, which can all be killed at once."""

import contextlib
import os
import signal
import subprocess
import time

PATIENCE = 600  # seconds until a test gives up; no working wait here takes that long


def children(pid):
    """Of all its threads."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def family(pid):
    """The process and all below it: a launcher gives its ranks sessions of their own."""
    found = [pid]
    for parent in found:
        found += children(parent)
    return found


def kill_family(pid):
    """SIGKILL to all; stopped first, so that no process has a child, or a last word, in between."""
    for sent in signal.SIGSTOP, signal.SIGKILL:
        for member in family(pid):
            try:
                os.kill(member, sent)
            except ProcessLookupError:
                continue


class Job:
    """A command whose output goes into a file; killed with its family at the end of `with`."""

    def __init__(self, command, log, **options):
        self.log = log
        with open(log, "wb") as file:
            self.process = subprocess.Popen(
                [str(word) for word in command], stdout=file, stderr=subprocess.STDOUT, **options
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()

    def output(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def kill(self):
        kill_family(self.process.pid)
        self.process.wait()

    def wait_for(self, condition):
        """Until condition(output) is true; the job must not end before that."""
        deadline = time.monotonic() + PATIENCE
        while not condition(self.output()):
            ended = self.process.poll() is not None and not condition(self.output())
            assert not ended, f"ended with {self.process.returncode}:\n{self.output()}"
            assert time.monotonic() < deadline, f"did not happen in time:\n{self.output()}"
            time.sleep(0.01)

    def comes(self, condition):
        """Whether condition() becomes true before the job ends."""
        deadline = time.monotonic() + PATIENCE
        while not condition() and self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return condition()

    def wait_for_end(self):
        """Its status, however it ends."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"did not end in time:\n{self.output()}") from None

    def finish(self):
        """Its output, once it has ended well."""
        status = self.wait_for_end()
        assert status == 0, f"status {status}:\n{self.output()}"
        return self.output()
