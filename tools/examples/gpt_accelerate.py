# SPDX-License-Identifier: Apache-2.0
"""The training of gpt.py with Hugging Face accelerate, which saves and loads all three parts.

torchrun --nproc-per-node 2 gpt_accelerate.py --corpus licences --checkpoints gpt
"""

import argparse
import os

import ringpack
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import gather_object
from gpt import GPT, block_diagonal


def save(accelerator, folder, row):
    """A folder gets its name when all of it is there: a kill leaves no half of a checkpoint."""
    accelerator.save_state(os.path.join(folder, "new"))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        os.rename(os.path.join(folder, "new"), os.path.join(folder, f"row-{row:09}"))


def load_newest(accelerator, folder):
    found = [name for name in os.listdir(folder) if name != "new"] if os.path.isdir(folder) else []
    if found:
        accelerator.load_state(os.path.join(folder, max(found)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--checkpoints", required=True, help="folder")
    parser.add_argument("--rows", type=int, default=800, help="to train on, over all ranks")
    parser.add_argument("--save-every", type=int, default=10, help="steps")
    args = parser.parse_args()

    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    torch.manual_seed(1)
    model = GPT(257, seq_len=256)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    loader = ringpack.Loader(  # is not prepared: it knows its rank, and shards by rows
        corpus=args.corpus,
        seq_len=256,
        batch_size=4,
        seed=1,
        num_epochs="endless",
        sections=["labels", "position_ids", "cu_seqlens"],
        token_dtype="i64",
        return_type="torch",
        flat=True,
    )
    accelerator.register_for_checkpointing(loader)
    with loader:
        load_newest(accelerator, args.checkpoints)
        loader.check_ranks(lambda fact: gather_object([fact]))
        step = 0
        while loader.next_row < args.rows:
            batch = next(loader)
            ends = batch["cu_seqlens"][: batch.segments + 1].tolist()
            logits = model(batch["input_ids"], batch["position_ids"], block_diagonal(ends))
            loss = F.cross_entropy(logits, batch["labels"], reduction="sum")
            sums = torch.tensor([loss.item(), batch.tokens_loss], dtype=torch.float64)
            sums = accelerator.reduce(sums)
            sums[1] = max(sums[1], 1)  # a step may have no label: 0 / 0 is NaN
            optimizer.zero_grad()
            accelerator.backward(loss * accelerator.num_processes / sums[1])
            optimizer.step()
            step += 1
            mean = (sums[0] / sums[1]).item()
            accelerator.print(f"row {batch.next_row} loss {mean:.6f}", mean.hex())
            if step % args.save_every == 0:
                save(accelerator, args.checkpoints, batch.next_row)
        accelerator.wait_for_everyone()  # the engine of this node ends with its first rank
    accelerator.end_training()


if __name__ == "__main__":
    main()
