# SPDX-License-Identifier: Apache-2.0
"""Grain, by its own packers (`Grain`) and with a packer in its batch function (`Documents`).

Its documentation: data that is in memory already is best read with num_threads=0; mp_prefetch helps
work that Python's lock bounds, here with a buffer for several batches.
"""

import copy

import grain
import numpy

from collate import PIECES_PER_BATCH, Packer
from documents import PieceList, shifted

OPEN_ROWS = 64  # as many as ringpack has documents to choose from


class Pieces(PieceList):
    """The input of Grain's packers: a feature of each element."""

    def __getitem__(self, index):
        return {"tokens": super().__getitem__(index)}


class Loader:
    packs = True

    def __init__(self, task, source):
        self.task, self.source, self.iterator = task, source(task.corpus, task.seq_len), None

    def prepare(self):
        pass

    def start(self, stream, workers, state):
        if workers:
            options = grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=16)
            stream = stream.mp_prefetch(options)
        self.iterator = iter(stream)
        if state is not None:
            self.iterator.set_state(state)
        return self.iterator

    def shuffled(self):
        return grain.MapDataset.source(self.source).seed(0).shuffle()

    def state(self):
        return copy.deepcopy(self.iterator.get_state())

    def pieces_of(self, rows):
        """The number of pieces with about as many tokens as a number of rows."""
        return int(rows * self.task.seq_len / numpy.mean(self.source.lengths))


class Grain(Loader):
    def __init__(self, task, packer):
        super().__init__(task, Pieces)
        self.packer = packer

    def open(self, workers, state=None):
        rows = {"tokens": self.task.seq_len}
        stream = self.shuffled().to_iter_dataset(grain.ReadOptions(num_threads=0))
        if self.packer == "concat":
            stream = grain.experimental.ConcatThenSplitIterDataset(stream, length_struct=rows)
        else:
            pack = {"first_fit": grain.experimental.FirstFitPackIterDataset,
                    "best_fit": grain.experimental.BestFitPackIterDataset}[self.packer]
            stream = pack(stream, length_struct=rows, num_packing_bins=OPEN_ROWS)
        stream = stream.batch(self.task.batch_size, drop_remainder=False)
        return self.start(stream, workers, state)

    def ids(self, batch):
        return batch["tokens"].astype("<i4")

    def details(self, batch):
        real = batch["tokens_segment_ids"] != 0
        return real, None if self.packer == "concat" else batch["tokens_positions"]

    def moved(self, state, rows):
        return shifted(state, {"next_index": self.pieces_of(rows)})


class Documents(Loader):
    def __init__(self, task):
        super().__init__(task, PieceList)

    def open(self, workers, state=None):
        pack = Packer(self.task.seq_len)
        batches = self.shuffled().batch(PIECES_PER_BATCH, drop_remainder=False, batch_fn=pack)
        stream = batches.to_iter_dataset(grain.ReadOptions(num_threads=0))
        return self.start(stream, workers, state)

    def ids(self, batch):
        return batch["input_ids"]

    def details(self, batch):
        return batch["position_ids"] >= 0, batch["position_ids"]

    def moved(self, state, rows):
        return shifted(state, {"next_index": self.pieces_of(rows) // PIECES_PER_BATCH})
