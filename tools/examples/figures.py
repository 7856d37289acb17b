# SPDX-License-Identifier: Apache-2.0
"""The cost of a loader for a trainer on this machine: start, tokens per second, waiting, memory.

    ringpack convert --tokenizer bytes -o licences /usr/share/common-licenses
    python figures.py --corpus licences

The model is gpt.py's. Let the machine be quiet, and the corpus be one of yours.
"""

import argparse
import contextlib
import re
import time

import ringpack
import torch
import torch.nn.functional as F
from gpt import GPT, block_diagonal


def open_loader(args, **changes):
    options = {
        "corpus": args.corpus,
        "seq_len": args.seq_len,
        "batch_size": args.batch_size,
        "seed": 1,
        "num_epochs": "endless",
        "sections": ["labels", "position_ids", "cu_seqlens"],
        "token_dtype": "i64",
        "return_type": "torch",
        "flat": True,
    }
    return ringpack.Loader(**{**options, **changes})


def time_first_batch(args):
    """From Loader(...) to the first batch in hand: the engine's start is in it."""
    begin = time.monotonic()
    with open_loader(args) as loader:
        next(loader)
        return time.monotonic() - begin


def consume(args, step):
    """Tokens per second that come through `step`, and the share of the time that it waits."""
    tokens, loader = 0, open_loader(args)
    with loader:
        step(next(loader))
        waited, begin = loader.counts()["wait_ns"], time.monotonic()
        while time.monotonic() < begin + args.seconds:
            batch = next(loader)
            step(batch)
            tokens += batch.tokens_real
        elapsed = time.monotonic() - begin
        waited = (loader.counts()["wait_ns"] - waited) / 1e9
    return tokens / elapsed, waited / elapsed


def make_train_step(args):
    torch.manual_seed(1)
    model = GPT(257, args.seq_len)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def train_step(batch):
        ends = batch["cu_seqlens"][: batch.segments + 1].tolist()
        logits = model(batch["input_ids"], batch["position_ids"], block_diagonal(ends))
        loss = F.cross_entropy(logits, batch["labels"], reduction="sum")
        loss = loss / max(batch.tokens_loss, 1)  # a batch may have no label: 0 / 0 is NaN
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return train_step


def engine_bytes(args, ranks):
    """Memory of an engine whose ranks have all taken batches: its own so far, and the batches that
    it shares with them. The first grows until all prefetch memory has been written to."""
    run = {"run": f"figures-{ranks}", "dp_world_size": ranks}
    with contextlib.ExitStack() as stack:
        loaders = [
            stack.enter_context(open_loader(args, dp_rank=rank, start_engine=rank == 0, **run))
            for rank in range(ranks)
        ]
        for _ in range(10):
            for loader in loaders:
                next(loader)
        with open(f"/proc/{loaders[0].engine_pid}/status") as file:
            status = dict(re.findall(r"^(\w+):\s+(\d+) kB$", file.read(), re.M))
        return 1024 * int(status["RssAnon"]), 1024 * int(status["RssShmem"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=256)
    args = parser.parse_args()

    print(f"first batch after {1e3 * time_first_batch(args):.0f} ms")
    for name, step in ("does nothing", lambda batch: None), ("trains", make_train_step(args)):
        speed, waiting = consume(args, step)
        print(f"a trainer that {name}: {speed:,.0f} tokens/s, waits {100 * waiting:.2f} %")
    (own, one), (_, five) = engine_bytes(args, 1), engine_bytes(args, 5)
    print(f"engine {(own + one) / 2**20:.1f} MiB after 10 batches, and more as it prefetches")
    print(f"batches of each further rank {(five - one) / 4 / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
