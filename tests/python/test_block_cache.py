# SPDX-License-Identifier: Apache-2.0
"""Blocks of objects that are kept on a local disk: the same rows as without, whatever happens to
the disk, the process, the object or the directory; and kept blocks are not requested again."""

import fcntl
import os
import random
import shutil
import time
from pathlib import Path

import numpy
import pytest
import ringpack
from failure_kit import Tape, finish
from refusal_kit import refused_serve
from remote_kit import (  # with the fixtures `environment` and `store`
    QUICK,
    after,
    busy,
    environment,
    make_tape,
    silence,
    serve_blocks,
    sometimes,
    store,
    to_store,
)
from stat_kit import assert_documented
from stream_kit import Engine, Ranks, wait_until, write_megatron

MB = 1 << 20
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="mounts need root")


@pytest.fixture
def cached(folder, store):
    """Makes a config whose objects are kept in a directory of the test."""

    def change(tape, **keys):
        keys = {"cache_dir": str(folder / "cache"), "cache_bytes": "64m", **keys}
        tape.config.update(keys)
        return tape

    return change


def requests(store):
    """For ranges of tokens. A start reads one byte of each object."""
    ranges = [
        headers.get("Range")
        for path, headers in zip(store.asked, store.headers)
        if path.endswith(".bin")
    ]
    return [r for r in ranges if r != "bytes=0-0"]


def files_of(folder):
    return [path for path in (folder / "cache" / "blocks").glob("*.blocks") if path.is_file()]


def kept_bytes(folder):
    """The size of the directory on its disk."""
    return sum(path.stat().st_blocks * 512 for path in files_of(folder))


def stat_of(engine):
    stat = ringpack.stat(engine.run, engine.folder)
    assert_documented(stat)
    return stat


def again(tape):
    """The same rows are to be read once more."""
    tape.rows.clear()
    return tape


# ---- kept blocks are not requested again ---------------------------------------------------------


@pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])
def test_a_warm_cache_asks_the_server_for_nothing(program, folder, store, cached, indexed):
    """In a second run, and in one that resumes from only a state token."""
    tape = cached(to_store(make_tape(program, folder, indexed), store))
    finish(program, folder, tape)
    assert requests(store)
    assert kept_bytes(folder) >= os.path.getsize(tape.path)
    store.headers.clear(), store.asked.clear()
    engine = Engine(program, folder, again(tape).config)
    try:
        with Ranks(engine) as ranks:
            tape.read(ranks, 10)
            token = ranks.tokens()[0]
            told = stat_of(engine)
    finally:
        engine.kill()
    assert told["cache_fetched_bytes"] == 0 and told["cache_misses"] == 0
    assert told["cache_hits"] > 0 and told["cache_hit_bytes"] > 0
    assert Path(told["cache_dir"]) == folder / "cache" / "blocks"
    finish(program, folder, tape, token)
    assert requests(store) == []


def digest_of(program, folder, config, **changes):
    engine = serve_blocks(program, folder, config, **changes)
    try:
        with Ranks(engine) as ranks:
            digest = sum(batch.digest() for turn in ranks.turns() for batch in turn) % 2**128
            told = stat_of(engine)
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    return digest, told


def test_digests_with_and_without_a_cache_are_those_of_the_disk(program, folder, store, cached):
    tape = make_tape(program, folder, indexed=True)
    local, _ = digest_of(program, folder, tape.config)
    remote = to_store(tape, store)
    assert digest_of(program, folder, remote.config)[0] == local, "other tokens"
    for _ in range(2):
        digest, told = digest_of(program, folder, cached(remote).config)
        assert digest == local, "other tokens"
        assert "cache_epoch" in told
    assert told["cache_fetched_bytes"] == 0


@pytest.fixture
def large(folder, store):
    """A corpus of 12 MB, too large for a cache of 8 MiB, and keys to read it with."""
    generator = numpy.random.default_rng(3)
    tokens = generator.integers(1, 30000, 6_000_000).astype("u2")
    documents = numpy.split(tokens, numpy.arange(3000, len(tokens), 3000))
    path = Path(write_megatron(folder / "large", documents, "u16"))
    for suffix in ".bin", ".idx":
        shutil.copy(path.with_suffix(suffix), store.folder)
    keys = {"seq_len": 8192, "batch_size": 8, "block_documents": 64, "window_blocks": 2}
    return path, {**keys, "packing": "concat", "prefetch_bytes": "8m"}


def test_a_small_cache_keeps_to_its_size_and_saves_what_it_can(program, folder, store, large):
    path, keys = large
    keys["cache_dir"], keys["cache_bytes"] = str(folder / "cache"), "8m"
    local, _ = digest_of(program, folder, {"sources": [str(path)], **keys})
    digest, told = digest_of(program, folder, {"sources": [store.url(path)], **keys})
    size = path.stat().st_size
    assert digest == local, "other tokens"
    assert told["cache_held_bytes"] <= told["cache_bytes_max"] == 8 * MB
    assert kept_bytes(folder) < 8 * MB + 256 * 1024
    # three epochs, which an empty cache would all fetch
    assert size < told["cache_fetched_bytes"] < 2.4 * size, told
    assert told["cache_epoch"] >= 2


# ---- fetches before a reader wants them ----------------------------------------------------------


def slow(seconds):
    """Each answer takes so long that others are wanted meanwhile."""

    def act(handler):
        time.sleep(seconds)
        return False

    return act


def blocks_asked_twice(store):
    """The number of second requests for a block. Single documents, which readers want before their
    block, are much shorter; neighbours share a page."""
    ranges = [tuple(map(int, r.removeprefix("bytes=").split("-"))) for r in requests(store)]
    blocks = sorted((first, last) for first, last in ranges if last - first >= 64 * 1024)
    return sum(first + 4096 <= last for (_, last), (first, _) in zip(blocks, blocks[1:]))


def read_behind_a_filler(program, folder, store, large, seconds=0.2):
    """Wait until blocks are filled that no reader wants yet, then read all. Gives the digest, the
    figures of stat at the end, and the number of blocks that were requested twice."""
    path, keys = large
    keys.update(shuffle="block", num_epochs=1, prefetch_bytes="4m", batch_size=1)
    config = {"sources": [store.url(path)], **keys}
    config.update(cache_dir=str(folder / "cache"), cache_bytes="64m")
    store.headers.clear(), store.asked.clear()
    store.fault = slow(seconds)
    engine = Engine(program, folder, config)
    try:
        wait_until(lambda: stat_of(engine).get("cache_filled_bytes", 0) > 0, "a fill")
        with Ranks(engine) as ranks:
            digest = sum(batch.digest() for turn in ranks.turns() for batch in turn) % 2**128
            told = stat_of(engine)
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    shutil.rmtree(folder / "cache" / "blocks")
    return digest, told, blocks_asked_twice(store)


def test_blocks_are_filled_ahead_of_readers_and_none_is_asked_for_twice(
    program, folder, store, large, monkeypatch
):
    """But by a reader that has waited five seconds for a fill, so it has some tries."""
    monkeypatch.setenv("RINGPACK_OBJECT_PATIENCE", QUICK.format(20)[:-1] + "20")
    path, keys = large
    for _ in range(5):
        digest, told, twice = read_behind_a_filler(program, folder, store, large)
        local = {**keys, "shuffle": "block", "sources": [str(path)]}
        assert digest == digest_of(program, folder, local)[0], "other tokens"
        assert told["cache_hits"] > 0 and told["cache_failures"] == 0
        fetched = told["cache_filled_bytes"] + told["cache_fetched_bytes"]
        assert fetched >= path.stat().st_size
        if twice == 0:
            return
    raise AssertionError(f"{twice} blocks were asked for twice: {told}")


def test_what_is_asked_for_twice_is_noticed(broken, folder, store, large, monkeypatch):
    """The control of the test above. If all is filled before readers begin, answers take longer."""
    monkeypatch.setenv("RP_DEFECT", "fetch_during_fill")
    monkeypatch.setenv("RINGPACK_OBJECT_PATIENCE", QUICK.format(90)[:-1] + "90")
    seconds = 0.2
    while read_behind_a_filler(broken, folder, store, large, seconds)[2] == 0:
        seconds *= 2
        assert seconds < 20


def test_a_stop_waits_for_no_fill(program, folder, store, large):
    path, keys = large
    keys.update(shuffle="block", prefetch_bytes="4m", batch_size=1)
    config = {"sources": [store.url(path)], **keys}
    config.update(cache_dir=str(folder / "cache"), cache_bytes="64m")
    engine = Engine(program, folder, config)
    try:
        wait_until(lambda: stat_of(engine).get("cache_filled_bytes", 0) > 0, "a fill")
        store.fault = silence
        assert engine.stop() == 0, engine.log()
    finally:
        engine.kill()


# ---- documents shuffled singly ------------------------------------------------------------------


def test_single_documents_need_a_cache_that_holds_them_all(program, folder, store, large):
    path, keys = large
    url = store.url(path)
    keys.update(cache_dir=str(folder / "cache"), cache_bytes="8m", shuffle="document")
    texts = [url, "shuffle: block", "cache_bytes", "12001280", "8388608"]
    refused_serve(program, folder, url, *texts, **keys)
    keys.update(cache_bytes="12m", batch_size=32, num_epochs=1)
    local, _ = digest_of(program, folder, {"sources": [str(path)]}, **keys)
    assert digest_of(program, folder, {"sources": [url]}, **keys)[0] == local, "other tokens"
    (folder / "cache" / "blocks").rename(folder / "elsewhere")
    (folder / "cache" / "blocks").write_text("")
    refused_serve(program, folder, url, str(folder / "cache" / "blocks"), **keys)


# ---- trouble ------------------------------------------------------------------------------------


def test_kills_in_the_middle_of_downloads_leave_nothing_wrong(program, folder, store, cached):
    tape = cached(to_store(make_tape(program, folder, tokens=60000), store))
    generator = random.Random(5)
    token = None
    for _ in range(6):
        store.fault = sometimes(3, busy)  # so that it lasts
        engine = Engine(program, folder, tape.config)
        try:
            with Ranks(engine, token=token) as ranks:
                tape.read(ranks, generator.randrange(1, 12))
                token = ranks.tokens()[0]
        finally:
            engine.kill()
    store.fault = None
    finish(program, folder, tape, token)
    finish(program, folder, again(tape))
    store.headers.clear(), store.asked.clear()
    finish(program, folder, again(tape))
    assert requests(store) == []
    assert kept_bytes(folder) < 2 * os.path.getsize(tape.path) + 64 * 1024


def test_an_object_that_changed_is_another_object(program, folder, store, cached):
    """Of the same name and size: its rows come, and not those that are kept."""
    tape = cached(to_store(make_tape(program, folder), store))
    finish(program, folder, tape)
    other = folder / "other"
    other.mkdir()
    changed = Tape(other, 24000, seed=8)
    changed.config = tape.config
    for suffix in ".bin", ".idx":
        shutil.copy(Path(changed.path).with_suffix(suffix), store.folder)
    finish(program, folder, changed)
    assert len(files_of(folder)) == 2


def damage(folder, seed):
    """Some bytes of each page of data."""
    generator = random.Random(seed)
    for path in files_of(folder):
        content = bytearray(path.read_bytes())
        for page in range(3 * 4096, len(content), 4096):
            content[generator.randrange(page, min(page + 4096, len(content)))] ^= 0x10
        path.write_bytes(content)


def fetched_bytes(engine):
    told = stat_of(engine)
    return told["cache_fetched_bytes"] + told.get("cache_filled_bytes", 0)


@pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])
def test_damaged_bytes_are_fetched_anew(program, folder, store, cached, indexed):
    tape = cached(to_store(make_tape(program, folder, indexed), store))
    finish(program, folder, tape)
    damage(folder, 1)
    engine = Engine(program, folder, again(tape).config)
    try:
        with Ranks(engine) as ranks:
            tape.read(ranks)
            # by readers, or ahead of them; both count a moment after the batch
            wait_until(lambda: fetched_bytes(engine) >= os.path.getsize(tape.path), "fetching")
        tape.assert_whole()
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    store.headers.clear(), store.asked.clear()
    finish(program, folder, again(tape))  # blocks that were fetched again are kept
    assert requests(store) == []


def test_damaged_bytes_that_are_not_compared_are_delivered(
    broken, folder, store, cached, monkeypatch
):
    """The control of the test above."""
    tape = cached(to_store(make_tape(None, folder), store))
    finish(broken, folder, tape)
    damage(folder, 1)
    monkeypatch.setenv("RP_DEFECT", "trust_cached_bytes")
    engine = Engine(broken, folder, again(tape).config)
    try:
        with Ranks(engine) as ranks, pytest.raises(AssertionError, match="other tokens"):
            tape.read(ranks)
    finally:
        engine.kill()


def test_files_that_are_no_files_of_a_cache(program, folder, store, cached):
    """Cut, empty and foreign files in its directory, and a record of nonsense."""
    tape = cached(to_store(make_tape(program, folder), store))
    finish(program, folder, tape)
    for content in b"", b"RPCACHE1", os.urandom(9000):
        for path in files_of(folder):
            path.write_bytes(content)
        blocks = folder / "cache" / "blocks"
        (blocks / "space").write_bytes(os.urandom(40))
        (blocks / f"{7:032x}.blocks").write_bytes(os.urandom(20000))
        (blocks / f"{8:032x}.blocks").mkdir(exist_ok=True)
        (blocks / "README").write_text("mine")
        finish(program, folder, again(tape))
        assert (blocks / "README").read_text() == "mine"
    store.headers.clear(), store.asked.clear()
    finish(program, folder, again(tape))
    assert requests(store) == []


@needs_root
def test_a_full_disk_of_the_cache_is_no_error(program, folder, store, cached):
    tape = cached(to_store(make_tape(program, folder, tokens=200000), store))
    place = folder / "cache"
    place.mkdir()
    mount = f'mount -t tmpfs -o size=220k,mode=700 none {place} && exec "$@"'
    prefix = ["unshare", "-m", "sh", "-c", mount, "sh"]
    engine = Engine(program, folder, tape.config, prefix=prefix)
    try:
        with Ranks(engine) as ranks:
            tape.read(ranks)
            wait_until(lambda: stat_of(engine)["cache_failures"] > 0, "a full disk")
        tape.assert_whole()
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    assert "No space left" in engine.log() and "cannot be kept" in engine.log()
    assert engine.log().count("cannot be kept") == 1


def test_a_directory_that_cannot_be_used_is_no_error(program, folder, store, cached):
    """The indexes have their place, and the blocks have none."""
    tape = cached(to_store(make_tape(program, folder), store))
    (folder / "cache").mkdir()
    (folder / "cache" / "blocks").write_text("")
    log = finish(program, folder, tape)
    assert "no blocks of objects are kept" in log and str(folder / "cache" / "blocks") in log


def test_a_cache_that_is_removed_while_it_is_used(program, folder, store, cached):
    tape = cached(to_store(make_tape(program, folder, tokens=100000), store))
    engine = Engine(program, folder, tape.config)
    try:
        with Ranks(engine) as ranks:
            tape.read(ranks, 5)
            shutil.rmtree(folder / "cache" / "blocks")
            tape.read(ranks)
        tape.assert_whole()
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    finish(program, folder, again(tape))


def test_a_file_that_is_cut_while_it_is_used_is_made_again(program, folder, store, large):
    """Reads of missing bytes come short: these blocks are fetched, and kept once more."""
    path, keys = large
    keys.update(shuffle="block", num_epochs=3, cache_dir=str(folder / "cache"), cache_bytes="64m")
    local, _ = digest_of(program, folder, {"sources": [str(path)], **keys})
    config = {"sources": [store.url(path)], **keys}
    assert digest_of(program, folder, config)[0] == local, "other tokens"
    (kept,) = files_of(folder)
    size = kept.stat().st_size
    digest = 0
    engine = Engine(program, folder, config)
    try:
        with Ranks(engine) as ranks:
            for number, turn in enumerate(ranks.turns()):
                digest += sum(batch.digest() for batch in turn)
                if number == 4:
                    os.truncate(kept, size - 6 * MB)
            told = stat_of(engine)
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    assert digest % 2**128 == local, "other tokens"
    assert kept.stat().st_size == size and told["cache_failures"] == 0
    store.headers.clear(), store.asked.clear()
    assert digest_of(program, folder, config)[0] == local, "other tokens"
    assert requests(store) == []


def test_a_stop_does_not_wait_for_a_server_behind_a_cache(
    program, folder, store, cached, monkeypatch
):
    monkeypatch.setenv("RINGPACK_OBJECT_PATIENCE", "50,20000,300,300")
    tape = cached(to_store(make_tape(program, folder), store))
    store.fault = after(1, silence)  # the start queries the object
    engine = Engine(program, folder, tape.config)
    try:
        wait_until(lambda: len(requests(store)) > 0, "requests")
        assert engine.stop() == 0, engine.log()
    finally:
        engine.kill()


# ---- several engines ----------------------------------------------------------------------------


def test_two_engines_fill_one_cache(program, folder, store, large):
    """Both deliver the disk's rows, and together they keep to one limit; a killed one takes no
    block with it."""
    path, keys = large
    keys.update(cache_dir=str(folder / "cache"), cache_bytes="8m")
    local, _ = digest_of(program, folder, {"sources": [str(path)], **keys})
    config = {"sources": [store.url(path)], **keys, "shuffle": "block", "num_epochs": 3}
    engines = [Engine(program, folder, {**config, "run": name}) for name in ("a", "b", "c")]
    try:
        with Ranks(engines[0]) as one, Ranks(engines[1]) as other, Ranks(engines[2]) as third:
            digests = [0, 0]
            for number, turns in enumerate(zip(one.turns(), other.turns())):
                for engine, turn in enumerate(turns):
                    digests[engine] += sum(batch.digest() for batch in turn)
                if number < 8:
                    third.turn()
                if number == 8:
                    engines[2].kill()
                assert kept_bytes(folder) < 8 * MB + 512 * 1024
        assert [digest % 2**128 for digest in digests] == [local, local], "other tokens"
        assert [engine.wait() for engine in engines[:2]] == [0, 0]
    finally:
        for engine in engines:
            engine.kill()
    config = {"sources": [store.url(path)], **keys}
    assert digest_of(program, folder, config)[0] == local, "other tokens"


def test_a_holder_that_hangs_is_not_waited_for(program, folder, store, cached):
    """Another process has the lock of the directory: no block is kept, and the stream continues."""
    tape = cached(to_store(make_tape(program, folder), store))
    finish(program, folder, tape)
    for path in files_of(folder):
        path.unlink()
    engine = Engine(program, folder, again(tape).config, wait=False)
    engine.wait_ready()
    with open(folder / "cache" / "blocks" / "space", "rb") as space:
        fcntl.flock(space, fcntl.LOCK_EX)
        try:
            with Ranks(engine) as ranks:
                tape.read(ranks)
            tape.assert_whole()
            assert engine.wait() == 0, engine.log()
        finally:
            engine.kill()
