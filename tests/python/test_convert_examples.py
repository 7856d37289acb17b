# SPDX-License-Identifier: Apache-2.0
"""tools/examples/convert: many machines convert one corpus. A scheduler is played by its variables,
and Ray, which is large, runs where RP_LONG is set."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT
from convert_kit import LONG, WORKER_PYTHON, convert, written

EXAMPLES = ROOT / "tools" / "examples" / "convert"


@pytest.fixture
def place(program, tmp_path):
    """A folder with a corpus of seven files, the output of one process, and `ringpack`."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ringpack").symlink_to(program)
    (tmp_path / "parquet").mkdir()
    for i in range(7):
        (tmp_path / "parquet" / f"{i}.txt").write_text("text %d\n" % i * 9)
    convert(program, "--no-append-eos", "-o", tmp_path / "whole", tmp_path / "parquet")
    return tmp_path


def environment(place, **variables):
    path = f"{place / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, **WORKER_PYTHON, "PATH": path, **variables}


def test_slurm(place):
    script = ["bash", EXAMPLES / "slurm.sbatch", place / "out", place / "parquet"]
    script += ["--group-bytes", "1"]
    for task in 2, 0, 1:
        variables = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": "3"}
        subprocess.run(script, check=True, env=environment(place, **variables))
    variables = {"MERGE": "1", "SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_COUNT": "1"}
    subprocess.run(script, check=True, env=environment(place, **variables))
    assert written(place / "out") == written(place / "whole")


def test_kubernetes(place):
    yaml = pytest.importorskip("yaml")
    jobs = list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text()))
    assert [job["metadata"]["labels"]["step"] for job in jobs] == ["parts", "merge"]
    for job in jobs:
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        assert mounts == {volume["name"] for volume in pod["volumes"]}
        (line,) = container["args"]
        line = line.replace("/corpus/train", f"{place}/out --group-bytes 1")
        line = line.replace("/data/", f"{place}/")
        for index in range(job["spec"].get("completions", 1)):
            variables = environment(place, JOB_COMPLETION_INDEX=str(index))
            subprocess.run([*container["command"], line], check=True, env=variables)
    assert written(place / "out") == written(place / "whole")


def test_kubernetes_takes_the_manifest():
    yaml = pytest.importorskip("yaml")
    schemas = pytest.importorskip("kubernetes_validate", reason="LEFT OUT: no kubernetes-validate")
    for job in yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text()):
        schemas.validate(job, "1.31", strict=True)


def test_ray_on_a_local_cluster(place):
    if not LONG:
        pytest.skip("RP_LONG=1 runs it, after RP_LONG=1 tools/setup")
    script = [sys.executable, EXAMPLES / "ray_convert.py", "--parts", "3", "--cpus", "1", "--"]
    script += ["--no-append-eos", "--group-bytes", "1", "-o", place / "out", place / "parquet"]
    variables = environment(place, PYTHONPATH=str(LONG), HOME=str(place),
                            RAY_USAGE_STATS_ENABLED="0")
    done = subprocess.run(script, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "3 of 3 parts" in done.stdout
    assert written(place / "out") == written(place / "whole")
