# SPDX-License-Identifier: Apache-2.0
"""A trainer that may be killed at any instruction: kill_trainer.py RUN RUN_DIR RANK WORLD
REPLICA REPLICAS LOG PAUSE

Its "model checkpoint" is a log: for every batch one line with the rows it read and the state token
after them, appended by one write; its first line is the state at the start of the job. A new
process of it drops a line that was cut, and continues from the state of the last one. So the log
holds every row once, or something is wrong."""

import json
import os
import sys
import time

import ringpack
import xxhash


def last_state(path):
    """The state in the last whole line; the rest after that line is cut off."""
    with open(path, "rb") as file:
        whole = file.read()
    whole = whole[: whole.rfind(b"\n") + 1]
    os.truncate(path, len(whole))
    return json.loads(whole.splitlines()[-1])["state"]


def main():
    run, run_dir, rank, world, replica, replicas, path, pause = sys.argv[1:]
    state = last_state(path)
    log = os.open(path, os.O_WRONLY | os.O_APPEND)
    loader = ringpack.Loader(
        run=run,
        run_dir=run_dir,
        dp_rank=int(rank),
        dp_world_size=int(world),
        replica=int(replica),
        consumers_per_rank=int(replicas),
        connect_timeout=300,
        restart_timeout=300,
    )
    loader.load_state_dict({"ringpack_state": state})
    with loader:
        for batch in loader:
            rows = [
                [row, tokens, xxhash.xxh3_64_hexdigest(ids.tobytes())]
                for (row, _, tokens), ids in zip(batch["rows"].tolist(), batch["input_ids"])
            ]
            line = {"rows": rows, "state": loader.state_dict(text=True)["ringpack_state"]}
            os.write(log, json.dumps(line).encode() + b"\n")
            time.sleep(float(pause))


main()
