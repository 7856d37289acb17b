# SPDX-License-Identifier: Apache-2.0
"""Rows of the planner on a GPU: their times one by one, the barriers from these times with and
without deal, and a model that trains on both orders.

    python3 balance_gpu.py rows.json --output DIR

Needs torch, this file, barriers.py, the folder tools/python/ringpack/_calibrate (or a copy of it
here) and the rows of planned_rows.py: no engine. Parts, each with a file in DIR:

    calibrate  K of a block, as `ringpack calibrate` measures it
    timed      every row through this block, forward and backward; step, micro-step and 1F1B from
               these times, as planned and dealt over windows; the same from K, and its errors
    trained    a small model, data-parallel in turn, in both orders: sums of the losses of each
               window with frozen weights, weights after a step a window, losses with a step a step
    wide       K of a block that is twice as wide, if time is left

A part that fails is reported, and the others run.
"""

import argparse
import functools
import json
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tools/python/ringpack")]

import torch  # noqa: E402

import barriers  # noqa: E402
from _calibrate.block import Block, Shape, document_attention  # noqa: E402
from _calibrate.measuring import calibrate, device_name  # noqa: E402
from _calibrate.rows import Row, cost  # noqa: E402

STAGES = 4
VOCABULARY, WIDTH, LAYERS = 256, 256, 2  # size of the trained model
BEGIN = time.monotonic()


def say(*words):
    print(f"{time.monotonic() - BEGIN:6.1f} s ", *words, flush=True)


class Job:
    def __init__(self, options):
        self.data = json.loads(Path(options.rows).read_text())
        self.output = Path(options.output)
        self.output.mkdir(parents=True, exist_ok=True)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.dtype = torch.float32 if self.device == "cpu" else torch.bfloat16
        self.shape = Shape(*map(int, options.shape.split(",")))
        self.wide = Shape(*map(int, options.wide.split(",")))
        self.seconds, self.limit = options.seconds, options.limit

    def left(self):
        return self.limit - (time.monotonic() - BEGIN)

    def write(self, name, found):
        (self.output / f"{name}.json").write_text(json.dumps(found))


# ---- K -------------------------------------------------------------------------------------------


def run_calibrate(job, name="calibrate", shape=None):
    tokens = job.data["timed"]["seq_len"]
    found = calibrate(torch, shape or job.shape, job.device, job.dtype, tokens, 0, job.seconds)
    said = found.as_json()
    job.write(name, said)
    say(f"{name}: {found.attention}: K = {said['cost']:,}; held-out rows: median error "
        f"{said['held_out_error_median']:.2%}, worst {said['held_out_error_worst']:.2%}")
    for row in said["rows"]:
        held_out = " (held out)" if row["is_held_out"] else ""
        say(f"    {row['name']:26s}{row['seconds'] * 1e3:9.1f} ms  {row['error']:+.2%}{held_out}")
    return found


# ---- every row -----------------------------------------------------------------------------------


def filled(lengths, seq_len):
    """With the padding at the end as a document: the block runs over it as well."""
    padding = seq_len - sum(lengths)
    return tuple(lengths) + ((padding,) if padding else ())


def time_rows(job, part):
    block = Block(torch, job.shape, job.device, job.dtype)
    rows = [Row("", filled(lengths, part["seq_len"])) for lengths in part["rows"]]
    for row in (rows[0], min(rows, key=cost_of), max(rows, key=cost_of)):
        block.seconds(row)
    seconds, begin = [], time.monotonic()
    for i, row in enumerate(rows):
        seconds.append(block.seconds(row))
        took = time.monotonic() - begin
        if job.left() < 60 + took / (i + 1) * 16:
            say(f"timed: no time for more than {len(seconds)} rows")
            break
        if (i + 1) % 64 == 0:
            say(f"timed: {i + 1} rows in {took:.1f} s")
            job.write("timed_partial", {"seconds": seconds})
    again = [block.seconds(row) for row in rows[:len(seconds):max(1, len(seconds) // 32)]]
    first = seconds[::max(1, len(seconds) // 32)]
    block.free()
    return seconds, sorted(abs(b / a - 1) for a, b in zip(first, again))


def cost_of(row):
    return cost(row.lengths, 15000)


def orders_of(part, count):
    """Orders of whole windows of the rows that were timed: as planned, and dealt."""
    ranks, step = part["ranks"], part["ranks"] * part["micro_batches"]
    orders = {"planned": list(range(count // step * step))}
    for window, order in part["orders"].items():
        whole = count // (int(window) * step) * int(window) * step
        if whole:
            orders[f"window {window}"] = order[:whole]
    return orders, ranks, step


def run_timed(job, k):
    part = job.data["timed"]
    seconds, repeated = time_rows(job, part)
    rows = part["rows"][:len(seconds)]
    say(f"timed: {len(seconds)} rows from {min(seconds) * 1e3:.0f} to {max(seconds) * 1e3:.0f} ms; "
        f"a second time differs by {repeated[len(repeated) // 2]:.2%} (median)")
    costs = [cost(lengths, k) for lengths in rows]
    scale = sum(seconds) / sum(costs)
    errors = sorted(abs(scale * c / s - 1) for c, s in zip(costs, seconds))
    say(f"timed: rows from K = {k:,.0f}: median error {errors[len(errors) // 2]:.2%}, 95 % "
        f"{errors[int(len(errors) * 0.95)]:.2%}, worst {errors[-1]:.2%}")
    orders, ranks, step = orders_of(part, len(seconds))
    found = {"seconds": seconds, "repeated_difference": repeated, "k": k,
             "dealt_with": part["cost"], "row_errors": errors, "orders": {}}
    for name, order in orders.items():
        own = {what: barriers.figures(
                   barriers.steps_of([values[q] for q in order], ranks, step), STAGES)
               for what, values in (("measured", seconds), ("predicted", costs))}
        found["orders"][name] = own
        say(f"timed: {name:10s}" + "".join(
            f"  {key} {own['measured'][key]:.4f} ({own['predicted'][key]:.4f})"
            for key in own["measured"]))
        job.write("timed", found)
    return found


# ---- a model in both orders ----------------------------------------------------------------------


class Model:
    """Two blocks in float32, without dropout, over rows of made documents."""

    def __init__(self, job):
        self.job, self.device = job, job.device
        shape = Shape(WIDTH, 2 * WIDTH, 4, 2, WIDTH // 4)
        self.blocks = [Block(torch, shape, job.device, torch.float32, seed)
                       for seed in range(LAYERS)]
        for block in self.blocks:
            block.attend = document_attention(torch)  # the other kernels take no float32
        draw = torch.Generator(job.device).manual_seed(9)
        self.ends = [(torch.randn(VOCABULARY, WIDTH, generator=draw, device=job.device) * 0.02
                      ).requires_grad_() for _ in range(2)]
        self.weights = self.ends + [w for block in self.blocks for w in block.weights]

    def losses(self, row, tokens, is_trained):
        values = torch.nn.functional.embedding(tokens, self.ends[0])
        for block in self.blocks:
            values = block.forward(values, row, *block.places(row))
        scores = values @ self.ends[1].t()
        labels = tokens.roll(-1)
        each = torch.nn.functional.cross_entropy(scores, labels, reduction="none")
        return (each * is_trained).sum()


@functools.lru_cache(maxsize=None)
def tokens_of(q, lengths, device):
    """Documents that count up by a stride of their own, with some noise; the mask leaves out the
    last token of a document."""
    draw, parts, masks = torch.Generator().manual_seed(1000 + q), [], []
    for length in lengths:
        begin, stride = torch.randint(1, VOCABULARY, (2,), generator=draw).tolist()
        noise = torch.rand(length, generator=draw) < 0.1
        exact = begin + (stride % 8 + 1) * torch.arange(length)
        other = torch.randint(0, VOCABULARY, (length,), generator=draw)
        parts.append(torch.where(noise, other, exact) % VOCABULARY)
        masks.append(torch.arange(length) < length - 1)
    return torch.cat(parts).to(device), torch.cat(masks).to(device)


def train(job, part, order, every, is_frozen=False):
    """Ranks in turn: each gradient is of the sum over all rows of a step, over all its tokens.
    `every`: rows between two steps of the optimiser. The mean loss between them, of all rows in the
    order of their numbers, and the model."""
    model = Model(job)
    optimiser = torch.optim.AdamW(model.weights, lr=1e-3, weight_decay=0.1)
    sums, means = {}, []
    for first in range(0, len(order), every):
        own = order[first:first + every]
        trained = sum(length - 1 for q in own for length in part["rows"][q])
        for rank in range(part["ranks"]):
            for q in own[rank::part["ranks"]]:
                lengths = tuple(part["rows"][q])
                loss = model.losses(Row("", lengths), *tokens_of(q, lengths, job.device))
                if not is_frozen:
                    (loss / trained).backward()
                sums[q] = loss.detach().double()
        if not is_frozen:
            optimiser.step()
            optimiser.zero_grad()
        means.append(sum(float(sums[q]) for q in sorted(own)) / trained)
    return model, means


@torch.no_grad()
def distance(one, other):
    """Of the weights of two models, relative."""
    above = sum(float((a.double() - b.double()).pow(2).sum())
                for a, b in zip(one.weights, other.weights))
    return (above / sum(float(a.double().pow(2).sum()) for a in one.weights)) ** 0.5


def run_trained(job):
    part = job.data["trained"]
    [(window, dealt)] = part["orders"].items()
    step = part["ranks"] * part["micro_batches"]
    every = int(window) * step
    rows = min(len(dealt), job.data.get("trained_rows", len(dealt))) // every * every
    orders = {"planned": list(range(rows)), "dealt": dealt[:rows]}
    found = {"rows": rows, "window_rows": every, "step_rows": step}
    with torch.no_grad():
        frozen = {name: train(job, part, order, every, True)[1] for name, order in orders.items()}
    found["frozen"] = frozen
    found["frozen_difference"] = most([a / b - 1 for a, b in zip(*frozen.values())])
    say(f"trained: frozen weights, mean losses of {len(frozen['planned'])} windows differ by at "
        f"most {found['frozen_difference']:.1e}")
    job.write("trained", found)
    for name, size in (("window", every), ("step", step)):
        models = {key: train(job, part, order, size) for key, order in orders.items()}
        (one, planned), (other, changed) = models.values()
        per = every // size
        found[name] = {key: means for key, (_, means) in models.items()}
        by_window = [[sum(means[i:i + per]) / per for i in range(0, len(means), per)]
                     for means in (planned, changed)]
        found[f"{name}_weights_distance"] = distance(one, other)
        found[f"{name}_loss_difference"] = most([a / b - 1 for a, b in zip(*by_window)])
        say(f"trained: an optimiser's step a {name}: losses of windows, planned "
            + " ".join(f"{loss:.5f}" for loss in by_window[0]) + ", dealt "
            + " ".join(f"{loss:.5f}" for loss in by_window[1])
            + f"; weights differ by {found[f'{name}_weights_distance']:.1e}")
        job.write("trained", found)
    moved = distance(Model(job), one)
    found["weights_moved"] = moved
    say(f"trained: all steps moved the weights by {moved:.1e}")
    job.write("trained", found)


def most(values):
    return max(map(abs, values))


# ---- all -----------------------------------------------------------------------------------------


def guarded(name, run, *arguments):
    try:
        return run(*arguments)
    except Exception:
        say(f"{name}: FAILED")
        traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows")
    parser.add_argument("--output", required=True, metavar="DIR")
    parser.add_argument("--shape", default="2048,8192,16,8,128",
                        help="hidden, ffn, heads, kv_heads, head_dim")
    parser.add_argument("--wide", default="4096,14336,32,8,128")
    parser.add_argument("--seconds", type=float, default=25, help="of a calibration")
    parser.add_argument("--limit", type=float, default=345, help="seconds of all parts")
    job = Job(parser.parse_args())
    say(f"torch {torch.__version__}, {device_name(torch, job.device)}, block {tuple(job.shape)}")
    found = guarded("calibrate", run_calibrate, job)
    k = found.fit.k if found else job.data["timed"]["cost"]
    guarded("timed", run_timed, job, k)
    guarded("trained", run_trained, job)
    if job.left() > 45:
        guarded("wide", run_calibrate, job, "wide", job.wide)
    say("end")


if __name__ == "__main__":
    main()
