# SPDX-License-Identifier: Apache-2.0
"""A small GPT on packed documents. Kill it when you like: started again, it has the same losses.

    ringpack convert --tokenizer bytes -o licences /usr/share/common-licenses
    torchrun --nproc-per-node 2 gpt.py --corpus licences --checkpoints gpt

Model, optimizer and loader are saved together by torch.distributed.checkpoint, so that the next
start may have another number of ranks: the rows continue at the saved position.
"""

import argparse
import os

import ringpack
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, attend):
        q, k, v = self.qkv(self.norm_attention(x)).view(len(x), 3, self.heads, -1).unbind(1)
        x = x + self.out(attend(q, k, v).reshape(x.shape))
        return x + self.mlp(self.norm_mlp(x))


class GPT(nn.Module):
    """All rows of a batch are joined end to end: tokens are [T], activations [T, width]."""

    def __init__(self, vocabulary, seq_len, layers=2, width=64, heads=4):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(seq_len, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, input_ids, position_ids, attend):
        x = self.token(input_ids) + self.position(position_ids)
        for block in self.blocks:
            x = block(x, attend)
        return self.head(self.norm(x))


def block_diagonal(ends):
    """Attention inside each document: one causal square for each pair of neighbouring ends.

    On a GPU, flash_attn_varlen_func takes the same `cu_seqlens`, and `batch.max_seqlen`."""
    spans = list(zip(ends[:-1], ends[1:]))

    def attend(*qkv):  # each [T, heads, width of a head]
        documents = (
            F.scaled_dot_product_attention(
                *(part[start:end].transpose(0, 1) for part in qkv), is_causal=True
            )
            for start, end in spans
        )
        return torch.cat(list(documents), dim=1).transpose(0, 1)

    return attend


def dense(ends):
    """The same as a mask of T x T, which says the rule in one line: it checks the other."""
    document = torch.repeat_interleave(torch.tensor(ends).diff())
    mask = (document[:, None] == document[None, :]).tril()

    def attend(*qkv):
        heads_first = (part.transpose(0, 1) for part in qkv)
        return F.scaled_dot_product_attention(*heads_first, attn_mask=mask).transpose(0, 1)

    return attend


MASKS = {"block": block_diagonal, "dense": dense}


class Training:
    """The saved state: torch.distributed.checkpoint calls both methods on every rank."""

    def __init__(self, model, optimizer, loader):
        self.model, self.optimizer, self.loader = model, optimizer, loader
        self.step = 0

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {
            "model": model,
            "optimizer": optimizer,
            "step": self.step,
            **self.loader.state_dict(),
        }

    def load_state_dict(self, state):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.step = state["step"]
        self.loader.load_state_dict(state)

    def save(self, folder):
        dcp.save({"training": self}, checkpoint_id=os.path.join(folder, f"step-{self.step:06}"))

    def load_newest(self, folder):
        """A save that was cut short has no .metadata."""
        steps = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        whole = [s for s in steps if os.path.exists(os.path.join(folder, s, ".metadata"))]
        if whole:
            dcp.load({"training": self}, checkpoint_id=os.path.join(folder, whole[-1]))


def train_step(model, optimizer, batch, mask):
    """One step of this rank; the loss of all ranks, each token weighing the same."""
    ends = batch["cu_seqlens"][: batch.segments + 1].tolist()
    logits = model(batch["input_ids"], batch["position_ids"], mask(ends))
    loss = F.cross_entropy(logits, batch["labels"], reduction="sum")
    sums = torch.tensor([loss.item(), batch.tokens_loss], dtype=torch.float64)
    dist.all_reduce(sums)
    sums[1] = max(sums[1], 1)  # a step may have no label: 0 / 0 is NaN
    optimizer.zero_grad()
    (loss * dist.get_world_size() / sums[1]).backward()  # DDP takes the mean over ranks
    optimizer.step()
    return (sums[0] / sums[1]).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--checkpoints", required=True, help="folder")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--mask", choices=MASKS, default="block")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(GPT(257, args.seq_len))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = ringpack.Loader(
        corpus=args.corpus,
        seq_len=args.seq_len,
        batch_size=args.batch_size,
        seed=1,
        num_epochs="endless",
        sections=["labels", "position_ids", "cu_seqlens"],
        token_dtype="i64",
        return_type="torch",
        flat=True,
    )
    training = Training(model, optimizer, loader)
    with loader:
        training.load_newest(args.checkpoints)
        loader.check_ranks()
        while training.step < args.steps:
            batch = next(loader)
            loss = train_step(model, optimizer, batch, MASKS[args.mask])
            training.step += 1
            if dist.get_rank() == 0:
                print(f"step {training.step} row {batch.next_row} loss {loss:.6f}", loss.hex())
            if training.step % args.save_every == 0:
                training.save(args.checkpoints)
        dist.barrier()  # the engine of this node ends with its first rank
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
