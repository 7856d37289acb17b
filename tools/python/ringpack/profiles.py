# SPDX-License-Identifier: Apache-2.0
"""The names that each framework gives to the parts of a batch: the `profile` of a Loader.

A profile defines two things: the sections that the engine makes (its key `profile` has the same
names), and the names and shapes under which a batch gives them. Entries are sections: views of the
engine's memory, or copies of them with return_type="torch"; those marked "made" are small arrays
that are computed at each access and belong to the caller.

=========== ====================================================================================
hf          input_ids, labels, position_ids int64 (batch_size, L); cu_seq_lens_q, cu_seq_lens_k
            int32, exact, and seq_idx int32 (batch_size, L): made; max_length_q, max_length_k: ints;
            use_cache: False. The arguments of a transformers model, which needs all of them to keep
            documents apart. Labels are aligned with their own tokens, the model shifts them
trl         the same names; input_ids, labels, position_ids, seq_idx (1, batch_size * L): one row
megatron    tokens, labels, position_ids int64, loss_mask float32 (batch_size, L); cu_seqlens int32
            of constant length; max_seqlen: int. Labels are shifted, -100 at the ends of documents
olmo        input_ids int64 (batch_size, L); doc_lens int32 (batch_size, D + 1) with the pad tails,
            and label_mask bool (batch_size, L): both made; max_doc_lens: list of ints
torchtitan  input, positions, labels int64 (batch_size, L), shifted; flat=True gives one stream
grain       inputs, inputs_segment_ids, inputs_positions int32 (batch_size, L); 0: padding
pairs       input_ids, attention_mask, completion_mask int64 (2 * pairs, longest document): made.
            The chosen documents, then their rejected ones; as the collators of TRL's DPOTrainer
            and RewardTrainer, which takes no completion_mask. It needs `group: 2`
=========== ====================================================================================

Without a profile, and with the engine's other profiles (min, full), a batch has the names of Batch.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from ._pairs import NEEDED_BY_PAIRS, PAIRS
from ._views import ONE_ROW
from .errors import UsageError

if TYPE_CHECKING:
    from .batch import Batch

SHIFTED, ALIGNED, ACROSS_CUTS = 0, 1, 2  # enum rp_label_mode


class View(NamedTuple):
    """A section in the engine's memory. shape: None = the loader's."""

    section: str
    shape: Optional[int] = None


Field = Union[View, Callable[["Batch"], Any]]


class Profile(NamedTuple):
    fields: Mapping[str, Field]
    labels: Optional[int] = None  # enum rp_label_mode that the profile requires, if any
    needs: frozenset[str] = frozenset()  # sections that its made entries read


def _ends(batch: "Batch") -> Any:
    """Ends of all segments over the flat batch, as a numpy view."""
    return batch.view("cu_seqlens", kind="numpy")[: batch.segments + 1]


def _exact_cu_seqlens(batch: "Batch") -> Any:
    return batch.adopt(_ends(batch).copy())  # about 100 bytes: a view would hold a slot


def _max_seqlen(batch: "Batch") -> int:
    return int(batch.max_seqlen)


def _seq_idx(batch: "Batch", rows: int) -> Any:
    """Index of each token's segment in the batch, as TRL's collator counts them. Recurrent layers
    and short convolutions restart where it changes, so neighbours also differ at the end of a row.
    Each access costs 15 us for 16,384 tokens."""
    import numpy

    lengths = numpy.diff(_ends(batch))
    numbers = numpy.arange(len(lengths), dtype=numpy.int32)
    return batch.adopt(numpy.repeat(numbers, lengths).reshape(rows, -1))


def _seq_idx_of_rows(batch: "Batch") -> Any:
    return _seq_idx(batch, batch.batch_size)


def _seq_idx_of_one_row(batch: "Batch") -> Any:
    return _seq_idx(batch, 1)


def _no_cache(_: "Batch") -> bool:
    """transformers makes a cache by default, in training as well, and with a cache it uses
    position_ids for positions only: a document then attends to earlier documents of its row."""
    return False


def _lengths_with_tails(batch: "Batch") -> Any:
    """doc_lens with rows that sum to seq_len: a pad tail counts as one more document, and padding
    inside a row as a part of the document before it."""
    import numpy

    lengths = batch.view("doc_lens", flat=False, kind="numpy")
    if "row_plans" in batch._form.sections:
        align = batch.view("row_plans", flat=False, kind="numpy")["align"][:, None]
        lengths = -(-lengths // align.astype(numpy.int32)) * align.astype(numpy.int32)
    made = numpy.zeros((batch.batch_size, lengths.shape[1] + 1), numpy.int32)
    made[:, :-1] = lengths
    tails = batch.seq_len - lengths.sum(axis=1)
    made[numpy.arange(batch.batch_size), (lengths > 0).sum(axis=1)] = tails
    return made


def _doc_lens(batch: "Batch") -> Any:
    return batch.adopt(_lengths_with_tails(batch))


def _max_doc_lens(batch: "Batch") -> list[int]:
    return [int(most) for most in _lengths_with_tails(batch).max(axis=1)]


def _label_mask(batch: "Batch") -> Any:
    """Whether a token is some position's label; loss_mask marks the positions that have labels."""
    import numpy

    mask = batch.view("loss_mask", flat=False, kind="numpy")
    made = numpy.zeros(mask.shape, bool)
    made[:, 1:] = mask[:, :-1] != 0
    return batch.adopt(made)


_OF_TRANSFORMERS: dict[str, Field] = {
    "cu_seq_lens_q": _exact_cu_seqlens,
    "cu_seq_lens_k": _exact_cu_seqlens,
    "max_length_q": _max_seqlen,
    "max_length_k": _max_seqlen,
}
PROFILES: dict[str, Profile] = {
    "hf": Profile(
        {
            "input_ids": View("input_ids"),
            "labels": View("labels"),
            "position_ids": View("position_ids"),
            **_OF_TRANSFORMERS,
            "seq_idx": _seq_idx_of_rows,
            "use_cache": _no_cache,
        },
        labels=ALIGNED,
        needs=frozenset({"cu_seqlens"}),
    ),
    "trl": Profile(
        {
            "input_ids": View("input_ids", ONE_ROW),
            "labels": View("labels", ONE_ROW),
            "position_ids": View("position_ids", ONE_ROW),
            **_OF_TRANSFORMERS,
            "seq_idx": _seq_idx_of_one_row,
            "use_cache": _no_cache,
        },
        labels=ALIGNED,
        needs=frozenset({"cu_seqlens"}),
    ),
    "megatron": Profile(
        {
            "tokens": View("input_ids"),
            "labels": View("labels"),
            "loss_mask": View("loss_mask"),
            "position_ids": View("position_ids"),
            "cu_seqlens": View("cu_seqlens"),
            "max_seqlen": _max_seqlen,
        },
        labels=SHIFTED,
    ),
    "olmo": Profile(
        {
            "input_ids": View("input_ids"),
            "doc_lens": _doc_lens,
            "max_doc_lens": _max_doc_lens,
            "label_mask": _label_mask,
        },
        needs=frozenset({"doc_lens", "loss_mask"}),
    ),
    "torchtitan": Profile(
        {
            "input": View("input_ids"),
            "positions": View("position_ids"),
            "labels": View("labels"),
        },
        labels=SHIFTED,
    ),
    "grain": Profile(
        {
            "inputs": View("input_ids"),
            "inputs_segment_ids": View("segment_ids"),
            "inputs_positions": View("position_ids"),
        },
    ),
    "pairs": Profile(PAIRS, labels=ALIGNED, needs=NEEDED_BY_PAIRS),
}


def check_sections(name: str, sections: tuple[str, ...], label_mode: int) -> None:
    """Refuse a run that lacks sections of the profile, or has labels of the other mode."""
    profile = PROFILES[name]
    hint = f"give the engine `profile: {name}`"
    wanted = {field.section for field in profile.fields.values() if isinstance(field, View)}
    missing = sorted((wanted | profile.needs) - set(sections))
    if missing:
        raise UsageError(f"profile {name} needs {', '.join(missing)}, which the run lacks", hint)
    if label_mode == ACROSS_CUTS and "labels" not in wanted:
        raise UsageError(
            f"profile {name} makes labels of the tokens of a row; with label_across_cuts the "
            "label of a cut is a token of another row",
            "leave label_across_cuts out, or use another profile",
        )
    if profile.labels is not None and profile.labels != label_mode % 2:  # ACROSS_CUTS is shifted
        modes = "shifted", "aligned", "shifted"
        raise UsageError(
            f"profile {name} needs {modes[profile.labels]} labels; those of the run are "
            f"{modes[label_mode]}",
            hint,
        )
