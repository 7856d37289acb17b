# SPDX-License-Identifier: Apache-2.0
"""Digests that trainers write while they train: they equal the oracle's, add up over any number of
ranks, kills and rollbacks, and `ringpack audit` names the first rows that differ."""

import hashlib
import json
import os
import shutil
import subprocess

import numpy
import pytest
import ringpack
from stream_kit import Corpus, Engine, Ranks, Stream

SEED = int(os.environ.get("RP_SEED", "0")) or 47
STEP = 8  # rows
EVERY = 2  # steps
SOURCES = [("raw", "u16", 1, [160]), ("raw", "u16", 1, [120])]


def audit(program, *words, status=0):
    command = [program, "audit", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == status, (words, done.stdout, done.stderr)
    return json.loads(done.stdout) if done.stdout else done.stderr


def journal(program, *words):
    """How `ringpack journal` refuses."""
    done = subprocess.run([program, "journal", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 2, (words, done.stdout, done.stderr)
    return done.stderr


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    print(f"RP_SEED={SEED}")
    return Stream(Corpus(tmp_path_factory.mktemp("corpus"), SOURCES, SEED), {"num_epochs": 1})


def train(program, folder, config, logs, world, turns=None, token=None, fail=None):
    """Some micro-batches of all ranks, and the token at their end."""
    keys = {"dp_world_size": world, "batch_size": 4 // world, "global_batch_size": STEP}
    engine = Engine(program, folder, {**config, **keys})
    try:
        options = {"digest_log": logs, "digest_steps": EVERY}
        with Ranks(engine, world, token, **options) as ranks:
            for number, _ in enumerate(ranks.turns(turns)):
                if fail and number == 1:
                    fail()
            return ranks.tokens()[0], [loader.counts() for loader in ranks.loaders]
    finally:
        engine.kill()


def parts(logs):
    """Every entry of a folder."""
    lines = [line for path in sorted(logs.iterdir()) for line in path.read_text().splitlines()]
    return [entry for entry in map(json.loads, lines) if entry["event"] == "digest"]


@pytest.fixture(scope="module")
def runs(program, stream, tmp_path_factory):
    """Whole streams: of one rank; of four; of two, which are resumed as four, rolled back to row 16
    after row 28, and resumed as one."""
    folder = tmp_path_factory.mktemp("runs")
    config = stream.config()
    for world in 1, 4:
        train(program, folder, config, folder / f"of{world}", world)
    first, _ = train(program, folder, config, folder / "moved", 2, turns=4)
    train(program, folder, config, folder / "moved", 4, turns=3, token=first)
    train(program, folder, config, folder / "moved", 1, token=first)
    return folder


def test_they_are_those_of_the_oracle_and_add_up(stream, runs):
    for name, worlds in ("of1", {1}), ("of4", {4}):
        entries = parts(runs / name)
        assert {entry["world"] for entry in entries} == worlds
        intervals = {}
        for entry in entries:
            key = entry["first_row"], entry["row"]
            sums = intervals.setdefault(key, [0, 0, entry["plan_digest"]])
            sums[0] = (sums[0] + int(entry["content_digest"], 16)) % 2**128
            sums[1] += entry["rows"]
            assert sums[2] == entry["plan_digest"]
        ends = [*range(EVERY * STEP, len(stream.rows), EVERY * STEP), len(stream.rows)]
        assert sorted(intervals) == list(zip([0, *ends], ends))
        for (first, end), (digest, rows, _) in intervals.items():
            expected = sum(stream.row_digests[first:end]) % 2**128
            assert (digest, rows) == (expected, end - first)


def test_runs_are_compared_by_content(program, stream, runs):
    for a, b in ("of1", "of4"), ("moved", "of4"), ("of1", "moved"):
        said = audit(program, runs / a, runs / b)
        assert (said["verdict"], said["by_content"]) == ("identical", True)
        assert (said["first_row"], said["row"], said["gaps"]) == (0, len(stream.rows), 0)
        assert said["rows"] == len(stream.rows) and said["twice"] == said["damaged"] == 0
    text = subprocess.run([program, "audit", runs / "of1", runs / "of4"], capture_output=True)
    assert text.stdout.startswith(b"identical: rows 0 to before ") and b"by content" in text.stdout


def test_changed_tokens_are_found_where_they_are(program, stream, runs, tmp_path):
    """Other tokens of the same lengths, in one document: the plan is the same."""
    (tmp_path / "corpus").mkdir()
    corpus = Corpus(tmp_path / "corpus", SOURCES, SEED)
    shard = next((tmp_path / "corpus").glob("0-*"))
    tokens = numpy.fromfile(shard, "<u2")
    place = len(tokens) // 2
    tokens[place] ^= 1
    assert 49999 not in tokens[place - 1 : place + 1]  # the separator of documents
    tokens.tofile(shard)
    other = {**stream.config(), "sources": corpus.sources}
    train(program, tmp_path, other, tmp_path / "logs", 4)
    rows = [[], []]
    for number, logs in enumerate((runs / "of4", tmp_path / "logs")):
        for entry in parts(logs):
            rows[number].append((entry["first_row"], entry["rank"], entry["content_digest"]))
    first = min(key for key, *_ in set(rows[0]) ^ set(rows[1]))
    said = audit(program, runs / "of1", tmp_path / "logs", status=1)
    assert (said["verdict"], said["differs_from"]) == ("content_differs", first)
    assert said["differs_before"] - first <= EVERY * STEP
    assert said["row"] == first  # all before it are equal


def test_other_plans_and_positions(program, stream, runs, tmp_path):
    config = {**stream.config(), "sources": [
        {**stream.config()["sources"][0], "weight": 1.05}, stream.config()["sources"][1]]}
    train(program, tmp_path, config, tmp_path / "other", 1)
    said = audit(program, runs / "of4", tmp_path / "other", status=1)
    assert said["verdict"] == "plan_differs" and said["differs_from"] is not None
    for name, source in ("one", stream.config()), ("two", config):
        keys = {"seq_len": source["seq_len"], "batch_size": 4, "global_batch_size": STEP}
        (tmp_path / f"{name}.yaml").write_text(json.dumps({**source, **keys}))
    assert audit(program, runs / "moved", tmp_path / "one.yaml")["rows"] == len(stream.rows)
    again = audit(program, tmp_path / "two.yaml", runs / "of4", status=1)
    assert (again["verdict"], again["by_content"]) == ("plan_differs", False)
    assert again["differs_from"] == said["differs_from"]
    for row, status in (32, 0), (33, 3):
        path = tmp_path / f"{row}.token"
        command = [program, "state", "-c", tmp_path / "one.yaml", "--row", str(row), "-o", path]
        subprocess.run(command, check=True, capture_output=True)
        audit(program, path, runs / "of4", status=status)
    assert audit(program, path, runs / "of4", "-c", tmp_path / "one.yaml")["intervals"] > 4
    said = audit(program, tmp_path / "32.token", runs / "of4")
    assert (said["first_row"], said["row"], said["gaps"]) == (0, 32, 0)
    text = subprocess.run([program, "audit", tmp_path / "32.token", runs / "of4"],
                          capture_output=True, text=True).stdout
    assert text == "identical: all rows before row 32, by plan\n"


def cut_out(logs, to, *entries):
    """A copy of the file of one rank without some of its digests; the first is 0."""
    to.mkdir()
    (path,) = logs.iterdir()
    lines = path.read_text().splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if json.loads(line)["event"] == "digest"]
    left_out = [places[entry] for entry in entries]
    kept = [line for place, line in enumerate(lines) if place not in left_out]
    (to / path.name).write_text("".join(kept))


def test_only_an_interval_whose_rows_before_are_equal_is_the_first(program, stream, runs, tmp_path):
    """With another seed every row differs, so no interval but the one of row 0 may be named."""
    keys = {"batch_size": 4, "global_batch_size": STEP}
    other = {**stream.config(), "seed": stream.config()["seed"] + 1}
    assert stream.rows[0] != Stream(Corpus(tmp_path, SOURCES, SEED), {
        "num_epochs": 1, "seed": other["seed"]}).rows[0]
    for name, config in ("one", stream.config()), ("other", other):
        (tmp_path / f"{name}.yaml").write_text(json.dumps({**config, **keys}))
    token = tmp_path / "32.token"
    command = [program, "state", "-c", tmp_path / "other.yaml", "--row", "32", "-o", token]
    subprocess.run(command, check=True, capture_output=True)

    def place(*words):
        said = audit(program, *words, status=1)
        assert said["verdict"] == "plan_differs"
        return said["differs_from"], said["differs_before"]

    every = EVERY * STEP
    assert place(runs / "of4", token) == (None, 32)
    assert place(runs / "of4", token, "-c", tmp_path / "other.yaml") == (0, every)
    # a config that does not plan the rows of the token proves nothing about them
    assert place(runs / "of4", token, "-c", tmp_path / "one.yaml") == (None, 32)
    text = subprocess.run([program, "audit", runs / "of4", token], capture_output=True, text=True)
    assert "different: some rows before row 32 are other documents\n" in text.stdout
    train(program, tmp_path, other, tmp_path / "logs", 1, turns=16)
    assert place(runs / "of4", tmp_path / "logs") == (0, every)
    cut_out(tmp_path / "logs", tmp_path / "late", 0)
    assert place(runs / "of1", tmp_path / "late") == (None, 2 * every)
    assert place(tmp_path / "late", tmp_path / "one.yaml") == (None, 2 * every)


def test_files_that_lack_something(program, runs, tmp_path):
    shutil.copytree(runs / "of4", tmp_path / "torn")
    path = tmp_path / "torn" / "rank-00002-of-00004.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-200])
    said = audit(program, runs / "of1", tmp_path / "torn", status=3)
    assert said["verdict"] == "not_proven" and said["damaged"] == 1
    assert said["row"] < audit(program, runs / "of1", runs / "of4")["row"]
    assert {doubt["reason"] for doubt in said["doubts"]} == {"damaged", "left_out"}
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[4:]))
    said = audit(program, runs / "of1", tmp_path / "torn", status=3)
    assert said["damaged"] == 1 and said["gaps"] == 1
    path.write_bytes(whole)
    for content, damaged in (b"", 0), (b"no chain\n", 1):  # refused trainers leave no byte
        (tmp_path / "torn" / "rank-00000-of-00001.jsonl").write_bytes(content)
        said = audit(program, runs / "of1", tmp_path / "torn", status=3 * damaged)
        assert said["damaged"] == damaged
    path.unlink()
    error = audit(program, runs / "of1", tmp_path / "torn", status=3)
    assert "no rows of which every rank has a digest" in error
    error = journal(program, tmp_path / "torn")
    assert "found a folder of digests" in error and "give one of its files" in error
    for words in ("--row", 16), ("--step", 2), ("-c", tmp_path / "none.yaml"):
        assert "leave it out" in audit(program, runs / "of1", runs / "of4", *words, status=2)
        refusal = "give one of them" if words[0] == "-c" else "unrecognized option"
        assert refusal in journal(program, path, *words)
    (tmp_path / "file").write_text("")
    for arguments in ({"digest_log": tmp_path / "file"}, {"digest_log": "x", "digest_steps": 0}):
        with pytest.raises((OSError, ValueError, ringpack.RingpackError)):
            ringpack.Loader(run="none", connect_timeout=0.1, **arguments).attach()


def test_control_characters_do_not_reach_the_terminal(program, runs, tmp_path):
    head = '{"entry":1,"after":"%s","time":"2026-01-31T08:15:00.000Z","event":"%s"'
    head %= ("0" * 64, r"a\u009b31m\u0085\u001b\u007f\u00e9")
    log = tmp_path / "log"
    log.write_text(f'{head},"hash":"{hashlib.sha256(head.encode()).hexdigest()}"}}\n')
    said = subprocess.run([program, "journal", log], capture_output=True, check=True).stdout
    assert "a??31m????é\n".encode() in said
    shutil.copytree(runs / "of1", tmp_path / "\x9b31m")
    (tmp_path / "\x9b31m" / "rank-9.jsonl").write_text("no chain\n")
    command = [program, "audit", runs / "of1", "\x9b31m"]
    said = subprocess.run(command, capture_output=True, cwd=tmp_path).stdout
    assert b"note: ??31m/rank-9.jsonl is not whole" in said


def test_a_log_that_cannot_be_written_stops_nobody(program, stream, tmp_path):
    logs = tmp_path / "logs"

    def fail():
        shutil.rmtree(logs)
        logs.write_text("a file")

    _, (counts,) = train(program, tmp_path, stream.config(), logs, 1, turns=12, fail=fail)
    assert counts["batches"] == 12 and counts["digest_failures"] == 3


def test_a_batch_that_is_left_out_is_found(program, broken, stream, runs, tmp_path, monkeypatch):
    keys = {"batch_size": 4, "global_batch_size": STEP}
    engine = Engine(program, tmp_path, {**stream.config(), **keys})
    command = ["read", "e2e", "--run-dir", tmp_path, "--digest-steps", str(EVERY), "--batches"]
    try:
        for tool, name in (program, "whole"), (broken, "less"):
            log = tmp_path / f"{name}.jsonl"
            words = [tool, *command, "8", "--digest-log", log]
            monkeypatch.setenv("RP_DEFECT", "leave_batch_out_of_digest")
            subprocess.run([*map(str, words)], check=True, capture_output=True)
    finally:
        engine.kill()
    assert audit(program, runs / "of4", tmp_path / "whole.jsonl")["rows"] == 32
    said = audit(program, runs / "of4", tmp_path / "less.jsonl", status=1)
    assert said["verdict"] == "content_differs"
