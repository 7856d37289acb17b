# SPDX-License-Identifier: Apache-2.0
"""Steps and batches that change their sizes at stages, in the running engine: every batch of all
ranks has the rows that section 10.2 of STREAM2.md gives it, and these are the oracle's, through
kills, resumes with other ranks, skipped steps and runs that begin inside a step."""

import json
import random
import subprocess

import pytest
import ringpack
from ringpack.errors import CheckpointMismatchError, ConfigError
from step_kit import Steps
from stream2_kit import Stream2, random_stream
from stream_kit import Corpus, Engine, Ranks, write_state
from test_served_stages import Served

SEED = 5200
LAYOUTS = [
    [("megatron", "u16", 1, [110, 70]), ("raw", "u16", 1, [120])],
    [("npy", "u32", 1, [110]), ("megatron", "i32", 1, [80]), ("raw", "u16", 1, [60, 50])],
]
RAMPS = [  # global_batch_size and batch_size of three stages
    [(8, 2), (16, None), (32, None)],
    [(8, 1), (24, None), (8, 2)],
    [(8, 2), (16, 4), (16, 1)],
    [(16, 4), (8, None), (None, 2)],
]
WORLDS = [1, 2, 2, 1]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    return [
        Corpus(tmp_path_factory.mktemp("layout"), layout, SEED + n, seq_len=24)
        for n, layout in enumerate(LAYOUTS)
    ]


def ramped(stream, ramp, skip=()):
    """The stream with other sizes in its stages; L stays, so that one run reaches all of them."""
    stages = [dict(stage) for stage in stream.stages]
    stages[2].pop("seq_len", None)
    for stage, (step, rows) in zip(stages, ramp):
        stage |= {"global_batch_size": step} if step else {}
        stage |= {"batch_size": rows} if rows else {}
    made = Stream2(stream.corpus, stream.keys, stream.sources, stages, skip).run()
    assert len(made.rows) > made.stream["stages"][2]["from"] + 8, "it does not reach its last stage"
    return made


def stream_of(number, corpora, skip=()):
    rng = random.Random(SEED + number)
    counts = [sum(layout[3]) for layout in LAYOUTS[number % len(corpora)]]
    made = random_stream(rng, corpora[number % len(corpora)], counts)
    return rng, ramped(made, RAMPS[number % len(RAMPS)], skip)


def sizes_at(stream, row):
    """global_batch_size and batch_size of a step that begins at `row`."""
    step = rows = None
    for stage, compiled in zip(stream.stages, stream.stream["stages"]):
        if compiled["from"] <= row:
            step = stage.get("global_batch_size", step)
            rows = stage.get("batch_size", rows)
    return step, rows


def batches_of(stream, world, base=0):
    """First row, rows of a rank, place in the step and batches of the step: section 10.2."""
    while base < len(stream.rows):
        step, rows = sizes_at(stream, base)
        count = step // (world * rows)
        if not {*range(base, base + step)} <= {*stream.skip}:
            for i in range(count):
                yield base + i * world * rows, rows, i, count
        base += step


def config_of(stream, world, **keys):
    own = {"dp_world_size": world, "batch_size": stream.stages[0]["batch_size"]}
    return {**stream.config(), **own, "profile": "full", **keys}


def read(ranks, served, expected, world, most=None):
    """Up to `most` micro-batches, compared with `expected`. True at the end."""
    for batches in ranks.turns(most):
        begin, rows, place, count = next(expected)
        assert batches[0].first_row == begin
        for loader, batch in zip(ranks.loaders, batches):
            Steps(served.stream, None).check(loader, batch)
            found = batch.batch_size, batch.micro_batch, batch.micro_batches
            assert found == (rows, place, count), f"row {begin}"
            assert batch["input_ids"].shape == (rows, batch.seq_len)
            assert len(batch["rows"]) == rows
            assert batch.flat()["labels"].size == rows * batch.seq_len
            ends = batch["cu_seqlens"]
            assert ends[batch.segments] == rows * batch.seq_len == ends[-1]
        assert len({batch.step for batch in batches}) == 1
        served.take(batches, world, rows)
        served.states(ranks)
    return most is None


def finish(served, expected):
    assert next(expected, None) is None
    assert served.digest == sum(served.stream.digests) % 2**128


@pytest.mark.parametrize("number", range(4))
def test_sizes_change_in_the_running_engine(program, folder, corpora, number):
    """With a kill after a checkpoint at a random batch."""
    skip = () if number % 2 else range(8, 24)
    rng, stream = stream_of(number, corpora, skip)
    world = WORLDS[number]
    keys = {"checkpoint_dir": str(folder / "saved"), "packers": 1 + number % 2}
    config = config_of(stream, world, packer_processes=number == 1, **keys)
    served, expected = Served(stream), list(batches_of(stream, world))
    engine = Engine(program, folder, config)
    try:
        with Ranks(engine, world) as ranks:
            read(ranks, served, iter(expected), world, rng.randrange(len(expected)))
            engine.checkpoint()
        engine.kill()
        engine = Engine(program, folder, config)
        with Ranks(engine, world) as ranks:
            row = ranks.loaders[0].next_row
            rest = iter([batch for batch in expected if batch[0] >= row])
            served.rewind(row)
            read(ranks, served, rest, world)
            finish(served, rest)
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()


@pytest.mark.parametrize("number", range(6))
def test_other_ranks_go_on_at_each_side_of_a_boundary(program, folder, corpora, number):
    """From a state before, at and after a boundary, with other ranks and sizes: the stages begin at
    the same rows, and their sizes are those of the present config."""
    _, stream = stream_of(0, corpora)
    token, served = None, Served(stream)
    boundary = stream.stream["stages"][1]["from"]
    stops = [boundary + 8 * (number % 3 - 1) or 8, stream.stream["stages"][2]["from"], None]
    for turn, stop in enumerate(stops):
        world, rows = [(1, 2), (2, 4), (4, 2), (8, 1)][(number + turn) % 4]
        sizes = [(8, rows), (16, rows), (32, rows)]
        stream = ramped(stream, sizes)
        served.stream = stream
        config = config_of(stream, world, packers=1 + turn % 2)
        arguments = () if token is None else ("--state", write_state(folder / "state", token))
        engine = Engine(program, folder, config, *arguments)
        try:
            with Ranks(engine, world) as ranks:
                if token is not None:
                    assert served.states(ranks) == token
                expected = list(batches_of(stream, world, served.row))
                before = [batch for batch in expected if stop is None or batch[0] < stop]
                read(ranks, served, iter(expected), world, None if stop is None else len(before))
                token = served.states(ranks)
                assert stop is None or served.row == stop
            assert (engine.wait() if stop is None else engine.stop()) == 0, engine.log()
        finally:
            engine.kill()
    finish(served, iter(()))


@pytest.mark.parametrize("base", [2, 6, 14, 22])
def test_a_run_that_begins_inside_a_step(program, folder, corpora, base):
    """Its steps begin at its row, and the sizes of a stage hold from the first step at or after its
    boundary. Steps of the trainers of a restarted engine stay where they were."""
    stream = ramped(stream_of(0, corpora)[1], [(8, 2), (16, 4), (8, 2)])
    token = write_state(folder / "state", engine_token(program, folder, stream, base))
    served, expected = Served(stream), list(batches_of(stream, 1, base))
    served.row, served.digest = base, sum(stream.digests[:base]) % 2**128
    served.digests[base] = served.digest
    config = config_of(stream, 1, checkpoint_dir=str(folder / "saved"))
    engine = Engine(program, folder, config, "--state", token)
    try:
        with Ranks(engine, 1) as ranks:
            read(ranks, served, iter(expected[:5]), 1, 5)
            engine.checkpoint()
            engine.kill()
            engine = Engine(program, folder, config)
            read(ranks, served, iter(expected[5:]), 1)
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    finish(served, iter(()))


def engine_token(program, folder, stream, row):
    """The state at a row that is inside a step of the calendar."""
    config = config_of(stream, 1)
    (folder / "state-of.json").write_text(json.dumps(config))
    output = folder / f"row-{row}"
    subprocess.run(
        [program, "state", "-c", folder / "state-of.json", "--row", str(row), "-o", output],
        check=True,
        capture_output=True,
    )
    return output.read_bytes()


# ---- loaders, tools, refusals --------------------------------------------------------------------


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
    """Its own loop accumulates as each batch says; step numbers are those of the config, of
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


# ---- positive control ----------------------------------------------------------------------------


def test_sizes_that_come_a_step_late_are_noticed(broken, folder, corpora, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "change_steps_late")
    with pytest.raises(AssertionError):
        test_sizes_change_in_the_running_engine(broken, folder, corpora, 0)
