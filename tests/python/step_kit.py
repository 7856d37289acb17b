# SPDX-License-Identifier: Apache-2.0
"""step_rows, step_tokens, step_tokens_loss and cost of batches, compared with the oracle's rows
(engine/plan/STREAM2.md, section 10.4)."""

import random

import numpy
from calendars import random_stream
from mask_kit import index, random_flags, spans_of
from stream2_deal import cost_of_row
from stream2_kit import Stream2
from stream_kit import Corpus, write_megatron

SEED = 31000
STEP = 8
LAYOUT = [("megatron", "u16", 2, [18, 12]), ("raw", "u16", 1, [20])]
MASKED = 0  # number of the source with a mask


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


def stream_of_version_2(corpus, seed, deals=True):
    """With stages, deals, skips, inserted tokens, and labels across cuts."""
    rng = random.Random(SEED + seed)
    stream = random_stream(rng, corpus, [sum(layout[3]) for layout in LAYOUT], STEP)
    stream.sources[MASKED]["spans"] = corpus.spans[MASKED]
    del stream.stages[2]["seq_len"]  # one run
    for stage in stream.stages if not deals else ():
        stage.pop("deal", None)
    return Stream2(corpus, stream.keys, stream.sources, stream.stages, stream.skip).run()


def sums_of_rows(stream):
    """(1 or 0, tokens, labels) of each row."""
    if not hasattr(stream, "sums"):
        stream.sums = count_rows(stream)
    return stream.sums


def count_rows(stream):
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

    def __init__(self, stream, step, model=None):
        self.rows, self.step, self.seen = sums_of_rows(stream), step, set()
        self.stream, self.model = stream, model
        skipped = set(getattr(stream, "skip", ()))
        steps = range(0, len(self.rows), step) if step else ()  # None: stages change it
        self.whole = {g for g in steps if not set(range(g, g + step)) <= skipped}

    def of(self, first, count):
        end = first + count
        if isinstance(self.stream, Stream2) and first < len(self.rows):
            end = min(end, self.stream.end_of_run(first)[0])
        rows = self.rows[first:end]
        return tuple(sum(column) for column in zip((0, 0, 0), *rows))

    def check(self, loader, batch):
        geometry, rows = loader._client.geometry, batch.batch_size
        row = batch.first_row - (geometry.rank + batch.micro_batch * geometry.world) * rows
        count = batch.micro_batches * geometry.world * rows
        assert self.step in (count, None)
        found = (batch.step_rows, batch.step_tokens, batch.step_tokens_loss)
        assert found == self.of(row, count), f"step of row {row}, batch {batch.number}"
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
