# SPDX-License-Identifier: Apache-2.0
"""Random small streams of version 2, for the tests of the oracle."""


def random_source(rng, name, k, L, plain):
    documents = k * rng.randint(3, 25)
    lengths = [rng.choice([1, 2, 3, 5, rng.randint(1, 3 * L)]) for _ in range(documents)]
    source = {"name": name, "lengths": lengths, "sampled": rng.getrandbits(64)}
    source |= {"max_epochs": rng.choice([1, 1, 2, 3]), "too_long": rng.choice(["drop", "truncate"])}
    if k > 1:
        source["lengths"] = [rng.choice([1, 2, 3, rng.randint(1, L)]) for _ in lengths]
        source["too_long"] = "drop"
    if plain:
        return source
    if rng.random() < 0.4:
        source["columns"] = {"score": {"values": [rng.randint(0, 5) for _ in lengths]}}
        source["columns"]["score"]["values"][0] = 5
        source["select"] = rng.choice(["score >= 2", "not score in (0, 1) or fraction < 0.5"])
        source["repeat"] = rng.choice([{}, {2: "score >= 4"}, {2: "score > 3", 3: "score == 5"}])
    source["atomic"] = rng.choice([0, 0, 1])
    if rng.random() < 0.3:
        source["spans"] = [random_spans(rng, n) for n in source["lengths"]]
        source["drop_untrained"] = rng.choice(["none", "document", "fragment"])
    if rng.random() < 0.3:
        source["max_tokens"] = rng.randint(1, 80)
        source["on_exhausted"] = rng.choice(["continue", "stop"])
    return source


def random_spans(rng, n):
    places = sorted(rng.sample(range(1, n + 1), min(n, rng.choice([0, 2, 2, 4])) // 2 * 2))
    return [list(pair) for pair in zip(places[::2], places[1::2])]


def random_deal(rng):
    bundle = rng.choice([1, 2])
    tier = bundle * rng.choice([1, 2])
    step = tier * rng.choice([1, 2, 3])
    deal = {"bundle": bundle, "tier": tier, "step": step, "window": step * rng.choice([1, 2])}
    orders = ["descending", "middle", "wave", "late_wave"]
    deal |= {"order": rng.choice(orders), "K": rng.choice([1, 4, 100])}
    of_job = [{}, {"order": "descending"}, {"K": 3}, {"window": 12}, {"tier": 1}, {"bundle": 1}]
    return rng.choice([None, deal, {**deal, "w": 4, "h": 2, "b": 4}, rng.choice(of_job)])


def random_job(rng):
    """Rows of a step, of a micro-step and of a batch."""
    batch = rng.choice([1, 2])
    micro_step = batch * rng.choice([1, 2])
    return [micro_step * rng.choice([1, 2, 3]), micro_step, batch]


def random_parameters(rng, k, a):
    packing = rng.choice(["lookahead", "concat", "best_fit"])
    parameters = {"packing": packing, "deal": random_deal(rng)}
    if packing != "concat":
        parameters |= {"window": rng.randint(1, 5), "spread": rng.randint(1, 4)}
        parameters["fill"] = rng.choice(["pad", "split"])
    D = k * rng.randint(1, 4) if rng.random() < 0.5 else None
    parameters |= {"seq_len": max(a, k) * rng.randint(2, 4), "align": a}
    if D is not None:
        parameters["max_docs_per_row"] = min(D, parameters["seq_len"])
    return parameters


def random_weights(rng, names):
    weights = {name: rng.choice([0, 1, 2, 3.5, 10]) for name in names}
    return weights if any(weights.values()) else {names[0]: 1}


def random_stream(rng, plain=False):
    """plain: nothing is selected, limited, dropped or left out."""
    k = 1 if plain else rng.choice([1, 1, 1, 2])
    a = rng.choice([1, 1, 4])
    stream = {"seed": rng.getrandbits(64), "shuffle": rng.choice(["none", "document", "block"])}
    stream |= {"block_documents": 2 * k, "window_blocks": rng.randint(1, 3), "group": k}
    stream |= {"long_doc": "split" if plain else rng.choice(["split", "split", "truncate", "drop"])}
    stream |= {"bos_id": rng.choice([None, 1]), "eos_id": rng.choice([None, 2])}
    stream |= {"label_across_cuts": rng.choice([0, 1])}
    names = ["web", "code", "maths"][: rng.randint(1, 3)]
    first = random_parameters(rng, k, a)
    stream["sources"] = [random_source(rng, n, k, first["seq_len"], plain) for n in names]
    stream["stages"] = [{"from": 0, "weight": random_weights(rng, names), **first}]
    row, ramp_ends = 0, 0
    for _ in range(rng.randint(0, 3)):
        row += rng.randint(1, 6)
        stage, changes = {"from": row}, random_parameters(rng, k, a)
        if changes["packing"] != "concat" and rng.random() < 0.7:
            stage |= changes
        elif rng.random() < 0.5:
            stage["deal"] = changes["deal"]
        if row >= ramp_ends and rng.random() < 0.6:
            stage["weight"] = random_weights(rng, names)
            stage["ramp"] = rng.choice([0, 0, 6, 20])
            ramp_ends = row + stage["ramp"]
        if not plain and rng.random() < 0.4:
            stage["without"] = {names[0]: sorted(rng.sample(range(k, 6), 2))}
            stage["limits"] = {names[-1]: {"max_epochs": rng.randint(2, 4)}}
        stream["stages"].append(stage)
    stream["skip"] = rng.sample(range(40), rng.choice([0, 0, 5]))
    stream["job"] = random_job(rng)
    stream["cost"] = rng.choice([{}, {"K": 5}, {"K": 5, "w": 3, "h": 1, "b": 2}])
    return stream
