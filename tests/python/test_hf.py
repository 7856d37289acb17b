# SPDX-License-Identifier: Apache-2.0
"""ringpack.hf: a Trainer that accumulates, is cut short and resumes has the losses of one run; and
objects that are given to the wrong one are named."""

import json
import math
import os
import shutil

import pytest
import ringpack
from hf_kit import (  # noqa: F401
    corpus,
    load,
    losses,
    make_model,
    torch,
    train_with,
    transformers,
    weights,
    write,
)


@pytest.mark.parametrize("accumulation", [1, 16, 64])
def test_a_resumed_trainer_is_one_that_went_on(load, train_with, accumulation):
    def train(loader, place, steps, **options):
        trainer = ringpack.hf.attach(
            train_with(
                place=place, max_steps=steps, gradient_accumulation_steps=accumulation, **options
            ),
            loader,
        )
        with loader:
            last = ringpack.hf.last_checkpoint(trainer.args.output_dir)
            trainer.train(resume_from_checkpoint=last)
            assert loader.next_row == steps * accumulation * 2
        return trainer

    whole = train(load(), "whole", 4)
    train(load(device="cpu"), "cut", 2)
    restored = {"restore_callback_states_from_checkpoint": accumulation == 16}
    resumed = train(load(device="cpu" if accumulation == 16 else None), "cut", 4, **restored)
    assert losses(resumed) == losses(whole) and len(losses(whole)) == 4
    assert torch.equal(weights(resumed), weights(whole))


def test_a_checkpoint_that_was_cut_short(load, train_with):
    """trainer_state.json is the last file, and the position is in it."""

    def trainer_of(loader, steps):
        return ringpack.hf.attach(train_with(max_steps=steps), loader)

    with load() as loader:
        trainer = trainer_of(loader, 3)
        trainer.train()
    output = trainer.args.output_dir
    newest, before = (os.path.join(output, f"checkpoint-{step}") for step in (3, 2))
    with open(f"{newest}/trainer_state.json") as file:
        whole = file.read()
    assert ringpack.hf.last_checkpoint(output) == newest
    for text in whole[: len(whole) // 2], "", None:
        os.remove(f"{newest}/trainer_state.json")
        if text is not None:
            with open(f"{newest}/trainer_state.json", "w") as file:
                file.write(text)
        assert ringpack.hf.last_checkpoint(output) == before
        with load() as loader, pytest.raises(ringpack.UsageError, match="cut short") as raised:
            trainer_of(loader, 4).train(resume_from_checkpoint=newest)
        assert "last_checkpoint" in raised.value.hint
    with load() as loader:
        trainer_of(loader, 4).train(resume_from_checkpoint=True)
        assert loader.next_row == 8
    assert ringpack.hf.last_checkpoint(output + "/nothing") is None


def test_a_checkpoint_without_a_position(load, train_with):
    with load() as loader:
        trainer = ringpack.hf.attach(train_with(max_steps=2), loader)
        trainer.train()
        state = loader.state_dict()
    newest = ringpack.hf.last_checkpoint(trainer.args.output_dir)
    with open(f"{newest}/trainer_state.json") as file:
        saved = json.load(file)
    del saved["stateful_callbacks"]["LoaderPosition"]
    with open(f"{newest}/trainer_state.json", "w") as file:
        json.dump(saved, file)
    with load() as loader, pytest.raises(ringpack.UsageError, match="has no position") as raised:
        ringpack.hf.attach(train_with(max_steps=3), loader).train(newest)
    assert "loader.pt" in raised.value.hint
    torch.save(state, f"{newest}/loader.pt")  # as the recipe without attach() saves it
    with load() as loader:
        trainer = ringpack.hf.attach(train_with(max_steps=3), loader)
        trainer.train(newest)
        assert loader.next_row == 6
    last = ringpack.hf.last_checkpoint(trainer.args.output_dir)
    with open(f"{last}/trainer_state.json") as file:
        assert json.load(file)["stateful_callbacks"]["LoaderPosition"]["attributes"]


def test_the_steps_of_a_finite_stream(load, train_with):
    batches = len(load(num_epochs=2))
    for changes, options, text in (
        ({"num_epochs": 2}, {}, "num_train_epochs=3, and the stream of the loader 2"),
        ({}, {"num_train_epochs": 1}, "endless"),
        ({"num_epochs": 3}, {"gradient_accumulation_steps": 7}, "does not divide"),
        ({"num_epochs": 3, "global_batch_size": 8}, {}, "steps of 4 batches"),
    ):
        with load(**changes) as loader, pytest.raises(ringpack.UsageError, match=text):
            ringpack.hf.attach(train_with(max_steps=-1, **options), loader).train()
    with load(num_epochs=2, global_batch_size=28) as loader:
        options = {"num_train_epochs": 2, "gradient_accumulation_steps": 14}
        trainer = ringpack.hf.attach(train_with(max_steps=-1, **options), loader)
        trainer.train()
        assert trainer.state.global_step == math.ceil(batches / 14) and loader.next() is None


@pytest.mark.parametrize("every", [1, 2])
def test_the_end_of_a_stage_is_named_and_saved(load, train_with, caplog, every):
    """Whose rows have another seq_len: Trainer only says that its iterator is empty."""
    stages, saved = [{"until": "3 steps"}, {"seq_len": 64}], []

    class Saves(transformers.TrainerCallback):
        def on_save(self, args, state, control, **_):
            saved.append(state.global_step)

    with load(stages=stages) as loader:
        trainer = ringpack.hf.attach(train_with(save_steps=every), loader)
        trainer.add_callback(Saves())
        trainer.train()
        assert trainer.state.global_step == 3
    assert saved == ([1, 2, 3] if every == 1 else [2, 3])
    said = [text for text in caplog.messages if "a stage of the loader ends at row 6" in text]
    assert len(said) == 1 and "resume_from_checkpoint" in said[0]
    with load(stages=stages, run="next") as loader:
        trainer = ringpack.hf.attach(train_with(save_steps=every), loader)
        trainer.train(resume_from_checkpoint=True)
        assert trainer.state.global_step == 4 and loader.next_row == 8


def test_the_steps_without_skipped_ones(load, train_with):
    """Else the schedule of the learning rate does not reach its end."""
    with load(num_epochs=1, skip={"steps": ["1-4"]}) as loader:
        trainer = ringpack.hf.attach(train_with(max_steps=-1, num_train_epochs=1), loader)
        trainer.train()
        assert trainer.args.max_steps == trainer.state.global_step == len(loader)


def test_a_step_without_a_label(load, train_with, tmp_path):
    """Documents of one token have none: the mean of none must not be NaN."""
    short = write(tmp_path / "short", [1] * 400)
    with load(corpus=short) as loader:
        trainer = ringpack.hf.attach(
            train_with(max_steps=2, gradient_accumulation_steps=2, logging_nan_inf_filter=False),
            loader,
        )
        trainer.train()
    assert losses(trainer) == {1: 0.0, 2: 0.0} and weights(trainer).isfinite().all()


def test_the_model_gets_what_it_takes(load, train_with):
    seen = []

    class Spy(transformers.Trainer):
        def compute_loss(self, model, inputs, **options):
            seen.append(inputs)
            return super().compute_loss(model, inputs, **options)

    with load() as loader:
        ringpack.hf.attach(train_with(Spy, max_steps=1), loader).train()
        assert list(seen[0]) == list(loader._form.names) and seen[0]["use_cache"] is False

    class Plain(torch.nn.Module):
        def forward(self, input_ids, labels, position_ids=None):
            raise AssertionError

    class Blind(torch.nn.Module):
        def forward(self, input_ids, labels):
            raise AssertionError

    names = list(loader._form.names)
    assert ringpack.hf._names_for(Plain(), names) == names[:3]
    with pytest.raises(ringpack.UsageError, match="Blind takes no position_ids"):
        ringpack.hf._names_for(Blind(), names)


def test_what_does_not_fit_is_refused(load, train_with):
    trainer = train_with()
    for loader, text in (
        ("corpus", "was given a str"),
        (load(profile=None), "profile=None"),
        (load(return_type="numpy"), "return_type='numpy'"),
        (load(dp_rank=0, dp_world_size=2), "has 1 processes, and the loader is rank 0 of 2"),
    ):
        with pytest.raises(ringpack.UsageError, match=text):
            ringpack.hf.attach(trainer, loader)
    with pytest.raises(ringpack.UsageError, match="auto_find_batch_size"):
        ringpack.hf.attach(train_with(auto_find_batch_size=True), load())
    trainer.args._n_gpu = 2
    with pytest.raises(ringpack.UsageError, match="among 2 GPUs"):
        ringpack.hf.attach(trainer, load())


def test_a_loader_in_other_places(load, train_with):
    """train_dataset, get_train_dataloader, DataLoader: it works, or the place is named."""
    for arguments in {}, {"per_device_train_batch_size": 1}:
        trainer = train_with(**arguments)
        trainer.train_dataset = load()
        with pytest.raises(ringpack.UsageError, match="DataLoader with a batch_size") as raised:
            trainer.train()
        assert "ringpack.hf.attach" in raised.value.hint
    with pytest.raises(ringpack.UsageError, match="DataLoader with a batch_size"):
        next(iter(torch.utils.data.DataLoader(load())))

    class OfLoader(transformers.Trainer):
        def get_train_dataloader(self):
            return loader

    with load() as loader:
        train_with(OfLoader).train()
        assert loader.next_row == 8
        with pytest.raises(ringpack.ReleasedError) as raised:
            train_with(OfLoader, gradient_accumulation_steps=2).train()
        assert "ringpack.hf.attach" in raised.value.hint
    with load() as loader:
        for batch in torch.utils.data.DataLoader(loader, batch_size=None):
            assert type(batch) is dict and batch["use_cache"] is False
            break


def test_views_of_a_batch_are_the_callers(load):
    """More batches than the ring has slots may be held, whole and by name, and be changed."""
    with load(prefetch_factor=2) as loader:
        held = [{name: batch[name] for name in batch} for _, batch in zip(range(40), loader)]
        assert loader.next_row == 80
        held[0]["labels"].fill_(-100)
    with load() as loader:
        for kept, batch in zip(held, loader):
            assert torch.equal(batch["input_ids"], kept["input_ids"])
            assert (batch["labels"] != -100).any()


def test_moving_a_batch_gives_a_dict(load):
    accelerate = pytest.importorskip("accelerate")
    with load() as loader:
        batch = next(loader)
        moved = accelerate.utils.send_to_device(batch, "cpu")
        assert type(moved) is dict and list(moved) == list(batch)
        assert torch.equal(moved["labels"], batch["labels"])
        model, accelerator = make_model(), accelerate.Accelerator(cpu=True)
        output = accelerator.prepare(model)(**moved)
        accelerator.backward(output.loss)


def test_a_corpus_that_is_no_file():
    for corpus, text in (
        ({"input_ids": [1, 2]}, "a mapping of input_ids"),
        ([{"input_ids": [1, 2]}], "a mapping of input_ids"),
        (torch.utils.data.TensorDataset(torch.zeros(2)), "corpus is a torch.TensorDataset"),
        (torch.zeros(3), "corpus is a torch.Tensor"),
    ):
        with pytest.raises(ringpack.UsageError, match=text):
            ringpack.Loader(corpus=corpus, seq_len=8, batch_size=1)
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict({"input_ids": [[1, 2]]})
    for corpus in made, made.to_iterable_dataset(), datasets.DatasetDict(train=made), [made]:
        with pytest.raises(ringpack.UsageError, match=r"corpus is a datasets\.") as raised:
            ringpack.Loader(corpus=corpus, seq_len=8, batch_size=1)
        assert "save_to_disk" in raised.value.hint


def test_mappings_and_sequences_of_other_kinds(load, corpus):
    """OmegaConf has its own."""
    from collections import UserDict, UserList

    shutil.copy(f"{corpus}.bin", f"{corpus}-2.bin")
    shutil.copy(f"{corpus}.idx", f"{corpus}-2.idx")
    sources = UserList([UserDict(path=str(corpus)), UserDict(shards=UserList([f"{corpus}-2"]))])
    with load(corpus=sources, sections=UserList(["labels"]), profile=None) as loader:
        assert "labels" in next(loader)
