# SPDX-License-Identifier: Apache-2.0
"""A corpus index of objects in stores: the same rows and the same fingerprint as without it, a
start without a request to the store, and an object that changed is refused by name."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading

import pytest
import ringpack
import test_olmo
import xxhash
from in_place_kit import (
    INPUTS,
    assert_resumes_with_and_without,
    serve_all,
    serve_first_batch,
)
from mask_kit import index as index_shard
from refusal_kit import assert_refusal, refused, run
from remote_kit import (  # with the fixtures `bucket`, `environment` and `store`
    bucket,
    environment,
    gone,
    other_etag,
    output_of,
    store,
)
from stream_kit import Corpus, Engine, Ranks, Stream, Written, wait_until
from test_corpus_index import EOS, LAYOUT, raw_config, stopped, write_raw

BLOCKS = {"shuffle": "block", "block_documents": 8, "window_blocks": 2}


def index(program, folder, config, *arguments):
    path = folder / "indexed.yaml"
    path.write_text(json.dumps({**config, **BLOCKS}))
    return json.loads(output_of(program, "index", "--json", "-c", path, *arguments))


def config_of(corpus, **changes):
    stream = Stream(corpus, {**INPUTS, **BLOCKS}, rows=0)
    return {**stream.config(), "batch_size": 5, **changes}


def at(corpus, base):
    """The same corpus, with its shards at URLs."""
    sources = [
        {**source, "shards": [f"{base}/{path.split('/')[-1]}" for path in source["shards"]]}
        for source in corpus.sources
    ]
    return Written(sources, corpus.documents)


@pytest.fixture
def corpus(folder):
    place = folder / "data"
    place.mkdir()
    return Corpus(place, LAYOUT, seed=5)


def served(program, folder, config):
    """A run to its end. Returns its engine's log."""
    engine = Engine(program, folder, config)
    try:
        with Ranks(engine) as ranks:
            for _ in ranks.turns():
                pass
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    return engine.log()


def test_every_row_is_the_same_with_it(program, folder, corpus, store):
    """Megatron, raw and npy; one has a sidecar in the store, and the others are read."""
    on_disk = serve_all(program, folder, corpus, inputs=BLOCKS)
    wanted = index(program, folder, config_of(corpus), "-o", folder / "disk.rpi")
    output_of(program, "index", "-q", corpus.paths[0])
    shutil.copytree(corpus.folder, store.folder, dirs_exist_ok=True)
    there = at(corpus, store.base)
    index_file = folder / "objects.rpi"
    done = index(program, folder, config_of(there, index=str(index_file)))
    assert done["fingerprint_full"] == wanted["fingerprint_full"]
    assert (done["shards"], done["shards_read"]) == (len(corpus.paths), len(corpus.paths) - 1)
    assert sorted(path.name for path in folder.glob("objects*")) == ["objects", "objects.rpi"]
    store.asked.clear()
    assert json.loads(output_of(program, "plan", "--json", "-c", folder / "indexed.yaml"))
    assert store.asked == [], "a start asks for nothing"
    found = serve_all(program, folder, there, inputs=BLOCKS, index=str(index_file))
    assert found == on_disk
    assert store.asked and all(path.endswith((".bin", ".npy")) for path in store.asked)
    again = index(program, folder, config_of(there, index=str(index_file)))
    assert again["outcome"] == "unchanged"
    said = output_of(program, "inspect", "--scan", index_file)
    assert f"{store.base}/" in said


def test_any_number_of_shards_costs_a_start_no_request(program, folder, store):
    """Before its first batch an engine requests ranges of few shards, of 4 as of 40."""
    asked = []
    for count in 4, 40:
        source = write_raw(store.folder, count, 3000)
        names = sorted(path.name for path in store.folder.glob("*.bin"))
        source["shards"] = [store.url(name) for name in names]
        config = raw_config(source, index=str(folder / f"{count}.rpi"), **BLOCKS)
        config |= {"run": f"of-{count}", "prefetch_bytes": "1m", "prefetch_factor": 2}
        config |= {"block_documents": 16, "window_blocks": 1}
        assert index(program, folder, config)["shards_read"] == count
        store.asked.clear()
        engine = Engine(program, folder, {**config, **BLOCKS})
        try:
            with Ranks(engine) as ranks:
                assert ranks.turn() is not None
                asked.append(list(store.asked))
        finally:
            engine.kill()
        assert all(path.endswith(".bin") for path in asked[-1])
    assert len(set(asked[1])) < 40, "not every shard is asked for"


def test_a_run_resumes_with_it_and_without_it(program, folder, corpus, bucket):
    """It has the fingerprint of the sidecars; by s3, with a pattern."""
    corpus.index(program)
    shutil.copytree(corpus.folder, bucket, dirs_exist_ok=True)
    there = at(corpus, "s3://b")
    index_file = str(folder / "m.rpi")
    assert index(program, folder, config_of(there, index=index_file))["shards_read"] == 0
    assert_resumes_with_and_without(program, folder, there, index_file, BLOCKS)


def raw_objects(store, folder, count, first=0, tokens=3000):
    source = write_raw(store.folder, count, tokens, first)
    names = sorted(path.name for path in store.folder.glob("*.bin"))
    source["shards"] = [store.url(name) for name in names]
    return raw_config(source, index=str(folder / "m.rpi"), **BLOCKS)


def test_new_objects_are_appended(program, folder, store):
    first = index(program, folder, raw_objects(store, folder, 3))
    before = (folder / "m.rpi").read_bytes()
    config = raw_objects(store, folder, 2, first=3, tokens=2000)
    store.asked.clear()
    second = index(program, folder, config)
    assert (first["outcome"], second["outcome"]) == ("new", "appended")
    assert (second["shards"], second["shards_read"], second["shards_added"]) == (5, 2, 2)
    assert (folder / "m.rpi").read_bytes()[256 : len(before)] == before[256:]
    whole = index(program, folder, config, "-o", folder / "whole.rpi")
    assert whole["fingerprint_full"] == second["fingerprint_full"]


@pytest.mark.parametrize("change", ["token", "size", "gone"])
def test_a_changed_object_is_refused_by_name(program, folder, store, change):
    config = raw_objects(store, folder, 2)
    index(program, folder, config)
    path = store.folder / "s00001.bin"
    content = bytearray(path.read_bytes())
    content[444] ^= 1
    path.write_bytes(content + (b"\0\0" if change == "size" else b""))
    store.fault = (lambda h: "s00001" in h.path and gone(h)) if change == "gone" else None
    said = stopped(program, folder, {**config, **BLOCKS})
    texts = {"token": "its ETag: expected", "size": "bytes: expected", "gone": "is gone"}
    assert_refusal(2, said, "s00001.bin", texts[change], "ringpack index -c CONFIG")
    store.fault = None
    done = index(program, folder, config)
    assert (done["outcome"], done["shards_read"]) == ("rewritten", 1)
    assert f"{store.base}/s00001.bin has changed" in done["why"]


def test_a_change_that_is_not_compared_is_found(broken, folder, store, monkeypatch):
    """The planted defect: another object of the same tokens is taken for the old one."""
    config = raw_objects(store, folder, 1)
    index(broken, folder, config)
    monkeypatch.setattr(store, "content_of", lambda path: (path.read_bytes(), '"another"'))
    assert "its ETag" in stopped(broken, folder, config)
    monkeypatch.setenv("RP_DEFECT", "ignore_changed_objects")
    serve_first_batch(broken, folder, config)


def test_what_lies_beside_an_object_counts(program, folder, corpus, store):
    """Another .idx of the same tokens is learnt by `index -c`."""
    shutil.copytree(corpus.folder, store.folder, dirs_exist_ok=True)
    there = at(corpus, store.base)
    config = config_of(there, index=str(folder / "m.rpi"))
    done = index(program, folder, config)
    [name] = [path.name for path in store.folder.glob("*.idx")][:1]
    content = (store.folder / name).read_bytes()
    serve = store.content_of
    store.content_of = lambda path: (
        (content, '"again"') if path.name == name else serve(path)
    )
    again = index(program, folder, config)
    assert again["outcome"] == "rewritten" and "has another .idx now" in again["why"]
    assert again["shards_read"] == 1 and again["fingerprint_full"] == done["fingerprint_full"]


def test_an_outdated_sidecar_does_not_count(program, folder, store):
    """If mask or tokens of an object were replaced, the sidecar that is still there is of the old
    content, also if the sidecar's own time is a new one."""
    masked = test_olmo.Masked(folder / "sft", test_olmo.make_documents(31, 12), dtype="u16")
    shutil.copytree(folder / "sft", store.folder, dirs_exist_ok=True)
    url, sidecars = store.url(masked.sources[0]["shards"][0]), folder / "sidecars"
    index_shard(program, "--dtype", "u16", "--format", "olmo", "--index-dir", sidecars, url)
    source = {"name": "olmo", "shards": [url], "format": "olmo", "dtype": "u16"}
    alone = raw_config(source, index=str(folder / "m.rpi"))
    beside = {**alone, "index": str(sidecars)}, "-o", folder / "m.rpi"
    done = index(program, folder, *beside)
    assert (done["outcome"], done["shards_read"]) == ("new", 0)
    [sidecar] = sidecars.iterdir()
    mask, tokens = store.folder / masked.mask.name, store.folder / url.split("/")[-1]
    for change, why in (
        (lambda: mask.write_bytes(bytes(1 - b for b in mask.read_bytes())), "another mask now"),
        (lambda: os.utime(sidecar, ns=(1, 1)), "another sidecar now"),
        (lambda: tokens.write_bytes(tokens.read_bytes()[::-1]), "has changed"),
    ):
        change()
        again = index(program, folder, *beside)
        assert why in again["why"] and again["shards_read"] == 1
        read = index(program, folder, alone, "-o", folder / f"{why}.rpi")
        assert read["shards_read"] == 1 and again["fingerprint_full"] == read["fingerprint_full"]
    index_shard(program, "--dtype", "u16", "--format", "olmo", "--index-dir", sidecars, url)
    again = index(program, folder, *beside)
    assert "another sidecar now" in again["why"] and again["shards_read"] == 0
    assert again["fingerprint_full"] == read["fingerprint_full"]


def test_a_sidecar_of_other_tokens_is_mended_as_the_message_says(program, folder, store):
    """No older index shows that the tokens were replaced after the sidecar was made."""
    config = raw_objects(store, folder, 1)
    [url], sidecars = config["sources"][0]["shards"], folder / "sidecars"
    remake = "-q", "--dtype", "u16", "--format", "raw", "--eos", EOS, "--index-dir", sidecars, url
    output_of(program, "index", *remake)
    path = store.folder / "s00000.bin"
    path.write_bytes(path.read_bytes()[::-1])
    config = {**config, **BLOCKS}
    beside = "--index", sidecars, "-o", folder / "m.rpi"
    assert index(program, folder, config, *beside)["shards_read"] == 0
    said = stopped(program, folder, config)
    assert_refusal(2, said, "the store returned other bytes", "--index-dir DIR`",
                   "index -c CONFIG --index DIR -o FILE")
    output_of(program, "index", *remake)
    again = index(program, folder, config, *beside)
    assert (again["outcome"], again["shards_read"]) == ("rewritten", 1)
    serve_first_batch(program, folder, config)


def test_an_object_without_identity_counts_as_changed(program, folder, store):
    config = raw_objects(store, folder, 2)
    serve = store.content_of
    store.content_of = lambda path: (
        (path.read_bytes(), "") if path.name == "s00001.bin" else serve(path)
    )
    first = index(program, folder, config)
    again = index(program, folder, config)
    assert (again["outcome"], again["shards_read"]) == ("rewritten", 1)
    assert f"{store.base}/s00001.bin may have changed" in again["why"]
    path = store.folder / "s00001.bin"
    path.write_bytes(path.read_bytes()[::-1])
    again = index(program, folder, config)
    assert again["shards_read"] == 1 and again["fingerprint_full"] != first["fingerprint_full"]


def test_an_object_that_changes_before_it_is_read_is_refused(program, folder, store):
    """Its hashes would stand in the index with the identity of the content before it."""
    config = raw_objects(store, folder, 1)
    path = folder / "indexed.yaml"
    path.write_text(json.dumps(config))
    store.fault = lambda handler: handler.last > 0 and other_etag(handler)  # not of the first query
    refused(program, "index", "-c", path, texts=["s00000.bin", "its ETag: expected", '"another"'])
    assert not (folder / "m.rpi").exists()


def test_a_query_is_sent_with_the_object_that_it_was_given_for(program, folder, store):
    config = raw_objects(store, folder, 2)
    urls = config["sources"][0]["shards"]
    urls[0] += "?sig=S3CR3T"
    index(program, folder, config)
    store.asked.clear()
    served(program, folder, config)
    assert set(store.asked) == {"/s00000.bin?sig=S3CR3T", "/s00001.bin"}


def test_objects_that_only_a_query_tells_apart_are_refused(program, folder, store):
    config = raw_objects(store, folder, 1)
    urls = config["sources"][0]["shards"]
    urls[:] = [urls[0] + "?f=S3CR3T", urls[0] + "?f=b"]
    path = folder / "indexed.yaml"
    path.write_text(json.dumps(config))
    _, said = refused(program, "index", "-c", path, texts=["s00000.bin", "two queries"])
    assert "S3CR3T" not in said and not (folder / "m.rpi").exists()
    urls.pop()
    index(program, folder, config)


def test_queries_are_those_of_the_config(program, folder, store):
    """An index holds no secret, and serves when there is another one."""
    config = raw_objects(store, folder, 2)
    [source] = config["sources"]
    urls = source["shards"]
    source["shards"] = [f"{url}?sig=S3CR3T" for url in urls]
    index(program, folder, config)
    assert all("sig=S3CR3T" in path for path in store.asked)
    assert b"S3CR3T" not in (folder / "m.rpi").read_bytes()
    store.asked.clear()
    source["shards"] = [f"{url}?sig=N3W" for url in urls]
    log = served(program, folder, config)
    assert store.asked and all(path.endswith(".bin?sig=N3W") for path in store.asked)
    refused(program, "index", "-c", folder / "none.yaml", texts=["none.yaml"])
    assert "N3W" not in log


def test_it_goes_on_after_a_kill(program, folder, store):
    """Bytes that were read are not fetched again, and no file of the killed process is left."""
    config = raw_objects(store, folder, 12, tokens=200_000)
    path = folder / "indexed.yaml"
    path.write_text(json.dumps(config))
    work = folder / "m.rpi.work"

    released = threading.Event()

    def hold(handler):
        if "s00007" in handler.path and handler.first > 0:
            released.wait()
        return False

    store.fault = hold
    child = subprocess.Popen([program, "index", "-q", "-c", path, "--workers", "1"])
    wait_until(lambda: work.exists() and len(list(work.glob("*.rpi"))) == 7, "a finished shard")
    wait_until(lambda: list(work.glob("fetched-*")), "an object that is fetched")
    child.send_signal(signal.SIGKILL)
    child.wait()
    store.fault = None
    released.set()
    assert list(work.glob("fetched-*"))
    done = index(program, folder, config)
    assert done["shards_read"] == 5
    assert not work.exists()
    other = index(program, folder, config, "-o", folder / "other.rpi")
    assert (other["shards_read"], other["root"]) == (12, done["root"])
    assert run(program, "inspect", "--scan", folder / "m.rpi").returncode == 0


# ---- an index that is an object itself -----------------------------------------------------------


def upload(program, folder, config, to):
    """The index of the objects of a config, made here and copied to the store."""
    made = folder / "made.rpi"
    index(program, folder, config, "-o", made)
    shutil.copy(made, to / "m.rpi")
    return made.read_bytes()


def planned(program, folder, config):
    path = folder / "planned.yaml"
    path.write_text(json.dumps(config))
    return json.loads(output_of(program, "plan", "--json", "-c", path))["tokens"]


def test_a_manifest_of_a_store_is_fetched_once(program, folder, store, tmp_path):
    """With a copy of it, a start requests its ETag, and no shard."""
    config = raw_objects(store, folder, 40, tokens=20_000)
    upload(program, folder, config, store.folder)
    wanted = planned(program, folder, {**config, "index": str(folder / "made.rpi")})
    config["index"] = store.url("m.rpi")
    assert (store.folder / "m.rpi").stat().st_size > 2 * 65536
    for count in 2, 1:  # a query with the first 64 KiB, and the rest
        store.asked.clear()
        assert planned(program, folder, config) == wanted
        assert store.asked == ["/m.rpi"] * count
    size = (store.folder / "m.rpi").stat().st_size
    [kept] = [path for path in (tmp_path / "cache").rglob("*") if path.stat().st_size == size]
    image = bytearray(kept.read_bytes())
    image[128 + 9] ^= 1
    kept.write_bytes(image)
    assert planned(program, folder, config) == wanted, "a damaged copy is fetched again"
    said = output_of(program, "inspect", "--scan", store.url("m.rpi") + "?sig=S3CR3T")
    assert store.url("m.rpi") in said and "S3CR3T" not in said


def test_rows_by_a_manifest_in_a_bucket(program, folder, corpus, bucket):
    on_disk = serve_all(program, folder, corpus, inputs=BLOCKS)
    shutil.copytree(corpus.folder, bucket, dirs_exist_ok=True)
    there = at(corpus, "s3://b")
    upload(program, folder, config_of(there), bucket)
    found = serve_all(program, folder, there, inputs=BLOCKS, index="s3://b/m.rpi")
    assert found == on_disk


def test_the_index_of_a_corpus_is_no_shard_of_a_pattern(program, folder, corpus, bucket):
    """As on a disk; a sidecar whose token object is gone still counts, so that it is missed."""
    corpus.index(program)
    shutil.copytree(corpus.folder, bucket, dirs_exist_ok=True)
    names = sorted(path.name for path in bucket.iterdir() if path.suffix in (".bin", ".npy"))
    upload(program, folder, config_of(at(corpus, "s3://b")), bucket)
    for pattern in "s3://b/*", "s3://b/*.rpi":
        said = output_of(program, "inspect", pattern)
        assert [line for line in said.split("\n") if line.startswith("s3://")] == [
            f"s3://b/{name}" for name in names], pattern
    (bucket / names[0]).unlink()
    refused(program, "inspect", "s3://b/*", texts=[f"s3://b/{names[0]}: not found"])


def test_refused_manifests_of_stores(program, folder, store):
    config = raw_objects(store, folder, 2)
    image = bytearray(upload(program, folder, config, store.folder))
    path = folder / "planned.yaml"

    def refuse(*texts, **changes):
        index_file = store.url("m.rpi") + "?sig=S"
        path.write_text(json.dumps({**config, "index": index_file, **changes}))
        said = refused(program, "plan", "-c", path, texts=[store.url("m.rpi"), *texts])
        assert "sig=" not in str(said)

    fewer = {**config["sources"][0], "shards": [store.url("s00000.bin")]}
    refuse("shards", "s00001.bin", sources=[fewer])
    image[-1000] ^= 1  # a page that a plan may not read
    (store.folder / "m.rpi").write_bytes(image)
    refuse("damaged index", "ringpack index -c")
    image = image[: len(image) // 2]
    (store.folder / "m.rpi").write_bytes(image)
    refuse("damaged index")
    (store.folder / "m.rpi").write_bytes(b"nonsense" * 1000)
    refuse("damaged index: magic")
    (store.folder / "m.rpi").unlink()
    refuse("the index", "not found")
    here = raw_config(write_raw(folder / "here", 1, 300))
    upload(program, folder, here, store.folder)
    refuse("expected only objects", "-o FILE", sources=here["sources"])
    path.write_text(json.dumps({**config, "index": "s3://b/m.rpi"}))
    refused(program, "index", "-c", path, texts=["s3://b/m.rpi", "not write to stores", "-o FILE"])


def test_a_manifest_of_a_store_names_no_file_of_this_machine(program, folder, store, tmp_path):
    """Not even one whose head says that all of its shards are objects."""
    config = raw_config(write_raw(tmp_path / "here", 1, 3000))
    image = bytearray(upload(program, folder, config, store.folder))
    slot = 128  # generation 1's
    at, size = (int.from_bytes(image[slot + n : slot + n + 8], "little") for n in (8, 16))
    objects = at + 128 + 128 + 56
    assert image[objects : objects + 4] == bytes(4)
    image[objects] = 1

    def hash_of(first, end):
        digest = xxhash.xxh3_128_intdigest(image[first:end])
        return digest.to_bytes(16, "little")

    image[slot + 32 : slot + 48] = hash_of(at, at + size)
    image[slot + 48 : slot + 64] = hash_of(slot, slot + 48)
    (store.folder / "m.rpi").write_bytes(image)
    config |= {"index": store.url("m.rpi"), **BLOCKS}
    assert "the record is not of an object" in stopped(program, folder, config)


def test_files_and_objects_in_one_manifest(program, folder, corpus, store, tmp_path):
    """With a cache of blocks, blocks that a run has read are not requested again."""
    on_disk = serve_all(program, folder, corpus, inputs=BLOCKS)
    shutil.copytree(corpus.folder, store.folder, dirs_exist_ok=True)
    there = at(corpus, store.base)
    for source, files in zip(there.sources, corpus.sources, strict=True):
        source["shards"][0] = files["shards"][0]
    index_file = str(folder / "m.rpi")
    index(program, folder, config_of(there, index=index_file))
    machine = {"index": index_file, "cache_bytes": "64m", "cache_dir": str(tmp_path / "blocks")}
    for _ in range(2):
        store.asked.clear()
        assert serve_all(program, folder, there, inputs=BLOCKS, **machine) == on_disk
    assert store.asked == []
