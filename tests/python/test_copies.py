# SPDX-License-Identifier: Apache-2.0
"""Tensors and dicts that are the caller's, on fake_client.c, whose slots are read-only: a write
into one would end the process with SIGSEGV."""

import numpy
import pytest
import ringpack
from fake_kit import ROWS, SLOTS, tokens

WAYS = {
    "batch[...]": lambda batch: batch["labels"],
    "to": lambda batch: batch["labels"].to("cpu"),
    "long": lambda batch: batch["labels"].long(),
    "contiguous": lambda batch: batch["labels"].contiguous(),
    "reshape": lambda batch: batch["labels"].reshape(-1),
    "flat": lambda batch: batch.flat()["labels"],
    "view": lambda batch: batch.view("labels"),
    "adopt": lambda batch: batch.adopt(batch.view("labels", kind="numpy")),
    "view, torch": lambda batch: batch.view("labels", kind="torch"),
    "batch.to": lambda batch: batch.to("cpu")["labels"],
    "batch.copy": lambda batch: batch.copy()["labels"],
}


@pytest.mark.parametrize("copy", [None, True, False])
def test_tensors_can_be_written_to(fake, copy):
    """Each way that README calls the caller's, and none of them changes the ring."""
    pytest.importorskip("torch")
    for name, way in WAYS.items():
        with ringpack.Loader(run="x", return_type="torch", copy=copy) as loader:
            batch = next(loader)
            if copy is True:
                assert type(batch) is dict
                if name in ("batch.to", "batch.copy", "adopt", "flat", "view", "view, torch"):
                    continue
            elif copy is False and not name.startswith("batch."):
                continue
            elif copy is False and name == "batch[...]":
                continue
            tensor = way(batch)
            tensor[tensor == 3] = -100
            assert (tensor == -100).sum() == 1, name
            if copy is None:
                assert (batch.view("labels", kind="numpy") != -100).all()
            again = next(loader)["labels"]
            assert (tensor == -100).sum() == 1 and (again != -100).all(), "it is not the ring's"


def test_tensors_of_a_loader_of_arrays_can_be_written_to(fake):
    pytest.importorskip("torch")
    with ringpack.Loader(run="x") as loader:
        batch = next(loader)
        batch.view("labels", kind="torch")[:] = -100
        assert (batch["labels"] != -100).all() and not batch["labels"].flags.writeable
        assert isinstance(batch.copy()["labels"], numpy.ndarray)


def test_what_is_written_stays_written(fake):
    """A name gives the same tensor each time, its other shapes share the memory, and to() and
    copy() move that one."""
    pytest.importorskip("torch")
    with ringpack.Loader(run="x", return_type="torch") as loader:
        for batch in loader:
            if batch.number == 2 * SLOTS:
                break
            assert (batch["labels"] != -100).all()
            batch["labels"][0, 0] = -100
            for labels in batch["labels"], batch.to("cpu")["labels"], batch.copy()["labels"]:
                assert labels[0, 0] == -100
            assert batch.flat()["labels"][0] == -100
            batch.flat()["input_ids"][1] = -5
            assert batch["input_ids"][0, 1] == batch.to("cpu")["input_ids"][0, 1] == -5


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_copies_are_dicts_that_outlive_everything(fake, kind):
    pytest.importorskip("torch")
    with ringpack.Loader(run="x", return_type=kind, copy=True) as loader:
        batches = [next(loader) for _ in range(3 * SLOTS)]
        assert all(type(batch) is dict for batch in batches)
        assert loader.next_row == 3 * SLOTS * ROWS
    for number, batch in enumerate(batches):
        assert (numpy.asarray(batch["input_ids"]) == tokens(number)).all()
        batch["input_ids"][:] = 0


def test_an_interrupt_while_a_batch_is_copied_costs_no_batch(fake, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    with ringpack.Loader(run="x", copy=True) as loader:
        next(loader)
        with monkeypatch.context() as patch:
            patch.setattr("ringpack.Batch.copy", interrupt)
            for _ in range(2 * SLOTS):
                with pytest.raises(KeyboardInterrupt):
                    next(loader)
                assert loader.next_row == ROWS
        assert (next(loader)["input_ids"] == tokens(1)).all()


def test_a_handler_that_closes_while_a_batch_is_copied(fake, monkeypatch):
    """The memory that is being read stays until then; without it this process would end."""
    own = ringpack.batch.own

    def close_and_copy(view, is_locked):
        loader.close()
        return own(view, is_locked)

    monkeypatch.setattr(ringpack.batch, "own", close_and_copy)
    loader = ringpack.Loader(run="x", copy=True)
    with pytest.raises(ringpack.RingpackError, match="closed"):
        next(loader)
    monkeypatch.undo()
