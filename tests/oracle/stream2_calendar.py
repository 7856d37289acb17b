# SPDX-License-Identifier: Apache-2.0
"""The calendar: sections 1.3, 6.1, 9.1, 9.4, 9.5 and 14 of engine/plan/STREAM2.md, written from
only that page.

A declared stage is a dict: "from", and any of "weight" {name: decimal}, "ramp", "seq_len",
"align", "packing", "window", "fill", "spread", "max_docs_per_row", "deal" (None, or a dict of those
of "window step tier bundle order K w h b" that the config gives), "limits" {name: {limit: value}},
"without" {name: [d]} and "documents" {name: n} that it sets. A record is a dict: "from",
"documents", "range", "max_docs_per_row", "deal", "weight" {name: reduced integer}, "limits_before"
{name: {limit: value}}.
"""

import math
from decimal import Decimal

import xxhash
from plan_digest import OF_NOTHING, hash128
from stream2_source import Source, default_max_docs_per_row

SHUFFLE = {"none": 0, "document": 1, "block": 2}
PACKING = {"lookahead": 0, "concat": 1, "best_fit": 2}
FILL = {"pad": 0, "split": 1}
LONG_DOC = {"split": 0, "truncate": 1, "drop": 2}
ON_EXHAUSTED = {"continue": 0, "stop": 1, "error": 2}
ORDER = {"descending": 0, "middle": 1, "wave": 2, "late_wave": 3}
DEAL = "window step tier bundle order K w h b".split()
LIMITS = {"max_epochs": 1, "max_tokens": 0, "on_exhausted": "continue"}
PARAMETERS = "seq_len align packing window fill spread max_docs_per_row deal".split()
DEFAULTS = {"align": 1, "window": 64, "fill": "pad", "spread": 64, "deal": None}
REBUILD = ("seq_len", "align", "packing", "window", "max_docs_per_row")  # section 9.2, 3


# ---- 1.3 Stage parameters ------------------------------------------------------------------------


def reduce_weights(weights):
    """Decimals to integers; sources without one, or with 0, are left out."""
    millionths = {name: int(Decimal(str(w)) * 10**6) for name, w in weights.items()}
    divisor = math.gcd(*millionths.values())
    reduced = {name: w // divisor for name, w in millionths.items() if w > 0}
    if not reduced or max(reduced.values()) >= 2**32:
        raise ValueError("weights: none is above 0, or one is 2^32 or more")
    return reduced


def is_of_job(deal):
    """Whether a deal leaves parameters to the job, so that it is a record (section 8)."""
    return deal is not None and not {"window", "step", "tier", "K"} <= deal.keys()


def deal_of_job(deal, stream):
    """The stream has a "job": rows of a step, of a micro-step and of a batch, and may have the
    "cost" of the config."""
    T, C, m = stream["job"]
    found = {"step": T, "tier": C, "bundle": 1 if "tier" in deal else m, "order": "middle"}
    if "K" not in deal:
        found |= {"K": 16384, **stream.get("cost", {})}
    found |= deal
    found.setdefault("window", min(8, 2**20 // found["step"]) * found["step"])
    return resolve_deal(found)


def check_deal(deal):
    for whole, part in (("window", "step"), ("step", "tier"), ("tier", "bundle")):
        if deal[whole] % deal[part] != 0:
            raise ValueError("deal: %s %d of %s %d" % (whole, deal[whole], part, deal[part]))


def resolve_deal(deal):
    if deal is None:
        return None
    deal = {"bundle": 1, "order": "descending", "w": 0, "h": 0, "b": 1, **deal}
    divisor = math.gcd(deal["h"], deal["b"])
    return {**deal, "h": deal["h"] // divisor, "b": deal["b"] // divisor}


def resolve_stage(stage, first):
    """The parameters that a stage sets, with the values that they imply."""
    stage = dict(stage)
    if first:
        stage = {**DEFAULTS, **stage}
        if stage.get("ramp", 0) > 0:
            raise ValueError("a ramp at stage 0")
    if stage.get("packing") == "concat":
        stage.update(window=0, fill="pad", spread=0)
    if "weight" in stage:
        stage["weight"] = reduce_weights(stage["weight"])
        stage.setdefault("ramp", 0)
    elif "ramp" in stage:
        raise ValueError("a ramp without weights")
    if "deal" in stage and is_of_job(stage["deal"]):
        stage["job_deal"] = stage.pop("deal")
    elif "deal" in stage:
        stage["deal"] = resolve_deal(stage["deal"])
    return stage


# ---- 9.1 Rows of a boundary ----------------------------------------------------------------------


def compile_rows(stages):
    """Stages with "until" ("steps" N, "tokens" N or "row" N) and "global_batch_size" to `from`."""
    begin, steps, places, L, G, compiled = 0, 0, 0, None, None, []
    for stage in stages:
        compiled.append({**stage, "from": begin})
        L, G = stage.get("seq_len", L), stage.get("global_batch_size", G)
        if "until" not in stage:
            continue
        what, N = stage["until"]
        if what == "row" and (N - begin) % G != 0:
            below = begin + (N - begin) // G * G
            raise ValueError("row %d: the nearest rows are %d and %d" % (N, below, below + G))
        own = {
            "row": (N - begin) // G,
            "steps": N - steps,
            "tokens": -(-(N - places) // (L * G)),
        }[what]
        if own < 1:
            raise ValueError("a stage without a step")
        begin, steps, places = begin + own * G, steps + own, places + own * G * L
    return compiled


# ---- 6.1 Shares ----------------------------------------------------------------------------------


def apportion(x):
    if len(x) == 1:
        return dict.fromkeys(x, 2**32)
    X = sum(x.values())
    share = {j: x[j] * 2**32 // X for j in x}
    r = 2**32 - sum(share.values())
    for j in sorted(x, key=lambda j: (-(x[j] * 2**32 % X), j))[:r]:
        share[j] += 1
    return share


class InForce:
    """Parameters, limits and records in force at a row."""

    def __init__(self):
        self.limits, self.without, self.documents, self.range = {}, {}, {}, {}
        self.weight = {}


class Calendar:
    """Declared stages and records, in the order of their rows. `known`: names of sources that have
    a number, in its order; `begun`: records that are fixed, all others are made here."""

    def __init__(self, stream, known=(), begun=(), position=None):
        self.stream = stream
        self.sources = {entry["name"]: Source(stream, entry) for entry in stream["sources"]}
        self.declared = [resolve_stage(stage, i == 0) for i, stage in enumerate(stream["stages"])]
        rows = [stage["from"] for stage in self.declared]
        self.check_packings()
        if rows[0] != 0 or rows != sorted(set(rows)):
            raise ValueError("stages do not ascend from row 0: %s" % rows)
        self.records = [dict(record) for record in begun]
        self.numbers = {name: j for j, name in enumerate(known)}
        ahead = {record["from"]: dict(record) for record in stream.get("records", [])}
        for stage in self.declared:
            ahead.setdefault(stage["from"], {"from": stage["from"]})
        for q in sorted(ahead):
            if not self.is_begun(q, position):
                self.make_record(ahead[q])
            self.join(q)
        self.check_ramps()

    def check_packings(self):
        """The stage after `concat` sets the parameters that it has not."""
        window = 0
        for stage in self.declared:
            window = stage.get("window", window)
            if stage.get("packing", "concat") != "concat":
                if window == 0 or (leaves_concat(self.declared, stage) and "fill" not in stage):
                    raise ValueError("row %d: window or fill is missing" % stage["from"])
                if leaves_concat(self.declared, stage):
                    stage.setdefault("spread", 64)
            if stage.get("seq_len", 2**24) < self.stream.get("group", 1):
                raise ValueError("row %d: a row has no room for a group" % stage["from"])

    @staticmethod
    def is_begun(row, position):
        return position is not None and (row == 0 or row < position)

    def stage_at(self, q):
        return next((stage for stage in self.declared if stage["from"] == q), {})

    def record_at(self, q):
        return next((record for record in self.records if record["from"] == q), {})

    def boundary(self, q):
        """Whether row q begins a stage, by a declared one or by a record."""
        return bool(self.stage_at(q) or self.record_at(q))

    def rows(self):
        """Of all stages and records, ascending."""
        return sorted({entry["from"] for entry in self.declared + self.records})

    def weights_set(self, q):
        """Parameters that the stage and the record at q set; if both would, the record does."""
        return self.record_at(q).get("weight") or self.stage_at(q).get("weight") or {}

    def joining(self, q):
        """Sources that join at q, in the order of the config."""
        return [name for name in self.sources if name in self.weights_set(q)]

    def join(self, q):
        for name in self.joining(q):
            self.numbers.setdefault(name, len(self.numbers))

    # ---- 9.4 Records

    def make_record(self, record):
        """The record at a row: the engine's part, and the additions of a command or a resume."""
        q = record["from"]
        stage = self.stage_at(q)
        set_weights = record.get("weight") or stage.get("weight") or {}
        documents, ranges = {}, {}
        for name in self.sources:
            if name in set_weights and name not in self.numbers:
                source = self.sources[name]
                documents[name] = source.documents_now()
                if source.entry.get("is_percent"):
                    ranges[name] = "%d-%d" % (source.first, source.end)
        documents |= record.get("documents", {}) | stage.get("documents", {})
        for name, n in documents.items():
            if n > self.sources[name].documents_now() or n % self.stream.get("group", 1) != 0:
                raise ValueError("row %d: %s has no %d documents" % (q, name, n))
        if documents:
            record["documents"] = documents
        if ranges:
            record["range"] = ranges
        if "job_deal" in stage:
            record.setdefault("deal", deal_of_job(stage["job_deal"], self.stream))
            check_deal(record["deal"])
        if len(record) > 1:
            self.records.append(record)
        if ("seq_len" in stage) and "max_docs_per_row" not in stage:
            now = self.in_force(q)
            used = [(self.sources[name], now.documents[name]) for name in now.weight]
            D = default_max_docs_per_row(
                used, now.seq_len, now.align, now.packing, now.window, self.stream.get("group", 1)
            )
            record["max_docs_per_row"] = D
            self.records = [r for r in self.records if r["from"] != q] + [record]

    # ---- Parameters in force at a row

    def in_force(self, q):
        now = InForce()
        now.limits = self.limits_of_config(q)
        entries = [(s["from"], 0, s) for s in self.declared]
        entries += [(r["from"], 1, r) for r in self.records]
        for row, _, entry in sorted(entries, key=lambda entry: entry[:2]):
            if row > q:
                break
            for name in PARAMETERS:
                if name in entry:
                    setattr(now, name, entry[name])
            for name, documents in entry.get("without", {}).items():
                now.without[name] = now.without.get(name, set()) | set(documents)
            now.documents.update(entry.get("documents", {}))
            now.weight = entry.get("weight", now.weight)
        for name in now.limits:
            now.limits[name] |= self.limits_before(name, q)
        return now

    def limits_of_config(self, q):
        limits = {
            name: {limit: source.entry.get(limit, default) for limit, default in LIMITS.items()}
            for name, source in self.sources.items()
        }
        for stage in self.declared:
            for name in stage.get("limits", {}) if stage["from"] <= q else []:
                limits[name].update(stage["limits"][name])
        return limits

    def limits_before(self, name, q):
        """9.4: the limits of a source at row q that the next record with its limits has."""
        records = sorted(
            (record["from"], record["limits_before"][name])
            for record in self.records
            if record["from"] > q and name in record.get("limits_before", {})
        )
        if not records:
            return {}
        until, limits = records[0]
        own = [s.get("limits", {}).get(name, {}) for s in self.declared if q < s["from"] < until]
        return {k: v for k, v in limits.items() if not any(k in edit for edit in own)}

    def weights_by_row(self):
        """(from, ramp, weights by number) of each stage or record that sets weights."""
        found = []
        for row in self.rows():
            if self.weights_set(row):
                weights = {self.numbers[name]: w for name, w in self.weights_set(row).items()}
                own = "weight" not in self.record_at(row)
                found.append((row, self.stage_at(row).get("ramp", 0) if own else 0, weights))
        return found

    def check_ramps(self):
        found = self.weights_by_row()
        for (row, ramp, _), (after, _, _) in zip(found, found[1:]):
            if self.stage_at(after).get("weight") and after < row + ramp:
                raise ValueError("a stage at row %d sets weights in a ramp" % after)
        if any(0 in apportion(weights).values() for _, _, weights in found):
            raise ValueError("a share of 0")

    def nominal_shares(self, q):
        found = [entry for entry in self.weights_by_row() if entry[0] <= q]
        row, ramp, weights = found[-1]
        new, i = apportion(weights), q - row
        if i >= ramp:
            return new
        old, level = apportion(found[-2][2]), 1024 * i // ramp
        x = {
            j: (old.get(j, 0) * (1024 - level) + new.get(j, 0) * level) // 1024
            for j in old.keys() | new.keys()
        }
        return apportion({j: x[j] for j in sorted(x) if x[j] > 0})

    # ---- 9.5 and 14: texts

    def by_number(self, values):
        return [(self.numbers[name], values[name]) for name in values if name in self.numbers]

    def lines(self, entry, limits=False):
        """Lines of a stage or record, without its prefix, ascending."""
        lines = {"from": entry["from"]}
        for name in ("ramp", *PARAMETERS):
            if name in entry:
                lines[name] = deal_text(entry[name]) if name == "deal" else entry[name]
        for name in ("weight", "documents", "range"):
            for j, value in self.by_number(entry.get(name, {})):
                lines["%s[%04d]" % (name, j)] = value
        for j, documents in self.by_number(entry.get("without", {})):
            words = b"".join(d.to_bytes(8, "little") for d in sorted(set(documents)))
            hashed = xxhash.xxh3_64_intdigest(words)
            lines["without[%04d]" % j] = "%d:%016x" % (len(set(documents)), hashed)
        for j, values in self.by_number(entry.get("limits_before", {})):
            lines["limits[%04d]" % j] = ",".join(str(values[limit]) for limit in LIMITS)
        if limits:
            for j, values in self.by_number(entry.get("limits", {})):
                lines |= {"%s[%04d]" % (limit, j): value for limit, value in values.items()}
        return ["%s=%s\n" % (name, lines[name]) for name in sorted(lines)]

    def declared_lines(self, stage, limits=False):
        return self.lines({name: v for name, v in stage.items() if name != "documents"}, limits)

    def begun(self, next_row):
        """(row, 0 or 1, word, text) of declared stages and records, from the oldest."""
        texts = [(s["from"], 0, "stage", self.declared_lines(s)) for s in self.declared]
        texts += [(r["from"], 1, "record", self.lines(r)) for r in self.records]
        texts = [(*head, "".join(lines)) for *head, lines in texts]
        return sorted(entry for entry in texts if self.is_begun(entry[0], next_row))

    def chains(self, next_row):
        """A and B of all that is begun."""
        chains = [OF_NOTHING, OF_NOTHING]
        for _, which, _, text in self.begun(next_row):
            low, high = chains[which]
            link = low.to_bytes(8, "little") + high.to_bytes(8, "little")
            chains[which] = hash128(link + text.encode())
        return chains

    def history(self, next_row, flags):
        """12.2: `flags` sources have a record `documents` that is not their n."""
        entries, room = [], 640 - 8 * flags
        for row, _, word, text in reversed(self.begun(next_row)):
            entry = "%s %d\n%s" % (word, row, text)
            if len(entry) > room:
                break
            entries.insert(0, entry)
            room -= len(entry)
        text = "".join(entries).encode()
        return text + bytes(-len(text) % 8)


def leaves_concat(declared, stage):
    """Whether the packing before this stage is `concat`."""
    before = [s["packing"] for s in declared if s["from"] < stage["from"] and "packing" in s]
    return bool(before) and before[-1] == "concat"


def deal_text(deal):
    if deal is None:
        return "off"
    return ",".join(str(deal[name]) for name in DEAL)
