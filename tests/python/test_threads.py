# SPDX-License-Identifier: Apache-2.0
"""Threads that use one loader at once, on fake_client.c: each batch is given once, a closed loader
leaves its engine and continues where its reader stopped. tests/package/free_threaded runs these in
a Python without a lock as well."""

import subprocess
import sys
import threading

import pytest
import ringpack
from conftest import ROOT
from fake_kit import ROWS, tokens

ROUNDS = 1000
STEPS = 5000
LIMIT = 600  # seconds of a join; no working one takes that long
DONE = threading.Event()  # one of the threads has ended: the others, which serve it, end as well


@pytest.fixture(autouse=True)
def turns():
    """Threads of a Python with a lock take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_all(*functions):
    """In a thread each, to their ends, which are without an exception."""
    ended = []

    def run(function):
        try:
            function()
            ended.append(function)
        finally:
            DONE.set()

    DONE.clear()
    threads = [threading.Thread(target=run, args=(own,), daemon=True) for own in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert len(ended) == len(functions)


@pytest.mark.parametrize("step", ["next", "borrow"])
def test_threads_that_step_at_once_get_each_batch_once(loader, step):
    taken, strange, start = [], [], threading.Barrier(3)

    def read():
        for _ in range(ROUNDS):
            start.wait(LIMIT)
            try:
                batch = getattr(loader, step)()
                taken.append(batch.number)
                batch.close()
            except ringpack.ConcurrentCallError:
                pass
            except Exception as failure:
                strange.append(failure)

    run_all(read, read, read)
    assert not strange
    assert sorted(taken) == list(range(len(taken))) and len(taken) >= ROUNDS


def test_a_loader_is_closed_again_and_again_while_another_thread_steps(fake):
    loader, living = ringpack.Loader(run="x"), fake.fake_living()
    taken, told = [], set()

    def read():
        while len(taken) < STEPS:
            try:
                batch = loader.next()
                taken.append(batch.number)
            except ringpack.UsageError as failure:
                told.add(str(failure).split(":")[0])

    def close():
        while not DONE.wait(0.001):  # else the reader does little but attach
            loader.close()

    run_all(read, close)
    loader.close()
    assert taken == list(range(len(taken)))
    assert told <= {"this loader was closed while it was used"}
    assert fake.fake_living() == living


def state_row(state):
    """Of a token of the fake client, which counts batches."""
    return int(state["ringpack_state"][16:24].view("<u8")[0]) * ROWS


def test_a_position_that_is_read_while_another_thread_steps_is_one_that_it_had(loader):
    next(loader)
    taken, wrong = [0], []

    def read():
        while len(taken) < STEPS:
            try:
                taken.append(loader.next().number)
            except ringpack.LeaseError:  # a thread that asks was stopped while it looked at a lease
                continue

    def ask():
        while not DONE.is_set():
            least = taken[-1]
            row = state_row(loader.state_dict())
            most = taken[-1] + 1  # one that is being returned
            if not ROWS * (least + 1) <= row <= ROWS * (most + 1):
                wrong.append((least, row, most))

    run_all(read, ask, ask)
    assert not wrong


def test_batches_are_closed_and_viewed_by_threads_while_another_one_steps(fake):
    """A view that another thread got before it was told that the batch is closed is as it was."""
    loader, newest, wrong = ringpack.Loader(run="x", keep=2), [], []

    def read():
        taken = 0
        while taken < STEPS:
            try:
                batch = loader.next()
            except ringpack.LeaseError:  # the others have views
                continue
            if batch.number != taken:
                wrong.append((batch.number, taken))
            taken += 1
            newest[:] = [batch]

    def use():
        while not DONE.is_set():
            for batch in list(newest):
                try:
                    if not (batch["input_ids"] == tokens(batch.number)).all():
                        wrong.append(batch.number)
                    batch.release()
                    batch.close()
                except (ringpack.ReleasedError, ringpack.LeaseError):
                    pass

    with loader:
        run_all(read, use, use)
    assert not wrong


PARTS = ("loader.py", "_attached.py", "_client.py")


class AtLine:
    """While it is entered, `action` runs once in another thread, before line number `line` of PARTS
    that this thread runs; `left` is above 0 if this thread ran fewer."""

    def __init__(self, line, action):
        self.left, self.action = line, action

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def _trace(self, frame, event, _):
        if event == "line":
            self.left -= 1
            if self.left == 0:
                run_all(self.action)
        is_part = frame.f_code.co_filename.endswith(PARTS)
        return self._trace if is_part and frame.f_code.co_name != "__del__" else None


@pytest.mark.parametrize("holds", ["nothing", "the batch"])
def test_another_thread_steps_at_each_line_of_a_close(fake, holds):
    """It gets the next batch, and then that one is not given again; or it gets none."""
    for line in range(1, 200):
        living, got, held = fake.fake_living(), [], []
        loader = ringpack.Loader(run="x")
        next(loader)

        def step():
            try:
                batch = loader.next()
            except ringpack.UsageError as failure:
                assert "closed while" in str(failure)
                return
            got.append(batch.number)
            if holds == "the batch":
                held.append(batch)

        with AtLine(line, step) as other:
            loader.close()
        loader.close()
        assert all(batch.closed for batch in held), f"line {line}"
        assert fake.fake_living() == living, f"line {line}: the engine still has its trainer"
        got += [next(loader).number for _ in range(3)]
        assert got == list(range(1, len(got) + 1)), f"line {line}"
        loader.close()
        if other.left > 0:
            break
    assert line >= 20, "the lines of a close"


def test_a_close_by_another_thread_at_each_line_of_a_step(fake):
    for line in range(1, 200):
        loader, got = ringpack.Loader(run="x"), []
        next(loader)
        with AtLine(line, loader.close) as other:
            try:
                got.append(loader.next().number)
            except ringpack.UsageError as failure:
                assert "closed while" in str(failure)
        got += [next(loader).number for _ in range(3)]
        assert got == list(range(1, len(got) + 1)), f"line {line}"
        loader.close()
        if other.left > 0:
            break
    assert line >= 12, "the lines of a step"


def test_a_loader_that_nobody_closed_says_nothing_at_the_end_of_the_interpreter(fake_path):
    text = "import ringpack\nloader = ringpack.Loader(run='x')\nbatch = next(loader)\n"
    environment = {"RINGPACK_LIBRARY": str(fake_path), "PYTHONPATH": str(ROOT / "tools/python")}
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
