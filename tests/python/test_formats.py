# SPDX-License-Identifier: Apache-2.0
"""The output of `ringpack convert`, read by others: Megatron-core, pyarrow, datasets, and a few
lines of our own after the documented layout. All agree with each other and with
`ringpack inspect`."""

import json
import struct
import subprocess

import numpy
import pytest
import ringpack

DTYPES = {1: "u1", 4: "<i4", 5: "<i8", 8: "<u2"}
TEXTS = ["One line.\n", "Ünïcödé, and more of it.\n" * 9, "a", "long " * 400]


def read_documented(prefix):
    """Documents of PREFIX.bin and PREFIX.idx: magic, version, type, counts, and three arrays."""
    index = open(f"{prefix}.idx", "rb").read()
    magic, version, code, count, documents = struct.unpack_from("<9sQBQQ", index)
    assert (magic, version, documents) == (b"MMIDIDX\0\0", 1, count + 1)
    lengths = numpy.frombuffer(index, "<i4", count, 34)
    starts = numpy.frombuffer(index, "<i8", count, 34 + 4 * count)
    ends = numpy.frombuffer(index, "<i8", count + 1, 34 + 12 * count)
    assert ends.tolist() == list(range(count + 1)), "a document is one sequence"
    assert len(index) == 34 + 20 * count + 8
    tokens = numpy.fromfile(f"{prefix}.bin", DTYPES[code])
    firsts = starts // tokens.itemsize
    return tokens, [tokens[first : first + n] for first, n in zip(firsts, lengths)]


@pytest.fixture(scope="module", params=["u16", "i32"])
def converted(program, tmp_path_factory, request):
    """A prefix, its documents as the texts make them, and the output of inspect."""
    place = tmp_path_factory.mktemp("converted")
    if request.param == "u16":  # bytes of text, EOS 256
        wanted = [[*text.encode(), 256] for text in TEXTS]
        lines = [{"text": text} for text in TEXTS]
        options = []
    else:  # tokens of another tokenizer
        generator = numpy.random.default_rng(5)
        wanted = [generator.integers(0, 120000, n).tolist() for n in (3, 1, 700, 65, 2)]
        lines = [{"input_ids": tokens} for tokens in wanted]
        options = ["--no-append-eos", "--vocab-size", "120000"]
    (place / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    prefix = place / "out"
    command = [program, "convert", "-q", *options, "-o", prefix, place / "in.jsonl"]
    subprocess.run(command, check=True)
    asked = subprocess.run([program, "inspect", "--json", prefix], check=True, capture_output=True)
    return prefix, wanted, json.loads(asked.stdout)[0]


def test_our_reader_of_the_documented_layout(converted):
    prefix, wanted, said = converted
    tokens, documents = read_documented(prefix)
    assert [document.tolist() for document in documents] == wanted
    lengths = [len(document) for document in documents]
    assert said["format"] == "megatron"
    assert said["dtype"] == {"<u2": "u16", "<i4": "i32"}[tokens.dtype.str]
    assert said["documents"] == len(wanted) and said["tokens"] == len(tokens) == sum(lengths)
    assert (said["length_min"], said["length_max"]) == (min(lengths), max(lengths))
    assert said["token_max"] == tokens.max()


def test_megatron_core(converted):
    module = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    prefix, wanted, said = converted
    dataset = module.IndexedDataset(str(prefix), mmap=True)
    assert [dataset[place].tolist() for place in range(len(dataset))] == wanted
    assert len(dataset) == len(dataset.document_indices) - 1 == said["documents"]
    assert int(dataset.sequence_lengths.sum()) == said["tokens"]
    longest = max(range(len(wanted)), key=lambda place: len(wanted[place]))
    assert dataset.get(longest, offset=1, length=5).tolist() == wanted[longest][1:6]


@pytest.fixture
def table(converted):
    """The token file as an Arrow column of lists, over the file's own bytes."""
    arrow = pytest.importorskip("pyarrow")
    prefix, wanted, _ = converted
    tokens, documents = read_documented(prefix)
    with arrow.memory_map(f"{prefix}.bin") as file:
        buffer = file.read_buffer()
    values = arrow.Array.from_buffers(
        arrow.from_numpy_dtype(tokens.dtype), len(tokens), [None, buffer]
    )
    ends = numpy.cumsum([0, *map(len, documents)]).astype("i4")
    return arrow.table({"input_ids": arrow.ListArray.from_arrays(ends, values)})


def test_pyarrow(table, converted):
    compute = pytest.importorskip("pyarrow.compute")
    _, wanted, said = converted
    column = table["input_ids"]
    assert column.to_pylist() == wanted
    lengths = compute.list_value_length(column)
    assert compute.sum(lengths).as_py() == said["tokens"]
    assert compute.max(compute.list_flatten(column)).as_py() == said["token_max"]


def test_datasets_and_back(table, converted, program, tmp_path):
    """datasets sees the same documents; its JSONL converts to the same files."""
    datasets = pytest.importorskip("datasets")
    prefix, wanted, said = converted
    dataset = datasets.Dataset(table)
    assert dataset.num_rows == said["documents"]
    assert [row["input_ids"] for row in dataset] == wanted
    dataset.to_json(tmp_path / "back.jsonl")
    vocabulary = str(max(int(said["token_max"]) + 1, 120000 if said["dtype"] == "i32" else 257))
    back = tmp_path / "back"
    command = [program, "convert", "-q", "--no-append-eos", "--vocab-size", vocabulary]
    subprocess.run([*command, "-o", back, tmp_path / "back.jsonl"], check=True)
    for end in ".bin", ".idx":
        assert back.with_suffix(end).read_bytes() == prefix.with_suffix(end).read_bytes()


def test_ids_above_2_to_the_31_where_the_output_has_room(program, folder):
    """token_dtype i64 takes any vocab_size; a narrower one refuses it by name."""
    ids = numpy.array([3_000_000_000, 2**32 - 1, 5, 0], "<u4")
    ids.tofile(folder / "wide.bin")
    corpus = [{"path": folder / "wide.bin", "format": "raw", "dtype": "u32", "eos": 0}]
    known = {"run_dir": folder, "corpus": corpus, "seq_len": 4, "batch_size": 1}
    with ringpack.Loader(**known, token_dtype="i64", sections=["input_ids"]) as loader:
        assert next(loader)["input_ids"][0].tolist() == ids.tolist()
    with ringpack.Loader(**known, sections=["input_ids"]) as loader:
        with pytest.raises(ringpack.VocabularyError, match="3000000000"):
            next(loader)
    with ringpack.Loader(**known, token_dtype="i64", vocab_size=2**32 - 1) as loader:
        with pytest.raises(ringpack.VocabularyError, match="4294967295"):
            next(loader)
