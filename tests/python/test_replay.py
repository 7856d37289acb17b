# SPDX-License-Identifier: Apache-2.0
"""`ringpack.Replay`: the batches of any step again, byte for byte as runs delivered them that were
killed and resumed as other shapes; and starts at any step."""

import hashlib
import json
import os
import random
import shutil
import subprocess

import numpy
import pytest
import ringpack
from stream_kit import LONG, Corpus, Engine, Ranks, Stream, write_megatron

SEED = int(os.environ.get("RP_SEED", "0")) or 23
STEPS = 10000 if LONG else 60  # replayed in all, of all packings
LIVES, EPOCHS = (24, 120) if LONG else (6, 30)  # for each run
SHAPES = [  # for steps of 8 rows, and of 12
    {"dp_world_size": 2, "batch_size": 2, "global_batch_size": 8},
    {"dp_world_size": 1, "batch_size": 4, "global_batch_size": 8},
    {"dp_world_size": 4, "batch_size": 1, "global_batch_size": 8},
    {"dp_world_size": 3, "batch_size": 2, "global_batch_size": 12},
]
PACKINGS = {
    "lookahead": {"packing": "lookahead", "fill": "split"},
    "concat": {"packing": "concat", "shuffle": "block"},
    "best_fit": {"packing": "best_fit", "lanes": 2},
}


def hash_of(batch):
    """Of every array of a batch: its name, type, shape and bytes."""
    hashed = hashlib.blake2b(digest_size=16)
    for name, array in batch.items():
        hashed.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return hashed.hexdigest()


def run_life(engine, number, generator, delivered, kill):
    """Some steps of a run as one shape, ended by a kill or a stop. The hashes of what it delivered
    go to `delivered`, by (base row, shape, step); repeated deliveries must be the same."""
    shape = SHAPES[number]
    world, rows = shape["dp_world_size"], shape["global_batch_size"]
    micro_batches = rows // (shape["batch_size"] * world)
    with Ranks(engine, world) as ranks:
        first = ranks.loaders[0].next_row
        base = first % rows
        for step in range(generator.randrange(3, 60 if LONG else 12)):
            turns = ranks.turns(micro_batches)
            found = [[hash_of(batch.copy()) for batch in turn] for turn in turns]
            if not found:
                break
            key = base, number, (first - base) // rows + step
            assert delivered.setdefault(key, found) == found
        if generator.random() < 0.7:
            engine.checkpoint()
        if kill:
            engine.kill()
    engine.stop()


@pytest.fixture(scope="module", params=PACKINGS)
def runs(program, request, tmp_path_factory):
    """The config of a run, and the hashes of the batches of each step that it delivered over its
    lives; then the same of the lives after a change of weights, and a checkpoint from there."""
    print(f"RP_SEED={SEED}")
    generator = random.Random(SEED)
    folder = tmp_path_factory.mktemp(request.param)
    corpus = Corpus(folder, [("megatron", "u16", 3, [60, 45]), ("npy", "u16", 1, [70])], SEED)
    inputs = {"num_epochs": EPOCHS, "window": 6, "seed": SEED, **PACKINGS[request.param]}
    stream = Stream(corpus, inputs)
    config = {**stream.config(), "checkpoint_dir": str(folder / "kept"), "profile": "full"}
    delivered = {}
    for life in range(LIVES):
        number = 3 if life >= 2 * LIVES // 3 else generator.randrange(3)
        engine = Engine(program, folder, {**config, **SHAPES[number]})
        run_life(engine, number, generator, delivered, kill=generator.random() < 0.6)
    shutil.copytree(folder / "kept", folder / "early")
    reweighted = {"path": folder / "after.rpc", "delivered": {}}
    sources = [dict(source, weight=weight) for source, weight in zip(config["sources"], (2, 5))]
    for life in range(LIVES // 3):
        number = generator.randrange(len(SHAPES))
        own = {**config, **SHAPES[number], "sources": sources}
        engine = Engine(program, folder, own, "--accept-weights")
        if life == 0:  # its first checkpoint is of a row after the change
            with Ranks(engine, SHAPES[number]["dp_world_size"]) as ranks:
                for _ in ranks.turns(SHAPES[number]["global_batch_size"]):
                    pass
                engine.checkpoint()
            engine.stop()
            shutil.copy(max((folder / "kept").glob("*.rpc")), reweighted["path"])
            continue
        kill = generator.random() < 0.6
        run_life(engine, number, generator, reweighted["delivered"], kill)
    return folder, config, delivered, reweighted


def places(delivered, count, generator):
    """That many steps, by base row and shape: random ones, and after each some that follow."""
    by_shape = {}
    for base, number, step in delivered:
        by_shape.setdefault((base, number), set()).add(step)
    assert by_shape
    for (base, number), steps in sorted(by_shape.items()):
        left, ordered = count // len(by_shape) + 1, sorted(steps)
        chosen = []
        while len(chosen) < left:
            step = generator.choice(ordered)
            follow = generator.choice((1, 4, 11, 60) if LONG else (1, 4))
            chosen += [n for n in range(step, step + follow) if n in steps]
        yield base, number, chosen[:left]


def replay_all(source, delivered, count, generator, program):
    """Replay steps, and compare them with the delivery. Returns how many."""
    done = 0
    for base, number, steps in places(delivered, count, generator):
        shape = SHAPES[number]
        with ringpack.Replay(source, base_row=base, program=program, **shape) as replay:
            for step in steps:
                found = [[hash_of(batch) for batch in of_all] for of_all in replay.step(step)]
                assert found == delivered[base, number, step], f"step {step} of {shape}"
            rank = generator.randrange(shape["dp_world_size"])
            again = replay.step(steps[0], rank=rank)
            wanted = delivered[base, number, steps[0]]
            assert [hash_of(batch) for batch in again] == [of_all[rank] for of_all in wanted]
            assert [(batch.rank, batch.micro_batch) for batch in again] == [
                (rank, micro_batch) for micro_batch in range(len(wanted))
            ]
            done += len(steps)
    return done


def snapshot(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_every_step_is_what_was_delivered(runs, program):
    folder, config, delivered, _ = runs
    path = folder / "replay.yaml"
    path.write_text(json.dumps(config))
    before = snapshot(folder)
    count = replay_all(path, delivered, STEPS // 4, random.Random(SEED), program)
    print(f"replayed {count} steps of {len(delivered)} that were delivered")
    assert snapshot(folder) == before, "a replay changed a file of the run"


def test_steps_behind_a_change_of_weights(runs, program):
    """From a checkpoint of there: the config does not have the row of that."""
    _, _, _, reweighted = runs
    delivered = reweighted["delivered"]
    count = replay_all(reweighted["path"], delivered, STEPS // 12, random.Random(SEED), program)
    print(f"replayed {count} steps of {len(delivered)} that were delivered")


def test_from_a_checkpoint(runs, program):
    """Of the last life: its directory, and each file in it, has the config and the shape."""
    folder, _, delivered, _ = runs
    newest = max((folder / "early").glob("*.rpc"))
    shown = subprocess.run([program, "checkpoint", "show", newest, "--json"], capture_output=True)
    shape = next(
        number for number, known in enumerate(SHAPES)
        if known["dp_world_size"] == json.loads(shown.stdout)["world"]
    )
    (base,) = {b for b, s, _ in delivered if s == shape}
    steps = [step for b, s, step in delivered if s == shape]
    for source in newest, folder / "early":
        with ringpack.Replay(source, base_row=base, program=program) as replay:
            for step in steps[0], steps[-1], steps[0]:
                found = [[hash_of(batch) for batch in of_all] for of_all in replay.step(step)]
                assert found == delivered[base, shape, step]


@pytest.mark.parametrize("drop_last", [False, True])
def test_the_end_of_the_stream(program, folder, drop_last):
    """The last step, and the first one again after it; no step is beyond it."""
    documents = numpy.split(numpy.arange(16 * 21) % 999, 21)
    path = write_megatron(folder / "c", documents, "u16")
    keys = {"seq_len": 16, "batch_size": 2, "global_batch_size": 8, "drop_last": drop_last}
    with ringpack.Replay(corpus=path, program=program, profile="full", **keys) as replay:
        last = 1 if drop_last else 2  # of 21 rows
        tail = replay.step(last)
        assert [micro[0]["rows"]["row"].tolist() for micro in tail] == [
            [row, row + 1] for row in range(8 * last, 8 * last + 8, 2)
        ]
        assert sum(int(micro[0].tokens_real) for micro in tail) == 16 * (8 if drop_last else 5)
        assert replay.step(0)[0][0].first_row == 0
        with pytest.raises(ringpack.UsageError, match=f"step {last + 1}: the stream has 21 rows"):
            replay.step(last + 1)
        with pytest.raises(ringpack.UsageError, match="rank is 1: the ranks are 0 to 0"):
            replay.step(0, rank=1)
        with pytest.raises(ringpack.UsageError, match="expected 0 or more"):
            replay.step(-1)
        assert replay.step(1)[0][0].first_row == 8


def test_no_stream(program, folder):
    with pytest.raises(ringpack.UsageError, match="no stream was named"):
        ringpack.Replay()
    with pytest.raises(ringpack.RingpackError, match="gone.yaml"):
        ringpack.Replay(folder / "gone.yaml", program=program).step(0)
    with pytest.raises(ringpack.EmptyCorpusError, match="no checkpoint is here"):
        ringpack.Replay(folder, program=program).step(0)


# ---- tokens and starts at any step --------------------------------------------------------------


@pytest.fixture
def small(folder):
    corpus = Corpus(folder, [("megatron", "u16", 1, [60])], SEED)
    stream = Stream(corpus, {"num_epochs": 2})
    return stream, {**stream.config(), "batch_size": 2, "global_batch_size": 4}


def state(program, *arguments, status=0):
    done = subprocess.run([program, "state", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


def test_the_token_of_every_row_is_the_oracle_s(program, folder, small):
    stream, config = small
    path = folder / "c.yaml"
    path.write_text(json.dumps(config))
    for row in (0, 1, 7, len(stream.rows) - 1, len(stream.rows)):
        state(program, "-c", path, "--row", row, "-o", folder / "token")
        token = (folder / "token").read_bytes()
        assert token == stream.state(row, token)
    told = json.loads(state(program, "-c", path, "--step", 3, "-o", folder / "token", "--json"))
    assert (told["row"], told["step_rows"], told["micro_batches"]) == (12, 4, 2)
    token = (folder / "token").read_bytes()
    assert token == stream.state(12, token)
    state(program, "-c", path, "--base-row", 3, "--step", 2, "-o", folder / "token")
    token = (folder / "token").read_bytes()
    assert token == stream.state(11, token)
    for bad in ("--row", len(stream.rows) + 1), ("--step", 10**9), ("--step", -1), ():
        state(program, "-c", path, *bad, "-o", folder / "token", status=2)
    assert (folder / "token").read_bytes() == token


def test_a_loader_starts_at_a_step(program, folder, small):
    stream, config = small
    config = {**config, "checkpoint_dir": str(folder / "kept")}
    path = folder / "c.yaml"
    path.write_text(json.dumps(config))
    with ringpack.Loader(path, run_dir=folder, start_step=5, program=program) as loader:
        batch = loader.next()
        assert batch.first_row == 20
        assert batch["input_ids"][0].tolist()[:9] == stream.tokens_of(20)[:9]
        batch.close()
        loader._engine.process.kill()  # the next engine continues, it does not start there again
        for row in range(22, 40, 2):
            assert loader.next().first_row == row
    with ringpack.Loader(path, run_dir=folder, program=program) as loader:
        assert loader.next_row >= 20


def test_a_start_that_contradicts_a_checkpoint_is_refused(program, folder, small):
    stream, config = small
    config["checkpoint_dir"] = str(folder / "kept")
    engine = Engine(program, folder, config, "--start-step", "2")
    with Ranks(engine) as ranks:
        assert ranks.loaders[0].next_row == 8
        list(ranks.turns(4))
    engine.stop()
    kept = sorted((folder / "kept").glob("*.rpc"))
    for step in 2, 9:
        engine = Engine(program, folder, config, "--start-step", step, wait=False)
        assert engine.wait() == 2
        assert f"--start-step {step} begins at row {4 * step}" in engine.log()
        assert "is at row 16" in engine.log() and "rewind" in engine.log()
    engine = Engine(program, folder, config, "--start-step", 4)  # it says the same
    with Ranks(engine) as ranks:
        assert ranks.loaders[0].next_row == 16
    engine.kill()
    for also in (["--fresh"], ["--state", "x"], ["--resume", "fresh"]):
        engine = Engine(program, folder, config, "--start-step", 4, *also, wait=False)
        assert engine.wait() == 2
    assert sorted((folder / "kept").glob("*.rpc")) == kept


def test_steps_of_stages_with_another_seq_len(program, corpora):
    """In any order: a private engine serves rows of one seq_len."""
    stages = [{"until": "3 steps"}, {"seq_len": 64}]
    form = {"corpus": corpora[0], "seq_len": 32, "batch_size": 2, "stages": stages}
    with ringpack.Replay(**form) as replay:
        first = {step: replay.step(step)[0][0] for step in range(5)}
        assert [batch["input_ids"].shape[1] for batch in first.values()] == [32] * 3 + [64] * 2
        for step in 2, 3, 1, 4, 0:
            again = replay.step(step, rank=0)[0]
            assert again.first_row == 2 * step and hash_of(again) == hash_of(first[step])


def test_steps_of_stages_with_other_batches(program, corpora):
    """One after another, as at random. A skipped step is refused."""
    stages = [{"until": "3 steps"}, {"global_batch_size": 8, "until": "5 steps"}]
    stages += [{"global_batch_size": 8, "batch_size": 4}]
    form = {"corpus": corpora[0], "seq_len": 32, "batch_size": 2, "global_batch_size": 4}
    form.update(dp_world_size=2, stages=stages, skip={"steps": [4]})
    begins, per_rank = [0, 4, 8, 12, 20, 28, 36], [1, 1, 1, 2, 2, 1, 1]
    with ringpack.Replay(**form) as replay:
        for steps in range(7), (6, 0, 3, 5, 2):
            for step in steps:
                if step == 4:
                    with pytest.raises(ringpack.UsageError, match="step 4: .*skip"):
                        replay.step(step)
                    continue
                found = [batch for of_all in replay.step(step) for batch in of_all]
                assert len(found) == 2 * per_rank[step]
                assert found[0].first_row == begins[step]
                assert all(a.next_row == b.first_row for a, b in zip(found[::2], found[2::2]))
