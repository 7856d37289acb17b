# SPDX-License-Identifier: Apache-2.0
"""The loader of return_type="torch", which torch.utils.data takes for a dataset.

A module of its own, because it imports torch; loaders of other return types do not.
"""

import sys
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from ._accelerate import check_ranks_of_prepared, find_prepared
from ._client import Client
from .errors import UsageError
from .loader import Loader


_get_worker_info: Any = get_worker_info  # some versions of torch have no types for it


class TorchLoader(Loader, IterableDataset[Any]):
    """A Loader that DataLoader and StatefulDataLoader (batch_size=None, num_workers=0) iterate."""

    def __iter__(self) -> Any:
        # A DataLoader passes its dataset no options; the caller here is its fetcher.
        if sys._getframe(1).f_locals.get("auto_collation"):
            raise UsageError(
                "a DataLoader with a batch_size (as Trainer makes one of train_dataset) would join "
                "batches of this loader, which are whole batches, into larger ones",
                "DataLoader(loader, batch_size=None); for a Trainer of transformers, leave "
                "train_dataset out and call ringpack.hf.attach(trainer, loader)",
            )
        if find_prepared(sys._getframe(1)) is not None:
            self._settle()
            check_ranks_of_prepared(self._ranks.world)
        return super().__iter__()

    def _attach_once(self) -> Client:
        worker = _get_worker_info()
        if worker is not None:
            raise UsageError(
                f"worker {worker.id} of a DataLoader would attach as rank {self._ranks.rank}: only "
                "one may, and the position would stay in the worker",
                "num_workers=0: the engine reads and packs ahead in a process of its own",
            )
        return super()._attach_once()
