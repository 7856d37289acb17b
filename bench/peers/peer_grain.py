# SPDX-License-Identifier: Apache-2.0
"""Grain. Its documentation: data that is in memory already is best read with num_threads=0; what
is bound by Python's lock is helped by mp_prefetch, here with a buffer that several batches fit in.
"""

import copy

import grain
import numpy

from documents import Corpus, shifted

OPEN_ROWS = 64  # as many as ringpack has documents to choose from


class Pieces:
    """Pieces of documents by number: a random access source."""

    def __init__(self, path, seq_len):
        self.path, self.seq_len = path, seq_len
        self._open()

    def _open(self):
        corpus = Corpus(self.path)
        self.ids = corpus.ids
        self.starts, self.lengths = corpus.pieces(self.seq_len)

    def __getstate__(self):  # a worker process maps the files itself
        return {"path": self.path, "seq_len": self.seq_len}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._open()

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, index):
        start = self.starts[index]
        return {"tokens": self.ids[start : start + self.lengths[index]]}


class Grain:
    packs = True

    def __init__(self, task, packer):
        self.task, self.packer = task, packer
        self.source = Pieces(task.corpus, task.seq_len)
        self.iterator = None

    def prepare(self):
        pass

    def open(self, workers, state=None):
        rows = {"tokens": self.task.seq_len}
        pieces = grain.MapDataset.source(self.source).seed(0).shuffle()
        stream = pieces.to_iter_dataset(grain.ReadOptions(num_threads=0))
        if self.packer == "concat":
            stream = grain.experimental.ConcatThenSplitIterDataset(stream, length_struct=rows)
        else:
            pack = {"first_fit": grain.experimental.FirstFitPackIterDataset,
                    "best_fit": grain.experimental.BestFitPackIterDataset}[self.packer]
            stream = pack(stream, length_struct=rows, num_packing_bins=OPEN_ROWS)
        stream = stream.batch(self.task.batch_size, drop_remainder=False)
        if workers:
            options = grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=16)
            stream = stream.mp_prefetch(options)
        self.iterator = iter(stream)
        if state is not None:
            self.iterator.set_state(state)
        return self.iterator

    def ids(self, batch):
        return batch["tokens"].astype("<i4")

    def details(self, batch):
        real = batch["tokens_segment_ids"] != 0
        return real, None if self.packer == "concat" else batch["tokens_positions"]

    def state(self):
        return copy.deepcopy(self.iterator.get_state())

    def moved(self, state, rows):
        """The state so many rows on: at the piece that lies behind about as many tokens."""
        tokens = rows * self.task.seq_len
        return shifted(state, {"next_index": int(tokens / numpy.mean(self.source.lengths))})
