# SPDX-License-Identifier: Apache-2.0
"""The requirements of torchdata, Grain, torch.distributed.checkpoint and accelerate on a stateful
iterator.

The checks are those that they publish for their own: resume after every element, states that make
the round trip, states through JSON, the end of an epoch. A package that is not installed is a
skipped test with its name in it."""

import copy
import json
import multiprocessing
import pickle
import subprocess
import sys

import numpy
import pytest
import ringpack
from stream_kit import PATIENCE
from stream_oracle import INPUTS

torch = pytest.importorskip("torch")


@pytest.fixture
def short(make, corpora):
    """Loaders of a stream of seven batches: most tests walk over it once for each of them."""

    def make_short(**changes):
        return make(**{"batch_size": 8, "num_epochs": 1, "profile": "full", **changes})

    return make_short


def rows_of(batch):
    return batch["input_ids"].tolist(), batch["labels"].tolist()


# ---- torchdata ----------------------------------------------------------------------------------


@pytest.fixture
def data_loader(short):
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    loaders = []

    def make_one(**changes):
        loaders.append(short(return_type="torch", **changes))
        return torchdata.StatefulDataLoader(loaders[-1], batch_size=None, num_workers=0)

    yield make_one
    for loader in loaders:
        loader.close()


def test_a_torch_loader_is_an_iterable_dataset(short):
    assert isinstance(short(return_type="torch"), torch.utils.data.IterableDataset)
    assert not isinstance(short(), torch.utils.data.IterableDataset)


def test_torchdata_resumes_after_every_element(data_loader):
    first = data_loader()
    states, seen = [first.state_dict()], []
    for batch in first:
        assert type(batch) is dict and batch["input_ids"].dtype == torch.int32
        seen.append(rows_of(batch))
        states.append(copy.deepcopy(first.state_dict()))
    del batch
    first.dataset.close()
    assert len(seen) == 7
    for k in range(len(seen)):
        resumed = data_loader()
        resumed.load_state_dict(states[k])
        assert [rows_of(batch) for batch in resumed] == seen[k:], f"resumed after element {k}"
        resumed.dataset.close()


def test_torchdata_state_makes_the_round_trip(data_loader):
    """Loaded and saved at once, without an element in between, it is the same state."""
    first = data_loader()
    elements = iter(first)
    for _ in range(3):
        next(elements)
    state = copy.deepcopy(first.state_dict())
    wanted = [rows_of(batch) for batch in elements]
    first.dataset.close()
    for _ in range(2):
        other = data_loader()
        other.load_state_dict(state)
        elements = iter(other)
        state = copy.deepcopy(other.state_dict())
        assert state["fetcher_state"]["dataset_iter_state"] is not None
        other.dataset.close()
    last = data_loader()
    last.load_state_dict(state)
    assert [rows_of(batch) for batch in last] == wanted


def test_torchdata_begins_again_after_the_end(data_loader):
    """Each loop is a pass. After one that was left, and a state of the end, comes a new one."""
    first = data_loader(num_epochs=2)
    seen = [rows_of(batch) for batch in first]
    assert len(seen) == len(first.dataset) == len(first)
    end = copy.deepcopy(first.state_dict())
    assert [rows_of(batch) for batch in first] == seen
    for _ in zip(range(3), first):
        pass
    assert [rows_of(batch) for batch in first] == seen
    first.dataset.close()
    other = data_loader(num_epochs=2)
    other.load_state_dict(end)
    assert [rows_of(batch) for batch in other] == seen


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_of_a_data_loader_are_refused(short, workers):
    """Also of a single one: its position would stay in it, and a state taken here be the first
    row."""
    loader = torch.utils.data.DataLoader(
        short(return_type="torch"),
        batch_size=None,
        num_workers=workers,
        multiprocessing_context="fork",
    )
    with pytest.raises(ringpack.UsageError, match="num_workers=0"):
        next(iter(loader))


def test_accelerate_leaves_the_batches_as_they_are(short):
    accelerate = pytest.importorskip("accelerate")
    with short() as plain:
        wanted = [rows_of(batch) for batch in plain]
    loader = short(return_type="torch")
    accelerator = accelerate.Accelerator(cpu=True)
    prepared = accelerator.prepare(torch.utils.data.DataLoader(loader, batch_size=None))
    assert [rows_of(batch) for batch in prepared] == wanted


PREPARED = "begin at row 0 again"


def test_accelerate_prepares_no_loader_that_it_would_not_save(short):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    for kind in "torch", "numpy":
        loader = short(return_type=kind)
        with pytest.raises(ringpack.UsageError, match=PREPARED) as raised:
            accelerator.prepare(torch.nn.Linear(1, 1), loader)
        assert "register_for_checkpointing(loader)" in raised.value.hint
        accelerator.register_for_checkpointing(loader)
        assert accelerator.prepare(loader) is loader


def lives(short, folder, stateful=False, register=False, **changes):
    """Sums of the ids: of a loop that saves after its third batch, and of one that resumes."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    sums = []
    for number in range(2):
        configuration = DataLoaderConfiguration(use_stateful_dataloader=stateful)
        accelerator = Accelerator(cpu=True, dataloader_config=configuration)
        with short(return_type="torch", **changes) as loader:
            prepared = accelerator.prepare(torch.utils.data.DataLoader(loader, batch_size=None))
            if register:
                accelerator.register_for_checkpointing(loader)
            if number == 1:
                accelerator.load_state(folder / "saved")
            sums.append([])
            for batch in prepared:
                sums[-1].append(int(batch["input_ids"].sum()))
                if number == 0 and len(sums[0]) == 3:
                    accelerator.save_state(folder / "saved")
    return sums


@pytest.mark.parametrize("how", [{"register": True}, {"stateful": True}])
def test_accelerate_resumes_a_prepared_data_loader(short, folder, how):
    """It takes a batch before it gives the one before; the position is the one of the loop."""
    pytest.importorskip("accelerate")
    before, after = lives(short, folder, **how)
    assert len(before) == 7 and after == before[3:]


def test_accelerate_saves_no_prepared_data_loader_without_its_position(short, folder):
    pytest.importorskip("accelerate")
    with pytest.raises(ringpack.UsageError, match=PREPARED) as raised:
        lives(short, folder)
    assert "save_state() has no position" in str(raised.value)
    assert "register_for_checkpointing(loader)" in raised.value.hint
    with pytest.raises(ringpack.UsageError, match="is registered, and belongs to a Stateful"):
        lives(short, folder, register=True, stateful=True)


def test_a_prepared_data_loader_of_several_ranks_is_refused(short):
    """It would read only on rank 0."""
    accelerate = pytest.importorskip("accelerate")
    loader = short(return_type="torch", dp_rank=0, dp_world_size=2)
    accelerator = accelerate.Accelerator(cpu=True)
    prepared = accelerator.prepare(torch.utils.data.DataLoader(loader, batch_size=None))
    with pytest.raises(ringpack.UsageError, match="one of 2 ranks") as raised:
        next(iter(prepared))
    assert "leave the loader out of prepare()" in raised.value.hint


# ---- Grain --------------------------------------------------------------------------------------


class Copies:
    """A loader as a Grain dataset: elements that outlive the next one."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return self

    def __next__(self):
        with next(self.loader) as batch:
            return batch.copy()

    def get_state(self):
        return self.loader.get_state()

    def set_state(self, state):
        self.loader.set_state(state)


def test_grain_restores_every_state(short):
    testing = pytest.importorskip("grain._src.python.testing.experimental")
    with short(profile="grain") as loader:
        testing.assert_equal_output_after_checkpoint(Copies(loader))


def test_control_a_state_that_is_late_is_found(short):
    testing = pytest.importorskip("grain._src.python.testing.experimental")

    class Late(Copies):
        """Gives the state that it had one element ago."""

        def __next__(self):
            self.before = super().get_state()
            return super().__next__()

        def get_state(self):
            return getattr(self, "before", super().get_state())

    with short(profile="grain") as loader, pytest.raises(AssertionError, match="mismatch|match"):
        testing.assert_equal_output_after_checkpoint(Late(loader))


def test_grain_saves_a_loader_into_an_orbax_checkpoint(short, folder):
    """By the handlers of its own iterators, as MaxText calls them."""
    ocp = pytest.importorskip("orbax.checkpoint")
    grain = pytest.importorskip("grain")
    form = {"profile": "grain", "copy": True}
    with short(**form) as loader, ocp.CheckpointManager(folder / "saved") as checkpoints:
        next(loader)
        saved = ocp.args.Composite(iter=grain.checkpoint.CheckpointSave(loader))
        checkpoints.save(1, args=saved)
        checkpoints.wait_until_finished()
        rest = [batch["inputs"].tolist() for batch in loader]
    with short(**form) as loader, ocp.CheckpointManager(folder / "saved") as checkpoints:
        kept = ocp.args.Composite(iter=grain.checkpoint.CheckpointRestore(loader))
        checkpoints.restore(1, args=kept)
        assert rest and [batch["inputs"].tolist() for batch in loader] == rest


def test_grain_packs_under_the_same_names(short):
    """Keys and types of Grain's own packing of a feature called inputs."""
    grain = pytest.importorskip("grain")
    with short(profile="grain") as loader:
        ours = {name: (view.dtype, view.shape[1:]) for name, view in next(loader).items()}
    documents = [{"inputs": numpy.arange(n, dtype=numpy.int32)} for n in (30, 20, 40)]
    packed = grain.experimental.FirstFitPackIterDataset(
        grain.MapDataset.source(documents).to_iter_dataset(),
        length_struct={"inputs": INPUTS["seq_len"]},
        num_packing_bins=2,
    )
    theirs = next(iter(packed))
    assert ours == {name: (array.dtype, array.shape) for name, array in theirs.items()}
    assert set(numpy.unique(theirs["inputs_segment_ids"])) <= {0, 1, 2}


# ---- states -------------------------------------------------------------------------------------


def test_a_state_through_json_after_every_element(short):
    with short() as loader:
        states, seen = [json.dumps(loader.get_state())], []
        for batch in loader:
            seen.append(rows_of(batch))
            states.append(json.dumps(loader.get_state()))
        del batch
        assert {tuple(json.loads(text)) for text in states} == {("ringpack_state",)}
        for k, text in enumerate(states):
            loader.set_state(json.loads(text))
            assert json.dumps(loader.get_state()) == text
            assert [rows_of(batch) for batch in loader] == seen[k:]


def test_a_state_before_the_first_batch_is_a_state(short):
    with short() as loader:
        start = loader.state_dict()
        wanted = [rows_of(batch) for batch in loader]
    other = short()
    other.load_state_dict(start)
    assert [rows_of(batch) for batch in other] == wanted


def test_taking_a_state_changes_nothing(short):
    with short() as loader, short(run="other") as silent:
        for batch, same in zip(loader, silent):
            for _ in range(3):
                loader.state_dict()
            assert rows_of(batch) == rows_of(same)


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_dcp_takes_a_loader_as_stateful(short, tmp_path, kind):
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    stateful = pytest.importorskip("torch.distributed.checkpoint.stateful")
    with short(return_type=kind) as loader:
        assert isinstance(loader, stateful.Stateful)
        for _ in range(4):
            next(loader)
        dcp.save({"loader": loader}, checkpoint_id=tmp_path)
        wanted = [rows_of(batch) for batch in loader]
    with short(return_type=kind) as other:
        dcp.load({"loader": other}, checkpoint_id=tmp_path)
        assert [rows_of(batch) for batch in other] == wanted


# ---- length, epochs, borrowing ------------------------------------------------------------------


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("changes", [{}, {"global_batch_size": 24}, {"num_epochs": 2}])
def test_len_is_the_number_of_batches(short, drop_last, changes, corpora):
    config = [{"path": corpora[0], "weight": 2}]  # a config that has no file
    with short(drop_last=drop_last, corpus=config, **changes) as loader:
        assert len(loader) == sum(1 for _ in loader)
        assert len(loader) > 0 and bool(loader)


def test_len_of_a_share_is_that_of_the_whole(short):
    for rank in 0, 1:
        share = {"dp_rank": rank, "dp_world_size": 2, "ranks": f"{rank}-{rank}"}
        with short(batch_size=4, start_engine=True, **share) as loader:
            assert len(loader) == sum(1 for _ in loader)


def test_what_has_no_length_says_so(short, folder):
    with short(num_epochs="endless", run="endless") as loader:
        with pytest.raises(TypeError, match="endless"):
            len(loader)
        loader._detach()
        with pytest.raises(TypeError, match="not this loader's"):
            len(ringpack.Loader(run="endless", run_dir=folder))


def test_set_epoch_changes_nothing_and_refuses_what_is_not_there(short):
    with short(num_epochs=2) as loader, short(num_epochs=2, run="other") as silent:
        loader.set_epoch(0)
        next(loader), next(silent)
        loader.set_epoch(1)
        assert [rows_of(b) for b in loader] == [rows_of(b) for b in silent]
        loader.set_epoch(0)
        with pytest.raises(ringpack.UsageError, match="num_epochs"):
            loader.set_epoch(2)


def test_borrowed_batches_end_when_they_are_given_back(short):
    with short(prefetch_factor=4) as loader:
        kept = loader.borrow()
        wanted = rows_of(kept)
        assert [next(loader).number for _ in range(3)] == [1, 2, 3]
        assert rows_of(kept) == wanted
        with pytest.raises(ringpack.LeaseError, match=r"batch 0 \(open\)"):
            next(loader)  # the ring goes no further than the oldest lease lets it
        kept.release()
        with pytest.raises(ringpack.ReleasedError, match="batch 0 was released"):
            kept["input_ids"]
        with loader.borrow() as batch:
            assert batch.number == 4
        with pytest.raises(ringpack.ReleasedError, match="with"):
            batch["input_ids"]
        while (batch := loader.borrow()) is not None:
            batch.close()
        assert loader.borrow() is None and loader.next() is None


def test_a_borrowed_batch_holds_the_position(short):
    with short() as loader:
        batch = loader.borrow()
        with pytest.raises(ringpack.LeaseError, match=r"batch 0 \(open\)"):
            loader.load_state_dict(loader.state_dict())
        batch.close()
        loader.load_state_dict(loader.state_dict())


# ---- processes ----------------------------------------------------------------------------------


def _first_rows(loader, results):
    with loader:
        results.put([rows_of(batch) for _, batch in zip(range(2), loader)])


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_loader_that_is_not_attached_goes_to_another_process(short, method, kind):
    with short(return_type=kind) as loader:
        wanted = [rows_of(batch) for _, batch in zip(range(2), loader)]
    context = multiprocessing.get_context(method)
    results = context.Queue()
    child = context.Process(target=_first_rows, args=(short(return_type=kind), results))
    child.start()
    assert results.get(timeout=PATIENCE) == wanted
    child.join()
    assert child.exitcode == 0


def test_pickling_keeps_the_kind(short):
    loader = short(return_type="torch", profile="hf")
    again = pickle.loads(pickle.dumps(loader))
    assert type(again) is type(loader)
    assert list(next(again))[:3] == ["input_ids", "labels", "position_ids"]
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(again)
    again.close()


EXIT = """
import sys, ringpack
loader = ringpack.Loader(corpus=sys.argv[1], run_dir=sys.argv[2], seq_len=48, batch_size=2,
                         return_type=sys.argv[3])
views = [next(loader)["input_ids"] for _ in range(2)]
borrowed = loader.borrow()
"""


@pytest.mark.parametrize(
    "kind, end",
    [
        ("torch", ""),
        ("numpy", ""),
        ("numpy", "raise SystemExit(3)"),
        ("numpy", "import os; os._exit(3)"),
        ("numpy", "1 / 0"),
    ],
)
def test_the_interpreter_ends_with_all_that_is_open(program, corpora, folder, kind, end):
    command = [sys.executable, "-c", EXIT + end, corpora[0], folder, kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == {"": 0, "1 / 0": 1}.get(end, 3)
    complaints = [line for line in done.stderr.splitlines() if "Exception ignored" in line]
    assert complaints == [], done.stderr
