# SPDX-License-Identifier: Apache-2.0
"""The pages in tools/python/docs work as written: named blocks are files, sh blocks are run."""

import os
import re
import shutil
import subprocess

import pytest
from conftest import ROOT
from job_kit import Job
from page_kit import DOCS, blocks
from warm_python import warm_python

PAGES = sorted(DOCS.glob("*.md"))
NEEDED = {"torchrun": "torch", "transformers": "transformers", "jax": "jax", "torch": "torch"}
NEEDED |= {name: name for name in ("lightning", "trl", "datasets", "torchtitan", "torchdata")}
NEEDED |= {"flax": "flax", "megatron": "megatron.core"}


def need(files, script):
    for word, module in NEEDED.items():
        if re.search(rf"^(import|from) {word}\b", "".join(files.values()), re.M) or word in script:
            pytest.importorskip(module)
    for tool in re.findall(r"\b(mpicc|mpirun)\b", script):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}: apt-get install libopenmpi-dev openmpi-bin")


warm = warm_python()


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory):
    """Variables by which the programs for jax are compiled once."""
    place = tmp_path_factory.mktemp("jax")
    names = "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
    return dict(zip(names, (str(place), "0")))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)[1]], ids=lambda p: p.stem)
def test_page(program, folder, warm, compiled_once, page):
    files, script = blocks(page)
    need(files, script)
    for name, text in files.items():
        (folder / name).write_text(text)
    library = os.path.dirname(os.environ["RINGPACK_LIBRARY"])
    environment = {
        **os.environ,
        **warm.environment,
        **compiled_once,
        "PATH": os.pathsep.join((os.path.dirname(program), warm.environment["PATH"])),
        "OMP_NUM_THREADS": "1",
        "XDG_RUNTIME_DIR": str(folder),
        "LD_LIBRARY_PATH": library,
        "LIBRARY_PATH": library,
        "CPATH": str(ROOT / "include"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    ends_well = "trap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n"  # also an engine after a failure
    command = ["bash", "-euo", "pipefail", "-mc", ends_well + script]
    with Job(command, folder / "log", cwd=folder, env=environment) as job:
        output = job.finish()
    assert "no tokenizer was named" not in output, "a command of the page is warned about"


@pytest.mark.parametrize("name", ["jax", "pytorch"])
def test_a_batch_without_a_label(program, folder, warm, compiled_once, name):
    """The program of a page on documents of one token: the mean of no label is 0, and not NaN."""
    from stream_oracle import write_megatron

    files, script = blocks(DOCS / f"{name}.md")
    need(files, script)
    (folder / "train.py").write_text(files["train.py"])
    write_megatron(folder / "corpus", [[n % 250] for n in range(40000)])
    place = {"XDG_RUNTIME_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **warm.environment, **compiled_once, **place}
    environment.update(dict(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1"))
    environment.update(MASTER_ADDR="localhost", MASTER_PORT="0")
    with Job(["python", "train.py"], folder / "log", cwd=folder, env=environment) as job:
        output = job.finish()
    assert re.search(r"loss -?0\.000$", output, re.M), output


def test_the_commands_for_incidents_are_run():
    page = DOCS / "operating.md"
    table = page.read_text().split("## Incidents")[1].replace("\\|", "\0")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line]
    script = blocks(page)[1].splitlines()
    assert len(rows) > 8 and all(len(row) == 3 for row in rows)
    for _, command, _ in rows[2:]:
        assert command.strip("`").replace("\0", "|") in script, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"
