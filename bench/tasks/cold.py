# SPDX-License-Identifier: Apache-2.0
"""The corpus on the disk, read past the page cache, beside what fio reads from the same file."""

import contextlib
import json
import os
import resource
import shutil
import subprocess
import time
from pathlib import Path

from corpora.token_corpus import aligned_reads
from engine import Engine, Failed

BLOCK = 4096
FIO_SECONDS = 2
HUGE_PAGES = 64
SIZES_MAX = 60  # fio takes at most 64 in a bssplit


def split_of(reads):
    """fio's bssplit for so many reads of such sizes; percentages are whole, and add up to 100."""
    total, sizes = sum(reads.values()), sorted(reads)
    exact = {size: 100 * reads[size] / total for size in sizes}
    kept = {size: int(share) for size, share in exact.items() if share >= 1}
    while sum(kept.values()) < 100:
        size = max(kept, key=lambda s: exact[s] - kept[s])
        kept[size] += 1
    return ":".join(f"{size}/{share}" for size, share in list(kept.items())[:SIZES_MAX])


class Cold:
    def __init__(self, bench):
        self.bench = bench
        self.corpus = bench.settings["corpus"]
        self.reads = aligned_reads(self.corpus, BLOCK)
        self.tokens = Path(self.corpus).stat().st_size // 2
        self.bytes_per_token = sum(s * n for s, n in self.reads.items()) / self.tokens
        self.fio_program = shutil.which("fio")
        self.memory = None
        if not self.fio_program:
            bench.note("fio is not installed: the disk's limits are left out (apt-get install fio)")

    def _forget(self):
        descriptor = os.open(self.corpus, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)

    @contextlib.contextmanager
    def huge_pages(self):
        """Huge pages for fio's buffers, where this may be asked for; given back afterwards."""
        knob = Path("/proc/sys/vm/nr_hugepages")
        before = int(knob.read_text())
        lent = False
        if self.fio_program and before < HUGE_PAGES:
            with contextlib.suppress(OSError):
                knob.write_text(str(HUGE_PAGES))
                lent = True
        try:
            yield
        finally:
            if lent:
                knob.write_text(str(before))

    # ---- fio -------------------------------------------------------------------------------------

    def _run_fio(self, memory, options):
        command = [self.fio_program, "--name=bench", f"--filename={self.corpus}", "--readonly",
                   "--ioengine=io_uring", "--direct=1", f"--iomem={memory}", "--time_based",
                   f"--runtime={FIO_SECONDS}", "--output-format=json", *options]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = done.stdout.find("{")
        try:
            job = json.loads(done.stdout[start:])["jobs"][0]
        except (ValueError, KeyError):
            return None
        if done.returncode or job["error"]:
            return None
        cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
        return job["read"], cpu

    def _best_fio(self, options):
        """With huge-page buffers where the machine has any, ordinary ones where it has not."""
        for memory in [self.memory] if self.memory else ["shmhuge", "mmap"]:
            found = self._run_fio(memory, options)
            if found:
                self.memory = memory
                if memory != "shmhuge":
                    self.bench.note("fio ran without huge pages, so its figures are no limit: as "
                                    "root, or with vm.nr_hugepages of 64 or more, it has them")
                return found
        raise Failed("fio cannot read the corpus by io_uring with --direct=1")

    def fio(self):
        if not self.fio_program:
            return {}
        with self.huge_pages():
            return self._limits_of_disk()

    def _limits_of_disk(self):
        sample = {}
        runs = [self._best_fio(["--rw=read", f"--bs={size}", "--iodepth=32"])
                for size in ("256k", "1m")]
        read, cpu = max(runs, key=lambda run: run[0]["bw_bytes"])
        sample["fio_sequential"] = read["bw_bytes"] / 2
        sample["fio_sequential_bytes_per_second"] = read["bw_bytes"]
        sample["fio_sequential_cpu"] = 1e9 * cpu / (read["io_bytes"] / 2)
        split = split_of(self.reads)
        read, cpu = self._best_fio(["--rw=randread", f"--bssplit={split}", f"--blockalign={BLOCK}",
                                    "--iodepth=64"])
        sample["fio_random"] = read["bw_bytes"] / self.bytes_per_token
        sample["fio_random_iops"] = read["iops"]
        sample["fio_random_cpu"] = 1e9 * cpu / (read["io_bytes"] / self.bytes_per_token)
        return sample

    # ---- ringpack --------------------------------------------------------------------------------

    def _run(self, keys, *options):
        """A trainer's report, the seconds that it took and the CPU seconds of the engine."""
        self._forget()
        with Engine(self.bench, keys, "--fresh") as engine:
            with self.bench.trainer(*options) as report:
                found = report()
                seconds = time.monotonic() - engine.ready
            engine.end()
            self.bench.note(f"past it: {engine.said().splitlines()[0]}")
            return found, seconds, engine.cpu_seconds

    def _drain(self, shuffle, **more):
        bench = self.bench
        keys = bench.task(shuffle=shuffle, profile="min", direct="on", **more)
        found, seconds, cpu = self._run(keys)
        digest = self._run(keys, "--digest")[0]["digest"]
        name = f"digest, cold, shuffle {shuffle}"
        if name not in bench.checks:
            loop = bench.limits("digest", {k: v for k, v in keys.items() if k != "direct"})
            bench.check(name, loop["digest"]["digest"], digest)
        else:
            bench.check(name, bench.checks[name]["value"], digest)
        return {f"cold_{shuffle}": found["tokens"] / seconds,
                f"cold_{shuffle}_cpu": 1e9 * cpu / found["tokens"]}

    def block(self):
        return self._drain("block")

    def document(self):
        return self._drain("document", num_epochs=1)
