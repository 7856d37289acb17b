# SPDX-License-Identifier: Apache-2.0
"""Each argument of a Loader with each kind of value: taken as it is, or refused by its name when
the loader is made, in one sentence."""

import inspect
import math
import os
import re
from pathlib import Path

import numpy
import pytest
import ringpack
from ringpack import _checks

VALUES = {  # name -> value, and its kind
    "a number": (2, "whole"),
    "zero": (0, "whole"),
    "negative": (-1, "whole"),
    "beyond 32 bits": (2**32 + 1, "whole"),
    "beyond 64 bits": (2**70, "whole"),
    "numpy's number": (numpy.int64(2), "whole"),
    "numpy's byte": (numpy.uint8(2), "whole"),
    "true": (True, "flag"),
    "false": (False, "flag"),
    "numpy's flag": (numpy.bool_(True), "flag"),
    "text": ("x", "text"),
    "a number as text": ("2", "text"),
    "no text": ("", "text"),
    "a zero byte": ("a\0b", "broken text"),
    "a path": (Path("x"), "path"),
    "bytes": (b"x", "bytes"),
    "a fraction": (2.5, "float"),
    "a whole float": (2.0, "float"),
    "numpy's float": (numpy.float32(2.5), "float"),
    "NaN": (math.nan, "float"),
    "infinity": (math.inf, "float"),
    "a list": ([2], "list"),
    "an array": (numpy.array([1, 2]), "array"),
    "a mapping": ({"a": 1}, "mapping"),
    "an object": (object(), "object"),
}
PARAMETERS = [name for name in inspect.signature(ringpack.Loader).parameters if name != "options"]
WHOLE = set("seq_len batch_size keep look_ahead digest_steps mtp ignore_index".split())
KINDS = {  # parameter -> kinds of values that it may take
    **dict.fromkeys(_checks._FLAGS, {"flag"}),
    **dict.fromkeys(_checks._TEXTS, {"text"}),
    **dict.fromkeys(_checks._PATHS, {"text", "path"}),
    **dict.fromkeys([*_checks._RANKS, *_checks._SIZES], {"whole", "text"}),
    **dict.fromkeys(_checks._SECONDS, {"whole", "float"}),
    **dict.fromkeys(WHOLE, {"whole"}),
    "config": {"text", "path"},
    "corpus": {"text", "path", "broken text"},
    "device": {"whole", "text"},
}


def made(name, value, **others):
    """A loader with this argument, or the text of its refusal."""
    given = {"corpus": "c", "seq_len": 8, "batch_size": 1, **others}
    if name == "config":
        given = {}
        if isinstance(value, (str, Path)) and value and "\0" not in str(value):
            Path(value).write_text("{seq_len: 8, batch_size: 1}")
    if name in ("dp_rank", "dp_world_size"):
        given.update(dp_rank=1, dp_world_size=3)
    if name in ("replica", "consumers_per_rank"):
        given.update(dp_rank=0, dp_world_size=1, replica=1, consumers_per_rank=3)
    if name in ("cp_size", "cp_rank"):
        given.update(cp_size=2, cp_rank=1)
    try:
        return ringpack.Loader(**{**given, name: value}), None
    except (ringpack.RingpackError, TypeError, ValueError) as failure:
        return None, failure


def test_each_parameter_has_a_check():
    assert {*PARAMETERS} == KINDS.keys()


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("value", VALUES)
def test_values(program, name, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given, kind = VALUES[value]
    loader, failure = made(name, given)
    if failure is not None:
        said = str(failure)
        assert name in said and "Traceback" not in said, said
        own = isinstance(failure, (ringpack.RingpackError, ValueError))
        assert own or re.match(f"{name} is .*: expected ", said), said
    else:
        assert kind in KINDS[name], f"{given!r} was taken"
    is_count = name in {*WHOLE, *_checks._RANKS, *_checks._SIZES} - {"ignore_index"}
    if is_count and kind == "whole" and not 0 <= given < 2**32:
        assert failure is not None


def is_like(given, kind):
    """Whether a value is one of a kind of an option."""
    return given in {
        "number": {"whole", "float"}, "flag": {"flag"}, "path": {"path"}, "list": {"list"},
    }[kind]  # fmt: skip


@pytest.mark.parametrize("name", ["flat", "copy", "seq_len", "run", "start_timeout"])
def test_control_a_parameter_without_a_check_takes_anything(program, name, monkeypatch):
    monkeypatch.delitem(_checks._CHECKS, name)
    _, failure = made(name, Path("x") if name == "run" else b"x")
    assert failure is None or not re.match(f"{name} is .*: expected ", str(failure))


OPTIONS = {"seed": "number", "drop_last": "flag", "checkpoint_dir": "path", "columns": "list"}


@pytest.mark.parametrize("name", [*OPTIONS, "packing", "deal", "cost", "start_step", "state"])
@pytest.mark.parametrize("value", VALUES)
def test_values_of_options(program, name, value, tmp_path, monkeypatch):
    """A text is the engine's to read; any other value is refused here, unless it stands for one."""
    monkeypatch.chdir(tmp_path)
    given, kind = VALUES[value]
    loader, failure = made(name, given)
    if failure is not None:
        assert re.match(f"{name} is .*: expected ", str(failure)), failure
        assert kind != "text" or name == "start_step"
    elif kind != "text" and name in OPTIONS:
        is_bit = OPTIONS[name] == "flag" and kind in ("whole", "float") and given in (0, 1)
        assert is_like(kind, OPTIONS[name]) or is_bit, f"{given!r} was taken"
        assert kind != "float" or given == 2.0
    elif kind != "text":
        assert (name, kind) in {
            ("deal", "mapping"), ("cost", "mapping"), ("cost", "whole"), ("cost", "float"),
            ("start_step", "whole"), ("start_step", "float"), ("state", "path"),
        }, f"{given!r} was taken"  # fmt: skip


def test_numbers_of_numpy_are_pythons(program, tmp_path):
    """The engine, the library and the launcher's names get Python's numbers."""
    loader, _ = made("seq_len", numpy.int64(8), flat=numpy.bool_(True), dp_rank="1",
                     dp_world_size=numpy.uint8(2), drop_last=numpy.bool_(True))  # fmt: skip
    given = loader._given
    assert [type(x) for x in (given.seq_len, loader._flat, given.ranks.dp_rank)] == [int, bool, int]
    assert "true" in loader._config[0] and "True" not in loader._config[0]


@pytest.mark.parametrize(
    "key, value, text",
    [
        ("cpus", 0, "0"), ("cpus", range(2), "0,1"), ("cpus", [0, "2-3"], "0,2-3"),
        ("ranks", [0], "0"), ("grow", 0, "0"), ("drop_last", 1, "1"),
        ("sections", {"rows"}, "rows"), ("columns", frozenset(["a"]), "a"),
        ("seed", numpy.uint8(3), "3"), ("seed", 3.0, "3"),
    ],
)  # fmt: skip
def test_values_that_a_config_may_have(program, key, value, text):
    """yaml.safe_load gives numbers and lists where the options of the program are texts."""
    loader, failure = made(key, value)
    assert failure is None
    words = loader._config[0]
    assert words[words.index("--" + key.replace("_", "-")) + 1] == text


def test_flags_of_serve_are_numpys_too(program):
    for value in True, numpy.bool_(True), 1:
        assert "--fresh" in made("fresh", value)[0]._command[0]
    for value in False, numpy.bool_(False), None:
        assert "--fresh" not in made("fresh", value)[0]._command[0]


def test_the_words_of_a_key_are_named(program):
    """YAML 1.1 reads `off` as false."""
    for key in "o_direct", "shuffle":
        _, failure = made(key, False)
        assert isinstance(failure, TypeError) and "config keys" in str(failure)
    assert "expected auto or on or off" in str(made("o_direct", False)[1])
    assert "or endless" in str(made("num_epochs", float("inf"))[1])


@pytest.mark.parametrize(
    "keys, text",
    [
        ({"digest_steps": 7}, "digest_steps=7 needs digest_log"),
        ({"static": True}, "static=True needs device"),
        ({"device": "cpu"}, "needs return_type='torch'"),
        ({"pin_memory": True}, "pin_memory=True needs return_type='torch'"),
    ],
)
def test_an_argument_without_an_effect_is_refused(program, keys, text):
    _, failure = made("seed", 1, **keys)
    assert isinstance(failure, ValueError) and text in str(failure)


def test_a_corpus_that_is_read_once_stays(program, tmp_path):
    """Several streams, skip() and a process that unpickles the loader need it again."""
    paths = (os.fspath(tmp_path / name) for name in ("a", "b"))
    loader, _ = made("corpus", paths)
    assert loader._given.corpus == [f"{tmp_path}/a", f"{tmp_path}/b"]


@pytest.mark.parametrize("source", [{"path": None}, {"shards": 3}, {"shards": [None]}, {"path": 5}])
def test_sources_without_paths(program, source):
    _, failure = made("corpus", [source])
    assert isinstance(failure, ringpack.UsageError) and "corpus" in str(failure)


def test_a_path_is_one_shard(program, tmp_path):
    loader, _ = made("corpus", {"shards": tmp_path / "a", "weight": 2})
    assert f'"shards": "{tmp_path}/a"' in loader._config[1]
