# SPDX-License-Identifier: Apache-2.0
"""The campaign of kills: `verify` of the program that kills itself, again and again, each time with
another stream, until enough kills were survived.

Flow: a corpus is written → the controls: programs with a defect must be found out → runs, several
at once, of some hundred kills each; run I of a seed always has the same config → after each run no
file and no process may be left. The points where processes may die are learnt on the way and stand
in a file that all of them map (the ledger; tests/kill/points.c).
"""

import concurrent.futures
import json
import os
import random
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from calendars import drawn, with_calendar
from stream_oracle import SIZE_KEYS

CONTROL_KILLS = 80
CONTROL_TRIES = 20
RUN_SECONDS = 1800  # a run takes about 15; verify itself reports 90 without progress
WHEN = ("before", "within", "after")
ROLES = ("nobody", "engine", "trainer", "packer")

# RP_DEFECT of the program with points: the broken guarantee
DEFECTS = {
    "count_published": "a checkpoint is cut at the published batches",
    "lose_fragment_at_resume": "a fragment is lost at every resume",
    "publish_before_complete": "tail is stored before the slot is complete",
    "resume_one_row_on": "a run from a checkpoint begins one row after it",
}


class Failure(Exception):
    """The finding, and the command that looks for it again."""


# ---- the ledger ----------------------------------------------------------------------------------


class Ledger:
    HEAD, POINT, POINTS_MAX = struct.Struct("<Q4Q4Q"), struct.Struct("<4Q"), 8192

    def __init__(self, path, seed):
        self.path = Path(path)
        with open(path, "wb") as file:
            file.write(self.HEAD.pack(seed, *[0] * 8))
            file.truncate(self.HEAD.size + self.POINT.size * self.POINTS_MAX)

    def read(self):
        """Kills by role; of every point that was reached: offset, role, when, visits, kills."""
        data = self.path.read_bytes()
        kills = dict(zip(ROLES, self.HEAD.unpack_from(data)[5:]))
        points = []
        for key, visits, _lives, killed in self.POINT.iter_unpack(data[self.HEAD.size :]):
            if key:
                points.append((key >> 4, ROLES[key >> 2 & 3], key & 3, visits, killed))
        return kills, points


# ---- the output ----------------------------------------------------------------------------------
ENDS = {"one": [50, 90], "two": [60, 140]}  # documents up to the end of each shard
PROFILES = ["full", "min", "hf", "megatron", "grain", "olmo", "torchtitan"]


def write_corpus(folder, program):
    """Three sources: two of two shards each that `convert` makes of text, and raw tokens."""
    generator = random.Random(20)
    text = folder / "text"
    text.mkdir()
    for number in range(240):
        length = min(int(generator.lognormvariate(5.5, 1.3)) + 1, 9000)
        (text / f"{number}.txt").write_bytes(bytes(generator.choices(range(32, 127), k=length)))
    for name, first, ends in ("one", 10, ENDS["one"]), ("two", 100, ENDS["two"]):
        for shard, (begin, end) in enumerate(zip([0, *ends], ends)):
            files = [str(text / f"{n}.txt") for n in range(first + begin, first + end)]
            command = [program, "convert", "-q", "-o", str(folder / f"{name}-{shard}"), *files]
            subprocess.run(command, check=True, capture_output=True)
    draw = generator.randrange
    tokens = [draw(1, 60000) if draw(100) else 0 for _ in range(40000)]
    (folder / "three.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))


def draw_config(generator, folder):
    """Another stream, cut in another way."""
    one, two = ({"name": name, "path": str(folder / f"{name}-*.bin")} for name in ENDS)
    two["weight"] = generator.choice([1, 2.5])
    raw = {"name": "raw", "path": str(folder / "three.bin"), "format": "raw", "dtype": "u16"}
    raw |= {"eos": 0}
    rows = generator.choice([1, 2, 3, 4])
    config = {
        "sources": generator.choice([[one], [one, two], [one, two, raw]]),
        "seed": generator.getrandbits(32),
        "seq_len": generator.choice([64, 100, 256, 512]),
        "packing": generator.choice(["lookahead", "concat", "best_fit"]),
        "shuffle": generator.choice(["document", "block", "none"]),
        "long_doc": generator.choice(["split", "split", "truncate", "drop"]),
        "stream_version": 1,
        "plan_partitions": generator.choice([1, 1, 2, 3]),
        "max_docs_per_row": generator.choice([4, 16, 64]),
        "num_epochs": generator.choice([1, 2, "endless"]),
        "batch_size": rows,
        "global_batch_size": rows * generator.choice([1, 2, 4, 6, 12]),
        "profile": generator.choice(PROFILES),
        "token_dtype": generator.choice(["auto", "i32", "i64"]),
        "checkpoint_dir": "unused",
        "checkpoint_keep": generator.choice([2, 3]),
    }
    if config["packing"] != "concat":
        config |= {SIZE_KEYS[config["packing"]]: generator.choice([4, 16, 64])}
        config |= {"row_gap": generator.choice(["pad", "split"])}
    if config["shuffle"] == "block":
        config |= {"block_documents": generator.choice([4, 16]), "window_blocks": 3}
    return config


def draw_stream(generator, folder, calendars):
    """Of version 1, or of version 2 with a calendar: every second one, or each."""
    config = draw_config(generator, folder)
    is_drawn = generator.choice([True, False]) or calendars
    return with_calendar(generator, config, ENDS) if is_drawn else config


# ---- one run -------------------------------------------------------------------------------------


class Place:
    """Where runs find their programs, the corpus and the ledger."""

    def __init__(self, binaries, folder, seed, plain=False, calendars=False):
        name = "ringpack" if plain else "ringpack-points"
        self.program, self.folder, self.seed = Path(binaries) / name, folder, seed
        self.calendars = calendars
        if not self.program.exists():
            raise Failure(f"{self.program} is missing: build it first (tools/check --quick)")
        write_corpus(folder, str(self.program))
        self.ledger = None if plain else Ledger(folder / "ledger", seed)


def left_behind(temporary, marker):
    """Files of a run, and processes, which get a moment to notice that their parent is gone."""
    found = [str(path) for path in temporary.iterdir()]
    deadline = time.monotonic() + 10
    while processes := with_marker(marker):
        if time.monotonic() > deadline:
            return found + [f"process {pid}" for pid in processes]
        time.sleep(0.02)
    return found


def with_marker(marker):
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if marker in (path / "environ").read_bytes():
                pids.append(int(path.name))
        except OSError:
            continue
    return pids


def stacks(marker):
    """The states of the processes of a hung run."""
    text = []
    for pid in with_marker(marker):
        command = ["gdb", "-batch", "-nx", "-p", str(pid), "-ex", "thread apply all bt"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            text.append(f"process {pid}\n{done.stdout}")
        except (OSError, subprocess.TimeoutExpired) as error:
            text.append(f"process {pid}: {error}")
    return "\n".join(text)


def run_verify(place, name, config, *, seed, kills, defect=None):
    """Returns the exit status of verify, its output, and the files that it left behind."""
    folder = place.folder / name
    temporary = folder / "tmp"
    temporary.mkdir(parents=True)
    (folder / "config.yaml").write_text(json.dumps(config))
    marker = f"RP_CAMPAIGN={os.getpid()}-{name}"
    command = [str(place.program), "verify", "-c", str(folder / "config.yaml"), "--json"]
    command += ["--kills", str(kills), "--random", str(seed), "--rows", "3000"]
    command += ["--points", str(place.ledger.path)] if place.ledger else []
    environment = {**os.environ, "TMPDIR": str(temporary), "RP_DEFECT": defect or "none"}
    environment |= dict([marker.split("=")])
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as verify:
        try:
            said = verify.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            where = stacks(marker.encode())
            verify.kill()
            raise Failure(f"{name} hung: {config}\n{where}\n{verify.communicate()[1]}") from None
    done = subprocess.CompletedProcess(command, verify.returncode, *said)
    return done, left_behind(temporary, marker.encode())


def run_number(place, number, kills):
    """Run `number` of the seed. Returns the report of verify; raises Failure."""
    generator = random.Random(f"{place.seed}/{number}")
    config = draw_stream(generator, place.folder, place.calendars)
    repeat = f"tools/campaign kills --seed {place.seed} --first {number} --kills 1"
    repeat += " --calendars" * place.calendars + " --plain" * (not place.ledger)
    seed = generator.randrange(1, 2**31)
    try:
        done, left = run_verify(place, f"run-{number}", config, seed=seed, kills=kills)
    except Failure as failure:
        raise Failure(f"{repeat}\n{failure}") from None
    if done.returncode != 0 or left:
        raise Failure(f"{repeat}\n{config}\nleft behind: {left}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


# ---- the campaign --------------------------------------------------------------------------------


def is_found_out(done, defect):
    """A run that begins one row further on must be caught with that row named as missing."""
    if done.returncode == 0 or defect != "resume_one_row_on":
        return done.returncode != 0
    report = json.loads(done.stdout or "{}")
    first, last = report.get("first_skips") or (0, -1)
    return 0 <= first <= last < report.get("rows", 0)


def check_control(place, defect):
    """A program with this defect must be found out. Returns after how many kills."""
    kills = 0
    for attempt in range(CONTROL_TRIES):
        config = draw_config(random.Random(f"control/{attempt}"), place.folder)
        done, _left = run_verify(
            place,
            f"control-{defect}-{attempt}",
            config,
            seed=1 + attempt,
            kills=CONTROL_KILLS,
            defect=defect,
        )
        kills += CONTROL_KILLS
        if is_found_out(done, defect):
            return kills
    raise Failure(f"the defect {defect} was not found out in {kills} kills: believe nothing")


SUMS = ("kills", "lives", "passes", "stops", "rows_compared", "rows_redelivered")


def run(binaries, options, say):
    """Returns the line of figures; raises Failure."""
    seed, first, kills, jobs = options.seed, options.first, options.kills, options.jobs
    a_run = options.kills_a_run
    with tempfile.TemporaryDirectory(prefix="rpk") as temporary:
        place = Place(binaries, Path(temporary), seed, options.plain, options.calendars)
        for defect, text in DEFECTS.items() if place.ledger else ():
            say(f"control: {text}: found out within {check_control(place, defect)} kills")
        if place.ledger:
            place.ledger = Ledger(place.folder / "ledger", seed)
        sums, kinds = dict.fromkeys(SUMS, 0), {}
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            number, running = first, set()
            while sums["kills"] < kills or running:
                while len(running) < jobs and sums["kills"] + len(running) * a_run < kills:
                    running.add(pool.submit(run_number, place, number, min(kills, a_run)))
                    number += 1
                done, running = concurrent.futures.wait(
                    running, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for report in (future.result() for future in done):
                    for key in SUMS:
                        sums[key] += report[key]
                    for kind, count in report["kills_by_kind"].items():
                        kinds[kind] = kinds.get(kind, 0) + count
                say(f"{sums['kills']:,} of {kills:,} kills, {number - first} runs, 0 differences")
        if options.places and place.ledger:
            say(unstruck(place))
        return summary(place, sums, kinds, number - first)


def summary(place, sums, kinds, runs):
    by_role, points = place.ledger.read() if place.ledger else (dict.fromkeys(ROLES, 0), [])
    struck = [point for point in points if point[4]]
    total = sums["kills"] + by_role["packer"]
    text = ", ".join(f"{kind} {count:,}" for kind, count in kinds.items())
    found = "".join(f", {name} {count:,}" for name, count in sorted(drawn.items()))
    return (
        f"{total:,} kills ({text}, packing process by its own hand {by_role['packer']:,}), at "
        f"{len(struck)} of {len(points)} points, {sums['stops']:,} stops; {runs} streams{found}, "
        f"{sums['lives']:,} lives, {sums['rows_compared']:,} rows compared; 0 lost, repeated, "
        f"reordered or changed; 0 files and processes left"
    )


def unstruck(place):
    """The points that never killed, as function, file and line."""
    _, points = place.ledger.read()
    lines = ["role    when    visits  place"]
    for offset, role, when, visits, killed in sorted(points):
        command = ["addr2line", "-f", "-s", "-e", place.program, f"{offset - 1:#x}"]
        if not killed:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            where = " ".join(done.stdout.split())
            lines.append(f"{role:8}{WHEN[when]:8}{visits:<8}{where}")
    return "\n".join(lines)
