# SPDX-License-Identifier: Apache-2.0
"""The package's exceptions: one class per code of include/ringpack/error.h.

Every error says what failed (``str(error)``); ``.hint`` says what is safe, and the next command.
``.code`` is negative: ringpack's own codes begin at -5000 and descend, others are negated errnos.
"""

import errno
import os
import re
from typing import Any, Optional


class RingpackError(Exception):
    """Base of all errors of this package."""

    name: str = ""  # name that the program prints
    code: int = 0  # 0: raised by Python, not by the library

    def __init_subclass__(cls, name: str = "", code: int = 0) -> None:
        super().__init_subclass__()
        if name:
            cls.name, cls.code = name, code

    def __init__(self, message: str, hint: str = "", code: Optional[int] = None):
        super().__init__(message)
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.args[0]}\n  next: {self.hint}" if self.hint else self.args[0]

    def __reduce__(self) -> Any:
        return type(self), (self.args[0], self.hint, self.code)


class LeaseError(RingpackError, BufferError):
    """A batch cannot be taken or released, because views of batches are alive."""


class ReleasedError(RingpackError, ValueError):
    """A view of a closed batch was requested."""


class UsageError(RingpackError, ValueError, name="RP_E_USAGE", code=-5001):
    """A call or an argument is wrong."""


class ConcurrentCallError(UsageError, name="RP_E_CONCURRENT", code=-5017):
    """A thread called a loader while another one was inside of a call. It got no batch, and the
    other call continues."""


class ConfigError(RingpackError, ValueError, name="RP_E_CONFIG", code=-5002):
    """A key of the config is wrong."""


class FormatError(RingpackError, name="RP_E_FORMAT", code=-5003):
    """A file is not of the expected format."""


class CorruptError(RingpackError, name="RP_E_CORRUPT", code=-5004):
    """Data is damaged."""


class CheckpointMismatchError(RingpackError, name="RP_E_MISMATCH", code=-5005):
    """The state, another engine or another node differs in a field that all must agree on.

    `field`: the field that differs, usually a key of the config; the first one if several do.
    `expected`: its value in the state (or the trainer's); `found`: its value in this run. All are
    text, or None if there is no single field. `MAY_CHANGE`: keys that may change between save and
    resume (num_epochs and other limits: to more than was read; stages that are not begun, and skips
    of rows that are ahead; removed: sources that wait); an engine that takes over
    from another one while trainers stay attached may change only the keys that the hint names."""

    MAY_CHANGE = (
        *("batch_size", "dp_world_size", "ranks", "global_batch_size", "drop_last"),
        *("profile", "sections", "token_dtype", "label_mode", "pad_id", "vocab_size"),
        *("columns", "label_columns", "document_columns"),
        *("readers", "packers", "packer_processes", "prefetch_factor", "prefetch_bytes"),
        *("io", "io_depth", "o_direct", "cpus", "verify_blocks", "index"),
        *("cache_dir", "cache_bytes", "run", "num_epochs", "stages", "skip", "grow", "cost"),
        "removed",
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


class VersionError(RingpackError, name="RP_E_VERSION", code=-5006):
    """Something was written by an incompatible version."""


class FileChangedError(RingpackError, name="RP_E_CHANGED", code=-5007):
    """A file changed while it was in use."""


class VocabularyError(RingpackError, name="RP_E_VOCABULARY", code=-5008):
    """A token id is outside the declared vocabulary."""


class EmptyCorpusError(RingpackError, name="RP_E_EMPTY", code=-5009):
    """The corpus has no documents to read."""


class ResourceError(RingpackError, name="RP_E_RESOURCE", code=-5010):
    """The machine lacks a resource that was requested."""


class BusyError(RingpackError, name="RP_E_BUSY", code=-5011):
    """The resource is in use by another process: a rank by a trainer, a name or a directory by an
    engine."""


class EngineGoneError(RingpackError, ConnectionError, name="RP_E_GONE", code=-5012):
    """No engine was found, or it died and no successor came in time."""


class EngineTimeoutError(RingpackError, TimeoutError, name="RP_E_TIMEOUT", code=-5013):
    """A wait exceeded its timeout; no batch is lost."""


class ProtocolError(RingpackError, name="RP_E_PROTOCOL", code=-5014):
    """The other process broke the protocol."""


class DiffersError(RingpackError, name="RP_E_DIFFERS", code=-5015):
    """A check found a difference."""


class EngineStoppedError(RingpackError, name="RP_E_STOPPED", code=-5016):
    """The engine was stopped on request."""


__all__ = [
    "BusyError",
    "CheckpointMismatchError",
    "ConcurrentCallError",
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

# Another try to attach may succeed. BusyError: the seat's former consumer may still leave it.
PASSING = (EngineGoneError, EngineStoppedError, EngineTimeoutError, BusyError)

_KINDS: list[type[RingpackError]] = [*RingpackError.__subclasses__(), ConcurrentCallError]
_OF_CODE = {kind.code: kind for kind in _KINDS if kind.code}
_OF_NAME = {kind.name: kind for kind in _OF_CODE.values()}


def concurrent_call() -> ConcurrentCallError:
    return ConcurrentCallError(
        "two threads are in this loader at once",
        "let one thread at a time call it; batches and their views may go to any",
    )


def error_of(code: int, message: str, hint: str = "") -> RingpackError:
    """The exception for a negative code."""
    if not message:
        message = os.strerror(-code) if code > -4096 else f"error {code}"
    return _OF_CODE.get(code, RingpackError)(message, hint, code)


def error_named(name: str, message: str, hint: str = "") -> RingpackError:
    """The exception for a code as the program prints it: RP_E_CONFIG, ENOENT."""
    code = _OF_NAME[name].code if name in _OF_NAME else -getattr(errno, name, 0)
    return error_of(code, message, hint)
