# SPDX-License-Identifier: Apache-2.0
"""Why a store cannot be reached: its certificate, the proxy in front of it, or its way of
addressing. Each reason has words of its own."""

import socket
import ssl
import subprocess
import threading

import pytest
from refusal_kit import refused, run
from remote_kit import (  # with the fixtures `environment` and `store`
    QUICK,
    answer,
    copy_tape,
    environment,
    make_tape,
    output_of,
    store,
)

CERTIFICATES = {  # its name, its days, whether its authority is known, and the message
    "good": ("IP:127.0.0.1", "20240101000000Z", "20490101000000Z", True, None),
    "unknown": ("IP:127.0.0.1", "20240101000000Z", "20490101000000Z", False, "is not trusted"),
    "over": ("IP:127.0.0.1", "20200101000000Z", "20210101000000Z", True, "has expired"),
    "early": ("IP:127.0.0.1", "20480101000000Z", "20490101000000Z", True, "is not valid yet"),
    "other": ("DNS:minio.example.org", "20240101000000Z", "20490101000000Z", True, "another host"),
}
CONFIG = """[ca]
default_ca=c
[c]
database={0}/index.txt
serial={0}/serial
new_certs_dir={0}
default_md=sha256
policy=p
[p]
commonName=supplied
"""


def make_certificate(folder, name, first, last):
    """A key and a certificate of that name and those days, which is its own authority."""
    key, request, made = (folder / f"made.{end}" for end in ("key", "csr", "pem"))
    (folder / "index.txt").write_text("")
    (folder / "serial").write_text("01")
    (folder / "ext").write_text(f"subjectAltName={name}\nbasicConstraints=CA:true\n")
    (folder / "config").write_text(CONFIG.format(folder))
    new = ["openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"]
    subprocess.run([*new, "-keyout", key, "-out", request], check=True, capture_output=True)
    sign = ["openssl", "ca", "-batch", "-selfsign", "-notext", "-config", folder / "config"]
    sign += ["-keyfile", key, "-in", request, "-out", made, "-extfile", folder / "ext"]
    sign += ["-startdate", first, "-enddate", last]
    subprocess.run(sign, check=True, capture_output=True)
    return key, made


@pytest.mark.parametrize("kind", CERTIFICATES)
def test_why_a_certificate_is_refused(program, folder, store, monkeypatch, kind):
    name, first, last, is_known, said = CERTIFICATES[kind]
    copy_tape(make_tape(program, folder, indexed=True), store.folder / "b")
    key, made = make_certificate(folder, name, first, last)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made, key)
    store.server.socket = tls.wrap_socket(store.server.socket, server_side=True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.base.replace("http:", "https:"))
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "1")
    if is_known:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(made))
    if said is None:
        assert "tape.bin" in output_of(program, "inspect", "s3://b/tape.bin")
    else:
        refused(program, "inspect", "s3://b/tape.bin", texts=[said])


@pytest.mark.parametrize("status", [403, 407, 502])
def test_a_proxy_that_refuses_is_named(program, monkeypatch, status):
    """And its password is not. The store is not blamed; 502 is tried again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse():
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                connection.recv(65536)
                connection.sendall(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode())
                connection.close()

        threading.Thread(target=refuse, daemon=True).start()
        place = "127.0.0.1:%d" % listener.getsockname()[1]
        monkeypatch.setenv("https_proxy", f"http://user:S3CR3T@{place}")
        monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "1")
        monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store.invalid:9000")
        monkeypatch.setenv("RINGPACK_OBJECT_PATIENCE", QUICK.format(1))
        done = run(program, "inspect", "s3://b/x.bin")
        listener.shutdown(socket.SHUT_RDWR)
    assert done.returncode != 0 and "S3CR3T" not in done.stderr
    assert f"the proxy {place} (https_proxy) refuses" in done.stderr, done.stderr
    assert f"HTTP status {status}" in done.stderr


def test_requests_ask_for_bytes_as_they_are_stored(program, folder, store):
    tape = make_tape(program, folder, indexed=True)
    copy_tape(tape, store.folder)
    output_of(program, "inspect", store.url(tape.path))
    assert {headers.get("Accept-Encoding") for headers in store.headers} == {"identity"}


def test_a_bucket_whose_readers_pay(program, folder, store, monkeypatch):
    copy_tape(make_tape(program, folder, indexed=True), store.folder / "b")
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.base)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "K")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "S")
    serve = store.serve

    def check(handler):
        if "&x-amz-request-payer=requester&X-Amz-Signature=" in handler.path:
            return serve(handler)
        return answer(handler, 403, b"<Error><Code>AccessDenied</Code></Error>")

    store.serve = check
    done = run(program, "inspect", "s3://b/tape.bin")
    assert "AWS_REQUEST_PAYER=requester" in done.stderr
    monkeypatch.setenv("AWS_REQUEST_PAYER", "nobody")
    refused(program, "inspect", "s3://b/tape.bin", texts=["expected requester, found `nobody`"])
    monkeypatch.setenv("AWS_REQUEST_PAYER", "requester")
    assert "tape.bin" in output_of(program, "inspect", "s3://b/tape.bin")


def test_a_store_whose_buckets_are_hosts(program, folder, store, monkeypatch, tmp_path):
    """Also by the profile. A refusal names the setting."""
    copy_tape(make_tape(program, folder, indexed=True), store.folder)
    port = store.base.rpartition(":")[2]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://localhost:{port}")
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "1")
    serve = store.serve

    def check(handler):
        if handler.headers["Host"] == f"b.localhost:{port}":
            return serve(handler)
        return answer(handler, 403, b"<Error><Code>SecondLevelDomainForbidden</Code></Error>")

    store.serve = check
    assert "AWS_S3_ADDRESSING_STYLE=virtual" in run(program, "inspect", "s3://b/tape.bin").stderr
    (tmp_path / ".aws").mkdir()
    config = "[default]\ns3 =\n  max_queue_size = 1\n  addressing_style = virtual\nregion = x\n"
    (tmp_path / ".aws" / "config").write_text(config)
    assert "tape.bin" in output_of(program, "inspect", "s3://b/tape.bin")


def test_a_fetched_index_that_is_cut_names_its_object(program, folder, store):
    """And not only the file in the cache, which the user did not write."""
    tape = make_tape(program, folder)
    copy_tape(tape, store.folder)
    index = store.folder / "tape.idx"
    index.write_bytes(index.read_bytes()[:100])
    url = store.url(tape.path)
    refused(program, "inspect", url, texts=[f"{url}: "])
    arguments = "--seq-len=64", "--batch-size=2", "--shuffle=block", f"--run-dir={folder}"
    refused(program, "serve", f"--source={url}", *arguments, texts=[f"{url}: "])
