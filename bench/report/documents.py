# SPDX-License-Identifier: Apache-2.0
"""The text of documents about a stored run: between `<!-- NAME -->` and the next `<!-- end -->`, it
comes only from the run's file."""

END = "<!-- end -->"


def replace_between(document, name, words):
    begin = f"<!-- {name} -->\n"
    before, rest = document.split(begin)
    _, after = rest.split(END, 1)
    return before + begin + words + END + after


def write_between(path, name, words):
    path.write_text(replace_between(path.read_text(), name, words))
