# SPDX-License-Identifier: Apache-2.0
"""Batches as they must be: rows from tests/oracle, sections from include/ringpack/batch.h."""

import struct

import numpy
from oracle import make_spec
from state import labels_of, row_digest
from stream import Plan, count_rows

INPUTS = {
    "stream_version": 1,  # the version of the oracle used here
    "seed": 7,
    "seq_len": 48,
    "shuffle": "document",
    "packing": "lookahead",
    "window": 8,
    "fill": "pad",
    "long_doc": "split",
    "max_docs_per_row": 6,
    "num_epochs": 2,
}
SIZE_KEYS = {"lookahead": "packing_buffer", "best_fit": "open_bins"}  # concat has none


def keys_of(fields):
    """The keys of a config for fields of a stream, or for keys whose `packing` was replaced."""
    names = {"fill": "row_gap", "lanes": "plan_partitions"}
    of_size = "window", *SIZE_KEYS.values()
    keys = {names.get(k, k): value for k, value in fields.items() if k not in of_size}
    sizes = [fields[name] for name in of_size if name in fields]
    if sizes and keys.get("packing", "lookahead") in SIZE_KEYS:
        keys[SIZE_KEYS[keys.get("packing", "lookahead")]] = sizes[-1]
    return keys


KEYS = keys_of(INPUTS)
IGNORED = -100


def write_megatron(prefix, documents):
    """A .bin/.idx pair of u16 tokens; every document is one sequence."""
    lengths = numpy.array([len(document) for document in documents], "<i4")
    starts = 2 * (numpy.cumsum(lengths, dtype="<i8") - lengths)
    numpy.concatenate(documents).astype("<u2").tofile(f"{prefix}.bin")
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1))
        file.write(lengths.tobytes() + starts.astype("<i8").tobytes())
        file.write(numpy.arange(len(lengths) + 1, dtype="<i8").tobytes())
    return str(prefix)


class Expected:
    """All rows of the stream of some Megatron prefixes: fragments, and digest."""

    def __init__(self, prefixes, weights=None, **changes):
        weights = weights or [1] * len(prefixes)
        sources = [{"weight": w, "megatron": p} for p, w in zip(prefixes, weights)]
        self.spec = make_spec({**INPUTS, **changes, "sources": sources})
        self.rows, self.digest = [], 0
        plan = Plan(self.spec)
        for _ in range(count_rows(Plan(self.spec))):
            fragments = plan.row()
            self.digest += row_digest(self.spec, len(self.rows), fragments)
            self.rows.append(fragments)
        self.digest %= 2**128

    def tokens(self, fragment):
        corpus = self.spec.corpora[fragment.source]
        return corpus.tokens(fragment.document, fragment.offset, fragment.length)

    def batch(self, first, count, pad_id=0):
        """Every section of rows first … first + count - 1; rows after the end are padding."""
        length, most = self.spec.L, self.spec.D
        rows = [self.rows[g] if g < len(self.rows) else [] for g in range(first, first + count)]
        made = {
            "rows": [
                (first + r, len(row), sum(f.length for f in row)) for r, row in enumerate(rows)
            ],
            "doc_lens": numpy.zeros((count, most), "<i4"),
            "input_ids": numpy.full((count, length), pad_id, "<i4"),
            "labels": numpy.full((count, length), IGNORED, "<i4"),
            "aligned": numpy.full((count, length), IGNORED, "<i4"),
            "position_ids": numpy.zeros((count, length), "<i4"),
            "segment_ids": numpy.zeros((count, length), "<i4"),
            "provenance": [[(0, 0, 0, 0)] * most for _ in rows],
        }
        ends = [0]
        for r, row in enumerate(rows):
            at = 0
            for n, fragment in enumerate(row):
                span = slice(at, at + fragment.length)
                made["doc_lens"][r, n] = fragment.length
                tokens = self.tokens(fragment)
                labels = labels_of(self.spec, fragment, tokens)
                labels = [IGNORED if label is None else label for label in labels]
                made["input_ids"][r, span] = tokens
                made["aligned"][r, span] = labels
                made["labels"][r, span] = (*labels[1:], IGNORED)
                made["position_ids"][r, span] = range(fragment.length)
                made["segment_ids"][r, span] = n + 1
                made["provenance"][r][n] = (
                    fragment.document,
                    fragment.offset,
                    fragment.source,
                    fragment.length,
                )
                at = span.stop
                ends.append(r * length + at)
            if at < length:
                made["position_ids"][r, at:] = range(length - at)
                ends.append((r + 1) * length)
        made["loss_mask"] = (made["labels"] != IGNORED).astype("<f4")
        capacity = count * (most + 1) + 1
        made["cu_seqlens"] = numpy.array(ends + [count * length] * (capacity - len(ends)), "<i4")
        return made, ends


def assert_batch(batch, expected):
    """The batch holds exactly the rows that its numbers claim, in every section that it has."""
    made, ends = expected.batch(batch.first_row, batch.batch_size)
    for name, view in batch.items():
        wanted = made[name]
        if isinstance(wanted, list):
            assert view.tolist() == wanted, f"other values: {name}"
        else:
            assert view.dtype == wanted.dtype and view.shape == wanted.shape, name
            assert (view == wanted).all(), f"other values: {name} of {batch}"
    lengths = made["doc_lens"].astype(int)
    assert batch.rows_real == int((lengths[:, 0] > 0).sum())
    assert batch.tokens_real == lengths.sum()
    assert batch.tokens_loss == (made["labels"] != IGNORED).sum()
    assert batch.segments == len(ends) - 1
    assert batch.max_seqlen == max(numpy.diff(ends))
    assert batch.sum_len_squared == (lengths**2).sum()
