# SPDX-License-Identifier: Apache-2.0
"""Shared by the end-to-end tests: corpora in every format, the oracle's streams of them, engines
outside of Python's hands, and ranks that read in step.

Flow: Corpus writes files → Stream is the oracle's answer (rows, states, digest) → Engine serves the
files → Ranks drains them → the test compares. Everything is made from a seed that a failure shows.
"""

import base64
import contextlib
import ctypes
import json
import os
import select
import signal
import struct
import subprocess
import time
from pathlib import Path

import numpy
import ringpack
from state import hash128, row_digest, save_token
from stream import Plan, Spec, count_rows
from stream_oracle import INPUTS, Expected, keys_of

PATIENCE = 600  # seconds until a test gives up; no working wait takes that long
LONG = os.environ.get("RP_LONG") == "1"  # the heavy variants too
EOS = 49999
VERSION_1 = {"stream_version": 1}  # the config of each test that is about version 1 has it
MEGATRON = {"u8": 1, "i8": 2, "i16": 3, "i32": 4, "i64": 5, "u16": 8}
LLMC = {"u16": (20240520, 1, 50256), "u32": (20240801, 7, 128000)}


# ---- corpora ------------------------------------------------------------------------------------


def numpy_type(dtype):
    return numpy.dtype(f"<{dtype[0]}{int(dtype[1:]) // 8}")


def write_megatron(prefix, documents, dtype):
    """A .bin/.idx pair; a document of two tokens or more is two sequences."""
    kind = numpy_type(dtype)
    pieces = [
        part
        for d in documents
        for part in ((d[: len(d) // 2], d[len(d) // 2 :]) if len(d) > 1 else (d,))
    ]
    first = numpy.cumsum([0] + [2 if len(d) > 1 else 1 for d in documents])
    lengths = numpy.array([len(piece) for piece in pieces], "<i4")
    starts = kind.itemsize * (numpy.cumsum(lengths, dtype="<i8") - lengths)
    numpy.concatenate(documents).astype(kind).tofile(f"{prefix}.bin")
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0")
        file.write(struct.pack("<QBQQ", 1, MEGATRON[dtype], len(lengths), len(first)))
        file.write(lengths.tobytes() + starts.astype("<i8").tobytes())
        file.write(first.astype("<i8").tobytes())
    return f"{prefix}.bin"


def write_flat(path, documents, dtype, form):
    """raw, npy or llmc; the documents hold their separators already."""
    tokens = numpy.concatenate(documents).astype(numpy_type(dtype))
    if form == "npy":
        numpy.save(path, tokens)
        return path
    with open(path, "wb") as file:
        if form == "llmc":
            magic, version, _ = LLMC[dtype]
            file.write(struct.pack("<3i", magic, version, len(tokens)).ljust(1024, b"\0"))
        file.write(tokens.tobytes())
    return path


def separated(documents, form, dtype):
    """Documents as a flat file has them: with their EOS, last in raw and npy, first in llmc."""
    if form == "llmc":
        mark = [LLMC[dtype][2]]
        return [numpy.concatenate([mark, d]) for d in documents]
    ended = [numpy.concatenate([d, [EOS]]) for d in documents[:-1]]
    return [
        *ended,
        documents[-1] if len(documents[-1]) else numpy.array([EOS]),
    ]  # the last never ended


def random_documents(generator, count, seq_len, vocabulary):
    """Short and long ones, one as long as a row, and some that are empty."""
    lengths = numpy.minimum(generator.lognormal(0, 1.1, count) * seq_len / 3, 5 * seq_len).astype(
        int
    )
    lengths[: min(4, count)] = [0, seq_len, 1, 2 * seq_len + 1][: min(4, count)]
    generator.shuffle(lengths)
    return [generator.integers(0, vocabulary, n) for n in lengths]


class ArraySource:
    """Documents in memory, as the oracle wants them."""

    def __init__(self, documents):
        self.documents, self.lengths = documents, [len(d) for d in documents]

    def tokens(self, document, offset, length):
        return [int(t) for t in self.documents[document][offset : offset + length]]


class Corpus:
    """Sources on disk. `layout` has for each: format, dtype, weight, documents of each shard."""

    def __init__(self, folder, layout, seed, seq_len=48):
        self.folder, self.sources, self.documents, self.paths = Path(folder), [], [], []
        self.spans = None  # for each source: None, or for each document a list of (begin, end)
        self.counts = [counts for *_, counts in layout]
        generator = numpy.random.default_rng(seed)
        for number, (form, dtype, weight, counts) in enumerate(layout):
            shards, documents = [], []
            for shard, count in enumerate(counts):
                made = random_documents(
                    generator, count, seq_len, 100 if dtype in ("u8", "i8") else 30000
                )
                path = self.folder / f"{number}-{shard}"
                if form == "megatron":
                    shards.append(write_megatron(path, made, dtype))
                else:
                    made = separated(made, form, dtype)
                    shards.append(
                        str(
                            write_flat(
                                f"{path}.{'npy' if form == 'npy' else 'bin'}", made, dtype, form
                            )
                        )
                    )
                documents += made
            declared = {
                "name": f"source-{number}",
                "shards": shards,
                "weight": weight,
                "format": form,
            }
            if form in ("raw", "npy"):
                declared["eos"] = EOS
            if form == "raw":
                declared["dtype"] = dtype
            self.sources.append(declared)
            self.documents.append(documents)
            self.paths += shards

    def index(self, program):
        """Leave sidecars, so that the corpus has a full fingerprint and may be away."""
        for source in self.sources:
            declared = []
            for key in "format", "dtype", "eos":
                if key in source:
                    declared += [f"--{key}", str(source[key])]
            subprocess.run(
                [program, "index", "-q", *declared, *source["shards"]],
                check=True,
                capture_output=True,
            )


class Written:
    """A corpus that others wrote: its sources, and the documents of each."""

    def __init__(self, sources, documents):
        self.sources, self.documents, self.spans = sources, documents, None


# ---- the expected output -------------------------------------------------------------------------


class Stream(Expected):
    """The oracle's answer: fragments, state and digest of every row. `inputs` are keys of the
    config; the others are as in stream_oracle.INPUTS."""

    def __init__(self, corpus, inputs=(), rows=None):
        keys = {**INPUTS, "block_documents": 1024, "window_blocks": 16, **dict(inputs)}
        masks = getattr(corpus, "spans", None) or [None] * len(corpus.sources)
        keys["sources"] = [
            {
                "weight": int(source["weight"]),
                "spans": spans,
                "drop_untrained": source.get("drop_untrained", False),
            }
            for source, spans in zip(corpus.sources, masks)
        ]
        self.keys, self.sources = keys, corpus.sources
        self.token_dtype, self.label_mode = (
            keys.get("token_dtype", "i32"),
            keys.get("label_mode", "shifted"),
        )
        self.pad_id = keys.get("pad_id", 0)
        self.spec = Spec(keys, [ArraySource(documents) for documents in corpus.documents])
        end = count_rows(Plan(self.spec))
        self.rows, self.row_digests, self.bodies = [], [], []
        plan = Plan(self.spec)
        for row in range(rows if end is None else end):
            self.bodies.append(save_token(plan))
            self.rows.append(plan.row())
            self.row_digests.append(row_digest(self.spec, row, self.rows[-1]))
        self.bodies.append(save_token(plan))
        self.digest = sum(self.row_digests) % 2**128

    def config(self):
        """The keys that are the stream's, and the sources, for an engine's config."""
        unused = {"window": self.spec.W == 0, "fill": self.spec.packing == "concat"}
        own = {key: value for key, value in self.keys.items() if not unused.get(key)}
        if self.spec.shuffle != "block":
            del own["block_documents"], own["window_blocks"]
        return {**keys_of(own), "sources": self.sources}

    def state(self, row, like):
        """The state token at `row`. The corpus's fingerprints are `like`'s, the engine's."""
        self.spec.corpus_sampled = int.from_bytes(like[16:32], "little")
        self.spec.corpus_full = int.from_bytes(like[32:48], "little")
        body = bytearray(self.bodies[min(row, len(self.rows))])
        body[16:48] = like[16:48]
        return bytes(body[:-16]) + struct.pack("<QQ", *hash128(bytes(body[:-16])))

    def tokens_of(self, row):
        """Row as the engine's input_ids without padding, for comparisons by row."""
        return [token for fragment in self.rows[row] for token in self.tokens(fragment)]

    def batch(self, first, count, pad_id=None):
        made, ends = super().batch(first, count, self.pad_id if pad_id is None else pad_id)
        if self.label_mode == "aligned":
            made["labels"] = made["aligned"]
        wide = {"i32": "<i4", "i64": "<i8", "u16": "<i4"}[self.token_dtype]
        for name in "labels", "position_ids":
            made[name] = made[name].astype(wide)
        made["input_ids"] = made["input_ids"].astype("<u2" if self.token_dtype == "u16" else wide)
        return made, ends


def write_state(path, token):
    Path(path).write_bytes(token)
    return str(path)


# ---- engines ------------------------------------------------------------------------------------


def end_by_signals():
    """In a child: as from a terminal, although these tests may run in the background, whose starter
    has these signals ignored."""
    for number in signal.SIGHUP, signal.SIGINT, signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)


def io_uring_works():
    """Containers often deny it."""
    made = ctypes.CDLL(None).syscall(425, 1, ctypes.create_string_buffer(120))  # io_uring_setup
    if made >= 0:
        os.close(made)
    return made >= 0


IO_URING_WORKS = io_uring_works()


class Engine:
    """`ringpack serve` as a child that dies with this process, however that ends."""

    def __init__(self, program, folder, config, *arguments, wait=True, prefix=()):
        self.folder, self.run = Path(folder), config.get("run", "e2e")
        self.config = {"run": self.run, "run_dir": str(folder), **config}
        if self.config.get("io") == "io_uring" and not IO_URING_WORKS:
            self.config["io"] = "pread"
        path = self.folder / f"{self.run}.yaml"
        path.write_text(json.dumps(self.config))  # JSON is YAML
        self.log_path = self.folder / f"{self.run}.log"
        self.ready, ready_end = os.pipe()
        life_end, self.lifeline = os.pipe()
        command = [*prefix, program, "serve", "-c", str(path), *map(str, arguments)]
        command += ["--ready-fd", str(ready_end), "--lifeline", str(life_end)]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[ready_end, life_end],
                preexec_fn=end_by_signals,
                env={**os.environ, "XDG_STATE_HOME": str(self.folder / "state-home")},
            )
        os.close(ready_end)
        os.close(life_end)
        self.pid = self.process.pid
        if wait:
            self.wait_ready()

    def wait_ready(self):
        assert select.select([self.ready], [], [], PATIENCE)[0], "the engine was not ready in time"
        assert os.read(self.ready, 16) == b"ready\n", self.log()

    def log(self):
        return self.log_path.read_text(errors="replace")

    def packers(self):
        """Pids of its packing processes."""
        pids = []
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
                pids += map(int, (task / "children").read_text().split())
        return pids

    def checkpoint(self):
        return ringpack.checkpoint(self.run, self.folder)

    def kill(self):
        """SIGKILL; a second one is fine."""
        if self.process.poll() is None:
            self.process.kill()
        return self._close()

    def stop(self):
        """SIGTERM, and the exit status. A hung engine is killed and fails the test."""
        if self.process.poll() is None:
            self.process.terminate()
        return self._close()

    def wait(self):
        return self._close()

    def _close(self):
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the engine hung; it said:\n{self.log()}") from None
        finally:
            for fd in self.ready, self.lifeline:
                if fd is not None:
                    os.close(fd)
            self.ready = self.lifeline = None
        return status


# ---- trainers in this process -------------------------------------------------------------------


def token_of(loader):
    """The state token as exact bytes."""
    return base64.b64decode(loader.state_dict(text=True)["ringpack_state"])


class Ranks:
    """All ranks of a run, read round robin, as a job does it."""

    def __init__(self, engine, world=1, token=None, **options):
        known = {"run": engine.run, "run_dir": engine.folder, "connect_timeout": PATIENCE}
        self.loaders = [
            ringpack.Loader(dp_rank=rank, dp_world_size=world, **{**known, **options})
            for rank in range(world)
        ]
        for loader in self.loaders:
            if token is not None:
                loader.load_state_dict({"ringpack_state": token})
            loader.attach()

    def turn(self):
        """One micro-batch of every rank, or None at the end, which must be the same for all."""
        batches = self.next_of_each()
        if None in batches:
            assert batches == [None] * len(batches), "the ranks do not end together"
            return None
        return batches

    def next_of_each(self):
        """All wait at once, as the processes of a job do: each of them makes room for the batches
        of a skipped step."""
        found, deadline = {}, time.monotonic() + PATIENCE
        wait = PATIENCE if len(self.loaders) == 1 else 0.05
        while len(found) < len(self.loaders):
            for rank, loader in enumerate(self.loaders):
                if rank not in found:
                    try:
                        found[rank] = loader.next(timeout=wait)
                    except ringpack.errors.EngineTimeoutError as failure:
                        is_early = str(failure).startswith("no batch within")  # none of a store's
                        if not is_early or time.monotonic() > deadline:
                            raise
        return [found[rank] for rank in range(len(self.loaders))]

    def turns(self, most=None):
        while most is None or most > 0:
            batches = self.turn()
            if batches is None:
                return
            yield batches
            most = None if most is None else most - 1

    def tokens(self):
        return [token_of(loader) for loader in self.loaders]

    def close(self):
        for loader in self.loaders:
            loader.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Taken:
    """The rows that ranks have read: by number, each once, and their digest."""

    def __init__(self, stream):
        self.stream, self.rows, self.digest = stream, set(), 0

    def add(self, batches):
        """Every row of a turn must be the oracle's, and new."""
        for batch in batches:
            self.digest = (self.digest + batch.digest()) % 2**128
            for info, ids in zip(batch["rows"].tolist(), batch["input_ids"]):
                row = info[0]
                assert row not in self.rows, f"row {row} came twice"
                self.rows.add(row)
                expected = self.stream.tokens_of(row) if row < len(self.stream.rows) else []
                assert ids[: len(expected)].tolist() == expected, f"other tokens in row {row}"

    def assert_all(self, first=0):
        """Rows first … N - 1 came, each once, and no digest differs."""
        wanted = set(range(first, len(self.stream.rows)))
        assert wanted <= self.rows, f"missing rows {sorted(wanted - self.rows)[:9]}"
        assert min(self.rows, default=first) >= first
        expected = sum(self.stream.row_digests[first:]) % 2**128
        assert self.digest == expected, "other tokens in the digest"


def wait_until(condition, what="it"):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in time"
        time.sleep(0.005)
