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
        if os.path.realpath(program) == os.path.realpath(sys.argv[0]):  # this one, in PATH
            raise RingpackError(
                f"{os.path.dirname(__file__)} lacks bin/ringpack, which {program} would start",
                "`pip install --force-reinstall` of the wheel brings it back",
            )
        os.execv(program, [program, *sys.argv[1:]])
    except KeyboardInterrupt:
        sys.exit(130)  # Ctrl-C before the program has begun
    except RingpackError as failure:
        print(f"ringpack: {failure}", file=sys.stderr)
    except OSError as failure:
        # A program whose loader is missing is reported as a file that is missing.
        reason = why_unsuitable() or failure.strerror
        print(f"ringpack: {program} cannot be run: {reason}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
