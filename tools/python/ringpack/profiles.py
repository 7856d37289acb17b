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
megatron_rows  as megatron, with lengths by row as Megatron-LM's get_batch reads them: cu_seqlens
            int32 (batch_size, L + 1), padded with L; max_seqlen int32 (batch_size,): both made
megatron_thd  as megatron, in one row (1, batch_size * L), with the fields of PackedSeqParams:
            qkv_format, cu_seqlens_q, cu_seqlens_kv (documents), cu_seqlens_q_padded,
            cu_seqlens_kv_padded (their places) int32: made; max_seqlen_q, max_seqlen_kv: ints
olmo        input_ids int64 (batch_size, L); doc_lens int32 (batch_size, D + 1) with the pad tails,
            and label_mask bool (batch_size, L): both made; max_doc_lens: list of ints
torchtitan  input, positions, labels int64 (batch_size, L), shifted; flat=True gives one stream
grain       inputs, inputs_segment_ids, inputs_positions int32 (batch_size, L); 0: padding
maxtext     inputs, inputs_position, inputs_segmentation, targets, targets_position,
            targets_segmentation int32 (batch_size, L); targets are shifted, and 0 with
            targets_segmentation 0 where there is none: both made
pairs       input_ids, attention_mask, completion_mask int64 (2 * pairs, longest document): made.
            The chosen documents, then their rejected ones; as the collators of TRL's DPOTrainer
            and RewardTrainer, which takes no completion_mask. It needs `group: 2`
=========== ====================================================================================

Without a profile, and with the engine's other profiles (min, full), a batch has the names of Batch.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from ._arguments import suggestion
from ._boundaries import ends_of, real_lengths_of
from ._pairs import NEEDED_BY_PAIRS, PAIRS
from ._views import ONE_ROW
from .errors import ConfigError, UsageError

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
    engine: Optional[str] = None  # the config's word for it, if it is another one
    adds: tuple[str, ...] = ()  # sections beyond the engine's of that word
    split: Optional[str] = None  # cp_split that it requires, if any
    slices: Optional[Mapping[str, Field]] = None  # fields of slices of rows, if they are others


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


def _ends_of_rows(batch: "Batch") -> Any:
    import numpy

    ends, length = ends_of(batch), batch.seq_len
    made = numpy.full((batch.batch_size, length + 1), length, numpy.int32)
    row_of = (ends[1:] - 1) // length
    begins = numpy.searchsorted(row_of, numpy.arange(batch.batch_size))
    made[:, 0] = 0
    made[row_of, numpy.arange(len(row_of)) - begins[row_of] + 1] = ends[1:] - row_of * length
    return batch.adopt(made)


def _max_of_rows(batch: "Batch") -> Any:
    import numpy

    ends = ends_of(batch)
    made = numpy.zeros(batch.batch_size, numpy.int32)
    numpy.maximum.at(made, ends[:-1] // batch.seq_len, numpy.diff(ends).astype(numpy.int32))
    return batch.adopt(made)


def _real_ends(batch: "Batch") -> Any:
    import numpy

    ends = numpy.append(0, numpy.cumsum(real_lengths_of(batch)))
    return batch.adopt(ends.astype(numpy.int32))


def _targets(batch: "Batch") -> Any:
    """Labels; 0 in place of none."""
    import numpy

    labels = batch.view("labels", kind="numpy")
    return batch.adopt(numpy.maximum(labels, 0))


def _segments_of_targets(batch: "Batch") -> Any:
    """Segments of the inputs; 0 where no target is trained, as MaxText's loss counts the others."""
    import numpy

    labels = batch.view("labels", kind="numpy")
    return batch.adopt(numpy.where(labels < 0, 0, batch.view("segment_ids", kind="numpy")))


_OF_TRANSFORMERS: dict[str, Field] = {
    "cu_seq_lens_q": _exact_cu_seqlens,
    "cu_seq_lens_k": _exact_cu_seqlens,
    "max_length_q": _max_seqlen,
    "max_length_k": _max_seqlen,
}


def _slices_of_transformers(shape: Optional[int]) -> dict[str, Field]:
    """Without the lengths of documents, which are about whole rows."""
    names = ("input_ids", "labels", "shift_labels", "position_ids")
    return {**{name: View(name, shape) for name in names}, "use_cache": _no_cache}


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
        slices=_slices_of_transformers(None),
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
        slices=_slices_of_transformers(ONE_ROW),
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
    "megatron_rows": Profile(
        {
            "tokens": View("input_ids"),
            "labels": View("labels"),
            "loss_mask": View("loss_mask"),
            "position_ids": View("position_ids"),
            "cu_seqlens": _ends_of_rows,
            "max_seqlen": _max_of_rows,
        },
        labels=SHIFTED,
        needs=frozenset({"cu_seqlens"}),
        engine="megatron",
    ),
    "megatron_thd": Profile(
        {
            "tokens": View("input_ids", ONE_ROW),
            "labels": View("labels", ONE_ROW),
            "loss_mask": View("loss_mask", ONE_ROW),
            "position_ids": View("position_ids", ONE_ROW),
            "qkv_format": lambda _: "thd",
            "cu_seqlens_q": _real_ends,
            "cu_seqlens_kv": _real_ends,
            "cu_seqlens_q_padded": _exact_cu_seqlens,
            "cu_seqlens_kv_padded": _exact_cu_seqlens,
            "max_seqlen_q": _max_seqlen,
            "max_seqlen_kv": _max_seqlen,
        },
        labels=SHIFTED,
        needs=frozenset({"cu_seqlens", "doc_lens"}),
        engine="megatron",
        split="document",
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
    "maxtext": Profile(
        {
            "inputs": View("input_ids"),
            "inputs_position": View("position_ids"),
            "inputs_segmentation": View("segment_ids"),
            "targets": _targets,
            "targets_position": View("position_ids"),
            "targets_segmentation": _segments_of_targets,
        },
        labels=SHIFTED,
        needs=frozenset({"labels"}),
        engine="grain",
        adds=("labels",),
    ),
    "pairs": Profile(PAIRS, labels=ALIGNED, needs=NEEDED_BY_PAIRS),
}


_OF_ENGINE = ("min", "full")  # profiles with the names of Batch


def check_name(name: Optional[str]) -> None:
    """Of a profile of a Loader that describes an engine, whose own list lacks some."""
    names = (*_OF_ENGINE, *PROFILES)
    if name is not None and name not in names:
        raise ConfigError(
            f"profile: expected one of {', '.join(names)}, found `{name}`"
            + suggestion(str(name), names),
            "nothing was started",
        )


def engine_keys(name: str, sections: Any) -> dict[str, Any]:
    """The keys of an engine that makes the sections of a profile. sections: of the caller's."""
    profile = PROFILES.get(name)
    if profile is None:
        return {"profile": name}
    keys: dict[str, Any] = {"profile": profile.engine or name}
    if profile.adds:
        own = sections.split(",") if isinstance(sections, str) else list(sections or ())
        keys["sections"] = [*profile.adds, *own]
    return keys


def split_of(name: Optional[str], given: Optional[str]) -> str:
    """cp_split of a loader."""
    needed = PROFILES[name].split if name in PROFILES else None
    if needed is not None and given not in (None, needed):
        raise UsageError(
            f"profile {name} gives documents end to end, each of them split, and cp_split is "
            f"{given!r}",
            f"cp_split={needed!r}, or another profile",
        )
    return given or needed or "row"


def check_sections(
    name: str, sections: tuple[str, ...], label_mode: int, is_split: bool = False
) -> None:
    """Refuse a run that lacks sections of the profile, or has labels of the other mode. is_split:
    a batch has slices of the rows."""
    profile = PROFILES[name]
    more = f" and `sections: [{', '.join(profile.adds)}]`" if profile.adds else ""
    hint = f"give the engine `profile: {profile.engine or name}`{more}"
    wanted = {field.section for field in profile.fields.values() if isinstance(field, View)}
    wanted |= profile.needs
    missing = sorted(wanted - set(sections))
    if missing:
        raise UsageError(f"profile {name} needs {', '.join(missing)}, which the run lacks", hint)
    if label_mode == ACROSS_CUTS and "labels" not in wanted:
        raise UsageError(
            f"profile {name} makes labels of the tokens of a row; with label_across_cuts the "
            "label of a cut is a token of another row",
            "leave label_across_cuts out, or use another profile",
        )
    has_labels = profile.labels == SHIFTED and "labels" in wanted
    if is_split and not has_labels and profile.slices is None:
        raise UsageError(
            f"profile {name} leaves it to the model to make labels of the next tokens, which a "
            "slice of a context-parallel rank does not have",
            "profile='torchtitan', 'megatron', 'hf' or 'trl', or none",
        )
    if profile.labels is not None and profile.labels != label_mode % 2:  # ACROSS_CUTS is shifted
        modes = "shifted", "aligned", "shifted"
        raise UsageError(
            f"profile {name} needs {modes[profile.labels]} labels; the run has "
            f"{modes[label_mode]}",
            hint,
        )
