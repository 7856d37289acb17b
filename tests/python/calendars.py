# SPDX-License-Identifier: Apache-2.0
"""Draws calendars of stream version 2 for configs that campaigns have drawn: stages, limits, skips,
selection, groups, inserted tokens, places inside rows, and the order of rows."""

PACKINGS = ["lookahead", "concat", "best_fit"]
BOS, EOS = 49998, 49997  # no token of a corpus, and below the limit of u16


def draw_source(draw, source, group, seq_len):
    """The keys of a source of version 2. With a limit the stream still has an end."""
    source = {key: value for key, value in source.items() if key != "weight"}
    source["weight"] = draw([0, 1, 1, 2.5, 7])
    source["max_epochs"] = draw([1, 2, 12, 60])
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


def draw_packing(draw, group):
    packing = draw(PACKINGS)
    changes = {"packing": packing}
    if packing != "concat":
        changes |= {"window": draw([2, 4, 16, 64]), "fill": draw(["pad", "split"])}
        changes |= {"spread": draw([1, 2, 8, 64])}
    return changes | {"max_docs_per_row": group * draw([2, 4, 16])}


def draw_deal(draw, step):
    tier = draw([n for n in (1, 2, 3, 4, 6, 12, 24) if step % n == 0])
    bundle = draw([n for n in (1, 2, 3) if tier % n == 0])
    deal = {"window": step * draw([1, 2, 4]), "step": step, "tier": tier, "bundle": bundle}
    deal |= {"order": draw(["descending", "middle", "wave", "late_wave"]), "cost": draw([1, 64, 4096])}
    layers = {"attention_window": 32, "window_layers": 2, "layers": 3}
    return draw(["off", deal, deal, {**deal, **layers}])


def draw_stages(generator, names, group, step):
    """Up to four stages; their rows are whole steps, and a ramp ends before the next weights."""
    draw = generator.choice
    stages, ends, steps = [{}], 0, 0
    for _ in range(draw([0, 1, 2, 3])):
        steps += draw([1, 2, 5, 9, 40])
        stages[-1]["until"] = f"{steps} steps"
        stage = {}
        if steps * step >= ends and draw([True, True, False]):
            weights = {name: draw([0, 1, 3, 5.5]) for name in names}
            stage["weights"] = weights if any(weights.values()) else {names[0]: 1}
            stage["ramp"] = draw([0, step, 3 * step])
            ends = steps * step + stage["ramp"]
        if draw([True, False]):
            stage |= draw_packing(draw, group)
        if draw([True, False, False]):
            stage["deal"] = draw_deal(draw, step)
        if draw([True, False, False]):
            stage["limits"] = {draw(names): {"max_epochs": draw([2, 14, 61])}}
        stages.append(stage)
    return stages


def draw_skip(draw):
    first = draw([1, 3, 10, 17])  # row 0 is left, so that a short stream has a row
    rows = {"rows": [f"{first}-{first + draw([1, 5, 20])}"]}
    return draw([{}, {"steps": [draw([1, 2, 3])]}, rows])


def with_calendar(generator, config):
    """The same config as a stream of version 2 with a calendar. Its sources must have names."""
    draw = generator.choice
    of_version_1 = ("lanes", "packing", "window", "fill", "max_docs_per_row", "num_epochs")
    config = {key: value for key, value in config.items() if key not in of_version_1}
    step = config.setdefault("global_batch_size", config["batch_size"])
    group = draw([1, 1, 1, 2, 3])
    if group > 1:
        config |= {"group": group, "long_doc": "split", "seq_len": 2048}
    seq_len = config["seq_len"]
    sources = [draw_source(draw, source, group, seq_len) for source in config["sources"]]
    if not any(source["weight"] for source in sources):
        sources[0]["weight"] = 1
    names = [source["name"] for source in sources]
    config |= {"stream_version": 2, "sources": sources, **draw_packing(draw, group)}
    if config.get("shuffle") == "block":
        config["block_documents"] = group * draw([2, 4])
    config |= draw([{}, {}, {"bos_id": BOS}, {"eos_id": EOS}, {"bos_id": BOS, "eos_id": EOS}])
    config |= {"align": draw([n for n in (1, 1, 2, 4) if seq_len % n == 0])}
    if config.get("profile", "full") in ("full", "min"):
        config["label_across_cuts"] = draw([False, True])
    config["deal"] = draw_deal(draw, step)
    stages = draw_stages(generator, names, group, step)
    if len(stages) > 1:
        config["stages"] = stages
    if skip := draw_skip(draw):
        config["skip"] = skip
    return config
