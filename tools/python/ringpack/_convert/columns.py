# SPDX-License-Identifier: Apache-2.0
"""From columns to documents, for `ringpack convert`: the choice of the column and of its trained
ids, and refusals by file and row. Rows count from 0.

A column of ids is (lengths, ids): the length of every row, and the ids of all rows, one after
another. A column of text is a list of strings, and a column of chats a list of lists of messages.
"""

import sys

import numpy

USUAL_IDS = ("input_ids", "tokens")
MASKS = ("completion_mask", "assistant_masks", "loss_mask")
BESIDE = ("attention_mask", "labels", *MASKS)
BESIDE_CHATS = ("tools", "chat_template_kwargs")
NEVER = ("token_type_ids", "position_ids", "special_tokens_mask", "word_ids")
IDS_END = 2**31
DTYPES = {"u16": "<u2", "u32": "<u4", "i32": "<i4", "i64": "<i8"}
BATCH_BYTES = 16 << 20  # in a table, about
SIDES = None  # in a table, in the place of a name: the arrays of its side columns


class Refused(Exception):
    """A refusal: the name of its error, the fault, and the next step. The refusal of a row does not
    concern other rows of the file."""

    def __init__(self, name, message, hint="", of_row=False):
        super().__init__(message)
        self.name, self.hint, self.of_row = name, hint, of_row


def need(package, name=None):
    """Import a package that few users need."""
    try:
        return __import__(name or package, fromlist=["_"])
    except ImportError as error:
        print(error, file=sys.stderr)
        raise Refused(
            "resource",
            f"the Python package `{package}` is not installed",
            f"`pip install {package}`, or set RINGPACK_PYTHON to a Python that has it",
        ) from None


def is_wanted(request, name):
    """Whether a column may be read: one that is named excludes others, but not its masks."""
    column, mask = request["column"], request["mask"]
    if name == "attention_mask" or name == mask or name in BESIDE_CHATS:
        return True
    if name in BESIDE:
        return name == column or mask in (None, "auto")
    if column or name in USUAL_IDS:
        return name == column or not column
    return name not in NEVER and all(name != side["field"] for side in request.get("sides", ()))


class Unusable:
    """A column that cannot be converted because of one row: refused when it is read. `again` makes
    a column of some of its rows."""

    def __init__(self, row, found, count, again):
        self.row, self.found, self.count, self.again = row, found, count, again

    def __len__(self):
        return self.count


class Foreign:
    """A column of a type that is neither ids nor text: refused when it is read."""

    def __init__(self, found):
        self.found = found


class Messages(list):
    """A column of chats: of each row its messages, dicts with a role and a content; or None."""


class Wrong:
    """A value that is neither ids nor text."""

    nbytes = 0

    def __init__(self, found):
        self.found = found


def is_mask(request, name):
    return name in BESIDE or name == request["mask"]


def numbers(request, name, value):
    """An array of ids, or of entries of a mask (maybe real numbers); else the name of its kind."""
    if isinstance(value, list) and (not value or isinstance(value[0], (list, dict, str))):
        return Wrong(f"list<{type(value[0]).__name__}>") if value else numpy.empty(0, "i8")
    try:
        array = numpy.asarray(value)
    except ValueError:  # several lengths
        return Wrong("lists within lists")
    if array.size != max(array.shape, default=1) and array.size:
        return Wrong(f"an array of shape {list(array.shape)}")
    if array.dtype.kind in "iub" or (array.dtype.kind == "f" and is_mask(request, name)):
        return array.ravel()
    kinds = {"O": "mixed values", "U": "str"}
    return Wrong(f"list<{kinds.get(array.dtype.kind, array.dtype)}>")


def foreign(request, name, found):
    """The replacement of a value that is neither ids nor text; None if not requested."""
    named = name in USUAL_IDS or name == request["column"] or is_mask(request, name)
    return Wrong(found) if named else None


def from_rows(rows):
    """Columns of rows: dicts of names to arrays, strings or Wrong."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: column_of(rows, name) for name in names}


def column_of(rows, name):
    values = [row.get(name) for row in rows]
    kind = str if any(isinstance(value, str) for value in values) else numpy.ndarray
    missing = any(value is None for value in values)
    if missing and name in BESIDE and kind is not str:  # those rows are trained whole
        values = filled(rows, name)
    wrong = next((i for i, value in enumerate(values) if not isinstance(value, kind)), None)
    if wrong is not None:
        found = values[wrong]
        found = "none" if found is None else getattr(found, "found", "list")
        return Unusable(wrong, found, len(rows),
                        lambda begin, end: column_of(rows[begin:end], name))
    if kind is str:
        return values
    return numpy.array([len(value) for value in values], "i8"), numpy.concatenate(values)


def batched(rows, total_bytes=0):
    """Tables of rows: dicts of names to arrays of ids or strings, each with the bytes done."""
    gathered, size = [], 0
    for row, done in rows:
        gathered.append(row)
        size += sum(len(value) if isinstance(value, str) else value.nbytes
                    for value in row.values())
        if size >= BATCH_BYTES or len(gathered) == 8192:
            yield min(1, done / total_bytes) if total_bytes else 0, from_rows(gathered)
            gathered, size = [], 0
    if gathered:
        yield 1, from_rows(gathered)


def filled(rows, name):
    """The entries of a mask, where some rows have none."""
    ids = next(key for key in (*USUAL_IDS, *rows[0]) if key in rows[0])

    def entries(row):
        if not isinstance(row.get(ids), numpy.ndarray):
            return None
        return row[ids] if name == "labels" else numpy.ones(len(row[ids]), "i8")

    return [row[name] if name in row else entries(row) for row in rows]


def kind_of(column):
    """The kind of a column without ids, for messages; None if it may have ids."""
    if isinstance(column, Messages):
        return "lists of messages"
    return "text" if isinstance(column, list) else getattr(column, "found", None)


def choose(request, columns):
    """The name of the column of documents. One that is named as ids are is never text, unless
    --column says so."""
    path, wanted = request["path"], request["column"]
    if wanted:
        if wanted in columns and not isinstance(columns[wanted], Foreign):
            return wanted
        found = columns[wanted].found if wanted in columns else "no such column"
        raise Refused("format", f"{path}: column `{wanted}`: expected lists of integers or text, "
                                f"found {found}", "give another --column")
    for name in USUAL_IDS:
        found = kind_of(columns.get(name))
        if found and not isinstance(columns[name], Unusable):
            raise Refused("format", f"{path}: column `{name}`: expected lists of integers, found "
                                    f"{found}",
                          f"text becomes tokens with --column {name} --tokenizer FOLDER"
                          if isinstance(columns[name], list) else
                          "write the ids as lists of integers, or name another --column")
        if name in columns:
            return name
    if "text" not in columns and isinstance(columns.get("prompt"), list) and (
        isinstance(columns.get("completion"), list)
    ):
        return "prompt"
    if "text" not in columns and isinstance(columns.get("messages"), Messages):
        return "messages"
    if "text" not in columns and all(isinstance(columns.get(key), list)
                                     for key in ("chosen", "rejected")):
        return "chosen"
    ids = [name for name, column in columns.items()
           if isinstance(column, tuple) and name not in (*BESIDE, request["mask"])]
    if len(ids) == 1:
        return ids[0]
    if not ids and "text" in columns:
        return "text"
    names = ", ".join(f"`{name}`" + (f" ({kind_of(columns[name])})" if kind_of(columns[name])
                                     else "") for name in (ids or columns)) or "none"
    raise Refused("format", f"{path}: which column has the documents is not clear: found {names}",
                  "give --column NAME")


def fail_row(table, row, message, hint="", name="format"):
    raise Refused(name, f"{table.path}: row {table.first_row + row}: {message}", hint, of_row=True)


class Table:
    """Some rows of a file."""

    def __init__(self, request, columns, first_row):
        self.request, self.columns, self.first_row = request, columns, first_row
        self.sides = columns.pop(SIDES, ())
        self.path = request["path"]

    def rows(self, name):
        column = self.columns[name]
        return len(column[0] if isinstance(column, tuple) else column)

    def part(self, begin, end):
        """Some of its rows."""
        columns = {name: part_of(column, begin, end) for name, column in self.columns.items()}
        columns[SIDES] = [array.slice(begin, end - begin) for array in self.sides]
        return Table(self.request, columns, self.first_row + begin)

    def column(self, name):
        """The lengths and the ids of a column, or its texts."""
        column = self.columns[name]
        if isinstance(column, Foreign):
            raise Refused("format", f"{self.path}: column `{name}`: expected lists of integers, "
                                    f"found {column.found}",
                          "write it again, or leave masks out with --mask none")
        if isinstance(column, Unusable):
            hint = "--dtype says how wide an id is" if column.found == "bytes" else ""
            fail_row(self, column.row, f"`{name}`: expected integers or text, found {column.found}",
                     hint)
        return column

    def ids(self, name):
        """Lengths, ids, and the runs of trained ids (None where the table has no mask); and the
        lengths with padding, and which ids are none (None: all)."""
        whole, ids = self.column(name)
        lengths = whole
        self.check_ids(name, lengths, ids)
        kept = None
        if "attention_mask" in self.columns and name != "attention_mask":
            kept = self.check_padding(name, lengths)
        if kept is not None:
            lengths, ids = numpy.add.reduceat(
                numpy.append(kept, False).astype("i8"), starts_of(lengths)
            ) * (lengths > 0), ids[kept]
        mask = self.choose_mask(name)
        return (lengths, ids, mask and self.runs(mask, name, lengths, ids, kept)), whole, kept

    def check_ids(self, name, lengths, ids):
        if ids.dtype.kind not in "iub":
            fail_row(self, 0, f"`{name}`: expected integers, found {ids.dtype}")
        if not len(ids) or (ids.min() >= 0 and ids.max() < IDS_END):
            return
        place = int(((ids < 0) | (ids >= IDS_END)).argmax())
        fail_row(self, row_of(lengths, place), f"`{name}`: expected token ids from 0 to "
                 f"{IDS_END - 1}, found {ids[place]}", name="vocabulary")

    def check_padding(self, name, lengths):
        """Which ids the attention mask keeps; None if all. Padding is after the tokens only."""
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
                     "write the rows again without padding, or with padding after the tokens")
        return kept

    def check_lengths(self, beside, found, name, expected):
        if len(found) != len(expected) or (found != expected).any():
            row = int((found != expected).argmax()) if len(found) == len(expected) else 0
            fail_row(self, row, f"`{beside}`: expected as many as `{name}` has, {expected[row]}, "
                     f"found {found[row]}")

    def choose_mask(self, name):
        """The column that marks trained ids; None: the file has none, or none is wanted."""
        wanted = self.request["mask"]
        if wanted == "none":
            return None
        if wanted not in (None, "auto"):
            if wanted not in self.columns:
                raise Refused("format", f"{self.path}: mask `{wanted}`: expected lists of integers "
                                        "of that name, found none",
                              "name another with --mask, or train every token with --mask none")
            return wanted
        if "labels" in self.columns and name != "labels":  # labels have all masks in them
            return "labels"
        found = [mask for mask in MASKS if mask in self.columns and mask != name]
        if len(found) > 1:
            raise Refused("format", f"{self.path}: there are `{found[0]}` and `{found[1]}`",
                          "name the one to train by: --mask")
        return found[0] if found else None

    def runs(self, mask, name, lengths, ids, kept):
        """(name of the mask, runs in each row, begin and end of each run)."""
        found_lengths, entries = self.column(mask)
        self.check_lengths(mask, found_lengths, name, self.columns[name][0])
        entries = entries if kept is None else entries[kept]
        first, last = row_edges(lengths, len(ids))
        if self.request["mask_of"] == "next":  # entry i is about id i + 1, none about a first id
            entries = numpy.concatenate((entries[:1], entries[:-1]))
        else:
            first = numpy.zeros(len(ids), bool)
        if mask.endswith(("label", "labels")):
            trained = entries == ids
            self.check_labels(mask, lengths, ids, entries, trained | first)
        else:
            trained = (entries != 0) != (self.request["mask_value"] == "ignore")
        return mask, *runs_of(trained & ~first, lengths, last)

    def check_labels(self, mask, lengths, ids, labels, fine):
        wrong = ~fine & (labels != -100)
        if not wrong.any():
            return
        place = int(wrong.argmax())
        row = row_of(lengths, place)
        token = place - int(lengths[:row].sum())
        shift = self.request["mask_of"] == "next"
        fail_row(self, row, f"`{mask}`: expected {ids[place]} or -100 for label {token - shift}, "
                 f"found {labels[place]}",
                 "a label is the token's own id or -100, not shifted; --mask-of next is for labels "
                 "of the next token, and --mask none trains every token")


def part_of(column, begin, end):
    if isinstance(column, tuple):
        ends = numpy.concatenate(([0], column[0].cumsum()))
        return column[0][begin:end], column[1][ends[begin] : ends[end]]
    if isinstance(column, list):
        return type(column)(column[begin:end])
    return column.again(begin, end) if isinstance(column, Unusable) else column


def row_edges(lengths, count):
    """Whether an id is the first, and the last, of its row."""
    first, last = numpy.zeros(count + 1, bool), numpy.zeros(count + 1, bool)
    starts = starts_of(lengths)[lengths > 0]
    first[starts] = True
    last[starts - 1] = True  # and the place after all
    last[count - 1] = count > 0
    return first[:count], last[:count]


def runs_of(trained, lengths, last):
    """Runs in each row; begin and end of each run, counted from the first id of its row."""
    if not len(trained):
        return numpy.zeros(len(lengths), "i8"), numpy.empty((0, 2), "i8")
    follows = numpy.concatenate(([False], trained[:-1] & ~last[:-1]))
    begins = numpy.flatnonzero(trained & ~follows)
    goes_on = numpy.concatenate((trained[1:] & ~last[:-1], [False]))
    ends = numpy.flatnonzero(trained & ~goes_on) + 1
    rows = numpy.searchsorted(lengths.cumsum(), begins, side="right")
    pairs = numpy.stack((begins, ends), axis=1) - starts_of(lengths)[rows][:, None]
    return numpy.bincount(rows, minlength=len(lengths)), pairs


def starts_of(lengths):
    return numpy.concatenate(([0], lengths.cumsum()[:-1])).astype("i8") if len(lengths) else lengths


def row_of(lengths, place):
    return int(numpy.searchsorted(lengths.cumsum(), place, side="right"))
