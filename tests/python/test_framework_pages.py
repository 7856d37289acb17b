# SPDX-License-Identifier: Apache-2.0
"""Programs on the pages of frameworks are killed in a step, and resumed with equal losses."""

import shutil

import pytest
from conftest import planted
from forked_ranks import ForkedRanks
from job_kit import free_port, lives_through_a_kill
from page_kit import DOCS, blocks, make_corpora

NEEDED = {
    "fabric": ["lightning"],
    "torchdata": ["torchdata.nodes"],
    "flax": ["jax", "flax.nnx", "optax", "orbax.checkpoint"],
    "megatron": ["megatron.core.tensor_parallel"],
}
CASES = [  # page, ranks, environment
    ("fabric", 1, {}),
    ("fabric", 2, {"DEVICES": "2"}),
    ("torchdata", 1, {}),
    ("torchdata", 2, {}),
    ("flax", 2, {}),  # with one rank by test_pages
    ("megatron", 1, {}),
    ("megatron", 2, {}),
    ("megatron", 2, {"TENSOR_SIZE": "2"}),
]
STEPS = 5
LINE = r"^step (\d+) (loss \S+ held-out \S+)$"


@pytest.fixture(scope="module")
def corpora(program, tmp_path_factory):
    """A folder with the corpora of these pages."""
    folder = tmp_path_factory.mktemp("pages") / "corpora"
    make_corpora(program, folder)
    return folder


@pytest.fixture(scope="module")
def losses():
    """Of the programs that have lived through a kill, by page and ranks."""
    return {}


def live(page, corpora, folder, ranks, more, whole=None):
    """Kill the program on the page in a step, and resume it. Returns its losses."""
    (folder / "train.py").write_text(blocks(page)[0]["train.py"])
    place = {
        "XDG_RUNTIME_DIR": str(folder),
        "OMP_NUM_THREADS": "1",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        **more,
    }

    def start(run, log):
        if not (folder / run).exists():
            shutil.copytree(corpora, folder / run)
        place["JAX_COORDINATOR_ADDRESS"] = f"localhost:{free_port()}"
        script, log = folder / "train.py", folder / log
        return ForkedRanks(ranks, script, [STEPS], log, cwd=folder / run, **place)

    return lives_through_a_kill(start, LINE, STEPS, whole)


@pytest.mark.parametrize("name, ranks, more", CASES)
def test_a_killed_program_of_a_page(corpora, losses, folder, name, ranks, more):
    for module in NEEDED[name]:
        pytest.importorskip(module)  # once: the ranks are forked from here
    losses[name, ranks] = live(DOCS / f"{name}.md", corpora, folder, ranks, more)


def test_a_program_that_loads_no_position_is_found(corpora, losses, folder):
    """Its losses differ from the step on that it resumes at."""
    pytest.importorskip("torchdata.nodes")
    page = planted("leave_position_unloaded", folder) / "tools/python/docs/torchdata.md"
    with pytest.raises(AssertionError, match="once resumed"):
        live(page, corpora, folder, 1, {}, losses.get(("torchdata", 1)))
