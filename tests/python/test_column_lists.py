# SPDX-License-Identifier: Apache-2.0
"""Side columns of lists in tables and lines, and of safetensors: the entries that numpy's flattened
array has; lists that do not fit their documents are refused by document."""

import gzip
import io
import json

import numpy
import pytest
from column_kit import Columns, assert_columns, column, read_all
from convert_kit import convert
from ringpack._convert.archives import Pieces
from ringpack._convert.lists import answer_lists
from ringpack._convert.readers import READERS
from stream_kit import Corpus, Engine, write_megatron

SEED = 3210
LENGTHS = [30, 1, 200, 64, 0, 90]


@pytest.fixture
def made(tmp_path):
    """Two shards with an EOS after each document, empty ones but; and their tables."""
    pyarrow = pytest.importorskip("pyarrow")
    generator = numpy.random.default_rng(SEED)
    corpus = Corpus(tmp_path, [], SEED)
    corpus.tables, corpus.weights, corpus.top = [], [], []
    shards, documents = [], []
    for number in range(2):
        ids = [generator.integers(0, 900, n) for n in LENGTHS]
        weights = [generator.random(n).astype("<f4") + 1 for n in LENGTHS]
        top = [generator.integers(1, 900, (n, 4)).astype("<i4") for n in LENGTHS]
        columns = {
            "input_ids": pyarrow.array(ids, pyarrow.list_(pyarrow.int32())),
            "weight": pyarrow.array(weights, pyarrow.list_(pyarrow.float32())),
            "top": pyarrow.array(
                [[list(map(int, row)) for row in one] for one in top],
                pyarrow.list_(pyarrow.list_(pyarrow.int32())),
            ),
        }
        corpus.tables.append(pyarrow.table(columns))
        corpus.weights += weights
        corpus.top += top
        own = [numpy.append(d, 999) if len(d) else d for d in ids]
        shards.append(write_megatron(tmp_path / str(number), own, "u16"))
        documents += own
    corpus.sources = [{"name": "a", "shards": shards}]
    corpus.documents = [documents]
    return corpus


def write(table, path):
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet

    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=3)
    elif path.suffix == ".arrow":
        with pyarrow.OSFile(str(path), "wb") as file:
            with pyarrow.ipc.new_stream(file, table.schema) as out:
                out.write_table(table, max_chunksize=2)
    else:
        lines = "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()
        path.write_bytes(PACKED.get(path.suffix, bytes)(lines))
    return path


def in_frames(data):
    zstandard = pytest.importorskip("zstandard")
    return b"".join(zstandard.compress(part) for part in (data[:5000], data[5000:]))


# `.ndjson` has no name of an archive: `convert` knows gzip by its first bytes.
PACKED = {".gz": gzip.compress, ".ndjson": gzip.compress, ".zst": in_frames}


def expected(made, values, kinds):
    """With a zero at each EOS."""
    columns = Columns(made, None, kinds, SEED)
    (name,) = kinds
    zero = numpy.zeros((1, *values[0].shape[1:]), kinds[name][0])
    columns.values[name] = [
        numpy.concatenate([numpy.concatenate([v, zero]) if len(v) else v for v in values])
    ]
    return columns


def read(program, folder, made, columns):
    keys = {"sources": made.sources, "seq_len": 48, "batch_size": 2, "columns": list(columns.kinds)}
    engine = Engine(program, folder, {**keys, "sections": ["provenance"]})
    rows, _ = read_all(engine, lambda batch: assert_columns(batch, columns))
    assert len(rows) >= 15
    assert engine.stop() == 0


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl", "jsonl.gz", "ndjson", "json.zst"])
def test_lists_become_the_entries_of_their_documents(made, program, tmp_path, form):
    for number, table in enumerate(made.tables):
        path = write(table, tmp_path / f"v{number}.{form}")
        if form != "arrow":  # it keeps empty rows of tables, and leaves out empty lines
            convert(program, "--force", "--eos", "999", "-o", tmp_path / str(number), path)
    is_lines = form not in ("parquet", "arrow")
    if is_lines:
        made.documents[0] = [d for d in made.documents[0] if len(d)]
        made.weights = [w for w in made.weights if len(w)]
        made.top = [t for t in made.top if len(t)]
    pattern = tmp_path / f"v*.{form}"
    column(program, tmp_path, made.sources, "weight", pattern, "--inserted", "eos")
    read(program, tmp_path, made, expected(made, made.weights, {"weight": ("<f4", 1)}))
    more = ("--type", "i32") if is_lines else ()
    column(
        *(program, tmp_path, made.sources, "teacher", f"{pattern}:top"),
        *("--inserted", "eos", *more),
    )
    read(program, tmp_path, made, expected(made, made.top, {"teacher": ("<i4", 4)}))


def test_a_tensor_of_safetensors_becomes_a_column(made, program, tmp_path):
    numpy_files = pytest.importorskip("safetensors.numpy")
    columns = expected(made, made.top, {"teacher": ("<i4", 4)})
    values = columns.values["teacher"][0]
    path = tmp_path / "t.safetensors"
    numpy_files.save_file({"top": values, "flat": values[:, 0].copy()}, path)
    column(program, tmp_path, made.sources, "teacher", f"{path}:top")
    read(program, tmp_path, made, columns)

    def told(wanted):
        done = column(
            *(program, tmp_path, made.sources, "teacher", f"{path}{wanted}", "--replace"),
            check=False,
        )
        assert done.returncode == 2, done.stderr
        return done.stderr

    assert "tensor `teacher`: expected a tensor of this name, found" in told("")
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    assert "its place in the file has other bytes" in told(":top")
    path.write_bytes(b"\xff" * 40)
    assert "expected a header of safetensors" in told(":top")
    path.write_bytes(data[:8] + b"[" + data[9:])
    assert "its header is no JSON" in told(":top")


def test_lists_that_do_not_fit_are_refused(made, program, tmp_path):
    """Shorter, longer, one too few, one too many: by document, and nothing is written."""
    path = tmp_path / "v.jsonl"

    def told(lists, *options):
        path.write_text("".join(json.dumps({"weight": one}) + "\n" for one in lists))
        done = column(program, tmp_path, made.sources, "weight", path, *options, check=False)
        assert done.returncode == 2, done.stderr
        assert not list(tmp_path.glob("*.weight.col")), done.stderr
        assert "next: " in done.stderr
        return done.stderr

    made.documents[0] = [d for d in made.documents[0] if len(d)]
    write_megatron(tmp_path / "0", made.documents[0][:5], "u16")
    write_megatron(tmp_path / "1", made.documents[0][5:], "u16")
    lists = [w.tolist() for w in made.weights if len(w)]
    eos = ("--inserted", "eos")
    message = told(lists)
    assert "list 0: expected 31 values, as document 0 of" in message and "found 30" in message
    assert "--inserted eos, bos or both" in message
    assert "expected 31 values" in told(lists, "--inserted", "both")
    assert "list 2: expected 201 values" in told([*lists[:2], lists[2][:-1], *lists[3:]], *eos)
    assert "list 7: expected 201 values" in told([*lists[:7], lists[7] + [1, 1], *lists[8:]], *eos)
    assert "expected 10 lists, as the source `a` has documents, found 9" in told(lists[:-1], *eos)
    assert "found 11" in told([*lists, [1.0]], *eos)
    assert "v.jsonl:11: `weight`: expected a list of numbers" in told([*lists, "a"], *eos)
    assert "--type: expected u8, i8" in told(lists, *eos, "--type", "f128")


def test_archives_that_are_damaged_or_end_early_are_refused(made, program, tmp_path, monkeypatch):
    """As `convert` refuses them, and without their package; no file is written."""
    packed = in_frames(b'{"weight": [1, 2]}\n' * 500)

    def told(name, data):
        path = tmp_path / name
        path.write_bytes(data)
        done = column(program, tmp_path, made.sources, "weight", path, check=False)
        assert done.returncode == 2 and "next: " in done.stderr, done.stderr
        assert not list(tmp_path.glob("*.weight.col"))
        return done.stderr

    for cut in packed[:-3], b"not zstd", packed[: len(packed) // 3]:
        message = told("v.jsonl.zst", cut)
        assert "v.jsonl.zst: expected a zstd archive, found one that is damaged or" in message
    assert "cannot be read" in told("v.jsonl.gz", gzip.compress(b'{"weight": [1]}\n')[:-9])
    pieces = Pieces(iter([b"", b"a\n", b"", b"b"]))  # a decompressor has no text yet
    assert list(io.BufferedReader(pieces)) == [b"a\n", b"b"]
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "zstandard.py").write_text("raise ImportError('none')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stub"))
    message = told("v.jsonl.zst", packed)
    assert "`zstandard` is not installed" in message and "pip install zstandard" in message


def test_rows_that_are_no_lists_of_numbers_are_refused(tmp_path):
    """By the worker: nulls, several widths, other types, texts, values that a type does not hold,
    lines that are no JSON."""
    pyarrow = pytest.importorskip("pyarrow")
    flat, nested = pyarrow.list_(pyarrow.float32()), pyarrow.list_(pyarrow.list_(pyarrow.int32()))

    def told(form, path, wanted="", field="weight"):
        sink = io.BytesIO()
        assert answer_lists(READERS, sink, form, str(path), field, wanted) == 0
        return sink.getvalue().decode("latin-1")

    def of_table(lists, kind, *more):
        table = pyarrow.table({"weight": pyarrow.array(lists, kind)})
        return told("parquet", write(table, tmp_path / "v.parquet"), *more)

    assert "row 1: `weight`: expected numbers, found null" in of_table([[1], [2, None]], flat)
    assert "row 1: `weight`: expected 2 values of each token, found 1" in of_table(
        [[[1, 2]], [[1, 2], [1]]], nested
    )
    assert "expected lists of numbers, found string" in of_table(["a"], pyarrow.string())
    assert "expected lists of numbers, found list" in of_table(
        [["a"]], pyarrow.list_(pyarrow.string())
    )
    assert "int16 does not hold 70000" in of_table([[[70000]]], nested, "i16")
    assert "int32 does not hold 1.5" in of_table([[1, 1.5]], flat, "i32")
    assert "float16 does not hold 65520" in of_table([[1, 65520]], flat, "f16")
    assert "expected a column `spam`, found weight" in of_table([[1]], flat, "", "spam")
    path = tmp_path / "v.jsonl"
    for line, said in [
        ('{"weight": "a"}', "v.jsonl:2: `weight`: expected a list of numbers"),
        ('{"weight": [1, "a"]}', "v.jsonl:2: `weight`: expected a list of numbers"),
        ('{"weight": [[1], [1, 2]]}', "v.jsonl:2: `weight`: expected a list of numbers"),
        ('{"weight": [16777217]}', "float32 does not hold 16777217"),
        ("{", "v.jsonl:2: expected JSON"),
    ]:
        path.write_text('{"weight": []}\n' + line + "\n")
        assert said in told("jsonl", path), line


def test_a_planted_defect_is_found(made, program, broken, tmp_path, monkeypatch):
    """With an EOS that takes a value of the next document."""
    for number, table in enumerate(made.tables):
        write(table, tmp_path / f"v{number}.arrow")
    pattern = tmp_path / "*.arrow"
    monkeypatch.setenv("RP_DEFECT", "value_for_inserted")
    column(broken, tmp_path, made.sources, "weight", pattern, "--inserted", "eos")
    monkeypatch.delenv("RP_DEFECT")
    with pytest.raises(AssertionError, match="weight"):
        read(program, tmp_path, made, expected(made, made.weights, {"weight": ("<f4", 1)}))
