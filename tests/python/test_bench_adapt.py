# SPDX-License-Identifier: Apache-2.0
"""bench/adapt.py: which cells and ways there are, who is compared with whom, and a round of some
cells at the smallest size. The times have no meaning here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(os.environ["RP_SOURCE_DIR"])
sys.path[:0] = [str(SOURCE / "bench"), str(SOURCE / "bench" / "report")]

import adapt  # noqa: E402
from engine import Failed  # noqa: E402
from page_cache import Cgroup  # noqa: E402

CELL = ("cold", "document", "auto")


def test_cells_are_named_by_their_parts():
    assert adapt.cells_of("cold/document/auto") == [CELL]
    assert len(adapt.cells_of("all")) == 8 * 3 * 3 == len(set(adapt.cells_of("all,hot")))
    assert adapt.cells_of("hot/block,all/block/on")[:2] == [("cold", "block", "on"),
                                                            ("short", "block", "on")]
    for wrong in "warm", "cold/documents", "cold/document/auto/more", "":
        with pytest.raises(Failed, match="STATE/SHUFFLE/DIRECT"):
            adapt.cells_of(wrong)


def test_what_direct_forbids_is_no_rival():
    for state, shuffle, direct in adapt.all_cells():
        ways = adapt.ways_of((state, shuffle, direct))
        assert ways["auto"] == {"o_direct": direct}
        rivals = {"auto": {"mapped", "buffered", "direct"}, "off": {"mapped", "buffered"},
                  "on": {"direct", "mapped"} if state == "hot" else {"direct"}}[direct]
        assert set(ways) == {"auto"} | rivals


class Scripted:
    """A world with a given time for each way."""

    def __init__(self, **seconds):
        self.seconds, self.served, self.bench = seconds, [], self

    def check(self, name, expected, found):
        assert expected == found == 1000

    def serve(self, cell, keys, most):
        (name,) = [name for name, its in adapt.ways_of(cell).items() if its == keys]
        self.served.append(name)
        seconds = self.seconds[name]
        ended = seconds > most
        return {"tokens": 0 if ended else 1000}, min(seconds, most), seconds / 2


def rounds_of(*worlds):
    rounds = []
    for world in worlds:
        rounds.append(adapt.run_round(world, CELL, adapt.contenders(CELL, rounds)))
    return rounds


def test_ways_take_turns_and_slow_ones_are_ended():
    world = Scripted(auto=1.0, mapped=0.9, buffered=1.5, direct=7.0)
    rounds = rounds_of(world, world, world)
    first = ["auto", "mapped", "buffered", "direct", "buffered", "mapped", "auto"]
    # `direct` was ended; `buffered` is slower than `mapped` by more than a fifth in two rounds
    second = ["auto", "mapped", "buffered", "buffered", "mapped", "auto"]
    assert world.served == first + second + ["auto", "mapped", "mapped", "auto"]
    assert rounds[0]["tokens"] == 2000
    assert rounds[0]["ways"]["direct"]["seconds"] == 2 * adapt.TIMES_MOST * 1.0
    assert rounds[0]["ways"]["mapped"] == {"seconds": 1.8, "cpu_seconds": 0.9}


@pytest.mark.parametrize("mapped, verdict", [(1.0, "met"), (0.9, "NOT MET")])
def test_the_verdict_is_of_the_best_fixed_way(mapped, verdict):
    worlds = [Scripted(auto=1.0 + n / 100, mapped=mapped, buffered=1.2, direct=3.0)
              for n in range(6)]
    said = adapt.judge(rounds_of(*worlds[:5]))
    assert said["best"] == "mapped" and said["verdict"] == "undecided"
    said = adapt.judge(rounds_of(*worlds))
    assert said["verdict"] == verdict and said["ratio"]["count"] == 6
    assert said["ratio"]["interval"] == pytest.approx([mapped / 1.05, mapped])


def test_rounds_of_other_commits_are_left_alone(tmp_path):
    path = tmp_path / "adapt.json"
    found = rounds_of(Scripted(auto=1.0, mapped=1.0, buffered=1.0, direct=1.0))[0]
    adapt.Results(path, {"commit": "a"}).add(CELL, found)
    other = adapt.Results(path, {"commit": "b"})
    assert other.of(CELL) == []
    other.add(CELL, found)
    assert len(adapt.Results(path, {"commit": "a"}).of(CELL)) == 1
    assert len(json.loads(path.read_text())["rounds"]) == 2


@pytest.mark.parametrize("one", [True, False])
def test_cgroups_of_both_versions(tmp_path, one):
    """The words that are written to each file; the kernel's part is not tried."""
    cgroup = Cgroup.__new__(Cgroup)
    cgroup.is_one, cgroup.path, cgroup.home = one, tmp_path / "made", tmp_path / "home"
    cgroup.path.mkdir()
    cgroup.home.mkdir()
    cgroup.limit(12345)
    cgroup.reclaim(777, 55)
    with cgroup.inside():
        assert (cgroup.path / "cgroup.procs").read_text() == str(os.getpid())
    assert (cgroup.home / "cgroup.procs").read_text() == str(os.getpid())
    limit = cgroup.path / ("memory.limit_in_bytes" if one else "memory.max")
    assert limit.read_text() == ("-1" if one else "12345")
    assert one or (cgroup.path / "memory.reclaim").read_text() == "777"
    cgroup.limit(None)
    assert limit.read_text() == ("-1" if one else "max")


def run(*options):
    command = [sys.executable, SOURCE / "bench/adapt.py", "--build", os.environ["RP_BUILD_DIR"],
               "--tokens", "300000", *options]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_ways_have_one_digest_and_a_round_is_kept(tmp_path):
    cells = "cold/document/auto,half/block/off,hot/none/on,grows/document/auto,sources/block/auto"
    said = run("--data", tmp_path, "--cells", cells, "--check")
    assert said.count("one digest") == 5 and not (tmp_path / "adapt.json").exists()
    run("--data", tmp_path, "--cells", "half/document/off", "--rounds", "1")
    assert "half/document/off" in run("--data", tmp_path, "--show")
    run("--data", tmp_path, "--cells", "half/document/off", "--rounds", "1", "--epochs", "2")
    assert "| half/document/off | 1 |" in run("--data", tmp_path, "--show", "--epochs", "2")
    kept, shorter = json.loads((tmp_path / "adapt.json").read_text())["rounds"]
    assert kept["cell"] == "half/document/off" and set(kept["ways"]) == {"auto", "mapped",
                                                                         "buffered"}
    assert shorter["tokens"] == pytest.approx(kept["tokens"] / 4, rel=0.05)
