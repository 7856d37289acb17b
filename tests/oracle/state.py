# SPDX-License-Identifier: Apache-2.0
"""Sections 7 to 10 of engine/plan/STREAM.md: digests, state token, contract, labels."""

import struct

import xxhash
from plan_digest import hash128
from stream import COUNTS, FILL, LONG_DOC, PACKING, SHUFFLE, OpenRow, Piece

# ---- 7. Digest -----------------------------------------------------------------------------------


def labels_of(spec, fragment, tokens):
    """Section 10: of each token of a fragment its label, or None."""
    source, document, offset, _ = fragment
    if spec.spans[source] is None:
        return [None, *tokens[1:]]
    trained = {t for begin, end in spec.spans[source][document] for t in range(begin, end)}
    return [
        token if t > 0 and offset + t in trained else None for t, token in enumerate(tokens)
    ]


def row_digest(spec, g, row, labelled=False):
    """H(g), or the same with labels; 0 for a row without fragments."""
    if not row:
        return 0
    content = struct.pack("<I", len(row)) + b"".join(
        struct.pack("<I", fragment.length) for fragment in row
    )
    labels = b""
    for fragment in row:
        source, document, offset, length = fragment
        tokens = spec.corpora[source].tokens(document, offset, length)
        content += struct.pack("<%dI" % length, *tokens)
        for label in labels_of(spec, fragment, tokens) if labelled else []:
            labels += struct.pack("<I", 2**32 - 100 if label is None else label)
    content += labels
    return xxhash.xxh3_128_intdigest(struct.pack("<QQQ", g, *hash128(content)))


# ---- 8. State token ------------------------------------------------------------------------------


def token_header(spec, version, size, next_row):
    header = b"RPSTATE\0" + struct.pack("<II", version, size)
    header += spec.corpus_sampled.to_bytes(16, "little") + spec.corpus_full.to_bytes(16, "little")
    header += struct.pack("<QI", spec.seed, spec.L)
    header += bytes(
        [SHUFFLE[spec.shuffle], PACKING[spec.packing], FILL[spec.fill], LONG_DOC[spec.long_doc]]
    )
    header += struct.pack("<6I", spec.W, spec.D, spec.B, spec.V, spec.lanes, len(spec.lengths))
    header += struct.pack("<QQ", spec.num_epochs, next_row)
    for weight, lengths in zip(spec.weights, spec.lengths):
        header += struct.pack("<QQ", weight, len(lengths))
    return header


def lane_state(lane):
    pending = [] if lane.pending is None else [lane.pending]
    state = struct.pack("<8Q", *(lane.count[name] for name in COUNTS))
    state += struct.pack("<4I", len(lane.fifo), len(pending), len(lane.open), 0)
    for cursor in zip(lane.epoch, lane.position, lane.mixed):
        state += struct.pack("<3Q", *cursor)
    for piece in lane.fifo + pending:
        state += struct.pack("<3Q2I", piece.document, piece.offset, piece.length, piece.source, 0)
    for row in lane.open:
        state += struct.pack("<Q2I", row.opened_at, len(row.fragments), 0)
        for fragment in row.fragments:
            state += struct.pack(
                "<2Q2I", fragment.document, fragment.offset, fragment.source, fragment.length
            )
    return state


def save_token(plan):
    body = b"".join(lane_state(lane) for lane in plan.lanes)
    version = 3 if plan.digest else 2 if plan.spec.tokenizer else 1
    if version >= 2:
        body += plan.spec.tokenizer.to_bytes(16, "little")
    if version == 3:
        body += struct.pack("<QQ", *plan.digest)
    size = len(token_header(plan.spec, version, 0, 0)) + len(body) + 16
    token = token_header(plan.spec, version, size, plan.next_row) + body
    return token + struct.pack("<QQ", *hash128(token))


def load_token(plan, token):
    spec, sources = plan.spec, len(plan.spec.lengths)
    at = 0

    def read(layout):
        nonlocal at
        values = struct.unpack_from("<" + layout, token, at)
        at += struct.calcsize("<" + layout)
        return values

    if hash128(token[:-16]) != struct.unpack("<QQ", token[-16:]):
        raise ValueError("state token: the hash at its end does not match its bytes")
    version = struct.unpack_from("<I", token, 8)[0]
    plan.next_row = struct.unpack_from("<Q", token, 96)[0]
    plan.digest = struct.unpack("<QQ", token[-32:-16]) if version == 3 else None
    header = bytearray(token_header(spec, version, len(token), plan.next_row))
    if spec.corpus_full == 0 or token[32:48] == bytes(16):
        header[32:48] = token[32:48]
    weights_at = range(104, 104 + 16 * sources, 16)
    changed_weights = any(header[i : i + 8] != token[i : i + 8] for i in weights_at)
    for i in weights_at:
        header[i : i + 8] = token[i : i + 8]
    epochs = struct.unpack_from("<Q", token, 88)[0]
    header[88:96] = token[88:96]
    if token[: len(header)] != header:
        raise ValueError("state token: it belongs to another stream")
    at = len(header)
    for number, lane in enumerate(plan.lanes):
        lane.count = dict(zip(COUNTS, read("8Q")))
        in_fifo, pending, open_rows, _ = read("4I")
        for j in range(sources):
            lane.epoch[j], lane.position[j], lane.mixed[j] = read("3Q")
        pieces = []
        for _ in range(in_fifo + pending):
            document, offset, length, source, _ = read("3Q2I")
            pieces.append(Piece(source, document, offset, length))
        lane.fifo, lane.pending = pieces[:in_fifo], pieces[in_fifo] if pending else None
        for _ in range(open_rows):
            opened_at, fragments, _ = read("Q2I")
            row = OpenRow(opened_at, [])
            for _ in range(fragments):
                document, offset, source, length = read("2Q2I")
                row.fragments.append(Piece(source, document, offset, length))
            lane.open.append(row)
        if changed_weights:
            lane.mixed = [0] * sources
        if epochs != spec.num_epochs:
            change_epochs(spec, lane, epochs, len(range(number, plan.next_row, spec.lanes)))


def change_epochs(spec, lane, before, rows):
    """The lane of a token of `before` epochs continues with the spec's; it has had `rows`."""
    reached = max(e + (p > 0) for e, p in zip(lane.epoch, lane.position))
    if 0 < spec.num_epochs < reached:
        raise ValueError(f"num_epochs: epoch number {reached} was begun")
    if before and before in lane.epoch:
        lane.mixed = [0] * len(lane.mixed)
        lane.count["padding"] = spec.L * rows - lane.count["emitted"]


# ---- 9. The stream contract ----------------------------------------------------------------------


def stream_contract(spec):
    """The record, without names of sources, which are no inputs."""
    fields = {
        "block_documents": spec.B,
        "corpus_sampled": "%032x" % spec.corpus_sampled,
        "fill": spec.fill,
        "lanes": spec.lanes,
        "long_doc": spec.long_doc,
        "max_docs_per_row": spec.D,
        "num_epochs": spec.num_epochs,
        "packing": spec.packing,
        "seed": spec.seed,
        "seq_len": spec.L,
        "shuffle": spec.shuffle,
        "sources": len(spec.lengths),
        "stream_version": 1,
        "window": spec.W,
        "window_blocks": spec.V,
    }
    for j, (weight, lengths) in enumerate(zip(spec.weights, spec.lengths)):
        fields["source[%04d].documents" % j] = len(lengths)
        fields["source[%04d].weight" % j] = weight
    lines = {name: "%s=%s\n" % (name, value) for name, value in fields.items()}
    if spec.corpus_full != 0:
        lines["corpus_full"] = "corpus_full~%032x\n" % spec.corpus_full
    if spec.tokenizer != 0:
        lines["tokenizer"] = "tokenizer~%032x\n" % spec.tokenizer
    return "".join(lines[name] for name in sorted(lines))


def identity(spec):
    return "%032x" % xxhash.xxh3_128_intdigest(stream_contract(spec).encode("ascii"))
