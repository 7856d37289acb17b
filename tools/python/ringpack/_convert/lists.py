# SPDX-License-Identifier: Apache-2.0
"""Values of side columns: lists with one for each token of a document, rows of a table or lines of
JSON, for `ringpack column`; the same and numbers of documents, of tables, for `ringpack convert`.
"""

import json
import struct

import numpy

from .archives import lines_of
from .columns import Refused, need

# The end of the output: magic, whether it is refused, dtype and number of the values of a token,
# tokens, documents.
TAIL = struct.Struct("<4sI8sIIQQ")
# Head of a side column in a frame: dtype, values of an entry, whether each id has an entry.
SIDE = struct.Struct("<8sII")
TYPES = {"u8": "|u1", "i8": "|i1", "u16": "<u2", "i16": "<i2", "i32": "<i4", "i64": "<i8",
         "f16": "<f2", "f32": "<f4", "f64": "<f8"}


def fail_row(request, row, message, hint="mend it, and type the same command again"):
    """`row` is one of the array; `of_numbers`: rows before it; `rows`: its rows, if some are left
    out."""
    row = request["of_numbers"] + (int(request["rows"][row]) if "rows" in request else int(row))
    raise Refused("format", f"{request['path']}: row {row}: `{request['column']}`: {message}", hint,
                  of_row=True)


def number_column(request, pyarrow, array):
    """A column of one number a row, for `ringpack annotate`."""
    kinds = pyarrow.types
    if not (kinds.is_integer(array.type) or kinds.is_floating(array.type)
            or kinds.is_boolean(array.type)):
        raise Refused("format", f"{request['path']}: column `{request['column']}`: expected "
                                f"numbers, found {array.type}",
                      "write numbers: for texts, a number for each distinct one")
    if array.null_count:
        fail_row(request, array.is_null().to_numpy(zero_copy_only=False).argmax(),
                 "expected a number, found null", "write a number in its place, such as -1")
    if kinds.is_boolean(array.type):
        array = array.cast("uint8")
    return array.to_numpy(zero_copy_only=False)


def is_of_lists(pyarrow, array):
    kinds = pyarrow.types
    lists = (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)
    return any(is_kind(array.type) for is_kind in lists)


def list_column(request, pyarrow, array):
    """(lengths, values) of a column of lists."""
    kinds, compute = pyarrow.types, need("pyarrow", "pyarrow.compute")
    if not is_of_lists(pyarrow, array):
        fail_row(request, 0, f"expected lists of numbers, found {array.type}",
                 "a number of each document is a column of the index: `ringpack annotate`")
    lengths = compute.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    lengths, values, count = lengths.astype("i8"), array.flatten(), 1
    if is_of_lists(pyarrow, values):
        counts = compute.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
        count = int(counts[0]) if len(counts) else 1
        wrong = numpy.flatnonzero(counts != count)
        if len(wrong):
            fail_row(request, row_of(lengths, wrong[0]),
                     f"expected {count} values of each token, found {counts[wrong[0]]}")
        values = values.flatten()
    if values.null_count:
        place = values.is_null().to_numpy(zero_copy_only=False).argmax() // count
        fail_row(request, row_of(lengths, place), "expected numbers, found null")
    if kinds.is_boolean(values.type):
        values = values.cast("uint8")
    if not kinds.is_integer(values.type) and not kinds.is_floating(values.type):
        fail_row(request, 0, f"expected lists of numbers, found {array.type}")
    found = values.to_numpy(zero_copy_only=False)
    return lengths, found.reshape(-1, count) if count > 1 else found


def row_of(lengths, place):
    return int(numpy.searchsorted(lengths.cumsum(), place, side="right"))


def read_lines(request):
    """Tables of lines of JSON, without empty lists, which `convert` leaves out."""
    path, wanted = request["path"], request["column"]
    for number, line in enumerate(lines_of(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise Refused("format", f"{path}:{number}: expected JSON: {error}",
                          "mend it, or take it out") from None
        found = row.get(wanted) if isinstance(row, dict) else None
        if found == []:
            continue
        try:
            values = numpy.array(found)
        except ValueError:  # several lengths
            values = numpy.array(None)
        if values.ndim not in (1, 2) or values.dtype.kind not in "iufb":
            raise Refused("format", f"{path}:{number}: `{wanted}`: expected a list of numbers, "
                                    "or of lists of one length",
                          "give a value, or as many, for each token")
        yield 0, {wanted: (numpy.array([len(values)]), values)}


def typed(values, dtype):
    """The same numbers as another type, and the first entry that it does not hold: as an integer,
    or because it is too large. Real numbers are rounded to a narrower type."""
    with numpy.errstate(all="ignore"):
        made = values.astype(dtype)
    wrong = made != values
    if made.dtype.kind == "f" and (values.dtype.kind == "f" or made.dtype.itemsize < 4):
        wrong = numpy.isinf(made) & numpy.isfinite(values)
    if not wrong.any():
        return made, None, ""
    place = numpy.argwhere(wrong)[0]
    return made, place[0], f"{made.dtype} does not hold {values[tuple(place)]}"


def pack_sides(table, lengths, rows=None, kept=None):
    """The side columns of a frame; `lengths`: ids of its documents. `rows` of the table have made
    them (None: all); `kept`: their ids without padding."""
    packed = []
    for side, array in zip(table.request.get("sides", ()), table.sides):
        pyarrow, lengths = need("pyarrow"), numpy.asarray(lengths, "i8")
        request = {"path": table.path, "column": side["field"], "of_numbers": table.first_row}
        if rows is not None:
            array, request["rows"] = array.take(pyarrow.array(rows, pyarrow.int64())), rows
        is_list = is_of_lists(pyarrow, array)
        own, values = (list_column(request, pyarrow, array) if is_list
                       else (None, number_column(request, pyarrow, array)))
        if is_list and (own != lengths).any():
            row = (own != lengths).argmax()
            fail_row(request, row, f"expected {lengths[row]} values, as the document has ids, "
                                   f"found {own[row]}")
        if side["type"]:
            values, wrong, message = typed(values, TYPES[side["type"]])
            if wrong is not None:
                fail_row(request, row_of(own, wrong) if is_list else wrong, message,
                         "choose a type that does: `--side-column NAME=FIELD:TYPE`")
        values = values if kept is None or not is_list else values[kept]
        packed += [SIDE.pack(values.dtype.newbyteorder("<").str.encode(),
                             values.shape[1] if values.ndim == 2 else 1, is_list),
                   numpy.ascontiguousarray(values).tobytes()]
    return packed


def write_lists(request, tables, dtype, sink):
    """Values as they come, then the length of each list, then TAIL."""
    lengths, first = [], None
    for _, columns in tables:
        own, values = columns[request["column"]]
        if dtype is not None:
            values, wrong, message = typed(values, dtype)
            if wrong is not None:
                raise Refused("format", f"{request['path']}: `{request['column']}`: {message}",
                              "choose a type that does: --type")
        first = values[:0] if first is None else first
        if values.shape[1:] != first.shape[1:] or values.dtype != first.dtype:
            raise Refused("format", f"{request['path']}: `{request['column']}`: expected "
                                    f"{first.shape[1:] or 1} values of {first.dtype} for each "
                                    f"token, found {values.shape[1:] or 1} of {values.dtype}",
                          "one type and one width for all of them: --type")
        sink.write(numpy.ascontiguousarray(values).tobytes())
        lengths.append(own)
    all_lengths = numpy.concatenate([*lengths, numpy.empty(0, "i8")]).astype("<i8")
    sink.write(all_lengths.tobytes())
    first = numpy.empty(0, dtype or "<f4") if first is None else first
    count = first.shape[1] if first.ndim == 2 else 1
    sink.write(TAIL.pack(b"RPCL", 0, first.dtype.newbyteorder("<").str.encode(), count, 0,
                         int(all_lengths.sum()), len(all_lengths)))


def refused_lists(message, hint):
    texts = b"".join(text.replace("\0", " ").encode()[:2000] + b"\0" for text in (message, hint))
    return texts + TAIL.pack(b"RPCL", 1, b"", 0, 0, len(texts), 0)


def answer_lists(readers, sink, form, path, column, dtype):
    request = {"path": path, "form": form, "column": column, "mask": "none", "begin": 0, "end": 0,
               "of_numbers": 0, "of_lists": True}
    wanted = TYPES[dtype] if dtype else "<f4" if form == "jsonl" else None
    try:
        tables = read_lines(request) if form == "jsonl" else readers[form](request)
        write_lists(request, tables, wanted, sink)
    except Refused as refused:
        sink.write(refused_lists(str(refused), refused.hint))
    except Exception as error:  # whatever a library does not like
        what = str(error).strip().split("\n")[0][:500] or type(error).__name__
        sink.write(refused_lists(f"{path}: `{form}`: cannot be read: {what}",
                                 "is it whole, and of this form?"))
    sink.flush()
    return 0
