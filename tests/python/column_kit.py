# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of side columns: columns of a corpus, and what a batch must have of them,
which follows from its provenance and from nothing that the engine computes of columns."""

import json
import os
import subprocess
from pathlib import Path

import numpy
import pytest
import ringpack
from mask_kit import index
from convert_kit import worker_python
from stream_kit import PATIENCE, Corpus


def column(program, folder, sources, name, path, *options, check=True):
    config = Path(folder) / "columns-made.yaml"
    config.write_text(json.dumps({"sources": sources, "seq_len": 8, "batch_size": 1}))
    return subprocess.run(
        [program, "column", "-q", "-c", str(config), "--column", f"{name}={path}", *options],
        check=check,
        capture_output=True,
        text=True,
        env={**os.environ, **worker_python()},
    )


class Columns:
    """Columns of all shards of a corpus. `kinds` by name: a numpy dtype, values of a token."""

    def __init__(self, corpus, counts, kinds, seed):
        self.corpus, self.kinds, generator = corpus, kinds, numpy.random.default_rng(seed)
        self.starts, self.values = [], {name: [] for name in kinds}
        for documents in corpus.documents:  # the entries of a document begin here in its source
            lengths = [len(d) for d in documents]
            self.starts.append(numpy.cumsum([0, *lengths]))
            for name, (dtype, count) in kinds.items():
                shape = (sum(lengths), count) if count > 1 else (sum(lengths),)
                # never 0, which is what places without a token have
                made = generator.integers(1, 120, shape)
                self.values[name].append(made.astype(dtype))
        self.counts = counts

    def write(self, program, folder, *options):
        for name in self.kinds:
            for number, source in enumerate(self.corpus.sources):
                path = Path(folder) / f"{name}-{number}.npy"
                numpy.save(path, self.values[name][number])
                column(
                    *(program, folder, self.corpus.sources, name, path),
                    *("--source", source["name"], "--replace", *options),
                )

    def entries(self, name, part, bos, eos):
        """An entry for each token of a fragment; zeros for inserted ones."""
        document, offset, source, length = part
        start, end = self.starts[source][document : document + 2]
        values = self.values[name][source]
        found = numpy.zeros((length, *values.shape[1:]), values.dtype)
        for t in range(length):
            stored = offset + t - bos
            if 0 <= stored < end - start:
                found[t] = values[start + stored]
        return found

    def expected(self, batch, name, mode=None, bos=0, eos=0, across=False):
        """The section of a batch. mode: None for a column of tokens, else the label_mode."""
        parts = batch.view("provenance", kind="numpy", flat=False)
        rows = batch.view("rows", kind="numpy")
        plans = batch.view("row_plans", kind="numpy") if "row_plans" in batch else None
        shape = self.values[name][0].shape[1:]
        made = numpy.zeros((len(rows), batch.seq_len, *shape), self.kinds[name][0])
        for r, info in enumerate(rows):
            align = int(plans[r]["align"]) if plans is not None else 1
            at = 0
            for part in parts[r][: info["fragments"]].tolist():
                length = part[3]
                own = self.entries(name, part, bos, eos)
                if mode == "shifted":
                    after = self.entries(name, (part[0], part[1] + length, part[2], 1), bos, eos)
                    own = numpy.concatenate([own[1:], after if across else 0 * after])
                elif mode == "aligned":
                    own[0] = 0
                made[r, at : at + length] = own
                at += -(-length // align) * align
        return made


def fixtures(layout, kinds, seed, seq_len):
    """Fixtures of pytest: a corpus of files, and its columns."""

    @pytest.fixture
    def corpus(tmp_path):
        return Corpus(tmp_path, layout, seed, seq_len)

    @pytest.fixture
    def columns(corpus, program, tmp_path):
        made = Columns(corpus, None, kinds, seed)
        made.write(program, tmp_path)
        return made

    return corpus, columns


def refused(program, folder, config):
    """The message of a start that is refused."""
    path = folder / "refused.yaml"
    path.write_text(json.dumps({"run": "refused", "run_dir": str(folder), **config}))
    done = subprocess.run(
        [program, "serve", "-c", str(path)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


def annotated(program, folder, corpus, config):
    """A config with an index that has two numbers of each document."""
    path = folder / "indexed.yaml"
    config = {**config, "index": str(folder / "all.rpi")}
    path.write_text(json.dumps(config))
    index(program, "-c", str(path))
    numbers = []
    for source, documents in zip(corpus.sources, corpus.documents):
        n = numpy.arange(1, len(documents) + 1)
        numbers.append({"language": -n, "score": n / 8})
        for name, values in numbers[-1].items():
            numpy.save(folder / f"{name}.npy", values)
            command = [program, "annotate", "-q", "-c", str(path), "--source", source["name"]]
            subprocess.run([*command, "--column", f"{name}={folder / name}.npy"], check=True)
    return config, numbers


def assert_columns(batch, columns, of_labels=(), **more):
    for name in columns.kinds:
        mode = more.get("label_mode", "shifted") if name in of_labels else None
        expected = columns.expected(
            batch, name, mode, more.get("bos", 0), more.get("eos", 0), more.get("across", False)
        )
        found = batch.view(name, kind="numpy", flat=False)
        assert found.dtype == expected.dtype and found.shape == expected.shape
        wrong = numpy.argwhere(found != expected)
        assert len(wrong) == 0, (name, batch.number, wrong[:5].tolist())


def read_all(engine, check, world=1, most=None, state=None, **options):
    """Read a run to its end; the rows that came, and the loaders."""
    loaders = [
        ringpack.Loader(
            run=engine.run,
            run_dir=engine.folder,
            dp_rank=rank,
            dp_world_size=world,
            connect_timeout=600,
            **options,
        )
        for rank in range(world)
    ]
    rows = []
    for loader in loaders if state is not None else []:
        loader.load_state_dict(state)
    while most is None or most > 0:
        batches = [loader.next(timeout=600) for loader in loaders]
        if batches[0] is None:
            break
        for batch in batches:
            check(batch)
            rows += batch.view("rows", kind="numpy")["row"].tolist()
        most = None if most is None else most - 1
    return rows, loaders
