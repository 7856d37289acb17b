# SPDX-License-Identifier: Apache-2.0
"""Corpora in object stores: the same rows as from a disk, whatever a server does; and a server that
gives another content, or none, ends the stream by name after the last good row."""

import os
import random
import re
import subprocess
import time
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit
from xml.sax.saxutils import escape

import pytest
import ringpack
from failure_kit import Tape, assert_ended_by, finish
from refusal_kit import refused, refused_serve, run
from remote_kit import (
    Store,
    after,
    answer,
    answer_range,
    busy,
    circle,
    copy_tape,
    gone,
    half_body,
    other_etag,
    other_size,
    refuse,
    reset,
    server,
    silence,
    sometimes,
    whole_object,
    wrong_range,
)
from stream_kit import Engine, Ranks, wait_until

KEYS = {"AWS_ACCESS_KEY_ID": "KEYID", "AWS_SECRET_ACCESS_KEY": "SECRET/+="}
QUICK = "5,50,{},1"  # pauses in ms, seconds until it gives up, seconds of silence


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing of this machine's own keys and proxies."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "HF_", "GS_", "GOOGLE_", "AZURE_")) or "proxy" in name.lower():
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("RINGPACK_OBJECT_PATIENCE", QUICK.format(20))


@pytest.fixture
def store(folder):
    place = folder / "objects"
    place.mkdir()
    made = Store(place)
    yield made
    made.close()


def make_tape(program, folder, indexed=False, tokens=24000, **keys):
    tape = Tape(folder, tokens, **keys)
    if indexed:
        tape.index(program)
    return tape


def to_store(tape, store):
    copy_tape(tape, store.folder)
    tape.config["sources"] = [store.url(tape.path)]
    return tape


@pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])
def test_rows_of_a_store_are_those_of_a_disk(program, folder, store, indexed):
    tape = to_store(make_tape(program, folder, indexed), store)
    finish(program, folder, tape)


def digest_of(program, folder, config, **changes):
    """Of a whole stream of blocks, and what the engine knows its corpus by."""
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
    assert digest_of(program, folder, to_store(tape, store).config) == local
    tokens = sum(path.endswith(".bin") for path in store.asked)
    assert tokens < 60, f"{tokens} requests for blocks"


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


@pytest.mark.parametrize("io", ["auto", "mapped", "io_uring"])
def test_files_beside_objects(program, folder, store, io):
    """A source on the disk and one in a store, in one run. `io` does not matter then."""
    tape = make_tape(program, folder, indexed=True)
    copy_tape(tape, store.folder)
    both = [{"path": tape.path, "name": "disk"}, {"path": store.url(tape.path), "name": "store"}]
    twice = [{"path": tape.path, "name": name} for name in ("disk", "store")]
    mixed = digest_of(program, folder, {**tape.config, "sources": both}, io=io)
    assert mixed == digest_of(program, folder, {**tape.config, "sources": twice})


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
    """Rows before are delivered; the run goes on when the store is back."""
    monkeypatch.setenv("RINGPACK_OBJECT_PATIENCE", QUICK.format(1))
    tape = to_store(make_tape(program, folder), store)
    engine = Engine(program, folder, tape.config)
    store.fault = after(10, fault)
    try:
        token = read_until_told(tape, engine, store.url(tape.path), "given up after")
    finally:
        engine.kill()
    assert tape.rows
    store.fault = None
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


# ---- what is refused ----------------------------------------------------------------------------


def test_what_a_start_refuses(program, folder, store, monkeypatch):
    tape = to_store(make_tape(program, folder), store)
    url = tape.config["sources"][0]
    refused_serve(program, folder, url, url, "shuffle: document")
    refused(program, "inspect", store.url("none.bin"), texts=["404 NoSuchKey", "is not there"])
    refused(program, "inspect", "ftp://h/x.bin", texts=["ftp://h/x.bin"])
    refused(program, "inspect", "https://u:secret@h/x.bin", texts=["user or a password"])
    refused(program, "inspect", store.base + "/*.bin", texts=["is not there"])
    refused(program, "index", url, texts=["not indexed in place"])
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
    refused(program, "inspect", store.url(path), texts=["not what its sidecar"])


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


# ---- rights -------------------------------------------------------------------------------------


def test_the_query_of_a_url_is_sent_and_not_shown(program, folder, store):
    tape = make_tape(program, folder)
    copy_tape(tape, store.folder)
    tape.config["sources"] = [store.url(tape.path) + "?sv=1&sig=S3CR3T"]
    log = finish(program, folder, tape)
    assert all("sig=S3CR3T" in path for path in store.asked)
    assert "S3CR3T" not in log


def test_the_hub_gets_its_bearer_and_a_redirect_is_remembered(program, folder, store, monkeypatch):
    """/resolve/ sends the bearer's owner elsewhere; there, nothing of the bearer is seen."""
    tape = make_tape(program, folder)
    copy_tape(tape, store.folder)
    content = Store(store.folder)
    asked = []

    def resolve(handler):
        asked.append(handler.headers.get("Authorization"))
        handler.send_response(302)
        handler.send_header("Location", content.url(handler.path) + "?signed=1")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True

    store.fault = resolve
    monkeypatch.setenv("HF_ENDPOINT", store.base)
    monkeypatch.setenv("HF_TOKEN", "hf_S3CR3T")
    tape.config["sources"] = [store.url(tape.path)]
    try:
        log = finish(program, folder, tape)
    finally:
        content.close()
    assert set(asked) == {"Bearer hf_S3CR3T"} and "S3CR3T" not in log
    assert len(asked) < 10 < len(content.asked), "each range was redirected"
    assert not any("Authorization" in headers for headers in content.headers)


@pytest.fixture
def rclone(program, folder, monkeypatch):
    """A bucket `b` of rclone's, which checks signatures."""
    tape = make_tape(program, folder, indexed=True)
    copy_tape(tape, folder / "buckets" / "b")
    keys = ",".join(KEYS.values())
    listen = ("--addr", "127.0.0.1:PORT", "--auth-key", keys)
    with server("rclone", folder, "serve", "s3", folder / "buckets", *listen) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        for name, value in KEYS.items():
            monkeypatch.setenv(name, value)
        tape.config["sources"] = ["s3://b/*.bin"]
        yield tape


def test_a_bucket_of_rclone(program, folder, rclone, monkeypatch):
    finish(program, folder, rclone)
    for pattern in "s3://b/", "s3://b/t?pe.*":
        assert "s3://b/tape.bin" in output_of(program, "inspect", pattern)
    refused(program, "inspect", "s3://b/x*", texts=["no object matches"])
    refused(program, "inspect", "s3://none/*", texts=["NoSuchBucket"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "WR0NG")
    said = refused(program, "inspect", "s3://b/tape.bin", texts=["403", "the environment"])
    assert not re.search("WR0NG|KEYID|Signature=", str(said))


def output_of(program, *arguments):
    done = run(program, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("place", ["profile", "process", "container", "instance"])
def test_where_keys_are_looked_for(program, folder, rclone, monkeypatch, tmp_path, place):
    """In the order of AWS's tools; each of them alone."""
    for name in KEYS:
        monkeypatch.delenv(name)
    key_id, secret = KEYS.values()
    made = '{"Version":1,"AccessKeyId":"%s","SecretAccessKey":"%s"}' % (key_id, secret)
    home = tmp_path / ".aws"
    home.mkdir()
    answers = folder / "answers"
    answers.mkdir()
    endpoint = Store(answers)
    monkeypatch.setenv("AWS_PROFILE", "mine")
    if place == "profile":
        lines = "[default]", "aws_access_key_id=X", "[mine]", f"aws_access_key_id = {key_id}"
        text = "\n".join([*lines, f"aws_secret_access_key={secret}", ""])
        (home / "credentials").write_text(text)
    elif place == "process":
        (tmp_path / "keys.json").write_text(made)
        command = f"credential_process = cat {tmp_path}/keys.json"
        (home / "config").write_text(f"[profile mine]\nregion = eu-west-1\n{command}\n")
    elif place == "container":
        monkeypatch.delenv("AWS_PROFILE")
        (answers / "role").write_text(made)
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{endpoint.base}/role")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "T0KEN")
    else:
        monkeypatch.delenv("AWS_PROFILE")
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint.base)
        endpoint.serve = lambda handler: instance(handler, made)
    try:
        assert "s3://b/tape.bin" in output_of(program, "inspect", "s3://b/tape.bin")
        if place == "container":
            assert endpoint.headers[0]["Authorization"] == "T0KEN"
    finally:
        endpoint.close()


def instance(handler, keys):
    """IMDSv2: a token by PUT first, then the role's name, then its keys."""
    if handler.command == "PUT":
        return answer(handler, 200, b"T")
    if handler.headers.get("X-aws-ec2-metadata-token") != "T":
        return answer(handler, 401)
    return answer(handler, 200, keys.encode() if handler.path.endswith("/role") else b"role")


def test_a_bucket_of_hadro_with_delays_errors_and_tls(program, folder, monkeypatch):
    tape = make_tape(program, folder, indexed=True)
    copy_tape(tape, folder / "buckets" / "b")
    certificate = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "2"]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *certificate, *name],
        check=True,
        capture_output=True,
    )
    key_id, secret = KEYS.values()
    keys = ["--access-key", key_id, "--secret-key", secret]
    tls = ["--tls-cert", folder / "cert.pem", "--tls-key", folder / "key.pem"]
    trouble = ["--latency-ms", "2", "--error-rate", "0.05", "--fault-seed", "1"]
    arguments = ["--port", "PORT", *keys, *tls, *trouble]
    with server("hadro", folder, folder / "buckets", *arguments) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{port}")
        monkeypatch.setenv("AWS_REGION", "eu-west-2")
        for name, value in KEYS.items():
            monkeypatch.setenv(name, value)
        refused(program, "inspect", "s3://b/tape.bin", texts=["certificate"])
        monkeypatch.setenv("AWS_CA_BUNDLE", str(folder / "cert.pem"))
        tape.config["sources"] = ["s3://b/tape.bin"]
        finish(program, folder, tape)


# ---- listings -----------------------------------------------------------------------------------


def pages(store, keys, per_page, broken=None):
    """A store that lists `keys`, a few at a time, as ListObjectsV2 does."""
    serve = store.serve

    def list_or_serve(handler):
        place = urlsplit(handler.path)
        query = dict(parse_qsl(place.query))
        if "list-type" not in query:
            return serve(handler)
        if broken is not None:
            return answer(handler, 200, broken)
        found = sorted(key for key in keys if key.startswith(query["prefix"]))
        first = int(query.get("continuation-token", "0/+=")[:-3])
        page = found[first : first + per_page]
        here = "".join(f"<Contents><Key>{escape(key)}</Key></Contents>" for key in page)
        if first + per_page < len(found):
            here += f"<NextContinuationToken>{first + per_page}/+=</NextContinuationToken>"
        return answer(handler, 200, f"<ListBucketResult>{here}</ListBucketResult>".encode())

    store.serve = list_or_serve


def test_a_pattern_stands_for_the_keys_of_all_pages(program, folder, store, monkeypatch):
    """In bytewise order, whatever characters are in them; nothing below another slash."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.base)
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "1")
    tape = make_tape(program, folder, tokens=2000)
    names = [f"p-{number}" for number in range(7)] + ["p-a b", "p-&<>'", "p-é"]
    for name in names:
        for suffix in ".bin", ".idx":
            place = store.folder / "b" / "d" / quote(name + suffix)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(Path(tape.path[:-4] + suffix).read_bytes())
    keys = [f"d/{name}{suffix}" for name in names for suffix in (".bin", ".idx")]
    pages(store, [*keys, "d/p-0.txt", "d/deep/p-1.bin", "e/p-0.bin", "d/"], 3)
    expected = sorted((f"s3://b/d/{name}.bin" for name in names), key=str.encode)
    for pattern in "s3://b/d/p-*.bin", "s3://b/d/p-*.idx", "s3://b/d/":
        found = re.findall(r"^s3://.*$", output_of(program, "inspect", pattern), re.MULTILINE)
        assert found == expected, pattern


@pytest.mark.parametrize("seed", range(3))
def test_a_listing_that_lies_is_refused(program, store, monkeypatch, seed):
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.base)
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "1")
    monkeypatch.setenv("RINGPACK_OBJECT_PATIENCE", QUICK.format(1))
    good = b"<ListBucketResult><Contents><Key>x.bin</Key></Contents></ListBucketResult>"
    generator = random.Random(seed)
    bodies = [b"", b"\0" * 100, b"<html>", b"<ListBucketResult><Key>", b"<ListBucketResult>" * 9]
    for _ in range(5):
        flipped = bytearray(good)
        for _ in range(3):
            flipped[generator.randrange(len(good))] = generator.randrange(256)
        bodies.append(bytes(flipped))
    for body in bodies:
        pages(store, [], 1, broken=body)
        refused(program, "inspect", "s3://b/*.bin", texts=["s3://b"])
