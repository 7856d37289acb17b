# SPDX-License-Identifier: Apache-2.0
"""The beginning of programs that train with Lightning: a model that notes the sum of each batch of
a training, and the number of batches of each validation."""

import importlib.util

import pytest

needs_lightning = pytest.mark.skipif(
    importlib.util.find_spec("lightning") is None, reason="needs lightning"
)
MODEL = """
import sys, warnings; warnings.filterwarnings("ignore")
import torch, lightning, ringpack
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.m = torch.nn.Sequential(torch.nn.Embedding(50000, 2), torch.nn.Linear(2, 16))
        self.trained, self.validated = [], []
    def loss(self, batch):
        return torch.nn.functional.cross_entropy(
            self.m(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten() % 16)
    def training_step(self, batch, index):
        self.trained.append(int(batch["input_ids"].sum())); return self.loss(batch)
    def on_validation_epoch_start(self): self.validated.append(0)
    def validation_step(self, batch, index):
        self.validated[-1] += 1; self.log("val", self.loss(batch), sync_dist=True, batch_size=1)
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=.1)
"""
