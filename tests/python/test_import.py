# SPDX-License-Identifier: Apache-2.0
"""`import ringpack` and a loader leave no trace in their process."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

PACKAGE = ROOT / "tools" / "python" / "ringpack"

# Traces that a library can leave in a process: descriptors, threads, handlers of signals and of the
# end, and variables.
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


def import_from(place):
    command = [sys.executable, "-S", "-c", "import ringpack"]
    environment = dict(os.environ, PYTHONPATH=str(place))
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def assert_incomplete(place, name):
    done = import_from(place)
    assert done.returncode == 1, f"{name} is not missed"
    told = done.stderr.splitlines()[-1]
    assert told.startswith(f"ImportError: {place}/ringpack lacks {name}, so that "), done.stderr
    assert "`pip install --force-reinstall`" in told and "During handling" not in done.stderr


@pytest.fixture
def copied(folder):
    """The package as a wheel installs it, with the library and the program in it."""
    keep_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, folder / "ringpack", ignore=keep_out)
    (folder / "ringpack" / "libringpack.so").touch()
    (folder / "ringpack" / "bin").mkdir()
    (folder / "ringpack" / "bin" / "ringpack").touch()
    return folder


def test_a_package_that_is_half_removed_is_no_import(copied):
    """Each file, also of the modules that are imported late, and each folder. Without __init__.py
    Python takes the folder for a namespace: none of our code runs that could report it."""
    assert import_from(copied).returncode == 0
    entries = {path.name for path in (copied / "ringpack").iterdir()} - {"__init__.py", "py.typed"}
    assert {"callbacks.py", "libringpack.so", "bin", "_convert"} <= entries - {"__pycache__"}
    for name in entries - {"__pycache__"}:
        (copied / "ringpack" / name).rename(copied / "away")
        assert_incomplete(copied, name)
        (copied / "away").rename(copied / "ringpack" / name)
    assert import_from(copied).returncode == 0


def test_control_a_file_that_is_not_looked_for(copied):
    first = copied / "ringpack" / "__init__.py"
    first.write_text(first.read_text().replace('"callbacks.py", ', ""))
    (copied / "ringpack" / "callbacks.py").unlink()
    with pytest.raises(AssertionError, match="callbacks.py is not missed"):
        assert_incomplete(copied, "callbacks.py")


def test_a_tree_and_a_debian_package_have_neither_library_nor_program_inside(copied):
    (copied / "ringpack" / "libringpack.so").unlink()
    shutil.rmtree(copied / "ringpack" / "bin")
    assert import_from(copied).returncode == 0


def test_a_script_whose_program_is_gone_does_not_start_itself(copied):
    (copied / "ringpack" / "bin" / "ringpack").unlink()
    (copied / "script").mkdir()
    script = copied / "script" / "ringpack"
    lines = f"#!{sys.executable}", "from ringpack.__main__ import main", "main()"
    script.write_text("\n".join(lines))
    script.chmod(0o755)
    path = f"{script.parent}:{os.environ['PATH']}"
    for command in ([script], [sys.executable, "-m", "ringpack"]):
        environment = dict(os.environ, PYTHONPATH=str(copied), PATH=path)
        environment.pop("RINGPACK", None)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2
        assert f"ringpack lacks bin/ringpack, which {script} would start\n  next: " in done.stderr


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
    # One thread, in the process that starts the engine: it hands on the engine's log.
    assert came == ["ringpack: log of the engine"], came
    for name in ("handlers", "mask", "environment", "folder", "path"):
        assert during[name] == before[name], name


IN_ANOTHER = """
try:
    import _interpreters as known
except ImportError:
    import _xxsubinterpreters as known
known.run_string(known.create(), '''
try:
    import ringpack
except ImportError as refused:
    print(refused)
''')
import ringpack
print("and imported here")
"""


def test_a_sub_interpreter_is_refused_by_name():
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "tools" / "python"))
    command = [sys.executable, "-c", IN_ANOTHER]
    output = subprocess.run(command, env=environment, capture_output=True, text=True).stdout
    assert "ringpack does not work in a sub-interpreter" in output
    assert "multiprocessing" in output and "and imported here" in output
