# SPDX-License-Identifier: Apache-2.0
"""The time of steps from the costs of their micro-batches, relative to perfect balance: 1 is as if
all micro-batches of all ranks cost the same.

A step is a list of ranks, each a list of the costs of its micro-batches. Nothing here imports more
than Python has.
"""

from itertools import zip_longest


def steps_of(costs, ranks, step):
    """Of rows in the order of the stream, one to a micro-batch: micro-batch i of rank r is row
    i * ranks + r of its step. A last step that is not whole is left out."""
    return [[costs[first + rank:first + step:ranks] for rank in range(ranks)]
            for first in range(0, len(costs) - step + 1, step)]


def total(step):
    return sum(map(sum, step))


def step_barrier(steps):
    """Ranks wait for each other once a step (DDP)."""
    worst = sum(max(map(sum, step)) for step in steps)
    return worst / sum(total(step) / len(step) for step in steps)


def micro_step_barrier(steps):
    """Ranks wait for each other at each micro-batch (FSDP, expert parallelism)."""
    worst = sum(max(costs) for step in steps for costs in zip_longest(*step, fillvalue=0))
    return worst / sum(total(step) / len(step) for step in steps)


def spread(values):
    """Standard deviation over mean."""
    return deviation(values) * len(values) / sum(values)


def deviation(values):
    mean = sum(values) / len(values)
    return (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5


# ---- pipelines -----------------------------------------------------------------------------------
# A micro-batch takes f forwards and 2 f backwards in each stage. 1F1B: stage s of p runs p - 1 - s
# forwards, then a forward and a backward by turns, then the remaining backwards. Interleaved: each
# stage has `parts` parts of the layers, in the order of Megatron-LM.


def schedule(stages, batches, parts=1):
    """For each stage its operations in order: direction (0: forward), micro-batch, part."""
    whole, span, found = batches * parts, stages * parts, []

    def operation(way, k):
        part = k % span // stages
        return way, k // span * stages + k % stages, parts - 1 - part if way else part

    for stage in range(stages):
        ahead = stages - 1 - stage
        if parts > 1:
            ahead = 2 * ahead + (parts - 1) * stages
        ahead = min(ahead, whole)
        own = [operation(0, k) for k in range(ahead)]
        for k in range(whole):
            own += [operation(way, at) for way, at in ((0, k + ahead), (1, k)) if at < whole]
        found.append(own)
    return found


def makespan(costs, stages, parts=1, plan=None):
    """`costs`: a stage's forward of each micro-batch. An interleaved schedule needs a multiple of
    `stages` micro-batches."""
    plan = plan or schedule(stages, len(costs), parts)
    last = stages * parts - 1
    done = [[[None] * len(costs) for _ in range(last + 1)] for _ in range(2)]
    at, free = [0] * stages, [0.0] * stages
    left = sum(map(len, plan))
    while left:
        before = left
        for stage, own in enumerate(plan):
            while at[stage] < len(own):
                way, batch, part = own[at[stage]]
                place = part * stages + stage
                if way == 0:
                    ready = done[0][place - 1][batch] if place else 0.0
                else:
                    ready = done[1][place + 1][batch] if place < last else done[0][last][batch]
                if ready is None:
                    break
                takes = costs[batch] * (2 if way else 1) / parts
                free[stage] = done[way][place][batch] = max(free[stage], ready) + takes
                at[stage] += 1
                left -= 1
        assert left < before, "the schedule waits for itself"
    return max(free)


def pipeline(steps, stages, parts=1):
    """Ranks are pipelines, and wait for each other once a step. Over the time of as many equal
    micro-batches, which have their bubble as well. None: a rank has micro-batches that an
    interleaved schedule cannot have."""
    if parts > 1 and any(len(rank) % stages for step in steps for rank in step):
        return None
    worst = sum(max(makespan(rank, stages, parts) for rank in step) for step in steps)
    equal = 0.0
    for step in steps:
        count = max(map(len, step))
        equal += makespan([total(step) / len(step) / count] * count, stages, parts)
    return worst / equal


def figures(steps, stages):
    return {"step": step_barrier(steps), "micro_step": micro_step_barrier(steps),
            "pipeline": pipeline(steps, stages),
            "step_cost_spread": spread(list(map(total, steps)))}
