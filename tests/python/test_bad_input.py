# SPDX-License-Identifier: Apache-2.0
"""Bad input: a clear error with path, field, expected and found, exit code 2, and no row lost.

Here are files, configs and checkpoints; in test_bad_machine.py the machine's limits and signals."""

import json
import os
import struct
from pathlib import Path

import numpy
import pytest
import ringpack
from refusal_kit import assert_refusal, options, refused, refused_serve, run, write_good
from stream_kit import EOS, VERSION_1, Engine, Ranks, token_of, write_megatron


@pytest.fixture
def good(folder):
    return write_good(folder)


# ---- files ---------------------------------------------------------------------------------------


def rewrite(path, change):
    """Change a file's bytes in place."""
    path = Path(path)
    data = bytearray(path.read_bytes())
    changed = change(data)
    path.write_bytes(data if changed is None else changed)


def overwrite(offset, layout, value):
    def change(data):
        struct.pack_into(layout, data, offset, value)

    return change


def without_last(count):
    return lambda data: bytes(data[:-count])


DAMAGE = {  # name -> file, change, words of the error
    "empty .bin": ("bin", lambda data: b"", ["expected", "found"]),
    "truncated .bin": ("bin", without_last(10), ["expected", "found"]),
    "empty .idx": ("idx", lambda data: b"", ["expected", "found"]),
    "truncated .idx": ("idx", without_last(9), ["expected", "found"]),
    ".idx of 20 bytes": ("idx", lambda data: bytes(data[:20]), ["expected", "found 20"]),
    "foreign .idx": ("idx", overwrite(0, "<8s", b"\x7fELF\2\1\1\0"), ["expected", "found"]),
    "version 2": ("idx", overwrite(9, "<Q", 2), ["version", "expected 1", "found 2"]),
    "unknown dtype": ("idx", overwrite(17, "<B", 99), ["dtype", "99"]),
    "float dtype": ("idx", overwrite(17, "<B", 6), ["dtype", "expected"]),
    "too many sequences": ("idx", overwrite(18, "<Q", 2**61), ["2305843009213693952 sequences"]),
    "negative length": ("idx", overwrite(34, "<i", -5), ["document 0", "negative length"]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_megatron(program, folder, good, damage):
    which, change, texts = DAMAGE[damage]
    path = good if which == "bin" else good[:-4] + ".idx"
    rewrite(path, change)
    refused_serve(program, folder, good, path, *texts)


def test_no_such_file(program, folder):
    refused_serve(program, folder, folder / "nowhere.bin", folder / "nowhere.bin", "No such file")


def test_zero_documents(program, folder):
    prefix = folder / "none"
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 0, 1)
    Path(f"{prefix}.idx").write_bytes(header + struct.pack("<q", 0))
    Path(f"{prefix}.bin").write_bytes(b"")
    name, _ = refused_serve(program, folder, f"{prefix}.bin", prefix)
    assert name == "RP_E_EMPTY"


def test_only_empty_documents(program, folder):
    path = write_megatron(folder / "hollow", [numpy.zeros(0, int)] * 5, "u16")
    name, _ = refused_serve(program, folder, path, folder / "hollow")
    assert name == "RP_E_EMPTY"


def test_a_directory(program, folder, good):
    (folder / "empty").mkdir()
    refused_serve(program, folder, folder / "empty", folder / "empty")
    Path(good).unlink()
    Path(good).mkdir()
    refused_serve(program, folder, good, good, "directory")


@pytest.mark.parametrize("which", ["bin", "idx"])
def test_a_fifo_does_not_hang(program, folder, good, which):
    path = good[:-3] + which
    os.unlink(path)
    os.mkfifo(path)
    refused_serve(program, folder, good, path, "expected", "found")


def test_a_device(program, folder):
    refused_serve(program, folder, "/dev/zero", "/dev/zero", "a device")


@pytest.mark.parametrize(
    "content", [b"PK\3\4" + bytes(200), b"\x7fELF" + bytes(200), b"plain text\n" * 30, b"{}\n"]
)
def test_foreign_files(program, folder, content):
    (folder / "foreign.bin").write_bytes(content)
    refused_serve(program, folder, folder / "foreign.bin", folder / "foreign.bin")


def config_with(folder, source, **changes):
    """A config file for one source that needs declarations."""
    keys = {
        "sources": [source],
        "seq_len": 48,
        "batch_size": 2,
        "run_dir": str(folder / "run"),
        **changes,
    }
    path = folder / "run.yaml"
    path.write_text(json.dumps(keys))
    return path


RAW = {  # name -> declaration, the file's content, words of the error
    "no eos": ({"format": "raw", "dtype": "u16"}, bytes(64), ["EOS"]),
    "no dtype": ({"format": "raw", "eos": 1}, bytes(64), ["dtype"]),
    "odd size": ({"format": "raw", "dtype": "u16", "eos": 1}, bytes(33), ["expected", "33"]),
    "empty": ({"format": "raw", "dtype": "u16", "eos": 1}, b"", ["found"]),
    "eos too large": ({"format": "raw", "dtype": "u16", "eos": 70000}, bytes(64), ["70000"]),
    "npy": ({"format": "npy", "eos": 1}, b"\x93NUMPY\1\0\x10\0{'descr': 'oops'}", []),
    "llmc count": (
        {"format": "llmc"},
        struct.pack("<3i", 20240520, 1, 999).ljust(1024, b"\0") + bytes(64),
        ["999", "expected", "found"],
    ),
    "llmc version": (
        {"format": "llmc"},
        struct.pack("<3i", 20240520, 9, 32).ljust(1024, b"\0") + bytes(64),
        ["version", "expected 1", "found 9"],
    ),
    "llmc header": ({"format": "llmc"}, struct.pack("<3i", 20240520, 1, 32), ["1024", "found 12"]),
}


@pytest.mark.parametrize("case", RAW)
def test_files_that_need_declarations(program, folder, case):
    declared, content, texts = RAW[case]
    path = folder / "tokens.bin"
    path.write_bytes(content)
    config = config_with(folder, {"shards": [str(path)], **declared})
    refused(program, "serve", "-c", config, texts=[path, *texts])


def test_a_float_npy(program, folder):
    path = folder / "floats.npy"
    numpy.save(path, numpy.ones(50))
    config = config_with(folder, {"shards": [str(path)], "eos": EOS})
    refused(program, "serve", "-c", config, texts=[path, "expected", "f8"])


@pytest.mark.parametrize("limit", [{"vocab_size": 1000}, {"token_dtype": "u16"}])
def test_a_token_outside_the_vocabulary(program, folder, limit):
    """Met while reading: the batches before it come, then the error names the token."""
    documents = [numpy.full(48, n % 900) for n in range(120)]
    documents[100] = documents[100].copy()
    documents[100][7] = 70000
    path = write_megatron(folder / "words", documents, "i32")
    config = {"sources": [path], "seq_len": 48, "batch_size": 2, "shuffle": "none", **limit}
    engine = Engine(program, folder, {**config, "packing": "concat"})
    taken = 0
    with Ranks(engine) as ranks, pytest.raises(ringpack.VocabularyError) as raised:
        for batches in ranks.turns():
            assert batches[0]["input_ids"].max() < 900
            taken += 1
    assert taken == 50, "every row before the bad one"
    assert "70000" in str(raised.value) and raised.value.hint
    least = limit.get("vocab_size", 65536)
    texts = [f"{path}: source words, document 100, token 7", f"below {least}", "found 70000"]
    assert_refusal(engine.wait(), engine.log(), *texts)


def test_a_changed_token_is_located(program, folder):
    """With a sidecar: the changed block is named, and rows before it were right."""
    path = write_good(folder, "large", count=40000)
    assert run(program, "index", "-q", path).returncode == 0
    at = 123 * 4096 + 10  # not in a block that is read when the file is opened
    rewrite(path, lambda data: data.__setitem__(at, data[at] ^ 1))
    engine = Engine(program, folder, {"sources": [path], "seq_len": 48, "batch_size": 2})
    with Ranks(engine) as ranks, pytest.raises(ringpack.CorruptError, match="block 123 "):
        for _ in ranks.turns():
            pass
    assert_refusal(engine.wait(), engine.log(), path, "block 123 ", "expected", "found")


# ---- configs -------------------------------------------------------------------------------------


CONFIGS = {  # YAML -> words of the error
    "sources: [GOOD]\nseq_len: 48\nbatch_sise: 2\n": [":3:", "batch_sise", "batch_size"],
    "sources: [GOOD]\nseq_len: 48\nbatch_size: two\n": [":3", "batch_size", "two"],
    "sources: [GOOD]\nseq_len: 0\nbatch_size: 2\n": [":2", "seq_len", "expected", "found 0"],
    "sources: [GOOD]\nseq_len: 48\nbatch_size: -2\n": [":3", "batch_size", "-2"],
    "sources: [GOOD]\nseq_len: 48\nseq_len: 49\nbatch_size: 2\n": [":3", "seq_len"],
    "sources:\n  - shard: [GOOD]\nseq_len: 48\nbatch_size: 2\n": [":2", "shard", "shards"],
    "sources: [GOOD]\nseq_len: 48\nbatch_size: 2\npacking: best-fit2\n": [
        ":4",
        "packing",
        "best_fit",
    ],
    "sources: [GOOD]\nseq_len: 48\n\tbatch_size: 2\n": [":3"],
    "sources: [GOOD\nseq_len: 48\n": ["run.yaml:"],
    "seq_len: 48\nbatch_size: 2\n": ["sources"],
    "sources: []\nseq_len: 48\nbatch_size: 2\n": ["sources"],
    "sources: [GOOD]\nbatch_size: 2\n": ["seq_len", "required"],
    "sources: [{path: GOOD, weight: 0}]\nseq_len: 48\nbatch_size: 2\n": [":1", "weight", "0"],
    "sources: [{path: GOOD, weight: -1}]\nseq_len: 48\nbatch_size: 2\n": [":1", "weight", "-1"],
    "sources: [GOOD, GOOD]\nseq_len: 48\nbatch_size: 2\n": ["sources", "good"],
    "sources: [GOOD]\nseq_len: 48\nbatch_size: 2\nrun: ../x\n": [":4", "run", "../x"],
    "sources: [GOOD]\nseq_len: 48\nbatch_size: 2\nprefetch_bytes: 1kb\n": [":4", "prefetch_bytes"],
    "": ["run.yaml"],
    "[1, 2]\n": ["run.yaml:1"],
}


@pytest.mark.parametrize("text", CONFIGS)
def test_configs(program, folder, good, text):
    path = folder / "run.yaml"
    path.write_text(text.replace("GOOD", good))
    name, _ = refused(program, "serve", "-c", path, texts=CONFIGS[text])
    assert name == "RP_E_CONFIG"


def test_no_such_config(program, folder):
    refused(program, "serve", "-c", folder / "no.yaml", texts=[folder / "no.yaml", "No such file"])


def test_an_unknown_option(program, folder, good):
    done = run(program, "serve", f"--source={good}", "--batch-sise=2")
    assert done.returncode == 2 and "batch-sise" in done.stderr
    done = run(program, "serv")
    assert done.returncode == 2 and "serve" in done.stderr


WORLDS = [  # the wrong number, and the legal values that must be listed
    ({"dp_world_size": 3, "global_batch_size": 16}, ["16", "1, 2, 4, 8"]),
    ({"batch_size": 5, "global_batch_size": 16}, ["batch_size", "1, 2, 4"]),
    ({"dp_world_size": 4, "ranks": "2-5"}, ["ranks", "below dp_world_size 4", "found 5"]),
    ({"dp_world_size": 0}, ["dp_world_size", "found 0"]),
    ({"batch_size": 0}, ["batch_size", "found 0"]),
    ({"plan_partitions": 500}, ["plan_partitions", "500"]),
]


@pytest.mark.parametrize("changes, texts", WORLDS)
def test_worlds_that_do_not_divide(program, folder, good, changes, texts):
    refused_serve(program, folder, good, *texts, **changes)


# ---- checkpoints and state tokens ----------------------------------------------------------------


def make_checkpoints(program, folder, source, count=2, **changes):
    """Some checkpoints of a run, at rising rows; their directory."""
    place = folder / "checkpoints"
    keys = {
        **VERSION_1,
        "sources": [source],
        "seq_len": 48,
        "batch_size": 2,
        "seed": 1,
        "checkpoint_dir": str(place),
    }
    engine = Engine(program, folder, {**keys, **changes})
    with Ranks(engine) as ranks:
        for _ in range(count):
            ranks.turn()[0].release()
            engine.checkpoint()
    engine.kill()
    return place


OTHER = {  # a config key that is part of the stream, and another value of it
    "seed": (1, 2),
    "seq_len": (48, 64),
    "packing": ("lookahead", "best_fit"),
    "fill": ("pad", "split"),
    "shuffle": ("document", "none"),
    "long_doc": ("split", "drop"),
    "packing_buffer": (64, 65),
    "plan_partitions": (1, 2),
    "max_docs_per_row": (32, 31),
}


@pytest.mark.parametrize("key", OTHER)
def test_a_checkpoint_of_another_stream(program, folder, good, key):
    before, after = OTHER[key]
    place = make_checkpoints(program, folder, good, **{key: before})
    kept = {path.name: path.read_bytes() for path in place.glob("*.rpc")}
    texts = [str(place), key, f"the state has {before}", f"this run has {after}"]
    refused_serve(program, folder, good, *texts, checkpoint_dir=place, **{key: after})
    assert {path.name: path.read_bytes() for path in place.glob("*.rpc")} == kept


def test_a_checkpoint_of_another_corpus(program, folder, good):
    place = make_checkpoints(program, folder, good)
    other = write_good(folder, "other", seed=4)
    name, _ = refused_serve(program, folder, other, place, "corpus", checkpoint_dir=place)
    assert name == "RP_E_MISMATCH"
    more = write_good(folder, "more", count=61)
    texts = ["documents of source more", "60", "61"]
    refused_serve(program, folder, more, *texts, checkpoint_dir=place)


def serve_and_stop(program, folder, source, place):
    """Start from the checkpoints and stop; the row that it began at, and its log."""
    keys = {
        "sources": [source],
        "seq_len": 48,
        "batch_size": 2,
        "seed": 1,
        "checkpoint_dir": str(place),
    }
    engine = Engine(program, folder, {**keys, "run": "again"})
    with Ranks(engine) as ranks:
        row = ranks.loaders[0].next_row
    assert engine.stop() == 0
    return row, engine.log()


@pytest.mark.parametrize("harm", ["torn", "flipped", "emptied", "foreign"])
def test_a_damaged_checkpoint_is_set_aside(program, folder, good, harm):
    """The newest that verifies is taken, aloud; the bad one is kept for whoever wants to look."""
    place = make_checkpoints(program, folder, good, 3)
    newest = sorted(place.glob("*.rpc"))[-1]
    if harm == "flipped":
        rewrite(newest, lambda data: data.__setitem__(len(data) // 2, data[len(data) // 2] ^ 4))
    else:
        content = newest.read_bytes()
        newest.write_bytes(
            {"torn": content[: len(content) // 2], "emptied": b""}.get(harm, b"PK\3\4")
        )
    row, log = serve_and_stop(program, folder, good, place)
    assert row == 4, "the one before the newest"
    assert newest.name in log


def test_all_checkpoints_bad(program, folder, good):
    """Never row 0 in silence: refused, and everything stays where it was."""
    place = make_checkpoints(program, folder, good, 3)
    for path in place.glob("*.rpc"):
        rewrite(path, lambda data: data.__setitem__(len(data) // 2, data[len(data) // 2] ^ 4))
    _, text = refused_serve(program, folder, good, place, checkpoint_dir=place)
    assert len(list(place.glob("*.rpc*"))) >= 2
    # and --fresh is the way out that is offered
    done = run(program, "serve", f"--source={good}", *options(folder, checkpoint_dir=place))
    assert done.returncode == 2 and "--fresh" in done.stderr


def test_a_state_of_many_lanes(program, folder):
    """Larger than any packet of a socket: it is brought back all the same, and a too large one is
    refused at the start."""
    generator = numpy.random.default_rng(5)
    documents = [generator.integers(0, 30000, n) for n in generator.integers(1, 90, 60000)]
    path = write_megatron(folder / "lanes", documents, "u16")
    config = {**VERSION_1, "sources": [path], "seq_len": 2048, "batch_size": 1}
    config |= {"num_epochs": "endless", "packing_buffer": 4096}
    config |= {"prefetch_bytes": "1mb", "prefetch_factor": 2}
    engine = Engine(program, folder, {**config, "plan_partitions": 9})
    try:
        with Ranks(engine) as ranks:
            for _ in ranks.turns(20):
                pass
            token = token_of(ranks.loaders[0])
            wanted = [batches[0]["input_ids"].tolist() for batches in ranks.turns(3)]
        assert len(token) > 1 << 20
        with Ranks(engine, token=token) as ranks:
            assert [batches[0]["input_ids"].tolist() for batches in ranks.turns(3)] == wanted
    finally:
        engine.kill()
    keys = {"packing_buffer": 4096, "plan_partitions": 1024, **VERSION_1}
    refused_serve(program, folder, path, "state", "plan_partitions", **keys)


def test_bad_state_tokens(program, folder, good):
    engine = Engine(program, folder, {"sources": [good], "seq_len": 48, "batch_size": 2})
    with Ranks(engine) as ranks:
        ranks.turn()
        token = ranks.tokens()[0]
    engine.kill()
    path = folder / "token"
    flipped = bytearray(token)
    flipped[100] ^= 1
    version = bytearray(token)
    version[8] = 9
    for content in (
        b"",
        token[:-1],
        token[:50],
        bytes(flipped),
        token + b"\1",
        b"x" * 500,
        bytes(version),
    ):
        path.write_bytes(content)
        arguments = [f"--source={good}", *options(folder / "run", seed=0), f"--state={path}"]
        refused(program, "serve", *arguments, texts=["state token"])
    arguments[-1] = f"--state={folder}/none"
    refused(program, "serve", *arguments, texts=[f"{folder}/none", "No such file"])


# ---- who is there --------------------------------------------------------------------------------


def test_a_second_engine_of_the_same_name(program, folder, good):
    engine = Engine(
        program, folder, {"sources": [good], "seq_len": 48, "batch_size": 2, "run": "refused"}
    )
    try:
        arguments = [f"--source={good}", *options(folder)]
        name, _ = refused(program, "serve", *arguments, texts=["refused", str(engine.pid)])
        assert name == "RP_E_BUSY"
        with Ranks(engine) as ranks:
            assert ranks.turn(), "the first one is not disturbed"
    finally:
        assert engine.stop() == 0


def test_an_engine_that_is_not_there(program, folder):
    where = [f"--run-dir={folder}"]
    for verb in ["read", "nobody", "--timeout=1"], ["stat", "nobody"]:
        name, _ = refused(program, *verb, *where, texts=["nobody", folder])
        assert name == "RP_E_GONE"


def test_two_engines_with_one_checkpoint_directory(program, folder, good):
    place = folder / "checkpoints"
    keys = {"sources": [good], "seq_len": 48, "batch_size": 2, "checkpoint_dir": str(place)}
    engine = Engine(program, folder, keys)
    try:
        texts = [place, str(engine.pid)]
        name, _ = refused_serve(program, folder, good, *texts, checkpoint_dir=place)
        assert name == "RP_E_BUSY"
    finally:
        assert engine.stop() == 0
