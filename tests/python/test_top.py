# SPDX-License-Identifier: Apache-2.0
"""`ringpack ps` and `ringpack top`, which is watched on a terminal whose screen is read."""

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
from stream_kit import PATIENCE, Corpus, Engine, Stream
from watch_kit import FakeEngine, stat_of

pyte = pytest.importorskip("pyte")

FAR = {"next_row": 1000000000}
ILL = "\x1b[31mno room\n"
CLEAR = b"\x1b[2J", b"\x1b[J", b"\x1b[H\x1b[J"


def rank_of(number, tail, release, **more):
    known = {"rank": number, "replica": 0, "attached": True, "slots": 8, "waits": 12}
    waits = {"wait_p99_seconds": 0.0012, "waiting_seconds": 0, "behind_rows": 40 * number}
    return {**known, **waits, "tail": tail, "release": release, **more}


def answer(run, speed, **more):
    """An answer with all that a screen shows."""
    saves = {"saves": 12, "save_failures": 0, "save_age_seconds": 61, "save_bytes": 20480}
    known = {"next_row": 1234567, "step": 38580, "tokens_per_second_1s": speed, "unsaved_rows": 777}
    shares = {"token_share": 0.75, "weight_share": 0.7, "epochs": 1.25}
    ledger = [{"source": "web", "tokens": 5e6, **shares}]
    past = {"disk": 0.5, "trainer": 2.5}
    now = {"cause": "trainer", "cause_rank": 2, "waiting_seconds": 3}
    ranks = [
        rank_of(0, 16, 8, cause="none", cause_seconds=past),
        rank_of(1, 16, 14, **now),
        rank_of(2, 16, 16, attached=False),
    ]
    starved = {"alert": "starved", "message": "rank 1 has waited", "age_seconds": 4, "raised": True}
    ways = {"mapped_share": 0.5, "buffered_share": 0.25, "direct_share": 0.25}
    more = {"alerts": [starved, {**starved, "alert": "skew", "raised": False}], **ways, **more}
    return stat_of(run, **saves, **{**known, "ledger": ledger, "ranks": ranks, **more})


class Terminal:
    """`ringpack top` in a pseudo-terminal, and its screen."""

    def __init__(self, program, folder, columns=80, lines=24, term="linux"):
        self.screen = pyte.Screen(columns, lines)
        self.stream, self.seen = pyte.ByteStream(self.screen), b""
        self.master, slave = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(
            [program, "top", "--run-dir", str(folder)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": term, "LC_ALL": "C.UTF-8"},
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def resize(self, columns, lines):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def read(self, seconds=0.02):
        if select.select([self.master], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                data = os.read(self.master, 1 << 16)
                self.seen += data
                self.stream.feed(data)

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    def until(self, condition):
        """Until the screen fulfils the condition."""
        deadline = time.monotonic() + PATIENCE
        while not condition(self.text()):
            assert time.monotonic() < deadline, f"the screen stays so:\n{self.text()}"
            self.read()

    def press(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        """The status; the terminal must be as it was."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read()
        self.read()
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is not given back"
        return self.process.returncode

    def hang_up(self):
        os.close(self.master)
        self.master = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        if self.master is not None:
            os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def engines(folder):
    made = [
        FakeEngine(folder, "alpha", answer("alpha", 5e6)),
        FakeEngine(folder, "beta", answer("beta", 9e6, **FAR, mapped_share=None, save_error=ILL)),
    ]
    yield made
    for engine in made:
        with contextlib.suppress(OSError):
            engine.kill()


def order(text):
    """Of the two engines in the list."""
    lines = [line.split()[0] for line in text.split("\n")[2:4] if line]
    return [line for line in lines if line in ("alpha", "beta")]


def test_a_screen_of_80_by_24(program, folder, engines):
    with Terminal(program, folder) as terminal:
        terminal.until(lambda text: order(text) == ["alpha", "beta"] and "q quit" in text)
        text = terminal.text()
        assert "1,234,567 " in text and " 1.0 G " in text and "5.0 M" in text and " 777" in text
        assert "saves 12, 0 failed" in text
        head, alpha, beta = text.split("\n")[1:4]
        assert len(head) == 80 and head.endswith(" m/b/d %")
        assert alpha.endswith(" 50/25/25") and beta.endswith(" -") and len(beta) == 80
        assert "50 % mapped, 25 % buffered" in text and "25 % direct" in text
        assert "[###############]   8/8" in text and "[...............]   0/8" in text
        assert "[###............]   2/8" in text and "no trainer" in text and "1 ms" in text
        assert "waits for" in text and "mostly trainer" in text and "trainer 2, 3." in text
        assert "alert starved, 4." in text and "rank 1 has waited" in text and "skew" not in text
        assert "75.00 %" in text and "q quit" in text.split("\n")[-1]
        terminal.seen = b""
        began = time.monotonic()
        while time.monotonic() < began + 1.5 or not terminal.seen:  # one redraw at least
            terminal.read()
        assert terminal.seen and len(terminal.seen) < 400, "the whole screen is sent again"
        assert not any(clear in terminal.seen for clear in CLEAR), "the screen flickers"
        terminal.press("s")
        terminal.until(lambda text: order(text) == ["beta", "alpha"] and "by speed" in text)
        terminal.press("k")
        terminal.until(lambda text: "?[31mno room?" in text)
        terminal.press("d")
        terminal.until(lambda text: "source" not in text and "saves" not in text)
        engines[0].kill()
        terminal.until(lambda text: "the engine was killed" in text)
        terminal.press("q")
        assert terminal.end() == 0


def test_other_sizes(program, folder, engines):
    with Terminal(program, folder, columns=20, lines=6) as terminal:
        terminal.until(lambda text: "needs 60 x 8" in text and "q quits" in text)
        terminal.resize(132, 50)
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.until(lambda text: order(text) == ["alpha", "beta"] and "#" * 40 in text)
        terminal.resize(60, 8)
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.until(lambda text: order(text) == ["alpha", "beta"] and "#" * 40 not in text)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 0


def test_no_engine_and_bad_terminals(program, folder):
    with Terminal(program, folder) as terminal:
        terminal.until(lambda text: "no engine is running" in text)
        terminal.process.terminate()
        assert terminal.end() == 0
    with Terminal(program, folder) as terminal:
        terminal.until(lambda text: "no engine is running" in text)
        terminal.hang_up()  # it has no controlling terminal, so no SIGHUP ends it
        assert terminal.process.wait(PATIENCE) == 0
    with Terminal(program, folder, term="nonsense") as terminal:
        terminal.until(lambda text: "the terminal `nonsense` is not known" in text)
        assert terminal.end() == 2
    command, nothing = [program, "top"], subprocess.DEVNULL
    done = subprocess.run(command, stdin=nothing, capture_output=True, text=True)
    assert done.returncode == 2 and "ringpack ps" in done.stderr and not done.stdout


def test_ps(program, folder, engines):
    def ps(*arguments):
        command = [program, "ps", "--run-dir", str(folder), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        return done.returncode, done.stdout or done.stderr

    status, text = ps()
    lines = [line.split() for line in text.splitlines()]
    assert status == 0 and sorted(line[0] for line in lines) == ["alpha", "beta", "run"]
    assert f"{os.getpid()}" in text and "1,234,567" in text and "2 of 3" in text
    status, text = ps("--json", "alpha")
    (known,) = json.loads(text)
    assert status == 0 and known["state"] == "running" and known["pid"] == os.getpid()
    assert known["uptime_seconds"] > 0 and known["stat"]["step"] == 38580
    engines[0].kill()
    assert "alpha" not in ps()[1] and "killed" in ps("--all")[1]
    status, text = ps("alpha", "beta")
    assert status == 1 and "killed" in text and "running" in text
    engines[1].stop()
    assert ps() == (0, "no engine is running\n")
    status, text = ps("a/b")
    assert status == 2 and "run name" in text


def test_an_engine_that_is_stopped_does_not_answer(program, folder):
    """SIGSTOP: the screen continues, says so, can be left; and shows the engine again after it."""
    corpus = Corpus(folder, [("npy", "u16", 1, [400])], 3)
    config = Stream(corpus, {"num_epochs": 1}).config()
    engine = Engine(program, folder, {**config, "run": "gamma", "batch_size": 1})
    try:
        with Terminal(program, folder) as terminal:
            terminal.until(lambda text: "gamma" in text and "does not answer" not in text)
            os.kill(engine.pid, signal.SIGSTOP)
            terminal.until(lambda text: "gamma" in text and "it is stopped (SIGSTOP)" in text)
            os.kill(engine.pid, signal.SIGCONT)
            terminal.until(lambda text: "gamma" in text and "does not answer" not in text)
            os.kill(engine.pid, signal.SIGSTOP)
            terminal.press("q")
            assert terminal.end() == 0
    finally:
        engine.kill()
