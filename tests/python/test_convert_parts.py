# SPDX-License-Identifier: Apache-2.0
"""`ringpack convert` by many workers and machines, killed and continued: the same bytes always, and
no finished part is made twice or trusted after it changed."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from convert_kit import convert, documents, refused, some_documents, start, written

FILES, EACH = 9, ("--group-bytes", 1)  # one part for each file
BARE = "--no-append-eos"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A directory of JSONL, which needs no worker process, and its documents."""
    place, wanted = tmp_path_factory.mktemp("inputs"), []
    for i in range(FILES):
        rows = [document or [1] for document in some_documents(i, 30)]
        lines = (json.dumps({"input_ids": row}) + "\n" for row in rows)
        (place / f"{i}.jsonl").write_text("".join(lines))
        wanted += rows
    return place, wanted


@pytest.fixture(scope="module")
def whole(program, inputs, tmp_path_factory):
    """The output of one process in one go."""
    prefix = tmp_path_factory.mktemp("whole") / "out"
    convert(program, *OPTIONS, "-o", prefix, inputs[0])
    assert documents(prefix) == inputs[1]
    return written(prefix)


OPTIONS = (BARE, "--vocab-size", 50000)


STUB = """
import json, numpy, os, time
class File(dict):
    def __init__(self, path, mode):
        if path.endswith("3.h5") and "STUB_WAITS" in os.environ:
            open(os.environ["STUB_WAITS"], "w").write(str(os.getpid()))
            time.sleep(600)
        self["tokens"] = numpy.array(json.load(open(path)))
    def __enter__(self): return self
    def __exit__(self, *_): pass
"""


@pytest.fixture
def slow(tmp_path):
    """Six files whose library, a stand-in, stops at the fourth where STUB_WAITS names a file, and
    says so there: the files, their documents, the environment, and that file."""
    place, wanted = tmp_path / "files", []
    place.mkdir()
    for i in range(6):
        rows = [[i, k, 7] for k in range(20)]
        (place / f"{i}.h5").write_text(json.dumps(rows))
        wanted += rows
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "h5py.py").write_text(STUB)
    environment = {"PYTHONPATH": str(tmp_path / "stub")}
    return place, wanted, environment, tmp_path / "waits"


def wait_for(path, process):
    while not path.exists() or not path.read_text():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.005)


def times(folder):
    return {name: os.stat(folder / name).st_mtime_ns for name in os.listdir(folder)
            if name != "lock"}


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_and_parts(program, inputs, whole, tmp_path, workers):
    out = tmp_path / "out"
    convert(program, *OPTIONS, *EACH, "--workers", workers, "-o", out, inputs[0])
    assert written(out) == whole
    convert(program, *OPTIONS, "--group-bytes", "20k", "--force", "-o", out, inputs[0])
    assert written(out) == whole


def test_machines_that_share_a_directory(program, inputs, whole, tmp_path):
    out = tmp_path / "out"
    common = (*OPTIONS, *EACH, "-o", out, inputs[0])
    for i in 2, 0:
        said = convert(program, *common, "--part", f"{i}/3")
        assert f"part {i}/3" in said and "--merge" in said
    words = ["3 of 9 parts are not there", "000001", "1.jsonl", "--part I/N"]
    refused(program, *common, "--merge", words=words)
    before = times(tmp_path / "out.parts")
    assert len(before) == 18  # no part was lost by that
    convert(program, *common, "--part", "1/3", "--workers", 2)
    os.utime(inputs[0] / "4.jsonl")  # another machine's clock
    process = start(program, *common, "--merge")
    assert "made again" not in process.communicate()[1] and process.returncode == 0
    assert written(out) == whole
    for wrong in "3/3", "-1/3", "1", "1/", "/3", "a/b", "0/0":
        refused(program, *common, "--part", wrong, words=["--part: expected I/N"])
    refused(program, *common, "--part", "0/3", "--merge", words=["--merge"])


def test_a_kill_costs_only_what_was_under_way(program, slow, tmp_path):
    place, wanted, environment, waits = slow
    out, parts = tmp_path / "out", tmp_path / "out.parts"
    common = (BARE, *EACH, "--workers", 1, "-o", out, place)
    process = start(program, *common, env={**environment, "STUB_WAITS": str(waits)})
    wait_for(waits, process)
    worker = int(waits.read_text())
    process.kill()
    os.kill(worker, signal.SIGKILL)  # it would end when it writes, and has our pipes until then
    process.communicate()
    before = times(parts)
    assert sorted(before) == [f"00000{i}.{end}" for i in range(3) for end in ("bin", "idx", "json")]
    convert(program, *common, "--part", "0/1", env=environment)
    after = times(parts)
    assert {name: after[name] for name in before} == before and len(after) == 18
    process = start(program, *common, env=environment)
    _, errors = process.communicate()
    assert process.returncode == 0 and "6 of 6 parts are in" in errors
    assert documents(out) == wanted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_is_finished(program, slow, tmp_path, number):
    place, wanted, environment, waits = slow
    common = (BARE, *EACH, "--workers", 1, "-o", tmp_path / "out", place)
    process = start(program, *common, env={**environment, "STUB_WAITS": str(waits)})
    wait_for(waits, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 2 and "3 of 6 parts are finished and kept" in errors
    with pytest.raises(ProcessLookupError):
        os.kill(int(waits.read_text()), 0)
    convert(program, *common, env=environment)
    assert documents(tmp_path / "out") == wanted


def test_a_worker_that_dies(program, slow, tmp_path):
    place, _, environment, waits = slow
    common = (BARE, *EACH, "--workers", 1, "-o", tmp_path / "out", place)
    process = start(program, *common, env={**environment, "STUB_WAITS": str(waits)})
    wait_for(waits, process)
    os.kill(int(waits.read_text()), signal.SIGKILL)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 2 and "RP_E_GONE" in errors and "3.h5" in errors
    assert "3 of 6 parts are finished and kept" in errors


def make_parts(program, inputs, out):
    """All parts but the last, which a bad file stops."""
    convert(program, *OPTIONS, *EACH, "--part", "0/1", "-o", out, inputs[0])
    return out.parent / (out.name + ".parts")


@pytest.mark.parametrize("ending", ["bin", "idx", "json"])
def test_a_part_that_changed_is_made_anew(program, inputs, whole, tmp_path, ending):
    parts = make_parts(program, inputs, tmp_path / "out")
    path = parts / f"000004.{ending}"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    convert(program, *OPTIONS, *EACH, "-o", tmp_path / "out", inputs[0])
    assert written(tmp_path / "out") == whole


def test_the_control_notices_nothing(broken, program, inputs, whole, tmp_path):
    parts = make_parts(program, inputs, tmp_path / "out")
    data = bytearray((parts / "000004.bin").read_bytes())
    data[len(data) // 2] ^= 1
    (parts / "000004.bin").write_bytes(data)
    environment = {"RP_DEFECT": "trust_finished_parts"}
    convert(broken, *OPTIONS, *EACH, "-o", tmp_path / "out", inputs[0], env=environment)
    assert written(tmp_path / "out") != whole


def test_other_inputs_or_options_are_converted_anew(program, inputs, tmp_path):
    parts = make_parts(program, inputs, tmp_path / "out")
    before = times(parts)
    options = (*OPTIONS[1:], "--eos", 3, *EACH, "--part", "0/1", "-o", tmp_path / "out")
    convert(program, *options, inputs[0])
    assert not set(before.items()) & set(times(parts).items())
    before = times(parts)
    os.utime(inputs[0] / "2.jsonl")
    convert(program, *options, inputs[0])
    changed = dict(set(times(parts).items()) - set(before.items()))
    assert sorted(changed) == ["000002.bin", "000002.idx", "000002.json"]


def test_a_full_disk_keeps_what_is_finished(program, inputs, whole, tmp_path):
    """A limit on the size of a file stands in for it: each part fits, the output does not."""
    import resource

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000))

    common = (*OPTIONS, *EACH, "-o", tmp_path / "out", inputs[0])
    words = ["out.bin", "9 of 9 parts are finished and kept in"]
    refused(program, *common, words=words, preexec_fn=limit)
    before = times(tmp_path / "out.parts")
    assert len(before) == 27 and not (tmp_path / "out.bin").exists()
    convert(program, *common, "--merge")
    assert written(tmp_path / "out") == whole


def test_bad_input_keeps_what_is_finished(program, inputs, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"input_ids": [1, 70000]}\n')
    common = (*OPTIONS, *EACH, "--workers", 1, "-o", tmp_path / "out", inputs[0], bad)
    words = ["RP_E_VOCABULARY", "bad.jsonl:1", "9 of 10 parts are finished and kept"]
    refused(program, *common, words=words)
    bad.write_text('{"input_ids": [1, 7]}\n')
    convert(program, *common)
    assert documents(tmp_path / "out") == [*inputs[1], [1, 7]]
    refused(program, *common[:-2], bad, words=["out.bin: it exists already", "--force"])
    assert not (tmp_path / "out.parts").exists()


@pytest.mark.parametrize("workers", [1, 3])
def test_enough_tokens(program, inputs, tmp_path, workers):
    wanted, tokens = [], 0
    for document in inputs[1]:
        if tokens >= 10000:
            break
        wanted.append(document)
        tokens += len(document)
    options = (*OPTIONS, "--max-tokens", 10000, "--workers", workers, "-o", tmp_path / "out")
    convert(program, *options, *EACH, inputs[0])
    assert documents(tmp_path / "out") == wanted
    convert(program, *options, "--force", inputs[0])
    assert documents(tmp_path / "out") == wanted


def test_megatron_data_sets_are_merged(program, inputs, whole, tmp_path):
    for i in range(3):
        files = [inputs[0] / f"{k}.jsonl" for k in range(3 * i, 3 * i + 3)]
        convert(program, *OPTIONS, "-o", tmp_path / f"m{i}", *files)
    named = tmp_path / "m0", tmp_path / "m1.bin", tmp_path / "m2.idx"
    convert(program, "-o", tmp_path / "out", *named)
    assert written(tmp_path / "out") == whole
    convert(program, *EACH, "--workers", 2, "--force", "-o", tmp_path / "out", *named, inputs[0],
            *OPTIONS)
    assert documents(tmp_path / "out") == inputs[1] * 2
    (tmp_path / "m1.idx").write_bytes((tmp_path / "m1.idx").read_bytes()[:-4])
    refused(program, "-o", tmp_path / "x", *named, words=["m1.idx"])
    (tmp_path / "m1.idx").write_bytes(b"TNTIDX\0\0" + bytes(100))  # its tables are pickles
    refused(program, "-o", tmp_path / "x", *named, words=["m1.idx", "TNTIDX"])


def test_progress_is_drawn_on_a_terminal_only(program, slow, tmp_path):
    place, _, environment, waits = slow
    common = (BARE, *EACH, "--workers", 1, "-o", tmp_path / "out", place)
    ours, theirs = pty.openpty()
    process = start(program, *common, env={**environment, "STUB_WAITS": str(waits)}, stderr=theirs)
    os.close(theirs)
    seen = b""
    while b"3 of 6 parts" not in seen:
        seen += os.read(ours, 4096)
    assert b"\rconverting" in seen.replace(b"\x1b[K", b"") and b" left" in seen
    process.kill()
    os.kill(int(waits.read_text()), signal.SIGKILL)
    process.communicate()
    os.close(ours)
    process = start(program, *common, env=environment)
    _, errors = process.communicate()
    assert process.returncode == 0 and "\r" not in errors and "converting" not in errors


def shares_of(program, *words, **environment):
    """The shares that a conversion shows on a terminal."""
    ours, theirs = pty.openpty()
    process, seen = start(program, *words, stderr=theirs, env=environment), b""
    os.close(theirs)
    while True:
        try:
            seen += os.read(ours, 4096)
        except OSError:  # the program has ended
            break
    os.close(ours)
    assert process.wait() == 0, seen
    return [int(share) for share in re.findall(rb"converting +(\d+) %", seen)]


def test_progress_moves_within_a_file(program, broken, tmp_path):
    """A file is one part here. Larger ones follow until one takes long enough for three draws."""
    line, bytes_of = json.dumps({"input_ids": list(range(100, 400))}) + "\n", 4 << 20
    text = tmp_path / "a.jsonl"
    words = (*OPTIONS, "--group-bytes", "8g", "--workers", 1, "--force", "-o", tmp_path / "o", text)
    shares = []
    while len(shares) < 3 and bytes_of < 1 << 30:
        text.write_text(line * (bytes_of // len(line)))
        shares, bytes_of = shares_of(program, *words), 2 * bytes_of
    assert shares == sorted(shares) and len({share for share in shares if 0 < share < 100}) > 0
    assert set(shares_of(broken, *words, RP_DEFECT="tell_no_progress")) <= {0, 100}


def test_an_eos_decides_the_width_of_joined_parts(program, tmp_path):
    """As it does where one task writes the output: ids of documents that fit u16 have no effect."""
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "h5py.py").write_text(STUB)
    environment = {"PYTHONPATH": str(tmp_path / "stub")}
    for end, name in ("--eos", "EOS"), ("--bos", "BOS"):
        bare = [] if end == "--eos" else [BARE]
        common = (*bare, end, 128001)
        place, files = tmp_path / name, tmp_path / name / "files"
        files.mkdir(parents=True)
        for i in range(2):
            (files / f"{i}.h5").write_text(json.dumps([[i, 7]]))
        said = convert(program, *common, "-o", place / "one", files, env=environment)
        assert f"i32 because the {name} is 128001" in said, said
        wanted = [[i, 7, 128001] if name == "EOS" else [128001, i, 7] for i in range(2)]
        assert documents(place / "one") == wanted
        said = convert(program, *common, *EACH, "-o", place / "two", files, env=environment)
        assert f"i32 because the {name} is 128001" in said, said
        assert written(place / "two") == written(place / "one")


def test_a_part_that_changes_before_it_is_joined_is_refused(program, broken, inputs, tmp_path):
    """The index then refers to tokens that the part does not have. The program of the test does not
    compare hashes, as if the file changed right after that."""
    parts = make_parts(program, inputs, tmp_path / "out")
    path = parts / "000004.idx"
    good = path.read_bytes()
    environment = {"RP_DEFECT": "trust_finished_parts"}
    for length in 1 << 30, -1:
        path.write_bytes(good[:38] + length.to_bytes(4, "little", signed=True) + good[42:])
        refused(broken, *OPTIONS, *EACH, "-o", tmp_path / "out", inputs[0], env=environment,
                words=["RP_E_CHANGED", "000004.idx", "makes the part again"])
        assert not (tmp_path / "out.bin").exists()


def replaced(place, out, program):
    """Parts, one of whose inputs is then replaced by another of the same size; and the options."""
    for i in range(3):
        (place / f"{i}.jsonl").write_text(f'{{"input_ids": [{i}, 7]}}\n' * 20)
    common = (*OPTIONS, *EACH, "-o", out, place)
    convert(program, *common, "--part", "0/1")
    (place / "1.jsonl").write_text('{"input_ids": [9, 7]}\n' * 20)
    os.utime(place / "1.jsonl", (1, 1))
    return common


def test_a_part_of_an_input_that_was_replaced_is_not_joined(program, broken, tmp_path):
    place, wanted = tmp_path / "in", 20 * [[0, 7]] + 20 * [[9, 7]] + 20 * [[2, 7]]
    place.mkdir()
    process = start(program, *replaced(place, tmp_path / "out", program), "--merge")
    _, errors = process.communicate()
    assert process.returncode == 0 and "1 of 3 parts" in errors and "made again" in errors
    assert documents(tmp_path / "out") == wanted
    common = replaced(place, tmp_path / "control", program)
    convert(broken, *common, "--merge", env={"RP_DEFECT": "trust_changed_inputs"})
    assert documents(tmp_path / "control") != wanted


def test_tokens_of_a_megatron_data_set_that_were_replaced(program, inputs, tmp_path):
    """Its input is the index, which may stay as it was."""
    data = tmp_path / "data"
    convert(program, *OPTIONS, "-o", data, inputs[0] / "0.jsonl")
    common = (BARE, "-o", tmp_path / "out", data)
    convert(program, *common, "--part", "0/1")
    tokens = bytearray(data.with_suffix(".bin").read_bytes())
    tokens[0] ^= 1
    for path in tmp_path.glob("data.bin.rpi"):
        path.unlink()
    data.with_suffix(".bin").write_bytes(tokens)
    os.utime(data.with_suffix(".bin"), (1, 1))
    convert(program, *common, "--merge")
    assert (tmp_path / "out.bin").read_bytes() == tokens


def test_two_conversions_of_one_output(program, broken, slow, tmp_path):
    place, wanted, environment, waits = slow
    common = (BARE, *EACH, "--workers", 1, "-o", tmp_path / "out", place)
    first = start(program, *common, env={**environment, "STUB_WAITS": str(waits)})
    wait_for(waits, first)
    refused(program, *common, env=environment,
            words=["RP_E_BUSY", "out.parts: another conversion writes to it", "another -o"])
    refused(program, *common, "--part", "0/1", env=environment, words=["RP_E_BUSY"])
    convert(broken, *common, env={**environment, "RP_DEFECT": "share_parts"})  # the control
    os.kill(int(waits.read_text()), signal.SIGKILL)
    first.communicate(timeout=600)
    convert(program, *common, "--force", env=environment)
    assert documents(tmp_path / "out") == wanted


def test_an_output_that_comes_meanwhile_is_not_replaced(program, inputs, tmp_path):
    """Files are published under a lock of their directory, and looked for once more then."""
    import fcntl

    directory = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    process = start(program, *OPTIONS, "-o", tmp_path / "out", inputs[0])
    while not process.poll() and not any(
        os.readlink(f"/proc/{process.pid}/fd/{name}") == str(tmp_path)
        for name in os.listdir(f"/proc/{process.pid}/fd")
    ):
        time.sleep(0.01)
    (tmp_path / "out.idx").write_text("another one's")
    os.close(directory)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 2 and "out.idx: it exists already" in errors
    assert os.listdir(tmp_path) == ["out.idx"]


def test_a_lock_of_another_program_is_waited_for_with_a_bound(program, broken, inputs, tmp_path):
    """The line that says who has it, the refusal, and the control, which waits longer."""
    holder = subprocess.Popen(
        [sys.executable, "-c", "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], 0), 2);"
         "print(flush=True); input()", tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    holder.stdout.readline()
    who, name = f"process {holder.pid} ({process_name(holder.pid)})", tmp_path / "out"
    soon = {"RINGPACK_LOCK_PATIENCE": "3"}
    waits = f"ringpack: {tmp_path}: waiting up to 3 s for {who}, which has locked it\n"
    refused(program, *OPTIONS, "-o", name, inputs[0], env=soon,
            words=["RP_E_BUSY", waits, f"{tmp_path}: {who} has had its lock (flock) for 3 s",
                   "end that process", "the output was not written"])
    assert os.listdir(tmp_path) == []
    control = start(broken, *OPTIONS, "-o", name, inputs[0],
                    env={**soon, "RP_DEFECT": "wait_for_any_lock"})
    with pytest.raises(subprocess.TimeoutExpired):
        control.wait(8)
    waiting = start(program, *OPTIONS, "-o", tmp_path / "other", inputs[0])
    assert waits.replace("3 s", "600 s") in iter(waiting.stderr.readline, "")
    holder.communicate(b"\n")
    for process in (control, waiting):
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
    assert documents(name) == documents(tmp_path / "other") != []


def process_name(pid):
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_a_folder_of_parts_that_others_may_write_to_is_refused(program, inputs, tmp_path):
    make_parts(program, inputs, tmp_path / "out").chmod(0o777)
    refused(program, *OPTIONS, *EACH, "-o", tmp_path / "out", inputs[0],
            words=["out.parts: mode 0700 expected, 0777 found", "another -o"])


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
def test_one_file_by_several_workers(program, tmp_path, ending):
    """A large file is cut into pieces where lines begin, wherever those are."""
    rows = [document or [1] for document in some_documents(7, 4000)]
    rows[100] = [5] * 900000  # longer than several pieces
    lines = [json.dumps({"input_ids": row}) for row in rows]
    lines[40:40] = ["", "  "]
    path = tmp_path / "a.jsonl"
    path.write_bytes(("\ufeff" + (ending or "\n").join(lines) + ending).encode())
    convert(program, *OPTIONS, "-o", tmp_path / "whole", path)
    assert documents(tmp_path / "whole") == rows
    for size, workers in (1, 1), (1048577, 3), (2000000, 2):
        said = convert(program, *OPTIONS, "--force", "--group-bytes", size, "--workers", workers,
                       "-o", tmp_path / "out", path)
        assert written(tmp_path / "out") == written(tmp_path / "whole") and "from 1 files" in said
    lines[3000] = '{"input_ids": [-1]}'
    path.write_text("\n".join(lines))
    refused(program, *OPTIONS, "--force", "--group-bytes", 1, "-o", tmp_path / "out", path,
            words=["a.jsonl:3001: expected token ids", "parts are finished and kept"])


def test_row_groups_by_several_workers(program, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows, path = some_documents(8, 4000), tmp_path / "a.parquet"
    options = {"row_group_size": 200, "compression": "none", "use_dictionary": False}
    parquet.write_table(pyarrow.table({"input_ids": rows}), path, **options)
    convert(program, *OPTIONS, "-o", tmp_path / "whole", path)
    assert documents(tmp_path / "whole") == rows
    convert(program, *OPTIONS, *EACH, "--workers", 2, "-o", tmp_path / "out", path)
    assert written(tmp_path / "out") == written(tmp_path / "whole")
    rows[3333] = [-1]
    parquet.write_table(pyarrow.table({"input_ids": rows}), path, **options)
    refused(program, *OPTIONS, "--force", "--group-bytes", 1, "-o", tmp_path / "out", path,
            words=["a.parquet: row 3333: `input_ids`: expected token ids"])
