# SPDX-License-Identifier: Apache-2.0
"""Starts with a corpus index: by the number of shards, and by the number of documents in them.

Shards are names of a few files, of eight documents that are as long as a row. Where documents are
counted, every token ends one (zeros, and `eos: 0`), so that 10^9 documents take 2 MB, and their
corpus index as much as any other. Corpus indexes take turns: the time of a start beyond one of a
single shard is a difference of two starts of the same turn. The same is measured with a first batch
of 512 documents, nearly each in another shard if there are many."""

import json
import os
import shutil
import subprocess
import sys
import time

from engine import Engine, summarise
from tasks.several import several_by_turns

NAMES = 50_000  # links to one file; ext4 allows 65,000
TINY_DOCUMENTS = 8
ROW = 64
LARGE_DOCUMENTS = 1_000_000  # in a shard whose documents are counted
# Documents of ROW tokens; eight of them, again and again, where there is one shard
BATCH_OF_512 = "--seq-len", "4096", "--batch-size", "8", "--num-epochs", "0"


class Shards:
    """The shards of one corpus index, in a folder of their own."""

    def __init__(self, bench, shards, documents, length):
        self.bench, self.count, self.documents = bench, shards, shards * documents
        self.place = bench.scratch / f"index-{shards}-{documents}"
        self.index, self.config = self.place / "corpus.rpi", self.place / "config.yaml"
        image = (b"\1\0" * (length - 1) + b"\0\0") * documents
        (self.place / "shards").mkdir(parents=True)
        for first in range(0, shards, NAMES):
            original = self.place / "shards" / f"s{first:07}.bin"
            original.write_bytes(image)
            for number in range(first + 1, min(first + NAMES, shards)):
                os.link(original, self.place / "shards" / f"s{number:07}.bin")
        source = {"path": str(self.place / "shards" / "*.bin"), "format": "raw", "dtype": "u16",
                  "eos": 0}
        self.config.write_text(json.dumps({
            "sources": [source], "seq_len": ROW, "batch_size": 2, "index": str(self.index),
            "run": "bench", "run_dir": bench.run_dir}))

    def index_seconds(self):
        """The time to make the corpus index from nothing."""
        self.index.unlink(missing_ok=True)
        command = [self.bench.program, "index", "--json", "-c", self.config]
        done = subprocess.run(command, capture_output=True, check=True)
        made = json.loads(done.stdout)
        name = f"documents of {self.place.name}"
        self.bench.check(name, self.documents, made["documents"])
        print(f"  corpus index {self.count} shards, {self.documents} documents", file=sys.stderr)
        return made["seconds"]

    def first_batch_ms(self, *options):
        with Engine(self.bench, {}, "-c", str(self.config), *options) as engine:
            loader = self.bench.client().Loader(
                run="bench", run_dir=self.bench.run_dir, start_engine=False)
            with loader:
                next(iter(loader)).close()
                return 1000 * (time.monotonic() - engine.begin)

    def first_batch_of_512_ms(self):
        return self.first_batch_ms(*BATCH_OF_512)

    def summary(self, indexing, starts, starts_of_first):
        return {"shards": self.count, "documents": self.documents,
                "index_seconds": summarise(indexing), "first_batch_ms": summarise(starts),
                "above_first_ms": differences(starts, starts_of_first),
                "index_bytes": os.path.getsize(self.index)}


def differences(values, others):
    return summarise([value - other for value, other in zip(values, others)])


class CorpusIndex:
    def __init__(self, bench):
        self.bench = bench

    def _all_shards(self):
        settings = self.bench.settings
        yield from (Shards(self.bench, shards, TINY_DOCUMENTS, ROW)
                    for shards in settings["corpus_index_shards"])
        for documents in settings["corpus_index_documents"]:
            shards = -(-documents // LARGE_DOCUMENTS)
            yield Shards(self.bench, shards, documents // shards, 1)

    def starts(self):
        settings, made = self.bench.settings, list(self._all_shards())
        of_shards = len(settings["corpus_index_shards"])  # the first of them
        indexing = several_by_turns([each.index_seconds for each in made], settings["seeks"])
        for each in made:
            each.first_batch_ms()  # the first one reads from the disk; not counted
        starts = several_by_turns([each.first_batch_ms for each in made],
                                  settings["repeats"] * settings["starts"])
        found = [each.summary(*times, starts[0]) for each, *times in zip(made, indexing, starts)]
        long = several_by_turns([each.first_batch_of_512_ms for each in made[:of_shards]],
                                settings["repeats"] * settings["starts"])
        for row, values in zip(found, long):
            row["first_batch_of_512_ms"] = summarise(values)
            row["above_first_of_512_ms"] = differences(values, long[0])
        for each in made:
            shutil.rmtree(each.place)
        return found
