# SPDX-License-Identifier: Apache-2.0
"""`ringpack convert` of Parquet and of Arrow files: its column, its ids, and refusals by file and
row. The files are written by pyarrow and datasets."""

import json
import subprocess

import pytest
import xxhash
from convert_kit import convert, documents, refused, some_documents, width, written

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

BARE = "--no-append-eos"


def table(**columns):
    made = {}
    for name, values in columns.items():
        type_ = None
        if name.endswith("_list") or name in ("input_ids", "tokens", "labels"):
            type_ = pyarrow.list_(pyarrow.int32())
        made[name] = pyarrow.array(values, type=type_)
    return pyarrow.table(made)


def save(path, *arguments, **columns):
    parquet.write_table(table(**columns), path, *arguments)
    return path


def test_the_column_of_ids_is_found(program, tmp_path):
    wanted = some_documents(1, 50)
    beside = {"text": ["x"] * 50, "n": [1] * 50, "attention_mask": [[1] * len(d) for d in wanted]}
    names = "input_ids", "tokens", "only_list"
    paths = [save(tmp_path / f"{n}.parquet", **{n: wanted}, **beside) for n in names]
    convert(program, BARE, "-o", tmp_path / "out", *paths)
    assert documents(tmp_path / "out") == wanted * 3


def test_a_column_can_be_named(program, tmp_path):
    wanted, other = some_documents(2, 20), [[1]] * 20
    path = save(tmp_path / "a.parquet", input_ids=other, b_list=wanted, text=["ab"] * 20)
    convert(program, BARE, "--column", "b_list", "-o", tmp_path / "out", path)
    assert documents(tmp_path / "out") == wanted
    convert(program, "--tokenizer", "bytes", "--column", "text", "-o", tmp_path / "text", path)
    assert documents(tmp_path / "text") == [[97, 98, 256]] * 20
    words = ["a.parquet", "`c`", "--column"]
    refused(program, BARE, "--column", "c", "-o", tmp_path / "x", path, words=words)
    path = save(tmp_path / "b.parquet", a_list=other, b_list=wanted)
    words = ["b.parquet", "not clear", "`a_list`, `b_list`", "--column"]
    refused(program, BARE, "-o", tmp_path / "x", path, words=words)


def test_every_integer_list(program, tmp_path):
    wanted, paths = [[3, 1, 100], [7, 8, 9], [0, 0, 0]], []
    for kind in "int64", "int32", "uint32", "uint16", "uint8", "int16", "uint64":
        value = getattr(pyarrow, kind)()
        types = [pyarrow.list_(value), pyarrow.large_list(value), pyarrow.list_(value, 3)]
        if hasattr(pyarrow, "list_view"):
            types += [pyarrow.list_view(value), pyarrow.large_list_view(value)]
        for type_ in types:
            rows = pyarrow.table({"tokens": pyarrow.array(wanted, type=type_)})
            paths += [tmp_path / f"{len(paths)}.parquet", tmp_path / f"{len(paths)}.feather"]
            parquet.write_table(rows, paths[-2])
            feather.write_feather(rows, paths[-1], compression="zstd")
    convert(program, BARE, "-o", tmp_path / "out", *paths)
    assert documents(tmp_path / "out") == wanted * len(paths)


def test_arrow_files(program, tmp_path):
    wanted, paths = some_documents(3, 300), []
    whole = table(input_ids=wanted)
    for packing in "lz4", "zstd", None:
        options = pyarrow.ipc.IpcWriteOptions(compression=packing)
        for make in pyarrow.ipc.new_file, pyarrow.ipc.new_stream:
            paths.append(tmp_path / f"{len(paths)}.arrow")
            with make(str(paths[-1]), whole.schema, options=options) as writer:
                writer.write_table(whole.slice(0, 100))
                writer.write_table(whole.slice(100), max_chunksize=37)
    convert(program, BARE, "-o", tmp_path / "out", *paths)
    assert documents(tmp_path / "out") == wanted * 6


def test_a_saved_data_set_has_its_own_order(program, tmp_path):
    datasets = pytest.importorskip("datasets")
    wanted = some_documents(4, 120)
    made = datasets.Dataset.from_dict({"input_ids": wanted})
    made.save_to_disk(tmp_path / "set", num_shards=12)
    convert(program, BARE, "-o", tmp_path / "out", tmp_path / "set")
    assert documents(tmp_path / "out") == wanted
    state = json.loads((tmp_path / "set" / "state.json").read_text())
    state["_indices_data_files"] = [{"filename": "indices.arrow"}]
    (tmp_path / "set" / "state.json").write_text(json.dumps(state))
    words = ["state.json", "flatten_indices"]
    refused(program, BARE, "-o", tmp_path / "x", tmp_path / "set", words=words)
    datasets.DatasetDict(train=made).save_to_disk(tmp_path / "splits")
    words = ["several splits", "train"]
    refused(program, BARE, "-o", tmp_path / "x", tmp_path / "splits", words=words)


def test_the_type_is_as_narrow_as_the_ids(program, tmp_path):
    narrow = save(tmp_path / "a.parquet", tokens=[[1, 65498]])
    wide = save(tmp_path / "b.parquet", tokens=[[1, 65499]])
    assert "u16 because the largest id is 65,498" in convert(
        program, BARE, "-o", tmp_path / "n", narrow)
    assert "i32 because the largest id is 65,499" in convert(
        program, BARE, "-o", tmp_path / "w", wide)
    assert (width(tmp_path / "n"), width(tmp_path / "w")) == (2, 4)
    convert(program, BARE, "--vocab-size", "65500", "-o", tmp_path / "v", narrow)
    assert width(tmp_path / "v") == 4
    # A wide id in any file makes all of the output wide, whoever meets it first.
    paths = [save(tmp_path / f"{i}.parquet", tokens=some_documents(i, 40)) for i in range(6)]
    for place in 0, 6:
        inputs = [*paths[:place], wide, *paths[place:]]
        convert(program, BARE, "-o", tmp_path / f"one{place}", *inputs)
        for workers in 1, 3:
            out = tmp_path / f"{place}-{workers}"
            options = (BARE, "--group-bytes", 1, "--workers", workers, "-o", out)
            convert(program, *options, *inputs)
            assert written(out) == written(tmp_path / f"one{place}")
            assert width(out) == 4


def test_ids_that_do_not_fit(program, tmp_path):
    rows = [[1, 2]] * 5000 + [[3, 70000]] + [[4]]
    path = save(tmp_path / "a.parquet", input_ids=rows)
    words = ["RP_E_VOCABULARY", "a.parquet: row 5000", "70000", "--vocab-size"]
    refused(program, BARE, "--vocab-size", "50000", "-o", tmp_path / "x", path, words=words)
    path = save(tmp_path / "b.parquet", input_ids=[[1], [], [5, -1]])
    words = ["b.parquet: row 2", "found -1"]
    refused(program, BARE, "-o", tmp_path / "x", path, words=words)
    large = pyarrow.array([[1], [2**31]], type=pyarrow.list_(pyarrow.int64()))
    parquet.write_table(pyarrow.table({"tokens": large}), tmp_path / "c.parquet")
    words = ["c.parquet: row 1", "found 2147483648"]
    refused(program, BARE, "-o", tmp_path / "x", tmp_path / "c.parquet", words=words)


def test_padding_is_taken_off(program, tmp_path):
    ids = [[5, 6, 0, 0], [7, 8, 9, 1], [0, 0, 0, 0], [4, 0, 0, 0]]
    mask = [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]]
    path = save(tmp_path / "a.parquet", input_ids=ids, attention_mask=mask, labels=ids)
    convert(program, BARE, "-o", tmp_path / "out", path)
    assert documents(tmp_path / "out") == [[5, 6], [7, 8, 9, 1], [], [4]]
    for hole in [0, 1, 1, 1], [1, 0, 1, 0]:
        holed = [mask[0], hole, *mask[2:]]
        path = save(tmp_path / "b.parquet", input_ids=ids, attention_mask=holed)
        words = ["b.parquet: row 1", "`attention_mask`", "a hole"]
        refused(program, BARE, "-o", tmp_path / "x", path, words=words)
    path = save(tmp_path / "c.parquet", input_ids=ids, attention_mask=[*mask[:3], [1]])
    refused(program, BARE, "-o", tmp_path / "x", path, words=["c.parquet: row 3", "found 1"])


def test_labels_can_be_left_out(program, tmp_path):
    ids = [[1, 2, 3], [4, 5, 6]]
    same = save(tmp_path / "a.parquet", input_ids=ids)
    convert(program, BARE, "-o", tmp_path / "a", same)
    path = save(tmp_path / "b.parquet", input_ids=ids, labels=[ids[0], [-100, 5, 6]])
    convert(program, BARE, "--drop-labels", "-o", tmp_path / "b", path)
    assert written(tmp_path / "a") == written(tmp_path / "b")
    assert not (tmp_path / "b.spans").exists()


def test_nulls_and_empty_rows(program, tmp_path):
    path = save(tmp_path / "a.parquet", input_ids=[[1, 2], None, [], [3]])
    convert(program, "--eos", 9, "-o", tmp_path / "out", path)
    assert documents(tmp_path / "out") == [[1, 2, 9], [], [], [3, 9]]  # document i is row i
    path = save(tmp_path / "b.parquet", input_ids=[[1, 2], None, [3, None]])
    words = ["b.parquet: row 2", "a null among them"]
    refused(program, BARE, "-o", tmp_path / "x", path, words=words)


def test_ends_of_documents(program, tmp_path):
    path = save(tmp_path / "a.parquet", tokens=[[1, 2], [7, 3, 9], [7, 9]])
    convert(program, "--bos", 7, "--eos", 9, "-o", tmp_path / "out", path)
    assert documents(tmp_path / "out") == [[7, 1, 2, 9], [7, 3, 9], [7, 9]]
    said = json.loads((tmp_path / "out.tokens.json").read_text())
    assert said == {"tokenizer": None, "bos": 7, "eos": 9}
    words = ["a.parquet", "which token ends a document is not known", "--eos N"]
    refused(program, "-o", tmp_path / "x", path, words=words)
    wide = ("--eos", 70000, "-o", tmp_path / "wide")
    convert(program, *wide, path)
    assert documents(tmp_path / "wide")[0] == [1, 2, 70000]


def test_text_through_a_tokenizer(program, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = {"a": 0, "b": 1, "<eos>": 2, "<s>": 3, "[UNK]": 4}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    texts = ["a b", "b", "", "a a c"]
    path = save(tmp_path / "a.parquet", text=texts)
    options = ("--tokenizer", tmp_path / "tokenizer.json", "--bos", "<s>")
    convert(program, *options, "-o", tmp_path / "out", path)
    wanted = [[3, 0, 1, 2], [3, 1, 2], [3, 0, 0, 4, 2]]
    assert documents(tmp_path / "out") == wanted
    said = json.loads((tmp_path / "out.tokens.json").read_text())
    assert said["tokenizer"]["name"] == tmp_path.name
    digest = xxhash.xxh3_128_hexdigest((tmp_path / "tokenizer.json").read_bytes())
    assert said["tokenizer"]["xxh3_128"] == digest
    shown = subprocess.run([program, "inspect", "--json", tmp_path / "out.bin"], check=True,
                           capture_output=True, text=True)
    assert json.loads(shown.stdout)[0]["tokenizer"] == said["tokenizer"]
    assert (said["vocab_size"], said["bos"], said["eos"]) == (5, 3, 2)
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "a.jsonl").write_text(lines)
    convert(program, *options, "-o", tmp_path / "jsonl", tmp_path / "a.jsonl")
    assert written(tmp_path / "jsonl") == written(tmp_path / "out")
    refused(program, *options[:2], "--bos", "<no>", "-o", tmp_path / "x", path, words=["--bos"])


def test_what_cannot_be_read(program, tmp_path):
    good = save(tmp_path / "a.parquet", tokens=some_documents(5, 500))
    data = good.read_bytes()
    for name, cut in ("short", data[: len(data) // 2]), ("head", data[:3]), ("none", b""):
        path = tmp_path / f"{name}.parquet"
        path.write_bytes(cut)
        refused(program, BARE, "-o", tmp_path / "x", path, words=[f"{name}.parquet", "`parquet`"])
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "pyarrow.py").write_text("raise ImportError('none')")
    words = ["`pyarrow` is not installed", "pip install pyarrow"]
    environment = {"PYTHONPATH": str(tmp_path / "stub")}
    refused(program, BARE, "-o", tmp_path / "x", good, words=words, env=environment)
    pickled = tmp_path / "a.pkl"
    pickled.write_bytes(b"\x80\x04N.")
    words = ["a.pkl", "a pickle runs whatever program it holds"]
    refused(program, BARE, "-o", tmp_path / "x", pickled, words=words)


def test_text_beside_files_of_records_is_left_out(program, tmp_path):
    place = tmp_path / "set"
    place.mkdir()
    wanted = some_documents(6, 30)
    save(place / "b.parquet", tokens=wanted[15:])
    save(place / "a.parquet", tokens=wanted[:15])
    (place / "README.md").write_text("about this data set")
    said = convert(program, BARE, "-o", tmp_path / "out", place)
    assert documents(tmp_path / "out") == wanted
    assert "left out: 1 files of text next to files of records" in said


ROWS = {
    "padding": [{"input_ids": [5, 6, 7, 0], "attention_mask": [1, 1, 1, 0],
                 "labels": [-100, 6, 7, -100], "w": [1, 2, 3, 4]}],
    "two lists of ids": [{"tokens": [1, 2], "input_ids": [3, 4, 5]}],
    "a named text": [{"text": "AAAA", "content": "BB"}],
    "named ids": [{"input_ids": [1, 2], "chosen_ids": [3, 4, 5]}],
    "a pair with a completion": [{"prompt": "a", "completion": "b",
                                  "chosen": "c", "rejected": "d"}],
}
OPTIONS = {"padding": ["--side-column", "w=w:i32"], "a named text": ["--column", "content"],
           "named ids": ["--column", "chosen_ids"]}


@pytest.mark.parametrize("case", ROWS)
def test_lines_are_read_as_rows_of_columns_are(program, tmp_path, case):
    rows = ROWS[case]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    made = []
    for name in "a.jsonl", "a.parquet":
        out = tmp_path / name[2:]
        convert(program, BARE, "--tokenizer", "bytes", *OPTIONS.get(case, ()), "-o", out,
                tmp_path / name)
        sides = [path.read_bytes() for path in tmp_path.glob(f"{out.name}.*.col")]
        spans = [path.read_bytes() for path in tmp_path.glob(f"{out.name}.spans")]
        made.append((written(out)[:2], sides, spans))
    assert made[0] == made[1]


def test_lines_with_two_readings_are_refused(program, tmp_path):
    lines = {
        '{"input_ids": [5, 6, 7], "attention_mask": [1, 0, 1]}': "attention_mask",
        '{"input_ids": [5, 6, 7], "attention_mask": [1, 1]}': "attention_mask",
        '{"text": "A", "text": "B"}': "duplicate",
        '{"other": "A"}': "--column",
    }
    for line, word in lines.items():
        path = tmp_path / "a.jsonl"
        path.write_text(line)
        options = ["--column", "content"] if word == "--column" else []
        refused(program, BARE, *options, "-o", tmp_path / "x", path, words=["a.jsonl:1", word])
