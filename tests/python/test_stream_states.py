# SPDX-License-Identifier: Apache-2.0
"""States of Loaders with streams: each has the positions of all streams, also of a loader that only
attaches; a position in another stream is refused when it is loaded."""

import base64
import json

import numpy
import pytest
import ringpack
from ringpack import _state
from ringpack._passes import Passing
from ringpack._streams import Streamed
from loader_streams_kit import CHANGES_SEQ_LEN, STREAMS, rows_of, run_ranks
from loader_streams_kit import held_out, open_streams, serve  # noqa: F401
from stream_kit import PATIENCE


def test_a_state_has_all_streams(open_streams, held_out, tmp_path, program):
    with open_streams() as train:
        held = train.stream("eval")
        next(train), next(train)
        start = train.state_dict()
        for number, _ in enumerate(held):
            if number == 1:
                inside = train.state_dict()
                break
        after = train.state_dict()
        sizes = {len(state["ringpack_state"]) for state in (start, inside, after)}
        assert len(sizes) == 1 and (start["ringpack_state"] == after["ringpack_state"]).all()
        text = json.loads(json.dumps(train.state_dict(text=True)))
        whole = rows_of(held, held_out)
        for state in inside, start, text:
            train.load_state_dict(state)
            assert train.next_row == 6
            assert rows_of(held) == (whole[6:] if state is inside else whole)
            assert rows_of(held) == whole
    with open_streams() as resumed:
        resumed.load_state_dict(inside)
        assert next(resumed).first_row == 6
        assert rows_of(resumed.stream("eval")) == whole[6:]
        assert rows_of(resumed.stream("eval")) == whole


def test_each_form_of_a_state_has_all_streams(open_streams, held_out, tmp_path, program):
    """Files of trainers: the program and the loader find the stream that is named."""
    torch = pytest.importorskip("torch")
    with open_streams() as train:
        held = train.stream("eval")
        for _ in range(4):
            next(train)
        for number, _ in enumerate(held):
            if number == 1:
                state = train.state_dict()
                break
        files = {form: tmp_path / f"state.{form}" for form in ("npz", "json", "pt", "bin")}
        numpy.savez(files["npz"], **state)
        torch.save({"ringpack_state": torch.from_numpy(state["ringpack_state"])}, files["pt"])
        files["bin"].write_bytes(state["ringpack_state"].tobytes())
        encoded = base64.b64encode(state["ringpack_state"].tobytes()).decode()
        files["json"].write_text(json.dumps({"deep": {"ringpack_state": encoded}}))
        for path in files.values():
            assert ringpack.describe(path)["next_row"] == 12
            assert ringpack.describe(ringpack.import_state(path, stream="eval"))["next_row"] == 6
            next(train)
            train.load_state_dict(path)
            assert train.next_row == 12 and rows_of(held) == list(range(6, 3 * len(held)))
            with pytest.raises(ringpack.UsageError, match="its other streams are eval, other"):
                ringpack.import_state(path, stream="evil")
        plain = tmp_path / "plain.npz"
        ringpack.export_state(ringpack.import_state(files["pt"]), plain)
        train.load_state_dict(plain)
        assert rows_of(held) == list(range(3 * len(held))), "a state of one stream"


def test_a_state_resumes_with_other_ranks(open_streams, held_out):
    with open_streams() as train:
        next(train)
        for number, _ in enumerate(train.stream("eval")):
            if number == 1:
                state = train.state_dict()
                break
    world = {"dp_world_size": 2, "run": "wider", "batch_size": 1}
    loaders = [open_streams(dp_rank=rank, **world) for rank in range(2)]

    def work(rank, train, barrier):
        train.load_state_dict(state)
        row = next(train)["rows"]["row"].tolist()
        rest = rows_of(train.stream("eval"), held_out)
        barrier.wait(PATIENCE)
        return row, rest, rows_of(train.stream("eval"))

    (one, rest, whole), (two, more, all_of) = run_ranks(loaders, work)
    count = len(held_out.rows)
    assert one + two == [3, 4]
    assert sorted(rest + more)[: count - 6] == list(range(6, count))
    assert sorted(whole + all_of)[:count] == list(range(count))


def test_states_with_and_without_streams_fit_each_other(open_streams, make, caplog):
    with open_streams() as train, make(num_epochs="endless") as plain:
        next(train), next(plain)
        several, one = train.state_dict(), plain.state_dict()
        plain.load_state_dict(several)
        assert "which this loader has not" in caplog.text and plain.next_row == 3
        for _ in zip(train.stream("eval"), range(2)):
            pass
        train.load_state_dict(one)
        assert train.next_row == 3 and rows_of(train.stream("eval"))[0] == 0


def test_a_loader_that_only_attaches_saves_all_streams(serve, folder, held_out, tmp_path):
    """Its states equal the other loader's, also of streams that it never opened. A
    position that was loaded before it knew the streams is not lost."""
    serve(num_epochs="endless")
    with ringpack.Loader(folder / "config.yaml", run="own") as own:
        next(own)
        own_state = own.state_dict()
    with ringpack.Loader(run="served", run_dir=folder) as train:
        next(train)
        state = train.state_dict()
        assert (state["ringpack_state"] == own_state["ringpack_state"]).all()
        for number, _ in enumerate(train.stream("eval")):
            if number == 1:
                inside = train.state_dict()
                break
    assert (train.state_dict()["ringpack_state"] == state["ringpack_state"]).all(), "closed"
    whole = list(range(3 * len(own.stream("eval"))))
    numpy.savez(tmp_path / "state.npz", **inside)
    for form in inside, tmp_path / "state.npz":
        resumed = ringpack.Loader(run="served", run_dir=folder)
        resumed.load_state_dict(form)
        assert resumed.streams == tuple(STREAMS)
        unaware = ringpack.Loader(run="served", run_dir=folder)
        unaware.load_state_dict(form)
        for loader in resumed, unaware:
            with loader:
                assert next(loader).first_row == 3
                saved = loader.stream("train").state_dict()["ringpack_state"]
                assert len(saved) == len(inside["ringpack_state"])
                assert rows_of(loader.stream("eval"), held_out) == whole[6:]


def test_a_state_is_known_after_close_without_a_pass(open_streams):
    with open_streams() as train:
        next(train)
        state = train.state_dict()
    with open_streams() as unused:
        next(unused)
    closed = unused.state_dict()
    assert (closed["ringpack_state"] == state["ringpack_state"]).all()
    unused.load_state_dict(state)
    assert len(unused.state_dict()["ringpack_state"]) == len(state["ringpack_state"])


def test_a_position_in_another_stream_is_refused_when_it_is_loaded(open_streams, make, corpora):
    """A pass that was not whole can only continue in its stream; between two passes a stream of the
    same name may have become another one."""
    with open_streams() as train:
        next(train)
        between = train.state_dict()
        for number, _ in enumerate(train.stream("eval")):
            if number == 1:
                inside = train.state_dict()
                break
    streams = {"train": {}, "eval": {"num_epochs": 1, "seq_len": 64}, "other": STREAMS["other"]}
    other = {"num_epochs": "endless", "streams": streams}
    with make(**other) as train:
        for _ in range(3):
            next(train)
        with pytest.raises(ringpack.CheckpointMismatchError, match="stream eval: ") as failure:
            train.load_state_dict(inside)
        assert failure.value.hint and train.next_row == 9
        whole = rows_of(train.stream("eval"))
        assert whole == list(range(3 * len(train.stream("eval"))))
        train.load_state_dict(between)
        assert train.next_row == 3 and rows_of(train.stream("eval")) == whole
    late = make(**other)
    late.load_state_dict(inside)
    with pytest.raises(ringpack.CheckpointMismatchError, match="stream eval: "):
        late.attach()
    late.load_state_dict(between)
    with late:
        assert next(late).first_row == 3 and rows_of(late.stream("eval")) == whole


def test_a_stage_of_another_seq_len_in_the_training(make, corpora, folder):
    """It ends all engines; the next loader has the next rows, and the rest of a pass."""
    held = {"corpus": corpora[1], "num_epochs": 1}
    stages = [*CHANGES_SEQ_LEN[:1], {"seq_len": 64, "until": "row 12"}, {"seq_len": 48}]
    streams = {"train": {"num_epochs": "endless", "stages": stages}, "eval": held}
    keys = {"stream_version": 2, "run": "staged", "streams": streams}
    rows, rests, state = [], [], None
    for _ in range(2):
        with make(**keys) as train:
            if state is not None:
                train.load_state_dict(state)
                rests.append(rows_of(train.stream("eval")))
            rows += [(batch.first_row, batch.seq_len) for batch in train]
            assert train.stage_ended
            for number, _ in enumerate(train.stream("eval")):
                if number == 1:
                    state = train.state_dict()
                    break
            whole = rows_of(train.stream("eval"))
    assert rows == [(0, 48), (3, 48), (6, 64), (9, 64)]
    assert rests == [whole[6:]]


def test_a_length_leaves_a_loaded_position(open_streams, held_out):
    with open_streams() as train:
        held = train.stream("eval")
        whole = rows_of(held, held_out)
        for number, _ in enumerate(held):
            if number == 1:
                inside = train.state_dict()
                break
    for read in len, list:
        with open_streams() as resumed:
            resumed.load_state_dict(inside)
            held = resumed.stream("eval")
            rest = len(read(held)) if read is list else read(held) - 2
            assert rest == len(whole) // 3 - 2
            assert rows_of(held) == (whole if read is list else whole[6:])
            assert rows_of(held) == whole


def end_pass_at_length(loader):
    was_idle, length = loader._client is None, Passing.__len__(loader)
    if was_idle and loader._parent is not None:
        loader._end_pass("its length was read")
    return length


def test_control_a_length_that_ends_the_pass(open_streams, held_out, monkeypatch):
    monkeypatch.setattr(Streamed, "__len__", end_pass_at_length)
    with pytest.raises(AssertionError):
        test_a_length_leaves_a_loaded_position(open_streams, held_out)


def test_a_file_of_one_stream_loses_no_position(open_streams, tmp_path, program):
    torch = pytest.importorskip("torch")
    with open_streams() as train:
        next(train)
        between = train.state_dict()
        next(iter(train.stream("eval")))
        iterator = iter(train.stream("eval"))
        next(iterator), next(iterator)
        within = train.state_dict()
    for form in "token", "json", "npz", "safetensors":
        path = tmp_path / f"state.{form}"
        with pytest.raises(ringpack.UsageError, match="of stream eval within a pass") as raised:
            ringpack.export_state(within, path)
        assert "ends with .pt" in raised.value.hint and not path.exists()
        ringpack.export_state(between, path)
        assert ringpack.describe(path)["next_row"] == 3
    path = tmp_path / "state.pt"
    ringpack.export_state(within, path)
    assert torch.load(path)["ringpack_state"].tolist() == within["ringpack_state"].tolist()
    with open_streams() as resumed:
        resumed.load_state_dict(path)
        assert next(resumed).first_row == 3
        assert next(iter(resumed.stream("eval"))).first_row == 6


@pytest.mark.parametrize("name", ["split_states", "_save_torch"])
def test_control_an_export_of_the_main_stream_only(open_streams, tmp_path, program, monkeypatch,
                                                   name):  # fmt: skip
    """A form of one stream that drops a position, and a .pt that lacks the other streams."""
    whole, save = _state.split_states, _state._save_torch
    broken = {
        "split_states": lambda state: (whole(state)[0], {}),
        "_save_torch": lambda state, path: save(whole(state)[0], path),
    }
    monkeypatch.setattr(_state, name, broken[name])
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_a_file_of_one_stream_loses_no_position(open_streams, tmp_path, program)
