# SPDX-License-Identifier: Apache-2.0
"""The run journal: it has the acts of engines and operators on the data of a run, in a chain that
this file computes by itself; damage is named; and no journal ever stops a run."""

import hashlib
import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from failure_kit import WITHOUT_IO_URING
from stream_kit import IO_URING_WORKS, Corpus, Engine, Ranks, Stream, token_of, wait_until

SEED = int(os.environ.get("RP_SEED", "0")) or 43
NAME = "run-journal.jsonl"


def audit(program, *words, status=0):
    command = [program, "journal", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == status, (words, done.stdout, done.stderr)
    return done.stdout if status < 2 else done.stderr


def checked(path):
    """The entries of a journal without damage, only by the rules of base/chain.h."""
    after, entries = "0" * 64, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        content, hash_text = line[:-75], line[-75:]
        digest = hashlib.sha256(content.encode()).hexdigest()
        assert hash_text == f',"hash":"{digest}"}}' and list(json.loads(line))[:2] == [
            "entry", "after"]
        entry = json.loads(line)
        assert (entry["entry"], entry["after"]) == (number, after)
        entries.append(entry)
        after = digest
    return entries


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    print(f"RP_SEED={SEED}")
    sources = [("megatron", "u16", 1, [60]), ("megatron", "u16", 1, [50])]
    corpus = Corpus(tmp_path_factory.mktemp("corpus"), sources, SEED)
    return Stream(corpus, {"num_epochs": 3})


def life(program, folder, config, *options, turns=3, token=None, kill=False):
    """One engine; the end of its trainers: a token and its plan digest."""
    engine = Engine(program, folder, config, *options)
    try:
        with Ranks(engine, config.get("dp_world_size", 1), token) as ranks:
            list(ranks.turns(turns))
            state = token_of(ranks.loaders[0]), ranks.loaders[0].plan_digest
            if kill:  # a thread writes entries, and a kill does not wait for it
                journal = Path(config["checkpoint_dir"]) / NAME
                wait_until(lambda: b'"rolled_back"' in journal.read_bytes(), "the entry")
    finally:
        assert kill or engine.stop() == 0, engine.log()
        engine.kill()
    return state


@pytest.fixture(scope="module")
def run(program, stream, tmp_path_factory):
    """A run with every event of the journal. Its folder, and the entries of the journal: event,
    row, plan digest."""
    folder = tmp_path_factory.mktemp("run")
    kept = folder / "c"
    base = {**stream.config(), "batch_size": 1, "checkpoint_dir": str(kept)}
    first = life(program, folder, base, "--fresh")
    two = {**base, "dp_world_size": 2, "global_batch_size": 2}
    second = life(program, folder, two, "--resume", "required")
    life(program, folder, two, token=first[0], kill=True)
    subprocess.run([program, "checkpoint", "export", kept, "-o", folder / "x.json"], check=True)
    imported = [program, "checkpoint", "import", folder / "x.json", "-o"]
    subprocess.run([*imported, kept / "x.token"], check=True)
    subprocess.run([*imported, folder / "x.token"], check=True)  # no run's: in no journal
    third = life(program, folder, {**base, "batch_size": 2}, turns=2)
    subprocess.run([program, "checkpoint", "rewind", kept, "--to-row", "3"], check=True)
    fourth = life(program, folder, base, turns=1)
    (folder / "first").write_bytes(first[0])
    weights = [{**base["sources"][0], "weight": 3}, base["sources"][1]]
    fifth = life(program, folder, {**base, "sources": weights}, "--state", folder / "first",
                 "--accept-weights", turns=1)
    os.unlink(max(kept.glob("*.rpc")))
    sixth = life(program, folder, base, "--fresh", turns=1)
    zero = checked(kept / NAME)[0].get("plan_digest")
    told = [("started", 0, zero), ("stopped", 3, first[1]),
            ("started", 3, first[1]), ("stopped", 9, second[1]),
            ("started", 9, second[1]), ("rolled_back", 3, None),
            ("exported", 9, second[1]), ("imported", 9, second[1]),
            ("started", 9, second[1]), ("stopped", 13, third[1]),
            ("rewound", 3, None), ("started", 3, first[1]), ("stopped", 4, fourth[1]),
            ("started", 3, first[1]), ("stopped", 4, fifth[1]),
            ("started", 0, zero), ("stopped", 1, sixth[1])]
    return folder, told


def test_everything_that_happened_is_told(run):
    folder, told = run
    entries = checked(folder / "c" / NAME)
    assert [(e["event"], e.get("row"), e.get("plan_digest")) for e in entries] == told
    starts = [entry for entry in entries if entry["event"] == "started"]
    assert [start["before"] for start in starts] == [
        "none", "stopped", "stopped", "killed", "stopped", "stopped", "stopped"]
    assert [start["policy"] for start in starts] == [
        "fresh", "required", "auto", "auto", "auto", "state", "fresh"]
    assert [start.get("set_aside") for start in starts[:-1]] == [None] * 6
    assert starts[-1]["set_aside"] == len(list((folder / "c").glob("set-aside-*/*"))) > 0
    assert starts[0]["from"] == starts[-1]["from"] == "row 0"
    assert starts[5]["from"] == "state token" and starts[5]["reweighted"] is True
    assert "missing" not in starts[5] and re.fullmatch(r"checkpoint-\d{12}\.rpc", starts[1]["from"])
    assert [start["dp_world_size"] for start in starts] == [1, 2, 2, 1, 1, 1, 1]
    assert {entry["cause"] for entry in entries if entry["event"] == "stopped"} == {"signal"}


def test_one_page_says_it(program, run):
    folder, told = run
    page = audit(program, folder / "c")
    for text in ("started at row 0 from row 0 (resume: fresh)", "stopped (signal) at row 3, saved",
                 "dp_world_size 1 to 2", "batch_size 1 to 2", "was killed",
                 "trainers attached from a state of row 3", "was exported to",
                 "the state of row 9 was imported from",
                 "rewound by an operator to row 3", "rows 3 to 12 are given again, as the rewind",
                 "with other weights", "were set aside"):
        assert text in page, text
    assert page.count("were set aside") == 1  # the first fresh start found no checkpoint
    assert "PROBLEM" not in page and page.splitlines()[-1].startswith("whole: ")
    said = json.loads(audit(program, folder / "c", "--json"))
    assert said["whole"] and said["entries"] == checked(folder / "c" / NAME)
    assert said["problems"] == [] and said["whole_entries"] == len(told)
    audit(program, folder / "c" / NAME, "--expect", said["hash"])
    assert "no entry has the hash" in audit(program, folder / "c", "--expect", "00", status=1)


def test_damage_is_named_and_a_copy_is_as_good(program, broken, run, tmp_path, monkeypatch):
    folder, told = run
    copy = tmp_path / "copy"
    shutil.copytree(folder / "c", copy)
    whole = (copy / NAME).read_bytes()
    assert json.loads(audit(program, copy, "--json"))["whole"]
    lines, generator = whole.splitlines(keepends=True), random.Random(SEED)
    for at in [0, len(whole) - 1, *generator.sample(range(len(whole)), 12)]:  # all: test_chain.c
        flipped = bytearray(whole)
        flipped[at] ^= 1 << generator.randrange(8)
        (copy / NAME).write_bytes(flipped)
        said = json.loads(audit(program, copy, "--json", status=1))
        line = whole[:at].count(b"\n")
        assert said["whole_entries"] in (line, line + 1) and said["problems"], at
    cut = len(b"".join(lines[:5])) + 40
    (copy / NAME).write_bytes(whole[:cut])
    page = audit(program, copy, status=1)
    assert "40 bytes after entry 5 are of no entry" in page and "5 of 5 entries" in page
    (copy / NAME).write_bytes(b"".join(lines[:3] + lines[4:]))
    assert "entries 4 to 4 are missing" in audit(program, copy, status=1)
    for defect in "trust_chain_links", "trust_chain_hash":
        monkeypatch.setenv("RP_DEFECT", defect)
        changed = whole.replace(b'"row":3,', b'"row":2,', 1)
        (copy / NAME).write_bytes(changed if "hash" in defect else b"".join(lines[:4] + lines[5:]))
        said = json.loads(audit(program, copy, "--json", status=1))
        unsound = subprocess.run([broken, "journal", copy, "--json"], capture_output=True)
        assert len(json.loads(unsound.stdout)["problems"]) < 2 + ("links" in defect), said


def test_a_stop_that_is_not_written_is_a_kill(broken, program, stream, tmp_path, monkeypatch):
    config = {**stream.config(), "batch_size": 1, "checkpoint_dir": str(tmp_path / "c")}
    life(program, tmp_path, config)
    monkeypatch.setenv("RP_DEFECT", "leave_out_journal_stop")
    life(broken, tmp_path, config)
    monkeypatch.delenv("RP_DEFECT")
    life(program, tmp_path, config)
    starts = [entry["before"] for entry in checked(tmp_path / "c" / NAME)
              if entry["event"] == "started"]
    assert starts == ["none", "stopped", "killed"]


@pytest.mark.skipif(not IO_URING_WORKS, reason="needs io_uring, to be without it")
def test_a_start_that_fails_late_has_its_end(program, stream, tmp_path):
    """The entry of a start is begun before the threads that read and pack. If these cannot start,
    the run has ended, and was not killed."""
    config = {**stream.config(), "batch_size": 1, "checkpoint_dir": str(tmp_path / "c")}
    life(program, tmp_path, config)
    engine = Engine(program, tmp_path, {**config, "io": "io_uring"}, wait=False,
                    prefix=WITHOUT_IO_URING)
    assert engine.wait() == 2 and "io_uring" in engine.log()
    life(program, tmp_path, config)
    first, end, failed, its_end, again, _ = checked(tmp_path / "c" / NAME)
    assert (failed["event"], its_end["event"]) == ("started", "stopped")
    assert its_end["cause"] == "failure"
    assert "io_uring" in its_end["reason"]
    assert failed["row"] == its_end["consumed_row"] == again["row"] == end["row"]
    assert (failed["before"], again["before"]) == ("stopped", "stopped")
    assert "missing" not in again


def test_a_run_goes_on_with_any_journal(program, stream, tmp_path):
    """A torn end is continued, and the entry says so; a failed write is one warning."""
    kept = tmp_path / "c"
    config = {**stream.config(), "batch_size": 1, "checkpoint_dir": str(kept)}
    life(program, tmp_path, config)
    whole = (kept / NAME).read_bytes()
    (kept / NAME).write_bytes(whole[:-100])
    engine = Engine(program, tmp_path, config)
    second = subprocess.run([program, "serve", "-c", tmp_path / "e2e.yaml", "--run", "other"],
                            capture_output=True, text=True, timeout=600)
    assert second.returncode == 2 and "another ringpack writes here" in second.stderr
    assert "was killed" in audit(program, "e2e", "--run-dir", tmp_path)  # the stop is torn
    assert engine.stop() == 0
    said = json.loads(audit(program, kept, "--json"))
    assert said["whole"] and [e["event"] for e in said["entries"]] == [
        "started", "started", "stopped"]
    assert any("kill or a power cut" in remark["what"] for remark in said["remarks"])
    for path in kept.glob("*.rpc"):
        path.unlink()
    life(program, tmp_path, config)
    assert "not there any more: removed, moved or renamed by hand" in audit(program, kept)
    (kept / NAME).unlink()
    (kept / NAME).mkdir()
    engine = Engine(program, tmp_path, config)
    assert engine.stop() == 0 and engine.log().count("the run journal is not written") == 1
    assert subprocess.run([program, "checkpoint", "verify", kept]).returncode == 0


def test_what_is_no_journal(program, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("no journal\n")
    (tmp_path / "nothing").mkdir()
    for name, text in (("empty", "none of its 0 bytes"), ("text", "none of its 11 bytes"),
                       ("nothing", "no engine has written"), ("elsewhere", "no running engine")):
        assert text in audit(program, tmp_path / name, status=2)
    for words in ([], ["a", "b"]):
        audit(program, *words, status=2)
    members = '{"entry":1,"after":"%s","event":"a\\u001b[2J\\nb"' % ("0" * 64)
    digest = hashlib.sha256(members.encode()).hexdigest()
    (tmp_path / "hostile").write_text(f'{members},"hash":"{digest}"}}\n')
    page = audit(program, tmp_path / "hostile")
    assert "a?[2J?b" in page and "\x1b" not in page
