# SPDX-License-Identifier: Apache-2.0
"""`ringpack calibrate`: the K that was planted in times is found, attention is the attention of the
documents, and a refusal leaves the config as it is."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys

import pytest

from ringpack._calibrate.measuring import fit_held_in
from ringpack._calibrate.rows import Refused, Row, attention, fit, measure, rows_of

SHAPE = ["--hidden=32", "--ffn=32", "--heads=4", "--kv-heads=2", "--device=cpu"]


def calibrate(program, *options, python=sys.executable):
    environment = {**os.environ, "RINGPACK_PYTHON": str(python), "OMP_NUM_THREADS": "1"}
    command = [program, "calibrate", *map(str, options)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def refused(program, *options, words, python=sys.executable):
    done = calibrate(program, *options, python=python)
    assert done.returncode == 2 and not done.stdout
    assert "Traceback" not in done.stderr and "\n  next: " in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def planted_timer(k, noise=0.0):
    """As a device would take it, and a third more now and then."""
    draw = random.Random(5)

    def timer(row):
        seconds = 1e-12 * (k * row.tokens + row.attention) * (1 + draw.uniform(-noise, noise))
        return seconds * (4 / 3 if draw.random() < 0.2 else 1)

    return timer


@pytest.mark.parametrize("window", [0, 4096])
@pytest.mark.parametrize("k", [700, 15_072, 23_866, 400_000])
def test_a_planted_k_is_found(k, window):
    rows = rows_of(131_072, window)
    ticks = itertools.count()
    found = fit_held_in(rows, measure(rows, planted_timer(k), 300, lambda: next(ticks)))
    assert abs(found.k / k - 1) < 1e-6
    other = fit_held_in(rows, measure(rows, planted_timer(2 * k), 300, lambda: next(ticks)))
    assert abs(other.k / k - 2) < 1e-6  # the timer decides, not the rows
    noisy = fit_held_in(rows, measure(rows, planted_timer(k, 0.02), 300, lambda: next(ticks)))
    assert abs(noisy.k / k - 1) < 0.1


def test_windows_are_told_from_whole_attention():
    """Times of layers with a window do not fit without it: a control of the formula."""
    rows = rows_of(131_072, 4096)
    timer = planted_timer(15_072)
    seconds = [min(timer(row) for _ in range(30)) for row in rows]
    plain = [row._replace(window=0) for row in rows]
    assert max(map(abs, fit(rows, seconds).errors(rows, seconds))) < 1e-6
    assert max(map(abs, fit(plain, seconds).errors(plain, seconds))) > 0.2


def test_rows_that_do_not_tell_k():
    with pytest.raises(Refused, match="about the same lengths"):
        fit([Row("", (512,) * 8), Row("", (512,) * 9)], [0.1, 0.1125])
    rows = rows_of(4096)
    with pytest.raises(Refused, match="cost no more a token"):
        fit(rows, [1e-6 * row.tokens for row in rows])
    with pytest.raises(Refused, match="K would be 0"):
        fit(rows, [1e-9 * row.attention for row in rows])


@pytest.mark.parametrize("window", [0, 6])
def test_attention_is_of_documents(window):
    torch = pytest.importorskip("torch")
    from ringpack._calibrate.block import document_attention

    row = Row("", (20, 20, 8), window)
    queries, keys, values = (torch.randn(48, heads, 32) for heads in (4, 2, 2))
    number = torch.repeat_interleave(torch.arange(3), torch.tensor(row.lengths))
    places = torch.arange(48)
    distance = places[:, None] - places[None]
    mask = (number[:, None] == number[None]) & (distance >= 0)
    if window:
        mask &= distance < window
    every = [each.repeat_interleave(4 // each.shape[1], 1).transpose(0, 1)
             for each in (queries, keys, values)]
    expected = torch.nn.functional.scaled_dot_product_attention(*every, attn_mask=mask)
    found = document_attention(torch)(queries, keys, values, row, None)
    assert torch.allclose(found, expected.transpose(0, 1), atol=1e-5)
    pairs = int(mask.sum())
    sums = row.attention + sum(row.lengths)  # the formula leaves out half of the diagonal
    assert abs(2 * pairs - sums) <= 2 * sum(row.lengths)


def test_a_block_is_timed_and_the_key_is_written(program, tmp_path):
    pytest.importorskip("torch")
    config = tmp_path / "config.yaml"
    config.write_text("seq_len: 2048\ncost: 1 # of another model\nrun: a\n")
    options = [*SHAPE, "--tokens=1024", "--seconds=1", "--write", config, "--json"]
    done = calibrate(program, *options)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["cost"] >= 1 and said["tokens"] == 1024
    assert all(row["seconds"] > 0 for row in said["rows"])
    assert {row["is_held_out"] for row in said["rows"]} == {True, False}
    text = f"seq_len: 2048\ncost: {said['cost']} # of another model\nrun: a\n"
    assert config.read_text() == text and len(list(tmp_path.iterdir())) == 1


def lines_of(k, count=12):
    draw = random.Random(1)
    rows = [Row("", tuple(draw.choice((128, 700, 4096)) for _ in range(9))) for _ in range(count)]
    return "".join(json.dumps({"lengths": row.lengths,
                               "seconds": 1e-10 * (k * row.tokens + row.attention)}) + "\n"
                   for row in rows)


def test_times_of_a_job(program, tmp_path):
    times, config = tmp_path / "times.jsonl", tmp_path / "config.yaml"
    for k, before, after in ((5000, "", "cost: 5000\n"),
                             (6000, "run: a", "run: a\ncost: 6000\n"),
                             (7000, "cost: {k: 1, attention_window: 9}\n", "cost: 7000\n")):
        times.write_text(lines_of(k))
        config.write_text(before)
        done = calibrate(program, "--times", times, "--write", config)
        assert done.returncode == 0 and done.stdout.endswith(f"\ncost: {k}\n"), done.stderr
        assert config.read_text() == after
    done = calibrate(program, "--times", times, "--attention-window=8192")
    assert done.stdout.endswith("\ncost: {k: 7000, attention_window: 8192}\n")


def test_refusals(program, tmp_path):
    config, times = tmp_path / "config.yaml", tmp_path / "times.jsonl"
    block = "cost:\n  hidden: 64\n"
    config.write_text(block)
    times.write_text(lines_of(5000))
    options = "--times", times, "--write", config
    refused(program, *options, words=["config.yaml, line 1: `cost` is not on one line"])
    assert config.read_text() == block
    config.write_text('{"seq_len": 8}')
    refused(program, *options, words=["one mapping in braces", "cost: 5000"])
    times.write_text(lines_of(5000) + '{"lengths": [0], "seconds": 1}\n')
    refused(program, *options, words=["times.jsonl, line 13"])
    times.write_text(lines_of(5000, 3))
    refused(program, *options, words=["expected 4 rows or more, found 3"])
    refused(program, "--times", tmp_path / "none", words=["none: No such file"])
    refused(program, words=["expected --hidden, --ffn and --heads"])
    refused(program, "--hidden=33", "--ffn=1", "--heads=4", words=["no multiple of --heads 4"])
    refused(program, *SHAPE, "--window-layers=1", words=["--attention-window"])


def test_a_python_without_torch(program, tmp_path):
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(0o755)
    words = ["torch cannot be imported by", "RINGPACK_PYTHON", "--times"]
    refused(program, *SHAPE, python=bare, words=words)
    refused(program, *SHAPE, python=tmp_path / "none", words=["cannot start"])


def test_too_little_memory(program):
    pytest.importorskip("torch")
    words = ["a row of 134,217,728 tokens needs about"]
    refused(program, *SHAPE, "--tokens=134217728", words=words)
    refused(program, "--hidden=16777216", "--ffn=16777216", "--heads=64", "--device=cpu",
            "--head-dim=64", words=["weights of one block"])


def test_interrupted(program, tmp_path):
    pytest.importorskip("torch")
    config = tmp_path / "config.yaml"
    config.write_text("cost: 9\n")
    command = [program, "calibrate", *SHAPE, "--seconds=600", "--tokens=512", "--write", config]
    environment = {**os.environ, "RINGPACK_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert "timing rows" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert process.returncode == 2 and "interrupted; no file was written" in said
    assert "Traceback" not in said and config.read_text() == "cost: 9\n"
