# SPDX-License-Identifier: Apache-2.0
"""Write MDS and litData shards with the libraries that define them. Each line of stdin is a JSON
list that ends with the documents (ids, or rows of named lists); FOLDER is printed once written:

    ["mds", FOLDER, COMPRESSION, ENCODING, documents]      zstd, gz, br, snappy or none; a column
                                                           `tokens`, and `text` next to it
    ["litdata", FOLDER, COMPRESSION, LOADER, documents]    zstd-LEVEL or none; tokens or tree

The packages lie in build/venv/beside without their dependencies (torch with CUDA, and the clients
of every cloud), so the first is imported past its own __init__."""

import importlib.util
import json
import os
import sys
import types

import numpy


def past_init(top, *below):
    """Make packages of these names without running their code."""
    where = importlib.util.find_spec(top).submodule_search_locations[0]
    for rest in ("", *below):
        module = types.ModuleType(f"{top}.{rest}" if rest else top)
        module.__path__ = [os.path.join(where, rest)]
        sys.modules[module.__name__] = module


def write_mds(folder, packing, encoding, documents):
    from streaming.base.format.mds.writer import MDSWriter

    rows = [row if isinstance(row, dict) else {"tokens": row} for row in documents]
    columns = {**dict.fromkeys(rows[0], encoding), "text": "str", "n": "int"}
    packing = None if packing == "none" else packing
    kept = {"out": folder, "columns": columns, "size_limit": 1 << 14, "compression": packing}
    with MDSWriter(**kept) as writer:
        for i, row in enumerate(rows):
            values = {name: mds_value(encoding, name, ids) for name, ids in row.items()}
            writer.write({**values, "text": str(i), "n": i})


def mds_value(encoding, name, ids):
    if encoding == "bytes":
        return numpy.array(ids, "i8").tobytes()
    if encoding in ("json", "pkl"):
        return ids
    return numpy.array(ids, "u2" if name == "tokens" else "i4")


def write_litdata(folder, packing, loader, documents):
    import torch
    from litdata.streaming.item_loader import TokensLoader
    from litdata.streaming.writer import BinaryWriter

    packing = "" if packing == "none" else packing
    item_loader = TokensLoader() if loader == "tokens" else None
    packing, _, level = packing.partition("-")
    writer = BinaryWriter(folder, chunk_bytes=1 << 14, compression=packing or None,
                          compression_level=level or None, item_loader=item_loader)
    for i, document in enumerate(documents):
        row = document if isinstance(document, dict) else {"input_ids": document}
        tensors = {name: torch.tensor(ids, dtype=torch.int32) for name, ids in row.items()}
        writer[i] = tensors["input_ids"] if loader == "tokens" else {**tensors, "text": str(i)}
    writer.done()
    writer.merge()


if __name__ == "__main__":
    answers, sys.stdout = sys.stdout, sys.stderr  # the libraries may print
    past_init("streaming", "base")
    for line in sys.stdin:
        kind, folder, *rest = json.loads(line)
        {"mds": write_mds, "litdata": write_litdata}[kind](folder, *rest)
        print(folder, file=answers, flush=True)
