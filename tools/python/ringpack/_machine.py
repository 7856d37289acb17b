# SPDX-License-Identifier: Apache-2.0
"""Why the library and the program may be there and yet not start: machines that no wheel is for."""

import os
import sys
from typing import Optional

GLIBC = (2, 28)  # the wheels'


def why_unsuitable() -> Optional[str]:
    """The needs that this machine does not meet, as a sentence; None if none is known."""
    if not sys.platform.startswith("linux"):
        return f"this system is {sys.platform}: ringpack runs on Linux"
    if sys.maxsize < 1 << 32:
        return "this Python is of 32 bits: ringpack needs a 64-bit one, on x86-64 or aarch64"
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):  # only glibc has the name
        return "this Python is not linked to glibc (Alpine's is to musl): ringpack needs glibc 2.28"
    version = tuple(int(part) for part in libc.split()[-1].split(".")[:2] if part.isdigit())
    if version < GLIBC:
        return f"this system has {libc}: ringpack needs 2.28 or later"
    return None
