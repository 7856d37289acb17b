# SPDX-License-Identifier: Apache-2.0
"""A limit on processes (pids.max, ulimit -u), which counts threads, may be used up for a moment."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 5.0
"""Seconds, as in engine/base/thread.h."""


def with_room(start: Callable[[], T]) -> T:
    """The result of `start`, which starts a process or a thread; it is called again while a limit
    leaves no room for one."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return start()
        except BlockingIOError:  # fork: EAGAIN
            if time.monotonic() >= deadline:
                raise
        except RuntimeError as failure:  # threading's: it has no class of its own
            if "new thread" not in str(failure) or time.monotonic() >= deadline:
                raise
        time.sleep(0.05)
