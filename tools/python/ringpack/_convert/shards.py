# SPDX-License-Identifier: Apache-2.0
"""The readers of MDS and litData for `ringpack convert`: shards of samples, and an index.json that
describes them. Their libraries bring torch and the clients of every cloud, for a format that is a
table of offsets; so it is read here, and only decompression needs a package.

A decompressed shard: u32 samples, u32 offsets[samples + 1], then the samples at these offsets.
"""

import gzip
import json
import math
import os
import struct

import numpy

from .columns import (
    BESIDE,
    DTYPES,
    USUAL_IDS,
    Refused,
    batched,
    foreign,
    is_wanted,
    need,
    numbers,
)


def declared_dtype(request, what):
    if request.get("dtype"):
        return DTYPES[request["dtype"]]
    raise Refused(
        "usage",
        f"{request['path']}: {what} holds bytes, and the width of an id is not given",
        "give --dtype u16, u32, i32 or i64",
    )


def refuse_mask(request, column, kind):
    """A mask that cannot be read: without it, the tokens that it leaves out would be trained."""
    raise Refused("format", f"{request['path']}: column `{column}`: expected a list of integers, "
                            f"found `{kind}`",
                  "write it again as an array, or train every token with --mask none")


def decompressed(path, name):
    with open(path, "rb") as file:
        data = file.read()
    return decompressed_bytes(data, name, path) if name else data


def decompressed_bytes(data, name, path):
    kind = name.split(":")[0]  # and a level
    if kind in ("zstd", "zst"):
        return need("zstandard").ZstdDecompressor().decompressobj().decompress(data)
    if kind in ("gz", "gzip"):
        return gzip.decompress(data)
    if kind == "br":
        return need("brotli").decompress(data)
    if kind == "snappy":
        return need("python-snappy", "snappy").decompress(data)
    raise Refused("format", f"{path}: expected zstd, gzip, brotli or snappy, found `{name}`")


def index_beside(path):
    try:
        with open(os.path.join(os.path.dirname(path), "index.json"), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        raise Refused(
            "format",
            f"{path}: the index.json that describes it is not next to it",
            "copy index.json into the directory of the shard",
        ) from None


def samples(path, data, said=None):
    """Samples of a shard, each with the bytes that are done after it. `said`: their number in the
    index."""
    (count,) = struct.unpack_from("<I", data)
    if said is not None and said != count:
        raise Refused("corrupt", f"{path}: expected {said} samples, as index.json says, found "
                                 f"{count}")
    offsets = checked(path, numpy.frombuffer(data, "<u4", count + 1, 4), 8 + 4 * count, len(data))
    for begin, end in zip(offsets[:-1], offsets[1:]):
        yield memoryview(data)[begin:end], end


def checked(path, offsets, least, most):
    """Offsets as numbers that cannot overflow, none before its predecessor or outside."""
    offsets = offsets.astype("i8")
    if len(offsets) > 1 and (offsets[0] < least or offsets[-1] > most
                             or (numpy.diff(offsets) < 0).any()):
        raise Refused("corrupt", f"{path}: samples are outside the shard")
    if offsets[-1] != most:
        raise Refused("corrupt", f"{path}: expected samples up to byte {most}, found their end at "
                                 f"byte {offsets[-1]}")
    return offsets.tolist()


def row_of(request, sample, at, fields, sizes, value_of):
    """The wanted columns of a sample. `fields` are (name, kind); their bytes follow each other from
    byte `at` on. A value that is None is left out."""
    row = {}
    if at + sum(sizes) != len(sample):
        raise Refused("corrupt", f"{request['path']}: a sample: expected columns of "
                                 f"{len(sample) - at} bytes, found sizes of {sum(sizes)}")
    for (name, kind), size in zip(fields, sizes):
        if is_wanted(request, name):
            value = value_of(request, name, kind, sample[at : at + size])
            if value is not None:
                row[name] = value
        at += size
    return row


def read_mds(request):
    path, name = request["path"], os.path.basename(request["path"])
    for shard in index_beside(path).get("shards", []):
        if name == shard["raw_data"]["basename"]:
            packing = None
            break
        if shard.get("zip_data") and name == shard["zip_data"]["basename"]:
            packing = shard["compression"]
            break
    else:
        raise Refused("format", f"{path}: the index.json next to it does not name it")
    data = decompressed(path, packing)
    if len(data) != shard["raw_data"]["bytes"]:
        raise Refused("corrupt", f"{path}: expected {shard['raw_data']['bytes']} bytes of samples, "
                                 f"found {len(data)}")
    columns = list(zip(shard["column_names"], shard["column_encodings"], shard["column_sizes"]))
    fields = [(column, encoding) for column, encoding, _ in columns]

    def rows():
        for sample, done in samples(path, data, shard.get("samples")):
            at, sizes = 0, []
            for _, _, size in columns:
                if size is None:
                    (size,) = struct.unpack_from("<I", sample, at)
                    at += 4
                sizes.append(size)
            yield row_of(request, sample, at, fields, sizes, mds_value), done

    yield from batched(rows(), len(data))


SHAPE_WIDTHS = (1, 2, 4, 8)
ARRAY_TYPES = {8: "u1", 9: "i1", 16: "<u2", 17: "<i2", 32: "<u4", 33: "<i4", 64: "<u8", 65: "<i8"}


def mds_value(request, column, encoding, data):
    """A list of ids or a text; None for anything else."""
    kind, _, rest = encoding.partition(":")
    if kind == "pkl":
        raise Refused(
            "format",
            f"{request['path']}: column `{column}` is a pickle, which runs whatever program it "
            "holds when it is loaded, so it never is",
            "write the shards again with `ndarray:uint16` or `ndarray:uint32`",
        )
    if kind == "str":
        return bytes(data).decode()
    if kind == "json":
        value = json.loads(bytes(data))
        if isinstance(value, list):
            return numbers(request, column, value)
        return foreign(request, column, f"json of {type(value).__name__}")
    if kind == "bytes":
        if column in (request["column"], *USUAL_IDS):
            return numpy.frombuffer(data, declared_dtype(request, f"column `{column}`"))
        return refuse_mask(request, column, kind) if column in BESIDE else None
    if kind != "ndarray":
        return foreign(request, column, f"`{kind}`")
    dtype, _, shape = rest.partition(":")
    at = 0
    if not dtype:
        dtype, at = ARRAY_TYPES.get(data[0]), 1
    expected = None
    if not shape:
        dimensions, width = data[at] >> 2, SHAPE_WIDTHS[data[at] & 3]
        sizes = numpy.frombuffer(data, f"<u{width}", dimensions, at + 1)
        expected = math.prod(sizes.tolist())
        at += 1 + dimensions * width
    if dtype is None or numpy.dtype(dtype).kind not in "iu":
        return foreign(request, column, f"ndarray of {dtype or 'another type'}")
    ids = numpy.frombuffer(data[at:], dtype)
    if expected is not None and len(ids) != expected:
        raise Refused("corrupt", f"{request['path']}: column `{column}`: expected {expected} ids, "
                                 f"as its shape says, found {len(ids)}")
    return ids


TORCH_TYPES = {11: "u1", 13: "<i2", 14: "<i2", 15: "<i4", 16: "<i4", 17: "<i8", 18: "<i8",
               20: "<u2"}
NUMPY_TYPES = {1: "<i2", 2: "<i4", 3: "<i8", 4: "u1", 5: "<u2", 6: "<u4", 7: "<u8"}


def litdata_value(request, column, kind, data):
    name, _, code = kind.partition(":")
    types = {"no_header_tensor": TORCH_TYPES, "no_header_numpy": NUMPY_TYPES}.get(name)
    if types is not None:
        dtype = types.get(int(code))
        if dtype:
            return numpy.frombuffer(data, dtype)
        return foreign(request, column, f"`{kind}`, no integers")
    if name in ("str", "string"):
        return bytes(data).decode()
    if name == "bytes" and column in (request["column"], *USUAL_IDS):
        return numpy.frombuffer(data, declared_dtype(request, f"column `{column}`"))
    if name == "pickle" and column in (request["column"], *USUAL_IDS):
        raise Refused(
            "format",
            f"{request['path']}: `{column}` is a pickle, which runs whatever program it holds "
            "when it is loaded, so it never is",
            "write the chunks again with numpy arrays or tensors",
        )
    if column in BESIDE:
        return refuse_mask(request, column, name)
    return foreign(request, column, f"`{name}`")


def litdata_names(config):
    """Names of the leaves of a sample: the keys of a dictionary, or `tokens` for the only one."""
    kinds = config["data_format"]
    if len(kinds) == 1:
        return ["tokens"]
    try:
        spec = json.loads(config["data_spec"])
        spec = spec[1] if isinstance(spec, list) else spec
        names = json.loads(spec["context"])
        return names if len(names) == len(kinds) else [str(i) for i in range(len(kinds))]
    except (ValueError, KeyError, TypeError):
        return [str(i) for i in range(len(kinds))]


FRAMED = b"LDFZ01\0\0"


def framed_samples(path, data, said):
    """Samples of a chunk of zstd frames, many samples in each (compression_level="batch")."""
    _, version, _, count, _, frames = struct.unpack_from("<8sHHIII", data)
    if said is not None and said != count:
        raise Refused("corrupt", f"{path}: expected {said} samples, as index.json says, found "
                                 f"{count}")
    if version != 1:
        raise Refused("format", f"{path}: expected version 1 of its frames, found {version}")
    at = 24 + 4 * (count + 1)
    pieces = []
    for i in range(frames):
        _, _, begin, packed, _ = struct.unpack_from("<IIQII", data, at + 24 * i)
        pieces.append(decompressed_bytes(data[begin : begin + packed], "zstd", path))
    whole = b"".join(pieces)
    offsets = checked(path, numpy.frombuffer(data, "<u4", count + 1, 24), 0, len(whole))
    for begin, end in zip(offsets[:-1], offsets[1:]):
        yield memoryview(whole)[begin:end], end


def litdata_samples(path, config, said):
    """Samples of a chunk, whatever is compressed: all of it, frames of many samples, or each.
    `said`: their number in the index."""
    packing, level = config.get("compression"), config.get("compression_level")
    if not packing or level not in ("batch", "sample"):
        return samples(path, decompressed(path, packing), said)
    data = decompressed(path, None)
    if level == "batch" and data.startswith(FRAMED):
        return framed_samples(path, data, said)
    return ((decompressed_bytes(bytes(sample), packing, path), done)
            for sample, done in samples(path, data, said))


def read_litdata(request):
    path = request["path"]
    index = index_beside(path)
    config = index["config"]
    said = next((chunk.get("chunk_size") for chunk in index.get("chunks", [])
                 if chunk.get("filename") == os.path.basename(path)), None)
    if config.get("encryption"):
        raise Refused("format", f"{path}: expected chunks that are not encrypted")
    kinds = config["data_format"]
    fields = list(zip(litdata_names(config), kinds))
    bare = config.get("item_loader") == "TokensLoader"

    def rows():
        for sample, done in litdata_samples(path, config, said):
            if bare:
                yield {"tokens": litdata_value(request, "tokens", kinds[0], sample)}, done
                continue
            sizes = struct.unpack_from(f"<{len(kinds)}I", sample)
            yield row_of(request, sample, 4 * len(kinds), fields, sizes, litdata_value), done

    yield from batched(rows(), os.path.getsize(path))
