# SPDX-License-Identifier: Apache-2.0
"""Resume at every row of every kind of stream, and in chains: for test_every_row.py (a sample) and
tools/campaign (all of it).

Streams are the product of packing, fill, shuffle, mix of sources and profile; the rest of a config
is drawn, stream number N always the same. Every third one is of version 2, with a calendar. For
each: one run from row 0, which must be the oracle's rows, digest and state tokens; then again and
again a new engine from bytes on disk; every section of its batches and every state token must have
the same bytes. Calendars have growth and sources that join, and in chains also steps and batches
of other sizes; at every row a batch has one row. Commands to a running engine need the journal of
their run, which a state token alone does not have: `tools/campaign lives` gives them.
"""

import itertools
import random
import tempfile
from pathlib import Path

import xxhash
from calendars import divisors, of_inputs
from stream2_kit import Stream2
from stream_kit import Corpus, Engine, Ranks, Stream, Taken, write_state

FILLS = [("lookahead", "pad"), ("lookahead", "split"), ("best_fit", "pad"), ("best_fit", "split")]
MIXES = [  # format, dtype, weight, documents of each shard
    [("megatron", "u16", 1, [18, 12])],
    [("megatron", "u16", 3, [10, 6]), ("raw", "u16", 1, [9, 6])],
    [("npy", "u32", 5, [12]), ("llmc", "u16", 2, [9]), ("megatron", "i32", 1, [9])],
]
PROFILES = ["full", "min", "hf", "megatron", "grain", "olmo", "torchtitan"]
STREAMS = list(
    itertools.product(
        [*FILLS, ("concat", "pad")], ["document", "block", "none"], range(len(MIXES)), PROFILES
    )
)
UNIT = 12  # rows of a stage
TOPOLOGIES = [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1), (4, 1)]  # ranks, rows


class Case:
    """A stream, and the result of one run from row 0."""

    def __init__(self, program, number, seed, folder):
        (packing, fill), shuffle, mix, self.profile = STREAMS[number % len(STREAMS)]
        self.program, self.number, self.folder = program, number, Path(folder)
        self.generator = random.Random(f"{seed}/{number}")
        draw = self.generator.choice
        corpus = Corpus(self.folder, MIXES[mix], self.generator.randrange(2**31))
        inputs = {"packing": packing, "fill": fill, "shuffle": shuffle}
        inputs |= {"seed": self.generator.getrandbits(64), "num_epochs": 1}
        inputs |= {"window": draw([1, 3, 8]), "max_docs_per_row": draw([2, 6, 48])}
        inputs |= {"block_documents": draw([2, 5]), "window_blocks": draw([1, 2])}
        inputs |= {"long_doc": draw(["split", "split", "truncate", "drop"])}
        inputs |= {"lanes": draw([1, 1, 2])}
        if number % 3 == 2:
            self.stream = of_inputs(self.generator, corpus, inputs, UNIT).run()
        else:
            self.stream = Stream(corpus, inputs)
        if draw([True, False]):
            corpus.index(program)
        self.tokens, self.rows = self.read_all()

    def config(self, world=1, rows=1):
        """A new engine's: the stream, and a topology that is drawn."""
        draw = self.generator.choice
        return {
            **self.stream.config(),
            "profile": self.profile,
            "dp_world_size": world,
            "batch_size": rows,
            "global_batch_size": world * rows,
            "packers": draw([1, 2]),
            "packer_processes": draw([True, False, False]),
            "readers": draw([1, 2]),
            "io": draw(["pread", "io_uring", "mapped"]),
            "prefetch_bytes": "64kb",
            "prefetch_factor": draw([2, 4]),
            "checkpoint_contents": draw([True, False]),
        }

    def sizes(self, world):
        """The stages, of which later ones have other sizes. All steps end where stages do."""
        draw, stages = self.generator.choice, [dict(s) for s in self.stream.config()["stages"]]
        for stage in stages[1:]:
            rows = draw(divisors(UNIT // world, 6))
            step = world * rows * draw(divisors(UNIT // world // rows, 3))
            stage |= {"batch_size": rows, "global_batch_size": step}
        return {"stages": stages}

    def engine(self, *arguments, **changes):
        world, rows = changes.pop("world", 1), changes.pop("rows", 1)
        config = {**self.config(world, rows), "run": "row", **changes}
        return Engine(self.program, self.folder, config, *arguments)

    def read_all(self):
        """From row 0 to the end, against the oracle. Returns state tokens and rows."""
        taken, tokens, rows = Taken(self.stream), [], []
        engine = self.engine("--fresh")
        try:
            with Ranks(engine) as ranks:
                tokens.append(ranks.tokens()[0])
                for batches in ranks.turns():
                    taken.add(batches)
                    rows.append(content(batches[0]))
                    tokens.append(ranks.tokens()[0])
        finally:
            engine.kill()
        taken.assert_all()
        for row, token in enumerate(tokens):
            assert token == self.stream.state(row, token), f"the oracle's state at row {row}"
        assert len(rows) == len(self.stream.rows)
        return tokens, rows

    def read_on(self, engine, row):
        """To the end, one row a batch: every byte of every section, and every state."""
        with Ranks(engine) as ranks:
            assert ranks.loaders[0].next_row == row, f"row {row}: {ranks.loaders[0].next_row}"
            assert ranks.tokens()[0] == self.tokens[row], f"saved right after loading at row {row}"
            for batches in ranks.turns():
                assert content(batches[0]) == self.rows[row], f"row {row}"
                row += 1
                assert ranks.tokens()[0] == self.tokens[row], f"state after row {row - 1}"
        assert row == len(self.rows)


def content(batch):
    """All that a batch of one row holds, as a hash."""
    hasher = xxhash.xxh3_128()
    for name in sorted(batch):
        hasher.update(name.encode())
        hasher.update(batch[name].tobytes())
    counts = batch.rows_real, batch.tokens_real, batch.tokens_loss, batch.max_seqlen
    hasher.update(repr((*counts, batch.segments, batch.sum_len_squared)).encode())
    return hasher.hexdigest()


# ---- at every row --------------------------------------------------------------------------------


def from_state_tokens(case):
    """A new engine for each row, from the token in a file. Returns how many."""
    for row, token in enumerate(case.tokens):
        engine = case.engine("--state", write_state(case.folder / "token", token))
        try:
            case.read_on(engine, row)
        finally:
            engine.kill()
    return len(case.tokens)


def from_checkpoints(case):
    """A new engine for each row, from the checkpoint that the one before left there. Before it
    delivers anything it saves once more: the same state."""
    place = {"checkpoint_dir": str(case.folder / "checkpoints")}
    for row, token in enumerate(case.tokens):
        engine = case.engine(**place)
        try:
            with Ranks(engine) as ranks:
                assert ranks.loaders[0].next_row == row, engine.log()
                assert ranks.tokens()[0] == token, f"state at row {row}"
                assert token in Path(engine.checkpoint()).read_bytes(), f"saved again at row {row}"
                for (batch,) in ranks.turns(1):
                    assert content(batch) == case.rows[row], f"row {row}"
                    batch.release()
                if row < len(case.rows):
                    assert case.tokens[row + 1] in saved_state(engine, row + 1)
        finally:
            engine.kill()
    return len(case.tokens)


def saved_state(engine, row):
    """The bytes of a checkpoint at `row`: the engine learns of a release a moment later."""
    for _ in range(1000):
        saved = Path(engine.checkpoint())
        if f"{saved}: row {row}," in engine.log():
            return saved.read_bytes()
    raise AssertionError(f"no checkpoint at row {row}")


def at_every_row(program, number, seed):
    """Returns rows of the stream and resumes."""
    with tempfile.TemporaryDirectory(prefix="rp") as folder:
        case = Case(program, number, seed, folder)
        resumes = from_state_tokens(case) + from_checkpoints(case)
        return len(case.rows), resumes


# ---- chains --------------------------------------------------------------------------------------


def whole_steps(ranks, steps):
    """Micro-batches of so many steps, at the end of which a checkpoint is cut; None: of all."""
    while steps != 0 and (batches := ranks.turn()) is not None:
        ends = batches[0].micro_batch + 1 == batches[0].micro_batches
        yield batches
        steps = steps - 1 if ends and steps is not None else steps


def link(case, taken, token, steps):
    """One engine of a chain: from `token`, with a topology that is drawn. Returns the next one."""
    world, rows = case.generator.choice(TOPOLOGIES)
    way = case.generator.choice(["state", "checkpoint", "trainer"])
    place = {"checkpoint_dir": str(case.folder / "checkpoints"), "world": world, "rows": rows}
    if isinstance(case.stream, Stream2):
        place |= case.sizes(world)
    arguments = ["--state", write_state(case.folder / "token", token)] if way == "state" else []
    engine = case.engine(*arguments, **place)
    try:
        with Ranks(engine, world, token=token if way == "trainer" else None) as ranks:
            assert ranks.tokens() == [token] * world, f"saved right after loading, by {way}"
            for batches in whole_steps(ranks, steps):
                taken.add(batches)
                for batch in batches:
                    batch.release()
            at = ranks.loaders[0].next_row
            next_token, *others = ranks.tokens()
            assert others == [next_token] * (world - 1), "ranks differ"
            assert next_token == case.stream.state(at, next_token)
            if steps is not None:
                assert next_token in saved_state(engine, min(at, len(case.rows)))
        return next_token
    finally:
        engine.kill()


def chain(program, number, seed):
    """Five resumes in a row: every row once. Returns rows and resumes."""
    with tempfile.TemporaryDirectory(prefix="rp") as folder:
        case = Case(program, number, seed, folder)
        taken, token = Taken(case.stream), case.tokens[0]
        for resume in range(6):
            steps = case.generator.randrange(5) if resume < 5 else None
            token = link(case, taken, token, steps)
        taken.assert_all()
        return len(case.rows), 5
