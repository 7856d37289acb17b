# SPDX-License-Identifier: Apache-2.0
"""litData. Its documentation for pretraining: optimize() with TokensLoader into chunks of about 64
MB, StreamingDataset with the same TokensLoader, StreamingDataLoader with workers. Rows are cut from
chunks, without packing: documents are cut at the end of a row, and the rest of a chunk after its
last row is left out.
"""

import copy
import json
import os
from pathlib import Path

import litdata
import numpy
import torch

from documents import Corpus, shifted

CHUNK_TOKENS = 1 << 25


def document_of(work):
    """One span of the corpus, which optimize() requests in a process of its own."""
    path, start, end = work
    yield torch.from_numpy(numpy.array(Corpus(path).ids[start:end]))


class LitData:
    packs = False

    def __init__(self, task):
        self.task = task
        self.folder = Path(task.folder) / f"litdata-{Path(task.corpus).stem}-{task.seq_len}"
        self.loader = None

    def prepare(self):
        if (self.folder / "index.json").exists():
            return
        corpus = Corpus(self.task.corpus)
        tokens = min(corpus.tokens, CHUNK_TOKENS) if self.task.repeated else corpus.tokens
        step = CHUNK_TOKENS // self.task.seq_len * self.task.seq_len
        spans = [(self.task.corpus, i, min(i + step, tokens)) for i in range(0, tokens, step)]
        litdata.optimize(
            fn=document_of, inputs=spans, output_dir=str(self.folder), chunk_size=step,
            num_workers=1, reorder_files=False, verbose=False,
            item_loader=litdata.TokensLoader(block_size=self.task.seq_len))
        if self.task.repeated:
            self._repeat(-(-corpus.tokens // tokens))

    def _repeat(self, times):
        """Rows whose content does not matter, for their number: every chunk is a link to one."""
        path = self.folder / "index.json"
        index = json.loads(path.read_text())
        first = index["chunks"][0]
        chunks = []
        for number in range(times):
            name = f"link-{number}.bin"
            os.link(self.folder / first["filename"], self.folder / name)
            chunks.append({**first, "filename": name})
        path.write_text(json.dumps({**index, "chunks": chunks}))

    def open(self, workers, state=None):
        dataset = litdata.StreamingDataset(
            str(self.folder), shuffle=True, drop_last=False,
            item_loader=litdata.TokensLoader(block_size=self.task.seq_len))
        self.loader = litdata.StreamingDataLoader(
            dataset, batch_size=self.task.batch_size, num_workers=workers, drop_last=False)
        if state is not None:
            self.loader.load_state_dict(state)
        return iter(self.loader)

    def ids(self, batch):
        return batch.to(torch.int32)

    def details(self, batch):
        return None, None

    def state(self):
        return copy.deepcopy(self.loader.state_dict())

    def moved(self, state, rows):
        return shifted(state, {"num_samples_yielded": rows, "sample_in_epoch": rows})
