# SPDX-License-Identifier: Apache-2.0
"""Ranks come from arguments, then from the launcher; one process of a node starts the engine."""

import os

import pytest
import ringpack
from ringpack import _engine
from ringpack._ranks import find_ranks

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
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "77"}


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
        (SLURM, (3, 4, 1, None, "Slurm: SLURM_PROCID, SLURM_NTASKS", "Slurm-77")),
        (
            {**SLURM, **TORCHRUN},
            (5, 8, 1, range(4, 8), "torchrun: RANK, WORLD_SIZE", "torchrun-none-29500"),
        ),
        ({"RANK": "1"}, (0, 1, 0, None, "no launcher", None)),
    ],
)
def test_launchers(environment, expected):
    assert find_ranks(None, None, environment) == expected


def test_arguments_win():
    assert find_ranks(1, 2, TORCHRUN)[:5] == (1, 2, 1, None, "arguments")


def test_a_launcher_that_says_nonsense_is_named():
    with pytest.raises(ringpack.UsageError, match="WORLD_SIZE='four'"):
        find_ranks(None, None, {"RANK": "0", "WORLD_SIZE": "four"})
    with pytest.raises(ringpack.UsageError, match="rank 9 of 8"):
        find_ranks(None, None, {"RANK": "9", "WORLD_SIZE": "8"})


def test_one_process_of_a_node_starts_the_engine(monkeypatch):
    for name, text in TORCHRUN.items():
        monkeypatch.setenv(name, text)
    other = ringpack.Loader("a.yaml")
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("RANK", "4")
    starter = ringpack.Loader("a.yaml", seed=3, drop_last=True, sections=["labels", "loss_mask"])
    assert other.run == starter.run == "torchrun-none-29500"
    assert other._command is None
    arguments, text = starter._command
    assert text is None
    assert " ".join(arguments) == (
        "-c a.yaml --run torchrun-none-29500 --dp-world-size 8 --ranks 4-7 --seed 3 "
        "--drop-last true --sections labels,loss_mask"
    )


def test_a_corpus_becomes_options_or_a_config(tmp_path):
    def command(corpus, **keys):
        return _engine.engine_command(None, corpus, keys)

    assert command("a.bin", seq_len=8) == (["--source", "a.bin", "--seq-len", "8"], None)
    assert command([tmp_path, "b"])[0] == ["--source", str(tmp_path), "--source", "b"]
    assert command([{"path": "/a", "weight": 3}, "/b"], seed=None) == (
        [],
        '{"sources": [{"path": "/a", "weight": 3}, "/b"]}',
    )
    relative = command([{"shards": ["x*"], "eos": 2}])[1]
    assert relative == f'{{"sources": [{{"shards": ["{os.getcwd()}/x*"], "eos": 2}}]}}'


def test_ranks_given_alone_reach_the_engine():
    assert find_ranks(0, 1, {}).keys() == {"dp_world_size": 1}
    assert find_ranks(None, None, {}).keys() == {}
    assert find_ranks(None, None, TORCHRUN).keys() == {"dp_world_size": 8, "ranks": "4-7"}
