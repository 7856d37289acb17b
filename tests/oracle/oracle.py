#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The oracle: prints the stream that a spec defines, only by engine/plan/STREAM.md.

    oracle.py --spec spec.json [--rows N] [--from-token FILE] [--digest] [--states]
    oracle.py --spec spec.json [--from-token FILE] --state-at ROW
    oracle.py --check

The first prints rows, then a summary; the second the state token before ROW in hex; the third
checks the generator.

spec.json holds the inputs of section 1 by name; "sources": [{"weight": 3, "lengths": [...]}] with
lengths in tokens, or in its place "megatron": "prefix" of a .bin/.idx pair, or a list of them; and
the fingerprints "corpus_sampled" and "corpus_full" as 32 hex digits, most significant first. A
source may have "spans", a list of [begin, end] pairs for each document, and "drop_untrained". The
seed may be a string, for readers of JSON that have no u64. A source given by lengths has the tokens
of rule_token. Output is JSON lines.

stream.py is sections 1 to 6 of the page, state.py is the others; tokens and the command are here.
Needs the `xxhash` package; everything else is the standard library.
"""

import argparse
import json
import struct
import sys

import xxhash
from state import load_token, row_digest, save_token
from stream import Plan, Spec, count_rows, lo, philox2x32, philox4x32

# ---- Corpora: lengths and tokens -----------------------------------------------------------------


def rule_token(source, document, offset):
    """The token of corpora that are only lengths."""
    return lo(xxhash.xxh3_64_intdigest(struct.pack("<IQQ", source, document, offset))) % 50000


class RuleSource:
    def __init__(self, number, lengths):
        self.number, self.lengths = number, lengths

    def tokens(self, document, offset, length):
        return [rule_token(self.number, document, i) for i in range(offset, offset + length)]


class MegatronSource:
    """Pairs of .idx/.bin (MMIDIDX version 1), one after another; a document is some sequences."""

    LETTER = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 8: "H"}

    def __init__(self, prefixes):
        self.lengths, self.places = [], []
        for prefix in prefixes:
            self.add_shard(prefix)

    def add_shard(self, prefix):
        with open(prefix + ".idx", "rb") as file:
            index = file.read()
        if index[:9] != b"MMIDIDX\0\0":
            raise ValueError("%s.idx: not a Megatron index" % prefix)
        _version, code, sequences, entries = struct.unpack_from("<QBQQ", index, 9)
        length = struct.unpack_from("<%di" % sequences, index, 34)
        start = struct.unpack_from("<%dq" % sequences, index, 34 + 4 * sequences)
        first = struct.unpack_from("<%dq" % entries, index, 34 + 12 * sequences)
        tokens = open(prefix + ".bin", "rb")
        for begin, end in zip(first, first[1:]):
            self.lengths.append(sum(length[begin:end]))
            self.places.append((tokens, self.LETTER[code], start[begin] if begin < end else 0))

    def tokens(self, document, offset, length):
        file, letter, start = self.places[document]
        layout = "<%d%s" % (length, letter)
        file.seek(start + offset * struct.calcsize("<" + letter))
        return struct.unpack(layout, file.read(struct.calcsize(layout)))


def open_source(number, source):
    if "megatron" in source:
        prefixes = source["megatron"]
        return MegatronSource([prefixes] if isinstance(prefixes, str) else prefixes)
    return RuleSource(number, source["lengths"])


def make_spec(inputs):
    return Spec(inputs, [open_source(j, source) for j, source in enumerate(inputs["sources"])])


# ---- The command ---------------------------------------------------------------------------------


def check_known_answers():
    """Random123's kat_vectors."""
    ones, pi = 0xFFFFFFFF, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert philox4x32((0, 0), (0, 0, 0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox4x32((ones, ones), (ones,) * 4) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    assert philox4x32((0xA4093822, 0x299F31D0), pi) == (
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    )
    assert philox2x32(0, (0, 0)) == (0x257A3673, 0xCD26BE2A)
    assert philox2x32(0x13198A2E, pi[:2]) == (0xBEDBBE6B, 0xE4C770B3)


def print_rows(plan, end, N, options):
    digest = 0
    while plan.next_row < end:
        line = {"row": plan.next_row}
        if options.states:
            line["state"] = save_token(plan).hex()
        row = plan.row()
        line["fragments"] = [list(fragment) for fragment in row]
        print(json.dumps(line))
        if options.digest:
            digest = (digest + row_digest(plan.spec, line["row"], row)) % 2**128
    summary = {"next_row": plan.next_row, "N": N, "counts": plan.counts()}
    if options.states:
        summary["state"] = save_token(plan).hex()
    if options.digest:
        summary["digest"] = "%032x" % digest
    print(json.dumps(summary))


def main():
    parser = argparse.ArgumentParser(description="the reference for engine/plan/STREAM.md")
    parser.add_argument("--spec", help="JSON file with the inputs")
    parser.add_argument("--rows", type=int, help="rows to print; needed when the stream is endless")
    parser.add_argument("--from-token", help="start at this state token (binary file)")
    parser.add_argument(
        "--state-at", type=int, metavar="ROW", help="print the state token before ROW in hex"
    )
    parser.add_argument("--digest", action="store_true", help="add the digest of the printed rows")
    parser.add_argument("--states", action="store_true", help="add the state token before each row")
    parser.add_argument("--check", action="store_true", help="check the generator and exit")
    options = parser.parse_args()
    if options.check:
        return check_known_answers()
    if options.spec is None:
        parser.error("--spec is needed")
    with open(options.spec) as file:
        spec = make_spec(json.load(file))
    token = None
    if options.from_token:
        with open(options.from_token, "rb") as file:
            token = file.read()

    def start():
        plan = Plan(spec)
        if token is not None:
            load_token(plan, token)
        return plan

    plan = start()
    if options.state_at is not None:
        while plan.next_row < options.state_at:
            plan.row()
        return print(save_token(plan).hex())
    N = count_rows(start())
    if options.rows is None and N is None:
        parser.error("an endless stream needs --rows")
    end = N if options.rows is None else plan.next_row + options.rows
    print_rows(plan, end if N is None else min(end, N), N, options)


if __name__ == "__main__":
    sys.exit(main())
