# SPDX-License-Identifier: Apache-2.0
"""The ends of the documents of a batch, and the arguments and masks that attention makes of them.

A *segment* is a part of a document in a row with its padding, or the padding at the end of a row.
Segments are in order, end to end, and none is in two rows. Each token sees itself and the earlier
tokens of its segment: so the tokens that a block of queries sees are neighbours, and a mask of
blocks follows from the ends, without a look at pairs of tokens.
"""

from typing import TYPE_CHECKING, Any, Optional, Union

from ._arguments import whole
from ._views import ROWS, import_torch
from .errors import UsageError

if TYPE_CHECKING:
    from .batch import Batch

_ENDS = "ends of the segments"  # in Batch._made
KERNELS = ("torch", "flash_attn", "xformers", "transformer_engine")


def ends_of(batch: "Batch") -> Any:
    """0, and the end of each segment over the flat batch; int64."""
    import numpy

    batch._open_lease()
    cache, sections = batch._all_made(), batch._form.sections
    if _ENDS not in cache:
        if "cu_seqlens" in sections:
            found = batch.view("cu_seqlens", kind="numpy")[: batch.segments + 1]
            cache[_ENDS] = found.astype(numpy.int64)
        elif "position_ids" in sections:
            positions = batch.ring("position_ids").ravel()
            cache[_ENDS] = numpy.append(numpy.flatnonzero(positions == 0), len(positions))
        else:
            raise UsageError(
                "the run has neither cu_seqlens nor position_ids: the ends of its documents are "
                "not known here",
                "sections: [cu_seqlens], added to the run's",
            )
    return cache[_ENDS]


def real_lengths_of(batch: "Batch") -> Any:
    """Tokens of each segment that are not padding; int64."""
    import numpy

    ends = ends_of(batch)
    lengths = batch.view("doc_lens", flat=False, kind="numpy")
    counts = (lengths > 0).sum(axis=1)
    row_of = ends[:-1] // batch.seq_len
    first = numpy.searchsorted(ends, numpy.arange(batch.batch_size) * batch.seq_len)
    within = numpy.arange(len(row_of)) - first[row_of]
    is_document = within < counts[row_of]  # else the padding at the end of the row
    real = numpy.zeros(len(row_of), numpy.int64)
    real[is_document] = lengths[row_of[is_document], within[is_document]]
    return real


def _window(window: Optional[int]) -> Optional[int]:
    found = whole("window", window)
    if found is not None and found < 1:
        raise ValueError(f"window is {found}: expected 1 or more tokens, with the own one")
    return found


# ---- arguments of kernels -----------------------------------------------------------------------


def varlen(
    batch: "Batch",
    kernel: str,
    window: Optional[int],
    capacity: Optional[int],
    device: Any,
) -> dict[str, Any]:
    """See Batch.varlen."""
    import numpy

    if kernel not in KERNELS:
        raise ValueError(f"kernel is {kernel!r}: expected one of {', '.join(KERNELS)}")
    window, capacity = _window(window), whole("capacity", capacity)
    ends, most = ends_of(batch), int(batch.max_seqlen)
    if kernel == "xformers":
        if window is not None or capacity is not None:
            raise ValueError(
                "xformers takes a list of lengths: call make_local_attention(window) of its mask, "
                "and leave capacity out"
            )
        return {"q_seqlen": numpy.diff(ends).tolist()}
    if capacity is not None:
        documents = batch._open_lease().client.geometry.max_docs_per_row
        if capacity < len(ends) - 1:
            raise UsageError(
                f"batch {batch.number} has {len(ends) - 1} segments, and capacity is {capacity}",
                f"capacity={batch.batch_size * (documents + 1)}, which is enough for all",
            )
        most = batch.seq_len

    def tensor(values: Any) -> Any:
        padded = values
        if capacity is not None:
            padded = numpy.full(capacity + 1, values[-1])
            padded[: len(values)] = values
        made = import_torch().from_numpy(padded.astype(numpy.int32))
        return made if device is None else made.to(device, non_blocking=True)

    if kernel == "transformer_engine":
        if window is not None:
            raise ValueError("transformer_engine takes window_size where attention is made")
        padded = tensor(ends)
        real = tensor(numpy.append(0, numpy.cumsum(real_lengths_of(batch))))
        return {
            "qkv_format": "thd",
            "cu_seqlens_q": real,
            "cu_seqlens_kv": real,
            "cu_seqlens_q_padded": padded,
            "cu_seqlens_kv_padded": padded,
            "max_seqlen_q": most,
            "max_seqlen_kv": most,
        }
    made, before = tensor(ends), -1 if window is None else window - 1
    values = made, made, most, most
    if kernel == "torch":
        named = dict(zip(("cu_seq_q", "cu_seq_k", "max_q", "max_k"), values))
        return {**named, "window_size": (before, 0)}
    named = dict(zip(("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"), values))
    sizes = (-1, -1) if window is None else (before, 0)
    return {**named, "causal": True, "window_size": sizes}


# ---- FlexAttention ------------------------------------------------------------------------------


def _first_seen(batch: "Batch", rows: int, window: Optional[int]) -> Any:
    """(rows, places): number in its row of the first token that each token sees; int32."""
    import numpy

    ends = ends_of(batch)
    first = numpy.repeat(ends[:-1], numpy.diff(ends)).reshape(rows, -1)
    length = first.shape[1]
    first -= numpy.arange(rows)[:, None] * length
    if window is not None:
        numpy.maximum(first, numpy.arange(length) - (window - 1), out=first)
    return first.astype(numpy.int32)


def _ordered(begin: Any, end: Any, hole_begin: Any, hole_end: Any, count: int) -> tuple[Any, Any]:
    """Number, and numbers, of the blocks from begin to end outside the hole, and after
    them all others in order, as BlockMask has them: (rows, 1, blocks) and (rows, 1, blocks, count).
    """
    torch = import_torch()
    edges = (begin, end, hole_begin, hole_end)
    begin, end, hole_begin, hole_end = (edge[:, None, :, None] for edge in edges)
    place = torch.arange(count, dtype=torch.int32, device=begin.device)
    before, hole = hole_begin - begin, hole_end - hole_begin
    number = end - begin - hole
    inside = torch.where(place < before, begin + place, place + begin + hole)
    rest = place - number
    outside = torch.where(
        rest < begin, rest, torch.where(rest < begin + hole, rest + before, rest + number)
    )
    indices = torch.where(place < number, inside, outside)
    return number[..., 0].contiguous(), indices.contiguous()


def block_mask(
    batch: "Batch",
    window: Optional[int],
    block_size: Union[int, tuple[int, int]],
    device: Any,
    flat: Optional[bool],
) -> Any:
    """See Batch.block_mask."""
    import numpy

    torch = import_torch()
    from torch.nn.attention.flex_attention import BlockMask

    window = _window(window)
    sizes = block_size if isinstance(block_size, tuple) else (block_size, block_size)
    if len(sizes) != 2 or any((whole("block_size", size) or 0) < 1 for size in sizes):
        raise ValueError(f"block_size is {block_size!r}: expected a number of tokens, or two")
    if flat is None:
        flat = batch._form.places.get("input_ids", ("", batch._form.shape))[1] != ROWS
    rows = 1 if flat else batch.batch_size
    first = _first_seen(batch, rows, window)
    length, (of_q, of_kv) = first.shape[1], sizes
    queries, keys = -(-length // of_q), -(-length // of_kv)
    first_q = numpy.arange(queries) * of_q
    last_q = numpy.minimum(first_q + of_q, length) - 1
    # Neighbours, in each block of queries: all blocks that any of them sees, of which the full
    # ones, in which each sees each token, are neighbours too. All of these grow with the queries.
    begin = first[:, first_q] // of_kv
    end = numpy.broadcast_to(last_q // of_kv + 1, begin.shape)
    full_end = numpy.broadcast_to((first_q + 1) // of_kv, begin.shape).copy()
    full_end[:, last_q - first_q + 1 < of_q] = begin[:, last_q - first_q + 1 < of_q]
    full_begin = numpy.minimum(-(-first[:, last_q] // of_kv), full_end)
    full_begin = numpy.maximum(full_begin, begin)
    full_end = numpy.maximum(full_end, full_begin)
    ranges = torch.from_numpy(numpy.stack([begin, end, full_begin, full_end]).astype(numpy.int32))
    seen = torch.from_numpy(first)
    if device is not None:
        ranges, seen = (t.to(device, non_blocking=True) for t in (ranges, seen))

    def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (kv_idx <= q_idx) & (kv_idx >= seen[b, q_idx])

    begin, end, full_begin, full_end = ranges
    number, indices = _ordered(begin, end, full_begin, full_end, keys)
    full_number, full_indices = _ordered(full_begin, full_end, full_end, full_end, keys)
    return BlockMask.from_kv_blocks(
        number,
        indices,
        full_number,
        full_indices,
        BLOCK_SIZE=sizes,
        mask_mod=mask_mod,
        seq_lengths=(length, length),
    )
