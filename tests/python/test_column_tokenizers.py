# SPDX-License-Identifier: Apache-2.0
"""Side columns of token ids: a declared tokenizer is shown. The tokens and the other columns have
the same one, or a start refuses it by both; a column that declares none is as before."""

import json
import os
import subprocess

import pytest
import xxhash
from column_kit import assert_columns, column, fixtures, read_all, refused
from explain_kit import explain, rows_of
from mask_kit import index
from remote_kit import environment, store  # noqa: F401
from stream_kit import PATIENCE, Engine

SEED = 3211
LAYOUT = [("megatron", "u16", 1, [30, 20])]
KINDS = {"teacher": ("<i4", 4), "weight": ("<f4", 1)}
SEQ_LEN = 32
corpus, columns = fixtures(LAYOUT, KINDS, SEED, SEQ_LEN)
NAMES = "gpt2", "llama"
NONE = "none declared"


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.fixture
def tokenizers(tmp_path):
    """Folders of tokenizers, and the hashes of their files."""
    hashes = {}
    for name in NAMES:
        path = tmp_path / "models" / name / "tokenizer.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"model": name}))
        hashes[name] = xxhash.xxh3_128_hexdigest(path.read_bytes())
    return hashes


def declare(program, corpus, name, hashes):
    """The tokenizer of the tokens becomes known, or unknown."""
    for path in corpus.sources[0]["shards"]:
        path = str(path).removesuffix(".bin")
        said = {"name": name, "xxh3_128": hashes[name]} if name else None
        with open(f"{path}.tokens.json", "w") as file:
            json.dump({"tokenizer": said}, file)
        index(program, f"{path}.bin")


def write(program, folder, columns, name, tokenizer, **more):
    """Of the one source, whose values are in the file of Columns.write."""
    path = folder / f"{name}-0.npy"
    options = ["--tokenizer", str(tokenizer)] if tokenizer else []
    sources = columns.corpus.sources
    return column(program, folder, sources, name, path, "--replace", *options, **more)


def run(program, *arguments):
    command = [program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def config_of(corpus, **more):
    keys = {"sources": corpus.sources, "seq_len": SEQ_LEN, "batch_size": 2}
    return {**keys, "columns": ["teacher", "weight"], "sections": ["provenance"], **more}


def contract(program, folder, config):
    path = folder / "contract.yaml"
    path.write_text(json.dumps(config))
    done = run(program, "config", "contract", "-c", path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_tokenizer_is_written_and_shown(corpus, columns, tokenizers, program, folder):
    """By a folder, a file and `bytes`; by inspect, --check and explain. Only the header
    differs from a file without it, so that contracts and digests are the same."""
    path, config = folder / "0-0.teacher.col", config_of(corpus)
    bare = path.read_bytes()
    assert bare[56:4080] == bytes(4024)
    done = run(program, "inspect", path)
    assert f"tokenizer    {NONE}" in done.stdout and "a side column, i32x4" in done.stdout
    plain = contract(program, folder, config)
    for given, name in (("models/gpt2", "gpt2"), ("models/llama/tokenizer.json", "llama")):
        write(program, folder, columns, "teacher", folder / given)
        made = path.read_bytes()
        assert made[:56] + made[4096:] == bare[:56] + bare[4096:]
        high, low = tokenizers[name][:16], tokenizers[name][16:]
        assert made[56:72] == bytes.fromhex(low)[::-1] + bytes.fromhex(high)[::-1]
        assert made[72:120] == name.encode().ljust(48, b"\0") and made[120:4080] == bytes(3960)
        shown = f"{name} ({tokenizers[name]})"
        assert f"tokenizer    {shown}" in run(program, "inspect", "--scan", path).stdout
        told = json.loads(run(program, "inspect", "--json", path).stdout)[0]
        assert told["tokenizer"] == {"name": name, "xxh3_128": tokenizers[name]}
        assert contract(program, folder, config) == plain
    checked = run(program, "column", "-c", folder / "contract.yaml", "--check").stdout
    assert f"teacher: i32x4, tokenizer {shown}\nweight: f32, tokenizer {NONE}\n" in checked
    words = "-c", folder / "contract.yaml", "--row", "0"
    found = rows_of(program, *words)[0]["fragments"][0]["columns"]
    assert found["teacher"]["tokenizer"]["name"] == "llama" and "tokenizer" not in found["weight"]
    assert ", 16 each, ids of llama" in explain(program, *words)
    write(program, folder, columns, "teacher", "bytes")
    told = json.loads(run(program, "inspect", "--json", path).stdout)[0]
    assert told["tokenizer"]["name"] == "bytes"
    write(program, folder, columns, "teacher", None)
    assert path.read_bytes() == bare


def test_a_start_compares_tokenizers(corpus, columns, tokenizers, program, folder):
    """Of the tokens and of all columns; one that is not known is compared with none."""
    path = folder / "0-0.teacher.col"
    write(program, folder, columns, "teacher", folder / "models/gpt2")
    serve(program, folder, corpus, columns)  # the tokens' is not known
    declare(program, corpus, "gpt2", tokenizers)
    serve(program, folder, corpus, columns)
    declare(program, corpus, "llama", tokenizers)
    expected, found = (f"{name} ({tokenizers[name]})" for name in ("llama", "gpt2"))
    said = f"{path}: tokenizer: expected {expected}, as of source `{corpus.sources[0]['name']}`"
    told = refused(program, folder, config_of(corpus))
    assert f"{said}, found {found}" in told, told
    assert "next: " in told and "--tokenizer T --replace" in told, told
    write(program, folder, columns, "teacher", None)
    serve(program, folder, corpus, columns)  # the column's is not known
    declare(program, corpus, None, tokenizers)
    write(program, folder, columns, "teacher", folder / "models/gpt2")
    write(program, folder, columns, "weight", folder / "models/llama")
    told = refused(program, folder, config_of(corpus))
    assert f"0-0.weight.col: tokenizer: expected {found}, as of column `{path}`" in told, told
    assert f"found {expected}" in told, told


def serve(program, folder, corpus, columns):
    engine = Engine(program, folder, config_of(corpus))
    rows, loaders = read_all(engine, lambda batch: assert_columns(batch, columns), most=3)
    assert rows
    for loader in loaders:
        loader.close()
    assert engine.stop() == 0


def test_the_command_writes_no_column_that_a_start_refuses(
    corpus, columns, tokenizers, program, folder
):
    declare(program, corpus, "llama", tokenizers)
    kept = (folder / "0-0.teacher.col").read_bytes()
    done = write(program, folder, columns, "teacher", folder / "models/gpt2", check=False)
    assert done.returncode == 2 and f"found gpt2 ({tokenizers['gpt2']})" in done.stderr
    assert f"expected llama ({tokenizers['llama']})" in done.stderr, done.stderr
    done = write(program, folder, columns, "teacher", folder, check=False)
    assert done.returncode == 2 and "found no tokenizer.json" in done.stderr, done.stderr
    done = write(program, folder, columns, "teacher", folder / "none.json", check=False)
    assert done.returncode == 2 and "none.json" in done.stderr, done.stderr
    assert (folder / "0-0.teacher.col").read_bytes() == kept
    write(program, folder, columns, "teacher", folder / "models/llama")
    serve(program, folder, corpus, columns)


def test_objects_of_a_store_are_compared(
    corpus, columns, tokenizers, program, folder, store  # noqa: F811
):
    write(program, folder, columns, "teacher", folder / "models/gpt2")
    declare(program, corpus, "llama", tokenizers)
    for path in folder.iterdir():
        if path.is_file() and path.name.startswith("0-"):
            os.link(path, store.folder / path.name)
    source = corpus.sources[0]
    source["shards"] = [store.url(path) for path in source["shards"]]
    told = refused(program, folder, config_of(corpus, cache_dir=str(folder / "cached")))
    assert f"{store.url('0-0.teacher.col')}: tokenizer: expected llama" in told, told
    assert f"found gpt2 ({tokenizers['gpt2']})" in told, told


def test_a_planted_defect_is_found(
    corpus, columns, tokenizers, program, broken, folder, monkeypatch
):
    """Tokenizers that are not compared: a start continues with ids of another vocabulary."""
    write(program, folder, columns, "teacher", folder / "models/gpt2")
    declare(program, corpus, "llama", tokenizers)
    assert "tokenizer: expected llama" in refused(broken, folder, config_of(corpus))
    monkeypatch.setenv("RP_DEFECT", "ignore_side_tokenizer")
    Engine(broken, folder, config_of(corpus)).kill()  # it was ready
