# SPDX-License-Identifier: Apache-2.0
"""The programs under measurement: start them, time them, and read their CPU time."""

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from intervals import interval_of_median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools" / "python"))

PATIENCE = 120  # seconds until something that should have happened is an error


class Failed(Exception):
    """A program failed, or a check did."""


def summarise(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "interval": interval_of_median(values), "count": len(values), "values": values}


def options_of(keys):
    return [f"--{key.replace('_', '-')}={value}" for key, value in keys.items()]


def field_of(path, name):
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.split(":", 1)[1].strip()
    return "unknown"


class Engine:
    """`ringpack serve`, from its start until it has ended and its CPU time is known."""

    def __init__(self, bench, keys, *options):
        read, write = os.pipe()
        life_end, self.lifeline = os.pipe()  # so that it ends with this process, however that ends
        keys = {"run": "bench", "run_dir": bench.run_dir, **keys}
        command = [bench.program, "serve", "--ready-fd", str(write), *options]
        command += ["--lifeline", str(life_end)]
        for key, value in keys.items():
            command += [f"--{key.replace('_', '-')}", str(value)]
        self.log = open(bench.scratch / f"{keys['run']}.log", "w+b")
        self.begin = time.monotonic()
        self.process = subprocess.Popen(
            command, stdout=self.log, stderr=self.log, pass_fds=[write, life_end]
        )
        os.close(write)
        os.close(life_end)
        self.usage = None
        try:
            with open(read, "rb") as pipe:
                if pipe.readline() != b"ready\n":
                    self.end()
                    raise Failed(f"the engine did not start: {self.said()}")
        except BaseException:
            self.kill()
            raise
        self.ready = time.monotonic()

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace").strip()

    def first_words(self):
        """The first line of its log, without the time."""
        return self.said().splitlines()[0].partition("ringpack: ")[2]

    def end(self):
        """Wait for its own end."""
        deadline = time.monotonic() + PATIENCE
        while self.usage is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.usage = usage
                os.close(self.lifeline)
                self.process.returncode = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > deadline:
                self.process.kill()
                raise Failed(f"the engine does not end: {self.said()}")
            else:
                time.sleep(0.001)
        return self.usage

    def kill(self):
        if self.usage is None:
            os.kill(self.process.pid, signal.SIGKILL)  # Popen's own would reap it, usage and all
            self.end()

    @property
    def cpu_seconds(self):
        return self.usage.ru_utime + self.usage.ru_stime

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.log.close()


class Bench:
    """The places of programs and files, and the checks and notes of a run."""

    def __init__(self, build, data, settings):
        build = Path(build).resolve()
        self.program = str(build / "bin" / "ringpack")
        self.loop_program = str(build / "bin" / "ringpack_loop")
        self.trainer_program = str(build / "bin" / "ringpack_trainer")
        self.library = str(build / "lib" / "libringpack.so")
        self.scratch = Path(data).resolve() / "scratch"
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        self.run_dir = str(self.scratch / "run")
        os.mkdir(self.run_dir, 0o700)
        os.environ["XDG_STATE_HOME"] = str(self.scratch / "state")  # and not the user's home
        self.settings, self.checks, self.notes = settings, {}, []

    def task(self, **more):
        """The keys of the one task that is measured everywhere."""
        s = self.settings
        return {"sources": s["corpus"], "seq_len": s["seq_len"], "batch_size": s["batch_size"],
                "packing": s["packing"], "num_epochs": s["epochs"], "stream_version": 2, **more}

    def warm(self):
        """The corpus into the page cache, after a task that has thrown it out."""
        with open(self.settings["corpus"], "rb", buffering=0) as file:
            buffer = bytearray(1 << 24)
            while file.readinto(buffer):
                pass

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def check(self, name, expected, found):
        """Every value of that name must be the same; the first one is compared with the others."""
        entry = self.checks.setdefault(name, {"value": expected, "times": 0})
        if entry["value"] != expected or expected != found:
            raise Failed(f"{name}: expected {entry['value']}, found {found}")
        entry["times"] += 1

    def ask(self, *command):
        """Run a program of ours to its end; its JSON."""
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE * 5)
        if done.returncode:
            raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def run(self, *arguments):
        """Run the program to its end."""
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"ringpack {arguments[0]}: {done.stderr.strip()}")

    def loop(self, stages, keys):
        return self.ask(self.loop_program, stages, *(f"{k}={v}" for k, v in keys.items()))

    def limits(self, keys):
        """The limits of this machine, with the corpus in the page cache."""
        return self.ask(self.program, "bench", "--limits", "--hot", "--json",
                        f"--seconds={self.settings['limit_seconds']}", *options_of(keys))

    def client(self):
        """The Python package, with the programs that are measured."""
        os.environ["RINGPACK"] = self.program
        os.environ["RINGPACK_LIBRARY"] = self.library
        import ringpack

        return ringpack

    def trainer_of(self, action, **keys):
        return self.ask(self.trainer_program, action, *(f"{k}={v}" for k, v in keys.items()))

    def plan(self, keys, rows="1g"):
        return self.ask(self.program, "plan", "--json", f"--rows={rows}", *options_of(keys))

    @contextlib.contextmanager
    def trainer(self, *options):
        """`ringpack attach`; yields a function that returns its report, with seconds to wait for it
        at most (subprocess.TimeoutExpired)."""
        command = [self.program, "read", "bench", "--run-dir", self.run_dir, "--json", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        try:
            yield lambda most=PATIENCE * 5: self._report_of(process, most)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    @staticmethod
    def _report_of(process, most):
        said, complaint = process.communicate(timeout=most)
        if process.returncode:
            raise Failed(f"ringpack attach: {complaint.strip()}")
        return json.loads(said)
