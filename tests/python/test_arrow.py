# SPDX-License-Identifier: Apache-2.0
"""Arrow files that pyarrow and datasets wrote: every document in place, in every form, equal to its
Megatron copy; killed and resumed; forms that cannot be read in place are refused by name."""

import json
import os
import subprocess

import numpy
import pytest
from in_place_kit import assert_refused, serve_all, serve_in_lives
from stream_kit import Engine, Ranks, Stream, Taken, Written, write_megatron

arrow = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
datasets = pytest.importorskip("datasets")

SEED = 4711
LENGTHS = [3, 0, 48, 1, 97, 5, 0, 33, 12, 2]


def make_documents(count, limit=30000, number=0):
    generator = numpy.random.default_rng(SEED + number)
    lengths = [LENGTHS[(i + number) % len(LENGTHS)] for i in range(count)]
    return [generator.integers(0, limit, n).tolist() for n in lengths]


def table_of(documents, kind, name="input_ids", **more):
    """Columns before and after the tokens, some of them nested, so that buffers must be counted."""
    count = len(documents)
    before = {
        "text": arrow.array([f"row {i}" for i in range(count)]),
        "meta": arrow.array([{"a": i, "b": [str(i)] * (i % 3)} for i in range(count)]),
        "view": arrow.array([f"a rather long text of row {i}" for i in range(count)]).cast(
            arrow.string_view()
        ),
        "word": arrow.array([f"w{i % 3}" for i in range(count)]).dictionary_encode(),
        "nothing": arrow.nulls(count),
    }
    after = {"labels": arrow.array(documents, arrow.list_(arrow.int64()))}
    return arrow.table({**before, name: arrow.array(documents, kind), **after, **more})


def write(path, table, batch=7, form="stream", **options):
    if options:
        options = {"options": arrow.ipc.IpcWriteOptions(**options)}
    opener = arrow.ipc.new_stream if form == "stream" else arrow.ipc.new_file
    with arrow.OSFile(str(path), "wb") as file, opener(file, table.schema, **options) as writer:
        for part in table.to_batches(max_chunksize=batch):
            writer.write_batch(part)
    return str(path)


def list_of(kind):
    return arrow.list_(getattr(arrow, kind)())


# ---- the forms: each writes documents, and returns paths and documents ---------------------------


def integers(kind, form):
    def make(folder):
        limit = {"int8": 100, "uint8": 200}.get(kind, 30000)
        documents = make_documents(40, limit, 1)
        path = write(folder / f"{kind}.{form}", table_of(documents, list_of(kind)), form=form)
        return [path], documents

    return make


def large_list(folder):
    documents = make_documents(30, number=2)
    kind = arrow.large_list(arrow.int32())
    return [write(folder / "large", table_of(documents, kind, "tokens"))], documents


def fixed_size_list(folder):
    documents = make_documents(30, number=3)
    documents = [(d + [9] * 8)[:8] for d in documents]
    table = table_of(documents, arrow.list_(arrow.int32(), 8))
    return [write(folder / "fixed", table, form="file")], documents


def legacy(folder):
    documents = make_documents(30, number=4)
    table = table_of(documents, list_of("int32"))
    options = {"use_legacy_format": True, "metadata_version": arrow.ipc.MetadataVersion.V4}
    return [write(folder / "legacy", table.drop(["view"]), **options)], documents


def null_rows(folder):
    documents = make_documents(50, number=5)
    holey = [None if i % 4 == 1 else d for i, d in enumerate(documents)]
    table = arrow.table({"input_ids": arrow.array(holey, list_of("int32"))})
    return [write(folder / "nulls", table, batch=20)], [d or [] for d in holey]


def nulls_with_values(folder):
    """A null row whose offsets still span values: they are no tokens."""
    values = arrow.array(range(10), arrow.int32())
    offsets = arrow.array([0, 3, 6, 10], arrow.int32())
    column = arrow.ListArray.from_arrays(offsets, values, mask=arrow.array([False, True, False]))
    path = write(folder / "spanned", arrow.table({"input_ids": column}))
    return [path], [[0, 1, 2], [], [6, 7, 8, 9]]


def sliced(folder):
    documents = make_documents(60, number=6)
    table = table_of(documents, list_of("int32"))
    return [write(folder / "sliced", table.slice(13, 40), batch=17)], documents[13:53]


def one_batch_each(folder):
    documents = make_documents(40, number=7)
    table = table_of(documents, list_of("uint32"), "tokens")
    return [write(folder / "single", table, batch=1, form="file")], documents


def uncompressed_feather(folder):
    documents = make_documents(40, number=8)
    path = str(folder / "feather")
    feather.write_feather(table_of(documents, list_of("int32")), path, compression="uncompressed")
    return [path], documents


def the_only_list(folder):
    documents = make_documents(20, number=9)
    table = table_of(documents, list_of("int32"), "ids").drop(["labels"])
    return [write(folder / "only", table)], documents


def padded(kind, name):
    def make(folder):
        rows = [d for d in make_documents(40, number=10) if d]
        width = max(map(len, rows))
        ids = [d + [0] * (width - len(d)) for d in rows]
        mask = [[1] * len(d) + [0] * (width - len(d)) for d in rows]
        mask = arrow.array(mask, arrow.list_(arrow.int8())).cast(arrow.list_(kind))
        table = table_of(ids, list_of("int64"), attention_mask=mask)
        return [write(folder / f"padded-{name}", table)], rows

    return make


def empty(folder):
    """Without a row, next to one that has some."""
    documents = make_documents(9, number=11)
    table = table_of(documents, list_of("int32"))
    return [write(folder / "none", table.slice(0, 0)), write(folder / "some", table)], documents


def saved(folder):
    documents = make_documents(120, number=12)
    datasets.Dataset.from_dict({"input_ids": documents}).save_to_disk(
        str(folder / "saved"), num_shards=12
    )
    return [str(folder / "saved")], documents


def shuffled(folder):
    documents = make_documents(60, number=13)
    dataset = datasets.Dataset.from_dict({"input_ids": documents}).shuffle(seed=3)
    dataset.filter(lambda row: len(row["input_ids"]) > 2).save_to_disk(str(folder / "shuffled"))
    wanted = [d for d in dataset["input_ids"] if len(d) > 2]
    return [str(folder / "shuffled")], wanted


def a_split(folder):
    documents = make_documents(30, number=14)
    dataset = datasets.Dataset.from_dict({"input_ids": documents})
    datasets.DatasetDict(train=dataset, test=dataset).save_to_disk(str(folder / "dict"))
    return [str(folder / "dict" / "train")], documents


def a_cache(folder):
    """The files of map in the cache of datasets."""
    documents = make_documents(30, number=15)
    dataset = datasets.Dataset.from_dict({"n": list(range(30))})
    path = str(folder / "cache-1.arrow")
    dataset.map(lambda row: {"input_ids": documents[row["n"]]}, cache_file_name=path)
    return [path], documents


FORMS = {
    **{
        f"{kind} {form}": integers(kind, form)
        for kind, form in (
            ("int8", "stream"),
            ("uint8", "file"),
            ("int16", "stream"),
            ("uint16", "file"),
            ("int32", "stream"),
            ("int32", "file"),
            ("uint32", "stream"),
            ("int64", "stream"),
            ("uint64", "file"),
        )
    },
    "large_list": large_list,
    "fixed_size_list": fixed_size_list,
    "legacy": legacy,
    "null rows": null_rows,
    "nulls with values": nulls_with_values,
    "sliced": sliced,
    "one batch each": one_batch_each,
    "feather": uncompressed_feather,
    "the only list": the_only_list,
    "padded int64": padded(arrow.int64(), "int64"),
    "padded int8": padded(arrow.int8(), "int8"),
    "padded bool": padded(arrow.bool_(), "bool"),
    "empty": empty,
    "saved": saved,
    "shuffled": shuffled,
    "a split": a_split,
    "a cache": a_cache,
}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """All forms as the sources of one corpus, and their Megatron copies."""
    folder = tmp_path_factory.mktemp("arrow")
    read, copies, documents = [], [], []
    for name, make in FORMS.items():
        paths, made = make(folder)
        documents.append([numpy.array(d, "<i8") for d in made])
        copy = write_megatron(folder / f"copy of {name}", documents[-1], "i32")
        read.append({"name": name, "weight": 1, "shards": paths})
        copies.append({"name": name, "weight": 1, "shards": [copy]})
    return [Written(sources, documents) for sources in (read, copies)]


@pytest.mark.parametrize("io", ["mapped", "io_uring"])
def test_every_form_equals_its_megatron_copy(program, folder, corpora, io):
    """Every token of every document, at first from tables that are made at the start, then from
    sidecars."""
    read, copies = corpora
    wanted = serve_all(program, folder, copies, io=io)
    assert serve_all(program, folder, read, io=io) == wanted
    paths = [path for source in read.sources for path in source["shards"]]
    index = [program, "index", "-q", "--index-dir", folder / "sidecars", *paths]
    subprocess.run(index, check=True, capture_output=True)
    found = serve_all(program, folder, read, io=io, index=str(folder / "sidecars"))
    assert found == wanted


def test_killed_and_resumed(program, folder, corpora):
    serve_in_lives(program, folder, corpora[0], {"packing": "best_fit", "fill": "pad"})


def bytes_read(pid):
    """By system calls, from the page cache or not."""
    with open(f"/proc/{pid}/io") as file:
        return int(dict(line.split(": ") for line in file)["rchar"])


@pytest.mark.parametrize("shuffle", ["none", "block"])
def test_long_reads_leave_other_columns_out(program, folder, shuffle):
    """Blocks of documents with other columns in between, read as a whole."""
    generator = numpy.random.default_rng(SEED)
    documents = [generator.integers(0, 30000, n) for n in generator.integers(1, 900, 3000)]
    path = write(folder / "gaps", table_of(documents, list_of("int32")), batch=100)
    declared = {"name": "gaps", "weight": 1, "shards": [path], "mask": "none"}
    corpus = Written([declared], [documents])
    inputs = {"shuffle": shuffle, "block_documents": 256, "window_blocks": 2, "seed": SEED}
    stream = Stream(corpus, {"num_epochs": 1, "window": 5, "seq_len": 4096, **inputs})
    config = {**stream.config(), "batch_size": 8, "io": "pread", "prefetch_bytes": "32m"}
    engine = Engine(program, folder, config)
    taken = Taken(stream)
    try:
        with Ranks(engine) as ranks:
            for batches in ranks.turns():
                taken.add(batches)
            read = bytes_read(engine.pid)
    finally:
        engine.kill()
    taken.assert_all()
    tokens = 4 * sum(map(len, documents))
    assert os.path.getsize(path) > 2.9 * tokens
    assert read < 1.2 * tokens + 2**20


# ---- refusals ------------------------------------------------------------------------------


def refuse_compressed(folder):
    return write(folder / "x", table_of(make_documents(9), list_of("int32")), compression="lz4")


def refuse_feather(folder):
    feather.write_feather(table_of(make_documents(9), list_of("int32")), str(folder / "x"))
    return str(folder / "x")


def refuse_null_tokens(folder):
    table = arrow.table({"input_ids": arrow.array([[1], [2, None]], list_of("int32"))})
    return write(folder / "x", table)


def refuse_masked(*masks):
    def make(folder):
        ids = arrow.array([[1, 2, 3]] * len(masks), list_of("int32"))
        mask = arrow.array(masks, list_of("int8"))
        return write(folder / "x", arrow.table({"input_ids": ids, "attention_mask": mask}))

    return make


def refuse_two_lists(folder):
    table = table_of(make_documents(9), list_of("int32"), "left")
    return write(folder / "x", table)


def refuse_text(folder):
    return write(folder / "x", arrow.table({"text": ["a", "b"]}))


def refuse_nested(folder):
    kind = arrow.list_(arrow.list_(arrow.int32()))
    return write(folder / "x", arrow.table({"input_ids": arrow.array([[[1], [2]]], kind)}))


def refuse_dictionary(folder):
    ids = arrow.array([1, 2, 1], arrow.int32()).dictionary_encode()
    column = arrow.ListArray.from_arrays(arrow.array([0, 1, 3], arrow.int32()), ids)
    return write(folder / "x", arrow.table({"input_ids": column}))


def refuse_indices(folder):
    dataset = datasets.Dataset.from_dict({"input_ids": make_documents(9)})
    dataset.shuffle(seed=1, indices_cache_file_name=str(folder / "indices"))
    return str(folder / "indices")


def refuse_old_state(folder):
    datasets.Dataset.from_dict({"input_ids": make_documents(9)}).save_to_disk(str(folder / "d"))
    state = json.loads((folder / "d/state.json").read_text())
    state["_indices_data_files"] = [{"filename": "indices.arrow"}]
    (folder / "d/state.json").write_text(json.dumps(state))
    return str(folder / "d")


def refuse_dict(folder):
    dataset = datasets.Dataset.from_dict({"input_ids": make_documents(9)})
    datasets.DatasetDict(train=dataset, test=dataset).save_to_disk(str(folder / "d"))
    return str(folder / "d")


def refuse_no_state(folder):
    (folder / "d").mkdir()
    write(folder / "d" / "x.arrow", table_of(make_documents(9), list_of("int32")))
    return str(folder / "d")


def refuse_cut(folder):
    path = write(folder / "x", table_of(make_documents(9), list_of("int32")))
    with open(path, "r+b") as file:
        file.truncate(file.seek(0, 2) - 8)  # only the end of the stream
    return path


def refuse_cut_file(folder):
    path = write(folder / "x", table_of(make_documents(9), list_of("int32")), form="file")
    with open(path, "r+b") as file:
        file.truncate(file.seek(0, 2) - 4)
    return path


REFUSALS = {
    "compressed": (refuse_compressed, "compressed", "ringpack convert"),
    "feather": (refuse_feather, "compressed", "ringpack convert"),
    "null tokens": (refuse_null_tokens, "nulls among the tokens", "write the file again"),
    "hole": (refuse_masked([1, 1, 1], [1, 0, 1]), "row 1", "ones after zeros"),
    "left padding": (refuse_masked([0, 1, 1]), "row 0", "padding at the beginning"),
    "short mask": (refuse_masked([1, 1]), "row 0", "another number of values"),
    "two lists": (refuse_two_lists, "left, labels", "column"),
    "text": (refuse_text, "no list of integers", "column"),
    "nested": (refuse_nested, "no list of integers", "column"),
    "dictionary": (refuse_dictionary, "no list of integers", "column"),
    "indices": (refuse_indices, "cache of indices", "flatten_indices"),
    "old state": (refuse_old_state, "chosen by indices", "flatten_indices"),
    "DatasetDict": (refuse_dict, "DatasetDict", "/d/train"),
    "no state": (refuse_no_state, "without state.json", "pattern"),
    "cut": (refuse_cut, "cut short", "again"),
    "cut file": (refuse_cut_file, "footer", "cut short"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_by_name(program, folder, name):
    make, *words = REFUSALS[name]
    assert_refused(program, make(folder), *words)


def test_a_column_by_name(program, folder):
    chosen, rejected = make_documents(20, number=30), make_documents(20, number=31)
    table = table_of(chosen, list_of("int32"), "chosen").drop(["labels"])
    table = table.append_column("rejected", arrow.array(rejected, list_of("int32")))
    path = write(folder / "pairs", table)
    for name, wanted in ("chosen", chosen), ("rejected", rejected):
        ask = [program, "inspect", "--json", "--scan", "--column", name, path]
        said = json.loads(subprocess.run(ask, check=True, capture_output=True).stdout)[0]
        assert said["column"] == name
        assert said["tokens"] == sum(map(len, wanted))
        assert said["token_max"] == max(max(d) for d in wanted if d)
    subprocess.run([program, "index", "-q", "--column", "chosen", path], check=True)
    ask = [program, "inspect", "--column", "rejected", path]
    refused = subprocess.run(ask, capture_output=True, text=True)
    assert refused.returncode == 2 and "expected chosen, found rejected" in refused.stderr
