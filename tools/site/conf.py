# SPDX-License-Identifier: Apache-2.0
# Configures Sphinx, which builds the site from the pages that assemble.py has gathered. A page
# loads no file from a network: fonts are the reader's own, and the search works from disk.
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

project = "ringpack"
cmake = (ROOT / "CMakeLists.txt").read_text()
version = release = re.search(r"project\(ringpack VERSION ([\d.]+)", cmake)[1]
copyright = ""
extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
html_theme = "furo"
html_title = "ringpack"
html_static_path = ["style"]
html_css_files = ["site.css"]
html_show_sphinx = html_show_copyright = html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # it would fetch pages, which a browser refuses on disk
html_theme_options = {"top_of_page_buttons": []}
pygments_style, pygments_dark_style = "friendly", "github-dark"
suppress_warnings = ["misc.highlighting_failure"]  # YAML with CPU ranges, JSON with an ellipsis
