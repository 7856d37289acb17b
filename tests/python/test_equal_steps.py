# SPDX-License-Identifier: Apache-2.0
"""`deal: auto`: the job of the first start decides the deal, and every later job has its rows.

Rows, states and digests are the oracle's (tests/oracle/stream2.py)."""

import json
import random
import subprocess

import pytest
import ringpack
from stream2_kit import Stream2
from stream_kit import Corpus, Ranks, write_state
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
    assert ended and served.digest == sum(stream.digests) % 2**128


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
    expected = [sum(stream.digests[:end]) % 2**128 for end in ends]
    assert expected == [sum(plain.digests[:end]) % 2**128 for end in ends]
    orders = {tuple(row.q for row in found.rows) for found in (stream, plain)}
    assert len(orders) == 2
    for shape in TOPOLOGIES:
        served, keys = Served(stream), {"global_batch_size": shape[0] * shape[1]}
        assert life(program, folder, stream, served, shape, None, "--state", folder / "zero", **keys)
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
