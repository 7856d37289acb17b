# SPDX-License-Identifier: Apache-2.0
"""The tools on a stream of version 2: `plan` by stage and source, from row 0 and from a state,
`explain` of its rows, the ledger in `checkpoint show`, `audit`."""

import json
import subprocess
from collections import Counter, defaultdict

import pytest

STEP = 4


def config(corpora, **more):
    books, code = map(str, corpora)
    return {
        "stream_version": 2,
        "run": "staged",
        "sources": [
            {"name": "books", "path": books, "weight": 3, "max_epochs": 9},
            {"name": "code", "path": code, "weight": 0, "max_epochs": 0, "max_tokens": 1200},
        ],
        "seq_len": 32,
        "batch_size": 2,
        "global_batch_size": STEP,
        "packing_buffer": 6,
        "spread": 4,
        "stages": [
            {"until": "8 steps"},
            {"until": "40 steps", "weights": {"books": 1, "code": 1}, "ramp": 16},
            {"until": "row 4000", "seq_len": 64, "packing": "best_fit"},
            {"weights": {"books": 1}},
        ],
        "skip": {"steps": ["3-5"], "rows": [50]},
        **more,
    }


def run(program, folder, verb, *arguments, status=0, keys=None):
    (folder / "c.yaml").write_text(json.dumps(keys)) if keys else None
    command = [program, verb, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stderr if status else done.stdout


def plan(program, folder, *arguments, keys=None):
    told = run(program, folder, "plan", "-c", "c.yaml", "--json", *arguments, keys=keys)
    return json.loads(told)


def rows_of(program, folder, first, last):
    arguments = ("-c", "c.yaml", "--row", f"{first}-{last}", "--limit", 0, "--json")
    return json.loads(run(program, folder, "explain", *arguments))["rows"]


@pytest.fixture
def staged(folder, corpora):
    keys = config(corpora)
    (folder / "c.yaml").write_text(json.dumps(keys))
    return keys


def test_stages_and_sources_have_the_tokens_of_their_rows(program, folder, staged):
    told = plan(program, folder)
    rows = rows_of(program, folder, 0, told["rows"] - 1)
    by_stage = defaultdict(Counter)
    for row in rows:
        assert row["seq_len"] == (32 if row["row"] < 160 else 64)
        assert row["withheld"] == (12 <= row["row"] < 20 or row["row"] == 50)
        assert not (row["withheld"] and row["fragments"])
        for part in row["fragments"]:
            by_stage[row["stage"]][part["source"]] += part["tokens"]
    assert [stage["from"] for stage in told["stages"]] == [0, 32, 160, 4000]
    assert [stage["reached"] for stage in told["stages"]] == [True, True, True, False]
    assert [stage["rows_withheld"] for stage in told["stages"]] == [8, 1, 0, 0]
    assert [stage["rows"] for stage in told["stages"]] == [32, 128, told["rows"] - 160, 0]
    assert [stage["places"] for stage in told["stages"][:2]] == [32 * 32, 128 * 32]
    for number, stage in enumerate(told["stages"][:3]):
        found = {part["source"]: part["tokens"] for part in stage["mixture"]}
        assert +Counter(found) == by_stage[number], number
    assert told["stages"][1]["ramp"] == 16
    assert [part["asked"] for part in told["stages"][1]["mixture"]] == [0.5, 0.5]
    for source in told["sources"]:
        name = source["source"]
        assert source["delivered"] == sum(stage[name] for stage in by_stage.values())
        assert source["planned"] == source["delivered"] + source["withheld"] + source["waiting"]
        assert source["waiting"] == 0
    books, code = told["sources"]
    assert books["withheld"] > 0
    assert books["epochs"] == 9 and books["limit"] == "max_epochs"
    assert code["limit"] == "max_tokens" and code["planned"] >= 1200
    assert told["complete"]


def test_a_count_of_all_rows_in_one_stage_is_found(broken, folder, staged, monkeypatch):
    """The control of the test above."""
    monkeypatch.setenv("RP_DEFECT", "count_all_in_first_stage")
    with pytest.raises(AssertionError):
        test_stages_and_sources_have_the_tokens_of_their_rows(broken, folder, staged)


@pytest.mark.parametrize("deal", [None, {"window": 16, "step": 4, "tier": 2, "cost": 8}])
def test_each_epoch_has_each_token_once(program, folder, corpora, deal):
    """Long documents of several epochs wait in the pool at the same time."""
    keys = config(corpora, stages=[], skip={}, spread=64, max_docs_per_row=32)
    keys["sources"] = [dict(keys["sources"][0], documents="0-6", max_epochs=5)]
    del keys["stages"], keys["skip"]
    keys |= {"deal": deal} if deal else {}
    told = plan(program, folder, keys=keys)
    parts = defaultdict(list)
    for row in rows_of(program, folder, 0, told["rows"] - 1):
        for part in row["fragments"]:
            parts[part["document"], part["epoch"]].append((part["offset"], part["tokens"]))
    assert {epoch for _, epoch in parts} == set(range(5))
    for (document, _), found in parts.items():
        at = 0
        for offset, tokens in sorted(found):
            assert offset == at
            at += tokens
        assert at == sum(tokens for _, tokens in parts[document, 0])


def test_a_plan_from_a_state_has_the_rows_after_it(program, folder, staged):
    whole = plan(program, folder)
    run(program, folder, "state", "-c", "c.yaml", "--step", 20, "-o", "at.token")
    told = plan(program, folder, "--state", "at.token")
    assert told["state"]["row"] == 80
    assert told["rows"] == whole["rows"] - 80
    assert told["stages"][0]["rows"] == 0
    assert told["stages"][1]["rows"] == 160 - 80
    for now, before in zip(told["sources"], whole["sources"]):
        assert {**now, "epochs_before": 0.0} == before
        assert 0 < now["epochs_before"] < now["epochs"]
    # What is ahead may be edited.
    keys = json.loads(json.dumps(staged))
    keys["stages"][2]["weights"] = {"books": 1, "code": 3}
    keys["sources"][1]["max_tokens"] = 2000
    edited = plan(program, folder, "--state", "at.token", keys=keys)
    assert edited["sources"][1]["planned"] >= 2000
    assert edited["stages"][2]["mixture"][1]["asked"] == 0.75
    # What is begun may not, in the words of a start.
    keys = json.loads(json.dumps(staged))
    keys["stages"][1]["ramp"] = 20
    (folder / "c.yaml").write_text(json.dumps(keys))
    said = run(program, folder, "plan", "-c", "c.yaml", "--state", "at.token", status=2)
    assert "ramp of the stage from row 32 differs: the state has 16, this run has 20" in said
    keys = json.loads(json.dumps(staged))
    keys["skip"]["steps"] = ["3-6"]
    (folder / "c.yaml").write_text(json.dumps(keys))
    said = run(program, folder, "plan", "-c", "c.yaml", "--state", "at.token", status=2)
    assert "hash of the skips below next_row differs" in said


def test_a_token_lists_its_ledger(program, folder, staged):
    run(program, folder, "state", "-c", "c.yaml", "--row", 80, "-o", "at.token")
    token = json.loads(run(program, folder, "checkpoint", "show", "at.token", "--json"))["token"]
    delivered = Counter()
    for row in rows_of(program, folder, 0, 79):
        for part in row["fragments"]:
            delivered[part["source"]] += part["tokens"]
    assert token["stages_begun"] == 2
    assert (token["window_first"], token["window_end"]) == (80, 80)
    books, code = token["ledger"]
    assert (books["source"], books["weight"], books["max_epochs"]) == ("books", 1, 9)
    assert (code["source"], code["max_tokens"], code["on_exhausted"]) == ("code", 1200, "continue")
    planned = sum(source["tokens"] - source["withheld"] for source in token["ledger"])
    assert planned == sum(delivered.values()) + token["buffered"]
    said = run(program, folder, "checkpoint", "show", "at.token")
    assert "  0 books: weight 1, epoch " in said
    assert "max_tokens 1,200, continue" in said
    said = run(program, folder, "audit", "at.token", "c.yaml")
    assert said.startswith("identical: all rows before row 80")
    run(program, folder, "checkpoint", "export", "at.token", "-o", "at.json")
    fields = json.loads((folder / "at.json").read_text())["ringpack_fields"]
    assert fields["source[0001].max_tokens"] == "1200"


def test_a_selection_is_counted_by_value(program, folder, corpora):
    keys = config(corpora, index=str(folder / "i.rpi"))
    keys["sources"] = [
        dict(keys["sources"][0], select="score >= 1", repeat={2: "score == 2 and length > 9"}),
        keys["sources"][1],
    ]
    plain = config(corpora, index=keys["index"])
    run(program, folder, "index", "-q", "-c", "c.yaml", keys=plain)
    inspected = json.loads(run(program, folder, "inspect", "--json", keys["index"]))
    documents = inspected[0]["sources"][0]["documents"]
    scores = [document % 4 for document in range(documents)]
    (folder / "s.jsonl").write_text("".join(f'{{"score": {score}}}\n' for score in scores))
    run(program, folder, "annotate", "-c", "c.yaml", "--source", "books", "--column=score=s.jsonl")
    books = plan(program, folder, keys=keys)["sources"][0]
    assert books["selected"] == sum(score >= 1 for score in scores)
    assert books["documents"] == documents
    counts = {column["value"]: column for column in books["columns"]["score"]}
    assert {value: column["documents"] for value, column in counts.items()} == Counter(scores)
    assert counts[0]["selected"] == counts[0]["takes"] == 0
    assert counts[3]["selected"] == counts[3]["takes"] == scores.count(3)
    assert scores.count(2) < counts[2]["takes"] <= 2 * scores.count(2)
    assert books["takes"] == sum(column["takes"] for column in counts.values())
    said = run(program, folder, "plan", "-c", "c.yaml")
    assert f"      score 0: 0 of {scores.count(0)} documents" in said


def test_the_report_and_the_picture_name_the_stages(program, folder, staged):
    said = run(program, folder, "plan", "-c", "c.yaml", "--svg", "p.svg")
    for line in (
        "  stage 0: rows 0 to 31, 8 steps, 1,024 places\n     seq_len 32, packing lookahead, ",
        "  stage 1: rows 32 to 159, 32 steps, 4,096 places\n     ramp of 16 rows from the shares ",
        "     8 rows withheld (skip)\n",
        "     seq_len 64, packing best_fit",
        "  stage 3 from row 4,000: not reached, because the stream ends before it\n",
        "    max_epochs reached at row ",
        "tokens (long_doc: split; too_long, without)\n",
    ):
        assert line in said, said
    drawn = (folder / "p.svg").read_text()
    assert "rows of 32 to 64 tokens" in drawn
    assert [f">stage {n}</text>" in drawn for n in range(4)] == [False, True, True, False]


def test_spread_is_advised_and_not_lanes(program, folder, corpora):
    keys = config(corpora, spread=1, global_batch_size=16)
    keys["sources"] = [dict(keys["sources"][0], documents="0-3")]
    del keys["stages"], keys["skip"]
    told = plan(program, folder, keys=keys | {"seq_len": 8})
    assert "lanes_advised" not in told
    assert told["spread_advised"] in (1, 16)
