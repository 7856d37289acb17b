# SPDX-License-Identifier: Apache-2.0
"""A batch: a mapping of names to arrays that lie in the engine's memory, read without a copy.

Ownership. A batch holds a *lease* on its slot of the ring. Every view (array or tensor, and every
slice of one) keeps the lease, so the memory below a view never changes and never goes away,
whatever happens to the batch, the loader or the engine. The slot goes back to the engine, once,
when the batch has been closed and its last view is gone:

* the loader's next step, ``with batch:`` and garbage collection *close*: views that are still alive
  keep the slot, and it goes back when they die;
* ``batch.release()`` means "now": it raises LeaseError, which names the views, if it cannot.

A closed batch gives no more views (ReleasedError). Its numbers stay readable.

Read-only. Arrays are read-only and cannot be made writable. Torch has no read-only tensors: writing
into a tensor of a batch, in place, kills the process with SIGSEGV; ``.to(device)`` and ``.clone()``
give tensors that are yours.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Optional

import numpy

from ._library import RECORDS
from .errors import LeaseError, ReleasedError

KINDS = ("numpy", "torch")


def import_torch():
    try:
        import torch
    except ImportError:
        raise ImportError("return_type='torch' needs PyTorch: pip install torch") from None
    return torch


def _number(name: str, text: str) -> Any:
    return property(lambda batch: getattr(batch._info, name), doc=text)


class Sections(Mapping):
    """Names to views of one batch, all of one shape. Views are made when they are asked for."""

    __slots__ = ("_batch", "_flat")

    def __init__(self, batch, flat):
        self._batch, self._flat = batch, flat

    def __getitem__(self, name: str) -> Any:
        return self._batch.view(name, flat=self._flat)

    def __iter__(self) -> Iterator[str]:
        return iter(self._batch._names)

    def __len__(self) -> int:
        return len(self._batch._names)

    def __contains__(self, name):
        return name in self._batch._names


class Batch(Mapping):
    """The rows that one rank takes in one micro-step.

    ``batch[name]`` is a view of a section, if the run has it (``profile`` and ``sections`` of the
    config choose). L is seq_len, D is max_docs_per_row; a *fragment* is the part of a document that
    lies in one row:

    ============== =================== =========================================================
    rows           (batch_size,)       row (global number), fragments, tokens; numpy records
    doc_lens       (batch_size, D)     int32; length of every fragment in tokens, then zeros
    input_ids      (batch_size, L)     tokens, then pad_id
    labels         (batch_size, L)     next token of the fragment; -100 where there is none
    position_ids   (batch_size, L)     0, 1, … within each fragment
    segment_ids    (batch_size, L)     int32; 1, 2, … by fragment, 0 on padding
    loss_mask      (batch_size, L)     float32; 1 where the label is a token
    cu_seqlens     (batch_size*(D+1)+1,) int32; ends of all segments over the flat batch, padded at
                                       the end: use ``[: batch.segments + 1]`` for the exact ones
    provenance     (batch_size, D)     document, offset, source, length; numpy records
    ============== =================== =========================================================

    ``batch.flat()`` has the same bytes as 1-D views. See the module for who owns what, how long.
    """

    __slots__ = ("__weakref__", "_flat", "_info", "_kind", "_lease", "_names", "_why")

    number = _number("number", "Number of the batch since the run's base row.")
    first_row = _number("first_row", "Global number of its first row.")
    next_row = _number("next_row", "Global row at which the state after this batch stands.")
    batch_size = _number("rows", "Rows.")
    seq_len = _number("seq_len", "Tokens in a row.")
    rows_real = _number("rows_real", "Rows that are not padding only.")
    tokens_real = _number("tokens_real", "Tokens that are not padding.")
    tokens_loss = _number("tokens_loss", "Labels that are not -100.")
    max_seqlen = _number("max_seqlen", "Tokens of the longest segment of cu_seqlens.")
    segments = _number("segments", "Segments of cu_seqlens, pad tails included.")
    sum_len_squared = _number("sum_len_squared", "Sum of squared fragment lengths, in tokens².")

    def __init__(self, lease, kind="numpy", flat=False):
        self._lease, self._info, self._kind, self._flat = lease, lease.info, kind, flat
        self._names = lease.client.layout
        self._why = ""

    def view(self, name: str, *, flat: Optional[bool] = None, kind: Optional[str] = None) -> Any:
        """One section. flat: 1-D, otherwise a row of the batch is a row of the view. kind: "numpy"
        or "torch"; records (rows, provenance) are always numpy. Default: as the loader says."""
        if self._lease is None:
            raise ReleasedError(
                f"batch {self.number} {self._why}", "take views, or copies, before that"
            )
        kind = self._kind if kind is None else kind
        flat = self._flat if flat is None else flat
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}: expected one of {', '.join(KINDS)}")
        if name not in self._names:
            raise KeyError(
                f"{name}: the run has {', '.join(self._names)}; "
                "`profile` or `sections` of its config adds others"
            )
        if kind == "torch" and name not in RECORDS:
            # The array claims to be writable, because torch warns about every one that is not.
            return import_torch().from_numpy(numpy.asarray(self._lease.memory(name, flat, True)))
        return numpy.asarray(self._lease.memory(name, flat, False))

    def flat(self) -> Sections:
        """The same sections as 1-D views."""
        return Sections(self, flat=True)

    def copy(self) -> dict[str, Any]:
        """A dict of copies, which are the caller's."""
        return {
            name: view.copy() if isinstance(view, numpy.ndarray) else view.clone()
            for name, view in self.items()
        }

    def digest(self) -> int:
        """Digest of the rows (engine/plan/STREAM.md section 7), to be added up modulo 2**128."""
        self.view("rows", kind="numpy")  # refuses a closed batch
        return self._lease.client.digest(self._info)

    def release(self) -> None:
        """Give the slot back to the engine now. Twice is once.

        Raises LeaseError when views are alive; the batch then stays as it was."""
        if self._lease is None:
            return
        alive = self._lease.viewed()
        if alive:
            raise LeaseError(
                f"batch {self.number} cannot be released: views of {', '.join(alive)} are alive",
                "drop them (del), or use close(), which releases when the last one is gone",
            )
        self.close("was released")

    def close(self, why: str = "was closed") -> None:
        """Give no more views; the slot goes back when the last view is gone. Twice is once."""
        if self._lease is not None:
            self._lease, self._why = None, why

    @property
    def closed(self) -> bool:
        return self._lease is None

    def __getitem__(self, name: str) -> Any:
        return self.view(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name):
        return name in self._names

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close("was closed at the end of its `with` block")

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__

    def __reduce__(self):
        raise TypeError("a batch lies in shared memory and cannot be pickled: send batch.copy()")

    def __repr__(self):
        state = f" ({self._why})" if self.closed else ""
        return (
            f"<ringpack.Batch {self.number}: rows {self.first_row} to "
            f"{self.first_row + self.batch_size - 1}, {self.tokens_real} tokens{state}>"
        )
