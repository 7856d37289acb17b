# SPDX-License-Identifier: Apache-2.0
"""Frameworks with two real processes: accelerate, which is killed and resumed, jax.distributed, and
Lightning with its own launcher, whose ranks are said after the loaders have been entered."""

import os
import re

import pytest
import ringpack
from conftest import ROOT
from forked_ranks import ForkedRanks
from job_kit import Job, free_port, lives_through_a_kill
from lightning_kit import MODEL, needs_lightning
from ringpack import _placement, _ranks
from warm_python import warm_python

warm = warm_python()


def environment(folder):
    return {
        **os.environ, "PYTHONPATH": str(ROOT / "tools" / "python"), "XDG_RUNTIME_DIR": str(folder),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip


# ---- accelerate ---------------------------------------------------------------------------------

ACCELERATE = """
import os, sys
import ringpack, torch
from accelerate import Accelerator
from accelerate.utils import gather_object
corpus, place, accumulation, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.manual_seed(1)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulation)
layers = torch.nn.Embedding(50000, 4), torch.nn.Linear(4, 64)
model = torch.nn.Sequential(*layers)
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
loader = ringpack.Loader(
    corpus=corpus, seq_len=16, batch_size=1, seed=3, profile="hf", return_type="torch",
    num_epochs="endless", global_batch_size=2 * accumulation)
accelerator.register_for_checkpointing(loader)
kept = sorted(n for n in os.listdir(place) if n.startswith("step-")) if os.path.isdir(place) else []
with loader:
    if kept:
        accelerator.load_state(os.path.join(place, kept[-1]))
    loader.check_ranks(lambda fact: gather_object([fact]))
    for step in range(int(kept[-1][5:]) + 1 if kept else 1, steps + 1):
        batches = [dict(next(loader)) for _ in range(accumulation)]  # more than the ring has slots
        count = sum(int((batch["labels"] != -100).sum()) for batch in batches)
        count = max(int(accelerator.reduce(torch.tensor(count))), 1)
        total = 0.0
        for batch in batches:
            with accelerator.accumulate(model):
                logits = model(batch["input_ids"])[:, :-1].flatten(0, 1)
                labels = batch["labels"][:, 1:].flatten()
                labels = torch.where(labels == -100, labels, labels % 64)
                loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / count
                accelerator.backward(loss * accelerator.num_processes * accumulation)
                optimizer.step()
                optimizer.zero_grad()
                total += loss.item()
        total = accelerator.reduce(torch.tensor(total, dtype=torch.float64)).item()
        accelerator.print(f"step {step} row {loader.next_row} loss", total.hex(), flush=True)
        if step % 2 == 0:
            accelerator.save_state(os.path.join(place, "new"))
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                os.rename(os.path.join(place, "new"), os.path.join(place, f"step-{step:04}"))
            accelerator.wait_for_everyone()
    accelerator.wait_for_everyone()
accelerator.end_training()
"""


@pytest.mark.parametrize("accumulation", [4, 16])
def test_accelerate_is_killed_and_resumed(program, corpora, folder, accumulation):
    pytest.importorskip("accelerate")
    (folder / "train.py").write_text(ACCELERATE)
    place = {"XDG_RUNTIME_DIR": str(folder), "OMP_NUM_THREADS": "1"}

    def start(name, log):
        words = [corpora[0], folder / name, accumulation, 6]
        return ForkedRanks(2, folder / "train.py", words, folder / log, **place)

    whole = lives_through_a_kill(start, r"^step (\d+) (row \d+ loss \S+)$", 6)
    rows = [int(losses.split()[1]) for losses in whole.values()]
    assert rows == [2 * accumulation * step for step in range(1, 7)]


# ---- jax ----------------------------------------------------------------------------------------

JAX = """
import json, os, sys
import jax
import ringpack
rank, port, corpus, place, steps = int(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5])
loader = ringpack.Loader(
    corpus=corpus, seq_len=32, batch_size=2, seed=1, run_dir=place, return_type="jax")
jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=rank)
saved = f"{place}/state-{rank}"
if os.path.exists(saved):
    with open(saved) as file:
        loader.load_state_dict(json.load(file))
with loader:
    rows = [next(loader).first_row for _ in range(steps)]
    with open(saved, "w") as file:
        json.dump(loader.state_dict(text=True), file)
    print(f"{rank}: {rows}", flush=True)
    jax._src.distributed.global_state.client.wait_at_barrier("read", 600_000)
"""


def test_jax_distributed(program, corpora, folder, warm):
    """Two processes that know each other only by jax.distributed, and once more from a state."""
    pytest.importorskip("jax")
    (folder / "train.py").write_text(JAX)
    surroundings = {**environment(folder), **warm.environment}
    for wanted in (["0: [0, 4, 8]", "1: [2, 6, 10]"], ["0: [12, 16, 20]", "1: [14, 18, 22]"]):
        port = free_port()
        begin = [warm.python, "train.py"]
        commands = [[*begin, rank, port, corpora[0], folder, 3] for rank in range(2)]
        with (
            Job(commands[0], folder / "0.log", cwd=folder, env=surroundings) as first,
            Job(commands[1], folder / "1.log", cwd=folder, env=surroundings) as second,
        ):
            outputs = second.finish() + first.finish()
        assert sorted(re.findall(r"^\d: \[.*", outputs, re.M)) == wanted


# ---- Lightning ----------------------------------------------------------------------------------

LIGHTNING = MODEL + """
corpus, steps, path = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None
torch.set_num_threads(1)
form = dict(corpus=corpus, seq_len=48, batch_size=2, seed=1, return_type="torch")
train, val = (ringpack.Loader(num_epochs=epochs, **form) for epochs in ("endless", 1))
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_steps=steps, max_epochs=-1, logger=False,
    val_check_interval=3, num_sanity_val_steps=1, enable_progress_bar=False,
    enable_model_summary=False, enable_checkpointing=False)
model = Model()
with train, val:
    trainer.fit(model, train, val, ckpt_path=path)
    trainer.save_checkpoint("at.ckpt")
    print(f"rank {trainer.global_rank}: {model.trained} {model.validated} {len(val)}", flush=True)
    trainer.strategy.barrier()
"""


@needs_lightning
def test_lightning_with_its_own_launcher(program, corpora, folder, warm):
    """Which starts the other rank in fit(): the loaders have been entered by then."""
    (folder / "fit.py").write_text(LIGHTNING)

    def fit(log, *words):
        command = ["python", "fit.py", corpora[0], *words]
        its_own = {**environment(folder), **warm.environment}
        with Job(command, folder / log, cwd=folder, env=its_own) as job:
            output = job.finish()
        found = re.findall(r"rank (\d): \[(.*?)\] \[(.*?)\] (\d+)", output)
        ranks = {int(rank): [*map(int, sums.split(","))] for rank, sums, _, _ in found}
        for _, _, validated, length in found:
            *sanity, last = validated.split(", ")
            assert set(sanity) <= {"1", length} and last == length, validated
        assert set(ranks) == {0, 1}
        return ranks

    with ringpack.Loader(
        corpus=corpora[0], seq_len=48, batch_size=2, seed=1, run_dir=folder, return_type="torch",
        num_epochs="endless",
    ) as loader:  # fmt: skip
        sums = [int(next(loader)["input_ids"].sum()) for _ in range(12)]
    assert fit("first", 4) == {rank: sums[rank:8:2] for rank in range(2)}
    assert fit("rest", 6, "at.ckpt") == {rank: sums[8 + rank :: 2] for rank in range(2)}


# ---- ranks that are said late -------------------------------------------------------------------


def test_a_loader_that_was_entered_before_its_rank_is_said(make, monkeypatch, as_told):
    loader = make(num_epochs="endless", return_type="torch")
    with loader:
        assert loader._ranks.world == 1 and loader.engine_pid
        as_told(0, 2)
        rows = [batch.first_row for batch, _ in zip(loader, range(3))]
        assert rows == [0, 6, 12] and "torch.distributed" in repr(loader)
    as_told(0, 1)
    with make(num_epochs="endless", return_type="torch", run="taken") as loader:
        next(loader)
        as_told(1, 2)
        with pytest.raises(ringpack.UsageError, match="taken batches as rank 0 of 1") as raised:
            next(iter(loader))
        assert "init_process_group()" in raised.value.hint


def test_half_of_a_launcher_is_entered_and_refused_at_the_first_use(make, monkeypatch, as_told):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "0")
    with make(num_epochs="endless", return_type="torch") as loader:
        with pytest.raises(ringpack.UsageError, match="WORLD_SIZE=2 is set, and RANK is not"):
            next(loader)
        as_told(0, 2)
        assert [batch.first_row for batch, _ in zip(loader, range(2))] == [0, 6]


@pytest.fixture
def as_told(monkeypatch):
    """A framework that says this rank from now on."""

    def say(rank, world):
        for module in _ranks, _placement:
            monkeypatch.setattr(
                module, "ask_frameworks", lambda: (rank, world, "torch.distributed")
            )

    return say
