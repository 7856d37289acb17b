# SPDX-License-Identifier: Apache-2.0
"""A rule of tidy.py: words that stand for a missing noun are rare in comments and documents.

The words of HABITS are counted per 10,000 words of prose, by folder. A folder passes if each rate
is at most twice that of the model, which is the highest among liburing, TigerBeetle, Redis, Grain
and Streaming, plus 1; folders in STILL_ABOVE pass if the sum of their rates is at most the number
there. That number only ever falls.
"""

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
)
WORDS_MIN = 500  # fewer are too few to judge
STILL_ABOVE = {}

CONTROL = {"engine/io/a.c": "/* " + "The reader says what lies beside it. " * 100 + "*/\n"}


def prose_of(path, text):
    if path.endswith(".md"):
        return re.sub(r"```.*?```", "", text, flags=re.S)
    comments = r'#.*$|""".*?"""' if path.endswith(".py") else r"/\*.*?\*/|//.*$"
    found = re.findall(comments.replace(".*?", r"(?:.|\n)*?"), text, re.M)
    return "\n".join(re.sub(r"\n\s*(?:\*|//|#)\s?", " ", part) for part in found)


def folder_of(path):
    """engine/MODULE, or the first folders of any other path."""
    parts = path.split("/")[:-1]
    return "/".join(parts[:2]) if parts and parts[0] in ("engine", "tools") else "/".join(parts[:1])


def rates(files):
    """folder -> rates per 10,000 words, in the order of HABITS."""
    prose = {}
    for path, text in files.items():
        if path.endswith((".c", ".h", ".py", ".md")) and not path.startswith(".github/CHANGELOG"):
            prose.setdefault(folder_of(path), []).append(prose_of(path, text))
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
