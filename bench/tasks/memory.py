# SPDX-License-Identifier: Apache-2.0
"""An engine's resident memory against the figure of `ringpack plan`, at few documents and at many.

tests/cli/test_memory.sh does the same with other sizes of rings.
"""

from pathlib import Path

from corpora.token_corpus import make_index
from engine import Engine
from resident import resident_in_the_end

BATCHES = 200


class Memory:
    def __init__(self, bench):
        self.bench = bench
        folder = Path(bench.settings["corpus"]).parent
        self.corpora = {count: make_index(folder, count)
                        for count in bench.settings["memory_documents"]}

    def _measure(self, corpus):
        """(bytes that are resident and no file's, the figure of the plan)"""
        bench = self.bench
        keys = bench.task(sources=corpus, num_epochs="endless", io="pread", prefetch_factor=16)
        said = bench.plan(keys, rows=100)["memory"]["reading_bytes"]
        with Engine(bench, keys, "--fresh") as engine:
            with bench.trainer("--batches", str(BATCHES)) as report:
                report()
            found = resident_in_the_end(engine.process.pid)
        return found, said

    def engine(self):
        sample, sizes = {}, []
        for documents, corpus in self.corpora.items():
            found, said = self._measure(corpus)
            sample[f"memory_{documents}_bytes"] = found
            sample[f"memory_{documents}_per_said"] = found / said
            sizes.append(found)
        sample["memory_said_bytes"] = said
        sample["memory_many_per_few"] = sizes[-1] / sizes[0]
        return sample
