# SPDX-License-Identifier: Apache-2.0
"""Resume at every row: in a new process, from a state token's bytes, the rest is the oracle's."""

import random
import shutil

import pytest
import ringpack
from state import load_token, save_token
from stream import Plan
from stream_kit import LONG, Corpus, Engine, Ranks, Stream, Taken, wait_until, write_state
from stream_oracle import assert_batch

SEED = 99
PACKINGS = ["lookahead", "concat", "best_fit"]


@pytest.fixture(scope="module")
def corpus(program, tmp_path_factory):
    layout = [("megatron", "u16", 3, [36]), ("npy", "u16", 1, [20])]
    corpus = Corpus(tmp_path_factory.mktemp("resume"), layout, SEED)
    corpus.index(program)
    return corpus


def make_stream(corpus, packing, **changes):
    """Small windows, so that the FIFO, open rows and pending pieces all turn over."""
    inputs = {"packing": packing, "num_epochs": 1, "window": 5, "fill": "split", "seed": SEED}
    return Stream(corpus, {**inputs, "lanes": 2 if packing == "best_fit" else 1, **changes})


@pytest.fixture(scope="module", params=PACKINGS)
def stream(corpus, request):
    return make_stream(corpus, request.param)


def read_on(engine, stream, row, world=1, **options):
    """From `row` to the end: every row, every state. Returns the tokens by row."""
    taken, tokens = Taken(stream), {}
    with Ranks(engine, world, **options) as ranks:
        tokens[row] = ranks.tokens()[0]
        assert ranks.loaders[0].next_row == row
        for batches in ranks.turns():
            taken.add(batches)
            token = ranks.tokens()[0]
            at = ranks.loaders[0].next_row
            tokens[at] = token
            assert token == stream.state(at, token), f"state at row {at}"
    taken.assert_all(first=row)
    return tokens


@pytest.fixture(scope="module")
def tokens(program, stream, tmp_path_factory):
    """State tokens at every row, from one run that was never interrupted."""
    folder = tmp_path_factory.mktemp("tokens")
    engine = Engine(program, folder, {**stream.config(), "batch_size": 1, "profile": "full"})
    try:
        tokens = read_on(engine, stream, 0)
    finally:
        engine.kill()
    assert sorted(tokens) == list(range(len(stream.rows) + 1))
    return tokens


def test_at_every_row(program, folder, stream, tokens):
    """A new engine from the bytes; the state saved straight after loading has the same bytes."""
    for row in range(len(stream.rows) + 1):
        token = write_state(folder / "token", tokens[row])
        config = {**stream.config(), "batch_size": 1, "prefetch_bytes": "64kb"}
        engine = Engine(program, folder, config, "--state", token)
        try:
            assert read_on(engine, stream, row) == {r: t for r, t in tokens.items() if r >= row}
        finally:
            engine.kill()


def test_at_every_row_by_the_trainer(program, folder, stream, tokens):
    """The same, but the token comes from the trainer, and the engine stands elsewhere."""
    config = {**stream.config(), "batch_size": 1, "prefetch_factor": 2, "prefetch_bytes": "64kb"}
    engine = Engine(program, folder, config)
    rows, end = list(range(len(stream.rows) + 1)), len(stream.rows)
    random.Random(SEED).shuffle(rows)
    try:
        for row in rows:
            with Ranks(engine, token=tokens[row]) as ranks:
                assert ranks.tokens() == [tokens[row]]
                for batches in ranks.turns(3):
                    assert_batch(batches[0], stream)
                assert ranks.loaders[0].next_row == min(row + 3, end)
            if row + 3 >= end:  # the engine ends when all ranks have had everything
                assert engine.wait() == 0
                engine = Engine(program, folder, config)
    finally:
        engine.kill()


@pytest.mark.parametrize("number", range(20 if LONG else 3))
def test_chain_of_five(program, folder, stream, tokens, number):
    """Resumed five times in a row, each time with another shape, from the state of the one
    before."""
    generator = random.Random(SEED + number)
    taken, token = Taken(stream), tokens[0]
    for link in range(6):
        world, rows = generator.choice([(1, 1), (1, 3), (2, 1), (2, 2), (4, 1)])
        shape = {"dp_world_size": world, "batch_size": rows, "packers": generator.choice([1, 2])}
        state = write_state(folder / "token", token)
        engine = Engine(program, folder, {**stream.config(), **shape}, "--state", state)
        try:
            with Ranks(engine, world) as ranks:
                assert ranks.tokens() == [token] * world
                for batches in ranks.turns(generator.randrange(4) if link < 5 else None):
                    taken.add(batches)
                token = ranks.tokens()[0]
        finally:
            engine.kill()
    taken.assert_all()


@pytest.mark.parametrize("world, rows, step", [(1, 5, 5), (2, 3, 12), (3, 1, 6), (4, 2, 8)])
def test_with_another_shape(program, folder, stream, tokens, world, rows, step):
    shape = {"dp_world_size": world, "batch_size": rows, "global_batch_size": step}
    for row in range(1, len(stream.rows), 9):
        state = write_state(folder / "token", tokens[row])
        config = {**stream.config(), **shape, "profile": "full"}
        engine = Engine(program, folder, config, "--state", state)
        try:
            read_on(engine, stream, row, world)
        finally:
            engine.kill()


def read_with_weights(engine, stream, token, weights, brought):
    """From the token on, rows and states must equal the oracle's with other weights there."""
    stream.state(9, token)  # takes the fingerprints
    stream.spec.weights = list(weights)
    plan = Plan(stream.spec)
    load_token(plan, token)
    with Ranks(engine, token=brought) as ranks:
        for (batch,) in ranks.turns():
            fragments = plan.row()
            found = batch["provenance"][0, : len(fragments)].tolist()
            wanted = [(f.document, f.offset, f.source, f.length) for f in fragments]
            assert found == wanted
            ids = [t for fragment in fragments for t in stream.tokens(fragment)]
            assert batch["input_ids"][0, : len(ids)].tolist() == ids
            assert ranks.tokens() == [save_token(plan)]
    assert not plan.row()


@pytest.mark.parametrize("start", ["token", "contents", "earlier"])
def test_other_weights_from_a_row_on(program, folder, corpus, start):
    """Refused unless accepted by an option; then as the oracle has it: no row repeated, none lost.
    From the token, from a checkpoint that has contents of the old weights' rows, and where the
    trainer's token is later than the checkpoint."""
    stream, weights = make_stream(corpus, "lookahead"), (1, 4)
    config = {**stream.config(), "batch_size": 1, "profile": "full"}
    if start != "token":
        config |= {"checkpoint_dir": str(folder / "checkpoints"), "prefetch_factor": 16}
    engine = Engine(program, folder, config)
    with Ranks(engine) as ranks:
        assert len(list(ranks.turns(5))) == 5
        if start == "earlier":
            engine.checkpoint()
        assert len(list(ranks.turns(4))) == 4
        token = ranks.tokens()[0]
    if start == "contents":
        engine.checkpoint()  # counts all that was read, as no batch is held any more
    engine.kill()
    state = ("--state", write_state(folder / "token", token)) if start == "token" else ()
    other = [dict(source, weight=weight) for source, weight in zip(corpus.sources, weights)]
    config = {**config, "sources": other}
    engine = Engine(program, folder, config, *state, wait=False)
    assert engine.wait() == 2
    assert "weight" in engine.log() and "accept-weights" in engine.log()

    engine = Engine(program, folder, config, *state, "--accept-weights")
    try:
        brought = token if start == "earlier" else None
        read_with_weights(engine, stream, token, weights, brought)
    finally:
        engine.kill()


@pytest.mark.parametrize("row", [5, 8, 11])
def test_other_weights_from_an_earlier_row_on(program, folder, corpus, row):
    """The weights changed at row 9, and a checkpoint was saved at row 11. Then the job goes back,
    and they change at row 5: none of the saved rows is of its rows, also not for a trainer that
    comes from row 8 or 11 of it."""
    stream, weights = make_stream(corpus, "lookahead"), (1, 4)
    config = {**stream.config(), "batch_size": 1, "profile": "full", "prefetch_factor": 16}
    engine = Engine(program, folder, config)
    with Ranks(engine) as ranks:
        assert len(list(ranks.turns(5))) == 5
        early = ranks.tokens()[0]
        assert len(list(ranks.turns(4))) == 4
        late = ranks.tokens()[0]
    engine.kill()

    other = [dict(source, weight=weight) for source, weight in zip(corpus.sources, weights)]
    config = {**config, "sources": other}
    if row > 5:  # its position, in its own numbering
        stream.state(9, early)
        stream.spec.weights = list(weights)
        plan = Plan(stream.spec)
        load_token(plan, early)
        for _ in range(5, row):
            plan.row()
        early = save_token(plan)
    config |= {"checkpoint_dir": str(folder / "checkpoints")}
    state = write_state(folder / "token", late)
    engine = Engine(program, folder, config, "--state", state, "--accept-weights")
    with Ranks(engine) as ranks:
        assert len(list(ranks.turns(2))) == 2
    engine.checkpoint()
    engine.kill()

    engine = Engine(program, folder, config, "--accept-weights")
    try:
        read_with_weights(engine, stream, early, weights, early)
    finally:
        engine.kill()


# ---- with the token files away -------------------------------------------------------------------


@pytest.fixture
def away():
    """Move files away; they are back at the end."""
    moved = []

    def move(paths):
        for path in paths:
            shutil.move(path, path + ".away")
            moved.append(path)

    def restore():
        while moved:
            path = moved.pop()
            shutil.move(path + ".away", path)

    move.restore = restore
    yield move
    restore()


@pytest.fixture(scope="module")
def large(program, tmp_path_factory):
    """More tokens than the rings hold."""
    folder = tmp_path_factory.mktemp("large")
    corpus = Corpus(folder, [("megatron", "u16", 1, [300])], SEED, seq_len=512)
    corpus.index(program)
    return corpus


@pytest.mark.parametrize("packing", PACKINGS)
def test_without_the_corpus(program, folder, large, away, packing):
    """From contents: the first batches come although the token files are away; then an error names
    the file. With the files back, the same checkpoint gives the whole rest."""
    stream = make_stream(large, packing, seq_len=512)
    config = {**stream.config(), "batch_size": 1, "prefetch_factor": 8, "prefetch_bytes": "64kb"}
    config["checkpoint_dir"] = str(folder / "checkpoints")
    taken, (path,) = Taken(stream), large.paths
    engine = Engine(program, folder, config)
    with Ranks(engine) as ranks:
        for batches in ranks.turns(3):
            taken.add(batches)
        batches[0].release()
        wait_until(lambda: ringpack.stat(engine.run, folder)["ranks"][0]["tail"] == 3 + 8)
        engine.checkpoint()
        engine.kill()
    away(large.paths)
    before = Taken(stream)
    engine = Engine(program, folder, config)
    wait_until(lambda: "No such file" in engine.log(), "the failure")  # before any trainer has come
    with Ranks(engine) as ranks, pytest.raises(ringpack.RingpackError, match=path):
        for batches in ranks.turns():
            before.add(batches)
    assert len(before.rows) >= 8
    assert engine.wait() == 2
    assert path in engine.log() and "next:" in engine.log()

    away.restore()
    engine = Engine(program, folder, config)
    try:
        with Ranks(engine) as ranks:
            row = ranks.loaders[0].next_row
            again = Taken(stream)
            for batches in ranks.turns():
                again.add(batches)
        again.assert_all(first=row)
    finally:
        engine.kill()


def test_without_the_corpus_and_without_contents(program, folder, corpus, away):
    """The control: then no row can be delivered, and the start is refused by name."""
    stream = make_stream(corpus, "concat")
    config = {**stream.config(), "batch_size": 2, "checkpoint_contents": False}
    config |= {"checkpoint_dir": str(folder / "checkpoints")}
    engine = Engine(program, folder, config)
    assert engine.stop() == 0
    away(corpus.paths)
    engine = Engine(program, folder, config, wait=False)
    assert engine.wait() == 2
    assert corpus.paths[0] in engine.log()
