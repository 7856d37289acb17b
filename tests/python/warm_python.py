# SPDX-License-Identifier: Apache-2.0
"""A `python` and a `torchrun` whose scripts start with torch and its frameworks imported.

`import transformers.trainer` takes seven seconds of a processor, the steps of a test one. So a
server imports the modules once. `python SCRIPT`, `python -m torch.distributed.run` and `torchrun`,
on the PATH of `environment`, send it their arguments, environment and files, and it forks a process
that runs the script. Signals reach that process, its status comes back, and it is killed if the
command is. Any other use of `python` starts the real one. With RP_LONG all do.

    warm_python.py serve SOCKET MODULE...   the server
    warm_python.py run ARGUMENT...          what the commands are

A check has 150 files of tests, and each imports pytest, numpy and perhaps torch: a third of a
second to six. ctest_twice starts a server for each line of TESTS, too, and ctest's commands send
it theirs. Without these servers, as with `ctest` and tools/test, pytest starts as ever.

    warm_python.py serve_tests FOLDER       the servers for ctest_twice, while it lives
    warm_python.py test NAME ARGUMENT...    pytest with these arguments, by the server NAME"""

import contextlib
import json
import os
import signal
import socket
import sys

SERVER = "RP_WARM_PYTHON"  # names the server's socket
TEST_SERVERS = "RP_WARM_TESTS"  # the folder of serve_tests
TESTS = {
    "plain": ("numpy",),
    "torch": ("numpy", "torch"),
    "transformers": ("numpy", "torch._dynamo", "transformers.trainer", "trl", "datasets"),
}
HERE = os.path.abspath(__file__)


def warm_python(*modules):
    """A fixture of pytest: a WarmPython with these modules."""
    import pytest

    @pytest.fixture(scope="module")
    def warm(tmp_path_factory):
        warm = WarmPython(tmp_path_factory.mktemp("warm"), modules)
        yield warm
        warm.close()

    return warm


class WarmPython:
    """The server's process, and the environment in which commands use it."""

    def __init__(self, folder, modules):
        paths, self.process = [os.path.dirname(sys.executable), os.environ["PATH"]], None
        self.environment = {"PATH": os.pathsep.join(paths)}
        if os.environ.get("RP_LONG") == "1":
            return
        commands, place = folder / "bin", str(folder / "server")
        commands.mkdir()
        launcher = "-m torch.distributed.run"
        for name, words in ("python", ""), ("python3", ""), ("torchrun", launcher):
            script = f'#!/bin/sh\nexec {sys.executable} -IS {HERE} run {words} "$@"\n'
            (commands / name).write_text(script)
            (commands / name).chmod(0o755)
        self.environment = {SERVER: place, "PATH": os.pathsep.join([str(commands), *paths])}
        self._serve(place, modules)

    def _serve(self, place, modules):
        import subprocess
        import time

        environment = {**os.environ, **self.environment, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, HERE, "serve", place, *modules]
        self.process = subprocess.Popen(command, env=environment, cwd=os.path.dirname(place))
        while not os.path.exists(place):
            assert self.process.poll() is None, "the server of modules has ended"
            time.sleep(0.02)

    def close(self):
        from job_kit import kill_family

        if self.process:
            kill_family(self.process.pid)
            self.process.wait()


# ---- the server ----------------------------------------------------------------------------------


def import_modules(modules):
    import importlib

    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # the tests that need it are left out


def accept(listener):
    """Returns in a process for each command, with its connection."""
    keepers = set()
    while True:
        connection, _ = listener.accept()
        keeper = os.fork()
        if keeper == 0:
            listener.close()
            return connection
        connection.close()
        keepers.add(keeper)
        keepers = {keeper for keeper in keepers if os.waitpid(keeper, os.WNOHANG) == (0, 0)}


def keep(connection, worker):
    """Forward signals to the worker, and tell how it ended; kill it with the command."""
    import select

    ended = os.pidfd_open(worker)
    while True:
        ready, _, _ = select.select([connection, ended], [], [])
        if ended in ready:
            break
        if numbers := connection.recv(64):
            for number in numbers:
                os.kill(worker, number)
            continue
        os.kill(worker, signal.SIGKILL)
        break
    _, status = os.waitpid(worker, 0)
    with contextlib.suppress(OSError):  # the command is gone
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def receive(connection):
    """Become the command: its files, environment and place. Returns its arguments."""
    text, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not text.endswith(b"\n"):
        more = connection.recv(1 << 20)
        if not more:  # the command is gone
            os._exit(1)
        text += more
    arguments, place, environment = json.loads(text)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    return arguments


def serve(place, modules):
    """Returns the arguments in each process that shall run a script."""
    import ctypes
    import gc

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with its test
    import_modules(modules)
    gc.collect()
    gc.freeze()  # the modules are not searched for garbage in each process
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place + ".new")
    listener.listen(64)
    os.rename(place + ".new", place)
    connection = accept(listener)
    arguments = receive(connection)
    worker = os.fork()
    if worker:
        for number in range(3):
            os.close(number)  # the reader of a pipe sees its end
        keep(connection, worker)
    connection.close()
    os.setpgid(0, 0)
    return arguments


def begin_process():
    """As a process that has just been started: signals, and no random numbers of the server."""
    for number in signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # not that of each other process


def run_script(arguments):
    """In the forked process: as `python ARGUMENTS`."""
    import runpy

    sys.executable = os.path.join(os.path.dirname(os.environ[SERVER]), "bin", "python")
    begin_process()
    if arguments[0] == "-u":
        sys.stdout.reconfigure(write_through=True)
        del arguments[0]
    if arguments[0] == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


def serve_tests(folder):
    """In each process that shall run pytest: its arguments. The servers end with this process."""
    import ctypes

    from _pytest.config import default_plugins

    os.environ["XDG_CACHE_HOME"] = folder  # for modules that read it when they are imported
    servers = {}
    for name, modules in TESTS.items():
        pid = os.fork()
        if pid == 0:
            plugins = [f"_pytest.{plugin}" for plugin in default_plugins]
            return serve(os.path.join(folder, name), [*plugins, *modules])
        servers[pid] = name
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    while servers:
        servers.pop(os.wait()[0], None)
    sys.exit(1)


def run_tests(arguments):
    """In the forked process: as `python -m pytest ARGUMENTS`."""
    import runpy

    begin_process()
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [os.getcwd(), *filter(None, paths)]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.argv = ["pytest", *arguments]
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)


# ---- the commands --------------------------------------------------------------------------------


def is_for_server(arguments):
    words = arguments[1:] if arguments[:1] == ["-u"] else arguments
    return SERVER in os.environ and (
        words[:2] == ["-m", "torch.distributed.run"] or words[:1] and words[0].endswith(".py")
    )


def run(arguments):
    if not is_for_server(arguments):
        os.execv(sys.executable, ["python", *arguments])
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ[SERVER])
    send(connection, arguments)


def test(name, arguments):
    connection = socket.socket(socket.AF_UNIX)
    place = os.path.join(os.environ.get(TEST_SERVERS, ""), name)
    if os.environ.get("RP_LONG") == "1" or connection.connect_ex(place) != 0:
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments])
    send(connection, arguments)


def send(connection, arguments):
    """Let the server's process run, and end as it does."""
    forwarded = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1
    for number in forwarded:
        signal.signal(number, lambda number, _: connection.sendall(bytes([number])))
    text = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode() + b"\n"
    sent = socket.send_fds(connection, [text], [0, 1, 2])
    connection.sendall(text[sent:])
    status = int(connection.recv(16) or 1)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    verb, words = sys.argv[1], sys.argv[2:]
    if verb == "serve":
        run_script(serve(words[0], words[1:]))
    elif verb == "serve_tests":
        run_tests(serve_tests(words[0]))
    elif verb == "test":
        test(words[0], words[1:])
    else:
        run(words)
