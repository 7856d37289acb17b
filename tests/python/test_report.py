# SPDX-License-Identifier: Apache-2.0
"""`ringpack report`: the figures of a page, against the run's checkpoints and engine."""

import html
import html.parser
import json
import re
import shutil
import subprocess

import pytest
from browser_kit import SCHEMES, browse, width_on
import ringpack
from stream_kit import LONG, Corpus, Engine, Ranks
from watch_kit import FakeEngine, stat_of

HOSTILE = "<script>alert(1)</script>&\"'"


def report(program, *arguments, status=0):
    command = [program, "report", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


def cells(page):
    """Rows of all tables, as texts."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.S)
    return [[html.unescape(c) for c in re.findall(r"<td>(.*?)</td>", row)] for row in rows]


class Shape(html.parser.HTMLParser):
    """Tables outside of a box that scrolls by itself, and the axes of each drawing."""

    def __init__(self, page):
        super().__init__()
        self.open, self.loose, self.axes = [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        kind = known.get("class", "")
        if tag in ("meta", "path", "rect"):
            return
        if tag == "table" and self.open[-1] != "wide" and kind != "pairs":
            self.loose.append(self.getpos())
        if kind == "chart":
            self.axes.append({"up": [], "across": [], "unit": []})
        self.open.append(kind or tag)
        self.top = float(known.get("style", "top:0%")[4:-1]) if tag == "span" else None

    def handle_endtag(self, tag):
        if tag not in ("path", "rect"):
            self.open.pop()

    def handle_data(self, data):
        for kind in set(self.open) & {"up", "across", "unit"}:
            self.axes[-1][kind].append((data, self.top) if kind == "up" else data)


def check_numbers(axis, low, high):
    """Every number of a vertical axis stands at its height."""
    scale = {"k": 1e3, "M": 1e6}
    assert len(axis["up"]) >= 2
    for text, top in axis["up"]:
        number, *unit = text.split()
        value = float(number) * scale.get("".join(unit), 1)
        assert top == pytest.approx(100 * (high - value) / (high - low), abs=2), (text, axis)


@pytest.fixture(scope="module")
def saved(program, tmp_path_factory):
    """An engine of two sources with five checkpoints."""
    folder = tmp_path_factory.mktemp("r")
    corpus = Corpus(folder, [("megatron", "u16", 3, [60]), ("npy", "u16", 1, [50])], 3)
    corpus.sources[0]["name"] = HOSTILE
    keys = {"seq_len": 48, "batch_size": 2, "global_batch_size": 2, "num_epochs": 9}
    keys |= {"checkpoint_dir": str(folder / "kept"), "checkpoint_keep": 9}
    engine = Engine(program, folder, {"sources": corpus.sources, **keys})
    paths = []
    with Ranks(engine) as ranks:
        for _ in range(5):
            for _ in ranks.turns(7):
                pass
            paths.append(engine.checkpoint())
        yield engine, folder / "kept", paths
    engine.kill()


def show(program, path):
    command = [program, "checkpoint", "show", "--json", path]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def is_self_contained(page):
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    assert "default-src 'none'" in page and "<script" not in page and "src=" not in page
    assert not re.search(r"https?://", page) and "@import" not in page


def test_checkpoints_of_a_directory(program, saved):
    _, kept, paths = saved
    page = report(program, kept)
    is_self_contained(page)
    assert f"{len(paths)} that verify, 0 damaged" in page
    rows = [row for row in cells(page) if len(row) == 8]
    assert len(rows) == len(paths)
    for row, path in zip(rows, paths):
        known = show(program, path)
        token = known["token"]
        assert row[1] == str(known["sequence"]) and row[2] == f"{known['next_row']:,}"
        fill = token["emitted"] / (known["next_row"] * token["seq_len"])
        assert row[4] == f"{100 * fill:.3f} %"
    assert page.count("<svg") == 3 and page.count('class="bar"') == len(paths)
    shape = Shape(page)
    position, fill, throughput, mixture = shape.axes
    assert shape.loose == []
    check_numbers(position, 0, show(program, paths[-1])["next_row"])
    for axis in (position, fill, throughput):
        assert len(axis["across"]) == 3 and axis["up"], axis
    assert position["unit"] == throughput["unit"] == ["time of the save (UTC)"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", position["across"][2])
    first, last = (show(program, paths[i])["next_row"] for i in (0, -1))
    assert fill["across"] == [f"{n:g}" for n in (first, (first + last) / 2, last)]
    assert mixture["across"] == ["0 %", "50 %", "100 %"] and fill["unit"] == ["rows"]
    rows = [str(show(program, path)["next_row"]) for path in paths]
    assert re.findall(r'class="save"><span>(\d+)<', page) == rows
    for bar in re.findall(r'class="bar".*?</div>', page):
        widths = [float(width) for width in re.findall(r"width:([\d.]+)%", bar)]
        assert len(widths) == 2 and abs(sum(widths) - 100) < 0.1 and widths[0] > widths[1]
    assert html.escape(HOSTILE, quote=False)[:30] in page


def test_fill_over_stages_of_another_seq_len(program, folder):
    """Rows of each stage have places of their own number."""
    corpus = Corpus(folder, [("megatron", "u16", 1, [300])], 3)
    stages = [{"until": "row 20"}, {"seq_len": 64}]
    keys = {"seq_len": 32, "batch_size": 2, "global_batch_size": 2, "num_epochs": 9}
    keys |= {"checkpoint_dir": str(folder / "kept"), "run_dir": str(folder), "stages": stages}
    path = folder / "config.yaml"
    path.write_text(json.dumps({"sources": corpus.sources, **keys}))  # JSON is YAML
    for most in 10, 5:
        with ringpack.Loader(str(path), program=program) as loader:
            for _ in zip(range(most), loader):
                pass
            assert next(iter(loader), None) is None or most == 5
    *_, last = sorted((folder / "kept").glob("*.rpc"))
    known = show(program, last)
    rows, emitted = known["next_row"], known["token"]["emitted"]
    assert rows > 20
    (line,) = (row for row in cells(report(program, last)) if len(row) == 8)
    assert line[4] == f"{100 * emitted / (20 * 32 + (rows - 20) * 64):.3f} %"


def test_a_run_and_one_checkpoint(program, saved, folder):
    engine, kept, paths = saved
    out = folder / "run.html"
    assert report(program, engine.run, kept, "--run-dir", engine.folder, "-o", out) == ""
    page, stat = out.read_text(), ringpack.stat(engine.run, engine.folder)
    is_self_contained(page)
    known = {row[0]: row[1] for row in cells(page) if len(row) == 2}
    assert known["next row"] == f"{stat['next_row']:,}" and known["ringpack"] == stat["version"]
    assert known["saves"] == str(stat["saves"]) and known["stream_version"] == "2"
    assert HOSTILE in [row[0] for row in cells(page) if row]
    assert Shape(page).loose == [] and page.count('class="wide"') >= 3
    assert "1 that verify" in report(program, paths[0])


def test_damaged_checkpoints_and_bad_arguments(program, saved, folder):
    _, kept, _ = saved
    copy = folder / "kept"
    shutil.copytree(kept, copy)
    first, second, *_ = sorted(path for path in copy.iterdir() if path.suffix == ".rpc")
    first.write_bytes(first.read_bytes()[:100])
    data = bytearray(second.read_bytes())
    data[len(data) // 3] ^= 1
    second.write_bytes(data)
    assert re.search(r"3 that verify, 2 damaged|4 that verify, 1 damaged", report(program, copy))
    (folder / "empty").mkdir()
    assert "0 that verify" in report(program, folder / "empty")
    for arguments, word in (
        ([], "expected the name"),
        (["nobody", "--run-dir", folder], "is no path"),
        ([folder / "nothing"], "run name"),
        ([first], str(first)),
        ([kept, kept], "one path expected"),
        ([kept, "-o", "/nowhere/x.html"], "/nowhere"),
        ([kept, "-o", "/dev/full/x"], "/dev/full"),
    ):
        assert word in report(program, *arguments, status=2)
    with open("/dev/full", "w") as full:
        done = subprocess.run([program, "report", kept], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2


def test_hostile_answers(program, folder):
    word = HOSTILE + "\u202e\x1b"
    engine = FakeEngine(
        folder,
        "odd",
        stat_of(
            "odd",
            io=word,
            save_error=word,
            next_row=-5,
            fill=None,
            wait_history=[{word: 3, "disk": -5, "pack": 1e300}, 3, None, {"disk": word}],
            wait_history_seconds=1e-300,
            ledger=[{"source": word, "tokens": "x"}, 3, None],
            contract={"a": 1},
        ),
    )
    page = report(program, "odd", "--run-dir", folder)
    is_self_contained(page)
    assert "\x1b" not in page and "\u202e" not in page
    engine.stop()


def test_waits_by_cause_over_time(program, folder):
    """A column for each period, a part for each cause, of the height of its share."""
    history = [{"disk": 1.0, "pack": 0.5}, {"disk": 0, "pack": 0}, {"disk": 0.25, "pack": 0}]
    told = stat_of("timed", wait_history=history, wait_history_seconds=2)
    engine = FakeEngine(folder, "timed", told)
    page = report(program, "timed", "--run-dir", folder)
    is_self_contained(page)
    part = r'<rect style="--h:(\d+)" x="([\d.]+)" y="([\d.]+)" width="333.33" height="([\d.]+)"/>'
    found = [[float(number) for number in each] for each in re.findall(part, page)]
    disk, pack = found[0][0], found[1][0]
    assert disk != pack and len(found) == 3
    assert found == [[disk, 0, 50, 100], [pack, 0, 0, 50], [disk, 666.67, 125, 25]]
    (axis,) = Shape(page).axes
    assert [text for text, _ in axis["up"]] == ["0 %", "20 %", "40 %", "60 %"]
    check_numbers({"up": [(text[:-2], top) for text, top in axis["up"]]}, 0, 75)
    assert axis["across"] == ["0 us", "3.0 s", "6.0 s"]
    assert axis["unit"] == ["time since the engine started"]
    assert "at most 75 % of the time" in page and "each column is 2.0 s" in page
    assert "disk 1.2 s" in page or "disk 1.3 s" in page
    engine.stop()


@pytest.mark.skipif(not LONG, reason="needs RP_LONG=1")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_in_a_browser(program, saved, folder, scheme):
    """No message in the console, and the page is drawn in the colours of the scheme."""
    engine, kept, _ = saved
    report(program, engine.run, kept, "--run-dir", engine.folder, "-o", folder / "run.html")
    options = f"--screenshot={folder}/page.png", "--window-size=1100,1600"
    browse(f"file://{folder}/run.html", folder, scheme, *options)
    assert (folder / "page.png").stat().st_size > 10000


@pytest.mark.skipif(not LONG, reason="needs RP_LONG=1")
@pytest.mark.parametrize("width", [390, 1280])
def test_fits_a_screen(program, saved, folder, width):
    engine, kept, _ = saved
    page = report(program, engine.run, kept, "--run-dir", engine.folder)
    assert width_on(page, folder, width) == width
    assert width_on(page.replace("overflow-x:auto", ""), folder, 390) > 390, "it cannot fail"
