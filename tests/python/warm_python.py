# SPDX-License-Identifier: Apache-2.0
"""A `python` and a `torchrun` whose scripts start with torch and its frameworks imported.

`import transformers.trainer` takes seven seconds of a processor, the steps of a test one. So a
server imports the modules once. `python SCRIPT`, `python -c TEXT`, `python -m
torch.distributed.run` and `torchrun`, on the PATH of `environment`, send it their arguments,
environment and files, and it forks a process that runs the script, in the command's namespaces.
Signals reach that process, its status comes back, and it is killed if the command is. Any other use
of `python` starts the real one. With RP_LONG all do.

    warm_python.py server SOCKET NAME         the server, with the modules of NAME
    warm_python.py run PYTHON ARGUMENT...     what the commands are; PYTHON is sys.executable

A check has 150 files of tests, and each imports pytest, numpy and perhaps torch: a third of a
second to six. ctest_twice starts a server also for each line of MODULES. ctest's commands send it
theirs, and the servers above are forked from it. Without these servers, as with `ctest` and
tools/test, pytest starts as ever.

    warm_python.py serve_tests FOLDER         the servers for ctest_twice, while it lives
    warm_python.py test NAME ARGUMENT...      pytest with these arguments, by the server NAME"""

import contextlib
import json
import os
import signal
import socket
import struct
import sys
import time
import types

SERVER = "RP_WARM_PYTHON"  # names the server's socket
TEST_SERVERS = "RP_WARM_TESTS"  # the folder of serve_tests
MODULES = {
    "plain": ("numpy",),
    "convert": (  # pyarrow imports pandas at its first array
        "numpy", "pandas", "pyarrow.compute", "pyarrow.ipc", "pyarrow.parquet", "tokenizers",
    ),
    "torch": ("numpy", "torch"),
    "frameworks": (
        "numpy", "torch._dynamo", "torch.distributed.run", "transformers.trainer", "lightning",
        "trl.trainer.sft_trainer", "datasets", "jax", "flax.nnx", "optax", "orbax.checkpoint",
        "torchdata.nodes", "megatron.core.tensor_parallel",
    ),
}  # fmt: skip
HERE = os.path.abspath(__file__)


def warm_python():
    """A fixture of pytest: a WarmPython."""
    import pytest

    @pytest.fixture(scope="module")
    def warm(tmp_path_factory):
        warm = WarmPython(tmp_path_factory.mktemp("warm"))
        yield warm
        warm.close()

    return warm


class WarmPython:
    """A server, the environment in which commands use it, and the command `python`."""

    def __init__(self, folder, modules="frameworks"):
        paths, self.process = [os.path.dirname(sys.executable), os.environ["PATH"]], None
        self.python, self.environment = sys.executable, {"PATH": os.pathsep.join(paths)}
        if os.environ.get("RP_LONG") == "1":
            return
        commands, self.place = folder / "bin", str(folder / "server")
        commands.mkdir()
        self.python = str(commands / "python")
        launcher = "-m torch.distributed.run"
        for name, words in ("python", ""), ("python3", ""), ("torchrun", launcher):
            command = f"{sys.executable} -IS {HERE} run {self.python} {words}"
            (commands / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (commands / name).chmod(0o755)
        self.environment = {SERVER: self.place, "PATH": os.pathsep.join([str(commands), *paths])}
        self._serve(modules)

    def _serve(self, modules):
        import subprocess

        command = [sys.executable, "-IS", HERE, "server", self.place, modules]
        environment = {**os.environ, **self.environment}
        self.process = subprocess.Popen(command, env=environment, cwd=os.path.dirname(self.place))
        while not os.path.exists(self.place):
            assert self.process.poll() is None, "the server of modules has ended"
            time.sleep(0.02)

    def processes(self):
        """The server, its scripts, and the processes of these."""
        from job_kit import family

        if not self.process:
            return []
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.place)
            return family(peer_of(connection))

    def close(self):
        from job_kit import kill_family

        for process in self.processes()[:1]:
            kill_family(process)
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


def peer_of(connection):
    """The process at the other end."""
    asked = socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    return struct.unpack("3i", connection.getsockopt(*asked))[0]


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
    """Become the command: its files, environment and place. Returns its verb and arguments."""
    text, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not text.endswith(b"\n"):
        more = connection.recv(1 << 20)
        if not more:  # the command is gone
            os._exit(1)
        text += more
    words, place, environment = json.loads(text)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    return words


NAMESPACES = {"net": 0x40000000, "uts": 0x04000000, "mnt": 0x00020000}  # CLONE_NEW*


def enter_namespaces(command):
    """Enter the namespaces of a process that differ from this one's."""
    import ctypes

    def name(process, kind):
        return os.readlink(f"/proc/{process}/ns/{kind}")

    libc, place = ctypes.CDLL(None, use_errno=True), os.getcwd()
    others = [kind for kind in NAMESPACES if name(command, kind) != name("self", kind)]
    opened = [(os.open(f"/proc/{command}/ns/{kind}", os.O_RDONLY), kind) for kind in others]
    for file, kind in opened:
        if libc.setns(file, NAMESPACES[kind]) != 0:
            raise OSError(ctypes.get_errno(), f"setns: {kind}")
        os.close(file)
    os.chdir(place)


def serve(place, modules):
    """Returns verb and arguments in each process that shall run something."""
    import ctypes
    import gc

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with its parent
    os.environ["OMP_NUM_THREADS"] = "1"  # libgomp and OpenBLAS read it when they are loaded
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place + ".new")
    listener.listen(64)
    os.rename(place + ".new", place)  # commands wait from now on, and do not import by themselves
    gc.disable()
    import_modules(modules)
    gc.enable()
    gc.collect()
    gc.freeze()  # the modules are not searched for garbage in each process
    connection = accept(listener)
    words, command = receive(connection), peer_of(connection)
    worker = os.fork()
    if worker:
        for number in range(3):
            os.close(number)  # the reader of a pipe sees its end
        keep(connection, worker)
    enter_namespaces(command)
    connection.close()
    os.setpgid(0, 0)
    return words


def begin_process(place):
    """As a process that has just been started: signals, the places of modules, of which `place` is
    the first, and no random numbers of the server."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [place, *filter(None, paths)]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    if os.environ.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)
    for number in signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # not the seed of the other processes
    configure_jax()


def configure_jax():
    """By the environment of this process: jax has read the one in which it was imported."""
    if jax := sys.modules.get("jax"):
        for name, old in jax.config.values.items():
            if text := os.environ.get(name.upper()):
                jax.config.update(name, text if old is None else type(old)(text))


def run_words(words):
    """In the forked process, as words[0] says. It ends as Python does, but without a last visit to
    each object of the server, whose pages would be copied: half a second."""
    status = 0
    try:
        {"run": run_script, "test": run_tests, "server": run_server}[words[0]](words[1:])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except Exception:
        sys.excepthook(*sys.exc_info())
        status = 1
    if is_in_process_group():
        sys.exit(status)
    leave(status)


def is_in_process_group():
    """Its end is left to Python: the other ranks wait for what it frees."""
    distributed = sys.modules.get("torch.distributed")
    return bool(distributed and distributed.is_available() and distributed.is_initialized())


def leave(status):
    import atexit
    import threading

    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        status = status or 120
    os._exit(status & 0xFF)


def run_server(arguments):
    run_words(serve(arguments[0], ()))


def run_script(arguments):
    """As `python ARGUMENTS`, of which the first is the python."""
    import runpy

    sys.executable = arguments.pop(0)
    if arguments[0] == "-u":
        sys.stdout.reconfigure(write_through=True)
        del arguments[0]
    if arguments[0] == "-m":
        begin_process(os.getcwd())
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        begin_process("")
        sys.argv = ["-c", *arguments[2:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(arguments[1], "<string>", "exec"), vars(main))
    else:
        begin_process(os.path.dirname(os.path.abspath(arguments[0])))
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


def serve_tests(folder):
    """In each process that shall run something: verb and arguments. The servers end with this
    process."""
    import ctypes

    from _pytest.config import default_plugins

    os.environ["XDG_CACHE_HOME"] = folder  # for modules that read it when they are imported
    servers = {}
    for name, modules in MODULES.items():
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
    """As `python -m pytest ARGUMENTS`."""
    import runpy

    begin_process(os.getcwd())
    sys.argv = ["pytest", *arguments]
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)


# ---- the commands --------------------------------------------------------------------------------


def is_for_server(arguments):
    words = arguments[arguments[:1] == ["-u"] :]
    if SERVER not in os.environ or not words:
        return False
    if words[0] == "-c":
        return "multiprocessing" not in words[1]  # a process of that, which inherits files
    return words[:2] == ["-m", "torch.distributed.run"] or words[0].endswith(".py")


def run(python, *arguments):
    if not is_for_server(list(arguments)):
        os.execv(sys.executable, [sys.executable, *arguments])
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ[SERVER])
    send(connection, ["run", python, *arguments])


def ask_test_server(name, words):
    """Returns without a server. One that imports its modules is waited for."""
    if TEST_SERVERS not in os.environ or os.environ.get("RP_LONG") == "1":
        return
    connection = socket.socket(socket.AF_UNIX)
    place = os.path.join(os.environ[TEST_SERVERS], name)
    for _ in range(100):  # ten seconds, for the first tests; it begins to listen at once
        if connection.connect_ex(place) == 0:
            send(connection, words)
        time.sleep(0.1)


def test(name, *arguments):
    ask_test_server(name, ["test", *arguments])
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments])


def server(place, name):
    ask_test_server(name, ["server", place])
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONPATH"}
    os.execve(sys.executable, [sys.executable, HERE, "serve", place, name], environment)


def send(connection, words):
    """Let the server's process run, and end as it does."""
    forwarded = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1
    for number in forwarded:
        signal.signal(number, lambda number, _: connection.sendall(bytes([number])))
    text = json.dumps([words, os.getcwd(), dict(os.environ)]).encode() + b"\n"
    sent = socket.send_fds(connection, [text], [0, 1, 2])
    connection.sendall(text[sent:])
    status = int(connection.recv(16) or 1)
    if status < 0:
        if status != -signal.SIGKILL:  # whose handler cannot be set
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    verb, words = sys.argv[1], sys.argv[2:]
    if verb == "serve":
        run_words(serve(words[0], MODULES[words[1]]))
    elif verb == "serve_tests":
        run_words(serve_tests(words[0]))
    else:
        {"run": run, "test": test, "server": server}[verb](*words)
