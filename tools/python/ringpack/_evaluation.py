# SPDX-License-Identifier: Apache-2.0
"""Evaluation by the Trainer of transformers on a Loader: a whole pass each time, and the mean over
all labels of all ranks.

Trainer itself takes the mean of the means of batches, which is NaN if one batch has no label. Here
each batch counts with its labels, so that neither batch_size nor the number of ranks changes
eval_loss. Every rank has the same number of batches, which its collectives need."""

import math
from collections.abc import Callable, Iterator
from typing import Any, Optional

from ._calendar import ends_of
from ._log import logger
from .errors import UsageError
from .loader import Loader

Copies = Callable[[Any], Iterator[dict[str, Any]]]


class Evaluation:
    """The result of get_eval_dataloader(): each loop is a pass."""

    def __init__(self, loader: Loader, copies: Copies):
        if ends_of(loader.attach()._client).epochs == 0:
            raise UsageError(
                "the stream of the evaluation is endless", "Loader(num_epochs=1) for eval_loader"
            )
        self._loader, self._copies = loader, copies
        self.weighed = "pairs" if loader._profile == "pairs" else "labels"
        loader._restart = True  # a pass that an exception cut short is not gone on with
        rows = loader._client.geometry.rows * loader._ranks.world
        self.dataset = range(len(loader) * rows)  # Trainer counts samples by it

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._copies(iter(self._loader))


class _Sums:
    """Counts of one evaluation, on this rank. word: of "labels" or "pairs", which weigh it."""

    def __init__(self, word: str) -> None:
        self.loss, self.word = 0.0, word
        self.labels = self.batches = self.without = 0

    def add(self, loss: Any, labels: int) -> Any:
        """loss: the mean of a batch, NaN where it has no label."""
        self.batches += 1
        if labels == 0:
            self.without += 1
            return loss.new_zeros(loss.shape)
        self.loss += loss.item() * labels
        self.labels += labels
        return loss

    def metrics(self, gather: Callable[[Any], Any], device: Any, prefix: str) -> dict[str, Any]:
        import torch

        mine = [self.loss, self.labels, self.batches, self.without]
        kept = torch.float32 if device.type == "mps" else torch.float64
        of_all = gather(torch.tensor([mine], dtype=kept, device=device)).sum(0).tolist()
        loss, labels, batches, without = of_all
        if labels == 0:
            logger().warning(
                "no batch of the evaluation has a %s: %s_loss is NaN", self.word[:-1], prefix
            )
        return {
            f"{prefix}_loss": loss / labels if labels else math.nan,
            f"{prefix}_{self.word}": int(labels),
            f"{prefix}_batches": int(batches),
            f"{prefix}_batches_without_{self.word[:-1]}": int(without),
        }


def evaluate_on_loaders(trainer: Any, evaluation_of: Callable[[Any], Evaluation]) -> None:
    """Have trainer.evaluate() take Loaders as it takes datasets: eval_dataset, one that it is
    given, or several by their names."""
    kind = type(trainer)
    dataloader_of, loop, step = (
        getattr(kind, name).__get__(trainer)
        for name in ("get_eval_dataloader", "evaluation_loop", "prediction_step")
    )
    sums: Optional[_Sums] = None

    def get_eval_dataloader(eval_dataset: Any = None) -> Any:
        given = trainer.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(given, str):
            given = trainer.eval_dataset[given]
        return evaluation_of(given) if isinstance(given, Loader) else dataloader_of(eval_dataset)

    def prediction_step(model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        labels = inputs.get("labels")
        loss, *others = step(model, inputs, *arguments, **options)
        if sums is not None and loss is not None:
            if sums.word == "pairs":
                loss = sums.add(loss, len(inputs["input_ids"]) // 2)
            elif labels is not None:
                loss = sums.add(loss, int((labels[..., 1:] >= 0).sum()))  # the model shifts them
        return (loss, *others)

    def evaluation_loop(
        dataloader: Any,
        description: str,
        prediction_loss_only: Optional[bool] = None,
        ignore_keys: Any = None,
        metric_key_prefix: str = "eval",
    ) -> Any:
        nonlocal sums
        given = dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix
        if not isinstance(dataloader, Evaluation):
            return loop(*given)
        # Otherwise the loss of a batch is a part of the loss of all ranks.
        across, trainer.args.average_tokens_across_devices = (
            trainer.args.average_tokens_across_devices,
            False,
        )
        made = sums = _Sums(dataloader.weighed)
        try:
            output = loop(*given)
        finally:
            sums, trainer.args.average_tokens_across_devices = None, across
        if f"{metric_key_prefix}_loss" in output.metrics:
            gather, device = trainer.accelerator.gather, trainer.args.device
            output.metrics.update(made.metrics(gather, device, metric_key_prefix))
        return output

    trainer.get_eval_dataloader = get_eval_dataloader
    trainer.prediction_step, trainer.evaluation_loop = prediction_step, evaluation_loop
