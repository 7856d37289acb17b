# SPDX-License-Identifier: Apache-2.0
"""A Loader as training and evaluation data of the Trainer of transformers, or of the SFTTrainer,
DPOTrainer or RewardTrainer of TRL, with its position in each checkpoint.

    trainer = Trainer(model=model, args=TrainingArguments("trainer", max_steps=1000))
    ringpack.hf.attach(trainer, loader)
    with loader:
        trainer.train(resume_from_checkpoint=ringpack.hf.last_checkpoint("trainer"))

The position is a field of trainer_state.json, the last file of a checkpoint that Trainer writes: a
checkpoint that has this file is complete. Only attach() imports transformers.
"""

import inspect
import json
import os
import re
from collections.abc import Iterator
from typing import Any, Optional

from ._arguments import FilePath
from ._calendar import ends_of
from ._documents import check_documents
from ._evaluation import Evaluation, evaluate_on_loaders
from ._log import logger
from ._preferences import check_stream, names_for, takes_pairs
from ._state import STATE_KEY
from ._streams import main_of
from .errors import UsageError
from .loader import Loader

__all__ = ["attach", "check_documents", "last_checkpoint"]

_STATE = "trainer_state.json"
_FIELD = "LoaderPosition"  # key in its stateful_callbacks: the name of the callback's class


def last_checkpoint(folder: FilePath) -> Optional[str]:
    """The newest complete checkpoint-N of a Trainer, or None. A checkpoint that a kill cut short
    lacks trainer_state.json, or a part of it, and is skipped with a warning.

    folder: path; output_dir of the Trainer."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    steps = [int(name[11:]) for name in names if re.fullmatch(r"checkpoint-\d+", name)]
    for step in sorted(steps, reverse=True):
        path = os.path.join(folder, f"checkpoint-{step}")
        if _trainer_state(path) is not None:
            return path
        logger().warning("%s was cut short (no whole %s) and is passed over", path, _STATE)
    return None


def attach(trainer: Any, loader: Loader, eval_loader: Any = None, *, check: bool = True) -> Any:
    """Make a Trainer train on a loader, save its position in each checkpoint, and continue there
    when it resumes. Returns the trainer.

    Parameters
    ----------
    trainer: a Trainer of transformers, or an SFTTrainer, DPOTrainer or RewardTrainer of TRL.
    loader: a Loader with profile "hf" or "trl", of pairs for the last two trainers "pairs", and
        return_type="torch". UsageError for another.
    eval_loader: a finite Loader, or a dict of Loaders by name; trainer.evaluate() makes a whole
        pass over it each time. Default: the trainer's eval_dataset, if it is a Loader; without one,
        the other streams of `loader`. eval_loss is the mean over all labels, or pairs, of all
        ranks; eval_batches_without_label is a count.
    check: bool; before the first batch, test whether the model keeps documents apart
        (check_documents), unless each row has one document (True). UsageError if it does not.

    Batches are copies, on the GPU if there is one: gradients may be accumulated over more batches
    than the ring has slots. A resume skips no batches (ignore_data_skip), and
    resume_from_checkpoint=True means last_checkpoint(). With max_steps the stream may be endless;
    otherwise num_train_epochs must equal num_epochs of the loader, and training runs to the end of
    the stream. The end of a stage with rows of one seq_len ends train(), which saves a checkpoint.
    A step without a label has loss 0. Several ranks compare their next rows first (check_ranks).

    UsageError, here or in train(): the setting that does not fit, and the argument to change."""
    from transformers import TrainerCallback
    from transformers.trainer_callback import ExportableState

    if eval_loader is None:
        eval_loader = getattr(trainer, "eval_dataset", None)
        if eval_loader is None and isinstance(loader, Loader) and len(loader.streams) > 1:
            eval_loader = trainer.eval_dataset = _evaluations_of(loader)
    else:
        trainer.eval_dataset = eval_loader
    evaluated = eval_loader.values() if isinstance(eval_loader, dict) else [eval_loader]
    for given in (loader, *(held for held in evaluated if isinstance(held, Loader))):
        _check_loader(trainer, given)
        _check_arguments(trainer.args, given)
    batches = _Batches(trainer, loader, check)

    def on_train_begin(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        # Checkpoints from before attach() lack this field; the next one needs it.
        state.stateful_callbacks.setdefault(_FIELD, {})

    for callback in list(trainer.callback_handler.callbacks):
        if type(callback).__name__ == _FIELD:  # left by an earlier attach()
            trainer.remove_callback(callback)
    # Each trainer gets its own class: Trainer may construct another instance, without arguments.
    methods = {"state": lambda _: batches.position(), "on_train_begin": on_train_begin}
    methods["on_save"] = lambda _, args, state, control, **__: batches.was_saved(state.global_step)
    trainer.add_callback(type(_FIELD, (TrainerCallback, ExportableState), methods)())

    train, take = type(trainer).train.__get__(trainer), type(trainer).get_batch_samples
    take = take.__get__(trainer)

    def train_on(resume_from_checkpoint: Any = None, *arguments: Any, **options: Any) -> Any:
        if resume_from_checkpoint is True:
            resume_from_checkpoint = last_checkpoint(trainer.args.output_dir) or True
        if isinstance(resume_from_checkpoint, (str, os.PathLike)):
            batches.resume(os.fspath(resume_from_checkpoint))
        return train(resume_from_checkpoint, *arguments, **options)

    def get_batch_samples(*arguments: Any, **options: Any) -> Any:
        samples, labels = take(*arguments, **options)
        return samples, labels.clamp(min=1) if hasattr(labels, "clamp") else labels

    trainer.get_train_dataloader = lambda: batches.begin()
    trainer.train, trainer.get_batch_samples = train_on, get_batch_samples
    evaluate_on_loaders(trainer, batches.evaluation)
    trainer.args.ignore_data_skip = True
    return trainer


def _evaluations_of(loader: Loader) -> Any:
    """One Loader, or several by name, as Trainer takes data sets."""
    main = main_of(loader.streams)
    found = {name: loader.stream(name) for name in loader.streams if name != main}
    return found if len(found) > 1 else next(iter(found.values()))


class _Batches:
    """The result of get_train_dataloader(): each iteration continues in the stream."""

    def __init__(self, trainer: Any, loader: Loader, check: bool):
        self._trainer, self._loader, self._check = trainer, loader, check
        self._taken = 0
        self._has_told = False  # that a stage has ended
        self._saved: Optional[int] = None  # the step of the newest checkpoint of this process

    def position(self) -> dict[str, Any]:
        """The result of ExportableState.state(). Empty before the first batch: state_dict() would
        attach the loader, perhaps at a position where it may not begin."""
        known = self._loader.state_dict(text=True) if self._taken else {}
        return {"args": {}, "attributes": known}

    def was_saved(self, step: int) -> None:
        self._saved = step

    def resume(self, checkpoint: str) -> None:
        state = _trainer_state(checkpoint)
        if state is None:
            raise UsageError(
                f"{checkpoint} has no whole {_STATE}: it was cut short while it was saved",
                "resume_from_checkpoint=ringpack.hf.last_checkpoint(output_dir) takes the newest "
                "one that is whole",
            )
        saved = state.get("stateful_callbacks", {}).get(_FIELD, {}).get("attributes", {})
        beside = os.path.join(checkpoint, "loader.pt")  # saved by recipes without attach()
        if STATE_KEY in saved:
            self._loader.load_state_dict({STATE_KEY: saved[STATE_KEY]})
        elif os.path.exists(beside):
            self._loader.load_state_dict(beside)
        elif state.get("global_step"):
            raise UsageError(
                f"{checkpoint} has no position of a loader: it was saved without "
                "ringpack.hf.attach(), and the model would see rows again",
                "load its weights (from_pretrained) into a new run that begins at row 0; or write "
                f"the position to {beside}: ringpack.export_state(state, path)",
            )
        logger().info("the loader continues at the position of %s", checkpoint)

    def begin(self) -> "_Batches":
        args, loader = self._trainer.args, self._loader
        _check_arguments(args, loader)
        loader.attach()
        check_stream(self._trainer, loader)
        if loader._client.calendar().micro_batches_vary():
            raise UsageError(
                "the number of batches of a step changes at a stage of the loader, and Trainer "
                "has one gradient_accumulation_steps",
                "let batch_size grow with global_batch_size in that stage, or write the loop "
                "(stages.md)",
            )
        micro_batches = loader._client.geometry.micro_batches
        if micro_batches not in (1, args.gradient_accumulation_steps):
            raise UsageError(
                f"global_batch_size of the loader makes steps of {micro_batches} batches, and "
                f"gradient_accumulation_steps is {args.gradient_accumulation_steps}",
                f"TrainingArguments(gradient_accumulation_steps={micro_batches})",
            )
        parallel = getattr(self._trainer.accelerator, "parallelism_config", None)
        if getattr(parallel, "cp_enabled", False) and loader._client.geometry.max_docs_per_row > 1:
            raise UsageError(
                "context parallelism of Trainer has causal masks only, and documents of a row "
                "would see each other",
                "Loader(max_docs_per_row=1) gives each row one document",
            )
        if args.world_size > 1:
            loader.check_ranks()
        if args.max_steps <= 0:
            args.max_steps = _steps_of(args, loader)
        return self

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for copies in self._copy(self._loader, iter(self._loader.next, None)):
            self._taken += 1
            yield copies
        if self._loader.stage_ended and not self._has_told:
            self._has_told = True
            logger().warning(
                "a stage of the loader ends at row %d, before max_steps: the next rows have "
                "another seq_len. Begin this program again with resume_from_checkpoint; a new "
                "loader of the same config continues there",
                self._loader.next_row,
            )
            # Else a resume repeats the steps since the last checkpoint, and ends here again.
            if self._saved != self._trainer.state.global_step:
                self._trainer.control.should_save = True

    def evaluation(self, loader: Loader) -> Evaluation:
        _check_loader(self._trainer, loader)
        _check_arguments(self._trainer.args, loader)
        check_stream(self._trainer, loader)
        return Evaluation(loader, lambda batches: self._copy(loader, batches))

    def _copy(self, loader: Loader, batches: Iterator[Any]) -> Iterator[dict[str, Any]]:
        """Copies on the trainer's device, with the names that its model takes."""
        device = self._trainer.args.device
        is_there = loader._device is not None
        names = list(loader.attach()._form.names)
        if loader._profile == "pairs":
            names = names_for(self._trainer, names)
        else:
            names = _names_for(self._trainer.model, names)
        for batch in batches:
            move = getattr(batch, "to", None)  # a dict has none
            if device.type == "cpu" or is_there:
                move = None
            given = batch if move is None else move(device, non_blocking=True)
            copies = {name: given[name] for name in names}
            if self._check and loader._client.geometry.max_docs_per_row > 1:
                self._check = False
                if loader._profile == "pairs":  # a row of the tensors has one document
                    yield copies
                    continue
                self._ask_model(copies)
            yield copies

    def _ask_model(self, batch: dict[str, Any]) -> None:
        """All ranks do this at their first batch: a model that is spread over them needs all."""
        trainer = self._trainer
        spread = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
        model = trainer.model_wrapped if spread else trainer.model
        try:
            with trainer.compute_loss_context_manager():
                check_documents(model, batch)
        except UsageError:
            raise
        except Exception as failure:  # e.g. a model that needs more inputs: training will fail
            logger().warning(
                "whether %s keeps documents of a row apart is not known: %s: %s",
                type(model).__name__,
                type(failure).__name__,
                failure,
            )


def _trainer_state(checkpoint: str) -> Optional[dict[str, Any]]:
    """None: the file is missing or incomplete."""
    try:
        with open(os.path.join(checkpoint, _STATE), encoding="utf-8") as file:
            state: dict[str, Any] = json.load(file)
    except (FileNotFoundError, ValueError):
        return None
    return state


def _check_loader(trainer: Any, loader: Any) -> None:
    if not isinstance(loader, Loader):
        raise UsageError(
            f"attach() was given a {type(loader).__name__}: expected a ringpack.Loader",
            'ringpack.hf.attach(trainer, ringpack.Loader(..., profile="hf", return_type="torch"))',
        )
    wanted = ("pairs",) if takes_pairs(trainer) else ("hf", "trl")
    if loader._profile not in wanted or loader._kind != "torch":
        raise UsageError(
            f"the loader has profile={loader._profile!r} and return_type={loader._kind!r}, which "
            + (f"{type(trainer).__name__}" if takes_pairs(trainer) else "a model of transformers")
            + " cannot take",
            f'Loader(..., profile="{wanted[0]}", return_type="torch")',
        )
    if loader._wishes.split is not None:
        raise UsageError(
            f"the loader gives slices of rows (cp_size={loader._wishes.split.size}), and Trainer "
            "splits whole rows itself",
            "consumers_per_rank and replica in place of cp_size and cp_rank; slices are for loops "
            "of your own (context-parallel.md)",
        )


def _check_arguments(args: Any, loader: Loader) -> None:
    """Refuse settings that train other rows than the loader's, or parts of batches."""
    processes = loader._ranks.world * loader._ranks.consumers_per_rank
    if args.n_gpu > 1:
        raise UsageError(
            f"Trainer would split each batch among {args.n_gpu} GPUs of this process, and the ends "
            "of documents would not fit the parts",
            "torchrun --nproc-per-node, which gives each GPU a process; or CUDA_VISIBLE_DEVICES=0",
        )
    if args.world_size != processes:
        raise UsageError(
            f"Trainer has {args.world_size} processes, and the loader is {loader!r}",
            "start both by torchrun, or give the loader dp_rank and dp_world_size (and replica, "
            "consumers_per_rank for processes that share their rows)",
        )
    own, theirs = loader._device, args.device
    if own is not None and (own.type, own.index or 0) != (theirs.type, theirs.index or 0):
        raise UsageError(
            f"the loader copies batches to {own}, and Trainer works on {theirs}",
            "leave device out: attach() copies batches to the device of the Trainer",
        )
    if args.auto_find_batch_size:
        raise UsageError(
            "auto_find_batch_size would begin again with smaller batches, which the loader has not",
            "TrainingArguments(auto_find_batch_size=False); batch_size of the loader decides",
        )


def _names_for(model: Any, names: list[str]) -> list[str]:
    """The names that the model takes; all names if it hands extra ones to its attention."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model  # PEFT
    known = inspect.signature(base.forward).parameters
    if any(of.kind is inspect.Parameter.VAR_KEYWORD for of in known.values()):
        return names
    if "position_ids" not in known:
        raise UsageError(
            f"{type(base).__name__} takes no position_ids, by which documents of a row are kept "
            "apart",
            "Loader(max_docs_per_row=1) gives each row one document; or take another model",
        )
    return [name for name in names if name in known]


def _steps_of(args: Any, loader: Loader) -> int:
    """Optimizer steps to the end of the stream."""
    epochs, each = ends_of(loader._client).epochs, int(args.gradient_accumulation_steps)
    if epochs == 0:
        raise UsageError("the stream is endless", "TrainingArguments(max_steps=...)")
    if args.num_train_epochs != epochs:
        raise UsageError(
            f"TrainingArguments has num_train_epochs={args.num_train_epochs:g}, and the stream of "
            f"the loader {epochs} (num_epochs)",
            f"num_train_epochs={epochs}, or Loader(num_epochs=...), or max_steps",
        )
    batches = len(loader)
    if batches % each:
        rows = loader._client.geometry.rows * loader._ranks.world * each
        raise UsageError(
            f"the stream has {batches} batches for this rank, which gradient_accumulation_steps="
            f"{each} does not divide: Trainer would leave out the last {batches % each}",
            f"Loader(global_batch_size={rows}) pads the last step (drop_last=True leaves it out)",
        )
    return batches // each
