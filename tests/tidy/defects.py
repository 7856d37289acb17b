# SPDX-License-Identifier: Apache-2.0
"""A rule of tidy.py: the three lists of planted defects agree."""

import re

from sources import Finding

HEADER, TABLE, SIMULATOR = "engine/base/defect.h", "tests/DEFECTS.md", "tests/sim/main.c"

# A file for the rule to flag: a defect without a row, which the simulator cannot find either.
CONTROL = {
    HEADER: '#define RP_DEFECTS(X) X(leave_out_a, "a")\n',
    TABLE: "| defect | what it breaks | seeds | other tests |\n",
    SIMULATOR: "found_elsewhere[] = {};\n",
}


def check(files):
    """A finding for each defect that is missing from a list, or is in the wrong one."""
    if HEADER not in files:
        return
    names = re.findall(r'\bX\((\w+),\s*"', files[HEADER])
    rows = dict(re.findall(r"^\| `(\w+)` \|[^|]*\| *(\S+) *\|", files[TABLE], re.M))
    list_of_simulator = re.search(r"found_elsewhere\[\] = \{([^}]*)\}", files[SIMULATOR])
    elsewhere = re.findall(r'"(\w+)"', list_of_simulator.group(1))
    for name in names:
        if name not in rows:
            yield Finding(TABLE, 1, f"{name} has no row: name the tests that find it")
        elif (rows[name] == "—") != (name in elsewhere):
            text = f"{name}: found_elsewhere lists the defects whose seeds are — in {TABLE}"
            yield Finding(SIMULATOR, 1, text)
    for name in sorted({*rows, *elsewhere} - set(names)):
        yield Finding(TABLE, 1, f"{name} is no defect of {HEADER}")
