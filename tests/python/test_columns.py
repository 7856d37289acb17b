# SPDX-License-Identifier: Apache-2.0
"""Side columns: values of each token in batches, equal to what the provenance of the batches says,
in both stream versions and all read modes; their identity; refusals by name."""

import json
import subprocess

import numpy
import pytest
import ringpack
from column_kit import Columns, annotated, assert_columns, column, fixtures, read_all
from convert_kit import convert
from explain_kit import explain, rows_of
from mask_kit import index
from stream_kit import VERSION_1, Corpus, Engine, write_megatron

SEED = 3207
LAYOUT = [
    ("megatron", "u16", 2, [17, 12]),
    ("raw", "u16", 1, [9]),
    ("npy", "i32", 1, [11]),
    ("llmc", "u32", 1, [10]),
]
KINDS = {"weight": ("<f4", 1), "logprob": ("<f2", 1), "teacher": ("<i4", 128)}
SEQ_LEN = 48  # a row of `teacher` has whole blocks inside fragments
corpus, columns = fixtures(LAYOUT, KINDS, SEED, SEQ_LEN)


def config_of(corpus, **more):
    return {
        "sources": corpus.sources,
        "seq_len": SEQ_LEN,
        "batch_size": 3,
        "profile": "full",
        "columns": ["weight", "teacher"],
        "label_columns": ["logprob"],
        "seed": 5,
        **more,
    }


CASES = {
    "lookahead": {"io": "pread"},
    "split": {"fill": "split", "io": "io_uring", "packer_processes": True, "packers": 2},
    "aligned": {"label_mode": "aligned", "io": "mapped"},
    "concat": {"packing": "concat", "shuffle": "block", "block_documents": 4, "io": "pread"},
    "best_fit": {"packing": "best_fit", "long_doc": "truncate", "o_direct": "on"},
    "blocks": {**VERSION_1, "shuffle": "block", "block_documents": 4, "o_direct": "on"},
    "inserted": {"bos_id": 7, "eos_id": 8, "align": 4, "readers": 2},
    "across": {"label_across_cuts": True, "bos_id": 7, "fill": "split", "packers": 3},
    "version_1": {**VERSION_1, "fill": "split", "readers": 3},
    "small_ring": {"prefetch_bytes": 65536, "io": "pread", "o_direct": "off"},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("indexed", [False, True])
def test_every_entry_is_that_of_its_token(corpus, columns, program, tmp_path, case, indexed):
    if indexed:
        corpus.index(program)
    keys = CASES[case]
    engine = Engine(program, tmp_path, config_of(corpus, **keys))
    more = {
        "label_mode": keys.get("label_mode", "shifted"),
        "bos": int("bos_id" in keys),
        "eos": int("eos_id" in keys),
        "across": keys.get("label_across_cuts", False),
    }

    def check(batch):
        assert_columns(batch, columns, of_labels=["logprob"], **more)

    rows, loaders = read_all(engine, check)
    assert len(rows) > 20 and rows == sorted(rows)
    loaders[0].close()
    assert engine.stop() == 0


@pytest.mark.parametrize("device", [None, "cpu"])
def test_columns_follow_masks_and_cuts_in_torch(program, tmp_path, device):
    """A mask changes labels, and no entry; bfloat16 comes to torch as bfloat16."""
    torch = pytest.importorskip("torch")
    generator = numpy.random.default_rng(SEED)
    documents = [generator.integers(0, 900, n) for n in (130, 7, 48, 61, 1, 200)]
    flags = [generator.random(len(d)) < 0.5 for d in documents]
    path = write_megatron(tmp_path / "a", documents, "u16")
    write_megatron(tmp_path / "a_mask", flags, "u8")
    index(program, "--mask", "mask", path)
    corpus = Corpus(tmp_path, [], SEED)
    corpus.sources = [{"name": "a", "shards": [path]}]
    corpus.documents = [documents]
    made = Columns(corpus, None, {"logprob": ("<u2", 1)}, SEED)
    made.write(program, tmp_path, "--bf16")
    config = {"sources": [{"name": "a", "shards": [path], "mask": "mask"}], "seq_len": 64}
    config |= {"batch_size": 2, "sections": ["labels", "provenance"], "columns": "logprob"}
    engine = Engine(program, tmp_path, config)

    def check(batch):
        assert_columns(batch, made)
        tensor = batch["logprob"]
        assert tensor.dtype == torch.bfloat16 and tuple(tensor.shape) == (2, 64)
        bits = tensor.view(torch.int16).numpy().view("<u2")
        assert (bits == batch.view("logprob", kind="numpy")).all()
        assert (batch.view("labels", kind="numpy") == -100).any()
        assert batch.to("cpu")["logprob"].equal(tensor) and "logprob" in batch.copy()

    options = {} if device is None else {"device": device}
    rows, _ = read_all(engine, check, return_type="torch", **options)
    assert len(rows) >= 6
    assert engine.stop() == 0


@pytest.mark.parametrize("keys", [VERSION_1, {"align": 4, "packer_processes": True, "bos_id": 7}])
def test_numbers_of_documents_come_with_them(corpus, columns, program, tmp_path, keys):
    """From the index of the corpus, next to a column of tokens; also after a resume."""
    keys = {**keys, "columns": ["weight"], "label_columns": []}
    keys["checkpoint_dir"] = str(tmp_path / "kept")
    config, numbers = annotated(program, tmp_path, corpus, config_of(corpus, **keys))
    config["document_columns"] = ["language", "score"]

    def check(batch):
        parts = batch.view("provenance", kind="numpy")
        fragments = batch.view("rows", kind="numpy")["fragments"]
        weight = columns.expected(batch, "weight", None, int("bos_id" in keys))
        assert (batch.view("weight", kind="numpy") == weight).all()
        for name, dtype in (("language", "<i8"), ("score", "<f8")):
            found = batch.view(name, kind="numpy")
            assert found.dtype == dtype and found.shape == parts.shape
            for row, own, count in zip(parts, found, fragments):
                expected = [numbers[p["source"]][name][p["document"]] for p in row[:count]]
                assert own.tolist() == expected + [0] * (len(own) - count)

    engine = Engine(program, tmp_path, config)
    first, loaders = read_all(engine, check, most=3)
    state = loaders[0].state_dict()
    loaders[0].close()
    engine.kill()
    engine = Engine(program, tmp_path, config)
    second, loaders = read_all(engine, check, state=state)
    loaders[0].close()
    assert engine.stop() == 0
    assert sorted(first + second) == list(range(len(first) + len(second)))
    done = Engine(program, tmp_path, {**config, "document_columns": ["spam"]}, wait=False)
    assert done.wait() != 0 and "has no column `spam`" in done.log()
    del config["index"]
    done = Engine(program, tmp_path, config, wait=False)
    assert done.wait() != 0 and "columns are kept in the index of a corpus" in done.log()


@pytest.mark.parametrize("contents", [True, False])
def test_a_killed_run_resumes_with_other_workers(corpus, columns, program, tmp_path, contents):
    """After SIGKILL, with other readers, packers and ranks; with prefetched rows in the checkpoint,
    whose entries are read again; every row comes once."""
    keys = {"checkpoint_dir": str(tmp_path / "kept"), "checkpoint_contents": contents}
    keys |= {"batch_size": 2, "prefetch_factor": 4}
    engine = Engine(program, tmp_path, config_of(corpus, **keys))

    def check(batch):
        assert_columns(batch, columns, of_labels=["logprob"])

    first, loaders = read_all(engine, check, most=4)
    engine.checkpoint()
    state = loaders[0].state_dict()
    loaders[0].close()
    engine.kill()
    keys |= {"readers": 3, "packers": 2, "packer_processes": True, "dp_world_size": 2}
    engine = Engine(program, tmp_path, config_of(corpus, **{**keys, "batch_size": 1}))
    assert ("with contents" in engine.log()) == contents
    second, loaders = read_all(engine, check, world=2, state=state)
    for loader in loaders:
        loader.close()
    assert engine.stop() == 0
    rows = first + second
    assert len(first) == 8 and sorted(rows) == list(range(len(rows)))


def test_a_trainer_goes_on_with_the_successor(corpus, columns, program, tmp_path):
    keys = {"checkpoint_dir": str(tmp_path / "kept")}
    engine = Engine(program, tmp_path, config_of(corpus, **keys))
    loader = ringpack.Loader(run=engine.run, run_dir=tmp_path, restart_timeout=600)
    count = 0
    for batch in loader:
        assert_columns(batch, columns, of_labels=["logprob"])
        count += 1
        if count == 3:
            engine.kill()
            engine = Engine(program, tmp_path, config_of(corpus, **keys))
    assert count > 8
    loader.close()
    assert engine.stop() == 0


def read_broken(broken, folder, corpus, columns, **keys):
    engine = Engine(broken, folder, config_of(corpus, **keys))
    try:
        read_all(engine, lambda batch: assert_columns(batch, columns, of_labels=["logprob"]))
    finally:
        engine.kill()


@pytest.mark.parametrize("defect", ["side_of_neighbour", "side_not_shifted"])
def test_planted_defects_are_found(corpus, columns, broken, tmp_path, monkeypatch, defect):
    monkeypatch.setenv("RP_DEFECT", defect)
    with pytest.raises(AssertionError, match="weight" if "neighbour" in defect else "logprob"):
        read_broken(broken, tmp_path, corpus, columns)


def test_explain_shows_the_entries_of_each_fragment(corpus, columns, program, tmp_path):
    """File and byte of the first entry, which has the values of the batch; numbers of documents."""
    config, numbers = annotated(program, tmp_path, corpus, config_of(corpus, bos_id=7))
    config["document_columns"] = ["language", "score"]
    path = tmp_path / "explained.yaml"
    path.write_text(json.dumps(config))
    rows, found = rows_of(program, "-c", path, "--row", "0-20"), 0
    for part in (part for row in rows for part in row["fragments"]):
        source, document = part["source_number"], part["document"]
        assert set(part["columns"]) == {"weight", "teacher", "logprob", "language", "score"}
        assert part["columns"]["language"] == numbers[source]["language"][document]
        assert part["columns"]["score"] == numbers[source]["score"][document]
        for name in columns.kinds:
            where = part["columns"][name]
            values = columns.values[name][source]
            first = columns.starts[source][document] + max(part["offset"] - 1, 0)
            if first == columns.starts[source][document + 1]:
                continue  # only inserted tokens are left
            assert where["bytes"] == values[0].nbytes
            with open(where["file"], "rb") as file:
                file.seek(where["byte_offset"])
                assert file.read(where["bytes"]) == values[first].tobytes(), (name, part)
            found += 1
    assert found > 50
    shown = explain(program, "-c", path, "--row", "3")
    assert ".weight.col, byte " in shown and ", 512 each" in shown and "  score: " in shown


def test_identity_has_columns_only_where_they_are_used(corpus, columns, program, tmp_path):
    """Names, types and content are in the delivery record; a run without columns has none of it,
    and the same state tokens."""

    def contract(**more):
        path = tmp_path / "c.yaml"
        path.write_text(json.dumps(config_of(corpus, **more)))
        command = [program, "config", "contract", "-c", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    plain, used = contract(columns=[], label_columns=[]), contract()
    assert "column" not in plain
    assert "columns=weight,teacher,logprob\n" in used
    for line in "column[logprob].type=f16, label", "column[teacher].type=i32x128":
        assert f"{line}\n" in used
    assert plain.split("\n\n")[0] == used.split("\n\n")[0]


def test_lists_of_a_table_become_a_column(program, tmp_path):
    """Ids and values in one Parquet table: converted without added tokens, the values in order."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    generator = numpy.random.default_rng(SEED)
    documents = [generator.integers(0, 900, n) for n in (30, 1, 200, 64, 90)]
    weights = [generator.random(len(d)).astype("<f4") for d in documents]
    table = pyarrow.table(
        {
            "input_ids": pyarrow.array(documents, pyarrow.list_(pyarrow.int32())),
            "weights": pyarrow.array(weights, pyarrow.list_(pyarrow.float32())),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    convert(program, "--no-append-eos", "-o", tmp_path / "a", tmp_path / "a.parquet")
    numpy.save(tmp_path / "w.npy", table["weights"].combine_chunks().flatten().to_numpy())
    corpus = Corpus(tmp_path, [], SEED)
    corpus.sources = [{"name": "a", "shards": [str(tmp_path / "a.bin")]}]
    corpus.documents = [documents]
    column(program, tmp_path, corpus.sources, "weight", tmp_path / "w.npy")
    made = Columns(corpus, None, {"weight": ("<f4", 1)}, SEED)
    made.values["weight"] = [numpy.concatenate(weights)]
    keys = {"columns": "weight", "label_columns": []}
    engine = Engine(program, tmp_path, config_of(corpus, **keys))
    rows, _ = read_all(engine, lambda batch: assert_columns(batch, made))
    assert len(rows) >= 5
    assert engine.stop() == 0
