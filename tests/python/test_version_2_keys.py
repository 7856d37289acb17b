# SPDX-License-Identifier: Apache-2.0
"""Keys of stream version 2 as arguments of a Loader: the content of torch's batches and of profiles
with inserted tokens, alignment and labels across cuts; and mistakes."""

import numpy
import pytest
import ringpack
from stream_oracle import IGNORED, write_megatron

BOS, EOS, ALIGN, LENGTH = 250, 251, 8, 64
SIZES = [3, 9, 130, 20, 7, 75, 1, 33, 18, 61]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    documents = [[(17 * n + i) % 250 for i in range(size)] for n, size in enumerate(SIZES)]
    write_megatron(folder / "web", documents)
    return documents, folder / "web.bin"


@pytest.fixture
def make(program, folder, corpus):
    def made(**more):
        keys = {"stream_version": 2, "seq_len": LENGTH, "batch_size": 2, "run_dir": folder}
        keys |= {"packing_buffer": 4, "spread": 2}
        return ringpack.Loader(corpus=corpus[1], **{**keys, **more})

    return made


WHOLE = {"bos_id": BOS, "eos_id": EOS, "align": ALIGN}


def fragments(batch):
    """Row, first place, and record of each fragment."""
    for r, (row, found) in enumerate(zip(batch["rows"], batch["provenance"])):
        at = 0
        for fragment in found[: row["fragments"]]:
            yield r, at, fragment
            at += -(-int(fragment["length"]) // ALIGN) * ALIGN


@pytest.mark.parametrize("across", [False, True])
def test_torch_batches(make, corpus, across):
    torch = pytest.importorskip("torch")
    documents, cuts = [[BOS, *document, EOS] for document in corpus[0]], 0
    sections = ["rows", "provenance"]
    seen = numpy.zeros(len(SIZES), int)
    with make(
        **WHOLE, label_across_cuts=across, return_type="torch", sections=sections
    ) as loader:
        for batch in loader:
            assert set(batch) == {"input_ids", "labels", "position_ids", "cu_seqlens", "max_seqlen"}
            assert batch["input_ids"].dtype == torch.int64
            records = {name: batch.view(name, kind="numpy") for name in sections}
            ends = {0}
            for r, at, fragment in fragments(records):
                begin, size = int(fragment["offset"]), int(fragment["length"])
                document = documents[fragment["document"]]
                own = document[begin : begin + size]
                assert batch["input_ids"][r, at : at + size].tolist() == own
                is_cut = begin + size < len(document)
                cuts += is_cut
                last = document[begin + size] if is_cut and across else IGNORED
                assert batch["labels"][r, at : at + size].tolist() == [*own[1:], last]
                assert batch["position_ids"][r, at : at + size].tolist() == [*range(size)]
                padded = -(-size // ALIGN) * ALIGN
                assert (batch["labels"][r, at + size : at + padded] == IGNORED).all()
                ends.add(r * LENGTH + at + padded)
                seen[fragment["document"]] += size
            tails = {LENGTH, 2 * LENGTH}  # the padding of a row is a segment
            assert ends - tails <= {*batch["cu_seqlens"].tolist()} <= ends | tails
            assert all(end % ALIGN == 0 for end in batch["cu_seqlens"].tolist())
    assert cuts > 0 and seen.tolist() == [len(document) for document in documents]


@pytest.mark.parametrize("profile", ["hf", "trl", "megatron", "olmo", "torchtitan"])
def test_profiles_with_align(make, profile):
    with make(**WHOLE, profile=profile) as loader:
        for batch in loader:
            if profile == "olmo":
                assert (batch["doc_lens"].sum(axis=1) == LENGTH).all()
                assert (batch["doc_lens"] % ALIGN == 0).all()
            elif profile in ("hf", "trl"):
                ends = batch["cu_seq_lens_q"]
                assert ends[0] == 0 and ends[-1] == 2 * LENGTH and (ends % ALIGN == 0).all()
                changes = numpy.flatnonzero(numpy.diff(batch["seq_idx"].reshape(-1))) + 1
                assert {*changes} <= {*ends}
            elif profile == "megatron":
                assert (batch["cu_seqlens"] % ALIGN == 0).all()


@pytest.mark.parametrize(
    "more, message",
    [
        ({"align": 7}, "seq_len: 64 is no multiple of align: 7|align"),
        ({"stream_version": 1}, "spread: this key is of stream version 2"),
        ({"label_across_cuts": True, "profile": "olmo"}, "makes labels of the tokens of a row"),
        ({"label_across_cuts": True, "label_mode": "aligned"}, "label_across_cuts"),
        ({"stages": [{"until": "5 steps"}]}, "until"),
        ({"stages": [{"weights": {"wob": 1}}]}, "no source is named `wob`; did you mean `web`"),
        ({"deal": {"window": 7, "step": 2, "tier": 2, "cost": 9}}, "deal"),
        ({"skip": {"rows": "9-3"}}, "skip"),
        ({"plan_partitions": 2}, "plan_partitions"),
    ],
)
def test_mistakes(make, more, message):
    with pytest.raises(ringpack.RingpackError, match=message), make(**more) as loader:
        loader.next()
