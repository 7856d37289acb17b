# SPDX-License-Identifier: Apache-2.0
"""Agreement of the parts of a run: only one field of the contract differs at a time, between two
nodes, at the re-attachment of a trainer whose engine was killed, and at a resume from a
checkpoint."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy
import pytest
import ringpack
from ringpack import CheckpointMismatchError
from ringpack._ranks import check_agreement
from stream_oracle import KEYS, keys_of, write_megatron

BLOCK = {"shuffle": "block", "block_documents": 8, "window_blocks": 2}
SHAPE = {"batch_size": 3, "sections": "labels,provenance"}
BASE = {**KEYS, **BLOCK, **SHAPE, "plan_partitions": 1, "pad_id": 0}
STREAM = {  # key -> another value
    **{"seed": 8, "seq_len": 49, "packing": "best_fit", "packing_buffer": 9, "row_gap": "split"},
    **{"long_doc": "truncate", "max_docs_per_row": 5, "num_epochs": 3, "plan_partitions": 2},
    **{"shuffle": "document", "block_documents": 9, "window_blocks": 3},
}
DELIVERY = {
    **{"batch_size": 6, "dp_world_size": 2, "global_batch_size": 6, "drop_last": True},
    **{"sections": ["labels"], "token_dtype": "i64", "label_mode": "aligned", "pad_id": 9},
}
SOURCES = {  # the difference, and its name
    "weight": "weight of source books",
    "more": "number of sources",
    "documents": "documents of source books",
    "sampled": "sampled fingerprint of the corpus",
    "full": "full fingerprint of the corpus",
    "tokenizer": "tokenizer",
}
TOKENIZERS = {name: {"name": name, "xxh3_128": digit * 32} for name, digit in ("a3", "b4")}



def fields(loader):
    """The contract of a loader as name -> value, without names of sources."""
    lines = (line for line in loader.contract().splitlines() if line and ":" not in line)
    return dict(line.replace("~", "=", 1).split("=", 1) for line in lines)


@pytest.fixture(scope="module")
def shelves(program, tmp_path_factory):
    """Corpora of two sources that differ in one thing each; an index knows the whole content."""
    generator, shelves = numpy.random.default_rng(5), {}
    books = [generator.integers(1, 50000, 1000) for _ in range(160)]  # 79 blocks: 64 are sampled
    code = [generator.integers(1, 50000, 30) for _ in range(40)]
    for name in ("base", *SOURCES):
        place = tmp_path_factory.mktemp(name)
        own = [document.copy() for document in books]
        if name == "documents":
            own = [*own[:-1], own[-1][:500], own[-1][500:]]  # the same bytes
        if name == "sampled":
            own[0][0] ^= 1
        if name == "full":
            own[10][300] ^= 1  # token 10,300 is in block 5, which is not a sampled one
        prefixes = [write_megatron(place / "books", own), write_megatron(place / "code", code)]
        made_by = {"tokenizer": TOKENIZERS["b" if name == "tokenizer" else "a"]}
        Path(f"{prefixes[0]}.tokens.json").write_text(json.dumps(made_by))
        subprocess.run([program, "index", "-q", *prefixes], check=True, capture_output=True)
        shelves[name] = [{"name": n, "path": path} for n, path in zip(("books", "code"), prefixes)]
    shelves["weight"][0]["weight"] = 3
    shelves["more"].append({"name": "more", "path": shelves["base"][1]["path"]})
    return shelves


@pytest.fixture
def serve(program, folder, engines):
    def start(run, corpus, wait=True, **changes):
        keys = keys_of({**BASE, "run": run, "sources": corpus, **changes})
        if keys["shuffle"] != "block":
            del keys["block_documents"], keys["window_blocks"]
        return engines(program, folder, keys, wait=wait)

    return start


@pytest.fixture
def attach(folder):
    loaders = []

    def attach_loader(run, world=1):
        place = {"dp_rank": 0, "dp_world_size": world}
        loader = ringpack.Loader(run=run, run_dir=folder, start_engine=False, **place)
        loaders.append(loader)
        return loader

    yield attach_loader
    for loader in loaders:
        loader.close()


@pytest.fixture
def wrecked(serve, attach, shelves, folder):
    """A trainer that lives on, its contract and its state; its engine was killed after a save."""
    engine = serve("job", shelves["base"], checkpoint_dir=str(folder / "saved"))
    trainer = attach("job")
    next(trainer)
    contract, state = trainer.contract(), trainer.state_dict()
    engine.checkpoint()
    engine.kill()
    shutil.copytree(folder / "saved", folder / "kept")
    return trainer, contract, state


CASES = [
    *((key, key, {key: value}, "base") for key, value in {**STREAM, **DELIVERY}.items()),
    *((name, called, {}, name) for name, called in SOURCES.items()),
]


@pytest.mark.parametrize("name, called, changes, shelf", CASES, ids=[case[0] for case in CASES])
def test_each_field_alone_is_refused_by_name(
    wrecked, serve, attach, shelves, folder, name, called, changes, shelf
):
    trainer, contract, state = wrecked
    may_resume = name in DELIVERY or name == "num_epochs"
    if "dp_world_size" in changes:
        changes = {**changes, "ranks": "0"}
    serve("job", shelves[shelf], **changes)

    with pytest.raises(CheckpointMismatchError) as at_reattachment:  # the trainer that lives on
        while True:
            next(trainer)
    other = attach("job", changes.get("dp_world_size", 1))
    with pytest.raises(CheckpointMismatchError) as on_nodes:
        check_agreement(
            [
                {"contract": text, "next_row": 0, "step_boundary": 0}
                | {"dp_world_size": 1, "dp_rank": 0}
                for text in (contract, other.contract())
            ]
        )
    for raised in at_reattachment, on_nodes:
        error = raised.value
        assert called in str(error)
        assert error.expected and error.found and error.expected != error.found
        if name not in ("shuffle", "batch_size", "dp_world_size", "documents", "more", "seq_len"):
            assert error.field == called, "others follow from it"
    change = "it may change when" if may_resume or name == "weight" else "it never changes"
    assert change in at_reattachment.value.hint
    if name in BASE and name in (*STREAM, *DELIVERY) and name == error.field:
        assert f"--{name.replace('_', '-')} {at_reattachment.value.expected}`" in (
            at_reattachment.value.hint
        )

    if may_resume:  # a trainer that starts again from the state
        other.load_state_dict(state)
        assert other.next_row == 3
        assert name in CheckpointMismatchError.MAY_CHANGE
    else:
        with pytest.raises(CheckpointMismatchError, match=called):
            other.load_state_dict(state)
        assert name not in CheckpointMismatchError.MAY_CHANGE
    other.close()

    kept = f"{folder}/kept"
    resumed = serve("resumed", shelves[shelf], wait=False, checkpoint_dir=kept, **changes)
    if may_resume:  # an engine that resumes from the checkpoint, and logs the change
        resumed.wait_ready()
        told = resumed.log().split("changed since the checkpoint: ")[1]
        assert f"{name} differs: the checkpoint has" in told
    else:
        assert resumed.wait() != 0
        assert f"{called} differs: the state has" in resumed.log()


def test_the_cases_are_all_fields(serve, attach, shelves):
    serve("job", shelves["base"])
    found = {name.split("].")[-1] for name in fields(attach("job"))}
    found = set(keys_of({**dict.fromkeys(found), "packing": "lookahead"}))
    known = {*STREAM, *DELIVERY, "documents", "weight", "sources", "corpus_sampled", "corpus_full"}
    assert found == known | {"stream_version", "tokenizer"}  # the former has one value


def test_indexing_a_corpus_between_two_lives_refuses_nothing(
    wrecked, serve, attach, shelves, folder
):
    """The engine that follows has no sidecars: both know the sampled fingerprint."""
    trainer, contract, _ = wrecked
    assert "corpus_full~" in contract
    bare = []
    for source in shelves["base"]:
        path = folder / source["name"]
        for end in ".bin", ".idx":
            shutil.copy(source["path"] + end, f"{path}{end}")
        bare.append({"name": source["name"], "path": str(path)})
    serve("job", bare)
    next(trainer)
    assert trainer.contract() == contract, "the one that knows more is kept"
    trainer.close()
    assert "corpus_full~" not in attach("job").contract()
    resumed = serve("resumed", bare, checkpoint_dir=f"{folder}/kept")
    assert "by its sampled fingerprint" in resumed.log()
    resumed.kill()
    again = serve("again", shelves["base"], checkpoint_dir=f"{folder}/kept")
    assert "by its full fingerprint" in again.log()


def test_show_and_stat_tell_the_contract(wrecked, serve, attach, program, shelves, folder):
    path = next((folder / "kept").glob("*.rpc"))
    shown = subprocess.run(
        [program, "checkpoint", "show", str(path)], check=True, capture_output=True, text=True
    ).stdout
    for line in "label_mode", "corpus_full", "source[0000].name", "stream_version":
        assert f"\n  {line} " in shown
    for line in "stream contract ", "delivery contract ":
        assert re.search(f"^{line}[0-9a-f]{{32}}$", shown, re.M)
    serve("job", shelves["base"])
    told = {line["field"]: line["value"] for line in ringpack.stat("job", folder)["contract"]}
    assert (told["pad_id"], told["stream_version"]) == ("0", "1")
