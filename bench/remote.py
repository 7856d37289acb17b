# SPDX-License-Identifier: Apache-2.0
"""A corpus behind HTTP, read in blocks, against a bare libcurl program at the same depth.

    build/venv/bin/python bench/remote.py --build build [--tokens 200000000] [--rounds 5]

The server is a process of its own on this machine. It sends ranges by sendfile, and waits before
each answer: 0 ms, or 50. A round fetches the object with ringpack_ranges and then serves it with an
engine (`shuffle: block`, three epochs, profile min, no cache), the other way round in every second
round; each in ranges of 8 MiB, 16 at a time. Reported are bytes a second, CPU seconds a GB, and the
median of the ratios within a round. The engine's figures have all that it does with the tokens: it
packs them and hands them to a trainer. Its clock runs from `ready` to the trainer's end.
"""

import multiprocessing
import os
import re
import socket
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from alone import run_alone  # noqa: E402
from engine import Engine, summarise  # noqa: E402

RANGE_BYTES, DEPTH = 8 << 20, 16
DELAYS_MS = 0, 50


# ---- the server ---------------------------------------------------------------------------------


def answer(connection, folder, delay_s, request):
    path = folder / request.split(b" ", 2)[1].decode().lstrip("/")
    time.sleep(delay_s)
    if not path.is_file():
        connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        return
    size = path.stat().st_size
    asked = re.search(rb"[Rr]ange: bytes=(\d+)-(\d+)", request)
    first, last = (int(asked[1]), min(int(asked[2]), size - 1)) if asked else (0, size - 1)
    head = f"HTTP/1.1 {206 if asked else 200} OK\r\nETag: \"{size}\"\r\n"
    if asked:
        head += f"Content-Range: bytes {first}-{last}/{size}\r\n"
    connection.sendall(f"{head}Content-Length: {last + 1 - first}\r\n\r\n".encode())
    with path.open("rb") as file:
        while first <= last:
            first += os.sendfile(connection.fileno(), file.fileno(), first, last + 1 - first)


def talk(connection, folder, delay_s):
    request = b""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        while data := connection.recv(1 << 16):
            request += data
            while b"\r\n\r\n" in request:
                one, request = request.split(b"\r\n\r\n", 1)
                answer(connection, folder, delay_s, one)
    except OSError:  # the client has its bytes
        pass
    finally:
        connection.close()


def listen(folder, delay_s, port):
    with socket.create_server(("127.0.0.1", 0), backlog=256) as server:
        port.send(server.getsockname()[1])
        while True:
            connection, _ = server.accept()
            threading.Thread(target=talk, args=[connection, folder, delay_s], daemon=True).start()


class Server:
    def __init__(self, folder, delay_ms):
        mine, its = multiprocessing.Pipe()
        arguments = [folder, delay_ms / 1000, its]
        self.process = multiprocessing.Process(target=listen, args=arguments, daemon=True)
        self.process.start()
        self.base = f"http://127.0.0.1:{mine.recv()}"

    def close(self):
        self.process.terminate()
        self.process.join()


# ---- the measurements ---------------------------------------------------------------------------


def bare(bench, program, url, size):
    found = bench.ask(program, url, str(size), str(RANGE_BYTES), str(DEPTH))
    return size / found["seconds"], 1e9 * found["cpu_seconds"] / size


def engine(bench, url, size, expected):
    keys = {"sources": url, "profile": "min", "shuffle": "block", "block_documents": 16384,
            "window_blocks": 4, "io_depth": DEPTH}
    with Engine(bench, bench.task(**keys), "--fresh") as served:
        with bench.trainer() as report:
            found = report()
            seconds = time.monotonic() - served.ready
        served.end()
    bench.check("tokens", expected, found["tokens"])
    size *= bench.settings["epochs"]
    return size / seconds, 1e9 * served.cpu_seconds / size


def measure(bench, corpus, rounds):
    os.environ["XDG_CACHE_HOME"] = str(bench.scratch / "cache")
    program = str(Path(bench.program).parent / "ringpack_ranges")
    bench.warm()
    size, samples = corpus.stat().st_size, []
    expected = bench.plan(bench.task(shuffle="block"))["tokens"]
    for number in range(rounds):
        sample = {}
        for delay in DELAYS_MS:
            server = Server(corpus.parent, delay)
            url = f"{server.base}/{corpus.name}"
            ways = [("bare", lambda: bare(bench, program, url, size)),
                    ("engine", lambda: engine(bench, url, size, expected))]
            try:
                for name, way in ways[:: 1 if number % 2 == 0 else -1]:
                    sample[name, delay], sample[f"{name}_cpu", delay] = way()
            finally:
                server.close()
        samples.append(sample)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return {"by_delay": report(samples)}


def report(samples):
    result = {}
    print("| before each answer | libcurl, MB/s | engine, MB/s | per libcurl "
          "| libcurl, CPU s/GB | engine, CPU s/GB |")
    print("|---|---:|---:|---:|---:|---:|")
    for delay in DELAYS_MS:
        names = "bare", "engine", "bare_cpu", "engine_cpu"
        own = {name: summarise([sample[name, delay] for sample in samples]) for name in names}
        own["ratio"] = statistics.median(s["engine", delay] / s["bare", delay] for s in samples)
        result[f"{delay} ms"] = own
        rates = [own[name]["median"] / 1e6 for name in names[:2]]
        cpu = [own[name]["median"] for name in names[2:]]
        print(f"| {delay} ms | {rates[0]:.0f} | {rates[1]:.0f} | {own['ratio']:.2f} "
              f"| {cpu[0]:.2f} | {cpu[1]:.2f} |")
    return result


if __name__ == "__main__":
    run_alone(__doc__, 200_000_000, 5, 3, measure)
