# SPDX-License-Identifier: Apache-2.0
"""The corpus in the page cache: the plain loop and the engine with one trainer, by turns."""

import time

from engine import Engine
from slices import EngineSide, LoopSide, cpu, rates, ratios, side_by_side, take_turns

VERIFIED = "mapped", "pread"  # ways to read a corpus in the page cache: mapped, and by calls
SLOTS = 8  # batches that the fair loop writes in turn
PLANS = 3  # measurements of the limits in a repetition


class Hot:
    def __init__(self, bench):
        self.bench = bench
        self.expected = None

    def check(self):
        """The expected delivery of every run: rows by `ringpack plan`, the digest by the plain
        loop."""
        bench = self.bench
        plan = bench.plan(bench.task())
        self.expected = {"tokens": plan["tokens"], "next_row": plan["rows"]}
        for profile in "min", "hf":
            for more in {"slots": SLOTS}, {"slots": SLOTS, "mapped": 1}:
                loop = bench.loop("digest", bench.task(profile=profile, **more))["digest"]
                self.expected.setdefault("digest", loop["digest"])
                bench.check("digest, plain loop", self.expected["digest"], loop["digest"])
                bench.check("rows, plain loop against ringpack plan", plan["rows"], loop["rows"])

    def limits(self):
        bench, keys = self.bench, self.bench.task()
        concat = bench.loop("concat", bench.task(profile="min"))["concat"]
        found = [bench.limits(keys) for _ in range(PLANS)]
        plans = [one["limits"]["planning"]["tokens_per_second"] for one in found]
        per_document = found[0]["corpus"]["tokens"] / found[0]["corpus"]["documents"]
        slots = self.expected["next_row"] * bench.settings["seq_len"]
        return {
            "memcpy": [one["limits"]["memcpy"]["tokens_per_second"] for one in found],
            "loop_concat_min": concat["tokens_per_second"],
            "plan": plans,
            "plan_ns_per_document": [1e9 * per_document / plan for plan in plans],
            "fill": self.expected["tokens"] / slots,
        }

    # ---- against the plain loop ------------------------------------------------------------------

    def _beside_loop(self, profile):
        """The fair loop, the engine, the fair loop over the page cache, and over one batch."""
        bench, settings = self.bench, self.bench.settings
        keys = bench.task(profile=profile, num_epochs="endless")
        makers = [
            lambda: LoopSide(bench, f"loop, {profile}", keys, slots=SLOTS),
            lambda: EngineSide(bench, f"engine, {profile}", keys),
            lambda: LoopSide(bench, f"loop, page cache, {profile}", keys, slots=SLOTS, mapped=1),
        ]
        if not settings["only_goals"]:
            makers.append(lambda: LoopSide(bench, f"loop, one batch, {profile}", keys, slots=1))
        bench.warm()
        with side_by_side(*makers) as sides:
            found = take_turns(sides, settings["pairs"], settings["slice_ms"])
            bench.note(f"page cache: {sides[1].engine.first_words()}")
        loop, engine, mapped, *one = found.values()
        loop_cpu, mapped_cpu = cpu(loop), cpu(mapped)
        engine_cpu = cpu(engine, "engine_cpu_seconds")
        sample = {
            "loop_8_batches": rates(loop), "loop_8_batches_cpu": loop_cpu,
            "loop_mapped": rates(mapped), "loop_mapped_cpu": mapped_cpu,
            "hot": rates(engine), "hot_cpu": engine_cpu, "hot_trainer_cpu": cpu(engine),
            "hot_per_loop": ratios(rates(engine), rates(loop)),
            "hot_per_loop_cpu": ratios(loop_cpu, engine_cpu),
            "hot_per_mapped_loop_cpu": ratios(mapped_cpu, engine_cpu),
            "mapped_per_loop_cpu": ratios(loop_cpu, mapped_cpu),
        }
        for slices in one:
            sample |= {"loop": rates(slices), "loop_cpu": cpu(slices)}
        return {self._name(name, profile): values for name, values in sample.items()}

    @staticmethod
    def _name(name, profile):
        """hot_per_loop: hot_min_per_loop"""
        first, *rest = name.split("_")
        return "_".join([first, profile, *rest])

    def min(self):
        return self._beside_loop("min")

    def hf(self):
        return self._beside_loop("hf")

    # ---- comparing blocks ------------------------------------------------------------------------

    def _indexed(self, io, verify):
        """The task with sidecars in a folder of their own: no other task finds them."""
        folder = self.bench.scratch / "sidecars"
        if not folder.exists():
            self.bench.run("index", "-q", "--index-dir", folder, self.bench.settings["corpus"])
        return {"io": io, "o_direct": "off", "index": folder, "verify_blocks": verify}

    def verification(self):
        """Each block compared with its hash as it is used, against the same without."""
        bench, settings, sample = self.bench, self.bench.settings, {}
        keys = bench.task(profile="min", num_epochs="endless")
        bench.warm()
        for io in VERIFIED:
            with side_by_side(*(
                lambda verify=verify: EngineSide(bench, f"engine, {io}, compared {verify}", keys,
                                                 **self._indexed(io, verify))
                for verify in ("on", "off")
            )) as sides:
                on, off = take_turns(sides, settings["pairs"], settings["slice_ms"]).values()
            name, whose = f"{io}_verify", "engine_cpu_seconds"
            sample |= {
                f"{name}_on": rates(on), f"{name}_on_cpu": cpu(on, whose),
                f"{name}_off": rates(off), f"{name}_off_cpu": cpu(off, whose),
                f"{name}_per_off": ratios(rates(on), rates(off)),
                f"{name}_cpu_per_off": ratios(cpu(on, whose), cpu(off, whose)),
            }
        return sample

    # ---- the digests -----------------------------------------------------------------------------

    def _drain(self, profile, **keys):
        """The whole stream at a trainer that hashes every row: tokens a second from `ready` on."""
        bench = self.bench
        bench.warm()
        with Engine(bench, bench.task(profile=profile, **keys), "--fresh") as engine:
            with bench.trainer("--digest") as report:
                found = report()
                seconds = time.monotonic() - engine.ready
            engine.end()
        for key in "tokens", "next_row":
            bench.check(f"{key} at the trainer", self.expected[key], found[key])
        bench.check("digest, ringpack", self.expected["digest"], found["digest"])
        return found["tokens"] / seconds

    def digested(self):
        """Every config that is timed, with the digest that the plain loop has."""
        for io in () if self.bench.settings["only_goals"] else VERIFIED:
            for verify in "on", "off":
                self._drain("min", **self._indexed(io, verify))
        return {f"hot_{profile}_digested": self._drain(profile) for profile in ("min", "hf")}
