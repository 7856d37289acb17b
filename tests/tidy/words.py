# SPDX-License-Identifier: Apache-2.0
"""A rule of tidy.py: words that stand for a missing noun are rare in comments, documents, messages.

The words of HABITS are counted per 10,000 words of prose, by folder, and of the messages of an area
(string literals that hold a space). A folder or an area passes if each rate
is at most twice the model's, which is the highest among liburing, TigerBeetle, Redis, Grain
and Streaming, plus 1; folders in STILL_ABOVE pass if the sum of their rates is at most the number
there. That number only ever falls.
"""

import ast
import re

from sources import Finding

HABITS = (  # pattern, rate of the model
    (r"\bwhat\b", 5.1),
    (r"\bbeside\b", 0.1),
    (r"\bnobody\b|\bnothing\b", 3.7),
    (r"\blies?\b", 0.1),
    (r"\b(?:those|that) of\b", 0.2),
    (r"\b(?:of|to|for|in|with|by|from|at) which\b", 4.8),
    (r"\basks?\b|\basked\b", 1.2),
    (r"(?<![a-z] )\bwhere (?:there|it|they|a|an|the|that|one)\b", 1.3),
    (r"\b(?:told|tells?)\b", 2.1),
    (r"\bgo(?:es)? on\b", 0.1),
    (r"\bso (?:many|much)\b", 0.5),
    (r"\balone\b", 0.2),
    (r", too\b", 0.1),
    (r"\banew\b", 0.1),
    (r"\bwhat (?:it|he|they|is|was|has|had|the|a|an|no|only|every|people|trainers)\b", 2.7),
    (r"\bthere is none\b|\bif (?:it has|there is|there are) (?:none|any)\b", 0.3),
    (r"(?:(?<=/\* )|(?<=\. )|(?<=# ))Of [a-z]", 0.1),
)
AREAS = ("engine/", "tools/ringpack/", "tools/python/ringpack/")  # whose messages are judged
DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
WORDS_MIN = 500  # fewer are too few to judge
STILL_ABOVE = {}

CONTROLS = (
    {"engine/io/a.c": "/* " + "The reader says what lies beside it. " * 100 + "*/\n"},
    {"tests/unit/a.c": "/* " + "If there is none, the reader waits. " * 100 + "*/\n"},
    {"engine/io/a.c": 'f("' + 'expected what lies "\n  "beside it: ' * 100 + '");\n'},
    {"tools/python/ringpack/a.py": "f('" + "expected what it has; " * 200 + "')\n"},
)


def prose_of(path, text):
    if path.endswith(".md"):
        return re.sub(r"```.*?```", "", text, flags=re.S)
    literal = r'"(?:\\.|[^"\\\n])*"|'
    comments = r'(#.*$|""".*?""")' if path.endswith(".py") else literal + r"(/\*.*?\*/|//.*$)"
    found = re.findall(comments.replace(".*?", r"(?:.|\n)*?"), text, re.M)
    return "\n".join(re.sub(r"\n\s*(?:\*|//|#)\s?", " ", part) for part in found)


def messages_of(path, text):
    """String literals that hold a space; adjacent ones are one. Without docstrings."""
    if path.endswith(".py"):
        tree = ast.parse(text)
        documented = (n.body[0] for n in ast.walk(tree) if isinstance(n, DOCUMENTED) and n.body)
        docstrings = {id(n.value) for n in documented if isinstance(n, ast.Expr)}
        found = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)
                 and isinstance(n.value, str) and id(n) not in docstrings]
    else:
        code = re.sub(r"/\*.*?\*/|//[^\n]*|'(?:\\.|[^'\\\n])'", " ", text, flags=re.S)
        runs = re.findall(r'(?:"(?:\\.|[^"\\\n])*"\s*(?:PRI\w+\s*)?)+', code)
        found = ["".join(re.findall(r'"((?:\\.|[^"\\\n])*)"', r)).replace("\\n", " ") for r in runs]
    return "\n".join(message for message in found if " " in message)


def folder_of(path):
    """engine/MODULE, tests/FOLDER, tools/ringpack/FOLDER, or the first folders of other paths."""
    parts = path.split("/")[:-1]
    depth = 3 if parts[:2] == ["tools", "ringpack"] else 2
    return "/".join(parts[:depth if parts and parts[0] in ("engine", "tests", "tools") else 1])


def rates(files):
    """folder or area -> rates per 10,000 words, in the order of HABITS."""
    prose = {}
    for path, text in files.items():
        if path.endswith((".c", ".h", ".py", ".md")) and not path.startswith(".github/CHANGELOG"):
            prose.setdefault(folder_of(path), []).append(prose_of(path, text))
        for area in AREAS:
            if path.startswith(area) and path.endswith((".c", ".h", ".py")):
                name = f"messages of {area}"
                prose.setdefault(name, []).append(messages_of(path, text))
    for folder, parts in sorted(prose.items()):
        joined = "\n".join(parts)
        words = len(re.findall("[A-Za-z]+", joined))
        if words >= WORDS_MIN:
            counts = (len(re.findall(pattern, joined, re.I)) for pattern, _ in HABITS)
            yield folder, [1e4 * count / words for count in counts]


def check(files):
    for folder, found in rates(files):
        allowed = STILL_ABOVE.get(folder)
        if allowed is not None and sum(found) > allowed:
            yield Finding(folder, 1, f"the words of HABITS have a rate of {sum(found):.0f} in "
                                     f"10,000: at most {allowed} (tests/tidy/words.py)")
        for rate, (pattern, model) in zip(found, HABITS):
            if allowed is None and rate > 2 * model + 1:
                yield Finding(folder, 1, f"{pattern}: {rate:.1f} in 10,000 words, at most "
                                         f"{2 * model + 1:.1f}: name the thing instead")


if __name__ == "__main__":  # the sums, for STILL_ABOVE
    from sources import read_tree

    for name, each in rates(read_tree()):
        print(f"{name:24s} {sum(each):6.1f}")
