# SPDX-License-Identifier: Apache-2.0
"""Whole jobs: a launcher with its ranks and engines, which can all be killed at once."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import time

PATIENCE = 600  # seconds until a test gives up; no working wait here takes that long


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


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


def lives_through_a_kill(start, line, steps, whole=None):
    """A training has the losses of an uninterrupted one when it is killed in a step and resumed.

    start(folder, log): a Job that trains and saves in that folder, and resumes from it.
    line: a pattern of the lines of its output, of two groups: (step) and (losses).
    whole: losses by step of an uninterrupted training. Default: one is run. Returned."""

    def seen(output):
        return dict(re.findall(line, output, re.M))

    if whole is None:
        with start("whole", "whole.log") as job:
            whole = seen(job.finish())
    with start("killed", "killed.log") as job:
        job.wait_for(lambda output: len(seen(output)) >= 3)  # the first save is done
        job.kill()
        killed = seen(job.output())
    with start("killed", "resumed.log") as job:
        resumed = seen(job.finish())
    assert list(whole) == [str(step) for step in range(1, steps + 1)]
    assert len({*whole.values()}) == steps, "the losses of all steps differ"
    assert killed.items() <= whole.items(), f"other losses before the kill: {killed}, {whole}"
    assert resumed.items() <= whole.items(), f"other losses once resumed: {resumed}, {whole}"
    assert killed.keys() | resumed.keys() == whole.keys() and len(resumed) < steps
    return whole
