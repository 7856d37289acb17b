# SPDX-License-Identifier: Apache-2.0
"""A stream of version 2, as stream_kit.Stream is one of version 1: the config, and the oracle's
rows, digests and state tokens of the same calendar (tests/oracle/stream2.py)."""

import struct

import numpy
import xxhash
from plan_digest import hash128
from stream2 import Plan
from stream2_state import save_token

FIXED = ("seed", "shuffle", "long_doc", "group", "bos_id", "eos_id")
STAGE = ("seq_len", "packing", "window", "fill", "spread", "max_docs_per_row", "align")
SOURCE = ("select", "repeat", "max_epochs", "max_tokens", "on_exhausted")
INSERTED = ("bos_id", "eos_id")


def draw_deal(draw, unit):
    return draw(
        [
            None,
            {"window": 2 * unit, "step": 12, "tier": 4, "bundle": 2, "order": "middle", "K": 64},
            {"window": unit, "step": 6, "tier": 2, "bundle": 1, "order": "descending", "K": 4},
            {"step": 6, "tier": 2},  # the rest is a record
        ]
    )


def draw_stages(draw, names, packing, unit):
    """Rows at which something changes, and what does, in the words of the oracle."""
    stages = []
    for number in range(draw([1, 2, 2])):
        stage = {"from": unit * (number + 1)}
        weights = {name: draw([0, 1, 3]) for name in names}
        stage["weight"] = weights if any(weights.values()) else {names[0]: 1}
        stage["ramp"] = draw([0, unit // 2])
        if packing != "concat":
            stage["window"] = draw([2, 5])
        stage["deal"] = draw_deal(draw, unit)
        if draw([True, False]):
            stage["limits"] = {names[-1]: {"max_epochs": 2}}
        stages.append(stage)
    return stages


def deal_key(deal):
    """As a config has it."""
    return "off" if deal is None else {"cost" if k == "K" else k: v for k, v in deal.items()}


def stage_key(stage, until):
    words = {"weight": "weights"}
    found = {words.get(k, k): v for k, v in stage.items() if k not in ("from", "deal")}
    if "deal" in stage:
        found["deal"] = deal_key(stage["deal"])
    return found | ({} if until is None else {"until": f"row {until}"})


class CalendarStream:
    """Drawn for a corpus; `inputs`: as of a stream of version 1. Stages begin at multiples of
    `unit` rows: steps of 1, 2, 3, 4, 6 and 12 rows reach them."""

    def __init__(self, corpus, inputs, draw, unit=12):
        self.sources, self.documents = corpus.sources, corpus.documents
        stream = {name: inputs[name] for name in FIXED if name in inputs} | {"group": 1}
        stream |= {name: draw([None, 40000 + n]) for n, name in enumerate(INSERTED)}
        if stream["shuffle"] == "block":
            stream |= {name: inputs[name] for name in ("block_documents", "window_blocks")}
        first = {"from": 0, "seq_len": 48, "align": draw([1, 1, 4]), "spread": draw([1, 2, 64])}
        first |= {name: inputs[name] for name in STAGE if name in inputs}
        if first["packing"] == "concat":
            for name in ("window", "fill", "spread"):
                first.pop(name, None)
        names = [source["name"] for source in self.sources]
        first["weight"] = {source["name"]: source["weight"] for source in self.sources}
        first["deal"] = draw_deal(draw, unit)
        stream["job"] = [1, 1, 1]  # ranks of the first start
        stream["sources"] = [self.draw_source(draw, n) for n in range(len(names))]
        stream["stages"] = [first, *draw_stages(draw, names, first["packing"], unit)]
        self.stream = stream
        self.read()

    def draw_source(self, draw, number):
        lengths = [len(document) for document in self.documents[number]]
        source = {"name": self.sources[number]["name"], "lengths": lengths}
        source |= draw([{}, {"select": "fraction < 0.7 or document in (0, 1, 2)"}])
        source |= draw([{}, {"repeat": {2: "length > 30", 3: "document == 1"}}])
        return source | {"max_epochs": draw([1, 2]), "on_exhausted": "continue"}

    def read(self):
        """All rows of the oracle, and its state token at each."""
        self.plan = plan = Plan(self.stream)
        self.rows, self.row_digests, self.states = [], [], [save_token(plan)]
        while (row := plan.row()) is not None:
            self.rows.append(row.fragments)
            self.row_digests.append(self.digest_of(row))
            self.states.append(save_token(plan))
        self.digest = sum(self.row_digests) % 2**128

    def digest_of(self, row):
        """H of section 15."""
        lengths = [fragment.length for fragment in row.fragments]
        tokens = [token for fragment in row.fragments for token in self.fragment(fragment)]
        content = struct.pack(f"<{1 + len(lengths)}I", len(lengths), *lengths)
        content += struct.pack(f"<{len(tokens)}I", *tokens)
        return xxhash.xxh3_128_intdigest(struct.pack("<QQQ", row.q, *hash128(content)))

    def boundaries(self):
        return [stage["from"] for stage in self.stream["stages"][1:]]

    def config(self):
        """The keys that are the stream's, and the sources, for an engine's config."""
        stages = self.stream["stages"]
        ends = [*self.boundaries(), None]
        keys = {name: self.stream[name] for name in FIXED if self.stream[name] is not None}
        if self.stream["shuffle"] == "block":
            keys |= {name: self.stream[name] for name in ("block_documents", "window_blocks")}
        keys |= {name: stages[0][name] for name in STAGE if name in stages[0]}
        keys |= {"stream_version": 2, "deal": deal_key(stages[0]["deal"])}
        keys["stages"] = [{"until": f"row {ends[0]}"}]
        keys["stages"] += [stage_key(stage, end) for stage, end in zip(stages[1:], ends[1:])]
        of_stream = [{k: s[k] for k in SOURCE if k in s} for s in self.stream["sources"]]
        keys["sources"] = [{**own, **more} for own, more in zip(self.sources, of_stream)]
        return keys

    def state(self, row, like):
        """The oracle's token at `row`, with the fingerprints that the engine's has."""
        token = bytearray(self.states[min(row, len(self.rows))])
        at = 320
        for _ in range(struct.unpack_from("<I", token, 264)[0]):
            token[at : at + 16] = like[at : at + 16]
            name = at + (112 if token[at + 103] & 4 else 104)
            at += -(-(name + 1 + token[name] - at) // 8) * 8
        token[-16:] = struct.pack("<QQ", *hash128(bytes(token[:-16])))
        return bytes(token)

    def tokens_of(self, row):
        """A row as input_ids has it, with the padding that `align` puts between fragments."""
        align, ids = self.stream["stages"][0]["align"], []
        for fragment in self.rows[row]:
            ids += [0] * (-len(ids) % align)
            ids += self.fragment(fragment)
        return ids

    def fragment(self, fragment):
        name = self.plan.state_names()[fragment.source]
        number = next(n for n, own in enumerate(self.sources) if own["name"] == name)
        own = self.documents[number][fragment.document]
        bos, eos = (self.stream[name] for name in INSERTED)
        whole = [*([] if bos is None else [bos]), *own, *([] if eos is None else [eos])]
        return numpy.array(whole)[fragment.offset :][: fragment.length].tolist()
