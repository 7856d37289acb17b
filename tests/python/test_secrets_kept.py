# SPDX-License-Identifier: Apache-2.0
"""Rights in URLs, in every spelling: on no command line but the user's own, in no environment of a
child, and in nothing that a run keeps or says."""

import json
import os
import re
from pathlib import Path

import pytest
import ringpack
from remote_kit import (  # with the fixtures `environment` and `store`
    copy_tape,
    environment,
    make_tape,
    store,
)
from stream_kit import Engine

SECRET = re.compile(rb"S3CR3T\w*")
KEYS = {"seq_len": 64, "batch_size": 2, "shuffle": "block", "num_epochs": "endless"}

# What stands after `path: ` in a config, in which U is the URL without its query.
SPELLINGS = {
    "plain": "U?sv=1&sig=S3CR3T",
    "apostrophe": "U?rscd=attachment;filename='x.bin'&sig=S3CR3T",
    "quotes": "'U?a=\"b\"&sig=S3CR3T'",
    "doubled quote": "'U?a=it''s&sig=S3CR3T'",
    "folded": '"U?sv=2024&\\\n      sig=S3CR3T"',
    "escape": '"U\\x3fsig=S3CR3T"',
    "escaped slashes": '"V?sig=S3CR3T"',
    "escaped letters": '"\\u0068ttp\\u003aW?sig=S3CR3T"',
    "block": "|-\n      U?sig=S3CR3T",
    "tag and anchor": "&it !!str 'U?sig=S3CR3T'",
    "comma": '"U?a=1,2&sig=S3CR3T"',
    "percent": "U?sig=S3CR3T%2F%3D",
    "comment": "U?sig=S3CR3T # U?sig=S3CR3TOLD",
    "comment in quotes": "U?sig=S3CR3T # was \"U\\x3fsig=S3CR3TOLD\"",
}


def spelled(name, url):
    return (
        SPELLINGS[name]
        .replace("U", url)
        .replace("V", url.replace("/", "\\/"))
        .replace("W", url[len("http:") :])
    )


def descendants(pid):
    for task in Path("/proc").glob(f"{pid}/task/*/children"):
        try:
            children = task.read_text().split()
        except OSError:  # the thread has ended
            continue
        for child in children:
            yield int(child)
            yield from descendants(int(child))


def shown_by(pids):
    """Command lines and environments of processes that have a secret."""
    texts = {f"/proc/{pid}/{what}" for pid in pids for what in ("cmdline", "environ")}
    return {path for path in texts if SECRET.search(Path(path).read_bytes())}


def kept_in(*folders, but=()):
    paths = {path for folder in folders for path in Path(folder).rglob("*") if path.is_file()}
    paths = {path for path in paths if path.name not in but}
    return {str(path) for path in paths if SECRET.search(path.read_bytes())}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_run_keeps_no_right_in_any_spelling(program, folder, store, tmp_path, name):
    tape = make_tape(program, folder)
    copy_tape(tape, store.folder)
    config = folder / "secret.yaml"
    lines = [f"{key}: {value}" for key, value in KEYS.items()]
    path = spelled(name, store.url(tape.path))
    lines += [f"checkpoint_dir: {folder}/saved", f"sources:\n  - name: web\n    path: {path}"]
    config.write_text("\n".join(lines) + "\n")
    told = "-c", config, "--run", "e2e", "--run-dir", folder  # the last config counts
    engine = Engine(program, folder, {}, *told)
    try:
        with ringpack.Loader(run="e2e", run_dir=folder, start_engine=False) as loader:
            next(iter(loader))
            engine.checkpoint()
            assert shown_by([engine.pid, *descendants(engine.pid)]) == set()
    finally:
        engine.kill()
    assert any(b"S3CR3T" in asked.encode() for asked in store.asked), "it was not sent"
    assert list((folder / "saved").glob("*.rpc")), "nothing was saved"
    assert kept_in(folder, tmp_path, but=["secret.yaml"]) == set()
    assert not SECRET.search(engine.log().encode())


@pytest.mark.parametrize("as_key", [False, True], ids=["plain", "mapping"])
def test_a_loader_shows_no_right_to_other_users(program, folder, store, monkeypatch, as_key):
    """The engine, what it starts, and the programs that the loader asks."""
    tape = make_tape(program, folder)
    copy_tape(tape, store.folder)
    url = store.url(tape.path) + "?sv=1&sig=S3CR3T'x"
    words = tmp_words(folder, program, monkeypatch)
    corpus = {"path": url, "weight": 2} if as_key else url
    with ringpack.Loader(
        corpus=corpus, run="shown", run_dir=folder, checkpoint_dir=folder / "saved", **KEYS
    ) as loader:
        next(iter(loader))
        ringpack.checkpoint("shown", folder)
        pids = list(descendants(os.getpid()))
        assert len(pids) > 0 and shown_by(pids) == set()
        assert "S3CR3T" not in repr(loader)
    with ringpack.Replay(corpus=corpus, **{**KEYS, "num_epochs": 1}) as replay:
        replay.step(0)
        assert shown_by(descendants(os.getpid())) == set()
        assert "S3CR3T" not in repr(replay)
    assert words.exists() and not SECRET.search(words.read_bytes())
    assert list((folder / "saved").glob("*.rpc"))
    assert kept_in(folder) == set()


def tmp_words(folder, program, monkeypatch):
    """A program that notes its command line before it becomes the real one."""
    noted, wrapper = folder / "words", folder / "ringpack"
    wrapper.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {noted}\nexec {program} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("RINGPACK", str(wrapper))
    return noted


def test_messages_show_no_right(program, folder, store):
    url = f"{store.base}/none.bin?a='b c'&sig=S3CR3T"
    for call in (
        lambda: ringpack.Loader(url, **KEYS),
        lambda: ringpack.Loader(corpus=[1, url], **KEYS),
        lambda: ringpack.Loader(corpus=url, run_dir=folder, **KEYS).__enter__().attach(),
        lambda: ringpack.Loader(corpus=url, run_dir=folder, **{**KEYS, "batch_size": url}).attach(),
    ):
        with pytest.raises(Exception) as raised:
            call()
        assert "S3CR3T" not in f"{raised.value} {getattr(raised.value, 'hint', '')}"
    config = folder / "c.yaml"
    config.write_text(json.dumps({**KEYS, "sources": ["x.bin"]}))
    with pytest.raises(ringpack.UsageError, match="alert_command: a URL with a query"):
        ringpack.Loader(config, alert_command=["curl", url]).attach()
