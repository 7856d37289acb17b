# SPDX-License-Identifier: Apache-2.0
"""MosaicML Streaming. Its documentation: the standard parameters (py1e, all shards kept locally)
are the fast ones; batch_size must be given, and workers help. Rows are cut when the corpus is
written, without packing: documents are cut at the end of a row.
"""

import json
import os
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy
import torch

from documents import Corpus, shifted

SHARD_BYTES = 64 << 20  # the writer's own standard


def stand_in_for_torchvision():
    """`import streaming` imports its image data sets, whose torchvision wants CUDA."""
    modules = {"torchvision": {}, "torchvision.transforms": {},
               "torchvision.datasets": {"VisionDataset": object, "CIFAR10": object},
               "torchvision.transforms.functional": {"to_tensor": None}}
    for name, content in modules.items():
        module = types.ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__dict__.update(content)
        sys.modules[name] = module


stand_in_for_torchvision()
import streaming  # noqa: E402
from streaming.base.util import clean_stale_shared_memory  # noqa: E402


class Streaming:
    packs = False

    def __init__(self, task):
        self.task = task
        self.folder = Path(task.folder) / f"mds-{Path(task.corpus).stem}-{task.seq_len}"
        self.loader = None

    def _write(self, folder, windows):
        columns = {"tokens": f"ndarray:uint16:{self.task.seq_len}"}
        options = dict(out=str(folder), columns=columns, size_limit=SHARD_BYTES)
        with streaming.MDSWriter(**options) as writer:
            for window in windows:
                writer.write({"tokens": window})

    def prepare(self):
        if (self.folder / "index.json").exists():
            return
        corpus = Corpus(self.task.corpus)
        if self.task.repeated:
            self._write_repeated(corpus)
            return
        count = corpus.window_count(self.task.seq_len)
        self._write(self.folder, (corpus.window(self.task.seq_len, i) for i in range(count)))

    def _write_repeated(self, corpus):
        """Rows whose content does not matter, for their number: every shard is a link to one."""
        seq_len = self.task.seq_len
        rows = SHARD_BYTES // (2 * seq_len) - 1024  # and their offsets
        self._write(self.folder, (numpy.zeros(seq_len, "<u2") for _ in range(rows)))
        index = json.loads((self.folder / "index.json").read_text())
        (first,) = index["shards"]
        shards = [first]
        for number in range(1, -(-corpus.window_count(seq_len) // rows)):
            name = f"shard.{number:05d}.mds"
            os.link(self.folder / first["raw_data"]["basename"], self.folder / name)
            shards.append({**first, "raw_data": {**first["raw_data"], "basename": name}})
        (self.folder / "index.json").write_text(json.dumps({**index, "shards": shards}))

    def open(self, workers, state=None):
        clean_stale_shared_memory()
        task = self.task
        dataset = streaming.StreamingDataset(
            local=str(self.folder), shuffle=True, batch_size=task.batch_size, num_canonical_nodes=1)
        self.loader = streaming.StreamingDataLoader(
            dataset, batch_size=task.batch_size, num_workers=workers)
        if state is not None:
            self.loader.load_state_dict(state)
        return iter(self.loader)

    def ids(self, batch):
        return batch["tokens"].to(torch.int32)

    def details(self, batch):
        return None, None

    def state(self):
        return self.loader.state_dict()

    def moved(self, state, rows):
        return shifted(state, {"sample_in_epoch": rows})
