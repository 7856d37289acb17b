# SPDX-License-Identifier: Apache-2.0
"""The corpus on the disk, read past the page cache, against fio on the same file."""

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from corpora.token_corpus import aligned_reads
from engine import Engine, Failed, field_of
from slices import EngineSide, LoopSide, cpu, rates, ratios, side_by_side, take_turns

BLOCK = 4096
PAST_CACHE = {"io": "io_uring", "o_direct": "on"}  # `auto` maps whatever the page cache holds
FIO_MS = 300  # a run that chooses the size of reads
PART_MS = 500  # a slice's part: each starts fio again
DEPTH = 128  # reads in flight: as many as the engine has of files (io_depth)
HUGE_PAGES = 64
SIZES_MAX = 60  # fio takes at most 64 in a bssplit


def split_of(reads):
    """fio's bssplit for numbers of reads of these sizes; percentages are whole, and add up to
    100."""
    total, sizes = sum(reads.values()), sorted(reads)
    exact = {size: 100 * reads[size] / total for size in sizes}
    kept = {size: int(share) for size, share in exact.items() if share >= 1}
    while sum(kept.values()) < 100:
        size = max(kept, key=lambda s: exact[s] - kept[s])
        kept[size] += 1
    return ":".join(f"{size}/{share}" for size, share in list(kept.items())[:SIZES_MAX])


class FioSide:
    """fio by turns with others. Its clock and CPU time are those of its own thread that reads, so
    its start is not counted."""

    def __init__(self, name, cold, options, bytes_per_token):
        self.name, self.cold, self.options = name, cold, options
        self.bytes_per_token = bytes_per_token

    def run(self, ms):
        job = self.cold.run_fio(ms, self.options)
        read, busy = job["read"], (job["usr_cpu"] + job["sys_cpu"]) / 100
        seconds = read["runtime"] / 1000
        return {"tokens": read["io_bytes"] / self.bytes_per_token, "seconds": seconds,
                "cpu_seconds": busy * seconds, "bytes": read["io_bytes"],
                "reads": read["total_ios"]}

    def check(self):
        """fio has no tokens that could be checked."""

    def close(self):
        """It ends after each slice."""


class Cold:
    def __init__(self, bench):
        self.bench = bench
        self.corpus = bench.settings["corpus"]
        self.reads = aligned_reads(self.corpus, BLOCK)
        self.tokens = Path(self.corpus).stat().st_size // 2
        self.bytes_per_token = sum(s * n for s, n in self.reads.items()) / self.tokens
        self.fio_program = shutil.which("fio")
        self.memory, self.digested = None, set()
        if not self.fio_program:
            bench.note("fio is not installed: the disk's limits are left out (apt-get install fio)")

    def _forget(self):
        descriptor = os.open(self.corpus, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)

    @contextlib.contextmanager
    def huge_pages(self):
        """Huge pages for fio's buffers, if this is permitted; given back afterwards."""
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

    def _try_fio(self, memory, ms, options):
        command = [self.fio_program, "--name=bench", f"--filename={self.corpus}", "--readonly",
                   "--ioengine=io_uring", "--direct=1", f"--iomem={memory}", "--time_based",
                   f"--runtime={ms}ms", "--output-format=json", *options]
        done = subprocess.run(command, capture_output=True, text=True)
        start = done.stdout.find("{")
        try:
            job = json.loads(done.stdout[start:])["jobs"][0]
        except (ValueError, KeyError):
            return None
        return None if done.returncode or job["error"] else job

    def run_fio(self, ms, options):
        """With huge-page buffers where the machine has any, ordinary ones where it has not."""
        for memory in [self.memory] if self.memory else ["shmhuge", "mmap"]:
            found = self._try_fio(memory, ms, options)
            if found:
                self.memory = memory
                if memory != "shmhuge":
                    self.bench.note("fio ran without huge pages, so its figures are no limit: as "
                                    "root, or with vm.nr_hugepages of 64 or more, it has them")
                return found
        raise Failed("fio cannot read the corpus by io_uring with --direct=1")

    def _sequential(self):
        """The better of two sizes."""
        options = [["--rw=read", f"--bs={size}", "--iodepth=32"] for size in ("256k", "1m")]
        best = max(options, key=lambda each: self.run_fio(FIO_MS, each)["read"]["bw_bytes"])
        return FioSide("fio, sequential", self, best, 2)

    def _random(self):
        options = ["--rw=randread", f"--bssplit={split_of(self.reads)}", f"--blockalign={BLOCK}",
                   f"--iodepth={DEPTH}"]
        return FioSide("fio, random", self, options, self.bytes_per_token)

    # ---- ringpack --------------------------------------------------------------------------------

    def _digest(self, shuffle, epochs):
        """A whole run at a trainer that hashes; the plain loop has the same digest."""
        bench, name = self.bench, f"digest, cold, shuffle {shuffle}"
        keys = bench.task(shuffle=shuffle, profile="min", num_epochs=epochs)
        if name not in bench.checks:
            bench.checks[name] = {"value": bench.loop("digest", keys)["digest"]["digest"],
                                  "times": 0}
        self._forget()
        with Engine(bench, {**keys, **PAST_CACHE}, "--fresh"):
            with bench.trainer("--digest") as report:
                bench.check(name, bench.checks[name]["value"], report()["digest"])

    def _check_reads(self, side):
        """That the tokens came from the disk: by the engine, and by the kernel's count."""
        found = side.stat()
        self.bench.check("bytes that were mapped past the page cache", 0, found["mapped_bytes"])
        self.bench.check("direct reads past the page cache", True, found["direct"])
        pid = side.engine.process.pid
        read = int(field_of(f"/proc/{pid}/io", "read_bytes"))
        if read < 2 * side.tokens:
            raise Failed(f"{side.name}: the disk gave the engine {read} bytes, and the trainer "
                         f"took {2 * side.tokens} bytes of tokens")

    def _beside_fio(self, shuffle, make_fio, fio_name):
        """The engine, fio, and the plain loop, whose CPU time is the rest of the limit."""
        bench, settings = self.bench, self.bench.settings
        keys = bench.task(shuffle=shuffle, profile="min", num_epochs="endless")
        if not settings["only_goals"] or shuffle not in self.digested:
            self._digest(shuffle, 1)
            self.digested.add(shuffle)
        makers = [lambda: EngineSide(bench, f"engine, cold, {shuffle}", keys, **PAST_CACHE),
                  lambda: LoopSide(bench, f"loop, {shuffle}", keys)]
        if self.fio_program:
            makers.insert(1, make_fio)
        with self.huge_pages(), side_by_side(*makers) as sides:
            found = take_turns(sides, settings["pairs"], settings["slice_ms"],
                               max(settings["slice_ms"] // PART_MS, 1), self._forget)
            self._check_reads(sides[0])
            bench.note(f"past it: {sides[0].engine.first_words()}")
        engine, *fio, loop = found.values()
        engine_cpu = cpu(engine, "engine_cpu_seconds")
        sample = {f"cold_{shuffle}": rates(engine), f"cold_{shuffle}_cpu": engine_cpu}
        for slices in fio:
            limit = [a + b for a, b in zip(cpu(slices), cpu(loop))]
            sample |= {
                fio_name: rates(slices), f"{fio_name}_cpu": cpu(slices),
                f"{fio_name}_bytes_per_second": [s["bytes"] / s["seconds"] for s in slices],
                f"{fio_name}_iops": [s["reads"] / s["seconds"] for s in slices],
                f"cold_{shuffle}_per_fio": ratios(rates(engine), rates(slices)),
                f"cold_{shuffle}_cpu_per_limit": ratios(engine_cpu, limit),
            }
        return sample

    def block(self):
        return self._beside_fio("block", self._sequential, "fio_sequential")

    def document(self):
        return self._beside_fio("document", self._random, "fio_random")
