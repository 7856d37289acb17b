# SPDX-License-Identifier: Apache-2.0
"""Seeds of the fuzz targets of stream version 2, for make_corpus.py."""

import struct


def stream2_stage(row, sets=0x1FF, ramp=0, L=16, weights=(1, 1, 1, 1), deal=(0,) * 9, **more):
    """A stage as fuzz_stream2.c reads it; `lists`: bytes of limits, without and documents."""
    values = {"align": 1, "window": 4, "spread": 3, "docs": 8, "packing": 0, "fill": 0, **more}
    lists, head = values.pop("lists", b"\0"), struct.pack("<BHBB", row, sets, ramp, L - 1)
    return head + bytes([*values.values(), *weights, *deal]) + lists


def stream2(stages, records=(), group=1, shuffle=1, flags=0, sources=2, inserted=(1, 1)):
    head = bytes([9, sources - 1, len(stages), len(records), 1, 7, 0, shuffle, 2 * group, 2, group])
    head += bytes([0, *inserted, 1, 5, 6])
    for j in range(4):
        head += bytes([24, j, 3, 40, 1, 9, 16, 2, 120, 5, flags, j, int(group > 1), 0, 2, 0, 2, 0])
    return head + b"".join(stages) + b"\0" + b"".join(records)


def make_token2(put, edit):
    for kind in range(0, 72, 7):
        put("token2", f"kind-{kind}", bytes([kind, 0, kind % 20]))
        put("token2", f"kind-{kind}-position", bytes([kind, 2, 9]) + edit(24, 8, 1))
        put("token2", f"kind-{kind}-source", bytes([kind, 2, 11]) + edit(320 + 40, 8, 3))


def make_stream2(put):
    put("stream2", "one-stage", stream2([stream2_stage(0)]))
    put("stream2", "best-fit-split", stream2([stream2_stage(0, packing=2, fill=1)], flags=24))
    stages = [stream2_stage(0, packing=1, window=0, spread=0), stream2_stage(6, L=32)]
    put("stream2", "concat-then-lookahead", stream2(stages))
    stages = [stream2_stage(0), stream2_stage(4, sets=1, ramp=9, weights=(0, 3, 1, 1))]
    put("stream2", "ramp-of-groups", stream2(stages, group=2, flags=8))
    dealt = stream2_stage(0, deal=(1, 2, 2, 2, 0, 4, 0, 0, 1))
    records = [stream2_stage(7, sets=1, weights=(1, 0, 0, 0))]
    put("stream2", "deal-and-record", stream2([dealt], records, sources=3))
    lists = stream2_stage(3, sets=0, lists=bytes([2 | 3 << 6, 1, 4, 5, 9, 0]))
    put("stream2", "without", stream2([stream2_stage(0), lists], shuffle=2))


def make(put, edit):
    make_token2(put, edit)
    make_stream2(put)
