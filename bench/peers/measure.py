# SPDX-License-Identifier: Apache-2.0
"""Measurements of one peer, in a process of its own; prints lines of JSON.

    measure.py PEER serve --corpus C --folder F ...
                                 rows a second that reach this process: for each line of standard
                                 input, `WORKERS SECONDS`, a line of JSON
    measure.py PEER verify ...   an epoch: every token once, rows of seq_len; and the batch after a
                                 saved state
    measure.py PEER state ... --position ROWS --state FILE
                                 write the state of that position
    measure.py PEER resume ... --begun T
                                 to the first batch: from the start of the process, and from there
                                 on where its modules are loaded

The corpus is converted, and indices are built, by whoever needs them first; no clock runs then. No
check of the content runs within the measured time, which is for the delivery of ids as i32 at
least, as a model takes them. A peer that stores u16 has them widened here.
"""

import argparse
import importlib
import itertools
import json
import pickle
import sys
import time
from pathlib import Path

import numpy

from documents import Corpus, Tally, tally_of
from peer_list import PEERS

WARM_BATCHES = 5
EPOCHS_MAX = 20
SAVED_AT, LATER = 4, 12  # batches; a multiple of the workers apart


def make_peer(task):
    peer = PEERS[task.peer]
    return getattr(importlib.import_module(peer.module), peer.maker)(task, *peer.arguments)


def prepared(task):
    peer = make_peer(task)
    peer.prepare()
    return peer


def speed_of_epoch(peer, workers, seconds):
    """(rows, seconds) after the first batches, until the time is over or the epoch ends."""
    batches = iter(peer.open(workers))
    for batch in itertools.islice(batches, WARM_BATCHES):
        peer.ids(batch)
    rows, begin = 0, time.monotonic()
    end = begin
    for batch in batches:
        rows += len(peer.ids(batch))
        end = time.monotonic()
        if end - begin >= seconds:
            break
    return rows, end - begin


def speed(task, workers, wanted):
    """Rows a second; more epochs where one is shorter than the time. Opening is not counted."""
    peer, rows, seconds = prepared(task), 0, 0
    for _ in range(EPOCHS_MAX):
        more, spent = speed_of_epoch(peer, workers, wanted - seconds)
        rows, seconds = rows + more, seconds + spent
        if seconds >= wanted:
            break
    if not rows:
        raise SystemExit("the corpus is too small to be timed")
    return rows / seconds


def serve(task):
    prepared(task)
    print(json.dumps({"ready": task.peer}), flush=True)
    for line in sys.stdin:
        workers, seconds = line.split()
        rate = speed(task, int(workers), float(seconds))
        print(json.dumps({"rows_per_second": rate}), flush=True)
    return {}


def ids_of(peer, batch):
    return numpy.array(peer.ids(batch))  # a copy: the batch may be taken back


def check_state(task):
    """Whether a loader with that state continues with the next batch; and whether a made up
    position, if the peer has one, is the true one."""
    states, batches = [], []
    peer, workers = make_peer(task), task.workers
    for number, batch in enumerate(peer.open(workers)):
        batches.append(ids_of(peer, batch))
        if number + 1 in (SAVED_AT, LATER):
            states.append(peer.state())
        if number == LATER:
            break
    if not peer.packs and not PEERS[task.peer].no_deep_resume:
        states.append(peer.moved(states[0], (LATER - SAVED_AT) * task.batch_size))
    else:
        states = states[1:]
    for state in states[-2:]:
        again = make_peer(task)
        following = iter(again.open(workers, state))
        if not numpy.array_equal(ids_of(again, next(following)), batches[LATER]):
            return False
    return True


def verify(task):
    corpus = Corpus(task.corpus)
    wanted, found, peer = tally_of(corpus, task.seq_len), Tally(), prepared(task)
    for batch in peer.open(task.workers):
        ids = numpy.asarray(peer.ids(batch))
        if ids.ndim != 2 or ids.shape[1] != task.seq_len:
            raise SystemExit(f"{task.peer}: rows of {ids.shape}, expected {task.seq_len} tokens")
        real, positions = peer.details(batch)
        found.add(ids, real, positions)
    left_out = wanted.tokens - found.tokens
    if (found.counts > wanted.counts).any():
        raise SystemExit(f"{task.peer}: delivered tokens that the corpus does not have so often")
    if left_out and peer.packs:
        raise SystemExit(f"{task.peer}: left out {left_out} tokens")
    if found.weighed and found.weighed != wanted.weighed:
        raise SystemExit(f"{task.peer}: tokens are not where their documents have them")
    return {"packs": peer.packs, "left_out": left_out, "tokens": found.tokens,
            "fill": found.tokens / found.slots, "resumes_exactly": check_state(task)}


def state(task):
    peer = prepared(task)
    batches = iter(peer.open(0))
    next(batches)
    saved = peer.moved(peer.state(), task.position)
    Path(task.state).write_bytes(pickle.dumps(saved))
    return {"bytes": len(pickle.dumps(saved))}


def resume(task):
    saved = pickle.loads(Path(task.state).read_bytes())
    importlib.import_module(PEERS[task.peer].module)
    begin = time.monotonic()
    peer = make_peer(task)
    batches = iter(peer.open(0, saved))
    rows = len(peer.ids(next(batches)))
    end = time.monotonic()
    return {"rows": rows, "process_seconds": end - task.begun, "load_seconds": end - begin}


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measure one peer.")
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("action", choices=["serve", "verify", "state", "resume"])
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--folder", required=True, help="for converted corpora and scratch files")
    parser.add_argument("--run-dir", help="of ringpack's sockets")
    parser.add_argument("--seq-len", type=int, default=4096)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=0, help="of ringpack; 0: endless")
    parser.add_argument("--position", type=int, default=0, help="rows")
    parser.add_argument("--state", help="file of a state")
    parser.add_argument("--begun", type=float, help="monotonic clock at the start of the process")
    parser.add_argument("--repeated", action="store_true",
                        help="the corpus is a hole: what is converted is one shard, many times")
    return parser.parse_args()


def main():
    task = parse_arguments()
    if task.action == "verify":
        task.epochs = 1
    print(json.dumps(globals()[task.action](task)), flush=True)


if __name__ == "__main__":
    main()
