# SPDX-License-Identifier: Apache-2.0
"""Starts with a manifest: by the number of shards, and by the number of documents in them.

Shards are names of a few files, of eight documents that are as long as a row. Where documents are
counted, every token ends one (zeros, and `eos: 0`), so that 10^9 documents take 2 MB, and their
manifest as much as any other."""

import json
import os
import shutil
import subprocess
import sys
import time

from engine import Engine, summarise

NAMES = 50_000  # of one file; ext4 allows 65,000
TINY_DOCUMENTS = 8
ROW = 64
LARGE_DOCUMENTS = 1_000_000  # of a shard where documents are counted


class Manifest:
    def __init__(self, bench):
        self.ringpack, self.bench = bench.client(), bench
        self.place = bench.scratch / "shards"

    def _make(self, shards, documents, length):
        """A folder of `shards` names; the documents of each, and their tokens."""
        image = (b"\1\0" * (length - 1) + b"\0\0") * documents
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        for first in range(0, shards, NAMES):
            original = self.place / f"s{first:07}.bin"
            original.write_bytes(image)
            for number in range(first + 1, min(first + NAMES, shards)):
                os.link(original, self.place / f"s{number:07}.bin")

    def _index(self):
        source = {"path": str(self.place / "*.bin"), "format": "raw", "dtype": "u16", "eos": 0}
        config = {"sources": [source], "seq_len": ROW, "batch_size": 2,
                  "manifest": str(self.bench.scratch / "corpus.rpm"), "run": "bench",
                  "run_dir": str(self.bench.run_dir)}
        path = self.bench.scratch / "manifest.yaml"
        path.write_text(json.dumps(config))
        command = [self.bench.program, "index", "--json", "-c", path]
        done = subprocess.run(command, capture_output=True, check=True)
        return path, json.loads(done.stdout)

    def _first_batch_ms(self, path):
        with Engine(self.bench, {}, "-c", str(path)) as engine:
            loader = self.ringpack.Loader(
                run="bench", run_dir=self.bench.run_dir, start_engine=False)
            with loader:
                next(iter(loader)).close()
                return 1000 * (time.monotonic() - engine.begin)

    def _measure(self, shards, documents, length):
        self._make(shards, documents, length)
        path, made = self._index()
        name = f"{documents} documents in each of {shards} shards"
        self.bench.check(name, shards * documents, made["documents"])
        starts = [self._first_batch_ms(path) for _ in range(1 + self.bench.settings["repeats"])]
        found = {"shards": shards, "documents": made["documents"],
                 "index_seconds": made["seconds"], "first_batch_ms": summarise(starts[1:]),
                 "manifest_bytes": os.path.getsize(self.bench.scratch / "corpus.rpm")}
        print(f"  manifest {shards} shards, {made['documents']} documents", file=sys.stderr)
        os.unlink(self.bench.scratch / "corpus.rpm")
        shutil.rmtree(self.place)
        return found

    def starts(self):
        settings = self.bench.settings
        found = [self._measure(shards, TINY_DOCUMENTS, ROW)
                 for shards in settings["manifest_shards"]]
        for documents in settings["manifest_documents"]:
            shards = -(-documents // LARGE_DOCUMENTS)
            found.append(self._measure(shards, documents // shards, 1))
        return found
