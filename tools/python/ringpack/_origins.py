# SPDX-License-Identifier: Apache-2.0
"""The documents of a batch: their places in the original data set, and the engine's explanation."""

from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from ._arguments import FilePath
from .errors import RingpackError

if TYPE_CHECKING:
    from .batch import Batch


class Document(NamedTuple):
    """A part of a document in a row of a batch, and its origin."""

    source: int  # index in `sources`
    document: int  # number within the source
    offset: int  # first token of the part, in the document
    length: int  # in tokens
    file: str
    row: int  # row of the file: ds[row] of a table; else the number of the document


def _of_another_run(what: str) -> RingpackError:
    return RingpackError(what, "give the config, or a checkpoint, of this run: explain(config)")


def documents_of(batch: "Batch") -> list[list[Document]]:
    """See Batch.documents."""
    import numpy

    parts = batch.view("provenance", flat=False, kind="numpy")
    fragments = batch.view("rows", kind="numpy")["fragments"]
    assert batch._lease is not None
    used = numpy.concatenate([row[:count] for row, count in zip(parts, fragments)])
    places = iter(batch._lease.client.locate(used))
    return [
        [
            Document(source, document, offset, length, *next(places))
            for document, offset, source, length in row[:count].tolist()
        ]
        for row, count in zip(parts, fragments)
    ]


def explain(
    batch: "Batch", config: Optional[FilePath], program: Optional[FilePath]
) -> list[dict[str, Any]]:
    """See Batch.explain."""
    rows = batch.view("rows", kind="numpy")
    ids = batch.ring("input_ids")
    places = {int(row["row"]): place for place, row in enumerate(rows) if row["fragments"]}
    if not places:
        return []  # padding after the end of the stream
    has_parts = "provenance" in batch._form.sections
    parts = batch.view("provenance", flat=False, kind="numpy") if has_parts else None
    assert batch._lease is not None
    told = batch._lease.client.explain(min(places), max(places), config, program)
    records = []
    for row in told:
        of_row = {key: row[key] for key in ("row", "step", "micro_batch", "rank")}
        info, tokens = rows[places[row["row"]]], ids[places[row["row"]]]
        if (row["tokens"], len(row["fragments"])) != (info["tokens"], info["fragments"]):
            raise _of_another_run(
                f"row {row['row']} has {info['fragments']} fragments and {info['tokens']} "
                f"tokens, and by {config or 'the config of the engine'} "
                f"{len(row['fragments'])} and {row['tokens']}"
            )
        for part in row["fragments"]:
            end = part["place"] + part["tokens"]
            own = tokens[part["place"] : end].tolist()
            is_same = part["ids"] in (None, own)  # None: an object in a store
            if parts is not None:
                names = ("document", "offset", "source_number", "tokens")
                place = parts[places[row["row"]]][part["fragment"]]
                is_same = is_same and place.item() == tuple(part[name] for name in names)
            if not is_same:
                raise _of_another_run(
                    f"row {row['row']} does not have document {part['document']} of source "
                    f"{part['source']} at token {part['place']}, where it is by "
                    f"{config or 'the config of the engine'}"
                )
            records.append({**of_row, **part, "ids": own})
    return records
