# SPDX-License-Identifier: Apache-2.0
"""Section 12.7 of engine/plan/STREAM2.md, written from that page: the documents that a state
of version 2 has used."""

import struct

from stream2_source import Source
from stream2_state import Token

SHUFFLES = ["none", "document", "block"]


def unseen(data, name, entry):
    """The entry "unseen" of a source (stream2_source.py). `entry`: the source of the state, with
    its documents; `name`: its name there."""
    token = Token(data)
    if token.g != token.p:
        raise ValueError("unseen_of: the state is inside of a deal window")
    B, V, k, bos, eos, shuffle = (token.fixed[i] for i in (1, 2, 3, 4, 5, 6))
    inserted = {"bos_id": None if bos == 2**32 - 1 else bos}
    inserted["eos_id"] = None if eos == 2**32 - 1 else eos
    stream = {"seed": token.seed, "shuffle": SHUFFLES[shuffle], "group": k, **inserted}
    source = Source({**stream, "block_documents": B, "window_blocks": V}, {**entry, "name": name})
    j = next(j for j, own in enumerate(token.state.sources) if own.name == name)
    own = token.state.sources[j]
    order = source.order(own.e, 0, own.n)
    first = order if own.r > 0 else order[: own.p]
    used = {d for item in first for d in source.documents_of(item)}
    used |= set(range(min(own.before, own.n))) if own.e > 0 else set()
    for piece in token.state.waiting():
        if piece.source == j and piece.offset == 0:
            if k > 1 or piece.length == source.length(piece.item):
                used -= set(source.documents_of(piece.item))
    low, high = struct.unpack("<QQ", data[-16:])
    return {"used": used, "hash": "%016x%016x" % (low, high)}
