# SPDX-License-Identifier: Apache-2.0
"""Stores for the tests of remote corpora: one of our own that misbehaves on command, and real ones
(rclone, hadro), which check signatures.

Flow: a Tape writes a corpus into a folder → a store serves the folder → an engine reads it by URL →
every row must be the same as from a disk."""

import contextlib
import hashlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from failure_kit import Tape
from refusal_kit import run
from stream_kit import PATIENCE, Engine

VENV_BIN = Path(sys.executable).parent


class Store:
    """Serves a folder with ranges and ETags over HTTP/1.1. A fault is a function of the handler,
    which gives another answer to a range of a token file (or of another suffix), or returns
    False."""

    def __init__(self, folder):
        self.folder, self.fault, self.asked, self.headers = Path(folder), None, [], []
        self.lock, self.contents, self.tls, self.suffix = threading.Lock(), {}, None, ".bin"
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self):
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    store.serve(self)

            do_PUT = do_GET

            def do_CONNECT(self):
                with contextlib.suppress(ssl.SSLError, ConnectionResetError):
                    tunnel(self, store.tls)

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256  # an engine opens all of its connections at once

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None  # clients that end connections
        self.base = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=[0.02], daemon=True).start()

    def url(self, path):
        return f"{self.base}/{Path(path).name}"

    def content_of(self, path):
        """Bytes and ETag, read once for each content."""
        info = path.stat()
        stamp = info.st_ino, info.st_mtime_ns, info.st_size
        known = self.contents.get(path)
        if not known or known[0] != stamp:
            content = path.read_bytes()
            known = stamp, content, '"%s"' % hashlib.md5(content).hexdigest()
            self.contents[path] = known
        return known[1:]

    def serve(self, handler):
        name = handler.path.split("?")[0].lstrip("/")
        with self.lock:
            self.asked.append(handler.path)
            self.headers.append(dict(handler.headers))
        path = self.folder / name
        if not path.is_file():
            return answer(handler, 404, b"<Error><Code>NoSuchKey</Code></Error>")
        handler.content, handler.etag = self.content_of(path)
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        handler.first, handler.last = (
            (int(found[1]), min(int(found[2]), len(handler.content) - 1))
            if found
            else (0, len(handler.content) - 1)
        )
        fault = self.fault if name.endswith(self.suffix) else None
        if not found:
            return answer(handler, 200, handler.content, {"ETag": handler.etag})
        return (fault is not None and fault(handler)) or answer_range(handler)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def tunnel(handler, tls):
    """A proxy that poses as the requested host: the rest comes by TLS."""
    handler.send_response(200)
    handler.end_headers()
    handler.connection = tls.wrap_socket(handler.connection, server_side=True)
    handler.rfile = handler.connection.makefile("rb")
    handler.wfile = handler.connection.makefile("wb", 0)
    handler.close_connection = False


def certificate(folder, *names):
    """A new key and a certificate of these names, which is its own authority; their files."""
    key, made = folder / "key.pem", folder / "cert.pem"
    names = ["-subj", "/CN=localhost", "-addext", f"subjectAltName={','.join(names)}"]
    files = ["-keyout", key, "-out", made, "-days", "2"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *names]
    subprocess.run(command, check=True, capture_output=True)
    return key, made


def answer(handler, status, body=b"", headers=()):
    handler.send_response(status)
    for name, value in dict(headers).items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
    return True


def range_headers(handler, **changes):
    return {
        "ETag": handler.etag,
        "Content-Range": f"bytes {handler.first}-{handler.last}/{len(handler.content)}",
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }


def answer_range(handler, status=206, **changes):
    body = handler.content[handler.first : handler.last + 1]
    return answer(handler, status, body, range_headers(handler, **changes))


# ---- faults -------------------------------------------------------------------------------------


def whole_object(handler):
    """200 to a range, and all of the object."""
    return answer(handler, 200, handler.content, {"ETag": handler.etag})


def wrong_range(handler):
    """Other bytes than requested, and says so."""
    first = handler.first - 2 if handler.first >= 2 else handler.first + 2
    says = f"bytes {first}-{handler.last}/{len(handler.content)}"
    return answer_range(handler, Content_Range=says)


def other_etag(handler):
    return answer_range(handler, ETag='"another"')


def other_size(handler):
    size = len(handler.content) + 2
    return answer_range(handler, Content_Range=f"bytes {handler.first}-{handler.last}/{size}")


def gone(handler):
    return answer(handler, 404, b"<Error><Code>NoSuchKey</Code></Error>")


def half_body(handler):
    """Half of the promised bytes, and the connection ends."""
    body = handler.content[handler.first : handler.last + 1]
    handler.send_response(206)
    for name, value in range_headers(handler).items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2])
    handler.close_connection = True
    return True


def silence(handler):
    """A few bytes, and then silence for longer than any wait."""
    handler.send_response(206)
    for name, value in range_headers(handler).items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(handler.last + 1 - handler.first))
    handler.end_headers()
    handler.wfile.write(handler.content[handler.first : handler.first + 1])
    time.sleep(PATIENCE)
    return True


def busy(handler):
    return answer(handler, 503, b"<Error><Code>SlowDown</Code></Error>", {"Retry-After": "1"})


def reset(handler):
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True
    return True


def circle(handler):
    return answer(handler, 302, b"", {"Location": handler.path})


def refuse(handler):
    return answer(handler, 403, b"<Error><Code>AccessDenied</Code><Signed>secret</Signed></Error>")


def after(count, fault):
    """Good answers first. The start queries an object once."""
    seen = []

    def act(handler):
        seen.append(1)
        return fault(handler) if len(seen) > count else False

    return act


def sometimes(one_in, fault):
    """One in that number of answers is bad."""
    seen = []

    def act(handler):
        seen.append(1)
        return fault(handler) if len(seen) > 1 and len(seen) % one_in == 0 else False

    return act


# ---- real servers -------------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def sockets_of(pid):
    """Inodes of the sockets of a process and of its children."""
    found = set()
    with contextlib.suppress(OSError):  # one that ends meanwhile
        for entry in os.scandir(f"/proc/{pid}/fd"):
            found.update(re.findall(r"^socket:\[(\d+)\]$", os.readlink(entry.path)))
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                found |= sockets_of(child)
    return found


def listeners(port):
    """Inodes of the sockets that listen on that port, of anybody."""
    text = "".join(path.read_text() for path in Path("/proc/net").glob("tcp*"))
    lines = [line.split() for line in text.splitlines()]
    return {line[9] for line in lines if line[1].endswith(f":{port:04X}") and line[3] == "0A"}


def serves(port, process):
    """Whether it does, as soon as that is known: it ends where another process has its port."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        if listeners(port) & sockets_of(process.pid):
            return True
        time.sleep(0.02)
    return False


def start_server(program, folder, log, arguments):
    path = VENV_BIN / program
    if not path.exists():
        pytest.skip(f"needs {program} (tools/setup)")
    for _ in range(5):
        port = free_port()
        command = [str(path), *(str(a).replace("PORT", str(port)) for a in arguments)]
        with open(log, "wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder)
        if serves(port, process):
            return process, port
        process.kill()
        process.wait()
    raise AssertionError(f"the server did not start: {log.read_text()}")


@contextlib.contextmanager
def server(program, folder, *arguments):
    """A server of the virtual environment; `PORT` stands for its port. Gives the port."""
    log = Path(folder) / f"{program}.log"
    process, port = start_server(program, folder, log, arguments)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE)


def copy_tape(tape, folder):
    """The files of a tape, into the folder that a bucket is."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = tape.path[: -len(".bin")]
    for suffix in ".bin", ".idx", ".bin.rpi":
        if os.path.exists(stem + suffix):
            shutil.copy(stem + suffix, folder)
    return Path(tape.path).name


# ---- shared by tests -----------------------------------------------------------------------------

KEYS = {"AWS_ACCESS_KEY_ID": "KEYID", "AWS_SECRET_ACCESS_KEY": "SECRET/+="}
QUICK = "5,50,{},1"  # pauses in ms, seconds until it gives up, seconds of silence


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """None of this machine's own keys and proxies."""
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


@pytest.fixture
def bucket(folder, monkeypatch):
    """The folder that is the bucket `b` of rclone's server, which checks signatures; its keys are
    in the environment."""
    place = folder / "buckets" / "b"
    place.mkdir(parents=True)
    keys = ",".join(KEYS.values())
    listen = ("--addr", "127.0.0.1:PORT", "--auth-key", keys, "--dir-cache-time", "0s")
    with server("rclone", folder, "serve", "s3", place.parent, *listen) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        for name, value in KEYS.items():
            monkeypatch.setenv(name, value)
        yield place


def make_tape(program, folder, indexed=False, tokens=24000, **keys):
    tape = Tape(folder, tokens, **keys)
    if indexed:
        tape.index(program)
    return tape


def to_store(tape, store):
    copy_tape(tape, store.folder)
    tape.config["sources"] = [store.url(tape.path)]
    return tape


def output_of(program, *arguments):
    done = run(program, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def serve_blocks(program, folder, config, **changes):
    """An engine that reads small blocks of documents for three epochs."""
    config = {"block_documents": 16, "window_blocks": 2, **config, "shuffle": "block", **changes}
    return Engine(program, folder, {"num_epochs": 3, "prefetch_bytes": "4m", **config})
