# SPDX-License-Identifier: Apache-2.0
"""Sizes of steps and batches by stage: as loaders, `explain`, replays and `plan` count them, at a
start with other ones, and refused. test_batch_stages.py compares their batches with the oracle."""

import json
import subprocess

import pytest
import ringpack
from ringpack.errors import CheckpointMismatchError, ConfigError
from stream2_kit import Stream2
from stream_kit import Engine, Ranks
from test_batch_stages import batches_of, config_of, corpora, finish, read  # noqa: F401
from test_served_stages import Served


def plain_stream(corpora, *later, **first):
    """Two sources, each read twice, and no change but in sizes."""
    stage = {"from": 0, "seq_len": 32, "packing": "lookahead", "window": 4, "fill": "pad"}
    stage |= {"weight": {"a": 1, "b": 1}, "max_docs_per_row": 6, "global_batch_size": 8}
    stages = [{**stage, "batch_size": 2, "until": ("steps", 2), **first}, *later]
    keys = {"seed": 3, "shuffle": "document", "group": 1, "long_doc": "split"}
    sources = [{"name": "a", "max_epochs": 2}, {"name": "b", "max_epochs": 2}]
    return Stream2(corpora[0], keys, sources, stages).run()


RAMP = {"global_batch_size": 16, "until": ("steps", 4)}, {"global_batch_size": 32, "batch_size": 8}


def write_config(folder, stream, **keys):
    path = folder / "run.yaml"
    path.write_text(json.dumps(config_of(stream, 1, run_dir=str(folder), **keys)))
    return path


def tool(program, *arguments):
    made = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_a_loader_knows_the_sizes_of_the_next_step(program, folder, corpora):
    """Its own loop accumulates as each batch says; step numbers follow the config, of
    `explain`, and of a replay; len() counts the batches of all stages."""
    stream = plain_stream(corpora, *RAMP)
    config = write_config(folder, stream)
    assert stream.stream["stages"][2]["from"] == 48
    with ringpack.Loader(config) as loader:
        steps, asked = [], []
        while True:
            sizes = loader.global_batch_size, loader.micro_batches
            asked.append((*sizes, loader.progress()["step"]))
            first = loader.next()
            if first is None:
                break
            count, rows = first.micro_batches, first.first_row
            assert first.step == len(steps) and first.micro_batch == 0
            for place in range(1, count):
                assert loader.micro_batches == count
                batch = loader.next()
                assert (batch.step, batch.micro_batch) == (len(steps), place)
            steps.append((rows, count))
    sizes = [(8, 4)] * 2 + [(16, 8)] * 2 + [(32, 4)] * (len(steps) - 4)
    assert [entry[:2] for entry in asked][: len(steps)] == sizes
    assert [entry[2] for entry in asked][: len(steps)] == [*range(len(steps))]
    begins = [0, 8, 16, 32] + [48 + 32 * n for n in range(len(steps) - 4)]
    assert steps == [(begin, count) for begin, (_, count) in zip(begins, sizes)]
    with ringpack.Loader(config, run="other") as loader:
        assert len(loader) == sum(count for _, count in steps)
    for step in 3, 5:
        found = json.loads(tool(program, "explain", "-c", config, "--step", step, "--json"))
        rows = found["rows"]
        assert [row["row"] for row in rows] == [*range(begins[step], begins[step] + sizes[step][0])]
        assert {row["step"] for row in rows} == {step}
        assert {row["micro_batch"] for row in rows} == {*range(sizes[step][1])}
    with ringpack.Replay(config) as replay:
        batches = replay.step(4)
        assert [len(ranks) for ranks in batches] == [1] * 4
        assert [ranks[0].first_row for ranks in batches] == [48, 56, 64, 72]


def test_the_plan_counts_steps_of_each_size(program, folder, corpora):
    stream = plain_stream(corpora, *RAMP)
    config = write_config(folder, stream)
    plan = json.loads(tool(program, "plan", "-c", config, "--json"))
    last = -(-(len(stream.rows) - 48) // 32)
    assert plan["steps"] == 4 + last
    assert plan["batches"] == 2 * 4 + 2 * 8 + last * 4
    sizes = [(stage["global_batch_size"], stage["batch_size"]) for stage in plan["stages"]]
    assert sizes == [(8, 2), (16, 2), (32, 8)]
    text = tool(program, "plan", "-c", config)
    assert "global_batch_size 16 (before 8), batch_size 2 (before 2)" in text
    assert f"stage 2: rows 48 to {len(stream.rows) - 1}, {last} steps" in text
    config = write_config(folder, stream, drop_last=True)
    plan = json.loads(tool(program, "plan", "-c", config, "--json"))
    assert plan["steps"] == 4 + (len(stream.rows) - 48) // 32
    with ringpack.Loader(config) as loader:
        batches = [batch.first_row for batch in loader]
    assert len(batches) == plan["batches"]


def continued(program, folder, stream, edited, row, **keys):
    """Serve rows before `row` of the stream, save, and begin again with another calendar."""
    saved = {"checkpoint_dir": str(folder / "saved")}
    engine = Engine(program, folder, config_of(stream, 1, **saved))
    served = Served(stream)
    try:
        with Ranks(engine, 1) as ranks:
            expected = list(batches_of(stream, 1))
            read(ranks, served, iter(expected), 1, len([b for b in expected if b[0] < row]))
        assert engine.stop() == 0
        config = config_of(edited, 1, **saved)
        engine = Engine(program, folder, {**config, **keys}, wait=False)
        served.stream = edited
        return served, engine
    except BaseException:
        engine.kill()
        raise


@pytest.mark.parametrize(
    "later",
    [
        [{"global_batch_size": 16, "until": ("steps", 4)}, {"batch_size": 4}],  # ahead
        [{"global_batch_size": 4, "batch_size": 1, "until": ("row", 48)}, RAMP[1]],  # begun
    ],
)
def test_sizes_may_change_at_a_start(program, folder, corpora, later):
    """Of a stage ahead, and of one that is begun as long as its rows stay."""
    edited = plain_stream(corpora, *later)
    served, engine = continued(program, folder, plain_stream(corpora, *RAMP), edited, 32)
    try:
        engine.wait_ready()
        with Ranks(engine, 1) as ranks:
            read(ranks, served, batches_of(edited, 1, 32), 1)
        finish(served, iter(()))
    finally:
        engine.kill()


def test_a_begun_stage_keeps_its_row(program, folder, corpora):
    """Another size that would move the row of a begun stage is refused with both rows."""
    edited = plain_stream(corpora, *RAMP, global_batch_size=4)
    _, engine = continued(program, folder, plain_stream(corpora, *RAMP), edited, 32)
    assert engine.wait() == 2, engine.log()
    assert "the stages differ: the state has one from row 16" in engine.log()


def test_trainers_refuse_other_sizes_of_a_restarted_engine(program, folder, corpora):
    """They are attached, so their batches keep the sizes that the contract has."""
    stream = plain_stream(corpora, *RAMP)
    saved = {"checkpoint_dir": str(folder / "saved")}
    engine = Engine(program, folder, config_of(stream, 1, **saved))
    try:
        with Ranks(engine, 1) as ranks:
            ranks.turn()
            engine.checkpoint()
            engine.kill()
            edited = plain_stream(corpora, RAMP[0], {"global_batch_size": 32, "batch_size": 4})
            engine = Engine(program, folder, config_of(edited, 1, **saved))
            with pytest.raises(CheckpointMismatchError) as caught:
                while ranks.turn():  # the batches that the dead engine had published come first
                    pass
            assert "stage[0002].batch_size" in str(caught.value)
            assert "8" in str(caught.value) and "4" in str(caught.value)
    finally:
        engine.kill()


@pytest.mark.parametrize(
    "change, said",
    [
        ({"batch_size": 3}, "16 rows of a step of stage 1 are no multiple of 3"),
        (
            {"seq_len": 4096, "batch_size": 2**20, "global_batch_size": 2**20},
            "batch_size * seq_len of stage 1 is 4294967296; at most 2147483647 tokens fit",
        ),
    ],
)
def test_sizes_that_no_engine_can_serve(program, folder, corpora, change, said):
    stream = plain_stream(corpora, {"global_batch_size": 16})
    config = config_of(stream, 1, run_dir=str(folder))
    config["stages"][1] |= change
    path = folder / "run.yaml"
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError) as caught:
        ringpack.Loader(path).attach()
    assert said in str(caught.value)
