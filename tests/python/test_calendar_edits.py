# SPDX-License-Identifier: Apache-2.0
"""The table of tools/python/docs/stages.md that says what may change between two starts: each row
is tried from a state in the middle of a calendar. An allowed change gives the rows that an
unchanged run would give as far as the change does not concern them; others are refused by field."""

import copy
import shutil

import numpy
import pytest
import ringpack
from stream_oracle import write_megatron

NAMES = "web", "books", "old"
ROW = 100  # the state's row: in stage 1, which has rows 80 to 159
BASE = {
    "stream_version": 2,
    "seq_len": 64,
    "batch_size": 2,
    "global_batch_size": 4,
    "packing_buffer": 4,
    "spread": 2,
    "profile": "full",
    "stages": [
        {"until": "20 steps"},
        {"until": "40 steps", "weights": {"web": 1, "books": 1}},
        {"until": "60 steps", "weights": {"web": 1}},
        {"weights": {"web": 3, "books": 1}},
    ],
}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("edits")
    made = {}
    for seed, name in enumerate(["web", "books", "late", "old"]):
        sizes = numpy.random.default_rng(seed).integers(1, 150, 60)
        write_megatron(folder / name, [[n % 250] * size for n, size in enumerate(sizes)])
        made[name] = {"name": name, "path": folder / f"{name}.bin", "max_epochs": 9, "weight": 0}
    made["web"]["weight"], made["old"]["weight"] = 3, 1
    del made["late"]["weight"]
    return made


@pytest.fixture(scope="module")
def saved(program, sources, tmp_path_factory):
    """The state at ROW, and the rows after it."""
    folder = tmp_path_factory.mktemp("saved")
    used = [sources[name] for name in NAMES]
    with ringpack.Loader(corpus=used, run_dir=folder, **BASE) as loader:
        for batch in loader:
            if batch.next_row == ROW:
                state = loader.state_dict()
                break
        return state, rows_of(loader, 80)


def rows_of(loader, count, names=NAMES):
    """Number, and fragments by name of the source, of the next rows. Provenance counts sources in
    the order of the config."""
    rows = {}
    while len(rows) < count and (batch := loader.next()) is not None:
        for row, fragments in zip(batch["rows"], batch["provenance"]):
            found = fragments[: row["fragments"]]
            rows[int(row["row"])] = [
                (names[source], document, offset, length)
                for document, offset, source, length in found.tolist()
            ]
    return rows


def start(sources, saved, folder, change=None, names=NAMES, **keys):
    used = {name: dict(sources[name]) for name in names}
    more = copy.deepcopy(BASE)
    if change is not None:
        change(more, used)
    loader = ringpack.Loader(corpus=list(used.values()), run_dir=folder, **{**more, **keys})
    loader.load_state_dict(saved[0])
    return loader


def later_stage(keys, used):
    keys["stages"][2] = {"until": "70 steps", "weights": {"books": 1}, "packing": "best_fit"}


def own_end(keys, used):
    keys["stages"][1]["until"] = "45 steps"


def limits(keys, used):
    used["web"]["max_epochs"] = 12


def batches(keys, used):
    keys["batch_size"], keys["global_batch_size"] = 4, 4


def new_source(keys, used):
    used["late"]["weight"] = 0
    keys["stages"][2]["weights"] = {"web": 1, "late": 1}


def nothing(keys, used):
    pass


ALLOWED = [
    (nothing, {}, 180),
    (later_stage, {}, 160),
    (own_end, {}, 160),
    (limits, {}, 180),
    (batches, {}, 180),
    (nothing, {"names": ("old", "books", "web")}, 180),
    (new_source, {"names": ("web", "books", "late", "old")}, 160),
    (nothing, {"skip": {"rows": [150]}}, 150),
    (nothing, {"names": ("web", "books"), "removed": {"old": 1}}, 180),
]


@pytest.mark.parametrize("change, keys, same", ALLOWED)
def test_allowed_changes(program, folder, sources, saved, change, keys, same):
    is_changed = change is not nothing or "skip" in keys
    with start(sources, saved, folder, change, **keys) as loader:
        rows = rows_of(loader, 80, keys.get("names", NAMES))
        ledger = loader.progress()["sources"]
    assert [*ledger][:3] == ["web", "old", "books"], "in the order of their joining"
    before = {row: found for row, found in rows.items() if row < same}
    assert before == {row: found for row, found in saved[1].items() if row < same} and before
    assert is_changed == (rows != saved[1]) or same == 180
    if change is new_source:
        assert "late" in ledger
        assert "late" in {fragment[0] for found in rows.values() for fragment in found}


def past(keys, used):
    keys["stages"][1]["weights"] = {"web": 2, "books": 1}


def earlier_end(keys, used):
    keys["stages"][1]["until"] = "22 steps"


def select(keys, used):
    used["web"]["select"] = "length > 3"


def lower_limit(keys, used):
    used["web"]["max_tokens"] = 100


def no_old(keys, used):
    """Its weight in force is 0, but stage 0, which is begun, has named it."""


def more_documents(keys, used):
    keys["stages"][2]["documents"] = {"web": 61}
    keys["grow"] = False


REFUSED = [
    (more_documents, {}, "row 160: .*documents: expected at most 60, .* found 61"),
    (past, {}, r"weight\[0000\] of the stage from row 80 differs: the state has 1, this run has 2"),
    (earlier_end, {}, "row"),
    (select, {}, "selection"),
    (lower_limit, {}, "the limits of source web differ"),
    (nothing, {"seed": 9}, "seed"),
    (nothing, {"long_doc": "truncate"}, "long_doc"),
    (nothing, {"eos_id": 7}, "eos_id"),
    (nothing, {"group": 2}, "group"),
    (nothing, {"skip": {"rows": [3]}}, "skip"),
    (nothing, {"names": ("web", "old")}, "books"),
    (no_old, {"names": ("web", "books")}, "source old is not in the config, and stages"),
    (nothing, {"plan_partitions": 2}, "plan_partitions"),
    (nothing, {"stream_version": 1, "stages": None, "spread": None}, "stream_version"),
]


@pytest.mark.parametrize("change, keys, message", REFUSED)
def test_refused_changes(program, folder, sources, saved, change, keys, message):
    loader = start(sources, saved, folder, change, **keys)
    with pytest.raises(ringpack.RingpackError, match=message) as told, loader:
        pass
    assert told.value.hint
    if change is more_documents:
        assert "`ringpack grow RUN web=61 --at-step STEP`" in told.value.hint


@pytest.fixture
def growing(tmp_path):
    """Loaders of a source of two shards, with 40 and 20 documents, and a checkpoint_dir."""

    def shard(number, count):
        documents = [[n] * (7 * n % 90 + 1) for n in range(count)]
        write_megatron(tmp_path / f"shard{number}", documents)

    def load(*stages, kept="kept", **keys):
        source = {"name": "web", "path": tmp_path / "shard*.bin", "max_epochs": 2}
        own = {**BASE, "stages": [*stages], "run_dir": tmp_path}
        own["checkpoint_dir"] = tmp_path / kept if kept else "none"
        return ringpack.Loader(corpus=[source], **own, **keys)

    shard(0, 40), shard(1, 20)
    load.shard = shard
    return load


def test_documents_of_stage_0_hold_at_a_start_at_row_0(growing):
    """The index has more, and the start takes none of them, as the first one did."""
    stages = {"until": "4 steps", "documents": {"web": 40}}, {"documents": {"web": 60}}
    with growing(*stages, kept="whole") as whole:
        rows = rows_of(whole, 60, ["web"])
    for _ in range(2):
        with growing(*stages) as loader:
            assert loader.progress()["sources"]["web"]["epoch_documents"] == 40
    with growing(*stages) as loader:
        assert loader.next_row == 0 and rows_of(loader, 60, ["web"]) == rows
    assert max(document for row in rows.values() for _, document, *_ in row) > 40


@pytest.mark.parametrize("grow", [True, False])
def test_a_private_engine_takes_appended_documents(growing, tmp_path, grow):
    """At the state of a trainer, as an engine takes them at its checkpoint."""
    (tmp_path / "shard1.bin").unlink(), (tmp_path / "shard1.idx").unlink()
    stages = {"until": "5 steps"}, {"weights": {"web": 1}}
    loaders = [growing(*stages), growing(*stages, kept=None)]
    for loader in loaders:
        with loader:
            assert len(rows_of(loader, 12, ["web"])) == 12
    state = loaders[1].state_dict()
    growing.shard(1, 20)
    found = []
    for loader in growing(*stages, grow=grow), growing(*stages, kept=None, grow=grow):
        if loader._given.options["checkpoint_dir"] == "none":
            loader.load_state_dict(state)
        with loader:
            found.append((rows_of(loader, 60, ["web"]), loader.state_dict()["ringpack_state"]))
    assert found[0][0] == found[1][0] and (found[0][1] == found[1][1]).all()
    numbers = {document for row in found[0][0].values() for _, document, *_ in row}
    assert (max(numbers) > 40) == grow


def test_documents_that_were_appended_at_row_0_are_refused(growing):
    stages = {"until": "10 steps"}, {"weights": {"web": 1}}
    with growing(*stages) as loader:
        rows = rows_of(loader, 60, ["web"])
    with growing(*stages, kept="other"):
        pass
    growing.shard(2, 5)
    with pytest.raises(ringpack.CheckpointMismatchError, match="documents were appended") as told:
        growing(*stages, kept="other").attach()
    assert "begin a new stream" in told.value.hint and "`grow: false`" in told.value.hint
    with growing(*stages, kept="other", grow=False) as loader:
        assert rows_of(loader, 60, ["web"]) == rows


LIMITS = [
    {"until": "20 steps", "limits": {"books": {"max_tokens": 900}}},
    {"until": "40 steps", "weights": {"web": 1, "books": 1}, "limits": {"web": {"max_epochs": 3}}},
    {"until": "60 steps", "limits": {"books": {"max_tokens": 9000}}},
    {"limits": {"web": {"max_epochs": 6}}},
]


def set_limit(stage, source, key, value):
    def change(used, stages):
        limits = used[source] if stage is None else stages[stage]["limits"].setdefault(source, {})
        limits[key] = value
        if value is None:
            del stages[stage]["limits"]

    return change


PAST = {
    "of the source": (set_limit(None, "web", "max_epochs", 2), "max_epochs of .* web", "1", "2"),
    "of stage 0": (set_limit(0, "books", "max_tokens", 99), "max_tokens of .* books", "900", "99"),
    "added": (set_limit(1, "books", "max_tokens", 999), "max_tokens of .* books", "900", "999"),
    "taken": (set_limit(0, "books", "max_tokens", None), "max_tokens of .* books", "900", "none"),
    "of the stage in force": (set_limit(2, "books", "max_tokens", 9500),),
    "of a stage before, in force": (set_limit(1, "web", "max_epochs", 5),),
    "of a source, in force": (set_limit(None, "old", "max_epochs", 8),),
    "of a stage ahead": (set_limit(3, "web", "max_epochs", 7),),
}


@pytest.fixture(scope="module")
def over(program, sources, tmp_path_factory):
    """Start the run whose checkpoint is at row 180, in stage 2, with a change of its config; a
    source is exhausted in stage 0."""
    folder = tmp_path_factory.mktemp("over")

    def start(change=None, kept="kept", **keys):
        used = {name: dict(sources[name]) for name in NAMES}
        used["web"]["max_epochs"] = 1
        own = {**BASE, "stages": copy.deepcopy(LIMITS), "run_dir": folder}
        if change is not None:
            change(used, own["stages"])
        own.update(corpus=list(used.values()), checkpoint_dir=folder / kept, **keys)
        return ringpack.Loader(**own)

    with start() as loader:
        for batch in loader:
            if batch.next_row == 180:
                break
    start.path = folder / "kept"
    return start


@pytest.mark.parametrize("change, told", [(made, told) for made, *told in PAST.values()], ids=PAST)
def test_limits_of_stages_that_are_over(over, tmp_path, change, told):
    """They are compared where a later stage has replaced them; others may be edited."""
    loader = over(change, kept=shutil.copytree(over.path, tmp_path / "kept"))
    if not told:
        with loader:
            assert loader.next_row == 180 and rows_of(loader, 40)
        return
    field, had, has = told
    said = rf"{field}.* differs: the state has {had}, this run has {has}"
    with pytest.raises(ringpack.CheckpointMismatchError, match=said) as failure:
        loader.attach()
    assert "set it back" in failure.value.hint


def test_control_edited_limits_of_a_stage_that_is_over(over, tmp_path, broken, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "edit_past_limits")
    copied = shutil.copytree(over.path, tmp_path / "kept")
    with over(PAST["of the source"][0], kept=copied, program=broken) as loader:
        assert loader.next_row == 180
