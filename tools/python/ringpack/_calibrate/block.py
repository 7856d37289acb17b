# SPDX-License-Identifier: Apache-2.0
"""One transformer block in torch, forward and backward over a row, with attention inside documents.

Attention is torch's varlen_attn where it exists, else flash-attn if it is installed, else
scaled_dot_product_attention, document by document. torch has no types that hold for all of its
versions, so its objects are Any.
"""

import importlib
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Optional

from .rows import Refused, Row

Attention = Callable[[Any, Any, Any, Row, Any], Any]
"""(queries, keys, values, row, offsets) -> as the queries: (tokens, heads, head_dim)"""


class Shape(NamedTuple):
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def parameters(self) -> int:
        projected = (2 * self.heads + 2 * self.kv_heads) * self.head_dim
        return self.hidden * (projected + 3 * self.ffn)

    def bytes_needed(self, tokens: int, item: int) -> int:
        """Memory of a forward and a backward: activations, and the largest gradients."""
        of_token = 12 * self.hidden + 7 * self.ffn
        of_token += 6 * (self.heads + 2 * self.kv_heads) * self.head_dim
        return item * (tokens * of_token + 3 * self.parameters)


def check_shape(shape: Shape) -> None:
    for name, number in shape._asdict().items():
        if number < 1:
            raise Refused(f"{name} is {number}: expected 1 or more", "give the model's own shape")
    if shape.heads % shape.kv_heads:
        raise Refused(
            f"heads is {shape.heads}, kv_heads is {shape.kv_heads}: each key head serves as many "
            "query heads",
            "kv_heads divides heads",
        )
    if shape.head_dim % 2:
        raise Refused(f"head_dim is {shape.head_dim}: expected an even number", "give another one")


# ---- attention -----------------------------------------------------------------------------------


def _repeated(torch: Any, keys: Any, heads: int) -> Any:
    return torch.repeat_interleave(keys, heads // keys.shape[1], dim=1)


def varlen_attention(torch: Any) -> Optional[Attention]:
    """torch.nn.attention.varlen, whose arguments differ by version."""
    try:
        from torch.nn.attention import varlen
    except ImportError:
        return None
    kernel: Any = varlen.varlen_attn
    known = inspect.signature(kernel).parameters

    def attend(queries: Any, keys: Any, values: Any, row: Row, offsets: Any) -> Any:
        more: dict[str, Any] = {}
        if row.window and "window_size" not in known:
            raise Refused("varlen_attn of this torch has no window", "install a newer torch")
        if "window_size" in known:
            more["window_size"] = (row.window - 1 if row.window else -1, 0)
        else:
            more["is_causal"] = True
        if "enable_gqa" in known:
            more["enable_gqa"] = keys.shape[1] != queries.shape[1]
        else:
            keys = _repeated(torch, keys, queries.shape[1])
            values = _repeated(torch, values, queries.shape[1])
        longest = max(row.lengths)
        return kernel(queries, keys, values, offsets, offsets, longest, longest, **more)

    return attend


def flash_attention(torch: Any) -> Optional[Attention]:
    try:
        kernel: Any = importlib.import_module("flash_attn").flash_attn_varlen_func
    except ImportError:
        return None

    def attend(queries: Any, keys: Any, values: Any, row: Row, offsets: Any) -> Any:
        longest, near = max(row.lengths), row.window - 1 if row.window else -1
        places = (offsets, offsets, longest, longest)
        return kernel(queries, keys, values, *places, causal=True, window_size=(near, 0))

    return attend


def _runs(lengths: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Neighbours of one length: the length, and their count."""
    first = 0
    for i in range(1, len(lengths) + 1):
        if i == len(lengths) or lengths[i] != lengths[first]:
            yield lengths[first], i - first
            first = i


def document_attention(torch: Any) -> Attention:
    """Neighbours of one length are a batch. A window's queries go in blocks of its size."""
    kernel = torch.nn.functional.scaled_dot_product_attention

    def near(queries: Any, keys: Any, values: Any, window: int) -> Any:
        parts, length = [], queries.shape[2]
        places = torch.arange(length, device=queries.device)
        for first in range(0, length, window):
            end, least = min(first + window, length), max(0, first - window + 1)
            distance = places[first:end, None] - places[None, least:end]
            mask = (distance >= 0) & (distance < window)
            own = (queries[:, :, first:end], keys[:, :, least:end], values[:, :, least:end])
            parts.append(kernel(*own, attn_mask=mask))
        return torch.cat(parts, dim=2)

    def attend(queries: Any, keys: Any, values: Any, row: Row, _offsets: Any) -> Any:
        heads, parts, first = queries.shape[1], [], 0
        keys, values = _repeated(torch, keys, heads), _repeated(torch, values, heads)
        for length, count in _runs(row.lengths):
            q, k, v = (
                each[first : first + length * count].unflatten(0, (count, length)).transpose(1, 2)
                for each in (queries, keys, values)
            )
            is_near = 0 < row.window < length
            found = near(q, k, v, row.window) if is_near else kernel(q, k, v, is_causal=True)
            parts.append(found.transpose(1, 2).flatten(0, 1))
            first += length * count
        return torch.cat(parts)

    return attend


# ---- the block -----------------------------------------------------------------------------------


class Block:
    """A block of random weights on a device. `seconds(row)` runs a row forward and backward."""

    def __init__(self, torch: Any, shape: Shape, device: str, dtype: Any, seed: int = 0):
        check_shape(shape)
        self.torch, self.shape, self.device, self.dtype = torch, shape, device, dtype
        draw = torch.Generator(device).manual_seed(seed)
        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim

        def weight(rows: int, columns: int) -> Any:
            made = torch.randn(rows, columns, generator=draw, device=device) / columns**0.5
            return made.to(dtype).requires_grad_()

        self.into = weight(queries + 2 * keys, shape.hidden)
        self.out = weight(shape.hidden, queries)
        self.gate_up = weight(2 * shape.ffn, shape.hidden)
        self.down = weight(shape.hidden, shape.ffn)
        self.norms = [torch.ones(shape.hidden, dtype=dtype, device=device) for _ in range(2)]
        self.weights = [self.into, self.out, self.gate_up, self.down]
        self._input: Any = None
        self.kind, self.attend = self._choose()

    def _choose(self) -> tuple[str, Attention]:
        """The first attention that works here, forward and backward."""
        torch = self.torch
        if self.device != "cpu":
            kinds = (("varlen_attn", varlen_attention), ("flash-attn", flash_attention))
            for kind, make in kinds:
                attend = make(torch)
                if attend and self._works(attend):
                    return kind, attend
        return "scaled_dot_product_attention, by document", document_attention(torch)

    def _works(self, attend: Attention) -> bool:
        self.attend = attend
        try:
            self.seconds(Row("", (48, 16)))
        except (RuntimeError, TypeError, AttributeError, NotImplementedError):
            return False
        finally:
            self.free()
        return True

    def places(self, row: Row) -> tuple[Any, Any]:
        """Offsets of the documents, and the place of each token in its document: a loader has
        them, so they are not timed."""
        torch = self.torch
        lengths = torch.tensor(row.lengths)
        offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        places = torch.arange(row.tokens) - torch.repeat_interleave(offsets[:-1], lengths)
        return offsets.to(self.device, torch.int32), places.to(self.device)

    def forward(self, values: Any, row: Row, offsets: Any, places: Any) -> Any:
        shape = self.shape
        mapped = self._norm(values, 0) @ self.into.t()
        mapped = mapped.view(row.tokens, -1, shape.head_dim)
        queries, keys, own = mapped.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
        queries, keys = self._turn(queries, places), self._turn(keys, places)
        attended = self.attend(queries, keys, own.contiguous(), row, offsets)
        values = values + attended.flatten(1) @ self.out.t()
        gate, up = (self._norm(values, 1) @ self.gate_up.t()).chunk(2, dim=1)
        return values + (self.torch.nn.functional.silu(gate) * up) @ self.down.t()

    def _norm(self, values: Any, which: int) -> Any:
        functional = self.torch.nn.functional
        if hasattr(functional, "rms_norm"):
            return functional.rms_norm(values, (self.shape.hidden,), self.norms[which])
        return functional.layer_norm(values, (self.shape.hidden,), self.norms[which])

    def _turn(self, values: Any, places: Any) -> Any:
        """Rotary embedding."""
        torch, half = self.torch, self.shape.head_dim // 2
        powers = torch.arange(half, device=self.device) / half
        angles = places[:, None] / 10000.0**powers
        cos, sin = angles.cos().to(self.dtype)[:, None], angles.sin().to(self.dtype)[:, None]
        first, second = values.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def _run(self, row: Row, offsets: Any, places: Any) -> None:
        """Forward and backward; gradients of weights and inputs are made and let go."""
        torch = self.torch
        found = self.forward(self._input, row, offsets, places)
        torch.autograd.grad(found, [self._input, *self.weights], self._input.detach())

    def _fill(self, row: Row) -> None:
        torch = self.torch
        if self._input is None or self._input.shape[0] != row.tokens:
            self._input = None
            draw = torch.Generator(self.device).manual_seed(1)
            shape = (row.tokens, self.shape.hidden)
            made = torch.randn(*shape, generator=draw, device=self.device, dtype=self.dtype)
            self._input = made.requires_grad_()

    def _wait(self) -> None:
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def seconds(self, row: Row) -> float:
        self._fill(row)
        prepared = self.places(row)
        self._wait()
        begin = time.perf_counter()
        self._run(row, *prepared)
        self._wait()
        return time.perf_counter() - begin

    def free(self) -> None:
        self._input = None
        if self.device != "cpu":
            self.torch.cuda.empty_cache()
