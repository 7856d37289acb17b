# SPDX-License-Identifier: Apache-2.0
"""Shapes and kinds of the views of a batch, how they are made, and the packages that do that."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Optional
from weakref import ref

if TYPE_CHECKING:
    from ._lease import Lease, Place
    from ._made import Recipe
    from .profiles import Field

ROWS, FLAT, ONE_ROW = 0, 1, 2
"""Shapes of a view: (rows, n), (rows * n,), (1, rows * n)."""
Look = Callable[["Lease"], Any]
"""Gives a view of one section of a batch, which keeps its lease."""
KINDS = ("numpy", "torch", "jax")


class Form:
    """Names, shapes and kinds of the values of `batch[name]`: one for all batches of a loader."""

    __slots__ = (
        *("client", "fields", "is_own", "kind", "looks", "made", "names", "places", "sections"),
        *("shape", "tensor", "went_on"),
    )

    client: Any
    kind: str
    is_own: bool  # tensors of torch are copies
    tensor: Optional[Callable[[Any], Any]]  # makes one from a numpy array; None: arrays are wanted
    shape: int  # shape of a section's view: ROWS, FLAT
    sections: tuple[str, ...]  # sections of the run, and of `made`
    made: "Mapping[str, Recipe]"  # sections that are not views of the ring
    fields: "Mapping[str, Field]"  # fields of a profile; empty: use the sections
    places: Mapping[str, tuple[str, int]]  # by name: the section, and the shape
    looks: Mapping[str, Look]  # by the same names
    names: tuple[str, ...]  # names of the fields, or of the sections that have tensors of this kind
    went_on: str  # why the loader's next step closes a batch

    def __init__(self, **all_of_them: Any):
        for name, value in all_of_them.items():
            setattr(self, name, value)


def import_torch() -> Any:
    try:
        import torch
    except ImportError:
        raise ImportError("return_type='torch' needs PyTorch: pip install torch") from None
    return torch


def import_jax() -> Any:
    try:
        import jax
    except ImportError:
        raise ImportError("return_type='jax' needs JAX: pip install jax") from None
    return jax


def tensor_of(kind: str) -> Callable[[Any], Any]:
    """The function that makes a tensor over the memory of a numpy array."""
    if kind == "torch":
        of_array: Callable[[Any], Any] = import_torch().from_numpy
        return of_array
    if kind == "jax":
        of_memory: Callable[[Any], Any] = import_jax().dlpack.from_dlpack
        return of_memory
    raise ValueError(f"kind is {kind!r}: expected one of {', '.join(KINDS)}")


def _bfloat16_of(tensor: Callable[[Any], Any], array: Any) -> Any:
    made = tensor(array)
    is_torch = hasattr(made, "clone")
    return made.view(import_torch().bfloat16 if is_torch else import_jax().numpy.bfloat16)


def look_at(
    name: str,
    place: "Place",
    shape: int,
    tensor: Optional[Callable[[Any], Any]] = None,
) -> Look:
    """The function that makes a view of that section, of that shape (ROWS, ...). tensor: makes a
    tensor of a numpy array; None: views are numpy arrays. Views of records always are."""
    from numpy import dtype as numpy_dtype
    from numpy import frombuffer, ndarray

    word, buffer_at, dtype = place.word, place.buffer_at, place.dtype
    usual, most = place.shapes[shape], place.rows
    if place.is_record:
        tensor = None
    if place.is_bf16 and tensor is not None:
        tensor, dtype = partial(_bfloat16_of, tensor), numpy_dtype("<i2")

    def look(lease: "Lease") -> Any:
        client, terms = lease.client, lease.held.terms
        if client.pins is not None:
            client.pins.note(terms.info)
        known = lease.exports.get(name)
        buffer = known() if known is not None else None
        if buffer is None:
            buffer = buffer_at(terms.words[word])
            buffer.lease = lease
            lease.exports[name] = ref(buffer)
        rows = terms.info.rows
        dimensions = usual if rows == most else place.shapes_of(rows)[shape]
        if tensor is None:
            # Its base is the view of memory, so that no caller can make it writable again.
            memory, count = memoryview(buffer).toreadonly(), prod(dimensions)
            return frombuffer(memory, dtype, count).reshape(dimensions)
        # This array claims to be writable, because torch warns about every one that is not, and
        # DLPack as JAX uses it knows no other.
        return tensor(ndarray(dimensions, dtype, buffer))

    return look


def own(view: Any, is_locked: bool = False) -> Any:
    """A copy in memory of the caller's. is_locked: a tensor of torch is in page-locked memory, of
    torch's caching allocator: it gives a block away again only when the GPU has read it."""
    import numpy

    if isinstance(view, numpy.ndarray):
        return view.copy()
    if hasattr(view, "clone"):
        if not is_locked or view.device.type != "cpu":
            return view.clone()
        return import_torch().empty_like(view, pin_memory=True).copy_(view)
    jax = sys.modules.get("jax")  # its arrays cannot be written to, but their memory is the ring
    return view.copy() if jax is not None and isinstance(view, jax.Array) else view
