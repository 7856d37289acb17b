# SPDX-License-Identifier: Apache-2.0
"""The data iterators of Megatron-LM, with `--dataloader-type external`.

    def train_valid_test_datasets_provider(counts, vp_stage=None):
        return ringpack.megatron.dataloaders(get_args(), corpus="corpus", valid="held-out")

The position is consumed_train_samples, which Megatron-LM keeps in its own checkpoints."""

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Optional

from ._arguments import Corpus
from ._neighbours import place_among
from .errors import UsageError
from .loader import Loader

__all__ = ["Batches", "dataloaders"]

_NAMES = ("tokens", "labels", "loss_mask", "position_ids")
_OF_TRAINING = {"accept_weights", "fresh", "global_batch_size", "mount_guard_dir", "resume", "skip"}
_OF_TRAINING |= {"removed", "run_record_dir", "seq_len", "stages", "start_step", "state"}
_LENGTHS = ("cu_seqlens", "max_seqlen")


class Batches:
    """Micro-batches as get_batch() reads them: each is a dict, which the caller may keep and
    change. In a validation they begin again at the first row after the end; in a training they
    end, also where a stage ends whose rows have another seq_len. UsageError for rows of another
    length than seq_length."""

    def __init__(
        self,
        loader: Loader,
        seq_length: int,
        has_mask: bool,
        has_lengths: bool,
        repeats: bool = True,
    ):
        self.loader, self._has_mask, self._repeats = loader, has_mask, repeats
        self._seq_length, self._checked = seq_length, None  # the client whose rows have it
        self._names = _NAMES + (_LENGTHS if has_lengths else ())

    def __bool__(self) -> bool:
        return True  # without the length, which an endless stream lacks

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        if self._checked is None or self._checked is not self.loader._client:
            self._check_length()
        batch = self.loader.next()
        if batch is None:
            if self.loader.stage_ended or not self._repeats:
                raise StopIteration(self._end())
            self.loader.reset()
            batch = next(self.loader)
        made = {name: batch[name] for name in self._names}
        if self._has_mask:
            made["attention_mask"] = _mask_of(made["position_ids"])
        return made

    def _check_length(self) -> None:
        """A Loader with stages takes an engine of any of their lengths."""
        client = self.loader.attach()._client
        found = client.geometry.seq_len
        if found != self._seq_length:
            raise UsageError(
                f"the rows from row {self.loader.next_row} on have seq_len {found}, and "
                f"args.seq_length is {self._seq_length}",
                f"--seq-length {found}; if stages change it, with seq_len of the first one among "
                "the arguments of dataloaders()",
            )
        self._checked = client

    def _end(self) -> str:
        step, row = self.loader.progress()["step"], self.loader.next_row
        advice = f"--train-iters {step} or --exit-interval {step} makes Megatron-LM save there"
        if not self.loader.stage_ended:
            return (
                f"the stream of the training ends at row {row} (num_epochs), before train_iters, "
                f"and no checkpoint is saved now; {advice}"
            )
        return (
            f"a stage ends at row {row}: the next rows have another seq_len, and no checkpoint is "
            f"saved now; {advice}; then start with --seq-length of the next stage, and with "
            "seq_len of the first one among the arguments of dataloaders()"
        )

    def save_state(self) -> dict[str, Any]:
        """For --dataloader-save. A resume needs no such file."""
        state: dict[str, Any] = self.loader.state_dict()
        return state


def _mask_of(positions: Any) -> Any:
    """(rows, 1, seq_len, seq_len): True where a token may not attend to another one."""
    documents = (positions == 0).cumsum(1)
    seen = (documents[:, :, None] == documents[:, None, :]).tril()
    return ~seen[:, None]


def _of_validation(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are not only the training's."""
    kept = {
        name: value
        for name, value in arguments.items()
        if name not in _OF_TRAINING and not name.startswith("checkpoint_")
    }
    if kept.get("run") is not None:
        kept["run"] = f"{kept['run']}.valid"
    if kept.get("digest_log") is not None:
        kept["digest_log"] = os.path.join(kept["digest_log"], "valid")
    return kept


def dataloaders(args: Any, *, valid: Optional[Corpus] = None, **arguments: Any) -> Any:
    """The iterators of training, validation and test (None), as a datasets provider of Megatron-LM
    returns them. None in processes that get their batches by a broadcast. All processes call it.

    args: get_args(), or an object with seq_length, micro_batch_size, global_batch_size, and if they
        are not 0 or False consumed_train_samples, create_attention_mask_in_dataloader and
        dataloader_inter_document_masking. UsageError if a step was interrupted, and at the first
        batch if its rows have another length than seq_length.
    valid: corpus of the validation. Each pass is whole if --full-validation is given, or eval_iters
        and the batch size make up one.
    arguments: of Loader, for the training; most also for the validation, but not seq_len, stages,
        skip, and the place of a start and of checkpoints. Its run is RUN.valid if `run` is
        given."""
    mpu = import_module("megatron.core.parallel_state")
    is_end = mpu.is_pipeline_first_stage(ignore_virtual=True)
    is_end = is_end or mpu.is_pipeline_last_stage(ignore_virtual=True)
    reads = is_end and mpu.get_tensor_model_parallel_rank() == 0
    ranks = mpu.get_data_parallel_rank(), mpu.get_data_parallel_world_size()
    place = place_among(*ranks, reads)
    if not reads:
        return None, None, None
    consumed, rows = getattr(args, "consumed_train_samples", 0) or 0, args.global_batch_size
    if consumed % rows:
        raise UsageError(
            f"consumed_train_samples is {consumed}, and no multiple of global_batch_size {rows}",
            "continue with the global batch size of the checkpoint; ringpack changes it by a stage "
            "(stages.md), and not by --rampup-batch-size",
        )
    form: dict[str, Any] = {"seq_len": args.seq_length, "batch_size": args.micro_batch_size}
    form.update(place, profile="megatron_rows", return_type="torch", copy=True)
    if "replicas" in arguments:  # the older name
        form.pop("consumers_per_rank", None)
    of_training = {"num_epochs": "endless", "start_step": consumed // rows}
    train = Loader(**{**form, **of_training, "global_batch_size": rows, **arguments})
    words = "create_attention_mask_in_dataloader", "dataloader_inter_document_masking"
    has = [bool(getattr(args, word, False)) for word in words]
    held = None
    if valid is not None:
        held = Loader(**{**form, **_of_validation(arguments), "corpus": valid, "num_epochs": 1})
    validation = None if held is None else Batches(held, args.seq_length, *has)
    return Batches(train, args.seq_length, has[0], has[1], repeats=False), validation, None
