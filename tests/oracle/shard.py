# SPDX-License-Identifier: Apache-2.0
"""The documents and the fingerprints of a shard, sections 1.1 and 1.2 of engine/plan/STREAM.md,
written only from that page: from the bytes of its files, without masks."""

import struct

import xxhash

FORMATS = {"megatron": 1, "raw": 2, "npy": 3, "llmc": 4}
TYPES = {"u8": 1, "u16": 2, "i16": 3, "i32": 4, "u32": 5, "i64": 6}
BLOCK = 4096


def documents_of(form, values, eos):
    """Section 1.1 without Megatron: (first token, tokens) of each document."""
    if form == "llmc":
        starts = [i for i, value in enumerate(values) if value == eos]
        if values and (not starts or starts[0] > 0):
            starts.insert(0, 0)
    else:
        starts = [0] + [i + 1 for i, value in enumerate(values) if value == eos]
        if starts[-1] == len(values):
            starts.pop()
    ends = [*starts[1:], len(values)]
    return [(start, end - start) for start, end in zip(starts, ends)]


def hash128(data):
    return xxhash.xxh3_128_digest(data)[::-1]  # low, high u64


def words(*values):
    return b"".join(struct.pack("<Q", value % 2**64) for value in values)


def blocks_of(data):
    return [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]


def hashes_of(data):
    return words(*(xxhash.xxh3_64_intdigest(block) for block in blocks_of(data)))


def table_of(documents, first_byte, width):
    """The document table: 8 and 4 bytes a document, each list filled up to a multiple of 8."""
    starts = words(*(first_byte + width * start for start, _ in documents))
    lengths = b"".join(struct.pack("<I", length) for _, length in documents)
    return starts + lengths + bytes(-len(lengths) % 8)


def samples_of(data):
    blocks = blocks_of(data)
    count = min(64, len(blocks))
    chosen = range(count)
    if len(blocks) > 64:
        chosen = [i * (len(blocks) - 1) // (count - 1) for i in range(count)]
    return words(*(xxhash.xxh3_64_intdigest(blocks[i]) for i in chosen))


def fingerprints_of(form, dtype, eos, data, first_byte, documents, index=None):
    """The sampled and the full fingerprint. `documents` as documents_of gives them; `index`: the
    bytes of a Megatron index, of at most 64 MiB."""
    width = int(dtype[1:]) // 8
    tokens = sum(length for _, length in documents)
    index_bytes = len(index) if index else 0
    head = words(1, FORMATS[form], TYPES[dtype], -1 if eos is None else eos, len(data))
    head += words(first_byte, len(documents), tokens, index_bytes)
    head += hash128(index) if index else words(0, 0)
    if not index:
        head += hash128(hashes_of(table_of(documents, first_byte, width)))
    return hash128(head + samples_of(data)), hash128(head + hash128(hashes_of(data)))


def text_of(digest):
    """32 hexadecimal digits, most significant first."""
    return digest[::-1].hex()
