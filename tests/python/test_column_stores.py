# SPDX-License-Identifier: Apache-2.0
"""Side columns of shards in stores: the entries of a disk, in few requests, through the cache, and
after a resume; objects that changed, are damaged, cut short or absent are refused by name."""

import contextlib
import json
import shutil
import subprocess
import threading

import pytest
import ringpack
from column_kit import Columns, assert_columns, read_all, refused
from remote_kit import (  # with the fixtures `environment` and `store`
    environment,
    gone,
    half_body,
    other_etag,
    other_size,
    sometimes,
    store,
)
from stream_kit import PATIENCE, Corpus, Engine

SEED = 3209
LAYOUT = [("megatron", "u16", 2, [40, 30]), ("raw", "u16", 1, [40])]
KINDS = {"weight": ("<f4", 1), "teacher": ("<i4", 64)}
SEQ_LEN = 48


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.fixture
def corpus(program, store):
    """In the folder of the store, by its URLs."""
    made = Corpus(store.folder, LAYOUT, SEED, SEQ_LEN)
    made.index(program)
    made.local = json.loads(json.dumps(made.sources))
    return made


@pytest.fixture
def columns(corpus, program, store, tmp_path):
    made = Columns(corpus, None, KINDS, SEED)
    made.write(program, tmp_path)
    for source in corpus.sources:
        source["shards"] = [store.url(path) for path in source["shards"]]
    return made


def config_of(corpus, **more):
    keys = {"sources": corpus.sources, "seq_len": SEQ_LEN, "batch_size": 2, "seed": 5}
    keys |= {"columns": ["weight", "teacher"], "sections": ["provenance"], "shuffle": "block"}
    return {**keys, "block_documents": 16, "window_blocks": 2, "prefetch_bytes": "16m", **more}


def asked(store, suffix=".col"):
    with store.lock:
        return sum(path.endswith(suffix) for path in store.asked)


CASES = {
    "blocks": {},
    "cached": {"cache_bytes": "64m", "shuffle": "document"},
    "version_1": {"stream_version": 1, "readers": 2, "packer_processes": True},
    "without_hashes": {"verify_blocks": "off"},
}


@pytest.mark.parametrize("case", CASES)
def test_entries_of_a_store_are_those_of_a_disk(corpus, columns, program, store, tmp_path, case):
    """In blocks: fewer requests than documents. Hashes are fetched once on a machine."""
    keys = {"cache_dir": str(tmp_path / "cached"), **CASES[case]}
    engine = Engine(program, tmp_path, config_of(corpus, **keys))
    assert asked(store) >= 12, "a header and hashes of each of 3 shards and 2 columns"
    rows, loaders = read_all(engine, lambda batch: assert_columns(batch, columns))
    assert len(rows) > 30 and rows == sorted(rows)
    loaders[0].close()
    assert engine.stop() == 0
    documents = sum(map(len, corpus.documents))
    if case == "blocks":
        assert asked(store) < 12 + 2 * documents / 3, f"{asked(store)} requests"
    store.asked.clear()
    engine = Engine(program, tmp_path, config_of(corpus, **keys))
    read_all(engine, lambda batch: assert_columns(batch, columns), most=2)
    assert engine.stop() == 0
    if case == "cached":
        assert asked(store) <= 8, "headers, and hardly any entry"


def test_a_corpus_index_lists_shards_of_a_store(corpus, columns, program, store, tmp_path):
    """With its columns; killed and resumed as other ranks; one contract with the disk."""
    config = config_of(corpus, index=str(tmp_path / "all.rpi"), cache_dir=str(tmp_path / "cached"))
    path = tmp_path / "indexed.yaml"
    path.write_text(json.dumps(config))
    subprocess.run([program, "index", "-q", "-c", str(path)], check=True)
    config["checkpoint_dir"] = str(tmp_path / "kept")
    engine = Engine(program, tmp_path, config)
    first, loaders = read_all(engine, lambda batch: assert_columns(batch, columns), most=4)
    engine.checkpoint()
    state = loaders[0].state_dict()
    loaders[0].close()
    engine.kill()
    config |= {"dp_world_size": 2, "batch_size": 1, "packers": 2}
    engine = Engine(program, tmp_path, config)
    second, loaders = read_all(
        engine, lambda batch: assert_columns(batch, columns), world=2, state=state
    )
    for loader in loaders:
        loader.close()
    assert engine.stop() == 0
    assert sorted(first + second) == list(range(len(first) + len(second)))


def test_a_disk_and_a_store_have_one_contract(corpus, columns, program, tmp_path):
    """Of the columns, so that a run moves from one to the other."""
    told = []
    for sources in corpus.sources, corpus.local:
        path = tmp_path / "contract.yaml"
        path.write_text(json.dumps({**config_of(corpus), "sources": sources}))
        done = run(program, "config", "contract", "-c", path)
        told.append([line for line in done.stdout.splitlines() if line.startswith("column")])
    assert told[0] == told[1] and len(told[0]) == 5, told


# ---- refused ------------------------------------------------------------------------------------


def run(program, *arguments):
    command = [program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def damage(path, at, bits=4):
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)


def test_objects_that_do_not_fit_are_refused(corpus, columns, program, store, tmp_path):
    """At the start: another length or column, cut short, header and hashes damaged, absent."""
    path = store.folder / "0-1.weight.col"
    kept = path.read_bytes()
    config = config_of(corpus, cache_dir=str(tmp_path / "cached"))

    def told():
        message = refused(program, tmp_path, config)
        assert store.url(path) in message and "next: " in message, message
        return message

    shutil.copy(store.folder / "0-0.weight.col", path)
    assert "entries, as" in told()
    shutil.copy(store.folder / "0-1.teacher.col", path)
    assert "expected f32, as in" in told()
    path.write_bytes(kept[:-8])
    assert f"expected {len(kept)} bytes, found {len(kept) - 8}" in told()
    path.write_bytes(kept[:100])
    assert "too short for a column" in told()
    path.write_bytes(kept)
    damage(path, 24)
    assert "header differs from the hash" in told()
    path.write_bytes(kept)
    damage(path, len(kept) - 8)
    assert "block hashes differ" in told()
    path.unlink()
    message = refused(program, tmp_path, config)
    assert "the store has no column `weight` of it" in message, message
    assert store.url("0-1.bin") in message and "--output DIR" in message, message


def test_hashes_of_many_objects_are_fetched_at_a_time(corpus, columns, program, store, tmp_path):
    """Hashes of all shards of a column are requested before the first reply, and hashes on this
    machine are not requested."""
    met = threading.Barrier(3)

    def meet(handler):
        if handler.first >= 4096:
            with contextlib.suppress(threading.BrokenBarrierError):
                met.wait(PATIENCE / 4)
        return False

    store.suffix, store.fault = ".col", meet
    path = tmp_path / "contract.yaml"
    path.write_text(json.dumps(config_of(corpus, cache_dir=str(tmp_path / "cached"))))
    done = run(program, "config", "contract", "-c", path)
    assert done.returncode == 0, done.stderr
    assert not met.broken, "hashes were fetched one object after another"
    kept = sorted((tmp_path / "cached").glob("*.hashes"))
    assert len(kept) == 6 and asked(store) == 12
    store.asked.clear()
    store.fault = None
    kept[2].unlink()
    damage(kept[4], 8)
    assert run(program, "config", "contract", "-c", path).stdout == done.stdout
    assert asked(store) == 6 + 2, "headers, and the hashes of two"


def test_a_planted_defect_is_found(corpus, columns, broken, store, tmp_path, monkeypatch):
    """Hashes that are not compared with the header are not refused at the start."""
    path = store.folder / "0-1.weight.col"
    damage(path, path.stat().st_size - 8)
    config = config_of(corpus, cache_dir=str(tmp_path / "cached"))
    assert "block hashes differ" in refused(broken, tmp_path, config)
    monkeypatch.setenv("RP_DEFECT", "trust_hashes_of_store")
    engine = Engine(broken, tmp_path, config, wait=False)
    assert engine.wait() != 0
    assert "differs from its hash" in engine.log(), engine.log()


@pytest.mark.parametrize(
    "fault, said",
    [
        (other_etag, "changed"),
        (other_size, "changed"),
        (gone, "404"),
        (None, "0-1.weight.col: block 1 (bytes 4096 to 8192) differs from its hash"),
    ],
    ids=["etag", "size", "gone", "bit"],
)
def test_an_object_that_changes_ends_the_run(
    corpus, columns, program, store, tmp_path, fault, said
):
    """While the run reads it: by name, after the last good row."""
    if fault is None:
        damage(store.folder / "0-1.weight.col", 4096 + 4 * 700)
    config = config_of(corpus, cache_dir=str(tmp_path / "cached"), num_epochs="endless")
    engine = Engine(program, tmp_path, config, wait=False)
    if fault is not None:
        engine.wait_ready()
        store.suffix, store.fault = ".weight.col", fault
        with pytest.raises(ringpack.RingpackError):
            read_all(engine, lambda batch: assert_columns(batch, columns))
    assert engine.wait() != 0
    told = engine.log()
    assert said in told and ".weight.col" in told, told
    if fault is None:
        path = tmp_path / "checked.yaml"
        path.write_text(json.dumps(config))
        done = run(program, "column", "-c", path, "--check")
        assert done.returncode == 2 and "0-1.weight.col: block 1: expected" in done.stderr


def test_a_bad_connection_costs_no_entry(corpus, columns, program, store, tmp_path):
    store.suffix, store.fault = ".col", sometimes(3, half_body)
    engine = Engine(program, tmp_path, config_of(corpus, cache_dir=str(tmp_path / "cached")))
    rows, _ = read_all(engine, lambda batch: assert_columns(batch, columns))
    assert len(rows) > 30
    assert engine.stop() == 0


def test_the_command_writes_files_to_copy(corpus, columns, program, store, tmp_path):
    """The bytes that a disk has, below --output with the folders of the shards."""
    config = tmp_path / "made.yaml"
    config.write_text(json.dumps({"sources": corpus.sources, "seq_len": 8, "batch_size": 1}))
    values = tmp_path / "weight-0.npy"
    command = ["column", "-c", config, "--source", "source-0", "--column", f"weight={values}"]
    done = run(program, *command)
    assert done.returncode == 2 and "ringpack does not write to stores" in done.stderr
    done = run(program, *command, "--output", tmp_path / "new" / "out")
    assert done.returncode == 0, done.stderr
    assert f"copy them to {store.base}/" in done.stdout, done.stdout
    for name in "0-0.weight.col", "0-1.weight.col":
        written = (tmp_path / "new" / "out" / name).read_bytes()
        assert written == (store.folder / name).read_bytes()
    again = run(program, *command, "--output", tmp_path / "new" / "out")
    assert again.returncode == 2 and "is there already" in again.stderr
    config.write_text(json.dumps({"sources": corpus.local, "seq_len": 8, "batch_size": 1}))
    done = run(program, *command, "--output", tmp_path / "new")
    assert done.returncode == 2 and "leave --output out" in done.stderr
    config.write_text(json.dumps(config_of(corpus)))
    done = run(program, "column", "-c", config, "--check")
    assert done.returncode == 0 and "2 columns are as they were written" in done.stdout
