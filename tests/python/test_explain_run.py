# SPDX-License-Identifier: Apache-2.0
"""`ringpack explain` and `state` answer for the run, not for its files of today: an edited config,
rows that drop_last leaves out, tokens that changed since they were indexed."""

import json
import subprocess

import numpy
import pytest
from explain_kit import explain, rows_of
from stream_kit import VERSION_1, Engine, Ranks, write_megatron

SHAPE = {"seq_len": 64, "batch_size": 2, "dp_world_size": 2, "global_batch_size": 4}
OTHER = {"batch_size": 4, "dp_world_size": 1, "global_batch_size": 16}


@pytest.fixture
def config(folder):
    documents = numpy.random.default_rng(3).integers(1, 999, (90, 100))
    return {**SHAPE, "sources": [write_megatron(folder / "web", list(documents), "u16")]}


def ids(rows):
    return [fragment["ids"] for row in rows for fragment in row["fragments"]]


def test_a_config_that_was_edited_since(program, folder, config):
    kept = {**config, "checkpoint_dir": str(folder / "kept")}
    engine = Engine(program, folder, kept)
    running = "--run", "e2e", "--run-dir", folder
    before = rows_of(program, *running, "--step", 3)
    assert [row["row"] for row in before] == [12, 13, 14, 15]
    path = folder / "e2e.yaml"
    path.write_text(json.dumps({**engine.config, **OTHER, "drop_last": True}))
    assert rows_of(program, *running, "--step", 3) == before
    words = [program, "state", *map(str, running), "--step", "3", "--json", "-o", folder / "token"]
    said = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    assert (said["row"], said["step_rows"], said["dp_world_size"]) == (12, 4, 2)
    engine.stop()
    kept = rows_of(program, folder / "kept", "--step", 3)
    assert [row["row"] for row in kept] == [12, 13, 14, 15]
    given = "-c", path, folder / "kept"
    assert "leave -c out" in explain(program, *given, "--step", 3, status=2)
    (row,) = rows_of(program, *given, "--row", 12)
    assert row["step"] is None
    assert [row["row"] for row in rows_of(program, *given, "--step", 0, "--base-row", 16)][0] == 16


@pytest.mark.parametrize("ends", ["epochs", "limits"])
def test_the_step_that_drop_last_leaves_out(program, folder, config, ends):
    config |= {"drop_last": True, "global_batch_size": 16}
    if ends == "epochs":
        config |= VERSION_1 | {"num_epochs": 1}
    else:
        config["num_epochs"] = "endless"
        (source,) = config["sources"]
        config["sources"] = [{"name": "web", "path": source, "max_epochs": 1}]
    engine = Engine(program, folder, {**config, "checkpoint_dir": str(folder / "kept")})
    with Ranks(engine, 2) as ranks:
        last = max(batch["rows"]["row"].max() for turn in ranks.turns() for batch in turn)
    engine.stop()
    every = rows_of(program, "-c", folder / "e2e.yaml", "--row", "0-9999")
    assert (last + 1) % 16 == 0 and len(every) > last + 1
    for words in ("-c", folder / "e2e.yaml"), (folder / "kept",):
        for row in rows_of(program, *words, "--row", f"{last - 16}-9999"):
            assert row["dropped"] == (row["row"] > last)
            assert row["step"] == (None if row["dropped"] else row["row"] // 16)
    document = every[-1]["fragments"][-1]["document"]
    rows = rows_of(program, "-c", folder / "e2e.yaml", "--document", f"web:{document}")
    assert rows and all(row["dropped"] == (row["row"] > last) for row in rows)
    command = [program, "explain", folder / "kept", "--row", str(last + 1)]
    text = subprocess.run(command, capture_output=True, text=True).stdout
    assert "not delivered (drop_last)" in text


def test_a_document_after_the_end_of_the_stream(program, folder, config):
    """No epoch follows: the rows of the last one are shown. A query by epoch finds that epoch."""
    (source,) = config["sources"]
    config["sources"] = [{"name": "web", "path": source, "max_epochs": 2}]
    engine = Engine(program, folder, {**config, "checkpoint_dir": str(folder / "kept")})
    with Ranks(engine, 2) as ranks:
        for _ in ranks.turns():
            pass
    engine.stop()
    asked = "--document", "web:7"
    of_config = rows_of(program, "-c", folder / "e2e.yaml", *asked, "--epoch", 1)
    assert of_config and ids(rows_of(program, folder / "kept", *asked)) == ids(of_config)
    assert rows_of(program, folder / "kept", *asked, "--epoch", 2) == []


def test_tokens_that_changed_are_not_shown(program, broken, folder, config, monkeypatch):
    documents = numpy.random.default_rng(3).integers(1, 999, (400, 1500))
    config["sources"] = [write_megatron(folder / "long", list(documents), "u16")]  # not all sampled
    subprocess.run([program, "index", "-q", folder / "long.bin"], check=True)
    Engine(program, folder, config).kill()  # writes the config
    asked = "-c", folder / "e2e.yaml", "--document", "long:233"
    before = rows_of(program, *asked)
    with (folder / "long.bin").open("r+b") as file:
        file.seek(700000)
        file.write(b"xx")
    said = explain(program, *asked, status=2)
    assert "block 170 differs from its sidecar" in said and "--limit 0" in said
    assert [row["row"] for row in rows_of(program, *asked, "--limit", 0)] == [
        row["row"] for row in before
    ]
    assert rows_of(program, "-c", folder / "e2e.yaml", "--document", "long:5")  # another block
    monkeypatch.setenv("RP_DEFECT", "ignore_block_hash")
    assert ids(rows_of(broken, *asked)) != ids(before)
