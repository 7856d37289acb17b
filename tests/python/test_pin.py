# SPDX-License-Identifier: Apache-2.0
"""Page-locked rings, on a simulated CUDA: their registration, and the return of slots."""

import logging

import numpy
import pytest
import ringpack
from cuda_kit import FakeStream, cuda  # noqa: F401
from test_copies import WAYS

torch = pytest.importorskip("torch")
SLOTS, POISON = 4, 0x5A5A5A5A


@pytest.fixture
def main(cuda):
    return cuda.current[0]


def pinned(**changes):
    """A loader whose tensors are views of the page-locked ring."""
    known = {"run": "x", "return_type": "torch", "pin_memory": True, "copy": False}
    return ringpack.Loader(**{**known, **changes})


def read(address):
    """A GPU's view of it now: the first four tokens of a batch."""
    tokens = numpy.ctypeslib.as_array((numpy.ctypeslib.ctypes.c_int32 * 4).from_address(address))
    return tokens.tolist()


def test_the_ring_is_registered_once_and_unregistered(fake, cuda, main):
    with pinned() as loader:
        geometry = loader._client.geometry
        for batch in loader:
            if batch.number == 0:
                first = batch["rows"].ctypes.data - geometry.sections[0].offset
            if batch.number == 9:
                break
            main.run()
        size = geometry.slots * geometry.slot_bytes
        assert cuda.calls == [("register", first, size, 9)]
    assert cuda.calls[1:] == [("unregister", first)]


@pytest.fixture
def locked(monkeypatch):
    """The tensors of the allocator of page-locked memory, which this one plays."""
    tensors, empty_like = [], torch.empty_like

    def allocate(tensor, pin_memory):
        assert pin_memory
        tensors.append(empty_like(tensor))
        return tensors[-1]

    monkeypatch.setattr(torch, "empty_like", allocate)
    return tensors


@pytest.mark.parametrize("copy", [None, True])
def test_copies_for_a_framework_are_page_locked(make, cuda, locked, copy):
    """One tensor that is not would make the copies of all wait for the GPU."""
    with make(profile="hf", return_type="torch", pin_memory=True, copy=copy) as loader:
        given = [value for value in next(loader).values() if isinstance(value, torch.Tensor)]
        assert len(given) == 6 and cuda.calls
        assert {of.data_ptr() for of in given} <= {of.data_ptr() for of in locked}


@pytest.mark.parametrize("way", WAYS)
def test_tensors_of_a_page_locked_ring_can_be_written_to(fake, cuda, locked, way):
    """By default: a write into the ring itself would end this process with SIGSEGV."""
    with pinned(copy=None) as loader:
        batch = next(loader)
        tensor = WAYS[way](batch)
        tensor[tensor == 3] = -100
        assert (tensor == -100).sum() == 1 and (batch.view("labels", kind="numpy") != -100).all()
        assert tensor.data_ptr() in {of.data_ptr() for of in locked} or way == "batch.to"


def test_each_section_is_copied_once_and_by_to_never(fake, cuda, locked):
    with pinned(copy=None) as loader:
        batch = next(loader)
        batch.to("meta")  # as to a GPU: from the ring
        assert not locked
        for _ in range(2):
            assert batch["labels"].data_ptr() == batch.flat()["labels"].data_ptr()
            batch["input_ids"], batch.to("meta")
        wanted = [batch["labels"].nbytes, batch["input_ids"].nbytes]
        assert [of.nbytes for of in locked] == wanted
    with pinned() as loader:
        assert next(loader)["labels"].shape and len(locked) == 2, "copy=False copies nothing"


def test_nothing_is_locked_before_this_process_uses_a_gpu(fake, cuda, locked, monkeypatch):
    monkeypatch.setattr(cuda, "is_initialized", lambda: False)
    with pinned(copy=None, pin_memory=None) as loader:
        batch = next(loader)
        batch["labels"][:] = -100
        assert batch.adopt(numpy.zeros(3)).tolist() == [0, 0, 0]
        assert not locked and not cuda.calls


def test_a_slot_goes_back_when_the_gpu_has_read_it(fake, cuda, main):
    before = fake.fake_released()
    with pinned() as loader:
        address = next(loader)["input_ids"].numpy().ctypes.data  # the copy of batch 0 is under way
        for _ in range(SLOTS - 1):
            next(loader)
        assert fake.fake_released() == before, "nothing is given back while the stream stands"
        assert read(address) == [0, 1, 2, 3]
        next(loader)  # all slots are out: the loader waits for the oldest mark, and for no more
        assert cuda.waits == 1 and fake.fake_released() - before == 1
        main.run()
        next(loader)
        assert fake.fake_released() - before == SLOTS
        assert cuda.waits == 1
    assert fake.fake_released() - before == 6, "all, at the end"
    assert cuda.asked == {0}, "a GPU that is not in use stays untouched"


def test_control_without_marks_the_gpu_would_read_garbage(fake, cuda):
    with pinned() as loader:
        address = next(loader)["input_ids"].numpy().ctypes.data
        loader._client.pins = None
        next(loader)
        assert read(address) == [POISON] * 4


def copied_beside(cuda, loader, how):
    """Batch 0 is being copied on a stream at the side, and is closed outside it; the main stream
    continues. Returns that stream and where the copy reads."""
    side = FakeStream()
    batch = next(loader)
    if how == "inside":  # the view is made where it is copied
        with cuda.stream(side):
            address = batch["input_ids"].data_ptr()
    elif how == "flat":
        with cuda.stream(side):
            address = batch.flat()["input_ids"].data_ptr()
    elif how == "to":  # a device like any other to this test; only the place of the call counts
        address = batch["input_ids"].data_ptr()
        with cuda.stream(side):
            batch.to("cpu", non_blocking=True)
    else:
        address = batch["input_ids"].data_ptr()
        if how == "record_stream":
            batch.record_stream(side)
    batch.close()
    cuda.current[0].run()
    return side, address


@pytest.mark.parametrize("how", ["inside", "flat", "to", "record_stream"])
def test_a_copy_on_another_stream_is_waited_for(fake, cuda, main, how):
    with pinned(keep=1) as loader:
        side, address = copied_beside(cuda, loader, how)
        for _ in range(SLOTS - 1):
            next(loader)
            main.run()
        assert read(address) == [0, 1, 2, 3]
        side.run()
        next(loader)
        assert read(address) != [0, 1, 2, 3]


def test_control_a_stream_that_nobody_named_is_not_waited_for(fake, cuda, main):
    """The invisible case: a view from outside the side stream that is copied inside it."""
    with pinned() as loader:
        _, address = copied_beside(cuda, loader, "unseen")
        next(loader)
        assert read(address) == [POISON] * 4


def test_control_an_event_where_the_last_view_dies_is_too_little(fake, cuda, main, monkeypatch):
    from ringpack._pin import Pins

    class Late(Pins):
        """The defect: only the streams that are current when the last view dies."""

        def note(self, info):
            self._streams.pop(id(info), None)
            super().note(info)

        def note_stream(self, info, stream):
            pass

    monkeypatch.setattr("ringpack._pin.Pins", Late)
    for how in ("inside", "flat", "to", "record_stream"):
        with pinned() as loader:
            _, address = copied_beside(cuda, loader, how)
            next(loader)
            assert read(address) == [POISON] * 4, how


def test_a_copy_to_another_device_is_waited_for(fake, cuda, main):
    """The stream is the target device's, whichever device is the current one."""
    cuda.used = {0, 1}
    with pinned() as loader:
        address = next(loader)["input_ids"].data_ptr()
        next(loader)
        main.run()
        next(loader)
        assert read(address) == [0, 1, 2, 3]
        cuda.current[1].run()
        next(loader)
        assert read(address) == [POISON] * 4


def test_record_stream_comes_before_the_end(fake, cuda):
    with pinned() as loader:
        batch = next(loader)
        batch.close()
        with pytest.raises(ringpack.ReleasedError, match="record_stream"):
            batch.record_stream(FakeStream())
    with ringpack.Loader(run="x", return_type="torch", pin_memory=False) as loader:
        next(loader).record_stream(FakeStream())  # copies are complete when they return


def test_views_that_die_late_are_marked_then(fake, cuda, main):
    with pinned() as loader:
        view = next(loader)["input_ids"]
        next(loader)
        recorded = main.recorded
        del view
        assert main.recorded == recorded + 1


def test_a_ring_that_cannot_be_locked_is_told_and_read(fake, cuda, caplog):
    cuda.status = 801  # cudaErrorNotSupported
    with pinned() as loader:
        assert next(loader)["input_ids"][0, 1] == 1
        assert "was not page-locked (cudaHostRegister: 801)" in caplog.text
    assert [call[0] for call in cuda.calls] == ["register"]


def test_without_a_gpu_nothing_is_locked(fake, caplog):
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    caplog.set_level(logging.WARNING, "ringpack")
    with pinned() as loader:
        assert next(loader)["input_ids"][0, 1] == 1
    assert "no GPU here" in caplog.text
    with pytest.raises(ValueError, match="return_type='torch'"):
        ringpack.Loader(run="x", pin_memory=True)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="has no GPU")


@needs_gpu
def test_a_real_gpu_reads_what_was_lent(make, expected):
    with make(return_type="torch", pin_memory=True, profile="hf") as loader:
        copies = [
            (batch.first_row, batch.to("cuda", non_blocking=True)["input_ids"]) for batch in loader
        ]
    for row, copied in copies:
        wanted = expected.batch(row, 3)[0]["input_ids"]
        assert (copied.cpu().numpy() == wanted).all()


@pytest.fixture
def large(program, folder):
    """Batches of 4 MiB, each of one token only, which says which batch it is."""
    length, rows, batches = 65536, 16, 24
    tokens = numpy.repeat(numpy.arange(1, batches + 1, dtype="<u2"), length * rows)
    tokens.tofile(folder / "large.bin")
    corpus = {"path": folder / "large.bin", "format": "raw", "dtype": "u16", "eos": 0}
    known = {"run_dir": folder, "corpus": [corpus], "packing": "concat", "shuffle": "none"}
    shape = {"seq_len": length, "batch_size": rows, "num_epochs": 1, "prefetch_factor": SLOTS}
    with ringpack.Loader(
        **known, **shape, return_type="torch", pin_memory=True, copy=False, token_dtype="i32"
    ) as loader:
        yield loader


def copy_beside(loader, how):
    """Copy batch 0 on a stream that is busy for a while, close it outside that, and let all other
    batches pass through the ring. Returns the arrived tokens, and whether the ring had to wait."""
    side, batch = torch.cuda.Stream(), next(loader)
    arrived = torch.empty(batch["input_ids"].shape, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    view = batch["input_ids"]
    with torch.cuda.stream(side):
        torch.cuda._sleep(2_000_000_000)  # cycles: a second or so
        if how == "inside":
            view = batch["input_ids"]
        arrived.copy_(view, non_blocking=True)
    if how == "record_stream":
        batch.record_stream(side)
    batch.close()
    del view
    for _ in range(SLOTS - 1):
        next(loader)
    slept = not side.query()
    for _ in range(SLOTS):
        next(loader)
    assert slept, "the delay was too short to tell anything"
    torch.cuda.synchronize()
    return arrived


@needs_gpu
@pytest.mark.parametrize("how", ["inside", "record_stream"])
def test_a_real_copy_on_another_stream_is_waited_for(large, how):
    assert (copy_beside(large, how) == 1).all()


@needs_gpu
def test_control_a_real_copy_that_nobody_waits_for_reads_garbage(large, monkeypatch):
    from ringpack._pin import Pins

    monkeypatch.setattr(Pins, "note_stream", lambda *_: None)
    assert not (copy_beside(large, "record_stream") == 1).all()
