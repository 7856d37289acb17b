# SPDX-License-Identifier: Apache-2.0
"""Trainers of TRL whose batches are pairs of a chosen and a rejected answer: DPOTrainer and
RewardTrainer. trl is not imported here."""

from typing import Any

from ._calendar import ends_of
from ._pairs import REFERENCE, REFERENCES
from .errors import UsageError

_TRAINERS = ("DPOTrainer", "RewardTrainer")


def _kind(trainer: Any) -> str:
    """The name of the trainer's class in _TRAINERS, or of its base there; else an empty one."""
    names = (base.__name__ for base in type(trainer).__mro__)
    return next((name for name in names if name in _TRAINERS), "")


def takes_pairs(trainer: Any) -> bool:
    return bool(_kind(trainer))


def names_for(trainer: Any, names: list[str]) -> list[str]:
    """A reward model has no use of completion_mask and references, which its collator does not
    make."""
    leaves = {"completion_mask", *REFERENCES} if _kind(trainer) == "RewardTrainer" else ()
    return [name for name in names if name not in leaves]


def check_stream(trainer: Any, loader: Any) -> None:
    """Refuse streams and settings of which a pair trainer would make NaN or something else."""
    if not takes_pairs(trainer):
        return
    loader.attach()
    computed = getattr(trainer, "precompute_ref_logps", False)
    if computed and "ref_chosen_logps" not in loader._form.names:
        raise UsageError(
            "precompute_ref_log_probs wants the log-probabilities of the reference model, and the "
            f"corpus of the loader has no document column `{REFERENCE}`",
            "leave precompute_ref_log_probs out: the reference model is run in each step; or "
            f"`ringpack annotate --column {REFERENCE}=FILE`, and document_columns: [{REFERENCE}]",
        )
    client = loader._client
    padding = getattr(getattr(trainer, "processing_class", None), "pad_token_id", None)
    if padding is not None and padding != client.geometry.pad_id:
        raise UsageError(
            f"the tokenizer pads with {padding}, and the loader with {client.geometry.pad_id}: a "
            "reward model finds the end of an answer by it",
            f"Loader(pad_id={padding})",
        )
    geometry = client.geometry
    is_shared = geometry.world * geometry.micro_batches > 1
    drops = "drop_last=true" in client.contract().splitlines()
    if is_shared and not drops and ends_of(client).epochs != 0:
        raise UsageError(
            "the last step of the stream may have batches without a pair, whose loss is NaN",
            "Loader(drop_last=True)",
        )
