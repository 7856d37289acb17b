# SPDX-License-Identifier: Apache-2.0
"""Landmarks: rows are the same with them, whatever becomes of their files; one of another stream is
refused by name; `ringpack plan --landmarks` makes all of them."""

import fcntl
import json
import os
import shutil
import struct
import subprocess

import numpy
import pytest
import xxhash
from explain_kit import explain
from stream_kit import VERSION_1, write_megatron

SEED = 17
SPACING = 4096  # documents and rows from one landmark to the next


@pytest.fixture(scope="module")
def long(program, tmp_path_factory):
    """A stream of some 25,000 rows, as two configs that differ only in their weights."""
    folder, generator = tmp_path_factory.mktemp("long"), numpy.random.default_rng(SEED)
    paths = [
        write_megatron(
            folder / name, numpy.split(generator.integers(0, 99, 16 * count), count), "u16"
        )
        for name, count in (("one", 15000), ("two", 10000))
    ]
    configs = []
    for name, weight in ("a", 1), ("b", 3):
        sources = [{"path": paths[0], "weight": weight}, {"path": paths[1], "weight": 2}]
        path = folder / f"{name}.yaml"
        keys = {**VERSION_1, "sources": sources, "seq_len": 16, "batch_size": 1}
        path.write_text(json.dumps(keys))
        configs.append(path)
    return configs


def landmarks_of(cache):
    """The files of landmarks below a cache directory: tokens, and their index."""
    (index,) = (cache / "landmarks").glob("*.index")
    return index.with_suffix(""), index


def marked(program, cache, config, row):
    """The row, and the files of landmarks that are left."""
    answer = explain(program, "-c", config, "--cache-dir", cache, "--row", row, "--json")
    return json.loads(answer)["rows"], *landmarks_of(cache)


def tokens_in(path):
    """For each token: its place in the file, its row, and the documents and rows planned up to
    there."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        size, sources = (struct.unpack_from("<I", data, at + place)[0] for place in (12, 84))
        row, documents = (
            struct.unpack_from("<Q", data, at + place)[0] for place in (96, 104 + 16 * sources)
        )
        found.append((at, row, documents + row))
        at += size
    return found


def without_digest(token):
    """Landmarks of releases before the plan digest."""
    token = token[:8] + struct.pack("<II", 1, len(token) - 32) + token[16:-48]
    return token + xxhash.xxh3_128_digest(token)[::-1]


def test_landmarks_change_nothing(program, long, tmp_path):
    """Nor do damaged ones: they are made again."""
    cache, asked = tmp_path / "1", (2600, 21000)
    plain = [marked(program, cache, long[0], row)[0] for row in asked]
    path, index = landmarks_of(cache)
    found, tokens, entries = tokens_in(path), path.read_bytes(), index.read_bytes()
    for (_, row, planned), (_, next_row, next_planned) in zip(found, found[1:]):
        assert row < next_row and SPACING <= next_planned - planned < SPACING + 200
    assert len(found) == 21000 // (SPACING // 2)
    assert list(struct.iter_unpack("<QQQ", entries)) == [
        (row, at, end - at)
        for (at, row, _), end in zip(found, [at for at, *_ in found[1:]] + [len(tokens)])
    ]
    second, last = found[1][0], found[-1][0]
    older = b"".join(map(without_digest, (tokens[:second], tokens[second : found[2][0]])))
    damages = {
        "as it was": (tokens, entries),
        "cut": (tokens[: last + 99], entries),
        "bit of the first": (tokens[:99] + bytes([tokens[99] ^ 1]) + tokens[100:], entries),
        "bit of the last": (tokens[:-1] + bytes([tokens[-1] ^ 1]), entries),
        "noise": (b"x" * 999, entries),
        "older": (older, entries),
        "length": (tokens[:12] + b"\xff" * 4 + tokens[16:], entries),
        "empty": (b"", entries),
        "cut index": (tokens, entries[:60]),
        "noise in the index": (tokens, os.urandom(len(entries))),
        "bit of the index": (tokens, bytes([entries[0] ^ 1]) + entries[1:]),
        "longer index": (tokens, entries + entries[-24:]),
        "index of others": (tokens, entries[24:]),
    }
    for name, (content, of_index) in damages.items():
        for has_index in True, False:
            path.write_bytes(content)
            index.write_bytes(of_index) if has_index else index.unlink()
            assert [marked(program, cache, long[0], row)[0] for row in asked] == plain, name
            assert path.read_bytes() == tokens, (name, has_index)
    marked(program, cache, long[0], 23500)  # which adds one
    assert len(index.read_bytes()) == 24 * len(tokens_in(path)) == len(entries) + 24


def test_landmarks_are_told_of_where_they_were_saved(program, long, tmp_path):
    """Not where they were there before, and not after a gap: a file has all from row 0 on."""
    def told(row, *source):
        command = [program, "explain", "-c", long[0], "--cache-dir", tmp_path / "cache", *source,
                   "--row", str(row), "--limit", "0"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr

    token = tmp_path / "token"
    state = [program, "state", "-c", long[0], "--row", "15000", "-o", token]
    subprocess.run(state, check=True, capture_output=True)
    assert told(21000, token) == ""  # no landmark was saved
    path, _ = landmarks_of(tmp_path / "cache")
    assert path.stat().st_size == 0
    assert "landmarks were saved" in (text := told(11000)) and f": 5 in {path}" in text
    assert told(11000) == ""  # there are some, and they are not new
    assert told(21000, token) == ""
    assert f": 5 in {path}" in told(21000)


def make_landmarks(program, cache, config, *options, status=0):
    command = [program, "plan", "-c", config, "--cache-dir", cache, "--landmarks", *options]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=600)
    assert done.returncode == status, done.stderr
    return done.stderr if status else json.loads(done.stdout) if "--json" in options else None


def test_all_landmarks_at_once(program, long, tmp_path):
    """With documents of all lengths, none is far from the next, and the command continues."""
    generator, cache = numpy.random.default_rng(SEED), tmp_path / "cache"
    lengths = [1] * 40000 + [64] * 6000 + [*generator.integers(0, 90, 20000)]
    documents = numpy.split(numpy.zeros(sum(lengths), int), numpy.cumsum(lengths)[:-1])
    path = write_megatron(tmp_path / "many", documents, "u16")
    config = tmp_path / "many.yaml"
    keys = {**VERSION_1, "sources": [{"path": path}], "seq_len": 64, "batch_size": 1}
    config.write_text(json.dumps({**keys, "shuffle": "none", "num_epochs": 0}))
    assert "give `--rows N`" in make_landmarks(program, cache, config, status=2)
    half = make_landmarks(program, cache, config, "--rows", 9000, "--json")
    assert (half["row"], half["landmarks"], half["planned_rows"]) == (9000, half["added"], 9000)
    keys = "--num-epochs", "1"  # another stream
    first = make_landmarks(program, cache, config, *keys, "--rows", 5000, "--json")
    told = make_landmarks(program, cache, config, *keys, "--json")
    assert told["landmarks"] == first["landmarks"] + told["added"]
    assert told["planned_rows"] < told["row"] - first["row"] + SPACING
    found = [0, *(planned for _, _, planned in tokens_in(cache / "landmarks" / told["stream"]))]
    assert len(found) == told["landmarks"] + 1 > 20
    assert max(after - before for before, after in zip(found, found[1:])) < SPACING + 4 * 66
    again = make_landmarks(program, cache, config, *keys, "--json")
    assert again["added"] == 0 and again["row"] == told["row"]
    plain = explain(program, "-c", config, *keys, "--row", told["row"] - 1, "--json")
    at_once = ["--cache-dir", cache, "--row", told["row"] - 1, "--json"]
    assert explain(program, "-c", config, *keys, *at_once) == plain
    with open(cache / "landmarks" / told["stream"], "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another command adds" in make_landmarks(program, cache, config, *keys, status=2)
        assert explain(program, "-c", config, *keys, *at_once) == plain
    assert "no directory" in make_landmarks(program, "/proc/none", config, *keys, status=2)


def other_landmarks(program, long, place, **options):
    """The output with the landmarks of the other stream in the place of the own ones."""
    plain, *own = marked(program, place / "own", long[0], 21000)
    _, *other = marked(program, place / "other", long[1], 21000)
    for source, target in zip(other, own):
        shutil.copy(source, target)
    command = [program if not options else options.pop("broken"), "explain", "-c", long[0],
               "--cache-dir", place / "own", "--row", "21000", "--json"]
    done = subprocess.run(command, capture_output=True, timeout=600, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["rows"] == plain, done.stderr.decode()


def test_landmarks_of_another_stream_are_refused(program, long, tmp_path):
    same, said = other_landmarks(program, long, tmp_path)
    assert same and "none of this stream" in said and "weight of source" in said


def test_a_program_that_takes_them_is_found(program, broken, long, tmp_path):
    environment = {**os.environ, "RP_DEFECT": "landmark_of_another_stream"}
    same, _ = other_landmarks(program, long, tmp_path, broken=broken, env=environment)
    assert not same


def test_landmarks_of_a_dealt_stream(program, long, tmp_path):
    """A landmark inside a deal window has the state at its beginning: rows are the same with it,
    and other rows than without a deal."""
    keys = {**json.loads(long[0].read_text()), "stream_version": 2}
    deal = {"window": 96, "step": 24, "tier": 6, "cost": 20}
    configs = [tmp_path / "plain.yaml", tmp_path / "dealt.yaml"]
    configs[0].write_text(json.dumps(keys))
    configs[1].write_text(json.dumps({**keys, "deal": deal}))
    kept = tmp_path / "kept"
    marked(program, kept, configs[1], 22000)
    assert len(landmarks_of(kept)[1].read_bytes()) >= 24 * 5
    for row in 2600, 9001, 21007:
        alone, *_ = marked(program, tmp_path / f"cache-{row}", configs[1], row)
        assert marked(program, kept, configs[1], row)[0] == alone
        assert marked(program, tmp_path / f"plain-{row}", configs[0], row)[0] != alone
    _, *plain = marked(program, tmp_path / "plain", configs[0], 21007)
    for source, target in zip(plain, landmarks_of(kept)):
        shutil.copy(source, target)
    command = ["explain", "-c", configs[1], "--cache-dir", kept, "--row", "21007", "--json"]
    done = subprocess.run([program, *command], capture_output=True, timeout=600, check=True)
    assert json.loads(done.stdout)["rows"] == alone and b"none of this stream" in done.stderr
