#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the seeds of the fuzz targets into tests/fuzz/corpus/<parser>: small accepted inputs, and
one of each kind that a parser distinguishes. The head of each fuzz_<parser>.c has the meaning of
its bytes. Inputs that found something are added by hand, named after the behaviour they keep.
"""

import base64
import gzip
import io
import json
import re
import struct
import zipfile
from pathlib import Path

import corpus_of_stream2

FOLDER = Path(__file__).resolve().parent / "corpus"
GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def put(parser, name, content):
    folder = FOLDER / parser
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def edit(offset, width, value):
    """One edit as fuzz_edit reads it."""
    return struct.pack("<HB", offset, width.bit_length() - 1) + value.to_bytes(width, "little")


def megatron(code, width, documents, modes=False):
    """documents: lists of lengths of sequences. Header first: the length of the .bin."""
    lengths = [n for document in documents for n in document]
    pointers = [width * sum(lengths[:i]) for i in range(len(lengths))]
    first = [sum(len(d) for d in documents[:i]) for i in range(len(documents) + 1)]
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(first))
    index += struct.pack(f"<{len(lengths)}i{len(pointers)}q", *lengths, *pointers)
    index += struct.pack(f"<{len(first)}q", *first) + b"\0" * (len(lengths) if modes else 0)
    return struct.pack("<I", width * sum(lengths)) + index


def make_megatron():
    put("megatron", "documents-of-one-sequence", megatron(8, 2, [[5], [3], [0], [9]]))
    put("megatron", "documents-of-many-sequences", megatron(4, 4, [[5, 1], [], [3, 2, 2]]))
    put("megatron", "with-modes", megatron(5, 8, [[2], [7, 1]], modes=True))
    put("megatron", "no-documents", megatron(1, 1, []))


def make_arrow():
    """Documents whose tokens are 1, 2, 3, … from the first to the last; 99 is no token."""
    try:
        import pyarrow
    except ImportError:
        print("arrow: left as it is: pyarrow is not installed")
        return
    documents, kind = [[1, 2, 3], [4], [], [5, 6, 7, 8], [9]], pyarrow.list_(pyarrow.int32())

    def write(name, columns, batch=3, opener=pyarrow.ipc.new_stream, flags=0, **options):
        table, sink = pyarrow.table(columns), pyarrow.BufferOutputStream()
        with opener(sink, table.schema, options=pyarrow.ipc.IpcWriteOptions(**options)) as writer:
            for part in table.to_batches(max_chunksize=batch):
                writer.write_batch(part)
        put("arrow", name, bytes([flags]) + sink.getvalue().to_pybytes())

    ids = {"input_ids": pyarrow.array(documents, kind)}
    write("stream", ids)
    write("file", ids, opener=pyarrow.ipc.new_file)
    write("legacy", ids, use_legacy_format=True)
    write("declared", ids, flags=1)
    write("compressed", ids, compression="lz4")
    wide = pyarrow.large_list(pyarrow.uint16())
    write("large-list", {"tokens": pyarrow.array(documents, wide)})
    fixed = pyarrow.list_(pyarrow.int64(), 3)
    write("fixed-size-list", {"x": pyarrow.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], fixed)}, 2)
    values = pyarrow.array([1, 2, 99, 99, 3, 4], pyarrow.uint8())
    offsets, nulls = pyarrow.array([0, 2, 4, 6], pyarrow.int32()), [False, True, False]
    column = pyarrow.ListArray.from_arrays(offsets, values, mask=pyarrow.array(nulls))
    write("null-row", {"input_ids": column})
    write("null-token", {"input_ids": pyarrow.array([[1, None], [2]], kind)})
    rows, mask = [[1, 2, 99], [3, 99, 99], [4, 5, 6]], [[1, 1, 0], [1, 0, 0], [1, 1, 1]]
    mask = pyarrow.array(mask, pyarrow.list_(pyarrow.int8()))
    write("padded", {"input_ids": pyarrow.array(rows, kind), "attention_mask": mask})
    text = pyarrow.array(["a long text of more than twelve bytes"] * 5).cast(pyarrow.string_view())
    other = pyarrow.array([{"a": [1]}] * 5)
    words = pyarrow.array(["b"] * 5).dictionary_encode()
    write("other-columns", {"a": text, "b": other, "c": words, **ids})
    good = (FOLDER / "arrow" / "stream").read_bytes()
    offsets = struct.pack("<4i", 0, 3, 4, 4)  # the first batch's
    first, second = (good.rindex(struct.pack("<4i", n, n + 1, n + 2, n + 3)) for n in (1, 5))
    lie = struct.pack("<i", (second - first) // 4 + 2)  # up to a token of the second batch
    put("arrow", "last-row-behind-its-buffer", good.replace(offsets, offsets[:12] + lie))


def make_samples():
    """Tokens 1, 2, 3, … in MDS and litData."""
    documents = [[1, 2, 3], [], [4], [5, 6, 7, 8]]

    def shard(samples, header=b""):
        first = 8 + 4 * len(samples) + len(header)
        ends = [first + sum(map(len, samples[:i])) for i in range(len(samples) + 1)]
        return struct.pack(f"<{len(ends) + 1}I", len(samples), *ends) + header + b"".join(samples)

    def mds(name, flags, columns, samples):
        names, encodings, sizes = zip(*columns)
        header = {"column_encodings": encodings, "column_names": names, "column_sizes": sizes}
        header = json.dumps({**header, "compression": None, "format": "mds", "version": 2})
        put("samples", name, bytes([flags]) + shard(samples, header.encode()))

    tokens = [struct.pack(f"<{len(d)}H", *d) for d in documents]
    arrays = [bytes([1 << 2, len(d)]) + t for d, t in zip(documents, tokens)]
    bare = [struct.pack("<I", len(t)) + t for t in tokens]
    mds("mds-bytes", 4, [("tokens", "bytes", None)], bare)
    typed = [struct.pack("<IB", len(a) + 1, 16) + a for a in arrays]
    mds("mds-ndarray", 0, [("ids", "ndarray", None)], typed)
    sized = [struct.pack("<II", 2, len(a)) + b"hi" + a + bytes(8) for a in arrays]
    columns = [("a", "str", None), ("b", "ndarray:uint16", None), ("n", "int", 8)]
    mds("mds-columns", 10, columns, sized)
    fixed = [bytes(8) + bytes([1, 0, 2, 0])]
    mds("mds-fixed", 0, [("n", "int", 8), ("tokens", "ndarray:uint16:2", 4)], fixed)
    for name, more in (
        ("litdata", {}),
        ("litdata-compressed", {"compression": "zstd"}),
        ("litdata-other-loader", {"item_loader": "PyTreeLoader"}),
    ):
        config = {"data_format": ["no_header_tensor:20"], "item_loader": "TokensLoader", **more}
        chunks = [{"chunk_size": 4, "dim": 8, "filename": "chunk-0-0.bin"}]
        index = json.dumps({"chunks": chunks, "config": config}).encode()
        put("samples", name, struct.pack("<BH", 1, len(index)) + index + shard(tokens))


def make_olmo():
    """Four documents of eight tokens; flags, tokens, rows."""
    rows = b'0,3,a,"x ""y"", z\nw",0\r\n3,3,b,c,1\r\n3,4,b,c,2\r\n4,8,b,c,3\r\n'
    put("olmo", "rows", bytes([0, 8]) + rows)
    put("olmo", "two-columns", bytes([6, 8]) + b"0,3\n3,8\n")
    put("olmo", "gzip", bytes([1, 8]) + gzip.compress(rows, mtime=0))
    twice = gzip.compress(b"0,3\n", mtime=0) + gzip.compress(b"3,8\n", mtime=0)
    put("olmo", "gzip-twice", bytes([3, 8]) + twice)
    put("olmo", "a-hole", bytes([0, 8]) + b"0,3\n4,8\n")


def npy(descr, values, form, version=1):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({len(values)},), }}"
    prefix = 10 if version == 1 else 12
    text = text.ljust(127 - prefix) + "\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    tokens = struct.pack(f"<{len(values)}{form}", *values)
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + tokens


def make_npy():
    values = [5, 6, 9, 9, 7, 8, 9, 4]
    for descr, form in (("|u1", "B"), ("<u2", "H"), ("<u4", "I"), ("<i4", "i"), ("<i8", "q")):
        put("npy", f"flat-{descr[1:]}", bytes([0, 0, 9]) + npy(descr, values, form))
    put("npy", "version-2", bytes([2, 1, 9]) + npy("<u2", values, "H", version=2))


def make_raw():
    tokens = [3, 4, 9, 9] + list(range(10, 80)) + [9, 5]
    for kind, form in ((1, "B"), (2, "H"), (3, "h"), (4, "i"), (5, "I"), (6, "q")):
        raw = struct.pack(f"<BH{len(tokens)}{form}", kind, 9, *tokens)
        put("raw", f"tokens-{form}", raw)
    for magic, version, form, eos in ((20240520, 1, "H", 50256), (20240801, 7, "I", 128000)):
        values = [1, eos, 2, 3, eos, eos, 4]
        header = struct.pack("<3i", magic, version, len(values)).ljust(1024, b"\0")
        body = header + struct.pack(f"<{len(values)}{form}", *values)
        put("raw", f"llmc-{form}", b"\x08\xff\xff" + body)
        put("raw", f"by-magic-{form}", b"\x10\xff\xff" + body)


def make_sidecar():
    put("sidecar", "unharmed", b"\0")
    put("sidecar", "one-bit", b"\0" + edit(300, 1, 1))
    record = 256 + 12 * 52  # behind a table of 52 documents
    for name, offset in (("bytes", 0), ("documents", 16), ("tokens", 24), ("offset", 64)):
        put("sidecar", f"other-{name}", b"\2" + edit(record + offset, 8, 2))
    put("sidecar", "other-head", b"\2" + edit(128 + 8, 8, 264))
    put("sidecar", "document-outside", b"\2" + edit(256 + 8, 8, 1 << 62))


def make_side_file():
    put("side_file", "unharmed", b"\0")
    put("side_file", "one-bit", b"\0" + edit(5000, 1, 255))
    for name, offset, width, value in (
        ("type", 12, 4, 3), ("count", 16, 4, 4), ("width", 20, 4, 4), ("entries", 24, 8, 800),
        ("blocks", 32, 8, 4), ("tokenizer", 56, 8, 5), ("tokenizer-name", 112, 8, (1 << 64) - 1),
        ("value", 4096, 8, 7),
    ):
        put("side_file", f"other-{name}", b"\2" + edit(offset, width, value))
    put("side_file", "longer", b"\2" + edit(24, 8, 1400) + edit(32, 8, 4))
    put("side_file", "halves", b"\2" + edit(12, 4, 5) + edit(16, 4, 4))


def make_spanfile():
    put("spanfile", "unharmed", b"\0")
    put("spanfile", "one-bit", b"\0" + edit(100, 1, 1))
    for name, offset, width, value in (
        ("rule", 12, 4, 7), ("documents", 48, 8, 4), ("spans", 56, 8, 7), ("count", 96, 4, 3)
    ):
        put("spanfile", f"other-{name}", b"\2" + edit(offset, width, value))
    put("spanfile", "span-outside", b"\2" + edit(112, 4, 7))


def make_index():
    put("index", "unharmed", b"\0")
    put("index", "one-bit", b"\0" + edit(256, 1, 1))
    put("index", "older-slot", b"\0" + edit(64, 8, 0) + edit(128, 8, 5))
    for name, offset in (("head", 8), ("head-bytes", 16)):
        put("index", f"other-{name}", b"\2" + edit(128 + offset, 8, 4096))
    put("index", "document-outside", b"\2" + edit(256, 8, 1 << 62))


def make_expression():
    put("expression", "all", b"not (a < -1.5 or b in (1, 2 ,3)) and\nfraction >= 0.1 or c != 4")
    put("expression", "many", b" or ".join(b"n%d <= %d.%d" % (i % 9, i, i) for i in range(40)))
    put("expression", "deep", b"not (" * 32 + b"a > 9999999999999999999" + b")" * 32)


def make_config():
    put("config", "minimal.yaml", b"sources: [one.bin]\nseq_len: 128\nbatch_size: 4\n")
    put(
        "config",
        "much.yaml",
        b"run: a\nsources:\n"
        b"  - {name: x, weight: 0.25, path: one.bin, format: raw, dtype: u16, eos: 3}\n"
        b"  - name: y\n    weight: 3\n    shards: ['*.bin', two.npy]\nseq_len: 2k\nbatch_size: 2\n"
        b"dp_world_size: 4\nglobal_batch_size: 16\nranks: 1-2\nnum_epochs: endless\nprofile: hf\n"
        b"sections: [labels, cu_seqlens]\ntoken_dtype: i64\nlabel_mode: shifted\n"
        b"prefetch_bytes: 64mb\nshuffle: block\npacking: best_fit\nfill: split\n"
        b"long_doc: drop\npad_id: -1\nio: pread\n"
        b"checkpoint_dir: ck\ncheckpoint_steps: 10\ndrop_last: true\n",
    )
    shape = b"seq_len: 8\nbatch_size: 4\n"
    put("config", "steps.yaml", b"sources: [one.bin]\n" + shape + b"global_batch_size: 90\n")
    put("config", "folders.yaml", b"sources: [none/c4.en//, none/]\n" + shape)
    put(
        "config",
        "patterns.yaml",
        b"sources:\n  - shards: ['{one,two}.*', 'thr*']\n"
        b"  - shards: ['?wo.np[xyz]']\n    name: b\n" + shape,
    )
    put(
        "config",
        "rest.yaml",
        b"sources: [one.bin]\n" + shape + b"block_documents: 9\nwindow_blocks: 2\n"
        b"checkpoint_contents: false\ncheckpoint_copy_dir: copy\ncheckpoint_dir: ck\n"
        b"checkpoint_keep: 2\ncpus: 0-0\no_direct: off\nindex_dir: index\nio_depth: 8\nlanes: 2\n"
        b"max_docs_per_row: 4\nnum_workers: 2\npacker_processes: true\npackers: 2\n"
        b"prefetch_factor: 3\nconsumers_per_rank: 2\nrun_dir: run\nrun_record_dir: none\n"
        b"seed: 31\nwindow: 16\nverify_blocks: off\nvocab_size: 300\n",
    )
    braces = b"{a,b}" * 40
    put("config", "braces.yaml", b"sources: ['" + braces + b"']\nseq_len: 8\nbatch_size: 1\n")
    put("config", "anchors.yaml", b"sources: &a [one.bin]\nseq_len: &n 8\nbatch_size: *n\n")


def make_pair():
    """An index that is its own .bin."""
    put("raw", "index-beside-it", b"\xf0\0\0" + megatron(8, 2, [[5], [3], [9]])[4:])


def make_token():
    for kind in range(0, 108, 7):
        put("token", f"kind-{kind}", bytes([kind, 0, kind % 5]))
        put("token", f"kind-{kind}-cursor", bytes([kind, 2, 9]) + edit(232, 8, 1))
    for path in sorted((GOLDEN / "stream-v1").glob("*.json"))[:4]:
        states = json.loads(path.read_text()).get("states", [])
        if states:
            put("token", f"golden-{path.stem}", b"\0\1\0" + bytes.fromhex(states[0]["token"]))


def record(row, offset, tokens, form):
    body = struct.pack(f"<{len(tokens)}{form}", *tokens)
    head = struct.pack("<QIIII", row, offset, len(tokens), struct.calcsize(form), 0)
    return head + body + b"\0" * (-len(body) % 8)


def make_contents():
    rows = record(7, 0, [1, 2, 3], "H") + record(7, 3, [4], "I") + record(9, 1, [5, 6], "H")
    put("contents", "three-records", rows)
    put("contents", "not-ascending", record(7, 0, [1], "H") + record(6, 0, [1], "H"))
    put("contents", "overlapping", record(7, 0, [1, 2], "H") + record(7, 1, [1], "H"))
    put("contents", "nothing", b"")


def make_checkpoint():
    rows = record(7, 0, [1, 2, 3], "H") + record(8, 3, [4], "I")
    head = struct.pack("<QHHHH", 7, 3, 20, 9, len(rows))  # next row, rows of contents, lengths
    body = bytes(range(20)) + b"seed: 123" + rows
    put("checkpoint", "unharmed", b"\0" + head + body)
    put("checkpoint", "without-contents", b"\0" + struct.pack("<QHHHH", 7, 0, 20, 9, 0) + body)
    put("checkpoint", "one-bit", b"\0" + head + body + edit(8200, 1, 255))
    put("checkpoint", "mended", b"\2" + head + body + edit(24, 8, 99))
    put("checkpoint", "other-table", b"\2" + head + body + edit(512 + 16, 8, 99))
    put("checkpoint", "golden", b"\1" + (GOLDEN / "checkpoint-v1.rpc").read_bytes())


LIVE_CONTRACT = """\
block_documents=0
corpus_sampled=00000000000000000000000000000000
fill=pad
lanes=1
long_doc=split
max_docs_per_row=16
num_epochs=0
packing=lookahead
seed=0
seq_len=16
shuffle=document
source[0000].documents=88
source[0000].name:t
source[0000].weight=1
sources=1
stream_version=1
window=64
window_blocks=0

batch_size=2
dp_world_size=2
drop_last=false
global_batch_size=4
label_mode=shifted
pad_id=0
sections=rows,doc_lens,input_ids,cu_seqlens
token_dtype=i32
"""# as live_engine.h, but for the fingerprint


def make_attach():
    kind, rank, rows, next_row, step_row = 12, 88, 96, 112, 120  # their offsets in rp_request
    put("attach", "anywhere", b"\0")
    put("attach", "with-a-token", b"\1")
    put("attach", "damaged-token", b"\1" + edit(300, 1, 77))
    put("attach", "at-a-row", b"\0" + edit(next_row, 8, 8))
    put("attach", "between-rows", b"\0" + edit(next_row, 8, 9) + edit(rank, 4, 1))
    put("attach", "in-other-steps", b"\0" + edit(next_row, 8, 8) + edit(step_row, 8, 4))
    put("attach", "far", b"\0" + edit(next_row, 8, 1 << 60))
    put("attach", "other-rank", b"\0" + edit(rank, 4, 9))
    put("attach", "other-shape", b"\0" + edit(rows, 4, 9))
    put("attach", "other-version", b"\0" + edit(8, 4, 99))
    put("attach", "stat", b"\0" + edit(kind, 4, 2))
    put("attach", "checkpoint", b"\0" + edit(kind, 4, 3))
    put("attach", "short", b"\2" + b"RPKTALK1")
    put("attach", "with-the-contract", b"\4")
    put("attach", "with-a-token-and-the-contract", b"\5")
    text = LIVE_CONTRACT
    for field in ("seed=", "corpus_sampled=", "source[0000].weight=", "batch_size=", "pad_id="):
        at = 144 + text.index(field) + len(field)
        name = re.sub(r"[^a-z]+", "-", field).strip("-")
        put("attach", f"other-{name}", b"\4" + edit(at, 1, ord("8")))
    put("attach", "other-name", b"\4" + edit(144 + text.index("name:") + 5, 1, ord("8")))
    put("attach", "damaged-contract", b"\4" + edit(144 + 7, 1, 0))
    put("attach", "other-length-of-the-contract", b"\4" + edit(132, 4, 9))
    put("attach", "expecting-the-contract", b"\4" + edit(140, 4, 1))
    at = 144 + text.index("seed=") + len("seed=")
    put("attach", "expecting-another-seed", b"\4" + edit(140, 4, 1) + edit(at, 1, ord("8")))


def make_request():
    kind, rank, rows, seq_len, replica, next_row = 12, 88, 96, 100, 104, 112
    state, contract = 128, 132
    whole, plain, knowing = b"\0\0", b"\1\0", b"\x80\0"
    put("request", "welcome", whole)
    put("request", "with-a-token", plain)
    put("request", "with-a-token-at-a-row", plain + edit(next_row, 8, 8))
    put("request", "damaged-token", plain + edit(200, 1, 77))
    put("request", "token-in-a-descriptor", b"\5\0")
    put("request", "expecting-the-length", plain + edit(seq_len, 4, 8))
    put("request", "with-descriptors", b"\x08\0")
    put("request", "cut", b"\x10\0" + struct.pack("<H", 100))
    put("request", "does-not-read", b"\x20\0")
    put("request", "doorbells", b"\0\xf0")
    put("request", "with-the-contract", knowing)
    put("request", "with-a-token-and-the-contract", b"\x81\0")
    put("request", "other-stream", knowing + edit(144 + 5, 1, ord("8")))  # seed=7
    put("request", "other-delivery", knowing + edit(144 + 28, 1, ord("9")))  # pad_id=0
    put("request", "damaged-contract", knowing + edit(144 + 7, 1, 0))
    put("request", "other-length-of-the-contract", knowing + edit(contract, 4, 9))
    put("request", "expecting-the-contract", knowing + edit(140, 4, 1))
    put("request", "expecting-another-stream", knowing + edit(140, 4, 1) + edit(149, 1, ord("8")))
    put("request", "while-it-stops", b"\0\4")
    put("request", "not-to-be-placed", b"\0\x08")
    put("request", "other-rank", whole + edit(rank, 4, 9))
    put("request", "other-replica", whole + edit(replica, 4, 1))
    taken = edit(rank, 4, 4) + edit(replica, 4, 1)
    put("request", "taken", whole + taken)
    put("request", "taken-by-one-who-died", b"\x40\0" + taken)
    put("request", "after-one-who-died", b"\x40\0")
    put("request", "other-shape", whole + edit(rows, 4, 9))
    put("request", "other-version", whole + edit(8, 4, 99))
    put("request", "other-length", whole + edit(state, 4, 9))
    for number, name in enumerate(("stat", "stop", "checkpoint", "something"), 2):
        put("request", name, b"\0\2" + edit(kind, 4, number))
    put("request", "checkpoint-while-it-stops", b"\0\6" + edit(kind, 4, 3))
    put("request", "raw", b"\2\0" + b"RPKTALK1")


def make_contract():
    """The text is as in tests/unit/contract_sample.h; offsets are of its bytes."""
    sample = (FOLDER.parent.parent / "unit" / "contract_sample.h").read_text()
    table = sample.split("sample_fields[] = {")[1].split("\n};")[0]
    text = ""
    for row in re.findall(r"\{(.*?)\},", table, re.S):
        strings, sign = re.findall(r'"([^"]*)"', row), re.search(r"'(.)'", row)
        text += f"{strings[0]}{sign[1]}{strings[1]}\n" if strings else "\n"
    for moment in range(4):
        put("contract", f"unharmed-{moment}", bytes([2 * moment]))
        for field in ("seed=", "source[0000].weight=", "pad_id=", "corpus_full~", "name:"):
            at = text.index(field) + len(field)
            name = re.sub(r"[^a-z]+", "-", field).strip("-")
            put("contract", f"other-{name}-{moment}", bytes([2 * moment]) + edit(at, 1, ord("8")))
    put("contract", "whole", b"\1" + text.encode())
    put("contract", "without-pad-id", b"\1" + text.replace("pad_id=0\n", "").encode())
    put("contract", "not-ascending", b"\1b=1\na=1\n\n")
    put("contract", "one-record", b"\1a=1\n")


def make_reply():
    put("reply", "welcome", b"\2")
    put("reply", "text", b"\x82")
    put("reply", "body-in-a-descriptor", b"\x81")
    put("reply", "body-and-descriptors", b"\x22")
    put("reply", "other-descriptors", b"\3")
    put("reply", "refused", b"\2" + edit(12, 4, 2) + edit(16, 4, 2**32 - 5))
    put("reply", "other-length", b"\2" + edit(20, 4, 3))
    put("reply", "raw", b"\3" + b"RPKTALK1" + bytes(40))
    contract = 48 + 12  # after the head and a state of 12 bytes: seed=7, pad_id=0
    put("reply", "successor", b"\x42")
    put("reply", "successor-body-in-a-descriptor", b"\x62")
    put("reply", "successor-that-stops", b"\x52")
    put("reply", "successor-at-another-row", b"\x42" + edit(32, 8, 2))
    put("reply", "successor-of-another-seed", b"\x42" + edit(contract + 5, 1, ord("8")))
    put("reply", "successor-of-another-pad-id", b"\x42" + edit(contract + 15, 1, ord("9")))
    put("reply", "successor-without-a-field", b"\x42" + edit(contract + 5, 1, ord("\n")))
    put("reply", "successor-with-a-label", b"\x42" + edit(contract + 4, 1, ord(":")))
    put("reply", "successor-without-a-contract", b"\x42" + edit(24, 4, 0))


def make_ring_view():
    put("ring_view", "unharmed", bytes(9))
    put("ring_view", "later", b"\0" + struct.pack("<Q", 2))
    for name, offset in (("rows", 0), ("seq_len", 4), ("slots", 24), ("state", 48), ("slot", 56)):
        at = 56 + offset  # the geometry begins at byte 56 of the header
        put("ring_view", f"other-{name}", b"\1" + bytes(8) + edit(at, 8, 8))
    put("ring_view", "other-tail", bytes(9) + edit(4096, 8, 77))
    put("ring_view", "other-slot", bytes(9) + edit(8192, 8, 77) + edit(8192 + 56, 8, 1 << 40))


def make_control():
    put("control", "in-turn", bytes(8) + bytes([2, 3, 1, 2, 2, 1, 1, 1]))
    attach = bytes([241]) + struct.pack("<Q", 5)
    lie = bytes([66]) + b"\xff" * 8
    put("control", "hostile", bytes(8) + bytes([2, 3]) + lie + attach + bytes([2, 1, 1, 2]))
    put("control", "far", b"\xff" * 8 + attach + bytes([2, 3, 1, 2] * 3 + [1, 2, 1]))


def make_jsonl():
    lines = b'{"text": "abc"}\n{"tokens": [1, 2, 3]}\n\n{"input_ids": [7], "x": {"y": [null, 1.5]}}'
    put("jsonl", "lines", b"\1" + lines)
    put("jsonl", "text-only", b'\0{"text": "\\u00e9\\ud83d\\ude00"}\r\n')
    put("jsonl", "gzip", b"\1" + gzip.compress(lines, mtime=0))
    put("jsonl", "not-an-object", b"\1[1, 2]\n")
    sides = b'{"input_ids": [1, 2], "w": [1, 0.5], "n": 7}\n'
    sides += b'{"text": "ab", "w": [[1], [2]], "n": true}\n'
    put("jsonl", "side-columns", b"\5" + sides)


def make_state_file():
    vector = json.loads((GOLDEN / "stream-v1" / "concat-none-drop.json").read_text())
    token = bytes.fromhex(vector["states"][0]["token"])
    text = base64.b64encode(token).decode()
    put("state_file", "json", b"\0" + json.dumps({"x": [{"ringpack_state": text}]}).encode())
    array = {"dtype": "U8", "shape": [len(token)], "data_offsets": [0, len(token)]}
    described = json.dumps({"__metadata__": {"x": "y"}, "ringpack_state": array}).encode()
    put("state_file", "safetensors", b"\0" + struct.pack("<Q", len(described)) + described + token)
    put("state_file", "zip", b"\1" + token)
    for name, method in ("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as archive:
            archive.writestr(zipfile.ZipInfo("ringpack_state.npy"), token, method)
        put("state_file", f"zip-{name}", b"\0" + file.getvalue())


if __name__ == "__main__":
    for name, make in sorted(globals().items()):
        if name.startswith("make_"):
            make()
    corpus_of_stream2.make(put, edit)
