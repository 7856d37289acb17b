# SPDX-License-Identifier: Apache-2.0
"""libringpack.so by ctypes: only the structures and functions of include/ringpack/*.h.

Invariant: every structure here has the size and offsets of its C twin (tests/python/test_library.py
compares them with the compiler's).
"""

import ctypes
import os
import threading
import warnings
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from collections.abc import Callable
from typing import Any, NoReturn, Optional

from ._arguments import FilePath
from ._machine import why_unsuitable
from .errors import RingpackError, error_of

SONAME = "libringpack.so.0.2"  # the structures below match this one
SECTIONS = (  # enum rp_section
    "rows",
    "doc_lens",
    "input_ids",
    "labels",
    "position_ids",
    "segment_ids",
    "loss_mask",
    "cu_seqlens",
    "provenance",
    "row_plans",
)
# enum rp_dtype as numpy type strings; numpy has no bfloat16
DTYPES = (None, "<u2", "<i4", "<i8", "<f4", None, "<u2", "<f2", "<f8", "|u1", "|i1", "<i2")
BF16 = 6
RECORDS = {  # struct rp_row_info, struct rp_provenance, struct rp_row_plan
    "rows": [("row", "<u8"), ("fragments", "<u4"), ("tokens", "<u4")],
    "provenance": [("document", "<u8"), ("offset", "<u8"), ("source", "<u4"), ("length", "<u4")],
    "row_plans": [("planned", "<u8"), ("align", "<u4"), ("is_skipped", "<u4")],
}
SECTION_ROOM = 16  # length of every array by section
SECTION_SIDES, SIDES_MAX = 10, 6  # the sections of side columns
OF_DOCUMENT = 3  # enum rp_side_of
NEXT_BATCH, NEXT_EMPTY, NEXT_END = 1, 2, 3  # enum rp_next
KNOWN_STEP, KNOWN_COST = 1, 2  # enum rp_known_sums


class Error(Structure):
    _fields_ = [("code", c_int), ("message", ctypes.c_char * 768), ("hint", ctypes.c_char * 384)]


class SectionLayout(Structure):
    _fields_ = [
        ("offset", c_uint64),
        ("bytes", c_uint64),
        ("dtype", c_uint32),
        ("reserved", c_uint32),
    ]


class Side(Structure):
    _fields_ = [
        ("name", ctypes.c_char * 32),
        *((name, c_uint32) for name in "dtype count bytes of".split()),
    ]


class Geometry(Structure):
    _fields_ = [
        ("struct_size", c_uint64),
        *((name, c_uint32) for name in "rows seq_len max_docs_per_row world rank".split()),
        *((name, c_uint32) for name in "micro_batches slots label_mode".split()),
        ("pad_id", c_int64),
        *((name, c_uint64) for name in "base_row state_bytes slot_bytes".split()),
        ("sections", SectionLayout * SECTION_ROOM),
        ("sides", Side * SIDES_MAX),
    ]


class ClientOptions(Structure):
    _fields_ = [
        ("struct_size", c_uint64),
        ("run", c_char_p),
        ("run_dir", c_char_p),
        *((name, c_uint32) for name in "rank world rows seq_len replica replicas".split()),
        ("state", c_char_p),
        ("state_bytes", c_size_t),
        ("connect_timeout_ns", c_uint64),
        ("restart_timeout_ns", c_uint64),
        ("monitor", c_uint32),
        ("reserved", c_uint32),
        ("digest_log", c_char_p),
        ("digest_steps", c_uint64),
        ("expected", c_char_p),
        ("expected_bytes", c_size_t),
    ]


class BatchInfo(Structure):
    """struct rp_batch: a lease."""

    _fields_ = [
        *((name, c_uint64) for name in "struct_size lease number first_row next_row".split()),
        *((name, c_uint32) for name in "rows seq_len rows_real tokens_real".split()),
        *((name, c_uint32) for name in "tokens_loss max_seqlen segments reserved".split()),
        ("sum_len_squared", c_uint64),
        ("sections", c_void_p * SECTION_ROOM),
        *((name, c_uint64) for name in "step_rows step_tokens step_tokens_loss cost".split()),
        *((name, c_uint32) for name in "known reserved_2".split()),
        ("step", c_uint64),
        *((name, c_uint32) for name in "micro_batch micro_batches".split()),
    ]


class Counts(Structure):
    _fields_ = [
        ("struct_size", c_uint64),
        *((name, c_uint64) for name in "batches rows tokens waits wait_ns reattaches".split()),
        *((name, c_uint64) for name in "gaps repeats foreign digest_failures".split()),
    ]


# These never wait, so Python's lock is kept: a call costs half, and no other thread gets a turn
# (which it may keep for milliseconds) in the middle of a training step.
_PROMPT = {
    *("rp_client_take", "rp_client_step", "rp_client_release"),
    *("rp_client_state", "rp_client_state_before", "rp_client_state_after"),
}
# Their arguments are not converted, which would cost more than the call: give them as they are.
_EVERY_STEP = {"rp_client_take", "rp_client_step", "rp_client_release"}
_PROTOTYPES = {
    "rp_client_attach": (c_int, POINTER(c_void_p), POINTER(ClientOptions), POINTER(Error)),
    "rp_client_geometry": (POINTER(Geometry), c_void_p),
    "rp_client_next": (c_int, c_void_p, c_int64, POINTER(BatchInfo), POINTER(Error)),
    "rp_client_take": (c_int, c_void_p, POINTER(BatchInfo), POINTER(Error)),
    "rp_client_step": (
        *(c_int, c_void_p, POINTER(BatchInfo), POINTER(BatchInfo)),
        POINTER(Error),
    ),
    "rp_client_release": (c_int, c_void_p, POINTER(BatchInfo)),
    "rp_client_holds": (c_int, c_void_p, POINTER(BatchInfo)),
    "rp_client_state": (c_size_t, c_void_p, c_void_p, c_size_t),
    "rp_client_state_before": (c_size_t, c_void_p, c_void_p, c_size_t),
    "rp_client_state_after": (c_size_t, c_void_p, POINTER(BatchInfo), c_void_p, c_size_t),
    "rp_client_check_state": (c_int, c_char_p, c_size_t, POINTER(Error)),
    "rp_client_close": (None, c_void_p),
    "rp_client_stage_ended": (c_int, c_void_p),
    "rp_client_next_row": (c_uint64, c_void_p),
    "rp_client_step_row": (c_uint64, c_void_p),
    "rp_client_identity": (None, c_void_p, POINTER(c_uint64)),
    "rp_client_contract": (c_size_t, c_void_p, c_void_p, c_size_t),
    "rp_contract_agree": (
        *(c_int, c_char_p, c_char_p, c_size_t, c_char_p, c_char_p, c_size_t),
        POINTER(Error),
    ),
    "rp_client_counts": (c_int, c_void_p, POINTER(Counts)),
    "rp_client_detach": (None, c_void_p),
    "rp_batch_digest": (None, POINTER(Geometry), POINTER(BatchInfo), POINTER(c_uint64)),
    "rp_batch_labelled_digest": (
        *(c_int, POINTER(Geometry), POINTER(BatchInfo), POINTER(c_uint64)),
        POINTER(Error),
    ),
    "rp_run_stat": (c_int, c_char_p, c_char_p, POINTER(c_void_p), POINTER(Error)),
    "rp_run_checkpoint": (c_int, c_char_p, c_char_p, POINTER(c_void_p), POINTER(Error)),
    "rp_run_locate": (
        *(c_int, c_char_p, c_char_p, c_void_p, c_size_t),
        *(POINTER(c_void_p), POINTER(Error)),
    ),
    "rp_text_free": (None, c_void_p),
    "rp_version": (c_char_p,),
}


def _candidates() -> list[str]:
    named = os.environ.get("RINGPACK_LIBRARY")
    if named:
        return [named]
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libringpack.so")
    return [beside, SONAME]


def _open() -> ctypes.CDLL:
    failures = []
    for path in _candidates():
        if path.startswith("/") and not os.path.exists(path):
            failures.append(f"{path}: not there")
            continue
        try:
            return ctypes.CDLL(path, use_errno=True)
        except OSError as failure:
            failures.append(str(failure))
    raise RingpackError(
        "libringpack.so cannot be loaded: " + "; ".join(failures),
        why_unsuitable()
        or "`pip install --force-reinstall` of the wheel brings it back, `pip install "
        "./tools/python` in a clone builds it; or set RINGPACK_LIBRARY to the library that "
        "CMake built",
    )


_loaded: Any = None


def library() -> Any:
    """The shared library, opened at the first call and then kept."""
    global _loaded
    if _loaded is None:
        opened = _open()
        prompt = ctypes.PyDLL(opened._name)
        for name, (result, *arguments) in _PROTOTYPES.items():
            try:
                function = getattr(prompt if name in _PROMPT else opened, name)
            except AttributeError:
                raise RingpackError(
                    f"{opened._name} has no {name}: it is of another version than this package",
                    "`pip install ./tools/python` brings both from one tree",
                ) from None
            function.restype = result
            function.argtypes = None if name in _EVERY_STEP else arguments
            setattr(opened, name, function)
        _check_version(opened)
        _loaded = opened
    return _loaded


def _check_version(opened: Any) -> None:
    """The structures above match one SONAME."""
    found, series = opened.rp_version().decode("ascii"), SONAME.split(".so.")[1]
    if not found.startswith(series + "."):
        raise RingpackError(
            f"{opened._name} is version {found}, and this package needs {series}.*",
            "`pip install ./tools/python` brings both from one tree; unset RINGPACK_LIBRARY",
        )


def version() -> str:
    """The library's version, such as "0.2.0"."""
    return str(library().rp_version().decode("ascii"))


def raise_error(code: int, error: Error) -> NoReturn:
    raise error_of(
        code, error.message.decode("utf-8", "replace"), error.hint.decode("utf-8", "replace")
    )


def call_patiently(
    undo: Callable[[int], object], function: Callable[..., int], *arguments: Any
) -> int:
    """A call that may wait for long, on a thread of its own: so Ctrl-C is noticed, which ends the
    wait for it. `undo` takes back the effect of a call that ends after its wait was given up."""
    lock = threading.Lock()
    codes: list[int] = []
    given_up: list[bool] = []

    def call() -> None:
        code = function(*arguments)
        with lock:
            codes.append(code)
            if given_up:
                undo(code)

    thread = threading.Thread(target=call, name="ringpack: a call that waits", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        with lock:
            given_up.append(True)
            if codes:
                undo(codes[0])
        raise
    return codes[0]


def contracts_agree(name: str, text: str, other_name: str, other_text: str) -> bool:
    """Whether both know the whole content of the corpus; CheckpointMismatchError if they differ."""
    error, one, other = Error(), text.encode(), other_text.encode()
    arguments = name.encode(), one, len(one), other_name.encode(), other, len(other)
    code: int = library().rp_contract_agree(*arguments, ctypes.byref(error))
    if code < 0:
        raise_error(code, error)
    return code == 1


def _ask(what: str, run: str, run_dir: Optional[FilePath], *arguments: Any) -> bytes:
    text, error = c_void_p(), Error()
    name = os.fsencode(run_dir) if run_dir is not None else None
    c = library()
    question = name, run.encode(), *arguments, ctypes.byref(text), ctypes.byref(error)
    code = call_patiently(lambda _: c.rp_text_free(text), getattr(c, what), *question)
    if code < 0:
        raise_error(code, error)
    if error.message:
        warnings.warn(error.message.decode(errors="replace"), RuntimeWarning, stacklevel=4)
    try:
        return ctypes.string_at(text) if text else b""
    finally:
        c.rp_text_free(text)


def ask_engine(what: str, run: str = "default", run_dir: Optional[FilePath] = None) -> str:
    """Send a request to a running engine: rp_run_stat (JSON text) or rp_run_checkpoint (path)."""
    return _ask(what, run, run_dir).decode()


def locate_documents(
    documents: Any, run: str, run_dir: Optional[FilePath]
) -> list[tuple[str, int]]:
    """Query a running engine for the files of documents. `documents` is a numpy array of
    provenance, one record each; returns a list of (file, row)."""
    records = documents.tobytes()
    lines = _ask("rp_run_locate", run, run_dir, records, len(documents)).split(b"\n")
    places = [line.split(b" ", 1) for line in lines[: len(documents)]]
    return [(os.fsdecode(_unescape(path)), int(row)) for row, path in places]


def _unescape(path: bytes) -> bytes:
    return path.replace(b"\\\\", b"\0").replace(b"\\n", b"\n").replace(b"\0", b"\\")
