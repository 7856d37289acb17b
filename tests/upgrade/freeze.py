# SPDX-License-Identifier: Apache-2.0
"""Write the files that a release leaves behind, which tests/python/test_upgrade.py gives to every
later one. Run once for a release, with its program and its library in build/:

    build/venv/bin/python tests/upgrade/freeze.py

It makes tests/upgrade/VERSION: a corpus with its sidecars, an index, a config, a state token in
every form, the checkpoint with prefetched rows that a killed engine left, a trainer's attach
message, and expected.json, which has the row of the run and the digest of each row. No file there
is changed afterwards.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / place) for place in ("tools/python", "tests/python", "tests/oracle")]

os.environ["RINGPACK"] = str(ROOT / "build" / "bin" / "ringpack")
os.environ["RINGPACK_LIBRARY"] = str(ROOT / "build" / "lib" / "libringpack.so")

import ringpack  # noqa: E402
from stream_kit import Corpus, Engine, Ranks, Stream, Taken, token_of, wait_until  # noqa: E402

SEED = 20
LAYOUT = [("megatron", "u16", 3, [20, 15]), ("raw", "u16", 1, [30])]
INPUTS = {"num_epochs": 3, "window": 5, "fill": "split", "seed": 77, "seq_len": 48}
WORLD, BATCH, TURNS = 2, 2, 5  # turns before the checkpoint
FORMS = "token", "json", "npz", "safetensors"


def all_full(ranks):
    return all(rank["tail"] - rank["release"] == rank["slots"] for rank in ranks)


def attach_message():
    """The first message of a trainer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind("listener.sock")
        server.listen()
        trainer = threading.Thread(target=attach_in_vain)
        trainer.start()
        connection, _ = server.accept()
        with connection:
            message = connection.recv(1 << 16)
    trainer.join()
    return message


def attach_in_vain():
    loader = ringpack.Loader(
        run="listener", run_dir=".", dp_rank=0, dp_world_size=WORLD, connect_timeout=1
    )
    with contextlib.suppress(ringpack.RingpackError):
        loader.attach()


def leave(program):
    """Everything that the release writes, in the present folder. Returns the expected values."""
    os.mkdir("corpus")
    corpus = Corpus("corpus", LAYOUT, SEED)
    corpus.index(program)
    stream = Stream(corpus, INPUTS)
    config = {**stream.config(), "batch_size": BATCH, "dp_world_size": WORLD}
    config |= {"checkpoint_dir": "checkpoints", "prefetch_factor": 4}
    engine = Engine(program, ".", config)
    with Ranks(engine, WORLD) as ranks:
        taken = Taken(stream)
        for batches in ranks.turns(TURNS):
            taken.add(batches)
            for batch in batches:
                batch.release()
        wait_until(lambda: all_full(ringpack.stat(engine.run, ".")["ranks"]), "prefetching")
        engine.checkpoint()
        token = token_of(ranks.loaders[0])
        row = ranks.loaders[0].next_row
        engine.kill()
    Path("state").write_bytes(token)
    for form in FORMS:
        export = [program, "checkpoint", "export", "state", "-o", f"state.{form}"]
        subprocess.run(export, check=True, stdout=subprocess.DEVNULL)
    config["checkpoint_dir"] = "none"
    Path("config.yaml").write_text(json.dumps(config, indent=1) + "\n")
    manifest = [program, "index", "-q", "-c", "config.yaml", "--index", "corpus.rpi"]
    subprocess.run(manifest, check=True)
    Path("attach.bin").write_bytes(attach_message())
    digests = [f"{digest:032x}" for digest in stream.row_digests]
    # A clone does not keep these, and an index compares them.
    times = {path.name: path.stat().st_mtime_ns for path in sorted(Path("corpus").iterdir())}
    expected = {"world": WORLD, "batch_size": BATCH, "row": row}
    return {**expected, "digests": digests, "mtime_ns": times}


def main():
    place = HERE / ringpack.__version__
    if place.exists():
        sys.exit(f"{place} is there already: what a release left is never written again")
    with tempfile.TemporaryDirectory(prefix="rp") as folder:
        os.chdir(folder)
        os.environ["XDG_STATE_HOME"] = folder
        expected = leave(os.environ["RINGPACK"])
        Path("expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        place.mkdir()
        shutil.copytree("corpus", place / "corpus")
        shutil.copytree("checkpoints", place / "checkpoints", ignore=lambda *_: [".lock"])
        for name in ("config.yaml", "expected.json", "corpus.rpi", "attach.bin"):
            shutil.copy(name, place)
        for form in FORMS:
            shutil.copy(f"state.{form}", place)
        os.chdir("/")
    print(f"{place}: {sum(path.stat().st_size for path in place.rglob('*'))} bytes")


if __name__ == "__main__":
    main()
