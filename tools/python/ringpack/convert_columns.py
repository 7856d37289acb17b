# SPDX-License-Identifier: Apache-2.0
"""From columns to documents, for `ringpack convert`: which column, what its masks say, and what is
refused by file and row. Rows count from 0.

A column of ids is (lengths, ids): the length of every row, and the ids of all rows behind each
other. A column of text is a list of strings.
"""

import sys

import numpy

USUAL_IDS = ("input_ids", "tokens")
MASKS = ("loss_mask", "completion_mask", "assistant_masks")
BESIDE = ("attention_mask", "labels", *MASKS)
NEVER = ("token_type_ids", "position_ids", "special_tokens_mask", "word_ids")
IDS_END = 2**31
DTYPES = {"u16": "<u2", "u32": "<u4", "i32": "<i4", "i64": "<i8"}
BATCH_BYTES = 16 << 20  # of a table, about


class Refused(Exception):
    """What cannot be done: an error by name, what is wrong, and what to do."""

    def __init__(self, name, message, hint=""):
        super().__init__(message)
        self.name, self.hint = name, hint


def need(package, name=None):
    """Import a package that few users need."""
    try:
        return __import__(name or package, fromlist=["_"])
    except ImportError as error:
        print(error, file=sys.stderr)
        raise Refused(
            "resource",
            f"the Python package `{package}` is not there",
            f"`pip install {package}`, or set RINGPACK_PYTHON to a Python that has it",
        ) from None


def is_wanted(request, name):
    """Whether a column may be looked at: one that is named excludes others, but not its masks."""
    column = request["column"]
    if name in BESIDE:
        return name == "attention_mask" or name == column or not request["drop_labels"]
    return name == column if column else name not in NEVER


class Unusable:
    """A column that cannot be converted because of one row: refused when it is looked at."""

    def __init__(self, row, found):
        self.row, self.found = row, found


def from_rows(rows):
    """Columns of rows: dicts of names to arrays or strings."""
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        missing = next((i for i, value in enumerate(values) if value is None), None)
        if missing is not None and name in BESIDE:  # as if it left nothing out
            columns[name] = sparse_column(rows, name)
        elif missing is not None:
            columns[name] = Unusable(missing, "none")
        elif isinstance(values[0], str):
            columns[name] = values
        else:
            lengths = numpy.array([len(value) for value in values], "i8")
            columns[name] = lengths, numpy.concatenate(values)
    return columns


def batched(rows, total_bytes=0):
    """Tables of rows: dicts of names to arrays of ids or strings, each with the bytes done."""
    gathered, size = [], 0
    for row, done in rows:
        gathered.append(row)
        size += sum(getattr(value, "nbytes", len(value)) for value in row.values())
        if size >= BATCH_BYTES or len(gathered) == 8192:
            yield min(1, done / total_bytes) if total_bytes else 0, from_rows(gathered)
            gathered, size = [], 0
    if gathered:
        yield 1, from_rows(gathered)


def sparse_column(rows, name):
    ids = next(key for key in (*USUAL_IDS, *rows[0]) if key in rows[0])
    values = [row.get(name, row[ids] if name == "labels" else numpy.ones(len(row[ids]), "i8"))
              for row in rows]
    return numpy.array([len(value) for value in values], "i8"), numpy.concatenate(values)


def choose(request, columns):
    """The name of the column of documents."""
    path, wanted = request["path"], request["column"]
    if wanted:
        if wanted in columns:
            return wanted
        raise Refused("format", f"{path}: column `{wanted}`: expected lists of integers or text, "
                                "found none", "give another --column")
    for name in USUAL_IDS:
        if name in columns:
            return name
    ids = [name for name, column in columns.items()
           if isinstance(column, tuple) and name not in BESIDE]
    if len(ids) == 1:
        return ids[0]
    if not ids and "text" in columns:
        return "text"
    names = ", ".join(f"`{name}`" for name in (ids or columns)) or "none"
    raise Refused("format", f"{path}: which column has the documents is not clear: found {names}",
                  "give --column NAME")


def fail_row(table, row, message, hint="", name="format"):
    raise Refused(name, f"{table.path}: row {table.first_row + row}: {message}", hint)


class Table:
    """Some rows of a file."""

    def __init__(self, request, columns, first_row):
        self.request, self.columns, self.first_row = request, columns, first_row
        self.path = request["path"]

    def column(self, name):
        """The lengths and the ids of a column, or its texts."""
        column = self.columns[name]
        if not isinstance(column, (list, tuple)):
            fail_row(self, column.row, f"`{name}`: expected integers or text, found {column.found}")
        return column

    def ids(self, name):
        lengths, ids = self.column(name)
        self.check_ids(name, lengths, ids)
        if "attention_mask" in self.columns and name != "attention_mask":
            kept = self.check_padding(name, lengths)
            if kept is not None:
                lengths, ids = numpy.add.reduceat(
                    numpy.append(kept, False).astype("i8"), starts_of(lengths)
                ) * (lengths > 0), ids[kept]
        else:
            kept = None
        if not self.request["drop_labels"]:
            self.check_labels(name, lengths, ids, kept)
        return lengths, ids

    def check_ids(self, name, lengths, ids):
        if ids.dtype.kind not in "iub":
            fail_row(self, 0, f"`{name}`: expected integers, found {ids.dtype}")
        if not len(ids) or (ids.min() >= 0 and ids.max() < IDS_END):
            return
        place = int(((ids < 0) | (ids >= IDS_END)).argmax())
        fail_row(self, row_of(lengths, place), f"`{name}`: expected token ids from 0 to "
                 f"{IDS_END - 1}, found {ids[place]}", name="vocabulary")

    def check_padding(self, name, lengths):
        """Which ids the attention mask keeps; None if all. Padding is behind the tokens only."""
        mask_lengths, mask = self.column("attention_mask")
        self.check_lengths("attention_mask", mask_lengths, name, lengths)
        kept = mask != 0
        if kept.all():
            return None
        starts = starts_of(lengths)
        sums = numpy.concatenate(([0], kept.cumsum()))
        ones = numpy.repeat(sums[starts + lengths] - sums[starts], lengths)
        places = numpy.arange(len(mask)) - numpy.repeat(starts, lengths)
        wrong = kept != (places < ones)
        if wrong.any():
            fail_row(self, row_of(lengths, int(wrong.argmax())),
                     "`attention_mask`: expected ones and then zeros, found a hole",
                     "write the rows anew without padding, or with padding behind the tokens")
        return kept

    def check_lengths(self, beside, found, name, expected):
        if len(found) != len(expected) or (found != expected).any():
            row = int((found != expected).argmax()) if len(found) == len(expected) else 0
            fail_row(self, row, f"`{beside}`: expected as many as `{name}` has, {expected[row]}, "
                     f"found {found[row]}")

    def check_labels(self, name, lengths, ids, kept):
        """What is written has ids alone: labels that leave tokens out of the loss would be lost."""
        full = self.columns[name][0]
        for beside in ("labels", *MASKS):
            if beside not in self.columns or beside == name:
                continue
            found_lengths, found = self.column(beside)
            self.check_lengths(beside, found_lengths, name, full)
            found = found if kept is None else found[kept]
            wrong = found != ids if beside == "labels" else found == 0
            if not wrong.any():
                continue
            place = int(wrong.argmax())
            row = row_of(lengths, place)
            if beside == "labels" and found[place] != -100:
                fail_row(self, row, f"`labels`: expected the ids or -100, found {found[place]} "
                         f"where the id is {ids[place]}", "give --drop-labels to convert the ids "
                         "alone")
            fail_row(self, row, f"`{beside}` leaves tokens out of the loss: expected ids alone, "
                     "for nothing else is kept",
                     "give --drop-labels if every token is to be trained on")


def starts_of(lengths):
    return numpy.concatenate(([0], lengths.cumsum()[:-1])).astype("i8") if len(lengths) else lengths


def row_of(lengths, place):
    return int(numpy.searchsorted(lengths.cumsum(), place, side="right"))
