# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and SIGTERM while a store is slow to answer: the program ends with a message, and leaves
no half file. No wait here ends by itself: the program has patience for an hour."""

import json
import shutil
import signal
import subprocess
import threading

import numpy
import pytest
from column_kit import column
from remote_kit import (  # with the fixtures `environment` and `store`
    QUICK,
    environment,
    make_tape,
    output_of,
    silence,
    store,
    to_store,
)
from stream_kit import PATIENCE
from test_remote_hub import hub  # and that fixture
from test_remote_hub import REPOSITORY


class Slow:
    """A store that begins an answer to what `is_meant`, and never ends it."""

    def __init__(self, store, is_meant):
        self.is_met, self.serve, self.is_meant = threading.Event(), store.serve, is_meant
        store.serve = self.answer

    def answer(self, handler):
        if not self.is_meant(handler):
            return self.serve(handler)
        self.is_met.set()
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Le")
        handler.wfile.flush()
        threading.Event().wait(PATIENCE)
        return True


def listing(folder):
    return sorted(str(path) for path in folder.rglob("*"))


def assert_stops(program, folder, slow, *arguments, number=signal.SIGINT):
    """Returns the program's output."""
    before = listing(folder)
    command = [program, *map(str, arguments)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert slow.is_met.wait(PATIENCE)
    child.send_signal(number)
    _, said = child.communicate(timeout=PATIENCE)
    assert child.returncode == 2, said
    assert said.count("error RP_E_STOPPED") == 1 and "interrupted" in said, said
    assert listing(folder) == before
    return said


@pytest.fixture(autouse=True)
def patience(environment, monkeypatch):
    monkeypatch.setenv("RINGPACK_OBJECT_PATIENCE", "5,50,3600,3600")


def is_rest(handler):
    """The rest of an object, after the bytes of the first query."""
    return handler.path.endswith(".bin") and "bytes=0-" not in handler.headers.get("Range", "")


@pytest.fixture
def tape(program, folder, store, tmp_path):
    tape = to_store(make_tape(program, folder, tokens=200_000, shuffle="block"), store)
    (tmp_path / "cache").mkdir()
    return tape


def config_of(tape, folder, **changes):
    path = folder / "c.yaml"
    path.write_text(json.dumps({**tape.config, **changes}))
    return path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_an_object_is_fetched(program, folder, store, tape, tmp_path, number):
    [url] = tape.config["sources"]
    (folder / "lines").mkdir()
    (store.folder / "x.jsonl").write_text('{"text": "word"}\n' * 20_000)
    (folder / "place").mkdir()
    config = config_of(tape, folder, index="m.rpi")
    options = "--index-dir", folder / "place"

    def rest():
        return Slow(store, is_rest)

    assert_stops(program, folder, rest(), "index", *options, url, url, number=number)
    assert_stops(program, folder, rest(), "index", "-q", "-c", config, number=number)
    assert_stops(program, folder, rest(), "inspect", "--scan", *options, url, number=number)
    lines = Slow(store, lambda h: "jsonl" in h.path and "bytes=0-" not in h.headers["Range"])
    prefix = folder / "place" / "out"
    command = "convert", "--tokenizer", "bytes", "-o", prefix, store.url("x.jsonl")
    assert_stops(program, folder, lines, *command, number=number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_objects_are_looked_at(program, folder, store, tape, number):
    config = config_of(tape, folder)
    [url] = tape.config["sources"]
    for command in ["serve", "-c", config], ["inspect", url]:
        slow = Slow(store, lambda handler: handler.path.endswith(".idx"))
        assert_stops(program, folder, slow, *command, number=number)
    config = config_of(tape, folder, index=store.url("m.rpi"))
    slow = Slow(store, lambda handler: handler.path.endswith("/m.rpi"))
    assert_stops(program, folder, slow, "serve", "-c", config, number=number)


def test_while_hashes_of_columns_are_fetched(program, folder, store, tape, tmp_path):
    numpy.save(tmp_path / "weight.npy", numpy.ones(200_000, "<f4"))
    path = str(folder / "tape.bin")
    column(program, tmp_path, [path], "weight", tmp_path / "weight.npy")
    shutil.move(folder / "tape.weight.col", store.folder)
    config = config_of(tape, folder, columns="weight", cache_dir=str(tmp_path / "cached"))
    slow = Slow(store, lambda h: h.path.endswith(".col") and "bytes=0-" not in h.headers["Range"])
    assert_stops(program, folder, slow, "serve", "-c", config)
    assert not list((tmp_path / "cached").glob("*.hashes*"))


def test_while_a_folder_is_listed(program, folder, store, hub, tape):
    shutil.copytree(folder, hub.folder() / "f", ignore=lambda *_: ["objects"])
    url = f"hf://{REPOSITORY}/f/"
    config = config_of(tape, folder, sources=[url], index="m.rpi")
    (folder / "other.yaml").write_text(json.dumps({**tape.config, "sources": [url]}))
    for command in (
        ["inspect", url],
        ["index", "--index-dir", folder, url],
        ["index", "-c", config],
        ["convert", "-o", folder / "out", url],
        ["serve", "-c", folder / "other.yaml"],
    ):
        slow = Slow(store, lambda handler: handler.path.startswith("/api/"))
        assert_stops(program, folder, slow, *command)
