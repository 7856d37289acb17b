# SPDX-License-Identifier: Apache-2.0
"""The types of the arguments of a Loader and a Replay: a wrong one is refused by name when the
object is made, and not by the process or the call that would first need it.

TypeError: the type is wrong; UsageError, a ValueError: the number is out of range. Numbers and
flags of numpy become Python's. The engine checks the words of its keys.
"""

import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, ForwardRef, Literal, Optional, SupportsIndex, Union, get_args, get_origin

from ._arguments import is_flag, refused, whole
from .errors import UsageError

_COUNT_MAX = 2**32 - 1  # numbers of ranks, rows and tokens have 32 bits in the library
Check = Callable[[str, Any], Any]


def _flag(name: str, value: Any) -> bool:
    if not is_flag(value):
        raise refused(name, value, "True or False")
    return bool(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise refused(name, value, "text")
    return value


def _path(name: str, value: Any) -> Any:
    if isinstance(value, os.PathLike):
        _path(name, os.fspath(value))
    elif not isinstance(value, str) or not value or "\0" in value:
        raise refused(name, value, "a path")
    return value


def _number_from(least: int, what: str = "", or_text: bool = False) -> Check:
    def check(name: str, value: Any) -> Optional[int]:
        if or_text and isinstance(value, str):
            value = _number_in(name, value)
        number = whole(name, value)
        if number is not None and not least <= number <= _COUNT_MAX:
            below = f"{least} or more{what}" if number < least else f"at most {_COUNT_MAX}"
            raise UsageError(f"{name} is {number}: expected {below}")
        return number

    return check


def _number_in(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise refused(name, text, "a whole number") from None


def seconds(name: str, value: Any, least: float = 0.0) -> float:
    try:
        if is_flag(value) or isinstance(value, (str, bytes)):
            raise TypeError
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise refused(name, value, "a number of seconds") from None
    if not found >= least:
        raise refused(name, value, "0 seconds or more", UsageError)
    return found


def _config(name: str, value: Any) -> Any:
    """_commands.py refuses other types, with what may have been meant."""
    return _path(name, value) if isinstance(value, (str, os.PathLike)) else value


def _corpus(name: str, value: Any) -> Any:
    """A list of what can be read only once: streams, skip() and pickle need it again."""
    return list(value) if isinstance(value, Iterator) else value


_FLAGS = "flat pin_memory copy static restart start_engine".split()
_TEXTS = "run cp_split profile return_type label_dtype monitor".split()
_PATHS = "run_dir digest_log program".split()
_RANKS = "dp_rank replica cp_rank".split()  # may be text out of os.environ, and so the next three
_SIZES = "dp_world_size consumers_per_rank cp_size".split()
_SECONDS = "start_timeout connect_timeout restart_timeout".split()
_CHECKS: dict[str, Check] = {
    **dict.fromkeys(_FLAGS, _flag),
    **dict.fromkeys(_TEXTS, _text),
    **dict.fromkeys(_PATHS, _path),
    **dict.fromkeys(_RANKS, _number_from(0, or_text=True)),
    **dict.fromkeys(_SIZES, _number_from(1, or_text=True)),
    **dict.fromkeys(_SECONDS, seconds),
    "seq_len": _number_from(1),
    "batch_size": _number_from(1),
    "keep": _number_from(1),
    "look_ahead": _number_from(0),
    "digest_steps": _number_from(1),
    "mtp": _number_from(1, " labels for each token"),
    "ignore_index": whole,
    "config": _config,
    "corpus": _corpus,
}
_REQUIRED = {"return_type", "flat", "static", "keep", "start_timeout", "digest_steps"}


def checked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor by name, `options` among them; without `self`."""
    made = {name: value for name, value in arguments.items() if name != "self"}
    for name, value in made.items():
        if name in _CHECKS and (value is not None or name in _REQUIRED):
            found = _CHECKS[name](name, value)
            if found is None:
                raise refused(name, value, "a number")
            made[name] = found
    made["options"] = checked_options(made["options"])
    return made


# ---- options -------------------------------------------------------------------------------------


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse values that no text of a config stands for. Unknown names are the engine's."""
    from ._options import Options  # here: it takes as long as the rest of the package

    types = Options.__annotations__
    for name, value in options.items():
        expected: list[str] = []
        if name in types and value is not None and not _fits(value, types[name], expected):
            found = refused(name, value, " or ".join(dict.fromkeys(expected)))
            raise TypeError(f"{found} (`ringpack config keys` has the values of every key)")
    return {name: _plain(value) for name, value in options.items()}


def _plain(value: Any) -> Any:
    """Flags and whole numbers of other libraries, and whole floats, as Python's own."""
    if is_flag(value):
        return bool(value)
    return int(value) if not isinstance(value, str) and _is_whole(value) else value


def _is_whole(value: Any) -> bool:
    """Also 1e9, as programs print numbers."""
    if is_flag(value):
        return False
    try:
        operator.index(value)
    except TypeError:
        is_integer = getattr(value, "is_integer", None)  # floats have it, also numpy's
        return callable(is_integer) and bool(is_integer())
    return True


def _fits(value: Any, kind: Any, expected: list[str]) -> bool:
    """Whether a value has a type of _options.py; texts have all of them. Adds the type's name."""
    if get_origin(kind) is Union:
        return any([_fits(value, one, expected) for one in get_args(kind)])
    if isinstance(value, str):
        expected.append("text without a zero byte")
        return "\0" not in value
    origin = get_origin(kind) or kind
    if kind is bool:
        expected.append("True or False")
        return is_flag(value) or (_is_whole(value) and int(value) in (0, 1))
    if kind is SupportsIndex:
        expected.append("a whole number")
        return _is_whole(value)
    if origin is os.PathLike or isinstance(kind, ForwardRef):
        expected.append("a path")
        return isinstance(value, os.PathLike)
    if origin in (Sequence, Mapping) or hasattr(kind, "__total__"):
        is_mapping = origin is not Sequence
        expected.append("a mapping" if is_mapping else "a list")
        wanted: Any = Mapping if is_mapping else (Sequence, Set)
        return isinstance(value, wanted) and not isinstance(value, (bytes, bytearray))
    expected += get_args(kind) if origin is Literal else ["text"]
    return False
