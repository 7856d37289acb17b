# SPDX-License-Identifier: Apache-2.0
"""Pages in a real browser, without a screen."""

import html
import os
import re
import shutil
import subprocess

import pytest

TIME = ["--virtual-time-budget=3000"]
SCHEMES = ["dark", "light"]  # by the number that Chromium has for them


def browse(address, home, scheme, *options):
    """Show a page in the colours of a scheme, and return the browser's output. Whatever the page
    says in its console is a failure."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs chromium")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += [f"--blink-settings=preferredColorScheme={SCHEMES.index(scheme)}"]
    done = subprocess.run(
        [*command, *options, address],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HOME": str(home)},
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


def width_on(page, home, width):
    """The width that a page takes on a screen, in pixels: more than the screen's if a reader has to
    scroll sideways."""
    frame = home / "frame.html"
    frame.write_text(f"""<!doctype html><meta charset="utf-8"><title></title>
<iframe style="width:{width}px;height:800px;border:0" srcdoc="{html.escape(page)}"></iframe>
<script>setTimeout(() => {{ document.title =
document.querySelector("iframe").contentDocument.documentElement.scrollWidth; }}, 1000)</script>""")
    shown = browse(f"file://{frame}", home, "light", "--hide-scrollbars", *TIME, "--dump-dom")
    return int(re.search(r"<title>(\d+)</title>", shown)[1])
