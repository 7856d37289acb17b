# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of formats that are read in place: sources in their own format and their
Megatron copies, served and compared to the last token."""

import os
import subprocess

from stream_kit import Engine, Ranks, Stream, Taken, Written, token_of, write_megatron

INPUTS = {"num_epochs": 1, "window": 5, "fill": "split", "seed": 4711}


def with_copies(folder, forms):
    """Two corpora with the same documents: `forms` (name → (paths, documents, declared keys)) as
    they are, and as Megatron datasets."""
    read, copies, documents = [], [], []
    for name, (paths, made, declared) in forms.items():
        copy = write_megatron(folder / f"copy of {name}", made, "i32")
        read.append({"name": name, "weight": 1, "shards": [str(p) for p in paths], **declared})
        copies.append({"name": name, "weight": 1, "shards": [copy]})
        documents.append(made)
    return Written(read, documents), Written(copies, documents)


def serve_all(program, folder, corpus, inputs=(), **machine):
    """Every row of an epoch against the oracle; returns the digest of the stream."""
    stream = Stream(corpus, {**INPUTS, **dict(inputs)})
    engine = Engine(program, folder, {**stream.config(), "batch_size": 5, **machine})
    taken = Taken(stream)
    try:
        with Ranks(engine) as ranks:
            for batches in ranks.turns():
                taken.add(batches)
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    taken.assert_all()
    return taken.digest


def serve_first_batch(program, folder, config):
    """The first batch of a run is there; then the run is killed."""
    engine = Engine(program, folder, config)
    try:
        with Ranks(engine) as ranks:
            assert ranks.turn() is not None
    finally:
        engine.kill()


def assert_equal_to_copies(program, folder, forms):
    """From tables that are made at the start, and from sidecars."""
    read, copies = with_copies(folder, forms)
    wanted = serve_all(program, folder, copies)
    assert serve_all(program, folder, read) == wanted
    for source in read.sources:
        declared = [f"--{key}={source[key]}" for key in ("dtype", "column") if key in source]
        index = [program, "index", "-q", *declared, *source["shards"]]
        subprocess.run(index, check=True, capture_output=True)
    assert serve_all(program, folder, read, io="pread") == wanted


LIVES = [  # turns, ranks, rows a batch, threads that read
    (3, 1, 5, 1),
    (4, 2, 3, 2),
    (2, 3, 1, 3),
    (None, 1, 4, 2),
]


def assert_killed_and_resumed(program, folder, forms):
    """The digest of all deliveries of engines before their kills equals the copies'."""
    read, copies = with_copies(folder, forms)
    wanted = serve_all(program, folder, copies)
    assert serve_in_lives(program, folder, read) == wanted


def serve_in_lives(program, folder, corpus, inputs=()):
    """By engines that are killed (-9), each with other numbers of ranks, rows and readers than the
    one before: every row once, against the oracle. Returns the digest."""
    lives = [
        (turns, {"dp_world_size": world, "batch_size": rows, "readers": readers})
        for turns, world, rows, readers in LIVES
    ]
    return take_in_lives(program, folder, Stream(corpus, {**INPUTS, **dict(inputs)}), lives)


def assert_resumes_with_and_without(program, folder, corpus, manifest, inputs=()):
    """One run by three engines; the second one has the manifest of the corpus."""
    lives = [
        (turns, {"batch_size": 5, "run": f"run{number}", **keys})
        for number, (turns, keys) in enumerate([(2, {}), (2, {"index": manifest}), (None, {})])
    ]
    take_in_lives(program, folder, Stream(corpus, {**INPUTS, **dict(inputs)}), lives)


def take_in_lives(program, folder, stream, lives):
    """By engines that are killed (-9) after some turns (None: at the end), each with keys of its
    own, from the state token of the one before: every row once. Returns the digest."""
    taken, token = Taken(stream), None
    for turns, keys in lives:
        engine = Engine(program, folder, {**stream.config(), **keys})
        try:
            with Ranks(engine, keys.get("dp_world_size", 1), token) as ranks:
                for batches in ranks.turns(turns):
                    taken.add(batches)
                token = token_of(ranks.loaders[0])
        finally:
            engine.kill()
    taken.assert_all()
    return taken.digest


def assert_refused(program, path, *words, declared=(), command="inspect"):
    ask = [program, command, *declared, path]
    asked = subprocess.run(ask, capture_output=True, text=True)
    assert asked.returncode == 2, asked.stdout
    for word in words:
        assert word in asked.stderr, asked.stderr


def peers_python():
    """The Python of build/peers-venv (bench/peers/setup), which has the libraries that bring torch
    along; None where it was not made."""
    path = os.path.join(os.path.dirname(__file__), "../../build/peers-venv/bin/python")
    return path if os.path.exists(path) else None
