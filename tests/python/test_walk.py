# SPDX-License-Identifier: Apache-2.0
"""Random walks through the calls of a Loader: steps, borrowed batches, states, loads, loops that
are left, evaluations, ends, new loaders and killed engines. A model of a few lines has the batch
that comes next.

RP_SEED and RP_STREAMS: the first seed, and the number of walks."""

import os
import random
import signal

import numpy
import pytest
import ringpack

SEED = int(os.environ.get("RP_SEED", random.SystemRandom().randrange(10**6)))
WALKS = int(os.environ.get("RP_STREAMS", 4))
ROWS = 3
KINDS = [
    {},
    {"keep": 3},
    {"copy": True},
    {"return_type": "torch"},
    {"return_type": "torch", "copy": False, "keep": 2},
    {"return_type": "torch", "device": "cpu"},
    {"return_type": "torch", "device": "cpu", "static": True},
    {"look_ahead": 2},
    {"look_ahead": 1, "copy": True},
    {"return_type": "torch", "look_ahead": 3},
    {"restart": True},
    {"return_type": "torch", "restart": True, "keep": 2},
]


def ids_of(batch):
    return numpy.asarray(batch["input_ids"]).reshape(ROWS, -1).tolist()


class Walk:
    def __init__(self, make, corpora, seed):
        self.rng, self.make, self.corpora = random.Random(seed), make, corpora
        draw = self.rng.choice
        self.stream = {"num_epochs": draw([1, 1, 2, "endless"]), "seed": draw([0, 7])}
        self.stream["packing"] = draw(["lookahead", "best_fit"])
        self.has_streams = draw([False, True])
        self.loader, self.states, self.told = None, [], []
        self.rows = self.reference(corpora[0], {})
        self.held_out = self.reference(corpora[1], {"num_epochs": 1})
        self.open()

    def reference(self, corpus, more):
        """The tokens of each batch of a stream, at most 60."""
        with self.make(corpus=corpus, **{**self.stream, **more}) as loader:
            batches = []
            for batch in loader:
                batches.append(ids_of(batch))
                if len(batches) == 60:
                    break
            return batches

    def is_endless(self):
        return len(self.rows) == 60

    # ---- the model: `at` is the number of the next batch, `behind` of batches not used yet -------

    def open(self):
        self.kind = self.rng.choice(KINDS)
        keys = {"restart": False, **self.stream, **self.kind}
        if self.has_streams:
            own = {"train": {}, "eval": {"corpus": self.corpora[1], "num_epochs": 1}}
            keys["streams"] = own
        keys |= {"packers": self.rng.choice([1, 2]), "prefetch_factor": self.rng.choice([5, 8])}
        self.loader = self.make(**keys)
        self.move(0)
        self.is_first = True

    def move(self, to):
        self.at, self.behind, self.is_first = to, [], False

    def position(self):
        """The loop's: look_ahead batches behind."""
        return self.behind[0] if self.behind else self.at

    def take(self, batch):
        ahead = self.kind.get("look_ahead", 0)
        if self.at == len(self.rows):
            assert batch is None
            self.behind = self.behind[1:] if len(self.behind) > 1 else self.behind
            return
        assert batch is not None and ids_of(batch) == self.rows[self.at]
        if ahead:
            self.behind = self.behind or [self.at]
            self.behind = [*self.behind, self.at + 1][-ahead - 1 :]
        self.at += 1
        return batch

    # ---- its steps -------------------------------------------------------------------------------

    def step_next(self):
        self.take(self.loader.next())

    def step_borrow(self):
        """Borrowed batches count as taken, and their own calls close them."""
        if not self.kind.get("look_ahead") and not self.kind.get("device"):
            count = 1 if self.is_endless() else self.rng.choice([1, 2])
            borrowed = [self.loader.borrow() for _ in range(count)]
            for batch in borrowed:
                self.take(batch)
            self.rng.shuffle(borrowed)
            for batch in borrowed:
                if batch is not None:
                    self.rng.choice([batch.release, batch.close])()

    def step_loop(self):
        most = self.rng.choice([1, 2, 5, 100])
        is_over = not self.is_first or self.at == len(self.rows)
        begins = self.kind.get("restart") and not self.is_endless() and is_over
        # else a loop takes again the batches that the one before did not use
        self.move(0 if begins else self.position())
        for batch in self.loader:
            self.take(batch)
            most -= 1
            if not most or self.at == len(self.rows):
                break
        else:
            self.take(None)

    def step_state(self):
        self.states.append((self.loader.state_dict(), self.position()))

    def step_state_of_batch(self):
        if self.at < len(self.rows) and (batch := self.take(self.loader.next())) is not None:
            if not self.kind.get("copy"):
                self.states.append((self.loader.state_dict(batch), self.at))

    def step_load(self):
        if self.states:
            state, at = self.rng.choice(self.states)
            self.loader.load_state_dict(state)
            self.move(at)
            self.is_first = True

    def step_new(self):
        self.loader.close()
        self.open()
        self.step_load()

    def step_kill(self):
        pid = self.loader.engine_pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    def step_evaluate(self):
        if not self.has_streams:
            return
        most = self.rng.choice([1, 2, 100, 100])
        for number, batch in enumerate(self.loader.stream("eval")):
            if number == most:
                break
            assert ids_of(batch) == self.held_out[number]
        else:
            assert number + 1 == len(self.held_out)

    def walk(self, steps):
        weights = {"next": 8, "loop": 2, "state": 4, "state_of_batch": 2, "load": 2, "new": 1}
        weights |= {"kill": 1, "evaluate": 2, "borrow": 2}
        for _ in range(steps):
            name = self.rng.choices(list(weights), list(weights.values()))[0]
            self.told.append((name, self.at))
            if self.at == len(self.rows) and self.is_endless() and name != "load":
                self.states.append((self.loader.state_dict(), self.position()))
                name = "load"
            getattr(self, f"step_{name}")()
            assert len(self.states) < 1000


@pytest.mark.parametrize("number", range(WALKS))
def test_each_call_leaves_the_position_that_the_model_has(make, corpora, number):
    walk = Walk(make, corpora, SEED + number)
    print(f"RP_SEED={SEED + number}: {walk.stream}, streams {walk.has_streams}")
    try:
        walk.walk(60)
    except Exception:
        print(walk.kind, walk.at, walk.behind, walk.told[-12:])
        raise
    finally:
        walk.loader.close()
