# SPDX-License-Identifier: Apache-2.0
"""A batch: a mapping of names to arrays that lie in the engine's memory, read without a copy.

Ownership. A batch holds a *lease* on its slot of the ring. Every view (array or tensor, and every
slice of one) keeps the lease, so the memory below a view never changes and never goes away,
whatever happens to the batch, the loader or the engine. The slot goes back to the engine, once,
when the batch has been closed and its last view is gone:

* the loader's next step, ``with batch:`` and garbage collection *close*: views that are still alive
  keep the slot, and it goes back when they die;
* ``batch.release()`` means "now": it raises LeaseError, which names the views, if it cannot.

A closed batch gives no more views (ReleasedError). Its numbers stay readable.

Read-only. Arrays are read-only and cannot be made writable. Tensors of torch are copies that may be
written to: all that a batch gives of one section share its memory, which is page-locked where the
ring is. With copy=False they are views of the ring. Torch has no read-only tensors: writing into
such a view, in place, kills the process with SIGSEGV. batch.to(device) and batch.copy() always give
memory of the caller's.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from ._arguments import FilePath
from ._lease import Lease, Terms
from ._state import epoch_of, epochs_of, state_in_form, token_of
from ._views import FLAT, ROWS, Look, import_jax, import_torch, look_at, own, tensor_of
from .errors import LeaseError, ReleasedError, RingpackError

if TYPE_CHECKING:
    from .profiles import Field


new = object.__new__  # of a Batch, whose own __new__ would take as long as the rest of a step
_BEFORE_THAT = (
    "take views before that, or copies: batch.copy(), Loader(copy=True), or Loader(keep=N); for a "
    "Trainer of transformers, which holds several batches, ringpack.hf.attach(trainer, loader)"
)


def _of_another_run(what: str) -> RingpackError:
    return RingpackError(what, "give the config, or a checkpoint, of this run: explain(config)")


class Form:
    """What `batch[name]` gives, the same for all batches of a loader."""

    __slots__ = (
        *("client", "fields", "is_own", "kind", "looks", "names", "places", "sections", "shape"),
        *("tensor", "went_on"),
    )

    client: Any
    kind: str
    is_own: bool  # tensors of torch are copies
    tensor: Optional[Callable[[Any], Any]]  # of a numpy array; None: that is what is wanted
    shape: int  # of the view of a section: ROWS, FLAT
    sections: tuple[str, ...]  # that the run has
    fields: "Mapping[str, Field]"  # of a profile; none = the sections
    places: Mapping[str, tuple[str, int]]  # of the names of sections: the section, and the shape
    looks: Mapping[str, Look]  # of the same names
    names: tuple[str, ...]  # of the fields, or of the sections that are tensors of this kind
    went_on: str  # why the loader's next step closes a batch

    def __init__(self, **all_of_them: Any):
        for name, value in all_of_them.items():
            setattr(self, name, value)


class Document(NamedTuple):
    """A part of a document in a row of a batch, and where it comes from."""

    source: int  # its place in `sources`
    document: int  # of the source
    offset: int  # token of the document at which the part begins
    length: int  # in tokens
    file: str
    row: int  # of the file: ds[row] of a table; else the number of the document


def _number(name: str, text: str) -> Any:
    return property(lambda batch: getattr(batch._terms.info, name), doc=text)


class Sections(Mapping[str, Any]):
    """Names to views of one batch, all of one shape. Views are made when they are asked for."""

    __slots__ = ("_batch", "_flat")

    def __init__(self, batch: "Batch", flat: bool):
        self._batch, self._flat = batch, flat

    def __getitem__(self, name: str) -> Any:
        return self._batch.view(name, flat=self._flat)

    def __iter__(self) -> Iterator[str]:
        return iter(self._batch._form.sections)

    def __len__(self) -> int:
        return len(self._batch._form.sections)

    def __contains__(self, name: object) -> bool:
        return name in self._batch._form.sections


class Batch(Mapping[str, Any]):
    """The rows that one rank takes in one micro-step.

    ``batch[name]`` is a section, if the run has it (``profile`` and ``sections`` of the
    config choose). With a ``profile`` of a framework the mapping has that one's names instead
    (ringpack.profiles); sections that it does not name can be had by these all the same. L is
    seq_len, D is max_docs_per_row; a *fragment* is the part of a document that lies in one row:

    ============== =================== =========================================================
    rows           (batch_size,)       row (global number), fragments, tokens; numpy records
    doc_lens       (batch_size, D)     int32; length of every fragment in tokens, then zeros
    input_ids      (batch_size, L)     tokens, then pad_id
    labels         (batch_size, L)     next token of the fragment; -100 where there is none, or
                                       where a mask leaves it out
    position_ids   (batch_size, L)     0, 1, … within each fragment
    segment_ids    (batch_size, L)     int32; 1, 2, … by fragment, 0 on padding
    loss_mask      (batch_size, L)     float32; 1 where the label is a token
    cu_seqlens     (batch_size*(D+1)+1,) int32; ends of all segments over the flat batch, padded at
                                       the end: use ``[: batch.segments + 1]`` for the exact ones
    provenance     (batch_size, D)     document, offset, source, length; numpy records
    ============== =================== =========================================================

    ``batch.flat()`` has the same bytes as 1-D views. See the module for who owns what, how long.
    """

    __slots__ = ("__weakref__", "_form", "_lease", "_made", "_terms", "_why")

    number: int = _number("number", "Number of the batch since the run's base row.")
    first_row: int = _number("first_row", "Global number of its first row.")
    next_row: int = _number("next_row", "Global row at which the state after this batch stands.")
    batch_size: int = _number("rows", "Rows.")
    seq_len: int = _number("seq_len", "Tokens in a row.")
    rows_real: int = _number("rows_real", "Rows that are not padding only.")
    tokens_real: int = _number("tokens_real", "Tokens that are not padding.")
    tokens_loss: int = _number("tokens_loss", "Labels that are not -100.")
    max_seqlen: int = _number("max_seqlen", "Tokens of the longest segment of cu_seqlens.")
    segments: int = _number("segments", "Segments of cu_seqlens, pad tails included.")
    sum_len_squared: int = _number("sum_len_squared", "Sum of squared fragment lengths: tokens².")

    def __new__(cls, values: Any = None) -> Any:
        """A dict of `values`: who moves a mapping to a device, as transformers and accelerate do,
        makes another of its type."""
        return new(cls) if values is None else dict(values)

    # Filled in by batch_of() and Loader.next: an __init__ would cost as much as the object, in
    # every step.
    _lease: Optional[Lease]  # None: closed
    _terms: Terms
    _form: Form
    _made: dict[Any, Any]  # what is the caller's, once there is any: by name, section, its shape
    _why: str  # it is closed; set before _lease is None, as another thread may read it in between

    def view(self, name: str, *, flat: Optional[bool] = None, kind: Optional[str] = None) -> Any:
        """One section, by the names above. flat: 1-D, otherwise a row of the batch is a row of the
        view. kind: "numpy", "torch" or "jax"; records (rows, provenance) are always numpy. Default:
        as the loader says. Tensors of torch are views with copy=False only."""
        form = self._form
        shape = form.shape if flat is None else FLAT if flat else ROWS
        tensor = form.tensor
        if kind is not None:
            tensor = None if kind == "numpy" else tensor_of(kind)
        if form.is_own and (kind or form.kind) == "torch":
            return self._own_section(name, shape, partial(self._view, name, shape, tensor))
        return self._view(name, shape, tensor)

    def _view(self, name: str, shape: int, tensor: Optional[Callable[[Any], Any]]) -> Any:
        lease = self._open_lease()
        place = lease.client.layout.get(name)
        if place is None:
            raise KeyError(
                f"{name}: the run has {', '.join(self._form.sections)}; "
                "`profile` or `sections` of its config adds others"
            )
        return look_at(name, place, shape, tensor)(lease)

    def _open_lease(self, instead: str = "") -> Lease:
        if self._lease is None:
            raise ReleasedError(f"batch {self.number} {self._why}", instead or _BEFORE_THAT)
        return self._lease

    def adopt(self, array: Any) -> Any:
        """A numpy array of the caller's as the kind of tensor that `batch[name]` gives, page-locked
        as those are: one tensor that is not makes the copies of all wait for the GPU."""
        if self._form.kind == "torch":
            mine = array if array.flags.writeable else array.copy()
            tensor = import_torch().from_numpy(mine)
            return own(tensor, True) if self._is_locked() else tensor
        return import_jax().numpy.asarray(array) if self._form.kind == "jax" else array

    def flat(self) -> Sections:
        """The same sections as 1-D views."""
        return Sections(self, flat=True)

    def copy(self) -> dict[str, Any]:
        """A dict of copies, which are the caller's: arrays and tensors that can be written to, also
        after the batch is closed. For copies to a GPU they are page-locked where the ring is."""
        is_locked = self._is_locked()
        return {name: own(self._newest(name), is_locked) for name in self._form.names}

    def to(self, device: Any, non_blocking: bool = False) -> dict[str, Any]:
        """A dict with copies of the tensors on a device of torch, which may be the CPU; other
        values stay as they are."""
        copies = {name: self._moved(name, device, non_blocking) for name in self._form.names}
        pins = self._lease.client.pins if self._lease is not None else None
        if pins is not None:
            pins.note(self._terms.info)  # the copies may have been the first use of that device
        return copies

    def _moved(self, name: str, device: Any, non_blocking: bool) -> Any:
        view = self._newest(name)
        if not hasattr(view, "to"):
            return view
        moved = view.to(device, non_blocking=non_blocking)
        return view.clone() if moved.data_ptr() == view.data_ptr() else moved

    def _is_locked(self) -> bool:
        """Whether the ring is page-locked."""
        pins = self._form.client.pins
        return pins is not None and pins.locks()

    def record_stream(self, stream: Any) -> None:
        """Keep the batch's memory until the GPU has done what is on this torch.cuda.Stream when the
        last view dies, as torch.Tensor.record_stream does for memory of the GPU. For copies on a
        stream that was not the current one when the view was made. Call it before the batch is
        closed. Without pin_memory there is nothing to wait for, and it does nothing."""
        pins = self._open_lease("call record_stream() before that").client.pins
        if pins is not None:
            pins.note_stream(self._terms.info, stream)

    def documents(self) -> list[list[Document]]:
        """For each row the documents that it has parts of, with the file and the row of each in the
        original data set, where its url and its text are. The run needs the section `provenance`
        (`profile: full`, or `sections`), and its engine has to be alive: it is asked."""
        import numpy

        parts = self.view("provenance", flat=False, kind="numpy")
        fragments = self.view("rows", kind="numpy")["fragments"]
        assert self._lease is not None
        used = numpy.concatenate([row[:count] for row, count in zip(parts, fragments)])
        places = iter(self._lease.client.locate(used))
        return [
            [
                Document(source, document, offset, length, *next(places))
                for document, offset, source, length in row[:count].tolist()
            ]
            for row, count in zip(parts, fragments)
        ]

    def explain(
        self, config: Optional[FilePath] = None, *, program: Optional[FilePath] = None
    ) -> list[dict[str, Any]]:
        """What `ringpack explain --json` says of each fragment: row, step, micro_batch, rank,
        fragment (its number in the row), place (its first token in the row), tokens, source,
        source_number, document, offset, epoch, file, byte_offset, file_row, and the text, where a
        tokenizer is known; ids are the tokens of this batch. That program is asked, about the
        engine of this run, or about a config or a checkpoint that is given: where the engine's own
        config cannot be read (another container), or the run has ended. Its answer is compared
        with this batch, by the tokens of each fragment and by provenance, if the batch has that
        section; tokens of objects in a store are not read, so without provenance only the number of
        fragments and of tokens of each of their rows is compared. Text may hold whatever the
        documents hold: escape it before it is shown. program: path of `ringpack`."""
        rows = self.view("rows", kind="numpy")
        ids = self.view("input_ids", flat=False, kind="numpy")
        places = {int(row["row"]): place for place, row in enumerate(rows) if row["fragments"]}
        if not places:
            return []  # padding after the end of the stream
        has_parts = "provenance" in self._form.sections
        parts = self.view("provenance", flat=False, kind="numpy") if has_parts else None
        assert self._lease is not None
        told = self._lease.client.explain(min(places), max(places), config, program)
        records = []
        for row in told:
            of_row = {key: row[key] for key in ("row", "step", "micro_batch", "rank")}
            info, tokens = rows[places[row["row"]]], ids[places[row["row"]]]
            if (row["tokens"], len(row["fragments"])) != (info["tokens"], info["fragments"]):
                raise _of_another_run(
                    f"row {row['row']} has {info['fragments']} fragments and {info['tokens']} "
                    f"tokens, and by {config or 'the config of the engine'} "
                    f"{len(row['fragments'])} and {row['tokens']}"
                )
            for part in row["fragments"]:
                end = part["place"] + part["tokens"]
                own = tokens[part["place"] : end].tolist()
                is_same = part["ids"] in (None, own)  # None: an object in a store
                if parts is not None:
                    names = ("document", "offset", "source_number", "tokens")
                    place = parts[places[row["row"]]][part["fragment"]]
                    is_same = is_same and place.item() == tuple(part[name] for name in names)
                if not is_same:
                    raise _of_another_run(
                        f"row {row['row']} does not have document {part['document']} of source "
                        f"{part['source']} at token {part['place']}, where it is by "
                        f"{config or 'the config of the engine'}"
                    )
                records.append({**of_row, **part, "ids": own})
        return records

    def digest(self, labels: bool = False) -> int:
        """Digest of the rows (engine/plan/STREAM.md section 7), to be added up modulo 2**128.

        With `labels`, the labelled digest: it covers labels or the loss mask, too."""
        held = self.view("rows", kind="numpy")  # refuses a closed batch; keeps the lease meanwhile
        assert self._lease is not None
        digest = self._lease.client.digest(self._terms.info, labels)
        del held
        return digest

    def release(self) -> None:
        """Give the slot back to the engine now. A second call does nothing.

        Raises LeaseError when views are alive; the batch then stays as it was. Where two threads
        took views of one section at once it may see those of only one: then it is close(), and the
        slot goes back with the last view."""
        if self._lease is None:
            return
        alive = self._lease.viewed()
        if alive:
            gc.collect()  # views in reference cycles that nothing reaches (tracebacks, closures)
            alive = self._lease.viewed()
        if alive:
            raise LeaseError(
                f"batch {self.number} cannot be released: views of {', '.join(alive)} are alive",
                "drop them (del), or use close(), which releases when the last one is gone",
            )
        self.close("was released")

    def close(self, why: str = "was closed") -> None:
        """Give no more views; the slot goes back when the last view is gone. Again: nothing."""
        self.end(why)

    def end(self, why: str) -> Optional[Lease]:
        """close(), for a caller who sees to the lease."""
        lease = self._lease
        if lease is not None:
            self._why, self._lease = why, None
        return lease

    @property
    def closed(self) -> bool:
        return self._lease is None

    def __getitem__(self, name: str) -> Any:
        form = self._form
        return self._own(name) if form.is_own and form.kind == "torch" else self._look(name)

    def _look(self, name: str) -> Any:
        """The value of a name, as views of the ring."""
        form = self._form
        look = form.looks.get(name)
        if look is not None:
            return look(self._lease or self._open_lease())
        field = form.fields.get(name)
        if callable(field):
            return field(self)
        return self._view(name, form.shape, form.tensor)  # it says what there is

    def _own(self, name: str) -> Any:
        """A tensor of the caller's: the same one each time, so writes to it are kept."""
        if self._lease is None:
            self._open_lease()
        made = self._all_made()
        if name not in made:
            place = self._form.places.get(name)
            look = partial(self._look, name)
            made[name] = look() if place is None else self._own_section(*place, look)
        return made[name]

    def _own_section(self, section: str, shape: int, look: Callable[[], Any]) -> Any:
        """The same of a section, of which all shapes share their memory."""
        made, lease = self._all_made(), self._open_lease()
        if (section, shape) not in made:
            first = made.get((section,))
            if first is None:
                found = made[section,] = own(look(), self._is_locked())
            else:
                found = first.reshape(lease.client.layout[section].shapes[shape])
            made[section, shape] = found
        return made[section, shape]

    def _all_made(self) -> dict[Any, Any]:
        try:
            return self._made
        except AttributeError:
            self._made = {}
            return self._made

    def _newest(self, name: str) -> Any:
        """A view, or the tensor that the caller has, and may have written to."""
        made, place = getattr(self, "_made", {}), self._form.places.get(name)
        has_own = name in made or (place is not None and (place[0],) in made)
        is_open = self._form.kind == "torch" and self._lease is not None
        return self._own(name) if has_own and is_open else self._look(name)

    def state_dict(self, text: bool = False) -> dict[str, Any]:
        """The position after this batch, as Loader.state_dict gives it: for loops that take batches
        before they use them. Also of a closed batch, if it is one of the last 32."""
        form, info = self._form, self._terms.info
        token = form.client.state_after(info)
        if not token:
            raise ReleasedError(
                f"the state after batch {self.number} is no longer known: it is older than the "
                "last 32 that were taken",
                "call state_dict() of a batch earlier, and keep what it returns",
            )
        return state_in_form(token, form.client.state_bytes, form.kind, text)

    @property
    def epoch(self) -> int:
        """Times that the whole corpus had been given before the end of this batch: 0 in the first
        epoch. Of several sources the one that was given least often counts. A batch in which an
        epoch ends is of the next one, as its last rows are. It costs a copy of the state."""
        token = token_of(self.state_dict(text=True))
        epochs = epochs_of(token)
        return epoch_of(token) if epochs == 0 else min(epoch_of(token), epochs - 1)

    def __iter__(self) -> Iterator[str]:
        return iter(self._form.names)

    def __len__(self) -> int:
        return len(self._form.names)

    def __contains__(self, name: object) -> bool:
        return name in self._form.names

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close("was closed at the end of its `with` block")

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __reduce__(self) -> Any:
        raise TypeError("a batch lies in shared memory and cannot be pickled: send batch.copy()")

    def __repr__(self) -> str:
        state = f" ({self._why})" if self.closed else ""
        return (
            f"<ringpack.Batch {self.number}: rows {self.first_row} to "
            f"{self.first_row + self.batch_size - 1}, {self.tokens_real} tokens{state}>"
        )


def batch_of(lease: Lease, form: Form) -> Batch:
    """An open batch."""
    batch: Batch = new(Batch)
    batch._lease, batch._terms, batch._form = lease, lease.held.terms, form
    return batch
