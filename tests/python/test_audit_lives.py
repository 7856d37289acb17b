# SPDX-License-Identifier: Apache-2.0
"""`ringpack audit` over random lives of jobs: it never says `identical` of rows of which one was
delivered otherwise, never `different` where none was, and one of the two if nothing is in doubt."""

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


@pytest.mark.parametrize("defect", ["count_older_deliveries", "trust_plan_of_one_rank"])
def test_planted_defects_are_found(program, broken, tmp_path, defect):
    env = {**os.environ, "RP_DEFECT": defect}
    with pytest.raises(AssertionError):
        for number in range(40):
            judge(broken, tmp_path / str(number), SEED * 10**6 + number, True, True, env=env)
