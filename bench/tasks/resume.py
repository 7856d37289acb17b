# SPDX-License-Identifier: Apache-2.0
"""From the start of a process to the first batch: fresh, from a state token, from a checkpoint."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

from engine import Engine, summarise

FILLED_SECONDS = 0.5  # after which the rings are full
LARGE_SLOTS = 512  # of 32 Ki tokens, kept as 2 bytes each: contents of 34 MB


class Resume:
    def __init__(self, bench):
        self.ringpack, self.bench = bench.client(), bench
        self.checkpoints = bench.scratch / "checkpoints"

    def _first_batch(self, keys, *options):
        """(ms from the start of the engine's process to its first batch, digest, row)."""
        bench = self.bench
        with Engine(bench, keys, *options) as engine:
            loader = self.ringpack.Loader(run="bench", run_dir=bench.run_dir, start_engine=False)
            with loader:
                batch = next(iter(loader))
                ms = 1000 * (time.monotonic() - engine.begin)
                found = ms, batch.digest(), batch.first_row
                batch.close()
        return found

    def _empty_process(self):
        begin = time.monotonic()
        subprocess.run([self.bench.program, "--version"], stdout=subprocess.DEVNULL, check=True)
        return 1000 * (time.monotonic() - begin)

    def _beside_empty(self, first_batch):
        """(ms to the first batch, ms of an empty process, the difference), each of several."""
        ours, empty = [], []
        for number in range(self.bench.settings["starts"]):
            for side in (1, 0) if number % 2 else (0, 1):
                (ours if side else empty).append(first_batch() if side else self._empty_process())
        return ours, empty, [a - b for a, b in zip(ours, empty)]

    def start(self):
        """At row 0 of the corpus, against an empty process."""
        bench = self.bench
        bench.warm()

        def first_batch():
            ms, digest, _ = self._first_batch(bench.task(), "--fresh")
            known = bench.checks.get("first batch", {"value": digest})
            bench.check("first batch", known["value"], digest)
            return ms

        ours, empty, above = self._beside_empty(first_batch)
        return {"first_batch_ms": ours, "empty_process_ms": empty, "first_batch_above_ms": above}

    # ---- a full checkpoint -----------------------------------------------------------------------

    def _save(self, **more):
        """Write one with contents while the stream runs, and kill the engine. The keys of the run,
        the path, the seconds that the save took, and {first row: digest} of the batches after."""
        bench = self.bench
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        self.checkpoints.mkdir()
        bench.warm()
        keys = bench.task(checkpoint_dir=self.checkpoints, **more)
        with Engine(bench, keys, "--fresh"):
            loader = self.ringpack.Loader(run="bench", run_dir=bench.run_dir, start_engine=False)
            with loader:
                steps = iter(loader)
                for _ in range(100):
                    batch = next(steps)
                batch.close()
                time.sleep(FILLED_SECONDS)
                begin = time.monotonic()
                path = self.ringpack.checkpoint("bench", bench.run_dir)
                seconds = time.monotonic() - begin
                # the checkpoint's count of consumed batches may be one behind
                following = {}
                for _ in range(3):
                    batch = next(steps)
                    following[batch.first_row] = batch.digest()
        return keys, path, seconds, following

    def _resume(self, keys, following):
        """ms to the first batch, and the same above an empty process."""
        bench = self.bench

        def first_batch():
            ms, digest, row = self._first_batch(keys)
            if row in following:
                bench.check("first batch after a checkpoint", True, digest == following[row])
            else:
                bench.note(f"resume from a checkpoint: row {row} was before what was compared")
            return ms

        ours, _, above = self._beside_empty(first_batch)
        return ours, above

    def checkpoint(self):
        """From one of the default rings."""
        keys, path, seconds, following = self._save()
        size = Path(path).stat().st_size
        ours, above = self._resume(keys, following)
        return {"checkpoint_bytes": size, "checkpoint_seconds": seconds,
                "resume_checkpoint_ms": ours, "resume_checkpoint_above_ms": above}

    def large_checkpoint(self):
        """From one of rings with many batches."""
        keys, path, _, following = self._save(num_epochs="endless", profile="min",
                                              prefetch_factor=LARGE_SLOTS)
        size = Path(path).stat().st_size
        ours, above = self._resume(keys, following)
        return {"large_checkpoint_bytes": size, "resume_large_checkpoint_ms": ours,
                "resume_large_checkpoint_above_ms": above}

    # ---- deep positions --------------------------------------------------------------------------

    def _seek(self, keys, documents, per_row):
        """A state token of the row after a number of documents, and the time to plan up to it."""
        bench, token = self.bench, self.bench.scratch / f"token-{documents}"
        size = bench.settings["batch_size"]
        row = int(documents / per_row) // size * size
        seek = bench.loop("seek", {**keys, "row": row, "state": token})["seek"]
        return {"documents": documents, "row": row, "token_bytes": seek["state_bytes"],
                "plan_ms": 1000 * seek["seconds"], "with_token_ms": [], "above_ms": []}, token

    def positions(self):
        """ms to the first batch, by documents before the start: with the token of that row, and
        without any, when all of them are planned again first.

        Positions take turns: a start touches fresh memory, and a machine that has just been busy
        with planning (or, a virtual one, has given memory back to its host) is slower at it."""
        bench, settings, digests = self.bench, self.bench.settings, {}
        keys = bench.task(sources=settings["index"], num_epochs="endless")
        # a short seek says how many documents make a row
        probe = bench.loop("seek", {**keys, "row": 10000, "state": bench.scratch / "token"})
        per_row = probe["seek"]["documents"] / 10000
        found = [self._seek(keys, documents, per_row) for documents in settings["positions"]]
        rounds = settings["repeats"] * settings["starts"]
        for repeat in range(rounds):
            turn = repeat % len(found)
            for entry, token in found[turn:] + found[:turn]:
                ms, digest, row = self._first_batch(keys, "--state", str(token))
                bench.check("row of a token", True, row == entry["row"])
                bench.check(f"first batch at row {row}", digests.setdefault(row, digest), digest)
                entry["with_token_ms"].append(ms)
                entry["above_ms"].append(ms - self._empty_process())
        print(f"  resume.positions {rounds} times", file=sys.stderr)
        row_0 = found[0][0]["with_token_ms"]
        return [self._summary(entry, row_0) for entry, _ in found]

    @staticmethod
    def _summary(entry, row_0):
        times, plan_ms = entry["with_token_ms"], entry["plan_ms"]
        return {**entry, "with_token_ms": summarise(times),
                "above_ms": summarise(entry["above_ms"]),
                "over_first_ms": summarise([a - b for a, b in zip(times, row_0)]),
                "without_token_ms": summarise([ms + plan_ms for ms in times]),
                "plan_ms": summarise([plan_ms])}
