# SPDX-License-Identifier: Apache-2.0
"""ringpack feeds packed tokens to LLM trainers, and resumes exactly.

    import ringpack

    with ringpack.Loader("config.yaml", return_type="torch") as loader:
        for batch in loader:
            loss = train(batch["input_ids"].to(device), batch["labels"].to(device))
            save({"model": model.state_dict(), "loader": loader.state_dict()})

See Loader for how it finds or starts its engine, Batch for its contents and who owns them, and
Replay for the batches of any step again.
"""

import os as _os
from typing import TYPE_CHECKING, Any, Optional

# Without this check, half an installation or half a removal fails when a missing module is first
# imported, for some modules in the middle of a training. (Frozen programs have other loaders.)
if type(__spec__.loader).__name__ == "SourceFileLoader":
    _folder = _os.path.dirname(_os.path.abspath(__file__))
    _there = {*_os.listdir(_folder)}
    _wanted = {
        *("__main__.py", "_accelerate.py", "_arguments.py", "_attached.py", "_boundaries.py"),
        *("_calendar.py", "_calibrate", "_checks.py", "_client.py", "_commands.py", "_convert"),
        *("_device.py", "_documents.py", "_engine.py", "_evaluation.py", "_form.py"),
        *("_interpreter.py", "_lease.py", "_library.py", "_log.py", "_machine.py", "_made.py"),
        *("_neighbours.py", "_numbers.py", "_options.py", "_origins.py", "_pairs.py"),
        *("_passes.py", "_pin.py", "_placement.py", "_position.py", "_preferences.py"),
        *("_ranks.py", "_room.py", "_state.py", "_streams.py", "_token.py", "_torch.py"),
        *("_views.py", "batch.py", "callbacks.py", "errors.py", "hf.py", "loader.py"),
        *("megatron.py", "profiles.py", "replay.py", "torchtitan.py", "trainer.py"),
    }
    if "bin" in _there or "libringpack.so" in _there:  # a wheel contains both
        _wanted |= {"bin", "libringpack.so"}
    if not _wanted <= _there:
        raise ImportError(
            f"{_folder} lacks {', '.join(sorted(_wanted - _there))}, so that this installation of "
            "ringpack is not whole: install it again, with `pip install --force-reinstall` and the "
            "file of the wheel, or with `apt install --reinstall` and the file of the package",
            name=__name__,
            path=__file__,
        )

from . import _interpreter, errors  # the check first
from ._arguments import FilePath
from ._library import ask_engine as _ask_engine
from ._library import version as _library_version
from ._state import describe, export_state, import_state
from .batch import Batch
from .errors import *  # noqa: F403
from .loader import Loader
from .replay import Replay, ReplayedBatch

if TYPE_CHECKING:  # types of arguments that are mappings; an import of them takes time
    from ._options import CostOptions as CostOptions
    from ._options import DealOptions as DealOptions
    from ._options import LimitOptions as LimitOptions
    from ._options import OneStreamOptions as OneStreamOptions
    from ._options import Options as Options
    from ._options import SkipOptions as SkipOptions
    from ._options import SourceOptions as SourceOptions
    from ._options import StageOptions as StageOptions

__all__ = ["Batch", "Loader", "Replay", "ReplayedBatch", "checkpoint", "stat"]
__all__ += ["describe", "export_state", "import_state"]
__all__ += errors.__all__
__version__: str
"""Version of the loaded library; if none is loaded yet, this loads it."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        try:
            return _library_version()
        except errors.RingpackError as failure:  # getattr() with a default expects AttributeError
            raise AttributeError(str(failure)) from failure
    if name == "hf":
        from importlib import import_module

        return import_module(".hf", __name__)
    if name.endswith("Options"):
        from . import _options

        if hasattr(_options, name):
            return getattr(_options, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def stat(run: str = "default", run_dir: Optional[FilePath] = None) -> dict[str, Any]:
    """The status of a running engine as a dict: the keys of `ringpack stat --json`.

    run: str; name of the run ("default").
    run_dir: path; folder of the engine's socket. Default: the engine's default.

    EngineGoneError: no such engine.
    """
    import json

    told: dict[str, Any] = json.loads(_ask_engine("rp_run_stat", run, run_dir))
    return told


def checkpoint(run: str = "default", run_dir: Optional[FilePath] = None) -> str:
    """Make a running engine write a checkpoint. Returns its path, once it is durable. A
    RuntimeWarning says that it has no prefetched rows, because a token file has changed.

    Arguments and errors as of stat(); UsageError: the engine has no checkpoint_dir."""
    return _ask_engine("rp_run_checkpoint", run, run_dir)
