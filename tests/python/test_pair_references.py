# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities of a reference model from a document column: batches equal the ones of TRL's
collator, and DPOTrainer the one that computes them before it trains."""

import json

import numpy
import pytest
import ringpack
from mask_kit import index
from refusal_kit import run
from test_pairs import (  # with the fixtures `load` and `tokenizer`
    LENGTH,
    datasets,
    dpo,
    load,
    losses,
    make_model,
    options_of,
    rows_of,
    tokenizer,
    torch,
    transformers,
    trl,
    unread,
    write,
)

COLUMN = ["ref_logps"]


def annotate(program, corpus, chosen, rejected):
    """The column, in the order of the documents, and the index that has it."""
    made = corpus.parent / "pairs.rpi"
    config = corpus.parent / "pairs.yaml"
    keys = {"sources": [str(corpus)], "seq_len": LENGTH, "batch_size": 1, "index": str(made)}
    config.write_text(json.dumps(keys))
    index(program, "-c", str(config))
    numpy.save(corpus.parent / "logps.npy", numpy.stack([chosen, rejected], axis=1).ravel())
    done = run(
        *(program, "annotate", "-q", "-c", config),
        *("--column", f"ref_logps={corpus.parent / 'logps.npy'}"),
    )
    assert done.returncode == 0, done.stderr
    return {"index": str(made), "document_columns": COLUMN}


@pytest.mark.parametrize("more", [{}, {"copy": True}], ids=str)
def test_batches_have_the_keys_of_the_collator(program, tokenizer, load, tmp_path, more):
    rows, generator = rows_of("texts"), numpy.random.default_rng(3)
    corpus = write(program, tokenizer, tmp_path, rows)
    for row in rows:
        row["ref_chosen_logps"], row["ref_rejected_logps"] = (-90 * generator.random(2)).tolist()
    keys = annotate(program, corpus, *([r[f"ref_{half}_logps"] for r in rows]
                                       for half in ("chosen", "rejected")))
    own = type("Own", (), {"_tokenizer": tokenizer[1]})()
    config = trl.DPOConfig(use_cpu=True, report_to="none")
    data = datasets.Dataset.from_list(rows)
    wanted = trl.DPOTrainer._prepare_dataset(own, data, tokenizer[1], config, "train").to_list()
    collate = dpo.DataCollatorForPreference(pad_token_id=tokenizer[1].pad_token_id)
    first = 0
    with load(corpus, shuffle="none", batch_size=3, **keys, **more) as loader:
        for batch in loader:
            pairs = len(batch["ref_chosen_logps"])
            expected = collate(wanted[first : first + pairs])
            assert {*batch} == {*expected} and "ref_rejected_logps" in expected
            for name, tensor in expected.items():
                assert tensor.dtype == batch[name].dtype and torch.equal(tensor, batch[name]), name
            first += pairs
    assert first == len(rows)


def dpo_trainer(tokenizer, place, data, **more):
    options = {**options_of(place, 3), "gradient_accumulation_steps": 1, "eval_strategy": "no"}
    options.update(save_strategy="no", per_device_train_batch_size=11)
    options.update(precompute_ref_log_probs=True)
    transformers.set_seed(5)
    model, reference = make_model(), make_model()
    with torch.no_grad():
        for weight in reference.parameters():
            weight.mul_(0.9)
    args = trl.DPOConfig(**{**options, **more})
    return trl.DPOTrainer(
        model=model, ref_model=reference, args=args, processing_class=tokenizer[1], **data
    )


def test_training_is_the_one_of_precomputed_references(program, tokenizer, load, tmp_path):
    """All pairs in each step, so that the order of TRL's sampler makes no difference."""
    rows = rows_of("texts")
    corpus = write(program, tokenizer, tmp_path, rows)
    data = {"train_dataset": datasets.Dataset.from_list(rows)}
    own = dpo_trainer(tokenizer, tmp_path / "own", data)
    known = own.train_dataset
    own.train()
    keys = annotate(program, corpus, known["ref_chosen_logps"], known["ref_rejected_logps"])
    fed = dpo_trainer(tokenizer, tmp_path / "fed", {"train_dataset": unread()["train_dataset"]})
    with load(corpus, batch_size=11, num_epochs="endless", **keys) as loader:
        ringpack.hf.attach(fed, loader)
        fed.train()
        assert loader.next_row == 3 * 11
    found, expected = losses(fed), losses(own)
    assert len(expected) == 3 and len({*expected.values()}) == 3
    assert found == pytest.approx(expected, rel=1e-4)
    assert abs(expected[1] - float(numpy.log(2))) > 1e-3, "the reference makes no difference"
    with load(corpus, batch_size=11, run="without", num_epochs="endless") as loader:
        with pytest.raises(ringpack.UsageError, match="no document column `ref_logps`"):
            ringpack.hf.attach(fed, loader).train()
