# SPDX-License-Identifier: Apache-2.0
"""Loader(device=...): the batches of a loader without it, one step ahead on a device. The CPU is
one; a GPU is simulated, and is tried where there is one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import ringpack
from cuda_kit import cuda  # noqa: F401
from fake_kit import POISON, ROWS, SLOTS, tokens
from loader_streams_kit import serve  # noqa: F401
from ringpack._device import Copier
from stream_oracle import assert_batch
from test_interrupts import storm

torch = pytest.importorskip("torch")
WAYS = {"own": {}, "dicts": {"copy": True}, "static": {"static": True}}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="has no GPU")


def fakes(**changes):
    return ringpack.Loader(run="x", return_type="torch", **{"device": "cpu", **changes})


def values(batch):
    """Copies of all values of a batch, as arrays and numbers."""
    return {
        name: (value.dtype, value.cpu().numpy().tolist()) if hasattr(value, "cpu") else value
        for name, value in batch.items()
    }


def read_all(loader):
    """The values of each batch, and the positions before the first one and after each."""
    found = [(None, loader.state_dict(text=True), loader.next_row)]
    for batch in loader:
        found.append((values(batch), loader.state_dict(text=True), loader.next_row))
    return found


# ---- on the CPU ---------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [None, *(ringpack.profiles.PROFILES.keys() - {"pairs"})])
def test_batches_and_positions_are_those_of_any_loader(make, profile):
    """Names, types, shapes and values of each batch, and the position after it, to the end."""
    known = {"return_type": "torch", "profile": profile, "num_epochs": 1}
    with make(**known) as loader:
        wanted = read_all(loader)
    for changes in WAYS.values():
        with make(**known, device="cpu", **changes) as loader:
            assert read_all(loader) == wanted
    assert len(wanted) > 10


def test_tensors_are_the_callers(fake):
    with fakes() as loader:
        kept = [next(loader)["labels"] for _ in range(3 * SLOTS)]
        for number, labels in enumerate(kept):
            assert (labels.numpy() == tokens(number) + 1).all()
            labels[:] = number
        assert [int(labels[0, 0]) for labels in kept] == [*range(3 * SLOTS)]


def test_static_tensors_keep_their_place(fake):
    with fakes(static=True) as loader:
        places = set()
        for number in range(3 * SLOTS):
            batch = next(loader)
            places.add(batch["input_ids"].data_ptr())
            assert (batch["input_ids"].numpy() == tokens(number)).all()
        assert len(places) == 1


def test_the_batch_has_its_numbers_and_sections_until_the_next_step(fake):
    with fakes() as loader:
        batch = next(loader)
        assert batch.number == 0 and (batch.view("labels", kind="numpy") == tokens(0) + 1).all()
        assert batch.flat()["input_ids"].shape == (16,)
        other = batch.to("cpu")["input_ids"]
        assert torch.equal(other, batch["input_ids"])
        assert other.data_ptr() != batch["input_ids"].data_ptr()
        next(loader)
        assert batch.closed
        with pytest.raises(ringpack.ReleasedError):
            batch["labels"]


def test_a_loop_that_is_left_loses_no_batch(make):
    """The batch ahead is not taken: the next loop gives it, after a close as well."""
    with make(return_type="torch", device="cpu", restart=False) as loader:
        rows = []
        for _ in range(3):
            for batch in loader:
                rows.append(batch.first_row)
                assert loader.next_row == batch.next_row
                if len(rows) % 4 == 0:
                    break
        loader.close()
        rows.append(next(loader).first_row)
        assert rows == [3 * number for number in range(13)]


@pytest.mark.parametrize("look_ahead", [0, 2])
def test_a_state_continues_after_the_last_batch_that_was_given(make, look_ahead):
    known = {"return_type": "torch", "profile": "min"}
    with make(**known, device="cpu", look_ahead=look_ahead) as loader:
        taken = [next(loader).first_row for _ in range(5)]
        state = loader.state_dict()
    with make(**known) as loader:
        loader.load_state_dict(state)
        assert next(loader).first_row == taken[-1 - look_ahead] + 3


def test_the_position_is_after_the_batch_that_was_given(fake):
    with fakes() as loader:
        for _ in range(3 * SLOTS):
            assert next(loader).state_dict(text=True) == loader.state_dict(text=True)
            assert loader._ahead


def test_control_the_position_of_the_library_is_a_batch_further(fake, monkeypatch):
    wrong = lambda _, client: client.state()  # noqa: E731
    monkeypatch.setattr("ringpack._device.DeviceLoader._position_of", wrong)
    with fakes() as loader:
        assert next(loader).state_dict(text=True) != loader.state_dict(text=True)


def test_ranks_agree_whoever_has_a_batch_ahead(make):
    known = {"return_type": "torch", "num_epochs": 1}
    with make(**known, device="cpu") as loader:
        next(loader)
        loader.check_ranks(lambda fact: [fact])
        row = loader.next_row
        facts = loader._client.facts()
        assert facts["next_row"] == row == 3 and not loader._ahead
        assert next(loader).first_row == 3


def test_steps_are_those_of_the_next_batch(make):
    """`micro_batches` and `global_batch_size` change at a stage, one batch after the last one that
    was given, and not one earlier."""
    stages = [{"until": "4 steps"}, {"global_batch_size": 9}]
    found = []
    for changes in {}, {"device": "cpu"}:
        with make(return_type="torch", stream_version=2, stages=stages, **changes) as loader:
            found.append([])
            for _ in range(10):
                found[-1].append((loader.micro_batches, loader.global_batch_size))
                next(loader)
    assert found[0] == found[1] and len(set(found[0])) == 2


def test_interrupts_at_any_time_cost_no_batch(fake):
    with fakes() as loader:
        storm(loader)


def test_a_handler_may_move_and_close(fake):
    """At any time: load_state_dict() and close() of a signal handler inside next()."""
    with fakes() as loader:
        next(loader)
        state = loader.state_dict()
        for action in "move", "close":
            moves = taken = 0

            def act(_, frame):
                nonlocal moves
                while frame is not None and frame.f_code is not type(loader).next.__code__:
                    frame = frame.f_back
                if frame is not None:
                    moves += 1
                    loader.load_state_dict(state) if action == "move" else loader.close()

            handler = signal.signal(signal.SIGALRM, act)
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            try:
                while moves < 30:
                    before = moves
                    try:
                        batch = loader.next()
                    except ringpack.UsageError:
                        assert action == "close"
                        continue
                    taken += 1
                    if moves == before:
                        assert loader.state_dict(text=True) == batch.state_dict(text=True)
                    assert (batch["input_ids"].numpy() == tokens(batch.number)).all()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, handler)
            assert taken


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"return_type": "numpy"}, "needs return_type='torch'"),
        ({"copy": False}, "copy=False gives views"),
        ({"static": True, "copy": True}, "static=True the same ones again"),
        ({"static": True, "device": None}, "static=True needs device"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"device": "meta"}, "expected 'cuda', 'cuda:N' or 'cpu'"),
        ({"device": 1.5}, "device is 1.5"),
    ],
)
def test_arguments_that_do_not_fit(changes, words):
    with pytest.raises(ValueError, match=words):
        ringpack.Loader(**{"run": "x", "return_type": "torch", "device": "cpu", **changes})


def test_a_gpu_that_is_not_there(fake):
    count = torch.cuda.device_count()
    loader = fakes(device=f"cuda:{count}")
    with pytest.raises(ringpack.UsageError, match=f"torch finds {count} GPUs"):
        loader.attach()
    assert loader._client is None


def test_rings_and_loans_that_leave_no_room(fake):
    with pytest.raises(ringpack.UsageError, match="keep=3 with device leaves no room"):
        fakes(keep=SLOTS - 1).attach()
    with fakes(keep=SLOTS - 2) as loader:
        for number in range(2 * SLOTS):
            assert next(loader).number == number
        with pytest.raises(ringpack.UsageError, match="borrow"):
            loader.borrow()


# ---- a simulated GPU ----------------------------------------------------------------------------


@pytest.fixture
def gpu(fake, cuda, monkeypatch):  # noqa: F811
    """Memory of the simulated GPU is the CPU's. Streams of tensors are recorded."""
    empty, uses = torch.empty, []
    monkeypatch.setattr(torch, "empty", lambda *shape, dtype, device: empty(*shape, dtype=dtype))
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, device, non_blocking: tensor.clone())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, by: uses.append(by))
    cuda.uses = uses
    return cuda


def test_the_next_copy_begins_before_a_batch_is_given(gpu):
    """On a stream of the loader's; the current one waits for the batch's own copy, and for no
    more."""
    with fakes(device="cuda:0", pin_memory=True) as loader:
        main = gpu.current[0]
        for number in range(6):
            batch = next(loader)
            assert (batch["input_ids"].numpy() == tokens(number)).all()
            side = loader._copier._stream
            assert side is not main and side.recorded >= number + 2
            waiting, awaited, place = gpu.awaited[-1]
            assert waiting is main and awaited is side and len(gpu.awaited) == number + 1
            assert place < side.recorded or number == 5
            assert gpu.uses and {*gpu.uses} == {main}
            side.run(), main.run()


def slot_after_the_step(loader, gpu):
    """The slot of batch 0, when all but the stream of copies have moved on."""
    place = next(loader).view("input_ids", kind="numpy").ctypes.data
    for _ in range(SLOTS - 2):
        next(loader)
        gpu.current[0].run()
    return numpy.ctypeslib.as_array((numpy.ctypeslib.ctypes.c_int32 * 4).from_address(place))


def test_a_slot_goes_back_when_the_copy_has_passed(gpu):
    with fakes(device="cuda:0", pin_memory=True) as loader:
        slot = slot_after_the_step(loader, gpu)
        assert slot.tolist() == tokens(0)[0, :4].tolist()
        loader._copier._stream.run()
        next(loader)
        assert slot.tolist() != tokens(0)[0, :4].tolist()


def test_control_a_copy_that_is_not_noted_reads_garbage(gpu, monkeypatch):
    from ringpack._pin import Pins

    monkeypatch.setattr(Pins, "note_stream", lambda *_: None)
    with fakes(device="cuda:0", pin_memory=True) as loader:
        assert slot_after_the_step(loader, gpu).tolist() == [POISON] * 4


def test_copies_that_wait_are_told(gpu, caplog):
    with fakes(device="cuda:0", pin_memory=False) as loader:
        assert (next(loader)["input_ids"].numpy() == tokens(0)).all()
    assert "pin_memory=False: each copy to cuda:0 waits" in caplog.text


def test_the_current_gpu_is_the_default(gpu):
    with fakes(device="cuda", pin_memory=True) as loader:
        next(loader)
        assert loader._copier._device == torch.device("cuda:0")


@pytest.mark.parametrize("failing", [{0}, {1}, {3, 4}, {2, 5, 6}])
def test_memory_of_the_gpu_that_ends_costs_no_batch(gpu, monkeypatch, failing):
    """Before a batch is given, or while the next one is copied: the loop gets the error, and then
    the same batch."""
    calls = iter(range(99))
    allocate = Copier._allocate

    def fail(copier):
        if next(calls) in failing:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return allocate(copier)

    monkeypatch.setattr(Copier, "_allocate", fail)
    errors = number = 0
    with fakes(device="cuda:0", pin_memory=True) as loader:
        while number < 8:
            before = loader.state_dict(text=True)
            try:
                batch = next(loader)
            except torch.OutOfMemoryError:
                errors += 1
                assert loader.state_dict(text=True) == before
                continue
            assert batch.number == number and (batch["input_ids"].numpy() == tokens(number)).all()
            number += 1
            loader._copier._stream.run(), gpu.current[0].run()
    assert errors == len(failing)


def test_control_a_batch_that_is_forgotten_before_its_copy_is_lost(gpu, monkeypatch):
    begin = ringpack._device.DeviceLoader._begin_copy

    def forget(loader, client, lease):
        client.taking = None
        begin(loader, client, lease)

    monkeypatch.setattr("ringpack._device.DeviceLoader._begin_copy", forget)
    with pytest.raises(AssertionError):
        test_memory_of_the_gpu_that_ends_costs_no_batch(gpu, monkeypatch, {0})


DIES = """
import os, sys, torch
sys.path.insert(0, sys.argv[3])
from cuda_kit import FakeCuda
FakeCuda.reset()
empty, torch.cuda = torch.empty, FakeCuda
torch._C._cuda_hasPrimaryContext = lambda device: device == 0
torch.empty = lambda *shape, dtype, device: empty(*shape, dtype=dtype)
torch.Tensor.record_stream = lambda tensor, stream: None
import ringpack
form = {"return_type": "torch", "device": "cuda:0", "pin_memory": True}
loader = ringpack.Loader(run="served", run_dir=sys.argv[1], **form)
for _ in range(int(sys.argv[2])):
    next(loader)
assert len(loader._ahead) == 1 and not loader._copier._stream.reached
print(loader.state_dict(text=True)["ringpack_state"], flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("taken", [1, 3])
def test_a_process_that_dies_with_copies_in_flight_costs_no_batch(
    serve,  # noqa: F811
    folder,
    expected,
    taken,
):
    """No copy has passed, and the next batch is on its way. The engine gives its slots to the next
    process, which has the batch after the last one that was given."""
    serve(num_epochs="endless")
    path = [str(Path(ringpack.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    words = [folder, str(taken), str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(
        [sys.executable, "-c", DIES, *words], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert done.returncode == -signal.SIGKILL
    with ringpack.Loader(run="served", run_dir=folder) as loader:
        loader.load_state_dict({"ringpack_state": done.stdout.strip()})
        for number in range(taken, taken + 20):
            batch = next(loader)
            assert batch.first_row == 3 * number
            assert_batch(batch, expected)


# ---- a GPU --------------------------------------------------------------------------------------


@needs_gpu
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("profile", [None, "hf", "megatron", "olmo"])
def test_a_real_gpu_gets_the_same(make, profile, way):
    known = {"return_type": "torch", "profile": profile, "num_epochs": 1}
    with make(**known) as loader:
        wanted = read_all(loader)
    with make(**known, device="cuda", **WAYS[way]) as loader:
        found = read_all(loader)
    assert found == wanted


@needs_gpu
def test_a_real_gpu_copies_beside_the_step(make):
    """While the main stream is busy, batches are given, and their copies complete."""
    with make(return_type="torch", device="cuda", num_epochs=1) as loader:
        wanted = next(loader)["input_ids"].cpu()
        torch.cuda._sleep(2_000_000_000)  # cycles: a second or so
        copies = [next(loader)["input_ids"] for _ in range(2)]
        side = loader._copier._stream
        side.synchronize()
        assert not torch.cuda.current_stream().query(), "the delay was too short to tell anything"
        torch.cuda.synchronize()
        assert wanted.shape == copies[0].shape and not torch.equal(copies[0], copies[1])


@needs_gpu
def test_a_cuda_graph_reads_each_batch(make):
    with make(return_type="torch", device="cuda", static=True, num_epochs=1) as loader:
        batch = next(loader)
        graph, total = torch.cuda.CUDAGraph(), torch.zeros((), dtype=torch.int64, device="cuda")
        with torch.cuda.graph(graph):
            total.copy_(batch["input_ids"].sum())
        while batch is not None:
            graph.replay()
            assert int(total) == int(batch.view("input_ids", kind="numpy").sum())
            batch = loader.next()
