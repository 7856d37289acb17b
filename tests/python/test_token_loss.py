# SPDX-License-Identifier: Apache-2.0
"""Training by the loss of a token: two ranks of DDP that accumulate micro-batches, and divide by
batch.step_tokens_loss, have the gradients of one rank that sees the whole global batch."""

import os
import subprocess
from pathlib import Path

import pytest
from step_kit import MaskedCorpus, stream_of_version_2
from stream_kit import Engine, Stream
from warm_python import warm_python

warm = warm_python()
torch = pytest.importorskip("torch")
SCRIPT = Path(__file__).with_name("token_loss_rank.py")
WORLD, STEPS, STEP = 2, 3, 8
SHAPES = {WORLD: (1, STEP // WORLD), 1: (STEP, 1)}  # by ranks: batch_size, micro-batches
POINTS = Path(os.environ.get("RP_BIN_DIR", ""), "ringpack-points")


def serve(program, folder, streams, job, world):
    """An engine for each stream."""
    shape = {"dp_world_size": world, "batch_size": SHAPES[world][0], "global_batch_size": STEP}
    return [
        Engine(program, folder, {**stream.config(), **shape, "run": f"{job}-{version}"})
        for version, stream in streams.items()
    ]


def start(warm, folder, engines, world):
    """The ranks of a job, which trains with one engine after the other."""
    started = []
    for rank in range(world):
        output = folder / f"{world}-{rank}.pt"
        words = rank, world, folder / f"{world}.store", folder, STEPS, SHAPES[world][1], output
        command = [warm.python, SCRIPT, *words, *(engine.run for engine in engines)]
        environment = {**os.environ, **warm.environment, "OMP_NUM_THREADS": "1"}
        started.append((subprocess.Popen([*map(str, command)], env=environment), output))
    return started


@pytest.fixture(scope="module")
def found(tmp_path_factory, program, warm):
    """The gradients of both ranks, and of the one that sees everything, by run."""
    folder = tmp_path_factory.mktemp("loss")
    corpus = MaskedCorpus(folder, program)
    streams = {"v1": Stream(corpus, {"num_epochs": 2}), "v2": stream_of_version_2(corpus, 4)}
    for stream in streams.values():
        stream.keys["profile"] = "full"
    job = serve(program, folder, streams, "job", WORLD)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RP_DEFECT", "count_steps_without_a_rank")
        job += serve(str(POINTS), folder, streams, "lame", WORLD) if POINTS.is_file() else []
    whole = serve(program, folder, streams, "whole", 1)
    try:
        started = [*start(warm, folder, job, WORLD), *start(warm, folder, whole, 1)]
        assert [process.wait(300) for process, _ in started] == [0] * len(started)
    finally:
        for engine in job + whole:
            engine.kill()
    return [torch.load(output) for _, output in started]


def assert_equal(found, job):
    *ranks, whole = found
    for version in "v1", "v2":
        expected = whole[f"whole-{version}"]
        assert len(expected) == STEPS and all(own.abs().sum() > 0 for own in expected[0])
        for rank in ranks:
            for step, (ours, theirs) in enumerate(zip(rank[f"{job}-{version}"], expected)):
                for own, other in zip(ours, theirs):
                    assert torch.allclose(own, other, rtol=1e-9, atol=1e-12), f"step {step}"


def test_gradients_are_those_of_one_rank(found):
    assert_equal(found, "job")


def test_control_labels_that_lack_a_rank_change_the_gradients(found):
    if not POINTS.is_file():
        pytest.skip("needs ringpack-points")
    with pytest.raises(AssertionError, match="step 0"):
        assert_equal(found, "lame")
