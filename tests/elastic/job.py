# SPDX-License-Identifier: Apache-2.0
"""A training of several lives: each is a job on one or two nodes that continues from the last one's
state. At the end the digests of the rows that counted are added up."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python"), str(HERE.parents[1] / "tools" / "python")]

from nodes import NETWORK  # noqa: E402

PORT = 29500  # each pair of nodes has a network of its own


class Training:
    """`place` is a folder that all nodes see. torchrun and its ranks are forked by `warm`, a
    WarmPython, or are processes of this Python."""

    def __init__(self, nodes, corpus, place, until_row, warm=None):
        self.nodes, self.corpus, self.place = nodes, corpus, Path(place)
        self.until_row, self.lives, self.ranks = until_row, 0, 0
        self.python = warm.python if warm else sys.executable
        self.environment = warm.environment if warm else {}
        self.place.mkdir()

    # ---- lives --------------------------------------------------------------------------------

    def start(self, launcher, ranks, batch_size, save_every=12, way="dcp", **changes):
        """Jobs, one for each node that has ranks: `ranks` says how many, node by node."""
        way = "alone" if launcher == "mpirun" else way
        trainer = self.new_life(ranks, batch_size, save_every=save_every, way=way, **changes)
        return (self._mpirun if launcher == "mpirun" else self._torchrun)(ranks, trainer)

    def new_life(self, ranks, batch_size, **changes):
        """The trainer and its arguments."""
        self.lives, self.ranks = self.lives + 1, sum(ranks)
        options = {
            "corpus": self.corpus,
            "place": self.place,
            "life": self.lives,
            "batch_size": batch_size,
            "until_row": self.until_row,
            **changes,
        }
        trainer = [HERE / "trainer.py"]
        for key, value in options.items():
            trainer += ["--" + key.replace("_", "-"), value]
        return trainer

    def _log(self, node):
        return self.place / f"life-{self.lives}-{node}.log"

    def _torchrun(self, ranks, trainer):
        jobs = []
        for number, count in enumerate(ranks):
            command = [self.python, "-m", "torch.distributed.run", "--nnodes", len(ranks)]
            command += ["--node-rank", number, "--nproc-per-node", count]
            command += ["--master-addr", self.nodes[0].address, "--master-port", PORT]
            calm = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", **self.environment}
            node = self.nodes[number]
            jobs.append(node.start([*command, *trainer], self._log(number), **calm))
        return jobs

    def _mpirun(self, ranks, trainer):
        """Open MPI reaches the other node by a program in the place of rsh."""
        remote = self.place / "rsh"
        words = shlex.join(self.nodes[-1].shell('eval "$COMMAND"'))
        remote.write_text(f'#!/bin/bash\nshift # the host\nCOMMAND="$*" exec {words}\n')
        remote.chmod(0o755)
        hosts = ",".join(f"{node.address}:{n}" for node, n in zip(self.nodes, ranks))
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "plm_rsh_agent"]
        command += [remote, "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include"]
        command += [f"{NETWORK}.0/24", "--host", hosts, "-np", sum(ranks)]
        for name in "RINGPACK", "RINGPACK_LIBRARY", "PYTHONPATH", "PATH":
            command += ["-x", name] if name in os.environ else []
        return [self.nodes[0].start([*command, sys.executable, *trainer], self._log(0))]

    # ---- the outcome -----------------------------------------------------------------------------

    def journal_paths(self, life=None):
        """One for each rank: rank-R.PID."""
        return sorted((self.place / f"life-{life or self.lives}").glob("rank-*"))

    def journals(self, life=None):
        """Start row, and batches (first row, rows, digest), of every rank of a life."""
        found = []
        for path in self.journal_paths(life):
            text = path.read_text()
            starts = re.findall(r"^start (\d+)\n", text)
            batches = re.findall(r"^(\d+) (\d+) (\w{32})\n", text, re.M)
            found += [
                (
                    int(start),
                    [(int(row), int(count), int(hexed, 16)) for row, count, hexed in batches],
                )
                for start in starts
            ]
        return found

    def rows_taken(self):
        """The row that the slowest rank of this life has come to, or -1."""
        ends = [batches[-1][0] for _, batches in self.journals() if batches]
        return min(ends) if len(ends) == self.ranks else -1

    def digest(self):
        """Of rows 0 to until_row: rows that a life took after the start of the next do not
        count."""
        starts = []
        for life in range(1, self.lives + 1):
            found = {start for start, _ in self.journals(life)}
            assert len(found) == 1, f"ranks of life {life} started at rows {found}"
            starts += found
        rows, total = [], 0
        for life, end in zip(range(1, self.lives + 1), [*starts[1:], self.until_row]):
            for _, batches in self.journals(life):
                for first, count, digest in batches:
                    if first < end:
                        assert first + count <= end, f"row {end} lies within a batch of life {life}"
                        rows += range(first, first + count)
                        total += digest
        assert sorted(rows) == list(range(self.until_row)), "a row is missing, or was taken twice"
        return f"{total % 2**128:032x}"

    def remove(self):
        shutil.rmtree(self.place)
