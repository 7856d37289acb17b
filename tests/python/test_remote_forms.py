# SPDX-License-Identifier: Apache-2.0
"""Folders of every form in stores: their objects and the order of these, as on a disk; sidecars in
the store, or made on this machine by `ringpack index`; equal to the copies on a disk. By s3 from a
server that checks signatures, and by http, whose servers have no lists."""

import json
import re
import shutil
from pathlib import Path

import pytest
import test_datatrove
import test_litdata
import test_mds
import test_olmo
from in_place_kit import serve_all
from refusal_kit import refused
from remote_kit import (  # with the fixtures `bucket`, `environment` and `store`
    bucket,
    environment,
    output_of,
    store,
)
from stream_kit import Written

BLOCKS = {"shuffle": "block", "block_documents": 16, "window_blocks": 2}


def mds(folder):
    [path], documents, _ = test_mds.the_order_of_the_index(folder / "mds")
    return path, documents, {}


def mds_bytes(folder):
    [path], documents, declared = test_mds.of_bytes("int64")(folder / "mds-bytes")
    return path, documents, declared


def litdata(folder):
    """Of more than ten chunks, whose names sort in another order."""
    documents = test_litdata.make_documents(1, 44)
    return test_litdata.write_dataset(folder / "litdata", documents), documents, {}


def datatrove(folder):
    parts = [test_datatrove.make_documents(3 + i, 20, 60000) for i in range(3)]
    (folder / "datatrove").mkdir()
    for i, part in enumerate(parts):
        test_datatrove.write(folder / "datatrove", f"0000{i}_unshuffled.ds", part, 2)
    return folder / "datatrove", sum(parts, []), {}


def olmo(folder):
    parts = [test_olmo.make_documents(5 + part) for part in range(3)]
    for part, documents in enumerate(parts):
        test_olmo.write(folder / "olmo" / f"part-0-0000{part}.npy", documents)
    return folder / "olmo", sum(parts, []), {"dtype": "u16"}


def arrow(folder):
    datasets = pytest.importorskip("datasets")
    documents = test_mds.make_documents(12, 120)
    rows = {"input_ids": [d.tolist() for d in documents]}
    path = str(folder / "arrow")
    datasets.Dataset.from_dict(rows).save_to_disk(path, num_shards=12)
    return folder / "arrow", documents, {}


FORMS = {
    "mds": mds,
    "mds-bytes": mds_bytes,
    "litdata": litdata,
    "datatrove": datatrove,
    "olmo": olmo,
    "arrow": arrow,
}
BY_INDEX = ["mds", "litdata", "arrow"]  # whose files name the others


@pytest.fixture
def corpora(folder):
    """Every form: its folder on the disk, its documents, its declarations."""
    return {name: make(folder) for name, make in FORMS.items()}


def corpus_of(corpora, names, place):
    """A corpus of some forms; place(name) is the folder of one."""
    sources = [
        {"name": name, "weight": 1, "shards": [str(place(name))], **corpora[name][2]}
        for name in names
    ]
    return Written(sources, [corpora[name][1] for name in names])


def index(program, corpora, name, path, *options):
    declared = [f"--{key}={value}" for key, value in corpora[name][2].items()]
    return output_of(program, "index", "-q", *declared, *options, path)


def upload(corpora, name, to):
    shutil.copytree(corpora[name][0], to / name)


def shards_of(program, corpora, name, path, *options):
    declared = [f"--{key}={value}" for key, value in corpora[name][2].items()]
    asked = json.loads(output_of(program, "inspect", "--json", *declared, *options, path))
    return [(entry["path"], entry["format"], entry["documents"]) for entry in asked]


def digest(program, folder, corpus, **machine):
    return serve_all(program, folder, corpus, inputs=BLOCKS, prefetch_bytes="4m", **machine)


def test_folders_of_a_bucket_are_those_of_a_disk(program, folder, corpora, bucket):
    """With the sidecars that were made on the disk and copied; `inspect` names each form."""
    on_disk = digest(program, folder, corpus_of(corpora, FORMS, lambda name: corpora[name][0]))
    for name, (path, *_) in corpora.items():
        for shard, _, _ in shards_of(program, corpora, name, path):
            index(program, corpora, name, shard)
        upload(corpora, name, bucket)
        here = shards_of(program, corpora, name, path)
        there = shards_of(program, corpora, name, f"s3://b/{name}/")
        assert there == [(s.replace(str(path), f"s3://b/{name}"), f, d) for s, f, d in here]
        assert {form for _, form, _ in there} == {name.split("-")[0]}
    remote = corpus_of(corpora, FORMS, lambda name: f"s3://b/{name}/")
    assert digest(program, folder, remote) == on_disk, "other tokens"


def test_an_index_of_this_machine_serves(program, folder, corpora, bucket):
    """`ringpack index` of a URL does not write to the store, and leaves only sidecars here."""
    on_disk = digest(program, folder, corpus_of(corpora, FORMS, lambda name: corpora[name][0]))
    sidecars = folder / "sidecars"
    for name in FORMS:
        upload(corpora, name, bucket)
    before = sorted(bucket.rglob("*"))
    for name in FORMS:
        url = f"s3://b/{name}/"
        refused_once(program, corpora, name, url)
        index(program, corpora, name, url, "--index-dir", sidecars)
    assert sorted(bucket.rglob("*")) == before
    assert {path.suffix for path in sidecars.iterdir()} == {".rpi"}
    remote = corpus_of(corpora, FORMS, lambda name: f"s3://b/{name}/")
    assert digest(program, folder, remote, index=str(sidecars)) == on_disk, "other tokens"


def refused_once(program, corpora, name, url):
    """One shard after the other would be."""
    shard = {"mds": "0/shard.00000.mds", "mds-bytes": "shard.00000.mds", "litdata": "chunk-0-0.bin"}
    shard |= {"datatrove": "00000_unshuffled.ds", "olmo": "part-0-00000.npy"}
    path = url + shard.get(name, "data-00000-of-00012.arrow")
    refused(program, "inspect", path, texts=[path, "no sidecar", "ringpack index --index-dir"])
    texts = [path, "--index-dir", "ringpack does not write to stores"]
    refused(program, "index", path, texts=texts)


def listing(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


def test_tokens_of_an_object_are_scanned(program, folder, corpora, bucket, monkeypatch):
    """Fetched for that, and removed again."""
    (folder / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    path, documents, _ = corpora["litdata"]
    index(program, corpora, "litdata", path)
    upload(corpora, "litdata", bucket)
    url = "s3://b/litdata/chunk-0-0.bin"
    [said] = json.loads(output_of(program, "inspect", "--json", "--scan", url))
    assert said["token_max"] == max(int(d.max()) for d in documents[:4] if len(d))
    assert listing(folder / "tmp") == []


def test_a_corpus_in_a_store_is_measured(program, folder, corpora, bucket):
    path = corpora["mds"][0]
    index(program, corpora, "mds", path)
    upload(corpora, "mds", bucket)
    config = folder / "bench.yaml"
    sources = [{"name": "mds", "path": "s3://b/mds/"}]
    keys = {"sources": sources, "seq_len": 48, "batch_size": 4, **BLOCKS}
    config.write_text(json.dumps(keys))
    said = json.loads(output_of(program, "bench", "--json", "--seconds", "0.1", "-c", config))
    assert said["store"]["tokens"] > 0 and said["hot"] is None and said["cold"] is None
    assert {"memcpy", "planning"} == said["limits"].keys()
    refused(program, "bench", "--hot", "-c", config, texts=["s3://b/mds", "page cache"])


# ---- by http ------------------------------------------------------------------------------------


def test_folders_of_a_server_without_lists(program, folder, corpora, store):
    """An index.json or state.json names the files. The query goes with each, and is not shown."""
    on_disk = digest(program, folder, corpus_of(corpora, BY_INDEX, lambda name: corpora[name][0]))
    sidecars = folder / "sidecars"
    for name in BY_INDEX:
        upload(corpora, name, store.folder)
        url = f"{store.base}/{name}/?sig=S3CR3T"
        said = index(program, corpora, name, url, "--index-dir", sidecars)
        assert f"{store.base}/{name}/" in said and "S3CR3T" not in said
    assert all("sig=S3CR3T" in path for path in store.asked)
    remote = corpus_of(corpora, BY_INDEX, lambda name: f"{store.base}/{name}/?sig=S3CR3T")
    assert digest(program, folder, remote, index=str(sidecars)) == on_disk, "other tokens"
    assert "S3CR3T" not in "".join(path.read_text() for path in folder.glob("*.log"))


def test_refused_folders(program, folder, corpora, store):
    for name in "datatrove", "mds", "arrow":
        upload(corpora, name, store.folder)

    def refuse(path, *texts):
        said = str(refused(program, "inspect", f"{store.base}/{path}?sig=S3CR3T", texts=texts))
        assert "S3CR3T" not in said

    refuse("datatrove/", "index.json or a state.json", "have no lists of objects")
    (store.folder / "mds" / "index.json").write_text("{}{")
    refuse("mds/", f"{store.base}/mds/index.json: expected JSON")
    (store.folder / "arrow" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    refuse("arrow/", "DatasetDict", f"{store.base}/arrow/train/")
    index_json = {"shards": [{"format": "mds", "raw_data": {"basename": "../x"}}]}
    (store.folder / "mds" / "index.json").write_text(json.dumps(index_json))
    refuse("mds/", "entry 0 of `shards`", "in the folder")
    zipped = {"basename": "x.zstd"}
    compressed = {"format": "mds", "raw_data": {"basename": "x"}, "zip_data": zipped}
    (store.folder / "mds" / "index.json").write_text(json.dumps({"shards": [compressed]}))
    refuse("mds/", "compressed", "ringpack convert")


def test_an_index_that_is_cut_off(program, folder, corpora, store):
    """A store that ends connections in the middle leaves no file behind."""
    upload(corpora, "mds-bytes", store.folder)
    serve = store.serve

    def vanish(handler):
        if handler.path.endswith("shard.00001.mds"):
            handler.send_error(404)
        else:
            serve(handler)

    store.serve = vanish
    sidecars = folder / "sidecars"
    url = f"{store.base}/mds-bytes/"
    options = ["--dtype=i64", "--index-dir", sidecars, url]
    said = str(refused(program, "index", "-q", *options, texts=["shard.00001.mds", "not found"]))
    assert re.search(r"shard\.00001\.mds", said)
    assert {path.suffix for path in sidecars.iterdir()} == {".rpi"}
    assert not any("shard.00001" in path.name for path in Path(sidecars).iterdir())
