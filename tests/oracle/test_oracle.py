# SPDX-License-Identifier: Apache-2.0
"""The oracle against itself: generator, golden files, resuming. Then the engine against it."""

import json
import os
import random
import struct

import fuzz_plan
import make_golden
import oracle
import pytest
from state import load_token, row_digest, save_token
from stream import PACKING, Plan, count_rows, count_steps, permute, rank_rows, round_keys

FUZZ_CASES = 60


GOLDEN = dict(make_golden.golden_files())
SPECS = [pytest.param(json.loads(text)["spec"], id=name) for name, text in GOLDEN.items()]


@pytest.fixture
def dump():
    path = os.path.join(os.environ.get("RP_BIN_DIR", ""), "plan_dump")
    if not os.path.exists(path):
        pytest.skip("plan_dump is not built: RP_BIN_DIR says where it is")
    return path


def test_known_answers_of_the_generator():
    oracle.check_known_answers()


@pytest.mark.parametrize("n", [*range(1, 70), 1000, 4096, 4097])
def test_permutation(n):
    keys = round_keys(7, 1, 2, 0, 0)
    assert sorted(permute(n, keys, x) for x in range(n)) == list(range(n))


def test_golden_files_are_what_the_oracle_writes():
    assert sorted(os.listdir(make_golden.FOLDER)) == sorted(GOLDEN)
    for name, text in GOLDEN.items():
        with open(os.path.join(make_golden.FOLDER, name)) as file:
            assert file.read() == text, name
    with open(make_golden.CONTRACTS) as file:
        assert file.read() == make_golden.contract_file()
    with open(make_golden.TOKENS) as file:
        assert file.read() == make_golden.token_file()


@pytest.mark.parametrize("inputs", SPECS)
def test_every_token_is_accounted_for(inputs):
    spec = oracle.make_spec(inputs)
    plan = Plan(spec)
    for _ in range(100):
        plan.row()
        counts = plan.counts()
        kept = counts["truncated"] + counts["dropped"] + counts["buffered"]
        assert counts["tokens_read"] == counts["emitted"] + kept


@pytest.mark.parametrize("inputs", SPECS)
def test_one_pass_gives_every_token_once(inputs):
    inputs = dict(inputs, num_epochs=1, long_doc="split")
    spec = oracle.make_spec(inputs)
    plan, seen = Plan(spec), []
    N = count_rows(Plan(spec))
    while plan.next_row < N:
        row = plan.row()
        assert sum(fragment.length for fragment in row) <= spec.L and len(row) <= spec.D
        seen += [
            (f.source, f.document, t) for f in row for t in range(f.offset, f.offset + f.length)
        ]
    lengths = enumerate(spec.lengths)
    corpus = [(j, d, t) for j, source in lengths for d, n in enumerate(source) for t in range(n)]
    assert sorted(seen) == corpus


@pytest.mark.parametrize("inputs", SPECS)
def test_resume_at_every_row(inputs):
    spec = oracle.make_spec(inputs)
    ahead, N = Plan(spec), count_rows(Plan(spec))
    while ahead.next_row < (40 if N is None else min(N, 40)):
        token = save_token(ahead)
        resumed = Plan(spec)
        load_token(resumed, token)
        assert save_token(resumed) == token
        assert [resumed.row() for _ in range(3)][0] == ahead.row()


def test_ranks_take_every_row_once():
    base, M, R, G = 10, 2, 3, 12
    steps = count_steps(N=45, base=base, G=G, drop_last=False)
    assert (steps, count_steps(45, base, G, drop_last=True)) == (3, 2)
    micro_batches = steps * G // (M * R)
    taken = [g for k in range(micro_batches) for r in range(R) for g in rank_rows(base, k, r, M, R)]
    assert taken == list(range(base, base + steps * G))


def test_digest_of_parts_adds_up():
    inputs = make_golden.make_inputs(
        0, dict(zip(make_golden.COLUMNS.split(), make_golden.CASES[0]))
    )
    golden, spec = make_golden.make_golden(inputs), oracle.make_spec(inputs)
    plan, parts = Plan(spec), [0, 0, 0]
    for g in range(golden["end"]):
        parts[g % 3] += row_digest(spec, g, plan.row())
    assert "%032x" % (sum(parts) % 2**128) == golden["digest"]


def write_megatron(prefix, documents, code, letter):
    """Each document as two sequences, so that documents and sequences cannot be confused."""
    halves = [part for d in documents for part in (d[: len(d) // 2], d[len(d) // 2 :])]
    width, starts = struct.calcsize("<" + letter), [0]
    for half in halves:
        starts.append(starts[-1] + width * len(half))
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0")
        file.write(struct.pack("<QBQQ", 1, code, len(halves), len(documents) + 1))
        file.write(struct.pack("<%di" % len(halves), *map(len, halves)))
        file.write(struct.pack("<%dq" % len(halves), *starts[:-1]))
        file.write(struct.pack("<%dq" % (len(documents) + 1), *range(0, len(halves) + 1, 2)))
    with open(prefix + ".bin", "wb") as file:
        for document in documents:
            file.write(struct.pack("<%d%s" % (len(document), letter), *document))


@pytest.mark.parametrize("code, letter", [(8, "H"), (4, "i"), (5, "q")])
def test_megatron_files_give_the_same_digest(tmp_path, code, letter):
    golden = json.loads(GOLDEN["lookahead-split-lanes.json"])
    for j, source in enumerate(golden["spec"]["sources"]):
        corpus = oracle.RuleSource(j, source["lengths"])
        documents = [corpus.tokens(d, 0, n) for d, n in enumerate(source["lengths"])]
        source["megatron"] = []
        for part, shard in enumerate([documents[:20], documents[20:]]):
            source["megatron"].append(str(tmp_path / ("%d-%d" % (j, part))))
            write_megatron(source["megatron"][-1], shard, code, letter)
    assert make_golden.make_golden(golden["spec"])["digest"] == golden["digest"]


def test_engine_equals_oracle(dump):
    """A little of fuzz_plan.py, always the same cases; run the script for many more."""
    assert fuzz_plan.fuzz(dump, seed=1, first=0, cases=FUZZ_CASES) == 0


@pytest.mark.parametrize("packing", PACKING)
def test_the_attempt_at_which_a_lane_ends_counts_what_lies_behind_its_last_row(
    dump, tmp_path, packing
):
    """Lane 0 has documents of 8, 0, 0 and 0 tokens, and rows of 8: it ends at row 2. The empty
    documents are counted by that attempt, and by no later one, while lane 1 continues to row 7."""
    inputs = {"seq_len": 8, "window": 1, "max_docs_per_row": 8, "lanes": 2, "num_epochs": 1}
    inputs |= {"seed": 1, "shuffle": "none", "packing": packing, "fill": "pad", "long_doc": "split"}
    inputs |= {"block_documents": 1, "window_blocks": 1}
    inputs |= {"corpus_sampled": "%032x" % 1, "corpus_full": "%032x" % 0}
    inputs["sources"] = [{"weight": 1, "lengths": [8, 8, 0, 8, 0, 8, 0, 8]}]
    plan, counted = Plan(oracle.make_spec(inputs)), []
    for _ in range(8):
        counted.append(plan.lanes[0].count["empty"])
        plan.row()
    assert counted == [0, 0, 0, 3, 3, 3, 3, 3]
    engine = fuzz_plan.Engine(dump, str(tmp_path))
    found = engine.lines(inputs)
    assert fuzz_plan.first_difference(fuzz_plan.oracle_lines(inputs), found) is None


def test_fuzz_notices_a_difference(dump, tmp_path):
    """Its control: an engine that answers for another seed."""
    inputs = fuzz_plan.random_inputs(random.Random("control"))
    inputs.update(shuffle="document", num_epochs=1, lanes=1, seq_len=64, max_docs_per_row=64)
    inputs["sources"] = [{"weight": 1, "lengths": list(range(1, 50))}]
    expected = fuzz_plan.oracle_lines(inputs)
    engine = fuzz_plan.Engine(dump, str(tmp_path))
    assert fuzz_plan.first_difference(expected, engine.lines(inputs)) is None
    inputs["seed"] = "12345"
    assert fuzz_plan.first_difference(expected, engine.lines(inputs)) is not None
