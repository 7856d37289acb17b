# SPDX-License-Identifier: Apache-2.0
"""The data loader of a torchtitan config: of release 0.3, and of its `components/data`.

    config.dataloader = ringpack.torchtitan.dataloader(corpus="corpus", seed=1)

torchtitan builds it with its ranks, batch size and sequence length, trains on it, and saves its
position, which is one for all ranks, in each checkpoint.

Each build begins at the first row, unless a state is loaded into it. Loops over one build continue
where the last one stopped; of a stream that is read once (infinite=False), each is a whole pass."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Optional

from ._arguments import FilePath
from ._neighbours import place_among
from .loader import Loader

try:  # the newer place first
    _module = import_module("torchtitan.components.data.loader")
except ImportError:
    _module = import_module("torchtitan.components.dataloader")
BaseDataLoader: Any = _module.BaseDataLoader

__all__ = ["RingpackDataLoader", "dataloader"]


class RingpackDataLoader(BaseDataLoader):  # type: ignore[misc, unused-ignore]
    """A Loader that gives torchtitan's pairs of inputs and labels."""

    @dataclass(kw_only=True, slots=True)  # type: ignore[call-overload, unused-ignore]
    class Config(BaseDataLoader.Config):  # type: ignore[misc, unused-ignore]
        arguments: dict[str, Any] = field(default_factory=dict)
        """Arguments of ringpack.Loader."""
        infinite: bool = True
        """Of a validator: False is a whole pass over a finite stream."""
        repeat: bool = True
        """The same, as later versions call it."""
        _made: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __init__(
        self,
        config: Any,
        *,
        dp_world_size: int,
        dp_rank: int,
        seq_len: Optional[int] = None,
        local_batch_size: int = 0,
        max_context_length: int = 0,
        num_tokens_per_batch: int = 0,
        **_: Any,
    ):
        form: dict[str, Any] = {"batch_size": local_batch_size, "flat": False}
        if seq_len is None:  # one stream of tokens for each rank
            seq_len, form = max_context_length, {"flat": True}
            form["batch_size"] = num_tokens_per_batch // max_context_length
        made = config._made  # shared by the copies of a config: a validator builds one each time
        if "loader" not in made:
            form.update(seq_len=seq_len, profile="torchtitan", return_type="torch")
            is_endless = config.infinite and config.repeat
            form.update(num_epochs="endless" if is_endless else 1, restart=not is_endless)
            form.update(place_among(dp_rank, dp_world_size))
            made["loader"] = Loader(**{**form, **config.arguments})
        self._is_again = made.setdefault("is_built", False)  # and has the position of the last one
        self.loader: Loader = made["loader"]
        made["is_built"] = True

    def _begin(self) -> None:
        if self._is_again:
            self.loader.reset()
            self._is_again = False

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Any]]:
        self._begin()
        for batch in self.loader:
            yield {"input": batch["input"], "positions": batch["positions"]}, batch["labels"]

    def state_dict(self) -> dict[str, Any]:
        self._begin()
        state: dict[str, Any] = self.loader.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:
            self.loader.load_state_dict(state_dict)
            self._is_again = False

    def close(self) -> None:
        self.loader.close()  # another validation attaches it again


def dataloader(config: Optional[FilePath] = None, **arguments: Any) -> Any:
    """The `dataloader` of a torchtitan config, of a trainer or of a validator.

    config: path of a YAML config of ringpack. Default: the stream is described by `arguments`.
    arguments: of Loader; rank, batch size, sequence length, profile and type come from torchtitan.
        A trainer's stream is endless, unless num_epochs is given."""
    if config is not None:
        arguments["config"] = config
    return RingpackDataLoader.Config(arguments=arguments)
