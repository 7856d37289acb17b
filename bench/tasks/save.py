# SPDX-License-Identifier: Apache-2.0
"""Full checkpoints while a trainer takes batches: how fast they are written, and if it notices.

A trainer logs when it called next() and how long that took. Meanwhile, again and again: nothing for
as long as a checkpoint takes, a checkpoint, and the same bytes written plainly to the same
directory: through the page cache, and past it and read back, by us, who have nothing to do with the
engine. So each call of next() fell into one of these, and they are compared within one run.
"""

import contextlib
import mmap
import os
import shutil
import subprocess
import time
from collections import namedtuple
from pathlib import Path

import numpy
from engine import PATIENCE, Engine, Failed

PAUSE_SECONDS_MIN = 0.05
WRITE_BYTES = 1 << 20
BATCHES_MAX = 4_000_000
SLOTS = 1024  # of 32 Ki tokens, kept as 2 bytes each: contents of 64 MiB and more

# Times as (begin, end) of time.monotonic(); of the plain writes, the one past the page cache.
Round = namedtuple("Round", "size quiet save plain buffered_seconds written_seconds read_seconds")


def huge_pages(size):
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return numpy.frombuffer(memory, numpy.uint8)


def median_of(values):
    return float(numpy.median(list(values)))


class Save:
    def __init__(self, bench):
        self.ringpack, self.bench = bench.client(), bench
        self.folder = bench.scratch / "saves"
        self.data = self.buffer = b""
        self.rounds = 4 if bench.settings["quick"] else 16

    @contextlib.contextmanager
    def _plain_file(self, flags=0):
        path = self.folder / "plain"
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | flags, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
            path.unlink()

    def _buffered_write(self, size):
        """Seconds to write as many bytes and fsync them as most programs do."""
        begin = time.monotonic()
        with self._plain_file() as descriptor:
            for start in range(0, size, WRITE_BYTES):
                os.write(descriptor, self.data[start : min(start + WRITE_BYTES, size)])
            os.fsync(descriptor)
            return time.monotonic() - begin

    def _direct_write(self, size):
        """The same past the page cache, from huge pages and as one, which is the fastest way; and
        seconds to read it back like that, which no checked write is without."""
        begin = time.monotonic()
        with self._plain_file(os.O_DIRECT) as descriptor:
            os.posix_fallocate(descriptor, 0, size)
            put = os.pwrite(descriptor, self.data[:size], 0)
            os.fsync(descriptor)
            written = time.monotonic()
            got = os.preadv(descriptor, [self.buffer[:size]], 0)
            end = time.monotonic()
        if put != size or got != size:
            raise Failed("the plain write was cut short")
        return begin, written, end

    def _need_memory(self, size):
        """What is written and read into is there before the clock runs."""
        if len(self.data) < size:
            self.data, self.buffer = huge_pages(2 * size), huge_pages(2 * size)
            self.data[:] = numpy.frombuffer(numpy.random.default_rng(0).bytes(2 * size), "u1")
            self.buffer[:] = self.data

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

    def _save(self):
        begin = time.monotonic()
        path = self.ringpack.checkpoint("bench", self.bench.run_dir)
        return (begin, time.monotonic()), Path(path).stat().st_size

    def _rounds(self):
        """Before each of the four there is a pause, for what the one before leaves to be done."""
        (begin, end), size = self._save()
        found = []
        for _ in range(self.rounds):
            self._need_memory(size)
            time.sleep(PAUSE_SECONDS_MIN)
            quiet = time.monotonic()
            time.sleep(max(PAUSE_SECONDS_MIN, end - begin))
            quiet = quiet, time.monotonic()
            (begin, end), size = self._save()
            time.sleep(PAUSE_SECONDS_MIN)
            buffered = self._buffered_write(size)
            time.sleep(PAUSE_SECONDS_MIN)
            first, written, last = self._direct_write(size)
            found.append(Round(size, quiet, (begin, end), (first, last), buffered, written - first,
                               last - written))
        return found

    def _calls(self, name, **options):
        """What became of next() in the meantime, and the rounds."""
        log = self.bench.scratch / "next.log"
        with self._running(log, **options) as trainer:
            time.sleep(0.3)
            rounds = self._rounds()
            trainer.terminate()
            _, complaint = trainer.communicate(timeout=PATIENCE)
            if trainer.returncode:
                raise Failed(f"the trainer: {complaint.strip()}")
        calls = numpy.fromfile(log, "<u8").reshape(-1, 2)
        begins = calls[:, 0] / 1e9
        sample = {}
        for percent in 50, 99:
            found = {}
            for what in "quiet", "save", "plain":
                inside = numpy.zeros(len(calls), bool)
                for begin, end in (getattr(r, what) for r in rounds):
                    inside |= (begins >= begin) & (begins < end)
                found[what] = float(numpy.percentile(calls[inside, 1], percent))
            sample[f"next_{name}_p{percent}_ns"] = found["quiet"]
            sample[f"next_{name}_saving_p{percent}_ns"] = found["save"]
            sample[f"next_{name}_p{percent}_ratio"] = found["save"] / found["quiet"]
            sample[f"next_{name}_plain_p{percent}_ratio"] = found["plain"] / found["quiet"]
        return sample, rounds

    def steps(self):
        """A trainer that takes a batch every millisecond or so: the ring is full all the time."""
        sample, rounds = self._calls("steps", think_us=1000)
        saves = [end - begin for begin, end in (r.save for r in rounds)]
        return sample | {
            "save_bytes": rounds[-1].size,
            "save_bytes_per_second": median_of(r.size / s for r, s in zip(rounds, saves)),
            "buffered_write_bytes_per_second": median_of(
                r.size / r.buffered_seconds for r in rounds),
            "plain_write_bytes_per_second": median_of(r.size / r.written_seconds for r in rounds),
            "plain_read_bytes_per_second": median_of(r.size / r.read_seconds for r in rounds),
            "save_per_buffered_write": median_of(
                r.buffered_seconds / s for r, s in zip(rounds, saves)),
            "save_per_plain_write": median_of(r.written_seconds / s for r, s in zip(rounds, saves)),
            "save_per_checked_write": median_of(
                (r.written_seconds + r.read_seconds) / s for r, s in zip(rounds, saves)),
            "checked_per_plain_write": median_of(
                r.written_seconds / (r.written_seconds + r.read_seconds) for r in rounds),
        }

    def flat_out(self):
        """A trainer that takes batches as fast as they come."""
        sample, _ = self._calls("flat_out")
        return sample
