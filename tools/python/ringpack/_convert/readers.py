# SPDX-License-Identifier: Apache-2.0
"""How `ringpack convert` reads encoded files: each form by its own library, as tables of rows.

A reader is a generator of tables of (request) -> (names of columns, share of the file that is done,
columns). READERS at the end names them as forms.c does. A column of ids is (lengths, ids), one
length a row; a column of text is a list of strings. columns.py makes documents of them.

No reader loads a pickle: it would run any program that the file holds.
"""

import gzip
import io
import json
import os
import struct
import sys
import tarfile

import numpy

from .archives import zstd_pieces
from .columns import (
    BATCH_BYTES,
    BESIDE,
    BESIDE_CHATS,
    DTYPES,
    SIDES,
    USUAL_IDS,
    Foreign,
    Messages,
    Refused,
    Unusable,
    batched,
    foreign,
    from_rows,
    is_mask,
    is_wanted,
    need,
    numbers,
)
from .lists import list_column, number_column
from .shards import read_litdata, read_mds

# ---- Arrow: columns of lists, chunks of a table ------------------------------------------------


def arrow_tables(request, batches, schema):
    """Tables of the wanted columns of record batches."""
    pyarrow, compute = need("pyarrow"), need("pyarrow", "pyarrow.compute")
    names = [field.name for field in schema if is_wanted(request, field.name)]
    sides = [side["field"] for side in request.get("sides", ())]
    if "of_numbers" in request:
        names = [request["column"]]
    for name in sides + names:
        if name not in schema.names:
            raise Refused("usage", f"{request['path']}: expected a column `{name}`, "
                                   f"found {', '.join(schema.names)[:200]}",
                          "give its name: `--side-column NAME=FIELD`" if sides else
                          "give its name: `--column NAME=FILE:FIELD`")
    for batch, share in batches(list(dict.fromkeys(names + sides))):
        columns = {SIDES: [plain_array(pyarrow, batch, name) for name in sides]}
        for name in names:
            array = plain_array(pyarrow, batch, name)
            if "of_numbers" in request:
                make = list_column if "of_lists" in request else number_column
                columns[name] = make(request, pyarrow, array)
                request["of_numbers"] += len(array)
            else:
                columns[name] = arrow_column(request, pyarrow, compute, name, array)
        yield share, columns


def plain_array(pyarrow, batch, name):
    array = batch.column(batch.schema.get_field_index(name))
    if isinstance(array, pyarrow.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array.type, pyarrow.BaseExtensionType):
        array = array.storage
    return array.dictionary_decode() if pyarrow.types.is_dictionary(array.type) else array


def arrow_column(request, pyarrow, compute, name, array):
    kinds = pyarrow.types
    if name in BESIDE_CHATS:
        return without_nulls(array.to_pylist())
    if is_any(kinds, array.type, "string", "large_string", "string_view"):
        return [text or "" for text in array.to_pylist()]
    is_view = is_any(kinds, array.type, "list_view", "large_list_view")
    if not is_view and not is_any(kinds, array.type, "list", "large_list", "fixed_size_list"):
        return Foreign(str(array.type))
    inner = array.type.value_type
    if kinds.is_struct(inner) and {"role", "content"} <= {field.name for field in inner}:
        return Messages(without_nulls(array.to_pylist()))
    if not kinds.is_integer(inner) and not kinds.is_boolean(inner) and not (
        kinds.is_floating(inner) and is_mask(request, name)
    ):
        return Foreign(f"list<{inner}>")
    lengths = compute.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    values = array.flatten()  # rows that are not null
    lengths = lengths.astype("i8")
    if values.null_count:
        place = values.is_null().to_numpy(zero_copy_only=False).argmax()
        row = numpy.searchsorted(lengths.cumsum(), place, side="right")
        again = lambda begin, end: arrow_column(  # noqa: E731
            request, pyarrow, compute, name, array.slice(begin, end - begin))
        return Unusable(int(row), "a null among them", len(array), again)
    if kinds.is_boolean(values.type):
        values = values.cast("uint8")
    return lengths, values.to_numpy(zero_copy_only=False)


def is_any(kinds, type_, *names):
    """Whether the type is of one of these kinds; older versions of pyarrow lack the views."""
    return any(getattr(kinds, f"is_{name}", bool)(type_) for name in names)


def without_nulls(value):
    """A struct has all fields of its column: those that a row did not have are null."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def groups_of(request, meta):
    """The row groups that begin within a piece of the file; request has the row before them."""
    groups = list(range(meta.num_row_groups))
    if not request["end"]:
        return groups
    kept = [i for i in groups
            if request["begin"] <= begin_of(meta.row_group(i)) < request["end"]]
    request["first_row"] = sum(meta.row_group(i).num_rows for i in groups[: kept[0]]) if kept else 0
    return kept


def begin_of(group):
    columns = [group.column(i) for i in range(group.num_columns)]
    return min([place for column in columns for place in (column.dictionary_page_offset,
                                                          column.data_page_offset) if place] or [4])


def read_parquet(request):
    parquet = need("pyarrow", "pyarrow.parquet")
    with parquet.ParquetFile(request["path"], memory_map=True) as file:
        meta = file.metadata
        groups = groups_of(request, meta)
        wanted = max(1, sum(meta.row_group(i).num_rows for i in groups))
        row_bytes = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
        rows = max(1, min(65536, BATCH_BYTES * meta.num_rows // max(1, row_bytes)))

        def batches(names):
            done = 0
            for batch in file.iter_batches(batch_size=rows, columns=names, use_threads=False,
                                           row_groups=groups):
                done += batch.num_rows
                yield batch, done / wanted

        yield from arrow_tables(request, batches, file.schema_arrow)


def read_arrow(request):
    """Files and streams, Feather, compressed or not."""
    ipc = need("pyarrow", "pyarrow.ipc")
    with need("pyarrow").memory_map(request["path"]) as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        if is_file:
            reader = ipc.open_file(file)
            count = reader.num_record_batches
            found = ((reader.get_batch(i), (i + 1) / count) for i in range(count))
        else:
            reader = ipc.open_stream(file)
            found = ((batch, file.tell() / file.size()) for batch in reader)

        def batches(_):
            for batch, share in found:
                for at in range(0, batch.num_rows, 65536):
                    yield batch.slice(at, 65536), share

        yield from arrow_tables(request, batches, reader.schema)


def read_lance(request):
    dataset = need("pylance", "lance").dataset(request["path"])
    total = max(1, dataset.count_rows())

    def batches(names):
        done = 0
        for batch in dataset.scanner(columns=names, scan_in_order=True).to_batches():
            done += batch.num_rows
            yield batch, done / total

    yield from arrow_tables(request, batches, dataset.schema)


# ---- levanter ----------------------------------------------------------------------------------


def read_levanter(request):
    """A cache, named by its ledger. A field is two arrays of zarr: `data`, and `offsets`, which are
    the number of rows and the end of each. Both may be longer than that."""
    path = request["path"]
    with open(path, encoding="utf-8") as file:
        ledger = json.load(file)
    if not ledger.get("is_finished"):
        raise Refused("format", f"{path}: expected a finished cache, found one without "
                                "`is_finished`", "let levanter finish it")
    folder, total = os.path.dirname(path), ledger["total_num_rows"]
    fields = {
        name: (open_zarr(folder, name, "offsets"), open_zarr(folder, name, "data"))
        for name in sorted(os.listdir(folder))
        if is_wanted(request, name) and os.path.isdir(os.path.join(folder, name, "offsets"))
    }
    for at in range(0, total, 1024):
        end = min(at + 1024, total)
        yield end / total, {
            name: levanter_column(request, name, at, end, *arrays)
            for name, arrays in fields.items()
        }


def open_zarr(folder, *names):
    place = os.path.abspath(os.path.join(folder, *names))
    driver = "zarr3" if os.path.exists(os.path.join(place, "zarr.json")) else "zarr"
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": place + "/"}}
    return need("tensorstore").open(spec, open=True, read=True).result()


def levanter_column(request, name, at, end, offsets, data):
    path, dtype = request["path"], numpy.dtype(data.dtype.numpy_dtype)
    if data.ndim != 1 or dtype.kind not in ("iubf" if is_mask(request, name) else "iub"):
        return Foreign(f"list<{dtype}>" if data.ndim == 1 else f"arrays of {data.ndim} dimensions")
    rows, bytes_end = int(offsets[0].read().result()), data.shape[0]
    if end > min(rows, offsets.shape[0] - 1):
        raise Refused("format", f"{path}: field `{name}`: expected a row {end - 1}, as the ledger "
                                f"says, found {rows} rows", "let levanter make it again")
    ends = numpy.array(offsets[at : end + 1].read().result())
    if at == 0:
        ends[0] = 0
    lengths = numpy.diff(ends)
    if ends[0] < 0 or (lengths < 0).any() or ends[-1] > bytes_end:
        raise Refused("format", f"{path}: field `{name}`: expected ends of rows that ascend to at "
                                f"most {bytes_end}, found others in rows {at} to {end - 1}",
                      "let levanter make it again")
    return lengths.astype("i8"), numpy.array(data[ends[0] : ends[-1]].read().result())


# ---- HDF5 --------------------------------------------------------------------------------------


def read_hdf5(request):
    """Data sets of rows: [rows, length], or variable length; Cerebras' [rows, 3, MSL]."""
    with need("h5py").File(request["path"], "r") as file:
        if "data" in file and file["data"].ndim == 3 and not request["column"]:
            yield from cerebras_tables(request, file["data"])
            return
        found = {name: file[name] for name in file if is_wanted(request, name)}
        found = {name: data for name, data in found.items() if hasattr(data, "shape") and data.ndim}
        flat = [name for name, data in found.items()
                if data.ndim == 1 and data.dtype.kind in "iubf"]
        wanted = [name for name in flat
                  if name in (request["column"], *USUAL_IDS, *BESIDE) or is_mask(request, name)]
        if flat == list(found) or wanted:
            raise Refused("format", f"{request['path']}: data set `{(wanted or flat)[0]}`: "
                                    "expected rows of numbers, found one number for each row",
                          "write [rows, length] or rows of variable length, or leave it out")
        found = {name: data for name, data in found.items() if name not in flat}
        total = max((len(data) for data in found.values()), default=0)
        for name, data in found.items():
            if len(data) != total:
                raise Refused("format", f"{request['path']}: data set `{name}`: expected {total} "
                                        f"rows, found {len(data)}")
        for at in range(0, total, 1024):
            piece = {name: data[at : at + 1024] for name, data in found.items()}
            rows = [
                {name: hdf5_value(request, name, values[i]) for name, values in piece.items()}
                for i in range(min(1024, total - at))
            ]
            yield (at + len(rows)) / total, from_rows(rows)


def hdf5_value(request, name, value):
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str) else numbers(request, name, value)


def cerebras_tables(request, data):
    """Rows of ids, mask and labels, where label i is the token after id i. The document is the ids
    that the mask has before its last 1, and the label of the last: the token that only it holds.
    Rows whose mask is all ones have none."""
    if data.shape[1] < 3:
        raise Refused("format", f"{request['path']}: `data`: expected [rows, 3, length], found "
                                f"{list(data.shape)}")
    for at in range(0, len(data), 256):
        rows = []
        for ids, mask, labels in data[at : at + 256, :3]:
            trained = (mask != 0) & (labels != -100)
            used = int(numpy.flatnonzero(trained)[-1]) + 1 if trained.any() else 0
            trained = trained[:used]
            row = {"input_ids": numpy.concatenate((ids[:used], labels[max(0, used - 1) : used]))}
            if used and request["mask"] != "none":
                if not trained.all():
                    row["loss_mask"] = numpy.concatenate((trained[:1], trained)).astype("i8")
                if (trained[:-1] & (labels[: used - 1] != ids[1:used])).any():  # it is refused
                    row["labels"] = numpy.concatenate((ids[:1], labels[:used]))
            rows.append(row)
        yield (at + len(rows)) / len(data), from_rows(rows)


# ---- records -----------------------------------------------------------------------------------


class Member(tarfile.TarInfo):
    """A member of an archive; one that is cut where a member would begin is refused too."""

    @classmethod
    def fromtarfile(cls, archive):
        try:
            return super().fromtarfile(archive)
        except (tarfile.EmptyHeaderError, tarfile.TruncatedHeaderError):
            raise tarfile.ReadError("the archive ends early") from None


def read_tar(request):
    """WebDataset: members of one name are a sample; .npy, .json and .txt are read."""
    rows, key = {}, None
    total = os.path.getsize(request["path"])

    def samples_of(archive):
        nonlocal rows, key
        for member in archive:
            if not member.isfile():
                continue
            folder, _, base = member.name.rpartition("/")
            stem, _, ending = base.partition(".")
            if (folder, stem) != key:
                if rows:
                    yield rows, min(total, member.offset)
                rows, key = {}, (folder, stem)
            rows.update(tar_values(request, member, ending.lower(), archive))
        if rows:
            yield rows, total

    with tarfile.open(request["path"], "r|*", tarinfo=Member) as archive:
        yield from batched(samples_of(archive), total)


def tar_values(request, member, ending, archive):
    path = f"{request['path']}: member {member.name}"
    data = archive.extractfile(member).read()
    if ending.endswith("npy"):
        name = {"npy": "tokens"}.get(ending, ending[:-4])
        try:
            return {name: numbers(request, name, numpy.load(io.BytesIO(data), allow_pickle=False))}
        except ValueError as error:
            raise Refused("format", f"{path}: expected an array of ids, found none: {error}",
                          "arrays of Python objects are pickles, which are never loaded") from None
    if ending in ("pkl", "pickle", "pyd", "pth"):
        if not request["column"] or request["column"] == ending:
            raise Refused("format", f"{path}: a pickle runs whatever program it holds when it is "
                                    "loaded, so it never is",
                          "write the members as .npy or .json, or choose another with --column")
        return {}
    if ending.endswith("json"):
        value = json.loads(data)
        value = value if isinstance(value, dict) else {"tokens": value}
        found = {name: json_value(request, name, item) for name, item in value.items()
                 if is_wanted(request, name)}
        return {name: item for name, item in found.items() if item is not None}
    return {"text": data.decode("utf-8-sig")} if ending in ("txt", "text") else {}


def json_value(request, name, value):
    """Ids or a text. A null is an empty one; None for other values that were not requested."""
    if value is None:
        value = [] if name in USUAL_IDS else "" if name in (request["column"], "text") else None
    if isinstance(value, list):
        return numbers(request, name, value)
    return value if isinstance(value, str) else foreign(request, name, type(value).__name__)


def read_tfrecord(request):
    """Framed records, each a tf.train.Example."""
    crc32c, example_pb2 = need("crc32c"), need("tfrecord", "tfrecord.example_pb2")
    path = request["path"]
    total = os.path.getsize(path)

    def check(data, packed, number):
        crc = crc32c.crc32c(data)
        if ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF != struct.unpack("<I", packed)[0]:
            raise Refused("corrupt", f"{path}: row {number}: its checksum is another")

    def records(file):
        raw, number = getattr(file, "fileobj", None) or file, 0
        while head := file.read(12):
            if len(head) < 12:
                raise Refused("corrupt", f"{path}: it ends in the middle of row {number}")
            check(head[:8], head[8:], number)
            (length,) = struct.unpack("<Q", head[:8])
            data = file.read(length + 4)
            if len(data) != length + 4:
                raise Refused("corrupt", f"{path}: it ends in the middle of row {number}")
            check(data[:length], data[length:], number)
            yield example_row(request, example_pb2, data[:length]), raw.tell()
            number += 1

    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        yield from batched(records(file), total)


def example_row(request, example_pb2, data):
    example, row = example_pb2.Example.FromString(data), {}
    for name, feature in example.features.feature.items():
        if not is_wanted(request, name):
            continue
        if feature.HasField("int64_list"):
            row[name] = numpy.array(feature.int64_list.value, "i8")
        elif feature.HasField("bytes_list") and feature.bytes_list.value:
            data = feature.bytes_list.value[0]
            if request.get("dtype") and name != "text":
                row[name] = numpy.frombuffer(data, DTYPES[request["dtype"]])
            elif name in USUAL_IDS and name != request["column"]:
                row[name] = foreign(request, name, "bytes")
            else:
                row[name] = data.decode()
        elif feature.HasField("float_list"):
            value = numpy.array(feature.float_list.value, "f4")
            row[name] = value if is_mask(request, name) else foreign(request, name, "list<float>")
    return {name: value for name, value in row.items() if value is not None}


def read_arrayrecord(request):
    """Records that are a tf.train.Example each, or bare ids where --dtype says how wide."""
    module = need("array_record", "array_record.python.array_record_module")
    reader = module.ArrayRecordReader(request["path"])
    total, dtype = reader.num_records(), request.get("dtype")
    example_pb2 = None if dtype else need("tfrecord", "tfrecord.example_pb2")

    def rows():
        for at in range(0, total, 1024):
            records = reader.read(list(range(at, min(at + 1024, total))))
            for i, data in enumerate(records):
                if dtype:
                    yield {"tokens": numpy.frombuffer(data, DTYPES[dtype])}, at + i + 1
                else:
                    yield example_row(request, example_pb2, data), at + i + 1

    try:
        yield from batched(rows(), total)
    finally:
        reader.close()


# ---- text --------------------------------------------------------------------------------------

EXIT_NO_PACKAGE, EXIT_CORRUPT = 3, 4


def decompress():
    """stdin to stdout; returns the exit status."""
    try:
        for piece in zstd_pieces(sys.stdin.buffer):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    except Refused as refused:
        if refused.name == "resource":
            return EXIT_NO_PACKAGE
        print(refused, file=sys.stderr)
        return EXIT_CORRUPT
    except BrokenPipeError:  # the parent has enough
        os._exit(0)
    return 0


READERS = {
    "parquet": read_parquet,
    "arrow": read_arrow,
    "lance": read_lance,
    "levanter": read_levanter,
    "mds": read_mds,
    "litdata": read_litdata,
    "hdf5": read_hdf5,
    "tar": read_tar,
    "tfrecord": read_tfrecord,
    "arrayrecord": read_arrayrecord,
}
