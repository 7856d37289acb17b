# SPDX-License-Identifier: Apache-2.0
"""Draws streams of version 2 with a calendar, for all random tests and campaigns: stages, growth,
sources that join, selection, limits, skips, deals, sizes of steps and batches.

random_stream, everything: streams for the oracle, as Stream2. of_inputs: the same, with packing and
order given (every_row.py, test_cube.py). with_calendar: the config of a campaign (`kills`).
Stages and deals are drawn in the oracle's words; stream2_kit.py writes them into a config."""

import collections

from stream2_kit import Stream2, deal_keys, stages_config
from stream_oracle import SIZE_KEYS

BOS, EOS = 49998, 49997  # no token of a corpus, and below the limit of u16
ORDERS = ["descending", "middle", "wave", "late_wave"]
SMALL = {"documents": [3, 8], "window": [1, 4, 9], "spread": [1, 3, 8]}
LARGE = {"documents": [2, 4, 16], "window": [2, 4, 16, 64], "spread": [1, 2, 8, 64]}
STEPS = [8, 16, 24, 32]  # sizes of steps

drawn = collections.Counter()  # how often each dimension was drawn


def divisors(number, most):
    return [n for n in range(1, most + 1) if number % n == 0]


# ---- parts ---------------------------------------------------------------------------------------


def random_parameters(rng, group, sizes=SMALL):
    packing = rng.choice(["lookahead", "lookahead", "best_fit", "concat"])
    own = {"packing": packing, "max_docs_per_row": group * rng.choice(sizes["documents"])}
    if packing != "concat":
        own |= {"window": rng.choice(sizes["window"]), "fill": rng.choice(["pad", "split"])}
        own["spread"] = rng.choice(sizes["spread"])
    return own


def random_deal(rng, step):
    deal = {"window": step * rng.choice([1, 2, 4]), "step": step, "tier": step // 2}
    deal |= {"bundle": rng.choice([1, step // 4]), "order": rng.choice(ORDERS)}
    return {**deal, "K": rng.choice([4, 60])}


def any_deal(rng, step):
    """Off, or of the step's divisors; a part that is left out becomes a record."""
    tier = rng.choice(divisors(step, 24))
    deal = {"window": step * rng.choice([1, 2, 4]), "step": step, "tier": tier}
    deal |= {"bundle": rng.choice(divisors(tier, 3)), "order": rng.choice(ORDERS)}
    of_job = rng.choice([deal, {"step": step, "tier": tier}])
    deal |= {"K": rng.choice([1, 64, 4096])}
    return rng.choice([None, deal, of_job, {**deal, "w": 32, "h": 2, "b": 3}])


def random_weights(rng, names):
    weights = {name: rng.choice([0, 1, 3, 5.5]) for name in names}
    return weights if any(weights.values()) else {names[0]: 1}


def random_stages(rng, names, step, lengths, counts, epochs=(2, 14, 61)):
    """Each but the first: its rows are whole steps, and a ramp ends before the next weights."""
    stages, ends, at = [{}], 0, 0
    for _ in range(rng.choice(counts)):
        at += rng.choice(lengths)
        stages[-1]["until"] = rng.choice([("steps", at), ("row", at * step)])
        stage = {}
        if at * step >= ends and rng.random() < 0.7:
            stage |= {"weight": random_weights(rng, names), "ramp": step * rng.choice([0, 1, 3])}
            ends = at * step + stage["ramp"]
        if rng.random() < 0.3:
            stage["deal"] = any_deal(rng, step)
        if rng.random() < 0.3:
            stage["limits"] = {rng.choice(names): {"max_epochs": rng.choice(epochs)}}
        stages.append(stage)
    return stages


def random_skip(rng):
    first = rng.choice([1, 3, 10, 17])  # row 0 is left, so that a short stream has a row
    rows = {"rows": [f"{first}-{first + rng.choice([1, 5, 20])}"]}
    return rng.choice([{}, {"steps": [rng.choice([1, 2, 3])]}, rows])


# ---- growth, and sizes of steps ------------------------------------------------------------------


def add_growth(rng, stages, ends, group=1):
    """Sources begin with the documents of their first shards, and take more shards at
    stages. `ends`: of each source the documents up to the end of each shard. A source that joins
    later has all."""
    now = {}
    for number, stage in enumerate(stages):
        own = {}
        for name, shards in ends.items():
            more = [n for n in shards if n % group == 0 and n > now.get(name, 0)]
            joins = number == 0 and stage["weight"].get(name)
            if more and (joins or name in now) and rng.random() < 0.6:
                own[name] = now[name] = more[0] if joins else rng.choice(more)
        if own:
            stage["documents"] = own
            drawn["growth"] += number > 0
    return stages


def add_sizes(rng, stages):
    """Other rows in a step from some stages on. Stages end after a number of steps."""
    for stage in stages[1:]:
        if rng.random() < 0.6:
            stage["global_batch_size"] = rng.choice(STEPS)
            drawn["sizes"] += 1
    return stages


def batches_of_stages(rng, stages, world, most=8):
    """The stages with batch_size: for a job of so many ranks."""
    found, step, rows = [], None, None
    for stage in stages:
        step = stage.get("global_batch_size", step)
        own = divisors(step // world, most)
        if rows not in own or rng.random() < 0.5:
            rows = rng.choice(own)
        found.append({**stage, "batch_size": rows})
    return found


def ends_of(corpus, names):
    """Documents up to the end of each shard, of the sources with several shards."""
    found = {}
    for name, counts in zip(names, corpus.counts):
        if len(counts) > 1:
            found[name] = [sum(counts[: n + 1]) for n in range(len(counts))]
    return found


# ---- streams for the oracle ----------------------------------------------------------------------


def random_sources(rng, names, seq_len, group, counts):
    found = []
    for name, count in zip(names, counts):
        source = {"name": name}
        if group > 1:
            source["too_long"] = "drop"
        elif rng.random() < 0.3:
            source |= {"atomic": 1, "too_long": rng.choice(["drop", "truncate"])}
        if rng.random() < 0.35:
            source["select"] = rng.choice(
                ["length >= 3", "fraction < 0.8", "document != 4 and not length < 2"]
            )
        if rng.random() < 0.25:
            source["repeat"] = {2: f"length > {seq_len // 2}"}
        first = group * rng.choice([0, 0, 1])
        if rng.random() < 0.4:
            source["documents"] = [first, rng.choice([None, count - group])]
        source["max_epochs"] = rng.choice([1, 2, 3])
        if rng.random() < 0.3:
            source["max_tokens"] = rng.choice([300, 900])
        source["on_exhausted"] = rng.choice(["continue", "continue", "stop"])
        found.append(source)
    return found


def random_stream(rng, corpus, counts, step=8):
    """Three stages; the last one has rows of another seq_len."""
    group = rng.choice([1, 1, 1, 2])
    align, seq_len = rng.choice([(1, 32), (1, 48), (4, 40), (2, 32)])
    names = [f"s{n}" for n in range(len(counts))]
    keys = {"seed": rng.getrandbits(64), "shuffle": rng.choice(["document", "block", "none"])}
    keys |= {"block_documents": 4, "window_blocks": 2, "group": group}
    long_doc = rng.choice(["split", "split", "truncate", "drop"])
    keys |= {"long_doc": "split" if group > 1 else long_doc}
    keys |= {"bos_id": rng.choice([None, 40001]), "eos_id": rng.choice([None, 40002])}
    keys["label_across_cuts"] = rng.choice([0, 1])
    sources = random_sources(rng, names, seq_len, group, counts)
    weight = {name: rng.choice([1, 2, 0.5]) for name in names}
    if len(names) > 2:
        weight[names[-1]] = 0
    first = {"from": 0, "seq_len": seq_len, "align": align, "weight": weight, "spread": 64}
    first |= {"global_batch_size": step, "until": ("steps", rng.choice([2, 3]))}
    first |= random_parameters(rng, group)
    if rng.random() < 0.5:
        first["deal"] = random_deal(rng, step)
    second = {"weight": {name: rng.choice([1, 3]) for name in names}, "ramp": rng.choice([0, 10])}
    if rng.random() < 0.6:
        second |= random_parameters(rng, group)
    if rng.random() < 0.5:
        second["deal"] = rng.choice([None, random_deal(rng, step)])
    if rng.random() < 0.4:
        second["limits"] = {names[0]: {"max_epochs": 4, "on_exhausted": "continue"}}
    second["until"] = ("steps", first["until"][1] + rng.choice([2, 3]))
    third = {"seq_len": 2 * seq_len}
    if second.get("packing", first["packing"]) == "concat" and rng.random() < 0.5:
        third |= {"packing": "lookahead", "window": 5, "fill": "split"}
    skip = set()
    if rng.random() < 0.7:
        skip |= {*range(step, 2 * step), *range(3 * step + 2, 3 * step + 5)}
    return Stream2(corpus, keys, sources, [first, second, third], skip)


def everything(rng, corpus):
    """random_stream with growth, sources that join, and sizes of steps; half of them have one
    seq_len. The first source has no range, and documents from the first shard on."""
    made = random_stream(rng, corpus, [sum(counts) for counts in corpus.counts])
    stages, sources = [dict(stage) for stage in made.stages], made.sources
    names = [source["name"] for source in sources]
    sources[0].pop("documents", None)
    if rng.random() < 0.5:
        del stages[2]["seq_len"]
    if rng.random() < 0.4 and len(names) > 1:
        stages[0]["weight"] = {**stages[0]["weight"], names[-1]: 0}
    drawn["sources that join"] += 0 in stages[0]["weight"].values()
    grows = [source["name"] for source in sources if "documents" not in source]
    ends = {name: own for name, own in ends_of(corpus, names).items() if name in grows}
    add_growth(rng, stages, ends, made.keys["group"])
    drawn["selections"] += any("select" in source or "repeat" in source for source in sources)
    drawn["deals"] += any(stage.get("deal") is not None for stage in stages)
    drawn["skips"] += bool(made.skip)
    keys = {**made.keys, "grow": False}
    return made.changed(keys=keys, sources=sources, stages=add_sizes(rng, stages))


def of_inputs(rng, corpus, inputs, unit=12):
    """A calendar of the packing and order in `inputs`, as of a stream of version 1. Stages begin at
    multiples of `unit` rows, and rows have one length."""
    names = [source["name"] for source in corpus.sources]
    fixed = ("seed", "shuffle", "long_doc", "block_documents", "window_blocks")
    keys = {name: inputs[name] for name in fixed if name in inputs} | {"group": 1, "grow": False}
    keys |= {"bos_id": rng.choice([None, BOS]), "eos_id": rng.choice([None, EOS])}
    keys |= {"job": [1, 1, 1]}  # ranks of the first start
    sources = [{"name": name, "max_epochs": rng.choice([2, 3])} for name in names]
    for source in sources:
        source |= rng.choice([{}, {"select": "fraction < 0.7 or document in (0, 1, 2)"}])
        source |= rng.choice([{}, {"repeat": {2: "length > 30", 3: "document == 1"}}])
        source["on_exhausted"] = "continue"
    first = {"from": 0, "seq_len": 48, "align": rng.choice([1, 1, 4])}
    first |= {"spread": rng.choice([1, 2, 64]), "deal": any_deal(rng, unit)}
    given = ("packing", "window", "fill", "max_docs_per_row")
    first |= {name: inputs[name] for name in given if name in inputs}
    if first["packing"] == "concat":
        for name in ("window", "fill", "spread"):
            first.pop(name, None)
    first["weight"] = {source["name"]: source["weight"] for source in corpus.sources}
    if len(names) > 1 and rng.random() < 0.3:
        first["weight"][names[-1]] = 0
    stages = random_stages(rng, names, unit, [1], [1, 2, 2], epochs=[3])
    stages[0] = {**first, **stages[0], "global_batch_size": unit}
    for stage, number in zip(stages, range(1, len(stages))):
        stage["until"] = ("row", number * unit)  # steps of every topology reach it
    return Stream2(corpus, keys, sources, add_growth(rng, stages, ends_of(corpus, names)))


# ---- configs of a campaign -----------------------------------------------------------------------


def draw_source(rng, source, group, seq_len):
    """The keys of a source of version 2. With a limit the stream still has an end."""
    draw = rng.choice
    source = {key: value for key, value in source.items() if key != "weight"}
    source |= {"weight": draw([0, 1, 1, 2.5, 7]), "max_epochs": draw([1, 2, 12, 60])}
    if draw([False, False, True]):
        source["max_tokens"] = draw([500, 4000, 20000])
        source["on_exhausted"] = draw(["continue", "continue", "stop"])
    if group > 1:
        source |= {"documents": f"0-{84 // group * group}", "too_long": "drop"}
        return source
    if draw([False, False, True]):
        source |= {"atomic": True, "too_long": draw(["drop", "truncate"])}
    if draw([False, True]):
        short = f"length <= {2 * seq_len}"
        source["select"] = draw([short, "fraction < 0.8", "not document in (1, 3)"])
    if draw([False, False, True]):
        source["repeat"] = draw([{2: "length > 40"}, {2: "document < 9", 3: "document == 2"}])
    return source


def draw_stages(rng, config, group, step, ends):
    """As a config has them: up to four, with packings and growth."""
    names = [source["name"] for source in config["sources"]]
    stages = random_stages(rng, names, step, [1, 2, 5, 9, 40], [0, 1, 2, 3])
    for stage in stages[1:]:
        if rng.random() < 0.5:
            stage |= random_parameters(rng, group, LARGE)
    weight = {source["name"]: source["weight"] for source in config["sources"]}
    stages[0]["weight"] = weight
    present = {name: own for name, own in ends.items() if name in names and group == 1}
    add_growth(rng, stages, present)
    drawn["sources that join"] += len(stages) > 1 and 0 in weight.values()
    return stages_config(stages)


def with_calendar(rng, config, ends):
    """The same config as a stream of version 2 with a calendar. Its sources must have names; `ends`
    is as in add_growth. Lives of `verify` have steps of one size, so
    stages have no sizes; `lives` has them."""
    draw = rng.choice
    of_version_1 = "plan_partitions", "packing", *SIZE_KEYS.values(), "row_gap"
    of_version_1 += "max_docs_per_row", "num_epochs"
    config = {key: value for key, value in config.items() if key not in of_version_1}
    step = config.setdefault("global_batch_size", config["batch_size"])
    group = draw([1, 1, 1, 2, 3])
    if group > 1:
        config |= {"group": group, "long_doc": "split", "seq_len": 2048}
    seq_len = config["seq_len"]
    sources = [draw_source(rng, source, group, seq_len) for source in config["sources"]]
    if not any(source["weight"] for source in sources):
        sources[0]["weight"] = 1
    config |= {"stream_version": 2, "sources": sources, **random_parameters(rng, group, LARGE)}
    if config.get("shuffle") == "block":
        config["block_documents"] = group * draw([2, 4])
    config |= draw([{}, {}, {"bos_id": BOS}, {"eos_id": EOS}, {"bos_id": BOS, "eos_id": EOS}])
    config |= {"align": draw([n for n in (1, 1, 2, 4) if seq_len % n == 0])}
    if config.get("profile", "full") in ("full", "min"):
        config["label_across_cuts"] = draw([False, True])
    deal = any_deal(rng, step)
    config["deal"] = "off" if deal is None else deal_keys(deal)
    stages = draw_stages(rng, config, group, step, ends)
    if len(stages) > 1:
        config |= {"stages": stages, "grow": False}
    if skip := random_skip(rng):
        config["skip"] = skip
    return config
