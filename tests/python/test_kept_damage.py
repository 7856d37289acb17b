# SPDX-License-Identifier: Apache-2.0
"""Bytes that were damaged before they came into the block cache, as a later sidecar shows."""

import contextlib
import shutil

import ringpack
from remote_kit import (  # with the fixtures `environment` and `store`
    environment,
    make_tape,
    output_of,
    serve_blocks,
    store,
    to_store,
)
from stream_kit import Ranks
from test_block_cache import cached, digest_of, requests


def keep_damage(program, folder, store, cached):
    """A tape whose bytes a proxy has damaged on their way into the cache, before it had sidecars to
    compare them with. Then the proxy is mended, and the sidecars come. ETags stay."""
    tape = make_tape(program, folder)
    local, _ = digest_of(program, folder, tape.config)
    content_of, path = store.content_of, tape.path
    cached(to_store(tape, store))

    def damaged(place):
        content, etag = content_of(place)
        if place.suffix == ".bin":
            content = content[:9000] + bytes([content[9000] ^ 1]) + content[9001:]
        return content, etag

    store.content_of = damaged
    assert digest_of(program, folder, tape.config)[0] != local, "nothing was damaged"
    store.content_of = content_of
    output_of(program, "index", path)
    shutil.copy(path + ".rpi", store.folder)
    return tape, local


def test_the_cache_is_not_the_reason_of_an_error_that_lasts(program, folder, store, cached):
    """A block that differs from a sidecar is fetched from the store once more, and kept from then
    on."""
    tape, local = keep_damage(program, folder, store, cached)
    assert digest_of(program, folder, tape.config)[0] == local
    store.headers.clear(), store.asked.clear()
    assert digest_of(program, folder, tape.config)[0] == local
    assert requests(store) == [], "what was asked for again was not kept"


def test_kept_damage_that_is_trusted_ends_a_run(broken, folder, store, cached, monkeypatch):
    """The control of the test above. The engine may end before a trainer has attached."""
    tape, _ = keep_damage(broken, folder, store, cached)
    monkeypatch.setenv("RP_DEFECT", "trust_kept_damage")
    engine = serve_blocks(broken, folder, tape.config)
    try:
        while engine.process.poll() is None:
            with contextlib.suppress(ringpack.RingpackError):
                with Ranks(engine, connect_timeout=1) as ranks:
                    list(ranks.turns())
        assert engine.wait() != 0 and "differs from its sidecar" in engine.log()
    finally:
        engine.kill()
