# SPDX-License-Identifier: Apache-2.0
"""The iterators of ringpack.megatron, read by get_batch functions of Megatron."""

import importlib.util
import json
import os
from types import SimpleNamespace

import pytest
import ringpack
from forked_ranks import ForkedRanks

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core")
import ringpack.megatron  # noqa: E402
from megatron.core import parallel_state  # noqa: E402

FORM = {"seq_length": 32, "micro_batch_size": 2, "global_batch_size": 8}

# Without a GPU: a tensor's copy there is the tensor itself.
PROGRAM = """
import importlib.util, sys
from types import ModuleType, SimpleNamespace
import ringpack.megatron
import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.rerun_state_machine import RerunDataIterator
path, corpus = sys.argv[1:]
config = ModuleType("megatron.bridge.training.config")
config.ConfigContainer = config.FinetuningDatasetConfig = type("Other", (), {})
for name in ("megatron.bridge", "megatron.bridge.training"):
    sys.modules[name] = ModuleType(name)
sys.modules[config.__name__] = config
found = importlib.util.spec_from_file_location("batch_utils", path)
bridge = importlib.util.module_from_spec(found)
found.loader.exec_module(bridge)
torch.Tensor.cuda = lambda tensor, **_: tensor
torch.cuda.current_device = lambda: "cpu"
dist.init_process_group("gloo")
mpu.initialize_model_parallel(2)
args = SimpleNamespace(seq_length=32, micro_batch_size=2, global_batch_size=8)
args.consumed_train_samples, args.create_attention_mask_in_dataloader = 16, True
train, valid, test = ringpack.megatron.dataloaders(args, corpus=corpus, seed=1)
assert (train is None) == (dist.get_rank() == 1) and valid is test is None
train = train and RerunDataIterator(train)
model = SimpleNamespace(pipeline_model_parallel_size=1, seq_length=args.seq_length)
cfg = SimpleNamespace(train=args, model=model, dataset=SimpleNamespace(create_attention_mask=True))
groups = SimpleNamespace(
    tp=mpu.get_tensor_model_parallel_group(), pp=mpu.get_pipeline_model_parallel_group())
batches = [
    bridge.get_batch_on_this_tp_rank(train, cfg, pg_collection=groups) for _ in range(3)]
torch.save(batches, f"batches-{dist.get_rank()}")
dist.barrier()
"""


def test_bridge_reads_and_broadcasts(program, corpora, folder):
    """On two tensor-parallel ranks, from the third step on."""
    parts = "bridge", "training", "utils", "batch_utils.py"
    places = importlib.util.find_spec("megatron").submodule_search_locations
    paths = [os.path.join(place, *parts) for place in places]
    found = [path for path in paths if os.path.exists(path)]
    if not found:
        pytest.skip("needs megatron-bridge")
    (folder / "train.py").write_text(PROGRAM)
    place = {"XDG_RUNTIME_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    options = found[0], corpora[0]
    log = folder / "log"
    with ForkedRanks(2, folder / "train.py", options, log, cwd=folder, **place) as job:
        job.finish()
    batches = [torch.load(folder / f"batches-{rank}") for rank in range(2)]
    form = {"profile": "megatron", "return_type": "torch", "seed": 1, "num_epochs": "endless"}
    with ringpack.Loader(
        corpus=corpora[0], seq_len=32, batch_size=2, run_dir=folder, sections="segment_ids", **form
    ) as loader:
        for _ in range(8):  # batches of two steps
            next(loader)
        for number, made in enumerate(zip(*batches)):
            plain = next(loader)
            segments = plain["segment_ids"]
            for batch in made:
                assert list(batch) == [
                    "tokens", "labels", "loss_mask", "attention_mask", "position_ids",
                ]  # fmt: skip
                for name in ("tokens", "labels", "loss_mask", "position_ids"):
                    assert batch[name].dtype == plain[name].dtype, name
                    assert torch.equal(batch[name], plain[name]), (number, name)
                for row, column in torch.cartesian_prod(torch.arange(32), torch.arange(32)):
                    same = (segments[:, row] == segments[:, column]) & (segments[:, row] > 0)
                    seen = ~batch["attention_mask"][:, 0, row, column]
                    real = segments[:, row] > 0
                    assert (seen == (same & (column <= row)))[real].all()


@pytest.fixture
def alone(monkeypatch):
    """One process, which reads."""
    for name in ("tensor_model_parallel_rank", "data_parallel_rank"):
        monkeypatch.setattr(parallel_state, f"get_{name}", lambda: 0)
    monkeypatch.setattr(parallel_state, "get_data_parallel_world_size", lambda: 1)
    monkeypatch.setattr(parallel_state, "is_pipeline_first_stage", lambda **_: True)


def test_a_step_that_was_interrupted_is_refused(alone):
    args = SimpleNamespace(**FORM, consumed_train_samples=12)
    with pytest.raises(ringpack.UsageError, match="is 12, and no multiple of global") as raised:
        ringpack.megatron.dataloaders(args, corpus="none")
    assert "stages.md" in raised.value.hint


def test_lengths_and_passes_of_a_validation(program, alone, corpora, folder):
    args = SimpleNamespace(**FORM, dataloader_inter_document_masking=True)
    options = {"corpus": corpora[0], "valid": corpora[1], "run_dir": folder}
    train, valid, test = ringpack.megatron.dataloaders(args, **options)
    with train.loader, valid.loader:
        batch = next(train)
        assert batch["cu_seqlens"].shape == (2, 33) and batch["max_seqlen"].shape == (2,)
        assert "attention_mask" not in batch and test is None
        batch["tokens"].zero_()  # the caller's
        passes = [[next(valid)["tokens"].tolist() for _ in range(len(valid))] for _ in range(2)]
        assert passes[0] == passes[1] and len(passes[0]) > 1
        assert train.save_state().keys() == {"ringpack_state"}


def test_a_training_ends_and_does_not_begin_again(program, alone, corpora, folder):
    args, options = SimpleNamespace(**FORM), {"corpus": corpora[0], "run_dir": folder}
    stages = [{"until": "2 steps"}, {"seq_len": 64}]
    train = ringpack.megatron.dataloaders(args, stages=stages, **options)[0]
    with train.loader:
        assert [next(train)["tokens"].shape[1] for _ in range(8)] == [32] * 8
        for _ in range(2):
            with pytest.raises(StopIteration, match="row 16: .*-iters 2 or .* --seq-length"):
                next(train)
    args.seq_length, args.consumed_train_samples = 64, 16
    train = ringpack.megatron.dataloaders(args, stages=stages, seq_len=32, **options)[0]
    with train.loader:
        assert next(train)["tokens"].shape == (2, 64) and train.loader.next_row == 18
    args = SimpleNamespace(**FORM)
    train = ringpack.megatron.dataloaders(args, num_epochs=1, **options)[0]
    with train.loader:
        assert len(list(train)) == len(train)
        with pytest.raises(StopIteration, match=r"the training ends at row \d+ \(num_epochs\)"):
            next(train)


@pytest.mark.parametrize("seq_length, consumed, found", [(32, 16, 64), (64, 8, 32)])
def test_rows_of_another_length_are_refused(
    program, alone, corpora, folder, seq_length, consumed, found
):
    """The command of a stage after its end, and the command of the next stage before its begin."""
    args = SimpleNamespace(**{**FORM, "seq_length": seq_length}, consumed_train_samples=consumed)
    stages = [{"until": "2 steps"}, {"seq_len": 64}]
    options = {"corpus": corpora[0], "run_dir": folder, "stages": stages, "seq_len": 32}
    train = ringpack.megatron.dataloaders(args, **options)[0]
    said = f"from row {consumed} on have seq_len {found}, and args.seq_length is {seq_length}"
    with train.loader:
        for _ in range(2):
            with pytest.raises(ringpack.UsageError, match=said) as raised:
                next(train)
        assert f"--seq-length {found};" in raised.value.hint


def test_a_validation_has_the_length_of_the_present_stage(program, alone, corpora, folder):
    args = SimpleNamespace(**{**FORM, "seq_length": 64}, consumed_train_samples=16)
    stages = [{"until": "2 steps"}, {"seq_len": 64}]
    options = {"corpus": corpora[0], "valid": corpora[1], "run_dir": folder, "stages": stages}
    train, valid, _ = ringpack.megatron.dataloaders(args, seq_len=32, **options)
    with train.loader, valid.loader:
        assert next(train)["tokens"].shape == next(valid)["tokens"].shape == (2, 64)


def test_stages_of_a_config_file(program, alone, corpora, folder):
    keys = {"corpus": str(corpora[0]), "seq_len": 32, "stream_version": 2}
    keys["stages"] = [{"until": "2 steps"}, {"seq_len": 64}]
    (folder / "c.yaml").write_text(json.dumps(keys))
    args = SimpleNamespace(**{**FORM, "seq_length": 64}, consumed_train_samples=16)
    options = {"config": folder / "c.yaml", "run_dir": folder, "seq_len": None}
    train = ringpack.megatron.dataloaders(args, **options)[0]
    with train.loader:
        assert next(train)["tokens"].shape == (2, 64) and train.loader.next_row == 18


def test_the_older_name_of_consumers_per_rank(program, alone, corpora, folder, monkeypatch):
    place = {"dp_rank": 0, "dp_world_size": 1, "replica": 0, "consumers_per_rank": 2}
    monkeypatch.setattr(ringpack.megatron, "place_among", lambda *_: dict(place))
    options = {"corpus": corpora[0], "run_dir": folder, "replicas": 1}
    with pytest.warns(FutureWarning, match="`replicas` is now `consumers_per_rank`"):
        train = ringpack.megatron.dataloaders(SimpleNamespace(**FORM), **options)[0]
    with train.loader:
        assert next(train)["tokens"].shape == (2, 32)


def test_a_validation_has_no_arguments_of_the_training(program, alone, corpora, folder):
    options = {"corpus": corpora[0], "run_dir": folder, "run": "one", "seed": 1}
    options["checkpoint_dir"] = folder / "kept"
    of_training = {"skip": {"steps": [1, "3-5"]}, "stages": [{"until": "2 steps"}, {"seq_len": 64}]}
    args = SimpleNamespace(**FORM)
    plain = {"corpus": corpora[0], "run_dir": folder, "valid": corpora[1]}
    plain = ringpack.megatron.dataloaders(args, **plain)[1]
    with plain.loader:
        length = len(plain)
    of_training["removed"] = {"gone": 1}
    kept = ringpack.megatron._of_validation({**of_training, "run_record_dir": "none", "seed": 1})
    assert kept == {"seed": 1}
    del of_training["removed"]
    train, valid, _ = ringpack.megatron.dataloaders(
        args, valid=corpora[1], mount_guard_dir="none", **options, **of_training
    )
    with train.loader, valid.loader:
        next(train)
        assert len([next(valid) for _ in range(length)]) == len(valid) == length
        assert [train.loader.run, valid.loader.run] == ["one", "one.valid"]
