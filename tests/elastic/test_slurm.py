# SPDX-License-Identifier: Apache-2.0
"""tools/examples/launch/slurm.sbatch under a real Slurm: requeued, killed, a node lost, resized.

`tools/campaign elastic --slurm` runs this; tools/check plays Slurm by its variables instead
(tests/python/test_launch.py)."""

import os
import random
import shlex
import signal
import sys
import time

import pytest
import slurm
from conftest import ROOT
from job import Training
from job_kit import PATIENCE
from test_elastic import END, corpus, digest, nodes, wait_for_empty  # noqa: F401

SCRIPT = ROOT / "tools" / "examples" / "launch" / "slurm.sbatch"
EXAMPLE = "python gpt.py --corpus corpus --checkpoints checkpoints"

UNDERWAY = "PENDING", "CONFIGURING", "RUNNING", "COMPLETING"


def wait_until(condition, told=lambda: ""):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"did not happen in time\n{told()}"
        time.sleep(0.1)


@pytest.fixture
def cluster(nodes, folder):  # noqa: F811
    why = slurm.missing()
    if why:
        pytest.fail(why)
    with slurm.Cluster(nodes, folder / "slurm") as made:
        wait_until(lambda: made.idle() == 2, made.said)
        yield made
    wait_for_empty(nodes)


class SlurmTraining(Training):
    """Lives that are jobs of Slurm, or starts of one that was requeued."""

    def submit(self, cluster, ranks, batch_size, *options):
        """The job's number. The script is the example but for the program that it runs."""
        trainer = self.new_life(ranks, batch_size, way="dcp", save_every=12, patience=90)
        trainer[trainer.index("--life") + 1] = "life"
        words = shlex.join(map(str, ["python", *trainer])).replace(
            " life ", f" $(({self.lives} + SLURM_RESTART_COUNT)) "
        )
        text = SCRIPT.read_text()
        assert text.count(EXAMPLE) == 1 and "'" not in words
        script = self.place / f"life-{self.lives}.sbatch"
        script.write_text(text.replace(EXAMPLE, words))
        size = [f"--nodes={len(ranks)}", f"--ntasks-per-node={ranks[0]}", "--gpus-per-node=2"]
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        calm = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "PATH": path}
        log = f"--output={self.place}/slurm-%j.out"
        return cluster.submit(script, *size, log, *options, **calm)

    def said(self):
        return "".join(path.read_text() for path in self.place.glob("slurm-*.out"))

    def wait_for_row(self, cluster, job, row):
        """Rows come, or the job ends, which is wrong."""
        wait_until(
            lambda: self.rows_taken() >= row or cluster.state(job) not in UNDERWAY, self.said
        )
        state = cluster.state(job)
        assert self.rows_taken() >= row, f"{state}\n{self.said()}\n{cluster.said()}"


def test_a_job_of_slurm_goes_on_exactly(cluster, nodes, corpus, digest, folder):  # noqa: F811
    seed = int(os.environ.get("RP_SEED", time.time()))
    print(f"RP_SEED={seed}")
    random.seed(seed)
    training = SlurmTraining(nodes, corpus, folder / "training", END)
    job = training.submit(cluster, (2, 2), 3)

    training.wait_for_row(cluster, job, random.randrange(60, 120))
    cluster.ask("scontrol", "requeue", job)
    training.lives += 1  # the same job, started again by Slurm

    training.wait_for_row(cluster, job, random.randrange(180, 240))
    cluster.kill_node(nodes[1])
    wait_until(lambda: cluster.state(job) == "PENDING", training.said)
    cluster.start_node(nodes[1])
    training.lives += 1

    training.wait_for_row(cluster, job, random.randrange(300, 360))
    victim = random.choice([path.suffix for path in training.journal_paths()])
    os.kill(int(victim[1:]), signal.SIGKILL)
    wait_until(lambda: cluster.state(job) == "FAILED", training.said)

    job = training.submit(cluster, (3,), 4)
    wait_until(lambda: cluster.state(job) in ("COMPLETED", "FAILED"), training.said)
    assert cluster.state(job) == "COMPLETED", training.said()
    assert training.lives == 4
    assert training.digest() == digest
