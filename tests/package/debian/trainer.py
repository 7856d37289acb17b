# SPDX-License-Identifier: Apache-2.0
"""A trainer that takes its time: a line `ROW DIGEST` for each batch, until BATCHES of them.

trainer.py JOURNAL BATCHES SECONDS     rank 0 of the run `package`, from the end of the journal on

SIGTERM ends it between two batches, so that no line is in the journal without its state.
"""

import json
import os
import signal
import sys
import time

import ringpack

journal, batches, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
state = journal + ".state"
told_to_end = []
signal.signal(signal.SIGTERM, lambda *_: told_to_end.append(True))
with ringpack.Loader(run="package", run_dir=os.environ["RUN_DIR"]) as loader:
    if os.path.exists(state):
        with open(state) as file:
            loader.load_state_dict(json.load(file))
    with open(journal, "a", buffering=1) as lines:
        for number, batch in enumerate(loader, 1):
            lines.write(f"{batch.first_row} {batch.digest():032x}\n")
            batch.release()
            with open(state + ".new", "w") as file:
                json.dump(loader.state_dict(text=True), file)
            os.rename(state + ".new", state)
            if number == batches or told_to_end:
                break
            time.sleep(seconds)
print("finished", flush=True)
