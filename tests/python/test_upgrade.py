# SPDX-License-Identifier: Apache-2.0
"""This release reads the files of every earlier one: the folders of tests/upgrade, which
tests/upgrade/freeze.py wrote once with each release. Every row from the frozen position on has the
digest that it had then. A release that can no longer be read gets a test of its own, of how it is
refused and of the way out that is named."""

import json
import os
import re
import shutil
import socket
import struct

import pytest
import ringpack
from conftest import ROOT
from refusal_kit import refused, run
from stream_kit import Engine, Ranks

RELEASES = sorted(path.name for path in (ROOT / "tests" / "upgrade").iterdir() if path.is_dir())
assert {"0.1.0", "0.2.0"} <= set(RELEASES)
# Their sidecars and manifests are refused, so their corpora are indexed again.
OLD = [name for name in RELEASES if (ROOT / "tests" / "upgrade" / name / "corpus.rpm").exists()]
FORMS = "token", "json", "npz", "safetensors"


@pytest.fixture(params=RELEASES)
def untouched(request, folder):
    """A copy of a release's files, with their times of then."""
    shutil.copytree(ROOT / "tests" / "upgrade" / request.param, folder / "left")
    times = json.loads((folder / "left" / "expected.json").read_text())["mtime_ns"]
    for name, nanoseconds in times.items():
        os.utime(folder / "left" / "corpus" / name, ns=(nanoseconds, nanoseconds))
    return folder / "left"


@pytest.fixture
def left(untouched, program):
    """The same. Corpora older than 0.3 are indexed again, as the refusal of their sidecars says."""
    is_old = (untouched / "corpus.rpm").exists()
    for output in [(), ("-o", untouched / "corpus.rpi")] if is_old else []:
        done = run(program, "index", "-q", "-c", untouched / "config.yaml", *output)
        assert done.returncode == 0, done.stderr
    return untouched


@pytest.fixture
def expected(untouched):
    return json.loads((untouched / "expected.json").read_text())


def digest_of_rest(engine, expected, token=None):
    """The rows of the ranks until the stream ends: the sum of the digests of its rows."""
    with Ranks(engine, expected["world"], token) as ranks:
        assert ranks.loaders[0].next_row == expected["row"]
        return sum(batch.digest() for turn in ranks.turns() for batch in turn) % 2**128


def wanted_of_rest(expected):
    return sum(int(digest, 16) for digest in expected["digests"][expected["row"] :]) % 2**128


def serve(program, folder, left, *arguments, wait=True, **changes):
    config = json.loads((left / "config.yaml").read_text())
    for source in config["sources"]:
        source["shards"] = [str(left / shard) for shard in source["shards"]]
    return Engine(program, folder, {**config, **changes}, *arguments, wait=wait)


@pytest.mark.parametrize("form", FORMS)
def test_a_state_goes_on(program, folder, left, expected, form):
    engine = serve(program, folder, left, "--state", left / f"state.{form}")
    assert digest_of_rest(engine, expected) == wanted_of_rest(expected)
    assert engine.wait() == 0, engine.log()


def test_a_trainer_brings_its_state(program, folder, left, expected):
    """To an engine that begins a run: it cannot know the version that will be wanted."""
    engine = serve(program, folder, left, stream_version=1)
    token = ringpack.import_state(left / "state.npz", program)["ringpack_state"].tobytes()
    assert digest_of_rest(engine, expected, token) == wanted_of_rest(expected)
    assert engine.wait() == 0, engine.log()


def test_a_checkpoint_goes_on(program, folder, left, expected):
    kept = str(left / "checkpoints")
    engine = serve(program, folder, left, checkpoint_dir=kept, resume="required")
    assert digest_of_rest(engine, expected) == wanted_of_rest(expected)
    assert engine.wait() == 0, engine.log()


def test_control_another_row_is_seen(program, folder, left, expected):
    expected["digests"][-1] = expected["digests"][-2]
    engine = serve(program, folder, left, "--state", left / "state.token")
    assert digest_of_rest(engine, expected) != wanted_of_rest(expected)
    engine.kill()


@pytest.mark.parametrize("untouched", OLD, indirect=True)
def test_older_sidecars_and_manifests_are_refused(program, folder, untouched):
    """By name, with the command that makes new ones; with these a run continues, as above."""
    config = json.loads((untouched / "config.yaml").read_text())
    plan = "plan", "-c", untouched / "config.yaml"
    code, said = refused(program, *plan, texts=["0-0.bin.rpx", "older ringpack"])
    assert code == "RP_E_VERSION" and config["sources"], said
    texts = "corpus.rpm", "older ringpack", "ringpack index -c CONFIG"
    refused(program, *plan, "--index", untouched / "corpus.rpm", texts=texts)
    refused(program, *plan, "--manifest", untouched / "corpus.rpm", texts=texts)
    made = run(program, "index", *plan[1:], "-o", untouched / "corpus.rpm")
    assert made.returncode == 0 and "older ringpack" in made.stdout, made.stderr
    assert run(program, *plan, "--manifest", untouched / "corpus.rpm").returncode == 0


def test_a_state_goes_on_with_the_index_of_the_corpus(program, folder, left, expected):
    """The fingerprints of the release equal this one's, by each kind of index."""
    index = str(left / "corpus.rpi")
    engine = serve(program, folder, left, "--state", left / "state.token", index=index)
    assert digest_of_rest(engine, expected) == wanted_of_rest(expected)
    assert engine.wait() == 0, engine.log()


@pytest.mark.parametrize("index", [None, "corpus.rpi"])
def test_control_an_index_knows_its_tokens(program, folder, left, expected, index):
    """Another token ends the engine, so that sidecars are read, and not left aside as foreign."""
    file = left / "corpus" / "0-0.bin"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    nanoseconds = expected["mtime_ns"]["0-0.bin"]
    os.utime(file, ns=(nanoseconds, nanoseconds))
    changes = {"index": str(left / index)} if index else {}
    engine = serve(program, folder, left, wait=False, **changes)
    assert engine.wait() == 2, engine.log()
    assert re.search(r"error RP_E_\w+: .*0-0\.bin.* hash", engine.log()), engine.log()


def attach_as(engine, folder, message):
    """The engine's answer to a trainer's attach message, and the descriptors."""
    name = engine.run.encode()
    message[16 : 16 + 72] = name.ljust(72, b"\0")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(f"{folder}/{engine.run}.sock")
        connection.send(message)
        reply, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 4)
    for descriptor in descriptors:
        os.close(descriptor)
    return reply, len(descriptors)


def assert_welcome_or_refused(message, reply, descriptors):
    magic, version, kind = struct.unpack_from("<QII", reply)
    if version == struct.unpack_from("<I", message, 8)[0]:
        assert kind == 1 and descriptors == 2
    else:
        assert kind == 2 and re.search(rb"version.*\n.*", reply)
    return kind


def test_a_trainer_of_the_release_is_welcome_or_told_why_not(program, folder, left):
    message = bytearray((left / "attach.bin").read_bytes())
    engine = serve(program, folder, left)
    assert_welcome_or_refused(message, *attach_as(engine, folder, message))
    engine.kill()


def test_control_a_trainer_of_another_memory_layout_is_refused(program, folder, left):
    message = bytearray((left / "attach.bin").read_bytes())
    struct.pack_into("<I", message, 8, 3000000)
    engine = serve(program, folder, left)
    reply, descriptors = attach_as(engine, folder, message)
    assert assert_welcome_or_refused(message, reply, descriptors) == 2
    with pytest.raises(AssertionError):
        assert_welcome_or_refused(message, reply.replace(b"version", b"fashion"), descriptors)
    engine.kill()
