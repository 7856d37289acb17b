# SPDX-License-Identifier: Apache-2.0
"""Pages in a real browser, without a screen."""

import os
import shutil
import subprocess

import pytest

SCHEMES = ["dark", "light"]  # by the number that Chromium has for them


def browse(address, home, scheme, *options):
    """Show a page in the colours of a scheme, and return what the browser prints. Whatever the page
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
