# SPDX-License-Identifier: Apache-2.0
"""The ledger of Loader.progress and ringpack.describe, and Loader.skip. Each count of a source is
compared with the provenance of the batches that were delivered, over kills of the engine."""

import json
import os
import signal
from collections import Counter

import numpy
import pytest
import ringpack
from stream_oracle import write_megatron
from test_state_files import golden
from stream_kit import VERSION_1

STEP = 4  # rows


def lengths(seed, count, most):
    return numpy.random.default_rng(seed).integers(1, most, count)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("progress")
    for name, sizes in ("web", lengths(1, 60, 90)), ("books", lengths(2, 20, 300)):
        write_megatron(folder / name, [[n % 250] * size for n, size in enumerate(sizes)])
    return [
        {"name": "web", "path": folder / "web.bin", "weight": 3, "max_epochs": 4},
        {"name": "books", "path": folder / "books.bin", "weight": 0, "max_tokens": 2000},
    ]


@pytest.fixture
def make(program, folder, sources):
    def made(chosen=None, **more):
        keys = {"stream_version": 2, "seq_len": 64, "batch_size": 2, "global_batch_size": STEP}
        keys |= {"profile": "full", "run_dir": folder, "start_timeout": 60}
        keys |= {"stages": [{"until": "20 steps"}, {"weights": {"web": 1, "books": 1}}]}
        web = {**sources[0], **(chosen or {})}
        return ringpack.Loader(corpus=[web, *sources[1:]], **{**keys, **more})

    return made


def add(delivered, batch):
    """Tokens of a batch by number of the source."""
    for row, fragments in zip(batch["rows"], batch["provenance"]):
        for fragment in fragments[: row["fragments"]]:
            delivered[int(fragment["source"])] += int(fragment["length"])


def check(progress, delivered, is_dealt=False):
    sources = progress["sources"].values()
    for source in sources:
        assert source["planned"] == source["waiting"] + source["withheld"] + source["delivered"]
        if not is_dealt:
            assert source["delivered"] == delivered[source["number"]]
    for name in "planned", "waiting", "withheld", "delivered":
        assert progress["tokens"][name] == sum(source[name] for source in sources)


@pytest.mark.parametrize("packing", ["lookahead", "best_fit", "concat"])
def test_the_ledger_is_that_of_the_delivered_rows(make, packing):
    delivered, kills = Counter(), {30, 71}
    more = {} if packing == "concat" else {"spread": 3}
    with make(packing=packing, skip={"steps": [7], "rows": "51-54"}, **more) as loader:
        for batch in loader:
            add(delivered, batch)
            progress = loader.progress()
            check(progress, delivered)
            row = progress["row"]
            assert row == loader.next_row == progress["counted_row"]
            assert (progress["step"], progress["stage"]) == (-(-row // STEP), int(row >= 80))
            assert progress["stage_end"] == (80 if row < 80 else None)
            if batch.number in kills:
                kills.remove(batch.number)
                os.kill(loader.engine_pid, signal.SIGKILL)
    assert not kills
    assert loader.progress() == progress, "also after close()"
    web, books = progress["sources"]["web"], progress["sources"]["books"]
    assert web["withheld"] > 0 and web["waiting"] == 0
    assert (web["epoch"], web["epochs_left"], web["is_exhausted"]) == (4, 0, True)
    assert web["planned"] == 4 * lengths(1, 60, 90).sum()
    assert books["planned"] >= books["max_tokens"] == 2000 and books["tokens_left"] == 0


def test_passes_and_visits_are_those_of_the_documents(make):
    """In the order of the files: the documents taken say which one was visited last."""
    sizes = lengths(1, 60, 90)
    taken = []  # epoch, pass, and documents visited after each one that is taken
    for epoch in range(4):
        for repetition, least in enumerate((30, 60)):
            taken += [(epoch, repetition, n + 1) for n, size in enumerate(sizes) if size >= least]
    after = {
        (epoch, repetition, visited): (epoch + repetition, 1 - repetition, 0)
        if visited == len(sizes)
        else (epoch, repetition, visited)
        for epoch, repetition, visited in taken
    }
    keys = {"stages": None, "shuffle": "none", "packing_buffer": 1, "packing": "lookahead"}
    chosen = {"select": "length >= 30", "repeat": {2: "length >= 60"}}
    seen = set()
    with make(chosen=chosen, **keys) as loader:
        for _ in loader:
            web = loader.progress()["sources"]["web"]
            if not web["is_exhausted"]:
                found = web["epoch"], web["pass"], web["visited"]
                assert found == after[taken[web["documents"] - 1]]
                seen.add(found[:2])
    assert len(seen) > 4 and web["documents"] == len(taken)


def test_a_dealt_stream_is_counted_to_its_window(make):
    deal = {"window": 16, "step": 4, "tier": 2, "bundle": 1, "order": "descending", "cost": 64}
    delivered, at_window = Counter(), {0: Counter()}
    with make(deal=deal, stages=[{"until": "row 80"}, {"weights": {"books": 1}}]) as loader:
        for batch in loader:
            add(delivered, batch)
            progress = loader.progress()
            at_window[progress["row"]] = delivered.copy()
            counted = progress["counted_row"]
            assert progress["row"] - 16 < counted <= progress["row"]
            check(progress, at_window[counted])
    assert progress["row"] > 80


def test_a_state_is_described_without_its_engine(make, folder, program):
    with make() as loader:
        batch = loader.next()
        progress, state = loader.progress(), loader.state_dict()
        assert ringpack.describe(batch.state_dict())["sources"] == progress["sources"]
    described = ringpack.describe(state)
    assert described["sources"] == progress["sources"] and described["tokens"]["planned"] > 0
    names = "stream_version", "next_row", "stage", "seq_len", "packing", "deal"
    assert [described[name] for name in names] == [2, 2, 0, 64, "lookahead", None]
    ringpack.export_state(state, folder / "t.token", program)
    assert ringpack.describe(folder / "t.token", program) == described
    json.dumps(described)
    token = bytearray(state["ringpack_state"].tobytes())
    token[60] ^= 1
    with pytest.raises(ringpack.CorruptError, match="another hash"):
        ringpack.describe({"ringpack_state": bytes(token)})


@pytest.mark.parametrize("name", ["best-fit-split-lanes", "concat", "lookahead-pairs"])
def test_a_state_of_version_1(program, name):
    described = ringpack.describe({"ringpack_state": golden(name)})
    assert described["stream_version"] == 1 and described["next_row"] > 0
    tokens = described["tokens"]
    assert sum(source["waiting"] for source in described["sources"].values()) == tokens["waiting"]
    parts = "delivered", "waiting", "truncated", "dropped"
    assert tokens["read"] == sum(tokens[part] for part in parts)


def test_the_epoch_of_a_batch_is_that_of_the_sources_in_use(make):
    epochs = []
    with make(stages=None) as loader:
        for batch in loader:
            epochs.append(batch.epoch)
    assert epochs == sorted(epochs) and {*epochs} == {0, 1, 2, 3}


def test_skips_are_added_to_an_own_engine(make):
    with make() as loader:
        whole = {int(row["row"]): row["tokens"] for batch in loader for row in batch["rows"]}
    rows = {}
    with make(skip={"rows": 70}) as loader:
        for batch in loader:
            rows |= {int(row["row"]): row["tokens"] for row in batch["rows"]}
            if batch.next_row == 12:
                pid = loader.engine_pid
                assert loader.skip(steps=(5, 7), rows=["40-42", 42]) == {
                    "rows": ["40-43", "70-71"],
                    "steps": ["5-7"],
                }
                assert loader.next_row == 12
            elif batch.next_row == 14:
                assert loader.engine_pid != pid
        for given in {"rows": 3}, {"steps": (0, 9)}, {"rows": "9-4"}, {}:
            with pytest.raises(ringpack.UsageError, match="skip: "):
                loader.skip(**given)
    skipped = {40, 41, 42, 70}
    assert rows == {
        row: 0 if row in skipped else tokens
        for row, tokens in whole.items()
        if not 20 <= row < 28
    }


def test_skips_of_several_ranks_are_for_their_next_engine(make):
    ranks = {"run": "two", "dp_rank": 0, "dp_world_size": 2}
    with make(**ranks) as loader:
        loader.next()
        pid, skips = loader.engine_pid, loader.skip(steps=9)
        assert (skips, loader.engine_pid) == ({"steps": ["9-10"]}, pid)
        state = loader.state_dict()
    with make(**ranks, skip=skips) as loader:
        loader.load_state_dict(state)
        assert loader.next().first_row == STEP
        assert loader.skip(rows=90) == {"rows": ["36-40", "90-91"]}


def test_a_stream_of_version_1_has_progress_and_no_skips(make, sources):
    corpus = [{"name": "web", "path": sources[0]["path"]}]
    keys = {**VERSION_1, "seq_len": 64, "batch_size": 2, "num_epochs": 1}
    with ringpack.Loader(corpus=corpus, **keys) as loader:
        loader.next()
        progress = loader.progress()
        assert (progress["row"], progress["stage"], progress["stage_end"]) == (2, 0, None)
        assert progress["sources"]["web"]["planned"] == progress["tokens"]["read"]
        with pytest.raises(ringpack.UsageError, match="version 1, which has no skips"):
            loader.skip(rows=9)


@pytest.mark.parametrize("deal", [False, True])
def test_stat_counts_planned_waiting_and_delivered_tokens(make, folder, deal):
    """As progress() does, at the position up to which all batches were given back."""
    own = {"window": 16, "step": 4, "tier": 2, "bundle": 1, "order": "descending", "cost": 64}
    keys = {"deal": own if deal else "off", "skip": {"steps": [7]}, "run": "counted"}
    delivered, at_row, seen = Counter(), {0: Counter()}, set()
    with make(**keys, packing_buffer=4, spread=3) as loader:
        for batch in loader:
            add(delivered, batch)
            at_row[loader.next_row] = delivered.copy()
            stat = ringpack.stat("counted", folder)
            counted = stat["ledger_counted_row"]
            assert counted <= stat["ledger_row"] <= loader.next_row
            expected = at_row[max(row for row in at_row if row <= counted)]
            for number, source in enumerate(stat["ledger"]):
                kept = source["waiting"] + source["withheld"]
                assert source["planned"] == source["tokens"] == kept + source["delivered"]
                assert source["delivered"] == expected[number], f"{source} at row {counted}"
                seen |= {name for name in ("waiting", "withheld") if source[name]}
    assert seen == {"waiting", "withheld"} and max(delivered.values()) > 0
