# SPDX-License-Identifier: Apache-2.0
"""Rights in URLs, in every spelling: on no command line and in no environment of any process once
it runs, and in no file or output of a run."""

import contextlib
import json
import os
import re
import subprocess
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

OWN = f"S3CR3T{os.getpid()}Q"  # other tests of this machine have other ones
SECRET = re.compile(rf"{OWN}\w*".encode())
KEYS = {"seq_len": 64, "batch_size": 2, "shuffle": "block", "num_epochs": "endless"}

# The text after `path: ` in a config, with U for the URL without its query.
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
        .replace("S3CR3T", OWN)
        .replace("U", url)
        .replace("V", url.replace("/", "\\/"))
        .replace("W", url[len("http:") :])
    )


def shown():
    """Command lines and environments of all processes that have a secret."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        for what in ("cmdline", "environ"):
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                if SECRET.search((path / what).read_bytes()):
                    found.add(f"{path}/{what}")
    return found


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
            assert shown() == set()
    finally:
        engine.kill()
    assert any(OWN in asked for asked in store.asked), "it was not sent"
    assert list((folder / "saved").glob("*.rpc")), "nothing was saved"
    assert kept_in(folder, tmp_path, but=["secret.yaml"]) == set()
    assert not SECRET.search(engine.log().encode())


@pytest.mark.parametrize("as_key", [False, True], ids=["plain", "mapping"])
def test_a_loader_shows_no_right_to_other_users(program, folder, store, monkeypatch, as_key):
    """The engine, its children, and the programs that the loader runs."""
    tape = make_tape(program, folder)
    copy_tape(tape, store.folder)
    url = store.url(tape.path) + f"?sv=1&sig={OWN}'x"
    words = tmp_words(folder, program, monkeypatch)
    corpus = {"path": url, "weight": 2} if as_key else url
    with ringpack.Loader(
        corpus=corpus, run="shown", run_dir=folder, checkpoint_dir=folder / "saved", **KEYS
    ) as loader:
        next(iter(loader))
        ringpack.checkpoint("shown", folder)
        assert shown() == set()
        assert OWN not in repr(loader)
    with ringpack.Replay(corpus=corpus, **{**KEYS, "num_epochs": 1}) as replay:
        replay.step(0)
        assert shown() == set()
        assert OWN not in repr(replay)
    assert words.exists() and not SECRET.search(words.read_bytes())
    assert list((folder / "saved").glob("*.rpc"))
    assert kept_in(folder) == set()


# Words of a command line. They are not read as YAML, so that no more spellings exist.
WORDS = {
    "signature": "{url}?X-Amz-Date=1&X-Amz-Signature={secret}",
    "apostrophe": "{url}?rscd=attachment;filename='x.bin'&sig={secret}",
    "comma": "{url}?a=1,2&sig={secret}",
    "percent": "{url}?sig={secret}%2F%3D",
    "user": "{user_url}?a=1",
}


def worded(name, url):
    user_url = url.replace("://", f"://me:{OWN}@")
    return WORDS[name].format(url=url, secret=OWN, user_url=user_url)


def commands(url, text_url, tape, folder):
    shape = ["--seq-len=64", "--batch-size=2", "--num-epochs=1"]
    plain = url.split("?")[0]
    return {
        "inspect": ["inspect", url],
        "index": ["index", "--index-dir", folder / "sidecars", url],
        "convert": ["convert", "--tokenizer", "bytes", "-o", folder / "made", text_url],
        "plan": ["plan", f"--sources={url}", *shape],
        "explain": ["explain", f"--sources={url}", *shape, "--row", "0"],
        "state": ["state", f"--sources={url}", *shape, "--row", "0", "-o", folder / "token"],
        "config": ["config", "check", f"--sources={url}", *shape],
        "doctor": ["doctor", "--sources", url, *shape],
        "verify": ["verify", f"--sources={url}", *shape, "--kills", "1"],
        "bench": ["bench", f"--sources={url}", *shape, "--seconds", "1"],
        "mistake": ["plan", f"--sources={url}", "--no-such-option"],
        "unread": ["plan", f"--sources={plain}", *shape, "--row", url],
    }


@pytest.fixture
def watched(store, folder, program):
    """A store that looks at all processes at each request."""
    store.tape, seen, serve = make_tape(program, folder), set(), store.serve
    copy_tape(store.tape, store.folder)
    (store.folder / "text.txt").write_text("some words")

    def look(handler):
        seen.update(shown())
        return serve(handler)

    store.serve, store.seen = look, seen
    return store


def run_verb(program, folder, store, verb, word):
    url, text = (worded(word, store.url(name)) for name in (store.tape.path, "text.txt"))
    command = [str(part) for part in commands(url, text, store.tape, folder)[verb]]
    environment = {**os.environ, "RINGPACK_OBJECT_PATIENCE": "50,100,1,1"}
    return subprocess.run([program, *command], env=environment, capture_output=True, timeout=300)


@pytest.mark.parametrize("verb", commands("", "", None, Path()))
def test_a_command_line_shows_no_right_while_its_program_runs(program, folder, watched, verb):
    for word in WORDS if verb == "inspect" else ["signature"]:
        asked = len(watched.asked)
        done = run_verb(program, folder, watched, verb, word)
        assert watched.seen == set()
        assert not SECRET.search(done.stdout + done.stderr)
        is_asked = verb not in ("mistake", "unread", "config") and word != "user"
        assert len(watched.asked) > asked or not is_asked, done.stderr


def test_a_command_line_that_is_kept_is_found(broken, folder, watched, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", "show_own_words")
    run_verb(broken, folder, watched, "inspect", "signature")
    assert watched.seen


def test_an_engine_hides_the_command_line_that_a_user_typed(program, folder, watched):
    url = worded("signature", watched.url(watched.tape.path))
    engine = Engine(program, folder, KEYS, f"--sources={url}")
    try:
        assert shown() == set() and watched.seen == set()
        words = Path(f"/proc/{engine.pid}/cmdline").read_bytes()
        assert watched.url(watched.tape.path).encode() + b"?***" in words
    finally:
        engine.kill()
    assert any(OWN in asked for asked in watched.asked)


def tmp_words(folder, program, monkeypatch):
    """A program that notes its command line before it becomes the real one."""
    noted, wrapper = folder / "words", folder / "ringpack"
    wrapper.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {noted}\nexec {program} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("RINGPACK", str(wrapper))
    return noted


def test_messages_show_no_right(program, folder, store):
    url = f"{store.base}/none.bin?a='b c'&sig={OWN}"
    for call in (
        lambda: ringpack.Loader(url, **KEYS),
        lambda: ringpack.Loader(corpus=[1, url], **KEYS),
        lambda: ringpack.Loader(corpus=url, run_dir=folder, **KEYS).__enter__().attach(),
        lambda: ringpack.Loader(corpus=url, run_dir=folder, **{**KEYS, "batch_size": url}).attach(),
    ):
        with pytest.raises(Exception) as raised:
            call()
        assert OWN not in f"{raised.value} {getattr(raised.value, 'hint', '')}"
    config = folder / "c.yaml"
    config.write_text(json.dumps({**KEYS, "sources": ["x.bin"]}))
    with pytest.raises(ringpack.UsageError, match="alert_command: a URL with a query"):
        ringpack.Loader(config, alert_command=["curl", url]).attach()
