# SPDX-License-Identifier: Apache-2.0
"""Whether a model of transformers keeps the documents of a row apart: it is measured, not assumed.

Each family reads other arguments for that, some none, and some only with kernels that may not be
installed. So the model is given rows of two documents three times: as they are, with another first
document, and with another beginning of the second one. Shapes are the same each time. Logits of the
second document may change only with the second document."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from .errors import UsageError

_SHARE = 0.1  # share of the change by its own tokens: rounding is 1e-6 in float32, a leak above 0.5
_ROWS, _LENGTH = 2, 128  # FlashAttention is called otherwise for one row; more takes memory only


def _arrange(batch: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Rows of the batch with its names, and two documents in each; and where these meet."""
    import torch

    ids = batch["input_ids"][:_ROWS, :_LENGTH]
    rows, length = ids.shape
    half = length // 2
    lengths = torch.tensor([half, length - half] * rows, device=ids.device)
    ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).to(torch.int32)
    numbers = torch.arange(2 * rows, device=ids.device, dtype=torch.int32)
    positions = torch.cat([torch.arange(n, device=ids.device) for n in (half, length - half)])
    made = {
        "input_ids": ids,
        "position_ids": positions.repeat(rows, 1),
        "cu_seq_lens_q": ends,
        "cu_seq_lens_k": ends,
        "max_length_q": length - half,
        "max_length_k": length - half,
        "seq_idx": numbers.repeat_interleave(lengths).reshape(rows, length),
        "use_cache": False,
    }
    return {name: made[name] for name in batch if name in made}, half


@contextlib.contextmanager
def _evaluating(model: Any, device: Any) -> Iterator[None]:
    """Without gradients and dropout; modes of layers and random numbers stay as they are."""
    import torch

    modes = [(module, module.training) for module in model.modules()]
    devices = [device] if device.type == "cuda" else []
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices):
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def measure_leak(model: Any, batch: Mapping[str, Any]) -> Optional[float]:
    """The change of a document's logits by the document before it, as a share of the change by its
    own first tokens; None: they do not change at all."""
    import torch

    given, half = _arrange(batch)
    ids = given["input_ids"]
    low, high = int(ids.min()), int(ids.max())  # ids that the vocabulary has
    changed = torch.where(ids == low, high, low) if low < high else (ids - 1).abs()
    other, own = ids.clone(), ids.clone()
    other[:, :half] = changed[:, :half]
    own[:, half : half + 2] = changed[:, half : half + 2]
    with _evaluating(model, ids.device):
        first, *rest = (
            model(**{**given, "input_ids": tokens}).logits[:, half + 2 :].float()
            for tokens in (ids, other, own)
        )
    of_other, of_own = ((logits - first).abs().max().item() for logits in rest)
    return of_other / of_own if of_own > 0 else None


def check_documents(model: Any, batch: Mapping[str, Any]) -> None:
    """Refuse a model that lets documents of a row see each other, with the arguments that `batch`
    has (profile "hf" or "trl", return_type="torch", on the device of the model).

    Calls the model three times, without gradients, with at most 2 rows of 128 tokens of the batch,
    which get two documents each. Random numbers and the modes of layers stay as they are.
    UsageError: by how much a document changes the next one."""
    leak = measure_leak(model, batch)
    if leak is not None and not leak < _SHARE:
        raise UsageError(
            f"{type(model).__name__} lets documents of a row see each other: another first document"
            f" changes the logits of the second one {leak:.2g} times as much as its own tokens do",
            "a model that keeps them apart (ringpack's attention.md has a list); or "
            "Loader(max_docs_per_row=1), which gives each row one document",
        )
