# SPDX-License-Identifier: Apache-2.0
"""torchdata's StatefulDataLoader, in the two ways that people use it.

`windows`: rows cut from the corpus before, which packs nothing. `packed`: whole pieces of
documents, which the collate function packs first-fit-decreasing into rows. A batch is fetched with
one call (__getitems__), and the state is kept of every step, as a trainer needs it that may be
killed at any of them.
"""

import copy

import numpy
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

from documents import Corpus, shifted

PIECES_PER_BATCH = 256  # enough for rows that are filled to 98 %


class Windows(torch.utils.data.Dataset):
    def __init__(self, path, seq_len):
        self.corpus, self.seq_len = Corpus(path), seq_len

    def __len__(self):
        return self.corpus.window_count(self.seq_len)

    def __getitems__(self, indices):
        return [self.corpus.window(self.seq_len, index) for index in indices]


class Pieces(torch.utils.data.Dataset):
    def __init__(self, path, seq_len):
        corpus = Corpus(path)
        self.ids = corpus.ids
        self.starts, self.lengths = corpus.pieces(seq_len)

    def __len__(self):
        return len(self.starts)

    def __getitems__(self, indices):
        pairs = zip(self.starts[indices].tolist(), self.lengths[indices].tolist())
        return [self.ids[start : start + length] for start, length in pairs]


def stack(windows):
    return torch.from_numpy(numpy.stack(windows, dtype="<i4", casting="safe"))


def fit(lengths, seq_len):
    """First fit decreasing: [[piece, ...] of each row]."""
    rows, room = [], []
    for piece in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        length = lengths[piece]
        for row, left in enumerate(room):
            if left >= length:
                break
        else:
            row = len(rows)
            rows.append([])
            room.append(seq_len)
        rows[row].append(piece)
        room[row] -= length
    return rows


class Packer:
    """Collate function: pieces become input_ids and position_ids, -1 where there is no token."""

    def __init__(self, seq_len):
        self.seq_len = seq_len

    def __call__(self, pieces):
        rows = fit([len(piece) for piece in pieces], self.seq_len)
        ids = numpy.zeros((len(rows), self.seq_len), "<i4")
        positions = numpy.full((len(rows), self.seq_len), -1, "<i4")
        count = numpy.arange(self.seq_len, dtype="<i4")
        for row, members in enumerate(rows):
            at = 0
            for piece in members:
                end = at + len(pieces[piece])
                ids[row, at:end] = pieces[piece]
                positions[row, at:end] = count[: end - at]
                at = end
        return {"input_ids": torch.from_numpy(ids), "position_ids": torch.from_numpy(positions)}


class TorchData:
    def __init__(self, task, packs):
        self.task, self.packs, self.loader = task, packs, None

    def prepare(self):
        pass

    def open(self, workers, state=None):
        task = self.task
        dataset = (Pieces if self.packs else Windows)(task.corpus, task.seq_len)
        self.loader = StatefulDataLoader(
            dataset, batch_size=PIECES_PER_BATCH if self.packs else task.batch_size, shuffle=True,
            num_workers=workers, collate_fn=Packer(task.seq_len) if self.packs else stack,
            generator=torch.Generator().manual_seed(0))
        if state is not None:
            self.loader.load_state_dict(state)
        return iter(self.loader)

    def ids(self, batch):
        return batch["input_ids"] if self.packs else batch

    def details(self, batch):
        if not self.packs:
            return None, None
        positions = batch["position_ids"].numpy()
        return positions >= 0, positions

    def state(self):
        return copy.deepcopy(self.loader.state_dict())

    def moved(self, state, rows):
        """The state so many rows on: with packing, as many pieces as hold these tokens."""
        samples, batch = rows, self.task.batch_size
        if self.packs:
            _, lengths = Corpus(self.task.corpus).pieces(self.task.seq_len)
            batch = PIECES_PER_BATCH
            samples = int(rows * self.task.seq_len / numpy.mean(lengths)) // batch * batch
        steps = samples // batch
        return shifted(state, {"samples_yielded": samples, "yielded": samples,
                               "_sampler_iter_yielded": steps, "_num_yielded": steps,
                               "_snapshot_step": steps})
