# SPDX-License-Identifier: Apache-2.0
"""The placement of a loader: its rank, the name of its run, and the stream that it expects there.

Invariants
  P1  Until the first use a loader has only its arguments and the launcher's values. _settle()
      completes them once: with the ranks of torch.distributed or jax.distributed, and with a name.
  P2  A run of one process that was given no name is named after the process and a number. A fork or
      a copy of its loader, which starts an engine of its own, gets another name at its first use.
      With several ranks a run that was given no name has the job's name, and a hash of the stream's
      description. So all ranks derive one name for one loader, for any loaders in any order, and
      loaders of other streams have other names. Loaders of one process that describe one stream,
      and are alive together, count: NAME, NAME-2.
  P3  A loader that describes a stream and does not start the engine sends the description when it
      attaches, and the engine compares it with its own. If only the files of the corpus differ,
      which may hold the same, the loader opens its corpus and sends the whole contract.
"""

import os
import time
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from ._arguments import Corpus, FilePath, digest_file, option_text
from ._client import Client
from ._commands import Command, ServeCommand, engine_commands
from ._engine import ask_contract, place_given, run_program
from ._log import logger
from ._ranks import ALONE, Ranks, ask_frameworks, find_ranks, settle_ranks
from .errors import PASSING, CheckpointMismatchError, EngineGoneError, UsageError

_LOOK_S = 5.0  # from one look at the job's other engines to the next
_STRANGE_S = 10.0  # an engine of the job that no loader of this process describes is refused then
_VERSION = b"\nstream_version="  # as a contract has it
_serial = iter(range(1 << 62))
_named: "weakref.WeakValueDictionary[str, Placed]" = weakref.WeakValueDictionary()
_described: set[str] = set()  # names that loaders of this process have had, dead ones too


def _taken(group: Any, arguments: Mapping[str, Any]) -> Any:
    return group(**{name: arguments[name] for name in group._fields})


class RankGiven(NamedTuple):
    dp_rank: Optional[int]
    dp_world_size: Optional[int]
    replica: Optional[int]
    consumers_per_rank: Optional[int]
    cp_size: Optional[int]
    cp_rank: Optional[int]


class Digests(NamedTuple):
    digest_log: Optional[FilePath]
    digest_steps: int


class Given(NamedTuple):
    """Arguments of a Loader that choose the engine that it attaches to or starts."""

    config: Optional[FilePath]
    corpus: Optional[Corpus]
    run: Optional[str]
    run_dir: Optional[FilePath]
    seq_len: Optional[int]
    batch_size: Optional[int]
    ranks: RankGiven
    start_engine: Optional[bool]
    start_timeout: float
    connect_timeout: Optional[float]
    digests: Digests
    options: Mapping[str, Any]

    @classmethod
    def of(cls, arguments: Mapping[str, Any], keys: Mapping[str, Any]) -> "Given":
        """keys: the options, as completed for the engine."""
        names = "run", "run_dir", "config", "corpus", "program"
        run, run_dir = place_given(*(arguments[name] for name in names))
        groups = {"ranks": _taken(RankGiven, arguments), "digests": _taken(Digests, arguments)}
        own = {**arguments, **groups, "run": run, "run_dir": run_dir, "options": keys}
        made: Given = _taken(cls, own)
        return made

    def describes(self) -> bool:
        return self.config is not None or self.corpus is not None or "streams" in self.options

    def find_ranks(self) -> Ranks:
        rank, world, replica, consumers_per_rank, *group = self.ranks
        return find_ranks(rank, world, os.environ, replica, consumers_per_rank, *group)

    def expectations(self) -> dict[str, int]:
        """The geometry that an engine must have; 0: any."""
        names = self.options.keys()
        return {
            "rows": 0 if "streams" in names else self.batch_size or 0,
            "seq_len": 0 if {"streams", "stages"} & names else self.seq_len or 0,
        }


def name_stream(description: str) -> str:
    """A short hash. Times and lengths of files are left out: nodes may have copies."""
    from hashlib import blake2s

    lines = (line for line in description.splitlines() if not line.startswith("corpus_files"))
    return blake2s("\n".join(lines).encode(), digest_size=4).hexdigest()


def _engines_of(job: str, run_dir: Optional[FilePath], program: Optional[FilePath]) -> list[str]:
    """Runs of this machine whose names begin with the name of a job."""
    import json

    words = ["ps", "--json"]
    words += ["--run-dir", os.fspath(run_dir)] if run_dir is not None else []
    runs = (str(engine["run"]) for engine in json.loads(run_program(words, program)))
    return sorted(run for run in runs if run.startswith(job))


class Placed:
    """The half of a Loader that knows its place."""

    _config: Optional[Command] = None  # for `plan`, if the stream is described here
    _command: Optional[ServeCommand] = None  # for `serve`, if this loader starts it
    _settled = False  # P1
    _process = 0  # the one in which the run got its name; 0: this loader is a copy
    _job: Optional[str] = None  # begin of the name that is derived here
    _expected: Optional[bytes] = None  # P3: a description, or a whole contract
    _looked_at = 0.0  # for engines of the job
    _client: Any
    _engine: Any
    _left: Any
    _open: Any
    _given: Given
    _ranks: Ranks
    _connection: dict[str, Any]
    _connect_timeout: float
    _token: Optional[bytes]
    _program: Optional[FilePath]
    _folder: Optional[str]

    def _take_place(self, ranks: Ranks) -> None:
        given, describes = self._given, self._given.describes()
        starts = describes and (
            ranks.local == 0 if given.start_engine is None else given.start_engine
        )
        run, self._job, self._command = given.run, None, None
        self._process = os.getpid()
        if run is None and starts and ranks.world == 1 and ranks.consumers_per_rank == 1:
            run = f"python-{os.getpid()}-{next(_serial)}"
        elif run is None:
            self._job = ranks.job or "default"
        if describes:
            keys: dict[str, Any] = {"run": run, "run_dir": given.run_dir}
            keys |= {"seq_len": given.seq_len, "batch_size": given.batch_size}
            said = given.config is not None or "ranks" in given.options
            keys.update(ranks.keys(ranks_said=said))
            both = engine_commands(given.config, given.corpus, keys, given.options)
            self._config, self._command = both if starts else (both[0], None)
        timeout = given.connect_timeout
        if starts or timeout is None:
            timeout = given.start_timeout if describes else 10.0
        self._ranks, self._connect_timeout = ranks, timeout
        self._connection.update(
            run=run,
            run_dir=os.path.abspath(given.run_dir) if given.run_dir else None,
            **ranks.place(),
            **digest_file(*given.digests, ranks.rank, ranks.world),
        )

    def _set_option(self, key: str, value: Any) -> None:
        """Give the engine that this loader starts another value of a key, from its next
        start on; under another name, if the name is derived here."""
        self._given = self._given._replace(options={**self._given.options, key: value})
        self._take_place(self._ranks)

    def _is_settled(self) -> bool:
        is_elsewhere = self._process != os.getpid()
        return self._settled and not (is_elsewhere and self._client is self._engine is None)

    def _settle(self) -> None:
        """P1."""
        if self._is_settled():
            return
        ranks = settle_ranks(self._given.find_ranks(), os.environ)
        is_derived = self._job is not None and self._connection["run"] is not None
        if ranks != self._ranks or is_derived or self._process != os.getpid():
            self._take_place(ranks)  # in the other process of a pickled loader, for instance
        if ranks.outside:
            logger().warning(
                "SLURM_NTASKS is %s, and this process is in no step of Slurm: it is rank 0 of 1; "
                "start the ranks with srun",
                os.environ.get("SLURM_NTASKS"),
            )
        if self._config is not None and (self._job is not None or self._command is None):
            description = ask_contract(False, self._config, self._program, self._folder)
            if self._command is None:
                self._expected = description.encode()
            if self._job is not None:
                others = self._given.options.get("streams")
                text = description + (option_text(others) if others else "")
                self._take_name(f"{self._job}-{name_stream(text)}")
        elif self._job is not None:
            self._connection["run"] = self._job
        self._settled = True

    def _settle_again(self) -> None:
        """Before a loop: a framework may have started other processes since this loader attached
        as the only one, for instance by `with` before Lightning's fit()."""
        if not self._settled or self._ranks.said_by != ALONE:
            return
        asked = ask_frameworks()
        if asked is None or asked[1] in (1, self._ranks.consumers_per_rank):
            return
        place = self._client or self._left
        if self._open or (place is not None and place.counts()["batches"]):
            raise UsageError(
                f"this loader has taken batches as rank 0 of 1, and {asked[2]} says by now that "
                f"this process is rank {asked[0]} of {asked[1]}",
                "begin to use the loader after init_process_group(), or give it dp_rank and "
                "dp_world_size",
            )
        self.close()  # type: ignore[attr-defined]
        self._settled = False

    def _take_name(self, base: str) -> None:
        """P2."""
        name, count = base, 1
        while _named.get(name, self) is not self:
            count += 1
            name = f"{base}-{count}"
        _named[name] = self
        _described.add(name)
        self._connection["run"] = name
        if self._command is not None:
            arguments, text, once = self._command
            self._command = [*arguments, "--run", name], text, once

    def _try_engine(self, begin: float, timeout: float) -> Client:
        """One try to attach. `begin`: when the first one began."""
        try:
            return self._client_of(self._connection["run"], timeout)
        except EngineGoneError as gone:
            now = time.monotonic()
            if self._job is None or self._command is not None:
                raise
            if self._config is not None and now - max(begin, self._looked_at) < _LOOK_S:
                raise  # its own engine may come
            self._looked_at = now
            return self._try_others(gone, now - begin)

    def _client_of(self, run: str, timeout: float) -> Client:
        where = {**self._connection, "run": run, "state": self._token, "connect_timeout": timeout}
        try:
            return Client(**where, expected=self._expected)
        except CheckpointMismatchError as failure:
            if failure.field != "corpus_files" or self._config is None:
                raise
        has_version = _VERSION in (self._expected or b"")
        whole = self._expected = self._whole([])
        try:
            return Client(**where, expected=whole)
        except CheckpointMismatchError as failure:
            if has_version or failure.field != "stream_version":
                raise
        other = 1 if _VERSION + b"2" in whole else 2
        self._expected = self._whole([f"--stream-version={other}"])
        return Client(**where, expected=self._expected)

    def _whole(self, version: list[str]) -> bytes:
        """P3. Without a version in the config, the engine's may be that of its first start."""
        assert self._config is not None  # see the caller
        arguments, text = self._config
        command = [*arguments, *version], text
        return ask_contract(True, command, self._program, self._folder).encode()

    def _try_others(self, gone: EngineGoneError, waited: float) -> Client:
        """No engine has this loader's name. One of the job may serve the stream all the same: by
        other paths, or because this loader describes none. One that serves another stream than any
        loader of this process is a mistake of one of the ranks."""
        run, job = self._connection["run"], self._job
        assert job is not None  # see the caller
        found = _engines_of(job, self._connection["run_dir"], self._program)
        others = [name for name in found if name != run]
        if self._config is not None:  # NAME-2 is another loader of this stream
            others = [n for n in others if n not in _described and not n.startswith(run)]
        elif len(others) > 1:
            raise UsageError(
                f"the job has several engines ({', '.join(others)}), and this loader describes "
                "none of them",
                "give the loader the corpus or config of its engine, or the name of its run",
            )
        for name in others:
            try:
                client = self._client_of(name, 2.0)
            except CheckpointMismatchError as failure:
                if waited > _STRANGE_S:
                    raise CheckpointMismatchError(
                        f"no engine serves the stream of this loader (run {run}), and the "
                        f"engine of run {name} serves another one: {failure.args[0]}",
                        failure.hint,
                    ) from None
            except PASSING:
                pass
            else:
                self._connection["run"] = name
                return client
        raise gone
