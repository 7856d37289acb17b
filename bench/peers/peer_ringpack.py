# SPDX-License-Identifier: Apache-2.0
"""ringpack through its Python client, which starts the engine, as the peers start their workers.
Everything as it comes: one thread that plans, one that reads, one that packs, one that delivers.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "python"))
import ringpack  # noqa: E402


class Ringpack:
    packs = True

    def __init__(self, task, profile):
        self.task, self.profile, self.loader = task, profile, None

    def prepare(self):
        pass

    def open(self, workers, state=None):
        del workers  # they are threads of the engine
        task = self.task
        self.loader = ringpack.Loader(
            corpus=task.corpus, seq_len=task.seq_len, batch_size=task.batch_size,
            profile=self.profile, num_epochs=task.epochs or "endless",
            run=f"peers-{os.getpid()}", run_dir=task.run_dir)
        if state is not None:
            self.loader.load_state_dict(state)
        return self._batches()

    def _batches(self):
        with self.loader:
            for batch in self.loader:
                yield batch

    def ids(self, batch):
        return batch["input_ids"]

    def details(self, batch):
        tokens = batch["doc_lens"].sum(axis=1, keepdims=True)
        real = numpy.arange(self.task.seq_len) < tokens
        return real, batch["position_ids"] if "position_ids" in batch else None

    def state(self):
        return self.loader.state_dict()

    def moved(self, state, rows):
        """The state at that row, by planning up to it: no part of the stream is made up."""
        del state
        task, token = self.task, Path(self.task.folder) / "token"
        keys = {"sources": task.corpus, "seq_len": task.seq_len, "batch_size": task.batch_size,
                "profile": self.profile, "num_epochs": task.epochs or "endless", "row": rows,
                "state": token}
        command = [os.environ["RINGPACK_LOOP"], "seek", *(f"{k}={v}" for k, v in keys.items())]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return {"ringpack_state": token.read_bytes()}
