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


def makespan(costs, stages, backward=2.0):
    """1F1B: micro-batch i takes costs[i] in all, 1 : `backward` forward and backward, the same in
    each of the stages. Stage s runs min(M, stages - s) forwards, then backwards and forwards by
    turns."""
    count, whole = len(costs), stages * (1 + backward)
    queues = []
    for stage in range(stages):
        ahead = min(count, stages - stage)
        queue = [(0, i) for i in range(ahead)]
        for i in range(count):
            queue.append((1, i))
            if ahead + i < count:
                queue.append((0, ahead + i))
        queues.append(queue)
    done = [[[None] * count for _ in range(stages)] for _ in range(2)]  # by direction
    free, at, left = [0.0] * stages, [0] * stages, 2 * count * stages
    while left:
        for stage in range(stages):
            while at[stage] < len(queues[stage]):
                way, i = queues[stage][at[stage]]
                if way == 0:
                    before = done[0][stage - 1][i] if stage else 0.0
                elif stage == stages - 1:
                    before = done[0][stage][i]
                else:
                    before = done[1][stage + 1][i]
                if before is None:
                    break
                takes = costs[i] * (backward if way else 1.0) / whole
                free[stage] = done[way][stage][i] = max(free[stage], before) + takes
                at[stage] += 1
                left -= 1
    return max(free)


def pipeline(steps, stages):
    """Ranks are pipelines with 1F1B, and wait for each other once a step. Over the time of as many
    equal micro-batches, which have their bubble as well."""
    worst = sum(max(makespan(rank, stages) for rank in step) for step in steps)
    equal = 0.0
    for step in steps:
        count = max(map(len, step))
        equal += makespan([total(step) / len(step) / count] * count, stages)
    return worst / equal


def figures(steps, stages):
    return {"step": step_barrier(steps), "micro_step": micro_step_barrier(steps),
            "pipeline": pipeline(steps, stages),
            "step_cost_spread": spread(list(map(total, steps)))}
