# SPDX-License-Identifier: Apache-2.0
"""The programs in tools/examples, at toy size: killed with SIGKILL and started again, each has the
losses of a run in peace, bit for bit."""

import importlib
import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from conftest import ROOT
from forked_ranks import ForkedRanks
from job_kit import Job, children
from warm_python import warm_python

EXAMPLES = ROOT / "tools" / "examples"
STEPS, SAVE_EVERY, KILL_AT = 12, 3, 7
warm = warm_python()
LOSS = re.compile(r"\b(?:step|row) (\d+)\b.* (-?0x1\.[0-9a-f]+p[+-]\d+)$", re.M)


@pytest.fixture(scope="module")
def corpus(program, tmp_path_factory):
    """Text that every machine with Python has."""
    place = tmp_path_factory.mktemp("text") / "modules"
    options = ["--glob", "[a-c]*.py", "--max-tokens", "400k", "-q", "-o", place]
    subprocess.run([program, "convert", *options, os.path.dirname(os.__file__)], check=True)
    return place


CALM = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}


def start(command, log, **environment):
    return Job(command, log, env={**os.environ, **CALM, **environment})


def two_ranks(corpus, script, *words):
    """How two ranks of a script begin that save at a place."""

    def begin(place, log):
        return ForkedRanks(2, EXAMPLES / script, [*words, *options(corpus, place)], log, **CALM)

    return begin


def torchrun(python, ranks):
    """With a port of its own, so that two jobs may run side by side."""
    return [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]


def losses_of(output):
    return dict(LOSS.findall(output))


def check_resumed(whole, killed, resumed):
    """Every loss that was seen is the one of the run in peace, and work was kept."""
    assert len(whole) == STEPS and len(killed) >= KILL_AT
    assert killed.items() <= whole.items() and resumed.items() <= whole.items()
    assert killed.keys() | resumed.keys() == whole.keys()
    assert len(resumed) <= STEPS - SAVE_EVERY


def run_killed_and_resumed(begin, folder, seen=losses_of):
    """begin(place, log) starts the program with its checkpoints at `place`."""
    with begin(folder / "killed", folder / "killed.log") as job:
        job.wait_for(lambda output: len(seen(output)) >= KILL_AT)
        job.kill()
        killed = seen(job.output())
    with begin(folder / "whole", folder / "whole.log") as whole:
        with begin(folder / "killed", folder / "resumed.log") as resumed:
            outputs = whole.finish(), resumed.finish()
    return seen(outputs[0]), killed, seen(outputs[1])


def options(corpus, place):
    return ["--corpus", corpus, "--checkpoints", place, "--save-every", SAVE_EVERY]


def test_gpt(corpus, folder):
    pytest.importorskip("torch.distributed.checkpoint.state_dict")
    program = two_ranks(corpus, "gpt.py", "--steps", STEPS)
    check_resumed(*run_killed_and_resumed(program, folder))


def rank_of(job, warm, rank):
    """The process that torchrun runs as this rank, now."""
    for pid in [*children(job.process.pid), *warm.processes()]:
        with open(f"/proc/{pid}/environ") as file, open(f"/proc/{pid}/cmdline") as words:
            is_rank = f"RANK={rank}" in file.read().split("\0")
            if is_rank and str(EXAMPLES / "gpt.py") in words.read().split("\0"):
                return pid
    raise AssertionError(f"torchrun has no rank {rank}")


def test_torchrun_starts_killed_ranks_again(corpus, folder, warm):
    """--max-restarts: first the rank that owns the engine is killed, then the other one.

    The ranks' addresses go into torchrun's store, and the next ranks would find dead ones there."""
    pytest.importorskip("torch")
    fresh = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    program = [EXAMPLES / "gpt.py", "--steps", STEPS]
    again = [*torchrun(warm.python, 2), "--max-restarts", 2, *program]
    again += options(corpus, folder / "again")
    whole = two_ranks(corpus, "gpt.py", "--steps", STEPS)
    with (
        start(again, folder / "again.log", **fresh, **warm.environment) as job,
        whole(folder / "whole", folder / "whole.log") as peaceful,
    ):
        for rank, step in (0, 4), (1, 8):
            job.wait_for(lambda output: str(step) in losses_of(output))  # noqa: B023
            os.kill(rank_of(job, warm, rank), signal.SIGKILL)
        seen, wanted = LOSS.findall(job.finish()), losses_of(peaceful.finish())
    assert len(wanted) == STEPS and dict(seen) == wanted
    assert set(seen) == set(wanted.items()), "a step had another loss the second time"
    assert [step for step, _ in seen].count("4") == 2 == [step for step, _ in seen].count("8")


def test_figures(corpus, folder, warm):
    pytest.importorskip("torch")
    command = [warm.python, EXAMPLES / "figures.py", "--corpus", corpus, "--seconds", "0.1"]
    with start(command, folder / "log", **warm.environment) as job:
        output = job.finish()
    for line in (
        r"first batch after \d+ ms",
        r"a trainer that does nothing: [\d,]+ tokens/s, waits [\d.]+ %",
        r"a trainer that trains: [\d,]+ tokens/s, waits [\d.]+ %",
        r"engine [\d.]+ MiB after 10 batches, and more as it prefetches",
        r"batches of each further rank -?\d+\.\d\d MiB",  # kernels before 6.16 count roughly
    ):
        assert re.search(f"^{line}$", output, re.M), output


def test_gpt_accelerate(corpus, folder):
    pytest.importorskip("accelerate")
    program = two_ranks(corpus, "gpt_accelerate.py", "--rows", 8 * STEPS)
    check_resumed(*run_killed_and_resumed(program, folder))


@pytest.fixture(scope="module")
def start_jax(warm, tmp_path_factory):
    """start() of the example for jax, which is compiled once."""
    environment = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("jax")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        **warm.environment,
    }

    def begin(log, *words):
        return start([warm.python, EXAMPLES / "jax_train.py", *words], log, **environment)

    return begin


def test_jax(corpus, folder, start_jax):
    pytest.importorskip("jax")

    def begin(place, log):
        where = ["--checkpoint", place, "--steps", STEPS, "--save-every", SAVE_EVERY]
        return start_jax(log, "--corpus", corpus, *where)

    check_resumed(*run_killed_and_resumed(begin, folder))


def test_hf_trainer(corpus, folder):
    """It prints rounded losses, without steps; the exact ones are in its checkpoints."""
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers.trainer")
    pytest.importorskip("transformers.models.llama.modeling_llama")

    def printed(output):
        return re.findall(r"'loss': '?([0-9.]+)", output)

    def exact(place):
        with open(folder / place / f"checkpoint-{STEPS}" / "trainer_state.json") as file:
            history = json.load(file)["log_history"]
        return [record["loss"] for record in history if "loss" in record]

    program = two_ranks(corpus, "hf_trainer.py", "--steps", STEPS, "--accumulation", 3)
    whole, killed, resumed = run_killed_and_resumed(program, folder, printed)
    assert killed == whole[: len(killed)] and resumed == whole[-len(resumed) :]
    assert KILL_AT <= len(killed) and len(resumed) <= STEPS - SAVE_EVERY
    assert exact("killed") == exact("whole")


@pytest.fixture(scope="module")
def unlabelled(tmp_path_factory):
    """Documents of one token: no batch has a label."""
    from stream_oracle import write_megatron

    documents = [[n % 250] for n in range(9000)]
    return write_megatron(tmp_path_factory.mktemp("one") / "corpus", documents)


@pytest.mark.parametrize(
    ("module", "script", "words"),
    [
        ("jax", "jax_train.py", ["--steps", 2, "--checkpoint"]),
        ("torch", "gpt.py", ["--steps", 2, "--checkpoints"]),
        ("accelerate", "gpt_accelerate.py", ["--rows", 16, "--checkpoints"]),
    ],
)
def test_a_batch_without_a_label(unlabelled, folder, start_jax, module, script, words):
    """The mean of no label is 0, and not NaN, which would stay in the parameters."""
    pytest.importorskip(module)
    words = [*words, folder / "saved", "--corpus", unlabelled]
    if module == "jax":
        job = start_jax(folder / "log", *words)
    else:
        job = ForkedRanks(2, EXAMPLES / script, words, folder / "log", **CALM)
    with job:
        seen = re.findall(r"\bloss .* (-?0x\S+)$", job.finish(), re.M)
    assert len(seen) >= 2 and {float.fromhex(loss) for loss in seen} == {0.0}


def test_documents_do_not_see_each_other(monkeypatch):
    """Both masks equal each document by itself, forwards and backwards."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    gpt = importlib.import_module("gpt")
    torch.manual_seed(1)
    model, ids = gpt.GPT(50, seq_len=40), torch.randint(50, (40,))
    ends = [0, 1, 17, 24, 40]
    spans = list(zip(ends[:-1], ends[1:]))
    positions = torch.cat([torch.arange(end - start) for start, end in spans])

    def logits_and_gradient(mask):
        model.zero_grad()
        logits = model(ids, positions, mask(ends))
        (logits**2).sum().backward()
        return logits.detach(), model.blocks[0].qkv.weight.grad.clone()

    block, dense = (logits_and_gradient(mask) for mask in (gpt.block_diagonal, gpt.dense))
    causal = logits_and_gradient(lambda ends: gpt.dense([0, 40]))
    alone = [
        model(ids[start:end], positions[start:end], gpt.dense([0, end - start]))
        for start, end in spans
    ]
    for found, wanted in zip(block, dense):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(block[0], torch.cat(alone), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(block[0], causal[0], rtol=1e-2, atol=1e-2)


@pytest.fixture(scope="module")
def mpi_trainer(program, tmp_path_factory):
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        pytest.skip("needs Open MPI: apt-get install libopenmpi-dev openmpi-bin")
    place = tmp_path_factory.mktemp("mpi") / "mpi_trainer"
    library = os.path.dirname(os.environ["RINGPACK_LIBRARY"])
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", f"-L{library}"]
    source = EXAMPLES / "mpi_trainer.c"
    subprocess.run(["mpicc", *flags, source, "-lringpack", "-lm", "-o", place], check=True)
    return place


def mpi_config(corpus, folder):
    config = folder / "config.yaml"
    config.write_text(f"sources: [{corpus}]\nseed: 1\nseq_len: 256\n")
    environment = {
        "LD_LIBRARY_PATH": os.path.dirname(os.environ["RINGPACK_LIBRARY"]),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    return config, environment


OTHER_DIGEST = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
size_t rp_client_state(const void *client, unsigned char *buffer, size_t capacity)
{
    size_t (*real)(const void *, void *, size_t) = dlsym(RTLD_NEXT, "rp_client_state");
    size_t bytes = real(client, buffer, capacity);
    if (bytes <= capacity && atoi(getenv("OMPI_COMM_WORLD_RANK")) == 1)
        buffer[48] ^= 1;
    return bytes;
}
"""


def test_mpi_ranks_compare_plan_digests(mpi_trainer, corpus, folder):
    """A rank whose state has another plan digest at the same row is refused."""
    config, environment = mpi_config(corpus, folder)
    (folder / "other.c").write_text(OTHER_DIGEST)
    preload = folder / "other.so"
    words = ["cc", "-shared", "-fPIC", folder / "other.c", "-ldl", "-o", preload]
    subprocess.run(words, check=True)
    command = ["mpirun", "--oversubscribe", "-np", 2, "-x", f"LD_PRELOAD={preload}"]
    command += [mpi_trainer, config, folder / "state", 1, 6]
    with start(command, folder / "log", **environment) as job:
        job.wait_for(lambda output: "rank 1: plan_digest differs: rank 0 has" in output)
        job.kill()
    assert not (folder / "state").exists()


def test_mpi(mpi_trainer, corpus, folder):
    """A step of 12 rows has one loss, whatever ranks share it: counts are whole numbers."""
    config, environment = mpi_config(corpus, folder)

    def run(ranks, steps, state):
        command = ["mpirun", "--oversubscribe", "-np", ranks, mpi_trainer, config, folder / state]
        return start([*command, steps, 12 // ranks], folder / f"{ranks}.log", **environment)

    with run(2, 10**6, "state") as job:
        job.wait_for(lambda output: "row 84 " in output)
        job.kill()
        killed = losses_of(job.output())
    resumed = {}
    for ranks in 4, 1, 6:
        with run(ranks, 1, "state") as job:
            resumed.update(losses_of(job.finish()))
    # kill() stops mpirun before its ranks: lines of the last saves may never reach the log
    first, last = min(map(int, resumed)), max(map(int, resumed))
    assert list(map(int, resumed)) == [first, first + 12, first + 24]
    assert first >= max(map(int, killed)) + 12
    with run(3, last // 12, "whole") as job:
        assert {**killed, **resumed}.items() <= losses_of(job.finish()).items()
    broken = os.environ.get("RINGPACK_BROKEN")
    if broken and os.path.exists(broken):  # the control: it loses a fragment when it resumes
        shutil.copy(folder / "state", folder / "other")
        with run(3, 2, "state") as job:
            right = losses_of(job.finish())
        environment["RINGPACK"] = broken
        with run(2, 2, "other") as job:
            wrong = losses_of(job.finish())
        assert wrong.keys() == right.keys() and wrong != right
