# SPDX-License-Identifier: Apache-2.0
"""A corpus of many small shards is inspected, indexed, planned and served; an index that is small
takes no mapping of its own. RP_LONG=1: 100,000 shards."""

import json
import os
import re
import subprocess
from pathlib import Path

import numpy
import pytest
from refusal_kit import run
from stream_kit import Engine, Ranks, wait_until, write_megatron

SHARDS = 100_000 if os.environ.get("RP_LONG") else 1000
LINKS = 500  # a file has at most 65,000 names on ext4, so there are several
LENGTHS = [8 + i % 9 for i in range(4)]
ROW = 64


@pytest.fixture
def shards(folder):
    """A folder of SHARDS shards, whose files are links to a few."""
    place = folder / "corpus"
    place.mkdir()
    for number in range(SHARDS):
        name = place / f"s{number:06}"
        first = place / f"s{number - number % LINKS:06}"
        if name == first:
            tokens = numpy.arange(number, number + sum(LENGTHS))
            documents = numpy.split(tokens, numpy.cumsum(LENGTHS)[:-1])
            write_megatron(name, documents, "i32")
        else:
            for kind in (".bin", ".idx"):
                os.link(f"{first}{kind}", f"{name}{kind}")
    return place


def config_of(shards, **changes):
    config = {"seq_len": ROW, "batch_size": 16, "shuffle": "document", "run": "many"}
    return {**config, "sources": [str(shards)], "num_epochs": 1, **changes}


def read_all(engine):
    """How many tokens come; the sum over the whole stream is known."""
    total = 0
    with Ranks(engine) as ranks:
        for (batch,) in ranks.turns():
            total += int(batch["input_ids"].sum())
    return total


def expected_sum():
    firsts = [number - number % LINKS for number in range(SHARDS)]
    count = sum(LENGTHS)
    return sum(count * first + count * (count - 1) // 2 for first in firsts)


@pytest.mark.parametrize("io", ["auto", "pread"])
def test_many_shards_are_served(program, folder, shards, io):
    engine = Engine(program, folder, config_of(shards, io=io))
    try:
        mappings = Path(f"/proc/{engine.pid}/maps").read_text().count(".idx")
        assert mappings == 0
        assert read_all(engine) == expected_sum()
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()


def test_the_table_of_descriptors_is_large_from_the_start(program, folder, shards):
    """Else the thread that plans waits for the kernel each time that the table is doubled."""
    engine = Engine(program, folder, config_of(shards), prefix=["prlimit", "--nofile=3000:3000"])
    try:
        status = Path(f"/proc/{engine.pid}/status").read_text()
        size = int(re.search(r"^FDSize:\s*(\d+)", status, re.M).group(1))
        assert size >= 3000, "a new process has 64"
    finally:
        engine.kill()


def test_more_shards_than_half_of_the_descriptors(program, folder, shards):
    engine = Engine(
        program, folder, config_of(shards, io="pread"), prefix=["prlimit", "--nofile=300:300"]
    )
    try:
        assert read_all(engine) == expected_sum()
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()


def test_a_mapping_for_each_index_is_noticed(broken, folder, shards, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "map_small_files")
    if SHARDS > 50_000:
        pytest.skip("this defect does not start with so many")
    engine = Engine(broken, folder, config_of(shards, io="pread"))
    try:
        assert Path(f"/proc/{engine.pid}/maps").read_text().count(".idx") == SHARDS
    finally:
        engine.kill()


def test_an_index_that_is_killed_is_completed(program, folder, shards):
    """Sidecars get their names many at a time: a kill leaves whole ones, and at most one temporary
    file, whose name was being changed."""
    process = subprocess.Popen([program, "index", "-q", shards], stdout=subprocess.DEVNULL)
    wait_until(lambda: any(shards.glob("*.rpi")), "a sidecar")
    process.kill()
    process.wait()
    left = {path: path.read_bytes() for path in shards.glob("*.rpi")}
    temporary = len(list(shards.glob("*.tmp.*")))
    assert temporary <= 1
    assert len(list(shards.iterdir())) == 2 * SHARDS + len(left) + temporary
    done = run(program, "index", "-q", shards)
    assert done.returncode == 0, done.stderr
    assert len(list(shards.iterdir())) == 3 * SHARDS + temporary
    assert all(path.read_bytes() == content for path, content in left.items())


def test_many_shards_are_planned_inspected_and_indexed(program, folder, shards):
    path = folder / "many.yaml"
    path.write_text(json.dumps(config_of(shards)))
    done = run(program, "plan", "--json", "-c", path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["documents"] == SHARDS * len(LENGTHS)
    done = run(program, "index", "-q", shards)
    assert done.returncode == 0, done.stderr
    assert len(list(shards.glob("*.rpi"))) == SHARDS
    done = run(program, "inspect", shards)
    assert done.returncode == 0, done.stderr
    engine = Engine(program, folder, config_of(shards, io="pread"))
    try:
        assert Path(f"/proc/{engine.pid}/maps").read_text().count(".rpi") == 0
        assert read_all(engine) == expected_sum()
    finally:
        engine.kill()
