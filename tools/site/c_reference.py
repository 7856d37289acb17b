# SPDX-License-Identifier: Apache-2.0
"""The C library as a page and as the manual page ringpack(3), from the comments of its headers:

    c_reference.py --manual VERSION    prints ringpack(3)
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

HEADERS = Path(__file__).resolve().parents[2] / "include" / "ringpack"
ORDER = ("client.h", "batch.h", "error.h")
# Lines for compilers only.
PLUMBING = re.compile(
    r"^(#(ifdef|endif|ifndef|include|undef).*|#define (RINGPACK_\w+_H|RP_API.*|RP_MUST_CHECK.*)"
    r'|extern "C" \{|\}|#define RP_ERROR_ENUM.*)$'
)
NAMED = re.compile(r"^(?:RP_API|static inline)\b.*?(\w+)\(|^(struct|enum) (\w+)|^#define (\w+)")


class Item(NamedTuple):
    """A declaration of a header, and the comment before it."""

    name: str
    comment: str
    code: str


def text_of(comment):
    """The text of a block comment, without its stars."""
    inner = re.sub(r"^/\*+|\*+/$", "", comment.strip())
    lines = [re.sub(r"^\s*\* ?", "", line) for line in inner.split("\n")]
    return "\n".join(lines).strip()


def name_of(code):
    found = NAMED.match(code)
    if not found:
        return ""
    function, kind, tag, macro = found.groups()
    return f"{function}()" if function else f"{kind} {tag}" if kind else macro


def declarations(body):
    """(comment, code) of each, in order; a comment before an empty line has no code."""
    lines, comment, code, depth = iter(body.split("\n")), "", [], 0
    for line in lines:
        if not code and line.startswith("/*"):
            if comment:
                yield comment, ""
            parts = [line]
            while not parts[-1].rstrip().endswith("*/"):
                parts.append(next(lines))
            comment = text_of("\n".join(parts))
            continue
        if not code and not line.strip():
            if comment:
                yield comment, ""
            comment = ""
            continue
        code.append(line)
        depth += line.count("{") - line.count("}")
        ends = line.rstrip().endswith((";", "}")) if not code[0].startswith("#") else True
        if depth == 0 and ends and not line.rstrip().endswith("\\"):
            yield comment, "\n".join(code)
            comment, code = "", []


def read(header):
    """The head comment of a header, and its items."""
    text = header.read_text().split("\n", 1)[1]  # after the licence
    head, body = text.split("*/", 1)
    kept = "\n".join(line for line in body.split("\n") if not PLUMBING.match(line.rstrip()))
    kept = kept.replace("RP_MUST_CHECK ", "")
    items = [Item(name_of(code), comment, code) for comment, code in declarations(kept)]
    return text_of(head + "*/"), items


def page(folder=HEADERS):
    """The page of the site."""
    parts = ["# The C library\n\nWhat `#include <ringpack/client.h>` declares. Link with "
             "`pkg-config --libs ringpack`, or `find_package(ringpack)` in CMake.\n"]
    for name in ORDER:
        head, items = read(folder / name)
        title, text = head.split("\n", 1)
        parts.append(f"## {title}\n\n{with_lists(text)}\n")
        for item in items:
            heading = f"### `{item.name}`\n\n" if item.name else ""
            code = f"\n```c\n{item.code}\n```\n" if item.code else ""
            parts.append(f"{heading}{item.comment}\n{code}")
    return "\n".join(parts)


def with_lists(text):
    """Code stays, and lines indented by two become a list."""
    text = re.sub(r"^  (?=\S)", "* ", text, flags=re.M)
    return re.sub(r"^(?![*])(\S.*)\n(?=[*] )", r"\1\n\n", text, flags=re.M)


def troff(text):
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in ".'" else line for line in escaped.split("\n"))


def manual(version):
    """ringpack(3)."""
    parts = [f'.TH RINGPACK 3 "" "ringpack {version}" "Library Functions"', ".SH NAME",
             "ringpack \\- packed batches of tokens in shared memory", ".SH SYNOPSIS", ".nf",
             ".B #include <ringpack/client.h>", ".fi", ".PP", "Link with \\-lringpack."]
    for name in ORDER:
        head, items = read(HEADERS / name)
        title, text = head.split("\n", 1)
        parts += [f".SH {troff(title).upper()}", paragraphs(text)]
        for item in items:
            if item.name:
                parts.append(f".SS {troff(item.name)}")
            if item.code:
                parts += [".nf", ".RS 2", troff(item.code), ".RE", ".fi"]
            if item.comment:
                parts += [".PP", paragraphs(item.comment)]
    return "\n".join([*parts, ".SH SEE ALSO", ".BR ringpack (1)", ""])


def paragraphs(text):
    """Text as paragraphs; lines indented by four are code."""
    made = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        if all(line.startswith("    ") for line in block.split("\n")):
            made += [".PP", ".nf", ".RS 4", troff(block), ".RE", ".fi"]
            continue
        made.append(".PP")
        for line in block.split("\n"):  # an item of a list is indented by two
            made += [".IP \\(bu 2"] if re.match(r"  \S", line) else []
            made.append(troff(line.strip()))
    return "\n".join(made)


if __name__ == "__main__":
    if sys.argv[1:2] != ["--manual"] or len(sys.argv) != 3:
        sys.exit(__doc__)
    print(manual(sys.argv[2]), end="")
