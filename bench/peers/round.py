# SPDX-License-Identifier: Apache-2.0
"""Measurements that belong together, one after another, each in a process of its own.

    round.py LIMIT < [[ARGUMENT, ...], ...]     the arguments of measure.py, as JSON [{"found": ...}
    or {"failed": "why"}, ...]  on standard output

One command for several measurements, so that a machine that is shared can be had for them:
compare.py puts a prefix before it. A measurement that fails or takes too long is an answer as well.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

MEASURE = Path(__file__).resolve().parent / "measure.py"
REASON_MAX = 300  # characters of a message


def reason_of(stderr):
    """The last line that says something: of a traceback, the exception."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return (lines or ["it ended without a message"])[-1][:REASON_MAX]


def measure(arguments, limit):
    command = [sys.executable, str(MEASURE), *arguments, "--begun", repr(time.monotonic())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {limit:g} s", "slow": True}
    if done.returncode:
        return {"failed": reason_of(done.stderr)}
    return {"found": json.loads(done.stdout.strip().splitlines()[-1])}


def main():
    limit = float(sys.argv[1])
    print(json.dumps([measure(arguments, limit) for arguments in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
