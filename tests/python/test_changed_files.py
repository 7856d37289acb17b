# SPDX-License-Identifier: Apache-2.0
"""Corpus files that are cut, replaced, touched or overwritten while the engine reads them, in every
way of reading: noticed and named, or without effect. Trainers hear of it at once, a checkpoint is
saved, and once the file is back every row comes, with the bytes it always had."""

import contextlib
import os
import shutil
import subprocess
import time
import warnings
from pathlib import Path

import numpy
import pytest
import ringpack
from failure_kit import SEQ_LEN, Tape, assert_ended_by, finish
from stream_kit import LONG, PATIENCE, Engine, Ranks, wait_until, write_megatron

LONG_TAPE = 3000000  # tokens: far more than any ring holds
SHORT_TAPE = 100000  # tokens: read several times
BATCH = 16  # rows
AHEAD = {"batch_size": 4}  # more batches are planned than packed when a checkpoint is taken
LOOK = 0.5  # seconds between the engine's checks of a file
WAYS = [
    {"io": "pread"},
    {"io": "io_uring", "o_direct": "on"},
    {"io": "mapped"},
    {"io": "mapped", "packer_processes": True},
]
if LONG:
    WAYS.append({"io": "io_uring"})
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))


class Reading:
    """An engine in the middle of a long tape, and its trainer. A copy of the files is kept."""

    def __init__(self, program, folder, way, indexed=False, tokens=LONG_TAPE, **keys):
        self.program, self.folder = program, folder
        keys = {"batch_size": BATCH, **way, **keys}
        self.tape = Tape(folder, tokens, packers=2, **keys)
        if indexed:
            self.tape.index(program)
        self.index_path = self.tape.path[:-4] + ".idx"
        for path in self.tape.path, self.index_path:
            shutil.copy2(path, f"{path}.kept")
        self.tape.config["checkpoint_dir"] = str(folder / "checkpoints")
        self.engine = Engine(program, folder, self.tape.config)
        self.ranks = Ranks(self.engine, restart_timeout=PATIENCE)
        self.tape.read(self.ranks, 3)

    def read_until_told(self, *texts, error=ringpack.FileChangedError):
        """Good batches, and then the failure, with the file's name."""
        with pytest.raises(error) as raised:
            self.tape.read(self.ranks)
        said = str(raised.value)
        assert all(text in said for text in (self.tape.path[:-4], "next: ", *texts)), said
        self.token = self.ranks.tokens()[0]
        assert_ended_by(self.engine, error.name, *texts)
        return said

    def read_until_changed(self, match=None):
        """Batches of whatever bytes, and then the failure."""
        with pytest.raises(ringpack.FileChangedError, match=match):
            for _ in self.ranks.turns():
                pass
        assert_ended_by(self.engine, "RP_E_CHANGED", "change time")

    def restore_tokens_and_finish(self, token):
        """The trainer continues from this state."""
        self.ranks.close()
        os.replace(f"{self.tape.path}.kept", self.tape.path)
        finish(self.program, self.folder, self.tape, token)

    def restore_and_finish(self):
        """The engine continues from the checkpoint that it saved at the end, the trainer from its
        own state, at a batch still in its hands then."""
        for path in self.tape.path, self.index_path:
            os.replace(f"{path}.kept", path)
        assert "saved" in self.engine.log(), self.engine.log()
        self.ranks.close()
        log = finish(self.program, self.folder, self.tape, self.token)
        assert "resuming from" in log

    def close(self):
        self.ranks.close()
        self.engine.kill()


@pytest.fixture
def reading(program, folder):
    made = []

    def make(*arguments, **keys):
        made.append(Reading(program, folder, *arguments, **keys))
        return made[-1]

    yield make
    for one in made:
        one.close()


@ways
@pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])
def test_a_token_file_that_is_cut(reading, way, indexed):
    it = reading(way, indexed)
    os.truncate(it.tape.path, 8192)
    it.read_until_told("bytes: expected 6000000, found 8192")
    it.restore_and_finish()


@pytest.mark.parametrize("io", ["pread", "mapped"])
def test_an_index_that_is_cut(reading, io):
    """It is mapped whatever the way of reading; the part that the plan needs is gone."""
    it = reading({"io": io})
    os.truncate(it.index_path, 0)
    it.read_until_told(it.index_path, "found 0")
    it.restore_and_finish()


@pytest.mark.parametrize("verify", ["auto", "off"])
def test_stat_tells_what_nothing_verifies(program, folder, engines, verify):
    """Of two sources with 4 and 2 bytes a token, read in equal parts, the first is indexed: half of
    the tokens, a third of the bytes, are unverified."""
    tokens, paths = numpy.arange(20000), {}
    for kind in "i32", "u16":
        paths[kind] = write_megatron(folder / kind, numpy.split(tokens, 50), kind)
    subprocess.run([program, "index", "-q", paths["i32"]], check=True, capture_output=True)
    keys = {**Tape(folder).config, "sources": list(paths.values()), "run": "shares"}
    engines(program, folder, {**keys, "verify_blocks": verify})
    place = {"run": "shares", "run_dir": folder, "start_engine": False}
    with ringpack.Loader(**place, connect_timeout=PATIENCE) as loader:
        for _ in loader:
            pass
        stat = ringpack.stat("shares", folder)
    whole = verify == "off"
    assert stat["unverified_share"] == (1 if whole else 0.5)
    assert stat["unverified_byte_share"] == pytest.approx(1 if whole else 1 / 3)
    assert (stat["taken_bytes"], stat["unverified_bytes"]) == (120000, 120000 if whole else 40000)
    told = [(source["bytes"], source["unverified_bytes"]) for source in stat["sources"]]
    assert told == [(80000, 80000 if whole else 0), (40000, 40000)]


def overwrite(path, first, count):
    """Other bytes in place, and the modification time set back, as `rsync --inplace -t` or a backup
    tool sets it."""
    before = os.stat(path)
    with open(path, "r+b") as file:
        file.seek(first)
        file.write(bytes(min(count, before.st_size - first)))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def read_an_epoch(it):
    """Every block of the file is compared at least once."""
    it.tape.read(it.ranks, SHORT_TAPE // SEQ_LEN // BATCH + 10)


@ways
def test_a_block_is_compared_each_time(reading, way):
    """A block that was good in the first epoch is not taken for good in the next."""
    it = reading(way, indexed=True, tokens=SHORT_TAPE, epochs=8)
    read_an_epoch(it)
    overwrite(it.tape.path, 65536, 65536)
    it.read_until_told("block", "differs from its sidecar", error=ringpack.CorruptError)
    it.restore_and_finish()


def rewrite_index(path):
    """Every document of the index is in the place of another one: all of its sizes are as
    before."""
    before = os.stat(path)
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        count = int.from_bytes(data[18:26], "little")
        first = 34 + 4 * count  # after the lengths
        places = numpy.frombuffer(data, "<u8", count, first)
        data[first : first + 8 * count] = numpy.roll(places, count // 3 * 2 + 2).tobytes()
        file.seek(0)
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@ways
@pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])
def test_an_index_that_is_overwritten(reading, way, indexed):
    it = reading(way, indexed)
    rewrite_index(it.index_path)
    it.read_until_told(it.index_path, "hash: expected")
    it.restore_and_finish()


@pytest.mark.parametrize("io", ["pread", "mapped"])
@pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])
def test_an_index_that_is_touched(reading, io, indexed):
    """Its content decides."""
    it = reading({"io": io}, indexed)
    os.utime(it.index_path)
    os.link(it.index_path, f"{it.index_path}.linked")
    if indexed:
        os.chmod(f"{it.tape.path}.rpi", 0o400)
    it.tape.read(it.ranks)
    it.tape.assert_whole()


@pytest.mark.parametrize("io", ["pread", "mapped"])
def test_a_corpus_and_its_sidecar_that_are_overwritten(reading, folder, program, io):
    """In place, as `rsync --inplace` brings another version: rows that were planned before are
    compared with the hashes of then."""
    it = reading({"io": io}, indexed=True)
    (folder / "other").mkdir()
    other = Tape(folder / "other", LONG_TAPE, seed=8)
    other.index(program)
    for suffix in "", ".rpi":
        with open(other.path + suffix, "rb") as source, open(it.tape.path + suffix, "r+b") as file:
            shutil.copyfileobj(source, file)
    with pytest.raises((ringpack.CorruptError, ringpack.FileChangedError)):
        it.tape.read(it.ranks)


def test_a_plain_file_whose_times_are_set_back(reading):
    it = reading({"io": "pread"})
    overwrite(it.tape.path, 2 * LONG_TAPE - 65536, 65536)
    time.sleep(1.1 * LOOK)
    it.read_until_told("change time")
    it.restore_and_finish()


@ways
def test_a_plain_file_that_is_overwritten_at_the_end(reading, way):
    """Less than half a second before the stream ends: changed tokens come, and an error; never a
    normal end."""
    it = reading(way, tokens=20000)
    overwrite(it.tape.path, 8192, 65536)
    it.read_until_changed()


@pytest.mark.parametrize("io", ["pread", "mapped"])
def test_the_last_checkpoint_has_nothing_of_a_plain_file_that_changed(reading, io):
    """The rows in the ring were read before anybody checked. Once the file is restored they come
    from the file."""
    it = reading({"io": io}, prefetch_factor=16)
    token = it.ranks.tokens()[0]
    overwrite(it.tape.path, 8192, 2 * LONG_TAPE - 8192)
    it.read_until_changed()
    it.restore_tokens_and_finish(token)


@ways
def test_a_plain_file_that_is_overwritten_before_a_signal(reading, way):
    """There was no check of the file since. The end of the engine says that it has changed, and so
    do its trainers, which may have got changed tokens by then; the checkpoint has none of them."""
    it = reading(way)
    token = it.ranks.tokens()[0]
    overwrite(it.tape.path, 8192, 2 * LONG_TAPE - 8192)
    it.engine.process.terminate()
    it.read_until_changed("change time")
    it.restore_tokens_and_finish(token)


def is_full(engine):
    (ring,) = ringpack.stat(engine.run, engine.folder)["ranks"]
    return ring["tail"] - ring["release"] == ring["slots"]


def save_of_an_overwritten_plain_file(it):
    """The trainer gets the ring's rows from before the change, and in their place the engine
    prefetches rows of the changed file: they must not come back from the checkpoint once the file
    is good again. Returns the path of the checkpoint; None if half a second went by, and the engine
    has ended."""
    path = None
    wait_until(lambda: is_full(it.engine))
    overwrite(it.tape.path, 8192, 2 * LONG_TAPE - 8192)
    with contextlib.suppress(ringpack.RingpackError):
        it.tape.read(it.ranks, 8)
        path = it.engine.checkpoint()
    token = it.ranks.tokens()[0]
    it.engine.kill()
    it.restore_tokens_and_finish(token)
    return path


@pytest.mark.parametrize("io", ["pread", "mapped"])
def test_a_checkpoint_has_nothing_of_a_plain_file_that_changed_just_now(reading, io):
    it = reading({"io": io, **AHEAD}, prefetch_factor=16)
    with warnings.catch_warnings(record=True) as caught:
        path = save_of_an_overwritten_plain_file(it)
    if path:
        assert path.endswith(".rpc") and "without contents" in it.engine.log()
        (warning,) = caught
        assert "without contents, because a token file has changed" in str(warning.message)
    else:
        assert "change time" in it.engine.log()


def save_of_an_overwritten_file(it):
    """The rows after those in the ring are planned, not packed, when the file under them changes
    and a checkpoint is taken. Its contents must not bring back the changed bytes once the file is
    good again."""
    overwrite(it.tape.path, 8192, LONG_TAPE)
    it.engine.checkpoint()
    token = it.ranks.tokens()[0]
    it.engine.kill()
    it.restore_tokens_and_finish(token)


def test_a_checkpoint_has_no_token_of_a_changed_mapped_file(reading):
    it = reading({"io": "mapped", **AHEAD}, indexed=True)
    save_of_an_overwritten_file(it)


# ---- controls: these tests must be able to fail --------------------------------------------------


@pytest.fixture
def broken(monkeypatch):
    """The program with one guarantee broken; tests/kill makes it."""
    path = Path(os.environ["RP_BIN_DIR"], "ringpack-points")
    if not path.exists():
        pytest.skip("needs the program with defects, ringpack-points")

    def choose(defect):
        monkeypatch.setenv("RP_DEFECT", defect)
        return str(path)

    return choose


def test_a_change_that_is_not_looked_for_is_delivered(broken, folder):
    way = {"io": "pread", "prefetch_bytes": "64kb"}  # the end of the file is still to be read
    it = Reading(broken("ignore_changed_files"), folder, way)
    with open(it.tape.path, "r+b") as file:
        file.seek(-65536, os.SEEK_END)
        file.write(bytes(65536))
    with contextlib.closing(it), pytest.raises(AssertionError, match="other tokens"):
        it.tape.read(it.ranks)


@pytest.mark.parametrize("io", ["mapped"])
def test_a_block_that_is_trusted_is_delivered_when_it_has_changed(broken, folder, io):
    it = Reading(
        broken("trust_seen_blocks"), folder, {"io": io}, True, tokens=SHORT_TAPE, epochs=8
    )
    read_an_epoch(it)
    overwrite(it.tape.path, 65536, 65536)
    with contextlib.closing(it), pytest.raises(AssertionError, match="other tokens"):
        it.tape.read(it.ranks)


@pytest.mark.parametrize("io", ["pread", "mapped"])
def test_an_index_that_is_not_looked_at_gives_other_documents(broken, folder, io):
    it = Reading(broken("forget_indexes"), folder, {"io": io}, True)
    rewrite_index(it.index_path)
    # An entry may be read while only half of its bytes are written: it is bad once.
    seen = "other tokens|was bad and is good now"
    with contextlib.closing(it), pytest.raises((AssertionError, ringpack.CorruptError), match=seen):
        it.tape.read(it.ranks)


def changed_bytes_come_back(program, folder):
    folder.mkdir()
    it = Reading(program, folder, {"io": "mapped", **AHEAD}, True)
    with contextlib.closing(it):
        try:
            save_of_an_overwritten_file(it)
        except AssertionError as error:
            assert "other tokens" in str(error)
            return True
    return False


def test_contents_that_are_not_compared_come_back(broken, folder):
    """The plan may not be ahead of the packers when a checkpoint is taken: one of ten must fail."""
    program = broken("save_mapped_tokens")
    assert any(changed_bytes_come_back(program, folder / str(number)) for number in range(10))


def test_contents_that_are_not_looked_at_come_back(broken, folder):
    program = broken("leave_out_last_revalidation")
    with pytest.raises(AssertionError, match="other tokens"):
        for attempt in range(10):  # where half a second goes by, the engine notices by itself
            place = folder / str(attempt)
            place.mkdir()
            it = Reading(program, place, {"io": "mapped", **AHEAD}, prefetch_factor=16)
            with contextlib.closing(it):
                save_of_an_overwritten_plain_file(it)


def test_a_stop_that_does_not_look_ends_well(broken, folder):
    it = Reading(broken("leave_out_last_revalidation"), folder, {"io": "pread"})
    overwrite(it.tape.path, 8192, 2 * LONG_TAPE - 8192)
    with contextlib.closing(it):
        assert it.engine.stop() == 0


@pytest.mark.parametrize("defect", ["lose_fragment_at_resume", "resume_one_row_on"])
def test_a_loss_is_noticed(broken, folder, defect):
    program = broken(defect)
    tape = Tape(folder, 100000, checkpoint_dir=str(folder / "checkpoints"))
    engine = Engine(program, folder, tape.config)
    with Ranks(engine) as ranks:
        tape.read(ranks, 10)
        for batches in ranks.turns(1):
            tape.take(batches)
            batches[0].release()
    assert engine.stop() == 0
    with pytest.raises(AssertionError):
        finish(program, folder, tape)


# ---- files that are other ones ------------------------------------------------------------------


@ways
def test_a_token_file_that_is_replaced(reading, way):
    """The file that was opened lives on: the stream is the old one's."""
    it = reading(way)
    other = it.tape.path + ".other"
    with open(other, "wb") as file:
        file.write(bytes(os.path.getsize(it.tape.path)))
    os.replace(other, it.tape.path)
    it.tape.read(it.ranks)
    it.tape.assert_whole()


@ways
def test_an_indexed_file_that_is_touched(reading, way):
    """Every block is compared, so no other check is needed."""
    it = reading(way, indexed=True)
    os.utime(it.tape.path)
    it.tape.read(it.ranks)
    it.tape.assert_whole()


@ways
def test_a_file_without_index_that_is_touched(reading, way):
    """A touched file looks like a changed one."""
    it = reading(way)
    os.utime(it.tape.path)
    time.sleep(1.1 * LOOK)
    it.read_until_told("modification time")
    it.restore_and_finish()


@ways
@pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])
def test_a_file_that_is_overwritten(reading, way, indexed):
    """With an index no changed token is ever delivered; without one the change is noticed at the
    next check."""
    it = reading(way, indexed)
    with open(it.tape.path, "r+b") as file:
        file.seek(-65536, os.SEEK_END)
        file.write(bytes(65536))
    if indexed:
        it.read_until_told("block", "differs from its sidecar", error=ringpack.CorruptError)
    else:
        time.sleep(1.1 * LOOK)
        it.read_until_told("modification time")
    it.restore_and_finish()
