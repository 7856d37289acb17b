# SPDX-License-Identifier: Apache-2.0
"""Masks and arguments of attention from the ends of documents: equal to torch's own masks, and by
attention to each document apart; one compiled graph for all batches."""

import numpy
import pytest
import ringpack
from context_kit import LENGTH, ROWS, write_corpus

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")
varlen = pytest.importorskip("torch.nn.attention.varlen")
torch.set_num_threads(1)
KINDS = "kv", "full_kv", "q", "full_q"
FIELDS = [f"{kind}_{what}" for kind in KINDS for what in ("num_blocks", "indices")]
SECTIONS = {"cu_seqlens": ["cu_seqlens"], "position_ids": ["position_ids"]}


class Row:
    """A batch of given ends, as the functions of batches look at one."""

    kind, shape, places = "torch", 0, {}

    def __init__(self, ends, rows):
        self.ends, self.batch_size, self.segments = ends, rows, len(ends) - 1
        self.seq_len, self.number, self.sections = ends[-1] // rows, 0, ["cu_seqlens"]
        self._form = self
        self.max_seqlen, self.made = max(numpy.diff(ends)), {}

    def _all_made(self):
        return self.made

    def _open_lease(self):
        pass

    def view(self, *_, **__):
        return numpy.array([*self.ends, self.ends[-1]], "i4")

    block_mask, varlen = ringpack.Batch.block_mask, ringpack.Batch.varlen


def random_row(generator, rows, length):
    ends = {0}
    for row in range(rows):
        cuts = generator.integers(1, length, generator.integers(0, 9))
        ends |= {row * length + int(cut) for cut in cuts} | {(row + 1) * length}
    return Row(sorted(ends), rows)


def wanted_mask(batch, window, rows):
    """The mask_mod of documents, from the number of each token's."""
    number = numpy.repeat(numpy.arange(batch.segments), numpy.diff(batch.ends)).reshape(rows, -1)
    number = torch.from_numpy(number)

    def mask(b, h, q, kv):
        sees = (q >= kv) & (number[b, q] == number[b, kv])
        return sees if window is None else sees & (q - kv < window)

    return mask


def assert_equal(found, wanted, rows, length):
    for field in FIELDS:
        one, other = getattr(found, field), getattr(wanted, field)
        assert one.dtype == other.dtype and torch.equal(one, other), field
        assert one.is_contiguous()
    assert found.seq_lengths == wanted.seq_lengths and found.BLOCK_SIZE == wanted.BLOCK_SIZE
    of_all = rows, 1, length, length, "cpu"
    assert torch.equal(*(flex.create_mask(of.mask_mod, *of_all) for of in (found, wanted)))


@pytest.mark.parametrize("seed", range(60))
def test_block_masks_are_those_of_torch(seed):
    generator = numpy.random.default_rng(seed)
    rows, length = int(generator.integers(1, 4)), int(generator.integers(1, 400))
    sizes = int(generator.choice([1, 3, 16, 64, 128])), int(generator.choice([2, 16, 48, 128]))
    size = sizes[0] if seed % 3 == 0 else sizes
    window = None if seed % 2 else int(generator.integers(1, 1 + length))
    batch = random_row(generator, rows, length)
    for flat in False, True:
        count, places = (1, rows * length) if flat else (rows, length)
        found = batch.block_mask(window, block_size=size, flat=flat)
        wanted = flex.create_block_mask(
            wanted_mask(batch, window, count), count, 1, places, places, "cpu", size
        )
        assert_equal(found, wanted, count, places)


def test_131072_tokens_take_no_square_of_tokens():
    """create_block_mask would need 16 GiB of bits and as much again to add them up."""
    length, generator = 131072, numpy.random.default_rng(2)
    ends = sorted({0, length, *map(int, generator.integers(1, length, 300))})
    found = Row(ends, 1).block_mask(4096)
    assert found.shape == (1, 1, length, length)
    number = numpy.repeat(numpy.arange(len(ends) - 1), numpy.diff(ends))
    first = numpy.maximum(numpy.array(ends)[number], numpy.arange(length) - 4095)
    for block in generator.integers(0, length // 128, 40):
        own = numpy.arange(block * 128, block * 128 + 128)[:, None]
        sees = (first[own] <= numpy.arange(length)) & (numpy.arange(length) <= own)
        seen = sees.reshape(128, -1, 128).sum(axis=(0, 2))
        for kind, wanted in (("kv", (seen > 0) & (seen < 128**2)), ("full_kv", seen == 128**2)):
            count = int(getattr(found, f"{kind}_num_blocks")[0, 0, block])
            blocks = getattr(found, f"{kind}_indices")[0, 0, block, :count].tolist()
            assert blocks == numpy.flatnonzero(wanted).tolist()
        at = torch.from_numpy(generator.integers(0, length, 1000))
        assert torch.equal(
            found.mask_mod(0, 0, torch.tensor(int(own[5, 0])), at), torch.from_numpy(sees[5])[at]
        )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("masks"))


@pytest.fixture
def make(program, corpus, folder):
    def made(**more):
        keys = {"seq_len": LENGTH, "batch_size": ROWS, "seed": 5, "run_dir": folder, "align": 4}
        keys = {"return_type": "torch", "window": 4, **keys, **more}
        return ringpack.Loader(corpus=corpus, **keys)

    return made


def attend(query, key, value, window):
    """Dense attention of one document."""
    places = torch.arange(len(query))
    sees = (places[:, None] >= places) & (places[:, None] - places < (window or len(query)))
    scores = torch.einsum("qhd,khd->hqk", query, key) / query.shape[-1] ** 0.5
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(~sees, -float("inf")).softmax(-1), value)


def played(cu_seqlens_q, cu_seqlens_k, max_q, max_k, window_size, causal=True):
    """The kernels, which run on GPUs only, as documented: window_size is (left, right), of which -1
    is all; sequences of no tokens are none."""
    ends = cu_seqlens_q.tolist()
    assert cu_seqlens_q.dtype == torch.int32 and ends == cu_seqlens_k.tolist()
    assert causal and window_size[1] in (0, -1) and max_q == max_k
    assert all(end - begin <= max_q for begin, end in zip(ends, ends[1:]))
    window = None if window_size[0] == -1 else window_size[0] + 1

    def call(query, key, value):
        parts = [
            attend(query[begin:end], key[begin:end], value[begin:end], window)
            for begin, end in zip(ends, ends[1:])
            if begin < end
        ]
        return torch.cat(parts)

    return call


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("section", SECTIONS)
def test_each_document_is_alone(make, section, window):
    torch.manual_seed(1)
    query, key, value = torch.randn(3, ROWS * LENGTH, 2, 16)
    with make(sections=SECTIONS[section], return_type="numpy") as loader:
        for number, batch in zip(range(5), loader):
            lengths = batch.varlen("xformers")["q_seqlen"]
            assert sum(lengths) == ROWS * LENGTH and len(lengths) == batch.segments
            parts = zip(*(of.split(lengths) for of in (query, key, value)))
            wanted = torch.cat([attend(*part, window) for part in parts])
            ends = numpy.append(0, numpy.cumsum(lengths))
            if section == "cu_seqlens":
                assert ends.tolist() == batch["cu_seqlens"][: batch.segments + 1].tolist()
            for capacity in None, 60:
                of_torch = batch.varlen("torch", window, capacity=capacity)
                assert set(of_torch) < set(varlen.varlen_attn.__annotations__)
                assert of_torch.pop("window_size") == (4 if window else -1, 0)
                of_flash = batch.varlen("flash_attn", window, capacity=capacity)
                own = {"window_size": of_flash["window_size"], "causal": of_flash["causal"]}
                for arguments in (list(of_torch.values()), list(of_flash.values())[:4]):
                    found = played(*arguments, **own)(query, key, value)
                    assert torch.allclose(found, wanted, atol=1e-5), number
                assert of_torch["max_q"] == (batch.max_seqlen if capacity is None else LENGTH)
                assert capacity is None or len(of_torch["cu_seq_q"]) == capacity + 1
            for flat in False, True:
                mask = batch.block_mask(window, block_size=16, flat=flat)
                shape = (1, -1, 2, 16) if flat else (ROWS, -1, 2, 16)
                bhsd = [of.reshape(shape).transpose(1, 2) for of in (query, key, value)]
                found = flex.flex_attention(*bhsd, block_mask=mask).transpose(1, 2)
                assert torch.allclose(found.reshape(wanted.shape), wanted, atol=1e-5), number


def test_lengths_with_and_without_padding(make):
    """Of Megatron's PackedSeqParams."""
    params = pytest.importorskip("megatron.core.packed_seq_params").PackedSeqParams
    with make(profile="full", return_type="numpy") as loader:
        for batch in loader:
            found = batch.varlen("transformer_engine")
            params(**found)
            padded = found["cu_seqlens_q_padded"].tolist()
            assert padded == batch["cu_seqlens"][: batch.segments + 1].tolist()
            real = numpy.diff(found["cu_seqlens_kv"].tolist())
            tokens = batch["segment_ids"].ravel()
            for length, begin, end in zip(real, padded, padded[1:]):
                assert (tokens[begin : begin + length] > 0).all()
                assert (tokens[begin + length : end] == 0).all()
            assert real.sum() == batch.tokens_real and found["max_seqlen_q"] == batch.max_seqlen


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("is_static", [True, False])
def test_one_graph_for_all_batches(make, is_static):
    """A compiled step with a block mask and lengths. Without a capacity it is compiled again."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    graphs = []

    def count(graph, _):
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=count, dynamic=False)
    def step(x, mask, arguments):
        ends = arguments["cu_seq_q"]
        numbers = torch.bucketize(torch.arange(x.shape[2]), ends, right=True)
        mixed = flex.flex_attention(x, x, x, block_mask=mask)
        return mixed.sum() + numbers.sum() + arguments["max_q"]

    x = torch.randn(1, 2, ROWS * LENGTH, 16)
    with make(num_epochs="endless") as loader:
        for _, batch in zip(range(100 if is_static else 4), loader):
            capacity = 60 if is_static else None
            step(x, batch.block_mask(flat=True, block_size=16), batch.varlen(capacity=capacity))
    assert (len(graphs) == 1) == is_static
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == len(graphs)


def test_mistakes_are_refused(make):
    with make(sections=["labels"], return_type="numpy") as loader:
        for call in ("block_mask", "varlen"):
            with pytest.raises(ringpack.UsageError, match="neither cu_seqlens nor") as raised:
                getattr(next(loader), call)()
            assert "cu_seqlens" in raised.value.hint
    with make() as loader:
        batch = next(loader)
        for text, call in {
            "window is 0": lambda: batch.block_mask(0),
            "window is -3": lambda: batch.varlen(window=-3),
            "block_size is 0": lambda: batch.block_mask(block_size=0),
            r"block_size is \(128, -1\)": lambda: batch.block_mask(block_size=(128, -1)),
            "kernel is 'cudnn'": lambda: batch.varlen("cudnn"),
            "a list of lengths": lambda: batch.varlen("xformers", 5),
            "takes window_size": lambda: batch.varlen("transformer_engine", 5),
        }.items():
            with pytest.raises(ValueError, match=text):
                call()
        with pytest.raises(ringpack.UsageError, match="segments, and capacity is 1") as raised:
            batch.varlen(capacity=1)
        assert "capacity=" in raised.value.hint
        batch.close()
        with pytest.raises(ringpack.ReleasedError):
            batch.block_mask()
