# SPDX-License-Identifier: Apache-2.0
"""Loaders of all processes of a context-parallel group in one process, and of the whole rows."""

import contextlib

import numpy
import ringpack
from stream_oracle import write_megatron

LENGTH, ROWS = 64, 3
OF_TOKENS = ("input_ids", "labels", "position_ids", "segment_ids", "loss_mask")


def write_corpus(folder, seed=3):
    """Documents of all lengths from 1 to past a row."""
    generator = numpy.random.default_rng(seed)
    lengths = [1, 2, 3, 130, 64, 8, *generator.integers(1, 60, 60)]
    write_megatron(folder / "web", [generator.integers(1, 250, length) for length in lengths])
    return folder / "web.bin"


@contextlib.contextmanager
def group(corpus, run_dir, size, *, split="row", align=None, **options):
    """The loader of whole rows, and the one of each process of the group, on two engines."""
    align = {"align": align} if align else {}
    keys = {"corpus": corpus, "seq_len": LENGTH, "batch_size": ROWS, "seed": 5, "run_dir": run_dir}
    keys = {**keys, "profile": "full", "packing_buffer": 4, "num_epochs": 1, **align, **options}
    with contextlib.ExitStack() as stack:
        loaders = [
            stack.enter_context(
                ringpack.Loader(
                    **keys,
                    run="parts",
                    cp_size=size,
                    cp_rank=rank,
                    cp_split=split,
                    start_engine=rank == 0,
                )
            )
            for rank in range(size)
        ]
        same = {"align": 2 * size} if split in ("document", None) and not align else {}
        alone = {**keys, **same, "copy": None, "return_type": "numpy", "device": None}
        yield stack.enter_context(ringpack.Loader(**alone, run="whole")), loaders


def per_row(length, size, rank):
    """The places of a row that process `rank` takes, as Megatron's documentation has them."""
    chunk, last = length // (2 * size), 2 * size - 1 - rank
    return [*range(rank * chunk, (rank + 1) * chunk), *range(last * chunk, (last + 1) * chunk)]


def per_document(ends, size, rank):
    """The places that TransformerEngine's thd_get_partitioned_indices(cu_seqlens, total, size,
    rank) gives, by the rule of its kernel (in common/fused_attn/context_parallel.cu): output token
    t is in the sequence that has it when all lengths are divided by `size`; in the first half of
    its sequence it comes from chunk `rank`, else from chunk 2 * size - 1 - rank."""
    shares = [end // size for end in ends]
    places = []
    for sequence, (begin, end) in enumerate(zip(shares, shares[1:])):
        half = (end - begin) // 2
        for within in range(end - begin):
            chunks = rank if within < half else 2 * (size - 1) - rank
            places.append(ends[sequence] + within + half * chunks)
    return places
