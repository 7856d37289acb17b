# SPDX-License-Identifier: Apache-2.0
"""Streams of version 2 of real files: their config, and the oracle's answer. calendars.py draws
them at random.

The oracle (tests/oracle/stream2.py) is written only from engine/plan/STREAM2.md."""

import struct

import stream2_state
from stream2 import Plan
from stream2_calendar import compile_rows
from stream2_source import ORDERS, TOO_LONG
from stream2_state import save_token
from state import hash128
from stream_oracle import SIZE_KEYS, keys_of

SOURCES_AT = 320  # in a token of version 4
PRINTS_BYTES = 24  # sampled, full, selection: first in the record of a source


def records_of(token):
    """Where the record of each source begins in a token, by its name."""
    count, at, found = struct.unpack_from("<I", token, 264)[0], SOURCES_AT, {}
    for _ in range(count):
        flags = token[at + 103]
        begin = at + 104 + (8 if flags & 4 else 0)
        name = token[begin + 1 : begin + 1 + token[begin]].decode()
        found[name] = at
        end = begin + 1 + token[begin]
        at += -(-(end - at) // 8) * 8
    return found


def with_prints(token, like):
    """The token with the fingerprints of `like`, which only the engine can compute from files."""
    ours, body = records_of(like), bytearray(token[:-16])
    for name, at in records_of(token).items():
        if name in ours:
            from_ = ours[name]
            body[at : at + PRINTS_BYTES] = like[from_ : from_ + PRINTS_BYTES]
    return bytes(body) + struct.pack("<QQ", *hash128(bytes(body)))


class Stream2:
    """`keys`: of the whole stream; `sources`: of each source, like the config's, with a name;
    `stages`: as the oracle has them, with "until" and "global_batch_size" in the first; `records`:
    those that commands write."""

    def __init__(self, corpus, keys, sources, stages, skip=(), records=()):
        self.corpus, self.keys, self.sources = corpus, keys, sources
        self.stages, self.skip = stages, sorted(skip)
        self.places = {source["name"]: n for n, source in enumerate(sources)}
        compiled = [
            {k: v for k, v in stage.items() if k != "until" and k not in SIZES}
            for stage in compile_rows(stages)
        ]
        entries = [
            {**source, "lengths": [len(d) for d in documents]}
            for source, documents in zip(sources, corpus.documents)
        ]
        self.stream = {**keys, "sources": entries, "stages": compiled, "skip": self.skip}
        self.stream["records"] = list(records)
        self.plan = Plan(self.stream)
        self.rows, self.tokens, self.row_digests, self.seq_lens = [], [], [], []

    def changed(self, **changes):
        """A stream with other parts, which is not planned yet."""
        parts = {"corpus": self.corpus, "keys": self.keys, "sources": self.sources}
        parts |= {"stages": self.stages, "skip": self.skip, "records": self.stream["records"]}
        return type(self)(**{**parts, **changes})

    def run(self, most=2000):
        """Plan all rows."""
        ORDERS.clear()
        stream2_state.rule_token = self.token_of
        plan = self.plan
        while len(self.rows) < most:
            self.tokens.append(save_token(plan))
            row = plan.row()
            if row is None:
                self.seq_lens.append(plan.calendar.in_force(len(self.rows)).seq_len)
                return self
            self.rows.append(row)
            self.row_digests.append(stream2_state.row_digest(plan, row))
            self.seq_lens.append(plan.calendar.in_force(row.q).seq_len)
        raise AssertionError("the stream is too long for a test")

    def resume(self, before, row, grow=True):
        """Rows and states before `row` come from `before`, an earlier start of the run; then it
        continues with this corpus and calendar."""
        begun = before.plan.calendar.records
        self.plan = stream2_state.resume(self.stream, before.tokens[row], begun, grow=grow)
        for name in "rows", "tokens", "row_digests", "seq_lens":
            getattr(self, name).extend(getattr(before, name)[:row])
        return self.run()

    @property
    def digest(self):
        return sum(self.row_digests) % 2**128

    def tokens_of(self, g):
        """A row as input_ids has it, with the padding that `align` puts between fragments."""
        return [0 if token is None else token for token in self.row(g)[1]]

    def token_of(self, number, document, own):
        source = self.plan.calendar.sources[self.plan.state_names()[number]]
        documents = self.corpus.documents[self.places[source.name]]
        return int(documents[source.first + document][own])

    def row(self, g):
        """Fragments with places in the config, and tokens by place in the row (None: padding)."""
        row = self.rows[g] if g < len(self.rows) else None
        if row is None or row.skipped:
            return [], []
        stream2_state.rule_token = self.token_of
        align = self.plan.calendar.in_force(row.q).align
        fragments, tokens = [], []
        names = self.plan.state_names()
        for f in row.fragments:
            own = stream2_state.tokens_of(self.plan, f)
            fragments.append((f.document, f.offset, self.places[names[f.source]], f.length))
            tokens += own + [None] * (-len(own) % align)
        return fragments, tokens

    def labels(self, g):
        """At the place of each token of row g: its label, -100 for none."""
        row = self.rows[g] if g < len(self.rows) else None
        if row is None or row.skipped:
            return []
        align, names = self.plan.calendar.in_force(row.q).align, self.plan.state_names()
        found = []
        for f in row.fragments:
            source = self.plan.calendar.sources[names[f.source]]
            own, end = source.labels(f.document, f.offset, f.length)
            tokens = stream2_state.tokens_of(self.plan, f)
            after = f._replace(offset=f.offset + f.length, length=1)
            labels = [token if has else -100 for token, has in zip(tokens, own)]
            labels = labels[1:] + (stream2_state.tokens_of(self.plan, after) if end else [-100])
            found += labels + [-100] * (-len(tokens) % align)
        return found

    def state(self, row, like):
        return with_prints(self.tokens[min(row, len(self.rows))], like)

    def end_of_run(self, row):
        """The first row at or after `row` of another seq_len, and whether it is a stage's end."""
        for g in range(row, len(self.rows) + 1):
            if self.seq_lens[g] != self.seq_lens[row]:
                return g, True
        return len(self.rows), False

    # ---- the config ---------------------------------------------------------------------------

    def config(self):
        keys = {**self.keys, "stream_version": 2}
        if keys["shuffle"] != "block":
            keys = {k: v for k, v in keys.items() if k not in ("block_documents", "window_blocks")}
        keys = {k: v for k, v in keys.items() if v is not None and k not in ("job", "cost")}
        if "cost" in self.keys:
            keys["cost"] = cost_key(self.keys["cost"])
        if "label_across_cuts" in keys:
            keys["label_across_cuts"] = bool(keys["label_across_cuts"])
        if keys.get("group", 1) > 1:
            del keys["long_doc"]
        first = self.stages[0]
        for name in STAGE_KEYS:
            if name in first and first.get(name) is not None:
                keys[name] = first[name]
        if keys.get("packing") == "concat":
            for name in ("window", "fill", "spread"):
                keys.pop(name, None)
        if first.get("deal") is not None:
            keys["deal"] = deal_keys(first["deal"])
        keys["global_batch_size"] = first["global_batch_size"]
        keys["sources"] = [
            self.source_config(source, made)
            for source, made in zip(self.sources, self.corpus.sources)
        ]
        window = keys.get("window")
        keys = keys_of(keys)
        if window and inherits_size(self.stages):
            keys.pop(SIZE_KEYS[keys.get("packing", "lookahead")])
            keys["window"] = window
        keys["stages"] = stages_config(self.stages)
        if self.skip:
            keys["skip"] = {"rows": [f"{first}-{end}" for first, end in ranges(self.skip)]}
        return keys

    def source_config(self, source, made):
        own = {**made, "weight": self.stages[0]["weight"].get(source["name"], 0)}
        own["name"] = source["name"]
        for name in SOURCE_KEYS:
            if name in source:
                own[name] = source[name]
        if source.get("atomic"):
            own["atomic"] = True
        if "documents" in source:
            first, end = source["documents"]
            own["documents"] = source.get("written", f"{first}-{'' if end is None else end}")
        if own.get("max_tokens") == 0:
            del own["max_tokens"]
        return own


def packings_of(stages):
    found = ["lookahead"]
    for stage in stages:
        found.append(stage.get("packing", found[-1]))
    return found[1:]


def inherits_size(stages):
    """Whether a stage of another packing keeps the number of the size before it. A config needs
    `window` for that, the older name of both sizes."""
    packings = packings_of(stages)
    return any(
        before != packing and packing in SIZE_KEYS and "window" not in stage
        for before, packing, stage in zip(packings, packings[1:], stages[1:])
    )


def stages_config(stages):
    """Stages as a config has them."""
    names = dict.fromkeys(SIZE_KEYS, "window") if inherits_size(stages) else SIZE_KEYS
    sizes = [names.get(packing) for packing in packings_of(stages)]
    return [stage_config(n, stage, sizes[n]) for n, stage in enumerate(stages)]


def stage_config(number, stage, size):
    own = {}
    if "until" in stage:
        what, n = stage["until"]
        own["until"] = f"row {n}" if what == "row" else f"{n} {what}"
    if "documents" in stage:
        own["documents"] = stage["documents"]
    if number == 0:
        return own
    for name in *STAGE_KEYS, *SIZES:
        if name in stage:
            own[{"fill": "row_gap", "window": size}.get(name, name)] = stage[name]
    if "deal" in stage:
        own["deal"] = "off" if stage["deal"] is None else deal_keys(stage["deal"])
    if "weight" in stage:
        own["weights"] = stage["weight"]
    if "ramp" in stage:
        own["ramp"] = stage["ramp"]
    if "limits" in stage:
        own["limits"] = stage["limits"]
    return own


SIZES = "global_batch_size", "batch_size"  # keys of the delivery: no row depends on them
SOURCE_KEYS = "select repeat unseen_of unseen_source too_long max_epochs max_tokens".split()
SOURCE_KEYS += ["on_exhausted"]
STAGE_KEYS = "seq_len align packing window fill spread max_docs_per_row".split()


def deal_keys(deal):
    names = {"K": "cost", "w": "attention_window", "h": "window_layers", "b": "layers"}
    return {names.get(key, key): value for key, value in deal.items()} or "auto"


def cost_key(cost):
    names = {"K": "k", "w": "attention_window", "h": "window_layers", "b": "layers"}
    return {names[key]: value for key, value in cost.items()}


def ranges(rows):
    found = []
    for row in rows:
        if found and found[-1][1] == row:
            found[-1][1] = row + 1
        else:
            found.append([row, row + 1])
    return found
