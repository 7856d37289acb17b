# SPDX-License-Identifier: Apache-2.0
"""`deal: auto`: the job of the first start decides the deal, and every later job has its rows.

Rows, states and digests are the oracle's (tests/oracle/stream2.py)."""

import json
import random
import re
import subprocess

import pytest
import ringpack
from stream2_kit import Stream2
from stream_kit import Corpus, Ranks, token_of, write_state
from test_served_stages import Served, serve

STEP, RANKS, ROWS = 8, 2, 2
WINDOW = 8 * STEP
STAGE = 96  # a boundary inside of a window; whole steps of all jobs end there
COST = {"K": 40, "w": 9, "h": 1, "b": 2}
# ranks, batch_size: all of their micro-steps divide a window
TOPOLOGIES = [(1, n) for n in (1, 2, 4, 8, 16, 32)]
TOPOLOGIES += [(n, m) for n, most in ((2, 16), (4, 8), (8, 4)) for m in (1, 2, 4, 8) if m <= most]
TOPOLOGIES += [(16, 1), (16, 2), (2, 16)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    layout = [("megatron", "u16", 1, [60, 40]), ("raw", "u16", 1, [50])]
    return Corpus(tmp_path_factory.mktemp("corpus"), layout, 31, seq_len=40)


def stream_of(corpus, deal, job=(STEP, RANKS * ROWS, ROWS), **changes):
    stage = {"from": 0, "seq_len": 48, "packing": "lookahead", "window": 5, "fill": "pad"}
    stage |= {"weight": {"a": 2, "b": 1}, "max_docs_per_row": 9, "global_batch_size": STEP}
    stages = [{**stage, "deal": deal, "until": ("row", STAGE)}, {"weight": {"a": 1, "b": 3}}]
    keys = {"seed": 5, "shuffle": "document", "group": 1, "long_doc": "split", "cost": COST}
    sources = [{"name": "a", "max_epochs": 3}, {"name": "b", "max_epochs": 4}]
    return Stream2(corpus, {**keys, "job": list(job), **changes}, sources, stages).run()


@pytest.fixture(scope="module")
def stream(corpus):
    found = stream_of(corpus, {})
    dealt = found.plan.calendar.records[0]["deal"]
    sizes = [dealt[name] for name in ("window", "step", "tier", "bundle", "order")]
    assert sizes == [WINDOW, STEP, RANKS * ROWS, ROWS, "middle"]
    assert len(found.rows) > 3 * WINDOW and len(found.rows) % STEP > 0
    return found


def windows_of(stream):
    """Rows at which windows end: the second stage begins inside of a window."""
    ends = [WINDOW, STAGE]
    while ends[-1] < len(stream.rows):
        ends.append(min(ends[-1] + WINDOW, len(stream.rows)))
    return ends


def life(program, folder, stream, served, shape, turns, *arguments, **keys):
    """Some micro-batches of a job, a checkpoint, and a kill. True at the end of the stream."""
    engine = serve(program, folder, stream, shape, *arguments, **keys)
    try:
        with Ranks(engine, shape[0]) as ranks:
            served.rewind(ranks.loaders[0].next_row)
            served.states(ranks)
            for batches in ranks.turns(turns):
                served.take(batches, *shape)
            served.states(ranks)
            if "checkpoint_dir" in keys:
                engine.checkpoint()
        if served.row == len(stream.rows):
            assert engine.wait() == 0, engine.log()
        return served.row == len(stream.rows)
    finally:
        engine.kill()


def test_later_jobs_have_the_deal_of_the_first(program, folder, stream):
    """Kills inside windows; then other ranks, batches, steps, workers and costs."""
    rng, served = random.Random(2), Served(stream)
    jobs = [(RANKS, ROWS, STEP), (4, 1, 12), (1, 3, 6), (3, 1, 3), (2, 4, 16), (2, 3, 6)]
    for number, (world, rows, step) in enumerate(jobs):
        keys = {"packers": 1 + number % 2, "packer_processes": number % 3 == 1}
        keys |= {"global_batch_size": step, "checkpoint_dir": str(folder / "saved")}
        keys |= {"cost": 7, "io": "pread"} if number > 2 else {}
        turns = None if number == len(jobs) - 1 else rng.randint(3, 50) // (world * rows) + 1
        ended = life(program, folder, stream, served, (world, rows), turns, **keys)
    assert ended and served.digest == stream.digest


def run(program, folder, verb, *arguments, keys=None):
    if keys:
        (folder / "c.yaml").write_text(json.dumps(keys))
    command = [program, verb, "-c", "c.yaml", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def first_job(stream, **more):
    return {**stream.config(), "batch_size": ROWS, "dp_world_size": RANKS, **more}


def test_each_window_has_one_digest_in_all_topologies(program, folder, corpus, stream):
    """They begin at the token of row 0, whose history has the record; the last is without deal."""
    run(program, folder, "state", "--row", 0, "-o", "zero", keys=first_job(stream))
    plain = stream_of(corpus, None)
    ends = windows_of(stream)
    expected = [sum(stream.row_digests[:end]) % 2**128 for end in ends]
    assert expected == [sum(plain.row_digests[:end]) % 2**128 for end in ends]
    orders = {tuple(row.q for row in found.rows) for found in (stream, plain)}
    assert len(orders) == 2
    for shape in TOPOLOGIES:
        served, zero = Served(stream), ("--state", folder / "zero")
        step = shape[0] * shape[1]
        assert life(program, folder, stream, served, shape, None, *zero, global_batch_size=step)
        assert [served.digests[end] for end in ends] == expected, shape
    served = Served(plain)
    assert life(program, folder, plain, served, (RANKS, ROWS), None)
    assert [served.digests[end] for end in ends] == expected


# ---- tools ---------------------------------------------------------------------------------------


def explained(program, folder, *arguments):
    told = run(program, folder, "explain", "--limit", 0, "--json", *arguments)
    return [
        [(part["document"], part["offset"], part["tokens"]) for part in row["fragments"]]
        for row in json.loads(told)["rows"]
    ]


def test_tools_take_the_deal_of_a_run_from_its_record(program, folder, stream):
    """The config, and the one in the checkpoint, have another job than the first start had."""
    saved, served = folder / "saved", Served(stream)
    keys = {"checkpoint_dir": str(saved)}
    life(program, folder, stream, served, (RANKS, ROWS), 5, **keys)
    other = {"batch_size": 3, "dp_world_size": 1, "global_batch_size": 6}
    run(program, folder, "config", "show", keys=first_job(stream, **other))
    life(program, folder, stream, served, (1, 3), 20, global_batch_size=6, **keys)
    rows = [[(f.document, f.offset, f.length) for f in row.fragments] for row in stream.rows]
    for first, last in (0, 3), (60, 70), (90, 100):
        found = explained(program, folder, "--row", f"{first}-{last}", saved)
        assert found == rows[first : last + 1], f"rows from {first} on"
    assert explained(program, folder, "--row", "0-3") != rows[:4]  # without the run
    for row in 0, 40:
        run(program, folder, "state", "--row", row, "-o", "token", saved)
        token = (folder / "token").read_bytes()
        assert token == stream.state(row, token), f"the state of row {row}"
    shown = subprocess.run([program, "checkpoint", "show", saved, "--json"], stdout=subprocess.PIPE)
    saved_row = json.loads(shown.stdout)["next_row"]
    assert WINDOW < saved_row <= served.row
    run(program, folder, "state", "--row", saved_row, "-o", "first", keys=first_job(stream))
    said = run(program, folder, "audit", saved, "first")
    assert said.startswith(f"identical: all rows before row {saved_row}"), said
    keys = {**first_job(stream, **other), "run": "again"}
    path = folder / "c.yaml"
    path.write_text(json.dumps(keys))
    base = saved_row % 6  # steps of the second life
    with ringpack.Replay(str(saved), base_row=base, program=program, profile="full") as replay:
        for step in 5, 0:  # a private engine, from the later step on, and then back
            for [batch] in replay.step(step):
                plans = [int(plan[0]) for plan in batch["row_plans"]]
                begin = batch.first_row
                assert plans == [stream.rows[begin + i].q for i in range(len(plans))]


def test_verify_gives_every_life_the_job_of_the_config(program, folder, stream):
    keys = first_job(stream, run="v")
    del keys["cost"]
    said = run(program, folder, "verify", "--kills", 4, "--random", 6, "--rows", 150, keys=keys)
    assert said.endswith("verify: identical\n"), said


# ---- without the key -----------------------------------------------------------------------------


def note_of(program, folder, keys):
    return json.loads(run(program, folder, "plan", "--json", keys=keys))["deal_gain"]


def test_a_first_start_says_what_auto_would_save(program, folder, corpus):
    stream = stream_of(corpus, None)
    keys = {name: value for name, value in first_job(stream).items() if name != "deal"}
    said = note_of(program, folder, keys)
    times = [float(time) for time in re.findall(r"([\d.]+) times", said)]
    assert times[0] > 1.02 * times[1] >= 1.02 and "the first 16 steps, cost K 40" in said
    for more in {"deal": "off"}, {"deal": "auto"}, {"dp_world_size": 1}, {"cost": 1 << 23}:
        assert note_of(program, folder, {**keys, **more}) is None, more
    served, saved = Served(stream), {"checkpoint_dir": str(folder / "saved"), "run": "log"}
    for number in 1, 2:  # a later start has the deal that the run began with
        life(program, folder, stream, served, (RANKS, ROWS), 3, **saved)
        assert (folder / "log.log").read_text().count(said) == 1, number


def test_plan_names_the_job_of_a_deal(program, folder, stream):
    said = run(program, folder, "plan", keys=first_job(stream))
    assert "deal 64 rows, step 8, tier 4, bundle 2, order middle, cost 40" in said
    assert "from the job: dp_world_size 2, batch_size 2, global_batch_size 8\n" in said
    assert re.search(r"a deal window needs [\d.]+ KiB of memory", said)
    run(program, folder, "state", "--row", 70, "-o", "token")
    keys = first_job(stream, dp_world_size=1, batch_size=1)
    said = run(program, folder, "plan", "--state", "token", keys=keys)
    assert "deal 64 rows, step 8, tier 4" in said and "the job that it began with" in said


# ---- ranks ---------------------------------------------------------------------------------------


def test_a_restarted_rank_gets_its_rows_of_the_window_again(program, folder, stream):
    """The other rank continues meanwhile; both have replicas."""
    shape, keys = (RANKS, ROWS), {"consumers_per_rank": 2, "prefetch_factor": 2}
    engine, served = serve(program, folder, stream, shape, **keys), Served(stream)
    try:
        both = {"consumers_per_rank": 2}
        with (
            Ranks(engine, RANKS, replica=0, **both) as first,
            Ranks(engine, RANKS, replica=1, **both) as second,
        ):
            for number, batches in enumerate(first.turns(5)):
                served.take(batches, *shape)
                again = second.turn()
                assert [b.digest() for b in again] == [b.digest() for b in batches]
                if number == 1:
                    early = first.tokens()[1]
            for ranks in first, second:
                ranks.loaders[1].close()
            options = {"run": engine.run, "run_dir": engine.folder, "dp_rank": 1}
            for number, ranks in enumerate((first, second)):
                loader = ringpack.Loader(**options, **both, dp_world_size=RANKS, replica=number)
                loader.load_state_dict({"ringpack_state": early})
                ranks.loaders[1] = loader.attach()
            for row in 8, 12, 16:  # rank 1 only
                for ranks in first, second:
                    batch = ranks.loaders[1].next(timeout=30)
                    assert batch.first_row == row + ROWS
                    served.compare(batch)
            for batches in first.turns():
                served.take(batches, *shape)
                second.turn()
        assert served.row == len(stream.rows)
    finally:
        engine.kill()


def test_drop_last_leaves_out_the_rows_after_the_last_step(program, folder, stream):
    served = Served(stream)
    engine = serve(program, folder, stream, (RANKS, ROWS), drop_last=True)
    try:
        with Ranks(engine, RANKS) as ranks:
            for batches in ranks.turns():
                served.take(batches, RANKS, ROWS)
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    assert served.row == len(stream.rows) // STEP * STEP < len(stream.rows)


def test_a_step_that_is_not_left_out_is_found(broken, folder, stream, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "keep_last_step")
    with pytest.raises(AssertionError):
        test_drop_last_leaves_out_the_rows_after_the_last_step(broken, folder, stream)


# ---- a second node -------------------------------------------------------------------------------


class Node:
    """The engine of one rank of two, and its trainer. Each batch is compared; `digests` are of the
    batches that this rank has had, by first row."""

    def __init__(self, program, folder, stream, rank):
        self.folder, self.rank, self.stream = folder / str(rank), rank, stream
        self.folder.mkdir()
        self.digests, self.served = {}, Served(stream)
        self.begin(program)

    def begin(self, program, token=None):
        keys = {"checkpoint_dir": str(self.folder / "saved"), "ranks": str(self.rank)}
        shape = (RANKS, ROWS)
        self.engine = serve(program, self.folder, self.stream, shape, **keys, prefetch_factor=2)
        options = {"run": self.engine.run, "run_dir": self.folder, "connect_timeout": 60}
        self.loader = ringpack.Loader(dp_rank=self.rank, dp_world_size=RANKS, **options)
        if token is not None:
            self.loader.load_state_dict({"ringpack_state": token})
        self.loader.attach()

    def read(self, most=None):
        while most != 0 and (batch := self.loader.next(timeout=60)) is not None:
            self.served.compare(batch)
            self.digests[batch.first_row] = batch.digest()
            most = most and most - 1

    def kill(self):
        self.engine.kill()
        self.loader.close()


def rejoined(program, folder, stream, keeps, saves, returns=None):
    """Node 1 is killed inside a window with its trainer, which had kept the state after `keeps`
    batches (None: no state, so that it follows the checkpoint); its engine had saved after `saves`.
    Digests of the windows, over both nodes."""
    nodes, token = [Node(program, folder, stream, rank) for rank in range(RANKS)], None
    try:
        for turn in range(11):  # row 44: inside of the first window
            if turn == keeps:
                token = token_of(nodes[1].loader)
            if turn == saves:
                nodes[1].engine.checkpoint()
            for node in nodes:
                node.read(1)
        nodes[1].kill()
        nodes[0].read(1)  # as far as it comes without the other one
        nodes[1].begin(returns or program, token)
        saved = (saves - 1) * RANKS * ROWS // STEP * STEP  # the last batch was on lease
        kept = saved if keeps is None else keeps * RANKS * ROWS
        assert nodes[1].loader.next_row == kept
        assert len({ringpack.stat(node.engine.run, node.folder)["stream"] for node in nodes}) == 1
        for node in nodes[::-1]:
            node.read()
        found, begin = [], 0
        for end in windows_of(stream):
            own = (node.digests[g] for node in nodes for g in node.digests if begin <= g < end)
            found, begin = [*found, sum(own) % 2**128], end
        return found
    finally:
        for node in nodes:
            node.kill()


# The trainer's state is before, after and at the checkpoint; or it has none.
NODE_KILLS = [(6, 8), (9, 6), (10, 10), (None, 8)]


@pytest.mark.parametrize("keeps, saves", NODE_KILLS)
def test_a_second_node_comes_back_inside_a_window(program, folder, stream, keeps, saves):
    ends = windows_of(stream)
    expected = [
        sum(stream.row_digests[begin:end]) % 2**128 for begin, end in zip([0, *ends], ends)
    ]
    assert rejoined(program, folder, stream, keeps, saves) == expected


def test_a_second_node_with_other_rows_is_noticed(program, broken, folder, stream, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "resume_one_row_on")
    with pytest.raises(AssertionError, match="row"):
        rejoined(program, folder, stream, *NODE_KILLS[3], returns=broken)
