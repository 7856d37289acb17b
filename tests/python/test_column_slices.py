# SPDX-License-Identifier: Apache-2.0
"""Side columns in slices of a context-parallel group: columns of tokens are sliced as tokens are,
and numbers of documents stay whole."""

import json
import subprocess

import numpy
import pytest
from column_kit import column
from context_kit import group, per_row, write_corpus
from mask_kit import index


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_slices_of_columns_make_up_the_rows(program, folder, kind):
    torch = pytest.importorskip("torch")
    path = str(write_corpus(folder))
    sources = [{"name": "web", "shards": [path]}]
    tokens = len(numpy.fromfile(path, "<u2"))
    generator = numpy.random.default_rng(1)
    numpy.save(folder / "w.npy", generator.integers(1, 60000, (tokens, 2)).astype("<u2"))
    column(program, folder, sources, "teacher", folder / "w.npy", "--bf16")
    config = {"sources": sources, "seq_len": 64, "batch_size": 3, "index": str(folder / "a.rpi")}
    (folder / "i.yaml").write_text(json.dumps(config))
    index(program, "-c", str(folder / "i.yaml"))
    numpy.save(folder / "score.npy", numpy.arange(1, 67))  # a value for each document
    command = [program, "annotate", "-q", "-c", str(folder / "i.yaml")]
    subprocess.run([*command, "--column", f"score={folder}/score.npy"], check=True)
    more = {"columns": ["teacher"], "document_columns": ["score"], "index": config["index"]}
    more |= {"return_type": kind, "mtp": 2}
    corpus = {"name": "web", "shards": [path]}
    with group([corpus], folder, 2, **more) as (whole, parts):
        count = 0
        for batch, *slices in zip(whole, *parts):
            wanted = batch.view("teacher", kind="numpy")
            for rank, part in enumerate(slices):
                found = part["teacher"]
                if kind == "torch":
                    assert found.dtype == torch.bfloat16
                    found = found.view(torch.int16).numpy().view("<u2")
                assert (found == wanted[:, per_row(64, 2, rank)]).all()
                assert (numpy.asarray(part["score"]) == batch.view("score", kind="numpy")).all()
            count += 1
        assert count > 3
