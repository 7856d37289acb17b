# SPDX-License-Identifier: Apache-2.0
"""The Python package as a page, from its signatures and docstrings."""

import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

MODULES = ("ringpack", "ringpack.profiles", "ringpack.callbacks")


def page():
    parts = ["# The Python package\n\n`pip install` brings it; `import ringpack` needs numpy only "
             "when a batch is read.\n"]
    for name in MODULES:
        module = importlib.import_module(name)
        parts.append(f"## {name}\n\n{markdown(module.__doc__)}\n")
        parts += [described(name, member) for name, member in members(module)]
    return "\n".join(parts)


def members(module):
    """The public names that a module has, or says it has."""
    names = getattr(module, "__all__", None)
    if names is None:
        own = inspect.getmembers(module, lambda value: inspect.getmodule(value) is module)
        names = [name for name, value in own if not name.startswith("_") and callable(value)]
    return [(name, getattr(module, name)) for name in names]


def described(name, value, depth=3):
    heading = f"{'#' * depth} `{name}`\n"
    parts = [heading]
    if inspect.isclass(value):
        parts.append(signature(f"class {name}", value))
        parts.append(markdown(inspect.getdoc(value)) + "\n")
        if not issubclass(value, BaseException):
            parts += [described(method, found, depth + 1) for method, found in methods(value)]
    elif inspect.isfunction(value):
        parts += [signature(f"def {name}", value), markdown(inspect.getdoc(value)) + "\n"]
    else:
        parts.append(markdown(inspect.getdoc(value)) + "\n")
    return "\n".join(parts)


def methods(kind):
    """Methods and properties of its own that have a docstring."""
    for name, value in vars(kind).items():
        if not name.startswith("_") and inspect.getdoc(value) and not inspect.isclass(value):
            if inspect.isroutine(value) or isinstance(value, (property, classmethod, staticmethod)):
                yield name, value


def signature(begin, value):
    try:
        told = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [
        str(parameter).replace("ringpack.", "").replace("typing.", "")
        for name, parameter in told.parameters.items()
        if name != "self"
    ]
    result = told.return_annotation
    back = "" if result is inspect.Signature.empty or begin.startswith("class") else result
    back = f" -> {getattr(back, '__name__', None) or back}" if back != "" else ""
    line = f"{begin}({', '.join(parameters)}){back}"
    if len(line) > 88:
        inner = "".join(f"    {parameter},\n" for parameter in parameters)
        line = f"{begin}(\n{inner}){back}"
    return f"```python\n{line}\n```\n"


def markdown(text):
    """A docstring as Markdown: its code, tables and lists of parameters."""
    text = textwrap.dedent(text or "").strip().replace("``", "`")
    text = re.sub(r"^Parameters\n-+\n(.*?)(?=\n\n|\Z)", parameters, text, flags=re.M | re.S)
    return re.sub(r"^=+( =+)+\n.*?^=+( =+)+$", r"```text\n\g<0>\n```", text, flags=re.M | re.S)


def parameters(found):
    """`name: meaning`, with more lines indented."""
    items = re.sub(r"^([a-z_, ]+): ", lambda name: f"* `{name[1]}`: ", found[1], flags=re.M)
    return f"**Parameters**\n\n{items}"
