# SPDX-License-Identifier: Apache-2.0
"""Random streams with a calendar, masks, columns of tokens, labels and documents, and labels
further ahead. The test makes each batch again from its provenance and the documents. Engines are
killed and resumed with other ranks.

RP_SEED and RP_STREAMS: the first seed, and the number of streams."""

import os
import random
from pathlib import Path

import numpy
import pytest
import ringpack
from calendars import BOS, EOS, with_calendar
from column_kit import Columns, annotated
from mask_kit import index, random_flags
from stream_kit import Corpus, Engine, Ranks, token_of, write_megatron

SEED = int(os.environ.get("RP_SEED", random.SystemRandom().randrange(10**6)))
STREAMS = int(os.environ.get("RP_STREAMS", 3))
ENDS = {"source-0": [50, 90], "source-1": [60, 140]}
KINDS = {"weight": ("<f4", 1), "teacher": ("<i4", 5), "logprob": ("<f2", 1), "wide": ("<u2", 64)}
DIVISORS = {1: [1], 2: [1, 2], 4: [1, 2, 4], 6: [1, 2, 3], 12: [1, 2, 3, 4]}


class Faces:
    """A corpus with columns, masks and numbers of documents, and one random config of it."""

    def __init__(self, program, folder, seed):
        self.program, self.folder, self.rng = program, Path(folder), random.Random(seed)
        generator = numpy.random.default_rng(seed)
        layout = [("megatron", "u16", 1, [50, 40]), ("megatron", "u16", 1, [60, 80])]
        layout += [("raw", "u16", 1, [90])]
        self.corpus = Corpus(folder, layout, seed, 64)
        self.trained = [[None] * len(d) for d in self.corpus.documents]
        self.mask(generator)
        self.columns = Columns(self.corpus, None, KINDS, seed)
        self.columns.write(program, folder)
        self.heads = 1
        self.config = self.draw()
        if self.config.get("document_columns"):
            without = {**self.config, "document_columns": []}
            _, self.numbers = annotated(program, self.folder, self.corpus, without)

    def mask(self, generator):
        """The first source has one."""
        documents, ends = self.corpus.documents[0], [0, *ENDS["source-0"]]
        flags = [random_flags(generator, len(document)) for document in documents]
        for shard, path in enumerate(self.corpus.sources[0]["shards"]):
            part = flags[ends[shard] : ends[shard + 1]]
            write_megatron(path.removesuffix(".bin") + "_loss", part, "u8")
            index(self.program, "--mask", "loss", path)
        self.corpus.sources[0]["mask"] = "loss"
        for own in flags:
            own[:1] = False  # spans never hold it
        self.trained[0] = flags

    def draw(self):
        draw = self.rng.choice
        rows = draw([1, 2, 3])
        config = {"sources": self.corpus.sources, "seed": self.rng.getrandbits(32)}
        config |= {"seq_len": draw([32, 64, 100]), "batch_size": rows, "profile": "full"}
        self.shares = draw(list(DIVISORS))
        config |= {"global_batch_size": rows * self.shares, "long_doc": draw(["split", "truncate"])}
        config |= {"shuffle": draw(["document", "block", "none"]), "num_epochs": 2}
        config |= {"block_documents": 4} if config["shuffle"] == "block" else {}
        config = with_calendar(self.rng, config, ENDS)
        if config["seq_len"] == 2048:  # with_calendar's own for groups
            config["seq_len"] = draw([512, 2048])
        config |= {"label_mode": draw(["shifted", "shifted", "aligned"])}
        if config["label_mode"] == "aligned":
            config["label_across_cuts"] = False
        else:
            self.heads = draw([1, 2, 3])
        names = self.rng.sample(list(KINDS), draw([1, 2, 3, 4]))
        cut = self.rng.randrange(len(names) + 1)
        config |= {"columns": names[:cut], "label_columns": names[cut:]}
        if draw([True, False]):
            config |= {"document_columns": ["language", "score"]}
            config |= {"index": str(self.folder / "all.rpi")}
        return {**config, **self.machine()}

    def machine(self):
        """Keys that a resume may change."""
        draw = self.rng.choice
        own = {"io": draw(["pread", "mapped", "io_uring"]), "readers": draw([1, 2, 3])}
        own |= {"packers": draw([1, 2]), "packer_processes": draw([False, False, True])}
        own |= {"verify_blocks": draw(["on", "off"]), "prefetch_factor": draw([2, 3, 8])}
        if own["io"] != "mapped":
            own |= {"o_direct": draw(["on", "off"]), "prefetch_bytes": draw([2**16, 2**24])}
        return own

    # ---- a batch, made again ---------------------------------------------------------------------

    def stored(self, part, at):
        """Of place `at` in the document with its BOS and EOS: the token, and its place in the
        documents of the source. None after its end."""
        document, _, source, _ = part
        own, bos = self.corpus.documents[source][document], self.config.get("bos_id")
        at -= bos is not None
        if at == -1:
            return bos, None
        if at < len(own):
            return int(own[at]), at
        eos = self.config.get("eos_id")
        return (eos, None) if at == len(own) and eos is not None else None

    def is_trained(self, part, place):
        flags = self.trained[part[2]][part[0]]
        return flags is None or bool(flags[-1 if place is None else place])  # EOS as the last

    def check(self, batch):
        config = self.config
        parts = batch.view("provenance", kind="numpy", flat=False)
        rows = batch.view("rows", kind="numpy")
        align = config["align"]
        heads, across = self.heads, config.get("label_across_cuts", False)
        aligned = config["label_mode"] == "aligned"
        shape = (len(rows), batch.seq_len)
        ids = numpy.zeros(shape, int)
        labels = [numpy.full(shape, -100) for _ in range(heads)]
        for r, info in enumerate(rows):
            at = 0
            for part in parts[r][: info["fragments"]].tolist():
                document, offset, source, length = part
                for own in range(length):
                    ids[r, at + own] = self.stored(part, offset + own)[0]
                    for ahead in range(1, heads + 1):
                        to = own if aligned else own + ahead
                        if aligned and own == 0 or to >= length + across:
                            continue
                        found = self.stored(part, offset + to)
                        if found is not None and self.is_trained(part, found[1]):
                            labels[ahead - 1][r, at + own] = found[0]
                at += -(-length // align) * align
        assert (batch.view("input_ids", kind="numpy") == ids).all()
        for ahead, expected in enumerate(labels, 1):
            name = "labels" if ahead == 1 else f"labels_{ahead}"
            self.compare(batch, name, expected)
        self.check_columns(batch, labels[0] == -100)
        self.check_numbers(batch, parts, rows)

    def check_columns(self, batch, unlabelled):
        config = self.config
        bos, eos = config.get("bos_id") is not None, config.get("eos_id") is not None
        for name in [*config["columns"], *config["label_columns"]]:
            mode = config["label_mode"] if name in config["label_columns"] else None
            across = config.get("label_across_cuts", False)
            expected = self.columns.expected(batch, name, mode, bos, eos, across)
            if mode and across:  # the entry of the token after a cut comes with its label
                for r, at in self.ends(batch):
                    expected[r, at] *= not unlabelled[r, at]
            self.compare(batch, name, expected)

    def ends(self, batch):
        """The last place of each fragment."""
        parts, align = batch.view("provenance", kind="numpy", flat=False), self.config["align"]
        for r, info in enumerate(batch.view("rows", kind="numpy")):
            at = 0
            for *_, length in parts[r][: info["fragments"]].tolist():
                yield r, at + length - 1
                at += -(-length // align) * align

    def compare(self, batch, name, expected):
        found = batch.view(name, kind="numpy", flat=False)
        wrong = [tuple(place) for place in numpy.argwhere(found != expected)[:5].tolist()]
        shown = [(place, found[place], expected[place]) for place in wrong]
        assert not wrong, (name, shown, batch.view("provenance", kind="numpy", flat=False))

    def check_numbers(self, batch, parts, rows):
        for name in self.config.get("document_columns", []):
            found = batch.view(name, kind="numpy", flat=False)
            for r, info in enumerate(rows):
                own = [self.numbers[p[2]][name][p[0]] for p in parts[r][: info["fragments"]]]
                assert found[r][: len(own)].tolist() == own and not found[r][len(own) :].any()

    # ---- its lives -------------------------------------------------------------------------------

    def live(self):
        """Read, kill, resume with other ranks, until the end or some hundred rows."""
        rows, token, worlds = set(), None, DIVISORS[self.shares]
        rows_a_step = self.config["global_batch_size"]
        for life in range(3):
            world = self.rng.choice(worlds)
            most = self.rng.choice([1, 2, 3]) * rows_a_step // self.config["batch_size"] // world
            most += 20 if life == 2 else 0
            config = {**self.config, **self.machine(), "dp_world_size": world}
            engine = Engine(self.program, self.folder, {**config, "run": f"life-{life}"})
            with Ranks(engine, world, token, mtp=self.heads) as ranks:
                for batches in ranks.turns(most):
                    for batch in batches:
                        self.check(batch)
                        self.take(rows, batch)
                    token = token_of(ranks.loaders[0])
            engine.kill()
        return rows

    def take(self, rows, batch):
        for info in batch.view("rows", kind="numpy"):
            if info["fragments"]:
                assert int(info["row"]) not in rows, f"row {info['row']} came twice"
                rows.add(int(info["row"]))


def live(program, folder, seed):
    faces = Faces(program, folder, seed)
    print(f"RP_SEED={seed}: {faces.config}")
    assert faces.live()


@pytest.mark.parametrize("number", range(STREAMS))
def test_all_that_rides_with_a_token(program, tmp_path, number):
    live(program, tmp_path, SEED + number)


@pytest.mark.parametrize("defect", ["side_of_neighbour", "side_not_shifted"])
def test_planted_defects_are_found(broken, tmp_path, monkeypatch, defect):
    monkeypatch.setenv("RP_DEFECT", defect)
    for number in range(50):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            live(broken, folder, number)
        except AssertionError as difference:
            assert any(f"('{name}'," in str(difference) for name in KINDS)
            return
    pytest.fail("no stream showed it")
