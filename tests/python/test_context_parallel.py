# SPDX-License-Identifier: Apache-2.0
"""Slices of context-parallel processes: by the index rules of Megatron, TransformerEngine and
torch, whole together, in every type of batch; attention of slices equals whole rows' attention."""

import itertools
import os
from types import SimpleNamespace

import numpy
import pytest
import ringpack
from column_kit import Columns
from context_kit import LENGTH, OF_TOKENS, ROWS, group, per_document, per_row, write_corpus
from ringpack import _lease, _library, _made
from ringpack._ranks import find_ranks, settle_ranks
from stream_kit import Corpus

KINDS = {
    "numpy": {"return_type": "numpy"},
    "torch": {"return_type": "torch"},
    "torch-views": {"return_type": "torch", "copy": False},
    "copies": {"return_type": "torch", "copy": True},
    "device": {"return_type": "torch", "device": "cpu"},
    "jax": {"return_type": "jax"},
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("context"))


def of(ends, split, size, rank, rows=ROWS):
    """Places in the flat batch."""
    if split == "document":
        return per_document(ends, size, rank)
    own = per_row(LENGTH, size, rank)
    return [row * LENGTH + place for row in range(rows) for place in own]


def assert_slice(found, wanted, size):
    assert found.dtype == wanted.dtype and found.shape == (ROWS, LENGTH // size)
    assert (found.reshape(-1) == wanted).all()


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("split", ["row", "document"])
@pytest.mark.parametrize("kind", KINDS)
def test_slices_are_the_rule_and_make_up_the_rows(program, corpus, folder, kind, split, size):
    if kind != "numpy":
        pytest.importorskip(KINDS[kind]["return_type"])
    with group(corpus, folder, size, split=split, **KINDS[kind]) as (whole, parts):
        count = 0
        for batch, *slices in zip(whole, *parts, strict=True):
            count, ends = count + 1, batch["cu_seqlens"][: batch.segments + 1].tolist()
            places = [of(ends, split, size, rank) for rank in range(size)]
            assert sorted(itertools.chain(*places)) == list(range(ROWS * LENGTH))
            for name in OF_TOKENS:
                for found, own in zip(slices, places):
                    assert_slice(numpy.asarray(found[name]), batch[name].reshape(-1)[own], size)
            for found in slices:
                for name in "cu_seqlens", "doc_lens":
                    assert (numpy.asarray(found[name]) == batch[name]).all()
        assert count > 5


class Group:
    """A process group, as Megatron looks at one."""

    def __init__(self, size, rank):
        self.size, self.rank = lambda: size, lambda: rank


def test_functions_of_frameworks_agree(monkeypatch):
    """The oracles of these tests give the places that the frameworks' own functions give."""
    torch = pytest.importorskip("torch")
    balancer = pytest.importorskip(
        "torch.distributed.tensor.experimental._context_parallel._load_balancer"
    )
    utils = pytest.importorskip("megatron.core.utils")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    generator, tokens = numpy.random.default_rng(1), torch.arange(2 * LENGTH).reshape(2, LENGTH)
    for size in 1, 2, 4:
        lengths = 2 * size * generator.multinomial(LENGTH // (2 * size) - 6, [1 / 6] * 6)
        lengths = (lengths + 2 * size).tolist()
        ends = numpy.append(0, numpy.cumsum(lengths)).tolist()
        rows = balancer._HeadTailLoadBalancer(LENGTH, size, "cpu")._generate_indices()[0]
        documents = balancer._PerDocumentHeadTailLoadBalancer([lengths], size, "cpu")
        documents = documents._generate_indices()[0].tolist()
        of_documents = [per_document(ends, size, rank) for rank in range(size)]
        # torch orders by document, and in each by process
        assert sorted(itertools.chain(*of_documents)) == sorted(documents) == list(range(LENGTH))
        for begin, end in zip(ends, ends[1:]):
            own = [[p for p in places if begin <= p < end] for places in of_documents]
            assert documents[begin:end] == list(itertools.chain(*own))
        for rank, places in enumerate(rows.reshape(size, -1).tolist()):
            assert places == per_row(LENGTH, size, rank)

            if size == 1:
                continue
            taken = {"tokens": tokens}
            utils.get_batch_on_this_cp_rank(taken, cp_group=Group(size, rank))
            assert (taken["tokens"] == tokens[:, per_row(LENGTH, size, rank)]).all()


def test_profiles_for_megatron_and_maxtext(monkeypatch, program, corpus, folder):
    """megatron_thd is split by Megatron's own function, with TransformerEngine's rule for its
    kernel, which needs a GPU."""
    torch = pytest.importorskip("torch")
    utils = pytest.importorskip("megatron.core.utils")
    kernel = SimpleNamespace(
        thd_get_partitioned_indices=lambda ends, total, size, rank: torch.tensor(
            per_document(ends.tolist(), size, rank)
        )
    )
    monkeypatch.setattr(utils, "tex", kernel, raising=False)
    monkeypatch.setattr(utils, "is_te_min_version", lambda _: True)
    more = {"profile": "megatron_thd", "return_type": "torch", "packing_buffer": 4, "seed": 5}
    keys = {"corpus": corpus, "seq_len": LENGTH, "batch_size": ROWS, "run_dir": folder}
    names = ["tokens", "labels", "loss_mask", "position_ids"]
    with group(corpus, folder, 2, split=None, **more) as (_, parts):
        with ringpack.Loader(**keys, **more, run="thd", num_epochs=1, align=4) as whole:
            for _, batch, *slices in zip(range(4), whole, *parts):
                for rank, part in enumerate(slices):
                    most = torch.tensor([batch["max_seqlen_q"]])
                    ends = batch["cu_seqlens_q"], batch["cu_seqlens_q_padded"]
                    taken = {name: batch[name] for name in names}
                    taken, params = utils.get_thd_batch_on_this_cp_rank(taken, *ends, most, 2, rank)
                    assert all(torch.equal(part[name], taken[name]) for name in names)
                    for name in list(part)[len(names) :]:
                        own, wanted = part[name], getattr(params, name)
                        assert numpy.array_equal(own, wanted), name
    with group(corpus, folder, 2, profile="maxtext") as (whole, parts):
        for _, batch, *slices in zip(range(4), whole, *parts):
            for rank, part in enumerate(slices):
                for name in batch:
                    assert (part[name] == batch[name][:, per_row(LENGTH, 2, rank)]).all(), name


@pytest.mark.parametrize("kind", ["numpy", "torch", "torch-views", "jax"])
def test_columns_of_tokens_are_split_like_tokens(program, folder, tmp_path, kind):
    """Also records of several values."""
    if kind != "numpy":
        pytest.importorskip(KINDS[kind]["return_type"])
    corpus, kinds = (
        Corpus(tmp_path, [("megatron", "u16", 1, [40])], 3, LENGTH),
        {
            "weight": ("<f4", 1),
            "teacher": ("<i4", 4),
        },
    )
    Columns(corpus, None, kinds, 3).write(program, tmp_path)
    columns = {"columns": list(kinds), "mtp": 2}
    with group(corpus.sources, folder, 2, **columns, **KINDS[kind]) as (whole, parts):
        for _, batch, *slices in zip(range(4), whole, *parts):
            assert batch["weight"].any() and batch["teacher"].shape[1:] == (LENGTH, 4)
            for rank, part in enumerate(slices):
                for name in (*kinds, "labels_2"):
                    found, own = numpy.asarray(part[name]), batch[name][:, per_row(LENGTH, 2, rank)]
                    assert found.dtype == own.dtype and (found == own).all(), name
                    del found
                assert len(list(part)) == len(set(part))


def test_views_where_chunks_are_neighbours(program, corpus, folder):
    """The last process gets views of the ring, the others new arrays."""
    with group(corpus, folder, 2) as (_, parts):
        first, last = (next(part) for part in parts)
        for batch, is_view in (first, False), (last, True):
            ring, part = batch.ring("labels"), batch["labels"]
            assert numpy.shares_memory(ring, part) == is_view and part.flags.writeable != is_view
            copied = batch.copy()["labels"]
            assert copied.flags.writeable and (copied == part).all()
            assert not numpy.shares_memory(ring, copied)
        with pytest.raises(ringpack.LeaseError, match="views of labels"):
            last.release()


@pytest.mark.parametrize("split", ["row", "document"])
def test_tensors_of_the_caller(program, corpus, folder, split):
    """Own tensors keep what is written to them, in all shapes, and copies are apart."""
    torch = pytest.importorskip("torch")
    with group(corpus, folder, 2, split=split, return_type="torch") as (whole, parts):
        for batch, part in zip([next(whole)] * 2, parts):
            wanted = batch["labels"].reshape(-1)
            ends = batch["cu_seqlens"][: batch.segments + 1].tolist()
            rank = parts.index(part)
            found = next(part)
            expected = torch.from_numpy(wanted[of(ends, split, 2, rank)])
            assert torch.equal(found.to("cpu")["labels"].flatten(), expected)
            assert torch.equal(found.view("labels", flat=True), expected)
            found["labels"][0, 0] = 77
            assert found.view("labels", flat=True)[0] == 77 and found.flat()["labels"][0] == 77
            assert found.to("cpu")["labels"][0, 0] == 77 and found.copy()["labels"][0, 0] == 77
            expected[0] = 77
            assert torch.equal(found["labels"].flatten(), expected)
            assert (found.view("labels", kind="numpy").ravel()[1:] == expected.numpy()[1:]).all()


def test_profiles_and_the_batchs_own_questions(program, corpus, folder):
    pytest.importorskip("torch")
    more = {"profile": "megatron", "return_type": "torch", "sections": ["provenance"]}
    with group(corpus, folder, 2, **more) as (whole, parts):
        batch, part = next(whole), next(parts[1])
        assert list(part) == list(batch)
        assert (part["tokens"].numpy() == batch["tokens"][:, per_row(LENGTH, 2, 1)]).all()
        assert part["cu_seqlens"].tolist() == batch["cu_seqlens"].tolist()
        assert part.tokens_loss == batch.tokens_loss and part.digest() == batch.digest()
        assert part.documents() == batch.documents()
        told = part.explain()
        assert [record["ids"] for record in told] == [record["ids"] for record in batch.explain()]


def attend(query, key, value, sees):
    scores = (query @ key.T / query.shape[1] ** 0.5).masked_fill(~sees, -float("inf"))
    return scores.softmax(dim=1) @ value


@pytest.mark.parametrize("split", ["row", "document"])
def test_attention_of_slices_is_attention_of_whole_rows(program, corpus, folder, split):
    """A layer of attention and a loss, with queries of one process and keys of all."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    table, width = torch.randn(256, 12, dtype=torch.double), 12
    weights = [torch.randn(width, width, dtype=torch.double) for _ in range(3)]
    head = torch.randn(width, 256, dtype=torch.double)

    def loss_of(hidden, labels):
        return torch.nn.functional.cross_entropy(hidden @ head, labels.long(), reduction="sum")

    with group(corpus, folder, 2, split=split, return_type="torch") as (whole, parts):
        for batch, *slices in zip(itertools.islice(whole, 4), *parts):
            tokens, labels = (torch.tensor(batch[name]).flatten() for name in OF_TOKENS[:2])
            ends, places = batch["cu_seqlens"][: batch.segments + 1], torch.arange(ROWS * LENGTH)
            number = torch.bucketize(places, torch.from_numpy(ends.astype("i8")), right=True)
            hidden = table[tokens]
            qkv = [hidden @ weight for weight in weights]
            sees = (places[:, None] >= places) & (number[:, None] == number)
            wanted = loss_of(attend(*qkv, sees), labels)
            keys, total = [], 0
            for rank in range(2):  # a ring of all keys: places tell what a query sees
                keys.append(torch.tensor(of(ends.tolist(), split, 2, rank)))
            of_all = torch.cat(keys)
            hidden = table[torch.cat([part["input_ids"].flatten() for part in slices])]
            _, key, value = (hidden @ weight for weight in weights)
            for own, part in zip(keys, slices):
                query = table[part["input_ids"].flatten()] @ weights[0]
                sees = (own[:, None] >= of_all) & (number[own][:, None] == number[of_all])
                total += loss_of(attend(query, key, value, sees), part["labels"].flatten())
            assert torch.allclose(total, wanted, rtol=1e-9)
            assert sum((part["labels"] != -100).sum() for part in slices) == batch.tokens_loss


TORCHRUN = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "MASTER_PORT": "1"}


def test_groups_of_a_launchers_ranks(monkeypatch):
    """Neighbouring ranks are a group, as Megatron and torchtitan number them."""
    for rank in range(8):
        environment = {**TORCHRUN, "RANK": str(rank), "WORLD_SIZE": "8"}
        environment["LOCAL_RANK"] = str(rank % 4)
        found = find_ranks(None, None, environment, cp_size=2)
        assert (found.rank, found.world, found.local) == (rank // 2, 4, rank % 4)
        known = found.group, found.replica, found.consumers_per_rank
        assert known == ((rank % 2, 2), rank % 2, 2)
        assert found.keys() == {
            "dp_world_size": 4,
            "ranks": f"{rank // 4 * 2}-{rank // 4 * 2 + 1}",
            "consumers_per_rank": 2,
        }
        monkeypatch.setattr("ringpack._ranks.ask_frameworks", lambda r=rank: (r, 8, "torch"))
        assert settle_ranks(found, environment) == found
        monkeypatch.setattr("ringpack._ranks.ask_frameworks", lambda r=rank: (r ^ 1, 8, "torch"))
        with pytest.raises(ringpack.UsageError, match="rank"):
            settle_ranks(found, environment)


@pytest.mark.parametrize(
    ("given", "environment", "text"),
    [
        ({"cp_size": 2}, {}, "which process of its group"),
        ({"cp_size": 2, "cp_rank": 2}, {}, "cp_rank 2 of cp_size 2"),
        ({"cp_size": 2, "cp_rank": -1}, {}, "cp_rank is -1: expected 0 or more"),
        ({"cp_size": 0}, {}, "cp_size is 0"),
        ({"cp_size": -2, "cp_rank": 0}, {}, "cp_size is -2"),
        ({"cp_rank": 1}, {}, "cp_rank 1 of cp_size 1"),
        ({"cp_size": 3}, {"RANK": "1", "WORLD_SIZE": "4"}, "say rank 1 of 4"),
        ({"cp_size": 2, "cp_rank": 0}, {"RANK": "1", "WORLD_SIZE": "4"}, "cp_rank is 0"),
        ({"cp_size": 8}, {"RANK": "1", "WORLD_SIZE": "8", **TORCHRUN}, "span nodes"),
        ({"cp_size": 2, "dp_rank": 0, "dp_world_size": 2}, {}, "which process of its group"),
        ({"cp_size": 2, "cp_rank": 0, "consumers_per_rank": 4}, {}, "consumers_per_rank=4"),
        ({"cp_size": 2, "cp_rank": 0, "seq_len": 62}, {}, "seq_len=60 or seq_len=64"),
        ({"cp_size": 2, "cp_rank": 0, "cp_split": "document", "align": 6}, {}, "align is 6"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(monkeypatch, given, environment, text):
    for name in set(os.environ) & {"RANK", "WORLD_SIZE", "LOCAL_RANK"}:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ringpack.UsageError) as raised:
        ringpack.Loader(corpus="none", **{"seq_len": 64, **given})
    assert text in f"{raised.value} {raised.value.hint}"


def test_runs_that_do_not_fit_are_refused(program, corpus, folder):
    keys = {"corpus": corpus, "seq_len": LENGTH, "batch_size": 2, "run_dir": folder}
    place = {"run_dir": folder, "run": "run", "cp_size": 2, "cp_rank": 1}
    with pytest.raises(ValueError, match="cp_split is 'rows'"):
        ringpack.Loader(**keys, cp_size=2, cp_rank=0, cp_split="rows")
    with pytest.raises(ringpack.UsageError, match="static=True keeps the memory"):
        static = {"return_type": "torch", "device": "cpu", "static": True}
        ringpack.Loader(**keys, **static, cp_size=2, cp_rank=0).attach()
    with pytest.raises(ringpack.UsageError, match="profile megatron_thd gives documents"):
        ringpack.Loader(**keys, cp_size=2, cp_rank=0, cp_split="row", profile="megatron_thd")
    for more, other, text in (
        ({"seq_len": 62, "profile": "full"}, {}, "seq_len 62 is no multiple of 4"),
        ({"profile": "full", "label_mode": "aligned"}, {"mtp": 2}, "labels that are shifted"),
        ({"profile": "grain"}, {"profile": "grain"}, "profile grain leaves it to the model"),
        ({"profile": "full"}, {"cp_split": "document"}, "into 4 chunks, and align is 1"),
    ):
        with ringpack.Loader(**{**keys, **more}, run="run", consumers_per_rank=2, replica=0) as one:
            one.attach()
            with pytest.raises(ringpack.UsageError, match=text) as raised:
                next(ringpack.Loader(**place, **other))
            assert raised.value.hint


def test_a_launchers_job_trains_each_token_once(program, corpus, folder):
    """torchrun's variables, a group of two, and a resume in a job without a group."""
    keys = {"corpus": corpus, "seq_len": LENGTH, "batch_size": 2, "seed": 5, "run_dir": folder}
    keys |= {"profile": "full", "num_epochs": 1, "align": 4}
    with group(corpus, folder, 2, split="document") as (whole, parts):
        for _ in range(3):
            batch, *slices = next(whole), *(next(part) for part in parts)
        state = parts[1].state_dict(text=True)
        assert state == parts[0].state_dict(text=True) == whole.state_dict(text=True)
        expected = next(whole)["input_ids"].tolist()
    with group(corpus, folder, 2, split="row", align=4) as (_, parts):
        for part in parts:
            part.load_state_dict(state)
        found = numpy.empty((ROWS, LENGTH), int)
        for rank, part in enumerate(parts):
            found[:, per_row(LENGTH, 2, rank)] = next(part)["input_ids"]
        assert found.tolist() == expected


def test_columns_of_documents_are_not_split():
    """A column of documents has no entry for each place of a row."""
    section = SimpleNamespace(offset=64, bytes=64, dtype=3)
    kinds = {"language": _library.OF_DOCUMENT, "weight": _library.OF_DOCUMENT - 1}
    sides = [SimpleNamespace(of=of, count=1, name=name.encode()) for name, of in kinds.items()]
    places = _lease.layout_of(
        SimpleNamespace(seq_len=8, max_docs_per_row=8, rows=2, sections=[section] * 32, sides=sides)
    )
    wishes = _made.Wishes(_made.Split(2, 0, "row"), None, None, 1)
    made = wishes.recipes(places, False)
    assert set(made) == {*OF_TOKENS, "weight"}
