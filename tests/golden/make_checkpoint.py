# SPDX-License-Identifier: Apache-2.0
"""Write checkpoint-v1.rpc only from engine/checkpoint/FORMAT.md, as a check of that text.

Needs xxhash (tools/setup). The file is frozen: every later version must read it. To see that the
text still describes it: make_checkpoint.py | cmp - checkpoint-v1.rpc
With an argument K: the same of the K-th later state, as sequence 7 + K."""

import json
import pathlib
import struct
import sys

import xxhash

HERE = pathlib.Path(__file__).parent
STATE, CONFIG, CONTENTS, CONTRACT = 1, 2, 3, 4


def hash128(data):
    value = xxhash.xxh3_128_intdigest(data)
    return struct.pack("<QQ", value & (2**64 - 1), value >> 64)


def padded(data, multiple):
    return data + bytes(-len(data) % multiple)


def record(row, offset, width, tokens):
    head = struct.pack("<QIIII", row, offset, len(tokens), width, 0)
    return head + padded(struct.pack(f"<{len(tokens)}{'H' if width == 2 else 'I'}", *tokens), 8)


def checkpoint(sequence, next_row, contents_end_row, identity, world, rows, run, version, sections):
    table, body, offset = b"", b"", 8192
    for kind, data in sections:
        flags = 0 if kind in (CONTENTS, CONTRACT) else 1
        table += struct.pack("<IIQQ", kind, flags, offset, len(data)) + hash128(data) + bytes(24)
        body += padded(data, 4096)
        offset = 8192 + len(body)
    file_bytes = offset + 4096
    head = b"RPCHECK\0" + struct.pack("<IIQ", 1, 8192, file_bytes)
    head += struct.pack("<QQQ", sequence, next_row, contents_end_row) + identity
    head += struct.pack("<IIII", world, rows, len(sections), 0)
    head += run.encode().ljust(72, b"\0") + version.encode().ljust(32, b"\0")
    head = (head.ljust(512, b"\0") + table).ljust(8176, b"\0")
    head += hash128(head)
    footer = b"RPCKEND\0" + struct.pack("<IIQQ", 1, 0, file_bytes, sequence) + head[8176:]
    footer = footer.ljust(4080, b"\0")
    return head + body + footer + hash128(footer)


def main():
    vector = json.loads((HERE / "stream-v1" / "lookahead-pad.json").read_text())
    later = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    state = vector["states"][later]
    row = state["row"]
    contents = record(row, 0, 2, range(100, 150)) + record(row, 50, 2, [7, 8, 9])
    contents += record(row + 2, 5, 4, [2**32 - 1, 0, 65536])
    sys.stdout.buffer.write(
        checkpoint(
            sequence=7 + later,
            next_row=row,
            contents_end_row=row + 3,
            identity=bytes(range(16)),
            world=4,
            rows=32,
            run="golden-1",
            version="0.1.0",
            sections=[
                (STATE, bytes.fromhex(state["token"])),
                (CONFIG, b"run: golden-1\nseq_len: 64\n"),
                (CONTENTS, contents),
            ],
        )
    )


if __name__ == "__main__":
    main()
