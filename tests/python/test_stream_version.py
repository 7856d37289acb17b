# SPDX-License-Identifier: Apache-2.0
"""The stream version of a config that names none: a new run is version 2, and a run of version 1
continues as version 1, by every way to continue it and in every command. The rows of version 1 are
the oracle's, whichever key the config has."""

import json
import shutil

import pytest
import ringpack
from refusal_kit import refused, run
from stream_kit import Corpus, Engine, Ranks, Stream, write_state

ROW = 12  # where version 1 stops
KEPT = "stream version 1, with which this run has begun"
NEW = "stream version 2, because this run is new"


@pytest.fixture
def corpus(folder):
    (folder / "corpus").mkdir()
    return Corpus(folder / "corpus", [("megatron", "u16", 1, [50]), ("npy", "u16", 2, [60])], 11)


@pytest.fixture
def stream(corpus):
    return Stream(corpus, {"num_epochs": 1, "seed": 23})


def config_of(stream, folder, **changes):
    """Without a version."""
    config = {**stream.config(), "batch_size": 3, "profile": "full"}
    del config["stream_version"]
    return {**config, "run_dir": str(folder), "checkpoint_dir": str(folder / "kept"), **changes}


def version_of(token):
    return ringpack.describe({"ringpack_state": token})["stream_version"]


@pytest.fixture
def older(program, folder, stream):
    """A run of version 1 has stopped at ROW: its config, without the version, and its token."""
    config = config_of(stream, folder)
    engine = Engine(program, folder, {**config, "stream_version": 1})
    with Ranks(engine) as ranks:
        assert len(list(ranks.turns(ROW // 3))) == ROW // 3
        token = ranks.tokens()[0]
        engine.checkpoint()
    assert engine.stop() == 0 and NEW not in engine.log()
    assert version_of(token) == 1
    return config, token


def assert_rest(engine, stream, token=None, row=ROW):
    """The ranks get the rows of version 1 from `row` on, to the end of the stream."""
    with Ranks(engine, token=token) as ranks:
        digest = sum(batch.digest() for turn in ranks.turns() for batch in turn) % 2**128
        assert digest == sum(stream.row_digests[row:]) % 2**128
    assert engine.wait() == 0, engine.log()


def write(folder, config, name="other.yaml"):
    path = folder / name
    path.write_text(json.dumps(config))
    return path


# ---- new runs ------------------------------------------------------------------------------------


def test_a_new_run_is_version_2(program, folder, stream):
    """Said once: at the first start, and at no later one."""
    config = config_of(stream, folder)
    for start in range(2):
        engine = Engine(program, folder, config)
        with Ranks(engine) as ranks:
            assert ranks.turn()
            assert version_of(ranks.tokens()[0]) == 2
            engine.checkpoint()
        assert engine.stop() == 0
        assert engine.log().count(NEW) == 1, f"start {start}"


def test_a_new_run_may_be_version_1(program, folder, stream):
    engine = Engine(program, folder, config_of(stream, folder, stream_version=1))
    assert NEW not in engine.log()
    assert_rest(engine, stream, row=0)


def test_lanes_need_version_1(program, folder, stream):
    path = write(folder, config_of(stream, folder, plan_partitions=2))
    for verb in ("serve",), ("plan",), ("config", "check"), ("config", "contract"):
        texts = ["plan_partitions", "stream_version: 1", "other.yaml:1"]
        refused(program, *verb, "-c", path, texts=texts)


# ---- a run of version 1 continues ----------------------------------------------------------------


@pytest.mark.parametrize("way", ["checkpoint", "state", "mirror", "lanes"])
def test_a_run_of_version_1_goes_on(program, folder, stream, older, way):
    config, token = older
    arguments = []
    if way == "state":
        arguments = ["--state", write_state(folder / "token", token)]
        config["checkpoint_dir"] = str(folder / "new")
    if way == "mirror":
        shutil.move(folder / "kept", folder / "copies")
        config["checkpoint_mirror_dir"] = str(folder / "copies")
    if way == "lanes":  # a key that version 2 does not have
        config["plan_partitions"] = 1
    engine = Engine(program, folder, config, *arguments)
    assert KEPT in engine.log() and NEW not in engine.log()
    assert_rest(engine, stream)


def test_fresh_begins_version_2(program, folder, older):
    config, _ = older
    for start in ("--fresh",), ("--resume", "fresh"):
        engine = Engine(program, folder, config, *start)
        assert NEW in engine.log()
        engine.kill()


def test_a_loader_brings_a_state_of_version_1(program, folder, stream, older):
    """Its engine begins as a new run, and starts again at the state."""
    config, token = older
    del config["checkpoint_dir"], config["run_dir"]
    with ringpack.Loader(config=write(folder, config), run_dir=folder) as loader:
        loader.load_state_dict({"ringpack_state": token})
        digest = sum(batch.digest() for batch in loader) % 2**128
    assert digest == sum(stream.row_digests[ROW:]) % 2**128


def test_a_loader_that_describes_its_stream_attaches(program, folder, stream, older):
    """The engine has started from a token, which the config of the loader does not name. The second
    loader has the corpus at another path."""
    config, token = older
    config["checkpoint_dir"] = "none"
    engine = Engine(program, folder, config, "--state", write_state(folder / "token", token))
    shutil.copytree(folder / "corpus", folder / "copy")
    moved = json.loads(json.dumps(config).replace(f"{folder}/corpus", f"{folder}/copy"))
    for number, own in enumerate((config, moved)):
        path = write(folder, own, f"loader-{number}.yaml")
        loader = ringpack.Loader(config=path, run=engine.run, run_dir=folder, start_engine=False)
        with loader:
            batch = next(loader)
            assert batch.first_row == ROW
            assert batch.digest() == sum(stream.row_digests[ROW : ROW + 3]) % 2**128
            loader.load_state_dict({"ringpack_state": token})
    for changes in {"seed": 4}, {"seq_len": 64}, {"packing_buffer": 9}, {"stream_version": 2}:
        path = write(folder, {**config, **changes})
        loader = ringpack.Loader(config=path, run=engine.run, run_dir=folder, start_engine=False)
        with pytest.raises(ringpack.CheckpointMismatchError, match=next(iter(changes))):
            loader.attach()
    engine.kill()


def test_commands_speak_of_the_run(program, folder, stream, older):
    config, token = older
    path, state = write(folder, config), write_state(folder / "token", token)
    elsewhere = write(folder, {**config, "checkpoint_dir": "none"}, "elsewhere.yaml")
    said = lambda *words: run(program, *words).stdout  # noqa: E731
    assert "stream_version=1\n" in said("config", "contract", "-c", path)
    assert "stream_version=2\n" in said("config", "contract", "-c", elsewhere)
    own = json.loads(said("plan", "--json", "-c", path))
    assert own["rows"] == len(stream.rows)
    rest = json.loads(said("plan", "--json", "-c", elsewhere, "--state", state))
    assert rest["rows"] == len(stream.rows) - ROW
    for words in ["audit", folder / "kept", elsewhere], ["audit", elsewhere, state]:
        done = run(program, *words)
        assert done.returncode == 0 and "identical" in done.stdout, done.stdout + done.stderr
    for words in ["-c", path], ["-c", elsewhere, state], [folder / "kept"]:
        rows = said("explain", "--row", ROW - 1, *words)
        assert "row 11" in rows, rows
    for source in path, folder / "kept":
        with ringpack.Replay(source, program=program) as replay:
            row = replay.step(2)[0][0]["input_ids"][0].tolist()
            assert row[: len(stream.tokens_of(6))] == stream.tokens_of(6)
    done = run(program, "verify", "-c", path, "--kills", 1, "--rows", 40, "--random", 5)
    assert done.returncode == 0, done.stdout + done.stderr
    for other, differs in (1, True), (2, False):
        named = write(folder, {**config, "stream_version": other}, f"named-{other}.yaml")
        assert ("stream_version" in said("config", "diff", path, named)) == differs


# ---- refusals ------------------------------------------------------------------------------------

LATER = {
    "spread": 3,
    "align": 2,
    "group": 2,
    "bos_id": 1,
    "grow": True,
    "deal": {"window": 6, "step": 6, "tier": 3, "cost": 4},
    "stages": [{"until": "row 24"}],
    "skip": {"rows": ["30-40"]},
    "removed": {"gone": 0},
}


@pytest.mark.parametrize("key", [*LATER, "select", "max_epochs"])
def test_a_key_of_version_2_is_refused(program, folder, older, key):
    config, token = older
    changes = {key: LATER.get(key)}
    if key not in LATER:
        value = "length > 3" if key == "select" else 2
        changes = {"sources": [dict(source, **{key: value}) for source in config["sources"]]}
    path = write(folder, {**config, **changes})
    texts = [key, "the run that is resumed here is of version 1", "leave it out"]
    for verb in ("serve",), ("plan",), ("config", "check"):
        refused(program, *verb, "-c", path, texts=texts)
    state = "--state", write_state(folder / "token", token)
    refused(program, "serve", "-c", path, "--checkpoint-dir", "none", *state, texts=texts)


def test_the_other_version_is_refused(program, folder, older):
    config, _ = older
    path = write(folder, {**config, "stream_version": 2})
    texts = ["stream_version: 1 in the state token, 2 in the config", "`stream_version: 1`"]
    refused(program, "serve", "-c", path, texts=texts)


def test_an_engine_that_has_begun_refuses_a_trainer(program, folder, stream, older):
    config, token = older
    engine = Engine(program, folder, {**config, "checkpoint_dir": "none"})
    with pytest.raises(ringpack.CheckpointMismatchError, match="1 in the state token, 2") as raised:
        Ranks(engine, token=token)
    assert "`stream_version: 1`" in raised.value.hint
    engine.kill()


# ---- positive control ----------------------------------------------------------------------------


def test_control_an_engine_that_forgets_the_version(broken, folder, stream, older, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "forget_version")
    with pytest.raises(AssertionError):
        test_a_run_of_version_1_goes_on(broken, folder, stream, older, "checkpoint")
