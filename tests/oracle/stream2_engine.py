# SPDX-License-Identifier: Apache-2.0
"""Streams of version 2 through the engine (stream2_dump) and through the oracle, in one form."""

import json
import os
import subprocess

from stream2 import Plan
from stream2_calendar import (
    DEAL, FILL, LIMITS, LONG_DOC, ON_EXHAUSTED, ORDER, PACKING, SHUFFLE, Calendar, deal_of_job,
    reduce_weights, resolve_stage,
)  # fmt: skip
from stream2_contract import identity, stream_contract
from stream2_deal import cost_of_row
from stream2_planner import NoRow
from stream2_source import DROP_UNTRAINED, ORDERS, TOO_LONG
from stream2_state import NONE, ranges_of, resume, save_token

NO_ROW = 2**64 - 1

# ---- The spec in JSON ----------------------------------------------------------------------------


def word(number):
    """JSON integers of the engine's reader are signed."""
    return number if number < 2**63 else hex(number)


def source_json(calendar, source):
    entry, n = source.entry, source.documents_now()
    documents = range(n)
    prints = [
        [word(source.fingerprint("sampled", i)), word(source.fingerprint("full", i)),
         word(source.selection(i))]
        for i in range(n + 1)
    ]  # fmt: skip
    found = {
        "name": source.name,
        "lengths": [source.own(d) for d in documents],
        "range": [source.first, word(NO_ROW if source.end is None else source.end)],
        "is_percent": int(entry.get("is_percent", False)),
        "too_long": TOO_LONG[source.too_long] if source.atomic else 0,
        "drop_untrained": DROP_UNTRAINED[source.drop_untrained],
        "passes": source.R,
        "prints": prints,
        **limits_json({limit: entry.get(limit, value) for limit, value in LIMITS.items()}),
    }
    if source.parsed:
        found["counts"] = [source.count_of_document(d, set()) for d in documents]
    if source.masked:
        found["spans"] = [source.own_spans(d) for d in documents]
    return found


def limits_json(limits):
    return {k: ON_EXHAUSTED[v] if k == "on_exhausted" else word(v) for k, v in limits.items()}


def deal_json(deal):
    if deal is None:
        return None
    return [ORDER[deal[name]] if name == "order" else deal[name] for name in DEAL]


def stage_json(stage, stream):
    names = [entry["name"] for entry in stream["sources"]]
    bits = {"max_epochs": 1, "max_tokens": 2, "on_exhausted": 4}
    place = {name: j for j, name in enumerate(names)}
    found = {"from": stage["from"]}
    for name in "seq_len align window spread max_docs_per_row ramp".split():
        if name in stage:
            found[name] = stage[name]
    for name, words in (("packing", PACKING), ("fill", FILL)):
        if name in stage:
            found[name] = words[stage[name]]
    if "deal" in stage:
        found["deal"] = deal_json(stage["deal"])
    if "job_deal" in stage:
        found["job_deal"] = deal_json(deal_of_job(stage["job_deal"], stream))
    if "weight" in stage:
        found["weight"] = [stage["weight"].get(name, 0) for name in names]
    found["limits"] = [
        [place[name], sum(bits[limit] for limit in limits), limits_json(limits)]
        for name, limits in (stage.get("limits") or stage.get("limits_before", {})).items()
    ]
    found["without"] = [
        [place[name], sorted(set(own))] for name, own in stage.get("without", {}).items()
    ]
    found["documents"] = [[place[name], n] for name, n in stage.get("documents", {}).items()]
    return found


def declared_stages(stream):
    """As the calendar resolves them; without a calendar where it refuses them."""
    try:
        return Calendar({**stream, "records": []}).declared
    except ValueError:
        return [resolve_stage(stage, False) for stage in stream["stages"]]


def stream_json(stream):
    calendar = Bare(stream)
    block = stream["shuffle"] == "block"
    k = stream.get("group", 1)
    found = {name: word(int(stream[name])) for name in ("seed",)}
    found |= {"shuffle": SHUFFLE[stream["shuffle"]], "group": k}
    found |= {"long_doc": LONG_DOC[stream["long_doc"]]}
    for name in ("block_documents", "window_blocks"):
        found[name] = stream[name] if block else 0
    for name in ("bos_id", "eos_id"):
        found[name] = NONE if stream.get(name) is None else stream[name]
    found["label_across_cuts"] = stream.get("label_across_cuts", 0)
    found["tokenizer"] = "%032x" % stream.get("tokenizer", 0)
    found["sources"] = [source_json(calendar, source) for source in calendar.sources.values()]
    found["stages"] = [stage_json(stage, stream) for stage in declared_stages(stream)]
    found["records"] = [stage_json(record, stream) for record in stream.get("records", [])]
    found["skips"] = ranges_of(stream.get("skip", []))
    return found


class Bare(Calendar):
    """Only its sources."""

    def __init__(self, stream):
        super().__init__(
            {**stream, "records": [], "stages": [{"from": 0, "packing": "concat"}]}
        )


# ---- The engine ----------------------------------------------------------------------------------


class Engine:
    """A process of stream2_dump, which is started again after a crash."""

    def __init__(self, dump):
        self.dump, self.process = dump, None

    def answer(self, job):
        if self.process is None:
            self.process = subprocess.Popen(
                [self.dump], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self.process = None
            return {"error": "stream2_dump ended with status %d" % status, "crashed": True}
        return json.loads(line)

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.stdout.close()
            status, self.process = self.process.wait(), None
            if status != 0:  # for instance of a sanitizer that found a leak
                raise RuntimeError("stream2_dump ended with status %d" % status)

    def run(self, stream, rows, token=None, records=None, weights=None, grow=True):
        job = {"stream": stream_json(stream), "rows": rows, "grow": int(grow)}
        if token is not None:
            job["token"] = token
        if records is not None:
            job["records"] = records
        if weights is not None:
            reduced = reduce_weights(weights)
            names = [entry["name"] for entry in stream["sources"]]
            job["weights"] = [reduced.get(name, 0) for name in names]
        return self.answer(job)


def default_dump(suffix=""):
    return os.path.join(os.environ.get("RP_BIN_DIR", "build/bin"), "stream2_dump" + suffix)


# ---- The oracle ----------------------------------------------------------------------------------


def oracle_run(stream, rows, token=None, records=(), weights=None, grow=True):
    """The answer of the engine, and the plan; `refused` if the stream cannot begin."""
    ORDERS.clear()
    try:
        if token is None:
            plan = Plan(stream)
        else:
            plan = resume(stream, bytes.fromhex(token), records, weights, grow)
    except (ValueError, NoRow, IndexError, KeyError) as refusal:  # an edited past
        return {"error": str(refusal)}, None
    found = {"contract": stream_contract(plan), "identity": identity(plan), "rows": []}
    while True:
        line = {"token": save_token(plan).hex(), "ledger": ledger_of(plan)}
        found["rows"].append(line)
        if len(found["rows"]) > rows:
            return found, plan
        try:
            row = plan.row()
        except (NoRow, ValueError) as refusal:
            found["error"] = str(refusal)
            return found, plan
        if row is None:
            line["end"] = True
            return found, plan
        line |= row_json(plan, row)


def ledger_of(plan):
    names = "planned waiting withheld delivered taken".split()
    return [[own[name] for name in names] for own in plan.ledger().values()]


def row_json(plan, row):
    now = plan.calendar.in_force(row.q)
    fragments = [] if row.skipped else [list(fragment) for fragment in row.fragments]
    found = {"g": row.g, "q": row.q, "skipped": row.skipped, "fragments": fragments}
    found["tokens"] = sum(fragment[3] for fragment in fragments)
    if not row.skipped:
        places = [-(-fragment.length // now.align) * now.align for fragment in row.fragments]
        found["cost"] = 0 if now.deal is None else cost_of_row(now.deal, places)
    return found


def record_lines(contract, calendar, position):
    """The records of a contract that are begun at a position."""
    begun = sum(calendar.is_begun(record["from"], position) for record in calendar.records)
    lines = [line for line in contract.splitlines(True) if line.startswith("record[")]
    return "".join(line for line in lines if int(line[7:11]) < begun)
