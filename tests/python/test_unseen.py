# SPDX-License-Identifier: Apache-2.0
"""`unseen_of`: a new stream, of another seq_len and seed and from row 0, takes the documents that a
state has not used. Its rows are the oracle's (tests/oracle/stream2_unseen.py), and both streams
together begin each document once."""

import collections
import json
import struct
import subprocess

import pytest
from served_kit import STEP, Served, read, refusal, serve, stop_at
from stream2_kit import Stream2, records_of
from stream2_unseen import unseen
from stream_kit import Corpus, Engine, Ranks, write_state

SEED = 7300
SHAPE = (2, 2)
LAYOUT = [("megatron", "u16", 1, [30, 22]), ("raw", "u16", 1, [40])]
NAMES = ["web", "books"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return Corpus(tmp_path_factory.mktemp("layout"), LAYOUT, SEED, seq_len=24)


def stream_of(corpus, sources=None, names=NAMES, **changes):
    stage = {"from": 0, "seq_len": 32, "packing": "lookahead", "window": 4, "fill": "split"}
    stage |= {"weight": {names[0]: 2, names[1]: 1}, "max_docs_per_row": 6}
    keys = {"seed": 3, "shuffle": "document", "group": 1, "long_doc": "split"}
    keys |= {"bos_id": None, "eos_id": None}
    for name, value in changes.items():
        (keys if name in keys else stage)[name] = value
    stages = [{**stage, "global_batch_size": STEP}]
    return Stream2(corpus, keys, sources or [{"name": name} for name in names], stages).run()


def begun(stream, rows):
    """How often the given rows begin each document: [(source, document)]."""
    names = stream.plan.state_names()
    found = [f for row in rows for f in row.fragments if f.offset == 0]
    return collections.Counter((stream.places[names[f.source]], f.document) for f in found)


def each_once(corpus):
    return {
        (n, d): 1
        for n, documents in enumerate(corpus.documents)
        for d, tokens in enumerate(documents)
        if len(tokens)
    }


def sources_after(corpus, path, token, names=NAMES, had=NAMES):
    entries = [{"lengths": [len(d) for d in documents]} for documents in corpus.documents]
    found = []
    for name, old, entry in zip(names, had, entries):
        own = {"name": name, "unseen": unseen(token, old, entry), "unseen_of": path}
        found.append(own if name == old else {**own, "unseen_source": old})
    return found


OLD = [
    {"packing": "lookahead"},
    {"packing": "best_fit", "shuffle": "none", "fill": "pad", "bos_id": 40001},
    {"packing": "concat", "seq_len": 24, "window": None, "fill": None},
    {"packing": "lookahead", "seq_len": 64, "group": 2, "too_long": "drop"},
]


@pytest.mark.parametrize("number", range(len(OLD)))
def test_both_streams_begin_each_document_once(program, folder, corpus, number):
    changes = dict(OLD[number])
    too_long = changes.pop("too_long", None)
    own = {"too_long": too_long} if too_long else {}
    old = stream_of(corpus, [{"name": name, **own} for name in NAMES], **changes)
    rows = STEP if own else 2 * STEP
    _, token = stop_at(program, folder, old, SHAPE, rows)
    path = write_state(folder / "old.token", token)
    names = NAMES if number % 2 else ["web", "tales"]
    new = stream_of(
        corpus, sources_after(corpus, path, token, names), names, seed=11, seq_len=48, fill="pad"
    )
    served, saved = Served(new), {"checkpoint_dir": str(folder / "saved")}
    for is_last in False, True:  # it continues from a checkpoint
        engine = serve(program, folder, new, SHAPE, **saved)
        try:
            with Ranks(engine, SHAPE[0]) as ranks:
                first = served.states(ranks)
                read(ranks, served, SHAPE, None if is_last else STEP // 4)
                served.states(ranks)
            if not is_last:
                assert engine.stop() == 0, engine.log()
        finally:
            engine.kill()
    assert served.digest == new.digest
    for name, at in records_of(first).items():
        source = new.plan.calendar.sources[name]
        n = source.documents_now()
        assert struct.unpack_from("<Q", first, at + 16)[0] == source.selection(n)
    if own:  # groups that a row cannot hold are left out
        return
    assert begun(old, old.rows[:rows]) + begun(new, new.rows) == each_once(corpus)


def test_a_state_of_version_1(program, folder, corpus):
    """Its waiting documents are unseen; it has no names."""
    old = {"stream_version": 1, "seed": 5, "seq_len": 32, "batch_size": 4, "profile": "full"}
    old |= {"sources": [{**own, "name": name} for own, name in zip(corpus.sources, NAMES)]}
    served = collections.Counter()
    engine = Engine(program, folder, old)
    try:
        with Ranks(engine, 1) as ranks:
            for [batch] in ranks.turns(5):
                for info, parts in zip(batch["rows"].tolist(), batch["provenance"].tolist()):
                    served.update((s, d) for d, at, s, _ in parts[: info[1]] if at == 0)
            token = ranks.tokens()[0]
    finally:
        engine.kill()
    path = write_state(folder / "old.token", token)
    new = {**old, "stream_version": 2, "seed": 6, "seq_len": 64, "batch_size": 2}
    new["sources"] = [{**own, "unseen_of": path} for own in old["sources"]]
    engine = Engine(program, folder, new)
    try:
        with Ranks(engine, 1) as ranks:
            for [batch] in ranks.turns():
                for info, parts in zip(batch["rows"].tolist(), batch["provenance"].tolist()):
                    served.update((s, d) for d, at, s, _ in parts[: info[1]] if at == 0)
    finally:
        engine.kill()
    assert served == each_once(corpus)
    said = refused(program, folder, new, {"unseen_source": "web"})
    assert "unseen_source: a state of version 1 has no names" in said
    said = refused(program, folder, {**new, "sources": new["sources"][:1]}, {})
    assert "fingerprint of the whole corpus is" in said
    lanes = {**old, "plan_partitions": 2}
    engine = Engine(program, folder, lanes)
    try:
        with Ranks(engine, 1) as ranks:
            token = ranks.tokens()[0]
    finally:
        engine.kill()
    write_state(folder / "old.token", token)
    assert "the state has 2 lanes; it must have one" in refused(program, folder, new, {})


def refused(program, folder, config, change):
    config = json.loads(json.dumps(config))
    config["sources"][0] |= change
    return refusal(program, folder, config)


@pytest.fixture
def after(program, folder, corpus):
    """A config with unseen_of, and the file of its state."""
    old = stream_of(corpus, [{"name": "web", "select": "length > 4"}, {"name": "books"}])
    _, token = stop_at(program, folder, old, SHAPE, STEP)
    path = write_state(folder / "old.token", token)
    config = {**old.config(), "seed": 8, "seq_len": 64, "batch_size": 2, "dp_world_size": 2}
    for source in config["sources"]:
        source["unseen_of"] = path
    return config, token, path


def test_a_state_of_other_documents_is_refused(program, folder, after):
    config, token, path = after
    for change, message in (
        ({"documents": "0-20"}, "this run has 20"),
        ({"documents": "1-"}, "this run has 51"),
        ({"select": "length > 5"}, "the selection of source web is"),
        ({"name": "other"}, "the state has no source other"),
        ({"unseen_source": "books"}, "the documents of source books differ"),
        ({"unseen_of": str(folder)}, "found a directory"),
        ({"unseen_of": str(folder / "none")}, "no such file"),
        ({"unseen_of": __file__}, "found neither"),
    ):
        said = refused(program, folder, config, change)
        assert message in said and "next: " in said, said
    open(path, "wb").write(token[:60] + bytes([token[60] ^ 1]) + token[61:])
    assert "hash to" in refused(program, folder, config, {})


def test_another_state_at_a_resume_is_refused(program, folder, corpus, after):
    config, token, path = after
    config |= {"checkpoint_dir": str(folder / "saved"), "global_batch_size": STEP}
    engine = Engine(program, folder, config)
    try:
        with Ranks(engine, 2) as ranks:
            list(ranks.turns(2))
        assert engine.stop() == 0
    finally:
        engine.kill()
    old = stream_of(corpus, [{"name": "web", "select": "length > 4"}, {"name": "books"}])
    _, other = stop_at(program, folder, old, SHAPE, 2 * STEP)
    write_state(folder / "old.token", other)
    said = refused(program, folder, config, {})
    assert "selection of web differs" in said and "unseen_of" in said, said


def test_plan_counts_the_documents_that_are_left(program, folder, corpus, after):
    config, token, path = after
    write = folder / "after.yaml"
    write.write_text(json.dumps(config))
    done = subprocess.run(
        [program, "plan", "-c", str(write), "--json"], capture_output=True, text=True, check=True
    )
    found = {own["source"]: own["selected"] for own in json.loads(done.stdout)["sources"]}
    for name, documents in zip(NAMES, corpus.documents):
        entry = {"lengths": [len(d) for d in documents]}
        left = set(range(len(documents))) - unseen(token, name, entry)["used"]
        if name == "web":
            left = {d for d in left if len(documents[d]) > 4}
        assert found[name] == len(left) < len(documents)


def test_a_state_inside_of_a_deal_window_is_refused(program, folder, corpus):
    deal = {"window": 2 * STEP, "step": STEP, "tier": 4, "bundle": 1, "order": "middle", "K": 4}
    old = stream_of(corpus, deal=deal)
    _, token = stop_at(program, folder, old, SHAPE, STEP)
    path = write_state(folder / "old.token", token)
    config = {**old.config(), "batch_size": 2}
    said = refused(program, folder, config, {"unseen_of": path})
    assert "found row 8 of the window 0-16" in said, said
