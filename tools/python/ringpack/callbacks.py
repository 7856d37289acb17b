# SPDX-License-Identifier: Apache-2.0
"""Log to TensorBoard or Weights & Biases how a loader feeds the training.

    from ringpack.callbacks import TensorBoard

    log = TensorBoard(SummaryWriter(), every=10)
    for step, batch in enumerate(loader):
        train(batch)
        log(step, batch, loader)

Neither package is imported: any object with `add_scalar`, or `log`, will do. Figures cover the
calls since the last log:

    tokens_per_second  tokens of this rank, without padding
    wait_share         share of the time that next() spent waiting for a batch
    waits              number of these waits
    fill               share of the rows that is not padding
    next_row           position

Options of both classes, by keyword:

    every    int: calls per log, from 1 on (10). ValueError below 1
    stat     bool: add the engine's newest figures (False): skew_rows, unsaved_rows,
             save_age_seconds, and share/NAME and epochs/NAME of each source. A separate thread
             queries the engine, so the training never waits for the answer
    run_dir  path: folder of the engine's socket, for stat. Default: as for ringpack.stat()
    prefix   str: begins the name of each figure ("data/")
    clock    callable: seconds, as a float (time.monotonic)
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Optional

import ringpack

from ._arguments import FilePath, whole

__all__ = ["TensorBoard", "Wandb"]

_OF_ENGINE = "skew_rows", "unsaved_rows", "save_age_seconds"


class _Asker:
    """The newest stat of the engine of a run."""

    def __init__(self, ask: Callable[[], dict[str, Any]]):
        self._ask = ask
        self._thread: Optional[threading.Thread] = None
        self.said: dict[str, Any] = {}

    def begin(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="ringpack-stat", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            self.said = self._ask()
        except Exception:  # a dead engine must not fail the training
            self.said = {}


def _of_engine(stat: dict[str, Any]) -> dict[str, float]:
    figures = {key: stat[key] for key in _OF_ENGINE if stat.get(key) is not None}
    for source in stat.get("ledger", ()):
        figures[f"share/{source['source']}"] = source["token_share"]
        figures[f"epochs/{source['source']}"] = source["epochs"]
    return figures


class _Callback:
    def __init__(
        self,
        *,
        every: int = 10,
        stat: bool = False,
        run_dir: Optional[FilePath] = None,
        prefix: str = "data/",
        clock: Callable[[], float] = time.monotonic,
    ):
        if (whole("every", every) or 0) < 1:
            raise ValueError(f"every: a number of steps from 1 on expected, found {every}")
        self._every, self._stat, self._prefix, self._clock = every, stat, prefix, clock
        self._run_dir, self._calls = run_dir, 0
        self._before: Optional[tuple[float, dict[str, int]]] = None
        self._asker: Optional[_Asker] = None

    def __call__(self, step: int, batch: Any, loader: Any) -> None:
        """Call once per batch; every `every`-th call logs."""
        self._calls += 1
        before = self._before
        if before is not None and self._calls % self._every:
            return
        now, counts = self._clock(), loader.counts()
        if before is not None:
            figures = self._figures(batch, before, (now, counts))
            if self._stat:
                figures.update(self._said(loader))
            self._write({self._prefix + key: value for key, value in figures.items()}, step)
        elif self._stat:
            self._said(loader)
        self._before = now, counts

    def _figures(
        self, batch: Any, before: tuple[float, dict[str, int]], after: tuple[float, dict[str, int]]
    ) -> dict[str, float]:
        (then, old), (now, counts) = before, after
        passed = {key: max(0, counts[key] - old[key]) for key in counts}
        seconds, room = max(now - then, 1e-9), passed["rows"] * batch.seq_len
        return {
            "tokens_per_second": passed["tokens"] / seconds,
            "wait_share": min(1.0, passed["wait_ns"] * 1e-9 / seconds),
            "waits": passed["waits"],
            "fill": passed["tokens"] / room if room else 0.0,
            "next_row": batch.next_row,
        }

    def _said(self, loader: Any) -> dict[str, float]:
        if self._asker is None:
            self._asker = _Asker(lambda: ringpack.stat(loader.run, self._run_dir))
        said = _of_engine(self._asker.said)
        self._asker.begin()
        return said

    def _write(self, figures: dict[str, float], step: int) -> None:
        raise NotImplementedError


class TensorBoard(_Callback):
    """Log to a torch.utils.tensorboard.SummaryWriter, or another object with `add_scalar`."""

    def __init__(self, writer: Any, **options: Any):
        super().__init__(**options)
        self._writer = writer

    def _write(self, figures: dict[str, float], step: int) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)


class Wandb(_Callback):
    """Log to the result of wandb.init(), or another object with `log`."""

    def __init__(self, run: Any, **options: Any):
        super().__init__(**options)
        self._run = run

    def _write(self, figures: dict[str, float], step: int) -> None:
        self._run.log(figures, step=step)
