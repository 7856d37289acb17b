# SPDX-License-Identifier: Apache-2.0
"""Files of users that hold a state: every form that is written and read, by hand and by the
libraries that trainers use, gives the same token, byte for byte; and no pickle is loaded."""

import json
import os
import pickle
import random
import re
import subprocess
import zipfile
from pathlib import Path

import numpy
import pytest
import ringpack
import xxhash
from stream_kit import Corpus, Engine, Ranks, Stream, token_of

SEED = int(os.environ.get("RP_SEED", "0")) or 31
GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "stream-v1"
FORMS = ["token", "json", "npz", "safetensors"]
PICKED = ["best-fit-split-lanes", "concat", "lookahead-pairs"]


def run(program, *words, **options):
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=600, **options)
    assert done.returncode in (0, 1, 2), (words, done.returncode, done.stderr)
    return done


def refusal(program, *words):
    """Its message, with the next step."""
    done = run(program, *words)
    assert done.returncode == 2, (words, done.stdout)
    assert re.search(r"ringpack: error \w+: .*\n  next: .", done.stderr), done.stderr
    return done.stderr


def golden(name):
    """The last token of a golden stream: the one with the most pieces and open rows before it."""
    states = json.loads((GOLDEN / f"{name}.json").read_text())["states"]
    return bytes.fromhex(max((state["token"] for state in states), key=len))


def imported(program, path):
    out = path.with_name("imported")
    done = run(program, "checkpoint", "import", path, "-o", out)
    assert done.returncode == 0, done.stderr
    return out.read_bytes()


@pytest.fixture(scope="module", params=PICKED)
def files(program, request, tmp_path_factory):
    """A token, and a folder with it in all forms that the program writes."""
    folder, token = tmp_path_factory.mktemp("forms"), golden(request.param)
    (folder / "saved").write_bytes(token + bytes(77))  # as a trainer saves it: with zeros after it
    for form in FORMS:
        done = run(program, "checkpoint", "export", folder / "saved", "-o", folder / f"t.{form}")
        assert done.returncode == 0 and "state token of row" in done.stdout, done.stderr
    return token, folder


def test_every_form_gives_the_token_back(program, files):
    token, folder = files
    assert (folder / "t.token").read_bytes() == token
    shown = json.loads(run(program, "checkpoint", "show", folder / "saved", "--json").stdout)
    for form in FORMS:
        path = folder / f"t.{form}"
        assert imported(program, path) == token
        assert ringpack.import_state(path, program)["ringpack_state"].tobytes() == token
        for words in ["checkpoint", "show", path, "--json"], ["inspect", path, "--json"]:
            told = json.loads(run(program, *words).stdout)
            told = told[0] if isinstance(told, list) else told
            assert {**told, "path": ""} == {**shown, "path": ""}
        again = folder / f"again.{form}"
        ringpack.export_state(path, again, program)
        assert again.read_bytes() == path.read_bytes(), "the same token, another file"
        assert run(program, "checkpoint", "diff", path, folder / "saved").returncode == 0
    fields = json.loads((folder / "t.json").read_text())["ringpack_fields"]
    assert shown["contract"].items() <= fields.items()
    assert fields["next_row"] == str(shown["next_row"])
    lanes = [name for name in fields if name.startswith("lane[")]
    assert len(lanes) >= shown["token"]["lanes"] * 11
    total = sum(int(v) for n, v in fields.items() if n in lanes and n.endswith("].documents"))
    assert total == shown["token"]["documents"]


def test_libraries_read_what_is_written(files):
    token, folder = files
    safetensors = pytest.importorskip("safetensors.numpy")
    assert numpy.load(folder / "t.npz")["ringpack_state"].tobytes() == token
    assert zipfile.ZipFile(folder / "t.npz").testzip() is None
    assert safetensors.load_file(folder / "t.safetensors")["ringpack_state"].tobytes() == token


def test_what_libraries_write_is_read(program, files, tmp_path):
    """A bare state, one with padding, and one within the state of a whole trainer."""
    token, _ = files
    safetensors = pytest.importorskip("safetensors.numpy")
    torch = pytest.importorskip("torch")
    array = numpy.frombuffer(token + bytes(300), numpy.uint8)
    text = ringpack._state.text_of(token)
    others = {"weight": numpy.arange(700.0), "step": numpy.array(3)}
    numpy.savez(tmp_path / "a.npz", ringpack_state=array, **others)
    numpy.savez_compressed(tmp_path / "b.npz", ringpack_state=array, **others)
    safetensors.save_file({"ringpack_state": array, **others}, tmp_path / "c.safetensors")
    safetensors.save_file({"data.ringpack_state": array}, tmp_path / "d.safetensors")
    metadata = {**text, "last text": "a\0b"}
    safetensors.save_file({"weight": others["weight"]}, tmp_path / "e.safetensors", metadata)
    lists = {"step": 4, "last text": "a\0b", "loaders": [text, {"x": text}]}
    (tmp_path / "f.json").write_text(json.dumps(lists))
    state = {"ringpack_state": torch.from_numpy(array.copy())}
    torch.save({"model": {"w": torch.zeros(9)}, "loader": state, "again": state}, tmp_path / "g.pt")
    ringpack.export_state(state, tmp_path / "h.pt", program)
    found = torch.load(tmp_path / "h.pt", weights_only=True)["ringpack_state"]
    assert found.numpy().tobytes() == token
    for path in sorted(tmp_path.iterdir()):
        assert imported(program, path) == token, path
        path.with_name("imported").unlink()


class Hostile:
    """An object whose pickle makes a folder when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_nothing_is_unpickled(program, tmp_path):
    torch = pytest.importorskip("torch")
    token, ran = golden("concat"), str(tmp_path / "ran")
    array = torch.frombuffer(bytearray(token), dtype=torch.uint8)
    torch.save({"x": Hostile(ran), "ringpack_state": array}, tmp_path / "a.pt")
    torch.save({"x": Hostile(ran)}, tmp_path / "b.pt")
    old = {"_use_new_zipfile_serialization": False}
    torch.save({"x": Hostile(ran), "ringpack_state": array}, tmp_path / "c.pt", **old)
    numpy.savez(tmp_path / "d.npz", x=numpy.array([Hostile(ran)]), ringpack_state=array.numpy())
    (tmp_path / "e.pkl").write_bytes(pickle.dumps(Hostile(ran)))
    assert ringpack.import_state(tmp_path / "a.pt", program)["ringpack_state"].tobytes() == token
    assert "its pickle is not read" in refusal(
        program, "checkpoint", "import", tmp_path / "b.pt", "-o", tmp_path / "o")
    for name in "c.pt", "e.pkl":
        refusal(program, "checkpoint", "import", tmp_path / name, "-o", tmp_path / "o")
    assert imported(program, tmp_path / "d.npz") == token
    assert not os.path.exists(ran) and not (tmp_path / "o").exists()


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "safetensors"])
def test_a_field_that_was_edited_is_named(program, files, tmp_path, form):
    token, folder = files
    content = (folder / f"t.{form}").read_bytes()
    changed = re.sub(rb'(next_row"\s*:\s*")(\d)', lambda m: m[1] + b"%d" % (9 - int(m[2])), content)
    assert len(changed) == len(content) and changed != content
    path = tmp_path / f"t.{form}"
    path.write_bytes(changed)
    said = refusal(program, "checkpoint", "show", path)
    assert "the field next_row is" in said and "and its token has" in said
    path.write_bytes(content.replace(b"seq_len", b"seq_lon", 1))
    assert "the field seq_len is missing" in refusal(program, "inspect", path)


def test_a_dropped_field_is_found(program, broken, files, tmp_path, monkeypatch):
    token, folder = files
    out = tmp_path / "t.json"
    assert run(broken, "checkpoint", "export", folder / "saved", "-o", out).returncode == 0
    assert imported(program, out) == token  # the control
    monkeypatch.setenv("RP_DEFECT", "drop_exported_field")
    assert run(broken, "checkpoint", "export", folder / "saved", "-o", out).returncode == 0
    said = refusal(program, "checkpoint", "import", out, "-o", tmp_path / "o")
    assert "the field next_row is missing" in said


def test_two_states_that_differ_are_refused(program, tmp_path):
    one, other = (ringpack._state.state_of(golden(name), 0) for name in PICKED[:2])
    numpy.savez(tmp_path / "two.npz", a=one["ringpack_state"], b=other["ringpack_state"])
    said = refusal(program, "checkpoint", "show", tmp_path / "two.npz")
    assert "two state tokens that differ" in said


def test_a_small_zip_cannot_ask_for_hours(program, tmp_path):
    """Its directory names one member many times, or deflated members of many bytes together."""
    path, token = tmp_path / "a.npz", golden("concat")
    for method in zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED:
        with zipfile.ZipFile(path, "w", method) as file:
            file.writestr("ringpack_state", token)
            file.filelist *= 3
        assert "members overlap" in refusal(program, "checkpoint", "show", path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for number in range(2):
            file.writestr(f"ringpack_state.{number}", token)
        file.filelist[1].file_size = 64 << 20
    assert "bytes together" in refusal(program, "checkpoint", "show", path)


def test_damage_never_gives_another_token(program, files, tmp_path):
    """Flipped bits and cuts anywhere: the token, or a refusal; never another one, or a crash."""
    print(f"RP_SEED={SEED}")
    token, folder = files
    generator, path = random.Random(SEED), tmp_path / "damaged"
    for form in FORMS:
        content = (folder / f"t.{form}").read_bytes()
        for turn in range(12):
            damaged = bytearray(content)
            if turn % 3 == 0:
                del damaged[generator.randrange(len(content)) :]
            else:
                damaged[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
            path.write_bytes(damaged)
            done = run(program, "checkpoint", "import", path, "-o", tmp_path / "out")
            assert done.returncode == 2 or (tmp_path / "out").read_bytes() == token, form


def test_names_and_places(program, files, tmp_path):
    token, folder = files
    saved = folder / "saved"
    said = refusal(program, "checkpoint", "export", saved, "-o", tmp_path / "t.pt")
    assert "ringpack.export_state" in said
    said = refusal(program, "checkpoint", "export", saved, "-o", tmp_path / "t.gz")
    assert "expected .token, .json" in said
    assert "-o FILE" in refusal(program, "checkpoint", "export", saved)
    assert "did you mean `export`" in refusal(program, "checkpoint", "exprot", saved)
    assert "expected one path" in refusal(program, "checkpoint", "show", saved, saved)
    refusal(program, "checkpoint", "export", saved, "-o", tmp_path / "missing" / "t.json")
    refusal(program, "checkpoint", "import", tmp_path, "-o", tmp_path / "t")
    (tmp_path / "empty").touch()
    refusal(program, "checkpoint", "import", tmp_path / "empty", "-o", tmp_path / "t")
    with pytest.raises(ringpack.RingpackError, match="no JSON|no state token|not a state token"):
        ringpack.import_state(Path(__file__), program)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty"]


# ---- runs ----------------------------------------------------------------------------------------


def test_runs_start_from_every_form(program, folder):
    """`serve --state` and Loader.load_state_dict(path), and `diff` of the run's saves."""
    stream = Stream(Corpus(folder, [("megatron", "u16", 2, [40, 30])], SEED), {"num_epochs": 2})
    config = {**stream.config(), "batch_size": 2, "checkpoint_dir": str(folder / "kept")}
    engine = Engine(program, folder, config)
    with Ranks(engine) as ranks:
        saved = []
        for _ in range(2):
            ranks.turn()
            ranks.turn()
            saved.append(engine.checkpoint())
        token = token_of(ranks.loaders[0])
        forms = [folder / f"t.{form}" for form in [*FORMS, "pt"]]
        for path in forms:
            ringpack.export_state(ranks.loaders[0].state_dict(), path, program)
        place = ["--run", engine.run, "--run-dir", folder]
        done = run(program, "checkpoint", "export", *place, "-o", folder / "now.json")
        assert done.returncode == 0, done.stderr
        assert imported(program, folder / "now.json") == imported(program, folder / "kept")
        ranks.turn()
        for path in forms:
            ranks.loaders[0].load_state_dict(path)
            assert token_of(ranks.loaders[0]) == token, path
    assert engine.stop() == 0
    for path in [*forms, folder / "kept"]:
        other = {**config, "run": "other", "checkpoint_dir": "none"}
        engine = Engine(program, folder, other, "--state", path)
        with Ranks(engine) as ranks:
            assert token_of(ranks.loaders[0]) == token or path.name == "kept"
        assert engine.stop() == 0
    first, second = saved
    assert run(program, "checkpoint", "diff", first, first).stdout == ""
    done = run(program, "checkpoint", "diff", first, second)
    assert done.returncode == 1 and done.stdout.startswith("next_row\n  - "), done.stdout
    found = json.loads(run(program, "checkpoint", "diff", first, second, "--json").stdout)
    names = {difference["field"] for difference in found}
    assert {"next_row", "plan_digest", "lane[0000].emitted", "contents.rows"} <= names
    assert not names & {"seed", "seq_len", "config.hash", "batch_size"}
    assert "not compared" in run(program, "checkpoint", "diff", first, forms[0]).stdout
    other_rows = folder / "other"  # before the same row
    content = bytearray(token[:-16])
    content[-1] ^= 1
    other_rows.write_bytes(content + xxhash.xxh3_128_digest(content)[::-1])
    done = run(program, "checkpoint", "diff", forms[0], other_rows)
    assert done.returncode == 1 and done.stdout.startswith("plan_digest\n"), done.stdout
    assert done.stdout.count("\n") == 3


def test_an_export_of_an_older_version_has_no_digest_beside_its_token(program, tmp_path):
    states = json.loads((GOLDEN.parent / "token-v3.json").read_text())
    token, path = bytes.fromhex(states["concat"]["token"]), tmp_path / "t.json"
    (tmp_path / "t.token").write_bytes(token)
    assert run(program, "checkpoint", "export", tmp_path / "t.token", "-o", path).returncode == 0
    saved = json.loads(path.read_text())
    digest = saved["ringpack_fields"].pop("plan_digest")
    path.write_text(json.dumps(saved))
    assert imported(program, path) == token
    saved["ringpack_fields"]["plan_digest"] = digest[::-1]
    path.write_text(json.dumps(saved))
    assert "the field plan_digest is" in refusal(program, "checkpoint", "show", path)
