# SPDX-License-Identifier: Apache-2.0
"""Arguments of a Loader that are checked, or completed, before anything starts."""

import contextlib
import operator
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Optional, Union

from ._views import KINDS, import_jax, import_torch
from .errors import UsageError

if TYPE_CHECKING:
    from ._options import SourceOptions

FilePath = Union[str, "os.PathLike[str]"]
Source = Union[FilePath, "SourceOptions"]
# any iterable at run time; but a mapping is one, so a misspelt key would be none of a Source
Corpus = Union[Source, Sequence[Source], Set[Source], Iterator[Source]]
"""Loader(corpus=...): the path of a source, the keys of a source, or several of them."""


def hidden(text: str) -> str:
    """A text for a message, without the rights in its URLs. A query has no known end, so the text
    after it is left out."""
    text = re.sub(r"(?i)(https?://)[^/?#\s]*@", r"\1***@", text)
    return re.sub(r"(?is)(https?://[^?]*\?).*", r"\1***", text)


def option_text(value: Any) -> str:
    """A config value as the program reads it: mappings as JSON, which is YAML."""
    if is_flag(value):
        return "true" if value else "false"
    is_list = isinstance(value, (Set, Sequence)) and not isinstance(value, (str, bytes))
    if isinstance(value, Mapping) or (is_list and any(isinstance(x, Mapping) for x in value)):
        import json

        return json.dumps(plain(value), default=option_text, ensure_ascii=False)
    if is_list:
        return ",".join(option_text(item) for item in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def has_right(value: Any) -> bool:
    """Whether there is a URL in it that may carry a right: in its query, or as a password."""
    return value is not None and bool(re.search(r"(?i)https?://.*[?@]", option_text(value), re.S))


_LIBRARIES = {"datasets", "torch", "pandas", "polars", "pyarrow", "webdataset"}


def refuse_data(corpus: Any) -> None:
    """Refuse objects and lists that hold rows, because a Loader takes paths of files."""
    kind = type(corpus)
    name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    if isinstance(corpus, (list, tuple)) and corpus:
        refuse_data(corpus[0])
    elif kind.__module__.partition(".")[0] in _LIBRARIES and not isinstance(corpus, str):
        raise UsageError(
            f"corpus is a {name}: expected the path of files, which the engine reads",
            'dataset.save_to_disk("corpus"), then Loader(corpus="corpus"), where it has a column '
            "of ids; text, and all else, is written to files for `ringpack convert`",
        )
    elif isinstance(corpus, Mapping) and not {"path", "shards"} & set(corpus):
        raise UsageError(
            f"corpus is a mapping of {', '.join(map(str, corpus))}: a source has a path, or shards",
            'Loader(corpus={"path": "corpus", "weight": 2}); rows of data go into files, for '
            "`ringpack convert`",
        )


def plain(value: Any) -> Any:
    """Mappings and sequences of any kind, as OmegaConf has its own, as dicts and lists."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(item) for item in value]
    return value


def refused(name: str, value: Any, expected: str, kind: type[Exception] = TypeError) -> Exception:
    return kind(f"{name} is {hidden(repr(value))}: expected {expected}")


def whole(name: str, value: Any) -> Optional[int]:
    """None, or a number that is whole, whosever type it has."""
    try:
        if not is_flag(value):
            return None if value is None else operator.index(value)
    except TypeError:
        pass
    raise refused(name, value, "a whole number")


def is_flag(value: Any) -> bool:
    kind = type(value)
    return kind is bool or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"))


def check_form(return_type: str, pin_memory: Optional[bool] = None) -> None:
    if return_type not in KINDS:
        raise ValueError(f"return_type is {return_type!r}: expected one of {', '.join(KINDS)}")
    if return_type == "jax":
        import_jax()
    if pin_memory and return_type != "torch":
        raise ValueError("pin_memory=True needs return_type='torch'")


def check_device(given: Any, return_type: str, copy: Optional[bool], static: bool) -> Any:
    """The torch.device that is given, or None. ValueError: none that batches are copied to."""
    if given is None:
        if static:
            raise ValueError("static=True needs device, whose memory it uses again")
        return None
    if return_type != "torch":
        raise ValueError(f"device={given!r} needs return_type='torch'")
    if copy is False:
        raise ValueError("copy=False gives views of the ring, and device= copies on a device")
    if static and copy:
        raise ValueError("copy=True gives tensors that last, and static=True the same ones again")
    try:
        device = import_torch().device(str(given) if is_flag(given) else given)  # True is no 1
    except (RuntimeError, TypeError) as failure:
        raise ValueError(f"device is {given!r}: {failure}") from None
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device is {given!r}: expected 'cuda', 'cuda:N' or 'cpu'")
    return device


def suggestion(name: str, known: Iterable[str]) -> str:
    """The nearest known name, as the end of a sentence."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


PARAMETERS: dict[str, Any] = {}
"""Keyword parameters of a Loader and their defaults. loader.py, which imports this, adds them."""


def check_needs_no_engine(start_engine: Optional[bool], options: Mapping[str, Any]) -> None:
    """Refuse arguments of an engine to a loader that only attaches."""
    if start_engine:
        raise UsageError("start_engine=True needs config or corpus", "Loader('config.yaml')")
    for name, value in options.items():
        if name in PARAMETERS:
            raise TypeError(f"{name}={value!r}: only an engine that starts here takes it")
        raise TypeError(
            f"{name}: no parameter of Loader (keys of the config need `config` or "
            f"`corpus`){suggestion(name, PARAMETERS)}"
        )


def take_newer(older: str, name: str, arguments: dict[str, Any]) -> Any:
    """The value of an argument of a Loader, which may be among its options by its older name: then
    it moves. TypeError if it is given by both."""
    options = arguments["options"]
    if older in options:
        if arguments[name] is not None:
            raise TypeError(f"{name} and {older}, its older name, are both given")
        text = f"`{older}` is now `{name}`; the next version does not read the older name"
        warnings.warn(text, FutureWarning, stacklevel=3)
        arguments[name] = options.pop(older)
    return arguments[name]


_OLDER_KEYS = {"window": ("packing_buffer", "open_bins"), "lanes": ("plan_partitions",)}


def tell_older_keys(options: Mapping[str, Any]) -> None:
    """Warn of options with an older name, which the engine reads: with two newer names, the packing
    decides which is meant. TypeError if such a one is also given. Another stream of a loader has
    its options, which are told already."""
    for older, names in _OLDER_KEYS.items():
        if options.get(older) is None or "stream" in options:
            continue
        for name in names:
            if options.get(name) is not None:
                raise TypeError(f"{name} and {older}, its older name, are both given")
        text = f"`{older}` is now `{'` or `'.join(names)}`; the next version does not read it"
        warnings.warn(text, FutureWarning, stacklevel=4)


def monitor_of(word: Optional[str]) -> int:
    """enum rp_monitor."""
    words = ["raise", "count", None]
    if word not in words:
        raise ValueError(f"monitor is {word!r}: expected 'raise', 'count' or None")
    return words.index(word)


def digest_file(
    folder: Optional[FilePath], steps: int, rank: int, world: int
) -> dict[str, Union[str, int, None]]:
    """Options of the file of digests of a rank: in a folder, which is made; None: none."""
    if folder is None:
        if steps != PARAMETERS["digest_steps"]:
            raise UsageError(f"digest_steps={steps} needs digest_log", "digest_log='digests'")
        return {"digest_log": None, "digest_steps": 0}
    path = os.path.abspath(os.path.join(folder, f"rank-{rank:05}-of-{world:05}.jsonl"))
    return {"digest_log": path, "digest_steps": steps}


def working_folder() -> Optional[str]:
    """Where relative paths begin, also for an engine that is started after a chdir; None where it
    has been removed."""
    with contextlib.suppress(OSError):
        return os.getcwd()
    return None
