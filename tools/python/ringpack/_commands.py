# SPDX-License-Identifier: Apache-2.0
"""The command line of an engine, and the text of its config, from the arguments of a Loader.

A right in a URL (its query, a password) goes into the text, which only the engine reads, and never
onto the command line, which every user of the machine can read.

Functions import json: at the top of the file it would slow `import ringpack`.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from ._arguments import Corpus, FilePath, Source, has_right, hidden, option_text, plain
from ._arguments import refuse_data, whole
from .errors import UsageError

Command = tuple[list[str], Optional[str]]
"""Arguments of the program, and the text of a config that has no file."""
ServeCommand = tuple[list[str], Optional[str], list[str]]
"""Arguments of `serve`, and the additional ones of its first start."""

_CORPORA = (".bin", ".idx", ".npy", ".jsonl", ".json.gz", ".parquet", ".arrow", ".txt")


def engine_command(
    config: Optional[FilePath], corpus: Optional[Corpus], keys: Mapping[str, Any]
) -> Command:
    """Arguments of `ringpack serve`, and the text of its config where options do not suffice."""
    if config is not None and corpus is not None:
        raise UsageError(
            "config and corpus were both given", "put the sources into the config, or give options"
        )
    if not isinstance(config, (str, os.PathLike, type(None))):
        raise UsageError(
            f"config is of type {type(config).__name__}: expected the path of a YAML config",
            "the keys of a config are arguments as well: Loader(**config); sources go by name: "
            "Loader(corpus=...)",
        )
    arguments, text = ([], None) if corpus is None else _sources(corpus)
    if keys.get("streams") is not None:
        return _with_streams(config, text, arguments, keys)
    if config is not None:
        path = os.fspath(config)
        if path.endswith(_CORPORA) or os.path.isdir(config) or "://" in path:
            raise UsageError(
                f"config is {hidden(path)!r}, which is a corpus rather than a config",
                f"Loader(corpus={hidden(path)!r}, ...)",
            )
        arguments += ["-c", path]
    secret = {key: value for key, value in keys.items() if has_right(value)}
    if secret and config is not None:
        raise UsageError(
            f"{', '.join(secret)}: a URL with a query would be on the command line of the engine, "
            "where every user of this machine can read it",
            f"write it into {os.fspath(config)}",
        )
    if secret:
        text = _with_keys(text, arguments, secret)
        arguments = []
    for key, value in keys.items():
        if key == "alert_command":
            _check_words(value)
        if value is not None and key not in secret:
            arguments += ["--" + key.replace("_", "-"), option_text(value)]
    return arguments, text


def _check_words(command: Any) -> None:
    """An option has the words of a command with commas between them."""
    is_list = isinstance(command, (set, Sequence)) and not isinstance(command, (str, bytes))
    for word in command if is_list else []:
        if "," in option_text(word):
            raise UsageError(
                f"alert_command: {word!r}: a word of a command cannot contain a comma",
                "put it into a script",
            )


def _with_streams(
    config: Optional[FilePath],
    text: Optional[str],
    arguments: Sequence[str],
    keys: Mapping[str, Any],
) -> Command:
    """All keys in a text: an option would win over the keys of a stream."""
    if config is not None:
        raise UsageError(
            "config and streams were both given", f"write streams into {os.fspath(config)}"
        )
    streams = keys["streams"]
    if not isinstance(streams, Mapping) or not streams:
        raise UsageError(
            f"streams is {hidden(repr(streams))}: expected a mapping of names to keys",
            "streams={'train': {}, 'eval': {'corpus': 'held-out', 'num_epochs': 1}}",
        )
    made = {name: _absolute_stream(name, own) for name, own in streams.items()}
    given = {key: value for key, value in keys.items() if value is not None}
    return [], _with_keys(text, arguments, {**given, "streams": made})


def _absolute_stream(name: str, own: Any) -> Any:
    if not isinstance(own, Mapping):
        raise UsageError(
            f"stream {name} is {hidden(repr(own))}: expected a mapping of keys",
            f"streams={{'{name}': {{'num_epochs': 1}}}}",
        )
    made = dict(own)
    for key in {"corpus", "sources"} & set(made):
        refuse_data(made[key])
        one = isinstance(made[key], (str, os.PathLike, Mapping))
        sources = [made[key]] if one else list(made[key])
        made[key] = [_absolute(source) for source in sources]
    return made


def _with_keys(text: Optional[str], arguments: Sequence[str], keys: Mapping[str, Any]) -> str:
    """The text of a config of the corpus and of keys that are not to be on a command line."""
    import json

    described = json.loads(text) if text else {}
    if arguments:  # from _sources: --source PATH ...
        described["sources"] = [_absolute_path(path) for path in arguments[1::2]]
    names = {key: {"source": "sources"}.get(key, key.replace("-", "_")) for key in keys}
    described.update({names[key]: plain(value) for key, value in keys.items()})
    return json.dumps(described, default=option_text)


def engine_commands(
    config: Optional[FilePath],
    corpus: Optional[Corpus],
    keys: Mapping[str, Any],
    options: Mapping[str, Any],
) -> tuple[Command, ServeCommand]:
    """engine_command for `plan`, and for `serve`, which takes some options besides the config; the
    options of its first start only come last."""
    options, arguments, once = dict(options), [], []
    for name in ("accept_weights", "fresh"):
        wanted = options.pop(name, None)
        if wanted not in (None, False, True):
            raise TypeError(f"{name} is {wanted!r}: expected True or False")
        arguments += ["--" + name.replace("_", "-")] if wanted else []
    state = options.pop("state", None)
    arguments += [] if state is None else ["--state", os.fspath(state)]
    for name in ("start_step", "base_row"):
        number = whole(name, options.pop(name, None))
        once += [] if number is None else [f"--{name.replace('_', '-')}={number}"]
    described, text = engine_command(config, corpus, {**keys, **options})
    return (described, text), ([*described, *arguments], text, once)


def _sources(corpus: Corpus) -> Command:
    """`corpus` as options, or as a config if a source says more than its path (a weight), has a
    comma in it, where an option ends, or a right, which others could read on a command line."""
    refuse_data(corpus)
    one = (str, os.PathLike, Mapping)
    sources: list[Any] = [corpus] if isinstance(corpus, one) else []
    if isinstance(corpus, Iterable) and not isinstance(corpus, (*one, bytes)):
        sources = list(corpus)
    if not sources or not all(isinstance(source, one) for source in sources):
        raise UsageError(
            "corpus: expected a path, a source (a mapping), or a list of these, found "
            + hidden(repr(corpus)),
            'Loader(corpus="corpus") or Loader(corpus=["a", {"path": "b", "weight": 2}])',
        )
    if not any(_needs_config(source) for source in sources):
        return [text for source in sources for text in ("--source", os.fspath(source))], None
    import json

    lines = [json.dumps(_absolute(source), default=option_text) for source in sources]
    return [], '{"sources": [%s]}' % ",\n".join(lines)  # JSON is YAML; errors have the line


def _needs_config(source: Source) -> bool:
    return isinstance(source, Mapping) or "," in os.fspath(source) or has_right(source)


def _absolute(source: Source) -> Any:
    """Paths in a config are relative to its folder, and this config is in none."""
    if not isinstance(source, Mapping):
        return _absolute_path(source)
    made: dict[str, Any] = plain(source)
    for key in {"path", "shards"} & made.keys():
        value = made[key]
        is_list = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
        made[key] = [_absolute_path(path) for path in value] if is_list else _absolute_path(value)
        if not made[key]:
            raise UsageError(f"corpus: {key} of a source is an empty list: expected paths")
    return made


def _absolute_path(path: FilePath) -> str:
    if not isinstance(path, (str, os.PathLike)) or "\0" in os.fspath(path):
        raise UsageError(
            f"corpus: a source has {hidden(repr(path))}: expected a path",
            'Loader(corpus={"path": "corpus", "weight": 2})',
        )
    text = os.fspath(path)
    return text if "://" in text else os.path.abspath(text)
