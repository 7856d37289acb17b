# SPDX-License-Identifier: Apache-2.0
"""Streams of one engine: the rows of a training between evaluations are those of a training without
them, each evaluation is a whole pass from its first row, and no pass starts an engine."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import ringpack
from ringpack._passes import Passing
from loader_streams_kit import CHANGES_SEQ_LEN, STREAMS, rows_of, run_ranks
from loader_streams_kit import held_out, open_streams, serve  # noqa: F401
from stream_kit import PATIENCE
from stream_oracle import assert_batch


def pid_of(loader, folder):
    return ringpack.stat(loader.run, folder)["pid"]


def test_a_training_has_its_rows_between_whole_evaluations(
    open_streams, make, expected, held_out, folder
):
    with open_streams() as train:
        held, other = train.stream("eval"), train.stream("other")
        assert train.streams == tuple(STREAMS) and train.stream("train") is train
        assert train.stream("eval") is held and held.stream("train") is train
        whole = list(range(3 * len(held)))
        assert len(whole) >= len(held_out.rows) > 3
        pids, digests = [pid_of(loader, folder) for loader in (train, held, other)], []
        for step in range(12):
            batch = next(train)
            assert batch.first_row == 3 * step
            assert_batch(batch, expected)
            digests.append(batch.digest())
            del batch
            if step % 3 == 1:
                assert rows_of(held, held_out) == whole
            if step % 4 == 2:
                assert rows_of(other) == list(range(4 * len(other)))
                some = step % 3
                assert rows_of(batch for batch, _ in zip(held, range(some))) == whole[: 3 * some]
        assert pids == [pid_of(loader, folder) for loader in (train, held, other)]
        assert train.counts()["reattaches"] == 0
    with make(num_epochs="endless") as plain:
        assert [next(plain).digest() for _ in range(12)] == digests


@pytest.mark.parametrize("taken", [0, 1, 2, 99])
def test_a_pass_that_is_left_is_followed_by_a_whole_one(open_streams, held_out, taken):
    with open_streams(return_type="torch") as train:
        held = train.stream("eval")
        for _ in range(2):
            for number, batch in enumerate(held):
                if number == taken:
                    break
            with pytest.raises(ZeroDivisionError):
                for batch in held:
                    1 / 0
            assert rows_of(held) == list(range(3 * len(held)))
        assert held.next_row == 0


def test_a_loop_that_is_left_gives_its_last_batch_back(open_streams):
    with open_streams() as train:
        for batch in train.stream("eval"):
            break
        with pytest.raises(ringpack.ReleasedError, match="its pass was left"):
            batch["input_ids"]
        iterator = iter(train.stream("eval"))
        assert len(list(iterator)) == len(train.stream("eval"))
        assert next(iterator, None) is None, "an iterator that has ended stays so"


def test_a_length_that_is_refused_leaves_no_rank_attached(make, corpora):
    """An attached rank would hold up the others."""
    streams = {"train": {}, "eval": {"corpus": corpora[1], "num_epochs": "endless"}}
    with make(streams=streams) as train:
        held = train.stream("eval")
        for _ in range(2):
            with pytest.raises(TypeError, match="an endless stream has no length"):
                len(held)
            assert held._client is None


# ---- ranks --------------------------------------------------------------------------------------


def test_each_rank_has_each_pass_and_one_that_leaves_blocks_none(
    open_streams, make, folder, held_out
):
    """After a pass that one rank left at its first batch, and at several places, the other rank has
    its whole share; the training of both has the rows of a training without evaluations."""
    world = {"dp_world_size": 2, "run": "two", "batch_size": 1, "prefetch_factor": 2}
    loaders = [open_streams(dp_rank=rank, **world) for rank in range(2)]

    def work(rank, train, barrier):
        held, passes, digests = train.stream("eval"), [], []
        for leaver in (None, 0, 1, None, 0):
            digests += [next(train).digest() for _ in range(3)]
            limit = 1 if leaver == rank else 99
            rows = []
            for number, batch in enumerate(held):
                assert_batch(batch, held_out)
                rows += batch["rows"]["row"].tolist()
                if number + 1 == limit:
                    break
            passes.append(rows)
            if leaver is None:
                barrier.wait(PATIENCE)
        return passes, digests, pid_of(held, folder)

    (first, digests, pid), (second, others, same) = run_ranks(loaders, work)
    whole = len(held_out.rows) + len(held_out.rows) % 2
    assert pid == same
    assert [len(rows) for rows in first] == [whole // 2, 1, whole // 2, whole // 2, 1]
    assert [len(rows) for rows in second] == [whole // 2, whole // 2, 1, whole // 2, whole // 2]
    assert sorted(first[0] + second[0]) == list(range(whole)) and first[0] == first[2] == first[3]
    alone = {**world, "run": "plain", "num_epochs": "endless"}
    plain = [make(dp_rank=rank, **alone) for rank in range(2)]
    wanted = run_ranks(plain, lambda rank, loader, _: [next(loader).digest() for _ in range(15)])
    assert [digests, others] == wanted


@pytest.mark.parametrize("how", ["reset", "epoch"])
def test_a_new_pass_of_the_training_leaves_an_evaluation(make, corpora, how):
    streams = {"train": {"num_epochs": 1}, "eval": {"corpus": corpora[1], "num_epochs": 1}}
    with make(streams=streams, restart=True) as train:
        evaluation = iter(train.stream("eval"))
        assert next(evaluation).first_row == 0
        if how == "reset":
            next(train)
            train.reset()
        else:
            assert len(list(train)) == len(train)
        assert next(iter(train)).first_row == 0
        assert next(evaluation).first_row == 3


@pytest.mark.parametrize("how", ["reset", "epoch"])
def test_control_a_reset_that_loads_all_streams(make, corpora, how, monkeypatch):
    def reset(loader):
        loader.load_state_dict({"ringpack_state": loader._first_token()})

    monkeypatch.setattr(Passing, "reset", reset)
    with pytest.raises((AssertionError, StopIteration)):
        test_a_new_pass_of_the_training_leaves_an_evaluation(make, corpora, how)


# ---- kills --------------------------------------------------------------------------------------


def wait_for_other(loader, folder, pid):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            found = pid_of(loader, folder)
        except ringpack.RingpackError:
            found = pid
        if found != pid:
            return found
        time.sleep(0.05)
    raise AssertionError("no other engine")


def test_a_killed_engine_is_replaced_within_a_pass(open_streams, held_out, folder):
    with open_streams(prefetch_factor=2) as train:
        held = train.stream("eval")
        next(train)
        rows, pid, main = [], None, pid_of(train, folder)
        for batch in held:
            rows += batch["rows"]["row"].tolist()
            if pid is None:
                pid = pid_of(held, folder)
                os.kill(pid, signal.SIGKILL)
        assert rows == list(range(3 * len(held))) and wait_for_other(held, folder, pid)
        assert pid_of(train, folder) == main and next(train).first_row == 3
        os.kill(main, signal.SIGKILL)  # its children end, and the loader starts all again
        assert [next(train).first_row for _ in range(12)] == list(range(6, 42, 3))
        assert rows_of(held, held_out) == rows
    with pytest.raises(ringpack.EngineGoneError):
        ringpack.stat(held.run, folder)


def test_an_evaluation_begins_while_its_engine_dies(open_streams, held_out, folder):
    with open_streams() as train:
        next(train)
        held, main = train.stream("eval"), pid_of(train, folder)
        pids = [main, ringpack.stat(f"{train.run}.eval", folder)["pid"]]
        [os.kill(pid, signal.SIGSTOP) for pid in pids]  # nobody answers
        later = threading.Timer(0.3, lambda: [os.kill(pid, signal.SIGKILL) for pid in pids])
        later.start()
        assert rows_of(held, held_out) == list(range(3 * len(held)))
        later.join()
        assert pid_of(train, folder) != main and next(train).first_row == 3


KILLED = """
import os, ringpack, sys
loader = ringpack.Loader(run="served", run_dir=sys.argv[1]).stream("eval")
for number, batch in enumerate(loader):
    if number == 2:
        os.kill(os.getpid(), 9)
"""


def left_by_a_kill(engine_of, folder):
    """The first row of the next trainer after a kill within a pass."""
    engine_of()
    path = os.path.dirname(os.path.dirname(ringpack.__file__))
    command = [sys.executable, "-c", KILLED, folder]
    assert subprocess.run(command, env={**os.environ, "PYTHONPATH": path}).returncode == -9
    with ringpack.Loader(run="served", run_dir=folder) as train:
        held = train.stream("eval")
        rows = rows_of(held.borrow(5) for _ in range(1))
        held.close()
    return rows


def test_a_killed_trainer_is_followed_by_a_whole_pass(serve, folder):
    rows = left_by_a_kill(serve, folder)
    assert rows[0] == 0


def test_control_a_pass_that_begins_where_the_last_one_was_left(serve, folder, broken, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "keep_left_position")
    rows = left_by_a_kill(lambda: serve(of=broken), folder)
    assert rows[0] > 0


def test_serve_and_loader_take_one_config(serve, folder, held_out, make):
    engine = serve(num_epochs="endless")
    with ringpack.Loader(run="served", run_dir=folder) as train:
        assert rows_of(train.stream("eval"), held_out) == rows_of(train.stream("eval"))
        attached = [next(train).digest() for _ in range(3)]
        with pytest.raises(ringpack.UsageError, match="did you mean eval"):
            train.stream("evil")
    engine.send_signal(signal.SIGTERM)
    assert engine.wait(PATIENCE) == 0
    with ringpack.Loader(folder / "config.yaml", run="own") as own:
        assert rows_of(own.stream("eval"), held_out)[0] == 0
        assert [next(own).digest() for _ in range(3)] == attached
        assert own.stream("eval").run == "own.eval"


def test_a_killed_serve_leaves_no_engine_and_starts_again(serve, folder):
    engine = serve(num_epochs="endless")
    children = [ringpack.stat(f"served.{name}", folder)["pid"] for name in ("eval", "other")]
    engine.kill()
    engine.wait(PATIENCE)
    again = serve(num_epochs="endless")
    assert again.poll() is None
    for name, pid in zip(("eval", "other"), children):
        assert ringpack.stat(f"served.{name}", folder)["pid"] != pid


def test_a_name_that_is_held_for_a_moment_is_waited_for(serve, folder, held_out):
    """As by the engine of a killed one that still ends, and answers nobody."""
    with open(folder / "served.eval.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        later = threading.Timer(1.5, lock.close)
        later.start()
        serve()
        later.join()
    with ringpack.Loader(run="served", run_dir=folder) as train:
        assert rows_of(train.stream("eval"), held_out)


def test_commands_take_a_stream(serve, folder, program, held_out):
    """Each command gives the rows, the run and the state of the stream that is named."""
    serve(num_epochs="endless", checkpoint_dir=os.fspath(folder / "kept"))
    config, rows = folder / "config.yaml", len(held_out.rows)

    def ask(*words, of=("-c", config, "--stream", "eval")):
        done = subprocess.run([program, *words, *of], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert json.loads(ask("plan", "--json"))["rows"] == rows
    assert json.loads(ask("config", "show", "--json", "run"))["run"]["value"] == "served.eval"
    stat = json.loads(ask("stat"))
    assert (stat["run"], stat["stream_name"]) == ("served.eval", "eval")
    assert stat["streams"] == [*STREAMS]
    by_run = ["served", "--run-dir", folder, "--stream"]
    assert json.loads(ask("stat", of=[*by_run, "eval"]))["pid"] == stat["pid"]
    assert json.loads(ask("stat", of=[*by_run, "train"]))["run"] == "served"
    explained = json.loads(ask("explain", "--json", "--row", "3"))["rows"][0]["fragments"]
    lengths = [fragment.length for fragment in held_out.rows[3]]
    assert [fragment["tokens"] for fragment in explained] == lengths
    token = folder / "token"
    ask("state", "--step", "1", "-o", token)
    assert ringpack.describe(token)["next_row"] == 3
    audit = ["audit", token, config, "--json"]
    audited = json.loads(ask(*audit, of=["--stream", "eval"]))
    assert (audited["verdict"], audited["rows"]) == ("identical", 3)
    of_main = subprocess.run([program, *audit], capture_output=True, text=True)
    assert of_main.returncode == 1 and '"other_stream"' in of_main.stdout
    ask("checkpoint", "export", "served", "--run-dir", folder, "-o", folder / "saved.token", of=[])
    words = [program, "audit", folder / "kept", config, "--stream", "eval"]
    of_kept = subprocess.run(words, capture_output=True, text=True)
    assert of_kept.returncode == 2 and "has the main stream only" in of_kept.stderr
    by_name = folder / "by-name"
    for words in ["served", "--run-dir", folder], ["--run", "served", "--run-dir", folder]:
        ask("state", *words, "--step", "1", "-o", by_name, of=["--stream", "eval"])
        assert by_name.read_bytes() == token.read_bytes()
    assert ask("explain", "--json", "--row", "3", of=[*by_run, "eval"]) == ask(
        "explain", "--json", "--row", "3", "served.eval", of=["--run-dir", folder])
    for verb in "state", "explain", "journal":
        words = [program, verb, *by_run, "nobody", *{"state": ["--step", "1", "-o", by_name],
                                                     "explain": ["--row", "3"]}.get(verb, ())]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 2 and "no stream `nobody`" in done.stderr, done.stderr
    assert "verify: identical" in ask("verify")
    assert "0 FAIL" in ask("doctor")


# ---- mistakes -----------------------------------------------------------------------------------

BAD = {
    "names": ({"a/b": {}}, "expected a name of at most 32 letters"),
    "unicode": ({"évaluation": {}}, "expected a name of at most 32 letters"),
    "common": ({"train": {}, "eval": {"run_dir": "x"}}, "run_dir: all streams have it in common"),
    "run": ({"train": {}, "eval": {"run": "x"}}, "run: all streams have it in common"),
    "unknown key": ({"train": {}, "eval": {"batch_sizes": 2}}, "did you mean `batch_size`"),
    "directory": ({"train": {}, "eval": {"checkpoint_dir": "c"}}, "only the checkpoints of the"),
    "missing": ({"train": {}, "eval": {"corpus": "nowhere"}}, "nowhere"),
    "seq_len": (
        {"train": {}, "eval": {"stream_version": 2, "stages": CHANGES_SEQ_LEN}},
        "stage 1 changes seq_len from .* to 64, and a pass over stream eval has rows of one length",
    ),
    "range": ({"train": {}, "eval": {"batch_size": 0}}, "batch_size"),
}


@pytest.mark.parametrize("streams, said", BAD.values(), ids=BAD)
def test_bad_streams_are_refused_before_anything_starts(make, streams, said, folder):
    with pytest.raises(ringpack.RingpackError, match=said) as failure:
        make(streams=streams, run="bad").attach()
    assert failure.value.hint
    with pytest.raises(ringpack.EngineGoneError):
        ringpack.stat("bad", folder)


def test_other_mistakes(make, open_streams, program, tmp_path):
    with pytest.raises(ringpack.UsageError, match="expected a mapping of names"):
        make(streams={})
    with pytest.raises(ringpack.UsageError, match="only one stream"):
        make().stream("eval")
    with pytest.raises(ringpack.UsageError, match="the streams are train, eval, other"):
        open_streams().stream("train.eval")
    with pytest.raises(ringpack.UsageError, match="all streams of its config"):
        open_streams(stream="eval").attach()
    config = tmp_path / "c.yaml"
    config.write_text("corpus: x\nseq_len: 8\nbatch_size: 1\nstreams: {}\n")
    for words, said in [
        (["config", "check", "-c", config], "c.yaml:4:10: streams: expected a stream"),
        (["stat", "nobody", "--stream", "eval"], "no engine of that name"),
    ]:
        done = subprocess.run([program, *words], capture_output=True, text=True)
        assert done.returncode == 2 and said in done.stderr and "next:" in done.stderr
