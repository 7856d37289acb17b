# SPDX-License-Identifier: Apache-2.0
"""Engines and trainers as processes: their parents, and the leftovers after kill -9."""

import concurrent.futures
import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading

import pytest
import ringpack
from conftest import ROOT
from stream_kit import PATIENCE, wait_until
from stream_oracle import KEYS, assert_batch, keys_of


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def run_python(text, *arguments, **options):
    """A Python process that has the package; `text` finds its arguments in sys.argv."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools" / "python")}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, **options.pop("env", {})},
        **options,
    )


@pytest.fixture
def serve(program, corpora, folder):
    """Start engines outside of Python's hands: serve(run, **options)."""
    engines = []

    def start(run, **changes):
        ready, ready_end = os.pipe()
        keys = {**KEYS, "run_dir": folder, "batch_size": 3, "profile": "full"}
        keys = keys_of({**keys, **changes})
        arguments = ["--run", run, "--source", corpora[0], "--ready-fd", str(ready_end)]
        for key, value in keys.items():
            arguments += ["--" + key.replace("_", "-"), str(value)]
        engines.append(subprocess.Popen([program, "serve", *arguments], pass_fds=[ready_end]))
        os.close(ready_end)
        assert os.read(ready, 16) == b"ready\n"
        os.close(ready)
        return engines[-1]

    yield start
    for engine in engines:
        engine.kill()
        engine.wait()


def test_an_engine_of_ours_that_is_killed_is_started_again(make, expected):
    with make(prefetch_factor=4) as loader:
        engines, rows = set(), []
        for batch in loader:
            assert_batch(batch, expected)
            rows.append(batch.first_row)
            if len(rows) in (2, 9, 16):  # the dead engine's published batches still come: 4 at most
                engines.add(loader.engine_pid)
                os.kill(loader.engine_pid, signal.SIGKILL)
        assert len(engines) == 3
        assert rows == list(range(0, len(expected.rows), 3))
        assert loader.counts()["reattaches"] == 3
    assert not any(alive(pid) for pid in engines)


def test_an_engine_starts_where_many_files_are_open(make, expected):
    """select.select() refuses descriptors from 1024 on."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as kept:
        kept.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, limits[1]))
        for _ in range(1024):
            kept.enter_context(open(os.devnull))
        with make() as loader:
            assert_batch(next(loader), expected)


def test_views_outlive_a_killed_engine(make, expected):
    with make() as loader:
        view = next(loader)["input_ids"]
        os.kill(loader.engine_pid, signal.SIGKILL)
        rows = [0]
        with contextlib.suppress(ringpack.LeaseError):  # the dead engine had filled its ring
            while loader.counts()["reattaches"] == 0:
                rows.append(next(loader).first_row)
        assert (view == expected.batch(0, 3)[0]["input_ids"]).all()
        del view
        for batch in loader:
            assert_batch(batch, expected)
            rows.append(batch.first_row)
    assert rows == list(range(0, len(expected.rows), 3))


def test_an_engine_that_always_dies_is_not_started_for_ever(make, folder):
    loader = make().attach()
    os.kill(loader.engine_pid, signal.SIGKILL)
    loader._engine.program = "/bin/false"
    with pytest.raises(ringpack.EngineGoneError, match="status 1 before it was ready"):
        while True:
            next(loader)


def test_an_engine_of_others_that_is_killed_is_waited_for(serve, folder, expected):
    engine = serve("shared")
    patient = {"connect_timeout": PATIENCE, "restart_timeout": PATIENCE}
    with ringpack.Loader(run="shared", run_dir=folder, batch_size=3, **patient) as loader:
        assert loader.engine_pid is None
        rows = []
        for batch in loader:
            assert_batch(batch, expected)
            rows.append(batch.first_row)
            if len(rows) == 6:
                engine.kill()
                engine.wait()
                timer = threading.Timer(0.3, serve, ["shared"])
                timer.start()
        timer.join()
    assert rows == list(range(0, len(expected.rows), 3))


def test_an_engine_that_stays_away_is_an_error(serve, folder):
    engine = serve("shared")
    patient = {"connect_timeout": PATIENCE, "restart_timeout": 0.2}
    with ringpack.Loader(run="shared", run_dir=folder, **patient) as loader:
        next(loader)
        engine.kill()
        engine.wait()
        with pytest.raises(ringpack.EngineGoneError):
            while True:
                next(loader)


PARENT = """
    import os, sys, time, ringpack
    loader = ringpack.Loader(corpus=sys.argv[1], run_dir=sys.argv[2], seq_len=48, batch_size=3)
    next(loader)
    child = os.fork() if sys.argv[3] == "forks" else -1
    if child != 0:
        print(loader.engine_pid, child, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("forks", ["alone", "forks"])
def test_kill_9_of_the_parent_ends_the_engine(program, corpora, folder, forks):
    parent = run_python(PARENT, corpora[0], folder, forks)
    engine, child = map(int, parent.stdout.readline().split())
    try:
        assert alive(engine)
        parent.kill()
        parent.wait()
        wait_until(lambda: not alive(engine))
        wait_until(lambda: not list(folder.glob("*.sock")))
    finally:
        parent.stdout.close()
        if child > 0:
            os.kill(child, signal.SIGKILL)


def test_a_loader_that_is_closed_or_dropped_ends_its_engine(make, folder, corpora):
    loader = make().attach()
    engine = loader.engine_pid
    loader.close()
    assert not alive(engine) and loader.engine_pid is None
    loader = ringpack.Loader(run_dir=folder, corpus=corpora[0], batch_size=3, **KEYS).attach()
    engine = loader.engine_pid
    del loader
    wait_until(lambda: not alive(engine))


RANK = """
    import sys, ringpack
    _, corpus, run_dir, inputs = sys.argv
    with ringpack.Loader(corpus=corpus, run_dir=run_dir, batch_size=2, **eval(inputs)) as loader:
        for batch in loader:
            for row, tokens in zip(batch["rows"]["row"], batch["input_ids"]):
                print(row, tokens.tobytes().hex())
"""


def test_two_ranks_of_a_launcher_share_one_engine(program, corpora, folder, expected):
    ranks = []
    for rank in "01":
        env = {"RANK": rank, "WORLD_SIZE": "2", "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2"}
        env["MASTER_PORT"] = "29500"
        ranks.append(run_python(RANK, corpora[0], folder, KEYS, env=env))
    rows = {}
    counts = []
    for process in ranks:
        lines = process.communicate(timeout=PATIENCE)[0].splitlines()
        assert process.returncode == 0
        counts.append(len(lines))
        for line in lines:
            row, tokens = line.split()
            assert int(row) not in rows
            rows[int(row)] = bytes.fromhex(tokens)
    assert counts[0] == counts[1]
    assert sorted(rows) == list(range(sum(counts)))
    for row, tokens in rows.items():
        assert tokens == expected.batch(row, 1)[0]["input_ids"].tobytes()


def test_waiting_ends_with_ctrl_c_and_with_the_timeout(make, expected):
    with make() as loader:
        last = next(loader)
        os.kill(loader.engine_pid, signal.SIGSTOP)
        try:
            with pytest.raises(ringpack.EngineTimeoutError):
                while True:  # batches in the ring still come
                    last = loader.next(timeout=0.2)
            timer = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])
            with pytest.raises(KeyboardInterrupt):
                timer.start()
                next(loader)
        finally:
            os.kill(loader.engine_pid, signal.SIGCONT)
        batch = next(loader)
        assert batch.first_row == last.next_row
        assert_batch(batch, expected)


def test_waiting_for_an_engine_that_does_not_answer_ends_with_ctrl_c(serve, folder):
    engine, attach = serve("asleep"), ringpack.Loader(run="asleep", run_dir=folder).attach
    engine.send_signal(signal.SIGSTOP)
    os.waitpid(engine.pid, os.WUNTRACED)
    for wait in attach, lambda: ringpack.stat("asleep", folder):
        timer = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            wait()
    engine.send_signal(signal.SIGCONT)
    assert next(attach()).first_row == 0, "the place that nobody waited for was given back"


@pytest.mark.parametrize("number, hint", [(errno.ENOENT, "RINGPACK"), (errno.EMFILE, "ulimit")])
def test_a_program_that_cannot_be_started_is_told_with_the_way_out(make, monkeypatch, number, hint):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("subprocess.Popen", fail)
    with pytest.raises(ringpack.RingpackError, match="could not be started") as raised:
        make().attach()
    assert hint in raised.value.hint


def test_attaching_is_made_of_short_tries(monkeypatch):
    """Ctrl-C waits for the end of the one that is under way."""
    tries = []

    def refuse(connect_timeout, **_):
        tries.append(connect_timeout)
        raise KeyboardInterrupt if len(tries) == 3 else ringpack.EngineGoneError("not yet")

    monkeypatch.setattr("ringpack._placement.Client", refuse)
    with pytest.raises(KeyboardInterrupt):
        ringpack.Loader(run="late", connect_timeout=600).attach()
    assert tries == [0.5] * 3


def test_a_long_wait_for_an_engine_is_told_once(monkeypatch, folder, caplog):
    monkeypatch.setattr("ringpack._attached.TRY_S", 0.01)
    monkeypatch.setattr("ringpack._attached.SILENCE_S", 0.02)
    with pytest.raises(ringpack.EngineGoneError):
        ringpack.Loader(run="late", run_dir=folder, connect_timeout=0.2).attach()
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "not attached for 0.02 s"
    ]
    assert "no engine of that name" in caplog.text


def test_an_interrupt_while_a_batch_is_taken_costs_no_batch(make, expected, monkeypatch):
    """The library has lent the batch, and its caller never got it: the state stays before it."""

    def interrupt(*_):
        raise KeyboardInterrupt

    with make() as loader:
        for taken in range(5):
            before = loader.state_dict(text=True), loader.next_row
            with monkeypatch.context() as patch:
                patch.setattr("ringpack.loader.new", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    next(loader)
            assert (loader.state_dict(text=True), loader.next_row) == before
            batch = next(loader)
            assert batch.number == taken
            assert_batch(batch, expected)
            assert loader.state_dict(text=True) != before[0]
        lent = loader.state_dict(text=True)
        with monkeypatch.context() as patch:
            patch.setattr("ringpack.loader.new", interrupt)
            with pytest.raises(KeyboardInterrupt):
                next(loader)
        loader.close()  # the undelivered batch goes back, and the position is before it
        assert loader.state_dict(text=True) == lent
        assert next(loader).first_row == batch.next_row


def test_relative_paths_are_those_of_the_loaders_birth(
    make, folder, corpora, expected, monkeypatch
):
    """Also for an engine that is started, or started again, after a chdir."""
    monkeypatch.chdir(os.path.dirname(corpora[0]))
    place = os.path.basename(corpora[0])
    loader = make(corpus=place, run_dir=os.path.relpath(folder), prefetch_factor=4)
    monkeypatch.chdir("/")
    with loader:
        rows = [next(loader).first_row]
        os.kill(loader.engine_pid, signal.SIGKILL)
        for batch in loader:
            assert_batch(batch, expected)
            rows.append(batch.first_row)
        assert rows == list(range(0, len(expected.rows), 3))
        assert loader.counts()["reattaches"] == 1
        assert len(loader) == len(rows)


def test_two_threads_at_once_are_refused(make, expected):
    """Also at the start, which would make two trainers of one rank; one after the other may."""
    loader, taken = make(start_timeout=PATIENCE), []

    def take():
        try:
            for batch in loader:
                assert_batch(batch, expected)
                taken.append(batch.first_row)
        except ringpack.ConcurrentCallError as error:
            return str(error)

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        told = [done.result() for done in [pool.submit(take) for _ in range(3)]]
        pool.submit(take).result()
    refused = [text for text in told if text is not None]
    assert all("two threads" in text for text in refused)
    assert taken == list(range(0, len(expected.rows), 3))


def is_refused(call):
    """Whether another thread is inside; else there is no batch."""
    try:
        call(timeout=0)
    except ringpack.ConcurrentCallError as error:
        assert "let one thread at a time" in error.hint
        return True
    except ringpack.EngineTimeoutError:
        return False


def attached_without_batches(make):
    """A loader whose engine is stopped, and the numbers of the batches that it had published."""
    loader, taken = make().attach(), []
    os.kill(loader.engine_pid, signal.SIGSTOP)
    with pytest.raises(ringpack.EngineTimeoutError):
        while True:
            taken.append(loader.next(timeout=0.3).number)
    return loader, taken


def test_the_library_refuses_a_call_inside_of_anothers_wait(make):
    """The package's own check is passed by; no batch is lost."""
    loader, taken = attached_without_batches(make)
    row, lent = loader.next_row, []
    wait = threading.Thread(target=lambda: lent.append(loader._client.next(int(PATIENCE * 1e9))))
    wait.start()
    wait_until(lambda: is_refused(loader.next))
    assert is_refused(loader.borrow)
    assert loader.next_row == row
    os.kill(loader.engine_pid, signal.SIGCONT)
    wait.join()
    taken += [next(loader).number for _ in range(5)]
    assert taken == list(range(len(taken)))


@pytest.mark.parametrize("step", ["next", "borrow"])
def test_no_thread_comes_in_between_a_look_and_a_claim(make, monkeypatch, step):
    """Python may let another thread run at the end of any call, also of get_ident."""
    loader, taken = attached_without_batches(make)
    reader = threading.Thread(target=lambda: taken.extend(batch.number for batch in loader))

    def get_ident():
        if threading.current_thread() is threading.main_thread() and reader.ident is None:
            reader.start()
            wait_until(lambda: loader._user == reader.ident)
        return threading.get_ident()

    monkeypatch.setattr("ringpack.loader.get_ident", get_ident)
    monkeypatch.setattr("ringpack._attached.get_ident", get_ident)
    assert is_refused(getattr(loader, step))
    assert loader._user == reader.ident
    os.kill(loader.engine_pid, signal.SIGCONT)
    reader.join()
    assert taken == list(range(len(taken)))


def test_a_loader_is_closed_while_another_thread_waits(make):
    loader, raised = make().attach(), []
    os.kill(loader.engine_pid, signal.SIGSTOP)

    def read():
        try:
            for _ in loader:
                pass
        except ringpack.UsageError as error:
            raised.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    wait_until(lambda: loader.counts()["waits"])  # the ring is empty
    loader._detach()
    thread.join()
    os.kill(loader.engine_pid, signal.SIGCONT)
    assert raised and "another thread" in raised[0]


def test_a_fork_may_read_with_a_loader_of_its_own(make, folder, corpora):
    with make() as loader:
        first = next(loader)["input_ids"].tolist()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                next(loader)
            except ringpack.UsageError:
                own = ringpack.Loader(run_dir=folder, corpus=corpora[0], batch_size=3, **KEYS)
                with own:
                    status = 0 if next(own)["input_ids"].tolist() == first else 2
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert next(loader).number == 1


def test_the_program_by_its_module(program):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools" / "python")}
    command = [sys.executable, "-m", "ringpack", "help"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0 and "serve" in run.stdout
    environment["RINGPACK"] = "/nowhere/ringpack"
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 2 and "/nowhere/ringpack" in run.stderr
