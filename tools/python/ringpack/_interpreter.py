# SPDX-License-Identifier: Apache-2.0
"""Refuses sub-interpreters at `import ringpack`: they allow neither the threads that watch an
engine nor numpy, and a loader would fail later without naming the reason. And tells whether this
Python has a lock."""

import sys
from typing import Any

HAS_LOCK: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether one thread at a time runs Python code. A Python without a lock may switch it on later,
for a package that needs it: that does no harm."""


def check_interpreter() -> None:
    for name in "_interpreters", "_xxsubinterpreters":  # the second before Python 3.13
        try:
            known: Any = __import__(name)
        except ImportError:
            continue
        if known.get_current() != known.get_main():
            raise ImportError(
                "ringpack does not work in a sub-interpreter (InterpreterPoolExecutor): import it "
                "in the main interpreter of a process (multiprocessing, by spawn or fork)"
            )
        return


check_interpreter()
