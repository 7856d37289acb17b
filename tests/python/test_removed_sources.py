# SPDX-License-Identifier: Apache-2.0
"""A source that waits leaves the config, and its files may be deleted: the run continues with the
rows that it would have had with it, by its states, checkpoints, other ranks and kills. It comes
back at its position. While it is needed, and in a new run, it is refused by name."""

import json
import subprocess

import pytest
import ringpack
from ringpack.errors import CheckpointMismatchError
from served_kit import STEP, Served, read, refusal, serve, stop_at
from step_kit import Steps
from stream2_kit import Stream2
from stream_kit import Corpus, Ranks, Written, write_state

SEED, SHAPE = 77, (1, 4)
LEAVES, RETURNS = 4 * STEP, 8 * STEP


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    layout = [("megatron", "u16", 1, [30]), ("raw", "u16", 1, [40]), ("npy", "u16", 1, [20])]
    return Corpus(tmp_path_factory.mktemp("corpus"), layout, SEED, seq_len=20)


@pytest.fixture(scope="module")
def stream(corpus):
    """Source `old` is in use before LEAVES and from RETURNS on; its last document is in a row soon
    after LEAVES."""
    stage = {"from": 0, "seq_len": 32, "weight": {"old": 3, "web": 2, "late": 0}}
    stage |= {"packing": "lookahead", "window": 3, "fill": "pad", "max_docs_per_row": 6}
    stage |= {"spread": 2, "global_batch_size": STEP, "until": ("row", LEAVES)}
    stages = [stage, {"weight": {"web": 1, "late": 2}, "until": ("row", RETURNS)}]
    stages += [{"weight": {"old": 1, "web": 1}}]
    keys = {"seed": SEED, "shuffle": "document", "group": 1, "long_doc": "split"}
    sources = [{"name": name, "max_epochs": 9} for name in ("old", "web", "late")]
    return Stream2(corpus, keys, sources, stages).run()


def last_row_of(stream):
    """After which no document of `old` waits, before it returns."""
    rows = [g for g in range(RETURNS) for f in stream.rows[g].fragments if f.source == 0]
    return max(rows) + 1


class Without:
    """The stream with the config that lacks `old`. Sources have other places there."""

    def __init__(self, stream, removed=True, weight=3):
        self.stream, self.removed, self.weight = stream, removed, weight

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def row(self, g):
        fragments, tokens = self.stream.row(g)
        return [(d, offset, place - 1, n) for d, offset, place, n in fragments], tokens

    def config(self):
        keys = json.loads(json.dumps(self.stream.config()))
        keys["sources"] = [own for own in keys["sources"] if own["name"] != "old"]
        keys["stages"] = keys["stages"][:2]
        del keys["stages"][1]["until"]
        return keys | ({"removed": {"old": self.weight}} if self.removed else {})


def life(program, folder, served, stream, shape, turns, *arguments, **keys):
    served.stream, served.steps = stream, Steps(stream, None)
    engine = serve(program, folder, stream, shape, *arguments, **keys)
    try:
        with Ranks(engine, shape[0]) as ranks:
            served.rewind(ranks.loaders[0].next_row)
            served.states(ranks)
            read(ranks, served, shape, turns)
            token = served.states(ranks)
            if "checkpoint_dir" in keys:
                engine.checkpoint()
        return token
    finally:
        engine.kill()


@pytest.fixture(scope="module")
def steps_after(stream):
    begin = -(-last_row_of(stream) // STEP) * STEP
    assert LEAVES < begin <= RETURNS - 2 * STEP, last_row_of(stream)
    return begin


def test_a_source_leaves_and_comes_back(program, folder, stream, steps_after):
    keys = {"checkpoint_dir": str(folder / "saved")}
    served, _ = stop_at(program, folder, stream, SHAPE, steps_after, **keys)
    without = Without(stream)
    life(program, folder, served, without, (2, 1), 2, **keys)
    life(program, folder, served, without, (1, 2), (RETURNS - served.row - STEP) // 2, **keys)
    token = life(program, folder, served, without, (4, 2), 2, **keys)
    assert token == stream.state(served.row, token) and served.row == RETURNS
    begun = write_state(folder / "begun", stream.state(steps_after, token))
    check_tools(program, folder, without, begun, steps_after, served.row)
    engine = serve(program, folder, stream, (2, 2), **keys)  # with it again
    try:
        served.stream, served.steps = stream, Steps(stream, None)
        with Ranks(engine, 2) as ranks:
            served.rewind(ranks.loaders[0].next_row)
            served.states(ranks)
            read(ranks, served, (2, 2))
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    assert served.digest == stream.digest


def check_tools(program, folder, stream, token, first, end):
    """Rows from a state on, of which none needs the source."""
    (folder / "c.yaml").write_text(json.dumps({**stream.config(), "batch_size": 4, "run": "t"}))

    def run(verb, *arguments, status=0):
        command = [program, verb, "-c", "c.yaml", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=100)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stderr if status else done.stdout

    told = run("explain", "--limit", 0, "--json", "--row", f"{first}-{end - 1}", token)
    found = [
        [(f["document"], f["offset"], f["tokens"]) for f in row["fragments"]]
        for row in json.loads(told)["rows"]
    ]
    rows = stream.rows[first:end]
    assert found == [[(f.document, f.offset, f.length) for f in row.fragments] for row in rows]
    assert json.loads(run("plan", "--json", "--state", token))["state"]["row"] == first
    said = run("plan", status=2)
    assert "rows from row 0 on cannot be planned: source old is removed" in said, said
    assert "removed" in run("config", "show")


def test_a_loader_continues_without_it(program, folder, stream, steps_after):
    served, token = stop_at(program, folder, stream, SHAPE, steps_after)
    without = Without(stream)
    keys = {**without.config(), "batch_size": 4, "profile": "full", "run_dir": str(folder)}
    (folder / "config.yaml").write_text(json.dumps(keys))
    served.stream = without
    loader = ringpack.Loader(str(folder / "config.yaml"), program=program)
    loader.load_state_dict({"ringpack_state": token})
    with loader:
        for _ in range(3):
            served.take([loader.next()], 1, 4)
        loader._engine.process.kill()
        served.take([loader.next()], 1, 4)


@pytest.mark.parametrize("number", range(5))
def test_a_source_that_is_needed_is_refused(program, folder, stream, steps_after, number):
    begin = [LEAVES - STEP, LEAVES + 2, steps_after, steps_after, 0][number]
    without = Without(stream, number != 2, 2 if number == 3 else 3)
    words = [
        "source old is not in the config, and the state has it with weight 3",
        "of its documents wait for rows",
        "source old is not in the config, and stages that are begun name it",
        "weight[0000] of the stage from row 0 differs: the state has 3, this run has 1",
        "rows from row 0 on cannot be planned: source old is removed",
    ][number]
    state = ()
    if begin > 0:
        _, token = stop_at(program, folder, stream, (1, 2), begin)
        state = ("--state", write_state(folder / "token", token))
    said = refusal(program, folder, {**without.config(), "batch_size": 2}, *state)
    assert words in said, said


def test_a_trainer_cannot_bring_a_row_that_needs_it(program, folder, stream, steps_after):
    """The engine is after it."""
    _, early = stop_at(program, folder, stream, SHAPE, STEP)
    _, token = stop_at(program, folder, stream, SHAPE, steps_after)
    state = "--state", write_state(folder / "token", token)
    engine = serve(program, folder, Without(stream), SHAPE, *state)
    try:
        with pytest.raises(CheckpointMismatchError, match="source old is not in the config"):
            Ranks(engine, 1, token=early, connect_timeout=0.3)
    finally:
        engine.kill()
