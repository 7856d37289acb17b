# SPDX-License-Identifier: Apache-2.0
"""The five minutes of tools/python/README.md: train, be killed, continue. And the package's
types."""

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT
from stream_kit import LONG
from warm_python import warm_python

warm = warm_python()
README = (ROOT / "tools" / "python" / "README.md").read_text()
LINE = re.compile(r"row (\d+): loss ([\d.]+), \d+ tokens")
BATCH = 4


def start(folder, python=sys.executable, **more):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_RUNTIME_DIR": str(folder), **more}
    return subprocess.Popen(
        [python, "train.py"],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT / "tools" / "python")},
        stdout=subprocess.PIPE,
        text=True,
    )


def read(process, count):
    lines = [LINE.match(process.stdout.readline()) for _ in range(count)]
    return [(int(line[1]), line[2]) for line in lines]


def test_five_minutes(program, folder, warm):
    """The first time by the real Python."""
    pytest.importorskip("torch")
    (folder / "train.py").write_text(re.search(r"```python\n(.*?)```", README, re.S)[1])
    command = [program, "convert", "-q", "-o", "corpus", ROOT / "engine" / "plan"]
    subprocess.run(command, cwd=folder, check=True)
    whole = start(folder)
    wanted = read(whole, 12)
    whole.kill()
    whole.communicate()
    assert [row for row, _ in wanted] == list(range(0, 12 * BATCH, BATCH))
    (folder / "last.pt").unlink()
    killed = start(folder, warm.python, **warm.environment)
    seen = read(killed, 5)
    killed.kill()
    killed.communicate()
    resumed = start(folder, warm.python, **warm.environment)
    try:
        rest = read(resumed, 4)
    finally:
        resumed.kill()
        resumed.communicate()
    assert seen == wanted[:5]
    assert rest[0][0] > seen[-1][0], "what was printed had been saved"
    at = rest[0][0] // BATCH
    assert rest[: 12 - at] == wanted[at : at + 4], "the losses of a run that was never killed"


USER = """
import ringpack

def rows(path: str) -> list[int]:
    with ringpack.Loader(
        corpus=path, seq_len=64, batch_size=2, seed=1, shuffle="block", num_epochs="endless",
        prefetch_bytes="64Mi", packers="auto", checkpoint_dir=path, fresh=True, profile="hf"
    ) as loader:
        loader.load_state_dict(loader.state_dict())
        found = [batch.next_row for batch in loader]
        batch = loader.borrow(timeout=1.0)
        if batch is not None:
            with batch:
                print(list(batch), batch["input_ids"].shape, len(loader))
        return found

def told(error: ringpack.CheckpointMismatchError) -> str:
    return f"{error.field}: {error.hint}"

def nested(paths: list[str]) -> ringpack.Loader:
    stages: list[ringpack.StageOptions] = [{"until": "5 steps"}]
    stages.append({"weights": {"a": 0.5}, "limits": {"a": {"max_epochs": 2}}, "deal": "auto"})
    stages.append({"without": {"a": "file"}, "documents": {"a": 5}, "deal": {"window": 8}})
    source: ringpack.SourceOptions = {"shards": paths, "weight": 0.25, "repeat": {2: "score > 1"}}
    loader = ringpack.Loader(corpus=[source, "b"], stages=stages, cost={"hidden": 64})
    ringpack.Loader(corpus=(path for path in paths), skip=loader.skip(rows=3), removed={"c": 1})
    streams: dict[str, ringpack.OneStreamOptions] = {"train": {}, "eval": {"batch_size": 2}}
    return ringpack.Loader(corpus={"path": "a", "eos": 0}, streams=streams, cost=4096, deal="off")
"""
WRONG = """
ringpack.Loader(corpus=3.5, return_type=1).borrow('soon')
ringpack.Loader(corpus="c", sead=1, shuffle="blok", drop_last="no")
"""
WRONG_NESTED = """
ringpack.Loader(corpus={"path": "c", "wieght": 2})
ringpack.Loader(corpus=["c", {"shards": ["d"], "drop_untrained": "half"}])
ringpack.Loader(corpus="c", stages=[{"untill": "5 steps"}])
ringpack.Loader(corpus="c", stages=[{"weights": {"c": [1]}}])
ringpack.Loader(corpus="c", stages=[{"limits": {"c": {"max_epoch": 1}}}])
ringpack.Loader(corpus="c", stages=[{"limits": {"max_epochs": 1}}])
ringpack.Loader(corpus="c", stages=[{"without": {"c": 7}}])
ringpack.Loader(corpus="c", stages=[{"documents": {"c": 0.5}}])
ringpack.Loader(corpus="c", deal={"windows": 8})
ringpack.Loader(corpus="c", cost={"hiden": 4096})
ringpack.Loader(corpus="c", skip={"row": [7]})
ringpack.Loader(corpus="c", removed={"d": None})
ringpack.Loader(streams={"train": {"sead": 1}})
ringpack.Loader(streams={"train": {"ranks": "0-3"}})
ringpack.Loader(streams={"train": {"corpus": {"weigth": 1}}})
"""


def check_types(folder, path, *options):
    """Lines with an error, as mypy finds them: [(line, text)]."""
    environment = {**os.environ, "MYPYPATH": str(ROOT / "tools" / "python")}
    command = [sys.executable, "-m", "mypy", "--cache-dir", os.devnull, *options, path]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return [(int(line), text) for line, text in re.findall(r":(\d+): error: (.*)", done.stdout)]


# The worker of `convert` is a program that imports users' packages; its types are not strict.
MYPY_INI = """
[mypy]
[mypy-ringpack._convert.*]
check_untyped_defs = False
disallow_untyped_defs = False
disallow_incomplete_defs = False
disallow_untyped_calls = False
disallow_any_generics = False
disallow_subclassing_any = False
"""


def test_types(tmp_path):
    """A user's program is typed to the last; the wrong lines, and no others, are found."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("needs mypy")
    user = tmp_path / "user.py"
    user.write_text(USER + WRONG + WRONG_NESTED)
    errors = check_types(tmp_path, user, "--strict", "--follow-imports=silent")
    last = len((USER + WRONG).splitlines())
    nested = range(last + 2, last + 1 + len(WRONG_NESTED.splitlines()))
    wrong = [line for line, _ in sorted(errors)]
    assert wrong == [*3 * [last - 1], *3 * [last], *nested], errors
    settings = MYPY_INI
    if not LONG:  # they take a minute, and few of their types are used
        settings += "[mypy-torch.*,transformers.*,jax.*]\nfollow_imports = skip\n"
    (tmp_path / "mypy.ini").write_text(settings)
    options = ["--strict", "--allow-subclassing-any", "--config-file", tmp_path / "mypy.ini"]
    assert check_types(tmp_path, ROOT / "tools" / "python" / "ringpack", *options) == []


def verify_types(package, place):
    """pyright's count of the public names of a package: (all, those without a type)."""
    apart = ROOT / "build" / "venv" / "long"
    if not (apart / "basedpyright").is_dir():
        pytest.skip("needs basedpyright: RP_LONG=1 tools/setup")
    command = [sys.executable, "-m", "basedpyright", "--verifytypes", package, "--ignoreexternal"]
    environment = {**os.environ, "PYTHONPATH": f"{place}:{apart}"}
    done = subprocess.run([*command, "--outputjson"], env=environment, stdout=subprocess.PIPE)
    counts = json.loads(done.stdout)["typeCompleteness"]["exportedSymbolCounts"]
    return sum(counts.values()), counts["withAmbiguousType"] + counts["withUnknownType"]


@pytest.mark.skipif(not LONG, reason="RP_LONG")
def test_every_public_name_has_a_type(tmp_path):
    count, untyped = verify_types("ringpack", ROOT / "tools" / "python")
    assert count > 100 and untyped == 0
    control = tmp_path / "control"
    control.mkdir()
    (control / "__init__.py").write_text("def known(a: int) -> int: ...\ndef unknown(a): ...\n")
    (control / "py.typed").touch()
    assert verify_types("control", tmp_path)[1] == 1
