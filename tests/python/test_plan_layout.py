# SPDX-License-Identifier: Apache-2.0
"""`plan --layout`: barriers, pipelines and spreads of made rows, computed here from the oracle of
deal and the schedules of bench/pipelines.py; refusals of layouts that do not divide."""

import array
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / "oracle"), str(ROOT / "bench")]
from pipelines import makespan  # noqa: E402
from stream2_deal import deal_rows  # noqa: E402

PLACES, STEP, STEPS, K = 64, 32, 9, 20
ORDERS = "descending", "middle", "wave", "late_wave"


def made_rows():
    """Lengths of the documents of each row. The first one alternates between two sources."""
    rng, rows = random.Random(5), []
    for _ in range(STEP * STEPS + 7):
        room, row = PLACES, []
        while room:
            row.append(min(room, rng.choice([1, 2, 5, 13, 40, 64])))
            room -= row[-1]
        rows.append(row)
    return rows


ROWS = made_rows()


@pytest.fixture
def config(folder):
    tokens = array.array("H")
    for row in ROWS:
        for length in row:
            tokens.extend([7] * (length - 1) + [0])
    (folder / "rows.bin").write_bytes(tokens.tobytes())
    keys = {
        "run": "layout",
        "stream_version": 2,
        "sources": [{"path": "rows.bin", "format": "raw", "dtype": "u16", "eos": 0}],
        "seq_len": PLACES,
        "shuffle": "none",
        "packing": "concat",
        "batch_size": 1,
        "global_batch_size": STEP,
        "cost": K,
    }
    (folder / "c.yaml").write_text(json.dumps(keys))
    return keys


def run(program, folder, layout, *arguments, status=0):
    command = [program, "plan", "-c", "c.yaml", "--layout", layout, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stderr if status else done.stdout


def compared(program, folder, layout, *arguments):
    return json.loads(run(program, folder, layout, "--json", *arguments))["layout"]


def order_of(costs, window, dp, mb, order="descending", stages=((0, STEP),)):
    """`stages`: the first row and the rows of a step of each."""
    if window == 0:
        return list(range(len(costs)))
    found = []
    for (begin, step), end in zip(stages, [row for row, _ in stages[1:]] + [len(costs)]):
        deal = {"window": window * step, "step": step, "tier": dp * mb, "bundle": mb,
                "order": order}
        for first in range(begin, end, window * step):
            own = costs[first:min(first + window * step, end)]
            found += [first + row for row in deal_rows(deal, own)]
    return found


def batches_of(costs, dp, mb):
    """By step and rank: costs of its micro-batches."""
    found = []
    for first in range(0, len(costs), STEP):
        step = costs[first:first + STEP]
        found.append([[sum(step[at + rank * mb:at + rank * mb + mb])
                       for at in range(0, STEP, dp * mb)] for rank in range(dp)])
    return found


def deviation(values):
    mean = sum(values) / len(values)
    return (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5


@pytest.mark.parametrize("dp, mb, pp, vp", [(4, 1, 4, 2), (2, 2, 2, 2), (8, 2, 2, 2), (1, 4, 3, 1)])
def test_figures_follow_from_the_rows(program, folder, config, dp, mb, pp, vp):
    told = compared(program, folder, f"dp={dp},mb={mb},pp={pp}")
    costs = [sum(length * (K + length) for length in row) for row in ROWS][:STEP * STEPS]
    total, batches = sum(costs), STEP // (dp * mb)
    assert (told["steps"], told["micro_batches"], told["cost_k"]) == (STEPS, batches, K)
    assert [window["window_steps"] for window in told["windows"]] == [0, 1, 2, 4, 8]
    for window in told["windows"]:
        steps = window["window_steps"]
        order = order_of(costs, steps, dp, mb)
        by_step = batches_of([costs[row] for row in order], dp, mb)
        assert window["step"] == pytest.approx(
            sum(max(map(sum, ranks)) for ranks in by_step) * dp / total)
        assert window["micro_step"] == pytest.approx(
            sum(max(tier) for ranks in by_step for tier in zip(*ranks)) * dp / total)
        assert window["micro_batch"] == pytest.approx(
            sum(max(map(max, ranks)) for ranks in by_step) * batches * dp / total)
        sums = [sum(map(sum, ranks)) for ranks in by_step]
        assert window["cost_spread"] == pytest.approx(deviation(sums) / (total / STEPS))
        long = [sum(length for row in order[z * STEP:(z + 1) * STEP] for length in ROWS[row]
                    if length > PLACES // 2) / (STEP * PLACES) for z in range(STEPS)]
        assert window["long_spread"] == pytest.approx(deviation(long), abs=1e-9)
        assert window["source_spread"] == pytest.approx(0, abs=1e-9)
        assert (window["window_bytes"] > 0) == (steps > 0)
        kinds = {"pipeline": 1} | ({"pipeline_interleaved": 2} if vp > 1 else {})
        assert {name for name in window if name.startswith("pipeline")} == set(kinds)
        for kind, parts in kinds.items():
            for order in ORDERS if steps else ("planned",):
                rows = order_of(costs, steps, dp, mb, order)
                by_step = batches_of([costs[row] for row in rows], dp, mb)
                time = sum(max(makespan(rank, pp, parts) for rank in ranks) for ranks in by_step)
                equal = sum(makespan([sum(map(sum, ranks)) / (dp * batches)] * batches, pp, parts)
                            for ranks in by_step)
                found = window[kind][order]
                assert found["over_equal"] == pytest.approx(time / equal)
                assert found["over_ideal"] == pytest.approx(time * dp / (3 * total))


def test_rows_of_a_dealt_stream_are_compared_in_their_planned_order(program, folder, config):
    told = compared(program, folder, "dp=4")
    deal = {"window": 4 * STEP, "step": STEP, "tier": 4, "order": "wave", "cost": K}
    (folder / "c.yaml").write_text(json.dumps(config | {"deal": deal}))
    assert compared(program, folder, "dp=4") == told


def test_rows_in_the_order_of_delivery_are_found(broken, folder, config, monkeypatch):
    """The control of the test above."""
    monkeypatch.setenv("RP_DEFECT", "compare_dealt_rows")
    with pytest.raises(AssertionError):
        test_rows_of_a_dealt_stream_are_compared_in_their_planned_order(broken, folder, config)


def test_windows_end_at_stages_and_steps_have_their_sizes(program, folder, config):
    stages, dp, pp = ((0, STEP), (96, 16), (208, 16)), 4, 2
    calendar = [{"until": "row 96"}, {"until": "row 208", "global_batch_size": 16}, {}]
    (folder / "c.yaml").write_text(json.dumps(config | {"stages": calendar}))
    told = compared(program, folder, f"dp={dp},pp={pp}")
    sizes = [32] * 3 + [16] * 12
    assert told["rows_of_steps"] == sizes and sum(sizes) <= len(ROWS) < sum(sizes) + 16
    costs = [sum(length * (K + length) for length in row) for row in ROWS]
    for window in told["windows"]:
        rows = order_of(costs, window["window_steps"], dp, 1, stages=stages)
        step = micro = time = total = first = 0
        for size in sizes:
            own = [costs[row] for row in rows[first:first + size]]
            first, ranks = first + size, [own[rank::dp] for rank in range(dp)]
            total += sum(own)
            step += dp * max(map(sum, ranks))
            micro += dp * sum(map(max, zip(*ranks)))
            time += dp * max(makespan(rank, pp, 1) for rank in ranks)
        assert window["step"] == pytest.approx(step / total)
        assert window["micro_step"] == pytest.approx(micro / total)
        name = "descending" if window["window_steps"] else "planned"
        assert window["pipeline"][name]["over_ideal"] == pytest.approx(time / (3 * total))
    assert "from step 3 on        mb=1: steps of 16 rows, 4 micro-batches" in run(
        program, folder, f"dp={dp}")
    assert "steps of 16 rows" not in run(program, folder, f"dp={dp}", "--rows", 96)
    assert "step of 16 rows (global_batch_size from row 96 on)" in run(
        program, folder, "dp=32", status=2)


def test_windows_across_stages_are_found(broken, folder, config, monkeypatch):
    """The control of the test above."""
    monkeypatch.setenv("RP_DEFECT", "compare_across_stages")
    with pytest.raises(AssertionError):
        test_windows_end_at_stages_and_steps_have_their_sizes(broken, folder, config)


def test_context_parallel_ranks_change_no_figure(program, folder, config):
    told = compared(program, folder, "dp=4,pp=2,cp=4")
    assert told.pop("cp") == 4
    other = compared(program, folder, "dp=4,pp=2")
    assert other.pop("cp") == 1
    assert told == other
    assert "cp divides each row evenly" in run(program, folder, "dp=4,cp=2")


@pytest.mark.parametrize("layout, words", [
    ("dp=5", "dp=5 micro-batches of mb=1 rows do not divide a step of 32 rows"),
    ("mb=3", "dp=1 micro-batches of mb=3 rows do not divide a step of 32 rows"),
    ("dp=8,pp=5", "pp=5 stages, but a rank has 4 micro-batches"),
    ("dp=8,pp=3,vp=2", "vp=2: a rank has 4 micro-batches in a step, no multiple of pp=3"),
    ("cp=5", "cp=5 ranks cannot share rows of 64 tokens"),
    ("tp=2", "`tp` is none of dp, pp, cp, mb, vp"),
    ("dp=2,dp=2", "dp is given twice"),
    ("dp=-1", "expected a number from 1 to 1048576, found `-1`"),
    ("dp=0", "found `0`"),
    ("dp", "found ``"),
    ("", "`` is none of"),
    ("dp=99999999999999999999", "found `99999999999999999999`"),
])
def test_layouts_that_do_not_divide_are_refused(program, folder, config, layout, words):
    told = run(program, folder, layout, status=2)
    assert words in told and "next: " in told


def test_less_than_a_step_is_refused(program, folder, config):
    told = run(program, folder, "dp=4", "--rows", STEP - 1, status=2)
    assert f"{STEP - 1} rows are no whole step of {STEP}" in told
    assert "--layout and --landmarks" in run(program, folder, "dp=4", "--landmarks", status=2)


def test_the_report_and_the_picture_have_a_bar_for_each_window(program, folder, config):
    told = run(program, folder, "dp=4,pp=2", "--svg", "p.svg")
    assert "the first 9 steps (288 rows)" in told
    bars = re.findall(r"^  (off|\d steps?) +([\d.]+) % (#*)$", told, re.M)
    assert [name for name, *_ in bars] == ["off", "1 step", "2 steps", "4 steps", "8 steps"]
    assert len(bars[0][2]) == 40 > len(bars[-1][2])
    drawn = (folder / "p.svg").read_text()
    assert drawn.count("a barrier for each micro-step takes") == 5
    run_without = subprocess.run([program, "plan", "-c", "c.yaml", "--svg", "q.svg"], cwd=folder,
                                 capture_output=True, text=True, timeout=60, check=True)
    assert "layout" not in run_without.stdout
    assert "barrier" not in (folder / "q.svg").read_text()
