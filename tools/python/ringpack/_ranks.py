# SPDX-License-Identifier: Apache-2.0
"""The data-parallel rank of this process: by arguments, else by the launcher's environment, else
by torch.distributed or jax.distributed, if a job has begun to use them."""

import operator
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from ._library import contracts_agree
from .errors import CheckpointMismatchError, UsageError

ALONE, ARGUMENTS = "no launcher", "arguments"
_GIVE_RANKS = "give dp_rank and dp_world_size"
_JOB_MAX = 48  # characters of a job's name: a run's name also has its loader's hash
Facts = dict[str, Any]
"""The result of Client.facts."""


class Ranks(NamedTuple):
    rank: int
    world: int
    local: int  # number of the process on its node
    node: Optional[range]  # ranks of this node, when the launcher says so
    said_by: str
    job: Optional[str]  # names the job, the same in all its processes
    unsaid: bool = False  # which ranks this node has: there are several, and the arguments differ
    replica: int = 0  # which of those that need this rank's batches
    consumers_per_rank: int = 1
    half: Optional[str] = None  # part of a launcher's variables, as words
    outside: bool = False  # steps of a Slurm job
    group: tuple[int, int] = (0, 1)  # number of the process in its context-parallel group, its size

    def place(self) -> dict[str, int]:
        """The place to attach to, and the geometry that the engine must agree to."""
        names = "rank", "world", "replica", "consumers_per_rank"
        return {name: getattr(self, name) for name in names}

    def keys(self, ranks_said: bool = False) -> dict[str, Any]:
        """The options of an engine that is started for this node.

        Without them it would wait for ever for trainers of ranks that are on other nodes."""
        if self.unsaid and not ranks_said:
            raise UsageError(
                "the job has several nodes, and the launcher does not say which data-parallel "
                "ranks each of them has: which ranks this node's engine serves is not known",
                "give the first and the last data-parallel rank of this node: ranks='0-3'",
            )
        known: dict[str, Any] = {} if self.said_by == ALONE else {"dp_world_size": self.world}
        if self.node is not None and len(self.node) < self.world:
            known["ranks"] = f"{self.node.start}-{self.node.stop - 1}"
        if self.consumers_per_rank > 1:
            known["consumers_per_rank"] = self.consumers_per_rank
        return known


class Launcher(NamedTuple):
    """Variables of the environment with the place of a process, set by its launcher. The first set
    variable of `local` counts, and the first of `on_node`."""

    name: str
    rank: str
    world: str
    local: tuple[str, ...] = ()  # number of the process on its node
    on_node: tuple[str, ...] = ()  # processes of the node
    job: tuple[str, ...] = ()  # the job's name


_MV2, _OMPI, _SLURM = "MV2_COMM_WORLD_", "OMPI_COMM_WORLD_", ("SLURM_JOB_ID", "SLURM_STEP_ID")
# The first that is set counts. A launcher that starts others' processes comes after them: Flux and
# Slurm speak PMI, and Slurm starts the daemons of MPICH.
_LAUNCHERS = (
    Launcher(
        "torchrun",
        "RANK",
        "WORLD_SIZE",
        ("LOCAL_RANK",),
        ("LOCAL_WORLD_SIZE",),
        ("TORCHELASTIC_RUN_ID", "MASTER_PORT"),
    ),
    Launcher(
        "Open MPI",
        _OMPI + "RANK",
        _OMPI + "SIZE",
        (_OMPI + "LOCAL_RANK",),
        (_OMPI + "LOCAL_SIZE",),
        ("PMIX_NAMESPACE",),
    ),
    Launcher(
        "MVAPICH",
        _MV2 + "RANK",
        _MV2 + "SIZE",
        (_MV2 + "LOCAL_RANK",),
        (_MV2 + "LOCAL_SIZE",),
        ("MPIRUN_ID",),
    ),
    Launcher(
        "Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", ("FLUX_TASK_LOCAL_ID",), (), ("FLUX_JOB_ID",)
    ),
    Launcher(
        "MPICH",  # and Intel MPI, and Cray's
        "PMI_RANK",
        "PMI_SIZE",
        ("MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"),
        ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"),
        ("PALS_APID", *_SLURM),
    ),
    # SLURM_NTASKS belongs to the allocation, and is set outside of steps as well.
    Launcher("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ("SLURM_LOCALID",), (), _SLURM),
    Launcher(
        "JAX", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", (), (), ("JAX_COORDINATOR_ADDRESS",)
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


def _first_integer(environment: Mapping[str, str], names: Sequence[str]) -> Optional[int]:
    found = (_integer(environment, name) for name in names)
    return next((number for number in found if number is not None), None)


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


def _name_job(environment: Mapping[str, str], launcher: Launcher) -> Optional[str]:
    named = "-".join(environment[name] for name in launcher.job if name in environment)
    return re.sub(r"[^A-Za-z0-9._-]", "_", f"{launcher.name}-{named}")[:_JOB_MAX] if named else None


def _launched(environment: Mapping[str, str]) -> Optional[Ranks]:
    for launcher in _LAUNCHERS:
        rank = _integer(environment, launcher.rank)
        world = _integer(environment, launcher.world)
        if rank is None or world is None:
            continue
        local = _first_integer(environment, launcher.local)
        size = _first_integer(environment, launcher.on_node)
        node = None
        if local is not None and size is not None:
            node = range(rank - local, rank - local + size)
        elif launcher.name == "Slurm":
            node = _slurm_node(environment, rank, local)
        said_by = f"{launcher.name}: {launcher.rank}, {launcher.world}"
        job, unsaid = _name_job(environment, launcher), False
        if node is None and local is not None:
            nodes = _integer(environment, "FLUX_JOB_NNODES") if launcher.name == "Flux" else None
            unsaid = local != rank or (nodes or 1) > 1
        return Ranks(rank, world, rank if local is None else local, node, said_by, job, unsaid)
    return None


def _find_half(environment: Mapping[str, str]) -> Optional[str]:
    """Part of a launcher's variables: there are other processes, and which one this is is not
    known. As words; None: no launcher has said anything."""
    for launcher in _LAUNCHERS:
        rank = _integer(environment, launcher.rank)
        world = _integer(environment, launcher.world)
        inside = launcher.name != "Slurm"  # a batch script also has SLURM_PROCID
        if world is not None and world > 1 and rank is None and inside:
            return f"{launcher.world}={world} is set, and {launcher.rank} is not"
        if rank is not None and world is None and inside:
            return f"{launcher.rank}={rank} is set, and {launcher.world} is not"
    local = _integer(environment, "LOCAL_RANK")
    return f"LOCAL_RANK={local} is set, and RANK is not" if local else None


def _outside_of_step(environment: Mapping[str, str]) -> bool:
    """In a batch script of Slurm: it has the size of the job, and is no task of a step."""
    tasks = _integer(environment, "SLURM_NTASKS")
    return "SLURM_PROCID" in environment and tasks is not None and tasks > 1


def _alone(environment: Mapping[str, str]) -> Ranks:
    half, outside = _find_half(environment), _outside_of_step(environment)
    return Ranks(0, 1, 0, None, ALONE, None, half=half, outside=outside)


# ---- frameworks ---------------------------------------------------------------------------------


def ask_frameworks() -> Optional[tuple[int, int, str]]:
    """Rank, number of processes and who says so, of a framework that this process has initialised.
    None is imported for it."""
    torch = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        return torch.get_rank(), torch.get_world_size(), "torch.distributed"
    # jax.process_index() would begin to use the devices.
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if state is not None and getattr(state, "client", None) is not None:
        return int(state.process_id), int(state.num_processes), "jax.distributed"
    return None


def settle_ranks(found: Ranks, environment: Mapping[str, str]) -> Ranks:
    """`found`, or without launcher and argument the ranks of a framework that is initialised
    by now. Refuses contradictions, and a launcher that has set only half of its variables."""
    asked = None if found.said_by == ARGUMENTS else ask_frameworks()
    if asked is not None and found.said_by == ALONE and asked[1] == found.consumers_per_rank:
        asked = None  # all of them are replicas of one rank
    if asked is not None and found.said_by not in (ALONE, ARGUMENTS):
        number, size = found.group  # the launcher numbers processes
        if asked[:2] == (found.rank * size + number, found.world * size):
            return found
    if asked is None or asked[1] == 1 == found.world:
        if found.half is not None and asked is None:
            raise UsageError(
                f"{found.half}: which rank of the job this process is, is not known",
                _GIVE_RANKS + ", start it by torchrun, or call init_process_group() before",
            )
        return found
    rank, world, said_by = asked
    if found.consumers_per_rank > 1:
        raise UsageError(
            f"{said_by} has {world} processes, and consumers_per_rank is "
            f"{found.consumers_per_rank}: which rank this process belongs to is not known",
            _GIVE_RANKS,
        )
    if found.said_by == ALONE:
        local = _integer(environment, "LOCAL_RANK")
        port = environment.get("MASTER_PORT", "")
        job = re.sub(r"[^A-Za-z0-9._-]", "_", f"{said_by}-{port}" if port else said_by)[:_JOB_MAX]
        unsaid = local is not None and local != rank
        return Ranks(rank, world, rank if local is None else local, None, said_by, job, unsaid)
    if (rank, world) != (found.rank, found.world):
        raise UsageError(
            f"{found.said_by} say rank {found.rank} of {found.world}, and {said_by} says rank "
            f"{rank} of {world}",
            _GIVE_RANKS,
        )
    return found


# ---- agreement ----------------------------------------------------------------------------------


def _find_reference(facts: Sequence[Facts]) -> int:
    """The process that the others are compared with: if possible one that knows the whole content
    of its corpus, so that all that know it are compared by it."""
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


def _check_number(facts: Sequence[Facts]) -> None:
    """Processes that take themselves for one rank read the same rows. Where arguments say so, they
    are neighbours in tensor parallelism, for instance on other nodes."""
    seats: dict[tuple[int, int], int] = {}
    for number, found in enumerate(facts):
        seat = found["dp_rank"], found.get("replica", 0)
        other = seats.setdefault(seat, number)
        said_by = {facts[n].get("said_by", ARGUMENTS) for n in (number, other)}
        if other != number and said_by != {ARGUMENTS}:
            world, consumers = found["dp_world_size"], found.get("consumers_per_rank", 1)
            raise CheckpointMismatchError(
                f"dp_world_size: {len(facts)} processes take part, dp_world_size x "
                f"consumers_per_rank is {world} x {consumers}, and processes {other} and {number} "
                f"are both rank {seat[0]} ({', '.join(sorted(said_by))}): they would train the "
                "same rows",
                "give each process its dp_rank and dp_world_size (and replica and "
                "consumers_per_rank, where several need the same batches)",
            )


def check_agreement(facts: Sequence[Facts]) -> str:
    """Refuse a job whose ranks do not read one stream from one row, in the same steps: `facts` has
    a dict of each.

    Ranks may read the same share (tensor parallelism); a share without a reader would be lost.
    Returns how the corpora were compared: "whole", or "sampled" if one is not indexed."""
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
                f"{found['step_boundary']}; a step begins at this row, and the "
                "next batch is of it",
                "restart the engine of every node, and load one state on every rank: steps then "
                "begin at its row on all nodes (a state that was saved between two steps needs no "
                "restart)",
            )
    _check_digests(facts)
    _check_number(facts)
    missing = set(range(first["dp_world_size"])) - {found["dp_rank"] for found in facts}
    if missing:
        raise CheckpointMismatchError(
            f"dp_rank: no process has {', '.join(map(str, sorted(missing)))} of "
            f"{first['dp_world_size']}",
            "gather from every process of the job, and give each its own dp_rank",
        )
    return "whole" if whole else "sampled"


def torch_all_gather(fact: Facts) -> list[Facts]:
    """The all_gather of check_ranks if the job has a process group of torch."""
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
    """The number of an argument, which may be text out of os.environ."""
    return int(value) if isinstance(value, str) else operator.index(value)


def _find_replica(
    replica: Optional[int],
    consumers_per_rank: Optional[int],
    launched: Optional[Ranks],
    dp_rank: Optional[int],
) -> tuple[int, int]:
    """Which processes need the same batches is the job's to say: no launcher knows it."""
    consumers_per_rank = 1 if consumers_per_rank is None else _number(consumers_per_rank)
    if consumers_per_rank > 1 and (replica is None or (launched and dp_rank is None)):
        raise UsageError(
            f"consumers_per_rank={consumers_per_rank}: the replica and the rank of this process "
            "are not known",
            "give dp_rank, dp_world_size and replica",
        )
    replica = 0 if replica is None else _number(replica)
    if not 0 <= replica < consumers_per_rank:
        raise UsageError(f"replica {replica} of {consumers_per_rank}", "replicas count from 0")
    return replica, consumers_per_rank


def _of_group(launched: Ranks, number: Optional[int], size: int) -> Ranks:
    """The data-parallel rank of a process whose context-parallel group is the launcher's ranks from
    a multiple of its size on, as Megatron and torchtitan number them without other neighbours."""
    rank, world, node = launched.rank, launched.world, launched.node
    expected = rank % size
    ranks = f"{launched.said_by} say rank {rank} of {world}"
    if world % size or number not in (None, expected):
        said = f", and cp_rank is {number}" if number not in (None, expected) else ""
        raise UsageError(
            f"{ranks}{said}: groups of cp_size={size} neighbouring ranks do not fit that",
            "give dp_rank, dp_world_size and cp_rank",
        )
    if launched.unsaid or (node is not None and (len(node) % size or node.start % size)):
        raise UsageError(
            f"{ranks}, and whether each node has whole groups of cp_size={size} ranks is not known"
            if launched.unsaid
            else f"{ranks}, ranks {node} of them on this node: groups of cp_size={size} ranks span "
            "nodes",
            "give dp_rank, dp_world_size, cp_rank, ranks, and replica and consumers_per_rank: "
            "which process of how many of this node and dp_rank",
        )
    if node is not None:
        node = range(node.start // size, node.stop // size)
    return launched._replace(
        rank=rank // size, world=world // size, node=node, replica=expected,
        consumers_per_rank=size, group=(expected, size),
    )  # fmt: skip


def _find_group(
    cp_size: Optional[int], cp_rank: Optional[int], can_derive: bool
) -> tuple[Optional[int], int]:
    """Number in the context-parallel group, if it is given, and its size."""
    size = 1 if cp_size is None else _number(cp_size)
    rank = None if cp_rank is None else _number(cp_rank)
    if size < 1:
        raise UsageError(f"cp_size is {size}: expected 1 or more", "cp_size=2, for two processes")
    if size == 1 and rank is None:
        rank = 0
    if rank is None and not can_derive:
        raise UsageError(
            f"cp_size={size}: which process of its group this one is, is not known",
            "give cp_rank, and with other data-parallel ranks dp_rank and dp_world_size",
        )
    if rank is not None and not 0 <= rank < size:
        raise UsageError(f"cp_rank {rank} of cp_size {size}", "cp_rank counts from 0")
    return rank, size


def find_ranks(
    dp_rank: Optional[int],
    dp_world_size: Optional[int],
    environment: Mapping[str, str],
    replica: Optional[int] = None,
    consumers_per_rank: Optional[int] = None,
    cp_size: Optional[int] = None,
    cp_rank: Optional[int] = None,
) -> Ranks:
    """Arguments win, then the launchers; otherwise this is the only process (but settle_ranks)."""
    launched = _launched(environment)
    given = dp_rank, dp_world_size, consumers_per_rank
    can_derive = launched is not None and given == (None, None, None)
    number, size = _find_group(cp_size, cp_rank, can_derive)
    if size > 1 and launched is not None and can_derive:
        return _of_group(launched, number, size)
    if size > 1 and consumers_per_rank is None:
        replica, consumers_per_rank = number, size
    found = _find_by_arguments(
        dp_rank, dp_world_size, environment, replica, consumers_per_rank, launched
    )
    return found._replace(group=(number or 0, size))


def _find_by_arguments(
    dp_rank: Optional[int],
    dp_world_size: Optional[int],
    environment: Mapping[str, str],
    replica: Optional[int],
    consumers_per_rank: Optional[int],
    launched: Optional[Ranks],
) -> Ranks:
    replica, consumers_per_rank = _find_replica(replica, consumers_per_rank, launched, dp_rank)
    if dp_rank is None and dp_world_size is None:
        found = launched or _alone(environment)
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
        found = Ranks(dp_rank, dp_world_size, local, node, ARGUMENTS, job, unsaid)
    if not launched and replica:
        found = found._replace(local=replica)  # one of them starts the engine
    found = found._replace(replica=replica, consumers_per_rank=consumers_per_rank)
    if not 0 <= found.rank < found.world:
        raise UsageError(
            f"rank {found.rank} of {found.world} ({found.said_by}): not 0 to {found.world - 1}",
            "ranks count from 0",
        )
    return found
