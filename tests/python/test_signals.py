# SPDX-License-Identifier: Apache-2.0
"""Which signals end an engine, which do not, and that none of them costs a row."""

import contextlib
import json
import os
import signal
import subprocess
import time

import pytest
import ringpack
from failure_kit import Tape, finish, python_prefix
from refusal_kit import run
from stream_kit import PATIENCE, Ranks, end_by_signals

# Their default action is to kill, and they are not meant for an engine.
MEANINGLESS = ["SIGUSR1", "SIGUSR2", "SIGALRM", "SIGPIPE", "SIGIO", "SIGVTALRM", "SIGPROF",
               "SIGPWR", "SIGXFSZ", "SIGSTKFLT", "SIGRTMIN", "SIGRTMAX"]  # fmt: skip


@pytest.mark.parametrize("processes", [False, True])
def test_signals_that_an_engine_has_no_use_for(program, folder, engines, processes):
    """Each of them, to the engine and its packers: no effect."""
    tape = Tape(folder, 200000, packers=2, packer_processes=processes)
    engine = engines(program, folder, tape.config)
    with Ranks(engine) as ranks:
        tape.read(ranks, 5)
        for name in MEANINGLESS:
            for pid in [engine.pid, *engine.packers()]:
                os.kill(pid, getattr(signal, name))
        tape.read(ranks)
    tape.assert_whole()
    assert engine.wait() == 0
    assert "packing process" not in engine.log()


IGNORING = """import signal
for name in {names}: signal.signal(getattr(signal, name), signal.SIG_IGN)"""


def survives(engine, names, seconds=1):
    """Whether it lives on after these signals, and after a time in which it could have ended."""
    for name in names:
        engine.process.send_signal(getattr(signal, name))
    with contextlib.suppress(subprocess.TimeoutExpired):
        engine.process.wait(seconds)
    return engine.process.poll() is None


@pytest.mark.parametrize("names", [["SIGHUP"], ["SIGINT"], ["SIGHUP", "SIGINT", "SIGTERM"]])
def test_signals_that_were_ignored_at_start_stay_ignored(program, folder, engines, names):
    """Signals of the end of a session do not end an engine that was started to outlive it; the
    others have their usual effect."""
    tape = Tape(folder, 100000, checkpoint_dir=str(folder / "checkpoints"))
    prefix = python_prefix(IGNORING.format(names=names))
    engine = engines(program, folder, tape.config, prefix=prefix)
    with Ranks(engine) as ranks:
        tape.read(ranks, 5)
        assert survives(engine, names)
        tape.read(ranks, 5)
        token = ranks.tokens()[0]
    if "SIGTERM" in names:
        os.close(engine.lifeline)
        engine.lifeline = None
    assert engine.stop() == 0
    assert "SIGHUP" not in engine.log() and "SIGINT" not in engine.log()
    finish(program, folder, tape, token)


@pytest.mark.parametrize(
    "line", ["nohup {} >> log 2>&1 & echo $!", "{} >> log 2>&1 & echo $!"], ids=["nohup", "&"]
)
def test_an_engine_in_the_background_outlives_its_session(program, folder, line):
    """From a shell that is not interactive: SIGHUP with nohup, and SIGINT with &."""
    tape = Tape(folder, 100000)
    config = folder / "e2e.yaml"
    config.write_text(json.dumps({**tape.config, "run": "e2e", "run_dir": str(folder)}))
    command = f"{program} serve -c {config}"
    shell = subprocess.run(
        ["setsid", "sh", "-c", line.format(command)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=end_by_signals,
    )
    pid = int(shell.stdout)
    try:
        with ringpack.Loader(run="e2e", run_dir=folder, connect_timeout=PATIENCE) as loader:
            tape.take([next(loader)])
            os.kill(pid, signal.SIGHUP if "nohup" in line else signal.SIGINT)
            time.sleep(0.5)
            tape.take(loader)
        tape.assert_whole()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_an_engine_that_takes_ignored_signals_is_found_out(broken, folder, engines, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "take_ignored_signals")
    prefix = python_prefix(IGNORING.format(names=["SIGHUP"]))
    engine = engines(broken, folder, Tape(folder, 100000).config, prefix=prefix)
    assert not survives(engine, ["SIGHUP"], PATIENCE)


@pytest.mark.parametrize("first", ["SIGTERM", "SIGINT", "SIGHUP"])
@pytest.mark.parametrize("second", ["SIGTERM", "SIGINT"])
def test_two_signals(program, folder, engines, first, second):
    """The first saves and ends, the second ends at once: whatever the moment, no row is lost."""
    tape = Tape(folder, 100000, checkpoint_dir=str(folder / "checkpoints"))
    engine = engines(program, folder, tape.config)
    with Ranks(engine) as ranks:
        tape.read(ranks, 5)
        engine.checkpoint()
        tape.read(ranks, 5)
        token = ranks.tokens()[0]
        for name in first, second:
            engine.process.send_signal(getattr(signal, name))
        assert engine.wait() in (0, 128 + getattr(signal, first), 128 + getattr(signal, second))
    assert run(program, "checkpoint", "verify", folder / "checkpoints").returncode == 0
    finish(program, folder, tape, token)
