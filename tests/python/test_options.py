# SPDX-License-Identifier: Apache-2.0
"""The options of a Loader, as editors and type checkers know them, are the keys of the engine."""

import importlib.util
import inspect
import json
import re
import subprocess
from importlib.machinery import SourceFileLoader
from types import MappingProxyType

import pytest
from conftest import ROOT
from stream_oracle import SIZE_KEYS

import ringpack
from ringpack import _options
from ringpack._commands import engine_command

FOLDER = ROOT / "tools" / "python"


@pytest.fixture(scope="module")
def make_options():
    loader = SourceFileLoader("make_options", str(FOLDER / "make_options"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def keys(program):
    command = [program, "config", "keys"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_options_are_the_keys_of_the_engine(program, make_options, keys):
    """Each key is an option or a parameter, and has the type of the engine's table."""
    text = (FOLDER / "ringpack" / "_options.py").read_text()
    assert make_options.options_text(keys) == text, "tools/python/make_options writes it again"
    names = set(re.findall(r"^  (\w+) ", keys.split("KEYS OF A SOURCE")[0], re.M)) - {"sources"}
    parameters = inspect.signature(ringpack.Loader).parameters.keys()
    serve = {"accept_weights", "fresh", "state", "start_step", "base_row"}
    assert _options.Options.__annotations__.keys() == (names - parameters) | serve
    command = [program, "help", "serve"]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert all(f"--{name.replace('_', '-')}" in text for name in serve)


@pytest.mark.parametrize(
    "was, to",
    [
        ("  seed  ", "  seeds "),
        ("none|document|block", "none|document|blocks"),
        ("  until  ", "  untill "),
        ("  tier  ", "  tire  "),
        ("  kv_heads  ", "  kv_head  "),
        ("times that it is read\n", "times that it was read\n"),
        ("mapping of sources to limits", "mapping of sources to weights"),
        ("  drop_untrained  ", "  drop_unmasked  "),
        ("true | false", "number"),
        ("(not declared); may change", "(not declared); must not change"),
    ],
)
def test_another_table_has_other_options(make_options, keys, was, to):
    """The control: a key with another name, word, type or rule of resume."""
    assert was in keys
    other = make_options.options_text(keys.replace(was, to, 1))
    assert other != make_options.options_text(keys)


def refusal(program, folder, keys):
    """What the engine says of a config; empty: it takes it."""
    path = folder / "run.yaml"
    path.write_text(json.dumps({"seq_len": 8, "batch_size": 1, "sources": ["a"], **keys}))
    command = [program, "config", "show", "-c", path]
    return subprocess.run(command, capture_output=True, text=True).stderr


def test_keys_without_a_table_are_those_of_the_engine(program, tmp_path):
    """`skip` has two, and streams have all but a few: make_options names these."""
    assert _options.SkipOptions.__annotations__.keys() == {"rows", "steps"}
    for name in "rows", "steps":
        assert refusal(program, tmp_path, {"skip": {name: ["1-2"]}}) == ""
    assert "`rows` and `steps`" in refusal(program, tmp_path, {"skip": {"batches": [1]}})
    values = {"run": "a", "run_dir": "a", "dp_world_size": 2, "consumers_per_rank": 2}
    common = {"ranks": "0-1", "streams": {"b": {}}, "stream": "a", "log_format": "text"}
    assert _options.CommonOptions.__annotations__.keys() == common.keys()
    own = dict.fromkeys(_options.OneStreamOptions.__annotations__, 1)
    for name, value in {**values, **common, **own}.items():
        said = refusal(program, tmp_path, {"streams": {"one": {name: value}}})
        assert ("all streams have it in common" in said) == (name not in own), (name, said)
        assert "unknown key" not in said


@pytest.mark.parametrize("packing, name", SIZE_KEYS.items())
def test_the_older_name_of_sizes_of_packings_is_read(corpora, folder, packing, name):
    """Also by a state: `window` and the newer name are one field of the contract."""
    keys = dict(corpus=corpora[0], seq_len=48, batch_size=3, run_dir=folder, packing=packing)
    with pytest.warns(FutureWarning, match=f"`window` is now .*`{name}`"):
        loader = ringpack.Loader(**keys, window=5)
    with loader:
        next(loader)
        token = loader.state_dict()
    with ringpack.Loader(**keys, **{name: 5}) as loader:
        loader.load_state_dict(token)
        assert next(loader).first_row == 3
    for newer in "packing_buffer", "open_bins":
        with pytest.raises(TypeError, match=f"{newer} and window, its older name"):
            ringpack.Loader("c.yaml", window=5, **{newer: 5})


def test_the_older_name_of_plan_partitions_is_read(corpora, folder):
    keys = dict(corpus=corpora[0], seq_len=48, batch_size=3, run_dir=folder, stream_version=1)
    with pytest.warns(FutureWarning, match="`lanes` is now `plan_partitions`"):
        loader = ringpack.Loader(**keys, lanes=2)
    with loader:
        next(loader)
        assert "lanes=2\n" in loader.contract()
    with pytest.raises(TypeError, match="plan_partitions and lanes, its older name"):
        ringpack.Loader(**keys, lanes=2, plan_partitions=2)


def test_mappings_and_lists_of_them_are_options(program):
    """Nested keys reach the engine as they would from a file."""
    keys = {
        "stream_version": 2,
        "stages": (
            {"until": "5 steps"},
            MappingProxyType({"weights": {"é": 0.5, "b": 2}, "ramp": 8}),
        ),
        "skip": {"rows": [3, "8-9"]},
        "deal": "off",
    }
    arguments, text = engine_command(None, None, keys)
    assert text is None
    command = [program, "config", "show", "--json", *arguments]
    shown = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    stages = ["{until: 5 steps}", '{weights: {"é": 0.5, b: 2}, ramp: 8}']
    assert shown["stages"]["value"] == stages
    assert shown["skip"]["value"] == "{rows: [3, 8]}"
    assert shown["deal"]["value"] == "off"
