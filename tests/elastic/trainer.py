# SPDX-License-Identifier: Apache-2.0
"""One rank of a job: takes batches, writes down their digests, saves where it stands.

The journal PLACE/life-N/rank-R.pid has "start ROW" and then, for each batch, its first row, number
of rows and digest. Under torchrun every step ends with a collective, as in a training; under mpirun
the ranks are independent, and the state goes through a JSON file."""

import argparse
import datetime
import json
import os
import pathlib
import time

import ringpack

RANK = int(os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", 0)))


class Alone:
    """Ranks without a library for collectives: the state is a file that rank 0 writes. A life reads
    the states of earlier ones, since no rank waits here for the slowest reader."""

    def __init__(self, args):
        self.life, self.place = args.life, pathlib.Path(args.place)
        self.file = self.place / f"state-{self.life:03}.json"

    def load(self, loader):
        earlier = [path for path in self.place.glob("state-*.json") if path < self.file]
        if earlier:
            loader.load_state_dict(json.loads(max(earlier).read_text()))

    def save(self, loader):
        if RANK == 0:
            fresh = self.file.with_suffix(".new")
            fresh.write_text(json.dumps(loader.state_dict(text=True)))
            fresh.replace(self.file)

    def agree(self, loader):
        pass

    def end_step(self):
        pass

    def end(self):
        pass


class Torch(Alone):
    """Collectives by gloo; a peer that does not answer is an error after some seconds."""

    def __init__(self, args):
        import torch
        import torch.distributed

        super().__init__(args)
        self.torch, self.distributed = torch, torch.distributed
        patience = datetime.timedelta(seconds=args.patience)
        self.distributed.init_process_group("gloo", timeout=patience)

    def agree(self, loader):
        loader.check_ranks()

    def end_step(self):
        self.distributed.all_reduce(self.torch.ones(1))

    def end(self):
        self.distributed.barrier()
        self.distributed.destroy_process_group()


class DistributedCheckpoint(Torch):
    """The state through torch.distributed.checkpoint, with a tensor."""

    def __init__(self, args):
        super().__init__(args)
        from torch.distributed import checkpoint

        self.dcp, self.folder = checkpoint, pathlib.Path(args.place, "dcp")
        self.weight = self.torch.zeros(3)

    def load(self, loader):
        whole = sorted(self.folder.glob("*/.metadata"))
        if whole:
            self.dcp.load(self.parts(loader), checkpoint_id=whole[-1].parent)

    def save(self, loader):
        self.dcp.save(self.parts(loader), checkpoint_id=self.folder / f"{loader.next_row:09}")

    def parts(self, loader):
        return {"weight": self.weight, "loader": loader}


WAYS = {"alone": Alone, "file": Torch, "dcp": DistributedCheckpoint}


def train(args, loader, way):
    way.load(loader)
    way.agree(loader)
    folder = pathlib.Path(args.place, f"life-{args.life}")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"rank-{RANK}.{os.getpid()}", "w", buffering=1) as journal:
        journal.write(f"start {loader.next_row}\n")
        while loader.next_row < args.until_row:
            batch = next(loader)
            journal.write(f"{batch.first_row} {batch.batch_size} {batch.digest():032x}\n")
            way.end_step()
            time.sleep(args.step_seconds)
            if batch.next_row % args.save_every == 0:
                way.save(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--place", required=True, help="folder of states and journals")
    parser.add_argument("--life", type=int, required=True)
    parser.add_argument("--way", choices=WAYS, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--until-row", type=int, required=True)
    parser.add_argument("--save-every", type=int, required=True, help="rows")
    parser.add_argument("--step-seconds", type=float, default=0, help="that a step takes at least")
    parser.add_argument("--patience", type=int, default=60, help="seconds")
    args = parser.parse_args()
    way = WAYS[args.way](args)
    loader = ringpack.Loader(
        corpus=args.corpus,
        seq_len=128,
        batch_size=args.batch_size,
        seed=5,
        num_epochs="endless",
        restart_timeout=args.patience,
        return_type="torch" if args.way == "dcp" else "numpy",
    )
    with loader:
        train(args, loader, way)
        way.end()


if __name__ == "__main__":
    main()
