# SPDX-License-Identifier: Apache-2.0
"""Batches and their leases, on fake_client.c: it poisons a slot as soon as that is given back."""

import gc
import os
import pickle
import threading
import time
import warnings

import numpy
import pytest
import ringpack
from fake_kit import LENGTH, POISON, ROWS, SLOTS, tokens
from stream_kit import PATIENCE

SECTIONS = "rows doc_lens input_ids labels segment_ids loss_mask cu_seqlens provenance".split()


def test_a_batch_is_a_mapping_of_sections(loader):
    batch = next(loader)
    assert list(batch) == SECTIONS
    assert len(batch) == len(SECTIONS)
    assert "labels" in batch and "position_ids" not in batch
    with pytest.raises(KeyError, match=r"position_ids.*profile"):
        batch["position_ids"]
    assert {name: (view.dtype.str, view.shape) for name, view in batch.items()} == {
        "rows": ("|V16", (2,)),
        "doc_lens": ("<i4", (2, 3)),
        "input_ids": ("<i4", (2, 8)),
        "labels": ("<i8", (2, 8)),
        "segment_ids": ("<u2", (2, 8)),
        "loss_mask": ("<f4", (2, 8)),
        "cu_seqlens": ("<i4", (9,)),
        "provenance": ("|V24", (2, 3)),
    }
    assert (batch["input_ids"] == tokens(0)).all()
    assert batch["provenance"][1, 0].tolist() == (0, 7, 3, 8)
    assert batch["rows"]["row"].tolist() == [0, 1]


def test_a_batch_has_numbers(loader):
    next(loader)
    batch = next(loader)
    assert (batch.number, batch.first_row, batch.next_row) == (1, 2, 4)
    assert (batch.batch_size, batch.seq_len, batch.rows_real, batch.tokens_real) == (2, 8, 2, 16)
    assert (batch.max_seqlen, batch.segments, batch.tokens_loss, batch.sum_len_squared) == (
        8,
        2,
        0,
        0,
    )
    assert batch.cost is None
    for name in "step_rows", "step_tokens", "step_tokens_loss":  # a library that knows none
        with pytest.raises(ringpack.RingpackError, match=f"batch 1: {name} is not known"):
            getattr(batch, name)
    assert batch.digest() == (1 << 64) + 3
    assert "rows 2 to 3" in repr(batch)


def test_flat_views_are_the_same_bytes(loader):
    batch = next(loader)
    flat = batch.flat()
    assert list(flat) == SECTIONS and len(flat) == len(SECTIONS) and "labels" in flat
    assert flat["input_ids"].shape == (16,)
    assert flat["input_ids"].ctypes.data == batch["input_ids"].ctypes.data
    assert batch.view("input_ids", flat=True).tolist() == flat["input_ids"].tolist()
    del flat
    batch.release()
    with ringpack.Loader(run="x", flat=True) as other:
        assert next(other)["labels"].shape == (16,)


def test_views_are_not_copies_and_not_writable(loader):
    batch = next(loader)
    view = batch["input_ids"]
    assert view.ctypes.data == batch["input_ids"].ctypes.data
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1
    for array in view, view.base, view[1:], batch["provenance"]:
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_the_next_step_releases_the_batch_before(fake, loader):
    before = fake.fake_released()
    for batch in loader:
        if batch.number == 9:
            break
    assert fake.fake_released() - before == 9
    assert not batch.closed


def test_a_slice_of_a_view_that_outlives_its_batch_keeps_the_memory(fake, loader):
    before = fake.fake_released()
    view = next(loader)["input_ids"][1:, ::2]
    expected = tokens(0)[1:, ::2]
    for _ in range(SLOTS - 1):
        next(loader)
    assert (view == expected).all()
    assert fake.fake_released() - before == SLOTS - 2  # all but the viewed one and the newest
    del view
    assert fake.fake_released() - before == SLOTS - 1
    for _ in range(2 * SLOTS):
        next(loader)


def test_control_a_released_slot_is_poisoned(loader):
    """Were a lease returned under a view, the tests here would see it."""
    batch = next(loader)
    view = batch["input_ids"]
    client = batch._lease.client
    client._release(client._client, batch._lease.held.terms.argument)
    assert (view == POISON).all()
    client.give_back = lambda *_: None  # once is enough
    del batch, view


def test_release_refuses_while_views_are_alive(fake, loader):
    batch = next(loader)
    labels, row = batch["labels"], batch["input_ids"][0]
    with pytest.raises(ringpack.LeaseError, match=r"batch 0.*input_ids, labels"):
        batch.release()
    assert isinstance(ringpack.LeaseError("x"), BufferError)
    assert (batch["input_ids"] == tokens(0)).all()
    before = fake.fake_released()
    del labels, row
    batch.release()
    assert fake.fake_released() - before == 1
    batch.release()
    assert fake.fake_released() - before == 1


def test_a_closed_batch_gives_no_views_but_its_numbers(loader):
    batch = next(loader)
    flat = batch.flat()
    batch.release()
    for use in (lambda: batch["labels"], lambda: flat["labels"], batch.digest, batch.copy):
        with pytest.raises(ringpack.ReleasedError, match="batch 0 was released"):
            use()
    assert batch.tokens_real == 16
    older = next(loader)
    next(loader)
    with pytest.raises(ringpack.ReleasedError, match="loader went on"):
        older["labels"]


def test_with_closes(fake, loader):
    before = fake.fake_released()
    with next(loader) as batch:
        view = batch["input_ids"]
    assert batch.closed
    assert fake.fake_released() == before
    assert (view == tokens(0)).all()
    del view
    assert fake.fake_released() - before == 1


def test_keep_holds_more_batches(fake):
    with ringpack.Loader(run="x", keep=2) as loader:
        first, second = next(loader), next(loader)
        assert (first["input_ids"] == tokens(0)).all()
        next(loader)
        assert first.closed and not second.closed
    with pytest.raises(ringpack.UsageError, match=r"keep=4.*ring of 4"):
        ringpack.Loader(run="x", keep=4).attach()


def test_all_slots_on_lease_says_what_to_drop(loader):
    held = [next(loader)["labels"] for _ in range(SLOTS)]
    with pytest.raises(ringpack.LeaseError) as raised:
        next(loader)
    assert "no slot of the ring is free" in str(raised.value)
    assert "batch 2 (views of labels)" in str(raised.value)
    assert "prefetch_factor" in raised.value.hint
    held.pop(0)
    assert next(loader).number == SLOTS


def test_copies_are_the_callers(loader):
    copies = next(loader).copy()
    for _ in range(2 * SLOTS):
        next(loader)
    assert (copies["input_ids"] == tokens(0)).all()
    copies["input_ids"][0, 0] = 9


def test_views_outlive_loader_and_library_memory(fake):
    living = fake.fake_living()
    loader = ringpack.Loader(run="x")
    views = [next(loader)["input_ids"] for _ in range(3)]
    loader.close()
    assert fake.fake_living() == living + 1
    assert all((view == tokens(k)).all() for k, view in enumerate(views))
    del views
    assert fake.fake_living() == living


def test_a_loader_that_is_dropped_detaches(fake):
    living = fake.fake_living()
    loader = ringpack.Loader(run="x")
    next(loader)
    del loader
    gc.collect()
    assert fake.fake_living() == living


def test_views_may_die_on_other_threads(loader):
    """Leases come back from 4 threads while one takes batches. The view of each is as it was, and
    so is its number, which its batch still has when the lease is back."""
    from queue import Queue

    queue, wrong = Queue(maxsize=2), []

    def drop():
        while (item := queue.get()) is not None:
            number, batch, view = item
            del item
            if not (view == tokens(number)).all():
                wrong.append((number, view.copy()))
            del view
            time.sleep(0)
            if batch.number != number:
                wrong.append((number, batch.number))

    threads = [threading.Thread(target=drop, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    taken, deadline = 0, time.monotonic() + PATIENCE
    while taken < 3000:
        try:
            batch = next(loader)
        except ringpack.LeaseError:
            assert time.monotonic() < deadline, f"no lease comes back: {wrong[:9]}"
            continue  # the droppers are behind
        queue.put((taken, batch, batch["input_ids"]), timeout=PATIENCE)
        taken += 1
    for _ in threads:
        queue.put(None)
    for thread in threads:
        thread.join(PATIENCE)
    assert not wrong, f"other tokens: {wrong[:9]}"


def test_a_batch_cannot_be_pickled(loader):
    with pytest.raises(TypeError, match=r"batch.copy"):
        pickle.dumps(next(loader))


def test_the_end(fake):
    with ringpack.Loader(run="end:3") as loader:
        assert [batch.number for batch in loader] == [0, 1, 2]
        assert list(loader) == []
        assert loader.next() is None


def test_errors_of_the_engine_reach_the_loop(fake):
    with (
        ringpack.Loader(run="fail:2") as loader,
        pytest.raises(ringpack.CorruptError, match=r"a\.bin"),
    ):
        for batch in loader:
            assert batch.number < 2


def test_an_exception_in_the_loop_loses_nothing(fake, loader):
    before = fake.fake_released()
    try:
        for batch in loader:
            view = batch["input_ids"]
            raise RuntimeError("diverged")
    except RuntimeError:
        del view
    assert next(loader).number == 1
    assert fake.fake_released() - before == 1


# ---- state --------------------------------------------------------------------------------------


def test_state_dict_has_one_key_and_one_length(loader):
    states = []
    for _ in range(5):
        states.append(loader.state_dict())
        assert (
            loader.state_dict()["ringpack_state"].tobytes()
            == states[-1]["ringpack_state"].tobytes()
        )
        next(loader)
    assert {
        (*state, state["ringpack_state"].shape, str(state["ringpack_state"].dtype))
        for state in states
    } == {("ringpack_state", (256,), "uint8")}
    assert len({state["ringpack_state"].tobytes() for state in states}) == 5
    assert loader.next_row == 10 and loader.counts()["batches"] == 5


@pytest.mark.parametrize("form", ["array", "text", "bytes", "list", "padded bytes"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_load_state_dict(fake, loader, form, when):
    for _ in range(7):
        next(loader)
    array = loader.state_dict()["ringpack_state"]
    value = {
        "array": array,
        "text": loader.state_dict(text=True)["ringpack_state"],
        "bytes": array.tobytes()[:40],
        "padded bytes": array.tobytes(),
        "list": array.tolist(),
    }[form]
    other = ringpack.Loader(run="x")
    if when == "after":
        view = next(other)["input_ids"]
        with pytest.raises(ringpack.LeaseError, match="views of input_ids"):
            other.load_state_dict({"ringpack_state": value})
        assert (view == tokens(0)).all()
        assert next(other).number == 1
        del view
        other.load_state_dict({"ringpack_state": value})
    else:
        other.load_state_dict({"ringpack_state": value})
    assert other.state_dict()["ringpack_state"].tobytes() == array.tobytes()
    assert next(other).number == 7
    other.close()
    assert next(other).number == 8, "a loader that was closed goes on where it was"
    other.close()


def test_a_foreign_state_is_refused(loader):
    with pytest.raises(ringpack.UsageError, match="found epoch"):
        loader.load_state_dict({"epoch": 3})
    with pytest.raises(ringpack.UsageError, match="base64"):
        loader.load_state_dict({"ringpack_state": "§"})
    for wrong in None, 5, ["a"], [[1]], {"a": 1}:
        with pytest.raises(ringpack.UsageError, match="ringpack_state is of type"):
            loader.load_state_dict({"ringpack_state": wrong})


# ---- processes ----------------------------------------------------------------------------------


def test_a_fork_is_refused_and_touches_nothing(fake, loader):
    view = next(loader)["input_ids"]
    before = fake.fake_released()
    child = os.fork()
    if child == 0:
        failed = 1
        try:
            next(loader)
        except ringpack.UsageError as error:
            failed = 0 if "fork" in str(error) else 2
        del view
        loader.close()
        if fake.fake_released() != before:
            failed = 3
        with ringpack.Loader(run="x") as own:
            if next(own).number != 0:
                failed = 4
        os._exit(failed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (view == tokens(0)).all()
    assert next(loader).number == 1


def test_pickle_before_the_first_use(fake):
    loader = pickle.loads(pickle.dumps(ringpack.Loader(run="end:2", keep=2, return_type="numpy")))
    assert len(list(loader)) == 2
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(loader)
    loader.close()


def test_a_mismatch_is_told(fake):
    with pytest.raises(ringpack.CheckpointMismatchError, match="expected 4, found 2") as raised:
        ringpack.Loader(run="x", dp_rank=0, dp_world_size=2).attach()
    assert "as many ranks" in raised.value.hint


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ({"return_type": "cupy"}, ValueError, "numpy, torch, jax"),
        ({"keep": 0}, ValueError, "1 or more"),
        ({"start_engine": True}, ringpack.UsageError, "config or corpus"),
        ({"packing": "concat"}, TypeError, "packing"),
        ({"config": "a.yaml", "corpus": "b.bin"}, ringpack.UsageError, "both"),
        ({"dp_rank": 0}, ringpack.UsageError, "go together"),
        ({"dp_rank": 4, "dp_world_size": 4}, ringpack.UsageError, "not 0 to 3"),
    ],
)
def test_bad_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        ringpack.Loader(**arguments)


# ---- torch --------------------------------------------------------------------------------------


def test_torch_views_share_the_memory_without_a_warning(fake):
    torch = pytest.importorskip("torch")
    views = {"run": "x", "return_type": "torch", "copy": False}
    with warnings.catch_warnings(), ringpack.Loader(**views) as loader:
        warnings.simplefilter("error")
        batch = next(loader)
        tensor = batch["input_ids"]
        assert tensor.dtype == torch.int32 and tuple(tensor.shape) == (ROWS, LENGTH)
        assert tensor.data_ptr() == batch.view("input_ids", kind="numpy").ctypes.data
        assert batch["labels"].dtype == torch.int64 and batch["loss_mask"].dtype == torch.float32
        assert isinstance(batch["provenance"], numpy.ndarray)
        assert not batch.view("input_ids", kind="numpy").flags.writeable
        assert not batch.copy()["input_ids"].data_ptr() == tensor.data_ptr()
        part = tensor[1:].view(-1)
        del tensor
        with pytest.raises(ringpack.LeaseError, match="input_ids"):
            batch.release()
        for _ in range(SLOTS - 1):
            next(loader)
        assert (part.numpy() == tokens(0)[1:].ravel()).all()
        before = fake.fake_released()
        del part
        assert fake.fake_released() - before == 1
        state = loader.state_dict()["ringpack_state"]
        assert state.dtype == torch.uint8 and state.shape == (256,)
        state[:] = state.clone()  # as torch.distributed.checkpoint does
        loader.load_state_dict({"ringpack_state": state})
        assert next(loader).number == SLOTS


def test_torch_distributed_checkpoint_in_place(fake, tmp_path):
    pytest.importorskip("torch.distributed.checkpoint")
    import torch.distributed.checkpoint as dcp

    with ringpack.Loader(run="x", return_type="torch") as loader:
        for _ in range(5):
            next(loader)
        dcp.save({"loader": loader.state_dict()}, checkpoint_id=tmp_path)
        with ringpack.Loader(run="x", return_type="torch") as other:
            state = {"loader": other.state_dict()}
            dcp.load(state, checkpoint_id=tmp_path)
            other.load_state_dict(state["loader"])
            assert next(other).number == 5
