# SPDX-License-Identifier: Apache-2.0
"""The loader with a real engine: sections against the oracle, and the stream after a resume."""

import json
import logging
import pathlib

import numpy
import pytest
import ringpack
from stream_kit import PATIENCE
from stream_oracle import INPUTS, Expected, assert_batch


def rows_of(loader):
    """The batches of a loader to its end: {first row: input_ids and provenance as bytes}."""
    return {
        batch.first_row: (batch["input_ids"].tobytes(), batch["provenance"].tobytes())
        for batch in loader
    }


@pytest.mark.parametrize("packing", ["lookahead", "concat", "best_fit"])
def test_every_section_is_the_oracles(make, corpora, packing):
    changes = {"packing": packing, "row_gap": None if packing == "concat" else "pad"}
    expected = Expected(corpora[:1], **changes)
    digest = 0
    with make(**changes) as loader:
        for batch in loader:
            assert len(batch) == 9
            assert_batch(batch, expected)
            digest += batch.digest()
    assert batch.next_row >= len(expected.rows) > batch.first_row
    assert digest % 2**128 == expected.digest


def test_weighted_sources_as_dicts(make, corpora):
    expected = Expected(corpora, weights=[3, 1])
    corpus = [{"path": corpora[0], "weight": 3}, {"path": corpora[1], "name": "code"}]
    with make(corpus=corpus) as loader:
        for batch in loader:
            assert_batch(batch, expected)
    assert batch.next_row >= len(expected.rows)


def test_a_list_of_paths(make, corpora):
    expected = Expected(corpora, weights=[1, 1])
    with make(corpus=corpora) as loader:
        for batch in loader:
            assert_batch(batch, expected)
    assert batch.next_row >= len(expected.rows)


def test_config_file_and_options(make, corpora, folder, expected):
    config = folder / "run.yaml"
    config.write_text(f"sources: [{corpora[0]}]\nseq_len: 1\nrun: other\n")
    with make(config=config, corpus=None) as loader:
        assert_batch(next(loader), expected)


def test_the_run_of_a_config_is_the_loaders(make, corpora, folder, expected):
    config = folder / "run.yaml"
    config.write_text(f"sources: [{corpora[0]}]\nrun: named\nrun_dir: {folder}\n")
    with make(config=config, corpus=None, run_dir=None) as loader:
        assert_batch(next(loader), expected)
        assert ringpack.stat("named", folder)["run"] == "named"
        with make(config=config, corpus=None, run_dir=None, run="other") as another:
            assert_batch(next(another), expected)
            assert ringpack.stat("other", folder)["run"] == "other"


def test_types_and_views(make, expected):
    sections = ["labels", "cu_seqlens"]
    with make(profile=None, token_dtype="i64", sections=sections, flat=True) as loader:
        batch = next(loader)
        assert set(batch) == {"rows", "doc_lens", "input_ids", "labels", "cu_seqlens"}
        made, _ = expected.batch(0, 3)
        assert batch["labels"].dtype == numpy.int64
        assert batch["labels"].tolist() == made["labels"].ravel().tolist()
        assert batch.view("labels", flat=False).tolist() == made["labels"].tolist()


def test_the_position_is_one_log_line(make, caplog):
    caplog.set_level(logging.INFO, "ringpack")
    with make():
        pass
    lines = [record.message for record in caplog.records if record.name == "ringpack"]
    assert len(lines) == 1
    assert lines[0].startswith("rank 0 of 1 (no launcher), run python-")
    assert any(record.name == "ringpack.engine" for record in caplog.records)


# ---- state --------------------------------------------------------------------------------------


def test_resume_at_every_batch(make):
    """From each position in turn, attached or not: the rest of the stream, bit for bit."""
    with make() as loader:
        states, numbers = [loader.state_dict()], []
        whole = {}
        for batch in loader:
            whole[batch.first_row] = (batch["input_ids"].tobytes(), batch["provenance"].tobytes())
            numbers.append(batch.first_row)
            states.append(loader.state_dict())
        del batch
        assert len(numbers) > 20
        for k in reversed(range(len(states))):
            loader.load_state_dict(states[k])
            again = loader.state_dict()["ringpack_state"]
            assert again.tobytes() == states[k]["ringpack_state"].tobytes(), (
                "saved straight after loading"
            )
            rest = rows_of(loader)
            assert rest == {row: whole[row] for row in numbers[k:]}, f"resumed at batch {k}"


def test_a_closed_loader_tells_where_it_stood_and_starts_nothing(make):
    with make() as loader:
        for _ in range(3):
            next(loader)
        told = loader.state_dict(text=True), loader.next_row, loader.counts()
    assert (loader.state_dict(text=True), loader.next_row, loader.counts()) == told
    assert told[1:] == (9, loader.counts()) and told[2]["batches"] == 3
    assert loader.engine_pid is None
    loader.load_state_dict(make().state_dict())
    assert loader.next_row == 0, "what is loaded is asked of the engine"


@pytest.mark.parametrize("at", [0, 1, 7])
def test_resume_in_a_new_engine_through_json(make, at):
    with make() as loader:
        whole = rows_of(loader)
    with make() as loader:
        for _ in range(at):
            next(loader)
        text = json.dumps(loader.state_dict(text=True))
    other = make()
    other.load_state_dict(json.loads(text))
    assert rows_of(other) == {row: data for row, data in whole.items() if row >= 3 * at}


def test_resume_with_another_batch_size(make, expected):
    with make() as loader:
        for _ in range(4):
            next(loader)
        state = loader.state_dict()
    with make(batch_size=5, readers=2, packers=2, prefetch_factor=8) as loader:
        loader.load_state_dict(state)
        first = next(loader)
        assert first.first_row == 12
        assert_batch(first, expected)
        for batch in loader:
            assert_batch(batch, expected)


def test_a_state_of_another_stream_is_refused(make, expected):
    with make(seed=8) as loader:
        next(loader)
        foreign = loader.state_dict()
    with make() as loader:
        next(loader)
        with pytest.raises(ringpack.CheckpointMismatchError, match="seed") as raised:
            loader.load_state_dict(foreign)
        assert raised.value.hint
        batch = next(loader)
        assert batch.first_row == 3, "the loader stays where it was"
        assert_batch(batch, expected)
        damaged = loader.state_dict()
        damaged["ringpack_state"][40] ^= 1
        with pytest.raises(ringpack.CorruptError):
            loader.load_state_dict(damaged)
        assert next(loader).first_row == 6


def test_resume_from_the_engines_checkpoint(make, folder):
    with make() as loader:
        whole = rows_of(loader)
    with make(checkpoint_dir=folder / "checkpoints") as loader:
        for _ in range(5):
            batch = next(loader)
            del batch
    with make(checkpoint_dir=folder / "checkpoints") as loader:
        row = loader.next_row
        assert 0 < row <= 15
        assert rows_of(loader) == {at: data for at, data in whole.items() if at >= row}


# ---- views --------------------------------------------------------------------------------------


def test_views_outlive_batch_loader_and_engine(make, expected):
    loader = make(prefetch_factor=8)
    views = []
    for batch in loader:
        if batch.number in (0, 3, 5):
            views.append((batch.first_row, batch["input_ids"][:, 1:]))
        if batch.number == 7:
            break
    loader.close()
    for row, view in views:
        assert (view == expected.batch(row, 3)[0]["input_ids"][:, 1:]).all()


def test_no_free_slot_is_an_error_and_not_a_hang(make):
    with make(prefetch_factor=4) as loader:
        held = [next(loader)["labels"] for _ in range(4)]
        with pytest.raises(ringpack.LeaseError, match=r"batch 0 \(views of labels\)"):
            next(loader)
        held.clear()
        assert next(loader).number == 4


def test_torch(make, expected):
    torch = pytest.importorskip("torch")
    with make(return_type="torch", token_dtype="i64") as loader:
        for batch in loader:
            tensor = batch["input_ids"]
            assert tensor.dtype == torch.int64
            assert tensor.tolist() == expected.batch(batch.first_row, 3)[0]["input_ids"].tolist()
        assert loader.state_dict()["ringpack_state"].dtype == torch.uint8


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, error, text",
    [
        ({"seq_length": 4}, ringpack.UsageError, "seq_length: neither .* did you mean seq_len?"),
        ({"max_frobnication": 4}, ringpack.UsageError, r"max_frobnication: neither .* config\n"),
        ({"retrun_type": "numpy"}, ringpack.UsageError, "did you mean return_type?"),
        ({"start_step": -1}, ringpack.UsageError, "--start-step: expected .* found `-1`"),
        ({"corpus": 5}, ringpack.UsageError, "corpus: expected a path, .* found 5"),
        ({"corpus": b"a"}, ringpack.UsageError, "corpus: expected a path, .* found b'a'"),
        ({"corpus": ["a", None]}, ringpack.UsageError, r"corpus: .* found \['a', None\]"),
        ({"batch_size": "4"}, TypeError, "batch_size is '4': expected a whole number"),
        ({"seq_len": 64.0}, TypeError, "seq_len is 64.0: expected a whole number"),
        ({"keep": 2.5}, TypeError, "keep is 2.5: expected a whole number"),
        ({"alert_command": ["a", "b,c"]}, ringpack.UsageError, "'b,c': a word .* a comma"),
        ({"profile": "maxtex"}, ringpack.ConfigError, "full, .* megatron_rows, megatron_thd, .* "
                                                      "did you mean maxtext?"),
        ({"packing": "tight"}, ringpack.ConfigError, "packing"),
        ({"corpus": "/nowhere/a"}, ringpack.RingpackError, "/nowhere/a"),
        ({"batch_size": 0}, ringpack.UsageError, "batch_size is 0: expected 1 or more"),
    ],
)
def test_the_engines_refusal_is_the_exception(make, changes, error, text):
    with pytest.raises(error, match=text) as raised:
        make(**changes).attach()
    assert "Traceback" not in str(raised.value)


@pytest.mark.parametrize("command", [pathlib.Path("/bin/true"), ["/bin/true", 3], {"/bin/true"}])
def test_words_of_a_command(make, command):
    with make(alert_command=command) as loader:
        assert next(loader).first_row == 0


@pytest.mark.parametrize(
    "options, text",
    [
        ({"timeout": 1}, "timeout: no parameter of Loader .*keys of the config need"),
        ({"start_timeot": 1}, "start_timeot: no parameter .*; did you mean start_timeout"),
        ({"profile": "mine"}, "profile='mine': only an engine that starts here takes it"),
    ],
)
def test_what_a_loader_that_only_attaches_does_not_take(options, text):
    with pytest.raises(TypeError, match=text):
        ringpack.Loader(run="x", **options)


@pytest.mark.parametrize("timeout", [float("nan"), "1", b"", [1], True])
def test_a_timeout_is_a_number_of_seconds(make, timeout):
    """NaN waited for ever."""
    with make() as loader, pytest.raises((TypeError, ValueError), match="timeout is .*: expected"):
        loader._wait(loader.attach()._client, None, timeout)


def test_a_position_after_something_else_is_refused(make):
    with make(copy=True) as loader:
        batch = next(loader)
        with pytest.raises(TypeError, match="batch is of type dict: expected a Batch"):
            loader.state_dict(batch)
        assert (loader.state_dict(True) == loader.state_dict(text=True)) is True


def test_a_closed_loader_goes_on_at_its_position(make):
    loader = make()
    first = next(loader)
    number, pid = first.number, loader.engine_pid
    loader.close()
    with loader:
        assert next(loader).number == number + 1
        assert loader.engine_pid != pid


@pytest.mark.parametrize("corpus", ["books.bin", "/usr"])
def test_a_corpus_in_the_place_of_the_config(corpus):
    with pytest.raises(ringpack.UsageError, match="is a corpus") as raised:
        ringpack.Loader(corpus, seq_len=64)
    assert raised.value.hint == f"Loader(corpus={corpus!r}, ...)"


@pytest.mark.parametrize("state", [None, [], b"RPSTATE"])
def test_a_state_that_is_no_dict(state):
    with pytest.raises(ringpack.UsageError, match="expected a dict"):
        ringpack.Loader(corpus="a", seq_len=8).load_state_dict(state)


@pytest.mark.parametrize("empty", ["", b"", [], bytes(8), numpy.zeros(256, numpy.uint8)])
def test_an_empty_state_is_no_position(empty):
    """A checkpoint that was not read leaves zeros in its place: that is not the beginning."""
    with pytest.raises(ringpack.UsageError, match="is empty"):
        ringpack.Loader(corpus="a", seq_len=8).load_state_dict({"ringpack_state": empty})


def test_an_engine_that_is_not_there(program, folder):
    with pytest.raises(ringpack.EngineGoneError, match="nobody"):
        ringpack.Loader(run="nobody", run_dir=folder, connect_timeout=0.1).attach()


def test_one_trainer_for_a_rank_and_one_shape(make, folder):
    with make(run="mine") as loader:
        for wrong, error in (
            ({}, ringpack.BusyError),
            ({"seq_len": INPUTS["seq_len"] + 1}, ringpack.CheckpointMismatchError),
            ({"batch_size": 4}, ringpack.CheckpointMismatchError),
            ({"dp_rank": 0, "dp_world_size": 2}, ringpack.CheckpointMismatchError),
            ({"dp_rank": 1, "dp_world_size": 2}, ringpack.RingpackError),
        ):
            if error is not ringpack.BusyError:
                loader._detach()  # until the engine has seen it, the rank is taken
            patience = 0.1 if error is ringpack.BusyError else PATIENCE
            with pytest.raises(error):
                ringpack.Loader(
                    run="mine", run_dir=folder, connect_timeout=patience, **wrong
                ).attach()
        assert next(loader).number == 0
        assert ringpack.stat("mine", folder)["run"] == "mine"


@pytest.mark.parametrize("given", [[{"path": "a"}], {"path": "a"}, ("a", "b"), 7])
def test_a_config_that_is_no_path(given):
    with pytest.raises(ringpack.UsageError, match="expected the path of a YAML config") as raised:
        ringpack.Loader(given, seq_len=8)
    assert "Loader(corpus=...)" in raised.value.hint


def test_options_of_serve_that_are_no_keys(make, corpora, expected):
    """With accept_weights and fresh a state of other weights continues; the length is known as
    well."""
    both = [{"path": path, "weight": weight} for path, weight in zip(corpora, (3, 1))]
    with make(corpus=both) as loader:
        next(loader)
        state = loader.state_dict()
        length = len(loader)
    both[0]["weight"] = 1
    with make(corpus=both, accept_weights=False, fresh=True) as loader:
        with pytest.raises(ringpack.CheckpointMismatchError) as raised:
            loader.load_state_dict(state)
        assert "--accept-weights" in raised.value.hint
    with make(corpus=both, accept_weights=True, fresh=False, state=None) as loader:
        loader.load_state_dict(state)
        assert next(loader).first_row == 3
        assert abs(len(loader) - length) <= 2
    with pytest.raises(TypeError, match="accept_weights is 'yes': expected True or False"):
        make(accept_weights="yes")


@pytest.mark.parametrize("number", [numpy.float64, numpy.float32, float, str])
def test_weights_are_numbers_of_any_type(make, corpora, number):
    """A state of the same weights fits."""
    given = {0.7: number("0.7"), 1e-5: number("1e-05")}

    def sources(of):
        return [{"path": p, "weight": of(w)} for p, w in zip(corpora, given)]

    with make(corpus=sources(lambda weight: weight)) as loader:
        next(loader)
        state = loader.state_dict()
    with make(corpus=sources(given.get)) as loader:
        loader.load_state_dict(state)
        assert next(loader).first_row > 0
