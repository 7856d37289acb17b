# SPDX-License-Identifier: Apache-2.0
"""step_rows, step_tokens and step_tokens_loss: in each batch of a step, on each rank and node, the
oracle's sums over all rows of the step (engine/plan/STREAM2.md, section 10.4)."""

import pytest
import ringpack
from step_kit import STEP, MaskedCorpus, Steps, stream_of_version_2
from stream_kit import Engine, Ranks, Stream, write_state

SHAPES = [(1, 8), (2, 2), (4, 1), (4, 2), (8, 1)]  # ranks, batch_size


def serve(program, folder, stream, shape, *arguments, run="sums", **keys):
    config = {"batch_size": shape[1], "dp_world_size": shape[0], "global_batch_size": STEP}
    return Engine(program, folder, {**stream.config(), **config, "run": run, **keys}, *arguments)


def check_whole(program, folder, stream, shape, model=None, **keys):
    steps = Steps(stream, STEP, model)
    engine = serve(program, folder, stream, shape, **keys)
    try:
        with Ranks(engine, shape[0]) as ranks:
            steps.read(ranks)
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    assert steps.seen == steps.whole


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, program):
    return MaskedCorpus(tmp_path_factory.mktemp("masked"), program)


CASES = [
    {"packing": "lookahead", "fill": "split", "label_mode": "shifted"},
    {"packing": "concat", "label_mode": "aligned", "shuffle": "block", "block_documents": 4},
    {"packing": "best_fit", "long_doc": "truncate", "lanes": 2},
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", CASES)
def test_version_1(corpus, program, tmp_path, shape, case):
    check_whole(program, tmp_path, Stream(corpus, {"num_epochs": 1, **case}), shape)


@pytest.mark.parametrize("seed", range(10))
def test_version_2(corpus, program, tmp_path, seed):
    stream = stream_of_version_2(corpus, seed)
    for number in range(2):
        shape = SHAPES[(seed + 2 * number) % len(SHAPES)]
        check_whole(program, tmp_path, stream, shape, run=f"sums-{number}")


@pytest.mark.parametrize("seed", range(3))
def test_cost_by_the_key(corpus, program, tmp_path, seed):
    """Of a stream with deals, whose costs it replaces, and of one of version 1."""
    keys = [{"cost": 100}, {"cost": {"k": 7, "attention_window": 9, "window_layers": 2, "layers": 6}}]
    models = [{"K": 100, "w": 0, "h": 0, "b": 1}, {"K": 7, "w": 9, "h": 1, "b": 3}]
    streams = [Stream(corpus, {"num_epochs": 1}), stream_of_version_2(corpus, seed)]
    for number, stream in enumerate(streams):
        check_whole(
            *(program, tmp_path, stream, SHAPES[seed], models[(seed + number) % 2]),
            **keys[(seed + number) % 2],
            run=f"sums-{number}",
        )


# ---- nodes and lives -----------------------------------------------------------------------------

ONE, TWO = (1, 2), (2, 1)  # four micro-batches in a step


@pytest.fixture(scope="module")
def streams(corpus):
    return Stream(corpus, {"num_epochs": 2}), stream_of_version_2(corpus, 3)


def test_nodes(streams, program, tmp_path, engines):
    """Each engine counts the rows that only the other one delivers."""
    for version, stream in enumerate(streams):
        nodes = {f"{version}-{ranks}": ranks for ranks in ("0-0", "3-3")}
        for run, ranks in nodes.items():
            keys = {"batch_size": 1, "dp_world_size": 4, "global_batch_size": STEP}
            engines(program, tmp_path, {**stream.config(), **keys, "ranks": ranks, "run": run})
        for rank in 0, 3:
            run = list(nodes)[rank == 3]
            own = {"run": run, "run_dir": tmp_path, "dp_rank": rank, "dp_world_size": 4}
            with ringpack.Loader(**own) as loader:
                steps = Steps(stream, STEP)
                for batch in loader:
                    steps.check(loader, batch)
                assert steps.seen == steps.whole


@pytest.mark.parametrize("turns", range(1, 6))
def test_trainers_outlive_their_engine(streams, program, tmp_path, engines, turns):
    """It dies inside a step, with a checkpoint or without one; steps stay as the trainers count
    them, and the next engine knows the sums of the step that it begins in."""
    for version, stream in enumerate(streams):
        run, steps = f"run-{version}", Steps(stream, STEP)
        saved = {"checkpoint_dir": str(tmp_path / run)} if turns % 2 else {}
        engine = engines(*life(program, tmp_path, stream, run, **saved))
        with Ranks(engine) as ranks:
            for more in turns, 5, 6:
                steps.read(ranks, more)
                engine.checkpoint() if saved else None
                engine.kill()
                engine = engines(*life(program, tmp_path, stream, run, **saved))
            steps.read(ranks)
        assert steps.seen == steps.whole


def life(program, folder, stream, run, shape=ONE, **keys):
    shape = {"batch_size": shape[1], "dp_world_size": shape[0], "global_batch_size": STEP}
    return program, folder, {**stream.config(), **shape, "run": run, **keys}


@pytest.mark.parametrize("turns", [1, 3, 4])
def test_a_state_inside_a_step_begins_one(streams, program, tmp_path, engines, turns):
    for version, stream in enumerate(streams):
        engine = engines(*life(program, tmp_path, stream, f"first-{version}"))
        with Ranks(engine) as ranks:
            Steps(stream, STEP).read(ranks, turns)
            token = ranks.tokens()[0]
        path = write_state(tmp_path / "state", token)
        engine = engines(*life(program, tmp_path, stream, f"second-{version}"), "--state", path)
        with Ranks(engine) as ranks:
            steps = Steps(stream, STEP)
            steps.read(ranks)
        begin = min(steps.seen)
        assert begin >= 2 * turns and all((row - begin) % STEP == 0 for row in steps.seen)


def test_a_rank_that_catches_up(corpus, program, tmp_path, engines):
    """It returns inside a step that the others have left long ago."""
    stream = Stream(corpus, {"num_epochs": 12})
    engine = engines(*life(program, tmp_path, stream, "behind", TWO, prefetch_factor=2))
    steps = Steps(stream, STEP)
    with Ranks(engine, TWO[0]) as ranks:
        steps.read(ranks, 6)
        token = ranks.tokens()[0]
        steps.read(ranks, 40)
        ranks.loaders.pop().close()
        own = {"run": "behind", "run_dir": tmp_path, "dp_rank": 1, "dp_world_size": 2}
        with ringpack.Loader(**own) as late:
            late.load_state_dict({"ringpack_state": token})
            for _, batch in zip(range(40), late):
                steps.check(late, batch)
            ranks.loaders.append(late)
            steps.read(ranks)
    assert steps.seen == steps.whole
    assert "rank 1 is behind" in engine.log()


# ---- positive control ----------------------------------------------------------------------------


def test_sums_that_lack_a_rank_are_noticed(corpus, broken, tmp_path, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "count_steps_without_a_rank")
    for stream in Stream(corpus, {"num_epochs": 1}), stream_of_version_2(corpus, 3):
        with pytest.raises(AssertionError, match="step of row"):
            check_whole(broken, tmp_path, stream, (4, 2))
