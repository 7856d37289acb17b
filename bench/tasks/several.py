# SPDX-License-Identifier: Apache-2.0
"""Measurements that take turns, each as often as there is time for."""

import time

LIMIT_SECONDS = 300  # a measurement that has taken so long in all is not made again


def several_by_turns(measurements, count, limit=LIMIT_SECONDS):
    """[the results of each of these functions, `count` times or as often as its limit allows]"""
    found, spent = [[] for _ in measurements], [0.0] * len(measurements)
    for turn in range(count):
        for at in (turn + number for number in range(len(measurements))):
            at %= len(measurements)
            if spent[at] < limit:
                begin = time.monotonic()
                found[at].append(measurements[at]())
                spent[at] += time.monotonic() - begin
    return found
