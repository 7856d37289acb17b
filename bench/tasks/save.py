# SPDX-License-Identifier: Apache-2.0
"""Full checkpoints while a trainer takes batches: how fast they are written, and if it notices.

A trainer logs when it called next() and how long that took. Meanwhile, again and again: a pause as
long as a checkpoint, a checkpoint, and the same bytes written plainly to the same directory:
through the page cache, and past it and read back, by this process, apart from the engine; then the
same in the other order. So each call of next() fell into one of these, and they are compared within
a round.
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
from intervals import Rounds

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


def percentile_of(what, percent):
    """Of the calls that fell into a part of all rounds."""
    return lambda rounds: float(
        numpy.percentile(numpy.concatenate([calls[what] for calls in rounds]), percent))


def ratio_of(what, percent):
    above, below = percentile_of(what, percent), percentile_of("quiet", percent)
    return lambda rounds: above(rounds) / below(rounds)


def calls_in(log, begin, end):
    """How long the calls took that began in this time; where none did, the last one before it,
    which may have lasted through all of it."""
    first, after = numpy.searchsorted(log[:, 0], (1e9 * begin, 1e9 * end))
    after = max(after, 1)
    return log[min(first, after - 1) : after, 1]


class Save:
    def __init__(self, bench):
        self.ringpack, self.bench = bench.client(), bench
        self.folder = bench.scratch / "saves"
        self.data = self.buffer = b""
        self.rounds = bench.settings["saves"]

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
        """The memory that is written and read into exists before the clock runs."""
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

    def _await_first_batch(self, trainer):
        """More batches than the ring holds have been packed when one of them was taken."""
        bench, end = self.bench, time.monotonic() + PATIENCE
        command = bench.program, "stat", "bench", "--json", "--run-dir", bench.run_dir
        while trainer.poll() is None and bench.ask(*command)["batches"] <= SLOTS:
            if time.monotonic() > end:
                raise Failed("the trainer took no batch")
            time.sleep(0.01)

    @staticmethod
    def _quiet(seconds):
        begin = time.monotonic()
        time.sleep(max(PAUSE_SECONDS_MIN, seconds))
        return begin, time.monotonic()

    def _save(self):
        begin = time.monotonic()
        path = self.ringpack.checkpoint("bench", self.bench.run_dir)
        return (begin, time.monotonic()), Path(path).stat().st_size

    def _rounds(self):
        """Before each of the four there is a pause, for the rest of the one before."""
        (begin, end), size = self._save()
        seconds, found = end - begin, []
        for number in range(self.rounds):
            self._need_memory(size)
            parts = [("quiet", lambda: self._quiet(seconds)), ("save", self._save),
                     ("buffered", lambda: self._buffered_write(size)),
                     ("plain", lambda: self._direct_write(size))]
            took = {}
            for name, part in parts[:: 1 if number % 2 == 0 else -1]:
                time.sleep(PAUSE_SECONDS_MIN)
                took[name] = part()
            (begin, end), size = took["save"]
            seconds = end - begin
            first, written, last = took["plain"]
            found.append(Round(size, took["quiet"], (begin, end), (first, last), took["buffered"],
                               written - first, last - written))
        return found

    def _calls(self, name, **options):
        """The times of next() in the meantime, and the rounds."""
        log = self.bench.scratch / "next.log"
        with self._running(log, **options) as trainer:
            self._await_first_batch(trainer)
            time.sleep(0.3)
            rounds = self._rounds()
            trainer.terminate()
            _, complaint = trainer.communicate(timeout=PATIENCE)
            if trainer.returncode:
                raise Failed(f"the trainer: {complaint.strip()}")
        calls = numpy.fromfile(log, "<u8").reshape(-1, 2)
        found = [{what: calls_in(calls, *getattr(r, what)) for what in ("quiet", "save", "plain")}
                 for r in rounds]
        sample = {}
        for p in 50, 99:
            for metric, statistic in (f"p{p}_ns", percentile_of("quiet", p)), \
                                     (f"saving_p{p}_ns", percentile_of("save", p)), \
                                     (f"p{p}_ratio", ratio_of("save", p)), \
                                     (f"plain_p{p}_ratio", ratio_of("plain", p)):
                sample[f"next_{name}_{metric}"] = Rounds(found, statistic)
        return sample, rounds

    def steps(self):
        """A trainer that takes a batch every millisecond or so: the ring is full all the time."""
        sample, rounds = self._calls("steps", think_us=1000)
        saves = [end - begin for begin, end in (r.save for r in rounds)]
        pairs = list(zip(rounds, saves))
        return sample | {
            "save_bytes": rounds[-1].size,
            "save_bytes_per_second": [r.size / s for r, s in pairs],
            "buffered_write_bytes_per_second": [r.size / r.buffered_seconds for r in rounds],
            "plain_write_bytes_per_second": [r.size / r.written_seconds for r in rounds],
            "plain_read_bytes_per_second": [r.size / r.read_seconds for r in rounds],
            "save_per_buffered_write": [r.buffered_seconds / s for r, s in pairs],
            "save_per_plain_write": [r.written_seconds / s for r, s in pairs],
            "save_per_checked_write": [(r.written_seconds + r.read_seconds) / s for r, s in pairs],
            "checked_per_plain_write": [r.written_seconds / (r.written_seconds + r.read_seconds)
                                        for r in rounds],
        }

    def flat_out(self):
        """A trainer that takes batches as fast as they come."""
        sample, _ = self._calls("flat_out")
        return sample
