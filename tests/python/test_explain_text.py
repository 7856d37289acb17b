# SPDX-License-Identifier: Apache-2.0
"""The text of documents in `ringpack explain`: decoded, searched, and shown on terminals and pages
however hostile it is."""

import ctypes
import fcntl
import html.parser
import json
import os
import pty
import re
import struct
import subprocess
import termios

import numpy
import pytest
import ringpack
from browser_kit import width_on
from explain_kit import explain, rows_of
from stream_kit import LONG, write_megatron

HOSTILE = [
    b"</pre><script>alert(1)</script><img src=http://x/y onerror=alert(2)> \"' onload=x",
    b"\x1b[31mred\x07\x00\x9b \xe2\x80\xaeevil",
    b"\xff\xfe\xc0\xaf not UTF-8 \xed\xa0\x80 \xf4\x90\x80\x80 \xe6\xbc",
    "\u6f22\u5b57 na\u00efve \U0001f600".encode(),
]


@pytest.fixture
def texts(folder):
    """Documents of bytes, some of them hostile, in a source with a hostile name."""
    documents = [numpy.frombuffer(text, "u1") for text in HOSTILE]
    documents += [numpy.frombuffer(b"plain %d needle" % n, "u1") for n in range(20)]
    path = write_megatron(folder / "<b>&\"'", documents, "u16")
    (folder / "<b>&\"'.tokens.json").write_text('{"tokenizer": {"name": "bytes"}}')
    config = folder / "text.yaml"
    sources = [{"name": "<i>x\x1b</i>", "path": path}]
    config.write_text(json.dumps({"sources": sources, "seq_len": 128, "batch_size": 2}))
    return config


class Page(html.parser.HTMLParser):
    """A browser's reading of it."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.titles, self.words, self.open = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.titles += [value for name, value in attrs if name == "title"]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_a_page_holds_hostile_text_and_nothing_else(program, folder, texts):
    out = folder / "step.html"
    explain(program, "-c", texts, "--row", "0-99", "-o", out)
    text = out.read_bytes().decode("utf-8")
    page = Page(text)
    allowed = {"html", "head", "meta", "style", "title", "body", "h1", "p", "div", "span", "i", "a",
               "section", "small", "details", "summary", "table", "tr", "th", "td", "br", "pre"}
    assert {tag for tag, _ in page.tags} <= allowed
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") or name == "src" for name in attributes), tag
        assert attributes.get("href", "#").startswith("#")
    assert not re.search(r"url\(|@import|https?://(?!x/y)", text)
    assert "default-src 'none'" in text
    boxes = [attributes.get("class") == "wide" for tag, attributes in page.tags]
    tables = [i for i, (tag, _) in enumerate(page.tags) if tag == "table"]
    assert tables and all(boxes[i - 1] for i in tables), "a table widens the page"
    words = "".join(page.words)
    assert HOSTILE[0].decode() in words and "needle" in words and "\u6f22\u5b57" in words
    assert not set(words) & {"\x00", "\x07", "\x1b", "\x9b", "\u202e"}
    rows = rows_of(program, "-c", texts, "--row", "0-99")
    wanted = [
        f"{part['document']}, tokens {part['offset']} to {part['offset'] + part['tokens'] - 1}, "
        f"epoch {part['epoch']}\nin the row from token {part['place']} on\n{part['file']}\n"
        f"byte {part['byte_offset']}, row {part['file_row']}"
        for row in rows
        for part in row["fragments"]
    ]
    assert len(page.titles) == len(wanted)
    assert all(title.endswith(":" + end) for title, end in zip(page.titles, wanted))
    bars = [a["style"] for t, a in page.tags if t == "a"]
    widths = [float(re.search(r"width:([\d.]+)%", style)[1]) for style in bars]
    assert widths == pytest.approx(
        [100 * part["tokens"] / 128 for row in rows for part in row["fragments"]], abs=1e-3
    )


@pytest.mark.skipif(not LONG, reason="needs RP_LONG=1")
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_fits_a_screen(program, folder, texts, width):
    """Also with all lists of fragments open."""
    out = folder / "step.html"
    explain(program, "-c", texts, "--row", "0-99", "-o", out)
    page = out.read_text().replace("<details>", "<details open>")
    assert width_on(page, folder, width) == width


def test_text_is_decoded_and_searched(program, texts):
    parts = [p for row in rows_of(program, "-c", texts, "--row", "0-99") for p in row["fragments"]]
    found = {part["document"]: part["text"] for part in parts}
    for number, text in enumerate(HOSTILE):
        wanted = text.decode("utf-8", "replace").replace("\x00", "\ufffd")
        assert re.sub("\ufffd+", "\ufffd", found[number]) == re.sub("\ufffd+", "\ufffd", wanted)
    for asked in ("--row", "0-99"), ("--document", "0:0-23"), ():
        rows = rows_of(program, "-c", texts, *asked, "--text", "plain 7 needle")
        assert [part["document"] for row in rows for part in row["fragments"]] == [11]
    for asked in ("--row", "0-99"), ():
        assert "nothing was found" in explain(program, "-c", texts, *asked, "--text", "zebra")
    rows = rows_of(program, "-c", texts, "--num-epochs", 3, "--epoch", "1-2", "--text", "needle")
    assert sorted((part["epoch"], part["document"]) for row in rows for part in row["fragments"]) \
        == [(epoch, document) for epoch in (1, 2) for document in range(4, 24)]
    short = rows_of(program, "-c", texts, "--row", "0-99", "--limit", 5)
    assert {part["text"] for row in short for part in row["fragments"] if part["document"] > 3} == {
        "plain"
    }


def test_a_live_batch_says_the_same(program, folder, texts):
    """With an engine that the loader itself has started; the texts are the program's."""
    parts = {}
    for row in rows_of(program, "-c", texts, "--row", "0-99", "--limit", "1m"):
        parts |= {(row["row"], part["fragment"]): part for part in row["fragments"]}
    with ringpack.Loader(texts, run_dir=folder, program=program, profile="full") as loader:
        records = [record for batch in loader for record in batch.explain(program=program)]
    assert {(record["row"], record["fragment"]) for record in records} == set(parts)
    for record in records:
        part = parts[record["row"], record["fragment"]]
        assert record["text"] == part["text"] and record["byte_offset"] == part["byte_offset"]


def test_a_tokenizer_decodes(program, folder, monkeypatch):
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"alpha": 0, "beta": 1, "[UNK]": 2}, unk_token="[UNK]")
    tokenizers.Tokenizer(model).save(str(folder / "words.json"))
    path = write_megatron(folder / "w", [numpy.array([0, 1, 1]), numpy.array([1, 0])], "u16")
    asked = ["--sources", path, "--seq-len", "8", "--batch-size", "1", "--row", "0"]
    monkeypatch.setenv("RINGPACK_PYTHON", os.environ.get("PYTHON", "python3"))
    decoded = rows_of(program, *asked, "--tokenizer", folder / "words.json")
    texts = {part["document"]: part["text"] for part in decoded[0]["fragments"]}
    assert texts == {0: "alpha beta beta", 1: "beta alpha"}
    assert rows_of(program, *asked)[0]["fragments"][0]["text"] is None
    (folder / "w.tokens.json").write_text(
        '{"tokenizer": {"name": "words.json", "xxh3_128": "%s"}}' % ("0" * 32)
    )
    assert rows_of(program, *asked)[0]["fragments"][0]["text"] is None  # another file of that name
    said = subprocess.run(
        [program, "explain", *asked, "--tokenizer", folder / "words.json"], capture_output=True
    )
    assert b"another tokenizer" in said.stderr
    assert "cannot" in explain(program, *asked, "--tokenizer", folder / "gone.json", status=2)


def opens_of(path, command):
    """The number of opens of the file while the command ran, from inotify."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    opened, closed = 0x20, 0x18
    assert libc.inotify_add_watch(watch, os.fsencode(path), opened | closed) > 0
    try:
        subprocess.run(command, check=True, capture_output=True)
        events = os.read(watch, 1 << 20)
    finally:
        os.close(watch)
    masks = [struct.unpack_from("<iIII", events, at)[1] for at in range(0, len(events), 16)]
    return sum(1 for mask in masks if mask & opened)


def test_the_hash_of_a_tokenizer_is_computed_once(program, folder):
    """Rows go from shard to shard, and all name one file, whose hash is not the recorded one: so no
    other code opens it."""
    tokenizer = folder / "words.json"
    tokenizer.write_text("{}")
    paths = [
        write_megatron(folder / name, [numpy.arange(8) for _ in range(30)], "u16") for name in "ab"
    ]
    for name in "ab":
        (folder / f"{name}.tokens.json").write_text(
            '{"tokenizer": {"name": "words.json", "xxh3_128": "%s"}}' % ("0" * 32)
        )
    asked = [program, "explain", "--sources", ",".join(paths), "--seq-len", "32", "--batch-size",
             "1", "--row", "0-9"]
    shown = json.loads(subprocess.run([*asked, "--json"], check=True, capture_output=True).stdout)
    files = [part["file"] for row in shown["rows"] for part in row["fragments"]]
    assert sum(a != b for a, b in zip(files, files[1:])) > 5
    assert opens_of(tokenizer, asked) == 1


def test_a_terminal_of_twenty_columns(program, texts):
    child, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
    process = subprocess.Popen(
        [program, "explain", "-c", texts, "--row", "0-3"], stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    seen = b""
    try:
        while data := os.read(child, 65536):
            seen += data
    except OSError:  # the other end is closed
        pass
    os.close(child)
    assert process.wait() == 0
    lines = seen.decode().replace("\r", "").split("\n")
    wide = re.compile("[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\U0001f300-\U0001faff]")
    assert max(len(line) + len(wide.findall(line)) for line in lines) <= 20
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", "\n".join(lines))


