# SPDX-License-Identifier: Apache-2.0
"""What `import ringpack` and a loader do to the process that they are in: nothing that lasts."""

import json
import os
import subprocess
import sys

from conftest import ROOT

# What a library can leave in a process without being asked: descriptors, threads, handlers of
# signals and of the end, and variables.
LOOK = """
import atexit, json, os, signal, sys, threading

def look():
    handlers = {}
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        handlers[int(number)] = getattr(handler, "__name__", None) or str(handler)
    return {
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "tasks": len(os.listdir("/proc/self/task")),
        "handlers": handlers,
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "environment": dict(os.environ),
        "at exit": atexit._ncallbacks(),
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "folder": os.getcwd(),
        "path": sys.path[:],
    }
"""


def told_by(program, *arguments):
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "tools" / "python"))
    command = [sys.executable, "-c", LOOK + program, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# Each of these costs more than a module of the package, or brings others that do.
COSTLY = {
    *("numpy", "torch", "jax", "pyarrow", "asyncio", "multiprocessing", "subprocess", "logging"),
    *("json", "inspect", "ast", "dataclasses", "difflib", "pathlib", "tempfile", "shutil"),
    *("socket", "selectors", "traceback", "textwrap", "tokenize", "importlib.metadata"),
    *("datetime", "signal", "ctypes.util", "decimal", "random", "urllib", "email"),
    *("pickle", "string", "locale"),
}


def test_import_brings_no_costly_module():
    program = "import sys\nbefore = set(sys.modules)\nimport ringpack\n"
    program += "print(*set(sys.modules) - before)"
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "tools" / "python"))
    command = [sys.executable, "-S", "-c", program]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    brought = set(told.stdout.split())
    assert "ringpack.loader" in brought, told.stderr
    assert COSTLY.isdisjoint(brought)


def test_import_leaves_the_process_as_it_was():
    before, after = told_by(
        "import logging, subprocess\n"  # both have a function for the end of the process
        "before = look()\nimport ringpack\nprint(json.dumps([before, look()]))"
    )
    assert after == before


def test_control_what_is_left_is_seen():
    before, after = told_by(
        "before = look()\n"
        "threading.Thread(target=signal.pause, daemon=True, name='left').start()\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.environ['LEFT'] = '1'\n"
        "atexit.register(print, end='')\nos.dup(0)\nprint(json.dumps([before, look()]))"
    )
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"threads", "tasks", "handlers", "environment", "at exit", "descriptors"}


READ = """
import logging, subprocess, weakref, numpy, ringpack, ringpack._library
ringpack._library.library()
weakref.finalize(look, int)  # the first one of a process registers a function for its end
before = look()
loader = ringpack.Loader(sys.argv[1], run_dir=sys.argv[2])
batch = next(loader)
during = look()
del batch
loader.close()
print(json.dumps([before, during, look()]))
"""


def test_a_loader_takes_back_what_it_brought(program, corpora, folder):
    config = folder / "config.yaml"
    config.write_text(
        "seq_len: 64\nbatch_size: 2\nglobal_batch_size: 2\n"
        f"sources: [{{name: books, path: {corpora[0]}, weight: 1}}]\n"
    )
    before, during, after = told_by(READ, config, folder)
    assert after == before
    came = [name for name in during["threads"] if name not in before["threads"]]
    # One thread, in the process that starts the engine: it hands on what the engine logs.
    assert came == ["ringpack: log of the engine"], came
    for name in ("handlers", "mask", "environment", "folder", "path"):
        assert during[name] == before[name], name
