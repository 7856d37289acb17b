# SPDX-License-Identifier: Apache-2.0
"""The right to read objects, and lists of them: keys from every place, bearers, queries, and real
servers that check signatures. No key is ever shown."""

import contextlib
import os
import random
import re
import socket
import subprocess
import threading
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit
from xml.sax.saxutils import escape

import numpy
import pytest
from failure_kit import finish
from in_place_kit import serve_all
from refusal_kit import refused
from remote_kit import (  # with the fixtures `bucket`, `environment` and `store`
    KEYS,
    QUICK,
    Store,
    answer,
    bucket,
    certificate,
    copy_tape,
    environment,
    make_tape,
    output_of,
    server,
    serves,
    store,
)
from stream_kit import Written, write_megatron

BLOCKS = {"shuffle": "block", "block_documents": 8, "window_blocks": 2}


def test_the_query_of_a_url_is_sent_and_not_shown(program, folder, store):
    tape = make_tape(program, folder)
    copy_tape(tape, store.folder)
    tape.config["sources"] = [store.url(tape.path) + "?sv=1&sig=S3CR3T"]
    log = finish(program, folder, tape)
    assert all("sig=S3CR3T" in path for path in store.asked)
    assert "S3CR3T" not in log


def test_objects_that_only_a_query_tells_apart(program, folder, store):
    """From a server whose ETag is made of time and size: no index, sidecar or cached block of one
    is taken for the other's, and none is fetched again because the signature is another."""
    generator, read = numpy.random.default_rng(11), []
    documents = [
        [generator.integers(1, 30000, n) for n in 20 * lengths]
        for lengths in ([40, 60, 50], [70, 20, 60])
    ]
    for name, made in zip("ab", documents):
        write_megatron(store.folder / name, made, "u16")
    store.content_of = lambda path: (path.read_bytes(), '"time-size"')
    serve = store.serve

    def by_query(handler):
        path, _, query = handler.path.partition("?")
        number = re.fullmatch(r"object=(.)&sig=S3CR3T\d", query)[1]
        handler.path = path.replace("/data.", f"/{number}.")
        serve(handler)

    store.serve = by_query
    machine = {"cache_dir": str(folder / "cache"), "cache_bytes": "64m"}
    machine["index"] = str(folder / "sidecars")
    for life in range(2):
        urls = [f"{store.base}/data.bin?object={name}&sig=S3CR3T{life}" for name in "ab"]
        if life == 0:
            output_of(program, "index", "-q", "--index-dir", machine["index"], *urls)
        read = [{"name": n, "weight": 1, "shards": [url]} for n, url in zip("ab", urls)]
        store.headers.clear()
        serve_all(program, folder, Written(read, documents), BLOCKS, **machine)
    assert {headers.get("Range") for headers in store.headers} <= {"bytes=0-0", "bytes=0-65535"}
    kept = [path.name for path in folder.rglob("*") if path.is_file()]
    assert len([name for name in kept if name.endswith(".rpi")]) == 2
    assert len([name for name in kept if name.endswith(".blocks")]) == 2
    assert not [name for name in kept if "S3CR3T" in name]


def test_the_hub_gets_its_bearer_and_a_redirect_is_remembered(program, folder, store, monkeypatch):
    """/resolve/ sends the bearer's owner elsewhere; there, the bearer is not seen."""
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
def rclone(program, folder, bucket):
    """A tape in the bucket."""
    tape = make_tape(program, folder, indexed=True)
    copy_tape(tape, bucket)
    tape.config["sources"] = ["s3://b/*.bin"]
    return tape


def test_a_bucket_of_rclone(program, folder, rclone, monkeypatch):
    finish(program, folder, rclone)
    for pattern in "s3://b/", "s3://b/t?pe.*":
        assert "s3://b/tape.bin" in output_of(program, "inspect", pattern)
    refused(program, "inspect", "s3://b/x*", texts=["no object matches"])
    refused(program, "inspect", "s3://none/*", texts=["NoSuchBucket"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "WR0NG")
    said = refused(program, "inspect", "s3://b/tape.bin", texts=["403", "the environment"])
    assert not re.search("WR0NG|KEYID|Signature=", str(said))


@pytest.mark.parametrize("place", ["profile", "process", "container", "container file", "instance"])
def test_where_keys_are_looked_for(program, folder, rclone, monkeypatch, tmp_path, place):
    """In the order of AWS's tools; one of them at a time."""
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
    elif place.startswith("container"):
        monkeypatch.delenv("AWS_PROFILE")
        (answers / "role").write_text(made)
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{endpoint.base}/role")
        if place == "container":
            monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "T0KEN")
        else:  # as EKS does
            (tmp_path / "token").write_text("T0KEN\n")
            monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", f"{tmp_path}/token")
    else:
        monkeypatch.delenv("AWS_PROFILE")
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint.base)
        endpoint.serve = lambda handler: instance(handler, made)
    try:
        assert "s3://b/tape.bin" in output_of(program, "inspect", "s3://b/tape.bin")
        if place.startswith("container"):
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
    private, public = certificate(folder, "DNS:localhost", "IP:127.0.0.1")
    key_id, secret = KEYS.values()
    keys = ["--access-key", key_id, "--secret-key", secret]
    tls = ["--tls-cert", public, "--tls-key", private]
    trouble = ["--latency-ms", "2", "--error-rate", "0.05", "--fault-seed", "1"]
    arguments = ["--port", "PORT", *keys, *tls, *trouble]
    with server("hadro", folder, folder / "buckets", *arguments) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{port}")
        monkeypatch.setenv("AWS_REGION", "eu-west-2")
        for name, value in KEYS.items():
            monkeypatch.setenv(name, value)
        refused(program, "inspect", "s3://b/tape.bin", texts=["certificate"])
        monkeypatch.setenv("AWS_CA_BUNDLE", str(public))
        tape.config["sources"] = ["s3://b/tape.bin"]
        finish(program, folder, tape)


def test_only_http_is_asked_for_keys(program, monkeypatch):
    """By no other protocol that libcurl knows is anything sent. The control is http."""
    connections = []

    def count(listener):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(1)
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=count, args=[listener], daemon=True).start()
        host = "127.0.0.1:%d" % listener.getsockname()[1]
        for scheme, number in (("ftp", 0), ("gopher", 0), ("http", 1)):
            url = f"{scheme}://{host}/keys"
            monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
            refused(program, "inspect", "s3://b/x.bin", texts=["container's endpoint gave none"])
            assert min(len(connections), 1) == number, scheme
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def signed(program, folder, store, monkeypatch):
    """A store of one data set, s3://b/tape.bin, with keys; the first answers are another
    function's."""
    copy_tape(make_tape(program, folder, indexed=True), store.folder / "b")
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.base)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    serve = store.serve

    def answer_first(give):
        def act(handler):
            with store.lock:
                store.asked.append(handler.path)
            return give(handler) or serve(handler)

        store.serve = act

    return answer_first


def test_the_region_of_a_bucket_elsewhere_is_named(program, store, signed):
    """S3 answers 301 without a Location. It gets one request for each object, and no other."""
    region = {"x-amz-bucket-region": "eu-west-1"}
    body = b"<Error><Code>PermanentRedirect</Code></Error>"
    signed(lambda handler: answer(handler, 301, body, region))
    texts = ["301 PermanentRedirect", "AWS_REGION=eu-west-1"]
    refused(program, "inspect", "s3://b/tape.bin", texts=texts)
    refused(program, "inspect", "s3://b/*.bin", texts=texts)
    paths = [path.split("?")[0] for path in store.asked if "list-type" not in path]
    assert len(paths) == len(set(paths))


def test_keys_that_are_over_are_renewed(program, store, signed):
    """S3 answers 400 to them. The same request with a new signature is good; twice is refused."""
    seen, body = set(), b"<Error><Code>ExpiredToken</Code></Error>"

    def first_of_each(handler):
        path = handler.path.split("?")[0]
        is_first = path not in seen
        seen.add(path)
        return is_first and answer(handler, 400, body)

    signed(first_of_each)
    assert "s3://b/tape.bin" in output_of(program, "inspect", "s3://b/tape.bin")
    signed(lambda handler: answer(handler, 400, body))
    refused(program, "inspect", "s3://b/tape.bin", texts=["400 ExpiredToken", "the environment"])


def test_control_a_server_whose_port_a_stranger_has_does_not_serve():
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        process = subprocess.Popen(["sleep", "0.3"])
        assert not serves(stranger.getsockname()[1], process)
        process.wait()


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
    """In bytewise order, whatever characters are in them; none below another slash."""
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
    keys += ["d/.p-0.bin", "d/.p-0.idx", "d/.cache/p-0.bin"]  # as on a disk, hidden
    pages(store, [*keys, "d/p-0.txt", "d/deep/p-1.bin", "e/p-0.bin", "d/"], 3)
    expected = sorted((f"s3://b/d/{name}.bin" for name in names), key=str.encode)
    for pattern in "s3://b/d/p-*.bin", "s3://b/d/p-*.idx", "s3://b/d/*.bin", "s3://b/d/":
        found = re.findall(r"^s3://.*$", output_of(program, "inspect", pattern), re.MULTILINE)
        assert found == expected, pattern


def test_hidden_names_that_match_are_noticed(broken, store, monkeypatch):
    """The control: by the defect a key that begins with a dot matches a star."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.base)
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "1")
    pages(store, ["d/.p.bin"], 3)
    refused(broken, "inspect", "s3://b/d/*.bin", texts=["no object matches"])
    monkeypatch.setenv("RP_DEFECT", "match_hidden_keys")
    refused(broken, "inspect", "s3://b/d/*.bin", texts=["d/.p.bin: not found"])


def listing(*keys, then=""):
    here = "".join(f"<Contents><Key>{key}</Key></Contents>" for key in keys)
    return f"<ListBucketResult>{here}{then}</ListBucketResult>".encode()


def test_keys_that_were_not_asked_for_are_not_taken(program, folder, store, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.base)
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "1")
    for keys in (["x"], ["other-folder.bin"], ["deep/folder-x.bin", ""]):
        pages(store, [], 1, broken=listing(*keys))
        for pattern in "s3://b/deep/folder/", "s3://b/deep/folder/*.bin":
            refused(program, "inspect", pattern, texts=["no object matches"])
    assert not [path for path in store.asked if "list-type" not in path]


def test_a_list_without_an_end_is_refused(program, store, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.base)
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "1")
    again = "<NextContinuationToken>again</NextContinuationToken>"
    pages(store, [], 1, broken=listing(then=again))
    refused(program, "inspect", "s3://b/*.bin", texts=["s3://b", "found the same again"])


class Endless:
    """A store that names a new next page with every page, by each protocol of lists."""

    stores = {
        "s3": ("s3://b/*.bin", "list-type=2", "<ListBucketResult>{}{}</ListBucketResult>"),
        "gs": ("gs://b/*.bin", "list-type=2", "<ListBucketResult>{}{}</ListBucketResult>"),
        "azure": (
            "http://account.blob.core.windows.net/b/*.bin",
            "comp=list",
            "<EnumerationResults>{}{}</EnumerationResults>",
        ),
        "hub": ("hf://datasets/o/n/*.bin", "recursive=", "[{}]"),
    }

    def __init__(self, store, monkeypatch, name, entry=""):
        self.url, self.asks, self.body = self.stores[name]
        self.store, self.name, self.entry, self.count = store, name, entry, 0
        for variable in "AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST", "HF_ENDPOINT", "http_proxy":
            monkeypatch.setenv(variable, store.base)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "1")
        store.serve = self.serve

    def serve(self, handler):
        assert self.asks in handler.path
        self.count += 1
        element = "NextMarker" if self.name == "azure" else "NextContinuationToken"
        token = f"<{element}>{self.count}</{element}>"
        link = f'<{self.store.base}/x?recursive=true&cursor={self.count}>; rel="next"'
        body = self.body.format(self.entry, token).encode()
        return answer(handler, 200, body, {"Link": link} if self.name == "hub" else {})


@pytest.mark.parametrize("name", Endless.stores)
def test_ever_new_pages_are_refused(program, store, monkeypatch, name):
    endless = Endless(store, monkeypatch, name)
    texts = [endless.url.split("/*")[0], "at most 1000 pages in a row without an object"]
    refused(program, "inspect", endless.url, texts=texts)
    assert endless.count == 1001


@pytest.mark.skipif("RP_LONG" not in os.environ, reason="RP_LONG: a hundred thousand pages")
def test_ever_new_pages_with_keys_are_refused(program, store, monkeypatch):
    endless = Endless(store, monkeypatch, "s3", entry="<Key>a</Key>")
    texts = ["s3://b", "at most 100000 pages", "narrower"]
    refused(program, "inspect", endless.url, texts=texts, timeout=1200)
    assert endless.count == 100001


@pytest.mark.skipif("RP_LONG" not in os.environ, reason="RP_LONG: ten million keys")
def test_a_list_that_is_too_long_is_refused(program, store, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.base)
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "1")
    serve, body = store.serve, "<Key>a</Key>" * 600000

    def list_pages(handler):
        if "list-type" not in handler.path:
            return serve(handler)
        with store.lock:
            store.asked.append(handler.path)
        then = f"<NextContinuationToken>{len(store.asked)}</NextContinuationToken>"
        page = f"<ListBucketResult>{body}{then}</ListBucketResult>" if len(store.asked) < 20 else ""
        return answer(handler, 200, page.encode())

    store.serve = list_pages
    texts = ["s3://b", "at most 10000000 objects", "narrower pattern"]
    refused(program, "inspect", "s3://b/*", texts=texts)
    assert len(store.asked) == 17


KEY = "<Contents><Key>x.bin</Key></Contents>"


@pytest.mark.parametrize("page, word", [
    (f"<ListBucketResult>{KEY}", "</ListBucketResult> at its end"),
    (f"<ListBucketResult>{KEY}<Contents><Key>y.b", "</ListBucketResult> at its end"),
    (f"<ListBucketResult>{KEY}\0</ListBucketResult>", "</ListBucketResult> at its end"),
    (f"<ListBucketResult><IsTruncated>true</IsTruncated>{KEY}</ListBucketResult>",
     "<NextContinuationToken> of a list that continues")])
def test_a_listing_without_its_end_is_refused(program, broken, store, monkeypatch, page, word):
    """A run would train on a part of the corpus. The control takes the part that is there."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.base)
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "1")
    pages(store, [], 1, broken=page.encode())
    refused(program, "inspect", "s3://b/*.bin", texts=["s3://b", word])
    monkeypatch.setenv("RP_DEFECT", "trust_cut_listing")
    said = subprocess.run([broken, "inspect", "s3://b/*.bin"], capture_output=True, text=True)
    assert word not in said.stderr, said.stderr


def test_a_key_is_text_of_xml(program, store, monkeypatch):
    """However a server writes its characters, and with attributes that it may have."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.base)
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "1")
    keys = ["p&#233;.bin", "p&#xe9;.bin", "<![CDATA[p\u00e9.bin]]>", "p<!-- -->\u00e9.bin"]
    for key in keys:
        pages(store, [], 1, broken=listing(key).replace(b"<Key>", b"<Key a='b'>"))
        refused(program, "inspect", "s3://b/*.bin", texts=["b/p\u00e9.bin: not found"])
    for page in listing("p&#1;.bin"), listing("p.bin", then="&#1;"):
        pages(store, [], 1, broken=page)
        refused(program, "inspect", "s3://b/*.bin", texts=["a name that XML cannot hold"])


def test_entities_that_grow_are_refused(program, store, monkeypatch):
    """A page of a kilobyte that stands for gigabytes costs little, and no object."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.base)
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "1")
    grows = "".join(f"<!ENTITY e{i} '{f'&e{i - 1};' * 10}'>" for i in range(1, 10))
    head = f"<!DOCTYPE ListBucketResult [<!ENTITY e0 'xxxxxxxxxx'>{grows}]>".encode()
    pages(store, [], 1, broken=head + listing("&e9;"))
    refused(program, "inspect", "s3://b/*.bin", texts=["s3://b"])


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
