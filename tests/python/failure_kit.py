# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the failure catalogue: a corpus whose rows are easy to compute (its
documents end to end), and the one question of all of them: is a row lost?

A test makes a Tape, reads some of it, lets the failure happen, checks the messages, and calls
`finish`: a new engine, and every row that was not read yet; each row must have come once and with
the bytes that it has without the failure."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy
from refusal_kit import assert_refusal
from stream_kit import Engine, Ranks, write_megatron

SEQ_LEN = 128

# A command in front of the program: io_uring_setup of more than that number of entries answers so.
FILTER = """
import ctypes, os, struct, sys
entries, error = int(sys.argv.pop(1)), int(sys.argv.pop(1))
code = [(0x20, 0, 0, 0), (0x15, 0, 3, 425), (0x20, 0, 0, 16), (0x25, 0, 1, entries)]
code += [(0x06, 0, 0, 0x00050000 | error), (0x06, 0, 0, 0x7FFF0000)]
lines = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
filter = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(lines))
prctl = ctypes.CDLL(None).prctl
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, filter, 0, 0):
    sys.exit("prctl refused the filter")
os.execv(sys.argv[1], sys.argv[1:])
"""
# As in many containers.
WITHOUT_IO_URING = [sys.executable, "-c", FILTER, "0", str(errno.EPERM)]
# The trial at the start, of one entry, gets its ring; for the readers' rings there is no memory.
WITHOUT_MORE_RINGS = [sys.executable, "-c", FILTER, "1", str(errno.ENOMEM)]


class Tape:
    """A long Megatron pair, and the part that was read."""

    def __init__(self, folder, tokens=400000, seed=7, epochs=1, **keys):
        generator = numpy.random.default_rng(seed)
        tape = generator.integers(1, 30000, tokens)
        ends = numpy.arange(400, tokens, 400)
        self.path = write_megatron(Path(folder) / "tape", numpy.split(tape, ends), "u16")
        self.tokens = numpy.tile(tape, epochs)  # as they are delivered
        self.row_count = -(-tokens * epochs // SEQ_LEN)
        self.rows = set()
        self.config = {
            "sources": [self.path],
            "seq_len": SEQ_LEN,
            "batch_size": 4,
            "packing": "concat",
            "shuffle": "none",
            "num_epochs": epochs,
            "prefetch_bytes": "64kb",
            "prefetch_factor": 2,
            **keys,
        }

    def index(self, program):
        """Leave a sidecar, so that every block is compared as it is read."""
        subprocess.run([program, "index", "-q", self.path], check=True, capture_output=True)

    def take(self, batches):
        for batch in batches:
            rows = [row for row, _, _ in batch["rows"].tolist()]
            assert rows == list(range(rows[0], rows[0] + len(rows)))
            assert self.rows.isdisjoint(rows), f"one of the rows {rows} came twice"
            self.rows.update(rows)
            expected = self.tokens[rows[0] * SEQ_LEN : (rows[-1] + 1) * SEQ_LEN]
            found = batch["input_ids"].reshape(-1)[: len(expected)]
            assert (found == expected).all(), f"other tokens in one of the rows {rows}"

    def read(self, ranks, turns=None):
        for batches in ranks.turns(turns):
            self.take(batches)

    def assert_whole(self):
        lost = set(range(self.row_count)) - self.rows
        assert not lost, f"lost rows {sorted(lost)[:9]}"


def finish(program, folder, tape, token=None, **changes):
    """A new engine serves the rest; with `token` the trainer brings its own state, otherwise the
    engine's checkpoint has the position. Returns its log."""
    engine = Engine(program, folder, {**tape.config, **changes})
    try:
        with Ranks(engine, token=token) as ranks:
            tape.read(ranks)
        tape.assert_whole()
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    return engine.log()


def assert_ended_by(engine, *texts):
    """It has refused to continue: exit code 2, one error with these texts, and the next step."""
    assert_refusal(engine.wait(), engine.log(), *texts)


class Storm:
    """Signals to processes, about a thousand a second, until the end of the block."""

    def __init__(self, pids, names, seed=1):
        self.pids, self.signals = pids, [getattr(signal, name) for name in names]
        self.generator, self.sent, self.over = numpy.random.default_rng(seed), 0, False
        self.thread = threading.Thread(target=self._blow)

    def _blow(self):
        while not self.over:
            for pid in self.pids:
                try:
                    os.kill(pid, self.signals[self.generator.integers(len(self.signals))])
                except ProcessLookupError:
                    return
                self.sent += 1
            time.sleep(0.0005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()


def in_namespace(script, *options):
    """A prefix that runs a program in a mount namespace of its own, after `script`."""
    return ["unshare", "-m", *options, "sh", "-c", f'{script} && exec "$@"', "sh"]


def python_prefix(text):
    """A prefix that does something to its own process and becomes the program."""
    return [sys.executable, "-c", f"import os, sys\n{text}\nos.execv(sys.argv[1], sys.argv[1:])"]
