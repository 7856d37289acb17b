# SPDX-License-Identifier: Apache-2.0
"""`ringpack` and `python -m ringpack`: become the program that came with the package."""

import os
import sys

from ._engine import find_program
from .errors import RingpackError


def main() -> None:
    program = ""
    try:
        program = find_program()
        os.execv(program, [program, *sys.argv[1:]])
    except RingpackError as failure:
        print(f"ringpack: {failure}", file=sys.stderr)
    except OSError as failure:
        print(f"ringpack: {program}: {failure.strerror}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
