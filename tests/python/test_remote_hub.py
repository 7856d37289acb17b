# SPDX-License-Identifier: Apache-2.0
"""Folders and patterns of the Hugging Face Hub: the tree of a repository, page by page, by its API,
and files by their /resolve/ URLs; with the token of the environment. By a server that plays the
Hub."""

import itertools
import json
import shutil
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import pytest
from in_place_kit import serve_all
from refusal_kit import refused
from remote_kit import (  # with the fixtures `environment` and `store`
    answer,
    environment,
    output_of,
    store,
)
from stream_kit import Corpus, Written

REPOSITORY = "datasets/o/n"
BLOCKS = {"shuffle": "block", "block_documents": 8, "window_blocks": 2}


class Hub:
    """Answers as huggingface.co does (huggingface_hub: list_repo_tree): an array of entries with
    type, oid, size and path, some at a time, and the next page in a Link header."""

    def __init__(self, store, monkeypatch, page=3):
        self.store, self.page, self.pages, self.token = store, page, 0, "hf_S3CR3T"
        self.serve, store.serve = store.serve, self.answer
        self.next_are = iter(())  # other Links than the true ones
        self.again = 0  # number of entries of a page that the page before also has
        monkeypatch.setenv("HF_ENDPOINT", store.base)
        monkeypatch.setenv("HF_TOKEN", self.token)

    def folder(self, revision="main"):
        path = self.store.folder / REPOSITORY / "resolve" / revision
        path.mkdir(parents=True, exist_ok=True)
        return path

    def answer(self, handler):
        url = urlsplit(handler.path)
        if handler.headers.get("Authorization") != f"Bearer {self.token}":
            return answer(handler, 401, b'{"error":"Repository not found"}')
        if not url.path.startswith("/api/"):
            handler.path = unquote(handler.path)
            return self.serve(handler)
        begin = f"/api/{REPOSITORY}/tree/"
        if not url.path.startswith(begin):
            return answer(handler, 404, b'{"error":"Repository not found"}')
        revision, _, inner = url.path[len(begin) :].partition("/")
        root = self.folder(unquote(revision))
        return self.list(handler, root, root / unquote(inner), parse_qs(url.query))

    def list(self, handler, root, folder, query):
        if not folder.is_dir():
            return answer(handler, 404, b'{"error":"not found on revision main"}')
        found = folder.rglob("*") if query["recursive"] == ["true"] else folder.iterdir()
        entries = [
            {
                "type": "directory" if path.is_dir() else "file",
                "oid": "0" * 40,
                "size": 0 if path.is_dir() else path.stat().st_size,
                "path": str(path.relative_to(root)),
            }
            for path in sorted(found)
        ]
        first = int(query.get("cursor", ["0"])[0])
        headers, end = {"Content-Type": "application/json; charset=utf-8"}, first + self.page
        if end < len(entries):
            following = urlencode({**{k: v[0] for k, v in query.items()}, "cursor": end})
            following = next(self.next_are, following)
            path = handler.path.split("?")[0]
            headers["Link"] = f'<{self.store.base}{path}?{following}>; rel="next"'
        self.pages += 1
        entries = entries[max(0, first - self.again) : end]
        return answer(handler, 200, json.dumps(entries).encode(), headers)


@pytest.fixture
def hub(store, monkeypatch):
    return Hub(store, monkeypatch)


@pytest.fixture
def corpus(folder):
    (folder / "data").mkdir()
    made = Corpus(folder / "data", [("megatron", "u16", 5, [20, 9])], seed=5)
    return made


def paths_of(program, *arguments):
    said = json.loads(output_of(program, "inspect", "--json", *arguments))
    return [entry["path"] for entry in said]


def test_a_folder_is_listed_page_by_page(program, folder, corpus, hub):
    """Its rows equal the disk's, by both forms of URLs, by a pattern, and by a corpus index."""
    on_disk = serve_all(program, folder, corpus, inputs=BLOCKS)
    shutil.copytree(corpus.folder, hub.folder() / "da ta" / "train")
    (hub.folder() / "da ta" / "deeper" / "x").mkdir(parents=True)
    (hub.folder() / "README.md").write_text("# no shard")
    names = sorted(Path(path).name for path in corpus.paths)
    url = f"hf://{REPOSITORY}/da ta/train/"
    assert paths_of(program, url) == [url + name for name in names]
    assert hub.pages == 2 * len(names) // hub.page + 1
    hub.again = 1
    assert paths_of(program, url) == [url + name for name in names], "a shard is there twice"
    for pattern in url + "*.bin", f"hf://{REPOSITORY}@main/*/t????/*.idx":
        there = [path.split("/")[-1] for path in paths_of(program, pattern)]
        assert there == names
    web = f"{hub.store.base}/{REPOSITORY}/resolve/main/da%20ta/"
    assert paths_of(program, web + "train/") == [f"{web}train/{name}" for name in names]
    assert paths_of(program, web + "*/*.bin") == [f"{web}train/{name}" for name in names]
    sources = [{**source, "shards": [url]} for source in corpus.sources]
    there = Written(sources, corpus.documents)
    assert serve_all(program, folder, there, inputs=BLOCKS) == on_disk
    config = folder / "c.yaml"
    keys = {"sources": sources, "seq_len": 64, "batch_size": 5, **BLOCKS}
    config.write_text(json.dumps({**keys, "index": str(folder / "m.rpi")}))
    output_of(program, "index", "-q", "-c", config)
    found = serve_all(program, folder, there, inputs=BLOCKS, index=str(folder / "m.rpi"))
    assert found == on_disk


def test_revisions(program, corpus, hub):
    """A branch, and those whose names have slashes."""
    for number, revision in enumerate(["v1", "refs/convert/parquet", "refs/pr/7"]):
        shutil.copytree(corpus.folder, hub.folder(revision) / f"f{number}")
        url = f"hf://{REPOSITORY}@{revision}/f{number}/"
        assert len(paths_of(program, url)) == len(corpus.paths)


def test_refused_lists(program, corpus, hub, monkeypatch):
    def refuse(url, *texts):
        said = str(refused(program, "inspect", url, texts=[url, *texts]))
        assert "S3CR3T" not in said

    shutil.copytree(corpus.folder, hub.folder() / "f")
    url = f"hf://{REPOSITORY}/f/"
    refuse(f"hf://{REPOSITORY}/none/", "not found")
    refuse("hf://datasets/o/other/f/", "not found")
    refused(program, "inspect", f"hf://{REPOSITORY}/f/x*", texts=["no object matches"])
    refused(program, "inspect", f"hf://{REPOSITORY}", texts=["hf://datasets/OWNER/NAME"])
    hub.page, query = 1, "expand=false&recursive=false&cursor="
    for cursors in "1", "12", "120":
        hub.next_are = itertools.cycle([query + cursor for cursor in cursors])
        refuse(url, "the same again")
    hub.next_are = itertools.repeat(query + 2700 * "1")
    refuse(url, "the next page", "2047 bytes")
    hub.next_are = iter(())
    listing, hub.list = hub.list, lambda handler, *_: answer(handler, 200, b"<html>no JSON")
    refuse(url, "expected a list of files", "HF_ENDPOINT")
    hub.list = lambda handler, *_: answer(handler, 200, b'{"error": "no array"}')
    refuse(url, "expected a list of files")
    hostile = [{"type": "file", "path": p} for p in ["../x.idx", "/etc/x.idx", "f/../../x.idx"]]
    hostile += [{"type": "file", "path": 7}, {"path": "f/x.idx"}, 3, None]
    hub.list = lambda handler, *_: answer(handler, 200, json.dumps(hostile).encode())
    refused(program, "inspect", url, texts=[f"hf://{REPOSITORY}/f"])
    hub.list = listing
    monkeypatch.setenv("HF_TOKEN", "hf_0LD")
    said = str(refused(program, "inspect", url, texts=[url, "status 401", "HF_TOKEN"]))
    assert "0LD" not in said
