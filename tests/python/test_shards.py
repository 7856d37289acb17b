# SPDX-License-Identifier: Apache-2.0
"""The bounds of documents and the cover of fingerprints: files of each format and type against the
oracle of STREAM.md sections 1.1 and 1.2, without and with an index. The fingerprint has a hash of
the place and the length of every document, so equal fingerprints mean equal documents."""

import json
import re
import struct
import subprocess

import numpy
import pytest
import ringpack
from shard import documents_of, fingerprints_of, hash128, text_of
from stream_kit import LLMC, VERSION_1, write_flat, write_megatron

EOS = 7
SHAPES = {  # tokens; E is a separator
    "between": [1, 2, "E", 3, "E", 4, 5, 6, "E"],
    "without-one-at-the-end": [1, "E", 2, 3],
    "two-in-a-row": ["E", "E", 1, "E", "E", 2, "E"],
    "one-at-the-begin": ["E", 1, 2, "E", 3],
    "none": [1, 2, 3],
    "only-one": ["E"],
}
FORMS = [
    *(("raw", dtype) for dtype in ("u8", "u16", "i16", "i32", "u32", "i64")),
    *(("npy", dtype) for dtype in ("u8", "u16", "i64")),
    *(("llmc", dtype) for dtype in LLMC),
]


def inspect(program, path, *options):
    command = [program, "inspect", "--json", *map(str, options), str(path)]
    (found,) = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def assert_is(found, documents, fingerprints, indexed):
    lengths = [length for _, length in documents]
    assert found["documents"] == len(lengths) and found["tokens"] == sum(lengths)
    assert (found["length_min"], found["length_max"]) == (min(lengths), max(lengths))
    assert found["fingerprint_sampled"] == text_of(fingerprints[0])
    assert found["fingerprint_full"] == (text_of(fingerprints[1]) if indexed else None)


def check(program, path, declared, form, dtype, eos, values):
    data, first = path.read_bytes(), 0
    first = len(data) - len(values) * (int(dtype[1:]) // 8)
    documents = documents_of(form, values, eos)
    fingerprints = fingerprints_of(form, dtype, eos, data, first, documents)
    assert_is(inspect(program, path, *declared), documents, fingerprints, False)
    command = [program, "index", "-q", *map(str, declared), str(path)]
    subprocess.run(command, check=True, capture_output=True)
    assert_is(inspect(program, path, *declared), documents, fingerprints, True)


@pytest.mark.parametrize("form, dtype", FORMS, ids=["-".join(form) for form in FORMS])
def test_documents_end_and_begin_at_the_separator(program, folder, form, dtype):
    eos = LLMC[dtype][2] if form == "llmc" else EOS
    declared = {
        "raw": ["--format", "raw", "--dtype", dtype, "--eos", eos],
        "npy": ["--eos", eos],
        "llmc": [],
    }[form]
    for name, shape in SHAPES.items():
        values = [eos if value == "E" else value for value in shape]
        path = folder / f"{name}.{'npy' if form == 'npy' else 'bin'}"
        write_flat(path, [values], dtype, form)
        check(program, path, declared, form, dtype, eos, values)


@pytest.mark.parametrize("blocks", [1, 63, 64, 65, 200])
def test_at_most_64_blocks_are_sampled(program, folder, blocks):
    generator = numpy.random.default_rng(blocks)
    values = generator.integers(0, 40, blocks * 2048 - 5).tolist()
    write_flat(folder / "t.bin", [values], "u16", "raw")
    declared = ["--format", "raw", "--dtype", "u16", "--eos", EOS]
    check(program, folder / "t.bin", declared, "raw", "u16", EOS, values)


@pytest.mark.parametrize("dtype", ["u8", "i16", "i32", "u16"])
def test_a_megatron_document_is_its_sequences(program, folder, dtype):
    generator = numpy.random.default_rng(3)
    lengths = [0, 1, 2, 0, 30, 7]
    documents = [generator.integers(1, 100, length) for length in lengths]
    path = write_megatron(folder / "m", documents, dtype)
    data, index = (folder / "m.bin").read_bytes(), (folder / "m.idx").read_bytes()
    starts = numpy.cumsum([0, *lengths]).tolist()
    extents = list(zip(starts, lengths))
    fingerprints = fingerprints_of("megatron", dtype, None, data, 0, extents, index)
    assert_is(inspect(program, path), extents, fingerprints, False)
    subprocess.run([program, "index", "-q", path], check=True, capture_output=True)
    assert_is(inspect(program, path), extents, fingerprints, True)


def test_a_corpus_is_the_hash_of_its_sources_and_these_of_their_shards(program, folder):
    shards, declared = [], {"format": "raw", "dtype": "u16", "eos": EOS}
    for number in range(3):
        values = [number, 1, EOS, 2, 3, EOS]
        write_flat(folder / f"{number}.bin", [values], "u16", "raw")
        data = struct.pack("<6H", *values)
        documents = documents_of("raw", values, EOS)
        shards.append(fingerprints_of("raw", "u16", EOS, data, 0, documents))
    paths = [str(folder / f"{number}.bin") for number in range(3)]
    options = ["--format", "raw", "--dtype", "u16", "--eos", str(EOS)]
    subprocess.run([program, "index", "-q", *options, *paths], check=True, capture_output=True)
    sources = [{"shards": paths[:2], "name": "a", **declared}]
    sources.append({"shards": paths[2:], "name": "b", **declared})
    config = folder / "c.yaml"
    config.write_text(json.dumps({**VERSION_1, "sources": sources, "seq_len": 8, "batch_size": 1}))
    with ringpack.Loader(config, run="shards", run_dir=folder) as loader:
        lines = filter(None, loader.contract().splitlines())
        fields = dict(re.split("[=~:]", line, maxsplit=1) for line in lines)
    for name, kind in ("corpus_sampled", 0), ("corpus_full", 1):
        one = hash128(shards[0][kind] + shards[1][kind])
        assert fields[name] == text_of(hash128(one + hash128(shards[2][kind])))
