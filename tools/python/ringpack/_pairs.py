# SPDX-License-Identifier: Apache-2.0
"""The profile `pairs`: a batch as the collators of TRL's DPOTrainer and RewardTrainer make it.

With `group: 2` a row has whole pairs: a chosen document, and its rejected one after it. The tensors
have one row for each document, the chosen ones first, padded to the longest of the batch. The
document column `ref_logps` becomes the two tensors of precomputed log-probabilities."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .errors import UsageError

if TYPE_CHECKING:
    from .batch import Batch

_GROUP = "give the engine `group: 2`"


def check_groups(contract: str) -> None:
    """Refuse a stream whose neighbouring documents may be in two rows."""
    found = re.search(r"^group=(\d+)$", contract, re.M)
    group = int(found[1]) if found else 1
    if group % 2:
        raise UsageError(
            f"profile pairs needs pairs of documents; group of the run is {group}", _GROUP
        )


def _documents(batch: "Batch") -> tuple[Any, Any]:
    """Places of the documents' tokens in the flat batch, one document a row, the chosen ones first;
    and whether there is such a token."""
    import numpy

    lengths = batch.view("doc_lens", flat=False, kind="numpy")
    counts = batch.view("rows", kind="numpy")["fragments"]
    if (counts % 2).any():
        row = int((counts % 2).argmax())
        raise UsageError(
            f"row {batch.first_row + row} has {counts[row]} documents, and no pairs", _GROUP
        )
    occupied = lengths.astype(numpy.int64)
    if "row_plans" in batch._form.sections:
        align = batch.view("row_plans", flat=False, kind="numpy")["align"].astype(numpy.int64)
        occupied = -(-occupied // align[:, None]) * align[:, None]
    begins = occupied.cumsum(axis=1) - occupied
    begins += batch.seq_len * numpy.arange(len(begins))[:, None]
    used = numpy.arange(lengths.shape[1]) < counts[:, None]
    begin, length = (part[used].reshape(-1, 2).T.reshape(-1, 1) for part in (begins, lengths))
    places = numpy.arange(length.max(initial=0))
    exists = places < length
    return numpy.where(exists, begin + places, 0), exists


def _input_ids(batch: "Batch") -> Any:
    import numpy

    places, exists = _documents(batch)
    ids = batch.view("input_ids", flat=True, kind="numpy")
    made = numpy.where(exists, ids[places], ids.dtype.type(batch._form.client.geometry.pad_id))
    return batch.adopt(made)


def _attention_mask(batch: "Batch") -> Any:
    return batch.adopt(_documents(batch)[1].astype("int64"))


def _completion_mask(batch: "Batch") -> Any:
    places, exists = _documents(batch)
    labels = batch.view("labels", flat=True, kind="numpy")
    return batch.adopt((exists & (labels[places] >= 0)).astype("int64"))


REFERENCE = "ref_logps"
"""The document column with the reference model's log-probability of each answer."""


def _reference(half: int) -> Callable[["Batch"], Any]:
    """Of the chosen answers (0), or of the rejected ones (1), as TRL's collator gives them."""

    def made(batch: "Batch") -> Any:
        import numpy

        values = batch.view(REFERENCE, flat=False, kind="numpy")
        counts = batch.view("rows", kind="numpy")["fragments"]
        used = numpy.arange(values.shape[1]) < counts[:, None]
        return batch.adopt(values[used].reshape(-1, 2)[:, half].astype("float32"))

    return made


REFERENCES: Mapping[str, Callable[["Batch"], Any]] = {
    "ref_chosen_logps": _reference(0),
    "ref_rejected_logps": _reference(1),
}
PAIRS: Mapping[str, Callable[["Batch"], Any]] = {
    "input_ids": _input_ids,
    "attention_mask": _attention_mask,
    "completion_mask": _completion_mask,
}
NEEDED_BY_PAIRS = frozenset({"doc_lens", "input_ids", "labels", "rows"})
