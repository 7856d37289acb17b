# SPDX-License-Identifier: Apache-2.0
"""Side columns that do not fit, that changed, or that are damaged: refused or found, by name."""

import json
import os
import shutil
import subprocess

import numpy
import pytest
import ringpack
from column_kit import Columns, assert_columns, column, fixtures, read_all, refused
from mask_kit import index
from stream_kit import Corpus, Engine

SEED = 3208
LAYOUT = [("megatron", "u16", 1, [30, 20])]
KINDS = {"weight": ("<f4", 1)}
SEQ_LEN = 32
corpus, columns = fixtures(LAYOUT, KINDS, SEED, SEQ_LEN)


def config_of(corpus, **more):
    keys = {"sources": corpus.sources, "seq_len": SEQ_LEN, "batch_size": 2, "columns": ["weight"]}
    return {**keys, "sections": ["provenance"], **more}


@pytest.mark.parametrize(
    "keys, said",
    [
        ({"columns": ["labels"]}, "no name of a section"),
        ({"columns": ["Weight"]}, "small letter"),
        ({"columns": ["weight", "weight"]}, "column `weight` is given twice"),
        ({"label_columns": ["weight"]}, "column `weight` is given twice"),
        ({"columns": list("abcdefg")}, "at most 6 columns; `g`"),
        ({"columns": ["spam"]}, "expected a column `spam`, found weight"),
    ],
)
def test_names_are_refused(corpus, columns, program, tmp_path, keys, said):
    told = refused(program, tmp_path, config_of(corpus, **keys))
    assert said in told and "next: " in told, told


def numbered(program, folder, corpus):
    """A config whose documents have numbers of u64: one is 2^63 - 1, and one 2^63."""
    path = folder / "numbered.yaml"
    keys = {"columns": [], "index": str(folder / "all.rpi"), "shuffle": "none"}
    config = config_of(corpus, **keys, run_dir=str(folder))
    path.write_text(json.dumps(config))
    index(program, "-c", str(path))
    for source, documents in zip(corpus.sources, corpus.documents):
        numbers = numpy.arange(len(documents), dtype="u8")
        numbers[[3, 30]] = 2**63 - 1, 2**63
        numpy.save(folder / "n.npy", numbers)
        command = [program, "annotate", "-q", "-c", str(path), "--source", source["name"]]
        subprocess.run([*command, "--column", f"hash={folder}/n.npy"], check=True)
    return {**config, "document_columns": ["hash"]}


def hashes_of(program, folder, config):
    """The numbers of documents that a trainer gets, and the error that ends the stream."""
    engine, found = Engine(program, folder, config), []
    loader = ringpack.Loader(run=engine.run, run_dir=folder)
    try:
        for batch in loader:
            for row, own in zip(batch["rows"], batch["hash"]):
                found += own[: row["fragments"]].tolist()
    except ringpack.RingpackError as failure:
        return found, failure
    finally:
        loader.close()
        engine.kill()
    return found, None


def test_a_number_that_int64_lacks_is_refused(corpus, program, tmp_path):
    """At its document; the greatest one that int64 has is delivered."""
    found, failure = hashes_of(program, tmp_path, numbered(program, tmp_path, corpus))
    assert isinstance(failure, ringpack.FormatError), failure
    assert f"document 30 has {2**63}: batches have int64" in str(failure) and failure.hint
    assert 2**63 - 1 in found and min(found) >= 0


def test_control_a_number_that_turns_negative(corpus, program, broken, tmp_path, monkeypatch):
    config = numbered(program, tmp_path, corpus)
    monkeypatch.setenv("RP_DEFECT", "number_turns_negative")
    found, failure = hashes_of(broken, tmp_path, config)
    assert failure is None and min(found) == -(2**63)


def test_files_that_do_not_fit_are_refused(corpus, columns, program, tmp_path):
    """Shorter, longer, of another type, absent at one shard, no column at all, cut short."""
    paths = [tmp_path / f"0-{n}.weight.col" for n in (0, 1)]
    kept = [path.read_bytes() for path in paths]
    tokens = [len(numpy.fromfile(tmp_path / f"0-{n}.bin", "<u2")) for n in (0, 1)]
    other = tmp_path / "other"
    for more, dtype, wanted in [
        (-1, "<f4", f"expected {tokens[1]} entries"),
        (1, "<f4", f"expected {tokens[1]} entries"),
        (0, "<f8", "expected f32, as in"),
    ]:
        shutil.rmtree(other, ignore_errors=True)
        other.mkdir()
        made = Corpus(other, [("megatron", "u16", 1, [3])], SEED)
        length = tokens[1] + more
        numpy.arange(length, dtype="<u2").tofile(other / "0-0.bin")
        write_index(other / "0-0.idx", length)
        numpy.save(other / "w.npy", numpy.ones(length, dtype))
        column(program, other, made.sources, "weight", other / "w.npy")
        shutil.copy(other / "0-0.weight.col", paths[1])
        told = refused(program, tmp_path, config_of(corpus))
        assert wanted in told and str(paths[1]) in told, told
    paths[1].write_bytes(kept[1][:-8])
    told = refused(program, tmp_path, config_of(corpus))
    assert f"expected {len(kept[1])} bytes, found {len(kept[1]) - 8}" in told, told
    paths[1].write_bytes(b"spam" * 2000)
    assert "found another file" in refused(program, tmp_path, config_of(corpus))
    damaged = bytearray(kept[1])
    damaged[24] ^= 1
    paths[1].write_bytes(damaged)
    assert "header differs from the hash" in refused(program, tmp_path, config_of(corpus))
    paths[1].unlink()
    told = refused(program, tmp_path, config_of(corpus))
    assert "0-1.bin: expected a column `weight`, found none" in told, told


def write_index(path, length):
    import struct

    with open(path, "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2))
        file.write(struct.pack("<iqqq", length, 0, 0, 1))


def test_the_command_refuses_values_that_do_not_fit(corpus, program, tmp_path):
    tokens = sum(len(d) for d in corpus.documents[0])
    path = tmp_path / "w.npy"

    def told(array, *options):
        numpy.save(path, array)
        done = column(
            program, tmp_path, corpus.sources, "weight", path, *options, check=False
        )
        assert done.returncode == 2, done.stderr
        return done.stderr

    assert f"expected {tokens} rows" in told(numpy.ones(tokens - 1, "<f4"))
    assert "at most 512 bytes for a token, found 516" in told(numpy.ones((tokens, 129), "<f4"))
    assert "expected a dtype" in told(numpy.ones(tokens, "<c8"))
    assert "fields of a record" in told(numpy.ones(tokens, [("a", "<f4"), ("b", "<i4")]))
    assert "add --bf16" in told(numpy.ones(tokens, "<u2").view("V2"))
    for dtype in "<f4", "<f2":
        assert "leave --bf16 out" in told(numpy.ones(tokens, dtype), "--bf16")
    assert "one or two dimensions" in told(numpy.ones((tokens, 2, 2), "<f4"))
    numpy.save(path, numpy.ones(tokens, "<f4"))
    column(program, tmp_path, corpus.sources, "weight", path)
    assert "is there already" in told(numpy.ones(tokens, "<f4"))


def test_formats_without_one_run_of_tokens_are_refused(program, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"input_ids": pyarrow.array([[1, 2, 3]], pyarrow.list_(pyarrow.int32()))})
    path = tmp_path / "a.arrow"
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as out:
        out.write_table(table)
    config = {"sources": [str(path)], "seq_len": 8, "batch_size": 1, "columns": "weight"}
    told = refused(program, tmp_path, config)
    assert "expected one run of tokens" in told and "ringpack convert" in told, told


WAYS = [{"io": "pread"}, {"io": "mapped"}, {"io": "mapped", "packer_processes": True}]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))
@pytest.mark.parametrize("name", ["weight", "teacher"])
def test_a_flipped_bit_is_found_where_it_is_read(corpus, columns, program, tmp_path, way, name):
    """In a block of several fragments, and in a block inside one fragment."""
    wide, block = Columns(corpus, None, {"teacher": ("<i4", 128)}, SEED), 1
    wide.write(program, tmp_path)
    path = tmp_path / f"0-0.{name}.col"
    data = bytearray(path.read_bytes())
    if name == "teacher":  # the middle of the shard's longest document
        ends = [end for end in wide.starts[0].tolist() if 512 * end <= len(data) - 8192]
        first, end = max(zip(ends, ends[1:]), key=lambda pair: pair[1] - pair[0])
        assert end - first >= 24, "it has a whole block"
        block = 1 + 512 * (first + end) // 2 // 4096
    data[4096 * block + 2800] ^= 4
    path.write_bytes(data)
    config = config_of(corpus, columns=[name], seq_len=256, **way)
    engine = Engine(program, tmp_path, config, wait=False)
    assert engine.wait() != 0  # it reads ahead, and may be gone before a trainer comes
    told = engine.log()
    place = f"bytes {4096 * block} to {4096 * (block + 1)}"
    assert f"0-0.{name}.col: block {block} ({place}) differs from its hash" in told, told
    command = [program, "column", "-c", str(tmp_path / "e2e.yaml"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and f"{path.name}: block {block}: expected hash" in done.stderr


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))
@pytest.mark.parametrize("change", ["cut", "touched"])
def test_a_file_that_changes_while_it_is_read_is_found(
    corpus, columns, program, tmp_path, way, change
):
    engine = Engine(program, tmp_path, config_of(corpus, num_epochs="endless", **way))
    path = tmp_path / "0-0.weight.col"
    with pytest.raises(ringpack.RingpackError) as told:

        def check(batch):
            if batch.number == 4 and change == "cut":
                os.truncate(path, 4096)
            elif batch.number == 4:
                os.utime(path)

        read_all(engine, check)
    assert "0-0.weight.col" in str(told.value), told.value
    assert engine.wait() != 0


def test_a_column_that_was_made_again_ends_the_run_at_a_resume(corpus, columns, program, tmp_path):
    """By its content: the same values again resume, others are refused by name, and a run without
    the column, or with one more, resumes."""
    keys = {"checkpoint_dir": str(tmp_path / "kept")}
    engine = Engine(program, tmp_path, config_of(corpus, **keys))
    _, loaders = read_all(engine, lambda batch: assert_columns(batch, columns), most=3)
    loaders[0].close()
    assert engine.stop() == 0
    columns.write(program, tmp_path)
    engine = Engine(program, tmp_path, config_of(corpus, **keys))
    assert engine.stop() == 0
    columns.values["weight"][0][1] += 1
    columns.write(program, tmp_path)
    told = refused(program, tmp_path, config_of(corpus, run="e2e", **keys))
    assert "column[weight].content differs: the checkpoint has" in told, told
    assert "restore its files, or leave it out" in told, told
    engine = Engine(program, tmp_path, config_of(corpus, columns=[], **keys))
    assert engine.stop() == 0


def test_a_planted_defect_is_found(corpus, columns, program, broken, tmp_path, monkeypatch):
    """Without the count of entries, a column of another shard is not refused at the start."""
    shutil.copy(tmp_path / "0-0.weight.col", tmp_path / "0-1.weight.col")
    assert "entries, as" in refused(program, tmp_path, config_of(corpus))
    monkeypatch.setenv("RP_DEFECT", "ignore_side_length")
    Engine(broken, tmp_path, config_of(corpus)).kill()  # it was ready
