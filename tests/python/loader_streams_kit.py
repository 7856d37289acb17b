# SPDX-License-Identifier: Apache-2.0
"""Loaders and engines of a training and two evaluations, for the tests of streams."""

import json
import os
import subprocess
import threading

import pytest
import ringpack
from stream_kit import PATIENCE
from stream_oracle import KEYS, Expected, assert_batch, keys_of

STREAMS = {"train": {}, "eval": {"num_epochs": 1}, "other": {"num_epochs": 1, "batch_size": 4}}
CHANGES_SEQ_LEN = [{"until": "row 6"}, {"seq_len": 64}]


@pytest.fixture
def open_streams(make, corpora):
    """Loaders of three streams: a training, an evaluation of the other source, one of the same."""

    def open_them(**changes):
        own = {name: dict(keys) for name, keys in STREAMS.items()}
        own["eval"]["corpus"] = corpora[1]
        return make(streams=own, num_epochs="endless", **changes)

    return open_them


@pytest.fixture(scope="module")
def held_out(corpora):
    return Expected(corpora[1:], num_epochs=1)


def rows_of(batches, expected=None):
    """The rows of batches, each compared with the oracle's."""
    rows = []
    for batch in batches:
        if expected is not None:
            assert_batch(batch, expected)
        rows += batch["rows"]["row"].tolist()
    return rows


def run_ranks(loaders, work):
    """work(rank, loader, barrier) in a thread of each rank. Its results."""
    barrier, results = threading.Barrier(len(loaders)), [None] * len(loaders)

    def run(rank):
        with loaders[rank] as loader:
            results[rank] = work(rank, loader, barrier)
            barrier.wait(PATIENCE)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(loaders))]
    [thread.start() for thread in threads]
    [thread.join(PATIENCE) for thread in threads]
    assert None not in results
    return results


@pytest.fixture
def serve(folder, corpora, program):
    """`ringpack serve` of a config file."""
    started = []

    def start(of=program, streams=None, **changes):
        own = streams or {**STREAMS, "eval": {"num_epochs": 1, "corpus": corpora[1]}}
        keys = {**KEYS, "corpus": corpora[0], "batch_size": 3, "profile": "full"}
        keys = keys_of({**keys, **changes})
        config = {"run": "served", "run_dir": str(folder), **keys, "streams": own}
        path = folder / "config.yaml"
        path.write_text(json.dumps(config))
        ready, end = os.pipe()
        command = [of, "serve", "-c", path, "--ready-fd", str(end)]
        started.append(subprocess.Popen(command, pass_fds=[end], stderr=subprocess.PIPE, text=True))
        os.close(end)
        os.read(ready, 16)
        os.close(ready)
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=PATIENCE)
