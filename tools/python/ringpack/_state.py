# SPDX-License-Identifier: Apache-2.0
"""Converts a state token (engine/plan/STREAM.md section 8) to the values that checkpoint libraries
hold, and back."""

import base64
import os
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional, Union

from ._arguments import FilePath
from ._engine import run_program
from ._token import describe_token, next_row_of
from ._views import import_torch
from .errors import UsageError

if TYPE_CHECKING:
    import tempfile

STATE_KEY = "ringpack_state"
_LENGTH_AT = 12  # u32: bytes of the token
_HEADER = struct.Struct("<8sI36s")  # tools/ringpack/state/state_streams.h
_MAGIC = b"RPSTREAM"


def state_of(token: bytes, capacity: int) -> dict[str, Any]:
    """A dict of constant keys and shapes, so that a checkpoint can be loaded in place."""
    import numpy

    array = numpy.zeros(max(capacity, len(token)), numpy.uint8)
    array[: len(token)] = numpy.frombuffer(token, numpy.uint8)
    return {STATE_KEY: array}


def state_in_form(token: bytes, capacity: int, kind: str, text: bool) -> dict[str, Any]:
    """A token as a loader of that return_type gives it."""
    if text:
        return text_of(token)
    state = state_of(token, capacity)
    if kind == "torch":
        state[STATE_KEY] = import_torch().from_numpy(state[STATE_KEY])
    return state


def text_of(token: bytes) -> dict[str, Any]:
    return {STATE_KEY: base64.b64encode(token).decode()}


def token_of(state: Mapping[str, Any]) -> bytes:
    """The token in a state, also after a trip through JSON, torch.save or numpy."""
    if not isinstance(state, Mapping):
        raise UsageError(
            f"the state is of type {type(state).__name__}: expected a dict",
            "give the return value of state_dict()",
        )
    if STATE_KEY not in state:
        raise UsageError(
            f"the state has no {STATE_KEY!r}: found {', '.join(map(str, state)) or 'nothing'}",
            "give the return value of state_dict()",
        )
    token = bytes_in(state)
    if not any(token):  # a place that was made for a state, and into which none was loaded
        raise UsageError(
            f"{STATE_KEY} is empty: {len(token)} bytes, none but zeros",
            "load the checkpoint first, then give the return value of state_dict()",
        )
    # After the token's own length is padding of state_dict, or tokens of other streams.
    return token[: length_of(token)]


def bytes_in(state: Mapping[str, Any]) -> bytes:
    return _bytes_of(state[STATE_KEY])


def length_of(token: bytes) -> int:
    """Bytes of a token at the beginning of a state."""
    size = int.from_bytes(token[_LENGTH_AT : _LENGTH_AT + 4], "little")
    return size or len(token)


def join_states(main: bytes, room: int, others: Mapping[str, tuple[bytes, int]]) -> bytes:
    """The state of several streams. others: the token of each other stream, and the room that its
    tokens need."""
    parts = [_padded(main, room)]
    for name, (token, other_room) in others.items():
        held = _padded(token, other_room)
        parts += [_HEADER.pack(_MAGIC, len(held), name.encode()), held]
    return b"".join(parts)


def _padded(token: bytes, room: int) -> bytes:
    return token.ljust(-(-max(room, len(token)) // 8) * 8, b"\0")


def split_states(state: bytes) -> tuple[bytes, dict[str, bytes]]:
    """The part of the main stream, and the tokens of the others."""
    begin = at = state.find(_MAGIC, length_of(state))
    others = {}
    while at >= 0 and at + _HEADER.size <= len(state):
        magic, room, name = _HEADER.unpack_from(state, at)
        end = at + _HEADER.size + room
        if magic != _MAGIC or end > len(state):
            raise UsageError("the states of the streams are cut short", "take another state")
        token = state[at + _HEADER.size : end]
        others[name.rstrip(b"\0").decode("ascii", "replace")] = token[: length_of(token)]
        at = end if end < len(state) else -1
    return (state, {}) if begin < 0 else (state[:begin], others)


def room_of(state: Mapping[str, Any]) -> int:
    """Bytes of a saved state: its token, and padding."""
    return len(_bytes_of(state[STATE_KEY]))


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            raise UsageError(
                f"{STATE_KEY} is text, but not base64",
                "give the return value of state_dict(text=True)",
            ) from None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    import numpy

    array = numpy.asarray(value.cpu() if hasattr(value, "cpu") else value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "uif"):
        raise UsageError(
            f"{STATE_KEY} is of type {type(value).__name__}: expected text, or bytes as an array",
            "give the return value of state_dict()",
        )
    return array.astype(numpy.uint8).tobytes()


def describe(
    state: Union[Mapping[str, Any], FilePath], program: Optional[FilePath] = None
) -> dict[str, Any]:
    """The facts that a state holds, without an engine and without the corpus.

    state: a result of state_dict(), or a file that import_state() reads. program: path of
    `ringpack`, for files.

    Of the stream: stream_version, next_row, plan_digest, the parameters of the rows (seed, seq_len,
    packing, ...), documents and tokens; of each source its counts. In version 2, sources have
    names, `stage` is the number of the stage of the row before next_row, from 0, and counts and
    digest are of the row window_first, where the deal window of next_row begins (next_row itself
    without `deal`):

    tokens    planned (taken from the source) = waiting (in no row yet) + withheld (never delivered:
              of skipped rows, documents taken out, ...) + delivered
    documents taken
    epoch     that the source reads; pass: repetition in this epoch (`repeat`); visited: documents
              of epoch_documents that this pass has visited; next_epoch_documents: of the next epoch
    max_epochs, max_tokens, on_exhausted: limits in force, None: none; epochs_left counts the one
              that is read; tokens_left; is_exhausted

    Sources are in the order in which they joined, and `number` is that of the contract; `source` in
    the provenance of a batch counts in the order of the config. In version 1, sources have numbers
    as text, and `planned` counts from the last change of weights.

    CorruptError: damaged; VersionError: of a newer ringpack; UsageError: not a state."""
    given = token_of(state) if isinstance(state, Mapping) else _token_in(state, program)
    return describe_token(given)


# ---- files ---------------------------------------------------------------------------------------


def import_state(
    path: FilePath, program: Optional[FilePath] = None, stream: Optional[str] = None
) -> dict[str, Any]:
    """The state that a file holds, for ``load_state_dict``: a file of torch.save, JSON, npz,
    safetensors, a state token, a checkpoint, or a directory of checkpoints.

    The program finds the token by its bytes, and unpickles no object: a file of torch.save must
    have the state as an array, as state_dict() gives it. program: path of `ringpack`. stream: name
    of another stream than the main one, if the file has the states of several (None: the main one);
    UsageError if it has not."""
    token = _token_in(path, program, stream)
    return state_of(token, len(token))


def export_state(
    state: Union[Mapping[str, Any], FilePath], path: FilePath, program: Optional[FilePath] = None
) -> None:
    """Write a state in the form that the name of the file says: .token, .json, .npz, .safetensors,
    or .pt (torch.save).

    state: a result of state_dict(), or a file that import_state() reads. JSON and the metadata of
    safetensors also have each field of the state. program: path of `ringpack`.

    Of the streams of a state, .pt has all positions, and another form the main stream's. UsageError
    for such a form if another stream is within a pass. Of a file the main stream's is taken."""
    path = os.fspath(path)
    is_torch = path.endswith((".pt", ".pth"))
    token = token_of(state) if isinstance(state, Mapping) else _token_in(state, program)
    others = split_states(bytes_in(state))[1] if isinstance(state, Mapping) else {}
    if is_torch:
        _save_torch(bytes_in(state) if others and isinstance(state, Mapping) else token, path)
        return
    within = [name for name, own in others.items() if next_row_of(own) > 0]
    if within:
        raise UsageError(
            f"the state has the position of stream {', '.join(within)} within a pass, and {path} "
            "would have only the main stream's",
            "give the file a name that ends with .pt, or end the pass first",
        )
    with _folder() as folder:
        own = os.path.join(folder, "token")
        with open(own, "wb") as file:
            file.write(token)
        run_program(["checkpoint", "export", own, "-o", path], program)


def _folder() -> "tempfile.TemporaryDirectory[str]":
    import tempfile  # here: it takes a tenth of the time of `import ringpack`

    return tempfile.TemporaryDirectory(prefix="ringpack-state-")


def _token_in(
    path: FilePath, program: Optional[FilePath], stream: Optional[str] = None
) -> bytes:
    with _folder() as folder:
        own = os.path.join(folder, "token")
        words = ["checkpoint", "import", os.fspath(path), "-o", own]
        run_program(words + ([] if stream is None else ["--stream", stream]), program)
        with open(own, "rb") as file:
            return file.read()


def _save_torch(token: bytes, path: str) -> None:
    """As torch.save writes, but whole or not at all."""
    import tempfile

    import torch

    state = {STATE_KEY: torch.frombuffer(bytearray(token), dtype=torch.uint8)}
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(path) or ".", delete=False) as file:
        try:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
