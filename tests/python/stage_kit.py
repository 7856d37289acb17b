# SPDX-License-Identifier: Apache-2.0
"""Stops one stage of a running engine: a thread by ptrace, without a signal that others see, or a
packer process by a signal."""

import contextlib
import ctypes
import errno
import os
import signal
from pathlib import Path

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000  # waitpid: also for threads

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request, thread):
    if _libc.ptrace(request, thread, None, None) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def threads(pid, name):
    """The threads of a process that have this name."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            if (task / "comm").read_text().strip() == name:
                found.append(int(task.name))
    return found


def is_allowed(pid):
    """Whether this process may trace that one; some containers do not let it."""
    try:
        _ptrace(PTRACE_SEIZE, pid)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS):
            raise
        return False
    _ptrace(PTRACE_INTERRUPT, pid)
    os.waitpid(pid, WALL)
    _ptrace(PTRACE_DETACH, pid)
    return True


class Stopped:
    """The threads of that name stand still inside the `with`. Only the thread of Python that has
    stopped them can continue them."""

    def __init__(self, engine, name):
        self.engine, self.name, self.threads = engine, name, []

    def __enter__(self):
        for thread in threads(self.engine.pid, self.name):
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                _ptrace(PTRACE_SEIZE, thread)
                _ptrace(PTRACE_INTERRUPT, thread)
                os.waitpid(thread, WALL)
                self.threads.append(thread)
        assert self.threads
        return self

    def __exit__(self, *_):
        for thread in self.threads:
            _ptrace(PTRACE_DETACH, thread)


class StoppedPackers:
    def __init__(self, engine):
        self.pids = engine.packers()
        assert self.pids

    def __enter__(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)
        return self

    def __exit__(self, *_):
        for pid in self.pids:
            os.kill(pid, signal.SIGCONT)
