# SPDX-License-Identifier: Apache-2.0
"""`documents: 0-90%`: a part of a source's documents is the stream of a corpus that has no others,
by index, sidecar, corpus index, object and mask, killed and resumed; parts do not overlap; the
identity differs by part; wrong parts are refused by name."""

import copy
import json
import subprocess

import pytest
from in_place_kit import INPUTS, LIVES, assert_resumes_with_and_without, serve_all, take_in_lives
from mask_kit import check_whole_stream
from mask_kit import index as index_masks
from refusal_kit import run
from remote_kit import environment, store  # noqa: F401
from stream_kit import Corpus, Engine, Ranks, Stream
from test_masks import MASKED, SEED, MaskedCorpus, labels_of

LAYOUT = [("megatron", "u16", 3, [20, 9, 30]), ("raw", "u16", 1, [50, 20]), ("npy", "i32", 1, [25])]
PARTS = {"10-90%": (0.1, 0.9), "90%-100%": (0.9, 1), "0-33.3333%": (0, 0.333333), "0-100%": (0, 1)}


def part_of(corpus, texts):
    """The corpus whose sources have only the part of that text; None: all of it."""
    made = copy.copy(corpus)
    made.sources, made.documents, made.spans = [], [], []
    spans = corpus.spans or [None] * len(corpus.sources)
    for source, documents, own, text in zip(corpus.sources, corpus.documents, spans, texts):
        n, first, end = len(documents), 0, len(documents)
        if text in PARTS:
            first, end = (int(n * bound + 1e-9) for bound in PARTS[text])
        elif text:
            bounds = text.split("-")
            first, end = int(bounds[0]), int(bounds[1] or n)
        made.sources.append({**source, "documents": text} if text else dict(source))
        made.documents.append(documents[first:end])
        made.spans.append(own and own[first:end])
    return made


@pytest.fixture
def corpus(folder):
    place = folder / "data"
    place.mkdir()
    return Corpus(place, LAYOUT, seed=8)


TEXTS = [
    ("25-45", "90%-100%", None),
    ("10-90%", "49-51", "0-33.3333%"),
    ("0-20", "60-", "24-25"),
]


@pytest.mark.parametrize("texts", TEXTS)
def test_the_rows_are_those_of_the_part(program, folder, corpus, texts):
    part = part_of(corpus, texts)
    bare = serve_all(program, folder, part, run="bare")
    assert serve_all(program, folder, part, {"shuffle": "block"}, run="block", io="pread")
    corpus.index(program)
    assert serve_all(program, folder, part, run="indexed") == bare
    config = folder / "indexed.yaml"
    config.write_text(json.dumps({**Stream(part, INPUTS, rows=0).config(), "batch_size": 5}))
    manifest = str(folder / "m.rpi")
    assert run(program, "index", "-c", config, "-o", manifest).returncode == 0
    assert_resumes_with_and_without(program, folder, part, manifest)
    whole = part_of(corpus, [None] * 3)  # a manifest is of all documents, whatever part is used
    assert_resumes_with_and_without(program, folder, whole, manifest)


def test_a_part_is_killed_and_resumed_in_other_shapes(program, folder, corpus):
    stream = Stream(part_of(corpus, TEXTS[1]), INPUTS)
    lives = [
        (turns, {"dp_world_size": world, "batch_size": rows, "readers": readers})
        for turns, world, rows, readers in LIVES
    ]
    take_in_lives(program, folder, stream, lives)


def test_objects(program, folder, corpus, store):  # noqa: F811
    part = part_of(corpus, ("25-45", "90%-100%", "0-33.3333%"))
    corpus.index(program)
    wanted = serve_all(program, folder, part, run="disk")
    for path in (folder / "data").iterdir():
        (folder / "objects" / path.name).write_bytes(path.read_bytes())
    for source in part.sources:
        names = [path.rpartition("/")[2] for path in source["shards"]]
        source["shards"] = [store.url(name) for name in names]
    assert serve_all(program, folder, part, {"shuffle": "block"}, run="store", cache_bytes="8m")
    assert wanted


@pytest.mark.parametrize("drop", [False, True])
def test_masks(program, tmp_path, drop):
    corpus = MaskedCorpus(tmp_path, SEED)
    corpus.write_masks("labels", labels_of, "i32")
    corpus.index_masks(program, "--mask", "labels")
    for number in MASKED:
        corpus.sources[number] |= {"drop_untrained": drop, "mask": "labels"}
    stream = Stream(part_of(corpus, ("5-25", "2-", "10-90%")))
    check_whole_stream(program, tmp_path, stream)
    config = tmp_path / "indexed.yaml"
    config.write_text(json.dumps({**stream.config(), "batch_size": 4}))
    index_masks(program, "-c", config, "-o", tmp_path / "m.rpi")
    check_whole_stream(program, tmp_path, stream, index=str(tmp_path / "m.rpi"))


def identity(program, folder, corpus, run_name="i"):
    keys = {**Stream(corpus, INPUTS, rows=0).config(), "batch_size": 5, "run": run_name}
    engine = Engine(program, folder, keys)
    with Ranks(engine) as ranks:
        found = ranks.loaders[0].contract()
    engine.kill()
    return found


def test_parts_have_identities_and_states_of_their_own(program, folder, corpus):
    """Two parts of equally many documents; the whole by the key is the whole without it."""
    corpus.index(program)
    texts = {text: (text, None, None) for text in (None, "0-59", "0-100%", "0-30", "20-50")}
    told = {text: identity(program, folder, part_of(corpus, own)) for text, own in texts.items()}
    assert told[None] == told["0-59"] == told["0-100%"]
    assert len({told[text] for text in (None, "0-30", "20-50")}) == 3
    keys = {**Stream(part_of(corpus, texts["0-30"]), INPUTS, rows=0).config(), "batch_size": 5}
    keys["checkpoint_dir"] = str(folder / "c")
    engine = Engine(program, folder, keys)
    with Ranks(engine) as ranks:
        ranks.turn()
    engine.stop()
    keys["sources"][0]["documents"] = "20-50"
    engine = Engine(program, folder, keys, wait=False)
    assert engine.wait() == 2
    assert "fingerprint of the corpus differs" in engine.log() and "documents" in engine.log()


def test_training_and_validation_share_no_document(program, folder, corpus):
    """explain names the document and its file; the parts together are all of them."""
    seen = []
    for text in "0-90%", "90-100%":
        source = corpus.sources[0] | {"documents": text}
        keys = {"seq_len": 64, "batch_size": 1, "sources": [source]}
        path = folder / "c.yaml"
        path.write_text(json.dumps(keys))
        plan = subprocess.run([program, "plan", "-c", path, "--json"], capture_output=True)
        rows = json.loads(plan.stdout)["rows"]
        asked = [program, "explain", "-c", path, "--row", f"0-{rows - 1}", "--json", "--limit", "1"]
        told = json.loads(subprocess.run(asked, capture_output=True, check=True).stdout)
        seen.append({(f["file"], f["file_row"]) for r in told["rows"] for f in r["fragments"]})
    assert not seen[0] & seen[1]
    assert len(seen[0] | seen[1]) == sum(len(document) > 0 for document in corpus.documents[0])


@pytest.mark.parametrize(
    "text",
    ["5", "5-5", "9-3", "-5", "0-101%", "0-1e1%", "a-b", "0-60", "60-", "0.5-9", "0-1.2345678%"],
)
def test_no_part(program, folder, corpus, text):
    source = {**corpus.sources[0], "documents": text}
    path = folder / "c.yaml"
    path.write_text(json.dumps({"sources": [source], "seq_len": 64, "batch_size": 1}))
    done = subprocess.run([program, "plan", "-c", path], capture_output=True, text=True)
    assert done.returncode == 2 and "documents: " in done.stderr, done.stderr
    if text in ("0-60", "60-"):
        assert "of the 59 documents of the source" in done.stderr
