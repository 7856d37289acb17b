# SPDX-License-Identifier: Apache-2.0
"""`ringpack plan --state`: the rows from a state on, with the config as it is now, against the
oracle; refusals in the words of a start; each form of a state; the picture."""

import json
import re
import subprocess

import pytest
from state import load_token
from stream import Plan
from stream_kit import VERSION_1, Corpus, Engine, Ranks, Stream

SEED = 23
WEIGHTS = (1, 4)


@pytest.fixture(scope="module")
def corpus(program, tmp_path_factory):
    layout = [("megatron", "u16", 3, [90]), ("npy", "u16", 1, [60])]
    corpus = Corpus(tmp_path_factory.mktemp("plan"), layout, SEED)
    corpus.index(program)
    return corpus


def run(program, folder, verb, *arguments, status=0):
    command = [program, verb, "-c", "c.yaml", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stderr if status else done.stdout


def write_config(folder, stream, **more):
    keys = {"batch_size": 2, "global_batch_size": 6, "run_dir": str(folder), **more}
    (folder / "c.yaml").write_text(json.dumps({**stream.config(), **keys}))


def token_at(program, folder, row):
    run(program, folder, "state", "--row", row, "-o", "at.token")
    return (folder / "at.token").read_bytes()


def reweighted(corpus, weights=WEIGHTS):
    return [dict(source, weight=weight) for source, weight in zip(corpus.sources, weights)]


def rows_of(stream, token, weights=None, epochs=None):
    """The oracle's rows from the token on."""
    stream.state(0, token)  # takes the fingerprints
    stream.spec.weights = list(weights or stream.spec.weights)
    stream.spec.num_epochs = epochs or stream.spec.num_epochs
    plan, rows = Plan(stream.spec), []
    load_token(plan, token)
    while row := plan.row():
        rows.append(row)
    return rows


@pytest.mark.parametrize("change", ["none", "weights", "epochs"])
@pytest.mark.parametrize("packing", ["lookahead", "best_fit", "concat"])
def test_the_rows_are_those_of_the_oracle(program, folder, corpus, packing, change):
    stream = Stream(corpus, {"packing": packing, "num_epochs": 1, "window": 5, "seed": SEED})
    write_config(folder, stream)
    whole = json.loads(run(program, folder, "plan", "--json"))
    at = 7 * len(stream.rows) // 20
    token = token_at(program, folder, at)
    changes = {
        "none": ({}, {}),
        "weights": ({"sources": reweighted(corpus)}, {"weights": WEIGHTS}),
        "epochs": ({"num_epochs": 3}, {"epochs": 3}),
    }
    keys, own = changes[change]
    write_config(folder, stream, **keys)
    told = json.loads(run(program, folder, "plan", "--json", "--state", "at.token"))
    rows = rows_of(stream, token, **own)
    assert_counts(told, stream, rows, at)
    assert told["state"]["weights_differ"] == (change == "weights")
    assert told["state"]["num_epochs"] == 1
    if change == "none":
        assert rows == stream.rows[at:]
        assert told["rows"] + at == whole["rows"]
        assert told["trailing_documents"] == whole["trailing_documents"]
    # A preview of less than the rest.
    told = json.loads(
        run(program, folder, "plan", "--json", "--state", "at.token", "--rows", 9)
    )
    assert not told["complete"]
    assert_counts(told, stream, rows[:9], at)


def assert_counts(told, stream, rows, at):
    assert told["state"] | {"file": "at.token", "row": at} == told["state"]
    assert told["rows"] == len(rows)
    tokens = [
        sum(f.length for row in rows for f in row if f.source == number)
        for number in range(len(stream.sources))
    ]
    assert [source["tokens"] for source in told["mixture"]] == tokens
    assert told["tokens"] == sum(tokens)
    assert told["padding"] == len(rows) * stream.spec.L - sum(tokens)
    assert told["efficiency"] == pytest.approx(sum(tokens) / (len(rows) * stream.spec.L))
    for source, own in zip(told["mixture"], tokens):
        assert source["realised"] == pytest.approx(own / sum(tokens))


def test_a_preview_that_counts_from_row_0_is_found(broken, folder, corpus, monkeypatch):
    """The control of the test above."""
    monkeypatch.setenv("RP_DEFECT", "count_rows_before_state")
    with pytest.raises(AssertionError, match=r"assert \d+ == \d+"):
        test_the_rows_are_those_of_the_oracle(broken, folder, corpus, "lookahead", "none")


def test_the_report_says_row_file_and_weights(program, folder, corpus):
    """Of a directory the newest checkpoint is named, of each form of a state the file."""
    stream = Stream(corpus, {"num_epochs": 1, "seed": SEED})
    kept = folder / "kept"
    config = {**stream.config(), "batch_size": 2, "checkpoint_dir": str(kept)}
    engine = Engine(program, folder, config)
    with Ranks(engine) as ranks:
        assert len(list(ranks.turns(5))) == 5
        engine.checkpoint()
        assert len(list(ranks.turns(5))) == 5
        newest = engine.checkpoint()
    engine.kill()
    run_config = {"checkpoint_dir": str(kept), "sources": reweighted(corpus)}
    write_config(folder, stream, **run_config)
    before = sorted(kept.iterdir())
    said = run(program, folder, "plan", "--state", kept)
    found = re.search(r"^from row (\d+), the position of (\S+)$", said, re.M)
    assert 10 < int(found[1]) <= 20 and found[2] == str(newest), (said, newest)
    assert said.startswith(found[0])
    assert "weight of source source-1 differs" in said and "--accept-weights" in said
    told = json.loads(run(program, folder, "plan", "--json", "--state", newest))
    assert told["state"]["row"] == int(found[1]) and told["state"]["weights_differ"]
    for form in "token", "json", "npz":
        name = f"state.{form}"
        command = [program, "checkpoint", "export", str(newest), "-o", name]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
        again = json.loads(run(program, folder, "plan", "--json", "--state", name))
        assert again["state"] == {**told["state"], "file": name}
        assert again["mixture"] == told["mixture"]
    write_config(folder, stream, num_epochs=0)
    said = run(program, folder, "plan", "--rows", 100, "--state", kept)
    assert "num_epochs differs: the state has 1, this run has endless" in said
    assert "--accept-weights" not in said
    assert sorted(kept.iterdir()) == before  # no file of the run was changed


def test_a_refusal_is_that_of_a_start(program, folder, corpus):
    stream = Stream(corpus, {"num_epochs": 2, "seed": SEED})
    write_config(folder, stream)
    token = token_at(program, folder, len(stream.rows) - 2)
    (folder / "cut.token").write_bytes(token[:-3])
    (folder / "no.token").write_bytes(b"")
    (folder / "empty").mkdir()
    other = {"sources": corpus.sources[:1]}
    both = {"sources": reweighted(corpus), "seed": 8}
    cases = [
        ("at.token", {"seed": 7}, "seed differs: the state has 23, this run has 7"),
        ("at.token", {"seq_len": 64}, "seq_len differs: the state has 48, this run has 64"),
        ("at.token", {"plan_partitions": 2}, "plan_partitions differs"),
        ("at.token", {"num_epochs": 1}, "num_epochs differs: the state has 2, this run has 1"),
        ("at.token", other, "number of sources differs: the state has 2, this run has 1"),
        ("at.token", both, "seed differs"),
        ("cut.token", {}, "RP_E_CORRUPT"),
        ("no.token", {}, "found an empty file"),
        ("empty", {}, "no checkpoint is here"),
        ("nowhere", {}, "No such file"),
    ]
    for state, keys, words in cases:
        write_config(folder, stream, **keys)
        said = [
            run(program, folder, verb, "--state", state, status=2) for verb in ("serve", "plan")
        ]
        refusals = [text[text.index("ringpack: error") :] for text in said]
        assert words in refusals[0], (words, refusals)
        assert refusals[0] == refusals[1]
    write_config(folder, stream)
    said = run(program, folder, "plan", "--landmarks", "--state", "at.token", status=2)
    assert "--state and --landmarks" in said


@pytest.mark.parametrize("start", ["state", "checkpoint"])
def test_refused_weights_are_told_as_written_with_the_command_that_shows_them(
    program, folder, corpus, start
):
    """The last of 0.7, 0.2, 0.1 is changed; only it is named. The command of the hint runs."""
    three = [
        {**source, "name": name, "weight": weight}
        for source, name, weight in zip(
            [*corpus.sources, corpus.sources[1]], ("a", "b", "c"), (0.7, 0.2, 0.1)
        )
    ]
    config = {**VERSION_1, "sources": three, "seq_len": 48, "batch_size": 1, "run_dir": str(folder)}
    config |= {"num_epochs": "endless"}
    if start == "checkpoint":
        config["checkpoint_dir"] = "kept it"
    (folder / "c.yaml").write_text(json.dumps(config))
    run(program, folder, "state", "--row", 20, "-o", "at.token")
    from_state = ["--state", "at.token"] if start == "state" else []
    if start == "checkpoint":
        engine = Engine(program, folder, {**config, "checkpoint_dir": str(folder / "kept it")})
        with Ranks(engine) as ranks:
            assert len(list(ranks.turns(5))) == 5
        assert engine.stop() == 0
    three[2]["weight"] = "2e-1"
    (folder / "c.yaml").write_text(json.dumps(config))
    said = run(program, folder, "serve", *from_state, status=2)
    refusal = said[said.index("ringpack: error") :]
    wanted = r"error RP_E_MISMATCH: (\S.*: )?weight of source c differs: the state has 0.1, this "
    assert re.search(wanted + r"run has 0.2\n", refusal) and "source a" not in refusal, refusal
    command = re.search(r"`ringpack (plan [^`]*)`", refusal)[1]
    done = subprocess.run(
        f"{program} {command} --rows 50 --json",
        shell=True,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=100,
    )
    assert done.returncode == 0, (command, done.stderr)
    told = json.loads(done.stdout)
    assert told["state"]["weights_differ"] and told["state"]["row"] in (20, 5, 6)
    asked = [source["asked"] for source in told["mixture"]]
    assert asked == pytest.approx([7 / 11, 2 / 11, 2 / 11])


def test_the_picture_has_the_rows_of_the_stream(program, folder, corpus):
    stream = Stream(corpus, {"num_epochs": 1, "seed": SEED})
    write_config(folder, stream)
    at = len(stream.rows) // 2
    token_at(program, folder, at)
    run(program, folder, "plan", "--state", "at.token", "--svg", "p.svg")
    page = (folder / "p.svg").read_text()
    columns = re.findall(r"rows (\d+) to (\d+): \d+ tokens of padding", page)
    assert int(columns[0][0]) == at and int(columns[-1][1]) == len(stream.rows) - 1
    assert f">row {at}</text>" in page and ">+" in page
    assert f"{len(stream.rows) - at} rows of 48 tokens from row {at}:" in page
    run(program, folder, "plan", "--svg", "p.svg")
    assert ">+" not in (folder / "p.svg").read_text()
