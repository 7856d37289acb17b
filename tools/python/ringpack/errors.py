# SPDX-License-Identifier: Apache-2.0
"""What can go wrong: one class per code of include/ringpack/error.h.

Every error says what failed (``str(error)``), and in ``.hint`` what is safe and what to do next.
``.code`` is the negative code: from -5000 down ringpack's own, otherwise a negated errno.
"""

import errno
import os
import re
from typing import Optional


class RingpackError(Exception):
    """Base of all errors of this package."""

    name = ""  # as the program prints it
    code = 0  # 0: found by Python, not by the library

    def __init__(self, message: str, hint: str = "", code: Optional[int] = None):
        super().__init__(message)
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self):
        return f"{self.args[0]}\n  next: {self.hint}" if self.hint else self.args[0]

    def __reduce__(self):
        return type(self), (self.args[0], self.hint, self.code)


class LeaseError(RingpackError, BufferError):
    """A batch cannot be taken or given back, because views of batches are alive."""


class ReleasedError(RingpackError, ValueError):
    """A view was asked of a batch that is closed."""


class UsageError(RingpackError, ValueError):
    """A call or an argument is wrong."""

    name, code = "RP_E_USAGE", -5001


class ConfigError(RingpackError, ValueError):
    """A key of the config is wrong."""

    name, code = "RP_E_CONFIG", -5002


class FormatError(RingpackError):
    """A file is not of the expected format."""

    name, code = "RP_E_FORMAT", -5003


class CorruptError(RingpackError):
    """Data is damaged."""

    name, code = "RP_E_CORRUPT", -5004


class CheckpointMismatchError(RingpackError):
    """The state, another engine or another node differs in something that all must agree on.

    `field`: what differs, mostly a key of the config; the first of them where there are several.
    `expected`: its value in the state (or what the trainer began with, or believes in); `found`:
    its value in this run. All are text, or None where there is no one field. `MAY_CHANGE`: what a
    state is free of, so that any value goes on with it; an engine that takes over from another one
    while trainers live on may change only what the hint says."""

    name, code = "RP_E_MISMATCH", -5005
    MAY_CHANGE = (
        *("batch_size", "dp_world_size", "ranks", "global_batch_size", "drop_last"),
        *("profile", "sections", "token_dtype", "label_mode", "pad_id", "vocab_size"),
        *("num_workers", "packers", "packer_processes", "prefetch_factor", "prefetch_bytes"),
        *("io", "io_depth", "direct", "cpus", "verify_blocks", "manifest", "index_dir"),
        *("cache_dir", "cache_bytes", "run"),
        "paths of the corpus",
    )
    _SIDE = r"(?:the state|the trainer|process \d+)"
    _OTHER_SIDE = r"(?:this run|the engine|process \d+)"
    _FORMS = (
        rf"(?:^|: )(?P<field>[^:]+?) differs: {_SIDE} has (?P<expected>.*?), "
        rf"{_OTHER_SIDE} has (?P<found>.*?)(?:; .*)?$",
        r"(?P<field>\w+): the engine has (?P<found>.+), the trainer expects (?P<expected>.+)",
    )

    def __init__(self, message: str, hint: str = "", code: Optional[int] = None):
        super().__init__(message, hint, code)
        matches = (re.search(form, message) for form in self._FORMS)
        said = next((match.groupdict() for match in matches if match), {})
        self.field: Optional[str] = said.get("field")
        self.expected: Optional[str] = said.get("expected")
        self.found: Optional[str] = said.get("found")

    def __str__(self) -> str:
        if "the state has" not in self.args[0]:
            return super().__str__()
        return f"{super().__str__()}\n  may change: {', '.join(self.MAY_CHANGE)}"


class VersionError(RingpackError):
    """Something was written by an incompatible version."""

    name, code = "RP_E_VERSION", -5006


class FileChangedError(RingpackError):
    """A file changed while it was in use."""

    name, code = "RP_E_CHANGED", -5007


class VocabularyError(RingpackError):
    """A token id lies outside the declared vocabulary."""

    name, code = "RP_E_VOCABULARY", -5008


class EmptyCorpusError(RingpackError):
    """There is nothing to read."""

    name, code = "RP_E_EMPTY", -5009


class ResourceError(RingpackError):
    """The machine does not have what was asked for."""

    name, code = "RP_E_RESOURCE", -5010


class BusyError(RingpackError):
    """Another process has it: a trainer the rank, an engine the name or the directory."""

    name, code = "RP_E_BUSY", -5011


class EngineGoneError(RingpackError, ConnectionError):
    """No engine was found, or it died and no other came in time."""

    name, code = "RP_E_GONE", -5012


class EngineTimeoutError(RingpackError, TimeoutError):
    """It did not happen within the timeout; nothing is lost."""

    name, code = "RP_E_TIMEOUT", -5013


class ProtocolError(RingpackError):
    """The other side broke the protocol."""

    name, code = "RP_E_PROTOCOL", -5014


class DiffersError(RingpackError):
    """A check found a difference."""

    name, code = "RP_E_DIFFERS", -5015


class EngineStoppedError(RingpackError):
    """The engine was asked to stop."""

    name, code = "RP_E_STOPPED", -5016


__all__ = [
    "BusyError",
    "CheckpointMismatchError",
    "ConfigError",
    "CorruptError",
    "DiffersError",
    "EmptyCorpusError",
    "EngineGoneError",
    "EngineStoppedError",
    "EngineTimeoutError",
    "FileChangedError",
    "FormatError",
    "LeaseError",
    "ProtocolError",
    "ReleasedError",
    "ResourceError",
    "RingpackError",
    "UsageError",
    "VersionError",
    "VocabularyError",
]

# A later try to attach may succeed. Busy: the seat has yet to be left, by whoever was there before.
PASSING = (EngineGoneError, EngineStoppedError, EngineTimeoutError, BusyError)

_OF_CODE = {kind.code: kind for kind in RingpackError.__subclasses__() if kind.code}
_OF_NAME = {kind.name: kind for kind in _OF_CODE.values()}


def error_of(code, message, hint=""):
    """The exception for a negative code."""
    if not message:
        message = os.strerror(-code) if code > -4096 else f"error {code}"
    return _OF_CODE.get(code, RingpackError)(message, hint, code)


def error_named(name, message, hint=""):
    """The exception for a code as the program prints it: RP_E_CONFIG, ENOENT."""
    code = _OF_NAME[name].code if name in _OF_NAME else -getattr(errno, name, 0)
    return error_of(code, message, hint)
