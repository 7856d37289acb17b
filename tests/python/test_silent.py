# SPDX-License-Identifier: Apache-2.0
"""An engine that is stopped (SIGSTOP) does not answer. A request gets a message about it, within
its bound: each verb, each call of the package and of the library."""

import concurrent.futures
import ctypes
import os
import signal
import subprocess

import numpy
import pytest
import ringpack
from failure_kit import Tape
from ringpack import _library
from stream_kit import Ranks

BOUND = 60  # each answers after 10 or 20 s; a machine may be busy
VERBS = {
    "stat": ["stat", "{run}", "--run-dir", "{folder}"],
    "journal": ["journal", "{run}", "--run-dir", "{folder}"],
    "explain": ["explain", "--run", "{run}", "--run-dir", "{folder}", "--step", "1"],
    "state": ["state", "--run", "{run}", "--run-dir", "{folder}", "--step", "1", "-o", "{out}"],
    "export": ["checkpoint", "export", "--run", "{run}", "--run-dir", "{folder}", "-o", "{out}"],
}
WATCHERS = {
    "ps": ["ps", "--run-dir", "{folder}"],
    "metrics": ["metrics", "--once", "--run-dir", "{folder}"],
    "report": ["report", "{run}", "--run-dir", "{folder}", "-o", "{out}"],
    "read": ["read", "{run}", "--run-dir", "{folder}", "--timeout", "2"],
}


class Text(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 4096)]


def stop_by_library(run, folder):
    """rp_run_stop, which has no other caller."""
    library = ctypes.CDLL(os.environ["RINGPACK_LIBRARY"])
    error = Text()
    code = library.rp_run_stop(bytes(folder), run.encode(), ctypes.byref(error))
    return f"{code} {bytes(error)!r}"


def said_by(call, *arguments):
    with pytest.raises(ringpack.RingpackError) as refusal:
        call(*arguments)
    assert isinstance(refusal.value, TimeoutError)
    return str(refusal.value)


def test_each_question_to_a_stopped_engine_is_bounded(program, folder, engines):
    tape = Tape(folder, 200000, checkpoint_dir=str(folder / "checkpoints"))
    engine = engines(program, folder, tape.config)

    def ask(words):
        out = folder / f"out-{words[0]}-{words[1]}"
        names = {"run": engine.run, "folder": folder, "out": out}
        command = [program, *(word.format(**names) for word in words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND)
        return done.returncode, done.stdout + done.stderr

    with Ranks(engine) as ranks, concurrent.futures.ThreadPoolExecutor(16) as pool:
        tape.read(ranks, 5)
        documents = numpy.zeros(1, "V24")  # struct rp_provenance
        os.kill(engine.pid, signal.SIGSTOP)
        try:
            verbs = {name: pool.submit(ask, words) for name, words in VERBS.items()}
            watchers = {name: pool.submit(ask, words) for name, words in WATCHERS.items()}
            calls = {
                "stat()": pool.submit(said_by, ringpack.stat, engine.run, folder),
                "checkpoint()": pool.submit(said_by, ringpack.checkpoint, engine.run, folder),
                "locate": pool.submit(
                    said_by, _library.locate_documents, documents, engine.run, folder
                ),
                "stop": pool.submit(stop_by_library, engine.run, folder),
            }
            for name, asked in verbs.items():
                status, text = asked.result(BOUND)
                assert status == 2 and "is silent" in text and "stopped" in text, (name, text)
            for name, asked in calls.items():
                assert "is silent" in asked.result(BOUND), name
            for name, asked in watchers.items():
                asked.result(BOUND)
            assert "silent" in watchers["ps"].result()[1]
        finally:
            os.kill(engine.pid, signal.SIGCONT)
        tape.read(ranks, 1)
    assert engine.wait() == 0, engine.log()  # rp_run_stop was heard
