# SPDX-License-Identifier: Apache-2.0
"""Masks: labels, loss_mask, tokens_loss and the labelled digest of masked sources, by the oracle
(engine/plan/STREAM.md, section 10); sources of masks; refusals."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy
import pytest
import ringpack
from mask_kit import check_whole_stream, index, random_flags, serve, spans_of
from stat_kit import assert_documented
from state import labels_of as oracle_labels
from stream_kit import LONG, Corpus, Ranks, Stream, write_megatron
from stream_oracle import assert_batch

SEED = 10101
LAYOUT = [("megatron", "u16", 2, [17, 12]), ("raw", "u16", 1, [9]), ("megatron", "i32", 1, [14])]
MASKED = [0, 2]  # names of these sources


class MaskedCorpus(Corpus):
    """Its Megatron shards have masks of flags, with `flags` for each document."""

    def __init__(self, folder, seed, masked=MASKED):
        super().__init__(folder, LAYOUT, seed)
        generator = numpy.random.default_rng(seed)
        self.spans, self.flags = [None] * len(self.sources), {}
        for number in masked:
            documents = self.documents[number]
            flags = [random_flags(generator, len(document)) for document in documents]
            self.flags[number] = flags
            self.spans[number] = [spans_of(own) for own in flags]

    def shards(self, number):
        """(path, documents, flags) of each shard of a source."""
        at = 0
        for path, count in zip(self.sources[number]["shards"], LAYOUT[number][3]):
            part = slice(at, at + count)
            yield path, self.documents[number][part], self.flags[number][part]
            at += count

    def write_masks(self, name, entries, dtype):
        """A mask NAME next to each shard; entries(document, flags) are a document's."""
        for number in self.flags:
            for path, documents, flags in self.shards(number):
                made = [entries(*both) for both in zip(documents, flags)]
                write_megatron(f"{path[:-4]}_{name}", made, dtype)

    def index_masks(self, program, *options):
        for number in self.flags:
            index(program, *options, *self.sources[number]["shards"])


def labels_of_fragment(stream, fragment):
    tokens = stream.spec.corpora[fragment.source].tokens(
        fragment.document, fragment.offset, fragment.length
    )
    return oracle_labels(stream.spec, fragment, tokens)


def labels_of(document, flags):
    return numpy.where(flags, document, -100)


@pytest.fixture
def corpus(tmp_path, program):
    made = MaskedCorpus(tmp_path, SEED)
    made.write_masks("labels", labels_of, "i32")
    made.index_masks(program, "--mask", "labels")
    return made


CASES = [
    {"packing": packing, "fill": fill, "long_doc": long_doc, "label_mode": mode, "io": io}
    for number, (packing, fill, long_doc, mode, io) in enumerate(
        [
            ("lookahead", "split", "split", "shifted", "pread"),
            ("lookahead", "pad", "truncate", "aligned", "mapped"),
            ("concat", "pad", "split", "aligned", "io_uring"),
            ("best_fit", "split", "drop", "shifted", "mapped"),
        ]
    )
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("seed", range(8 if LONG else 1))
def test_every_section_is_the_oracles(corpus, program, tmp_path, case, drop, seed):
    print("seed", SEED + seed)
    corpus = MaskedCorpus(tmp_path, SEED + seed) if seed else corpus
    if seed:
        corpus.write_masks("labels", labels_of, "i32")
        corpus.index_masks(program, "--mask", "labels")
    for number in MASKED:
        corpus.sources[number]["drop_untrained"] = drop
    io = case["io"] if case["io"] != "io_uring" else "auto"
    case = {key: value for key, value in case.items() if key != "io"}
    stream = Stream(corpus, {**case, "shuffle": "block" if drop else "document"})
    check_whole_stream(program, tmp_path, stream, io=io, packer_processes=drop)


@pytest.mark.parametrize("drop", [False, True])
def test_a_manifest_has_the_masks(corpus, program, tmp_path, drop):
    """From sidecars, and from the data set next to each shard without a sidecar."""
    for number in MASKED:
        corpus.sources[number]["drop_untrained"] = drop
        corpus.sources[number]["mask"] = "labels"
    stream = Stream(corpus)
    config = tmp_path / "indexed.yaml"
    config.write_text(json.dumps({**stream.config(), "batch_size": 4}))
    for read in 1, len(corpus.paths):  # the raw shard has no sidecar at first, then none has
        manifest = tmp_path / f"{read}.rpi"
        index(program, "-c", config, "-o", manifest)
        check_whole_stream(program, tmp_path, stream, index=str(manifest))
        for path in tmp_path.glob("*.rpi"):
            path.unlink()


def test_a_manifest_notices_other_masks(corpus, program, tmp_path):
    """A mask that is written again, with a sidecar that has the old one; and another sidecar."""
    for number in MASKED:
        corpus.sources[number]["mask"] = "labels"
    config = tmp_path / "indexed.yaml"
    manifest = str(tmp_path / "m.rpi")

    def made():
        config.write_text(json.dumps({**Stream(corpus).config(), "batch_size": 4}))
        return json.loads(index(program, "--json", "-c", config, "-o", manifest).stdout)

    made()
    assert made()["outcome"] == "unchanged"
    for number in MASKED:
        corpus.flags[number] = [~own for own in corpus.flags[number]]
        corpus.spans[number] = [spans_of(own) for own in corpus.flags[number]]
    time.sleep(0.02)
    corpus.write_masks("labels", labels_of, "i32")
    done = made()
    assert done["outcome"] == "rewritten"
    assert "has another mask now" in done["why"]
    assert done["shards_read"] == 3  # the masked ones
    check_whole_stream(program, tmp_path, Stream(corpus), index=manifest)
    time.sleep(0.02)
    corpus.index_masks(program, "--mask", "labels")
    done = made()
    assert "has another sidecar now" in done["why"]
    assert (done["outcome"], done["shards_read"]) == ("rewritten", 0)
    check_whole_stream(program, tmp_path, Stream(corpus), index=manifest)


@pytest.mark.parametrize(
    "options, entries",
    [
        ((), lambda d, flags: flags),
        (("--mask-value", "ignore"), lambda d, flags: ~flags),
        (("--mask-of", "next"), lambda d, flags: numpy.append(flags[1:], False)[: len(d)]),
    ],
)
def test_each_way_to_say_it_gives_the_same_rows(program, tmp_path, options, entries):
    corpus = MaskedCorpus(tmp_path, SEED)
    corpus.write_masks("loss_mask", entries, "u8")
    corpus.index_masks(program, "--mask", "loss_mask", *options)
    for number in MASKED:
        corpus.sources[number]["mask"] = "loss_mask"
    check_whole_stream(program, tmp_path, Stream(corpus))


def test_labels_of_gpt_neox_are_found_by_their_names(program, tmp_path):
    """The first document is empty, which is the one that the reader has no bytes for."""
    documents = [numpy.array(d, int) for d in ([], [5, 6, 7, 8], [9], [10, 11, 12])]
    flags = [numpy.array(f, bool) for f in ([], [0, 0, 1, 1], [1], [0, 0, 0])]
    write_megatron(tmp_path / "a_text_document", documents, "i32")
    labels = [labels_of(*both) for both in zip(documents, flags)]
    write_megatron(tmp_path / "a_label_document", labels, "i32")
    index(program, str(tmp_path / "a_text_document"))
    said = subprocess.run(
        [program, "inspect", str(tmp_path / "a_text_document")], capture_output=True, text=True
    ).stdout
    assert "mask         label, 2 of 8 tokens trained" in said, said
    assert "2 documents have no trained token" in said, said


def test_other_labels_are_refused_by_place(program, tmp_path):
    write_megatron(tmp_path / "a", [numpy.array([5, 6]), numpy.array([7, 8, 9])], "u16")
    write_megatron(tmp_path / "a_labels", [numpy.array([5, 6]), numpy.array([-100, 8, 10])], "i32")
    said = index(program, "--mask", "labels", str(tmp_path / "a"), check=False).stderr
    assert "a_labels.bin: document 1, label 2: expected 9 or -100, found 10" in said, said
    write_megatron(tmp_path / "a_labels", [numpy.array([5, 6]), numpy.array([7, 8])], "i32")
    said = index(program, "--mask", "labels", str(tmp_path / "a"), check=False).stderr
    assert "tokens of document 1: expected 3, as the shard has, found 2" in said, said
    said = index(program, "--mask", "spam", str(tmp_path / "a"), check=False).stderr
    assert "mask `spam`" in said and "a_spam.bin" in said, said


def test_a_mask_is_part_of_the_run(corpus, program, tmp_path):
    """A state of a run with a mask is no state of one without it, or with another one."""
    stream = Stream(corpus)
    engine = serve(program, tmp_path, stream)
    with Ranks(engine) as ranks:
        ranks.turn()
        token = ranks.tokens()[0]
        contract = ranks.loaders[0].contract()
    engine.stop()
    assert "source[0000].mask=labels\n" in contract and "source[0001].mask" not in contract

    def resume(run):
        engine = serve(program, tmp_path, stream, run)
        try:
            with Ranks(engine, token=token) as ranks:
                ranks.turn()
        finally:
            engine.stop()

    resume("same")
    corpus.sources[0]["mask"] = "none"
    with pytest.raises(ringpack.CheckpointMismatchError, match="fingerprint"):
        resume("none")
    del corpus.sources[0]["mask"]
    longest = max(range(len(corpus.flags[0])), key=lambda d: len(corpus.flags[0][d]))
    corpus.flags[0][longest][5] ^= True
    corpus.write_masks("labels", labels_of, "i32")
    corpus.index_masks(program, "--mask", "labels")
    with pytest.raises(ringpack.CheckpointMismatchError, match="fingerprint"):
        resume("other")


def test_a_mask_that_was_not_indexed_is_refused(corpus, program, tmp_path):
    def fails(**keys):
        corpus.sources[0].update(keys)
        path = tmp_path / "plan.yaml"
        path.write_text(json.dumps({**Stream(corpus).config(), "batch_size": 1}))
        done = subprocess.run(
            [program, "plan", "-c", str(path)], capture_output=True, text=True, check=False
        )
        for key in keys:
            del corpus.sources[0][key]
        assert done.returncode == 2
        return done.stderr

    said = fails(mask="completion_mask")
    assert "mask: expected completion_mask, found labels in its index" in said
    assert "ringpack index --mask completion_mask" in said
    said = fails(mask_of="next")
    assert "mask: expected labels (next), found labels in its index" in said
    corpus.sources[1]["drop_untrained"] = True
    assert "drop_untrained: its shards have no mask" in fails()
    del corpus.sources[1]["drop_untrained"]
    index(program, "--mask", "none", corpus.sources[0]["shards"][1])
    assert "mask: expected labels, as of" in fails()


def test_a_run_that_is_killed_goes_on_with_the_right_labels(corpus, program, tmp_path):
    stream = Stream(corpus, {"num_epochs": 3})
    more = {"checkpoint_dir": str(tmp_path / "checkpoints"), "checkpoint_steps": 2}
    first = 0
    for life in range(6):
        engine = serve(program, tmp_path, stream, profile="full", **more)
        with Ranks(engine) as ranks:
            for number, batches in enumerate(ranks.turns()):
                assert_batch(batches[0], stream)
                first = batches[0].next_row
                if number == 4 + life and life < 5:
                    break
            else:
                assert life == 5 or first == len(stream.rows)
        engine.kill()
    assert first == len(stream.rows)


def test_verify_compares_labels(corpus, program, tmp_path):
    path = tmp_path / "verify.yaml"
    path.write_text(
        json.dumps({**Stream(corpus).config(), "batch_size": 2, "profile": "hf"})
    )
    done = subprocess.run(
        [program, "verify", "-c", str(path), "--kills", "6", "--random", "7"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "identical" in done.stdout


# ---- Arrow data sets ---------------------------------------------------------------------------


class Rows:
    """A source that is a folder of save_to_disk, with further columns."""

    def __init__(self, folder, columns, **keys):
        datasets = pytest.importorskip("datasets")
        generator = numpy.random.default_rng(SEED)
        lengths = [1, 0, 48, 97, *generator.integers(1, 60, 40)]
        documents = [generator.integers(0, 30000, n) for n in lengths]
        self.flags = [random_flags(generator, n) for n in lengths]
        made = {name: [e(*x) for x in zip(documents, self.flags)] for name, e in columns.items()}
        made = {name: [list(entry) for entry in column] for name, column in made.items()}
        rows = {"input_ids": [[int(t) for t in d] for d in documents], **made}
        datasets.Dataset.from_dict(rows).save_to_disk(str(folder), num_shards=2)
        self.documents, self.spans = [documents], [[spans_of(f) for f in self.flags]]
        self.sources = [{"name": "rows", "shards": [str(folder)], "weight": 1, **keys}]


COLUMNS = {
    "labels": lambda document, flags: labels_of(document, flags),
    "completion_mask": lambda document, flags: flags.astype(int),
    "assistant_masks": lambda document, flags: flags.astype(int),
    "loss_mask": lambda document, flags: flags,
}


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_arrow_are_masks(program, tmp_path, name, indexed):
    rows = Rows(tmp_path / "rows", {name: COLUMNS[name]})
    if indexed:
        index(program, str(tmp_path / "rows"))
    check_whole_stream(program, tmp_path, Stream(rows))


def test_a_column_of_another_name(program, tmp_path):
    columns = {"labels": COLUMNS["labels"], "skip": lambda document, flags: ~flags}
    keys = {"mask": "skip", "mask_value": "ignore"}
    check_whole_stream(program, tmp_path, Stream(Rows(tmp_path / "rows", columns, **keys)))
    columns = {name: COLUMNS[name] for name in ("completion_mask", "assistant_masks")}
    Rows(tmp_path / "two", columns)
    said = index(program, str(tmp_path / "two"), check=False).stderr
    assert "there are the columns completion_mask and assistant_masks" in said, said
    Rows(tmp_path / "other", {"labels": lambda document, flags: document + 1})
    said = index(program, str(tmp_path / "other"), check=False).stderr
    assert "labels: " not in said and "or -100, found" in said and "row" in said, said


@pytest.mark.skipif(not LONG, reason="trl takes ten seconds to import: RP_LONG=1")
def test_labels_are_those_of_trl(program, tmp_path):
    """Its collator without padding, on the fragments of a row, gives the row's aligned labels. How
    it makes labels of masks is restated here: all(bits), as its trainer has it."""
    trl = pytest.importorskip("trl.trainer.sft_trainer")
    rows = Rows(tmp_path / "rows", {"completion_mask": COLUMNS["completion_mask"]})
    documents, flags = rows.documents[0], rows.flags
    collate = trl.DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    of_trl = [[t if all([f]) else -100 for t, f in zip(*both)] for both in zip(documents, flags)]
    stream = Stream(rows, {"label_mode": "aligned"})
    engine = serve(program, tmp_path, stream, sections=["labels", "loss_mask", "provenance"])
    with Ranks(engine) as ranks:
        for (batch,) in ranks.turns():
            for number, row in enumerate(batch["provenance"]):
                parts = [
                    (document, slice(int(offset), int(offset + length)))
                    for document, offset, _, length in row.tolist()
                    if length
                ]
                if not parts:
                    continue
                examples = [
                    {"input_ids": documents[d][part].tolist(), "labels": of_trl[d][part]}
                    for d, part in parts
                ]
                wanted = collate(examples)["labels"][0].numpy()
                found = batch["labels"][number]
                assert (found[: len(wanted)] == wanted).all()
                assert (found[len(wanted) :] == -100).all()
                mask = numpy.append(wanted[1:] != -100, False)
                assert (batch["loss_mask"][number][: len(wanted)] == mask).all()
    engine.stop()


@pytest.mark.skipif(not LONG, reason="torchtune takes ten seconds to import: RP_LONG=1")
def test_rows_are_those_of_torchtune(program, tmp_path):
    """Documents end to end, tokens and labels. torchtune lets the last token of a document predict
    the first of the next one; here no label reaches over that border."""
    apart = Path(__file__).parents[2] / "build" / "venv" / "long"
    if not (apart / "torchtune").is_dir():
        pytest.skip("needs torchtune: RP_LONG=1 tools/setup")
    columns = {"mask": lambda document, flags: ~flags}
    rows = Rows(tmp_path / "rows", columns, mask="mask", mask_value="ignore")
    [documents] = rows.documents
    samples = [[d.tolist(), (~f).tolist()] for d, f in zip(documents, rows.flags)]
    (tmp_path / "documents").write_text(json.dumps(samples))
    command = [sys.executable, Path(__file__).parent / "torchtune_packs.py"]
    command += [tmp_path / "documents", tmp_path / "packs"]
    environment = {**os.environ, "PYTHONPATH": str(apart)}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    wanted = json.loads((tmp_path / "packs").read_text())
    begins = numpy.zeros(len(wanted) * 48, bool)
    begins[numpy.cumsum([0] + [len(d) for d in documents[:-1]])] = True
    begins[::48] = True  # which no token of its row predicts
    keys = {"packing": "concat", "shuffle": "none", "num_epochs": 1, "max_docs_per_row": 48}
    stream = Stream(rows, {**keys, "label_mode": "aligned"})
    engine = serve(program, tmp_path, stream, sections=["labels"])
    found = []
    with Ranks(engine) as ranks:
        for (batch,) in ranks.turns():
            found += zip(batch["input_ids"].tolist(), batch["labels"].tolist())
    assert (numpy.array(found[len(wanted) :])[:, 1] == -100).all()  # rows that fill the last batch
    ids, labels = numpy.array(found[: len(wanted)]).swapaxes(0, 1).reshape(2, -1)
    wanted_ids, wanted_labels = numpy.array(wanted).swapaxes(0, 1).reshape(2, -1)
    assert (ids == wanted_ids).all()
    assert (labels == numpy.where(begins, -100, wanted_labels)).all()
    assert (labels != wanted_labels).any(), "no document begins with a trained token"
    engine.stop()


@pytest.mark.parametrize("long_doc", ["split", "truncate", "drop"])
def test_plan_and_stat_count_what_masks_and_cuts_leave(corpus, program, tmp_path, long_doc):
    longest = max(range(len(corpus.flags[0])), key=lambda d: len(corpus.flags[0][d]))
    corpus.flags[0][longest][:] = False
    corpus.flags[0][longest][-1] = True  # an answer after a long prompt
    corpus.spans[0][longest] = spans_of(corpus.flags[0][longest])
    corpus.write_masks("labels", labels_of, "i32")
    corpus.index_masks(program, "--mask", "labels")
    stream = Stream(corpus, {"long_doc": long_doc, "num_epochs": 1})
    path = tmp_path / "plan.yaml"
    path.write_text(json.dumps({**stream.config(), "batch_size": 1}))
    said = subprocess.run(
        [program, "plan", "-c", str(path), "--json"], capture_output=True, text=True, check=True
    )
    most, wanted = stream.spec.L, []
    labels = {number: 0 for number in range(len(LAYOUT))}
    for row in stream.rows:
        for fragment in row:
            own = labels_of_fragment(stream, fragment)
            labels[fragment.source] += sum(label is not None for label in own)
    for number in MASKED:
        documents = [
            (len(document), spans)
            for document, spans in zip(corpus.documents[number], corpus.spans[number])
            if len(document) > 0
        ]
        lost = [
            long_doc != "split" and length > most
            and all(begin >= (most if long_doc == "truncate" else 0) for begin, _ in spans)
            for length, spans in documents
        ]
        kept = [length <= most or long_doc != "drop" for length, _ in documents]
        wanted.append({
            "source": corpus.sources[number]["name"],
            "labels": labels[number],
            "untrained_documents": sum(k and not s for k, (_, s) in zip(kept, documents)),
            "cut_off_documents": sum(c and bool(s) for c, (_, s) in zip(lost, documents)),
        })
    found = json.loads(said.stdout)["masks"]
    assert found.pop("sources") == wanted
    assert any(own["cut_off_documents"] for own in wanted) == (long_doc != "split")
    sums = {key: sum(own[key] for own in wanted) for key in found}
    sums["labels"] = sum(labels.values())
    assert found == sums
    engine = serve(program, tmp_path, stream)
    with Ranks(engine) as ranks:
        for _ in ranks.turns():
            pass
        stat = ringpack.stat("masks", tmp_path)
        told = {own["source"]: own for own in stat["masks"]}
    assert_documented(stat)
    assert list(told) == [own["source"] for own in wanted]
    for own in wanted:
        shown = told[own["source"]]
        assert shown["labels"] == own["labels"]
        assert shown["untrained"] == own["untrained_documents"]
        cut = own["cut_off_documents"] if long_doc != "drop" else 0
        assert shown["cut_off"] == cut, "what is dropped is not read"
    assert engine.stop() == 0
