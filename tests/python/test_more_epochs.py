# SPDX-License-Identifier: Apache-2.0
"""A run continues with another num_epochs (STREAM.md section 8): from mid-epoch, near the end and
from the end, from a state, a checkpoint with contents and a trainer's token; with one rank and with
others. Every row and state is the oracle's."""

import json
import subprocess

import pytest
import ringpack
from state import load_token, save_token
from stream import Plan
from stream_kit import Corpus, Engine, Ranks, Stream, write_state

SEED = 31


@pytest.fixture(scope="module")
def corpus(program, tmp_path_factory):
    layout = [("megatron", "u16", 3, [36]), ("npy", "u16", 1, [20])]
    corpus = Corpus(tmp_path_factory.mktemp("epochs"), layout, SEED)
    corpus.index(program)
    return corpus


def make_stream(corpus, packing="lookahead", epochs=1, lanes=1):
    inputs = {"packing": packing, "num_epochs": epochs, "window": 5, "seed": SEED, "lanes": lanes}
    return Stream(corpus, inputs)


def config_of(stream, **more):
    return {**stream.config(), "batch_size": 1, "profile": "full", "prefetch_factor": 16, **more}


def read_to(program, folder, stream, rows, **more):
    """The token after a number of rows of a fresh run."""
    engine = Engine(program, folder, config_of(stream, **more))
    with Ranks(engine) as ranks:
        assert len(list(ranks.turns(rows))) == rows
        token = ranks.tokens()[0]
    return engine, token


def continued(stream, token, epochs):
    """The oracle's plan from the token on."""
    stream.state(0, token)  # takes the fingerprints
    stream.spec.num_epochs = epochs
    plan = Plan(stream.spec)
    load_token(plan, token)
    return plan


def read_on(ranks, stream, plan, world=1):
    """Rows and states are the plan's, to the end; returns the number of rows."""
    count = 0
    for batches in ranks.turns():
        for batch in batches:
            fragments = plan.row()
            found = batch["provenance"][0, : len(fragments)].tolist()
            assert found == [(f.document, f.offset, f.source, f.length) for f in fragments]
            ids = [t for fragment in fragments for t in stream.tokens(fragment)]
            assert batch["input_ids"][0, : len(ids)].tolist() == ids
            count += len(fragments) > 0
        if count % world == 0 and fragments:
            assert ranks.tokens() == [save_token(plan)] * world
    assert not plan.row()
    return count


@pytest.mark.parametrize("start", ["state", "contents", "trainer"])
@pytest.mark.parametrize("place", ["middle", "near", "end"])
def test_more_epochs_from_any_row(program, folder, corpus, start, place):
    """Near the end, the checkpoint has contents of rows that one epoch packs in another way."""
    packing = {"middle": "best_fit", "near": "lookahead", "end": "concat"}[place]
    lanes = 3 if place == "end" else 1
    stream = make_stream(corpus, packing, lanes=lanes)
    rows = len(stream.rows)
    at = {"middle": rows // 2, "near": rows - 3, "end": rows}[place]
    more = {"checkpoint_dir": str(folder / "checkpoints")} if start == "contents" else {}
    engine, token = read_to(program, folder, stream, at, **more)
    if start == "contents" and place == "end":
        engine.wait()  # it saves, and ends
    elif start == "contents":
        engine.checkpoint()
    engine.kill()
    state = ("--state", write_state(folder / "token", token)) if start == "state" else ()
    engine = Engine(program, folder, config_of(stream, num_epochs=3, **more), *state)
    try:
        brought = token if start == "trainer" else None
        with Ranks(engine, token=brought) as ranks:
            assert read_on(ranks, stream, continued(stream, token, 3)) > rows
    finally:
        engine.kill()


def test_in_mid_epoch_it_is_the_stream_from_row_0(program, folder, corpus):
    """If no source had ended, the rows equal those from a run with these epochs from the start."""
    one, three = make_stream(corpus), make_stream(corpus, epochs=3)
    engine, token = read_to(program, folder, one, 5)
    engine.kill()
    plan = continued(one, token, 3)
    assert [plan.row() for _ in range(5, len(three.rows))] == three.rows[5:]
    engine = Engine(program, folder, config_of(three))
    with Ranks(engine, token=token) as ranks:
        ranks.turn()
        token = ranks.tokens()[0]
        assert token == three.state(6, token)
    engine.kill()


def test_ranks_that_return_after_an_extension(program, folder, corpus):
    """Two ranks continue from the end with their tokens; one dies and returns with a later token,
    also in an engine that knows only its config. A token of before the end is of other rows."""
    stream = make_stream(corpus)
    rows = len(stream.rows) // 2 * 2
    engine, early = read_to(program, folder, stream, rows - 6)
    engine.kill()
    engine, end = read_to(program, folder, stream, len(stream.rows))
    engine.kill()
    more = config_of(stream, num_epochs=2, dp_world_size=2)
    for _ in range(2):
        plan = continued(stream, end, 2)
        engine = Engine(program, folder, more)
        with Ranks(engine, 2, token=end) as ranks:
            for _ in range(3):
                assert [b["rows"][0]["tokens"] for b in ranks.turn()] == [
                    sum(f.length for f in plan.row()) for _ in range(2)
                ]
            end = ranks.tokens()[0]
            assert end == save_token(plan)
            ranks.loaders[1].close()
            with pytest.raises(ringpack.RingpackError, match="of a stream whose weights or num_"):
                known = {"run": engine.run, "run_dir": engine.folder, "dp_world_size": 2}
                other = ringpack.Loader(dp_rank=1, **known)
                other.load_state_dict({"ringpack_state": early})
                other.attach()
            ranks.loaders[1] = ringpack.Loader(dp_rank=1, **known)
            ranks.loaders[1].load_state_dict({"ringpack_state": end})
            read_on(ranks, stream, plan, 2)
        engine.kill()


def test_less_than_was_read_is_refused(program, folder, corpus):
    stream = make_stream(corpus, epochs=3)
    in_second = next(
        g for g, body in enumerate(stream.bodies) if max(epochs_of(stream, body)) >= 1
    )
    engine, token = read_to(program, folder, stream, in_second + 3)
    engine.kill()
    state = write_state(folder / "token", token)
    engine = Engine(program, folder, config_of(stream, num_epochs=1), "--state", state, wait=False)
    assert engine.wait() == 2
    assert "num_epochs differs: the state has 3, this run has 1, but source" in engine.log()
    engine = Engine(program, folder, config_of(stream, num_epochs=2), "--state", state)
    with Ranks(engine) as ranks:
        read_on(ranks, stream, continued(stream, token, 2))
    engine.kill()


def epochs_of(stream, body):
    plan = Plan(stream.spec)
    load_token(plan, body)
    return plan.lanes[0].epoch


def test_explain_and_state_take_the_token_with_its_own_epochs(program, folder, corpus):
    """Rows that were given with one epoch must not be shown as rows of two."""
    stream = make_stream(corpus)
    engine, token = read_to(program, folder, stream, len(stream.rows) - 3)
    engine.kill()
    path = folder / "c.yaml"
    path.write_text(json.dumps(config_of(stream, num_epochs=2)))
    state = write_state(folder / "token", token)
    command = [program, "explain", "-c", path, state, "--row", str(len(stream.rows) - 1)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2 and "num_epochs differs" in done.stderr, done.stderr


def test_version_2_has_another_epoch_from_its_end(make):
    """By a greater limit, or by a stage: both have the same rows."""
    with make(stream_version=2, num_epochs=1) as loader:
        batches = sum(1 for _ in loader)
        state, row, [name] = loader.state_dict(), loader.next_row, loader.progress()["sources"]
    stages = [{"until": f"row {row}"}, {"limits": {name: {"max_epochs": 2}}}]
    ways = {"num_epochs": 2}, {"num_epochs": 1, "stages": stages}
    found = []
    for keys in ways:
        with make(stream_version=2, **keys) as more:
            more.load_state_dict(state)
            found.append([(batch.first_row, batch.digest()) for batch in more])
    assert found[0] == found[1]
    assert found[0][0][0] == row and batches - 1 <= len(found[0]) <= batches + 1
