# SPDX-License-Identifier: Apache-2.0
"""`ringpack audit` over random lives of jobs: it never says `identical` of rows if one was
delivered otherwise, never `different` if none was, and one of the two without a doubt."""

import json
import os
import subprocess

import digest_lives
import pytest

SEED = int(os.environ.get("RP_SEED", "0")) or 73
LIVES = 8000 if os.environ.get("RP_LONG") == "1" else 60


def audit(program, *words, env=None):
    done = subprocess.run([program, "audit", *words, "--json"], capture_output=True, text=True,
                          env=env, timeout=600)
    assert done.returncode in (0, 1, 3), (words, done.stderr)
    return done.returncode, json.loads(done.stdout) if done.stdout else None


def judge(program, folder, seed, sound, planted, env=None):
    job = digest_lives.Job(seed, folder / "b", sound, planted)
    logs = job.run()
    alone = digest_lives.whole(folder / "a", job.rows, 1 + seed % 3)
    status, said = audit(program, alone, logs, env=env)
    again, _ = audit(program, logs, alone, env=env)
    told = f"seed {seed}, sound {sound}, planted {planted}: exit {status}, {said}"
    assert status == again, told
    bad = [row for row, is_right in job.given.items() if not is_right]
    if status == 0:
        assert not any(said["first_row"] <= row < said["row"] for row in bad), told
    if not planted:
        assert status != 1, told
    if sound:
        assert status == (1 if bad else 0), told
        assert bad or (said["first_row"], said["row"]) == (0, job.rows), told
    return status


@pytest.mark.parametrize("sound", [True, False])
@pytest.mark.parametrize("planted", [False, True])
def test_lives(program, tmp_path, sound, planted):
    print(f"RP_SEED={SEED}")
    counts = {0: 0, 1: 0, 3: 0}
    for number in range(LIVES // 4):
        folder = tmp_path / str(number)
        counts[judge(program, folder, SEED * 10**6 + number, sound, planted)] += 1
    print(f"identical, different, not proven: {list(counts.values())}")


def reasons(program, folder, *lives, knows=True, lost=None):
    """Why two ways to feed 48 rows are not proven to be the same; none: they are."""
    job = digest_lives.Job(1, folder / "b", True, False)
    job.knows = knows
    for first, end, world, bad in lives:
        job.live(first, end, world, bad)
    for path in job.folder.glob(f"node0/{lost}") if lost else ():
        path.unlink()
    alone = digest_lives.whole(folder / "a", 48, 1)
    status, said = audit(program, alone, job.gather())
    assert status == (3 if said["doubts"] else 0), said
    return {doubt["reason"] for doubt in said["doubts"]}


def test_each_reason(program, tmp_path):
    def why(*lives, **options):
        return reasons(program, tmp_path / str(len(list(tmp_path.iterdir()))), *lives, **options)

    resized = (0, 40, 2, None), (16, 48, 4, None)
    assert not why(*resized)
    assert "no_order" in why(*resized, knows=False)  # files of an older version
    assert "lost" in why((0, 40, 2, None), (16, 32, 4, None), (32, 48, 2, None),
                         lost="rank-00000-of-00004*")
    assert why((0, 32, 2, 5), (0, 48, 2, None)) & {"two_contents", "two_plans"}
    assert why((0, 20, 2, None), (24, 48, 2, None)) == {"left_out"}


@pytest.mark.parametrize("defect", ["count_older_deliveries", "trust_plan_of_one_rank"])
def test_planted_defects_are_found(program, broken, tmp_path, defect):
    env = {**os.environ, "RP_DEFECT": defect}
    with pytest.raises(AssertionError):
        for number in range(40):
            judge(broken, tmp_path / str(number), SEED * 10**6 + number, True, True, env=env)
