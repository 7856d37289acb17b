# SPDX-License-Identifier: Apache-2.0
"""Section 14 of engine/plan/STREAM2.md, written only from that page: the stream contract."""

import re

import xxhash
from stream2_state import ranges_of


def value_of_name(name):
    """Printable ASCII without a backslash stays."""
    escaped = re.sub(rb"[^\x20-\x5b\x5d-\x7e]", lambda m: b"\\%02x" % m[0][0], name.encode())
    return escaped.decode()


def source_fields(calendar, name, documents):
    source = calendar.sources[name]
    yield "name=", value_of_name(name)
    yield "atomic=", source.too_long if source.atomic else "no"
    yield "drop_untrained=", source.drop_untrained
    yield "range=", "%d-%s" % (source.first, "" if source.end is None else source.end)
    yield "sampled=", "%016x" % source.fingerprint("sampled", documents)
    full = source.fingerprint("full", documents)
    if full != 0:
        yield "full~", "%016x" % full
    yield "selection=", "%016x" % source.selection(documents)


def stage_lines(calendar, stage):
    """With the limits of sources that join."""
    limits = dict(stage.get("limits", {}))
    for name in calendar.joining(stage["from"]):
        if not joined_before(calendar, name, stage["from"]):
            limits[name] = calendar.limits_of_config(stage["from"])[name]
    return calendar.declared_lines({**stage, "limits": limits}, limits=True)


def joined_before(calendar, name, q):
    return any(name in calendar.weights_set(row) for row in calendar.rows() if row < q)


def stream_contract(plan):
    stream, calendar, lines = plan.stream, plan.calendar, ["stream_version=2\n"]
    block = stream["shuffle"] == "block"
    fields = {"seed": stream["seed"], "shuffle": stream["shuffle"]}
    fields["group"] = stream.get("group", 1)
    fields["long_doc"] = stream["long_doc"] if fields["group"] == 1 else "split"
    fields["label_across_cuts"] = stream.get("label_across_cuts", 0)
    for name in ("block_documents", "window_blocks"):
        fields[name] = stream[name] if block else 0
    for name in ("bos_id", "eos_id"):
        fields[name] = "none" if stream.get(name) is None else stream[name]
    lines += ["%s=%s\n" % field for field in fields.items()]
    if stream.get("tokenizer", 0):
        lines.append("tokenizer~%032x\n" % stream["tokenizer"])
    newest = calendar.in_force(2**63).documents
    for name, j in calendar.numbers.items():
        for field, value in source_fields(calendar, name, newest[name]):
            lines.append("source[%04d].%s%s\n" % (j, field, value))
    for i, pair in enumerate(ranges_of(plan.skip)):
        lines.append("skip[%04d]=%d-%d\n" % (i, *pair))
    for i, stage in enumerate(calendar.declared):
        lines += ["stage[%04d].%s" % (i, line) for line in stage_lines(calendar, stage)]
    for i, record in enumerate(sorted(calendar.records, key=lambda record: record["from"])):
        lines += ["record[%04d].%s" % (i, line) for line in calendar.lines(record)]
    return "".join(sorted(lines, key=lambda line: re.split("[=~:]", line)[0]))


def identity(plan):
    return "%032x" % xxhash.xxh3_128_intdigest(stream_contract(plan).encode("ascii"))
