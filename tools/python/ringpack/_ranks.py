# SPDX-License-Identifier: Apache-2.0
"""Which data-parallel rank this process is: by arguments, else by the launcher's environment."""

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from ._library import contracts_agree
from .errors import CheckpointMismatchError, UsageError

ALONE = "no launcher"
Facts = dict[str, Any]
"""What Client.facts returns."""


class Ranks(NamedTuple):
    rank: int
    world: int
    local: int  # number of the process on its node
    node: Optional[range]  # ranks of this node, when the launcher says so
    said_by: str
    job: Optional[str]  # names the job, the same in all its processes
    unsaid: bool = False  # which ranks this node has: there are several, and the arguments differ
    replica: int = 0  # which of those that need this rank's batches
    replicas: int = 1

    def place(self) -> dict[str, int]:
        """Where to attach, and what the engine must agree to."""
        names = "rank", "world", "replica", "replicas"
        return {name: getattr(self, name) for name in names}

    def keys(self, ranks_said: bool = False) -> dict[str, Any]:
        """What an engine that is started for this node has to be told.

        It would wait for ever for trainers of ranks that are on other nodes."""
        if self.unsaid and not ranks_said:
            raise UsageError(
                "the job has several nodes, and dp_rank is not the launcher's rank: which ranks "
                "this node's engine serves is not known",
                "give the first and the last data-parallel rank of this node: ranks='0-3'",
            )
        known: dict[str, Any] = {} if self.said_by == ALONE else {"dp_world_size": self.world}
        if self.node is not None and len(self.node) < self.world:
            known["ranks"] = f"{self.node.start}-{self.node.stop - 1}"
        return known if self.replicas == 1 else {**known, "replicas": self.replicas}


# launcher, rank, world, local rank, processes on the node, what names the job
_LAUNCHERS: tuple[tuple[str, str, str, str, Optional[str], tuple[str, ...]], ...] = (
    (
        "torchrun",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        ("TORCHELASTIC_RUN_ID", "MASTER_PORT"),
    ),
    (
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE",),
    ),
    (
        "Slurm",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        None,
        ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
    (
        "Slurm",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_LOCALID",
        None,
        ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
)


def _integer(environment: Mapping[str, str], name: str) -> Optional[int]:
    text = environment.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise UsageError(
            f"{name}={text!r} in the environment is not a number", "pass dp_rank and dp_world_size"
        )
    return int(text)


def _slurm_node(
    environment: Mapping[str, str], rank: int, local: Optional[int]
) -> Optional[range]:
    """Ranks of this node: SLURM_STEP_TASKS_PER_NODE is "4(x2),3" for nodes of 4, 4 and 3 tasks."""
    number = _integer(environment, "SLURM_NODEID")
    text = environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_TASKS_PER_NODE")
    if number is None or local is None or not text:
        return None
    tasks: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        tasks += [int(count)] * int(times or 1)
    if number >= len(tasks) or sum(tasks[:number]) != rank - local:
        raise UsageError(
            f"Slurm: rank {rank} is task {local} of node {number}, and the nodes have {text} "
            "tasks: the ranks of a node do not follow one another",
            "srun --distribution=block",
        )
    return range(rank - local, rank - local + tasks[number])


def _launched(environment: Mapping[str, str]) -> Optional[Ranks]:
    for launcher, rank_name, world_name, local_name, node_name, job_names in _LAUNCHERS:
        rank, world = _integer(environment, rank_name), _integer(environment, world_name)
        if rank is None or world is None:
            continue
        local = _integer(environment, local_name)
        size = _integer(environment, node_name) if node_name else None
        node = None
        if local is not None and size is not None:
            node = range(rank - local, rank - local + size)
        elif launcher == "Slurm":
            node = _slurm_node(environment, rank, local)
        named = "-".join(environment[name] for name in job_names if name in environment)
        job = re.sub(r"[^A-Za-z0-9._-]", "_", f"{launcher}-{named}")[:64] if named else None
        said_by = f"{launcher}: {rank_name}, {world_name}"
        return Ranks(rank, world, rank if local is None else local, node, said_by, job)
    return None


def _find_reference(facts: Sequence[Facts]) -> int:
    """The process that the others are compared with: one that knows the whole content of its
    corpus, where there is one, so that all that know it are compared by it."""
    whole = (n for n, found in enumerate(facts) if "corpus_full~" in found["contract"])
    return next(whole, 0)


def _check_digests(facts: Sequence[Facts]) -> None:
    """A process whose state is of an older version knows no digest."""
    known = [(n, found["plan_digest"]) for n, found in enumerate(facts) if found.get("plan_digest")]
    for number, digest in known:
        if digest != known[0][1]:
            raise CheckpointMismatchError(
                f"plan_digest differs: process {known[0][0]} has {known[0][1]}, process {number} "
                f"has {digest}; the rows before this one were not the same",
                "load one state on every rank; `ringpack audit A B` compares two states",
            )


def check_agreement(facts: Sequence[Facts]) -> str:
    """Refuse a job whose ranks do not read one stream from one row, in the same steps: `facts` has
    a dict of each.

    Ranks may read the same share (tensor parallelism); a share that nobody reads would be lost.
    Returns how the corpora were compared: "whole", or "sampled" where one is not indexed."""
    reference, whole = _find_reference(facts), True
    first, name = facts[reference], f"process {reference}"
    for number, found in enumerate(facts):
        whole &= contracts_agree(name, first["contract"], f"process {number}", found["contract"])
        if found["next_row"] != first["next_row"]:
            raise CheckpointMismatchError(
                f"next_row differs: {name} has {first['next_row']}, process {number} has "
                f"{found['next_row']}",
                "load the same state on every rank, before the first batch",
            )
        if found["step_boundary"] != first["step_boundary"]:
            raise CheckpointMismatchError(
                f"step boundary differs: {name} has {first['step_boundary']}, process {number} has "
                f"{found['step_boundary']}; a step begins at this row and at every "
                "global_batch_size-th row from it",
                "restart the engine of every node, and load one state on every rank: steps then "
                "begin at its row on all nodes (a state that was saved between two steps needs no "
                "restart)",
            )
    _check_digests(facts)
    missing = set(range(first["dp_world_size"])) - {found["dp_rank"] for found in facts}
    if missing:
        raise CheckpointMismatchError(
            f"dp_rank: nobody has {', '.join(map(str, sorted(missing)))} of "
            f"{first['dp_world_size']}",
            "gather from every process of the job, and give each its own dp_rank",
        )
    return "whole" if whole else "sampled"


def torch_all_gather(fact: Facts) -> list[Facts]:
    """What check_ranks uses where the job has a process group of torch."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        raise UsageError(
            "check_ranks() found no process group of torch.distributed",
            "init_process_group() first, or give the job's own all_gather",
        )
    gathered: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(gathered, fact)
    return gathered


def _number(value: Union[int, str]) -> int:
    """Of an argument, which may be text out of os.environ."""
    return int(value) if isinstance(value, str) else operator.index(value)


def _find_replica(
    replica: Optional[int],
    replicas: Optional[int],
    launched: Optional[Ranks],
    dp_rank: Optional[int],
) -> tuple[int, int]:
    """Which processes need the same batches is the job's to say: no launcher knows it."""
    replicas = 1 if replicas is None else _number(replicas)
    if replicas > 1 and (replica is None or (launched and dp_rank is None)):
        raise UsageError(
            f"replicas={replicas}: which of them this process is, and of which rank, is not known",
            "give dp_rank, dp_world_size and replica",
        )
    replica = 0 if replica is None else _number(replica)
    if not 0 <= replica < replicas:
        raise UsageError(f"replica {replica} of {replicas}", "replicas count from 0")
    return replica, replicas


def find_ranks(
    dp_rank: Optional[int],
    dp_world_size: Optional[int],
    environment: Mapping[str, str],
    replica: Optional[int] = None,
    replicas: Optional[int] = None,
) -> Ranks:
    """Arguments win; then torchrun, Open MPI, Slurm; otherwise this process is alone."""
    launched = _launched(environment)
    replica, replicas = _find_replica(replica, replicas, launched, dp_rank)
    if dp_rank is None and dp_world_size is None:
        found = launched or Ranks(0, 1, 0, None, ALONE, None)
    elif dp_rank is None or dp_world_size is None:
        raise UsageError(
            "dp_rank and dp_world_size go together: one of them was not given", "give both"
        )
    else:
        dp_rank, dp_world_size = _number(dp_rank), _number(dp_world_size)
        # With tensor or pipeline parallelism a node's data-parallel ranks are not the launcher's.
        local = launched.local if launched else dp_rank
        job = launched.job if launched else None
        same = launched is not None and launched[:2] == (dp_rank, dp_world_size)
        node = launched.node if launched is not None and same else None
        unsaid = bool(
            launched and not same and launched.node and len(launched.node) < launched.world
        )
        found = Ranks(dp_rank, dp_world_size, local, node, "arguments", job, unsaid)
    if not launched and replica:
        found = found._replace(local=replica)  # one of them starts the engine
    found = found._replace(replica=replica, replicas=replicas)
    if not 0 <= found.rank < found.world:
        raise UsageError(
            f"rank {found.rank} of {found.world} ({found.said_by}): not 0 to {found.world - 1}",
            "ranks count from 0",
        )
    return found
