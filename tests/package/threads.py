# SPDX-License-Identifier: Apache-2.0
"""Two ranks in two threads of one process, for tests/package/free_threaded: threads.py FOLDER

Each thread takes the batches of its rank and keeps some of them longer than a step. Together they
must have the rows of a single rank with the same global batches, and the interpreter's lock must
stay off.
"""

import sys
import threading
from pathlib import Path

import numpy
import ringpack

TOKENS = Path(sys.argv[1]) / "tokens.bin"
CORPUS = [{"path": str(TOKENS), "format": "raw", "dtype": "u16", "eos": 0}]
RANKS, ROWS = 2, 4


def loader(rank, ranks, rows):
    return ringpack.Loader(corpus=CORPUS, seq_len=256, batch_size=rows, seed=1, num_epochs=20,
                           dp_rank=rank, dp_world_size=ranks, profile="hf",
                           prefetch_factor=32)  # fmt: skip


def rows_of(rank, ranks, rows, into):
    held = []
    with loader(rank, ranks, rows) as batches:
        for number, batch in enumerate(batches):
            ids = batch["input_ids"]
            into.append((ids.copy(), batch["labels"].copy()))
            if number % 5 == 0:
                held.append((number, ids))
            if len(held) == 3:
                earlier, kept = held.pop(0)
                assert numpy.array_equal(kept, into[earlier][0]), f"batch {earlier} has changed"
                del kept


def main():
    numpy.random.default_rng(1).integers(0, 300, 400_000, dtype="uint16").tofile(TOKENS)
    found = [[] for _ in range(RANKS)]
    threads = [threading.Thread(target=rows_of, args=(rank, RANKS, ROWS, found[rank]))
               for rank in range(RANKS)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = []
    rows_of(0, 1, RANKS * ROWS, alone)
    assert len(alone) > 100
    assert all(len(batches) == len(alone) for batches in found), "lengths differ"
    for step, (ids, labels) in enumerate(alone):
        for part, expected in enumerate((ids, labels)):
            together = numpy.concatenate([batches[step][part] for batches in found])
            assert numpy.array_equal(together, expected), f"step {step} differs"
    assert not sys._is_gil_enabled(), "the interpreter's lock was switched on"
    print(f"{len(alone)} steps of {RANKS} threads are those of one rank")


main()
