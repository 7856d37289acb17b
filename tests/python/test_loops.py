# SPDX-License-Identifier: Apache-2.0
"""Loops on two real ranks, with accumulation 16 and a whole evaluation after each step: killed and
resumed, they have the losses of an uninterrupted run. torchtitan's part of a config, and a plain
loop that fetches a batch ahead; the pages have others."""

import pytest
import ringpack
from forked_ranks import ForkedRanks
from job_kit import lives_through_a_kill
from ringpack._neighbours import place_among

torch = pytest.importorskip("torch")
STEPS, ACCUMULATED = 4, 16

BEGIN = """
import os, sys
import ringpack, torch, torch.distributed as dist
corpus, place = sys.argv[1:]
STEPS, ACCUMULATED = {steps}, {accumulated}
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Embedding(50000, 4), torch.nn.Linear(4, 64))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
form = dict(corpus=corpus, seq_len=16, batch_size=1, seed=3, return_type="torch")
train = dict(form, num_epochs="endless", global_batch_size=2 * ACCUMULATED)
kept = sorted(os.listdir(place)) if os.path.isdir(place) else []
kept = [os.path.join(place, name) for name in kept if name.startswith("step-")]
first = int(kept[-1][-4:]) + 1 if kept else 1

def loss_of(inputs, labels):
    logits = model(inputs).flatten(0, 1)
    labels = torch.where(labels == -100, labels, labels % 64).flatten()
    return torch.nn.functional.cross_entropy(logits, labels, reduction="sum")

def sum_of(*values):
    total = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(total)
    return total

def train_on(batches):
    count = max(sum_of(sum((labels != -100).sum().item() for _, labels in batches)).item(), 1)
    total = 0.0
    for inputs, labels in batches:
        loss = loss_of(inputs, labels) / count
        loss.backward()
        total += loss.item()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    return sum_of(total).item()

@torch.no_grad()
def evaluate(batches):
    found = [(loss_of(i, l).item(), (l != -100).sum().item()) for i, l in batches]
    loss, labels = sum_of(*map(sum, zip(*found))).tolist()
    return (loss / labels).hex(), int(labels)

def say(step, loss, held):
    if dist.get_rank() == 0:
        print(f"step {{step}} loss {{loss.hex()}}", *evaluate(held), flush=True)
    else:
        evaluate(held)

def write(step, save):
    dist.barrier()
    save(os.path.join(place, "new"))
    dist.barrier()
    if dist.get_rank() == 0:
        os.rename(os.path.join(place, "new"), os.path.join(place, f"step-{{step:04}}"))
    dist.barrier()

def pairs(loader):
    for batch in loader:
        yield batch["input_ids"], batch["labels"]

os.makedirs(place, exist_ok=True)
""".format(steps=STEPS, accumulated=ACCUMULATED)

TITAN = """
import itertools, types
import torch.distributed.checkpoint as dcp
import ringpack.torchtitan
dist.init_process_group("gloo")
config = ringpack.torchtitan.dataloader(corpus=corpus, seed=3, global_batch_size=2 * ACCUMULATED)
validation = ringpack.torchtitan.dataloader(corpus=corpus, seed=3)
validation.infinite = False
ranks = dict(dp_rank=dist.get_rank(), dp_world_size=2, tokenizer=None)
sizes = dict(seq_len=16, local_batch_size=1, snapshot_every_n_steps=None)
loader = config.build(**ranks, **sizes)
names = lambda batches: ((inputs["input"], labels) for inputs, labels in batches)
parts = lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
if kept:
    train_on([(torch.zeros(1, 2, dtype=torch.int64),) * 2])  # AdamW has a state then
    saved = {**parts(), "loader": loader}
    dcp.load(saved, checkpoint_id=kept[-1])
    model.load_state_dict(saved["model"]); optimizer.load_state_dict(saved["optimizer"])
batches = names(loader)
for step in range(first, STEPS + 1):
    loss = train_on(list(itertools.islice(batches, ACCUMULATED)))
    say(step, loss, names(validation.build(**ranks, **sizes)))
    write(step, lambda path: dcp.save({**parts(), "loader": loader}, checkpoint_id=path))
dist.barrier()
"""

SAVE = """
def save(path):
    if dist.get_rank() == 0:
        torch.save((model.state_dict(), optimizer.state_dict(), position), path)

def load():
    *states, position = torch.load(kept[-1], weights_only=False)
    model.load_state_dict(states[0]); optimizer.load_state_dict(states[1])
    return position
"""

PLAIN = SAVE + """
dist.init_process_group("gloo")
loader = ringpack.Loader(look_ahead=1, **train)
held = ringpack.Loader(num_epochs=1, **form)
with loader, held:
    if kept:
        loader.load_state_dict(load())
    following = next(loader)
    for step in range(first, STEPS + 1):
        batches = []
        for _ in range(ACCUMULATED):
            batches.append((following["input_ids"], following["labels"]))
            following = next(loader)  # while the GPU is at work
        say(step, train_on(batches), pairs(held))
        position = loader.state_dict()
        write(step, save)
    dist.barrier()
"""

LOOPS = {
    "torchtitan": (TITAN, ["torchtitan.components.dataloader", "torch.distributed.checkpoint"]),
    "plain": (PLAIN, []),
}


@pytest.fixture(scope="module")
def whole():
    """Losses by step: all loops have the same ones."""
    return {}


@pytest.mark.parametrize("name", LOOPS)
def test_a_killed_loop(program, corpora, folder, whole, name):
    text, needed = LOOPS[name]
    for module in needed:
        pytest.importorskip(module)  # once: the ranks are forked from here
    (folder / "train.py").write_text(BEGIN + text)
    place = {"XDG_RUNTIME_DIR": str(folder), "OMP_NUM_THREADS": "1"}

    def start(run, log):
        words = [corpora[0], folder / run]
        return ForkedRanks(2, folder / "train.py", words, folder / log, **place)

    line = r"^step (\d+) (loss \S+ \S+ \d+)$"
    whole.update(lives_through_a_kill(start, line, STEPS, whole or None))


def test_neighbours_find_their_places(monkeypatch):
    """Two nodes of four processes: tensor-parallel 2, data-parallel 4."""
    dist, known = torch.distributed, [(rank // 2, str(rank // 4)) for rank in range(8)]
    assert place_among(1, 2) == {"dp_rank": 1, "dp_world_size": 2}
    places = []

    def gather(to, _):
        to[:] = known

    for rank in range(8):
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        monkeypatch.setattr(dist, "get_world_size", lambda: 8)
        monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
        monkeypatch.setattr(dist, "all_gather_object", gather)
        monkeypatch.setenv("GROUP_RANK", str(rank // 4))
        places.append(place_among(rank // 2, 4))
    names = "dp_rank", "replica", "consumers_per_rank", "ranks"
    assert [tuple(of[name] for name in names) for of in places] == [
        (rank // 2, rank % 2, 2, "0-1" if rank < 4 else "2-3") for rank in range(8)
    ]
    known[1::2] = [(None, None)] * 4  # get their batches by a broadcast
    monkeypatch.setattr(dist, "get_rank", lambda: 2)
    monkeypatch.setenv("GROUP_RANK", "0")
    assert place_among(1, 4) == {"dp_rank": 1, "dp_world_size": 4, "ranks": "0-1"}
    assert place_among(1, 4, reads=False) == {"dp_rank": 1, "dp_world_size": 4}
    known[0] = (3, "0")
    monkeypatch.setenv("GROUP_RANK", "0")
    with pytest.raises(ringpack.UsageError, match="neighbouring ranks"):
        place_among(3, 4)


def test_a_loader_that_is_built_again_begins_at_a_loaded_state(program, corpora, folder):
    """As a trainer's is after a failure in its process; a validation's begins at the first row."""
    pytest.importorskip("torchtitan")
    import ringpack.torchtitan

    config = ringpack.torchtitan.dataloader(corpus=corpora[0], seed=3, run_dir=folder)
    form = {"dp_rank": 0, "dp_world_size": 1, "tokenizer": None, "seq_len": 16}
    form.update(local_batch_size=2, snapshot_every_n_steps=None)
    first = config.build(**form)
    batches = iter(first)
    whole = [next(batches)[1].tolist() for _ in range(3)]
    state = first.state_dict()
    whole.append(next(batches)[1].tolist())
    batches.close()
    first.close()
    for loaded in True, False:
        built = config.build(**form)
        if loaded:
            built.load_state_dict(state)
        batches = iter(built)
        assert next(batches)[1].tolist() == whole[3 if loaded else 0]
        batches.close()
        built.close()


def titan_loops(folder, corpus, **arguments):
    """The first labels of two batches in each of two loops, which begin at a loaded state, at the
    state of a build that has not begun, and at the first row; and the states of one loop."""
    import ringpack.torchtitan

    config = ringpack.torchtitan.dataloader(corpus=corpus, seed=3, run_dir=folder, **arguments)
    form = {"dp_rank": 0, "dp_world_size": 1, "tokenizer": None, "seq_len": 16}
    form.update(local_batch_size=2, snapshot_every_n_steps=None)

    def take(built, count):
        batches = iter(built)
        found = [next(batches)[1].flatten().tolist() for _ in range(count)]
        batches.close()
        return found

    first = config.build(**form)
    whole = take(first, 3)
    state = first.state_dict()
    whole += take(first, 4)
    first.close()
    loaded, again = config.build(**form), None
    loaded.load_state_dict(state)
    found = [take(loaded, 2) + take(loaded, 2)]
    loaded.close()
    again = config.build(**form)
    begun = again.state_dict()
    loaded = config.build(**form)
    loaded.load_state_dict(begun)
    found += [take(loaded, 2) + take(loaded, 2)]
    loaded.close()
    fresh = config.build(**form)
    found += [take(fresh, 2) + take(fresh, 2)]
    fresh.close()
    return found, whole


@pytest.mark.parametrize("arguments", [{}, {"num_epochs": 2}])
def test_later_loops_of_one_build_go_on(program, corpora, folder, arguments):
    """As torchtitan's own: no row again and none left out, also of a stream with an end."""
    pytest.importorskip("torchtitan")
    found, whole = titan_loops(folder, corpora[0], **arguments)
    assert found == [whole[3:], whole[:4], whole[:4]]


@pytest.mark.parametrize(
    "name, broken, wrong",
    [
        ("load_state_dict", lambda self, state: self.loader.load_state_dict(state), 0),
        ("_begin", lambda self: None, 1),
        ("_begin", lambda self: self._is_again and self.loader.reset(), 2),
    ],
)
def test_control_loops_that_begin_elsewhere(program, corpora, folder, monkeypatch, name, broken,
                                            wrong):  # fmt: skip
    """A loaded state that counts for nothing, a build with the position of the last one, and a
    build whose every loop begins at the first row, are seen."""
    pytest.importorskip("torchtitan")
    from ringpack.torchtitan import RingpackDataLoader

    monkeypatch.setattr(RingpackDataLoader, name, broken)
    found, whole = titan_loops(folder, corpora[0])
    assert found[wrong] != [whole[3:], whole[:4], whole[:4]][wrong]


def test_whole_passes_of_a_validator(program, corpora, folder):
    """A stream that is read once: each loop and each build is a pass, also after a left one."""
    pytest.importorskip("torchtitan")
    import ringpack.torchtitan

    config = ringpack.torchtitan.dataloader(corpus=corpora[0], seed=3, run_dir=folder)
    config.infinite = False
    form = {"dp_rank": 0, "dp_world_size": 1, "tokenizer": None, "seq_len": 16}
    passes = []
    for _ in range(2):
        built = config.build(**form, local_batch_size=2)
        for _ in range(2):
            next(iter(built))
            passes.append([labels.flatten().tolist() for _, labels in built])
        built.close()
    assert len(passes[0]) > 10 and passes == 4 * passes[:1]
