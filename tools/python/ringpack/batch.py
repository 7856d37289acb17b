# SPDX-License-Identifier: Apache-2.0
"""A batch: a mapping of names to arrays in the engine's memory, read without a copy.

Ownership. A batch holds a *lease* on its slot of the ring. Every view (array or tensor, and every
slice of one) keeps the lease, so the memory of a view never changes and never goes away before the
view, even if the batch is closed, the loader ends or the engine dies. The slot goes back to the
engine, once, when the batch has been closed and its last view is gone:

* the loader's next step, ``with batch:`` and garbage collection *close*: views that are still alive
  keep the slot, and it goes back when they die;
* ``batch.release()`` means "now": if it cannot, it raises LeaseError, which names the views.

A closed batch gives no more views (ReleasedError). Its numbers stay readable.

Read-only. Arrays are read-only and cannot be made writable. Tensors of torch are writable copies:
all copies of one section of a batch share memory, which is page-locked if the ring is. With
copy=False, tensors are views of the ring. Torch has no read-only tensors: writing into such a view,
in place, kills the process with SIGSEGV. batch.to(device) and batch.copy() always return memory of
the caller's.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Optional, Union

from ._arguments import FilePath
from ._boundaries import block_mask, varlen
from ._lease import Lease, Terms
from ._made import look, make
from ._numbers import cost_of_rows, number_of, sum_of_step
from ._origins import Document, documents_of, explain
from ._state import state_in_form, token_of
from ._token import epoch_of
from ._views import FLAT, ROWS, Form, import_jax, import_torch, look_at, own, tensor_of
from .errors import LeaseError, ReleasedError

new = object.__new__  # Batch's own __new__ would take as long as the rest of a step
_BEFORE_THAT = (
    "take views before that, or copies: batch.copy(), Loader(copy=True), or Loader(keep=N); for a "
    "Trainer of transformers, which holds several batches, ringpack.hf.attach(trainer, loader)"
)


class Sections(Mapping[str, Any]):
    """Names to views of one batch, all of one shape. Views are made at access."""

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

    ``batch[name]`` is a section, if the run has it (``profile`` and ``sections`` of the config
    choose). With the ``profile`` of a framework the mapping has its names instead
    (ringpack.profiles); other sections keep the names below. L is seq_len, D is
    max_docs_per_row; a *fragment* is the part of a document that is in one row:

    ============== =================== =========================================================
    rows           (batch_size,)       row (global number), fragments, tokens; numpy records
    doc_lens       (batch_size, D)     int32; length of every fragment in tokens, then zeros
    input_ids      (batch_size, L)     tokens, then pad_id. With `align`, each fragment occupies a
                                       multiple of it: its tokens, then pad_id
    labels         (batch_size, L)     next token of the fragment; -100 without one, or if a mask
                                       leaves it out. With `label_across_cuts`, of a fragment whose
                                       document continues: also its next token
    position_ids   (batch_size, L)     0, 1, … within each fragment and its padding
    segment_ids    (batch_size, L)     int32; 1, 2, … by fragment, 0 on padding
    loss_mask      (batch_size, L)     float32; 1 if the label is a token, else 0
    cu_seqlens     (batch_size*(D+1)+1,) int32; ends of all segments over the flat batch, padded at
                                       the end: use ``[: batch.segments + 1]`` for the exact ones.
                                       A fragment and its padding are one segment
    provenance     (batch_size, D)     document, offset, source, length; numpy records
    row_plans      (batch_size,)       planned (number in the order of packing), align, is_skipped;
                                       numpy records, of every stream of version 2
    ============== =================== =========================================================

    Side columns of the config (`columns`, `label_columns`) have (batch_size, L), or (batch_size, L,
    K) with K values of a token; `document_columns` have (batch_size, D).

    ``batch.flat()`` has the same bytes as 1-D views. The module's help defines ownership.
    """

    __slots__ = ("__weakref__", "_form", "_lease", "_made", "_terms", "_why")

    number: int = number_of("number", "Number of the batch since the run's base row.")
    first_row: int = number_of("first_row", "Global number of its first row.")
    next_row: int = number_of("next_row", "Global row at which the state after this batch stands.")
    batch_size: int = number_of("rows", "Rows of this rank.")
    step: int = number_of("step", "Number of its step, from the first row that can begin a step.")
    micro_batch: int = number_of("micro_batch", "Its place in the step, from 0.")
    micro_batches: int = number_of("micro_batches", "Batches of a rank in its step: to accumulate.")
    seq_len: int = number_of("seq_len", "Tokens in a row.")
    rows_real: int = number_of("rows_real", "Rows that are not padding only.")
    tokens_real: int = number_of("tokens_real", "Tokens that are not padding.")
    tokens_loss: int = number_of("tokens_loss", "Labels that are not -100.")
    max_seqlen: int = number_of("max_seqlen", "Tokens of the longest segment of cu_seqlens.")
    segments: int = number_of("segments", "Segments of cu_seqlens, pad tails included.")
    sum_len_squared: int = number_of("sum_len_squared", "Sum of squared fragment lengths: tokens².")
    step_rows: int = sum_of_step("step_rows", "Rows that are not padding only.")
    step_tokens: int = sum_of_step("step_tokens", "Tokens that are not padding.")
    step_tokens_loss: int = sum_of_step("step_tokens_loss", "Labels that are not -100.")
    cost: Optional[int] = cost_of_rows()

    def __new__(cls, values: Any = None) -> Any:
        """A dict of `values`: transformers and accelerate build a mapping of the same type when
        they move one to a device."""
        return new(cls) if values is None else dict(values)

    # Filled in by batch_of() and Loader.next: an __init__ would cost as much as the object, in
    # every step.
    _lease: Optional[Lease]  # None: closed
    _terms: Terms
    _form: Form
    _made: dict[Any, Any]  # the caller's tensors, once there are any: by name, by section and shape
    _why: str  # why it is closed; set before _lease is None, as other threads may read it meanwhile

    def view(self, name: str, *, flat: Optional[bool] = None, kind: Optional[str] = None) -> Any:
        """One section as a view; as a tensor of torch, a copy unless the loader has copy=False.

        Parameters
        ----------
        name: a name of the table above. KeyError if the run lacks this section.
        flat: True: 1-D; False: a row of the batch is a row of the view. Default: the loader's.
        kind: "numpy", "torch" or "jax"; records (rows, provenance) are always numpy. Default: the
            loader's return_type. ValueError for another word.

        ReleasedError: the batch is closed."""
        form = self._form
        shape = form.shape if flat is None else FLAT if flat else ROWS
        kind = form.kind if kind is None else kind
        if form.is_own and kind == "torch":
            return self._own_section(name, shape, partial(self._view, name, shape, kind))
        return self._view(name, shape, kind)

    def _view(self, name: str, shape: int, kind: str) -> Any:
        lease, form = self._open_lease(), self._form
        tensor = form.tensor
        if kind != form.kind:
            tensor = None if kind == "numpy" else tensor_of(kind)
        if name in form.made:
            return look(self, form.made[name], shape, kind)
        place = lease.client.layout.get(name)
        if place is None:
            raise KeyError(
                f"{name}: the run has {', '.join(self._form.sections)}; "
                "`profile` or `sections` of its config adds others"
            )
        return look_at(name, place, shape, tensor)(lease)

    def ring(self, name: str, is_claimed: bool = False) -> Any:
        """A section of the run as it is in the ring, (rows, n): an array that is read-only, or with
        is_claimed claims not to be."""
        lease = self._open_lease()
        return look_at(name, lease.client.layout[name], ROWS, _same if is_claimed else None)(lease)

    def _open_lease(self, instead: str = "") -> Lease:
        lease = self._lease  # one look, as another thread may close the batch
        if lease is None:
            raise ReleasedError(f"batch {self.number} {self._why}", instead or _BEFORE_THAT)
        return lease

    def adopt(self, array: Any) -> Any:
        """Convert a numpy array of the caller's to the loader's kind of tensor, page-locked if the
        ring is: one tensor that is not makes the copies of all tensors wait for the GPU."""
        if self._form.kind == "torch":
            mine = array if array.flags.writeable else array.copy()
            tensor = import_torch().from_numpy(mine)
            return own(tensor, True) if self._is_locked() else tensor
        return import_jax().numpy.asarray(array) if self._form.kind == "jax" else array

    def flat(self) -> Sections:
        """The same sections as 1-D views."""
        return Sections(self, flat=True)

    def copy(self) -> dict[str, Any]:
        """A dict of copies, which are the caller's: writable arrays and tensors, which outlive the
        batch. They are page-locked if the ring is, for copies to a GPU."""
        is_locked = self._is_locked()
        return {name: self._copied(name, is_locked) for name in self._form.names}

    def _copied(self, name: str, is_locked: bool) -> Any:
        fresh = self._fresh(name, is_locked)
        return own(self._newest(name), is_locked) if fresh is None else fresh

    def made(self, name: str) -> Any:
        """The value of a name that is no section of the ring, in memory of the caller's."""
        fresh = self._fresh(name, self._is_locked())
        return self._look(name) if fresh is None else fresh

    def _fresh(self, name: str, is_locked: bool) -> Any:
        """A section that is made, in new memory; None: another one, or a tensor of the caller's
        exists."""
        section, shape = self._form.places.get(name, (name, ROWS))
        recipe = self._form.made.get(section)
        if recipe is None or self._has_own(name):
            return None
        return make(self, recipe, shape, self._form.kind, is_locked)

    def to(self, device: Any, non_blocking: bool = False) -> dict[str, Any]:
        """A dict with copies of the tensors on a device; other values are passed through.

        Parameters
        ----------
        device: a device of torch, which may be the CPU.
        non_blocking: True: return before copies to a GPU are complete, as torch does (False)."""
        copies = {name: self._moved(name, device, non_blocking) for name in self._form.names}
        lease = self._lease
        pins = lease.client.pins if lease is not None else None
        if pins is not None:
            pins.note(self._terms.info)  # the copies may have been the first use of that device
        return copies

    def _moved(self, name: str, device: Any, non_blocking: bool) -> Any:
        fresh = self._fresh(name, self._is_locked()) if self._form.kind == "torch" else None
        if fresh is not None:
            return fresh.to(device, non_blocking=non_blocking)
        view = self._newest(name)
        if not hasattr(view, "to"):
            return view
        moved = view.to(device, non_blocking=non_blocking)
        return view.clone() if moved.data_ptr() == view.data_ptr() else moved

    def _is_locked(self) -> bool:
        """Return True if the ring is page-locked."""
        pins = self._form.client.pins
        return pins is not None and pins.locks()

    def record_stream(self, stream: Any) -> None:
        """Keep the batch's memory, once the last view dies, until the GPU has finished all work
        that is then queued on this torch.cuda.Stream; torch.Tensor.record_stream does so for GPU
        memory. For copies on a stream that was not current when the view was made. Call it before
        the batch is closed (ReleasedError). Without pin_memory it does nothing, as no copy is
        pending."""
        pins = self._open_lease("call record_stream() before that").client.pins
        if pins is not None:
            pins.note_stream(self._terms.info, stream)

    def block_mask(
        self,
        window: Optional[int] = None,
        *,
        block_size: Union[int, tuple[int, int]] = 128,
        device: Any = None,
        flat: Optional[bool] = None,
    ) -> Any:
        """The BlockMask of flex_attention by which each token sees itself and the earlier tokens of
        its document. It is made from the ends of the documents, in (tokens / block_size)² steps,
        and equals create_block_mask's. With cp_size it is the mask of the whole rows.

        Parameters
        ----------
        window: number of tokens that a token sees at most, itself included (all).
        block_size: tokens of a block, or of a block of queries and one of keys (128).
        device: a device of torch (the CPU).
        flat: True: all rows as one; False: each row of the batch is one. Default: as input_ids.

        ValueError for a window or block size below 1; UsageError if the run has neither cu_seqlens
        nor position_ids."""
        return block_mask(self, window, block_size, device, flat)

    def varlen(
        self,
        kernel: str = "torch",
        window: Optional[int] = None,
        *,
        capacity: Optional[int] = None,
        device: Any = None,
    ) -> dict[str, Any]:
        """The arguments by which a kernel keeps the documents of this batch apart, for tokens end
        to end. A document and its padding are one sequence, and so is the end of a row. With
        cp_size they are about the whole rows.

        Parameters
        ----------
        kernel: "torch": of varlen_attn; "flash_attn": of flash_attn_varlen_func; "xformers": of
            BlockDiagonalCausalMask.from_seqlens; "transformer_engine": of Megatron's
            PackedSeqParams, with the lengths of documents without and with their padding.
        window: number of tokens that a token sees at most, itself included (all).
        capacity: number of sequences of each batch; unused ones are empty, and the largest length
            is seq_len: so nothing is compiled again. UsageError if there are more. Default: exact.
        device: a device of torch (the CPU).

        ValueError for another kernel, or one that does not take the argument."""
        return varlen(self, kernel, window, capacity, device)

    def documents(self) -> list[list[Document]]:
        """The documents in each row, with the file and the row of each in the original data set,
        which has its url and its text. The run needs the section `provenance` (`profile: full`, or
        `sections`; else KeyError). Its engine answers this and must be alive (EngineGoneError)."""
        return documents_of(self)

    def explain(
        self, config: Optional[FilePath] = None, *, program: Optional[FilePath] = None
    ) -> list[dict[str, Any]]:
        """The records of `ringpack explain --json`, one per fragment: row, step, micro_batch, rank,
        fragment (its number in the row), place (its first token in the row), tokens, source,
        source_number, document, offset, epoch, file, byte_offset, file_row, and the text, if a
        tokenizer is known; ids are the tokens of this batch. Text may contain any characters of the
        documents: escape it before it is shown.

        Parameters
        ----------
        config: path of a config or a checkpoint, if the run has ended or the engine's own config
            cannot be read (another container). Default: the engine of this run is queried.
        program: path of `ringpack`. Default: see Loader.

        Fragments are compared with this batch by their tokens, and by provenance if the batch has
        that section. Tokens of objects in a store are not read: without provenance only the numbers
        of fragments and of tokens in each of their rows are compared. RingpackError: a difference
        was found."""
        return explain(self, config, program)

    def digest(self, labels: bool = False) -> int:
        """Digest of the rows (engine/plan/STREAM.md section 7); digests add up modulo 2**128.

        labels: True: the labelled digest, which also covers labels or the loss mask (False)."""
        client = self._open_lease().client
        held = self.view("rows", kind="numpy")  # while it lives, release() refuses
        digest = client.digest(self._terms.info, labels)
        del held
        return digest

    def release(self) -> None:
        """Give the slot back to the engine now. A second call does nothing.

        Raises LeaseError if views are alive; the batch then stays as it was. If two threads took
        views of one section at once, it may miss the views of one thread: then it acts as close(),
        and the slot goes back with the last view."""
        lease = self._lease
        if lease is None:
            return
        alive = lease.viewed()
        if alive:
            gc.collect()  # views in unreachable reference cycles (tracebacks, closures)
            alive = lease.viewed()
        if alive:
            raise LeaseError(
                f"batch {self.number} cannot be released: views of {', '.join(alive)} are alive",
                "drop them (del), or use close(), which releases when the last one is gone",
            )
        self.close("was released")

    def close(self, why: str = "was closed") -> None:
        """Give no more views; the slot goes back when the last view is gone. May be repeated."""
        self.end(why)

    def end(self, why: str) -> Optional[Lease]:
        """close(), for a caller that ends the lease itself."""
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
        section, shape = form.places.get(name, (name, form.shape))
        return self._view(section, shape, form.kind)  # its error lists the sections

    def _own(self, name: str) -> Any:
        """The caller's tensor of this name: the same object each time, so writes to it are kept."""
        if self._lease is None:
            self._open_lease()
        made = self._all_made()
        if name not in made:
            place = self._form.places.get(name)
            look = partial(self._look, name)
            made[name] = look() if place is None else self._own_section(*place, look)
        return made[name]

    def _own_section(self, section: str, shape: int, look: Callable[[], Any]) -> Any:
        """The caller's tensor of a section; its shapes share one memory."""
        made, lease = self._all_made(), self._open_lease()
        if (section, shape) not in made:
            first, recipe = made.get((section,)), self._form.made.get(section)
            if first is None and recipe is not None:
                found = made[section,] = make(self, recipe, shape, "torch", self._is_locked())
            elif first is None:
                found = made[section,] = own(look(), self._is_locked())
            elif recipe is not None:
                found = first.reshape(recipe.shape(self, shape))
            else:
                place = lease.client.layout[section]
                found = first.reshape(place.shapes_of(self.batch_size)[shape])
            made[section, shape] = found
        return made[section, shape]

    def _all_made(self) -> dict[Any, Any]:
        try:
            return self._made
        except AttributeError:
            self._made = {}
            return self._made

    def _newest(self, name: str) -> Any:
        """The caller's tensor if there is one, because it may have been written to; else a view."""
        is_open = self._form.kind == "torch" and self._lease is not None
        return self._own(name) if self._has_own(name) and is_open else self._look(name)

    def _has_own(self, name: str) -> bool:
        made, place = getattr(self, "_made", {}), self._form.places.get(name)
        return name in made or (place is not None and (place[0],) in made)

    def state_dict(self, text: bool = False) -> dict[str, Any]:
        """The position after this batch, in the form of Loader.state_dict, for loops that take
        batches before they use them. Also of a closed batch, if it is one of the last 32 (else
        ReleasedError).

        text: True: a string, for JSON (False: an array or tensor)."""
        form, info = self._form, self._terms.info
        token = form.client.state_after(info)
        if not token:
            raise ReleasedError(
                f"the state after batch {self.number} is no longer known: it is older than the "
                "last 32 that were taken",
                "call state_dict() of a batch earlier, and keep its return value",
            )
        return state_in_form(token, form.client.state_bytes, form.kind, text)

    @property
    def epoch(self) -> int:
        """Number of complete passes over the whole corpus before the end of this batch: 0 in the
        first epoch. With several sources, the source with the fewest passes counts; in version 2,
        of the sources that have a weight at this row and have not reached a limit. A batch in
        which an epoch ends belongs to the next one, as its last rows do. It costs a copy of the
        state. The epoch of each source: ringpack.describe(batch.state_dict())["sources"]."""
        return epoch_of(token_of(self.state_dict(text=True)))

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
        raise TypeError("a batch is in shared memory and cannot be pickled: send batch.copy()")

    def __repr__(self) -> str:
        state = f" ({self._why})" if self.closed else ""
        return (
            f"<ringpack.Batch {self.number}: rows {self.first_row} to "
            f"{self.first_row + self.batch_size - 1}, {self.tokens_real} tokens{state}>"
        )


def _same(array: Any) -> Any:
    return array


def batch_of(lease: Lease, form: Form) -> Batch:
    """An open batch."""
    batch: Batch = new(Batch)
    batch._lease, batch._terms, batch._form = lease, lease.held.terms, form
    return batch
