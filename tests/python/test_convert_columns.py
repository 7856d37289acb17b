# SPDX-License-Identifier: Apache-2.0
"""`ringpack convert --side-column`: one reading of the inputs writes tokens and columns. Each .col
has the bytes that `ringpack column` makes of the same rows afterwards, by any number of workers and
parts and over kills; rows that do not fit are refused by file and row, without an output."""

import gzip
import json
import os
import signal
import time
from pathlib import Path

import numpy
import pytest
from column_kit import column
from convert_kit import convert, documents, refused, some_documents, start, written

SEED = 3417
ENDS = ("--vocab-size", 50000, "--eos", 3, "--bos", 2)
SIDES = ("--side-column", "weight=w", "--side-column", "top=t:i32")
TOP = ("--type", "i32")


def some_rows(seed, count):
    """Rows with ids, a value and three values for each of them, and a number."""
    generator = numpy.random.default_rng(seed)
    rows = []
    for ids in some_documents(seed, count):
        n = len(ids)
        rows.append({
            "input_ids": ids,
            "w": (generator.integers(1, 1000, n) / 8).tolist(),
            "t": generator.integers(-9, 50000, (n, 3)).tolist(),
            "score": int(generator.integers(1, 99)) / 4,
        })
    return [row for row in rows if row["input_ids"]]


def write(rows, path, **options):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.feather
    import pyarrow.parquet

    kinds = {
        "input_ids": pyarrow.list_(pyarrow.int32()), "w": pyarrow.list_(pyarrow.float32()),
        "t": pyarrow.list_(pyarrow.list_(pyarrow.int64())), "score": pyarrow.float64(),
    }
    table = pyarrow.table({name: pyarrow.array([row[name] for row in rows], kinds[name])
                           for name in kinds})
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, **{"row_group_size": 20, **options})
    else:
        pyarrow.feather.write_feather(table, path, chunksize=7)
    return path


def entries(prefix, name, dtype, count=1):
    data = Path(f"{prefix}.{name}.col").read_bytes()
    rows = int.from_bytes(data[24:32], "little")
    found = numpy.frombuffer(data, dtype, rows * count, 4096)
    return found.reshape(-1, count) if count > 1 else found


def cols(prefix):
    folder = Path(prefix).parent
    return {path.name.split(".", 1)[1]: path.read_bytes()
            for path in folder.glob(f"{Path(prefix).name}.*.col")}


def made_afterwards(program, folder, paths, ends=ENDS, inserted="both"):
    """The output and the columns of two commands."""
    folder.mkdir()
    convert(program, *ends, "-o", folder / "out", *paths)
    pattern = paths[0].parent / f"*{paths[0].suffix}"
    sources = [{"name": "a", "shards": [str(folder / "out.bin")]}]
    column(program, folder, sources, "weight", f"{pattern}:w", "--inserted", inserted)
    column(program, folder, sources, "top", f"{pattern}:t", "--inserted", inserted, *TOP)
    return written(folder / "out"), cols(folder / "out")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Files of 40 rows each, by their form."""
    made = {}
    for form in ("jsonl", "parquet", "arrow"):
        place = tmp_path_factory.mktemp(form)
        made[form] = [write(some_rows(SEED + i, 40), place / f"{i}.{form}") for i in range(4)]
    return made


@pytest.mark.parametrize("form", ["jsonl", "parquet", "arrow"])
def test_the_bytes_are_those_of_two_commands(program, inputs, tmp_path, form):
    wanted = made_afterwards(program, tmp_path / "two", inputs[form])
    assert sorted(wanted[1]) == ["top.col", "weight.col"]
    for number, options in enumerate([
        ("--group-bytes", "1g"), ("--group-bytes", 1, "--workers", 1),
        ("--group-bytes", 1, "--workers", 3),
    ]):
        out = tmp_path / str(number) / "out"
        out.parent.mkdir()
        said = convert(program, *ENDS, *SIDES, *options, "-o", out, *inputs[form])
        assert (written(out), cols(out)) == wanted
        assert f"{out}.weight.col: f32" in said and f"{out}.top.col: i32x3" in said
        assert len(os.listdir(out.parent)) == 6  # with tokens.json


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_packed_lines_give_the_same_columns(program, inputs, tmp_path, suffix):
    pack = gzip.compress
    if suffix == "zst":
        pack = pytest.importorskip("zstandard").compress
    packed = []
    for path in inputs["jsonl"]:
        packed.append(tmp_path / f"{path.name}.{suffix}")
        packed[-1].write_bytes(pack(path.read_bytes()))
    convert(program, *ENDS, *SIDES, "-o", tmp_path / "plain", *inputs["jsonl"])
    convert(program, *ENDS, *SIDES, "--workers", 2, "-o", tmp_path / "packed", *packed)
    assert written(tmp_path / "packed") == written(tmp_path / "plain")
    assert cols(tmp_path / "packed") == cols(tmp_path / "plain") != {}


def test_entries_are_those_of_the_rows(program, inputs, tmp_path):
    """Lists with zeros at the ends, and a number that the ends have too; by the rows alone."""
    rows = [json.loads(line) for path in inputs["jsonl"] for line in open(path)]
    for form in ("jsonl", "parquet"):
        out = tmp_path / form
        convert(program, *ENDS, *SIDES, "--side-column", "score=score:f64", "-o", out,
                *inputs[form])
        expected = numpy.concatenate([[0, *row["w"], 0] for row in rows])
        assert (entries(out, "weight", "<f4") == expected).all()
        zero = [[0, 0, 0]]
        expected = numpy.concatenate([numpy.concatenate([zero, row["t"], zero]) for row in rows])
        assert (entries(out, "top", "<i4", 3) == expected).all()
        expected = [row["score"] for row in rows for _ in range(len(row["input_ids"]) + 2)]
        assert (entries(out, "score", "<f8") == expected).all()
        assert [d[1:-1] for d in documents(out)] == [row["input_ids"] for row in rows]


def test_a_planted_defect_is_found(program, broken, inputs, tmp_path):
    """A BOS that does not move the entries after it."""
    wanted = made_afterwards(program, tmp_path / "two", inputs["jsonl"])
    environment = {"RP_DEFECT": "side_before_bos"}
    convert(broken, *ENDS, *SIDES, "-o", tmp_path / "out", *inputs["jsonl"], env=environment)
    assert written(tmp_path / "out") == wanted[0]
    assert cols(tmp_path / "out") != wanted[1]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_one_file_in_pieces(program, tmp_path, form):
    rows = [row for i in range(40) for row in some_rows(SEED + i, 40)]
    options = {"row_group_size": 100, "compression": "none", "use_dictionary": False}
    path = write(rows, tmp_path / f"a.{form}", **options)
    convert(program, *ENDS, *SIDES, "--group-bytes", "1g", "-o", tmp_path / "whole", path)
    convert(program, *ENDS, *SIDES, "--group-bytes", 1, "--workers", 2, "-o", tmp_path / "out",
            path)
    assert written(tmp_path / "out") == written(tmp_path / "whole")
    assert cols(tmp_path / "out") == cols(tmp_path / "whole") != {}
    rows[1400]["w"].append(1.0)
    n = len(rows[1400]["input_ids"])
    write(rows, path, **options)
    place = "a.jsonl:1401" if form == "jsonl" else "a.parquet: row 1400"
    refused(program, *ENDS, *SIDES, "--force", "--group-bytes", 1, "-o", tmp_path / "out", path,
            words=[f"{place}: `w`: expected {n} values, as the document has ids, found {n + 1}"])


def test_enough_tokens(program, inputs, tmp_path):
    """The last part is cut after the document that reaches them."""
    common = (*ENDS, *SIDES, "--max-tokens", 9000)
    convert(program, *common, "--group-bytes", "1g", "-o", tmp_path / "a", *inputs["jsonl"])
    convert(program, *common, "--group-bytes", 1, "-o", tmp_path / "b", *inputs["jsonl"])
    assert written(tmp_path / "a") == written(tmp_path / "b")
    assert cols(tmp_path / "a") == cols(tmp_path / "b") != {}
    assert len(entries(tmp_path / "a", "weight", "<f4")) == sum(map(len, documents(tmp_path / "a")))


def test_machines_kills_and_parts(program, inputs, tmp_path):
    """Two machines make parts, one is killed many times; a part that changed is made again, one of
    other columns is not joined, and no other file is left."""
    wanted = made_afterwards(program, tmp_path / "two", inputs["jsonl"])
    out = tmp_path / "out"
    common = (*ENDS, *SIDES, "--group-bytes", 1, "--workers", 1, "-o", out, *inputs["jsonl"])
    convert(program, *common, "--part", "1/2")
    part = tmp_path / "out.parts" / "000003.top.col"
    data = bytearray(part.read_bytes())
    data[5000] ^= 1
    part.write_bytes(data)
    for i in range(12):
        process = start(program, *common)
        time.sleep(0.02 * i)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if out.with_name("out.idx").exists():
            break
        assert not (tmp_path / "out.bin.rpi").exists()
    convert(program, *common, "--force")
    assert (written(out), cols(out)) == wanted
    other = (*common[:8], "--side-column", "spam=t:i32", *common[10:])
    convert(program, *common, "--part", "0/1")
    refused(program, *other, "--merge", "--force",
            words=["out.top.col: a side column of the output that is replaced", "found `top`"])
    os.unlink(tmp_path / "out.top.col")
    refused(program, *other, "--merge", "--force", words=["are of other inputs or options"])


def test_columns_that_are_there(program, inputs, tmp_path):
    """Without --force none is replaced; with it those that are made, and another is refused."""
    out, path = tmp_path / "out", inputs["jsonl"][0]
    stale = tmp_path / "out.old.col"
    stale.write_text("another one's")
    refused(program, *ENDS, *SIDES, "-o", out, path,
            words=["out.old.col: it exists already", "--force"])
    refused(program, *ENDS, *SIDES, "--force", "-o", out, path,
            words=["out.old.col: a side column of the output that is replaced",
                   "(weight, top), found `old`", "give --side-column for it too, remove it"])
    refused(program, *ENDS, "--force", "-o", out, path, words=["(none), found `old`"])
    assert os.listdir(tmp_path) == ["out.old.col"]
    stale.rename(tmp_path / "out.x.weight.col")  # the column of out.x.bin
    convert(program, *ENDS, *SIDES, "-o", out, path)
    before = cols(out)
    convert(program, *ENDS, *SIDES, "--force", "-o", out, path)
    assert cols(out) == before


def test_texts_chats_and_pairs_have_numbers(program, tmp_path):
    """A text has a number, or as many values as its tokens; each half of a pair has the number."""
    path = tmp_path / "t.jsonl"
    rows = [{"text": "ab", "s": 1.5, "w": [1, 2]}, {"text": "", "s": None},
            {"text": "c", "s": True, "w": [3]}]
    write(rows, path)
    common = ("--tokenizer", "bytes", "-o", tmp_path / "out")
    convert(program, *common, "--side-column", "s=s", "--side-column", "w=w:u8", path)
    assert entries(tmp_path / "out", "s", "<f4").tolist() == [1.5, 1.5, 1.5, 1, 1]
    assert entries(tmp_path / "out", "w", "u1").tolist() == [1, 2, 0, 3, 0]
    rows[0]["text"] = "abc"
    write(rows, path)
    refused(program, *common, "--force", "--side-column", "s=s", "--side-column", "w=w:u8", path,
            words=["t.jsonl:1: `w`: expected 3 values, as the document has ids, found 2"])
    write([{"chosen": "a b", "rejected": "a cd", "s": 2}], path)
    common += ("--force", "--side-column", "s=s:i16", "--side-column", "w=s:u8")
    convert(program, *common, path)
    assert entries(tmp_path / "out", "s", "<i2").tolist() == [2] * 9
    refused(program, *common, "--skip-bad", path,
            words=["t.jsonl:1: --skip-bad leaves out lines", "as Parquet"])


def test_values_wait_for_their_texts(program, tmp_path):
    """A tokenizer has many lines at a time, of several files, with rows of ids between them."""
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({"a": 0, "b": 1, "<eos>": 2}, unk_token="b")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    rows, generator = [], numpy.random.default_rng(SEED)
    for i in range(9000):
        n = int(generator.integers(0, 4))
        values = generator.integers(0, 99, n).tolist()
        kind = {"input_ids": [0] * n} if i % 3001 == 3000 else {"text": "a " * n}
        rows.append({**kind, "s": i, "w": values})
    paths = [write(rows[at : at + 4500], tmp_path / f"{at}.jsonl") for at in (0, 4500)]
    convert(program, "--tokenizer", tmp_path / "tokenizer.json", "--eos", "<eos>", "-o",
            tmp_path / "out", "--side-column", "s=s:u16", "--side-column", "w=w:u8", *paths)
    rows = [row for row in rows if row.get("text") or row.get("input_ids")]
    expected = [value for row in rows for value in [*row["w"], 0]]
    assert entries(tmp_path / "out", "w", "u1").tolist() == expected
    expected = [row["s"] for row in rows for _ in [*row["w"], 0]]
    assert entries(tmp_path / "out", "s", "<u2").tolist() == expected


def test_tables_of_texts_and_pairs(program, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, out = tmp_path / "t.parquet", tmp_path / "out"
    common = ("--tokenizer", "bytes", "-o", out, "--side-column", "s=s", path)
    texts = ["ab", None, "c" * 5] * 3000
    parquet.write_table(pyarrow.table({"text": texts, "s": numpy.arange(9000, dtype="i4")}), path)
    convert(program, *common)
    lengths = [len(text) + 1 if text else 0 for text in texts]
    assert (entries(out, "s", "<i4") == numpy.repeat(numpy.arange(9000), lengths)).all()
    pairs = {"chosen": ["a b", None, "x y"], "rejected": ["a c", None, "x zz"], "s": [5, 6, 7]}
    parquet.write_table(pyarrow.table(pairs), path)
    convert(program, *common, "--force")
    assert entries(out, "s", "<i8").tolist() == [5] * 8 + [7] * 9


def test_padding_is_cut_off_columns_too(program, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = {"input_ids": [[5, 6, 0], [7, 8, 9]], "attention_mask": [[1, 1, 0], [1, 1, 1]],
             "w": [[1.5, 2.5, 9.5], [3.5, 4.5, 5.5]]}
    parquet.write_table(pyarrow.table(table), tmp_path / "p.parquet")
    convert(program, "--no-append-eos", "--side-column", "w=w", "-o", tmp_path / "out",
            tmp_path / "p.parquet")
    assert entries(tmp_path / "out", "w", "<f8").tolist() == [1.5, 2.5, 3.5, 4.5, 5.5]


BAD = [
    ({"w": [1, "a"]}, "", "expected a number, or a list of numbers or of lists of one length, in "
     "`w`, found a list", None),
    ({"w": "a"}, "", "in `w`, found text", None),
    ({"w": None}, "", "in `w`, found null", "expected 2 values, as the document has ids, found 0"),
    ({}, "", "in `w`, found none", None),
    ({"w": [[1], [1, 2]]}, "", "in `w`, found a list", None),
    ({"w": [[], []]}, "", "in `w`, found a list", None),
    ({"w": [1]}, "", "`w`: expected 2 values, as the document has ids, found 1",
     "`w`: expected 2 values, as the document has ids, found 1"),
    ({"w": [1, 300]}, ":u8", "expected values of u8 in `w`, found 300", "uint8 does not hold 300"),
    ({"w": [1, -1]}, ":u16", "expected values of u16 in `w`, found -1", "uint16 does not hold -1"),
    ({"w": [1, 16777217]}, "", "expected values of f32 in `w`, found 16777217", None),
    ({"w": [1, 1.5]}, ":i32", "expected values of i32 in `w`, found 1.5",
     "int32 does not hold 1.5"),
    ({"w": [1, 1e39]}, ":f32", "expected values of f32 in `w`", "float32 does not hold 1e+39"),
    ({"w": [1, 70000]}, ":f16", "expected values of f16 in `w`, found 70000",
     "float16 does not hold 70000"),
]


@pytest.mark.parametrize("row, kind, line_said, table_said", BAD)
def test_rows_that_do_not_fit(program, tmp_path, row, kind, line_said, table_said):
    """By file and row, as JSON and as Parquet; --skip-bad leaves them out; no file is written."""
    fine = {"input_ids": [4, 5], "w": [1, 2]}
    rows = [fine, {"input_ids": [6, 7], **row}, fine]
    path = write(rows, tmp_path / "b.jsonl")
    paths = [(path, line_said)]
    if table_said:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "b.parquet")
        paths.append((tmp_path / "b.parquet", table_said))
    for path, said in paths:
        common = ("--no-append-eos", "--side-column", f"w=w{kind}", "-o", tmp_path / "out", path)
        place = "b.jsonl:2: " if path.suffix == ".jsonl" else "b.parquet: row 1: "
        refused(program, *common, words=[said, place])
        assert not list(tmp_path.glob("out*"))
        convert(program, *common, "--skip-bad", "--force")
        assert documents(tmp_path / "out") == [[4, 5], [4, 5]]
        found = {"": "<f4" if path.suffix == ".jsonl" else "<f8", ":u8": "u1", ":u16": "<u2",
                 ":i32": "<i4", ":f32": "<f4", ":f16": "<f2"}[kind]
        if path.suffix == ".jsonl" or kind:
            assert entries(tmp_path / "out", "w", found).tolist() == [1, 2, 1, 2]
        for file in tmp_path.glob("out*"):
            file.unlink()


def test_types_of_json_are_those_of_numpy(program, tmp_path):
    """Numbers at the limits of each type, against numpy's own, and against `ringpack column`."""
    generator = numpy.random.default_rng(SEED)
    real = [*(generator.normal(0, 1, 400) * 10.0 ** generator.integers(-9, 5, 400)), 0.0, -0.0,
            65504.0, 65519.0, 6.1035e-05, 2.0**-24, 2.0**-25, 1.0009765625 + 2.0**-11]
    values = {"f16": [v for v in real if abs(v) < 65520], "f32": [*real, 3.4e38], "f64": real,
              "i64": [2**63 - 1, -(2**63), 0], "u16": [65535, 0], "i8": [-128, 127], "u8": [255]}
    for kind, numbers in values.items():
        path = write([{"input_ids": [1] * len(numbers), "w": numbers}], tmp_path / "v.jsonl")
        out = tmp_path / kind
        convert(program, "--no-append-eos", "--side-column", f"w=w:{kind}", "-o", out, path)
        code = {"i": "<i", "u": "<u", "f": "<f"}[kind[0]] + str(int(kind[1:]) // 8)
        expected = numpy.array(numbers).astype(code)
        assert entries(out, "w", code).tobytes() == expected.tobytes(), kind
        before = cols(out)
        sources = [{"name": "a", "shards": [f"{out}.bin"]}]
        column(program, tmp_path, sources, "w", path, "--type", kind, "--replace")
        assert cols(out) == before


def test_types_and_forms_are_refused_by_name(program, inputs, tmp_path):
    out = ("-o", tmp_path / "out")
    common = ("--no-append-eos", *out)
    text, one = tmp_path / "a.txt", inputs["jsonl"][0]
    text.write_text("words")
    refused(program, "--side-column", "w=w", *out, text,
            words=["a.txt: side columns are read from jsonl, parquet, arrow and lance, and this is "
                   "text"])
    for option in "w", "=w", "w=", "w=w:f128":
        refused(program, "--side-column", option, *common, one,
                words=["--side-column: expected NAME=FIELD"])
    refused(program, "--side-column", "W=w", *common, one, words=["column `W`: expected a small"])
    twice = ("--side-column", "w=w", "--side-column", "w=t")
    refused(program, *twice, *common, one, words=["column `w` is given twice"])
    refused(program, "--side-column", "w=no", *common, inputs["parquet"][0],
            words=["0.parquet: expected a column `no`, found input_ids, w, t, score"])
    mixed = (inputs["jsonl"][0], inputs["parquet"][0])
    refused(program, "--side-column", "s=score", *common, *mixed,
            words=["0.parquet", "side column `s`: expected f32, as earlier documents have, found "
                   "f64"])
    refused(program, "--side-column", "s=score", *common, "--group-bytes", 1, *mixed,
            words=["0.parquet", "side column `s`: expected f32, as earlier documents have"])
    convert(program, "--side-column", "s=score:f32", *common, "--group-bytes", 1, *mixed)
