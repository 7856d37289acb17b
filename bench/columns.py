# SPDX-License-Identifier: Apache-2.0
"""Side columns, hot against memcpy and cold against fio, by the width of an entry.

    build/venv/bin/python bench/columns.py --build build/release [--rounds 30]

Each width has a corpus of its own with a column of about 800 MB. The engine and its limit take
turns (slices.py). Hot: both files are in the page cache, and the limit copies their bytes in the
order of the files, mapped, into eight batches in turn. Cold: past the page cache, and the limit is
fio on the column's file: sequential, or random with the lengths of the documents' reads. Fio and
memcpy have as many bytes for a token as the engine: of the token and of its entry. Reported are
medians of the ratios of pairs, with intervals from six pairs on.
"""

import itertools
import os
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy  # noqa: E402
from alone import run_alone  # noqa: E402
from corpora.token_corpus import aligned_reads, make_corpus  # noqa: E402
from engine import summarise  # noqa: E402
from page_cache import forget, warm  # noqa: E402
from slices import EngineSide, ratios, rates, side_by_side, take_turns  # noqa: E402
from tasks.cold import BLOCK, PAST_CACHE, Cold, FioSide, PART_MS, split_of, DEPTH  # noqa: E402

COLUMN_BYTES = 800_000_000
WIDTHS = 4, 32, 512  # bytes of an entry
SLOTS, ROWS, SEQ_LEN = 8, 8, 4096  # batches of a ring, and their size
SLICE_MS = 1000


def make_column(bench, corpus, width):
    """The column `side` of the corpus, as `ringpack column` writes it, unless it is there."""
    path = corpus.with_suffix(".side.col")
    if not path.exists():
        tokens = corpus.stat().st_size // 2
        values = bench.scratch / "side.npy"
        entries = numpy.lib.format.open_memmap(values, "w+", "<f4", (tokens, width // 4))
        for first in range(0, tokens, 1 << 20):
            entries[first : first + (1 << 20)] = numpy.arange(width // 4)
        bench.run("column", "-q", f"--sources={corpus}", "--seq-len=4096", "--batch-size=8",
                  "--column", f"side={values}")
        values.unlink()
    return path


class CopySide:
    """memcpy of the tokens and the entries of batch after batch, from mapped files."""

    def __init__(self, corpus, column, width):
        self.name, self.width, self.next = "memcpy", width, 0
        self.tokens = numpy.memmap(corpus, "u1", "r")
        self.entries = numpy.memmap(column, "u1", "r", offset=BLOCK)
        places = SEQ_LEN * ROWS
        self.slots = [(numpy.zeros(2 * places, "u1"), numpy.zeros(width * places, "u1"))
                      for _ in range(SLOTS)]
        self.batches = min(len(self.tokens) // (2 * places), len(self.entries) // (width * places))

    def run(self, ms):
        begin, cpu, places, batches = time.monotonic(), time.process_time(), SEQ_LEN * ROWS, 0
        while (seconds := time.monotonic() - begin) < ms / 1000:
            at = self.next % self.batches
            for file, slot in zip((self.tokens, self.entries), self.slots[self.next % SLOTS]):
                numpy.copyto(slot, file[at * len(slot) : (at + 1) * len(slot)])
            self.next += 1
            batches += 1
        return {"tokens": batches * places, "seconds": seconds,
                "cpu_seconds": time.process_time() - cpu}

    def check(self):
        """It has no tokens that could be checked."""

    def close(self):
        """It is a part of this process."""


def fio_of(bench, corpus, column, width, shuffle):
    cold = Cold(bench)
    cold.corpus = column
    options = ["--rw=read", "--bs=1m", "--iodepth=32"]
    bytes_per_token = width + 2
    if shuffle == "document":
        reads = Counter(aligned_reads(corpus, BLOCK)) + Counter(aligned_reads(corpus, BLOCK, width))
        options = ["--rw=randread", f"--bssplit={split_of(reads)}", f"--blockalign={BLOCK}",
                   f"--iodepth={DEPTH}"]
        tokens = corpus.stat().st_size // 2
        bytes_per_token = sum(size * count for size, count in reads.items()) / tokens
    return cold, FioSide(f"fio, {shuffle}", cold, options, bytes_per_token)


def engine_of(bench, keys, **more):
    return EngineSide(bench, "engine, side", keys, columns="side", **more)


def measure_hot(bench, keys, corpus, column, width, pairs):
    for file in corpus, column:
        warm(file)
    with side_by_side(lambda: engine_of(bench, keys),
                      lambda: CopySide(corpus, column, width)) as sides:
        return take_turns(sides, pairs, SLICE_MS)


def measure_cold(bench, keys, corpus, column, width, pairs):
    cold, fio = fio_of(bench, corpus, column, width, keys["shuffle"])
    with cold.huge_pages(), side_by_side(lambda: engine_of(bench, keys, **PAST_CACHE),
                                         lambda: fio) as sides:
        return take_turns(sides, pairs, SLICE_MS, SLICE_MS // PART_MS,
                          lambda: [forget(file) for file in (corpus, column)])


def measure(bench, _, pairs):
    result = {}
    print("| bytes of an entry | state | shuffle | GB/s of the engine | GB/s of the limit "
          "| ratio | 95 % interval, or least and most |\n|---:|---|---|---:|---:|---:|---|")
    for width in WIDTHS:
        corpus = make_corpus(bench.scratch.parent, COLUMN_BYTES // width)
        column = make_column(bench, corpus, width)
        for state, shuffle in itertools.product(("hot", "cold"), ("document", "block")):
            keys = bench.task(sources=corpus, profile="min", shuffle=shuffle)
            measured = measure_hot if state == "hot" else measure_cold
            slices, limit = measured(bench, keys, corpus, column, width, pairs).values()
            own, most = (summarise([(width + 2) * rate for rate in rates(side)])
                         for side in (slices, limit))
            ratio = summarise(ratios(rates(slices), rates(limit)))
            result[f"{width} {state} {shuffle}"] = {"engine": own, "limit": most, "ratio": ratio}
            low, high = ratio["interval"] or (min(ratio["values"]), max(ratio["values"]))
            print(f"| {width} | {state} | {shuffle} | {own['median'] / 1e9:.2f} "
                  f"| {most['median'] / 1e9:.2f} | {ratio['median']:.2f} "
                  f"| {low:.2f} to {high:.2f} |", flush=True)
        os.sync()
    return {"columns": result}


if __name__ == "__main__":
    run_alone(__doc__, 1_000_000, 30, "endless", measure)
