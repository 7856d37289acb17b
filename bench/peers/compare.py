# SPDX-License-Identifier: Apache-2.0
"""The run that compares ringpack with its peers; `tools/bench --peers` calls it.

It writes bench/results/peers.json. From that file, and from no other, bench/report/peers.py makes
the table, the chart peers.svg, the goals, and the sentence of the README.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from end_to_end import describe_machine  # noqa: E402
from engine import Bench  # noqa: E402
from peer_list import PEERS  # noqa: E402
from tasks.peers import Peers  # noqa: E402

SIZES = {
    "full": {"repeats": 6, "tokens": 200_000_000, "text_tokens": 30_000_000,
             "index_documents": 16_000_000, "resume_rows": [16_000_000]},
    "quick": {"repeats": 3, "tokens": 50_000_000, "text_tokens": 10_000_000,
              "index_documents": 1_000_000, "resume_rows": [100_000, 1_000_000]},
    "once": {"repeats": 1, "tokens": 2_000_000, "text_tokens": 1_000_000,
             "index_documents": 10_000, "resume_rows": [10_000]},
}


def parse_arguments():
    parser = argparse.ArgumentParser(description="Compare ringpack with its peers.")
    parser.add_argument("--build", required=True, help="folder of a Release build")
    parser.add_argument("--data", required=True, help="folder for corpora and scratch files")
    parser.add_argument("--output", required=True, help="JSON file to write")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--repeats", type=int, help="rounds (6; with --size quick 3)")
    parser.add_argument("--seconds", type=float, default=2, help="of each timed run (2)")
    parser.add_argument("--names", nargs="+", choices=PEERS, default=list(PEERS),
                        help="who is compared; ringpack always is")
    parser.add_argument("--no-text", dest="text", action="store_false",
                        help="leave out the second corpus, text of this machine")
    parser.add_argument("--python", type=Path, help="that has the peers (build/peers-venv)")
    parser.add_argument("--alone", type=shlex.split, default=[], metavar="PREFIX",
                        help="a command that waits until the machine is free, and then runs what"
                        " is timed")
    parser.add_argument("--beside", type=shlex.split, default=[], metavar="PREFIX",
                        help="a command that runs what is not timed")
    return parser.parse_args()


def main():
    options = parse_arguments()
    if options.python is None:
        subprocess.run([HERE / "setup"], check=True)
        options.python = HERE.parent.parent / "build" / "peers-venv" / "bin" / "python"
    ours = [name for name, peer in PEERS.items() if not peer.kind]
    options.names = ours + [name for name in options.names if name not in ours]
    settings = {**SIZES[options.size], "seq_len": 4096, "batch_size": 8,
                "seconds": options.seconds}
    settings["repeats"] = options.repeats or settings["repeats"]
    Path(options.data).mkdir(parents=True, exist_ok=True)
    Path(options.output).parent.mkdir(parents=True, exist_ok=True)
    date, load = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), os.getloadavg()

    def save(found):
        result = {"format": 1, "date": date, "machine": describe_machine(),
                  "load": {"before": load, "after": os.getloadavg()}, "settings": settings, **found}
        Path(options.output).write_text(json.dumps(result, indent=1) + "\n")

    Peers(Bench(options.build, options.data, settings), options).run(save)


if __name__ == "__main__":
    main()
