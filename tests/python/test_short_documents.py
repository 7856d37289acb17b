# SPDX-License-Identifier: Apache-2.0
"""Short documents fill rows as well as others do: max_docs_per_row follows from the corpus if it is
not given, as STREAM.md says; if a limit costs tokens, each face says so."""

import json

import numpy
import pytest
import ringpack
from refusal_kit import run
from stream import default_max_docs_per_row
from stream_kit import VERSION_1, Engine, write_megatron

PACKINGS = ["lookahead", "concat", "best_fit"]


def write_lengths(folder, lengths, name="short"):
    ends = numpy.cumsum(lengths)
    tokens = numpy.arange(ends[-1]) % 30000
    return write_megatron(folder / name, numpy.split(tokens, ends[:-1]), "u16")


def plan(program, folder, sources, **changes):
    """The output of `plan --json`, and its warnings."""
    path = folder / "plan.yaml"
    path.write_text(json.dumps({"seq_len": 4096, "batch_size": 2, "sources": sources, **changes}))
    done = run(program, "plan", "--json", "-c", path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("tokens", [5, 20])
def test_short_documents_fill_rows(program, folder, packing, tokens):
    source = write_lengths(folder, [tokens] * (4096 * 24 // tokens))
    report, said = plan(program, folder, [source], packing=packing)
    rows = report["rows"] - 1  # the last one ends with the stream
    assert report["tokens"] >= 0.99 * rows * 4096
    assert report["rows_capped"] == 0 and "max_docs_per_row" not in said


def test_a_default_without_lengths_is_noticed(broken, folder, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "ignore_short_documents")
    source = write_lengths(folder, [5] * 20000)
    report, _ = plan(broken, folder, [source], **VERSION_1)
    assert report["tokens"] < 0.2 * report["rows"] * 4096


@pytest.mark.parametrize("seed", range(12))
def test_the_default_is_that_of_the_specification(program, folder, seed):
    generator = numpy.random.default_rng(seed)
    inputs = {
        **VERSION_1,
        "seq_len": int(generator.choice([16, 100, 1000, 4096, 50000])),
        "packing": PACKINGS[seed % 3],
        "window": int(generator.choice([1, 64, 1024])),
        "lanes": int(generator.choice([1, 3])),
    }
    lengths = [
        numpy.maximum(generator.lognormal(mean, 1, count).astype(int), 1 - seed % 2)
        for mean, count in [(1, 6000), (generator.uniform(0, 5), 300)][: 1 + seed % 2]
    ]
    sources = [{"path": write_lengths(folder, x, f"s{j}")} for j, x in enumerate(lengths)]
    report, _ = plan(program, folder, sources, **inputs)
    expected = default_max_docs_per_row(inputs, [list(map(int, x)) for x in lengths])
    assert report["max_docs_per_row"] == expected, (seed, inputs)


def test_a_limit_that_costs_tokens_is_told(program, folder):
    """By plan, doctor and serve; not without a cost."""
    source = write_lengths(folder, [5] * 20000)
    for limit, is_told in ((128, True), (821, False), (None, False)):
        keys = {"seq_len": 4096, "batch_size": 2, "run": f"r{limit}", "run_dir": str(folder)}
        keys |= {"sources": [source], **({"max_docs_per_row": limit} if limit else {})}
        path = folder / "costs.yaml"
        path.write_text(json.dumps(keys))
        text = "about 84 % of the tokens"
        done = run(program, "doctor", "-c", path)
        assert (text in done.stdout) == is_told, done.stdout
        assert ("`max_docs_per_row: 821` fills them" in done.stdout) == is_told
        assert (text in run(program, "plan", "-c", path).stderr) == is_told
        engine = Engine(program, folder, keys)
        try:
            assert (text in engine.log()) == is_told, engine.log()
        finally:
            engine.kill()


def test_a_state_of_another_limit_is_refused_by_key_and_value(program, folder):
    """The limit is part of the stream: a run that began with another one continues with that."""
    source = write_lengths(folder, [5] * 20000)
    keys = {"seq_len": 4096, "batch_size": 2, "run": "old", "run_dir": folder, "corpus": source}
    keys |= VERSION_1
    with ringpack.Loader(**keys, max_docs_per_row=128) as loader:
        next(loader)
        state = loader.state_dict()
    for changes in ({}, {"max_docs_per_row": 821}):
        loader = ringpack.Loader(**{**keys, "run": f"new{len(changes)}"}, **changes)
        loader.load_state_dict(state)
        with pytest.raises(ringpack.CheckpointMismatchError) as raised:
            loader.attach()
        error = raised.value
        assert (error.field, error.expected, error.found) == ("max_docs_per_row", "128", "821")
        assert "set max_docs_per_row back to 128" in error.hint
        loader.close()
