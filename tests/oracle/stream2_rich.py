# SPDX-License-Identifier: Apache-2.0
"""Random streams of version 2 that reach further than stream2_random.py: growth, records, ranges,
many sources, long and empty documents, errors. For the comparison with the engine."""

import functools
import pickle

import xxhash
from stream2_calendar import reduce_weights
from stream2_random import random_deal, random_job, random_source, random_spans, random_stream


@functools.cache
def prints_of(name, most=6000):
    """A fingerprint for each number of documents."""
    return {n: xxhash.xxh3_64_intdigest(b"%s %d" % (name.encode(), n)) for n in range(most)}


def grow(rng, source, k, L, units):
    """Append documents to the index of a source."""
    for _ in range(units * k):
        n = rng.choice([0, 1, 2, 3, rng.randint(1, max(1, L if k > 1 else 3 * L))])
        source["lengths"].append(n)
        if "columns" in source:
            source["columns"]["score"]["values"].append(rng.randint(0, 5))
        if "spans" in source:
            source["spans"].append(random_spans(rng, n) if n > 0 else [])


def scale(rng, stream):
    """Longer rows and documents, and more of them."""
    factor = rng.choice([5, 16, 40])
    for stage in stream["stages"]:
        for name in ("seq_len", "max_docs_per_row"):
            if name in stage and (name == "seq_len" or rng.random() < 0.5):
                stage[name] *= factor
        if "window" in stage and rng.random() < 0.4:
            stage["window"] = rng.choice([8, 64, 100])
        if "spread" in stage and rng.random() < 0.4:
            stage["spread"] = rng.choice([8, 64])
    for source in stream["sources"]:
        most = max(1, stream["stages"][0]["seq_len"] * (1 if stream["group"] > 1 else 3))
        kind = rng.choice(["short", "long", "coarse"])
        source["lengths"] = [random_length(rng, most, kind) for _ in source["lengths"]]
        if "spans" in source:
            source["spans"] = [random_spans(rng, n) if n > 0 else [] for n in source["lengths"]]
        if "max_tokens" in source:
            source["max_tokens"] *= factor
    if rng.random() < 0.5:
        source = rng.choice(stream["sources"])
        L = stream["stages"][0]["seq_len"]
        grow(rng, source, stream["group"], L // 4 + 1, rng.randint(40, 150))


def random_length(rng, most, kind):
    if rng.random() < 0.05:
        return 0
    if kind == "short":
        return rng.randint(1, max(1, most // 8))
    if kind == "coarse":
        return max(1, most // rng.choice([3, 3, 4, 6, 12]))
    return rng.randint(1, most)


def random_range(rng, stream, source):
    """A part of the index, as numbers or as percent, which the calendar records."""
    k, n = stream["group"], len(source["lengths"])
    first = k * rng.randint(0, n // k - 1)
    source["documents"] = [first, rng.choice([None, k * rng.randint(first // k + 1, n // k)])]
    if source["documents"][1] is not None and rng.random() < 0.5:
        source["is_percent"] = True


def add_limits(rng, stream):
    """A record of limits that were in force before it."""
    names = [name for name, weight in stream["stages"][0]["weight"].items() if float(weight) > 0]
    limits = {"max_epochs": rng.choice([0, 1, 2]), "max_tokens": rng.choice([0, 0, 20, 100])}
    limits["on_exhausted"] = rng.choice(["continue", "stop"])
    before = {name: limits for name in rng.sample(names, rng.randint(1, len(names)))}
    record_at(stream, rng.randint(1, 15))["limits_before"] = before


def add_growth(rng, stream, rows):
    """Stage 0 takes fewer documents than there are; a stage or a record has the others later."""
    for source in stream["sources"]:
        first, end = source.get("documents", [0, None])
        have = (len(source["lengths"]) if end is None else end) - first
        k = stream["group"]
        if have // k < 2 or source.get("is_percent") or rng.random() < 0.4:
            continue
        if not stream["stages"][0]["weight"].get(source["name"]):
            continue
        name, own = source["name"], k * rng.randint(1, have // k - 1)
        stream["stages"][0].setdefault("documents", {})[name] = own
        while own < have and rng.random() < 0.8:
            own = k * rng.randint(own // k + 1, have // k)
            if rng.random() < 0.5:
                stage = rng.choice(stream["stages"])
                later = stage["from"] > max(rows.get(name, 0), 0)
                if not later:
                    continue
                stage.setdefault("documents", {})[name] = own
                rows[name] = stage["from"]
            else:
                at = rows.get(name, 0) + rng.randint(1, 5)
                if any(stage["from"] == at for stage in stream["stages"]):
                    continue
                record_at(stream, at).setdefault("documents", {})[name] = own
                rows[name] = at


def record_at(stream, row):
    for record in stream["records"]:
        if record["from"] == row:
            return record
    record = {"from": row}
    stream["records"] = sorted([*stream["records"], record], key=lambda record: record["from"])
    return record


def add_weights(rng, stream):
    """Records of a command: weights of all sources at a row."""
    names = [source["name"] for source in stream["sources"]]
    for _ in range(rng.choice([0, 1, 2])):
        row = rng.randint(1, 15)
        if any(stage["from"] == row and "weight" in stage for stage in stream["stages"]):
            continue
        weight = {name: rng.randint(0, 9) for name in names}
        weight = weight if any(weight.values()) else {names[0]: 1}
        record_at(stream, row)["weight"] = reduce_weights(weight)


def add_sources(rng, stream, count):
    """Many small ones."""
    k, L = stream["group"], stream["stages"][0]["seq_len"]
    for i in range(count):
        source = random_source(rng, "s%d" % i, k, L, rng.random() < 0.7)
        stream["sources"].append(source)
        for stage in stream["stages"]:
            if "weight" in stage:
                stage["weight"][source["name"]] = rng.choice([0, 1, 1, 2, 0.25, 7])
    rng.shuffle(stream["sources"])


def rename(rng, stream):
    """Names of the longest kind, and with bytes that a contract escapes."""
    old = stream["sources"][0]["name"]
    new = rng.choice(["n" * 63, "a b\\c=~:", "größe", "x"])
    stream["sources"][0]["name"] = new
    for stage in stream["stages"]:
        for key in ("weight", "limits", "without"):
            if old in stage.get(key, {}):
                stage[key][new] = stage[key].pop(old)


def add_faults(rng, stream):
    """Parameters that end a stream with an error."""
    source = rng.choice(stream["sources"])
    kind = rng.choice(["too_long", "limit", "nothing", "empty", "giant"])
    if kind == "too_long":
        source["too_long"] = "error"
        source["atomic"] = 1
    elif kind == "limit":
        source["on_exhausted"] = "error"
        source.setdefault("max_tokens", rng.randint(1, 200))
    elif kind == "nothing":
        source["select"], source["max_epochs"] = "length > 1000000000", 0
    elif kind == "empty":
        source["lengths"] = [0] * len(source["lengths"])
    elif "spans" not in source and stream["group"] == 1:
        source["lengths"][-1] = rng.choice([2**27 - 1, 2**27, 2**27 - 2])


def vary(rng, stream):
    """Small changes of many kinds."""
    k = stream["group"]
    for source in stream["sources"]:
        if rng.random() < 0.2:
            source["max_epochs"] = 0
        if rng.random() < 0.2:
            random_range(rng, stream, source)
        if k == 1 and rng.random() < 0.15:
            source["lengths"][rng.randrange(len(source["lengths"]))] = 0
            if "spans" in source:
                source["spans"] = [
                    own if n else [] for own, n in zip(source["spans"], source["lengths"])
                ]
    for stage in stream["stages"][1:]:
        if rng.random() < 0.25:
            source = rng.choice(stream["sources"])
            documents = rng.sample(range(len(source["lengths"])), min(3, len(source["lengths"])))
            stage.setdefault("without", {})[source["name"]] = sorted(documents)
        if rng.random() < 0.25:
            source = rng.choice(stream["sources"])
            limits = rng.choice(
                [{"max_tokens": 300}, {"max_epochs": 0}, {"on_exhausted": "stop", "max_epochs": 2}]
            )
            stage.setdefault("limits", {})[source["name"]] = limits
        if rng.random() < 0.1:
            stage["spread"] = rng.choice([1, 2, 9])
        if stage.get("ramp", 0) > 0 and stage is stream["stages"][-1] and rng.random() < 0.5:
            stage["ramp"] = rng.choice([1, 2000, 2**53 - 1])
    stream["stages"][0]["deal"] = rng.choice([stream["stages"][0]["deal"], random_deal(rng), None])
    if rng.random() < 0.2:
        stream["block_documents"] = k * rng.choice([1, 3, 5, 70])
        stream["window_blocks"] = rng.choice([1, 2, 7, 1000])
    if rng.random() < 0.1:
        stream["seed"] = rng.choice([0, 2**32 - 1, 2**63, 2**64 - 1])
    if rng.random() < 0.2:
        stream["tokenizer"] = rng.getrandbits(128)
    if rng.random() < 0.15:
        stream["skip"] = sorted({*stream["skip"], *range(rng.randint(0, 9), rng.randint(10, 20))})


def let_rows_age(rng, stream):
    """best_fit: enough full pieces that an open row is closed for its age, in 200 rows."""
    L = stream["stages"][0]["seq_len"]
    stream["stages"][0] |= {"packing": "best_fit", "window": rng.choice([1, 2]), "spread": 2}
    stream["stages"][0]["fill"] = rng.choice(["pad", "split"])
    stream["stages"][0]["deal"] = None
    source = stream["sources"][0]
    whole = max(1, L - (stream["bos_id"] is not None) - (stream["eos_id"] is not None))
    source["lengths"] = [1] + [whole] * rng.randint(62, 65) + [1, 1] + [whole] * 70 + [1, 1]
    stream["shuffle"] = rng.choice(["none", "document"])
    source["atomic"] = 0
    for name in ("spans", "columns", "select", "repeat", "max_tokens"):
        source.pop(name, None)
    if stream["group"] > 1:
        source["lengths"] += [1] * (-len(source["lengths"]) % stream["group"])
    stream["stages"] = stream["stages"][:1]
    stream["stages"][0]["weight"] = {source["name"]: 1}
    stream["rows"] = 200


def add_documents(rng, stream):
    """Enough that the default of max_docs_per_row takes a sample."""
    L = stream["stages"][0]["seq_len"]
    grow(rng, stream["sources"][0], stream["group"], L, 5000 // stream["group"])
    stream["stages"][0].pop("max_docs_per_row", None)


def fix_concat(stream):
    """A stage has no spread where the packing in force is `concat`."""
    packing = None
    for stage in stream["stages"]:
        packing = stage.get("packing", packing)
        if packing == "concat":
            stage.pop("spread", None)


def rich_stream(rng):
    """One of the streams of stream2_random.py with more features."""
    stream = random_stream(rng, plain=rng.random() < 0.25)
    stream["records"] = []
    if rng.random() < 0.4:
        scale(rng, stream)
    if rng.random() < 0.2:
        add_sources(rng, stream, rng.choice([2, 6, 15]))
    if rng.random() < 0.1:
        rename(rng, stream)
    if rng.random() < 0.04:
        let_rows_age(rng, stream)
    vary(rng, stream)
    fix_concat(stream)
    if rng.random() < 0.01:
        add_documents(rng, stream)
    if rng.random() < 0.15:
        add_faults(rng, stream)
    if rng.random() < 0.4:
        add_weights(rng, stream)
    if rng.random() < 0.3:
        add_growth(rng, stream, {})
    if rng.random() < 0.2:
        add_limits(rng, stream)
    for source in stream["sources"]:
        source["sampled"] = prints_of(source["name"])
        if rng.random() < 0.3:
            source["full"] = prints_of(source["name"] + " full")
    return stream


# ---- Edits between two starts --------------------------------------------------------------------


def edit_stream(rng, stream, g):
    """A copy of the stream with edits, the accepted weights or None, and the names of the edits."""
    edited = pickle.loads(pickle.dumps(stream))  # deepcopy takes half of the time of a whole case
    weights, done = None, []
    for _ in range(rng.choice([1, 1, 2, 3])):
        kind = rng.choice(EDITS)
        if kind is edit_weights:
            weights = kind(rng, edited, g)
        else:
            kind(rng, edited, g)
        done.append(kind.__name__)
    return edited, weights, done


def edit_growth(rng, stream, g):
    source = rng.choice(stream["sources"])
    grow(rng, source, stream["group"], stream["stages"][0]["seq_len"], rng.randint(1, 4))


def edit_limits(rng, stream, g):
    source = rng.choice(stream["sources"])
    source["max_epochs"] = rng.choice([0, 1, 2, 5])
    source["max_tokens"] = rng.choice([0, 10, 100, 10000])
    source["on_exhausted"] = rng.choice(["continue", "stop"])


def edit_weights(rng, stream, g):
    names = [source["name"] for source in stream["sources"]]
    return {name: rng.choice([0, 1, 2, 5]) for name in names[1:]} | {names[0]: rng.randint(1, 3)}


def edit_skips(rng, stream, g):
    stream["skip"] = sorted({*stream["skip"], *(g + rng.randint(0, 9) for _ in range(3))})


def edit_job(rng, stream, g):
    """A deal that is begun keeps the job and the cost that it began with."""
    stream["job"], stream["cost"] = random_job(rng), rng.choice([{}, {"K": 11}])


def edit_past_skips(rng, stream, g):
    stream["skip"] = sorted({*stream["skip"], rng.randint(0, 20)})


def edit_future(rng, stream, g):
    """Other stages from a row at or after g."""
    row = g + rng.choice([0, 0, 1, 4, 9])
    names = [source["name"] for source in stream["sources"]]
    stages = [stage for stage in stream["stages"] if stage["from"] < row or stage["from"] == 0]
    stages.append({"from": max(row, 1, stages[-1]["from"] + 1)})
    stages[-1] |= rng.choice([{}, {"deal": random_deal(rng)}])
    ramps = [stage["from"] + stage.get("ramp", 0) for stage in stages]
    if max(ramps) <= stages[-1]["from"] and rng.random() < 0.5:
        weight = {name: rng.choice([0, 1, 3]) for name in names} | {names[0]: 1}
        stages[-1] |= {"weight": weight, "ramp": rng.choice([0, 10])}
    if rng.random() < 0.3:
        stages[-1]["limits"] = {rng.choice(names): {"max_epochs": rng.choice([0, 4])}}
    stream["stages"] = stages
    stream["records"] = [r for r in stream["records"] if r["from"] < row]


def edit_past(rng, stream, g):
    """Refused where the stage is begun."""
    stage = rng.choice(stream["stages"])
    if "weight" in stage:
        first = stream["sources"][0]["name"]
        stage["weight"] = {**stage["weight"], first: stage["weight"].get(first, 0) + 1}


def edit_order(rng, stream, g):
    rng.shuffle(stream["sources"])


def edit_new_source(rng, stream, g):
    """It joins at the next stage that sets weights."""
    L = stream["stages"][0]["seq_len"]
    source = random_source(rng, "new", stream["group"], L, True)
    source["sampled"] = prints_of("new")
    if all(own["name"] != "new" for own in stream["sources"]):
        stream["sources"].insert(rng.randint(0, len(stream["sources"])), source)
    for stage in stream["stages"]:
        if "weight" in stage and stage["from"] >= g > 0:
            stage["weight"]["new"] = 2


def remove_last(source, documents):
    del source["lengths"][-documents:]


def edit_fixed(rng, stream, g):
    """Refused."""
    rng.choice(
        [
            lambda: stream.update(seed=stream["seed"] ^ 1),
            lambda: stream.update(label_across_cuts=1 - stream["label_across_cuts"]),
            lambda: stream["sources"][0].update(sampled=prints_of("other")),
            lambda: stream["sources"][0].update(select="document >= 0"),
            lambda: remove_last(stream["sources"][0], stream["group"]),
        ]
    )()


EDITS = [
    edit_job, edit_growth, edit_growth, edit_limits, edit_limits, edit_weights, edit_skips,
    edit_past_skips, edit_future, edit_future, edit_past, edit_order, edit_new_source, edit_fixed,
]  # fmt: skip
