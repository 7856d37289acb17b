# SPDX-License-Identifier: Apache-2.0
"""Weights that change while the engine runs: rows before the step stay, rows from it on are the
oracle's with the record, in this engine and in those after a kill."""

import pytest
import ringpack
from live_kit import NEW, STEP_ROWS, LiveStream, set_weights, take
from stream_kit import Ranks, token_of


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    return LiveStream(tmp_path_factory.mktemp("corpus"))


def test_rows_from_the_step_on(engines, program, folder, stream):
    engine = stream.start(engines, program, folder)
    row = 6 * STEP_ROWS
    rows, old = stream.rows_from(row), stream.rows()
    assert rows[:row] == old[:row] and rows[row:] != old[row:]
    with Ranks(engine, 2) as ranks:
        seen = take(ranks.turns(4), rows)
        assert "row 24" in set_weights(program, engine, NEW, 6)
        seen += take(ranks.turns(), rows)
    assert sorted(set(seen)) == list(range(len(seen))) and len(seen) >= len(rows)
    assert engine.stop() == 0
    (entry,) = stream.entries(folder)
    assert (entry["row"], entry["weights"]) == (row, "source-0=1 source-1=4")


def test_a_begun_step_is_refused(engines, program, folder, stream):
    engine = stream.start(engines, program, folder)
    with Ranks(engine, 2) as ranks:
        seen = take(ranks.turns(6), stream.rows())
        for step in range(4):  # batches ahead are also published
            text = set_weights(program, engine, NEW, step, status=2)
            assert f"step {step} is begun" in text and "name step" in text
        seen += take(ranks.turns(), stream.rows())
    assert sorted(seen)[: len(stream.rows())] == list(range(len(stream.rows())))
    assert engine.stop() == 0 and stream.entries(folder) == []


def test_several_changes_and_a_rollback(engines, program, folder, stream):
    """The later record first; and trainers that go back get the same rows again."""
    other = {"source-0": "0.5", "source-1": "0.25"}
    records = (28, {"source-0": 2, "source-1": 1}), (48, NEW)
    rows = stream.rows(*records)
    engine = stream.start(engines, program, folder, drop_last=True)
    with Ranks(engine, 2) as ranks:
        take(ranks.turns(2), rows)
        set_weights(program, engine, NEW, 12)
        token = token_of(ranks.loaders[0])
        set_weights(program, engine, other, 7)
        assert "other weights" in set_weights(program, engine, other, 12, status=2)
        take(ranks.turns(40), rows)
    with Ranks(engine, 2, token) as ranks:
        take(ranks.turns(), rows)
    engine.kill()


def test_a_rank_that_is_ahead(engines, program, folder, stream):
    """The step is begun if one rank has begun it; the other rank is served as before."""
    engine = stream.start(engines, program, folder, prefetch_factor=4, packer_processes=True)
    rows = stream.rows((8 * STEP_ROWS, NEW))
    with Ranks(engine, 2) as ranks:
        ahead, behind = ranks.loaders
        seen = take(([ahead.next(timeout=60)] for _ in range(3)), rows)
        set_weights(program, engine, NEW, 8)
        seen += take(([ahead.next(timeout=60)] for _ in range(1)), rows)
        seen += take(([behind.next(timeout=60)] for _ in range(4)), rows)
        seen += take(ranks.turns(), rows)
    assert sorted(seen)[: len(rows)] == list(range(len(rows)))
    engine.kill()


def test_a_rank_that_catches_up(engines, program, folder, stream):
    """Its own flow, and plans, have the record as well."""
    rows = stream.rows((24 * STEP_ROWS, NEW))
    engine = stream.start(engines, program, folder)
    with Ranks(engine, 2) as ranks:
        take(ranks.turns(4), rows)
        token = token_of(ranks.loaders[1])
        take(ranks.turns(30), rows)
        ranks.loaders.pop().close()
        with ringpack.Loader(dp_rank=1, dp_world_size=2, run="live", run_dir=folder) as late:
            late.load_state_dict({"ringpack_state": token})
            late.attach()
            seen = take(([late.next(timeout=60)] for _ in range(5)), rows)
            set_weights(program, engine, NEW, 24)
            seen += take(([late.next(timeout=60)] for _ in range(25)), rows)
            assert seen[0] == 9 and len(set(seen)) == 30
            ranks.loaders.append(late)
            seen = take(ranks.turns(), rows)
    assert max(seen) >= len(rows) - 1
    engine.kill()


def test_deal_windows(engines, program, folder, tmp_path):
    """A row inside a window that is begun is refused; one inside a later window ends that one."""
    deal = {"window": 32, "step": STEP_ROWS, "tier": 2, "bundle": 1, "order": "descending", "K": 64}
    stream = LiveStream(tmp_path, deal)
    rows = stream.rows((44, NEW))
    engine = stream.start(engines, program, folder)
    with Ranks(engine, 2) as ranks:
        take(ranks.turns(3), rows)
        text = set_weights(program, engine, NEW, 7, status=2)
        assert "row 28 is begun" in text and "row 32" in text
        set_weights(program, engine, NEW, 11)
        take(ranks.turns(20), rows)
        engine.checkpoint()
        engine.kill()
    engine = stream.start(engines, program, folder)
    with Ranks(engine, 2) as ranks:
        take(ranks.turns(), rows)
    engine.kill()


def test_stages_and_ramps(engines, program, folder, stream):
    weights = {"source-0": 1, "source-1": 2}
    stages = [{"until": "8 steps"}, {"until": "16 steps", "weights": weights, "ramp": 24},
              {"weights": NEW}]
    engine = stream.start(engines, program, folder, stages=stages)
    for step, what in (8, "both the stage and the record here set weights"), (9, "inside a ramp"):
        assert what in set_weights(program, engine, NEW, step, status=2)
    set_weights(program, engine, NEW, 14)
    assert engine.stop() == 0


def test_engines_that_take_none(engines, program, folder, stream):
    config = stream.config(folder)
    engine = engines(program, folder, config)
    assert "does not accept other weights" in set_weights(program, engine, NEW, 5, status=2)
    engine.kill()
    engine = engines(program, folder, {**config, "checkpoint_dir": "none"}, "--accept-weights")
    assert "no run journal" in set_weights(program, engine, NEW, 5, status=2)
    engine.kill()
    config |= {"stream_version": 1}
    del config["spread"]
    config["sources"] = stream.corpus.sources
    engine = engines(program, folder, config, "--accept-weights", "--fresh")
    assert "stream of version 1" in set_weights(program, engine, NEW, 5, status=2)
    engine.kill()


def test_a_journal_that_cannot_be_written(engines, program, folder, stream):
    """The command is refused, and no row changes."""
    engine = stream.start(engines, program, folder)
    journal = folder / "c" / "run-journal.jsonl"
    journal.rename(folder / "kept")
    journal.write_text("no chain\n" * 200)
    with Ranks(engine, 2) as ranks:
        assert "run-journal" in set_weights(program, engine, NEW, 6, status=2)
        (folder / "kept").rename(journal)
        take(ranks.turns(20), stream.rows())
    assert engine.stop() == 0 and stream.entries(folder) == []


def test_a_fresh_start_has_the_weights_of_its_config(engines, program, folder, stream):
    engine = stream.start(engines, program, folder)
    set_weights(program, engine, NEW, 3)
    assert engine.stop() == 0
    engine = stream.start(engines, program, folder, "--fresh")
    with Ranks(engine, 2) as ranks:
        take(ranks.turns(12), stream.rows())
    engine.kill()


def test_a_late_change_is_found(engines, program, folder, stream, broken, monkeypatch):
    """With the defect, rows that a rank has begun keep their weights, and the record says other."""
    monkeypatch.setenv("RP_DEFECT", "take_late_weights")
    with pytest.raises(AssertionError):
        test_a_begun_step_is_refused(engines, broken, folder, stream)
