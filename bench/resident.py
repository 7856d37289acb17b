# SPDX-License-Identifier: Apache-2.0
"""Resident memory of a process without mapped files, whose pages belong to the page cache."""

import time


def resident(pid):
    """Bytes, now."""
    with open(f"/proc/{pid}/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return sum(1024 * int(lines[key].split()[0]) for key in ("RssAnon", "RssShmem"))


def resident_in_the_end(pid):
    """The prefetch ring is filled after the first batch: wait until it stops growing."""
    found, before = resident(pid), 0
    while found != before:
        time.sleep(0.5)
        found, before = resident(pid), found
    return found
