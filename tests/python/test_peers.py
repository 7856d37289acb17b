# SPDX-License-Identifier: Apache-2.0
"""The comparison with other loaders: its three classes are never mixed, failed loaders are named,
and README.md has the figures of bench/results/peers.json. No peer need be installed."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

SOURCE = Path(os.environ["RP_SOURCE_DIR"])
sys.path[:0] = [str(SOURCE / "bench" / name) for name in ("report", "peers", "")]
import peers as report  # noqa: E402
import peers_chart  # noqa: E402
from documents import replace_between  # noqa: E402
from collate import Packer, fit  # noqa: E402
from peer_list import AROUND, CLASSES, OWN, WINDOWS  # noqa: E402
from tasks.peers import Peers, ratios, with_interval  # noqa: E402

SEED = 16180


def entry(name, kind, rate, ours=False):
    interval = with_interval([1000 / rate] * 6)
    more = {"ours": True} if ours else {"ringpack_per_this": interval, "by_workers": {"0": rate}}
    return {"corpus": "lognormal", "name": name, "kind": kind, "delivers": "ids", "workers": 0,
            "tokens_per_second": {"median": rate * 1e6}, "fill": 0.99, "packs": kind != WINDOWS,
            "resumes_exactly": True, **more}


def result_of(pairs, failed=()):
    """A result with one member of each (class, Mtok/s), and a ringpack of 1000 Mtok/s."""
    speed = [entry(f"member of {kind}", kind, rate) for kind, rate in pairs]
    speed += [entry("ringpack grain", kind, 1000, ours=True) for kind, _ in pairs]
    rounds = {("lognormal", kind): [{f"member of {kind}": (rate, 1000)}] * 6
              for kind, rate in pairs}
    return {"date": "2026-01-01T00:00:00Z", "load": {"before": [0.0], "after": [0.0]},
            "machine": {"cpu": "a cpu", "cores": 2, "memory_bytes": 1 << 30, "kernel": "6",
                        "commit": "abc"},
            "settings": {"repeats": 5, "seconds": 2.0}, "speed": speed, "ratios": ratios(rounds),
            "resume": [], "no_deep_resume": {}, "failed": list(failed), "versions": ["peer==1"],
            "fills": {"lognormal": {"lookahead": 0.9997}}}


EVERYBODY = [(OWN, 20.0), (AROUND, 250.0), (WINDOWS, 800.0)]


def test_a_class_is_compared_with_its_own_members_alone():
    found = {ratio["kind"]: ratio for ratio in result_of(EVERYBODY)["ratios"]}
    assert {kind: ratio["median"] for kind, ratio in found.items()} == {
        OWN: 50.0, AROUND: 4.0, WINDOWS: 1.25}
    assert all(ratio["best"] == f"member of {kind}" for kind, ratio in found.items())


def test_a_ratio_is_over_the_best_member_of_its_round():
    slow, fast = {"a": (10, 100), "b": (20, 100)}, {"a": (50, 300), "b": (20, 300)}
    (ratio,) = ratios({("text", OWN): [slow, fast, fast]})
    assert ratio["values"] == [5.0, 6.0, 6.0] and ratio["best"] == "a"


def test_each_corpus_keeps_its_own_number_of_workers():
    bench = Peers.__new__(Peers)
    bench.settings, bench.names, bench.failed, bench.seconds = {"repeats": 6}, ["litdata"], {}, 1
    bench.alone, bench.workers, bench.by_workers, asked = [], {}, {}, []
    bench._arguments = lambda name, corpus: [name, corpus]
    best = {"lognormal": "0", "text": "2"}

    def run(program, given, prefix):
        asked.append(given["workers"])
        rates = {"0": 1, "2": 1, best[given["ours"][1]]: 9}
        return {"failed": {}, "by_workers": {"litdata": rates}, "rounds": [{}]}

    bench._run = run
    for corpus in best:
        bench._piece(WINDOWS, corpus, [])
    assert asked == [{}, {}]
    assert bench.workers == {("lognormal", "litdata"): 0, ("text", "litdata"): 2}


def test_table_chart_and_sentence_keep_the_classes_apart(capsys):
    result = result_of(EVERYBODY)
    for kind in CLASSES:
        report.print_speed(result, "lognormal", kind)
    blocks = capsys.readouterr().out.split("\nlognormal: ")[1:]
    table = report.table(result).split("\n\n")[1:]
    picture = report.draw_peers(result, "footer")
    for words in blocks, table:
        assert len(words) == 3
        for kind, block in zip(CLASSES, words):
            assert [other for other in CLASSES if f"member of {other} " in block + " "] == [kind]
    places = [picture.index(peers_chart.HEADINGS[kind]) for kind in CLASSES]
    assert places == sorted(places) and "50.0 × (50.0 to 50.0)" in picture
    assert report.sentence(result).count(" × ") == 3


def test_a_class_without_a_member_says_so(capsys):
    result = result_of(EVERYBODY[1:])
    report.print_speed(result, "lognormal", OWN)
    assert "nobody of this class was measured" in capsys.readouterr().out
    assert "nobody measured" in report.draw_peers(result, "footer")
    assert report.sentence(result).count(" × ") == 2
    assert "Not measured in that run: loaders that pack by themselves." in report.sentence(result)
    assert [verdict for label, *_, verdict in report.goals(result) if OWN in label] == [
        "not measured"]


def test_an_interval_is_named_where_there_is_one():
    result = result_of(EVERYBODY)
    assert report.table(result).count("(interval)") == 3
    assert "too few for an interval" not in report.sentence(result)
    for member in [*result["speed"], *result["ratios"]]:
        member.get("ringpack_per_this", member)["interval"] = None
    assert "(interval)" not in report.table(result)
    assert "6 rounds, too few for an interval" in report.sentence(result)


def test_who_failed_is_named_with_the_reason(capsys):
    failed = {"name": "absent", "kind": AROUND, "reason": "it wants another torch"}
    result = result_of(EVERYBODY, [failed])
    report.print_speed(result, "lognormal", AROUND)
    assert "absent             not measured: it wants another torch" in capsys.readouterr().out
    assert "| absent | | not measured | | it wants another torch |" in report.table(result)


@pytest.mark.parametrize(("values", "verdict"), [
    ([41, 42, 43, 44, 45, 50], "met"), ([38, 39, 39, 39, 39.5, 39.9], "NOT MET"),
    ([30, 45, 46, 47, 48, 49], "undecided"), ([41] * 5, "undecided"), (None, "not measured")])
def test_a_goal_inside_the_interval_or_without_one_is_undecided(values, verdict):
    assert report.verdict_of(values and with_interval(values), 40) == verdict


def test_the_packer_keeps_every_token_in_its_place():
    generator = numpy.random.default_rng(SEED)
    lengths = generator.integers(1, 65, 200)
    pieces = [generator.integers(1, 60000, n).astype("<u2") for n in lengths]
    rows = fit(lengths.tolist(), 64)
    assert sorted(piece for row in rows for piece in row) == list(range(200))
    batch = Packer(64)(pieces)
    for row, ids, positions in zip(rows, batch["input_ids"], batch["position_ids"]):
        tokens = numpy.concatenate([pieces[piece] for piece in row])
        places = numpy.concatenate([numpy.arange(lengths[piece]) for piece in row])
        assert ids[: len(tokens)].tolist() == tokens.tolist(), SEED
        assert positions[: len(tokens)].tolist() == places.tolist()
        assert not ids[len(tokens):].any() and (positions[len(tokens):] == -1).all()


def test_documents_say_what_the_named_run_found():
    result = json.loads((SOURCE / "bench/results/peers.json").read_text())
    for name, words in ("README.md", report.sentence), ("bench/findings/peers.md", report.table):
        text = (SOURCE / name).read_text()
        assert replace_between(text, "peers", words(result)) == text, (
            f"{name}: run `build/venv/bin/python bench/report/peers.py bench/results/peers.json "
            "--docs`")
    assert (SOURCE / "bench/results/peers.svg").read_text() == report.chart(result)
    day, commit = result["date"][:10], result["machine"]["commit"]
    for words in report.sentence(result), report.table(result), report.chart(result):
        assert day in words and commit in words
    changed = copy.deepcopy(result)
    changed["ratios"][0]["median"] *= 2
    assert report.sentence(changed) != report.sentence(result)


def test_the_run_goes_on_without_who_is_not_installed(tmp_path):
    """The limits program of bench/end_to_end.py is needed here as well."""
    found = tmp_path / "peers.json"
    subprocess.run(
        [sys.executable, SOURCE / "bench/peers/compare.py", "--build", os.environ["RP_BUILD_DIR"],
         "--data", tmp_path / "data", "--output", found, "--size", "once", "--no-text",
         "--seconds", "0.05", "--python", sys.executable, "--names", "litdata"], check=True)
    result = json.loads(found.read_text())
    failed = {entry["name"]: entry["reason"] for entry in result["failed"]}
    assert "No module named 'litdata'" in failed["litdata"]
    assert result["ratios"] == [] and result["speed"] == []
    assert {entry["name"] for entry in result["resume"]} == {"ringpack min", "ringpack grain"}
    assert report.draw_peers(result, "footer").startswith("<svg")
