# SPDX-License-Identifier: Apache-2.0
"""Reads state tokens: versions 1 to 3 (engine/plan/STREAM.md section 8), and version 4 of streams
of version 2 (engine/plan/STREAM2.md section 12.2).

Invariant: a token is a copy, so it is read without an engine. The library checks its hash; a forged
one gives wrong numbers or CorruptError, and each loop here ends with its bytes.
"""

import ctypes
import struct
from typing import Any, NamedTuple, Optional

from ._library import Error, library, raise_error
from .errors import CorruptError

_VERSION_AT = 8  # u32; from 3 on a token has a plan digest
_CALENDAR = 4  # version of the tokens of stream version 2
_HASH_BYTES = 16  # at the end
_SHUFFLES = ("none", "document", "block")
_PACKINGS = ("lookahead", "concat", "best_fit")
_FILLS = ("pad", "split")
_LONG_DOCS = ("split", "truncate", "drop")
_EXHAUSTED = ("continue", "stop", "error")
_ORDERS = ("descending", "middle", "wave", "late_wave")
_NO_TOKEN = 2**32 - 1

# ---- versions 1 to 3 -----------------------------------------------------------------------------

_HEADER = struct.Struct("<8sII16s16sQI4B6IQQ")
_LANES_AT = 80  # u32 lanes, u32 sources
_EPOCHS_AT = 88  # u64: num_epochs, 0 = endless
_NEXT_ROW_AT = 96  # u64
_LANE = struct.Struct("<8QIII4x")


class _Lane(NamedTuple):
    counts: tuple[int, ...]  # struct rp_lane_counts
    cursors: list[tuple[int, ...]]  # epoch, position, mixed: one for each source
    pieces: list[tuple[int, int, int]]  # that wait: source, document, length


def _read_lanes(token: bytes) -> tuple[list[tuple[int, ...]], list[_Lane]]:
    """Weight and documents of each source, and the lanes."""
    lanes, sources = struct.unpack_from("<II", token, _LANES_AT)
    at, read = _HEADER.size, []
    table = [struct.unpack_from("<QQ", token, at + 16 * n) for n in range(sources)]
    at += 16 * sources
    for _ in range(lanes):
        *counts, fifo, pending, rows = _LANE.unpack_from(token, at)
        at += _LANE.size
        cursors = [struct.unpack_from("<QQQ", token, at + 24 * n) for n in range(sources)]
        at += 24 * sources
        pieces = []
        for _ in range(fifo + pending):
            document, _, length, source = struct.unpack_from("<QQQI", token, at)
            pieces.append((source, document, length))
            at += 32
        for _ in range(rows):
            fragments = struct.unpack_from("<I", token, at + 8)[0]
            at += 16
            for _ in range(fragments):
                document, _, source, length = struct.unpack_from("<QQII", token, at)
                pieces.append((source, document, length))
                at += 24
        read.append(_Lane(tuple(counts), cursors, pieces))
    return table, read


def _epoch_1(token: bytes) -> int:
    """Times that each source had been given as a whole: the fewest of all sources and lanes. (A
    source of several lanes is taken to be of equal shares.)"""
    table, lanes = _read_lanes(token)
    epochs = []
    for lane in lanes:
        started = {piece[:2] for piece in lane.pieces}
        for source, (epoch, position, _) in enumerate(lane.cursors):
            behind = sum(1 for piece in started if piece[0] == source) - position
            share = max(1, table[source][1] // len(lanes))
            epochs.append(max(0, epoch - -(-max(0, behind) // share)))
    least, limit = min(epochs, default=0), epochs_of(token)
    return min(least, limit - 1) if limit else least


def _describe_1(token: bytes) -> dict[str, Any]:
    header = _HEADER.unpack_from(token)
    seed, seq_len, shuffle, packing, fill, long_doc, window, most = header[5:13]
    epochs, next_row = header[-2:]
    table, lanes = _read_lanes(token)
    total = [sum(lane.counts[n] for lane in lanes) for n in range(7)]
    documents, empty, read, truncated, dropped, emitted, padding = total
    sources = {}
    for number, (weight, of_epoch) in enumerate(table):
        cursors = [lane.cursors[number] for lane in lanes]
        pieces = [piece for lane in lanes for piece in lane.pieces if piece[0] == number]
        sources[str(number)] = {
            "number": number,
            "weight": weight,
            "planned": sum(cursor[2] for cursor in cursors),
            "waiting": sum(length for _, _, length in pieces),
            "epoch": min((cursor[0] for cursor in cursors), default=0),
            "epoch_documents": of_epoch,
            "max_epochs": epochs or None,
        }
    return {
        "stream_version": 1,
        **_position(next_row, next_row, next_row, digest_of(token)),
        "seed": seed,
        "seq_len": seq_len,
        "shuffle": _word(_SHUFFLES, shuffle),
        "packing": _word(_PACKINGS, packing),
        "window": window,
        "fill": _word(_FILLS, fill),
        "long_doc": _word(_LONG_DOCS, long_doc),
        "max_docs_per_row": most,
        "lanes": len(lanes),
        "documents": {"read": documents, "empty": empty},
        "tokens": {
            "read": read,
            "delivered": emitted,
            "waiting": read - emitted - truncated - dropped,
            "truncated": truncated,
            "dropped": dropped,
            "padding": padding,
        },
        "sources": sources,
    }


# ---- version 4 -----------------------------------------------------------------------------------

_HEADER_2 = struct.Struct("<8sIIQ3Q16s64s10QQ8I4I5I6I4B8B")
_SOURCE = struct.Struct("<6Qq4Q3I4B")
_PIECE = struct.Struct("<QIIIHBB")
_NEXT_ROW_2_AT = 24  # u64 next_row, window_first, window_end
_DIGEST_2_AT = 48
_SOURCES_DIFFER = 4  # flag: `documents` follows
assert (_HEADER_2.size, _SOURCE.size, _PIECE.size) == (320, 104, 24)


class _Source(NamedTuple):
    name: str
    documents: int  # the epoch's
    position: int  # items visited in the pass
    tokens: int
    taken: int
    withheld: int
    max_tokens: int
    max_epochs: int
    weight: int
    epoch: int
    pass_: int
    on_exhausted: int
    documents_next: int  # those that epochs have from the next one on

    def is_exhausted(self) -> bool:
        return (0 < self.max_epochs <= self.epoch) or (0 < self.max_tokens <= self.tokens)


class _Calendar(NamedTuple):
    """A token of version 4."""

    header: tuple[Any, ...]
    sources: list[_Source]
    pieces: list[tuple[int, int, int]]  # that wait: source, epoch, length
    history: str


def _read_sources(token: bytes, count: int) -> tuple[list[_Source], int]:
    at, sources = _HEADER_2.size, []
    for _ in range(count):
        begin, values = at, _SOURCE.unpack_from(token, at)
        _, _, _, documents, _, position, _, tokens, taken, withheld, max_tokens = values[:11]
        max_epochs, weight, epoch, pass_, on_exhausted, _, flags = values[11:]
        at += _SOURCE.size
        later = documents
        if flags & _SOURCES_DIFFER:
            later = struct.unpack_from("<Q", token, at)[0]
            at += 8
        length = struct.unpack_from("<B", token, at)[0]
        name = token[at + 1 : at + 1 + length].decode("utf-8", "backslashreplace")
        at = begin + -(-(at + 1 + length - begin) // 8) * 8
        limits = max_tokens, max_epochs, weight, epoch, pass_, on_exhausted
        sources.append(
            _Source(name, documents, position, tokens, taken, withheld, *limits, later)
        )
    return sources, at


def _read_calendar(token: bytes) -> _Calendar:
    header = _HEADER_2.unpack_from(token)
    count, fifo, pool, rows, history = header[32:37]
    sources, at = _read_sources(token, count)
    pieces = []

    def take(extra: int) -> None:
        nonlocal at
        _, _, length, epoch, source, _, _ = _PIECE.unpack_from(token, at)
        pieces.append((source, epoch, length))
        at += _PIECE.size + extra

    for _ in range(fifo):
        take(0)
    for _ in range(pool):
        take(8)
    for _ in range(rows):
        held = struct.unpack_from("<I", token, at + 8)[0]
        at += 16
        for _ in range(held):
            take(0)
    if at + history + _HASH_BYTES != len(token):
        raise struct.error
    text = token[at : at + history].rstrip(b"\0").decode("utf-8", "backslashreplace")
    return _Calendar(header, sources, pieces, text)


def _epoch_2(token: bytes) -> int:
    """Times that each source which the mixture uses had been given as a whole: the fewest."""
    calendar = _read_calendar(token)
    epochs = {}
    used = [source for source in calendar.sources if source.weight] or calendar.sources
    for number, source in enumerate(calendar.sources):
        if source in used:
            waiting = [epoch for of, epoch, _ in calendar.pieces if of == number]
            epochs[number] = min(waiting, default=source.epoch)
    able = [n for n in epochs if not calendar.sources[n].is_exhausted()]
    if able:
        return min(epochs[n] for n in able)
    return max((max(0, min(epochs[n], calendar.sources[n].epoch - 1)) for n in epochs), default=0)


def _epochs_2(token: bytes) -> int:
    """0 if a source of the mixture has no limit, and none stops the stream."""
    used = [source for source in _read_calendar(token).sources if source.weight]
    limited = [source for source in used if source.max_epochs or source.max_tokens]
    if any(source.on_exhausted for source in limited) or len(limited) == len(used):
        return max((source.max_epochs for source in used), default=0) or 1
    return 0


def _source_2(calendar: _Calendar, number: int, group: int) -> dict[str, Any]:
    source = calendar.sources[number]
    waiting = sum(length for of, _, length in calendar.pieces if of == number)
    return {
        "number": number,
        "weight": source.weight,
        "planned": source.tokens,
        "waiting": waiting,
        "withheld": source.withheld,
        "delivered": source.tokens - waiting - source.withheld,
        "documents": source.taken,
        "epoch": source.epoch,
        "pass": source.pass_,
        "visited": source.position * group,
        "epoch_documents": source.documents,
        "next_epoch_documents": source.documents_next,
        "max_epochs": source.max_epochs or None,
        "epochs_left": max(0, source.max_epochs - source.epoch) if source.max_epochs else None,
        "max_tokens": source.max_tokens or None,
        "tokens_left": max(0, source.max_tokens - source.tokens) if source.max_tokens else None,
        "on_exhausted": _word(_EXHAUSTED, source.on_exhausted),
        "is_exhausted": source.is_exhausted(),
    }


def _describe_2(token: bytes) -> dict[str, Any]:
    calendar = _read_calendar(token)
    header = calendar.header
    documents, passed_over, empty, read, truncated, dropped, left_out, emitted, padding = header[
        9:18
    ]
    seq_len, window, most, blocks, window_blocks, spread, align, group = header[20:28]
    bos_id, eos_id, stages = header[29:32]
    deal, tail = header[37:43], header[43:46]
    shuffle, packing, fill, long_doc, stopped, across = header[47:53]
    names = "window", "step", "tier", "bundle", "cost", "attention_window"
    layers = {"order": _word(_ORDERS, tail[0]), "window_layers": tail[1], "layers": tail[2]}
    waiting = sum(length for _, _, length in calendar.pieces)
    return {
        "stream_version": 2,
        **_position(header[4], header[5], header[6], digest_of(token)),
        "stage": stages - 1,
        "is_stopped": bool(stopped),
        "seed": header[3],
        "seq_len": seq_len,
        "align": align,
        "group": group,
        "bos_id": None if bos_id == _NO_TOKEN else bos_id,
        "eos_id": None if eos_id == _NO_TOKEN else eos_id,
        "label_across_cuts": bool(across),
        "shuffle": _word(_SHUFFLES, shuffle),
        "block_documents": blocks or None,
        "window_blocks": window_blocks or None,
        "packing": _word(_PACKINGS, packing),
        "window": window,
        "fill": _word(_FILLS, fill),
        "spread": spread,
        "long_doc": _word(_LONG_DOCS, long_doc),
        "max_docs_per_row": most,
        "deal": {**dict(zip(names, deal)), **layers} if deal[0] else None,
        "documents": {"read": documents, "passed_over": passed_over, "empty": empty},
        "tokens": {
            "read": read,
            "planned": sum(source.tokens for source in calendar.sources),
            "waiting": waiting,
            "withheld": sum(source.withheld for source in calendar.sources),
            "delivered": sum(source.tokens - source.withheld for source in calendar.sources)
            - waiting,
            "emitted": emitted,
            "truncated": truncated,
            "dropped": dropped,
            "left_out": left_out,
            "padding": padding,
        },
        "sources": {
            source.name: _source_2(calendar, number, group)
            for number, source in enumerate(calendar.sources)
        },
        "history": calendar.history.splitlines(),
    }


# ---- both ----------------------------------------------------------------------------------------


def _word(words: tuple[str, ...], number: int) -> str:
    return words[number] if number < len(words) else str(number)


def _position(row: int, first: int, end: int, digest: Optional[str]) -> dict[str, Any]:
    return {"next_row": row, "window_first": first, "window_end": end, "plan_digest": digest}


def _version(token: bytes) -> int:
    return int.from_bytes(token[_VERSION_AT : _VERSION_AT + 4], "little")


def describe_token(token: bytes) -> dict[str, Any]:
    """See ringpack.describe."""
    error = Error()
    version = library().rp_client_check_state(token, len(token), ctypes.byref(error))
    if version < 0:
        raise_error(version, error)
    try:
        return _describe_2(token) if version == 2 else _describe_1(token)
    except struct.error:
        raise CorruptError(
            f"state token: its records do not fill its {len(token)} bytes",
            "the run is unchanged; take another state token or an older checkpoint",
        ) from None


def epochs_of(token: bytes) -> int:
    """num_epochs of the token's stream, in version 2 the greatest of its sources at present; 0 =
    endless."""
    if _version(token) == _CALENDAR:
        return _epochs_2(token)
    return int.from_bytes(token[_EPOCHS_AT : _EPOCHS_AT + 8], "little")


def epoch_of(token: bytes) -> int:
    """See Batch.epoch. A document that was read, but has parts in no row yet, counts as not
    given."""
    return _epoch_2(token) if _version(token) == _CALENDAR else _epoch_1(token)


def next_row_of(token: bytes) -> int:
    """The next global row of a token's stream."""
    at = _NEXT_ROW_2_AT if _version(token) == _CALENDAR else _NEXT_ROW_AT
    return int.from_bytes(token[at : at + 8], "little")


def digest_of(token: bytes) -> Optional[str]:
    """The plan digest of all rows before the token's, in version 2 before its deal window; None
    where it has none."""
    version = _version(token)
    if version == _CALENDAR:
        at = _DIGEST_2_AT
        return "%032x" % int.from_bytes(token[at : at + 16], "little")
    return "%032x" % int.from_bytes(token[-32:-16], "little") if version == 3 else None
