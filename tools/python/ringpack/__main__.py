# SPDX-License-Identifier: Apache-2.0
"""`ringpack` and `python -m ringpack`: become the program that came with the package."""

import os
import sys

from ._engine import find_program
from ._machine import why_unsuitable
from .errors import RingpackError


def main() -> None:
    program = ""
    try:
        program = find_program()
        os.execv(program, [program, *sys.argv[1:]])
    except RingpackError as failure:
        print(f"ringpack: {failure}", file=sys.stderr)
    except OSError as failure:
        # A program whose loader is missing is reported as a file that is missing.
        reason = why_unsuitable() or failure.strerror
        print(f"ringpack: {program} cannot be run: {reason}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
