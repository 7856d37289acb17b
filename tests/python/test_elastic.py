# SPDX-License-Identifier: Apache-2.0
"""Another number of ranks, nodes and rows after each end, good or bad: the rows stay the same.

Two nodes are two namespaces (tests/elastic/nodes.py). RP_LONG=1 runs the whole matrix: both
launchers, both ways of saving, 1, 2, 3 and 6 ranks on one and two nodes, and a partition."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
import ringpack
from conftest import ROOT
from job_kit import PATIENCE
from warm_python import warm_python

sys.path.append(str(ROOT / "tests" / "elastic"))

import nodes as machines  # noqa: E402
from job import Training  # noqa: E402

LONG = bool(os.environ.get("RP_LONG"))
SAVED, END = 348, 708  # rows; no batch of RESUMED divides the first, all divide the rest
RESUMED = {  # ranks on each node: rows of a batch
    (1,): 5,
    (2,): 4,
    (1, 1): 4,
    (3,): 5,
    (2, 1): 5,
    (6,): 4,
    (3, 3): 4,
}
MATRIX = [
    (launcher, way, ranks)
    for launcher, way in (("torchrun", "dcp"), ("torchrun", "file"), ("mpirun", "file"))
    for ranks in RESUMED
    if LONG or launcher == "mpirun"  # lives below continue from torchrun's save
]


warm = warm_python()


@pytest.fixture(scope="module")
def nodes():
    why = machines.missing()
    if why:
        pytest.skip(f"LEFT OUT, nothing was tested on two nodes: {why}")
    with machines.two_nodes() as pair:
        yield pair


@pytest.fixture(scope="module")
def corpus(program, tmp_path_factory):
    place = tmp_path_factory.mktemp("text") / "modules"
    options = ["--glob", "[a-c]*.py", "--max-tokens", "400k", "-q", "-o", place]
    subprocess.run([program, "convert", *options, os.path.dirname(os.__file__)], check=True)
    return place


@pytest.fixture(scope="module")
def digest(corpus, tmp_path_factory):
    """The sum over all rows, by one undisturbed rank."""
    place = tmp_path_factory.mktemp("run")
    total = 0
    with ringpack.Loader(
        corpus=corpus, seq_len=128, batch_size=1, seed=5, num_epochs="endless", run_dir=place
    ) as loader:
        while loader.next_row < END:
            total += next(loader).digest()
    print(f"digest of {END} rows: {total % 2**128:032x}")
    return f"{total % 2**128:032x}"


def need(launcher):
    if launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("LEFT OUT: needs Open MPI: apt-get install openmpi-bin")
    if launcher == "torchrun":
        pytest.importorskip("torch", reason="LEFT OUT: needs torch")


@pytest.fixture(scope="module")
def saved(nodes, corpus, warm, tmp_path_factory):
    """The state of four ranks on two nodes, by launcher and way: made once, then copied."""
    made = {}

    def get(launcher, way, place):
        if (launcher, way) not in made:
            folder = tmp_path_factory.mktemp("saved") / "training"
            first = Training(nodes, corpus, folder, END, warm)
            jobs = first.start(launcher, (2, 2), 3, SAVED, way, until_row=SAVED)
            for job in jobs:
                job.finish()
            made[launcher, way] = folder
        training = Training(nodes, corpus, place, END, warm)
        shutil.copytree(made[launcher, way], place, dirs_exist_ok=True)
        training.lives = 1
        return training

    return get


def wait_for_empty(nodes):
    """No file or process of a job is left on its nodes, after any end."""
    deadline = time.monotonic() + PATIENCE
    for node in nodes:
        while node.processes():
            assert time.monotonic() < deadline, f"{node.name}: {node.processes()} are still there"
            time.sleep(0.05)


@pytest.mark.parametrize("launcher, way, ranks", MATRIX)
def test_other_ranks_go_on(nodes, saved, digest, folder, launcher, way, ranks):
    need(launcher)
    training = saved(launcher, way, folder / "training")
    for job in training.start(launcher, ranks, RESUMED[ranks], way=way):
        job.finish()
    assert training.digest() == digest
    wait_for_empty(nodes)


def test_the_digest_notices_a_fragment_that_is_lost(nodes, saved, digest, folder, monkeypatch):
    need("mpirun")
    broken = os.environ.get("RINGPACK_BROKEN")
    if not broken:
        pytest.skip("needs RINGPACK_BROKEN, as ctest sets it")
    training = saved("mpirun", "file", folder / "training")
    monkeypatch.setenv("RINGPACK", broken)
    for job in training.start("mpirun", (2, 1), 5):
        job.finish()
    assert training.digest() != digest


def kill_rank(training, jobs):
    """Any one; the engine's owner is one of them."""
    victim = random.choice([path.suffix for path in training.journal_paths()])
    os.kill(int(victim[1:]), signal.SIGKILL)


def kill_node(training, jobs):
    """All at once, as when its power goes."""
    random.choice(training.nodes).kill()


def cut_cable(training, jobs):
    training.nodes[1].plug("down")


ENDS = [kill_rank, kill_node, cut_cable] if LONG else [kill_rank, kill_node]


def test_every_end_is_gone_on_from(nodes, saved, digest, folder):
    """After a life that ended well, each is ended in its own way, and the next has other ranks."""
    need("torchrun")
    seed = int(os.environ.get("RP_SEED", time.time()))
    print(f"RP_SEED={seed}")
    random.seed(seed)
    training = saved("torchrun", "dcp", folder / "training")
    shapes = [((2, 1), 4), ((1, 1), 6), ((3, 3), 2)]
    for number, end in enumerate(ENDS):
        ranks, rows = shapes[number]
        jobs = training.start("torchrun", ranks, rows, patience=10, step_seconds=0.02)
        row = SAVED + 100 * number + random.randrange(80)
        jobs[0].wait_for(lambda output, row=row: training.rows_taken() >= row)
        end(training, jobs)
        for job in jobs:
            job.wait_for_end()
        wait_for_empty(nodes)
        nodes[1].plug("up")
    for job in training.start("torchrun", (1,), 12):
        job.finish()
    assert training.lives == len(ENDS) + 2
    assert training.digest() == digest


def test_an_engine_that_is_killed_is_not_noticed(nodes, corpus, digest, folder):
    need("mpirun")
    training = Training(nodes, corpus, folder / "training", END)
    jobs = training.start("mpirun", (2, 2), 3, step_seconds=0.02)
    jobs[0].wait_for(lambda output: training.rows_taken() >= 120)
    engines = [pid for node in nodes for pid in node.processes("serve")]
    assert len(engines) == 2
    for pid in engines:
        os.kill(pid, signal.SIGKILL)
    for job in jobs:
        job.finish()
    assert training.digest() == digest
    wait_for_empty(nodes)
