# SPDX-License-Identifier: Apache-2.0
"""The documents of a source: sections 1.3 (default of max_docs_per_row), 2, 3, 4 and 11 of
engine/plan/STREAM2.md, written from that page.

A source is a dict: "name", "lengths" (tokens of each document of the index, before insertions), and
optionally "shards" (documents of each), "columns" ({name: {"type", "values", "roots"}}), "spans",
"documents" ([first, end], end None for no end), "is_percent" (of these bounds), "select", "repeat"
({count: expression}), "unseen" (of 12.7: the "used" documents, the "hash" of the state), "atomic",
"too_long", "drop_untrained", "sampled", "full" (integers).
"""

import re
from fractions import Fraction

import xxhash
from stream import hi, lo, permute, philox4x32

TOO_LONG = {"drop": 1, "truncate": 2, "error": 3}
DROP_UNTRAINED = {"none": 0, "document": 1, "fragment": 2}
ORDERS = {}  # a cache of order(), not state
BUILT_IN = ("length", "shard", "document", "fraction")

# ---- 4. Selection: expressions -------------------------------------------------------------------

TOKEN = re.compile(r"-?\d+(?:\.\d+)?|[A-Za-z_][A-Za-z0-9_]*|<=|>=|==|!=|[<>(),]")


def words_of(text):
    """The tokens of an expression; whatever is no token is refused."""
    if re.sub(r"\s", "", TOKEN.sub("", text)):
        raise ValueError("expression: not a token in %r" % text)
    return TOKEN.findall(text)


class Expression:
    """expr = term { "or" term }, and so on: one method for a rule."""

    def __init__(self, text):
        self.words, self.at, self.names = words_of(text), 0, set()
        self.test = self.expr()
        if self.at != len(self.words):
            raise ValueError("expression: %r is left" % self.words[self.at :])

    def next(self, *allowed):
        """The next token if it is one of those; without a list, any."""
        word = self.words[self.at] if self.at < len(self.words) else ""
        if word and (not allowed or word in allowed):
            self.at += 1
            return word
        return None

    def expr(self):
        terms = [self.term()]
        while self.next("or"):
            terms.append(self.term())
        return lambda value: any(term(value) for term in terms)

    def term(self):
        factors = [self.factor()]
        while self.next("and"):
            factors.append(self.factor())
        return lambda value: all(factor(value) for factor in factors)

    def factor(self):
        if self.next("not"):
            inner = self.factor()
            return lambda value: not inner(value)
        if self.next("("):
            inner = self.expr()
            if not self.next(")"):
                raise ValueError("expression: ) is missing")
            return inner
        return self.comparison()

    def comparison(self):
        name = self.next()
        self.names.add(name)
        operator = self.next("<", "<=", "==", "!=", ">=", ">", "in")
        if operator != "in":
            number = self.next()
            return lambda value: compare(value(name), operator, number)
        if not self.next("("):
            raise ValueError("expression: ( is missing")
        numbers = [self.next()]
        while self.next(","):
            numbers.append(self.next())
        if not self.next(")"):
            raise ValueError("expression: ) is missing")
        return lambda value: any(compare(value(name), "==", number) for number in numbers)


def compare(value, operator, number):
    """Exactly, as rational numbers; with an f32 or f64, as f64 (Python rounds to nearest even)."""
    number = float(number) if isinstance(value, float) else Fraction(number)
    if value != value:
        raise ValueError("NaN in a column")
    if operator in ("<", "<="):
        return value < number or (operator == "<=" and value == number)
    if operator in (">", ">="):
        return value > number or (operator == ">=" and value == number)
    return (value == number) == (operator == "==")


# ---- 2, 3, 4: a source ---------------------------------------------------------------------------


class Source:
    """stream: the inputs of section 1.1 by name. Documents are numbered after `documents`."""

    def __init__(self, stream, entry):
        self.name, self.entry = entry["name"], entry
        self.seed, self.shuffle = int(stream["seed"]), stream["shuffle"]
        self.B, self.V = stream.get("block_documents", 0), stream.get("window_blocks", 0)
        self.k = stream.get("group", 1)
        self.bos, self.eos = stream.get("bos_id"), stream.get("eos_id")
        self.across_cuts = stream.get("label_across_cuts", 0)
        self.first, self.end = entry.get("documents", [0, None])
        self.atomic = bool(entry.get("atomic", 0)) or self.k > 1
        self.too_long = entry.get("too_long", "error")
        self.drop_untrained = entry.get("drop_untrained", "none")
        self.masked = entry.get("spans") is not None
        self.repeat = {int(c): text for c, text in entry.get("repeat", {}).items()}
        self.unseen = entry.get("unseen") or {"used": (), "hash": None}
        self.R = max(self.repeat, default=1)
        self.parsed = {
            text: Expression(text)
            for text in [*self.repeat.values(), *filter(None, [entry.get("select")])]
        }

    def documents_now(self):
        """The documents that the index has in the range of the source."""
        have = len(self.entry["lengths"])
        return (have if self.end is None else min(have, self.end)) - self.first

    # ---- 2.1 Length

    def own(self, d):
        return self.entry["lengths"][self.first + d]

    def own_spans(self, d):
        return self.entry["spans"][self.first + d]

    def length(self, d):
        n = self.own(d)
        if n == 0 or (self.masked and self.drop_untrained == "document" and not self.own_spans(d)):
            return 0
        return n + (self.bos is not None) + (self.eos is not None)

    def documents_of(self, u):
        return range(u * self.k, u * self.k + self.k)

    # ---- 3. The order of a source

    def round_keys(self, e, r, s, v):
        h = xxhash.xxh3_64_intdigest(self.name.encode())
        b = philox4x32((lo(self.seed), hi(self.seed)), (e, r, lo(h), hi(h)))
        first = philox4x32((b[0], b[1]), (lo(v), hi(v), s, 0))
        second = philox4x32((b[0], b[1]), (lo(v), hi(v), s, 1))
        return (first + second)[:6]

    def order(self, e, r, n):
        """The items of pass r of epoch e, which has n documents, by position."""
        key = (self.seed, self.name, self.shuffle, self.B, self.V, self.k, e, r, n)
        if key not in ORDERS:
            ORDERS[key] = self.make_order(e, r, n)
        return ORDERS[key]

    def make_order(self, e, r, n):
        if n % self.k != 0 or n == 0:
            raise ValueError("%s: %d documents in groups of %d" % (self.name, n, self.k))
        I = n // self.k
        if self.shuffle == "none":
            return list(range(I))
        keys = self.round_keys(e, r, 0, 0)
        if self.shuffle == "document":
            return [permute(I, keys, p) for p in range(I)]
        Bi = self.B // self.k
        U = -(-I // Bi)
        blocks = [permute(U, keys, z) for z in range(U)]
        order = []
        for y, z in enumerate(range(0, U, self.V)):
            listed = []
            for u in blocks[z : z + self.V]:
                listed += range(u * Bi, min((u + 1) * Bi, I))
            keys = self.round_keys(e, r, 1, y)
            order += [listed[permute(len(listed), keys, x)] for x in range(len(listed))]
        return order

    # ---- 4. Selection and repetition

    def fraction(self, d):
        x = (self.first + d) // self.k
        return Fraction(philox4x32((0, 0), (lo(x), hi(x), 0, 0))[0], 2**32)

    def shard(self, d):
        document, shard = self.first + d, 0
        for documents in self.entry.get("shards", []):
            if document < documents:
                break
            document, shard = document - documents, shard + 1
        return shard

    def column(self, name, d):
        if name == "length":
            return self.own(d)
        if name == "shard":
            return self.shard(d)
        if name == "document":
            return self.first + d
        if name == "fraction":
            return self.fraction(d)
        return self.entry["columns"][name]["values"][self.first + d]

    def holds(self, text, d):
        return self.parsed[text].test(lambda name: self.column(name, d))

    def count_of_document(self, d, without):
        if d in without or d in self.unseen["used"]:
            return 0
        select = self.entry.get("select")
        if select is not None and not self.holds(select, d):
            return 0
        return max((c for c, text in self.repeat.items() if self.holds(text, d)), default=1)

    def count(self, u, without):
        return min(self.count_of_document(d, without) for d in self.documents_of(u))

    # ---- 2.2 Fingerprints

    def fingerprint(self, kind, n):
        """sampled or full at n documents; they are inputs here: a number, or one for each n."""
        value = self.entry.get(kind, 0)
        return value.get(n, 0) if isinstance(value, dict) else value

    def selection(self, n):
        hash_of_state = self.unseen["hash"]
        if self.entry.get("select") is None and not self.repeat and hash_of_state is None:
            return 0
        text, names = "", set()
        lines = [("select", self.entry.get("select"))]
        lines += [("repeat %d" % c, self.repeat[c]) for c in sorted(self.repeat)]
        for head, expression in lines:
            if expression is not None:
                text += "%s %s\n" % (head, " ".join(words_of(expression)))
                names |= self.parsed[expression].names
        for name in sorted(names - set(BUILT_IN)):
            # (documents before the segment, root) of each segment
            prefix = self.first + n
            roots = self.entry["columns"][name].get("roots", [])
            roots = [root for before, root in roots if before < prefix]
            text += "column %s %s\n" % (name, "".join("%032x" % root for root in roots))
        if hash_of_state is not None:
            text += "unseen %s\n" % hash_of_state
        return xxhash.xxh3_64_intdigest(text.encode())

    # ---- 11. Labels

    def trained(self, d, t):
        """Token t of document d, inserted tokens counted."""
        n = self.length(d)
        t -= self.bos is not None
        if t < 0 or t + (self.bos is not None) >= n:
            return False
        if not self.masked:
            return True
        t = min(t, self.own(d) - 1)  # an inserted EOS is trained as the last token
        return any(begin <= t < end for begin, end in self.own_spans(d))

    def labels(self, d, offset, length):
        """Whether each token of a fragment has a label, then whether its end has one."""
        own = [t >= 1 and self.trained(d, offset + t) for t in range(length)]
        return own, bool(self.across_cuts) and self.trained(d, offset + length)

    def labelled(self, d, offset, length):
        """Section 5."""
        if not (self.masked and self.drop_untrained == "fragment"):
            return True
        own, end = self.labels(d, offset, length)
        return any(own) or end


# ---- 1.3 The default of max_docs_per_row ---------------------------------------------------------


def wanted(source, n, L, a):
    """w of a source of n documents."""
    places = range(n)
    if n > 4096:
        places = [r * (n - 64) // 63 + i for r in range(64) for i in range(64)]
    lengths = [source.length(d) for d in places]
    x = sorted(min(L, -(-length // a) * a) for length in lengths if length > 0)
    for i in range(len(x)):
        if 100 * sum(x[: i + 1]) > sum(x):
            return -(-L // x[i]) + 1
    return 1


def default_max_docs_per_row(sources, L, a, packing, W, k):
    """sources: (source, n) of each with a weight above 0."""
    Q = 2**22 // (24 * W) if packing == "best_fit" else L
    w = max(wanted(source, n, L, a) for source, n in sources)
    return max(k, min(L, max(32, L // 32)), min(L, w, Q))
