# SPDX-License-Identifier: Apache-2.0
"""Preference pairs: documents and batches equal the ones of TRL's collators, from JSONL and
Parquet; DPOTrainer and RewardTrainer are cut short, evaluate and resume; and refusals."""

import json
import types
from pathlib import Path

import numpy
import pytest
import ringpack
from convert_kit import convert, documents, refused
from forked_ranks import ForkedRanks
from hf_kit import losses, make_model, torch, transformers, weights
from ringpack import _form

trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
tokenizers = pytest.importorskip("tokenizers")
dpo = pytest.importorskip("trl.trainer.dpo_trainer")
reward = pytest.importorskip("trl.trainer.reward_trainer")

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<pad>", "<eos>", "<|end|>", "<|user|>", "<|assistant|>"]
LENGTH = 96


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=290, special_tokens=SPECIAL, show_progress=False, initial_alphabet=alphabet
    )
    made.train_from_iterator(["What is it? It is good, and more."] * 9, trainer)
    folder = tmp_path_factory.mktemp("tokenizer")
    own = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<eos>", pad_token="<pad>", chat_template=TEMPLATE
    )
    own.save_pretrained(str(folder))
    return folder, own


def rows_of(kind, is_explicit=True):
    """Rows as data sets have them: with a prompt, or with one that both answers begin with."""
    rows = []
    for n in range(11):
        prompt, answers = f"What is {n}?", (f" It is {'good ' * (n % 4)}{n}.", f" It is {n}")
        if kind == "chats":
            prompt = [{"role": "user", "content": prompt}]
            answers = [[{"role": "assistant", "content": text}] for text in answers]
        chosen, rejected = answers if is_explicit else (prompt + answer for answer in answers)
        rows.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
        if not is_explicit:
            del rows[-1]["prompt"]
    return rows


def write(program, tokenizer, place, rows, form="jsonl"):
    path = place / f"rows.{form}"
    if form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        datasets.Dataset.from_list(rows).to_parquet(str(path))
    options = ["--tokenizer", tokenizer[0], "--eos", "<eos>", "-o", place / "corpus", "--force"]
    convert(program, *options, path)
    return place / "corpus"


@pytest.fixture
def load(program, tokenizer, folder):
    loaders = []

    def make(corpus, **changes):
        known = {"seq_len": LENGTH, "batch_size": 2, "profile": "pairs", "run_dir": folder}
        known.update(return_type="torch", num_epochs=1, pad_id=tokenizer[1].pad_token_id, seed=3)
        loaders.append(ringpack.Loader(corpus=corpus, **{**known, **changes}))
        return loaders[-1]

    yield make
    for loader in loaders:
        loader.close()


def prepared(module, kind, config, tokenizer, rows):
    """The rows of the data set that the trainer trains on, and its collator."""
    own = types.SimpleNamespace(_tokenizer=tokenizer)
    data, config = datasets.Dataset.from_list(rows), config(use_cpu=True, report_to="none")
    made = kind._prepare_dataset(own, data, tokenizer, config, "train")
    collator = module.DataCollatorForPreference(pad_token_id=tokenizer.pad_token_id)
    return list(made), collator


@pytest.mark.parametrize("kind", ["texts", "chats"])
def test_batches_are_the_ones_of_the_collators(program, tokenizer, load, tmp_path, kind):
    both, written = [rows_of(kind), rows_of(kind, False)], []
    for form in "jsonl", "parquet":
        corpus = write(program, tokenizer, tmp_path, sum(both, []), form)
        written.append([open(f"{corpus}.{end}", "rb").read() for end in ("bin", "idx", "spans")])
    assert written[0] == written[1]
    trainers = (dpo, trl.DPOTrainer, trl.DPOConfig), (reward, trl.RewardTrainer, trl.RewardConfig)
    with load(corpus, shuffle="none", batch_size=3) as loader:
        batches = [batch.copy() for batch in loader]
    assert len(batches) == 8
    for module, trainer, config in trainers:
        made = [prepared(module, trainer, config, tokenizer[1], rows) for rows in both]
        wanted, collate = made[0][0] + made[1][0], made[0][1]
        for number, batch in enumerate(batches):
            expected = collate(wanted[3 * number : 3 * number + 3])
            assert set(expected) == {*batch} - ({"completion_mask"} if module is reward else set())
            for name, tensor in expected.items():
                assert tensor.dtype == batch[name].dtype and torch.equal(tensor, batch[name]), name


@pytest.fixture(scope="module")
def corpus(program, tokenizer, tmp_path_factory):
    return write(program, tokenizer, tmp_path_factory.mktemp("pairs"), rows_of("texts"))


def options_of(place, steps):
    known = {"output_dir": str(place), "max_steps": steps, "save_steps": 1, "logging_steps": 1}
    known.update(use_cpu=True, seed=1, report_to="none", disable_tqdm=True, learning_rate=1e-2)
    known.update(gradient_accumulation_steps=16, eval_strategy="steps", eval_steps=2)
    return {**known, "lr_scheduler_type": "constant"}


def unread():
    """Trainers of TRL insist on a data set."""
    return dict.fromkeys(("train_dataset", "eval_dataset"), datasets.Dataset.from_list(
        rows_of("texts")[:1]))


def reward_trainer(tokenizer, place, steps):
    config = make_model().config
    config.num_labels = 1
    torch.manual_seed(2)
    model, args = transformers.LlamaForSequenceClassification(config), options_of(place, steps)
    return trl.RewardTrainer(
        model=model, args=trl.RewardConfig(**args), processing_class=tokenizer[1], **unread()
    )


def evaluations(history):
    return [entry for entry in history if "eval_loss" in entry]


def test_a_resumed_reward_trainer_is_one_that_went_on(load, corpus, tokenizer, tmp_path):
    def train(place, steps):
        trainer = reward_trainer(tokenizer, tmp_path / place, steps)
        held = load(corpus, run="held-out", batch_size=4)
        with load(corpus, num_epochs="endless") as loader, held:
            ringpack.hf.attach(trainer, loader, held)
            last = ringpack.hf.last_checkpoint(trainer.args.output_dir)
            trainer.train(resume_from_checkpoint=last)
            assert loader.next_row == steps * 16 * 2
        return trainer

    whole = train("whole", 3)
    train("cut", 1)
    resumed = train("cut", 3)
    assert losses(resumed) == losses(whole) and len({*losses(whole).values()}) == 3
    assert torch.equal(weights(resumed), weights(whole))
    found = evaluations(whole.state.log_history)
    assert {entry["eval_pairs"] for entry in found} == {11}
    assert numpy.isfinite([entry["eval_loss"] for entry in found]).all()


DPO = """
import sys
import ringpack, transformers, trl
sys.path.insert(0, {tests!r})
from hf_kit import make_model
from test_pairs import LENGTH, options_of, unread
corpus, tokenizer, place, steps = *sys.argv[1:4], int(sys.argv[4])
tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer)
trainer = trl.DPOTrainer(
    model=make_model(), ref_model=make_model(), args=trl.DPOConfig(**options_of(place, steps)),
    processing_class=tokenizer, **unread())
form = dict(corpus=corpus, seq_len=LENGTH, batch_size=1, profile="pairs", return_type="torch")
form.update(pad_id=tokenizer.pad_token_id, seed=3)
loader = ringpack.Loader(num_epochs="endless", **form)
held = ringpack.Loader(num_epochs=1, drop_last=True, run="held-out", **form)
ringpack.hf.attach(trainer, loader, held)
with loader, held:
    trainer.train(resume_from_checkpoint=ringpack.hf.last_checkpoint(place))
    print("next row", loader.next_row, flush=True)
    trainer.accelerator.wait_for_everyone()
"""


def test_a_killed_dpo_trainer_on_two_ranks(program, corpus, tokenizer, folder):
    (folder / "train.py").write_text(DPO.format(tests=str(Path(__file__).parent)))
    place = {"XDG_RUNTIME_DIR": str(folder), "OMP_NUM_THREADS": "1"}

    def start(name, log):
        words = [corpus, tokenizer[0], folder / name, 3]
        return ForkedRanks(2, folder / "train.py", words, folder / log, **place)

    def history(name):
        with open(folder / name / "checkpoint-3" / "trainer_state.json") as file:
            return json.load(file)["log_history"]

    with start("killed", "killed.log") as job:
        job.comes(lambda: ringpack.hf.last_checkpoint(folder / "killed") is not None)
        job.kill()
    assert not (folder / "killed" / "checkpoint-3").exists()
    for name in "killed", "whole":
        with start(name, f"{name}.log") as job:
            assert job.finish().count(f"next row {3 * 16 * 2}") == 2
    values = [
        [(entry["step"], entry.get("loss"), entry.get("eval_loss"), entry.get("eval_pairs"))
         for entry in history(name) if "loss" in entry or "eval_loss" in entry]
        for name in ("killed", "whole")
    ]
    assert values[0] == values[1] and len(values[0]) == 5
    assert {pairs for *_, pairs in values[0]} == {None, 10}


def test_rows_that_are_no_pairs(program, tokenizer, tmp_path):
    pair = rows_of("texts")[0]
    path = tmp_path / "rows.jsonl"
    options = ["--tokenizer", tokenizer[0], "--eos", "<eos>", "-o", tmp_path / "corpus", "--force"]

    def lines(*rows):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def refuse(words, *more):
        refused(program, *options, *more, path, words=words)

    for others in ({"text": "a"}, pair), (pair, {"text": "a"}):
        lines(*others)
        refuse(["pairs of `chosen` and `rejected` stand next to other documents"])
    lines(pair)
    refuse(["--max-tokens would cut a pair"], "--max-tokens", 5)
    refuse(["`chosen` lines have only the mask `preference_mask`"], "--mask", "labels")
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"text": "a"}) + "\n")
    refused(program, *options, "--group-bytes", 1, "--workers", 2, path, other,
            words=["stand next to other documents"])
    lines({"chosen": "a", "rejected": []})
    refuse(["rows.jsonl:1", "both text or both lists of messages"])
    empty = {"prompt": "a", "chosen": "b", "rejected": ""}
    lines(empty, pair)
    refuse(["rows.jsonl:1: `rejected`: expected an answer, found none"])
    assert "1 bad rows" in convert(program, *options, "--skip-bad", path)
    table = tmp_path / "rows.parquet"
    datasets.Dataset.from_list([empty, pair]).to_parquet(str(table))
    words = ["rows.parquet: row 0: `rejected`"]
    refused(program, *options, table, words=words)
    assert "in 2 documents" in convert(program, *options, "--skip-bad", "--mask", "none", table)
    assert len(documents(tmp_path / "corpus")) == 2 and not (tmp_path / "corpus.spans").exists()


def test_loaders_that_do_not_fit(load, corpus, tokenizer, tmp_path):
    with pytest.raises(ringpack.RingpackError, match="expected a group of 2 documents, found 1"):
        load(corpus, group=1).attach()
    plain = load(corpus, profile=None, return_type="numpy", sections=["labels"], run="plain",
                 label_mode="aligned")
    with plain, pytest.raises(ringpack.UsageError, match="group of the run is 1"):
        plain._profile = "pairs"
        _form.form_of(plain._client, plain)
    trainer = reward_trainer(tokenizer, tmp_path / "out", 1)
    for loader, text in (
        (load(corpus, profile="hf"), "profile='hf'.*RewardTrainer cannot take"),
        (load(corpus, pad_id=7), "pads with 0, and the loader with 7"),
        (load(corpus, global_batch_size=32), "without a pair, whose loss is NaN"),
    ):
        with pytest.raises(ringpack.UsageError, match=text):
            ringpack.hf.attach(trainer, loader).train()
    trainer.precompute_ref_logps = True
    with pytest.raises(ringpack.UsageError, match="precompute_ref_log_probs"):
        ringpack.hf.attach(trainer, load(corpus)).train()


def test_a_corpus_without_pairs_is_refused(program, tokenizer, load, corpus, tmp_path):
    """Also one of an even number of documents, whose neighbours would be taken as pairs."""
    texts = [{"text": f"It is {n}."} for n in range(10)]
    turns = [{"prompt": "What is it?", "completion": f" It is {n}."} for n in range(10)]
    for rows, mask in (texts, "none"), (turns, "completion_mask"):
        plain = write(program, tokenizer, tmp_path, rows)
        said = f"corpus.* has no pairs: .* the mask preference_mask, found mask {mask}"
        for sources in [plain], [{"path": str(corpus), "name": "pairs"}, str(plain)]:
            with pytest.raises(ringpack.ConfigError, match=said) as failure:
                load(sources, run="plain").attach()
            assert "ringpack convert -o OUTPUT" in failure.value.hint
    with load(plain, run="plain", profile="trl") as loader:
        assert len(list(loader)) > 0


def test_pairs_of_a_range_of_documents(load, corpus):
    """An odd number has half a pair; the refusal has the range that leaves it out."""
    pairs = [{"path": str(corpus), "documents": "2-9"}]
    said = "expected a multiple of group 2, whose units stay whole, found 7"
    with pytest.raises(ringpack.ConfigError, match=said) as failure:
        load(pairs, run="odd").attach()
    assert failure.value.hint == "`documents: 2-8` of the source leaves out the last 1"
    with pytest.raises(ringpack.ConfigError, match="FIRST that is a multiple of group"):
        load([{**pairs[0], "documents": "1-9"}], run="odd").attach()
    with load([{**pairs[0], "documents": "2-8"}], run="odd") as loader:
        assert sum(len(batch["input_ids"]) // 2 for batch in loader) == 3


def test_labels_of_another_value_leave_the_mask(load, corpus):
    with load(corpus) as loader, load(corpus, ignore_index=-1, run="other") as other:
        for batch, changed in zip(loader, other):
            mask = batch["completion_mask"]
            assert 0 < mask.sum() == batch.tokens_loss < batch["attention_mask"].sum()
            assert torch.equal(changed["completion_mask"], mask)
