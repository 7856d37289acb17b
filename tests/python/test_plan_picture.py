# SPDX-License-Identifier: Apache-2.0
"""`ringpack plan --svg`: the numbers of a picture against --json and against the oracle's
plan; hostile names; a file that cannot be written; in a browser."""

import collections
import json
import os
import re
import resource
import subprocess
import xml.etree.ElementTree

import pytest
from browser_kit import SCHEMES, browse
from stream_kit import LONG, VERSION_1, Corpus, Stream, write_megatron

HOSTILE = "<script>alert(1)</script>&\"']]>\u202e\ufffe"
RANKS, BATCH, GLOBAL = 4, 2, 16
SVG = "{http://www.w3.org/2000/svg}"


def plan(program, folder, *arguments, status=0, **options):
    command = [program, "plan", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, cwd=folder, timeout=600, **options)
    assert done.returncode == status, done.stderr
    return (done.stderr if status else done.stdout).decode(errors="replace")


@pytest.fixture(scope="module")
def drawn(program, tmp_path_factory):
    """A stream of two sources, its plan --json, and its picture."""
    folder = tmp_path_factory.mktemp("p")
    corpus = Corpus(folder, [("megatron", "u16", 3, [370]), ("npy", "u16", 1, [220])], 5)
    stream = Stream(corpus, {"num_epochs": 1})
    corpus.sources[0]["name"] = HOSTILE
    keys = {"batch_size": BATCH, "dp_world_size": RANKS, "global_batch_size": GLOBAL}
    (folder / "c.yaml").write_text(json.dumps({**stream.config(), **keys}))
    told = json.loads(plan(program, folder, "-c", "c.yaml", "--json", "--svg", "p.svg"))
    return folder, stream, told, (folder / "p.svg").read_text()


def texts_of(picture):
    return ["".join(element.itertext()) for element in picture.iter(f"{SVG}text")]


def titles_of(picture, pattern):
    """The texts shown where a reader points at a part: groups of those that match, as numbers."""
    titles = ["".join(element.itertext()) for element in picture.iter(f"{SVG}title")]
    found = [re.fullmatch(pattern, title, re.S) for title in titles]
    return [[float(n.replace(",", "")) for n in match.groups()] for match in found if match]


def test_the_picture_says_what_json_says(drawn):
    _, _, told, page = drawn
    picture = xml.etree.ElementTree.fromstring(page)
    texts = texts_of(picture)
    assert any(
        text == f"{told['rows']:,} rows of 48 tokens: {told['tokens']:,} tokens of documents"
        for text in texts
    ), texts
    filled = f"the rows are filled to {100 * told['efficiency']:.3f} %"
    assert f"{told['padding']:,} tokens of padding in all: {filled}" in texts
    for source in told["mixture"]:
        share = f"{100 * source['realised']:.3f} %, asked {100 * source['asked']:.3f} %"
        assert share in texts, (share, texts)
    group = r"([\d,]+) to ([\d,]+) tokens: ([\d,]+) documents, ([\d,]+) tokens"
    lengths = titles_of(picture, group)
    assert sum(group[2] for group in lengths[::2]) == told["documents"] - told["empty"]
    assert sum(group[3] for group in lengths[::2]) == told["tokens"]


def test_columns_groups_and_ranks_are_those_of_the_oracle(drawn):
    """More rows than columns, so that columns were joined; a last step that is not whole."""
    _, stream, _, page = drawn
    picture = xml.etree.ElementTree.fromstring(page)
    rows = stream.rows
    assert len(rows) > 320 and len(rows) % GLOBAL
    columns = titles_of(picture, r"rows (\d+) to (\d+): (\d+) tokens of padding, .*")
    assert columns[0][0] == 0 and columns[-1][1] == len(rows) - 1
    for (_, end, _), (start, _, _) in zip(columns, columns[1:]):
        assert start == end + 1
    mixed = titles_of(picture, r"rows (\d+) to (\d+)\n.*: ([\d.]+) %\n.*: ([\d.]+) %")
    assert [column[:2] for column in mixed] == [column[:2] for column in columns]
    for (first, last, padding), (*_, larger, smaller) in zip(columns, mixed):
        part = [f for row in rows[int(first) : int(last) + 1] for f in row]
        tokens = sum(f.length for f in part)
        assert padding == 48 * (last - first + 1) - tokens
        own = sum(f.length for f in part if f.source == 0)
        assert abs(larger - 100 * own / tokens) < 0.001 and abs(larger + smaller - 100) < 0.01

    groups = collections.Counter()
    for row in rows:
        for f in row:
            if f.offset == 0:
                length = stream.spec.corpora[f.source].lengths[f.document]
                groups[2 ** (length.bit_length() - 1)] += 1
    lengths = titles_of(picture, r"([\d,]+) to ([\d,]+) tokens: ([\d,]+) documents, .*")
    assert {group[0]: group[2] for group in lengths if group[2]} == groups

    squares, tokens, worst = [0] * RANKS, [0] * RANKS, []
    for step in range(len(rows) // GLOBAL):
        own = [0] * RANKS
        for place, row in enumerate(rows[step * GLOBAL : (step + 1) * GLOBAL]):
            rank = place // BATCH % RANKS
            own[rank] += sum(f.length**2 for f in row)
            tokens[rank] += sum(f.length for f in row)
        squares = [a + b for a, b in zip(squares, own)]
        worst.append(max(own) * RANKS / sum(own))
    found = titles_of(picture, r"rank (\d+): (\d+), [\d.]+ × the mean")
    assert found == [[r, n] for numbers in (squares, tokens) for r, n in enumerate(numbers)]
    said = "\n".join(texts_of(picture))
    assert f"attention costs: max/min {max(squares) / min(squares):.4f}" in said
    assert f"tokens: max/min {max(tokens) / min(tokens):.4f}" in said
    mean = f"{sum(worst) / len(worst):.4f}"
    assert f"{len(worst)} whole steps; the costliest rank has on average {mean} × the mean" in said


def is_self_contained(page):
    assert "<script" not in page and "href" not in page and "url(" not in page
    assert re.findall(r"https?://[^\"]*", page) == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme:dark" in page and "\u202e" not in page and "\ufffe" not in page


def test_hostile_names_and_many_sources(program, drawn, folder):
    _, _, _, page = drawn
    is_self_contained(page)
    assert any(HOSTILE[:30] in text for text in texts_of(xml.etree.ElementTree.fromstring(page)))
    paths = []
    for number in range(20):
        path = os.fsencode(folder) + b"/%d-\xff<&" % number
        write_megatron(os.fsdecode(path), [[1] * (number + 1)] * 40, "u16")
        paths.append({"path": f"{number}*.bin", "weight": 1})
    keys = {**VERSION_1, "sources": paths, "seq_len": 32, "batch_size": 1, "num_epochs": 1}
    (folder / "many.yaml").write_text(json.dumps(keys))
    plan(program, folder, "-c", "many.yaml", "--svg", "many.svg")
    page = (folder / "many.svg").read_text()
    is_self_contained(page)
    picture = xml.etree.ElementTree.fromstring(page)
    shares = re.findall(r"([\d.]+) %, asked ([\d.]+) %", "\n".join(texts_of(picture)))
    assert len(shares) == 16 and "5 other sources" in texts_of(picture)
    assert [abs(sum(map(float, column)) - 100) < 0.01 for column in zip(*shares)] == [True, True]


def test_a_picture_of_few_rows_or_none(program, drawn, folder):
    place, _, _, _ = drawn
    arguments = ["-c", place / "c.yaml", "--svg"]
    plan(program, place, *arguments, folder / "0.svg", "--rows", 1)
    write_megatron(folder / "long", [[1] * 40] * 9, "u16")
    arguments = ["--sources", "long.bin", "--batch-size", 1, "--long-doc", "drop", "--seq-len", 30]
    plan(program, folder, *arguments, "--svg", "1.svg")
    one, none = ((folder / f"{n}.svg").read_text() for n in range(2))
    assert "(the stream is longer)" in one and "less than a step" in one
    for page in one, none:
        xml.etree.ElementTree.fromstring(page)
        assert not re.search(r"\b(nan|inf)\b", page)


def test_a_file_that_cannot_be_written(program, drawn, folder):
    """It is refused before the rows are planned, and the old picture stays."""
    place, _, _, _ = drawn
    arguments = ["-c", place / "c.yaml", "--svg"]
    said = plan(program, folder, *arguments, "/nowhere/p.svg", status=2)
    assert "/nowhere/p.svg" in said and "next: check the path" in said
    said = plan(program, folder, *arguments, folder, status=2)
    assert str(folder) in said and "next:" in said
    said = plan(program, folder, *arguments, "p.svg", "--landmarks", status=2)
    assert "one of them at a time" in said
    old = folder / "p.svg"
    old.write_text("the old picture")
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))}
    said = plan(program, folder, *arguments, old, status=2, **limit)
    assert f"{old}: cannot write: File too large" in said and "next:" in said
    assert old.read_text() == "the old picture" and os.listdir(folder) == ["p.svg"]


@pytest.mark.skipif(not LONG, reason="needs RP_LONG=1")
def test_in_a_browser(drawn, folder):
    """No message in the console; light and dark are drawn in different colours."""
    place, _, _, _ = drawn
    shots = []
    for scheme in SCHEMES:
        options = f"--screenshot={folder}/{scheme}.png", "--window-size=1000,900"
        browse(f"file://{place}/p.svg", folder, scheme, *options)
        shots.append((folder / f"{scheme}.png").read_bytes())
    assert shots[0] != shots[1] and min(map(len, shots)) > 10000
