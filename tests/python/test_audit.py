# SPDX-License-Identifier: Apache-2.0
"""`ringpack audit A B`: positions of one stream are identical or continue each other, the first row
that differs is the one that the plans show, and no unproven verdict is given."""

import json
import os
import signal
import subprocess
from pathlib import Path

import numpy
import pytest
import xxhash
from stream_kit import PATIENCE, VERSION_1, Corpus, Engine, Ranks, Stream, token_of, write_megatron

SEED = int(os.environ.get("RP_SEED", "0")) or 41
ROWS = 25000  # so that there are landmarks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two configs over one corpus that differ in a weight, and one with another seed."""
    print(f"RP_SEED={SEED}")
    folder, generator = tmp_path_factory.mktemp("audit"), numpy.random.default_rng(SEED)
    paths = []
    for name, count in (("a", 40000), ("b", 20000)):
        lengths = generator.integers(1, 30, count)
        tokens = generator.integers(1, 999, lengths.sum())
        documents = numpy.split(tokens, numpy.cumsum(lengths)[:-1])
        paths.append(write_megatron(folder / name, documents, "u16"))
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    for name, weight, seed in (("one", 1, 3), ("two", 1.00001, 3), ("seed", 1, 4)):
        sources = [{"path": paths[0], "weight": weight}, {"path": paths[1], "weight": 1}]
        config = {**VERSION_1, "sources": sources, "seq_len": 32, "batch_size": 1, "seed": seed}
        (folder / f"{name}.yaml").write_text(json.dumps(config))
    return folder


def audit(program, folder, *words, status=0):
    command = [program, "audit", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)
    assert done.returncode == status, (words, done.stdout, done.stderr)
    return done.stdout if status < 2 else done.stderr


def said(program, folder, *words, status=0):
    return json.loads(audit(program, folder, *words, "--json", status=status))


def state(program, folder, config, row):
    path = folder / f"{config}-{row}"
    command = [program, "state", "-c", f"{config}.yaml", "--row", str(row), "-o", path]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return path


def rows_of(program, folder, config, first, last):
    command = [program, "explain", "-c", f"{config}.yaml", "--row", f"{first}-{last}", "--json"]
    command += ["--limit", "0"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    names = "source", "document", "offset", "tokens"
    return [
        [tuple(fragment[name] for name in names) for fragment in row["fragments"]]
        for row in json.loads(done.stdout)["rows"]
    ]


def with_hash(path, content):
    path.write_bytes(content + xxhash.xxh3_128_digest(content)[::-1])
    return path


def without_digest(path):
    token = path.read_bytes()
    head = token[:8] + b"\1\0\0\0" + (len(token) - 32).to_bytes(4, "little")
    return with_hash(path.with_name(path.name + "-older"), head + token[16:-48])


def test_positions_of_one_stream(program, folder):
    early, late = (state(program, folder, "one", row) for row in (12345, ROWS))
    assert audit(program, folder, early, early).startswith("identical: all rows before row 12,345")
    assert "give it" in (told := audit(program, folder, early, late, status=3)) or "-c" in told
    for pair in (early, late), (late, early):
        told = said(program, folder, *pair, "-c", "one.yaml")
        assert (told["verdict"], told["rows"]) == ("continues", 12345)
    told = said(program, folder, late, "one.yaml")
    assert (told["verdict"], told["rows"]) == ("identical", ROWS)
    assert told["a"]["plan_digest"] == told["b"]["plan_digest"]
    assert said(program, folder, "one.yaml", "one.yaml", "--step", 12)["verdict"] == "identical"
    assert "configs" in audit(program, folder, "one.yaml", "one.yaml", status=2)
    assert "ends with row" in audit(program, folder, "one.yaml", late, "--row", 10**9, status=2)


def test_the_first_row_that_differs(program, folder):
    """The weights differ by a hundred thousandth, so the first row that differs is far."""
    told = said(program, folder, "one.yaml", "two.yaml", "--row", ROWS, status=1)
    assert told["verdict"] == "differs" and told["rows"] > 0
    row = told["rows"]
    rows = [rows_of(program, folder, name, row - 1, row) for name in ("one", "two")]
    assert rows[0][0] == rows[1][0] and rows[0][1] != rows[1][1]
    first = next(pair for pair in zip(*(side[1] for side in rows)) if pair[0] != pair[1])
    for side, fragment in zip("ab", first):
        assert tuple(told[side]["first"].values()) == fragment
    text = audit(program, folder, "one.yaml", "two.yaml", "--row", ROWS, status=1)
    assert f"row {row:,} is the first that differs" in text and f"document {first[0][1]}" in text
    assert said(program, folder, "one.yaml", "two.yaml", "--row", row)["verdict"] == "identical"


def test_other_streams_and_what_cannot_be_told(program, folder):
    told = said(program, folder, "one.yaml", "seed.yaml", "--row", 9, status=1)
    assert (told["verdict"], told["fields"]) == (
        "other_stream", [{"field": "seed", "a": "3", "b": "4"}])
    assert "seed: 3, 4" in audit(program, folder, "one.yaml", "seed.yaml", "--row", 9, status=1)
    token = state(program, folder, "one", 100)
    older = without_digest(token)
    assert "no plan digest" in audit(program, folder, token, older, status=3)
    content = bytearray(token.read_bytes()[:-16])
    content[-1] ^= 1  # the digest's
    lie = with_hash(token.with_name("lie"), content)
    assert "neither has a config" in audit(program, folder, token, lie, status=3)
    told = said(program, folder, token, lie, "-c", "one.yaml", status=1)
    assert told["verdict"] == "deviates"
    assert (told["a"]["is_plan_of_config"], told["b"]["is_plan_of_config"]) == (True, False)
    for words in ([token], [token, "nowhere"], [token, os.devnull], [token, token, token]):
        audit(program, folder, *words, status=2)
    damaged = token.with_name("damaged")
    damaged.write_bytes(content + bytes(16))
    for words in ([token, damaged], [damaged, token]):
        assert f"{damaged}: state token: its hash" in audit(program, folder, *words, status=2)
    words = ["one.yaml", "two.yaml", "--step", 2**64 - 1]
    assert "VERB" not in audit(program, folder, *words, status=2)


def test_weights_that_were_changed(program, folder, tmp_path):
    """A run that resumes from a state, with other weights, continues it. If weights were changed
    between two positions, it is unknown whether one continues the other."""
    before, at = (state(program, folder, "one", row) for row in (500, 800))
    config = json.loads((folder / "one.yaml").read_text())
    config["sources"][0]["weight"] = 2
    engine = Engine(program, tmp_path, config, "--state", at, "--accept-weights")
    with Ranks(engine) as ranks:
        list(ranks.turns(300))
        (tmp_path / "later").write_bytes(token_of(ranks.loaders[0]))
    engine.stop()
    late = [tmp_path / "later", "-c", tmp_path / "e2e.yaml"]
    told = said(program, folder, at, *late)
    assert (told["verdict"], told["rows"], told["b"]["row"]) == ("continues", 800, 1100)
    told = said(program, folder, "one.yaml", *late, "--row", 800)
    assert (told["verdict"], told["rows"]) == ("continues", 800)
    unsure = [before, *late], ["one.yaml", *late, "--row", 500], [at, late[0], "-c", "one.yaml"]
    for words in unsure:
        assert "cannot be told" in audit(program, folder, *words, status=3)
    words = "one.yaml", state(program, folder, "two", ROWS), "-c", "two.yaml", "--row", ROWS - 1
    assert said(program, folder, *words, status=1)["verdict"] == "differs"
    assert said(program, folder, "one.yaml", "one.yaml", "--row", ROWS)["verdict"] == "identical"


def test_an_interrupt_ends_it_while_it_plans(program, folder):
    config = json.loads((folder / "one.yaml").read_text())
    (folder / "endless.yaml").write_text(json.dumps({**config, "num_epochs": 0}))
    early = state(program, folder, "endless", 9)
    content = bytearray(early.read_bytes()[:-16])
    content[96:104] = (10**15).to_bytes(8, "little")  # its row, which would take days to reach
    command = [program, "audit", early, with_hash(folder / "far", content), "-c", "endless.yaml"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            ticks = 0
            while ticks < 20 and process.poll() is None:  # of CPU time: it plans by then
                ticks = int(Path(f"/proc/{process.pid}/stat").read_text().split()[13])
            process.send_signal(signal.SIGINT)
            error = process.communicate(timeout=PATIENCE)[1]
        finally:
            process.kill()
    assert process.returncode == 2 and "interrupted; the run is unchanged" in error, error


def test_a_run_that_was_killed_and_resumed_proves_it(program, tmp_path):
    """The checkpoint of the second life, and the tokens of its trainers, follow from the config and
    row 0; and every rank has the same digest."""
    stream = Stream(Corpus(tmp_path, [("megatron", "u16", 1, [60, 50])], SEED), {"num_epochs": 2})
    config = {**stream.config(), "batch_size": 1, "checkpoint_dir": str(tmp_path / "c")}
    engine = Engine(program, tmp_path, config)
    with Ranks(engine) as ranks:
        list(ranks.turns(9))
        token = token_of(ranks.loaders[0])
        digest = ranks.loaders[0].plan_digest
        engine.checkpoint()
    engine.kill()
    engine = Engine(program, tmp_path, config)
    with Ranks(engine) as ranks:
        list(ranks.turns(5))
        (tmp_path / "later").write_bytes(token_of(ranks.loaders[0]))
    engine.stop()
    (tmp_path / "token").write_bytes(token)
    told = said(program, tmp_path, "token", "c")
    assert told["verdict"] in ("identical", "continues") and told["a"]["plan_digest"] == digest
    assert said(program, tmp_path, "token", "later", "-c", "e2e.yaml")["verdict"] == "continues"
    assert said(program, tmp_path, "c", "e2e.yaml")["verdict"] == "identical"
