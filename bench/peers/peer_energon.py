# SPDX-License-Identifier: Apache-2.0
"""Megatron-Energon: webdataset shards of pieces, packed by its hooks. select_samples_to_pack is
collate.py's fit, over a buffer of as many pieces; pack_selected_samples writes a row.

Its documentation: workers, a packing buffer, hooks marked stateless (so that a state names samples
and holds none), few and large shards, and shuffling by slices of shards with a small buffer. Fields
are kept as bytes here: a decoder by name of file would only be slower.
"""

import logging
import tarfile
from io import BytesIO
from pathlib import Path

import numpy
import torch
from megatron.energon import (Cooker, CrudeSample, DefaultTaskEncoder, Sample, WorkerConfig,
                              basic_sample_keys, edataclass, get_savable_loader, get_train_dataset,
                              stateless)
from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator

from collate import PIECES_PER_BATCH, fit
from documents import PieceList

logging.disable(logging.WARNING)
SHARDS = 8
SLICE = 1000  # samples that are read one after another
SHUFFLED = 100  # samples in the shuffle buffer
DATASET = """\
__module__: megatron.energon
__class__: CrudeWebdataset
"""


@edataclass
class Piece(Sample):
    tokens: numpy.ndarray


@edataclass
class Row(Sample):
    ids: torch.Tensor
    positions: torch.Tensor


@stateless
def cook(sample: CrudeSample):
    return Piece(**basic_sample_keys(sample), tokens=numpy.frombuffer(sample["tok"], "<u2"))


class Encoder(DefaultTaskEncoder):
    cookers = [Cooker(cook)]
    decoder = None

    def __init__(self, seq_len):
        super().__init__()
        self.seq_len = seq_len
        self.count = numpy.arange(seq_len, dtype="<i4")

    def select_samples_to_pack(self, samples):
        rows = fit([len(sample.tokens) for sample in samples], self.seq_len)
        return [[samples[piece] for piece in row] for row in rows]

    @stateless
    def pack_selected_samples(self, samples):
        ids = numpy.zeros(self.seq_len, "<i4")
        positions = numpy.full(self.seq_len, -1, "<i4")
        pieces = [sample.tokens for sample in samples]
        used = sum(map(len, pieces))
        numpy.concatenate(pieces, out=ids[:used], casting="safe")
        numpy.concatenate([self.count[: len(piece)] for piece in pieces], out=positions[:used])
        return Row.derive_from(samples[0], ids=torch.from_numpy(ids),
                               positions=torch.from_numpy(positions))


class Energon:
    packs = True

    def __init__(self, task):
        self.task, self.loader = task, None
        self.folder = Path(task.folder) / f"energon-{Path(task.corpus).stem}-{task.seq_len}"

    def prepare(self):
        if (self.folder / ".nv-meta" / "dataset.yaml").exists():
            return
        self.folder.mkdir(exist_ok=True)
        pieces = PieceList(self.task.corpus, self.task.seq_len)
        order = numpy.random.default_rng(0).permutation(len(pieces))
        names = [f"shard-{number}.tar" for number in range(SHARDS)]
        for name, part in zip(names, numpy.array_split(order, SHARDS)):
            with tarfile.open(self.folder / name, "w") as tar:
                for key, tokens in zip(part.tolist(), pieces.__getitems__(part)):
                    member = tarfile.TarInfo(f"{key:09d}.tok")
                    member.size = tokens.nbytes
                    tar.addfile(member, BytesIO(tokens.tobytes()))
        WebdatasetPreparator.prepare_dataset(self.folder, names, workers=1,
                                             split_parts_ratio=[("train", 1.0)])
        (self.folder / ".nv-meta" / "dataset.yaml").write_text(DATASET)

    def open(self, workers, state=None):
        task = self.task
        dataset = get_train_dataset(
            self.folder, worker_config=WorkerConfig(rank=0, world_size=1, num_workers=workers),
            batch_size=task.batch_size, packing_buffer_size=PIECES_PER_BATCH, repeat=False,
            shuffle_buffer_size=SHUFFLED, max_samples_per_sequence=SLICE,
            shuffle_over_epochs_multiplier=1, task_encoder=Encoder(task.seq_len))
        self.loader = get_savable_loader(dataset)
        if state is not None:
            self.loader.restore_state_rank(state)
        return iter(self.loader)

    def ids(self, batch):
        return batch.ids

    def details(self, batch):
        positions = batch.positions.numpy()
        return positions >= 0, positions

    def state(self):
        return self.loader.save_state_rank()
