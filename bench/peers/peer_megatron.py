# SPDX-License-Identifier: Apache-2.0
"""Megatron's GPTDataset, with its pretraining's DataLoader. Its documentation: mapped .bin, indices
built once and cached (path_to_cache), no attention mask in the batches. Documents are cut at the
end of a row, and an incomplete last row is left out.
"""

import logging
import warnings
from pathlib import Path

import numpy
import torch


warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
from megatron.core.datasets import helpers_cpp  # noqa: E402, F401  (built, else not measured)
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig  # noqa: E402
from megatron.core.datasets.utils import Split  # noqa: E402


class Tokenizer:
    """The tokenizer's interface that GPTDataset needs. No id of the corpus is one of these."""

    vocab_size, eod, pad, unique_identifiers = 65535, 65533, 65534, {"name": "none"}


class Consumed:
    """Numbers of the samples of each batch, from those on that are consumed."""

    def __init__(self, total, batch_size, consumed):
        self.total, self.batch_size, self.consumed = total, batch_size, consumed

    def __len__(self):
        return -(-(self.total - self.consumed) // self.batch_size)

    def __iter__(self):
        for first in range(self.consumed, self.total, self.batch_size):
            yield list(range(first, min(first + self.batch_size, self.total)))


class Megatron:
    packs = False

    def __init__(self, task):
        self.task, self.consumed = task, 0
        self.cache = Path(task.folder) / f"megatron-{Path(task.corpus).stem}-{task.seq_len}"

    def _dataset(self):
        prefix = str(Path(self.task.corpus).with_suffix(""))
        config = GPTDatasetConfig(
            random_seed=0, sequence_length=self.task.seq_len, blend=([prefix], None),
            split="100,0,0", path_to_cache=str(self.cache), tokenizer=Tokenizer,
            reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
            create_attention_mask=False)
        indexed = GPTDataset.build_low_level_dataset(prefix, config)
        everything = numpy.arange(len(indexed), dtype="<i4")
        return GPTDataset(indexed, prefix, everything, None, Split.train, config)

    def prepare(self):
        self._dataset()

    def open(self, workers, state=None):
        self.consumed = (state or {}).get("consumed", 0)
        dataset = self._dataset()
        sampler = Consumed(len(dataset), self.task.batch_size, self.consumed)
        loader = torch.utils.data.DataLoader(
            dataset, batch_sampler=sampler, num_workers=workers,
            persistent_workers=workers > 0)
        for batch in loader:
            self.consumed += len(batch["tokens"])
            yield batch

    def ids(self, batch):
        return batch["tokens"]

    def details(self, batch):
        return None, None

    def state(self):
        return {"consumed": self.consumed}

    def moved(self, state, rows):
        return {"consumed": state["consumed"] + rows}
