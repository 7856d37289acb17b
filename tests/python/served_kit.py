# SPDX-License-Identifier: Apache-2.0
"""Serve a stream of version 2 (stream2_kit.Stream2) and compare every batch with the oracle's."""

import json
import os
import subprocess

from step_kit import Steps
from stream_kit import Engine, Ranks, wait_until

STEP = 8  # global_batch_size


class Served:
    """What the ranks of a run have had so far, compared with the oracle."""

    def __init__(self, stream):
        self.stream, self.digest, self.row, self.furthest = stream, 0, 0, 0
        self.end = None  # this run's last row, if the stream has more
        self.digests = {0: 0}  # by row
        self.steps = Steps(stream, STEP)

    def take(self, batches, world, rows):
        """One micro-batch of all ranks, from row `begin` on."""
        stream, begin = self.stream, batches[0].first_row
        for row in range(self.row, min(begin, len(stream.rows))):  # passed over
            assert stream.rows[row].skipped, f"row {row} is missing"
        assert begin >= self.row
        for rank, batch in enumerate(batches):
            assert batch.first_row == begin + rank * rows
            self.compare(batch)
            self.digest = (self.digest + batch.digest()) % 2**128
        self.row = min(begin + world * rows, self.end or len(stream.rows))
        self.furthest = max(self.furthest, self.row)
        self.digests[self.row] = self.digest

    def rewind(self, row):
        """Batches after a checkpoint come again."""
        assert all(self.stream.rows[g].skipped for g in range(self.row, row)), row
        self.digests = {at: digest for at, digest in self.digests.items() if at <= row}
        self.row, self.digest = row, self.digests[max(self.digests)]

    def compare(self, batch):
        plans, infos = batch["row_plans"].tolist(), batch["rows"].tolist()
        for i, (g, count, real) in enumerate(infos):
            is_padding = self.end is not None and g >= self.end
            fragments, tokens = ([], []) if is_padding else self.stream.row(g)
            assert g == batch.first_row + i
            own = [token for token in tokens if token is not None]
            found, wanted = (count, real), (len(fragments), len(own))
            assert found == wanted, f"row {g}: {found} fragments and tokens, not {wanted}"
            assert batch["provenance"][i].tolist()[:count] == fragments, f"row {g}"
            ids, labels = batch["input_ids"][i].tolist(), batch["labels"][i].tolist()
            assert ids == [t or 0 for t in tokens] + [0] * (len(ids) - len(tokens)), f"row {g}"
            wanted = [] if is_padding else self.stream.labels(g)
            assert labels == wanted + [-100] * (len(ids) - len(wanted)), f"labels of row {g}"
            if g < len(self.stream.rows) and not is_padding:
                row = self.stream.rows[g]
                assert plans[i][0] == row.q and bool(plans[i][2]) == row.skipped, f"row {g}"

    def states(self, ranks):
        tokens = ranks.tokens()
        assert tokens == [self.stream.state(self.row, tokens[0])] * len(tokens), (
            f"state of row {self.row}"
        )
        return tokens[0]


def sizes_at(stream, row, stages=None):
    """global_batch_size and batch_size of a step that begins at `row`."""
    step = rows = None
    for stage, compiled in zip(stages or stream.stages, stream.stream["stages"]):
        if compiled["from"] <= row:
            step = stage.get("global_batch_size", step)
            rows = stage.get("batch_size", rows)
    return step, rows


def batches_of(stream, world, base=0, stages=None):
    """First row, rows of a rank, place in the step and batches of the step, until the end of the
    run: section 10.2. `stages`: the stream's with other batches."""
    end = stream.end_of_run(base)[0]
    while base < end:
        step, rows = sizes_at(stream, base, stages)
        count = step // (world * rows)
        if not {*range(base, base + step)} <= {*stream.skip}:
            for i in range(count):
                yield base + i * world * rows, rows, i, count
        base += step


def serve(program, folder, stream, shape, *arguments, **keys):
    world, rows = shape
    config = {**stream.config(), "batch_size": rows, "dp_world_size": world, "profile": "full"}
    return Engine(program, folder, {**config, **keys}, *arguments)


def read(ranks, served, shape, turns=None):
    """Up to `turns` micro-batches. True at the end of the run."""
    world, rows = shape
    for batches in ranks.turns(turns):
        served.take(batches, world, rows)
        for loader, batch in zip(ranks.loaders, batches):
            served.steps.check(loader, batch)
        if served.row % STEP == 0 or served.row == len(served.stream.rows):
            served.states(ranks)
    return turns is None


def is_ahead(program, engine):
    """Whether each rank has two batches that it has not taken."""
    command = [program, "stat", engine.run, "--run-dir", str(engine.folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return all(rank["tail"] >= rank["release"] + 2 for rank in json.loads(done.stdout)["ranks"])


def stop_at(program, folder, stream, shape, row, ahead=False, **keys):
    """Serve rows before `row`, and the state there. ahead: the last checkpoint has rows that no
    rank has taken."""
    served = Served(stream)
    engine = serve(program, folder, stream, shape, **keys)
    try:
        with Ranks(engine, shape[0]) as ranks:
            read(ranks, served, shape, row // (shape[0] * shape[1]))
            token = served.states(ranks)
            assert served.row == row
            if ahead:
                wait_until(lambda: is_ahead(program, engine), "a batch ahead")
        assert engine.stop() == 0, engine.log()
    finally:
        engine.kill()
    return served, token


def refusal(program, folder, config, *arguments):
    engine = Engine(program, folder, config, *arguments, wait=False)
    try:
        begins = os.read(engine.ready, 16)
        assert not begins, "the engine begins:\n" + engine.log()
        assert engine.wait() == 2, engine.log()
    finally:
        engine.kill()
    return engine.log()[-1500:]
