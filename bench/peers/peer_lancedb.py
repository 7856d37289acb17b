# SPDX-License-Identifier: Apache-2.0
"""LanceDB: a shuffled Permutation, whose rows are documents (`Documents`) or windows (`Windows`);
and StreamingDataset with pack_sequences, which puts an end token after each document, and cuts the
sequence every seq_len tokens (`Packed`).

Its documentation: a permutation is built once, and read in large batches in Arrow's own format,
without a copy; in a DataLoader it gives a batch by one call. Worker processes are spawned, because
Lance has threads. StreamingDataset reads and turns rows into lists in threads of its own; one
thread that turns, and short queues, are six times as fast here as its default, because those
threads and the packing one wait for one another at Python's lock.
"""

import copy
from pathlib import Path

import lancedb
import numpy
import pyarrow
import torch
from lancedb.permutation import Permutation, permutation_builder
from lancedb.streaming import StreamingDataLoader, StreamingDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from collate import PIECES_PER_BATCH
from documents import Corpus
from peer_torchdata import TensorPacker

ROWS_AT_ONCE = 1 << 16  # rows of one write to a table
EOS, PAD = 65533, 65534  # no id of the corpus is one of these
SPARE = 0.01  # share of an epoch's blocks: splits are not equally long


def arrays_of(batch):
    """The rows of a batch as numpy arrays in Arrow's memory."""
    column = batch.column(0)
    offsets = column.offsets.to_numpy().tolist()
    tokens = column.values.to_numpy()
    return [tokens[begin:end] for begin, end in zip(offsets, offsets[1:])]


def matrix_of(batch):
    """The rows of a batch of windows, one after another."""
    column = batch.column(0)
    return column.flatten().to_numpy().reshape(len(column), -1)


def stack(windows):
    return torch.from_numpy(windows.astype("<i4"))


class Table:
    """A corpus as a table of one column: documents, pieces of them, or windows."""

    def __init__(self, task, form):
        self.task, self.form = task, form
        self.name = f"{form}-{Path(task.corpus).stem}-{task.seq_len}"
        self.base = lancedb.connect(Path(task.folder) / "lancedb")

    def _spans(self, corpus):
        if self.form == "documents":
            return numpy.cumsum(corpus.lengths, dtype="<i8")
        if self.form == "pieces":
            return numpy.cumsum(corpus.pieces(self.task.seq_len)[1], dtype="<i8")
        count = corpus.window_count(self.task.seq_len)
        return numpy.arange(1, count + 1) * self.task.seq_len

    def _batches(self, schema):
        corpus = Corpus(self.task.corpus)
        ends = numpy.concatenate([[0], self._spans(corpus)])
        for first in range(0, len(ends) - 1, ROWS_AT_ONCE):
            part = ends[first : first + ROWS_AT_ONCE + 1]
            tokens = pyarrow.array(corpus.ids[part[0] : part[-1]])
            if self.form == "windows":
                rows = pyarrow.FixedSizeListArray.from_arrays(tokens, self.task.seq_len)
            else:
                offsets = pyarrow.array((part - part[0]).astype("<i4"))
                rows = pyarrow.ListArray.from_arrays(offsets, tokens)
            yield pyarrow.RecordBatch.from_arrays([rows], schema=schema)

    def open(self):
        if self.name in self.base.table_names(limit=100):
            return self.base.open_table(self.name)
        size = self.task.seq_len if self.form == "windows" else -1
        schema = pyarrow.schema([("tokens", pyarrow.list_(pyarrow.uint16(), size))])
        return self.base.create_table(self.name, self._batches(schema), schema=schema)


class Shuffled:
    """A permutation in a StatefulDataLoader: offsets in order, since it is shuffled already."""

    def __init__(self, task):
        self.task, self.loader = task, None
        self.table = Table(task, self.form)

    def prepare(self):
        self.table.open()

    def open(self, workers, state=None):
        table = self.table.open()
        order = permutation_builder(table).shuffle(seed=0).execute()
        rows = Permutation.from_tables(table, order).with_transform(self.transform)
        self.loader = StatefulDataLoader(
            rows, batch_size=self.samples(), collate_fn=self.collate(), num_workers=workers,
            multiprocessing_context="spawn" if workers else None)
        if state is not None:
            self.loader.load_state_dict(state)
        return iter(self.loader)

    def state(self):
        return copy.deepcopy(self.loader.state_dict())


class Documents(Shuffled):
    packs, form, transform = True, "pieces", staticmethod(arrays_of)

    def samples(self):
        return PIECES_PER_BATCH

    def collate(self):
        return TensorPacker(self.task.seq_len)

    def ids(self, batch):
        return batch["input_ids"]

    def details(self, batch):
        positions = batch["position_ids"].numpy()
        return positions >= 0, positions


class Windows(Shuffled):
    packs, form, transform = False, "windows", staticmethod(matrix_of)

    def samples(self):
        return self.task.batch_size

    def collate(self):
        return stack

    def ids(self, batch):
        return batch

    def details(self, batch):
        return None, None


class Packed:
    packs, form = True, "documents"

    def __init__(self, task):
        self.task, self.dataset = task, None
        self.table = Table(task, self.form)

    def prepare(self):
        self.table.open()

    def _blocks(self, splits):
        """Of an epoch: tokens, and an end of each document; some more, if the splits' parts of the
        corpus are not equal."""
        corpus = Corpus(self.task.corpus)
        tokens = corpus.tokens + len(corpus.lengths)
        share = tokens / splits * (1 + SPARE * (splits > 1))
        return -(-int(share) // self.task.seq_len) * splits + splits

    def open(self, workers, state=None):
        splits = max(workers, 1)
        self.dataset = StreamingDataset(
            self.table.open(), num_splits=splits, columns=["tokens"], eos_id=EOS, pad_id=PAD,
            read_batch_size=1024, io_queue_depth=2, transform_parallelism=1,
            transform_queue_depth=2, pack_sequences=self.task.seq_len,
            blocks_per_epoch=self._blocks(splits))
        if state is not None:
            self.dataset.load_state_dict(state)
        return iter(StreamingDataLoader(
            self.dataset, batch_size=self.task.batch_size, num_workers=workers,
            multiprocessing_context="spawn" if workers else None))

    def ids(self, batch):
        return batch["input_ids"]

    def details(self, batch):
        return batch["input_ids"].numpy() < EOS, None

    def state(self):
        return copy.deepcopy(self.dataset.state_dict())
