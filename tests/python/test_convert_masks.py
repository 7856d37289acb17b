# SPDX-License-Identifier: Apache-2.0
"""`ringpack convert` of rows with labels and masks: the file of spans, byte by byte, of every form
and any number of parts; served as the same rows are served in place; refusals by row."""

import gzip
import io
import json
import struct
import subprocess
import tarfile

import numpy
import pytest
import xxhash
from convert_kit import convert, documents, refused, written
from mask_kit import check_whole_stream, index, random_flags, spans_of
from stream_kit import LONG, Stream
from test_convert_forms import write_shards

BARE = "--no-append-eos"
NAMES = ("labels", "completion_mask", "assistant_masks", "loss_mask")


def spanfile(name, spans, rule=0):
    """PREFIX.spans after engine/corpus/spanfile.h."""
    body = b"".join(
        struct.pack("<I", len(own)) + numpy.array(own, "<u4").tobytes() for own in spans
    )
    head = b"\x89RPS\r\n\x1a\n" + struct.pack("<II32sQQ", 1, rule, name.encode(), len(spans),
                                              sum(map(len, spans)))
    head += xxhash.xxh3_128_digest(body)[::-1]
    return head + xxhash.xxh3_128_digest(head)[::-1] + body


class Rows:
    """Rows of ids with flags of the trained ones; every seed makes others."""

    def __init__(self, seed, count=60):
        generator = numpy.random.default_rng(seed)
        lengths = [1, 2, 48, 97, *generator.integers(1, 60, count - 4)]
        self.ids = [generator.integers(1, 30000, n) for n in lengths]
        self.flags = [random_flags(generator, n) for n in lengths]
        self.spans = [spans_of(own) for own in self.flags]

    def entries(self, name):
        if name == "labels":
            return [numpy.where(f, i, -100).tolist() for i, f in zip(self.ids, self.flags)]
        return [own.astype(int).tolist() for own in self.flags]

    def columns(self, name):
        return {"input_ids": [own.tolist() for own in self.ids], name: self.entries(name)}

    def lines(self, name):
        rows = zip(*self.columns(name).values())
        return "".join(json.dumps({"input_ids": ids, name: own}) + "\n" for ids, own in rows)


def write_jsonl(place, rows, name):
    (place / "a.jsonl.gz").write_bytes(gzip.compress(rows.lines(name).encode()))


def write_parquet(place, rows, name):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table(rows.columns(name))
    parquet.write_table(table, place / "a.parquet", row_group_size=17)


def write_feather(place, rows, name):
    feather = pytest.importorskip("pyarrow.feather")
    table = pytest.importorskip("pyarrow").table(rows.columns(name))
    feather.write_feather(table, str(place / "a.feather"), compression="lz4")


def write_hdf5(place, rows, name):
    h5py = pytest.importorskip("h5py")
    with h5py.File(place / "a.h5", "w") as file:
        for column, values in rows.columns(name).items():
            made = file.create_dataset(column, len(values), h5py.vlen_dtype(numpy.dtype("i8")))
            for i, value in enumerate(values):
                made[i] = value


def write_tar(place, rows, name):
    with tarfile.open(place / "a.tar", "w") as archive:
        for i, own in enumerate(zip(*rows.columns(name).values())):
            data = json.dumps(dict(zip(("input_ids", name), own))).encode()
            member = tarfile.TarInfo(f"row{i:06d}.json")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def write_tfrecord(place, rows, name):
    tfrecord = pytest.importorskip("tfrecord")
    writer = tfrecord.TFRecordWriter(str(place / "a.tfrecord"))
    for ids, entries in zip(*rows.columns(name).values()):
        writer.write({"input_ids": (ids, "int"), name: (entries, "int")})
    writer.close()


def rows_as_dicts(rows, name):
    return [dict(zip(("input_ids", name), row)) for row in zip(*rows.columns(name).values())]


def write_mds(place, rows, name):
    pytest.importorskip("zstandard")
    write_shards("mds", place, "zstd", "ndarray", rows_as_dicts(rows, name))


def write_litdata(place, rows, name):
    write_shards("litdata", place, "none", "tree", rows_as_dicts(rows, name))


FORMS = [
    *((write_jsonl, name) for name in NAMES),
    (write_parquet, "labels"), (write_hdf5, "assistant_masks"),
    (write_mds, "labels"), (write_litdata, "loss_mask"),
    *([(write_parquet, "loss_mask"), (write_feather, "completion_mask"), (write_tar, "labels"),
       (write_tfrecord, "labels")] if LONG else []),
]


@pytest.mark.parametrize("write, name", FORMS)
def test_spans_of_every_form(program, tmp_path, write, name):
    rows = Rows(3)
    (tmp_path / "files").mkdir()
    write(tmp_path / "files", rows, name)
    options = (BARE, "--vocab-size", 50000, "-o", tmp_path / "out", tmp_path / "files")
    convert(program, *options)
    assert documents(tmp_path / "out") == [own.tolist() for own in rows.ids]
    assert (tmp_path / "out.spans").read_bytes() == spanfile(name, rows.spans, name == "labels")
    convert(program, "--force", "--drop-labels", *options)
    assert not (tmp_path / "out.spans").exists()


def test_a_mask_that_cannot_be_read_is_refused(program, tmp_path):
    """Otherwise prompts would be trained."""
    pytest.importorskip("zstandard")
    rows, place = rows_as_dicts(Rows(4, 5), "loss_mask"), tmp_path / "files"
    write_shards("mds", place, "zstd", "bytes", rows)
    options = (BARE, "--dtype", "i64", "-o", tmp_path / "out", place)
    refused(program, *options, words=["shard.00000.mds", "column `loss_mask`", "found `bytes`"])
    convert(program, "--mask", "none", *options)
    assert documents(tmp_path / "out") == [row["input_ids"] for row in rows]


class Served:
    def __init__(self, rows, path, **keys):
        self.documents, self.spans = [rows.ids], [rows.spans]
        self.sources = [{"name": "rows", "shards": [str(path)], "weight": 1, **keys}]


@pytest.mark.parametrize("name", ["labels", "loss_mask"])
def test_a_converted_corpus_is_served_as_the_rows_in_place(program, tmp_path, name):
    datasets = pytest.importorskip("datasets")
    rows = Rows(5)
    made = datasets.Dataset.from_dict(rows.columns(name))
    made.save_to_disk(str(tmp_path / "rows"), num_shards=2)
    in_place = Served(rows, tmp_path / "rows", mask=name)
    check_whole_stream(program, tmp_path, Stream(in_place), "place")
    convert(program, BARE, "-o", tmp_path / "out", tmp_path / "rows")
    check_whole_stream(program, tmp_path, Stream(Served(rows, tmp_path / "out", mask=name)), "copy")
    (tmp_path / "out.bin.rpi").unlink()  # it can always be made again
    words = "its mask", "out.spans", "ringpack index", "mask: none"
    plan = [program, "plan", "--source", str(tmp_path / "out"), "--seq-len=48", "--batch-size=1"]
    said = subprocess.run(plan, capture_output=True, text=True, check=False).stderr
    assert all(word in said for word in words), said
    index(program, str(tmp_path / "out"))
    check_whole_stream(program, tmp_path, Stream(Served(rows, tmp_path / "out")), "again")
    said = index(program, "--mask", "other", str(tmp_path / "out"), check=False).stderr
    assert "mask `other`" in said, said
    said = index(program, "--mask-of", "next", str(tmp_path / "out"), check=False).stderr
    assert f"expected {name} (next), found {name}" in said, said


def moved(spans, length, trained_first, bos, eos):
    """The rule of docs/masks.md for tokens that are put around a document."""
    spans = [(begin, end) for begin, end in spans]
    if trained_first and bos:
        joins = spans and spans[0][0] == 1
        spans = [(0, spans[0][1]), *spans[1:]] if joins else [(0, 1), *spans]
    last = bool(spans) and spans[-1][1] == length
    if eos and (last or (length == 1 and trained_first)):
        spans = [*spans[:-1], (spans[-1][0], length + 1)] if spans else [(1, 2)]
    return [(begin + bos, end + bos) for begin, end in spans]


def test_tokens_that_are_put_around_a_document(program, broken, tmp_path):
    rows = Rows(7)
    (tmp_path / "a.jsonl").write_text(rows.lines("labels"))
    for bos, eos in (1, 0), (0, 1), (1, 1):
        ends = [*(["--bos", 40000] if bos else []), *(["--eos", 40001] if eos else [BARE])]
        options = (*ends, "--vocab-size", 50000, "--force", "-o", tmp_path / "out")
        convert(program, *options, tmp_path / "a.jsonl")
        wanted = [moved(spans, len(ids), bool(flags[0]), bos, eos)
                  for spans, ids, flags in zip(rows.spans, rows.ids, rows.flags)]
        assert (tmp_path / "out.spans").read_bytes() == spanfile("labels", wanted, 1)
    environment = {"RP_DEFECT": "mask_before_bos"}
    convert(broken, *options, tmp_path / "a.jsonl", env=environment)
    assert (tmp_path / "out.spans").read_bytes() != spanfile("labels", wanted, 1)


@pytest.mark.parametrize("form", [write_jsonl, write_parquet])
def test_other_ways_to_say_it(program, tmp_path, form):
    rows, other = Rows(9), Rows(9)
    other.entries = lambda name: [(~own).astype(int).tolist() for own in rows.flags]
    (tmp_path / "ignore").mkdir()
    form(tmp_path / "ignore", other, "skip")
    options = (BARE, "--vocab-size", 50000, "-o", tmp_path / "out", "--force")
    said = (*options, "--mask", "skip", "--mask-value", "ignore")
    convert(program, *said, tmp_path / "ignore")
    assert (tmp_path / "out.spans").read_bytes() == spanfile("skip", rows.spans, 2)
    for name, rule in ("labels", 5), ("loss_mask", 4):
        other.entries = lambda name: [[*own[1:], -100][: len(own)] for own in rows.entries(name)]
        (tmp_path / name).mkdir()
        form(tmp_path / name, other, name)
        convert(program, *options, "--mask-of", "next", tmp_path / name)
        assert (tmp_path / "out.spans").read_bytes() == spanfile(name, rows.spans, rule)


def test_parts_have_their_masks(program, tmp_path):
    """Nine files, every third without a mask: its rows are trained whole."""
    place, spans = tmp_path / "files", []
    place.mkdir()
    for i in range(9):
        rows = Rows(20 + i, 30)
        lines = rows.lines("labels")
        if i % 3 == 0:
            lines = "".join(json.dumps({"input_ids": own.tolist()}) + "\n" for own in rows.ids)
            rows.spans = [[(1, len(own))] if len(own) > 1 else [] for own in rows.ids]
        (place / f"{i}.jsonl").write_text(lines)
        spans += rows.spans
    common, wanted = (BARE, "--vocab-size", 50000), spanfile("labels", spans, 1)
    convert(program, *common, "-o", tmp_path / "one", place)
    whole = written(tmp_path / "one")
    assert (tmp_path / "one.spans").read_bytes() == wanted

    def assert_same(prefix):
        assert written(prefix) == whole
        assert (prefix.parent / f"{prefix.name}.spans").read_bytes() == wanted

    each = (*common, "--group-bytes", 1)
    convert(program, *each, "--workers", 3, "-o", tmp_path / "three", place)
    assert_same(tmp_path / "three")
    for part in "0/2", "1/2":
        convert(program, *each, "--part", part, "-o", tmp_path / "merged", place)
    damaged = tmp_path / "merged.parts" / "000004.spans"
    data = bytearray(damaged.read_bytes())
    data[-4] ^= 1
    damaged.write_bytes(data)
    merge = (*each, "-o", tmp_path / "merged", place)
    refused(program, "--merge", *merge, words=["1 of 9 parts are not there"])
    convert(program, *merge)  # makes that one again
    assert_same(tmp_path / "merged")
    for i in range(3):  # Megatron data sets with masks
        files = [place / f"{k}.jsonl" for k in range(3 * i, 3 * i + 3)]
        convert(program, *common, "-o", tmp_path / f"m{i}", *files)
    joined = [tmp_path / f"m{i}" for i in range(3)]
    convert(program, *common, "-o", tmp_path / "joined", *joined)
    assert_same(tmp_path / "joined")
    limit = ("--max-tokens", 1000)
    convert(program, *common, *limit, "-o", tmp_path / "few", place)
    few = (tmp_path / "few.spans").read_bytes()
    convert(program, *each, *limit, "--force", "-o", tmp_path / "few", place)
    assert (tmp_path / "few.spans").read_bytes() == few != wanted


def test_rows_of_cerebras(program, tmp_path):
    h5py = pytest.importorskip("h5py")
    data = numpy.zeros((3, 3, 4), "i4")
    data[0] = [5, 6, 7, 8], [0, 1, 0, 1], [6, 7, -100, 9]  # 8 has no label
    data[1] = [5, 6, 0, 0], [1, 1, 0, 0], [6, 7, 0, 0]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", data=data)
    convert(program, BARE, "-o", tmp_path / "out", tmp_path / "a.h5")
    assert documents(tmp_path / "out") == [[5, 6, 7, 8, 9], [5, 6, 7], []]
    wanted = spanfile("loss_mask", [[(2, 3), (4, 5)], [(1, 3)], []])
    assert (tmp_path / "out.spans").read_bytes() == wanted
    data[1, 2, 0] = 3
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset("data", data=data)
    words = ["b.h5: row 1: `labels`: expected 6 or -100", "found 3"]
    refused(program, BARE, "-o", tmp_path / "x", tmp_path / "b.h5", words=words)


BAD = [
    ({"labels": [1, 2, 4]}, (), ["`labels`: expected 3 or -100", "found 4", "--mask none"]),
    ({"labels": [1, 2]}, (), ["`labels`"]),
    ({"loss_mask": [1, 1, 1], "completion_mask": [1, 1, 1]}, (),
     ["there are `completion_mask` and `loss_mask`", "--mask"]),
    ({"loss_mask": [1, 1, 1]}, ("--mask", "skip"), ["`skip`", "--mask none"]),
]


@pytest.mark.parametrize("columns, options, words", BAD)
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_refusals(program, tmp_path, columns, options, words, form):
    columns = {"input_ids": [1, 2, 3], **columns}
    path = tmp_path / f"a.{form}"
    if form == "jsonl":
        path.write_text(json.dumps(columns) + "\n")
    else:
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(
            pyarrow.table({name: [value] for name, value in columns.items()}), path)
    common = (BARE, "--vocab-size", 50, "-o", tmp_path / "out", path)
    refused(program, *options, *common, words=[f"a.{form}", *words])
    assert not list(tmp_path.glob("out*"))


def test_two_masks_in_one_output_are_refused(program, tmp_path):
    rows = Rows(11, 8)
    for name in "labels", "loss_mask":
        (tmp_path / f"{name}.jsonl").write_text(rows.lines(name))
    words = ["loss_mask.jsonl", "earlier documents have `labels`, this one has `loss_mask`"]
    common = (BARE, "--vocab-size", 50000, "-o", tmp_path / "out", tmp_path / "labels.jsonl",
              tmp_path / "loss_mask.jsonl")
    refused(program, *common, words=words)
    refused(program, "--group-bytes", 1, *common, words=words)
    refused(program, "--mask-value=3", *common, words=["--mask-value: expected train or ignore"])
