# SPDX-License-Identifier: Apache-2.0
"""The engine as a child process: `ringpack serve`, which lives as long as this process at most.

It notices our end by a pipe (--lifeline) that only this process holds open, so it also ends
after a kill -9. Its log goes to the logger "ringpack.engine"; its last lines explain its end.

Functions import json, logging, shutil, signal and subprocess: at the top of the file these would
take a third of the time of `import ringpack`.
"""

import errno
import os
import re
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any, Optional

from ._arguments import PARAMETERS, Corpus, FilePath, suggestion
from ._commands import Command, ServeCommand, engine_command
from ._log import logger
from ._room import with_room
from .errors import EngineGoneError, EngineTimeoutError, RingpackError, UsageError, error_named

if TYPE_CHECKING:
    import subprocess

STAGE_ENDED = 4  # exit status: the same command serves the next stage
_LOGGER = "ringpack.engine"
_CHECKPOINT = b"RPCHECK\0"  # how a checkpoint begins
_TEXT_LIMIT = 1 << 30  # characters of a fragment, which are all of them
_MFD_NOEXEC_SEAL = 0x0008  # some machines allow no memfd without it (vm.memfd_noexec)
_living: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def _leave_to_parent() -> None:
    """A fork holds a copy of every lifeline, and would keep the engines of a dead parent alive."""
    for engine in list(_living):
        engine.cut_lifeline()


os.register_at_fork(after_in_child=_leave_to_parent)


def find_program() -> str:
    """Path of the program: RINGPACK, else next to the package, else in PATH."""
    named = os.environ.get("RINGPACK")
    if named:
        return named
    import shutil

    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "ringpack")
    found = beside if os.path.exists(beside) else shutil.which("ringpack")
    if found is None:
        raise RingpackError(
            "the program `ringpack` was not found next to the package or in PATH",
            "`pip install --force-reinstall` of the wheel brings it back, `pip install "
            "./tools/python` in a clone builds it; or set RINGPACK",
        )
    return found


def _config_fd(text: str) -> tuple[int, list[str]]:
    """A config that has no file, for a child to read: -c /proc/self/fd/N. Messages about it have
    the name of the parameter that it comes from."""
    try:
        fd = os.memfd_create("corpus", os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
    except OSError:  # before Linux 6.3
        fd = os.memfd_create("corpus")
    os.write(fd, text.encode())
    return fd, ["-c", f"/proc/self/fd/{fd}"]


def count_batches(
    engine_command: Command,
    program: Optional[FilePath],
    folder: Optional[FilePath] = None,
    rows: Optional[int] = None,
) -> Optional[int]:
    """Batches that a rank gets of a whole stream, as `ringpack plan` counts them. None: it has
    more than `rows` rows."""
    words = ["plan", "--json", "--rows", str(2**63 - 1 if rows is None else rows)]
    told = _told(words, engine_command, program, folder)
    return int(told["batches"]) if told["complete"] else None


def place_given(
    run: Optional[str],
    run_dir: Optional[FilePath],
    config: Optional[FilePath],
    corpus: Optional[Corpus],
    program: Optional[FilePath],
) -> tuple[Optional[str], Optional[FilePath]]:
    """run and run_dir: the arguments, else the values of the config file, else None."""
    if config is None or (run is not None and run_dir is not None):
        return run, run_dir
    words = ["config", "show", "--json", "run", "run_dir"]
    keys = _told(words, engine_command(config, corpus, {}), program, None)
    said = {key: keys[key]["value"] if keys[key]["given"] else None for key in keys}
    return run or said["run"], run_dir or said["run_dir"]


def streams_given(config: FilePath, program: Optional[FilePath]) -> tuple[str, ...]:
    """The names of the streams of a config file, in its order."""
    words = ["config", "show", "--json", "streams"]
    keys = _told(words, engine_command(config, None, {}), program, None)
    return tuple(keys["streams"]["value"] or ())


def ask_program(
    verb: str,
    engine_command: Command,
    program: Optional[FilePath],
    folder: Optional[FilePath] = None,
) -> Any:
    """The JSON that a verb prints about a config. `engine_command` as of engine_command()."""
    return _told([verb, "--json"], engine_command, program, folder)


def ask_contract(
    whole: bool,
    engine_command: Command,
    program: Optional[FilePath],
    folder: Optional[FilePath] = None,
) -> str:
    """The contract of a config: as far as it follows from only the config, or whole, which opens
    the corpus. `engine_command` as of engine_command()."""
    words = ["config", "contract" if whole else "stream"]
    return _ask(words, engine_command, program, folder)


def _told(
    words: list[str],
    engine_command: Command,
    program: Optional[FilePath],
    folder: Optional[FilePath],
) -> Any:
    """The JSON that the program prints for a config."""
    import json

    return json.loads(_ask(words, engine_command, program, folder))


def _ask(
    words: list[str],
    engine_command: Command,
    program: Optional[FilePath],
    folder: Optional[FilePath],
) -> str:
    """The output of the program about a config."""
    arguments, config_text = engine_command
    words, passed = [*words, *arguments], []
    if config_text is not None:
        fd, config = _config_fd(config_text)
        passed, words = [fd], words + config
    try:
        return run_program(words, program, passed, folder)
    finally:
        for fd in passed:
            os.close(fd)


def run_program(
    words: Sequence[str],
    program: Optional[FilePath] = None,
    passed: Sequence[int] = (),
    folder: Optional[FilePath] = None,
) -> str:
    """The output of the program; its error is raised."""
    import subprocess

    command = [os.fspath(program) if program is not None else find_program(), *words]
    try:
        done = with_room(
            lambda: subprocess.run(
                command,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                pass_fds=passed,
                cwd=folder,
            )
        )
    except OSError as failure:
        raise _not_started(command[0], failure) from failure
    if done.returncode != 0:
        raise error_in(done.stderr.splitlines()) or RingpackError(
            f"`ringpack {words[0]}` exited with status {done.returncode}"
        )
    return done.stdout


def is_kept(path: FilePath) -> bool:
    """Whether a path is a checkpoint's, or a directory's of checkpoints."""
    if os.path.isdir(path):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(len(_CHECKPOINT)) == _CHECKPOINT
    except OSError:
        return False  # the program names the mistake


def explain_rows(
    first: int,
    last: int,
    running: tuple[str, Optional[FilePath]],
    config: Optional[FilePath],
    program: Optional[FilePath],
) -> list[dict[str, Any]]:
    """The rows of `ringpack explain --json`, with whole texts: of a config or a checkpoint, or of
    the engine of a run (its name and run_dir)."""
    import json

    words = ["explain", "--json", "--row", f"{first}-{last}", "--limit", str(_TEXT_LIMIT)]
    if config is not None:
        words += [os.fspath(config)] if is_kept(config) else ["-c", os.fspath(config)]
    else:
        run, run_dir = running
        words += ["--run", run]
        words += ["--run-dir", os.fspath(run_dir)] if run_dir is not None else []
    rows: list[dict[str, Any]] = json.loads(run_program(words, program))["rows"]
    return rows


def _not_started(program: str, failure: OSError) -> RingpackError:
    no_program = failure.errno in (errno.ENOENT, errno.EACCES, errno.ENOEXEC)
    return RingpackError(
        f"{program} could not be started: {failure}",
        "set RINGPACK to its path" if no_program else "raise that limit (ulimit -n, -u, -v)",
    )


def error_in(lines: Sequence[str]) -> Optional[RingpackError]:
    """The error that the program printed last, or None."""
    for place in range(len(lines) - 1, -1, -1):
        match = re.match(r"ringpack: error (\w+): (.*)", lines[place])
        if match:
            after = lines[place + 1] if place + 1 < len(lines) else ""
            hint = after[len("  next: ") :] if after.startswith("  next: ") else ""
            return error_named(match[1], match[2], hint)
    return None


def _is_dead(child: "subprocess.Popen[bytes]") -> bool:
    """Also while an interrupted call holds the lock of Popen, and poll() returns None."""
    if child.poll() is not None:
        return True
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True  # another call has its status


class Engine:
    """One `ringpack serve` child. `arguments` follow `serve`; `config_text` is a config that has
    no file; `once` are arguments of only the first start: a later one continues at the run's
    position. Relative paths begin at `folder`."""

    def __init__(
        self,
        arguments: Sequence[str],
        config_text: Optional[str] = None,
        once: Sequence[str] = (),
        program: Optional[FilePath] = None,
        folder: Optional[FilePath] = None,
    ):
        self.program = os.fspath(program) if program is not None else find_program()
        self.arguments, self.config_text, self.folder = list(arguments), config_text, folder
        self.once = list(once)
        self.process: Optional[subprocess.Popen[bytes]] = None
        self._lifeline: Optional[int] = None
        self._reader: Optional[threading.Thread] = None
        self._lines: deque[str] = deque(maxlen=30)
        self._owner = os.getpid()
        _living.add(self)

    def start(self, timeout: float) -> None:
        """Start it, again if it has ended, and wait until trainers can attach. Seconds."""
        self.cut_lifeline()
        self._lines.clear()
        ready, ready_end = os.pipe()
        life_end, self._lifeline = os.pipe()
        try:
            self.process = child = self._spawn(ready_end, life_end)
            self._reader = threading.Thread(
                target=self._read_log,
                args=(child.stderr,),
                name="ringpack: log of the engine",
                daemon=True,
            )
            with_room(self._reader.start)
            self._wait_ready(child, ready, timeout)
            self.once = []
        except BaseException:
            self.stop(timeout=5)
            raise
        finally:
            os.close(ready)

    def _spawn(self, ready_end: int, life_end: int) -> "subprocess.Popen[bytes]":
        """The child process; it takes both pipe ends."""
        import subprocess

        # stop() may run while the interpreter ends, when no import works any more.
        self._logger = logger(_LOGGER)
        passed, arguments = [ready_end, life_end], [*self.arguments, *self.once]
        arguments += ["--ready-fd", str(ready_end), "--lifeline", str(life_end)]
        arguments += ["--log-format", "plain"]  # the logger has the time, and the level
        if self.config_text is not None:
            fd, config = _config_fd(self.config_text)
            passed.append(fd)
            arguments += config
        try:
            # In a session of its own: Ctrl-C is for the trainer, which ends the engine in time.
            return with_room(
                lambda: subprocess.Popen(
                    [self.program, "serve", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    pass_fds=passed,
                    cwd=self.folder,
                    start_new_session=True,
                )
            )
        except OSError as failure:
            raise _not_started(self.program, failure) from failure
        finally:
            for fd in passed:
                os.close(fd)

    def _wait_ready(self, child: "subprocess.Popen[bytes]", ready: int, timeout: float) -> None:
        poller = select.poll()  # select.select() takes no descriptor from 1024 on
        poller.register(ready, select.POLLIN)
        if not poller.poll(min(timeout * 1000, 2**31 - 1)):
            raise EngineTimeoutError(
                f"the engine (pid {child.pid}) was not ready within {timeout:g} s",
                "give start_timeout more seconds; `ringpack index` before makes starts quick",
            )
        if not os.read(ready, 16):
            self.await_end(timeout)
            raise self.failure("before it was ready")

    def failure(self, when: str) -> RingpackError:
        """The error that the dead engine printed, or one that says how it ended."""
        assert self.process is not None and self._reader is not None, "it was started"
        self._reader.join(timeout=2)
        status = self.process.returncode or 0
        lines = list(self._lines)
        unknown = re.search(r"unrecognized option '--([^'=]*)", "\n".join(lines))
        if unknown:
            return self._no_such_key(unknown[1].replace("-", "_"))
        printed = error_in(lines)
        if printed is not None:
            return printed
        how = f"exited with status {status}"
        if status < 0:
            import signal

            how = f"was killed by {signal.Signals(-status).name}"
        said = "; its last words:\n" + "\n".join(lines[-5:]) if lines else ""
        return EngineGoneError(f"the engine (pid {self.process.pid}) {how} {when}{said}")

    def _no_such_key(self, name: str) -> UsageError:
        import subprocess

        command = [self.program, "config", "keys"]
        text = subprocess.run(command, capture_output=True, text=True).stdout
        keys = re.findall(r"^  ([a-z_]+) ", text.split("KEYS OF A SOURCE")[0], re.M)
        keys += PARAMETERS
        return UsageError(
            f"{name}: neither a parameter of Loader nor a key of the config"
            + suggestion(name, keys),
            "no engine was started; `ringpack config keys` lists the keys and their values",
        )

    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self, timeout: float = 60) -> None:
        """End it, with a checkpoint where it has a place for them, and wait for that. Seconds."""
        self.cut_lifeline()
        child = self.process
        if os.getpid() != self._owner or child is None or not self.runs():
            return
        if not self.await_end(timeout):
            self._logger.warning(
                "engine %d took more than %g s to end: killed", child.pid, timeout
            )
            child.kill()
            self.await_end(timeout)
        if self._reader is not None:
            self._reader.join(timeout=2)

    def await_end(self, seconds: float) -> bool:
        """Whether the engine has ended, or does so in time without a signal. Never by Popen.wait():
        it has a lock, which the call that a signal handler interrupted may hold."""
        child = self.process
        deadline = time.monotonic() + seconds
        pause = 0.0005
        while child is not None and not _is_dead(child):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2 * pause, 0.05)
        return True

    def cut_lifeline(self) -> None:
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            os.close(lifeline)

    def _read_log(self, stream: IO[bytes]) -> None:
        from logging import DEBUG, ERROR, INFO, WARNING

        levels = {"error": ERROR, "warning": WARNING, "debug": DEBUG}
        with stream:
            for raw in stream:
                line = raw.decode("utf-8", "replace").rstrip("\n")
                self._lines.append(line)
                match = re.match(r"ringpack: (error|warning|debug)\b", line)
                self._logger.log(levels[match[1]] if match else INFO, "%s", line)
