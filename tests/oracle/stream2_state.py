# SPDX-License-Identifier: Apache-2.0
"""Sections 10.3, 12 and 15 of engine/plan/STREAM2.md, written only from that page: skips, the
state token, resume at any row, digests."""

import struct

import xxhash
from oracle import rule_token
from plan_digest import hash128
from stream2 import Plan
from stream2_calendar import (
    DEAL, FILL, LONG_DOC, ON_EXHAUSTED, ORDER, PACKING, SHUFFLE, Calendar, reduce_weights
)  # fmt: skip
from stream2_planner import COUNTS, Entry, OpenRow, Piece, SourceState, State
from stream2_source import DROP_UNTRAINED, TOO_LONG

NONE = 2**32 - 1
HEADER = "8sII" "QQQQ" "QQ" "QQQQ" "QQ" "QQ" "10Q" "Q" "8I" "4I" "5I" "6I" "4B" "8B"
SOURCE = "QQQQQQ" "q" "QQQQ" "III" "BBBB"


# ---- 10.3 Skips ----------------------------------------------------------------------------------


def ranges_of(rows):
    ranges = []
    for g in sorted(rows):
        if ranges and ranges[-1][1] == g:
            ranges[-1][1] = g + 1
        else:
            ranges.append([g, g + 1])
    return ranges


def hash_of_skips(skip, x):
    """Z(x)."""
    pairs = [struct.pack("<QQ", *pair) for pair in ranges_of(g for g in skip if g < x)]
    return hash128(b"".join(pairs))


# ---- 15. Digests ---------------------------------------------------------------------------------


def tokens_of(plan, fragment):
    """The tokens of a corpus that is only lengths, with those that are inserted."""
    source = plan.calendar.sources[plan.state_names()[fragment.source]]
    tokens = []
    for t in range(fragment.offset, fragment.offset + fragment.length):
        own = t - (source.bos is not None)
        if own < 0:
            tokens.append(source.bos)
        elif own == source.own(fragment.document):
            tokens.append(source.eos)
        else:
            tokens.append(rule_token(fragment.source, fragment.document, own))
    return tokens


def row_digest(plan, row, labelled=False):
    """H of a delivered row; 0 without fragments."""
    if row.skipped or not row.fragments:
        return 0
    content, labels = struct.pack("<I", len(row.fragments)), b""
    content += b"".join(struct.pack("<I", f.length) for f in row.fragments)
    for f in row.fragments:
        tokens = tokens_of(plan, f)
        content += struct.pack("<%dI" % f.length, *tokens)
        source = plan.calendar.sources[plan.state_names()[f.source]]
        own, end = source.labels(f.document, f.offset, f.length)
        words = [token if has else 2**32 - 100 for token, has in zip(tokens, own)]
        if source.across_cuts:
            after = f._replace(offset=f.offset + f.length, length=1)
            words += tokens_of(plan, after) if end else [2**32 - 100]
        labels += struct.pack("<%dI" % len(words), *words)
    content += labels if labelled else b""
    return xxhash.xxh3_128_intdigest(struct.pack("<QQQ", row.q, *hash128(content)))


# ---- 12.2 Layout ---------------------------------------------------------------------------------


def pack_piece(piece):
    return struct.pack(
        "<QIIIHBB", piece.item, piece.offset, piece.length, piece.e, piece.source, piece.r, 0
    )


def pack_source(source, own, weight, limits, documents):
    other = documents != own.n
    name = source.name.encode()
    flags = DROP_UNTRAINED[source.drop_untrained] + 4 * other
    record = struct.pack(
        "<" + SOURCE,
        source.fingerprint("sampled", own.n), source.fingerprint("full", own.n),
        source.selection(own.n), own.n, own.before, own.p, own.credit,
        own.t, own.taken, own.withheld, limits["max_tokens"], limits["max_epochs"], weight, own.e,
        own.r, ON_EXHAUSTED[limits["on_exhausted"]],
        TOO_LONG[source.too_long] if source.atomic else 0, flags,
    )  # fmt: skip
    record += struct.pack("<Q", documents) if other else b""
    record += bytes([len(name)]) + name
    return record + bytes(-len(record) % 8)


def sources_begun(plan):
    """Sources of the state, and those that join at the first row of a window that is begun."""
    sources = list(plan.state.sources)
    if plan.next_row > plan.first:
        now = plan.calendar.in_force(plan.first)
        names = [own.name for own in sources]
        for name in plan.calendar.joining(plan.first):
            if name not in names:
                sources.append(SourceState(name, now.documents[name]))
    return sources


def save_token(plan):
    stream, state, calendar = plan.stream, plan.state, plan.calendar
    g, p = plan.next_row, plan.first
    last = max(g - 1, 0)
    now, limits = calendar.in_force(last), plan.limits_at(last)
    sources = sources_begun(plan)
    flags = sum(now.documents[own.name] != own.n for own in sources)
    history = calendar.history(g, flags)
    chain_a, chain_b = calendar.chains(g)
    body = b"".join(
        pack_source(
            calendar.sources[own.name], own, now.weight.get(own.name, 0), limits[own.name],
            now.documents[own.name],
        )
        for own in sources
    )  # fmt: skip
    body += b"".join(map(pack_piece, state.fifo))
    for entry in state.pool:
        body += pack_piece(entry.piece) + struct.pack("<II", entry.turn, entry.rows)
    for row in state.open:
        body += struct.pack("<QII", row.opened_at, len(row.pieces), 0)
        body += b"".join(map(pack_piece, row.pieces))
    body += history
    block = stream["shuffle"] == "block"
    deal = now.deal or dict.fromkeys(DEAL, 0)
    tokenizer = stream.get("tokenizer", 0)
    begun = sum(calendar.is_begun(stage["from"], g) for stage in calendar.declared)
    ids = [NONE if stream.get(name) is None else stream[name] for name in ("bos_id", "eos_id")]
    header = struct.pack(
        "<" + HEADER,
        b"RPSTATE", 4, 336 + len(body), int(stream["seed"]), g, p, plan.window_end if g > p else p,
        *state.digest, *chain_a, *chain_b, *hash_of_skips(plan.skip, g),
        tokenizer % 2**64, tokenizer >> 64,
        *(state.count[name] for name in COUNTS), state.pool_row,
        now.seq_len, now.window, now.max_docs_per_row, stream["block_documents"] if block else 0,
        stream["window_blocks"] if block else 0, now.spread, now.align, stream.get("group", 1),
        state.X, *ids, begun,
        len(sources), len(state.fifo), len(state.pool), len(state.open), len(history),
        *(deal[name] for name in ("window", "step", "tier", "bundle", "K", "w")),
        ORDER[deal["order"]] if now.deal else 0, deal["h"], deal["b"], 0,
        SHUFFLE[stream["shuffle"]], PACKING[now.packing], FILL[now.fill],
        LONG_DOC[stream["long_doc"]] if stream.get("group", 1) == 1 else 0,
        state.stopped, stream.get("label_across_cuts", 0), 0, 0,
    )  # fmt: skip
    token = header + body
    return token + struct.pack("<QQ", *hash128(token))


# ---- 12.4 Resume ---------------------------------------------------------------------------------


class Token:
    """The fields of a token."""

    def __init__(self, data):
        self.data, self.at = data, 0
        if hash128(data[:-16]) != struct.unpack("<QQ", data[-16:]):
            raise ValueError("state token: the hash does not match")
        h = self.read(HEADER)
        if h[:3] != (b"RPSTATE\0", 4, len(data)):
            raise ValueError("state token: version or length")
        self.seed, self.g, self.p, self.e = h[3:7]
        state = self.state = State()
        state.rows, state.digest = self.p, h[7:9]
        self.chain_a, self.chain_b, self.skips = h[9:11], h[11:13], h[13:15]
        state.count = dict(zip(COUNTS, h[17:27]))
        state.pool_row, state.X, state.stopped = h[27], h[36], bool(h[59])
        self.fixed = [self.seed, *h[31:33], h[35], *h[37:39], h[55], h[58], h[60]]
        sources, fifo, pool, opened, history = h[40:45]
        self.sources = [self.read_source() for _ in range(sources)]
        state.sources = [own for own, _ in self.sources]
        state.fifo = [self.read_piece() for _ in range(fifo)]
        for _ in range(pool):
            entry = Entry(self.read_piece(), 0)
            entry.turn, entry.rows = self.read("II")
            state.pool.append(entry)
        for _ in range(opened):
            opened_at, pieces, _ = self.read("QII")
            state.open.append(OpenRow(opened_at, [self.read_piece() for _ in range(pieces)]))
        self.history = data[self.at : self.at + history].rstrip(b"\0").decode()

    def read(self, layout):
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def read_piece(self):
        item, offset, length, e, source, r, _ = self.read("QIIIHBB")
        return Piece(source, item, offset, length, e, r)

    def read_source(self):
        begin, f = self.at, self.read(SOURCE)
        documents = self.read("Q")[0] if f[17] & 4 else f[3]
        length = self.read("B")[0]
        own = SourceState(self.read("%ds" % length)[0].decode(), f[3])
        own.before, own.p, own.credit, own.t, own.taken, own.withheld = f[4:10]
        own.e, own.r = f[13], f[14]
        self.at += -(self.at - begin) % 8
        on_exhausted = next(word for word, number in ON_EXHAUSTED.items() if number == f[15])
        limits = {"max_tokens": f[10], "max_epochs": f[11], "on_exhausted": on_exhausted}
        return own, {
            "fingerprints": f[:3],
            "limits": limits,
            "parameters": (f[16], f[17] & 3),
            "weight": f[12],
            "documents": documents,
        }


def fixed_of(stream):
    """Section 1.1, as in the header."""
    block = stream["shuffle"] == "block"
    k = stream.get("group", 1)
    return [
        int(stream["seed"]),
        *([stream["block_documents"], stream["window_blocks"]] if block else [0, 0]),
        k,
        *(NONE if stream.get(name) is None else stream[name] for name in ("bos_id", "eos_id")),
        SHUFFLE[stream["shuffle"]],
        LONG_DOC[stream["long_doc"]] if k == 1 else 0,
        stream.get("label_across_cuts", 0),
    ]


def check_sources(token, calendar):
    """1 and 2: parameters and fingerprints. Gives the documents of those that have grown."""
    grown = {}
    for own, was in token.sources:
        source = calendar.sources[own.name]
        too_long = TOO_LONG[source.too_long] if source.atomic else 0
        if was["parameters"] != (too_long, DROP_UNTRAINED[source.drop_untrained]):
            raise ValueError("%s: its parameters differ" % own.name)
        have = source.documents_now()
        if have < was["documents"]:
            raise ValueError("%s: %d documents of %d" % (own.name, have, was["documents"]))
        full = source.fingerprint("full", own.n)
        found = (source.fingerprint("sampled", own.n), full, source.selection(own.n))
        names = ("sampled", "full", "selection")
        for name, expected, value in zip(names, was["fingerprints"], found):
            if expected != value and not (name == "full" and 0 in (expected, value)):
                raise ValueError("%s: %s differs" % (own.name, name))
        if have > was["documents"]:
            grown[own.name] = have
    return grown


def resume(stream, data, records=(), weights=None, grow=True):
    """A plan at the row of a token. `records`: those that are begun, of the checkpoint's contract.
    `weights`: others than those in force, which were accepted."""
    token = Token(data)
    known = [own.name for own in token.state.sources]
    begun = [record for record in records if Calendar.is_begun(record["from"], token.g)]
    if token.fixed != fixed_of(stream):
        raise ValueError("fixed parameters differ: %s, %s" % (token.fixed, fixed_of(stream)))
    ahead = [r for r in stream.get("records", []) if not Calendar.is_begun(r["from"], token.g)]
    bare = Calendar({**stream, "records": ahead}, known, begun, token.g)
    grown = check_sources(token, bare)
    if bare.chains(token.g)[0] != token.chain_a:  # 4
        raise ValueError("begun stages differ")
    if hash_of_skips(stream.get("skip", []), token.g) != token.skips:  # 5
        raise ValueError("skips below row %d differ" % token.g)
    if bare.chains(token.g)[1] != token.chain_b:
        raise ValueError("begun records differ")
    if token.g == 0 and ((grown and grow) or weights is not None):
        raise ValueError("nothing is begun: start a new stream")
    made = {"from": token.e}
    if grown and grow:
        made["documents"] = grown
    if weights is not None:  # 7
        if "weight" in bare.stage_at(token.e):
            raise ValueError("the stage at row %d sets weights" % token.e)
        made["weight"] = reduce_weights(weights)

    def plan_with(limits):
        record = {**made, **({"limits_before": limits} if limits else {})}
        same_row = next((own for own in ahead if own["from"] == token.e), {})
        others = [own for own in ahead if own["from"] != token.e]
        extended = [*others, {**same_row, **record}] if len(record) > 1 else ahead
        calendar = Calendar({**stream, "records": extended}, known, begun, token.g)
        check_calendar(token, calendar)
        return begin_plan(stream, calendar, Token(data))

    return plan_with(reached_limits(plan_with(other_limits(token, bare)), token, bare))


def begin_plan(stream, calendar, token):
    plan = Plan(stream, calendar)
    plan.state, plan.next_row = token.state, token.g
    plan.limits = {own.name: was["limits"] for own, was in token.sources}
    plan.limits_end = token.e
    if token.g > token.p:
        plan.plan_window()
        if plan.window_end != token.e:
            raise ValueError("the window ends at %d, not at %d" % (plan.window_end, token.e))
    return plan


def check_calendar(token, calendar):
    """9.5: rows of stages and records that are not begun."""
    for q in calendar.rows():
        if not calendar.is_begun(q, token.g) and q < token.e:
            raise ValueError("row %d is in a window that is begun" % q)


def other_limits(token, calendar):
    """6: by name, of sources whose limits of the begun stage differ from the config's."""
    config = calendar.in_force(max(token.g - 1, 0)).limits
    if token.g == 0:
        return {}
    return {
        own.name: was["limits"]
        for own, was in token.sources
        if own.name in config and was["limits"] != config[own.name]
    }


def reached_limits(plan, token, calendar):
    """6: the limits that are reached at row e, and change there."""
    state, found = plan.after if token.g > token.p else plan.state, {}
    config = calendar.in_force(max(token.g - 1, 0)).limits
    for name, limits in other_limits(token, calendar).items():
        own = next(own for own in state.sources if own.name == name)
        if is_reached(own, limits):
            found[name] = limits
        elif is_reached(own, config[name]):
            raise ValueError("%s: a limit becomes less than was read" % name)
    return found


def is_reached(own, limits):
    return (limits["max_epochs"] > 0 and own.e >= limits["max_epochs"]) or (
        limits["max_tokens"] > 0 and own.t >= limits["max_tokens"]
    )
