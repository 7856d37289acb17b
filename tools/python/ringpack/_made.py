# SPDX-License-Identifier: Apache-2.0
"""Sections that a batch makes out of sections of the ring: the slices of one process of a
context-parallel group, labels of another type, and labels of tokens further ahead.

A group of s processes splits each row, or each document with its padding, into 2·s chunks of equal
length. Process r takes chunks r and 2·s - 1 - r, as a causal query costs more at the end of a
sequence: so all processes have like work. A slice is one gather, out of the ring into memory of the
caller's; only the slices of rows of the last process, whose chunks are neighbours, may be views.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from ._boundaries import ends_of
from ._views import FLAT, ONE_ROW, import_jax, import_torch
from .errors import UsageError

if TYPE_CHECKING:
    from ._lease import Place
    from .batch import Batch

IGNORED = -100
LABELS = "labels"
NEXT_LABELS = "shift_labels"  # labels of the next tokens, beside aligned labels that are split
SPLITS = ("row", "document")
_INDEX = "places of the split"  # in Batch._made


class Split(NamedTuple):
    """Which slices: argument cp_split, and the place in the group."""

    size: int
    rank: int
    by: str  # one of SPLITS

    def check_length(self, seq_len: int) -> None:
        chunks = 2 * self.size
        if seq_len % chunks:
            more = seq_len + -seq_len % chunks
            raise UsageError(
                f"cp_size={self.size} splits each row into {chunks} chunks, and seq_len {seq_len} "
                f"is no multiple of {chunks}",
                f"seq_len={more - chunks or chunks} or seq_len={more}",
            )

    def check_align(self, align: int) -> None:
        chunks = 2 * self.size
        if align % chunks:
            raise UsageError(
                f"cp_size={self.size} with cp_split='document' splits each document into {chunks} "
                f"chunks, and align is {align}",
                f"align={chunks}, or a multiple of {chunks}",
            )

    def places(self, batch: "Batch") -> Any:
        """Places of the slices of documents in the flat batch."""
        import numpy

        cache = batch._all_made()
        if _INDEX not in cache:
            ends, chunks = ends_of(batch), 2 * self.size
            if (ends % chunks).any():
                sizes = numpy.diff(ends)
                raise UsageError(
                    f"batch {batch.number} has a document of {sizes[sizes % chunks != 0][0]} places"
                    f" in a row, and cp_size={self.size} with cp_split='document' splits each into "
                    f"{chunks} chunks",
                    f"a run with align: {chunks} (stream_version: 2), or cp_split='row'",
                )
            length = numpy.diff(ends) // chunks
            begins = numpy.empty(2 * len(length), numpy.int64)
            begins[::2] = ends[:-1] + self.rank * length
            begins[1::2] = ends[:-1] + (chunks - 1 - self.rank) * length
            lengths = numpy.repeat(length, 2)
            shifts = begins - (numpy.cumsum(lengths) - lengths)
            cache[_INDEX] = numpy.arange(lengths.sum()) + numpy.repeat(shifts, lengths)
        return cache[_INDEX]


class Recipe(NamedTuple):
    """How a section is made."""

    section: str  # the run's section
    split: Optional[Split] = None
    ahead: int = 0  # labels: tokens further ahead than the run's
    dtype: Any = None  # numpy's; None: of the section
    ignored: int = IGNORED  # labels: in place of IGNORED

    def shape(self, batch: "Batch", form: int) -> tuple[int, ...]:
        """form: ROWS, FLAT or ONE_ROW."""
        place = batch._open_lease().client.layout[self.section]
        rows, length, *rest = place.shapes_of(batch.batch_size)[0]
        length //= self.split.size if self.split else 1
        if form in (FLAT, ONE_ROW):
            return (*((1,) if form == ONE_ROW else ()), rows * length, *rest)
        return (rows, length, *rest)

    def view(self, batch: "Batch", is_claimed: bool) -> Optional[Any]:
        """A view of the ring of shape ROWS, if the section is one; else None."""
        split, changes = self.split, self.ahead or self.dtype or self.ignored != IGNORED
        if changes or split is None or split.by != "row" or split.rank != split.size - 1:
            return None
        section = batch.ring(self.section, is_claimed)
        length = section.shape[1] // (2 * split.size)
        return section[:, split.rank * length : (split.rank + 2) * length]

    def write(self, batch: "Batch", out: Any) -> None:
        """Write the section to an array of shape ROWS."""
        import numpy

        section, split = batch.ring(self.section), self.split
        if self.ahead:
            section = _shift(section, ends_of(batch), self.ahead)
        rows, length, *rest = section.shape
        if split is None:
            out[...] = section
        elif split.by == "document":
            flat = section.reshape(rows * length, *rest)
            if out.dtype == flat.dtype:  # mode: "raise" would gather into a buffer first
                into = out.reshape(-1, *rest)
                numpy.take(flat, split.places(batch), axis=0, out=into, mode="clip")
            else:
                out[...] = flat.take(split.places(batch), axis=0).reshape(out.shape)
        else:
            last = 2 * split.size - 1 - split.rank
            chunks = section.reshape(rows, 2 * split.size, -1, *rest)
            two = chunks[:, split.rank : last + 1 : last - split.rank]
            out.reshape(two.shape)[...] = two
        if self.ignored != IGNORED:
            out[out == IGNORED] = self.ignored


def _shift(labels: Any, ends: Any, ahead: int) -> Any:
    """Labels of tokens further ahead in the same document; IGNORED past its end."""
    import numpy

    flat = labels.reshape(-1)
    made = numpy.full(flat.shape, IGNORED, flat.dtype)
    made[:-ahead] = flat[ahead:]
    # The last places of each document would have labels of the next one. A place before the
    # document, if it is shorter, is one of the last places of an earlier document.
    past = (ends[1:, None] - 1 - numpy.arange(ahead)).ravel()
    made[past[past >= 0]] = IGNORED
    return made.reshape(labels.shape)


def _tensor_of(view: Any, batch: "Batch", recipe: Recipe) -> Any:
    torch = import_torch()
    tensor = torch.from_numpy(view)
    is_bf16 = batch._open_lease().client.layout[recipe.section].is_bf16
    return tensor.view(torch.bfloat16) if is_bf16 else tensor


def look(batch: "Batch", recipe: Recipe, form: int, kind: str) -> Any:
    """A made section: a view of the ring if it can be one, else an array of the caller's."""
    view = recipe.view(batch, kind != "numpy") if kind != "jax" else None
    if view is not None and (len(view) == 1 or form not in (FLAT, ONE_ROW)):
        view = view.reshape(recipe.shape(batch, form))
        return _tensor_of(view, batch, recipe) if kind == "torch" else view
    return make(batch, recipe, form, kind)


def make(batch: "Batch", recipe: Recipe, form: int, kind: str, is_locked: bool = False) -> Any:
    """A made section in memory of the caller's. is_locked: page-locked, of torch's."""
    import numpy

    place = batch._open_lease().client.layout[recipe.section]
    shape, dtype = recipe.shape(batch, 0), recipe.dtype or place.dtype
    if kind == "torch":
        torch = import_torch()
        kind_of = torch.from_numpy(numpy.empty(0, dtype)).dtype
        tensor = torch.empty(shape, dtype=kind_of, pin_memory=is_locked)
        recipe.write(batch, tensor.numpy())
        tensor = tensor.view(torch.bfloat16) if place.is_bf16 else tensor
        return tensor.reshape(recipe.shape(batch, form))
    array = numpy.empty(shape, dtype)
    recipe.write(batch, array)
    array = array.reshape(recipe.shape(batch, form))
    if kind != "jax":
        return array
    jax = import_jax()
    made = jax.dlpack.from_dlpack(array)
    return made.view(jax.numpy.bfloat16) if place.is_bf16 else made


class Wishes(NamedTuple):
    """Arguments of a Loader that change sections."""

    split: Optional[Split]
    ignore_index: Optional[int]
    label_dtype: Optional[str]
    mtp: int  # labels of each token

    def recipes(self, sections: "Mapping[str, Place]", is_aligned: bool) -> Mapping[str, Recipe]:
        """The sections that are made, by name, for a run that has these sections."""
        import numpy

        split, wanted = self.split, set(sections)
        names = sorted(name for name in wanted if sections[name].is_by_token) if split else []
        made = {name: Recipe(name, split) for name in names}
        said = [word for word in ("ignore_index", "label_dtype") if getattr(self, word) is not None]
        said += ["mtp"] if self.mtp > 1 else []
        if said and LABELS not in wanted:
            raise UsageError(
                f"{said[0]} changes labels, which the run lacks",
                "sections: [labels], or a profile that has labels",
            )
        if is_aligned and LABELS in wanted and self.mtp > 1:
            raise UsageError(
                "mtp needs labels that are shifted (label_mode), and the run has aligned ones, "
                "which the model shifts itself",
                "profile='torchtitan' or 'megatron', or label_mode='shifted'",
            )
        more = self.more_labels(sections, is_aligned)
        if said or more:
            dtype = {None: None, "i32": numpy.int32, "i64": numpy.int64}[self.label_dtype]
            ignored = IGNORED if self.ignore_index is None else self.ignore_index
            for ahead, name in enumerate([LABELS, *more]):
                made[name] = Recipe(LABELS, split, ahead, dtype, ignored)
        return made

    def more_labels(self, sections: "Mapping[str, Place]", is_aligned: bool) -> list[str]:
        """Names of labels that the run lacks: of the token after the one of `labels`, and so on."""
        if is_aligned:
            return [NEXT_LABELS] if self.split is not None and LABELS in sections else []
        return [f"{LABELS}_{number}" for number in range(2, self.mtp + 1)]


def wishes_of(
    place: tuple[int, int],
    split: str,
    ignore_index: Optional[int],
    label_dtype: Optional[str],
    mtp: Optional[int],
) -> Wishes:
    """place: number in the context-parallel group, and its size."""
    if split not in SPLITS:
        raise ValueError(f"cp_split is {split!r}: expected one of {', '.join(SPLITS)}")
    if label_dtype not in (None, "i32", "i64"):
        raise ValueError(f"label_dtype is {label_dtype!r}: expected 'i32' or 'i64'")
    if ignore_index is not None and not -(2**31) <= ignore_index < 0:
        raise ValueError(
            f"ignore_index is {ignore_index}: expected -2147483648 to -1, which no token has"
        )
    rank, size = place
    slices = Split(size, rank, split) if size > 1 else None
    return Wishes(slices, ignore_index, label_dtype, 1 if mtp is None else mtp)
