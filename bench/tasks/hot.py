# SPDX-License-Identifier: Apache-2.0
"""The corpus in the page cache: one core alone, and the engine with one trainer."""

import time

from engine import Engine

VERIFIED = "mapped", "pread"  # ways to read a corpus in the page cache: mapped, and by calls


class Hot:
    def __init__(self, bench):
        self.bench = bench
        self.expected = None

    def check(self):
        """What every run must deliver: rows by `ringpack plan`, the digest by the plain loop."""
        bench = self.bench
        plan = bench.plan(bench.task())
        self.expected = {"tokens": plan["tokens"], "next_row": plan["rows"]}
        for profile in "min", "hf":
            loop = bench.limits("digest", bench.task(profile=profile))["digest"]
            self.expected.setdefault("digest", loop["digest"])
            bench.check("digest, plain loop", self.expected["digest"], loop["digest"])
            bench.check("rows, plain loop against ringpack plan", plan["rows"], loop["rows"])
            self._drain(profile, "--digest")
        for io in VERIFIED:
            self._drain("min", "--digest", **self._indexed(io, "on"))

    def limits(self):
        sample = {}
        for profile in "min", "hf":
            stages = "pack,concat" + (",memcpy,plan" if profile == "min" else "")
            found = self.bench.limits(stages, self.bench.task(profile=profile))
            for stage, name in ("pack", "loop"), ("concat", "loop_concat"):
                loop = found[stage]
                sample[f"{name}_{profile}"] = loop["tokens_per_second"]
                sample[f"{name}_{profile}_cpu"] = 1e9 * loop["cpu_seconds"] / loop["tokens"]
            slots = self.bench.limits("pack", self.bench.task(profile=profile, slots=8))
            sample[f"loop_{profile}_8_batches"] = slots["pack"]["tokens_per_second"]
            if profile == "min":
                sample["memcpy"] = found["memcpy"]["tokens_per_second"]
                sample["plan"] = found["plan"]["tokens_per_second"]
                sample["plan_ns_per_document"] = (
                    1e9 * found["plan"]["seconds"] / found["plan"]["documents"])
                plan_cpu = 1e9 * found["plan"]["cpu_seconds"] / found["plan"]["tokens"]
                sample["widen_cpu"] = sample["loop_min_cpu"] - plan_cpu
                sample["fill"] = found["plan"]["fill"]
        return sample

    def _drain(self, profile, *options, **keys):
        """One run of the whole stream: (tokens a second from `ready` on, CPU s of the engine)."""
        bench = self.bench
        bench.warm()
        with Engine(bench, bench.task(profile=profile, **keys), "--fresh") as engine:
            with bench.trainer(*options) as report:
                found = report()
                seconds = time.monotonic() - engine.ready
            engine.end()
            cpu = engine.cpu_seconds
            bench.note(f"page cache: {engine.said().splitlines()[0]}")
        name = " digested" if options else ""
        for key in "tokens", "next_row":
            bench.check(f"{key} at the trainer{name}", self.expected[key], found[key])
        if options:
            bench.check("digest, ringpack", self.expected["digest"], found["digest"])
        return found["tokens"] / seconds, 1e9 * cpu / found["tokens"]

    def _trainer(self, profile):
        rate, cpu = self._drain(profile)
        digested, _ = self._drain(profile, "--digest")
        return {f"hot_{profile}": rate, f"hot_{profile}_cpu": cpu,
                f"hot_{profile}_digested": digested}

    def _indexed(self, io, verify):
        """The task with sidecars, which lie in a folder of their own: no other task finds them."""
        folder = self.bench.scratch / "sidecars"
        if not folder.exists():
            self.bench.run("index", "-q", "--index-dir", folder, self.bench.settings["corpus"])
        return {"io": io, "direct": "off", "index_dir": folder, "verify_blocks": verify}

    def verification(self):
        """Each block compared with its hash as it is used, and the same without."""
        sample = {}
        for io in VERIFIED:
            for verify in "on", "off":
                rate, cpu = self._drain("min", **self._indexed(io, verify))
                sample[f"{io}_verify_{verify}"] = rate
                sample[f"{io}_verify_{verify}_cpu"] = cpu
        return sample

    def trainer_min(self):
        return self._trainer("min")

    def trainer_hf(self):
        return self._trainer("hf")
