#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The memory that `ringpack plan` reports equals an engine's, within 10 %: at two sizes of its
# rings, reading and mapped; and the number of documents is no part of it. The memory of a catch-up
# flow has a number of its own, which is 0 for an engine with one rank.
source "${0%/*}/kit.sh"

PYTHONPATH=$RP_SOURCE_DIR/bench "$python" - <<'PYTHON'
import array, json, os, subprocess
from resident import resident_in_the_end

ringpack = os.environ["RINGPACK"]


def make(name, documents):
    """A Megatron corpus of documents of 100 tokens; all but the first tokens are a hole."""
    with open(name + ".bin", "wb") as file:
        file.truncate(200 * documents)
    with open(name + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + bytes([8]))
        file.write(documents.to_bytes(8, "little") + (documents + 1).to_bytes(8, "little"))
        file.write(array.array("i", [100]).tobytes() * documents)
        for first in range(0, documents, 1 << 20):
            last = min(first + (1 << 20), documents)
            file.write(array.array("q", range(200 * first, 200 * last, 200)).tobytes())
        file.write(array.array("q", range(documents + 1)).tobytes())
    return name + ".bin"


def measure(corpus, *options):
    """(bytes that are resident and no file's, what was said before)"""
    config = ["--sources", corpus, "--seq-len", "2048", "--batch-size", "4", "--num-epochs",
              "endless", *options]
    said = subprocess.run([ringpack, "plan", "--json", "--rows", "100", *config], check=True,
                          capture_output=True, text=True).stdout
    read, write = os.pipe()
    engine = subprocess.Popen([ringpack, "serve", "--run-dir", ".", "--ready-fd", str(write),
                               *config], pass_fds=[write], stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        assert os.read(read, 16) == b"ready\n"
        subprocess.run([ringpack, "read", "--run-dir", ".", "--batches", "200"], check=True,
                       stdout=subprocess.DEVNULL)
        found = resident_in_the_end(engine.pid)
    finally:
        engine.kill()
        engine.wait()
        os.close(read)
    return found, json.loads(said)["memory"]


small, large = make("small", 10_000), make("large", 4_000_000)
sizes = {}
for corpus in small, large:
    for options in (["--io", "pread", "--prefetch-bytes", "16m"],
                    ["--io", "pread", "--prefetch-bytes", "96m", "--prefetch-factor", "64",
                     "--profile", "hf"],
                    ["--io", "mapped", "--prefetch-factor", "64", "--profile", "full"]):
        found, said = measure(corpus, *options)
        expected = said["mapped_bytes" if "mapped" in options else "reading_bytes"]
        print(f"{corpus:10s} {' '.join(options):64s} {found / 2**20:8.2f} MiB,"
              f" {expected / 2**20:8.2f} said")
        assert abs(found / expected - 1) <= 0.1, (found, expected)
        sizes.setdefault(tuple(options), []).append(found)
for few, many in sizes.values():
    assert abs(many / few - 1) <= 0.02, "memory grows with the number of documents"


def forecast(ranks):
    config = ["--sources", small, "--seq-len", "2048", "--batch-size", "4", "--dp-world-size",
              ranks]
    said = subprocess.run([ringpack, "plan", "--json", "--rows", "100", *config], check=True,
                          capture_output=True, text=True).stdout
    return json.loads(said)["memory"]["catch_up_bytes"]


assert forecast("1") == 0 and 1 << 19 < forecast("2") < 1 << 23
print("memory: as said")
PYTHON
