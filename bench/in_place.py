# SPDX-License-Identifier: Apache-2.0
"""Formats that are read in place, against the same documents as a Megatron .bin, hot and cold.

    build/venv/bin/python bench/in_place.py --build build [--tokens 100000000] [--rounds 5]

Every form has the same u16 tokens, laid out as its library lays them out, and is served for two
epochs of blocks. A round serves each form hot (in the page cache) and cold (dropped from it
before), and begins one form later than the round before. Reported are medians, and the median of
the ratios to the .bin within a round. A run whose digest differs from the .bin's ends the
measurement.
"""

import json
import os
import shutil
import statistics
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy  # noqa: E402
from alone import run_alone  # noqa: E402
from engine import Engine, summarise  # noqa: E402

SHARD_BYTES = 64 << 20  # for MDS and litData, as their libraries have it
ARROW_ROWS, ARROW_BYTES = 1000, 500 << 20  # limits of a batch and of a file, as datasets has them


def documents_of(path):
    """The tokens of a .bin, and where each document ends."""
    index = numpy.memmap(path.with_suffix(".idx"), "u1", "r")
    _, _, _, count, _ = struct.unpack_from("<9sQBQQ", index)
    return numpy.memmap(path, "<u2", "r"), numpy.cumsum(index[34 : 34 + 4 * count].view("<i4"))


def shards_of(ends, most):
    """(first document, last, first token, last) of shards of about that number of tokens."""
    first = 0
    while first < len(ends):
        begin = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(numpy.searchsorted(ends, begin + most)))
        yield first, last, begin, int(ends[last - 1])
        first = last


def write_datatrove(folder, tokens, ends):
    tokens.tofile(folder / "a.ds")
    ends.astype("<u8").tofile(folder / "a.ds.index")
    (folder / "a.ds.metadata").write_text(f"tokenizer|2\n{len(tokens)}\n")


def write_arrow(folder, tokens, ends):
    import pyarrow

    schema = pyarrow.schema([("input_ids", pyarrow.list_(pyarrow.uint16()))])
    names = []
    for number, (first, last, *_) in enumerate(shards_of(ends, ARROW_BYTES // 2)):
        names.append(f"data-{number:05}.arrow")
        with pyarrow.ipc.new_stream(str(folder / names[-1]), schema) as stream:
            for at in range(first, last, ARROW_ROWS):
                own = ends[at : min(at + ARROW_ROWS, last)]
                begin = int(ends[at - 1]) if at else 0
                offsets = numpy.concatenate([[0], own - begin]).astype("i4")
                values = numpy.array(tokens[begin : int(own[-1])])
                rows = pyarrow.ListArray.from_arrays(offsets, values)
                stream.write_batch(pyarrow.record_batch([rows], schema=schema))
    (folder / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": name} for name in names], "_split": "train"})
    )


def write_mds(folder, tokens, ends):
    """Samples of one `ndarray:uint16`: their size, a byte or more of shape, and the tokens."""
    header = {"column_encodings": ["ndarray:uint16"], "column_names": ["tokens"],
              "column_sizes": [None], "compression": None, "format": "mds", "hashes": [],
              "size_limit": SHARD_BYTES, "version": 2}
    text, shards = json.dumps(header, sort_keys=True).encode(), []
    for number, (first, last, begin, _) in enumerate(shards_of(ends, SHARD_BYTES // 2)):
        samples = []
        for end in ends[first:last].tolist():
            count = end - begin
            width = 0 if count < 256 else 1 if count < 65536 else 2
            shape = struct.pack("<B", 4 | width) + count.to_bytes(1 << width, "little")
            samples.append(shape + tokens[begin:end].tobytes())
            begin = end
        samples = [struct.pack("<I", len(sample)) + sample for sample in samples]
        offsets = numpy.cumsum([8 + 4 * len(samples) + len(text), *map(len, samples)])
        path = folder / f"shard.{number:05}.mds"
        table = numpy.array([len(samples), *offsets], "<u4").tobytes()
        path.write_bytes(table + text + b"".join(samples))
        data = {"basename": path.name, "bytes": path.stat().st_size, "hashes": {}}
        shards.append({**header, "samples": len(samples), "raw_data": data, "zip_data": None})
    (folder / "index.json").write_text(json.dumps({"shards": shards, "version": 2}))


def write_litdata(folder, tokens, ends):
    chunks = []
    for number, (first, last, begin, end) in enumerate(shards_of(ends, SHARD_BYTES // 2)):
        own = numpy.concatenate([[0], ends[first:last] - begin])
        table = numpy.array([last - first, *(4 * (last - first + 2) + 2 * own)], "<u4")
        path = folder / f"chunk-0-{number}.bin"
        path.write_bytes(table.tobytes() + tokens[begin:end].tobytes())
        chunks.append({"chunk_bytes": path.stat().st_size, "chunk_size": last - first,
                       "dim": end - begin, "filename": path.name})
    config = {"chunk_bytes": SHARD_BYTES, "chunk_size": None, "compression": None,
              "data_format": ["no_header_tensor:20"], "encryption": None,
              "data_spec": '[1, {"type": null, "context": null, "children_spec": []}]',
              "item_loader": "TokensLoader"}
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))


FORMS = {"datatrove": write_datatrove, "arrow": write_arrow, "mds": write_mds,
         "litdata": write_litdata}


def make(data, name, corpus, tokens, ends):
    """The folder of a form, unless it is there."""
    folder = data / f"{name}-of-{corpus.stem}"
    if not folder.exists():
        work = folder.with_suffix(".work")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        FORMS[name](work, tokens, ends)
        work.rename(folder)
    return folder


def files_of(place):
    return [path for path in place.iterdir()] if place.is_dir() else [place]


def forget(place):
    for path in files_of(place):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(place):
    for path in files_of(place):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def serve(bench, place, *options):
    """Tokens a second from `ready` to the trainer's end, CPU seconds a Gtok, and the digest."""
    with Engine(bench, bench.task(sources=place, profile="min", shuffle="block"),
                "--fresh") as engine:
        with bench.trainer(*options) as report:
            found = report()
            seconds = time.monotonic() - engine.ready
        engine.end()
    bench.check("tokens", found["tokens"], found["tokens"])
    return found, found["tokens"] / seconds, 1e9 * engine.cpu_seconds / found["tokens"]


def measure(bench, corpus, rounds):
    tokens, ends = documents_of(corpus)
    folder = bench.scratch.parent
    places = {"bin": corpus, **{n: make(folder, n, corpus, tokens, ends) for n in FORMS}}
    names, samples = list(places), []
    for place in places.values():
        found, *_ = serve(bench, place, "--digest")
        bench.check("digest", found["digest"], found["digest"])
    for number in range(rounds):
        sample = {}
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            for state, prepare in ("hot", warm), ("cold", forget):
                prepare(places[name])
                _, sample[name, state], sample[name, f"{state}_cpu"] = serve(bench, places[name])
        samples.append(sample)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return {"forms": report(places, samples)}


def report(places, samples):
    print("| form | hot, Mtok/s | per .bin | CPU per .bin | cold, Mtok/s | per .bin |")
    print("|---|---:|---:|---:|---:|---:|")
    result = {}
    for name in places:
        own = {"bytes": sum(path.stat().st_size for path in files_of(places[name]))}
        for key in "hot", "cold", "hot_cpu", "cold_cpu":
            own[key] = summarise([sample[name, key] for sample in samples])
            own[f"{key}_per_bin"] = statistics.median(s[name, key] / s["bin", key] for s in samples)
        result[name] = own
        print(f"| {name} | {own['hot']['median'] / 1e6:.0f} | {own['hot_per_bin']:.2f} "
              f"| {own['hot_cpu_per_bin']:.2f} | {own['cold']['median'] / 1e6:.0f} "
              f"| {own['cold_per_bin']:.2f} |")
    return result


if __name__ == "__main__":
    run_alone(__doc__, 100_000_000, 5, 2, measure)
