# SPDX-License-Identifier: Apache-2.0
"""A trainer for trials: take a batch, write it down, return it, until the end.

    python -m ringpack.trainer --run RUN --rank R --world N --journal FILE

The journal has the form of tools/ringpack/job/journal.h without details: after a kill of this
process it shows the rows that the process had, and their digest.
"""

import argparse
import os
import struct
import sys
from typing import Optional

from ._state import token_of
from .errors import RingpackError
from .loader import Loader

RECORD = struct.Struct("<IIQQIIQQII")  # struct rp_journal_record
MAGIC = 0x314A5052
HALF = (1 << 64) - 1


def record(
    first_row: int,
    next_row: int,
    rows: int = 0,
    tokens: int = 0,
    digest: int = 0,
    state: bytes = b"",
) -> bytes:
    padding = -len(state) % 8
    size = RECORD.size + len(state) + padding
    halves = digest & HALF, digest >> 64
    head = RECORD.pack(MAGIC, size, first_row, next_row, rows, tokens, *halves, len(state), 0)
    return head + state + bytes(padding)


def train(loader: Loader, journal: int, until_row: Optional[int]) -> None:
    state = token_of(loader.state_dict())
    os.write(journal, record(loader.next_row, loader.next_row, state=state))
    for batch in loader:  # going on returns the batch before: it is written down by then
        if until_row is not None and batch.first_row >= until_row:
            return
        os.write(
            journal,
            record(
                batch.first_row,
                batch.next_row,
                batch.batch_size,
                batch.tokens_real,
                batch.digest(),
            ),
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ringpack.trainer")
    parser.add_argument("--run", required=True)
    parser.add_argument("--run-dir")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--journal", required=True, help="a file that is not there yet")
    parser.add_argument("--until-row", type=int, help="stop at the first batch from this row on")
    args = parser.parse_args()
    journal = os.open(args.journal, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    try:
        with Loader(
            run=args.run,
            run_dir=args.run_dir,
            dp_rank=args.rank,
            dp_world_size=args.world,
            connect_timeout=60,
        ) as loader:
            train(loader, journal, args.until_row)
    except RingpackError as failure:
        print(f"ringpack.trainer: {failure}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
