# SPDX-License-Identifier: Apache-2.0
"""`ringpack calibrate` starts this script, after it has checked the options."""

import argparse
import json
import os
import re
import sys
import types
from typing import Any, NoReturn, Optional

if not __package__:
    # As in _convert/worker.py: no module of this folder hides another one.
    _package = types.ModuleType("ringpack_calibrate")
    _package.__path__ = [os.path.dirname(os.path.realpath(__file__))]
    sys.path[:1] = [place for place in sys.path[:1] if place not in _package.__path__]
    sys.modules[_package.__name__] = _package
    __package__ = _package.__name__

from .block import Shape, check_shape
from .measuring import Calibration, calibrate, fit_held_in
from .rows import Refused, Row

_SAFE = "no file was written"
_WINDOW_KEYS = ("attention_window", "window_layers", "layers")


def _fail(name: str, message: str, hint: str) -> NoReturn:
    print(f"ringpack: error RP_E_{name}: {message}\n  next: {hint}", file=sys.stderr)
    sys.exit(2)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    for name in ("hidden", "ffn", "heads", "kv-heads", "head-dim", "tokens", "seconds"):
        parser.add_argument(f"--{name}", type=int)
    for name in _WINDOW_KEYS:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    for name in ("device", "dtype", "times", "write"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


# ---- the key -------------------------------------------------------------------------------------


def key_of(k: float, windows: dict[str, int]) -> str:
    """The line of a config."""
    whole = max(1, round(k))
    if not windows:
        return f"cost: {whole}"
    return "cost: {" + ", ".join(f"{n}: {v}" for n, v in {"k": whole, **windows}.items()) + "}"


def with_key(text: str, key: str, path: str) -> str:
    """A config with this line in place of its own, or with one more line."""
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        if not re.match(r"cost\s*:", line):
            continue
        own = re.fullmatch(r"cost\s*:\s*(?:\d+|\{[^{}]*\})(\s*(?:#.*)?)", line.rstrip("\n"))
        if own is None:
            raise Refused(
                f"{path}, line {number}: `cost` is not on one line", f"put `{key}` in its place"
            )
        lines[number - 1] = key + own[1] + "\n"
        return "".join(lines)
    first = next((line for line in lines if line.strip() and line[0] not in "#%"), "")
    if first.startswith(("{", "[")):
        raise Refused(f"{path} is one mapping in braces", f"put `{key}` into it")
    return text + ("" if not text or text.endswith("\n") else "\n") + key + "\n"


def write_key(path: str, key: str) -> None:
    """A reader sees the file before or after."""
    place, text = os.path.realpath(path), ""
    try:
        mode = os.stat(place).st_mode & 0o7777
        with open(place, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        mode = 0o666 & ~_umask()
    changed = with_key(text, key, path)
    beside = f"{place}.{os.getpid()}.new"
    try:
        with open(beside, "x", encoding="utf-8") as file:
            file.write(changed)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, mode)
        os.replace(beside, place)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise


def _umask() -> int:
    own = os.umask(0)
    os.umask(own)
    return own


# ---- times of a job ------------------------------------------------------------------------------


def read_times(path: str, window: int) -> tuple[list[Row], list[float]]:
    """Lines of {"lengths": [tokens of each document], "seconds": S}; every fourth is held out."""
    rows: list[Row] = []
    seconds: list[float] = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                given = json.loads(line)
                lengths, took = given["lengths"], float(given["seconds"])
                is_good = bool(lengths) and all(type(n) is int and n > 0 for n in lengths)
            except (ValueError, KeyError, TypeError):
                lengths, took, is_good = (), 0.0, False
            if not is_good or not 0 < took < 1e6:
                found = line[:60].strip()
                raise Refused(
                    f"{path}, line {number}: expected a row and its time, found `{found}`",
                    'a line is {"lengths": [512, 4096], "seconds": 0.125}',
                )
            name = f"line {number}: {len(lengths)} documents"
            rows.append(Row(name, tuple(lengths), window, len(rows) % 4 == 3))
            seconds.append(took)
    if len(rows) < 4:
        raise Refused(f"{path}: expected 4 rows or more, found {len(rows)}", "give more rows")
    return rows, seconds


# ---- the command ---------------------------------------------------------------------------------


def _torch() -> Any:
    try:
        import torch
    except ImportError as failure:
        raise Refused(
            f"torch cannot be imported by {sys.executable}: {failure}",
            "RINGPACK_PYTHON=PYTHON ringpack calibrate …, with the Python that trains; or give "
            "times of your own: --times",
        ) from None
    return torch


def _measure(given: argparse.Namespace) -> Calibration:
    shape = Shape(
        given.hidden,
        given.ffn,
        given.heads,
        given.kv_heads or given.heads,
        given.head_dim or given.hidden // given.heads,
    )
    check_shape(shape)
    torch = _torch()
    device = given.device if given.device != "auto" else ""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise Refused("torch finds no GPU here", "--device=cpu, or run this on the GPU that trains")
    names = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    dtype = names.get(given.dtype, torch.float32 if device == "cpu" else torch.bfloat16)
    print(f"timing rows for about {given.seconds} s", file=sys.stderr, flush=True)
    window = given.attention_window or 0
    return calibrate(torch, shape, device, dtype, given.tokens, window, given.seconds)


def _print(found: Calibration, key: str, is_json: bool) -> None:
    if is_json:
        print(json.dumps({"key": key, **found.as_json()}))
        return
    errors = found.fit.errors(found.rows, found.seconds)
    print(f"{found.device}; {found.attention}; rows of {found.tokens:,} tokens")
    print(f"{'documents x tokens':32s}{'measured':>12s}{'fitted':>12s}{'error':>9s}")
    pairs = zip(found.rows, found.seconds, errors)
    for row, seconds, error in sorted(pairs, key=lambda pair: pair[0].is_held_out):
        name = row.name + (f", window {row.window:,}" if row.window else "")
        cells = f"{seconds * 1e3:9.2f} ms{found.fit.seconds(row) * 1e3:9.2f} ms{error:+9.1%}"
        print(f"{name:32s}{cells}{'  held out' if row.is_held_out else ''}")
    held_out = found.held_out()
    print(
        f"a document of l tokens costs l * ({max(1, round(found.fit.k)):,} + l)\n"
        f"rows that were held out: error {held_out[len(held_out) // 2]:.1%} (median), "
        f"{held_out[-1]:.1%} (worst)"
    )
    if held_out[-1] > 0.15:
        print("the fit is poor: end other work on this device, and measure again")
    print(key)


def _run(given: argparse.Namespace) -> None:
    windows = {name: getattr(given, name) for name in _WINDOW_KEYS if getattr(given, name)}
    if given.times is not None:
        rows, seconds = read_times(given.times, given.attention_window or 0)
        fitted, most = fit_held_in(rows, seconds), max(row.tokens for row in rows)
        found = Calibration(f"times of {given.times}", "as timed", most, rows, seconds, fitted)
    else:
        found = _measure(given)
    key = key_of(found.fit.k, windows)
    if given.write is not None:
        write_key(given.write, key)
    _print(found, key, given.json)


def main() -> None:
    path: Optional[str] = None
    try:
        given = _arguments()
        _run(given)
    except KeyboardInterrupt:
        _fail("STOPPED", f"interrupted; {_SAFE}", "run the command again")
    except Refused as failure:
        _fail("USAGE", str(failure), failure.hint)
    except OSError as failure:
        path = str(failure.filename or "a file")
        _fail("USAGE", f"{path}: {failure.strerror}", f"{_SAFE}; name another file")
    except (RuntimeError, MemoryError) as failure:  # torch reports a lack of memory so
        message = str(failure).strip().split("\n")[0] or "out of memory"
        _fail("RESOURCE", f"the measurement failed: {message}", "shorter rows: --tokens")


if __name__ == "__main__":
    main()
