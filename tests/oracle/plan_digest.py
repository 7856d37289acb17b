# SPDX-License-Identifier: Apache-2.0
"""Section 7 of engine/plan/STREAM.md: the plan digest."""

import struct

import xxhash


def hash128(data):
    """XXH3-128 as its low and its high u64."""
    value = xxhash.xxh3_128_intdigest(data)
    return value & (2**64 - 1), value >> 64


OF_NOTHING = hash128(b"")


def with_row(digest, g, row, L):
    """D(g + 1) of D(g) and the fragments of row g. None, a digest that is not known, stays None."""
    if digest is None:
        return None
    content = b"".join(
        struct.pack("<QQII", f.document, f.offset, f.source, f.length) for f in row
    )
    padding = L - sum(fragment.length for fragment in row)
    link = struct.pack("<QQ", *digest) + struct.pack("<QII", g, len(row), padding)
    return hash128(link + struct.pack("<QQ", *hash128(content)))
