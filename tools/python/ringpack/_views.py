# SPDX-License-Identifier: Apache-2.0
"""Shapes and kinds of the views of a batch, and the packages that make them."""

from collections.abc import Callable
from typing import Any

ROWS, FLAT, ONE_ROW = 0, 1, 2
"""Shapes of a view: (rows, n), (rows * n,), (1, rows * n)."""
KINDS = ("numpy", "torch", "jax")


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
    """What makes a tensor over the memory of a numpy array."""
    if kind == "torch":
        of_array: Callable[[Any], Any] = import_torch().from_numpy
        return of_array
    if kind == "jax":
        of_memory: Callable[[Any], Any] = import_jax().dlpack.from_dlpack
        return of_memory
    raise ValueError(f"kind is {kind!r}: expected one of {', '.join(KINDS)}")
