# SPDX-License-Identifier: Apache-2.0
"""The site: every page is there and every link leads somewhere. RP_LONG=1: it is built, and a
browser shows it from disk, at desktop and phone width, in both colour schemes, without a complaint;
its search works."""

import html.parser
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from browser_kit import browse
from conftest import ROOT
from stream_kit import LONG

SITE = ROOT / "tools" / "site"


def assemble(program, target, place=SITE):
    command = [sys.executable, place / "assemble.py", program, target]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_every_page_is_gathered_and_has_a_place_in_the_contents(program, tmp_path):
    done = assemble(program, tmp_path / "pages")
    assert done.returncode == 0, done.stderr
    pages = {str(path.relative_to(tmp_path / "pages")) for path in tmp_path.rglob("*.md")}
    listed = {
        line.rstrip(">").split("<")[1] + ".md"
        for line in (tmp_path / "pages" / "index.md").read_text().split("\n")
        if line.endswith(">") and "<" in line
    }
    assert listed == {page for page in pages if not page.startswith("source/")} - {"index.md"}
    of_tree = {path.name for path in (ROOT / "tools" / "python" / "docs").glob("*.md")}
    assert of_tree - {"README.md"} <= {Path(page).name for page in listed}
    reference = (tmp_path / "pages" / "reference" / "c.md").read_text()
    assert "### `rp_client_attach()`" in reference
    assert "resume: identical" in (tmp_path / "pages" / "index.md").read_text()
    concepts = (tmp_path / "pages" / "start" / "concepts.md").read_text()
    assert concepts.count("<svg class") == 4 and "drawing:" not in concepts


def test_control_a_link_to_nothing_is_refused(program, tmp_path):
    shutil.copytree(ROOT, tmp_path / "tree", ignore=lambda folder, names: kept_out(folder, names))
    page = tmp_path / "tree" / "tools" / "python" / "docs" / "proof.md"
    page.write_text(page.read_text() + "\n[nowhere](nowhere.md)\n")
    done = assemble(program, tmp_path / "pages", tmp_path / "tree" / "tools" / "site")
    assert done.returncode != 0 and "nowhere.md, which does not exist" in done.stderr


def kept_out(folder, names):
    return {"build", ".git"} & set(names) if Path(folder) == ROOT else set()


class Links(html.parser.HTMLParser):
    """The links of a page, and the anchors in it."""

    def __init__(self, path):
        super().__init__()
        self.path, self.wanted, self.loaded, self.names = path, [], [], {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.names.add(found.get("id") or "")
        wanted = found.get("href") or found.get("src")
        if wanted and tag in ("script", "img", "link"):
            self.loaded.append(wanted)
        if wanted:
            self.wanted.append(wanted)


def broken_links(folder):
    """Links of pages without a target, or to a network."""
    pages, broken = {path: Links(path) for path in folder.rglob("*.html")}, []
    for path, page in pages.items():
        broken += [(path.name, source) for source in page.loaded if "//" in source]
        for wanted in page.wanted:
            if ":" in wanted.split("/")[0]:
                continue  # another site
            target, anchor = urldefrag(unquote(wanted.split("?")[0]))
            place = (path.parent / target).resolve() if target else path
            lost = place in pages and anchor not in pages[place].names
            if not place.exists() or (lost and path.name not in ("genindex.html", "search.html")):
                broken.append((path.name, wanted))
    return broken


def test_control_what_a_page_refers_to_in_vain_is_found(tmp_path):
    (tmp_path / "good.html").write_text(
        "<h1 id=here></h1><a href=#here><a href=bad.html><a href=https://example.org/any>"
    )
    wrong = "good.html#there", "nowhere.html", "//example.org/a.js", "https://example.org/b.png"
    one, two, loaded, shown = wrong
    (tmp_path / "bad.html").write_text(
        f"<a href={one}><a href={two}><script src={loaded}></script><img src={shown}>"
    )
    found = broken_links(tmp_path.resolve())
    assert {name for name, _ in found} == {"bad.html"}
    assert {wanted for _, wanted in found} == set(wrong)


@pytest.fixture(scope="module")
def built(program, tmp_path_factory):
    if not LONG:
        pytest.skip("RP_LONG")
    target = tmp_path_factory.mktemp("site") / "html"
    done = subprocess.run(
        [SITE / "build", program, target], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_links_lead_somewhere_and_nothing_is_loaded_from_a_network(built):
    assert len(list(built.rglob("*.html"))) > 60
    assert broken_links(built.resolve()) == []


@pytest.mark.skipif(not LONG, reason="RP_LONG")
@pytest.mark.parametrize("complaint", ["console.error('no')", "undefined_name()"])
def test_control_a_page_that_complains_is_seen(tmp_path, complaint):
    (tmp_path / "page.html").write_text(f"<title>t</title><script>{complaint}</script>")
    with pytest.raises(AssertionError, match="CONSOLE"):
        browse(f"file://{tmp_path}/page.html", tmp_path, "light", "--dump-dom")


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it(built, tmp_path, width, scheme):
    for page in "index", "start/concepts", "reference/c", "evidence/benchmarks":
        picture = tmp_path / "page.png"
        size = ["--hide-scrollbars", f"--window-size={width},1600", "--virtual-time-budget=5000"]
        address = f"file://{built}/{page}.html"
        browse(address, tmp_path, scheme, *size, f"--screenshot={picture}")
        assert picture.stat().st_size > 10000


def test_the_search_works_from_disk(built, tmp_path):
    options = "--virtual-time-budget=5000", "--dump-dom"
    found = browse(f"file://{built}/search.html?q=lease", tmp_path, "light", *options)
    assert "found" in found and "The Python package" in found
