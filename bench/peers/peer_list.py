# SPDX-License-Identifier: Apache-2.0
"""The peers that are measured, in three classes, which are never compared with one another.

    OWN      the library itself packs: its documented packer, as it comes.
    AROUND   the library gives whole documents, and a function of its user packs them. collate.py
             is that function, the fastest that was found; it is the same for all of them.
    WINDOWS no packing: rows are cut every seq_len tokens from a corpus that was concatenated
             before, which is another and a lighter task.

This file imports no peer, so that it can be read without any.
"""

from dataclasses import dataclass

OWN, AROUND, WINDOWS = "own packer", "packer written around it", "windows"
CLASSES = {
    OWN: "what the library itself packs",
    AROUND: "the best that was written around it: numpy, best fit decreasing",
    WINDOWS: "no packing: windows of a corpus that was concatenated before",
}
# ringpack's delivery for each class: for packers, the arrays of Grain's packers; for windows, ids
# and the ends of documents, and it still packs.
OURS = {OWN: "ringpack grain", AROUND: "ringpack grain", WINDOWS: "ringpack min"}

WHOLE = "whole documents; ids, positions"
WHOLE_SEGMENTS = "whole documents; ids, segments, positions"
CUTS = "documents cut at row ends; "
IDS = "ids"
LARGE_TABLE = "its table cannot be a hole: 26 GB would be written"


@dataclass(frozen=True)
class Peer:
    kind: str  # one of the classes; empty: ringpack
    module: str
    maker: str
    arguments: tuple = ()
    delivers: str = IDS
    no_deep_resume: str = ""  # why no state 16 M rows into the stream is measured

    @property
    def whole(self):
        return self.delivers.startswith("whole")


PEERS = {
    "ringpack min": Peer("", "peer_ringpack", "Ringpack", ("min",),
                         "whole documents; ids, cu_seqlens"),
    "ringpack grain": Peer("", "peer_ringpack", "Ringpack", ("grain",), WHOLE_SEGMENTS),
    "grain first-fit": Peer(OWN, "peer_grain", "Grain", ("first_fit",), WHOLE_SEGMENTS),
    "grain best-fit": Peer(OWN, "peer_grain", "Grain", ("best_fit",), WHOLE_SEGMENTS),
    "grain concat": Peer(OWN, "peer_grain", "Grain", ("concat",),
                         CUTS + "ids, segments, positions"),
    "megatron": Peer(OWN, "peer_megatron", "Megatron", (),
                     CUTS + "ids, labels, loss mask, positions"),
    "lancedb packed": Peer(OWN, "peer_lancedb", "Packed", (), CUTS + "ids, segments",
                           LARGE_TABLE),
    "torchdata": Peer(AROUND, "peer_torchdata", "Documents", (), WHOLE),
    "grain": Peer(AROUND, "peer_grain", "Documents", (), WHOLE),
    "lancedb": Peer(AROUND, "peer_lancedb", "Documents", (), WHOLE, LARGE_TABLE),
    "energon": Peer(AROUND, "peer_energon", "Energon", (), WHOLE,
                    "its shards cannot be a hole: 26 GB would be written"),
    "torchdata windows": Peer(WINDOWS, "peer_torchdata", "Windows"),
    "streaming": Peer(WINDOWS, "peer_streaming", "Streaming"),
    "litdata": Peer(WINDOWS, "peer_litdata", "LitData"),
    "lancedb windows": Peer(WINDOWS, "peer_lancedb", "Windows", (), IDS, LARGE_TABLE),
}

# Peers that could not be measured at all, and why.
ABSENT = {
    "fairseq2": (AROUND, "fairseq2 0.8.1: its only fairseq2n on Linux, 0.8.1, refuses "
                 "PyTorch but 2.9.1 with CUDA 12.8 (several GB)"),
}
