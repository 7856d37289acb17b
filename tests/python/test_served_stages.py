# SPDX-License-Identifier: Apache-2.0
"""Streams of version 2, served: every batch, state token and digest of all ranks is the oracle's,
through kills, stages of another seq_len, and other numbers of ranks.

The oracle (tests/oracle/stream2.py) is written only from engine/plan/STREAM2.md."""

import json
import os
import random

import pytest
import ringpack
from calendars import random_stream
from ringpack.errors import CheckpointMismatchError
from served_kit import STEP, Served, read, refusal, serve, stop_at
from step_kit import Steps
from stream2_kit import Stream2
from stream_kit import VERSION_1, Corpus, Engine, Ranks, Written, write_state

SEED = 4100
WORLDS = [(1, 4), (2, 2), (2, 1), (4, 2)]  # ranks, batch_size
LAYOUTS = [
    [("megatron", "u16", 1, [20, 12]), ("raw", "u16", 1, [24])],
    [("npy", "u32", 1, [22]), ("megatron", "i32", 1, [16]), ("raw", "u16", 1, [18, 8])],
]
CASES = 8


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    return [
        Corpus(tmp_path_factory.mktemp("layout"), layout, SEED + n, seq_len=24)
        for n, layout in enumerate(LAYOUTS)
    ]


def stream_of(number, corpora):
    rng = random.Random(SEED + number)
    corpus = corpora[number % len(corpora)]
    counts = [sum(layout[3]) for layout in LAYOUTS[number % len(corpora)]]
    return rng, random_stream(rng, corpus, counts, STEP).run()


def run_to_end(program, folder, stream, shape, rng, **keys):
    """All runs of a stream, one for each seq_len; each is killed once after a checkpoint."""
    served, runs = Served(stream), 0
    while True:
        end, is_stage = stream.end_of_run(served.row)
        engine = serve(program, folder, stream, shape, **keys)
        try:
            with Ranks(engine, shape[0]) as ranks:
                turns = rng.randint(1, 3)
                steps = max(0, end - served.row) // STEP
                read(ranks, served, shape, turns if steps > 1 else 0)
                engine.checkpoint()
            engine.kill()
            engine = serve(program, folder, stream, shape, **keys)
            with Ranks(engine, shape[0]) as ranks:
                served.rewind(ranks.loaders[0].next_row)
                assert served.states(ranks)
                read(ranks, served, shape)
                served.row = max(served.row, end) if is_stage else len(stream.rows)
                served.states(ranks)
                ended = [loader.stage_ended for loader in ranks.loaders]
                assert ended == [is_stage] * shape[0], f"{ended} at row {served.row}"
            assert engine.wait() == (4 if is_stage else 0), engine.log()
        finally:
            engine.kill()
        runs += 1
        if not is_stage:
            assert served.digest == stream.digest
            return runs
        assert f"begins at row {end} with rows of seq_len" in engine.log()


@pytest.mark.parametrize("number", range(CASES))
def test_served_rows_are_the_oracles(program, folder, corpora, number):
    rng, stream = stream_of(number, corpora)
    shape = WORLDS[number % len(WORLDS)]
    machine = {"packers": 1 + number % 2, "packer_processes": number % 3 == 1}
    machine["io"] = ["auto", "mapped", "pread"][number % 3]
    run_to_end(program, folder, stream, shape, rng, checkpoint_dir=str(folder / "saved"), **machine)


@pytest.mark.parametrize("number", [2, 5])
def test_other_ranks_go_on_from_a_state(program, folder, corpora, number):
    """A state after a step continues in other ranks, batches and workers, into the next stages."""
    rng, stream = stream_of(number, corpora)
    stream.skip, stream.stream["skip"] = [], []
    stream = Stream2(stream.corpus, stream.keys, stream.sources, stream.stages).run()
    served, token = stop_at(program, folder, stream, (2, 2), STEP)
    for shape in (4, 2), (1, 8), (8, 1):
        end, is_stage = stream.end_of_run(served.row)
        path = write_state(folder / "state", token)
        keys = {"packers": shape[1] % 3 + 1, "packer_processes": shape[0] == 4}
        engine = serve(program, folder, stream, shape, "--state", path, **keys)
        try:
            with Ranks(engine, shape[0]) as ranks:
                assert served.states(ranks) == token
                steps = 1 if not is_stage else None
                read(ranks, served, shape, steps and STEP // (shape[0] * shape[1]) * steps)
                if is_stage:
                    served.row = end
                token = served.states(ranks)
                assert [loader.stage_ended for loader in ranks.loaders] == [is_stage] * shape[0]
            assert (engine.wait() if is_stage else engine.stop()) == (4 if is_stage else 0)
        finally:
            engine.kill()
        if served.row == len(stream.rows):
            return
    assert served.row > end or is_stage


# ---- a corpus that grows -------------------------------------------------------------------------


def first_shards(corpus, counts):
    """The corpus without its last shards: `counts` documents of each source are left."""
    sources = [{**source, "shards": source["shards"][:1]} for source in corpus.sources]
    return Written(sources, [d[:n] for d, n in zip(corpus.documents, counts)])


@pytest.mark.parametrize("grow", [True, False])
def test_appended_documents_join_at_the_next_start(program, folder, grow):
    """And bounds of percent still count the documents of the first start."""
    layout = [("megatron", "u16", 1, [16, 12]), ("raw", "u16", 1, [12, 9])]
    corpus = Corpus(folder, layout, SEED, seq_len=24)
    keys = {"seed": 9, "shuffle": "document", "group": 1, "long_doc": "split"}
    sources = [
        {"name": "grows", "max_epochs": 4},
        {"name": "parts", "max_epochs": 3, "written": "0-75%", "documents": [0, 9]},
    ]
    sources[1]["is_percent"] = True
    stage = {"from": 0, "seq_len": 32, "weight": {"grows": 1, "parts": 1}, "packing": "lookahead"}
    stage |= {"window": 4, "fill": "pad", "max_docs_per_row": 6, "global_batch_size": STEP}
    stages = [stage]
    before = Stream2(first_shards(corpus, [16, 12]), keys, sources, stages).run()
    after = Stream2(corpus, keys, sources, stages).resume(before, STEP, grow)
    assert (after.rows[STEP:] != before.rows[STEP:]) == grow
    saved = {"checkpoint_dir": str(folder / "saved"), "grow": grow}
    served, _ = stop_at(program, folder, before, (2, 2), STEP, ahead=True, **saved)
    served.stream, served.steps = after, Steps(after, STEP)
    engine = serve(program, folder, after, (2, 2), **saved)
    try:
        with Ranks(engine, 2) as ranks:
            served.states(ranks)
            read(ranks, served, (2, 2))
            served.states(ranks)
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    assert served.digest == after.digest
    again = Served(after)
    with ringpack.Replay(str(folder / "saved"), program=program, profile="full") as replay:
        for step in 0, 1, 2:  # before and after the documents joined
            for batches in replay.step(step):
                for batch in batches:
                    again.compare(batch)


# ---- loaders, refusals ---------------------------------------------------------------------------


def plain_stream(corpora, **changes):
    """Two stages of other seq_len, without random parts."""
    stage = {"from": 0, "seq_len": 32, "packing": "lookahead", "window": 4, "fill": "pad"}
    stage |= {"weight": {"a": 1, "b": 1}, "max_docs_per_row": 6, "global_batch_size": STEP}
    stages = [{**stage, "until": ("steps", 2)}, {"seq_len": 64}]
    keys = {"seed": 3, "shuffle": "document", "group": 1, "long_doc": "split", **changes}
    sources = [{"name": "a", "max_epochs": 2}, {"name": "b", "max_epochs": 2}]
    return Stream2(corpora[0], keys, sources, stages).run()


def loop(loader, served, most=None):
    for batch in loader:
        served.take([batch], 1, 4)
        most = most and most - 1
        if most == 0:
            return


@pytest.mark.parametrize("has_directory", [True, False])
def test_a_new_loader_begins_the_next_stage(program, folder, corpora, has_directory):
    """Its own engine ends with the stage. The next one begins at the checkpoint, or at a state."""
    stream, state = plain_stream(corpora), None
    served = Served(stream)
    config = {**stream.config(), "batch_size": 4, "profile": "full", "run_dir": str(folder)}
    if has_directory:
        config["checkpoint_dir"] = str(folder / "saved")
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    for is_stage, seq_len in (True, 32), (False, 64):
        with ringpack.Loader(str(path), program=program) as loader:
            if state and not has_directory:
                loader.load_state_dict(state)
            loop(loader, served)
            assert loader.stage_ended is is_stage
            assert list(loader) == []  # nothing more, and no pass from the first row
            state = loader.state_dict(text=True)
            assert loader.attach()._client.geometry.seq_len == seq_len
    assert served.row == len(stream.rows) and served.digest == stream.digest


def test_a_start_that_would_lose_rows_at_a_stage_is_refused(program, folder, corpora):
    stream = plain_stream(corpora)
    _, token = stop_at(program, folder, stream, (1, 4), 4)
    path = write_state(folder / "state", token)
    config = {**stream.config(), "batch_size": 4, "drop_last": True}
    said = refusal(program, folder, config, "--state", path)
    assert "begins at row 16, inside of a step" in said
    assert "steps of global_batch_size 8 begin at rows 12 and 20" in said
    assert "until: row N" in said


def test_a_stage_that_ends_inside_a_step_loses_no_row(program, folder, corpora):
    stream, shape = plain_stream(corpora), (1, 4)
    served, token = stop_at(program, folder, stream, shape, 4)
    for _ in range(2):  # steps of the first run begin at rows 4 and 12, and the stage ends at 16
        path = write_state(folder / "state", token)
        end, is_stage = stream.end_of_run(served.row)
        engine = serve(program, folder, stream, shape, "--state", path)
        try:
            with Ranks(engine, 1) as ranks:
                read(ranks, served, shape, -(-(end - served.row) // shape[1]))
                rest = [row for [batch] in ranks.turns() for row in batch["rows"].tolist()]
                assert all(count == 0 for _, count, _ in rest)
                token = served.states(ranks)
                assert ranks.loaders[0].stage_ended == is_stage
            assert engine.wait() == (4 if is_stage else 0), engine.log()
        finally:
            engine.kill()
    assert len(rest) < STEP and served.row == len(stream.rows)
    assert served.digest == stream.digest


def test_a_stream_without_a_row_is_refused(program, folder, corpora):
    config = {**plain_stream(corpora).config(), "batch_size": 4}
    for source in config["sources"]:
        source |= {"select": "length > 1000000", "max_epochs": 1}
    said = refusal(program, folder, config)
    assert "the stream has no row: no source selects a document" in said


def test_a_stream_whose_rows_are_all_skipped_is_refused(program, folder, corpora):
    stream = plain_stream(corpora)
    stage = {name: value for name, value in stream.config().items() if name != "stages"}
    config = {**stage, "batch_size": 4, "skip": {"rows": ["0-100000"]}}
    said = refusal(program, folder, config)
    assert "the stream has no row: `skip` has all of its " in said, said


def test_a_trainer_in_another_stage_is_refused(program, folder, corpora):
    stream = plain_stream(corpora)
    end, _ = stream.end_of_run(0)
    _, token = stop_at(program, folder, stream, (1, 4), 8)
    like = write_state(folder / "state", stream.state(end, token))
    engine = serve(program, folder, stream, (1, 4), "--state", like)
    try:
        with pytest.raises(CheckpointMismatchError, match="row 8 has seq_len 32, and this engine"):
            Ranks(engine, 1, token=token, connect_timeout=0.3)
        with Ranks(engine, 1) as ranks:
            assert ranks.loaders[0].next_row == end
    finally:
        engine.kill()


def test_checkpoints_of_the_other_version_are_refused(program, folder, corpora):
    stream = plain_stream(corpora)
    saved = {"checkpoint_dir": str(folder / "saved")}
    stop_at(program, folder, stream, (1, 4), 8, **saved)
    second = {**stream.config(), "batch_size": 4, **saved}
    new = "stream_version stages max_epochs".split()
    first = {key: value for key, value in second.items() if key not in new}
    first["sources"] = [
        {key: value for key, value in source.items() if key not in new}
        for source in first["sources"]
    ]
    first = {k: v for k, v in first.items() if k not in ("group", "spread")} | VERSION_1
    assert "stream_version: 2 in the state token, 1 in the config" in refusal(
        program, folder, first
    )
    first["checkpoint_dir"] = second["checkpoint_dir"] = str(folder / "old")
    engine = Engine(program, folder, first)
    with Ranks(engine, 1) as ranks:
        assert ranks.turn() and ranks.turn()
        engine.checkpoint()
    assert engine.stop() == 0
    assert "stream_version: 1 in the state token, 2 in the config" in refusal(
        program, folder, second
    )


# ---- positive controls ---------------------------------------------------------------------------


@pytest.mark.parametrize("defect", ["end_stages_as_streams", "lose_fragment_at_resume"])
def test_a_broken_engine_is_noticed(broken, folder, corpora, defect, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", defect)
    rng, stream = stream_of(0, corpora)
    with pytest.raises(AssertionError):
        run_to_end(broken, folder, stream, (1, 4), rng, checkpoint_dir=str(folder / "saved"))


def test_contents_of_other_documents_are_noticed(broken, folder, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "keep_grown_contents")
    with pytest.raises(AssertionError, match="row 9"):
        test_appended_documents_join_at_the_next_start(broken, folder, True)
