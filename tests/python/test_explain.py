# SPDX-License-Identifier: Apache-2.0
"""`ringpack explain`: each form shows the delivery of each fragment; a document is found in every
row that holds it; requests for absent things are refused by name."""

import csv
import io
import json
import os
import signal
import subprocess
from pathlib import Path

import numpy
import pytest
import ringpack
from explain_kit import explain, rows_of
from stream_kit import PATIENCE, Corpus, Engine, Ranks, Stream, token_of

SEED = 17
LAYOUT = [("megatron", "u16", 3, [31, 25]), ("npy", "u16", 1, [22, 19])]
STREAMS = {  # each packing, shuffle and fill; lanes
    "lookahead": {"packing": "lookahead", "fill": "split", "long_doc": "split"},
    "concat": {"packing": "concat", "long_doc": "truncate", "shuffle": "block"},
    "best_fit": {"packing": "best_fit", "lanes": 2, "long_doc": "drop", "shuffle": "none"},
}
SHAPE = {"batch_size": 2, "dp_world_size": 2, "global_batch_size": 8}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain") / "a\nb"  # characters of a path
    folder.mkdir()
    return Corpus(folder, LAYOUT, SEED)


@pytest.fixture(scope="module", params=STREAMS)
def case(corpus, program, request, tmp_path_factory):
    """A config, its stream by the oracle, and an engine's delivery of it."""
    inputs = {"num_epochs": 2, "window": 5, "seed": SEED, **STREAMS[request.param]}
    if request.param == "concat":
        inputs |= {"block_documents": 4, "window_blocks": 3}
    stream = Stream(corpus, inputs)
    folder = tmp_path_factory.mktemp(request.param)
    config = {**stream.config(), **SHAPE, "profile": "full"}
    engine, batches = Engine(program, folder, config), []
    with Ranks(engine, SHAPE["dp_world_size"]) as ranks:
        for number, turn in enumerate(ranks.turns()):
            for rank, batch in enumerate(turn):
                known = batch.explain() if number % 7 == 0 else []  # each runs the program
                batches.append((number, rank, batch.copy(), known))
    engine.stop()
    return folder / "e2e.yaml", stream, batches


def check_row(row, number, rank, batch, place, corpus):
    """One row of an answer against the row of the batch that was delivered."""
    info = batch["rows"][place]
    assert row["row"] == info["row"] and row["tokens"] == info["tokens"]
    assert row["padding"] == len(batch["input_ids"][place]) - info["tokens"]
    assert (row["step"], row["micro_batch"], row["rank"]) == (number // 2, number % 2, rank)
    assert len(row["fragments"]) == info["fragments"]
    at = 0
    for part, provenance in zip(row["fragments"], batch["provenance"][place].tolist()):
        document, offset, source, length = provenance
        found = part["document"], part["offset"], part["source_number"], part["tokens"]
        assert found == (document, offset, source, length)
        assert part["source"] == f"source-{source}"
        ids = batch["input_ids"][place, at : at + length].tolist()
        assert part["place"] == at and part["ids"] == ids[:400]
        with open(part["file"], "rb") as file:
            file.seek(part["byte_offset"])
            assert numpy.frombuffer(file.read(2 * length), "<u2").tolist() == ids
        counts, paths = LAYOUT[source][3], iter(corpus.paths[0 if source == 0 else 2 :])
        files = [(path, row) for count, path in zip(counts, paths) for row in range(count)]
        assert (part["file"], part["file_row"]) == files[document]
        at += length


def check_rows(rows, batches, corpus):
    by_number = {row["row"]: row for row in rows}
    checked = 0
    for number, rank, batch, _ in batches:
        for place, info in enumerate(batch["rows"]):
            if info["fragments"]:
                check_row(by_number[int(info["row"])], number, rank, batch, place, corpus)
                checked += 1
    assert checked == len([row for row in rows if row["fragments"]])


def test_every_row_is_what_was_delivered(program, case, corpus):
    config, stream, batches = case
    rows = rows_of(program, "-c", config, "--row", f"0-{len(stream.rows) + 99}")
    check_rows(rows, batches, corpus)
    for _, _, _, known in batches:  # explain() of live batches
        for record in known:
            (row,) = (row for row in rows if row["row"] == record["row"])
            part = row["fragments"][record["fragment"]]
            assert record["ids"][:400] == part["ids"] and record["epoch"] == part["epoch"]
            assert record == {**{key: row[key] for key in ("row", "step", "micro_batch", "rank")},
                              **part, "ids": record["ids"], "text_cut": False}
    assert sum(len(known) for _, _, _, known in batches) > 20


def test_every_step_and_rank(program, case):
    config, stream, _ = case
    whole = rows_of(program, "-c", config, "--row", f"0-{len(stream.rows)}")
    for step in {0, 1, (len(stream.rows) - 1) // 8}:
        wanted = [row for row in whole if row["step"] == step]
        assert rows_of(program, "-c", config, "--step", step) == wanted
        for rank in range(2):
            of_rank = [row for row in wanted if row["rank"] == rank]
            assert rows_of(program, "-c", config, "--step", step, "--rank", rank) == of_rank


def test_a_document_is_found_in_all_its_rows(program, case):
    config, stream, _ = case
    held = {}  # (source, document) -> rows, in both epochs
    for number, fragments in enumerate(stream.rows):
        for fragment in fragments:
            held.setdefault((fragment.source, fragment.document), []).append(number)
    for source, counts in enumerate([56, 41]):
        asked = f"source-{source}:0-{counts - 1}"
        answer = json.loads(
            explain(program, "-c", config, "--document", asked, "--epoch", "0-1", "--json")
        )
        assert len(answer["documents"]) == 2 * counts
        for document in range(counts):
            rows = [
                (row["row"], part["epoch"])
                for row in answer["rows"]
                for part in row["fragments"]
                if part["document"] == document
            ]
            assert [row for row, _ in sorted(rows)] == sorted(held.get((source, document), []))
            epochs = [epoch for _, epoch in rows]
            assert epochs == sorted(epochs)
            tails = [d for d in answer["documents"] if d["document"] == document]
            assert [bool(d["rows"]) for d in tails] == [e in epochs for e in (0, 1)]
            places = {(p["file"], p["file_row"]) for row in answer["rows"]
                      for p in row["fragments"] if p["document"] == document}
            assert not places or {(d["file"], d["file_row"]) for d in tails} == places
            assert all((d["why"] is None) == bool(d["rows"]) for d in tails)


def test_csv_says_what_json_says(program, case):
    config, stream, _ = case
    asked = ["-c", config, "--row", f"0-{len(stream.rows)}"]
    parts = [
        {**row, **part} for row in rows_of(program, *asked) for part in row["fragments"]
    ]
    found = list(csv.DictReader(io.StringIO(explain(program, *asked, "--csv"), newline="")))
    assert len(found) == len(parts)
    for line, part in zip(found, parts):
        assert line.pop("ids") == " ".join(map(str, part["ids"]))
        for key, value in line.items():
            wanted = part[key]
            assert value == ("" if wanted is None else str(wanted)), key


# ---- the source of the stream --------------------------------------------------------------------


def test_a_checkpoint_and_an_engine_are_enough(program, folder, corpus):
    """The keys are options and the paths relative: the checkpoint has them all, and another
    directory makes no difference. The rows that were released are past."""
    place = Path(corpus.paths[0]).parent
    options = ["--sources", f"{Path(corpus.paths[0]).name},./{Path(corpus.paths[1]).name}"]
    options += ["--seq-len=48", "--batch-size=3", "--run=opt", "--run-dir", str(folder)]
    options += ["--checkpoint-dir", str(folder / "kept"), "--num-epochs", "2"]
    ready, ready_end = os.pipe()
    process = subprocess.Popen(
        [program, "serve", *options, "--ready-fd", str(ready_end)],
        cwd=place,
        pass_fds=[ready_end],
        stderr=subprocess.DEVNULL,
    )
    try:
        os.close(ready_end)
        assert os.read(ready, 6) == b"ready\n"
        with ringpack.Loader(run="opt", run_dir=folder, connect_timeout=PATIENCE) as loader:
            for _ in range(2):
                loader.next()
            loader.next()
            whole = rows_of(program, "--run", "opt", "--run-dir", folder, "--row", "0-20")
            assert [row["past"] for row in whole[:9]] == [True] * 6 + [False] * 3
        path = ringpack.checkpoint("opt", folder)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        os.close(ready)
    for part in [part for row in whole for part in row["fragments"]]:
        assert part["file"] in (Path(corpus.paths[0]).name, f"./{Path(corpus.paths[1]).name}")
        part["file"] = f"{place}/{part['file']}"  # the engine's own paths are relative
    for source in path, os.path.dirname(path):
        rows = rows_of(program, source, "--row", "0-20")
        assert [{**row, "past": None} for row in rows] == [{**row, "past": None} for row in whole]
    again = explain(program, path, "--row", "3", cwd="/")
    assert "row 3" in again and "past" in again


def records_of(batch):
    """A batch's own knowledge of its fragments."""
    rows = zip(batch.view("rows", kind="numpy"), batch.documents())
    return [{"row": int(row["row"]), "document": part.document} for row, of in rows for part in of]


def test_a_batch_is_not_explained_by_another_config(program, folder, corpus):
    stream = Stream(corpus, {"num_epochs": 1})
    config = {**stream.config(), **SHAPE, "profile": "full", "checkpoint_dir": str(folder / "c")}
    other = folder / "other.yaml"
    other.write_text(json.dumps({**config, "seq_len": 11}))
    engine = Engine(program, folder, config)
    with Ranks(engine, 2) as ranks:
        for batches in ranks.turns(3):
            batch = batches[1]
            known = batch.explain()
            assert [{key: record[key] for key in ("row", "document")} for record in known] == (
                records_of(batch)
            )
            assert batch.explain(folder / "e2e.yaml") == known
            with pytest.raises(ringpack.RingpackError, match="of this run"):
                batch.explain(other)
            with pytest.raises(ringpack.RingpackError, match="gone.yaml"):
                batch.explain("gone.yaml")
            engine.checkpoint()
            assert batch.explain(folder / "c") == known
    engine.stop()


@pytest.mark.parametrize("profile", ["full", "min"])
def test_a_config_with_another_seed_is_refused(program, folder, corpus, profile):
    """In full rows of long documents the counts are the same for any seed; the tokens are not."""
    keys = {"num_epochs": 1, "seq_len": 8, **STREAMS["concat"]}
    stream = Stream(corpus, {**keys, "long_doc": "split"})
    config = {**stream.config(), **SHAPE, "profile": profile}
    other = folder / "other.yaml"
    other.write_text(json.dumps({**config, "seed": config["seed"] + 1}))
    engine, refused = Engine(program, folder, config), 0
    with Ranks(engine, 2) as ranks:
        for batches in ranks.turns(4):
            for batch in batches:
                known = batch.explain()
                try:
                    again = batch.explain(other)
                except ringpack.RingpackError as error:
                    refused += "does not have document" in str(error)
                    assert "of this run" in error.hint
                else:
                    assert again == known  # by chance
    engine.stop()
    assert refused >= 4


def assert_earlier_rows_are_refused(program, folder):
    running = "--run", "e2e", "--run-dir", folder, "--row", 3
    said = explain(program, *running, status=2)
    assert "accept-weights" in said and "save a checkpoint" in said
    command = [program, "state", *map(str, running), "-o", folder / "token"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "accept-weights" in done.stderr
    assert not (folder / "token").exists()


def test_a_change_of_weights_in_an_earlier_life_is_known(program, folder, corpus):
    """The engine of the third life has the weights of the second one, and no option that says so.
    An engine that may change weights, and has not, answers as any other. A trainer that brings a
    token of other weights changes them while the engine runs."""
    stream = Stream(corpus, {"num_epochs": 2})
    first = {**stream.config(), "batch_size": 1, "checkpoint_dir": str(folder / "c"),
             "profile": "full"}
    sources = [dict(source, weight=weight) for source, weight in zip(corpus.sources, (1, 5))]
    second = {**first, "sources": sources}
    lives = (first, (), False), (first, ("--accept-weights",), False)
    lives += (second, ("--accept-weights",), True), (second, (), True)
    for config, options, is_changed in lives:
        engine = Engine(program, folder, config, *options)
        with Ranks(engine) as ranks:
            (info,) = records_of(list(ranks.turns(4))[-1][0])[:1]
            token = token_of(ranks.loaders[0])
            if is_changed:
                assert_earlier_rows_are_refused(program, folder)
            else:
                (row,) = rows_of(program, "--run", "e2e", "--run-dir", folder, "--row", info["row"])
                assert row["fragments"][0]["document"] == info["document"]
        if config == first:
            early = token
        engine.stop()
    third = {**second, "checkpoint_dir": str(folder / "d")}
    engine = Engine(program, folder, third, "--accept-weights")
    rows_of(program, "--run", "e2e", "--run-dir", folder, "--row", 3)
    with Ranks(engine, token=early):
        assert_earlier_rows_are_refused(program, folder)
    engine.kill()


def test_rows_before_a_change_of_weights_are_refused(program, folder, corpus):
    stream = Stream(corpus, {"num_epochs": 1})
    config = {**stream.config(), "batch_size": 1, "checkpoint_dir": str(folder / "c"),
              "profile": "full"}
    engine = Engine(program, folder, config)
    with Ranks(engine) as ranks:
        list(ranks.turns(9))
    engine.stop()
    sources = [dict(source, weight=weight) for source, weight in zip(corpus.sources, (1, 5))]
    engine = Engine(program, folder, {**config, "sources": sources}, "--accept-weights")
    with Ranks(engine) as ranks:
        taken = [records_of(turn[0]) for turn in ranks.turns(7)]
        assert_earlier_rows_are_refused(program, folder)
    engine.stop()
    first = taken[0][0]["row"]
    position = json.loads(
        subprocess.run([program, "checkpoint", "show", folder / "c", "--json"],
                       capture_output=True, check=True).stdout)["next_row"]
    said = explain(program, folder / "c", "--row", position - 1, status=2)
    assert "weights were changed" in said and f"row {position}" in said
    rows = rows_of(program, folder / "c", "--row", f"{position}-{position + 2}")
    known = [record for batch in taken for record in batch if record["row"] >= position]
    found = [(row["row"], part["document"]) for row in rows for part in row["fragments"]]
    wanted = [(record["row"], record["document"]) for record in known]
    assert found[: len(wanted)] == wanted[: len(found)] and first < position


def test_provenance_off_by_one_is_found(broken, case, corpus, monkeypatch):
    config, stream, batches = case
    asked = ["-c", config, "--row", f"0-{len(stream.rows)}"]
    check_rows(rows_of(broken, *asked), batches, corpus)  # the control
    monkeypatch.setenv("RP_DEFECT", "provenance_off_by_one")
    with pytest.raises(AssertionError):
        check_rows(rows_of(broken, *asked), batches, corpus)


# ---- absent things -------------------------------------------------------------------------------


def test_a_reader_that_leaves(program, case):
    config = case[0]
    for form in "--json", "--csv", "--limit=400":
        command = f"'{program}' explain -c '{config}' --row 0-9999 {form} | head -c 40 >/dev/null"
        done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=600)
        assert done.stderr == b""


def test_a_file_is_replaced_whole_or_not_at_all(program, folder, case):
    config = case[0]
    out = folder / "out.html"
    out.write_text("old")
    explain(program, "-c", config, "--step", 10**6, "-o", out, status=2)
    assert out.read_text() == "old"
    assert "--row" in explain(program, "-c", config, "-o", out, status=2)
    assert "No such file" in explain(
        program, "-c", config, "--step", 0, "-o", folder / "none" / "x.html", status=2
    )


BAD = {
    "step 99999: the stream has": ["--step", "99999"],
    "row 99999: the stream has": ["--row", "99999"],
    "no stream has so many rows": ["--step", str(2**63)],
    "no source `sourse-1`; did you mean `source-1`?": ["--document", "sourse-1:4"],
    "no source `zzz`; there are: source-0, source-1": ["--document", "zzz:4"],
    "source `source-1` has no document 41: it has 41": ["--document", "source-1:41"],
    "the stream has 2 epochs": ["--document", "0:1", "--epoch", "2"],
    "no rank 2: there are 2": ["--step", "0", "--rank", "2"],
    "expected one of": ["--step", "0", "--row", "1"],
    "expected SOURCE:NUMBER": ["--document", "web"],
    "expected a row or FIRST-LAST": ["--row", "9-3"],
    "its tokenizer is not known": ["--row", "0", "--text", "x"],
    "are two forms": ["--row", "0", "--json", "--csv"],
}


@pytest.mark.parametrize("said", BAD)
def test_bad_questions_are_answered_by_name(program, case, said):
    error = explain(program, "-c", case[0], *BAD[said], status=2)
    assert said in error


def test_streams_that_are_not_there(program, folder, case):
    assert "no stream was named" in explain(program, "--step", 0, status=2)
    assert "no engine" in explain(
        program, "--run", "nobody", "--run-dir", folder, "--step", 0, status=2
    )
    assert "no checkpoint is here" in explain(program, folder, "--step", 0, status=2)
    (folder / "bad.rpc").write_bytes(b"RPCHECK\0" + bytes(20000))
    assert "bad.rpc" in explain(program, folder / "bad.rpc", "--step", 0, status=2)
    token = folder / "token"
    state = [program, "state", "-c", case[0], "--row", "5", "-o", token]
    subprocess.run(state, check=True, capture_output=True)
    assert "has no config" in explain(program, token, "--step", 0, status=2)
    assert "row 3" in explain(program, "-c", case[0], token, "--row", 3)
