# SPDX-License-Identifier: Apache-2.0
"""A rank of a job that trains by the loss of a token, as tools/python/docs/pytorch.md does it, or the
one rank that sees the whole global batch (world 1). It leaves the gradients of each step.

    token_loss_rank.py RANK WORLD STORE FOLDER STEPS MICRO_BATCHES OUTPUT RUN…"""

import contextlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "python"))

import ringpack  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.functional import cross_entropy, scaled_dot_product_attention  # noqa: E402

VOCABULARY, WIDTH = 512, 16


class Model(torch.nn.Module):
    """One layer of causal attention inside documents; float64, so that sums agree to 1e-12."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids, segments):
        x = self.embed(ids % VOCABULARY)
        q, k, v = self.qkv(x).chunk(3, -1)
        causal = torch.ones(ids.shape[1], ids.shape[1]).tril().bool()
        mask = (segments[:, :, None] == segments[:, None, :]) & causal
        return self.out(x + scaled_dot_product_attention(q, k, v, attn_mask=mask))


def loss_of(model, batch):
    """The sum over the labels of the batch."""
    labels = batch["labels"].long().flatten()
    labels = torch.where(labels < 0, labels, labels % VOCABULARY)
    logits = model(batch["input_ids"].long(), batch["segment_ids"])
    return cross_entropy(logits.flatten(0, 1), labels, reduction="sum"), (labels != -100).sum()


def gradients(model, loader, micro_batches, world):
    """Of one step. The reference divides by the labels that it counts itself."""
    for micro in range(micro_batches):
        batch = next(loader)
        is_last = micro == micro_batches - 1
        with contextlib.nullcontext() if is_last or world == 1 else model.no_sync():
            loss, labels = loss_of(model, batch)
            divisor = labels if world == 1 else batch.step_tokens_loss
            (loss * world / max(divisor, 1)).backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def train(run, folder, rank, world, steps, micro_batches):
    torch.manual_seed(1)
    model = Model().double()
    model = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    own = {"run": run, "run_dir": folder, "dp_rank": rank, "dp_world_size": world}
    with ringpack.Loader(**own, return_type="torch") as loader:
        for _ in range(steps):
            optimizer.zero_grad()
            yield gradients(model, loader, micro_batches, world)
            optimizer.step()


def main(rank, world, store, folder, steps, micro_batches, output, *runs):
    rank, world = int(rank), int(world)
    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=world)
    found = {
        run: list(train(run, folder, rank, world, int(steps), int(micro_batches))) for run in runs
    }
    torch.save(found, output)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
