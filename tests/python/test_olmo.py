# SPDX-License-Identifier: Apache-2.0
"""OLMo's .npy files with their .csv.gz, written byte by byte as dolma 1.2 writes them (RP_LONG=1,
where dolma is installed: by itself): the documents are the rows, equal to a Megatron copy; files
that do not belong together, are cut or damaged are refused by place."""

import csv
import gzip
import io
import json
import os
import subprocess

import numpy
import pytest
from in_place_kit import assert_equal_to_copies, assert_killed_and_resumed, assert_refused
from mask_kit import check_whole_stream, random_flags, spans_of
from mask_kit import index as run_index
from stream_kit import LONG, Stream

SEED = 16180


def make_documents(number, count=60, limit=50000, longest=200):
    """Some are empty, and none needs to end with an EOS."""
    generator = numpy.random.default_rng(SEED + number)
    return [generator.integers(0, limit, n) for n in generator.integers(0, longest, count)]


def rows_of(documents):
    """As Python's csv writes them: ids and sources of all kinds, quoted where they must be."""
    sources = ["s3://b/a.json.gz", 'a "quoted", file', "two\nlines", "", "é", "1,2"]
    text, end = io.StringIO(newline=""), 0
    for number, document in enumerate(documents):
        row = (end, end + len(document), f"id {number}", sources[number % len(sources)], number)
        csv.writer(text).writerow(row)
        end += len(document)
    return text.getvalue().encode()


def write(path, documents, dtype="u2"):
    path.parent.mkdir(parents=True, exist_ok=True)
    numpy.concatenate(documents).astype(f"<{dtype}").tofile(path)
    path.with_suffix(".csv.gz").write_bytes(gzip.compress(rows_of(documents)))
    return path


def forms_of(folder):
    forms = {}
    for number, dtype in enumerate(("u2", "u4")):
        documents = make_documents(number)
        declared = {"dtype": dtype.replace("2", "16").replace("4", "32")}
        forms[dtype] = ([write(folder / f"{dtype}.npy", documents, dtype)], documents, declared)
    parts = [make_documents(5 + part) for part in range(3)]
    for part, documents in enumerate(parts):
        write(folder / "several" / f"part-0-0000{part}.npy", documents)
    forms["several"] = ([folder / "several"], sum(parts, []), {"dtype": "u16"})
    documents = make_documents(9)
    plain = write(folder / "plain.npy", documents)
    subprocess.run(["gunzip", plain.with_suffix(".csv.gz")], check=True)
    forms["plain"] = ([plain], documents, {"dtype": "u16"})
    documents = make_documents(10, 3000, longest=9)  # rows of several reads
    forms["many"] = ([write(folder / "many.npy", documents)], documents, {"dtype": "u16"})
    return forms


def test_equal_to_the_megatron_copy(program, folder):
    assert_equal_to_copies(program, folder, forms_of(folder))


def test_killed_and_resumed(program, folder):
    forms = forms_of(folder)
    del forms["many"]
    assert_killed_and_resumed(program, folder, forms)


def inspect(program, *arguments):
    ask = [program, "inspect", "--json", *map(str, arguments)]
    [said] = json.loads(subprocess.run(ask, check=True, capture_output=True).stdout)
    return said


def test_inspect_says_what_it_is(program, folder):
    documents = make_documents(20, 7)
    path = write(folder / "x.npy", documents)
    said = inspect(program, "--dtype", "u16", "--scan", path)
    assert (said["format"], said["dtype"], said["documents"]) == ("olmo", "u16", 7)
    assert said["tokens"] == sum(map(len, documents))
    assert said["token_max"] == max(int(d.max()) for d in documents if len(d))


def index(program, *arguments):
    subprocess.run([program, "index", "-q", *map(str, arguments)], check=True, capture_output=True)


def test_the_sidecar_knows_better(program, folder):
    """Rows that were copied there later do not change an indexed file; and rows that were removed
    are not needed."""
    path = write(folder / "x.npy", make_documents(21, 9))
    index(program, "--format", "raw", "--dtype", "u16", "--eos", 7, path)
    assert inspect(program, path)["format"] == "raw"
    index(program, path)
    assert inspect(program, path)["format"] == "raw"
    index(program, "--format", "olmo", "--dtype", "u16", path)
    os.unlink(path.with_suffix(".csv.gz"))
    said = inspect(program, path)
    assert (said["format"], said["documents"]) == ("olmo", 9)


def test_files_without_rows_stay_what_they_were(program, folder):
    """A .npy of numpy with a .csv, and headerless ones without one."""
    tokens = numpy.arange(50, dtype="<u2")
    numpy.save(folder / "numpy.npy", tokens)
    (folder / "numpy.csv").write_text("a,b\n")
    assert inspect(program, "--eos", 7, folder / "numpy.npy")["format"] == "npy"
    tokens.tofile(folder / "bare.npy")
    assert_refused(program, folder / "bare.npy", "raw tokens must be declared")
    path = write(folder / "both.npy", make_documents(22))
    said = inspect(program, "--format", "raw", "--dtype", "u16", "--eos", 7, path)
    assert said["format"] == "raw"


# ---- refusals ------------------------------------------------------------------------------


def harmed(number, harm):
    """The rows of a good file after something happened to them."""

    def make(folder):
        path = write(folder / "x.npy", make_documents(number, 30))
        rows = path.with_suffix(".csv.gz")
        rows.write_bytes(harm(rows.read_bytes()))
        return path

    return make


def rows_again(change):
    """Rows as lists of lines, changed."""

    def harm(content):
        lines = gzip.decompress(content).decode().splitlines(keepends=True)
        return gzip.compress("".join(change(lines)).encode())

    return harm


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def cut_tokens(folder):
    path = write(folder / "x.npy", make_documents(30))
    os.truncate(path, os.path.getsize(path) - 2)
    return path


def odd_bytes(folder):
    path = write(folder / "x.npy", make_documents(31))
    os.truncate(path, os.path.getsize(path) - 1)
    return path


REFUSALS = {
    "a hole": (harmed(32, rows_again(lambda rows: rows[:1] + rows[2:])), "row 1: expected tokens"),
    "twice": (harmed(33, rows_again(lambda rows: rows[:2] + rows[1:])), "row 2: expected tokens"),
    "another order": (harmed(34, rows_again(lambda rows: rows[::-1])), "row 0: expected tokens"),
    "a header": (
        harmed(35, rows_again(lambda rows: ["start,end,id,src,loc\r\n", *rows])),
        "row 0: expected the first token",
    ),
    "the last row is missing": (harmed(36, rows_again(lambda rows: rows[:-1])), "x.npy, found 29"),
    "a cut row": (
        harmed(37, rows_again(lambda rows: [*rows[:-1], rows[-1][:5]])),
        "the end of the file",
    ),
    "a damaged archive": (harmed(38, flipped), "x.csv.gz: byte", "gzip -t"),
    "a cut archive": (harmed(39, lambda content: content[:-9]), "cut short", "gzip -t"),
    "garbage behind it": (harmed(40, lambda content: content + b"garbage"), "something else"),
    "no archive": (harmed(41, gzip.decompress), "x.csv.gz: byte 0", "something else"),
    "cut tokens": (cut_tokens, "row 59: expected tokens from"),
    "odd bytes": (odd_bytes, "multiple of 2 bytes"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_by_place(program, folder, name):
    make, *words = REFUSALS[name]
    path = make(folder)
    for command in "inspect", "index":
        assert_refused(program, path, *words, declared=["--dtype", "u16"], command=command)


def test_what_must_be_declared(program, folder):
    path = write(folder / "x.npy", make_documents(50))
    assert_refused(program, path, "no dtype was declared", "--dtype u16")
    assert_refused(program, path, "rows to token", declared=["--dtype", "u8"])
    os.unlink(path.with_suffix(".csv.gz"))
    declared = ["--format", "olmo", "--dtype", "u16"]
    assert_refused(program, path, "NAME.csv.gz", "--format raw --eos", declared=declared)
    numpy.save(path, numpy.arange(5))
    assert_refused(program, path, "declared olmo", "declare it as npy", declared=declared)


@pytest.mark.skipif(not LONG, reason="RP_LONG=1, and `pip install --no-deps dolma` in this Python")
def test_what_the_library_writes(program, folder):
    writer = pytest.importorskip("dolma.tokenizer.memmap_writer")
    types = pytest.importorskip("dolma.tokenizer.data_types")
    forms = {}
    for number, dtype in enumerate(("uint16", "uint32")):
        documents = [d for d in make_documents(60 + number) if len(d)]
        path = folder / f"{dtype}.npy"
        with writer.MemmapWriter(str(path), numpy.dtype(dtype), max_tokens=10**6) as file:
            for place, document in enumerate(documents):
                output = types.TokenizerOutput.from_tokens(
                    id=f"id {place}", src='a "b", c', loc=place, tokens=document.tolist()
                )
                assert file.write(output)
        forms[dtype] = ([path], documents, {"dtype": dtype.replace("int", "")})
    assert_equal_to_copies(program, folder, forms)


class Masked:
    """Documents of OLMo with a label mask, as open-instruct writes it: a byte for each token."""

    def __init__(self, folder, documents, names=("token_ids", "labels_mask"), **keys):
        generator = numpy.random.default_rng(SEED)
        self.flags = [random_flags(generator, len(document)) for document in documents]
        path = write(folder / f"{names[0]}_part_0000.npy", documents)
        self.mask = folder / f"{names[1]}_part_0000.npy"
        numpy.concatenate(self.flags).astype(bool).tofile(self.mask)
        self.documents, self.spans = [documents], [[spans_of(own) for own in self.flags]]
        self.sources = [{"name": "olmo", "shards": [str(path)], "weight": 1, **keys}]


def test_label_masks(program, tmp_path):
    masked = Masked(tmp_path / "sft", make_documents(20), dtype="u16")
    check_whole_stream(program, tmp_path, Stream(masked), "table")
    run_index(program, "--dtype", "u16", *masked.sources[0]["shards"])
    check_whole_stream(program, tmp_path, Stream(masked), "sidecar")
    documents = [[*document, 50001] for document in make_documents(21, 40)]  # by their EOS
    masked = Masked(tmp_path / "raw", [numpy.array(d) for d in documents],
                    ("input_ids", "label_mask"), format="raw", dtype="u16", eos=50001)
    check_whole_stream(program, tmp_path, Stream(masked), "raw")


def test_label_masks_that_do_not_fit(program, tmp_path):
    masked = Masked(tmp_path / "sft", make_documents(22))
    path, common = masked.sources[0]["shards"][0], ("--dtype", "u16")

    def said(*options):
        done = run_index(program, *common, *options, path, check=False)
        assert done.returncode == 2
        return done.stderr

    assert "mask `spam`: expected" in (text := said("--mask", "spam")) and "spam_part_0000" in text
    masked.mask.rename(masked.mask.with_name("labels_part_0000.npy"))
    assert "mask `labels`: expected a mask, found the name of labels" in said("--mask", "labels")
    masked.mask.write_bytes(b"\1" * 7)
    assert "labels_mask_part_0000.npy: expected a byte for each of the" in said()
    assert run_index(program, *common, "--mask", "none", path).returncode == 0


def test_the_hint_for_a_long_mask_names_the_mask(program, tmp_path):
    """The command that a refusal names makes the sidecar of the config."""
    count = (256 << 20) + 2
    path, mask = tmp_path / "token_ids_part_0000.npy", tmp_path / "answers_part_0000.npy"
    for file, width in (path, 2), (mask, 1):
        with open(file, "wb") as holes:
            holes.truncate(count * width)
    (tmp_path / "token_ids_part_0000.csv").write_text(f"0,{count},a,x,0\n")
    source = {"path": str(path), "dtype": "u16", "mask": "answers", "mask_of": "next"}
    config = tmp_path / "c.yaml"
    config.write_text(json.dumps({"sources": [source], "seq_len": 9, "batch_size": 1}))
    done = subprocess.run([program, "plan", "-c", config], capture_output=True, text=True)
    assert done.returncode == 2 and "too long to be read at every start" in done.stderr
    hint = f"ringpack index --dtype u16 --mask answers --mask-of next {path}"
    assert hint in done.stderr, done.stderr
