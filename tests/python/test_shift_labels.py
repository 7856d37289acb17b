# SPDX-License-Identifier: Apache-2.0
"""Profiles hf and trl with context parallelism: `shift_labels` of slices give a transformers model
the loss and gradients of whole rows. Its attention gathers the keys of all slices."""

from types import SimpleNamespace

import pytest
import ringpack
from context_kit import LENGTH, ROWS, group, per_document, per_row, write_corpus
from hf_kit import make_model, torch, train_with, transformers  # noqa: F401

SIZE = 2
PLACES = {}  # places of each slice in the flat batch, and documents of all places


def gathered(module, query, key, value, mask, scaling=None, **_):
    """Attention of the slices of a batch, which are one batch here, over its whole documents."""
    is_seen = PLACES["documents"][:, None] == PLACES["documents"][None, :]
    whole = []
    for part in query, key, value:
        slices = part.transpose(1, 2).reshape(SIZE, -1, *part.shape[1:2], part.shape[3])
        flat = slices.new_zeros(ROWS * LENGTH, *slices.shape[2:])
        for own, rows in zip(PLACES["slices"], slices):
            flat = flat.index_copy(0, own, rows)
        whole.append(flat.transpose(0, 1))
    made = torch.nn.functional.scaled_dot_product_attention(
        *whole, attn_mask=is_seen.tril(), scale=scaling
    )
    made = torch.stack([made.transpose(0, 1)[own] for own in PLACES["slices"]])
    return made.reshape(query.shape[0], query.shape[2], *query.shape[1:4:2]), None


transformers.AttentionInterface.register("gathered", gathered)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("context"))


def gradients(model):
    return torch.cat([of.grad.flatten() for of in model.parameters()])


@pytest.mark.parametrize("split", ["row", "document"])
@pytest.mark.parametrize("profile", ["hf", "trl"])
def test_loss_of_slices(program, corpus, folder, profile, split):
    whole_model, model = make_model(), make_model()
    model.set_attn_implementation("gathered")
    options = {"profile": profile, "return_type": "torch"}
    with group(corpus, folder, SIZE, split=split, **options) as (whole, parts):
        for batch, *slices in zip(whole, *parts, strict=True):
            ends = batch["cu_seq_lens_q"].tolist()
            lengths = torch.tensor(ends).diff()
            PLACES["documents"] = torch.arange(len(lengths)).repeat_interleave(lengths)
            rows = [[*range(n * LENGTH, (n + 1) * LENGTH)] for n in range(ROWS)]
            PLACES["slices"] = [
                torch.tensor(
                    per_document(ends, SIZE, rank)
                    if split == "document"
                    else [row[n] for row in rows for n in per_row(LENGTH, SIZE, rank)]
                )
                for rank in range(SIZE)
            ]
            known = "input_ids", "labels", "shift_labels", "position_ids", "use_cache"
            assert [*slices[0]][:5] == [*known]
            given = {
                name: value if isinstance(value, bool) else torch.from_numpy(value.copy())
                for name, value in batch.items()
                if not name.startswith(("max_length", "seq_idx"))
            }
            count = int((given["labels"][..., 1:] != -100).sum())
            assert sum(int((part["shift_labels"] != -100).sum()) for part in slices) == count
            expected = whole_model(**given, num_items_in_batch=count).loss
            together = {name: torch.cat([part[name] for part in slices]) for name in known[:4]}
            found = model(**together, use_cache=False, num_items_in_batch=count)
            assert torch.allclose(found.loss, expected, rtol=1e-5)
            sums = [
                model.loss_function(
                    logits=logits, labels=None, shift_labels=part["shift_labels"],
                    vocab_size=logits.shape[-1], num_items_in_batch=count,
                )
                for logits, part in zip(found.logits.chunk(SIZE), slices)
            ]  # fmt: skip
            assert torch.allclose(sum(sums), expected, rtol=1e-5)
        expected.backward()
        found.loss.backward()
        assert torch.allclose(gradients(model), gradients(whole_model), atol=1e-6)


def test_trainer_splits_whole_rows_itself(
    program, corpus, folder, train_with, monkeypatch  # noqa: F811
):
    form = {"corpus": corpus, "seq_len": LENGTH, "batch_size": 2, "run_dir": folder}
    form |= {"profile": "hf", "return_type": "torch"}
    with pytest.raises(ringpack.UsageError, match=r"slices of rows \(cp_size=2\)") as raised:
        ringpack.hf.attach(train_with(), ringpack.Loader(**form, cp_size=2, cp_rank=0))
    assert "consumers_per_rank" in raised.value.hint
    trainer = train_with(max_steps=1)
    accelerator = type(trainer.accelerator)
    monkeypatch.setattr(accelerator, "parallelism_config", SimpleNamespace(cp_enabled=True))
    with ringpack.Loader(**form, num_epochs="endless") as loader:
        ringpack.hf.attach(trainer, loader)
        with pytest.raises(ringpack.UsageError, match="causal masks only"):
            trainer.get_train_dataloader()
