# SPDX-License-Identifier: Apache-2.0
"""Accidents of processes: killed for memory, stormed with signals, started twice, without standard
output, under a clock that jumps, among other users and their planted links. The streams stay exact,
and refusals are by name."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ringpack
from failure_kit import Storm, Tape, assert_ended_by, finish
from refusal_kit import refused, run
from stream_kit import PATIENCE, Ranks, wait_until

IS_ROOT = os.geteuid() == 0
NOBODY = 65534
needs_root = pytest.mark.skipif(not IS_ROOT, reason="needs root, to be another user as well")


@pytest.fixture(scope="session")
def shims(compiler, tmp_path_factory):
    """Libraries to be loaded before the program: name -> path."""
    texts = {
        # every call for the time of day jumps, years back and forth
        "clock": """
            #include <sys/syscall.h>
            #include <time.h>
            #include <unistd.h>
            int clock_gettime(clockid_t clock, struct timespec *now)
            {
                static unsigned calls;
                long result = syscall(SYS_clock_gettime, clock, now);
                if (clock != CLOCK_MONOTONIC)
                    now->tv_sec += __atomic_add_fetch(&calls, 1, 5) % 2 ? 400000000 : -400000000;
                return (int)result;
            }""",
        # a signal that interrupts every system call that can be interrupted
        "interrupt": """
            #include <signal.h>
            static void nothing(int number) { (void)number; }
            __attribute__((constructor)) static void install(void)
            {
                struct sigaction action = {.sa_handler = nothing};
                sigaction(SIGWINCH, &action, 0);
            }""",
    }
    folder, paths = tmp_path_factory.mktemp("shims"), {}
    for name, text in texts.items():
        source, paths[name] = folder / f"{name}.c", folder / f"{name}.so"
        source.write_text(text)
        subprocess.run([*compiler, "-shared", "-fPIC", "-o", paths[name], source], check=True)
    return paths


def preload(path):
    return ["env", f"LD_PRELOAD={path}"]


# ---- memory --------------------------------------------------------------------------------------


class MemoryGroup:
    """A cgroup with a limit of memory, of version 2 or 1. None can be made: OSError."""

    def __init__(self, name, limit):
        root = Path("/sys/fs/cgroup")
        controllers = root / "cgroup.controllers"
        if controllers.exists() and "memory" in controllers.read_text().split():
            self.path, key = root / name, "memory.max"
        else:
            self.path, key = root / "memory" / name, "memory.limit_in_bytes"
        self.path.mkdir()
        try:
            (self.path / key).write_text(str(limit))
            for name in "memory.swap.max", "memory.swappiness":  # or no process would be killed
                if (self.path / name).exists():
                    (self.path / name).write_text("0")
        except OSError:
            self.path.rmdir()
            raise

    def command(self):
        """Run the block in the group, as the first to be killed in it."""
        text = f"echo $$ > {self.path}/cgroup.procs && echo 1000 > /proc/self/oom_score_adj"
        return ["sh", "-c", f'{text} && exec "$@"', "sh"]

    def exhaust(self):
        """Take memory in the group until somebody in it is killed."""
        hog = f"exec {sys.executable} -c 'b\"x\" * (1 << 30)'"
        text = f"echo $$ > {self.path}/cgroup.procs && {hog}"
        subprocess.run(["sh", "-c", text], stderr=subprocess.DEVNULL, check=False)

    def close(self):
        wait_until(self._is_removed, "the end of the memory group")

    def _is_removed(self):
        with contextlib.suppress(OSError):
            self.path.rmdir()
        return not self.path.exists()


def test_killed_for_memory(program, folder, engines):
    """The OOM killer of a cgroup. Where none can be made, SIGKILL stands in for it."""
    group = None
    with contextlib.suppress(OSError):
        group = MemoryGroup(f"ringpack-test-{os.getpid()}", 256 << 20)
    tape = Tape(folder, 200000, checkpoint_dir=str(folder / "checkpoints"))
    try:
        engine = engines(
            program, folder, tape.config, prefix=group.command() if group else ()
        )
        with Ranks(engine, restart_timeout=PATIENCE) as ranks:
            tape.read(ranks, 20)
            if group:
                group.exhaust()
            else:
                engine.process.kill()
            wait_until(lambda: engine.process.poll() is not None, "the death of the engine")
            assert engine.wait() == -signal.SIGKILL
            again = engines(program, folder, tape.config)
            tape.read(ranks)
        tape.assert_whole()
        assert again.wait() == 0
    finally:
        if group:
            group.close()


def test_little_address_space(program, folder, engines):
    """RLIMIT_AS: refused by name, or enough for a whole stream. (Below 20 MiB the program cannot be
    loaded, or its allocator gives up before main.)"""
    tape, refusals = Tape(folder, 20000), 0
    for megabytes in *range(24, 72), 96, 128, 192, 256:
        size = megabytes << 20
        engine = engines(
            program, folder, tape.config, wait=False, prefix=["prlimit", f"--as={size}:{size}"]
        )
        wait_until(lambda: engine.process.poll() is not None or "serving" in engine.log())
        if engine.process.poll() is not None:
            refusals += 1
            status, said = engine.wait(), engine.log()
            assert status == 2 and "ringpack: error" in said, (megabytes, status, said)
            engine.log_path.unlink()
            continue
        with Ranks(engine) as ranks:
            tape.read(ranks)
        tape.assert_whole()
        tape.rows.clear()
        assert engine.wait() == 0
        engine.log_path.unlink()
    assert refusals


# ---- signals -------------------------------------------------------------------------------------

MEANINGLESS = ["SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGWINCH", "SIGCONT", "SIGPIPE"]

TRAINER = """
import os, signal, sys
import ringpack
for name in "SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGWINCH".split():
    signal.signal(getattr(signal, name), lambda *_: None)
    signal.siginterrupt(getattr(signal, name), True)
print("ready", flush=True)
sys.stdin.readline()
total = rows = 0
with ringpack.Loader(run=sys.argv[1], run_dir=sys.argv[2], dp_rank=int(sys.argv[3]),
                     dp_world_size=2) as loader:
    for batch in loader:
        total = (total + batch.digest()) % 2**128
        rows += len(batch["rows"])
print(rows, total, flush=True)
os._exit(0)  # the interpreter's end would put the signals' standard actions back
"""


class Trainer:
    """A process of its own that adds up the digest of its batches."""

    def __init__(self, engine, rank):
        names = [engine.run, str(engine.folder), str(rank)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINER, *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "ready\n"

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self):
        said, _ = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0
        return [int(word) for word in said.split()]


def digest_of(program, folder, config, engines, names=(), prefix=()):
    """The digest of two trainers, while signals rain on all of them."""
    engine = engines(program, folder, config, prefix=prefix)
    trainers = [Trainer(engine, rank) for rank in range(2)]
    pids = [engine.pid, *engine.packers(), *(trainer.process.pid for trainer in trainers)]
    with Storm(pids, names) if names else contextlib.nullcontext() as storm:
        for trainer in trainers:
            trainer.go()
        results = [trainer.result() for trainer in trainers]
    assert engine.wait() == 0, engine.log()
    if storm:
        assert storm.sent > 100
    return sum(rows for rows, _ in results), sum(digest for _, digest in results) % 2**128


@pytest.mark.parametrize("io", ["pread", "io_uring", "mapped"])
def test_a_storm_of_signals(program, folder, engines, shims, io):
    """A thousand a second, to engine, packers and trainers, interrupting their system calls."""
    place = str(folder / "checkpoints")
    keys = {"io": io, "dp_world_size": 2, "packers": 2, "readers": 2, "shuffle": "document"}
    tape = Tape(folder, 1500000, **keys, packer_processes=io == "mapped")
    calm = digest_of(program, folder, tape.config, engines)
    stormy = {**tape.config, "checkpoint_dir": place, "checkpoint_steps": 200}
    interrupted = preload(shims["interrupt"])
    assert digest_of(program, folder, stormy, engines, MEANINGLESS, interrupted) == calm
    assert run(program, "checkpoint", "verify", place).returncode == 0


# ---- no listener ---------------------------------------------------------------------------------


def test_started_without_standard_descriptors(program, folder, engines):
    """Messages must not land in the files that are opened first."""
    tape = Tape(folder, 100000, checkpoint_dir=str(folder / "checkpoints"))
    prefix = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    engine = engines(program, folder, tape.config, prefix=prefix)
    with Ranks(engine) as ranks:
        tape.read(ranks, 5)
        engine.checkpoint()
        tape.read(ranks)
    tape.assert_whole()
    assert engine.wait() == 0
    assert run(program, "checkpoint", "verify", folder / "checkpoints").returncode == 0
    # A checkpoint has the config, whose comments name the program; it was verified just now.
    files = [path for path in folder.rglob("*") if path.is_file()]
    files = [path for path in files if path.suffix not in (".log", ".rpc")]
    assert not [path for path in files if b"ringpack: " in path.read_bytes()]


@pytest.mark.parametrize("kind", ["broken", "full"])
def test_a_log_that_nobody_reads(program, folder, engines, kind):
    """stderr is a pipe without a reader, or one whose reader sleeps: the stream continues."""
    tape = Tape(folder, 100000)
    reader, writer = os.pipe()
    if kind == "broken":
        os.close(reader)
    else:
        os.set_blocking(writer, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(writer, bytes(4096))
        os.set_blocking(writer, True)
    prefix = ["sh", "-c", f'exec "$@" 2>/proc/{os.getpid()}/fd/{writer}', "sh"]
    engine = engines(program, folder, tape.config, prefix=prefix)
    with Ranks(engine) as ranks:
        tape.read(ranks)
    tape.assert_whole()
    assert engine.wait() == 0
    os.close(writer)


def test_a_report_that_cannot_be_written(program, folder):
    """Exit code 2: a report that was not written is no success."""
    tape = Tape(folder, 1000)
    with open("/dev/full", "w") as full:
        command = [program, "inspect", tape.path]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "No space left" in done.stderr


# ---- clocks --------------------------------------------------------------------------------------


def test_a_clock_that_jumps(program, folder, engines, shims):
    """No order and no expiry depends on the time of day."""
    tape = Tape(folder, 200000, checkpoint_dir=str(folder / "checkpoints"), checkpoint_steps=50)
    engine = engines(program, folder, tape.config, prefix=preload(shims["clock"]))
    with Ranks(engine) as ranks:
        tape.read(ranks, 120)
        engine.checkpoint()
        token = ranks.tokens()[0]
    assert engine.stop() == 0
    assert run(program, "checkpoint", "verify", folder / "checkpoints").returncode == 0
    finish(program, folder, tape, token)


@needs_root
def test_another_boot_time(program, folder, engines):
    """The engine's monotonic clock is not the trainer's: a container that was moved."""
    tape = Tape(folder, 100000)
    prefix = ["unshare", "-T", "--monotonic", "100000000", "--boottime", "100000000", "--fork",
              "--kill-child", "--"]  # fmt: skip
    if subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        pytest.skip("no time namespaces here")
    engine = engines(program, folder, tape.config, prefix=prefix)
    with Ranks(engine) as ranks:
        tape.read(ranks, 5)
        assert ringpack.stat(engine.run, folder)
        tape.read(ranks)
    tape.assert_whole()
    assert engine.wait() == 0


# ---- others --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["e2e.lock", "e2e.sock"])
def test_links_planted_in_the_run_directory(program, folder, engines, name):
    """Refused by name; their targets stay as they are."""
    tape, victim, place = Tape(folder, 20000), folder / "victim", folder / "runs"
    place.mkdir(mode=0o700)
    victim.write_text("precious")
    (place / name).symlink_to(victim)
    engine = engines(program, folder, {**tape.config, "run_dir": str(place)}, wait=False)
    assert_ended_by(engine, name)
    assert victim.read_text() == "precious"
    (place / name).unlink()
    finish(program, folder, tape)


def test_a_run_directory_that_is_a_link(program, folder, engines):
    tape, place = Tape(folder, 20000), folder / "runs"
    place.symlink_to(folder)
    engine = engines(program, folder, {**tape.config, "run_dir": str(place)}, wait=False)
    assert_ended_by(engine, "no symlink expected", "--run-dir")
    finish(program, folder, tape)


def test_a_link_planted_in_the_checkpoint_directory(program, folder, engines):
    """Of the name that the next temporary file has: not followed, and not in the way for long."""
    victim, place = folder / "victim", folder / "checkpoints"
    tape = Tape(folder, 100000, checkpoint_dir=str(place))
    victim.write_text("precious")
    engine = engines(program, folder, tape.config)
    with Ranks(engine) as ranks:
        tape.read(ranks, 3)
        saved = Path(engine.checkpoint())
        number = int(saved.stem.rpartition("-")[2]) + 1
        for count in range(3):
            name = f"checkpoint-{number + count:012}.rpc"
            (place / f".{name}.tmp").symlink_to(victim)
            (place / name).symlink_to(victim)
        with contextlib.suppress(ringpack.RingpackError):
            engine.checkpoint()
        token = ranks.tokens()[0]
        assert victim.read_text() == "precious"
    engine.stop()
    assert victim.read_text() == "precious"
    finish(program, folder, tape, token)
    assert victim.read_text() == "precious"


@needs_root
def test_another_user(program, folder, engines):
    """Refused by the kernel's credentials; the others' streams continue."""
    os.chmod(folder, 0o711)
    tape = Tape(folder, 100000)
    engine = engines(program, folder, tape.config)
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    text = f"""
import socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect("{folder}/{engine.run}.sock")
s.send(b"let me in")
print(repr(s.recv(100)))
"""
    with Ranks(engine) as ranks:
        tape.read(ranks, 3)
        os.chmod(folder / f"{engine.run}.sock", 0o777)
        done = subprocess.run([*as_nobody, sys.executable, "-c", text], capture_output=True)
        assert done.stdout in (b"b''\n", b"") and b"let me in" not in done.stdout
        wait_until(lambda: "another user was refused" in engine.log(), "the refusal")
        where = [f"--run={engine.run}", f"--run-dir={folder}"]
        refused(program, "stat", *where, texts=["Permission denied"], prefix=as_nobody)
        tape.read(ranks)
    tape.assert_whole()
    assert engine.wait() == 0


def seconds_of_work(pid):
    """On processors, by all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_few_descriptors_while_it_runs(program, folder, engines):
    """Strangers take them all: who is attached reads on, and when they go others can come."""
    tape = Tape(folder, 200000, checkpoint_dir=str(folder / "checkpoints"))
    engine = engines(program, folder, tape.config, prefix=["prlimit", "--nofile=64:64"])
    with Ranks(engine) as ranks:
        tape.read(ranks, 3)
        strangers = []
        for _ in range(100):
            strangers.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            strangers[-1].setblocking(False)
            with contextlib.suppress(BlockingIOError):
                strangers[-1].connect(f"{folder}/{engine.run}.sock")
        tape.read(ranks, 50)
        before = seconds_of_work(engine.pid)
        time.sleep(1)
        assert seconds_of_work(engine.pid) - before < 0.1, "it does nothing but check who waits"
        for stranger in strangers:
            stranger.close()
        engine.checkpoint()
        token = ranks.tokens()[0]
    assert engine.stop() == 0
    finish(program, folder, tape, token)
