# SPDX-License-Identifier: Apache-2.0
"""A Megatron corpus (.bin, .idx) as the peers are given it: in pieces, or in windows.

Reads happen on request only: the resume measurements use a corpus whose tokens are a hole of many
gigabytes.
"""

import struct
from pathlib import Path

import numpy

INDEX_HEADER_BYTES = 34


class Corpus:
    def __init__(self, path):
        self.path = Path(path)
        with open(self.path.with_suffix(".idx"), "rb") as file:
            header = file.read(INDEX_HEADER_BYTES)
            magic, _, dtype, documents, _ = struct.unpack("<9sQBQQ", header)
            if magic != b"MMIDIDX\0\0" or dtype != 8:
                raise SystemExit(f"{path}: expected a Megatron index of u16 tokens")
            self.lengths = numpy.fromfile(file, "<i4", documents)
        mapped = numpy.memmap(self.path, "<u2", "r")
        self.ids = mapped.view(numpy.ndarray)  # whose slices cost a tenth of a memmap's

    @property
    def tokens(self):
        return len(self.ids)

    def pieces(self, seq_len):
        """(first token, length) of the pieces of documents if none may be longer than a row, as
        ringpack cuts them with long_doc: split."""
        counts = -(-self.lengths // seq_len)
        ends = numpy.cumsum(self.lengths, dtype="<i8")
        starts = numpy.repeat(ends - self.lengths, counts)
        nth = numpy.arange(len(starts)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
        starts += nth * seq_len
        lengths = numpy.minimum(numpy.repeat(ends, counts) - starts, seq_len)
        return starts, lengths.astype("<i4")

    def window_count(self, seq_len):
        """Rows of the corpus cut every seq_len tokens; the rest of it is left out."""
        return self.tokens // seq_len

    def window(self, seq_len, index):
        return self.ids[index * seq_len : (index + 1) * seq_len]


class PieceList:
    """Pieces by number, one or many, for random access. A process that is handed one opens the
    files itself."""

    def __init__(self, path, seq_len):
        self.path, self.seq_len = path, seq_len
        self._open()

    def _open(self):
        corpus = Corpus(self.path)
        self.ids = corpus.ids
        self.starts, self.lengths = corpus.pieces(self.seq_len)

    def __getstate__(self):
        return {"path": self.path, "seq_len": self.seq_len}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._open()

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, index):
        start = self.starts[index]
        return self.ids[start : start + self.lengths[index]]

    def __getitems__(self, indices):
        pairs = zip(self.starts[indices].tolist(), self.lengths[indices].tolist())
        return [self.ids[start : start + length] for start, length in pairs]


class Tally:
    """The delivered tokens, in any order: enough to know whether each came once.

    `weighed` adds up id times position in its piece, so tokens in a wrong order inside a piece are
    noticed if the peer has positions."""

    def __init__(self, ids_max=1 << 16):
        self.counts = numpy.zeros(ids_max, "<i8")
        self.tokens = self.rows = self.slots = self.weighed = 0

    def add(self, ids, real=None, positions=None):
        ids = numpy.asarray(ids)
        self.rows += ids.shape[0]
        self.slots += ids.size
        if positions is not None:
            products = ids.astype("<i8") * (numpy.asarray(positions) + 1)
            self.weighed += int(products.sum() if real is None else products[real].sum())
        flat = ids.ravel() if real is None else ids[real]
        self.counts += numpy.bincount(flat, minlength=len(self.counts))
        self.tokens += flat.size


def tally_of(corpus, seq_len):
    """The tally of the whole corpus, each token once, pieces as `pieces` cuts them."""
    tally = Tally()
    tally.counts += numpy.bincount(corpus.ids, minlength=len(tally.counts))
    tally.tokens = corpus.tokens
    starts, lengths = corpus.pieces(seq_len)
    positions = numpy.arange(corpus.tokens) - numpy.repeat(starts, lengths)
    tally.weighed = int((corpus.ids.astype("<i8") * (positions + 1)).sum())
    return tally


def shifted(state, changes):
    """A copy of a saved state whose numbers of that name have grown: {name: by how much}."""
    if isinstance(state, dict):
        return {key: value + changes[key] if key in changes and isinstance(value, int)
                else shifted(value, changes) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(shifted(value, changes) for value in state)
    return state
