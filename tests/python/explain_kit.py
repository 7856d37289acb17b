# SPDX-License-Identifier: Apache-2.0
"""Run `ringpack explain`."""

import json
import subprocess


def explain(program, *arguments, status=0, **options):
    command = [program, "explain", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, timeout=600, **options)
    assert done.returncode == status, done.stderr.decode()
    return done.stderr.decode() if status else done.stdout.decode()


def rows_of(program, *arguments):
    return json.loads(explain(program, *arguments, "--json"))["rows"]
