# SPDX-License-Identifier: Apache-2.0
"""The keys of `ringpack stat`, and those that its page explains."""

import re

from conftest import ROOT

PAGE = ROOT / "tools" / "python" / "docs" / "stat-keys.md"


def documented():
    """The keys of the page's table."""
    rows = re.findall(r"^\| `([^`]+)` \|([^|]*)\|([^|]*)\|$", PAGE.read_text(), re.M)
    keys = [key for key, _, _ in rows]
    assert len(keys) == len(set(keys)) > 50, "a key has two rows"
    return set(keys)


def keys_of(value, prefix=""):
    """All keys of a JSON object; keys of objects in lists as list[].key."""
    keys = set()
    for key, own in value.items():
        if isinstance(own, dict):
            keys |= keys_of(own, f"{prefix}{key}.")
        elif isinstance(own, list) and (not own or isinstance(own[0], dict)):
            for each in own:
                keys |= keys_of(each, f"{prefix}{key}[].")
        else:
            keys.add(prefix + key)
    return keys


def assert_documented(stat):
    assert not keys_of(stat) - documented()
