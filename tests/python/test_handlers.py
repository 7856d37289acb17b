# SPDX-License-Identifier: Apache-2.0
"""Every public method, called by a signal handler inside of a step, in every state of a step: none
waits for ever, and no batch is lost or given twice. On fake_client.c before each line of a step; on
real engines in each state that waits."""

import json
import subprocess
import sys

import pytest
import ringpack
from fake_kit import SLOTS, tokens
from stream_kit import PATIENCE


def skip_or_refuse(loader):
    """Inside a call it is refused; if the engine is another's, the key of its next start comes."""
    try:
        assert loader.skip(rows=999999) == {"rows": ["999999-1000000"]}
    except ringpack.UsageError:
        pass


def stream_or_refuse(loader):
    loader._names = ("train",)
    assert loader.stream("train") is loader
    with pytest.raises(ringpack.UsageError, match="no stream"):
        loader.stream("eval")


QUESTIONS = {
    "state_dict": lambda loader, _: loader.state_dict(),
    "get_state": lambda loader, _: loader.get_state(),
    "start_prefetch": lambda loader, _: loader.start_prefetch(),
    "next_row": lambda loader, _: loader.next_row,
    "plan_digest": lambda loader, _: loader.plan_digest,
    "counts": lambda loader, _: loader.counts(),
    "progress": lambda loader, _: loader.progress(),
    "global_batch_size": lambda loader, _: loader.global_batch_size,
    "micro_batches": lambda loader, _: loader.micro_batches,
    "stage_ended": lambda loader, _: loader.stage_ended,
    "skip": lambda loader, _: skip_or_refuse(loader),
    "contract": lambda loader, _: loader.contract(),
    "check_ranks": lambda loader, _: loader.check_ranks(lambda f: [{**f, "dp_world_size": 1}]),
    "streams": lambda loader, _: loader.streams,
    "stream": lambda loader, _: stream_or_refuse(loader),
    "run": lambda loader, _: loader.run,
    "engine_pid": lambda loader, _: loader.engine_pid,
    "set_epoch": lambda loader, _: loader.set_epoch(0),
    "attach": lambda loader, _: loader.attach(),
}
REFUSED = {
    "next": lambda loader, _: loader.next(0),
    "borrow": lambda loader, _: loader.borrow(0),
}
MOVES = {
    "close": lambda loader, _: loader.close(),
    "load_state_dict": lambda loader, state: loader.load_state_dict(state),
    "set_state": lambda loader, state: loader.set_state(state),
    "reset": lambda loader, _: loader.reset(),
}
OF_BATCHES = {
    "batch.view": lambda batch: batch.view("input_ids"),
    "batch.ring": lambda batch: batch.ring("input_ids"),
    "batch.made": lambda batch: batch.made("input_ids"),
    "batch.block_mask": lambda batch: batch.block_mask(),
    "batch.varlen": lambda batch: batch.varlen("xformers"),
    "batch.adopt": lambda batch: batch.adopt(batch.view("input_ids")),
    "batch.flat": lambda batch: batch.flat(),
    "batch.copy": lambda batch: batch.copy(),
    "batch.to": lambda batch: batch.to("cpu"),
    "batch.record_stream": lambda batch: batch.record_stream(None),
    "batch.documents": lambda batch: batch.documents(),
    "batch.explain": lambda batch: batch.explain(),
    "batch.digest": lambda batch: batch.digest(),
    "batch.state_dict": lambda batch: batch.state_dict(),
    "batch.epoch": lambda batch: batch.epoch,
    "batch.closed": lambda batch: batch.closed,
    "batch.release": lambda batch: batch.release(),
    "batch.close": lambda batch: batch.close(),
    "batch.end": lambda batch: batch.end("was ended"),
    "batch.keys": lambda batch: list(batch.keys()),
    "batch.items": lambda batch: list(batch.items()),
    "batch.values": lambda batch: list(batch.values()),
    "batch.get": lambda batch: batch.get("input_ids"),
}
NUMBERS = {name for name, value in vars(ringpack.Batch).items() if isinstance(value, property)}


def test_the_tables_have_every_public_method():
    public = {name for name in dir(ringpack.Loader) if not name.startswith("_")}
    assert public == {*QUESTIONS, *REFUSED, *MOVES}
    public = {f"batch.{name}" for name in dir(ringpack.Batch) if not name.startswith("_")}
    assert public == {*OF_BATCHES, *(f"batch.{name}" for name in NUMBERS)}


PARTS = ("loader.py", "_attached.py", "_position.py", "_client.py", "_lease.py")


def interfere(loader, line, act):
    """The next batch, and whether `act` ran: it does before the `line`-th line of the step."""
    left, done = line, False

    def trace(frame, event, _):
        nonlocal left, done
        if event == "line":
            left -= 1
            if left == 0:
                done = True
                sys.settrace(None)  # a handler is not traced
                act()
                sys.settrace(trace)
        is_part = frame.f_code.co_filename.endswith(PARTS)
        return trace if is_part and frame.f_code.co_name != "__del__" else None

    sys.settrace(trace)
    try:
        return loader.next(), done
    except ringpack.UsageError as failure:
        assert "closed while" in str(failure)
        return None, done
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("holds", ["nothing", "a view"])
@pytest.mark.parametrize("name", [*QUESTIONS, *REFUSED, *MOVES])
def test_at_each_line_of_a_step(fake, name, holds):
    """Each loop continues with the batch after the last one that it got, or at its loaded
    position."""
    act, refusals = {**QUESTIONS, **REFUSED, **MOVES}[name], 0
    for line in range(1, 200):
        with ringpack.Loader(run="x") as loader:
            start = loader.state_dict()
            view = next(loader)["input_ids"] if holds == "a view" else None
            view = next(loader)["input_ids"] if holds == "a view" else next(loader) and None
            told, taken = [], []

            def handler():
                try:
                    batch = act(loader, start)
                    if name in REFUSED:  # before the step has begun
                        taken.append(batch.number)
                        batch.close()
                except ringpack.UsageError as failure:
                    told.append(str(failure))

            if name in MOVES and name != "close":
                view = None  # it would be a LeaseError, rightly
            first = 2 if holds == "a view" else 1
            batch, done = interfere(loader, line, handler)
            del view
            if not done:
                break
            assert len(told) + len(taken) == (name in REFUSED), told
            sent = name in MOVES and name != "close"
            got = taken + ([] if batch is None else [batch.number])
            if batch is not None and not batch.closed:
                assert (batch["input_ids"] == tokens(batch.number)).all()
            del batch
            got += [next(loader).number for _ in range(2 * SLOTS)]
            if sent and got[0] == 0:
                first = 0
            if sent and got[0] != 0:  # the batch was given by then
                assert got.pop(0) == first
                first = 0
            assert got == list(range(first, first + len(got))), f"line {line}"
        refusals += len(told)
    assert line >= 12, "the lines of a step"
    assert (refusals > 5) == (name in REFUSED)


@pytest.mark.parametrize("name", OF_BATCHES)
def test_batches_at_each_line_of_a_step(fake, name):
    for line in range(1, 200):
        with ringpack.Loader(run="x", keep=2) as loader:
            before = next(loader)

            def handler():
                try:
                    OF_BATCHES[name](before)
                except (ringpack.RingpackError, KeyError, RuntimeError, ValueError):
                    pass  # it was closed by then; or a record has no copy on a device, or the fake
                    # engine knows no more than one document

            batch, done = interfere(loader, line, handler)
            if not done:
                break
            got = [batch.number] + [next(loader).number for _ in range(2 * SLOTS)]
            assert got == list(range(1, 2 * SLOTS + 2)), f"line {line}"
        if line > 40:
            break
    assert line >= 12, "the lines of a step"


WAITS = """
import faulthandler, json, os, signal, sys, threading, time
import conftest, ringpack, test_handlers
state, corpus, folder = sys.argv[1:4]
faulthandler.dump_traceback_later(float(sys.argv[4]), exit=True)
options = dict(seq_len=48, batch_size=2, run_dir=folder)
if state == "attaching":
    loader = ringpack.Loader(run="nobody", run_dir=folder, connect_timeout=600)
    token = None
elif state == "ended":
    loader = ringpack.Loader(corpus=corpus, **options)
else:
    loader = ringpack.Loader(corpus=corpus, **options, num_epochs="endless", dp_rank=0,
                             dp_world_size=2, run="waits", start_engine=True)
batch = None
if state != "attaching":
    token = loader.state_dict()
    batch = next(loader)
if state == "ended":
    while loader.next() is not None:
        pass
answers = {}

def ask(name, call):
    try:
        call()
        answers[name] = "answered"
    except Exception as failure:
        answers[name] = type(failure).__name__

def handler(*_):
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    for name, call in {**test_handlers.QUESTIONS, **test_handlers.REFUSED}.items():
        ask(name, lambda: call(loader, token))
    if batch is not None:
        for name, call in test_handlers.OF_BATCHES.items():
            if name != "batch.explain":  # runs the program
                ask(name, lambda: call(batch))
    ask("str", lambda: str(loader))
    moves = sys.argv[5].split(",") if sys.argv[5] else []
    for name in moves:
        ask(name, lambda: test_handlers.MOVES[name](loader, token))
    print(json.dumps(answers), flush=True)
    if not moves:
        os._exit(0)

signal.signal(signal.SIGUSR1, handler)

def prod():
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGUSR1)

if state == "engine dead":
    loader._engine._owner = -1  # nobody starts it again
    os.kill(loader.engine_pid, signal.SIGKILL)
    loader._engine = None
threading.Thread(target=prod, daemon=True).start()
try:
    if state == "ended":
        loader.next()
        signal.pause()
    while loader.next() is not None:
        if len(answers) > 3:
            print(json.dumps("next batch"), flush=True)
            os._exit(0)
except ringpack.UsageError as failure:
    print(json.dumps(str(failure)), flush=True)
os._exit(0)
"""


def handled(corpora, folder, state, moves=""):
    command = [sys.executable, "-c", WAITS, state, corpora[0], folder, str(PATIENCE), moves]
    place = str(__import__("pathlib").Path(__file__).parent)
    done = subprocess.run(command, capture_output=True, text=True, cwd=place)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("state", ["waiting", "ended", "engine dead", "attaching"])
def test_in_each_state_that_waits(program, corpora, folder, state):
    [answers] = handled(corpora, folder, state)
    unknown = {"contract", "check_ranks", "attach", "state_dict", "get_state", "next_row"}
    unknown |= {"plan_digest", "counts", "progress", "global_batch_size", "micro_batches"}
    for name in QUESTIONS:
        expected = "UsageError" if state == "attaching" and name in unknown else "answered"
        assert answers[name] == expected, (name, answers)
    if state not in ("ended",):
        assert answers["next"] == answers["borrow"] == "UsageError"
    assert answers["str"] == "answered"


@pytest.mark.parametrize("state", ["waiting", "engine dead", "attaching"])
def test_close_ends_a_step_that_waits(program, corpora, folder, state):
    answers, end = handled(corpora, folder, state, "close")
    assert answers["close"] == "answered" and "closed while" in end


def test_a_step_that_waits_goes_where_it_is_sent(program, corpora, folder):
    answers, end = handled(corpora, folder, "waiting", "load_state_dict")
    assert answers["load_state_dict"] == "answered" and end == "next batch"
