# SPDX-License-Identifier: Apache-2.0
"""step_rows, step_tokens and step_tokens_loss: in each batch of a step, on each rank and node, the
oracle's sums over all rows of the step (engine/plan/STREAM2.md, section 10.4)."""

import random

import numpy
import pytest
from mask_kit import index, random_flags, spans_of
from stream2_kit import Stream2, random_stream
from stream2_deal import cost_of_row
from stream_kit import Corpus, Engine, Ranks, Stream, write_megatron, write_state

SEED = 31000
MASKED = 0  # number of the source with a mask
STEP = 8
LAYOUT = [("megatron", "u16", 2, [18, 12]), ("raw", "u16", 1, [20])]
SHAPES = [(1, 8), (2, 2), (4, 1), (4, 2), (8, 1)]  # ranks, batch_size


class MaskedCorpus(Corpus):
    def __init__(self, folder, program, seed=SEED):
        super().__init__(folder, LAYOUT, seed)
        rng = numpy.random.default_rng(seed)
        flags = [random_flags(rng, len(document)) for document in self.documents[MASKED]]
        self.spans = [[spans_of(own) for own in flags], None]
        at = 0
        for path, count in zip(self.sources[MASKED]["shards"], LAYOUT[MASKED][3]):
            write_megatron(f"{path[:-4]}_mask", flags[at : at + count], "u8")
            index(program, "--mask", "mask", path)
            at += count


def sums_of_rows(stream):
    """(1 or 0, tokens, labels) of each row."""
    rows = range(len(stream.rows))
    if isinstance(stream, Stream2):
        tokens = [[token for token in stream.row(g)[1] if token is not None] for g in rows]
        labels = [[label for label in stream.labels(g) if label != -100] for g in rows]
        return [(len(t) > 0, len(t), len(own)) for t, own in zip(tokens, labels)]
    found = []
    for g in rows:
        labels = stream.batch(g, 1)[0]["labels"]
        tokens = sum(fragment.length for fragment in stream.rows[g])
        found.append((tokens > 0, tokens, int((labels != -100).sum())))
    return found


class Steps:
    """Compares batches with the oracle's sums, in any numbering of batches."""

    def __init__(self, stream, step=STEP, model=None):
        self.rows, self.step, self.seen = sums_of_rows(stream), step, set()
        self.stream, self.model = stream, model
        skipped = {g for g in getattr(stream, "skip", ())}
        steps = range(0, len(self.rows), step)
        self.whole = {g for g in steps if not set(range(g, g + step)) <= skipped}

    def of(self, first):
        rows = self.rows[first : first + self.step]
        return tuple(sum(column) for column in zip((0, 0, 0), *rows))

    def check(self, loader, batch):
        geometry = loader._client.geometry
        first = batch.number // geometry.micro_batches * geometry.micro_batches
        row = geometry.base_row + first * geometry.rows * geometry.world
        found = (batch.step_rows, batch.step_tokens, batch.step_tokens_loss)
        assert found == self.of(row), f"step of row {row}, batch {batch.number}"
        assert batch.cost == self.cost_of(batch), f"cost of batch {batch.number}"
        self.seen.add(row)

    def cost_of(self, batch):
        """By the key `cost`, or by the deal of each row; None if a row has neither."""
        models = {g: self.model or self.deal_of(g) for g in self.rows_of(batch)}
        if not all(models.values()):
            return None
        costs = [cost_of_row(model, self.places(g)) for g, model in models.items()]
        return sum(costs)

    def rows_of(self, batch):
        """Those with a fragment."""
        rows = range(batch.first_row, batch.first_row + batch.batch_size)
        return [g for g in rows if g < len(self.rows) and self.rows[g][0]]

    def deal_of(self, g):
        if not isinstance(self.stream, Stream2):
            return None
        deal = self.stream.plan.calendar.in_force(self.stream.rows[g].q).deal
        return deal and {"w": 0, "h": 0, "b": 1, **deal}

    def places(self, g):
        row, align = self.stream.rows[g], 1
        if isinstance(self.stream, Stream2):
            row, align = row.fragments, self.stream.plan.calendar.in_force(row.q).align
        return [-(-fragment.length // align) * align for fragment in row]

    def read(self, ranks, turns=None):
        for batches in ranks.turns(turns):
            for loader, batch in zip(ranks.loaders, batches):
                self.check(loader, batch)


def serve(program, folder, stream, shape, *arguments, run="sums", **keys):
    config = {"batch_size": shape[1], "dp_world_size": shape[0], "global_batch_size": STEP}
    return Engine(program, folder, {**stream.config(), **config, "run": run, **keys}, *arguments)


def check_whole(program, folder, stream, shape, model=None, **keys):
    steps = Steps(stream, model=model)
    engine = serve(program, folder, stream, shape, **keys)
    try:
        with Ranks(engine, shape[0]) as ranks:
            steps.read(ranks)
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    assert steps.seen == steps.whole


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, program):
    return MaskedCorpus(tmp_path_factory.mktemp("masked"), program)


CASES = [
    {"packing": "lookahead", "fill": "split", "label_mode": "shifted"},
    {"packing": "concat", "label_mode": "aligned", "shuffle": "block", "block_documents": 4},
    {"packing": "best_fit", "long_doc": "truncate", "lanes": 2},
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("case", CASES)
def test_version_1(corpus, program, tmp_path, shape, case):
    check_whole(program, tmp_path, Stream(corpus, {"num_epochs": 1, **case}), shape)


def stream_of_version_2(corpus, seed):
    """With stages, deals, skips, inserted tokens, and labels across cuts."""
    rng = random.Random(SEED + seed)
    stream = random_stream(rng, corpus, [sum(layout[3]) for layout in LAYOUT], STEP)
    stream.sources[MASKED]["spans"] = corpus.spans[MASKED]
    del stream.stages[2]["seq_len"]  # one run
    return Stream2(corpus, stream.keys, stream.sources, stream.stages, stream.skip).run()


@pytest.mark.parametrize("seed", range(10))
def test_version_2(corpus, program, tmp_path, seed):
    stream = stream_of_version_2(corpus, seed)
    for number in range(2):
        shape = SHAPES[(seed + 2 * number) % len(SHAPES)]
        check_whole(program, tmp_path, stream, shape, run=f"sums-{number}")


@pytest.mark.parametrize("seed", range(3))
def test_cost_by_the_key(corpus, program, tmp_path, seed):
    """Of a stream with deals, whose costs it replaces, and of one of version 1."""
    keys = [{"cost": 100}, {"cost": {"k": 7, "attention_window": 9, "window_layers": 2, "layers": 6}}]
    models = [{"K": 100, "w": 0, "h": 0, "b": 1}, {"K": 7, "w": 9, "h": 1, "b": 3}]
    streams = [Stream(corpus, {"num_epochs": 1}), stream_of_version_2(corpus, seed)]
    for number, stream in enumerate(streams):
        check_whole(
            *(program, tmp_path, stream, SHAPES[seed], models[(seed + number) % 2]),
            **keys[(seed + number) % 2],
            run=f"sums-{number}",
        )


# ---- positive control ----------------------------------------------------------------------------


def test_sums_that_lack_a_rank_are_noticed(corpus, broken, tmp_path, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "count_steps_without_a_rank")
    for stream in Stream(corpus, {"num_epochs": 1}), stream_of_version_2(corpus, 3):
        with pytest.raises(AssertionError, match="step of row"):
            check_whole(broken, tmp_path, stream, (4, 2))
