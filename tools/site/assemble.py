# SPDX-License-Identifier: Apache-2.0
"""Gather the pages of the site from the pages of the tree: assemble.py PROGRAM DIRECTORY.

A page is written once, at its place in the tree, and copied here with its links changed. Derived
pages are the reference, from the program, the headers and the docstrings, the front
page's example from README.md, the tables of benchmarks from bench/results. Links to files of the
tree that are no pages lead to a copy of the file below source/.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import benchmarks
import c_reference
import draw
import program_reference
import python_reference

ROOT = Path(__file__).resolve().parents[2]
FRONT = Path(__file__).resolve().parent / "index.md"
DOCS = "tools/python/docs/"
PAGES = {  # page of the site: file of the tree
    "start/five-minutes.md": "tools/python/README.md",
    **{
        f"start/{name}.md": f"{DOCS}{name}.md"
        for name in "install concepts corpora converting indexes moving comparison".split()
    },
    **{
        f"frameworks/{name}.md": f"{DOCS}{name}.md"
        for name in (
            "pytorch lightning fabric huggingface attention context-parallel megatron torchtitan "
            "torchdata ray jax flax mpi launching"
        ).split()
    },
    **{
        f"guide/{name}.md": f"{DOCS}{name}.md"
        for name in (
            "operating watching stat log explaining proof mixtures stages selection equal-steps "
            "evaluation sft pairs masks columns remote tuning reading"
        ).split()
    },
    "reference/stat-keys.md": f"{DOCS}stat-keys.md",
    "inside/engine.md": "engine/README.md",
    "inside/stream.md": "engine/plan/STREAM.md",
    "inside/format.md": "engine/checkpoint/FORMAT.md",
    "inside/abi.md": "engine/shm/ABI.md",
    "inside/corpus.md": "engine/corpus/README.md",
    "evidence/measuring.md": "bench/README.md",
    **{
        f"evidence/findings/{name}.md": f"bench/findings/{name}.md"
        for name in "plan reading adapting goals hand_over ranks saves starts peers".split()
    },
    "evidence/tests.md": "tests/README.md",
    "evidence/failures.md": "tests/FAILURES.md",
    "evidence/results.md": "tests/RESULTS.md",
    "evidence/defects.md": "tests/DEFECTS.md",
    "evidence/simulator.md": "tests/sim/README.md",
    "evidence/kills.md": "tests/kill/README.md",
    "evidence/fuzzing.md": "tests/fuzz/README.md",
    **{
        f"evidence/{name}.md": f"tests/{name}/README.md"
        for name in "model static mutation elastic aarch64".split()
    },
    **{
        f"project/{name.lower()}.md": f".github/{name}.md"
        for name in "CHANGELOG CONTRIBUTING SECURITY RELEASING".split()
    },
}
# Pages of the tree whose place another page of the site takes.
INSTEAD = {"README.md": "index.md", "tools/python/docs/README.md": "index.md"}
DRAWING = re.compile(r"<!-- drawing: (\w+) -->")  # draw.py's, in a page of the tree
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *(```|~~~)")
LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".cc": "cpp", ".sh": "bash", ".json": "json"}
LANGUAGES |= {".yaml": "yaml", ".yml": "yaml", ".sbatch": "bash", ".service": "ini"}
SOURCE_BYTES_MAX = 200_000


class Site:
    def __init__(self, target):
        self.target = target
        self.page_of = {source: page for page, source in PAGES.items()} | INSTEAD

    def write(self, page, text):
        path = self.target / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def add_tree_page(self, page, source):
        text = DRAWING.sub(lambda found: draw.drawing(found[1]), (ROOT / source).read_text())
        self.write(page, self.with_links(page, source, text))

    def with_links(self, page, source, text):
        """The text of a page of the tree, with links for its place in the site. Code stays."""
        lines, in_code = [], False
        for line in text.split("\n"):
            in_code ^= bool(FENCE.match(line))
            changed = LINK.sub(lambda found: self.link(page, source, found), line)
            lines.append(line if in_code else changed)
        return "\n".join(lines)

    def link(self, page, source, found):
        mark, text, wanted = found.groups()
        if re.match(r"[a-z]+:|#", wanted):
            return found[0]
        path, hash_mark, anchor = wanted.partition("#")
        named = os.path.normpath(os.path.join(os.path.dirname(source), path))
        place = self.place_of(named)
        if place is None:  # a folder
            return text
        relative = os.path.relpath(place, os.path.dirname(page) or ".")
        return f"{mark}[{text}]({relative}{hash_mark}{anchor})"

    def place_of(self, named):
        """The place of a file of the tree in the site; a file that is no page is copied there."""
        for path in (named, f"{named}/README.md"):
            if path in self.page_of:
                return self.page_of[path]
        file = ROOT / named
        if not file.exists():
            raise SystemExit(f"assemble.py: a link leads to {named}, which does not exist")
        if file.is_dir():
            return None
        if file.suffix in (".svg", ".png"):
            self.copy(named)
            return named
        place = f"source/{named.lstrip('.')}.md"
        if not (self.target / place).exists():
            self.write(place, self.source_page(named, file))
        return place

    def copy(self, named):
        (self.target / named).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / named, self.target / named)

    @staticmethod
    def source_page(named, file):
        text = file.read_text()
        cut = "" if len(text) <= SOURCE_BYTES_MAX else "\n\nThe rest is left out here.\n"
        language = LANGUAGES.get(file.suffix, "text")
        body = text[:SOURCE_BYTES_MAX].rstrip()
        return f"---\norphan: true\n---\n# {named}\n\n~~~~~~{language}\n{body}\n~~~~~~\n{cut}"

    def add_front_page(self):
        """{{README: TEXT}} in it is the block of README.md that begins with TEXT."""
        readme = (ROOT / "README.md").read_text()

        def block(found):
            for text in re.findall(r"```\w*\n(.*?)```", readme, re.S):
                if text.startswith(found[1]):
                    return text.rstrip()
            raise SystemExit(f"assemble.py: README.md has no block that begins with {found[1]}")

        self.write("index.md", re.sub(r"\{\{README: (.*?)\}\}", block, FRONT.read_text()))


def main(program, target):
    site = Site(Path(target))
    for page, source in PAGES.items():
        site.add_tree_page(page, source)
    site.add_front_page()
    site.write("reference/keys.md", program_reference.keys_page(program))
    site.write("reference/program.md", program_reference.verbs_page(program))
    site.write("reference/python.md", python_reference.page())
    site.write("reference/c.md", c_reference.page(ROOT / "include" / "ringpack"))
    site.write("evidence/benchmarks.md", benchmarks.page(ROOT / "bench" / "results"))
    for chart in (ROOT / "bench" / "results").glob("*.svg"):
        site.copy(str(chart.relative_to(ROOT)))
    shutil.copytree(Path(__file__).parent / "style", site.target / "style")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
