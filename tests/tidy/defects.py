# SPDX-License-Identifier: Apache-2.0
"""A rule of tidy.py: the lists of planted defects agree, and each patch has a control."""

import re

from sources import Finding, lines_of

SWITCHES, TABLE = "tests/defects/switches/", "tests/DEFECTS.md"
SITE = re.compile(r"\bRP_DEFECT\((\w+)\)")
BUILDS = ("tests/CMakeLists.txt", "tests/fuzz/CMakeLists.txt")

# Files for the rule to flag: a switch without a row, one in a source; a row without a switch or a
# test that finds it; a patch without a head line and a control; controls without a defect.
CONTROL = {
    SWITCHES + "engine/a.c.patch": "+    if (!RP_DEFECT(leave_out_a))\n",
    "engine/e.c": "    if (!RP_DEFECT(leave_out_e))\n",
    TABLE: "| defect | what it breaks | seeds | other tests |\n| `leave_out_f` | f | — | |\n",
    "tests/defects/leave_out_b.patch": "--- a/engine/b.c\n+++ b/engine/b.c\n",
    BUILDS[0]: "rp_add_control(test_c leave_out_c)\n",
    "tests/python/test_d.py": 'planted("leave_out_d", folder)\n',
}


def check_switches(files, names):
    """A finding for each switch and row that lack each other, and each switch in a source."""
    rows = dict(re.findall(r"^\| `(\w+)` \|[^|]*\| *(\S+ \|[^|]*)\|$", files[TABLE], re.M))
    for name in sorted({*names} - {*rows}):
        yield Finding(names[name], 1, f"{name} has no row in {TABLE}")
    for name, tests in rows.items():
        if not re.search("[0-9`]", tests):
            yield Finding(TABLE, 1, f"{name}: enter the seed or the test that finds it")
        if name not in names:
            yield Finding(TABLE, 1, f"{name} is in no patch of {SWITCHES}")
    for path, number, line in lines_of(files, ".c", ".h"):
        if path.startswith(("engine/", "tools/")) and SITE.search(line):
            yield Finding(path, number, f"a switch is in a patch of {SWITCHES}")


def check_patches(files, names):
    """A finding for each patch without a head line or control, each control without a defect."""
    controls = {}
    for path in BUILDS:
        text = files.get(path, "")
        for match in re.finditer(r"^ *rp_add_(?:\w+_)?control\(\w+ (\w+)", text, re.M):
            controls[match[1]] = path
    for path, text in files.items():
        if path.startswith("tests/python/"):
            controls |= {name: path for name in re.findall(r'\bplanted\("(\w+)"', text)}
    patches = {m[1]: p for p in files if (m := re.fullmatch(r"tests/defects/(\w+)\.patch", p))}
    for name, path in patches.items():
        if not re.match(r"[a-z].{10,}\n\n--- a/", files[path]):
            yield Finding(path, 1, "the first line names the breach, the second one is empty")
        if name not in controls:
            yield Finding(path, 1, f"no test finds it: rp_add_control(TEST {name}) in {BUILDS[0]}")
        if name in names:
            yield Finding(path, 1, f"{name} is a switch of {names[name]}, too")
    for name in sorted({*controls} - {*patches, *names}):
        text = f"{name} is neither a patch of tests/defects nor a switch of {SWITCHES}"
        yield Finding(controls[name], 1, text)


def check(files):
    patches = {path: text for path, text in files.items() if path.startswith(SWITCHES)}
    if not patches:
        return
    names = {}
    for path, _, line in lines_of(patches, ".patch"):
        if line.startswith("+"):
            names |= {name: path for name in SITE.findall(line)}
    yield from check_switches(files, names)
    yield from check_patches(files, names)
