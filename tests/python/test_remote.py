# SPDX-License-Identifier: Apache-2.0
"""Corpora in object stores: the same rows as from a disk, whatever a server does; and a server that
gives another content, or none, ends the stream by name after the last good row."""

import os
import shutil
import time
from pathlib import Path

import pytest
import ringpack
from failure_kit import WITHOUT_IO_URING, WITHOUT_MORE_RINGS, assert_ended_by, finish
from refusal_kit import refused, refused_serve, run
from remote_kit import (  # with the fixtures `environment` and `store`
    QUICK,
    after,
    answer_range,
    busy,
    circle,
    copy_tape,
    environment,
    gone,
    half_body,
    make_tape,
    other_etag,
    other_size,
    output_of,
    refuse,
    reset,
    silence,
    sometimes,
    store,
    to_store,
    whole_object,
    wrong_range,
)
from stream_kit import IO_URING_WORKS, Engine, Ranks, wait_until

needs_io_uring = pytest.mark.skipif(not IO_URING_WORKS, reason="needs io_uring, to lose it")


@pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])
def test_rows_of_a_store_are_those_of_a_disk(program, folder, store, indexed):
    tape = to_store(make_tape(program, folder, indexed), store)
    finish(program, folder, tape)


def digest_of(program, folder, config, **changes):
    """The digest of a whole stream of blocks, and the engine's identity of its corpus."""
    config = {**config, "shuffle": "block", "block_documents": 8, "window_blocks": 2, **changes}
    engine = Engine(program, folder, {**config, "prefetch_bytes": "4m"})
    try:
        with Ranks(engine) as ranks:
            digest = sum(batch.digest() for turn in ranks.turns() for batch in turn) % 2**128
            token = ranks.tokens()[0]
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    return digest, token[16:48]


def test_an_indexed_corpus_has_one_identity_and_one_digest(program, folder, store):
    """From a disk and from a store, read in blocks. The token has the fingerprints."""
    tape = make_tape(program, folder, indexed=True)
    local = digest_of(program, folder, tape.config)
    assert digest_of(program, folder, to_store(tape, store).config) == local, "other tokens"
    tokens = sum(path.endswith(".bin") for path in store.asked)
    assert tokens < 60, f"{tokens} requests for blocks"


def test_a_block_of_two_shards_is_read_in_two_requests(program, folder, store):
    """Not in a request for each of its documents."""
    tape = make_tape(program, folder, indexed=True)  # of 60 documents
    copy_tape(tape, store.folder)
    for number in range(4):
        for suffix in ".bin", ".idx", ".bin.rpi":
            shutil.copy(store.folder / f"tape{suffix}", store.folder / f"{number}{suffix}")
    urls = [store.url(f"{number}.bin") for number in range(4)]
    config = {**tape.config, "sources": [{"name": "all", "shards": urls}]}
    local = [str(store.folder / Path(url).name) for url in urls]
    on_disk = {**config, "sources": [{"name": "all", "shards": local}]}
    keys = {"block_documents": 25, "window_blocks": 3, "prefetch_factor": 64}
    expected = digest_of(program, folder, on_disk, **keys)
    assert digest_of(program, folder, config, **keys) == expected, "other tokens"
    asked = sum(path.endswith(".bin") for path in store.asked)
    assert asked < 60  # 4 queries, 10 blocks, 3 of them in two shards, and the reads before them


def test_a_killed_run_goes_on_from_its_checkpoint(program, folder, store):
    tape = to_store(make_tape(program, folder, True, checkpoint_dir=str(folder / "saved")), store)
    engine = Engine(program, folder, tape.config)
    try:
        with Ranks(engine) as ranks:
            tape.read(ranks, 20)
            token = ranks.tokens()[0]
            engine.checkpoint()
            engine.kill()
    finally:
        engine.kill()
    finish(program, folder, tape, token)


def sources_of_both(program, folder, store):
    """A tape, and sources of it on the disk and in a store."""
    tape = make_tape(program, folder, indexed=True)
    copy_tape(tape, store.folder)
    names = {"disk": tape.path, "store": store.url(tape.path)}
    return tape, [{"path": path, "name": name} for name, path in names.items()]


@pytest.mark.parametrize("io", ["auto", "mapped", "io_uring", "pread"])
def test_files_beside_objects(program, folder, store, io):
    """A source on the disk and one in a store, in one run. `io` changes no row."""
    tape, both = sources_of_both(program, folder, store)
    twice = [{"path": tape.path, "name": name} for name in ("disk", "store")]
    mixed = digest_of(program, folder, {**tape.config, "sources": both}, io=io)
    assert mixed == digest_of(program, folder, {**tape.config, "sources": twice}), "other tokens"


def rings_of(engine):
    fds = Path(f"/proc/{engine.pid}/fd")
    return sum("io_uring" in os.readlink(path) for path in fds.iterdir())


@needs_io_uring
@pytest.mark.parametrize(("io", "rings"), [("auto", 2), ("io_uring", 2), ("pread", 0)])
def test_io_holds_for_files_beside_objects(program, folder, store, engines, io, rings):
    """Each of two readers has a ring, unless `io: pread`; the log names the method."""
    tape, both = sources_of_both(program, folder, store)
    config = {**tape.config, "sources": both, "shuffle": "block", "io": io, "readers": 2}
    engine = engines(program, folder, config)
    assert rings_of(engine) == rings, engine.log()
    how = "tried, and it works" if io == "auto" else "as configured"
    told = [line for line in engine.log().splitlines() if "objects in stores" in line]
    assert len(told) == 1 and how in told[0], engine.log()
    assert f"files by {'io_uring' if rings else 'pread'}" in told[0], told


@needs_io_uring
def test_no_ring_beside_objects(program, folder, store, engines):
    """Readers fall back, unless `io: io_uring`: then the start is refused."""
    tape, both = sources_of_both(program, folder, store)
    config = {**tape.config, "sources": both, "shuffle": "block", "readers": 2}
    engine = engines(program, folder, config, prefix=WITHOUT_MORE_RINGS)
    assert rings_of(engine) == 0 and "2 of 2 readers read with pread" in engine.log()
    assert ringpack.stat(engine.run, folder)["io"] in ("mapped", "http"), "not pread: of objects"
    engine.stop()
    for run_name, prefix in ("none", WITHOUT_IO_URING), ("one", WITHOUT_MORE_RINGS):
        forced = {**config, "io": "io_uring", "run": run_name}
        engine = engines(program, folder, forced, prefix=prefix, wait=False)
        assert_ended_by(engine, "io_uring cannot be used")


@pytest.mark.parametrize(
    "io, direct, said",
    [
        ("auto", "auto", "the page cache holds all files: token files are mapped"),
        ("auto", "auto", "; buffered reads"),
        ("auto", "on", "; direct reads"),
        ("mapped", "auto", "io: mapped: token files are mapped"),
        ("pread", "on", "; direct reads"),
        ("pread", "off", "; buffered reads"),
    ],
)
def test_files_beside_objects_are_read_as_without(program, folder, store, io, direct, said):
    """And the log says how. The file was written just now, so the page cache holds it."""
    tape, both = sources_of_both(program, folder, store)
    keys = {"shuffle": "block", "block_documents": 8, "window_blocks": 2, "prefetch_bytes": "4m"}
    config = {**tape.config, **keys, "io": io, "o_direct": direct, "sources": both}
    engine = Engine(program, folder, config)
    try:
        with Ranks(engine) as ranks:
            assert len(list(ranks.turns(20))) == 20
            found = ringpack.stat(engine.run, folder)
        assert said in engine.log()
    finally:
        engine.kill()
    assert found["buffered_bytes"] > 0, "the object is read"
    assert (found["mapped_bytes"] > 0) == (io != "pread"), "the file is mapped, or is not"


def test_objects_alone_are_read_by_requests(program, folder, store):
    tape = to_store(make_tape(program, folder), store)
    engine = Engine(program, folder, {**tape.config, "o_direct": "on"})
    try:
        [line] = [line for line in engine.log().splitlines() if "read with libcurl" in line]
        assert not line.endswith(" reads"), "that is said of files"
        assert ringpack.stat(engine.run, folder)["direct"] is False
    finally:
        engine.kill()


# ---- servers that are in trouble ----------------------------------------------------------------


@pytest.mark.parametrize("fault", [half_body, busy, reset, silence], ids=lambda f: f.__name__)
def test_trouble_that_passes_loses_nothing(program, folder, store, fault):
    tape = to_store(make_tape(program, folder), store)
    store.fault = sometimes(40 if fault is silence else 7, fault)
    finish(program, folder, tape)


def test_a_storm_of_refusals_ends(program, folder, store):
    tape = to_store(make_tape(program, folder), store)
    until = time.monotonic() + 2
    store.fault = after(5, lambda handler: time.monotonic() < until and busy(handler))
    finish(program, folder, tape)


def read_until_told(tape, engine, *texts):
    with Ranks(engine) as ranks:
        with pytest.raises(ringpack.RingpackError) as raised:
            tape.read(ranks)
        token = ranks.tokens()[0]
    said = str(raised.value)
    assert all(text in said for text in texts), said
    assert_ended_by(engine, *texts)
    return token


@pytest.mark.parametrize("fault", [busy, silence, half_body], ids=lambda f: f.__name__)
def test_patience_ends(program, folder, store, monkeypatch, fault):
    """Rows before are delivered; the run continues when the store is back."""
    monkeypatch.setenv("RINGPACK_OBJECT_PATIENCE", QUICK.format(5))
    tape = to_store(make_tape(program, folder), store)
    engine = Engine(program, folder, tape.config)
    store.fault = after(10, fault)
    try:
        token = read_until_told(tape, engine, store.url(tape.path), "given up after")
    finally:
        engine.kill()
    assert tape.rows
    store.fault = None
    monkeypatch.setenv("RINGPACK_OBJECT_PATIENCE", QUICK.format(60))
    finish(program, folder, tape, token)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (other_etag, "ETag"),
        (other_size, "bytes: expected"),
        (gone, "is gone"),
        (whole_object, "does not serve ranges"),
        (wrong_range, "wrong range"),
        (circle, "redirects"),
        (refuse, "403 AccessDenied"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_another_answer_ends_the_stream_by_name(program, folder, store, fault, text):
    tape = to_store(make_tape(program, folder), store)
    engine = Engine(program, folder, tape.config)
    store.fault = after(10, fault)
    try:
        token = read_until_told(tape, engine, store.url(tape.path), text)
        assert "secret" not in engine.log()
    finally:
        engine.kill()
    assert tape.rows
    store.fault = None
    finish(program, folder, tape, token)


def test_a_stop_does_not_wait_for_a_server(program, folder, store, monkeypatch):
    monkeypatch.setenv("RINGPACK_OBJECT_PATIENCE", "50,20000,300,300")
    tape = to_store(make_tape(program, folder), store)
    engine = Engine(program, folder, tape.config)
    asked = len(store.asked)
    store.fault = after(5, silence)
    try:
        wait_until(lambda: len(store.asked) > asked + 6, "requests")
        assert engine.stop() == 0, engine.log()
    finally:
        engine.kill()


@pytest.fixture
def planted(broken, monkeypatch):
    def plant(name):
        monkeypatch.setenv("RP_DEFECT", name)
        return broken

    return plant


@pytest.mark.parametrize(
    ("defect", "fault"), [("ignore_changed_objects", None), ("ignore_content_range", wrong_range)]
)
def test_an_answer_that_is_not_compared_is_delivered(planted, folder, store, defect, fault):
    """The control of the tests above: without the comparison other tokens come."""
    tape = to_store(make_tape(None, folder), store)

    def changed(handler):
        if fault:
            handler.first, handler.last = handler.first + 2, handler.last + 2
        handler.content = handler.content[2:] + handler.content[:2]
        handler.etag = handler.etag if fault else '"another"'
        return answer_range(handler)

    engine = Engine(planted(defect), folder, tape.config)
    store.fault = after(10, changed)
    try:
        with Ranks(engine) as ranks, pytest.raises(AssertionError, match="other tokens"):
            tape.read(ranks)
    finally:
        engine.kill()


# ---- refusals ------------------------------------------------------------------------------------


def test_what_a_start_refuses(program, folder, store, monkeypatch):
    tape = to_store(make_tape(program, folder), store)
    url = tape.config["sources"][0]
    refused_serve(program, folder, url, url, "shuffle: document")
    refused(program, "inspect", store.url("none.bin"), texts=["404 NoSuchKey", "not found"])
    refused(program, "inspect", "ftp://h/x.bin", texts=["ftp://h/x.bin"])
    refused(program, "inspect", "https://u:secret@h/x.bin", texts=["user or a password"])
    refused(program, "inspect", store.base + "/*.bin", texts=["not found"])
    refused(program, "index", url, texts=["ringpack does not write to stores", "--index-dir"])
    (store.folder / "raw.bin").write_bytes(b"\1\0" * 1000)
    refused(program, "inspect", store.url("raw.bin"), texts=["no sidecar", "ringpack index"])
    (store.folder / "empty.bin").write_bytes(b"")
    refused(program, "inspect", store.url("empty.bin"), texts=["empty"])
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    refused(program, "inspect", url, texts=["/proc/nowhere"])


def test_a_sidecar_of_another_content_is_refused(program, folder, store):
    tape = make_tape(program, folder, indexed=True)
    to_store(tape, store)
    path = store.folder / "tape.bin"
    path.write_bytes(path.read_bytes() + b"\0\0")
    refused(program, "inspect", store.url(path), texts=["differs from its sidecar"])


def fetched_files(folder):
    """The indexes and sidecars that starts have fetched, without their hashes."""
    cache = Path(os.environ["XDG_CACHE_HOME"]) / "ringpack"
    return sorted(path for path in cache.iterdir() if path.is_file() and not path.suffix)


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "flip":
        content[len(content) // 2] ^= 1
    elif how == "zeros":  # as a power cut may leave it
        content = bytes(len(content))
    elif how == "cut":
        content = content[:-1]
    elif how == "no hash":
        path.with_suffix(".xxh3").unlink()
    elif how == "a bad hash":
        path.with_suffix(".xxh3").write_text("x")
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["flip", "zeros", "cut", "no hash", "a bad hash"])
@pytest.mark.parametrize("indexed", [False, True], ids=["idx", "sidecar"])
def test_a_fetched_index_that_was_overwritten_is_fetched_again(
    program, folder, store, indexed, how
):
    tape = to_store(make_tape(program, folder, indexed=indexed, tokens=200000), store)
    first = output_of(program, "inspect", "--json", store.url(tape.path))
    files = fetched_files(folder)
    contents = [path.read_bytes() for path in files]
    assert files
    for path in files:
        damage(path, how)
    assert output_of(program, "inspect", "--json", store.url(tape.path)) == first
    assert [path.read_bytes() for path in files] == contents
    inodes = [path.stat().st_ino for path in files]
    assert output_of(program, "inspect", "--json", store.url(tape.path)) == first
    assert [path.stat().st_ino for path in files] == inodes, "what is good was fetched again"


def test_control_an_index_that_was_overwritten_is_taken(planted, folder, store):
    tape = to_store(make_tape(None, folder), store)
    broken = planted("trust_fetched_bytes")
    output_of(broken, "inspect", store.url(tape.path))
    [path] = fetched_files(folder)
    damage(path, "flip")
    changed = path.read_bytes()
    run(broken, "inspect", store.url(tape.path))
    assert path.read_bytes() == changed


def test_a_changed_token_of_an_indexed_object_is_not_delivered(program, folder, store):
    tape = to_store(make_tape(program, folder, indexed=True), store)

    def flip(handler):
        middle = (handler.first + handler.last) // 2
        body = bytearray(handler.content)
        body[middle] ^= 1
        handler.content = bytes(body)
        return answer_range(handler)

    engine = Engine(program, folder, tape.config)
    store.fault = after(10, flip)
    try:
        read_until_told(tape, engine, store.url(tape.path), "differs from its sidecar")
    finally:
        engine.kill()
