# SPDX-License-Identifier: Apache-2.0
"""A run of version 2 continues with greater limits: well before they are reached, once all
documents are planned, and from the end; twice; with other ranks; through kills. Every row, state
and digest is the oracle's (tests/oracle/stream2.py), before the change and after it, also in the
tools."""

import json
import subprocess

import pytest
import ringpack
from ringpack.errors import CheckpointMismatchError
from served_kit import STEP, Served, read, refusal, serve, stop_at
from step_kit import Steps
from stream2_kit import Stream2
from stream2_state import Token
from stream_kit import Corpus, Ranks, write_state

SEED = 512
SHAPE = 1, 2
DEAL = {"window": 2 * STEP, "step": STEP, "tier": 2, "bundle": 1, "order": "middle", "K": 9}
PLACES = ["middle", "drained", "end"]
RAISED = "so a start has to raise its limits"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    layout = [("megatron", "u16", 1, [40]), ("raw", "u16", 1, [20])]
    return Corpus(tmp_path_factory.mktemp("corpus"), layout, SEED, seq_len=24)


def unplanned(corpus, limits, deal=None, **more):
    """`limits`: of source b; a has one epoch less."""
    stage = {"from": 0, "seq_len": 32, "weight": {"a": 2, "b": 1}, "packing": "lookahead"}
    stage |= {"window": 6, "fill": "pad", "max_docs_per_row": 6, "spread": 8, "deal": deal}
    stage |= {"global_batch_size": STEP}
    keys = {"seed": SEED, "shuffle": "document", "group": 1, "long_doc": "split"}
    sources = [{"name": "a", "max_epochs": 2}, {"name": "b", "max_epochs": 3}]
    for source, own in zip(sources, limits):
        source |= own if isinstance(own, dict) else {"max_epochs": own}
    return Stream2(corpus, {**keys, **more}, sources, [stage])


def is_drained(token):
    """Whether all epochs are planned, and documents wait for rows."""
    state = Token(token).state
    return all(own.e >= most for own, most in zip(state.sources, (2, 3))) and state.waiting()


def row_of(stream, place):
    """Checkpoints are of step boundaries, and inside of a deal window."""
    drained = [g for g, token in enumerate(stream.tokens) if g % STEP == 0 and is_drained(token)]
    assert drained and drained[0] + 2 < len(stream.rows)
    rows = {"middle": STEP, "drained": drained[0], "end": len(stream.rows)}
    return rows[place]


def raised(before, row, limits, **more):
    deal = before.stages[0]["deal"]
    after = unplanned(before.corpus, limits, deal, **more).resume(before, row)
    assert len(after.rows) > len(before.rows)
    return after


def records_of(stream):
    return [(r["from"], sorted(r["limits_before"])) for r in stream.plan.calendar.records[1:]]


def end_at(program, folder, stream, shape, row, **keys):
    """The state at a row, of an engine that was stopped there or has ended."""
    if row < len(stream.rows):
        return stop_at(program, folder, stream, shape, row, **keys)
    served = Served(stream)
    engine = serve(program, folder, stream, shape, **keys)
    try:
        with Ranks(engine, shape[0]) as ranks:
            read(ranks, served, shape)
            token = served.states(ranks)
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    return served, token


def go_on(program, folder, served, stream, shape, *arguments, turns=None, **keys):
    """The next engine of the run, with the plan `stream`; it is killed after `turns`."""
    served.stream, served.steps = stream, Steps(stream, None)
    engine = serve(program, folder, stream, shape, *arguments, **keys)
    try:
        with Ranks(engine, shape[0]) as ranks:
            served.rewind(ranks.loaders[0].next_row)
            served.token = served.states(ranks)
            if turns != 0:
                read(ranks, served, shape, turns)
                served.token = served.states(ranks)
            if turns and "checkpoint_dir" in keys:
                engine.checkpoint()
        if turns is None:
            assert engine.wait() == 0, engine.log()
            assert served.row == len(stream.rows)
            assert served.digest == stream.digest
    finally:
        engine.kill()


@pytest.mark.parametrize("start", ["state", "checkpoint"])
@pytest.mark.parametrize("place", PLACES)
def test_limits_are_raised_at_any_row(program, folder, corpus, place, start):
    """A checkpoint has contents of rows that end without the new epochs."""
    deal = DEAL if start == "checkpoint" else None
    before = unplanned(corpus, (2, 3), deal).run()
    row = row_of(before, place)
    after = raised(before, row, (3, {"max_epochs": 9, "max_tokens": 1500}))
    end = Token(before.tokens[row]).e
    assert records_of(after) == ([] if place == "middle" else [(end, ["a", "b"])])
    keys = {"checkpoint_dir": str(folder / "saved")} if start == "checkpoint" else {}
    served, token = end_at(program, folder, before, SHAPE, row, **keys)
    state = ("--state", write_state(folder / "token", token)) if start == "state" else ()
    go_on(program, folder, served, after, SHAPE, *state, turns=0, **keys)
    go_on(program, folder, served, after, SHAPE, *state, turns=3, **keys)
    state = () if not state else ("--state", write_state(folder / "token", served.token))
    go_on(program, folder, served, after, SHAPE, *state, **keys)


def test_limits_are_raised_twice_by_other_jobs(program, folder, corpus):
    """Kills before the first batch, between checkpoints and after them; other ranks and batches."""
    keys = {"checkpoint_dir": str(folder / "saved")}
    first = unplanned(corpus, (2, 3), DEAL).run()
    drained = row_of(first, "drained")
    second = raised(first, drained, (3, 4))
    third = raised(second, len(second.rows), (4, 4))
    assert [names for _, names in records_of(third)] == [["a", "b"], ["a"]]
    served, _ = end_at(program, folder, first, SHAPE, drained, **keys)
    for shape, turns in ((1, 2), 0), ((2, 1), 2), ((1, 4), 0), ((4, 2), None):
        go_on(program, folder, served, second, shape, turns=turns, **keys)
    for shape, turns in ((2, 2), 0), ((1, 8), 1), ((1, 1), 5), ((2, 4), None):
        go_on(program, folder, served, third, shape, turns=turns, **keys)
    check_tools(program, folder, third, drained)


def run(program, folder, verb, *arguments):
    command = [program, verb, "-c", "c.yaml", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_tools(program, folder, stream, raised_at):
    """Over the whole stream, from the newest checkpoint."""
    saved, keys = folder / "saved", {**stream.config(), "batch_size": 2, "run": "tools"}
    (folder / "c.yaml").write_text(json.dumps(keys))
    told = run(program, folder, "explain", "--limit", 0, "--json", "--row",
               f"0-{len(stream.rows) - 1}", saved)  # fmt: skip
    rows = [
        [(f["document"], f["offset"], f["tokens"]) for f in row["fragments"]]
        for row in json.loads(told)["rows"]
    ]
    assert rows == [[(f.document, f.offset, f.length) for f in r.fragments] for r in stream.rows]
    for row in 0, raised_at - 2, raised_at, raised_at + 2, len(stream.rows):
        run(program, folder, "state", "--row", row, "-o", f"{row}.token", saved)
        token = (folder / f"{row}.token").read_bytes()
        assert token == stream.state(row, token), f"the state of row {row}"
        said = run(program, folder, "audit", saved, f"{row}.token")
        assert said.startswith(f"identical: all rows before row {row}"), said
    with ringpack.Replay(str(saved), program=program, profile="full") as replay:
        for step in raised_at // STEP + 2, raised_at // STEP - 1:
            for batch in (own for batches in replay.step(step) for own in batches):
                plans = [int(plan[0]) for plan in batch["row_plans"]]
                assert plans == [stream.rows[batch.first_row + i].q for i in range(len(plans))]


def test_states_of_before_give_the_rows_that_the_run_gave(program, folder, corpus):
    """Trainers go back to a row before the change, while the engine is after it. An engine that
    starts at that row with the raised limits has them from there on."""
    before = unplanned(corpus, (2, 3)).run()
    drained, keys = row_of(before, "drained"), {"checkpoint_dir": str(folder / "saved")}
    after = raised(before, drained, (3, 4))
    early = drained - STEP - 2
    other = unplanned(corpus, (3, 4)).resume(before, early)
    assert other.rows != after.rows
    served, _ = end_at(program, folder, before, SHAPE, drained, **keys)
    go_on(program, folder, served, after, SHAPE, turns=5, **keys)
    token = after.state(early, served.token)
    engine = serve(program, folder, after, SHAPE, **keys)
    try:
        with Ranks(engine, 1, token=token) as ranks:
            served.rewind(early)
            read(ranks, served, SHAPE)
    finally:
        engine.kill()
    assert served.row == len(after.rows)
    state = "--state", write_state(folder / "token", token)
    served.rewind(early)
    go_on(program, folder, served, other, SHAPE, *state)


def test_a_trainer_cannot_raise_them_by_its_state(program, folder, corpus):
    """The engine that serves has to start at it; a Loader starts its own again."""
    before = unplanned(corpus, (2, 3)).run()
    end = len(before.rows)
    after = raised(before, end, (3, 4))
    _, token = end_at(program, folder, before, SHAPE, end)
    engine = serve(program, folder, after, SHAPE)
    try:
        with pytest.raises(CheckpointMismatchError, match=RAISED) as raised_error:
            Ranks(engine, 1, token=token, connect_timeout=0.3)
        assert "`--state FILE`" in raised_error.value.hint
    finally:
        engine.kill()
    keys = {**after.config(), "batch_size": 2, "profile": "full", "run_dir": str(folder)}
    (folder / "config.yaml").write_text(json.dumps(keys))
    served = Served(after)
    served.row = end
    with ringpack.Loader(str(folder / "config.yaml"), program=program) as loader:
        loader.load_state_dict({"ringpack_state": token})
        for turn in range(3):  # killed before the first batch, and after it
            loader.attach()
            loader._engine.process.kill()
            served.take([loader.next()], 1, 2)
        for batch in loader:
            served.take([batch], 1, 2)
    assert served.row == len(after.rows)
    assert served.digest == sum(after.row_digests[end:]) % 2**128


def test_less_than_was_read_is_refused(program, folder, corpus):
    before = unplanned(corpus, (2, 3)).run()
    row = row_of(before, "drained")
    _, token = end_at(program, folder, before, SHAPE, row)
    state = "--state", write_state(folder / "token", token)
    longer = unplanned(corpus, (2, 9)).resume(before, row)
    served, epochs = Served(longer), [Token(token).state.sources[1].e for token in longer.tokens]
    late, served.row = epochs.index(5) // 2 * 2 + 2, row
    engine = serve(program, folder, longer, SHAPE, *state)
    try:
        with Ranks(engine, 1) as ranks:
            read(ranks, served, SHAPE, (late - row) // 2)
            token = served.states(ranks)
    finally:
        engine.kill()
    state = "--state", write_state(folder / "token", token)
    less = unplanned(corpus, (2, 4)).config()
    said = refusal(program, folder, {**less, "batch_size": 2}, *state)
    assert "the limits of source b differ: the state has 9 epochs, 0 tokens" in said, said
    assert "set the limits back, or to more than it has read" in said, said


def test_verify_of_a_run_with_raised_limits(program, folder, corpus):
    after = unplanned(corpus, (3, 4)).run()
    keys = {**after.config(), "batch_size": 2, "run": "v"}
    (folder / "c.yaml").write_text(json.dumps(keys))
    said = run(program, folder, "verify", "--kills", 3, "--random", 5, "--rows", 60)
    assert said.endswith("verify: identical\n"), said
