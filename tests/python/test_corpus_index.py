# SPDX-License-Identifier: Apache-2.0
"""The corpus index: a corpus is the same with it, with sidecars and with neither; a killed build is
continued; new shards are appended; differences are refused by name. RP_LONG=1: 100,000 shards."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy
import pytest
import ringpack
from in_place_kit import (
    INPUTS,
    assert_resumes_with_and_without,
    serve_all,
    serve_first_batch,
)
from refusal_kit import refused, run
from stream_kit import (
    EOS,
    LONG,
    Corpus,
    Engine,
    Ranks,
    Stream,
    wait_until,
    write_flat,
    write_megatron,
)

LAYOUT = [
    ("megatron", "u16", 3, [40, 9, 30]),
    ("raw", "u16", 1, [50, 20]),
    ("npy", "i32", 1, [25]),
]


def config_of(corpus, **changes):
    return {**Stream(corpus, INPUTS, rows=0).config(), "batch_size": 5, **changes}


def index(program, folder, config, *arguments, **keywords):
    path = folder / "indexed.yaml"
    path.write_text(json.dumps(config))
    done = run(program, "index", "--json", "-c", path, *arguments, **keywords)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def corpus(folder):
    place = folder / "data"
    place.mkdir()
    return Corpus(place, LAYOUT, seed=5)


@pytest.fixture
def index_file(program, folder, corpus):
    """Of that corpus."""
    path = folder / "corpus.rpi"
    done = index(program, folder, config_of(corpus, index=str(path)))
    assert done["outcome"] == "new"
    assert done["shards_read"] == len(corpus.paths)
    assert sorted(p.name for p in folder.iterdir()) == ["corpus.rpi", "data", "indexed.yaml"]
    return path


def stopped(program, folder, config):
    """The messages of an engine that stops by itself, before or after its trainer attached."""
    engine = Engine(program, folder, config)
    while engine.process.poll() is None:
        with contextlib.suppress(ringpack.RingpackError), Ranks(engine, connect_timeout=2) as ranks:
            for _ in ranks.turns():
                pass
    assert engine.wait() == 2, engine.log()
    return engine.log()


# ---- the same corpus ----------------------------------------------------------------------------


@pytest.mark.parametrize("io", ["auto", "pread"])
def test_every_row_is_the_same_with_it(program, folder, corpus, index_file, io):
    assert not list(corpus.folder.glob("*.rpi"))
    with_it = serve_all(program, folder, corpus, index=str(index_file), io=io)
    assert serve_all(program, folder, corpus, io=io) == with_it
    corpus.index(program)
    assert serve_all(program, folder, corpus, io=io) == with_it


def test_pages_that_are_not_compared_are_found(broken, folder, corpus, index_file, monkeypatch):
    """The planted defect: a length that damage has changed makes other rows."""
    image = bytearray(index_file.read_bytes())
    image[256 + 8 * 79] ^= 1  # the length of the first document of the first segment, which has 79
    index_file.write_bytes(image)
    path = folder / "indexed.yaml"
    found = run(broken, "plan", "--json", "-c", path)
    assert found.returncode == 2 and "damaged" in found.stderr + found.stdout or "differs" in (
        found.stderr
    )
    monkeypatch.setenv("RP_DEFECT", "trust_index_pages")
    assert run(broken, "plan", "--json", "-c", path).returncode == 0


def test_a_run_resumes_with_it_and_without_it(program, folder, corpus, index_file):
    """It has the fingerprint of the sidecars."""
    corpus.index(program)
    assert_resumes_with_and_without(program, folder, corpus, str(index_file))


def test_sidecars_are_taken_over_unless_the_shard_is_newer(program, folder, corpus):
    corpus.index(program)
    time.sleep(0.02)
    os.utime(corpus.paths[-1])
    done = index(program, folder, config_of(corpus), "-o", folder / "a.rpi")
    assert done["shards_read"] == 1
    wanted = serve_all(program, folder, corpus)
    found = serve_all(program, folder, corpus, index=str(folder / "a.rpi"))
    assert found == wanted


def test_any_number_of_workers_makes_the_same_file(program, folder, corpus, index_file):
    for workers in 1, 7:
        other = folder / f"{workers}.rpi"
        done = index(program, folder, config_of(corpus), "-o", other, "--workers", workers)
        assert done["shards_read"] == len(corpus.paths)
        assert other.read_bytes() == index_file.read_bytes()


def test_a_start_opens_no_shard(program, folder, corpus, index_file):
    """The plan needs none, and an engine names the first that it misses."""
    path = folder / "indexed.yaml"
    wanted = run(program, "plan", "--json", "-c", path)
    assert wanted.returncode == 0, wanted.stderr
    corpus.folder.rename(folder / "away")
    found = run(program, "plan", "--json", "-c", path)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["tokens"] == json.loads(wanted.stdout)["tokens"]
    said = stopped(program, folder, config_of(corpus, index=str(index_file)))
    assert "data/" in said and "No such file" in said


# ---- making it ----------------------------------------------------------------------------------


def write_raw(folder, count, tokens, first=0):
    folder.mkdir(exist_ok=True)
    generator = numpy.random.default_rng(9)
    for number in range(first, first + count):
        ids = generator.integers(0, 1000, tokens)
        ids[::50] = EOS
        write_flat(folder / f"s{number:05}.bin", [ids], "u16", "raw")
    return {"name": "raw", "shards": [str(folder / "*.bin")], "format": "raw", "dtype": "u16"}


def raw_config(source, **changes):
    source = {**source, "eos": EOS}
    return {"seq_len": 64, "batch_size": 4, "num_epochs": 1, "sources": [source], **changes}


def test_it_goes_on_after_a_kill(program, folder):
    config = raw_config(write_raw(folder / "data", 60, 500_000), index=str(folder / "m.rpi"))
    path = folder / "indexed.yaml"
    path.write_text(json.dumps(config))
    work = folder / "m.rpi.work"
    finished = 0
    while not 0 < finished < 60:  # a fast machine may be done before it is killed
        child = subprocess.Popen([program, "index", "-q", "-c", path, "--workers", "1"])
        wait_until(
            lambda child=child: child.poll() is not None
            or (work.exists() and len(list(work.glob("*.rpi"))) > 5),
            "a finished shard",
        )
        child.send_signal(signal.SIGKILL)
        child.wait()
        finished = len(list(work.glob("*.rpi"))) if work.exists() else 60
        (folder / "m.rpi").unlink(missing_ok=True)
    done = index(program, folder, config)
    assert done["shards_read"] == 60 - finished
    assert not work.exists()
    other = index(program, folder, config, "-o", folder / "other.rpi")
    assert other["shards_read"] == 60
    assert other["root"] == done["root"]


def test_new_shards_are_appended(program, folder):
    source = write_raw(folder / "data", 4, 5000)
    config = raw_config(source, index=str(folder / "m.rpi"))
    first = index(program, folder, config)
    before = (folder / "m.rpi").read_bytes()
    write_raw(folder / "data", 3, 4000, first=4)
    second = index(program, folder, config)
    assert second["outcome"] == "appended"
    assert (second["shards"], second["shards_read"], second["shards_added"]) == (7, 3, 3)
    after = (folder / "m.rpi").read_bytes()
    assert after[256 : len(before)] == before[256:]
    assert second["fingerprint_full"] != first["fingerprint_full"]
    whole = index(program, folder, config, "-o", folder / "whole.rpi")
    assert whole["fingerprint_full"] == second["fingerprint_full"]
    # one that comes before the others: another order, which is said
    write_raw(folder / "data", 1, 3000, first=8)
    (folder / "data" / "s00008.bin").rename(folder / "data" / "a.bin")
    third = index(program, folder, config)
    assert third["outcome"] == "rewritten"
    assert "a.bin comes before" in third["why"]
    assert third["shards_read"] == 1
    rows = run(program, "plan", "--json", "-c", folder / "indexed.yaml")
    assert json.loads(rows.stdout)["documents"] == third["documents"]


def test_it_moves_with_its_folder(program, folder):
    place = folder / "here"
    place.mkdir()
    source = write_raw(place / "data", 3, 5000)
    source["shards"] = ["data/*.bin"]
    (place / "c.yaml").write_text(json.dumps(raw_config(source, index="m.rpi")))
    assert run(program, "index", "-q", "-c", place / "c.yaml").returncode == 0
    wanted = run(program, "plan", "--json", "-c", place / "c.yaml").stdout
    place.rename(folder / "there")
    found = run(program, "plan", "--json", "-c", "c.yaml", cwd=folder / "there")
    assert json.loads(found.stdout)["rows"] == json.loads(wanted)["rows"]
    engine = run(program, "index", "--json", "-c", "there/c.yaml", cwd=folder)
    assert json.loads(engine.stdout)["outcome"] == "unchanged"


# ---- differences ---------------------------------------------------------------------------------

DIFFERENT = {
    "shards": ({"shards": ["data/s*.bin"]}, "data/*.bin", "data/s*.bin"),
    "dtype": ({"dtype": "i16"}, "u16", "i16"),
    "eos": ({"eos": 7}, str(EOS), "7"),
    "mask": ({"mask": "none"}, "auto", "none"),
    "format": ({"format": "npy"}, "raw", "npy"),
    "column": ({"column": "ids"}, "``", "ids"),
}


@pytest.mark.parametrize("key", DIFFERENT)
def test_another_declaration_is_refused(program, folder, key):
    source = {**write_raw(folder / "data", 2, 3000), "shards": ["data/*.bin"]}
    config = raw_config(source, index="m.rpi")
    index(program, folder, config)
    changed, *texts = DIFFERENT[key]
    path = folder / "changed.yaml"
    config["sources"] = [{**config["sources"][0], **changed}]
    path.write_text(json.dumps(config))
    found = refused(program, "plan", "-c", path, texts=[key, *texts, "ringpack index -c"])
    assert found[0] == "RP_E_MISMATCH"


def test_a_manifest_that_is_not_there(program, folder):
    config = raw_config(write_raw(folder / "data", 1, 300), index=str(folder / "none.rpi"))
    (folder / "c.yaml").write_text(json.dumps(config))
    refused(program, "plan", "-c", folder / "c.yaml", texts=["none.rpi", "ringpack index -c"])


@pytest.mark.parametrize("io", ["mapped", "pread"])
@pytest.mark.parametrize("change", ["time", "size", "token"])
def test_a_changed_shard_is_refused_at_its_first_use(program, folder, change, io):
    source = write_raw(folder / "data", 1, 5000)
    config = raw_config(source, index=str(folder / "m.rpi"), io=io)
    index(program, folder, config)
    path = folder / "data" / "s00000.bin"
    stamp = path.stat()
    image = bytearray(path.read_bytes())
    if change == "size":
        image += b"\0\0"
    if change == "token":
        image[4444] ^= 1
    path.write_bytes(image)
    if change != "time":
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    said = stopped(program, folder, config)
    wanted = "from the index: expected hash" if change == "token" else "the corpus index: "
    for text in wanted, "s00000.bin", "ringpack index -c CONFIG":
        assert text in said, said
    assert ("`touch`" in said) == (change == "token")
    if change == "token":  # with its time and its size, `index -c` cannot know
        assert index(program, folder, config)["outcome"] == "unchanged"
        os.utime(path)
    done = index(program, folder, config)
    assert (done["outcome"], done["shards_read"]) == ("rewritten", 1)
    assert "s00000.bin has changed" in done["why"]


def test_a_changed_index_is_noticed(program, folder):
    """Only the .idx is written again, with other documents of the same tokens."""
    tokens = numpy.arange(3000) % 900
    write_megatron(folder / "m", numpy.split(tokens, 6), "u16")
    source = {"name": "all", "shards": [str(folder / "m.bin")], "format": "megatron"}
    config = {"seq_len": 64, "batch_size": 4, "num_epochs": 1, "sources": [source]}
    config["index"] = str(folder / "m.rpi")
    assert index(program, folder, config)["documents"] == 6
    assert index(program, folder, config)["outcome"] == "unchanged"
    stamp = (folder / "m.bin").stat()
    time.sleep(0.02)
    write_megatron(folder / "m", numpy.split(tokens, 10), "u16")
    os.utime(folder / "m.bin", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    said = stopped(program, folder, config)
    for text in "m.idx", "differs from the corpus index", "ringpack index -c CONFIG":
        assert text in said, said
    done = index(program, folder, config)
    assert (done["outcome"], done["documents"]) == ("rewritten", 10)
    assert "m.bin has another .idx now" in done["why"]
    serve_first_batch(program, folder, config)


def test_one_shard_in_two_sources(program, folder):
    """Each has the column that it names, whatever the other has left in PATH.work."""
    arrow = pytest.importorskip("pyarrow")
    columns = {"input_ids": [[1, 2, 3]] * 50, "chosen": [[7, 8, 9, 10, 11]] * 50}
    table = arrow.table({name: arrow.array(rows) for name, rows in columns.items()})
    with arrow.OSFile(str(folder / "both.arrow"), "wb") as file:
        with arrow.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    both = [{"name": "a", "shards": ["both.arrow"]}]
    both.append({"name": "b", "shards": ["both.arrow"], "column": "chosen"})
    for sources in both, both[::-1]:
        config = {"seq_len": 16, "batch_size": 2, "num_epochs": 1, "sources": sources}
        made = index(program, folder, config, "-o", folder / f"{sources[0]['name']}.rpi")
        assert made["tokens"] == 50 * (3 + 5)
        assert made["shards_read"] == 2


def test_a_changed_time_that_is_not_compared_is_found(broken, folder, monkeypatch):
    """The planted defect: the run continues with a shard that was written to."""
    source = write_raw(folder / "data", 1, 5000)
    config = raw_config(source, index=str(folder / "m.rpi"), io="pread")
    index(broken, folder, config)
    os.utime(folder / "data" / "s00000.bin")
    monkeypatch.setenv("RP_DEFECT", "forget_shard_stamp")
    serve_first_batch(broken, folder, config)


# ---- many shards --------------------------------------------------------------------------------


def test_more_shards_than_descriptors(program, folder):
    """2,000 shards with 64 descriptors, all of them used."""
    shards, links = (100_000, 1000) if LONG else (2000, 50)
    place = folder / "data"
    source = write_raw(place, shards // links, 40)
    for first in range(shards // links):
        for link in range(1, links):
            os.link(place / f"s{first:05}.bin", place / f"s{first:05}-{link}.bin")
    config = raw_config(source, index=str(folder / "m.rpi"), io="pread", run="many")
    done = index(program, folder, config)
    assert done["shards"] == shards
    engine = Engine(program, folder, config, prefix=["prlimit", "--nofile=64:64"])
    try:
        tokens = 0
        with Ranks(engine) as ranks:
            for (batch,) in ranks.turns():
                tokens += int(batch["rows"]["tokens"].sum())
                assert len(os.listdir(f"/proc/{engine.pid}/fd")) <= 64
        assert tokens == done["tokens"]
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()


def test_inspect_and_doctor_know_it(program, folder, corpus, index_file):
    done = run(program, "inspect", index_file)
    assert done.returncode == 0, done.stderr
    for text in "index", "source-1", "3 sources", "6 shards", "full":
        assert text in done.stdout, done.stdout
    assert run(program, "inspect", "--scan", index_file).returncode == 0
    found = run(program, "doctor", "-c", folder / "indexed.yaml")
    assert "every block that is read is compared" in found.stdout
    image = bytearray(index_file.read_bytes())
    image[4096 + 50] ^= 1
    Path(index_file).write_bytes(image)
    refused(program, "inspect", "--scan", index_file, texts=["damaged index"])
