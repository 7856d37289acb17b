# SPDX-License-Identifier: Apache-2.0
"""torchdata's StatefulDataLoader, which does not pack.

`Documents`: whole pieces of documents, which the collate function packs. `Windows`: rows cut from
the corpus before. Its documentation, and torch's: a batch is fetched by one call (__getitems__);
workers help where fetching is slow. The state is kept of every step, as a trainer needs it that may
be killed at any of them.
"""

import copy

import numpy
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

from collate import PIECES_PER_BATCH, Packer
from documents import Corpus, PieceList, shifted


class AllWindows(torch.utils.data.Dataset):
    def __init__(self, path, seq_len):
        self.corpus, self.seq_len = Corpus(path), seq_len

    def __len__(self):
        return self.corpus.window_count(self.seq_len)

    def __getitems__(self, indices):
        return [self.corpus.window(self.seq_len, index) for index in indices]


def stack(windows):
    return torch.from_numpy(numpy.stack(windows, dtype="<i4", casting="safe"))


class TensorPacker(Packer):
    def __call__(self, pieces):
        return {key: torch.from_numpy(array) for key, array in super().__call__(pieces).items()}


class TorchData:
    def __init__(self, task):
        self.task, self.loader = task, None

    def prepare(self):
        pass

    def loader_of(self, dataset, batch_size, collate, workers, state):
        self.loader = StatefulDataLoader(
            dataset, batch_size=batch_size, shuffle=True, num_workers=workers, collate_fn=collate,
            generator=torch.Generator().manual_seed(0))
        if state is not None:
            self.loader.load_state_dict(state)
        return iter(self.loader)

    def state(self):
        return copy.deepcopy(self.loader.state_dict())

    def moved_by(self, state, samples, batch_size):
        steps = samples // batch_size
        return shifted(state, {"samples_yielded": samples, "yielded": samples,
                               "_sampler_iter_yielded": steps, "_num_yielded": steps,
                               "_snapshot_step": steps})


class Documents(TorchData):
    packs = True

    def open(self, workers, state=None):
        pieces = PieceList(self.task.corpus, self.task.seq_len)
        return self.loader_of(pieces, PIECES_PER_BATCH, TensorPacker(self.task.seq_len), workers,
                              state)

    def ids(self, batch):
        return batch["input_ids"]

    def details(self, batch):
        positions = batch["position_ids"].numpy()
        return positions >= 0, positions

    def moved(self, state, rows):
        """The state a number of rows on: as many pieces as hold these tokens."""
        _, lengths = Corpus(self.task.corpus).pieces(self.task.seq_len)
        samples = int(rows * self.task.seq_len / numpy.mean(lengths))
        return self.moved_by(state, samples // PIECES_PER_BATCH * PIECES_PER_BATCH,
                             PIECES_PER_BATCH)


class Windows(TorchData):
    packs = False

    def open(self, workers, state=None):
        windows = AllWindows(self.task.corpus, self.task.seq_len)
        return self.loader_of(windows, self.task.batch_size, stack, workers, state)

    def ids(self, batch):
        return batch

    def details(self, batch):
        return None, None

    def moved(self, state, rows):
        return self.moved_by(state, rows, self.task.batch_size)
