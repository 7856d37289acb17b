# SPDX-License-Identifier: Apache-2.0
"""States of the page cache for the engines of adapt.py, and the memory cgroup they need."""

import contextlib
import os
import threading
from pathlib import Path

from engine import Failed

PAGE = 4096
NAME = "ringpack-bench-adapt"


def forget(place, first=0):
    """Pages that a process has mapped stay: use it while none has."""
    with place.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), first, 0, os.POSIX_FADV_DONTNEED)


def warm(place):
    with place.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 24)
        while file.readinto(buffer):
            pass


def hold(place, share):
    """The page cache holds the first `share` of the file, and no more."""
    forget(place)
    if share > 0:
        warm(place)
    if 0 < share < 1:
        forget(place, int(place.stat().st_size * share) // PAGE * PAGE)


class Cgroup:
    """A memory cgroup of version 1 or 2 for this process and its children, for a while. Its making
    needs root."""

    def __init__(self):
        one, unified = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
        self.is_one = (one / "memory.limit_in_bytes").exists()
        root = one if self.is_one else unified
        self.path = root / NAME
        self.home = root / self._own_name()
        try:
            if not self.is_one:
                (root / "cgroup.subtree_control").write_text("+memory")
            self.path.mkdir(exist_ok=True)
        except OSError as error:
            raise Failed(f"{self.path}: cannot be made: {error.strerror}: expected root and a "
                         "memory cgroup; the other cells need none (--cells)") from error
        self.limit(None)

    def _own_name(self):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if "memory" in controllers.split(",") if self.is_one else not controllers:
                return name.lstrip("/")
        return ""

    def limit(self, size):
        """In bytes, of all memory, the page cache included; None: no limit."""
        if self.is_one:
            (self.path / "memory.limit_in_bytes").write_text(str(size or -1))
        else:
            (self.path / "memory.max").write_text(str(size or "max"))

    @contextlib.contextmanager
    def inside(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            (self.home / "cgroup.procs").write_text(str(os.getpid()))

    def reclaim(self, size, rest):
        """About `size` bytes of the page cache that was filled from inside, also mapped pages, and
        once: pages that are read in again meanwhile stay. `rest`: bytes that are more than all
        other memory of the programs inside."""
        with contextlib.suppress(OSError):  # unreclaimable pages stay
            if self.is_one:
                self.limit(rest)
            else:
                (self.path / "memory.reclaim").write_text(str(size))
        if self.is_one:
            self.limit(None)

    def close(self):
        with contextlib.suppress(OSError):  # a process that was killed may still be ending
            self.path.rmdir()


@contextlib.contextmanager
def after(seconds, function, *arguments):
    """A call after a number of seconds, unless the block ends before. It has to succeed."""
    failures = []

    def call():
        try:
            function(*arguments)
        except OSError as error:
            failures.append(error)

    timer = threading.Timer(seconds, call)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
    if failures:
        raise Failed(f"the state could not be changed in mid-run: {failures[0]}")
