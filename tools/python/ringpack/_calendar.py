# SPDX-License-Identifier: Apache-2.0
"""The calendar of a stream, as its contract has it (engine/plan/STREAM2.md section 14)."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, SupportsIndex, Union

from ._arguments import whole
from ._token import epochs_of, next_row_of
from .errors import UsageError

if TYPE_CHECKING:
    from ._options import SkipOptions

Range = Union[SupportsIndex, str, tuple[SupportsIndex, SupportsIndex]]
"""A number, "FIRST-END" without END, or the pair (FIRST, END)."""
_LINE = re.compile(r"(\S+?)([=~:])(.*)")
_BOUNDARY = re.compile(r"(stage|record)\[\d+\]\.")
_LIMIT = re.compile(r"(max_epochs|max_tokens|on_exhausted)\[(\d+)\]")
_NO_LIMITS = {"max_epochs": "0", "max_tokens": "0", "on_exhausted": "continue"}
_ESCAPED = re.compile(r"\\([0-9a-f]{2})")


class Ends(NamedTuple):
    """Where a stream may end."""

    epochs: int  # num_epochs, in version 2 the greatest of the sources of the last stage; 0: none
    last: Optional[int] = None  # without: an earlier stage may still end it, before this row


class _Stage(NamedTuple):
    """What may end a stream from a row on: epochs as in Ends; None: not in the contract."""

    row: int
    settled: int  # row at which the ramp that is in force here is over, or `row`
    epochs: Optional[int]
    epochs_in_ramp: Optional[int]  # or of the weights before it


class Calendar:
    """Facts of a contract."""

    def __init__(self, contract: str):
        lines = (_LINE.fullmatch(line) for line in contract.splitlines())
        self._fields = {line[1]: line[3] for line in lines if line}
        self._steps = self._all_steps()

    def _all(self, form: str) -> list[str]:
        """Values of the fields `form`, which has NNNN for the number, in its order."""
        pattern = re.compile(re.escape(form).replace("NNNN", r"\d{4}"))
        return [value for name, value in sorted(self._fields.items()) if pattern.fullmatch(name)]

    def names(self) -> list[str]:
        """Of the sources, by number."""
        return [
            _ESCAPED.sub(lambda part: chr(int(part[1], 16)), name).encode("latin-1").decode()
            for name in self._all("source[NNNN].name")
        ]

    def _all_steps(self) -> list[tuple[int, int, int, int]]:
        """First row, first step, global_batch_size and batch_size of each stage."""
        fields, found = self._fields, [(0, 0, *self._sizes("", (0, 0)))]
        for name, value in sorted(fields.items()):
            if re.fullmatch(r"stage\[\d+\]\.from", name) and int(value) > 0:
                begin, first, rows, batch = found[-1]
                sizes = self._sizes(name[: -len("from")], (rows, batch))
                found.append((int(value), first + (int(value) - begin) // rows, *sizes))
        return found

    def _sizes(self, stage: str, before: tuple[int, int]) -> tuple[int, int]:
        names = f"{stage}global_batch_size", f"{stage}batch_size"
        rows, batch = (int(self._fields.get(name, had)) for name, had in zip(names, before))
        return rows, batch

    def _steps_at(self, row: int) -> tuple[int, int, int, int]:
        return [entry for entry in self._steps if entry[0] <= row][-1]

    def steps_before(self, row: int) -> int:
        """Steps that begin before the row, as the config counts them."""
        begin, first, rows, _ = self._steps_at(row)
        return first - (begin - row) // rows

    def global_batch_size(self, step_row: int) -> int:
        """Of the step that begins at the row."""
        return self._steps_at(step_row)[2]

    def micro_batches(self, step_row: int) -> int:
        """Batches of a rank in the step that begins at the row."""
        _, _, rows, batch = self._steps_at(step_row)
        return rows // (batch * int(self._fields["dp_world_size"]))

    def micro_batches_vary(self) -> bool:
        return len({entry[2] // entry[3] for entry in self._steps}) > 1

    def stage_of(self, row: int) -> tuple[int, Optional[int]]:
        """Number of the declared stage that has the row, and the row at which the next begins."""
        begins = [int(value) for value in self._all("stage[NNNN].from")]
        later = [begin for begin in begins if begin > row]
        return max(0, len(begins) - len(later) - 1), min(later, default=None)

    def _boundaries(self) -> list[tuple[int, dict[str, str]]]:
        """The declared stages and the records, by row: row and fields; none in version 1."""
        fields: dict[str, dict[str, str]] = {}
        for key, value in self._fields.items():
            if of := _BOUNDARY.match(key):
                fields.setdefault(of[0], {})[key[of.end() :]] = value
        begun = {name: own for name, own in fields.items() if "from" in own}
        order = sorted(begun, key=lambda name: (int(begun[name]["from"]), name[0] == "r", name))
        return [(int(begun[name]["from"]), begun[name]) for name in order]

    def _stages(self) -> list[_Stage]:
        """A stage for each boundary. A boundary without weights leaves a ramp as it is."""
        found, settled = list[_Stage](), 0
        before, weights = set[str](), set[str]()
        limits: dict[str, dict[str, str]] = {}
        for row, fields in self._boundaries():
            for key, value in fields.items():
                if limit := _LIMIT.fullmatch(key):
                    limits.setdefault(limit[2], {})[limit[1]] = value
            if own := {key[-5:-1] for key in fields if key.startswith("weight[")}:
                before, weights, settled = weights, own, row + int(fields.get("ramp", 0))
            in_ramp = weights | before if settled > row else weights
            ends = [_epochs_within(names, limits) for names in (weights, in_ramp)]
            found.append(_Stage(row, max(row, settled), *ends))
        return found

    def ends(self, row: int, epochs: int) -> Ends:
        """Of the whole stream. epochs: of the token of `row`, as epochs_of() gives them."""
        stages = self._stages()
        ahead = [stage for stage in stages if stage.row > row]
        begun = stages[: len(stages) - len(ahead)]
        if begun and begun[-1].settled > row:
            ahead.insert(0, begun[-1])
        end = ahead[-1].epochs if ahead else None
        if end is None:
            return Ends(epochs)
        may = epochs or any(stage.epochs_in_ramp for stage in ahead)
        return Ends(end, ahead[-1].settled + 1 if may and not end else None)

    def skips(self) -> list[tuple[int, int]]:
        """Ranges of rows that are not delivered."""
        return [_pair(value, "skip") for value in self._all("skip[NNNN]")]


def _epochs_within(
    weights: Iterable[str], limits: Mapping[str, Mapping[str, str]]
) -> Optional[int]:
    """See Ends. limits: of each source, by its number; a source that joined at a record has only
    the limits that a later stage sets. As _token._epochs_2."""
    if any(number not in limits for number in weights):
        return None
    used = [{**_NO_LIMITS, **limits[number]} for number in weights]
    most = [int(own["max_epochs"]) for own in used]
    limited = [own for own in used if int(own["max_epochs"]) or int(own["max_tokens"])]
    if any(own["on_exhausted"] != "continue" for own in limited) or len(limited) == len(used):
        return max(most, default=0) or 1
    return 0


def ends_of(place: Any) -> Ends:
    """Of the stream of a Client, or of a Left."""
    token, calendar = place.state(), place.calendar()
    epochs = epochs_of(token)
    return Ends(epochs) if calendar is None else calendar.ends(next_row_of(token), epochs)


def _pair(given: Range, name: str) -> tuple[int, int]:
    if isinstance(given, tuple) and len(given) == 2:
        first, end = whole(name, given[0]), whole(name, given[1])
    elif isinstance(given, str) and re.fullmatch(r"\s*\d+\s*(-\s*\d+\s*)?", given):
        numbers = [int(number) for number in given.split("-")]
        first, end = numbers[0], numbers[-1] + (len(numbers) == 1)
    elif isinstance(given, str):
        first, end = 0, 0
    else:
        first = whole(name, given)
        end = None if first is None else first + 1
    if first is None or end is None or not 0 <= first < end:
        raise UsageError(
            f"skip: {name}: {given!r} is no range",
            'give a number, "FIRST-END" without END, or the pair (FIRST, END)',
        )
    return first, end


def _ranges(given: Union[Range, Iterable[Range]], name: str) -> list[tuple[int, int]]:
    is_pair = isinstance(given, tuple) and len(given) == 2
    if is_pair or isinstance(given, str) or not isinstance(given, Iterable):
        return [_pair(given, name)]  # type: ignore[arg-type]
    return [_pair(one, name) for one in given]


def _merged(pairs: list[tuple[int, int]]) -> list[str]:
    """The least number of ranges, ascending."""
    ends: list[list[int]] = []
    for first, end in sorted(pairs):
        if ends and first <= ends[-1][1]:
            ends[-1][1] = max(end, ends[-1][1])
        else:
            ends.append([first, end])
    return [f"{first}-{end}" for first, end in ends]


def add_skips(
    calendar: Calendar,
    row: int,
    rows: Union[Range, Iterable[Range]],
    steps: Union[Range, Iterable[Range]],
) -> "SkipOptions":
    """The key `skip` of a config that has the calendar's skips and others at `row` or later."""
    added = {"rows": _ranges(rows, "rows"), "steps": _ranges(steps, "steps")}
    if not any(added.values()):
        raise UsageError("skip: neither rows nor steps were given", "Loader.skip(steps=(120, 126))")
    step = calendar.steps_before(row)
    for name, least in ("rows", row), ("steps", step):
        for first, end in added[name]:
            if first < least:
                raise UsageError(
                    f"skip: {name} {first}-{end} begin before {name[:-1]} {least}, the loader's "
                    "position, so that they were delivered",
                    f"give {name} from {least} on; to leave out earlier ones, load a state before "
                    "them first",
                )
    added["rows"] += calendar.skips()
    skips: SkipOptions = {}
    if added["rows"]:
        skips["rows"] = _merged(added["rows"])
    if added["steps"]:
        skips["steps"] = _merged(added["steps"])
    return skips


def progress_of(described: Mapping[str, Any], calendar: Optional[Calendar]) -> dict[str, Any]:
    """See Loader.progress. described: of the position's state."""
    row, sources = described["next_row"], described["sources"]
    stage, stage_end = described.get("stage", 0), None
    if calendar is not None:
        stage, stage_end = calendar.stage_of(row)
        if described["stream_version"] == 1:
            sources = dict(zip(calendar.names(), sources.values())) or sources
    return {
        "row": row,
        "step": calendar.steps_before(row) if calendar else None,
        "stage": stage,
        "stage_end": stage_end,
        "counted_row": described["window_first"],
        "documents": described["documents"],
        "tokens": described["tokens"],
        "sources": sources,
    }
