# SPDX-License-Identifier: Apache-2.0
"""Ranks come from arguments, then from the launcher; one process of a node starts the engine."""

import os
import subprocess
import sys
import threading
import types

import pytest
import ringpack
from conftest import ROOT
from ringpack import _engine, _ranks
from ringpack._ranks import check_agreement, find_ranks, settle_ranks
from stream_kit import PATIENCE
from stream_oracle import assert_batch

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "TORCHELASTIC_RUN_ID": "none",
    "MASTER_PORT": "29500",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "2918580225",
}
BATCH_SCRIPT = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
BATCH_SCRIPT |= {"SLURM_NTASKS": "4"}
SLURM = {**BATCH_SCRIPT, "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "4"}
MPICH = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
CRAY = {"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "2"}
MVAPICH = {f"MV2_COMM_WORLD_{name}": MPICH[other] for name, other in [
    ("RANK", "PMI_RANK"),
    ("SIZE", "PMI_SIZE"),
    ("LOCAL_RANK", "MPI_LOCALRANKID"),
    ("LOCAL_SIZE", "MPI_LOCALNRANKS"),
]}  # fmt: skip
FLUX = {
    "FLUX_JOB_ID": "f7",
    "FLUX_TASK_RANK": "3",
    "FLUX_JOB_SIZE": "4",
    "FLUX_TASK_LOCAL_ID": "1",
    "PMI_RANK": "3",
    "PMI_SIZE": "4",
}
JAX = {"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2", "JAX_COORDINATOR_ADDRESS": "a:1"}


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({}, (0, 1, 0, None, "no launcher", None)),
        (TORCHRUN, (5, 8, 1, range(4, 8), "torchrun: RANK, WORLD_SIZE", "torchrun-none-29500")),
        (
            OPEN_MPI,
            (
                2,
                4,
                0,
                range(2, 4),
                "Open MPI: OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE",
                "Open_MPI-2918580225",
            ),
        ),
        (SLURM, (3, 4, 1, None, "Slurm: SLURM_PROCID, SLURM_STEP_NUM_TASKS", "Slurm-77")),
        (BATCH_SCRIPT, (0, 1, 0, None, "no launcher", None)),
        (MPICH, (3, 4, 1, range(2, 4), "MPICH: PMI_RANK, PMI_SIZE", None)),
        (CRAY, (3, 4, 1, range(2, 4), "MPICH: PMI_RANK, PMI_SIZE", None)),
        (
            {**MPICH, **BATCH_SCRIPT},
            (3, 4, 1, range(2, 4), "MPICH: PMI_RANK, PMI_SIZE", "MPICH-77"),
        ),
        (
            MVAPICH,
            (3, 4, 1, range(2, 4), "MVAPICH: MV2_COMM_WORLD_RANK, MV2_COMM_WORLD_SIZE", None),
        ),
        (FLUX, (3, 4, 1, None, "Flux: FLUX_TASK_RANK, FLUX_JOB_SIZE", "Flux-f7")),
        (JAX, (1, 2, 1, None, "JAX: JAX_PROCESS_ID, JAX_NUM_PROCESSES", "JAX-a_1")),
        (
            {**SLURM, **TORCHRUN},
            (5, 8, 1, range(4, 8), "torchrun: RANK, WORLD_SIZE", "torchrun-none-29500"),
        ),
        ({"RANK": "1"}, (0, 1, 0, None, "no launcher", None)),
    ],
)
def test_launchers(environment, expected):
    assert find_ranks(None, None, environment)[:6] == expected


def test_arguments_win():
    assert find_ranks(1, 2, TORCHRUN)[:5] == (1, 2, 1, None, "arguments")


def test_ranks_may_be_text_of_the_environment():
    assert find_ranks("0", "2", {}) == find_ranks(0, 2, {})
    assert find_ranks("1", "2", TORCHRUN) == find_ranks(1, 2, TORCHRUN)
    with pytest.raises(TypeError):
        find_ranks(0.5, 2, {})


def test_a_launcher_that_says_nonsense_is_named():
    with pytest.raises(ringpack.UsageError, match="WORLD_SIZE='four'"):
        find_ranks(None, None, {"RANK": "0", "WORLD_SIZE": "four"})
    with pytest.raises(ringpack.UsageError, match="rank 9 of 8"):
        find_ranks(None, None, {"RANK": "9", "WORLD_SIZE": "8"})


# Lightning's own launcher: RANK is not among them, and NODE_RANK counts nodes.
LIGHTNING = {"WORLD_SIZE": "4", "LOCAL_RANK": "1", "NODE_RANK": "0", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    "environment, half",
    [
        (LIGHTNING, "WORLD_SIZE=4 is set, and RANK is not"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2 is set, and RANK is not"),
        ({"RANK": "1"}, "RANK=1 is set, and WORLD_SIZE is not"),
        ({"LOCAL_RANK": "1"}, "LOCAL_RANK=1 is set, and RANK is not"),
        ({"PMI_RANK": "3"}, "PMI_RANK=3 is set, and PMI_SIZE is not"),
        ({"PMI_SIZE": "4", "PMI_LOCAL_RANK": "1"}, "PMI_SIZE=4 is set, and PMI_RANK is not"),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "OMPI_COMM_WORLD_SIZE=4 is set"),
        ({"MV2_COMM_WORLD_RANK": "1"}, "MV2_COMM_WORLD_RANK=1 is set"),
        ({"FLUX_TASK_RANK": "1"}, "FLUX_TASK_RANK=1 is set, and FLUX_JOB_SIZE is not"),
        ({"JAX_PROCESS_ID": "1"}, "JAX_PROCESS_ID=1 is set, and JAX_NUM_PROCESSES is not"),
    ],
)
def test_half_of_a_launcher_is_refused_at_the_first_use(environment, half, monkeypatch):
    monkeypatch.setattr(_ranks, "ask_frameworks", lambda: None)
    found = find_ranks(None, None, environment)
    with pytest.raises(ringpack.UsageError, match=half) as raised:
        settle_ranks(found, environment)
    assert raised.value.hint.startswith("give dp_rank and dp_world_size")
    by_hand = find_ranks(1, 2, environment)
    assert settle_ranks(by_hand, environment) == by_hand
    monkeypatch.setattr(_ranks, "ask_frameworks", lambda: (3, 4, "torch.distributed"))
    assert settle_ranks(found, environment)[:2] == (3, 4)


@pytest.mark.parametrize("alone", [{"WORLD_SIZE": "1"}, {"LOCAL_RANK": "0"}, {"NODE_RANK": "0"}])
def test_what_one_process_alone_may_have_is_no_half(alone, monkeypatch):
    monkeypatch.setattr(_ranks, "ask_frameworks", lambda: None)
    assert settle_ranks(find_ranks(None, None, alone), alone)[:2] == (0, 1)


def test_jax_is_asked_where_it_is_initialised(monkeypatch):
    state = types.SimpleNamespace(client=None, process_id=1, num_processes=2)
    jax = types.SimpleNamespace(global_state=state)
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    monkeypatch.setitem(sys.modules, "jax._src.distributed", jax)
    assert settle_ranks(find_ranks(None, None, {}), {})[:2] == (0, 1)
    state.client = object()
    assert settle_ranks(find_ranks(None, None, {}), {})[:5] == (1, 2, 1, None, "jax.distributed")


def test_a_framework_that_contradicts_its_launcher_is_refused(monkeypatch):
    monkeypatch.setattr(_ranks, "ask_frameworks", lambda: (0, 2, "torch.distributed"))
    with pytest.raises(ringpack.UsageError, match=r"say rank 5 of 8, and torch.* rank 0 of 2"):
        settle_ranks(find_ranks(None, None, TORCHRUN), TORCHRUN)


def test_the_second_node_of_a_framework_asks_for_its_ranks(monkeypatch):
    """Rank 2 is the first process of its node, and starts an engine there."""
    monkeypatch.setattr(_ranks, "ask_frameworks", lambda: (2, 4, "torch.distributed"))
    second = {**LIGHTNING, "LOCAL_RANK": "0", "NODE_RANK": "1"}
    found = settle_ranks(find_ranks(None, None, second), second)
    assert (found.rank, found.world, found.local) == (2, 4, 0)
    with pytest.raises(ringpack.UsageError, match="which ranks this node's engine serves"):
        found.keys()


# Two processes that know of one another only by torch.distributed.
SPAWNED = """
import sys
import torch
import ringpack

def main(rank, store, corpus, run_dir):
    loader = ringpack.Loader(corpus=corpus, seq_len=32, batch_size=2, run_dir=run_dir)
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
    with loader:
        loader.check_ranks()
        rows = [next(loader).first_row for _ in range(3)]
        torch.distributed.barrier()
    sys.stdout.write(f"{rank}: {rows}\\n")

if __name__ == "__main__":
    torch.multiprocessing.spawn(main, sys.argv[1:], nprocs=2)
"""


def test_spawned_processes_read_rows_of_their_own(program, corpora, folder):
    pytest.importorskip("torch")
    (folder / "spawned.py").write_text(SPAWNED)
    command = [sys.executable, "spawned.py", folder / "store", corpora[0], folder]
    place = {"PYTHONPATH": f"{ROOT}/tools/python", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **place}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0: [0, 4, 8]", "1: [2, 6, 10]"]


def test_one_process_of_a_node_starts_the_engine(monkeypatch, program, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("sources: [a]\nseq_len: 8\nbatch_size: 2\n")
    keys = {"seed": 3, "drop_last": True, "sections": ["labels", "loss_mask"]}
    for name, text in TORCHRUN.items():
        monkeypatch.setenv(name, text)
    other = ringpack.Loader("a.yaml", **keys)
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("RANK", "4")
    starter = ringpack.Loader("a.yaml", **keys)
    assert str(other).endswith("named at the first use, not attached")
    assert starter.run.rpartition("-")[0] == "torchrun-none-29500"
    assert other._command is None
    arguments, text, *_ = starter._command
    assert text is None
    assert " ".join(arguments) == (
        "-c a.yaml --dp-world-size 8 --ranks 4-7 --seed 3 --drop-last true "
        f"--sections labels,loss_mask --run {starter.run}"
    )


@pytest.mark.parametrize(
    "rank, local, node, tasks, expected",
    [
        (3, 1, 1, "2(x3)", "2-3"),
        (8, 0, 2, "4(x2),1", "8-8"),
        (0, 0, 0, "4", None),
    ],
)
def test_slurm_says_which_ranks_a_node_has(rank, local, node, tasks, expected):
    """Or the engine would fill rings without a consumer, and wait."""
    step = {"SLURM_PROCID": f"{rank}", "SLURM_LOCALID": f"{local}", "SLURM_NODEID": f"{node}"}
    world = {"2(x3)": "6", "4(x2),1": "9", "4": "4"}[tasks]
    step |= {"SLURM_STEP_NUM_TASKS": world, "SLURM_STEP_TASKS_PER_NODE": tasks}
    assert find_ranks(None, None, step).keys().get("ranks") == expected
    with pytest.raises(ringpack.UsageError, match="do not follow one another"):
        find_ranks(None, None, {**step, "SLURM_LOCALID": "9"})


def test_with_tensor_parallelism_on_many_nodes_the_ranks_of_a_node_are_asked_for():
    assert find_ranks(5, 8, TORCHRUN).keys()["ranks"] == "4-7"  # the launcher's own
    assert find_ranks(0, 2, {**TORCHRUN, "LOCAL_WORLD_SIZE": "8"}).keys() == {"dp_world_size": 2}
    with pytest.raises(ringpack.UsageError, match="which ranks this node's engine serves"):
        find_ranks(1, 2, TORCHRUN).keys()
    assert find_ranks(1, 2, TORCHRUN).keys(ranks_said=True) == {"dp_world_size": 2}


def test_who_needs_the_same_batches_says_so():
    second = find_ranks(1, 2, {}, 1, 2)
    assert second.place() == {"rank": 1, "world": 2, "replica": 1, "consumers_per_rank": 2}
    assert second.keys()["consumers_per_rank"] == 2
    assert second.local == 1, "the first one starts the engine"
    assert find_ranks(0, 1, {}).place()["consumers_per_rank"] == 1
    for arguments in [(None, None, TORCHRUN, 1, 2), (0, 1, {}, None, 2), (0, 1, {}, 2, 2)]:
        with pytest.raises(ringpack.UsageError, match=r"consumers_per_rank=2|replica 2 of 2"):
            find_ranks(*arguments)


def test_a_corpus_becomes_options_or_a_config(tmp_path):
    def command(corpus, **keys):
        return _engine.engine_command(None, corpus, keys)

    assert command("a.bin", seq_len=8) == (["--source", "a.bin", "--seq-len", "8"], None)
    assert command([tmp_path, "b"])[0] == ["--source", str(tmp_path), "--source", "b"]
    assert command([{"path": "/a", "weight": 3}, "/b"], seed=None) == (
        [],
        '{"sources": [{"path": "/a", "weight": 3},\n"/b"]}',
    )
    assert command("/a,b") == ([], '{"sources": ["/a,b"]}')
    relative = command([{"shards": ["x*"], "eos": 2}])[1]
    assert relative == f'{{"sources": [{{"shards": ["{os.getcwd()}/x*"], "eos": 2}}]}}'


def test_ranks_given_alone_reach_the_engine():
    assert find_ranks(0, 1, {}).keys() == {"dp_world_size": 1}
    assert find_ranks(None, None, {}).keys() == {}
    assert find_ranks(None, None, TORCHRUN).keys() == {"dp_world_size": 8, "ranks": "4-7"}


STREAM = ["corpus_sampled=11", "seed=7"]
DELIVERY = ["label_mode=shifted", "pad_id=0"]


def facts(stream=STREAM, delivery=DELIVERY, **changes):
    contract = "".join(f"{line}\n" for line in [*stream, "", *delivery])
    place = {"next_row": 12, "plan_digest": "a", "step_boundary": 0}
    return {"contract": contract, **place, "dp_world_size": 2, "dp_rank": 0, **changes}


@pytest.mark.parametrize(
    "odd, message",
    [
        ({"stream": ["corpus_sampled=11", "seed=8"]}, "seed differs: process 0 has 7, process 1"),
        ({"delivery": ["label_mode=aligned", "pad_id=0"]}, "label_mode differs: .* has aligned"),
        ({"delivery": ["label_mode=shifted"]}, "pad_id differs: .*, process 1 has none"),
        ({"plan_digest": "b"}, "plan_digest differs: process 0 has a, process 1 has b"),
        (
            {"delivery": ["label_mode=aligned", "pad_id=9"]},
            "label_mode differs: .*; pad_id differs: process 0 has 0, process 1 has 9",
        ),
        ({"next_row": 24}, "next_row differs: process 0 has 12, process 1 has 24"),
        ({"step_boundary": 6}, "step boundary differs: process 0 has 0, process 1 has 6; a step"),
        ({"dp_rank": 0}, "dp_rank: no process has 1 of 2"),
    ],
)
def test_ranks_that_differ_are_told_apart(program, odd, message):
    others = {"dp_rank": 1, **odd}
    with pytest.raises(ringpack.CheckpointMismatchError, match=message):
        check_agreement([facts(), facts(**others)])


def test_digests_are_compared_by_all_that_have_one(program):
    unknown, one, other = (facts(plan_digest=digest) for digest in (None, "a", "b"))
    share = facts(dp_rank=1)
    check_agreement([unknown, one, share])
    with pytest.raises(ringpack.CheckpointMismatchError, match="process 1 has a, process 2 has b"):
        check_agreement([unknown, one, other, share])


def test_corpora_are_compared_by_the_most_that_both_know(program):
    """Process 0 has no index; the two that have one differ in a block that no sample covers."""
    one, other = ([f"corpus_full~{n}", *STREAM] for n in (1, 2))
    alike = [facts(), facts(one, dp_rank=1), facts(one, dp_rank=1)]
    assert check_agreement(alike) == "sampled"
    assert check_agreement([facts(one), facts(one, dp_rank=1)]) == "whole"
    with pytest.raises(ringpack.CheckpointMismatchError, match="full fingerprint") as raised:
        check_agreement([*alike, facts(other, dp_rank=1)])
    assert (raised.value.expected, raised.value.found) == ("1", "2")


def test_tensor_parallel_ranks_may_read_the_same_share(program):
    check_agreement([facts(), facts(), facts(dp_rank=1), facts(dp_rank=1)])
    said = {"said_by": "arguments", "consumers_per_rank": 2}
    seats = [{"dp_rank": rank, "replica": replica} for rank in (0, 1) for replica in (0, 1)]
    check_agreement([facts(**said, **seat) for seat in seats])


@pytest.mark.parametrize(
    "places, numbers, both",
    [
        ([(0, 0), (1, 0), (1, 0)], "3 processes take part, .* is 2 x 1", "1 and 2 are both rank 1"),
        ([(0, 0), (0, 0)], "2 processes take part, .* is 2 x 1", "0 and 1 are both rank 0"),
        (
            [(0, 0), (0, 1), (1, 0), (1, 1), (0, 0)],
            "5 processes take part, .* is 2 x 2",
            "0 and 4 are both rank 0",
        ),
    ],
)
@pytest.mark.parametrize("said_by", ["no launcher", "torchrun: RANK, WORLD_SIZE"])
def test_processes_that_take_themselves_for_one_rank_are_refused(
    program, places, numbers, both, said_by
):
    replicas = 1 + max(replica for _, replica in places)
    job = [
        facts(dp_rank=rank, replica=replica, consumers_per_rank=replicas, said_by=said_by)
        for rank, replica in places
    ]
    with pytest.raises(ringpack.CheckpointMismatchError, match=numbers) as raised:
        check_agreement(job)
    assert both in str(raised.value) and said_by in str(raised.value)
    assert "dp_rank and dp_world_size" in raised.value.hint


def test_processes_that_all_run_alone_are_refused(make):
    """Each has an engine of its own, and all train the same rows."""
    with make() as one, make() as other:
        gathered = []
        one.check_ranks(lambda fact: gathered.append(fact) or gathered)
        with pytest.raises(ringpack.CheckpointMismatchError, match="2 processes take part"):
            other.check_ranks(lambda fact: [*gathered, fact])


def test_a_loader_tells_what_it_is_about_to_read(make):
    gathered = []

    def all_gather(fact):
        gathered.append(fact)
        return gathered

    with make() as loader:
        loader.check_ranks(all_gather)
        next(loader)
        with pytest.raises(ringpack.CheckpointMismatchError, match="next_row differs: .* has 0,"):
            loader.check_ranks(all_gather)
    other_seed = make(seed=8)
    with other_seed, pytest.raises(ringpack.CheckpointMismatchError, match="seed differs"):
        other_seed.check_ranks(lambda fact: [gathered[0], fact])


def test_nodes_whose_steps_begin_at_other_rows_are_told_apart(make, expected):
    """A state was saved in the middle of a step of 6 rows. The engine of one node is new, so that
    its steps begin at the row of the state; the engine of the other node had begun at row 0, and
    its trainer has returned a batch, so that its steps stay where they were."""
    steps = {"dp_world_size": 1, "dp_rank": 0, "global_batch_size": 6}
    with make(run="old", start_engine=True, **steps) as old, make(run="new", **steps) as new:
        next(old)
        state = old.state_dict()
        next(old)
        old.load_state_dict(state)
        new.load_state_dict(state)
        facts = [loader.attach()._client.facts() for loader in (old, new)]
        with pytest.raises(ringpack.CheckpointMismatchError, match="step boundary") as raised:
            new.check_ranks(lambda fact: [facts[0], fact])
        error = raised.value
        assert (error.field, error.expected, error.found) == ("step boundary", "0", "3")
        assert "restart the engine" in error.hint
        next(old)
        with make(run="third", **steps) as third:  # from a state between two steps of the first
            third.load_state_dict(old.state_dict())
            assert third.next_row == 6
            third.check_ranks(lambda fact: [old.attach()._client.facts(), fact])
            assert_batch(next(third), expected)


def test_ranks_are_compared_by_torch_or_by_what_is_given(make):
    pytest.importorskip("torch")
    with make() as loader, pytest.raises(ringpack.UsageError, match="no process group"):
        loader.check_ranks()


def test_ranks_move_together_although_one_is_late(make, expected):
    """torch.distributed.checkpoint reads every rank's state, which attaches it at row 0, and then
    lets each load at its own pace: a row that begins no micro-batch waits for the last."""
    first = make(dp_rank=0, dp_world_size=2, start_engine=True, run="together").attach()
    second = make(dp_rank=1, dp_world_size=2, start_engine=False, run="together").attach()
    with make(run="before", batch_size=1) as before:
        next(before)
        state = before.state_dict()
    late = threading.Timer(0.5, second.load_state_dict, [state])
    late.start()
    first.load_state_dict(state)
    late.join()
    for loader, row in (first, 1), (second, 4):
        batch = next(loader)
        assert batch.first_row == row
        assert_batch(batch, expected)


def test_a_rank_may_enter_after_another_has_loaded_a_state_and_gone_on(make, expected):
    """Rows 0 and 1 do not begin micro-batches of one numbering: whoever attaches first decides."""
    with make(run="before", batch_size=1) as before:
        next(before)
        state = before.state_dict()
    patience = {"dp_world_size": 2, "run": "late", "start_timeout": PATIENCE}
    with make(dp_rank=0, start_engine=True, **patience) as first:
        first.load_state_dict(state)
        assert next(first).first_row == 1
        with make(dp_rank=1, start_engine=False, **patience) as second:
            second.load_state_dict(state)
            batch = next(second)
            assert batch.first_row == 4
            assert_batch(batch, expected)


def test_the_older_name_of_consumers_per_rank_is_read():
    keys = dict(corpus="none.bin", seq_len=8, batch_size=1, dp_rank=1, dp_world_size=2, replica=1)
    with pytest.warns(FutureWarning, match="`replicas` is now `consumers_per_rank`"):
        loader = ringpack.Loader(**keys, replicas=2)
    assert "replica 1 of 2" in repr(loader)
    with pytest.raises(TypeError, match="its older name"):
        ringpack.Loader(**keys, replicas=2, consumers_per_rank=2)
