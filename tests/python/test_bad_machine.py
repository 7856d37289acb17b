# SPDX-License-Identifier: Apache-2.0
"""A machine that lacks something, files that change under the engine, and signals: it works with
the rest, or names the missing part; and delivered and saved rows stay right."""

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ringpack
import ringpack.__main__
from failure_kit import WITHOUT_IO_URING, WITHOUT_MORE_RINGS
from refusal_kit import assert_refusal, options, refused, refused_serve, run, write_good
from ringpack import _library
from stream_kit import IO_URING_WORKS, PATIENCE, Corpus, Engine, Ranks, Stream, Taken

IS_ROOT = os.geteuid() == 0
needs_io_uring = pytest.mark.skipif(not IO_URING_WORKS, reason="needs io_uring, to lose it")
needs_root = pytest.mark.skipif(
    not IS_ROOT or not shutil.which("unshare"), reason="needs root, to mount in a namespace"
)


@pytest.fixture
def good(folder):
    return write_good(folder)


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    corpus = Corpus(tmp_path_factory.mktemp("machine"), [("megatron", "u16", 1, [200])], 8)
    return Stream(corpus, {"num_epochs": 1})


def assert_whole_stream(program, folder, stream, prefix, **options):
    """An engine behind `prefix` serves everything; its log, and `stat` after the first batch."""
    config = {**stream.config(), "batch_size": 2, "prefetch_bytes": "64kb", **options}
    engine = Engine(program, folder, config, prefix=prefix)
    try:
        taken = Taken(stream)
        with Ranks(engine) as ranks:
            taken.add(ranks.turn())
            stat = ringpack.stat(engine.run, folder)
            for batches in ranks.turns():
                taken.add(batches)
        taken.assert_all()
        assert engine.wait() == 0, engine.log()
    finally:
        engine.kill()
    return engine.log(), stat


# ---- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 1000000, "prefetch_factor": 4096},
        {"seq_len": 2**24, "batch_size": 2**20},
    ],
)
def test_more_memory_than_there_is(program, folder, good, changes):
    """Refused at the start, with how much is wanted; not an OOM kill or a SIGBUS later."""
    name, text = refused_serve(program, folder, good, **changes)
    assert name in ("RP_E_RESOURCE", "RP_E_CONFIG") and any(c.isdigit() for c in text)


DROP_LOCK = ["setpriv", "--inh-caps=-ipc_lock", "--bounding-set=-ipc_lock"] if IS_ROOT else []


@pytest.mark.parametrize(
    "io, limit, readers",
    [("auto", 4096, 1), ("auto", 64 << 10, 8), ("mapped", 64 << 10, 8), ("io_uring", 256 << 10, 1)],
)
def test_little_memory_may_be_locked(program, folder, stream, io, limit, readers):
    """io_uring then works with buffers that are not registered, or gives way to pread: for all
    readers, or for those that come late."""
    prefix = ["prlimit", f"--memlock={limit}:{limit}", *DROP_LOCK]
    keys = {"io": io, "o_direct": "on", "prefetch_bytes": "4mb", "readers": readers}
    assert_whole_stream(program, folder, stream, prefix, **keys)


def assert_gives_way(program, folder, stream, **keys):
    """Readers get no ring though the trial did: all rows come, `stat` and one line say so."""
    keys = {"o_direct": "on", "readers": 4, **keys}
    log, stat = assert_whole_stream(program, folder, stream, WITHOUT_MORE_RINGS, **keys)
    lines = [line for line in log.splitlines() if "readers read with pread" in line]
    assert len(lines) == 1 and "4 of 4" in lines[0] and "ENOMEM" in lines[0], log
    assert "ulimit -l" in lines[0] and "tried, and it works" in log
    assert stat["io"] in ("pread", "mapped")
    assert "4 of 4 readers read with pread" in stat["io_reason"]


@needs_io_uring
def test_no_ring_after_the_trial(program, folder, stream, good):
    assert_gives_way(program, folder, stream)
    where = [f"--source={good}", *options(folder / "run", io="io_uring")]
    refused(program, "serve", *where, texts=["ENOMEM", "ulimit -l"], prefix=WITHOUT_MORE_RINGS)


@needs_io_uring
def test_no_ring_after_the_trial_is_noticed(broken, folder, stream, monkeypatch):
    """The control of the test before."""
    monkeypatch.setenv("RP_DEFECT", "insist_on_rings")
    with pytest.raises(AssertionError, match="no memory for the ring"):
        assert_gives_way(broken, folder, stream)


def rings_are_charged():
    """Does the kernel count a ring as memory that is locked? Linux 6.18 does."""
    setup = "import ctypes; exit(ctypes.CDLL(None).syscall(425, 128, bytes(120)) < 0)"
    command = ["prlimit", "--memlock=0:0", *DROP_LOCK, sys.executable, "-c", setup]
    return IO_URING_WORKS and subprocess.run(command, check=False).returncode != 0


def serve_one_that_returns(program, folder, stream, io):
    """Rank 1 returns with its first state when no memory may be locked any more, so that a reader
    is started for it. The engine, when both ranks had their rows or it has failed."""
    config = {**stream.config(), "batch_size": 2, "dp_world_size": 2, "num_epochs": 100}
    config |= {"io": io, "o_direct": "on", "prefetch_bytes": "64kb"}
    engine = Engine(program, folder, config, prefix=DROP_LOCK)
    try:
        with Ranks(engine, 2) as ranks:
            first = ranks.tokens()[1]
            for _ in range(40):
                ranks.turn()
            resource.prlimit(engine.pid, resource.RLIMIT_MEMLOCK, (0, 0))
            ranks.loaders[1].close()
            ranks.loaders[1] = ringpack.Loader(
                run=engine.run, run_dir=folder, dp_rank=1, dp_world_size=2
            )
            ranks.loaders[1].load_state_dict({"ringpack_state": first})
            with contextlib.suppress(ringpack.RingpackError):
                ranks.loaders[1].attach()
                batches = (ranks.loaders[1].next(timeout=PATIENCE) for _ in range(40))
                rows = [batch["rows"]["row"][0] for batch in batches]
                assert rows == list(range(2, 2 + 4 * 40, 4)), rows
                ranks.loaders[0].next(timeout=PATIENCE)
        return engine.stop(), engine.log()
    finally:
        engine.kill()


def test_no_memory_for_the_ring_of_a_rank_that_returns(program, folder, stream):
    """It is read for with pread, and the other rank continues. The control: with `io: io_uring` the
    engine ends."""
    if not rings_are_charged():
        pytest.skip("needs a kernel that charges rings to RLIMIT_MEMLOCK")
    status, log = serve_one_that_returns(program, folder, stream, "auto")
    assert status == 0 and "rank 1 is behind" in log, log
    lines = [line for line in log.splitlines() if "readers read with pread" in line]
    assert len(lines) == 1 and "1 of 2" in lines[0] and "ulimit -l" in lines[0], log
    status, log = serve_one_that_returns(program, folder, stream, "io_uring")
    assert status == 2 and "no memory for the ring" in log, log


@needs_root
def test_a_tiny_dev_shm(program, folder, stream):
    mount = 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"'
    assert_whole_stream(program, folder, stream, ["unshare", "-m", "sh", "-c", mount, "sh"])


# ---- files and descriptors -----------------------------------------------------------------------


def test_few_descriptors(program, folder, stream):
    assert_whole_stream(program, folder, stream, ["prlimit", "--nofile=64:64"])


def many_shards(folder, count=90):
    """A stream over a number of files of four documents each."""
    corpus = Corpus(folder, [("megatron", "u16", 1, [4] * count)], 8)
    return Stream(corpus, {"num_epochs": 2})


@pytest.mark.parametrize(
    "options",
    [
        {"io": "pread"},
        {"io": "auto"},
        {"io": "mapped"},
        {"io": "io_uring", "o_direct": "on", "readers": 2},
        {"io": "pread", "packers": 2, "packer_processes": True},
        {"io": "pread", "packers": 8},
        {"io": "pread", "prefetch_bytes": "64mb"},
    ],
    ids=str,
)
def test_more_shards_than_descriptors(program, folder, tmp_path, options):
    """Files are opened in turn, and every row comes."""
    stream = many_shards(tmp_path)
    prefix = ["prlimit", "--nofile=64:64"]
    log, _ = assert_whole_stream(program, folder, stream, prefix, **options)
    told = [line for line in log.splitlines() if "token files share" in line]
    assert len(told) == 1 and "90 token files" in told[0] and "ulimit -n" in told[0], log
    assert ("read, not mapped" in log) == (options["io"] in ("auto", "mapped")), log


def test_a_descriptor_that_is_closed_too_early_is_noticed(
    program, broken, folder, tmp_path, monkeypatch
):
    """The control of the test before."""
    monkeypatch.setenv("RP_DEFECT", "close_files_in_use")
    stream = many_shards(tmp_path, 300)
    prefix, options = ["prlimit", "--nofile=64:64"], {"io": "pread", "prefetch_bytes": "4mb"}
    assert_whole_stream(program, folder, stream, prefix, run="good", **options)
    with pytest.raises(Exception, match="Bad file|cannot read|differ|assert|row "):
        assert_whole_stream(broken, folder, stream, prefix, run="bad", **options)


def test_too_few_descriptors_for_all_seats(program, folder, stream):
    """Refused at the start, with the number that is needed; with that number all seats attach."""
    config = {**stream.config(), "dp_world_size": 8, "consumers_per_rank": 8, "batch_size": 2}
    config |= {"num_epochs": "endless", "prefetch_bytes": "64kb"}
    refusing = ["prlimit", "--nofile=130:130"]
    engine = Engine(program, folder, config, prefix=refusing, wait=False)
    assert_refusal(engine.wait(), engine.log(), "open files", "found 130", "ulimit -n")
    wanted = int(re.search(r"ulimit -n (\d+)", engine.log())[1])
    assert 130 < wanted < 400  # 64 seats, and rings that catch up
    engine = Engine(program, folder, config, prefix=["prlimit", f"--nofile={wanted}:{wanted}"])
    ranks = []
    try:
        for replica in range(8):
            ranks.append(Ranks(engine, 8, replica=replica, consumers_per_rank=8))
        for _ in range(3):
            for one in ranks:
                assert one.turn() is not None
        assert len(list(Path(f"/proc/{engine.pid}/fd").iterdir())) <= wanted
    finally:
        for one in ranks:
            one.close()
        engine.kill()


def test_io_uring_is_denied(program, folder, stream, good):
    log, _ = assert_whole_stream(program, folder, stream, WITHOUT_IO_URING, o_direct="on")
    lines = [line for line in log.splitlines() if "pread" in line]
    assert len(lines) == 1 and "io_uring" in lines[0], log
    where = [f"--source={good}", *options(folder / "run", io="io_uring")]
    name, _ = refused(program, "serve", *where, texts=["io_uring"], prefix=WITHOUT_IO_URING)
    assert name == "RP_E_RESOURCE"


# ---- checkpoint directories ----------------------------------------------------------------------


@needs_root
def test_a_checkpoint_directory_that_is_read_only(program, folder, good):
    place = folder / "checkpoints"
    place.mkdir()
    mount = f'mount -t tmpfs -o ro none {place} && exec "$@"'
    where = [f"--source={good}", *options(folder / "run", checkpoint_dir=place)]
    prefix = ["unshare", "-m", "sh", "-c", mount, "sh"]
    refused(program, "serve", *where, texts=[place, "Read-only"], prefix=prefix)


def test_a_checkpoint_directory_that_is_a_file(program, folder, good):
    refused_serve(program, folder, good, good, checkpoint_dir=good)


@needs_root
def test_a_full_disk(program, folder, stream):
    """The stream continues; the checkpoint is refused by name, and the earlier ones stay valid."""
    place = folder / "checkpoints"
    place.mkdir()
    mount = f'mount -t tmpfs -o size=2m,mode=700 none {place} && exec "$@"'
    config = {**stream.config(), "batch_size": 2, "checkpoint_dir": str(place)}
    prefix = ["unshare", "-m", "sh", "-c", mount, "sh"]
    engine = Engine(program, folder, config, prefix=prefix)
    inside = f"/proc/{engine.pid}/root{place}"
    try:
        with Ranks(engine) as ranks:
            ranks.turn()
            engine.checkpoint()
            saved = os.listdir(inside)
            ballast = os.open(f"{inside}/ballast", os.O_WRONLY | os.O_CREAT)
            with pytest.raises(OSError, match="No space left"):
                while True:
                    os.write(ballast, bytes(4096))
            os.close(ballast)
            ranks.turn()
            with pytest.raises(ringpack.RingpackError, match="No space left") as raised:
                engine.checkpoint()
            assert raised.value.hint
            assert set(os.listdir(inside)) == {*saved, "ballast"}
            assert ranks.turn(), "the stream continues"
            os.unlink(f"{inside}/ballast")
            engine.checkpoint()
            done = run(program, "checkpoint", "verify", inside)
            assert done.returncode == 0, done.stderr
        assert engine.stop() == 0
    finally:
        engine.kill()


# ---- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_saves_and_ends_well(program, folder, stream, name):
    place = folder / "checkpoints"
    config = {**stream.config(), "batch_size": 2, "checkpoint_dir": str(place)}
    engine = Engine(program, folder, config)
    taken = Taken(stream)
    with Ranks(engine) as ranks:
        for batches in ranks.turns(5):
            taken.add(batches)
        batches[0].release()
    engine.process.send_signal(getattr(signal, name))
    assert engine.wait() == 0
    assert name in engine.log() and "saved" in engine.log()
    engine = Engine(program, folder, config)
    try:
        with Ranks(engine) as ranks:
            assert ranks.loaders[0].next_row == 10
            for batches in ranks.turns():
                taken.add(batches)
        taken.assert_all()
    finally:
        engine.kill()


def test_a_second_signal_ends_it_at_once(program, folder, stream):
    """Also in the middle of a checkpoint, and earlier ones stay whole."""
    place = folder / "checkpoints"
    config = {**stream.config(), "batch_size": 2, "checkpoint_dir": str(place)}
    for attempt in range(8):
        engine = Engine(program, folder, config)
        if not attempt:
            engine.checkpoint()
        engine.process.terminate()
        time.sleep(attempt * 0.0005)
        with_second = engine.process.poll() is None
        if with_second:
            engine.process.terminate()
        assert engine.wait() in (0, 128 + signal.SIGTERM)
    engine = Engine(program, folder, config)
    assert engine.stop() == 0
    assert "resuming from" in engine.log()
    assert run(program, "checkpoint", "verify", place).returncode == 0


def test_signals_that_mean_nothing(program, folder, stream):
    """A terminal that goes away, a stop and a continue, a child that is not ours."""
    engine = Engine(program, folder, {**stream.config(), "batch_size": 2})
    try:
        with Ranks(engine) as ranks:
            for name in "SIGCHLD", "SIGPIPE", "SIGWINCH", "SIGSTOP", "SIGCONT":
                engine.process.send_signal(getattr(signal, name))
                if name != "SIGSTOP":
                    assert ranks.turn()
    finally:
        engine.process.send_signal(signal.SIGCONT)
        assert engine.stop() == 0


def glibc(version):
    def confstr(name):
        if version is None:
            raise ValueError("unrecognized configuration name")
        return version

    return confstr


@pytest.mark.parametrize(
    "patch, word",
    [
        (("os.confstr", glibc(None)), "musl"),
        (("os.confstr", glibc("glibc 2.27")), "this system has glibc 2.27"),
        (("sys.maxsize", 2**31 - 1), "32 bits"),
        (("sys.platform", "darwin"), "runs on Linux"),
    ],
)
def test_a_machine_that_no_wheel_is_for_is_named(patch, word, monkeypatch, tmp_path, capsys):
    """A machine whose loader cannot take the library, without the program's own loader."""
    library, program = tmp_path / "libringpack.so", tmp_path / "ringpack"
    library.write_bytes(b"\x7fELF of another machine")
    program.write_text("#!/lib64/no-such-loader\n")
    program.chmod(0o755)
    monkeypatch.setenv("RINGPACK_LIBRARY", str(library))
    monkeypatch.setenv("RINGPACK", str(program))
    monkeypatch.setattr(*patch)
    with pytest.raises(ringpack.RingpackError, match="cannot be loaded") as caught:
        _library._open()
    assert word in caught.value.hint
    with pytest.raises(SystemExit) as ended:
        ringpack.__main__.main()
    assert ended.value.code == 2
    assert word in capsys.readouterr().err


def test_ctrl_c_before_the_program_begins(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(ringpack.__main__, "find_program", interrupted)
    with pytest.raises(SystemExit) as ended:
        ringpack.__main__.main()
    assert ended.value.code == 130
