# SPDX-License-Identifier: Apache-2.0
"""len(loader) is the number of batches that a loop gets: with skipped steps, and with stages that
give a stream its end, or take it."""

import json
import subprocess

import pytest
import ringpack
from ringpack._calendar import Calendar

LIMITS = {"limits": {"corpus": {"max_epochs": "endless"}}}


@pytest.fixture
def make(program, corpora, folder):
    """Loaders of one source, `corpus`, in stream version 2."""
    loaders = []

    def make_loader(**changes):
        known = {"run_dir": folder, "corpus": {"name": "corpus", "path": corpora[0]}}
        known.update(seq_len=32, batch_size=3)
        loaders.append(ringpack.Loader(**{**known, **changes}))
        return loaders[-1]

    yield make_loader
    for loader in loaders:
        loader.close()


def count(loader):
    return sum(1 for _ in loader)


@pytest.mark.parametrize("skip", [{"steps": [1, 3]}, {"rows": ["0-7"]}, {"rows": ["2-5", "36-99"]}])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_skipped_steps_have_no_length(make, skip, accumulated):
    form = {"num_epochs": 1, "global_batch_size": 3 * accumulated}
    with make(**form) as whole, make(run="skips", skip=skip, **form) as loader:
        assert len(loader) == count(loader) <= len(whole)


def test_a_length_follows_skip(make):
    with make(num_epochs=1) as loader:
        whole = len(loader)
        loader.skip(steps=(2, 5))
        assert len(loader) == count(loader) == whole - 3


def test_plan_tells_skipped_steps_apart(program, corpora, tmp_path):
    config = {"corpus": corpora[0], "seq_len": 32, "batch_size": 2, "num_epochs": 1}
    path, told = tmp_path / "config.yaml", []
    for skip in {}, {"skip": {"steps": [3, "5-7"], "rows": [0, "4-6"]}}:
        path.write_text(json.dumps({**config, **skip}))
        words = [program, "plan", "-c", path]
        out = subprocess.run([*words, "--json"], capture_output=True, check=True).stdout
        told.append(json.loads(out))
    whole, less = told
    assert less["steps"] == whole["steps"] == whole["batches"] and whole["steps_skipped"] == 0
    assert (less["steps_skipped"], less["batches"]) == (4, whole["batches"] - 4)
    text = subprocess.run(words, capture_output=True, check=True, text=True).stdout
    assert "  skipped             4 steps" in text


def test_a_stage_takes_the_end_of_a_stream(make):
    """A stream that ends before its last stage has a length."""
    stages = [{"until": "2 steps"}, LIMITS]
    with make(num_epochs=2, stages=stages) as loader:
        for _ in range(2):
            with pytest.raises(TypeError, match="an endless stream has no length"):
                len(loader)
        assert next(loader).first_row == 0
    stages[0]["until"] = "9999 steps"
    with make(num_epochs=1, stages=stages, run="ends") as loader:
        assert len(loader) == count(loader) > 2


def test_a_stage_gives_a_stream_its_end(make, corpora):
    w = {"name": "w", "path": corpora[0], "max_epochs": "endless", "weight": 1}
    b = {"name": "b", "path": corpora[1], "max_epochs": 1, "weight": 0, "on_exhausted": "stop"}
    stages = [{"until": "5 steps"}, {"weights": {"w": 1, "b": 1}}]
    with make(corpus=[w, b], stages=stages, return_type="torch") as loader:
        length = len(loader)
        assert length == count(loader) > 5
        assert count(loader) == length, "a loop after the end is a whole one"


RAMP = {"weights": {"w": 1}, "ramp": 9999}


@pytest.mark.parametrize(
    "changes, taken",
    [
        ([RAMP], 0),
        ([RAMP], 8),
        ([{**RAMP, "weights": {"w": 1, "joins": 1}}], 0),
        ([{**RAMP, "until": "8 steps"}, {"limits": {"w": {"max_epochs": "endless"}}}], 0),
    ],
    ids=["ahead", "inside", "a source joins", "limits inside"],
)
def test_a_stream_ends_in_a_ramp(make, corpora, changes, taken):
    """By a source whose share falls to 0; the mixture after the ramp is endless."""
    kinds = {"w": (0, "endless", 1), "e": (1, 1, 5), "joins": (0, "endless", 0)}
    sources = [
        {"name": name, "path": corpora[path], "max_epochs": epochs, "weight": weight}
        for name, (path, epochs, weight) in kinds.items()
    ]
    sources[1]["on_exhausted"] = "stop"
    with make(corpus=sources, stages=[{"until": "5 steps"}, *changes]) as loader:
        assert all(loader.next() is not None for _ in range(taken))
        length = len(loader)
        assert length == taken + count(loader) > 8


def contract_of(stages):
    """Stage 0 has an endless source, and each later one gives another source limits."""
    lines = ["global_batch_size=1", "batch_size=1"]
    for number in range(stages):
        of = f"stage[{number:04}]."
        lines += [f"{of}from={number}", f"{of}weight[{number:04}]=1", f"{of}ramp=0"]
        lines += [f"{of}seq_len=8", f"{of}max_epochs[{number:04}]={min(1, number)}"]
    return "\n".join(lines)


def test_a_calendar_of_many_stages():
    """Limits that a stage does not set have their defaults."""
    for stages, epochs in (1, 0), (2, 1):
        assert Calendar(contract_of(stages)).ends(-1, 0).epochs == epochs
    assert Calendar(contract_of(1000)).ends(-1, 0).epochs == 1
