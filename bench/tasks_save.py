# SPDX-License-Identifier: Apache-2.0
"""Full checkpoints while a trainer takes batches: how fast they are written, and if it notices.

A trainer logs when it called next() and how long that took. Meanwhile the engine is asked for
checkpoints again and again, with pauses as long as a checkpoint; so each call of next() was during
one or was not, and the two are compared within one run. Beside each checkpoint the same number of
bytes is written plainly and fsynced, in the same directory.
"""

import contextlib
import mmap
import os
import shutil
import subprocess
import time
from pathlib import Path

import numpy
from engine import PATIENCE, Engine, Failed

PAUSE_SECONDS_MIN = 0.05
WRITE_BYTES = 1 << 20
READ_BYTES = 4 << 20
BATCHES_MAX = 4_000_000
SLOTS = 512  # of 128 KiB: contents of 64 MiB and more


class Save:
    def __init__(self, bench):
        self.ringpack, self.bench = bench.client(), bench
        self.folder = bench.scratch / "saves"
        self.data = b""
        self.buffer = mmap.mmap(-1, READ_BYTES)
        self.rounds = 4 if bench.settings["quick"] else 12

    def _plain_write(self, size):
        """Seconds to write as many bytes and fsync them, with no other care; and to read them back
        past the page cache, which no checked write is without."""
        if len(self.data) < size:
            self.data = numpy.random.default_rng(0).bytes(2 * size)
        data, path = memoryview(self.data), self.folder / "plain"
        begin = time.monotonic()
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        for start in range(0, size, WRITE_BYTES):
            os.write(descriptor, data[start : min(start + WRITE_BYTES, size)])
        os.fsync(descriptor)
        os.close(descriptor)
        written = time.monotonic()
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
        while os.readv(descriptor, [self.buffer]):
            pass
        os.close(descriptor)
        end = time.monotonic()
        path.unlink()
        return written - begin, end - begin

    @contextlib.contextmanager
    def _running(self, log, **options):
        """An engine whose ring is full, and a trainer that takes from it."""
        bench = self.bench
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        bench.warm()
        keys = bench.task(num_epochs="endless", profile="min", prefetch_factor=SLOTS,
                          checkpoint_dir=self.folder)
        arguments = {"run_dir": bench.run_dir, "log": log, "batches": BATCHES_MAX, **options}
        with Engine(bench, keys, "--fresh"):
            time.sleep(0.5)
            trainer = subprocess.Popen(
                [bench.trainer_program, "attach", *(f"{k}={v}" for k, v in arguments.items())],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                yield trainer
            finally:
                trainer.kill()
                trainer.wait()

    def _saves(self):
        """[(begin, end, bytes, (seconds of the plain write, with reading back))], with pauses."""
        found = []
        for _ in range(self.rounds):
            begin = time.monotonic()
            path = self.ringpack.checkpoint("bench", self.bench.run_dir)
            end = time.monotonic()
            time.sleep(max(PAUSE_SECONDS_MIN, end - begin))
            size = Path(path).stat().st_size
            found.append((begin, end, size, self._plain_write(size)))
        return found

    def _calls(self, **options):
        """(ns of calls of next() in the pauses, ns of those during a save, the saves)"""
        log = self.bench.scratch / "next.log"
        with self._running(log, **options) as trainer:
            time.sleep(0.3)
            saves = self._saves()
            trainer.terminate()
            _, complaint = trainer.communicate(timeout=PATIENCE)
            if trainer.returncode:
                raise Failed(f"the trainer: {complaint.strip()}")
        calls = numpy.fromfile(log, "<u8").reshape(-1, 2)
        begins = calls[:, 0] / 1e9
        during, pauses = numpy.zeros(len(calls), bool), numpy.zeros(len(calls), bool)
        for begin, end, _, _ in saves:
            during |= (begins >= begin) & (begins < end)
            pauses |= (begins >= end) & (begins < end + max(PAUSE_SECONDS_MIN, end - begin))
        return calls[pauses, 1], calls[during, 1], saves

    def _compare(self, name, **options):
        pauses, during, saves = self._calls(**options)
        sample = {}
        for percent in 50, 99:
            quiet, saving = numpy.percentile(pauses, percent), numpy.percentile(during, percent)
            sample[f"next_{name}_p{percent}_ns"] = float(quiet)
            sample[f"next_{name}_saving_p{percent}_ns"] = float(saving)
            sample[f"next_{name}_p{percent}_ratio"] = float(saving / quiet)
        return sample, saves

    def steps(self):
        """A trainer that takes a batch every millisecond or so: the ring is full all the time."""
        sample, saves = self._compare("steps", think_us=1000)
        rates = [size / (end - begin) for begin, end, size, _ in saves]
        plain = [size / written for _, _, size, (written, _) in saves]
        checked = [size / read_back for _, _, size, (_, read_back) in saves]
        sample["save_bytes"] = saves[-1][2]
        sample["save_bytes_per_second"] = float(numpy.median(rates))
        sample["plain_write_bytes_per_second"] = float(numpy.median(plain))
        sample["save_per_plain_write"] = float(numpy.median(
            [a / b for a, b in zip(rates, plain)]))
        sample["save_per_checked_write"] = float(numpy.median(
            [a / b for a, b in zip(rates, checked)]))
        return sample

    def flat_out(self):
        """A trainer that takes batches as fast as they come."""
        sample, _ = self._compare("flat_out")
        return sample
