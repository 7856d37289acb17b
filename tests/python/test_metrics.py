# SPDX-License-Identifier: Apache-2.0
"""`ringpack metrics`: its figures in Prometheus, its answers on engines that end, hang or are
false, and the load of readers, which does not reach engines."""

import contextlib
import json
import re
import resource
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest
from browser_kit import SCHEMES, TIME, browse, width_on
import ringpack
from conftest import ROOT
from stream_kit import LONG, PATIENCE, Corpus, Engine, Ranks, wait_until
from watch_kit import FakeEngine, Metrics, stat_of

MONITORING = ROOT / "tools" / "monitoring"
NAMES = ['we"b\\', "code"]  # a label's value is escaped
HOSTILE = 'a\n"\\\u2028<script>'


@pytest.fixture(scope="module")
def served(program, tmp_path_factory):
    """An engine of two ranks that have taken batches, and its metrics."""
    folder = tmp_path_factory.mktemp("m")
    corpus = Corpus(folder, [("megatron", "u16", 1, [40]), ("npy", "u16", 1, [30])], 5)
    for name, source in zip(NAMES, corpus.sources):
        source["name"] = name
    shape = {"batch_size": 2, "dp_world_size": 2, "global_batch_size": 4, "num_epochs": 9}
    limits = {"alert_skew_rows": 1000, "alert_command": "true"}
    config = {"sources": corpus.sources, "seq_len": 48, **shape, **limits}
    engine = Engine(program, folder, config)
    ranks = Ranks(engine, 2)
    for _ in ranks.turns(5):
        pass
    with Metrics(program, folder) as metrics:
        yield engine, ranks, metrics
    ranks.close()
    engine.kill()


def families_of(text):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def values(families, name):
    """Labels without `run`, and values."""
    found = {}
    for sample in families[name].samples:
        labels = {key: value for key, value in sample.labels.items() if key != "run"}
        found[tuple(labels.values())] = sample.value
    return found


def test_openmetrics_is_what_stat_says(served):
    engine, _, metrics = served
    status, text, kind = metrics.ask("/metrics")
    assert status == 200 and text.endswith("# EOF\n")
    assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    families, stat = families_of(text), ringpack.stat(engine.run, engine.folder)
    for family in families.values():  # without a fault
        assert family.documentation and family.name.startswith("ringpack_")
        assert family.name.endswith(family.unit)
    for name, key in ("rows", "rows"), ("tokens", "tokens"), ("next_row", "next_row"):
        assert values(families, f"ringpack_{name}") == {(): stat[key]}
    ranks = {(str(r["rank"]), str(r["replica"])): r for r in stat["ranks"]}
    for name, key in ("rank_released_batches", "release"), ("rank_slots", "slots"):
        assert values(families, f"ringpack_{name}") == {k: r[key] for k, r in ranks.items()}
    waits = families["ringpack_rank_wait_seconds"].samples
    counts = {s.labels["rank"]: s.value for s in waits if s.name.endswith("_count")}
    assert counts == {str(r["rank"]): r["waits"] for r in stat["ranks"]}
    causes = values(families, "ringpack_rank_wait_cause_seconds")
    assert causes == {
        (*key, cause): pytest.approx(seconds, abs=1e-6)
        for key, rank in ranks.items()
        for cause, seconds in rank["cause_seconds"].items()
    }
    assert {cause for _, _, cause in causes} >= {"disk", "network", "plan", "pack", "trainer"}
    alerts = {(a["alert"],): a["raised"] for a in stat["alerts"]}
    assert values(families, "ringpack_alert_raised") == alerts and len(alerts) == 7
    taken = {(s["source"],): s["documents"] for s in stat["ledger"]}
    assert values(families, "ringpack_source_taken_documents") == taken
    sources = {(s["source"],): s["tokens"] for s in stat["sources"]}
    assert values(families, "ringpack_source_tokens") == sources and set(sources) == {
        (name,) for name in NAMES
    }
    assert values(families, "ringpack_engine_state")[("running",)] == 1
    (info,) = families["ringpack_engine"].samples
    assert info.name == "ringpack_engine_info" and info.labels["stream"] == stat["stream"]


def test_other_places(served):
    engine, _, metrics = served
    assert metrics.ask("/healthz")[0] == 200
    (known,) = json.loads(metrics.ask("/stat.json")[1])["engines"]
    assert known["run"] == engine.run and known["pid"] == engine.pid == known["stat"]["pid"]
    status, page, kind = metrics.ask("/")
    assert status == 200 and kind == "text/html; charset=utf-8" and "stat.json" in page
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page), "the page loads something"
    assert metrics.ask("/nothing")[0] == 404
    assert metrics.ask("/metrics?x=1")[0] == 200
    assert metrics.ask("/metrics", Host="stranger.example")[0] == 403
    assert metrics.ask("/metrics", Host="localhost:1")[0] == 200


@pytest.mark.skipif(not LONG, reason="needs RP_LONG=1")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_in_a_browser(served, tmp_path, scheme):
    """Dark and light: its script runs, without a message in the console."""
    engine, _, metrics = served
    shown = browse(f"http://127.0.0.1:{metrics.port}/", tmp_path, scheme, *TIME, "--dump-dom")
    assert f"<h2>{engine.run}</h2>" in shown and "running: the engine answers" in shown


def test_the_page_shows_what_top_shows(served):
    """The page reads only keys of the engine, and among them all that `top` draws."""
    engine, _, metrics = served
    page, stat = metrics.ask("/")[1], ringpack.stat(engine.run, engine.folder)
    needed = {
        "stat": "step next_row fill ranks ledger alerts saves save_failures save_age_seconds"
        " save_bytes save_seconds save_error unsaved_rows resident_bytes mapped_share",
        "rank": "holds quarantined cause cause_rank cause_seconds waiting_seconds waits"
        " wait_p99_seconds behind_rows",
        "source": "source tokens token_share weight_share epochs",
        "alert": "alert raised age_seconds message",
    }
    told = {"stat": stat, "rank": stat["ranks"][0]}
    told |= {"source": stat["ledger"][0], "alert": stat["alerts"][0]}
    for name, keys in needed.items():
        used = set(re.findall(rf"\b{name}\.(\w+)", page)) - {"json"}
        assert set(keys.split()) <= used, set(keys.split()) - used
        assert used <= set(told[name]) | {"cause_rank"}, used - set(told[name])


LEDGER = {"tokens": 7e6, "token_share": 0.52, "weight_share": 0.5, "epochs": 1.25}
RANK = {"rank": 0, "replica": 0, "attached": True, "pid": 7, "tail": 5, "release": 3, "slots": 8}
WAITS = {"waits": 3, "wait_p99_seconds": 0.25, "behind_rows": 2, "cause": "trainer"}
WAITS |= {"cause_rank": 1, "waiting_seconds": 4, "cause_seconds": {"disk": 1, "pack": 0, "plan": 9}}
SAVES = {"saves": 4, "save_failures": 1, "save_age_seconds": 61, "save_bytes": 28000}
SAVES |= {"save_seconds": 0.02, "unsaved_rows": 9, "save_error": HOSTILE}
ALERT = {"alert": "starved", "raised": True, "age_seconds": 5, "message": "rank 0 waits"}
SHOWN = [
    ">17</b><span>step<",
    ">52.00 %</td><td>50.00 %</td><td>1.250<",
    ">3</td><td>250 ms</td><td>2</td><td>trainer 1, 4.0 s</td><td>plan 9.0 s, disk 1.0 s<",
    ">saves 4, 1 failed; the last one 1 min 1 s ago, 28.0 kB in 20 ms; "
    "a crash would repeat 9 rows<",
    ">alert starved, 5.0 s: rank 0 waits<",
    "&lt;script&gt;",
]


# Answers without a server; a reader scrolls a table, and it is drawn again.
LIVE = """
window.fetch = async () => ({json: async () => (%s)});
setTimeout(() => { document.querySelector(".wide").scrollLeft = 20; }, 500);
setTimeout(() => { document.title = "kept " + document.querySelector(".wide").scrollLeft; }, 2700);
"""


@pytest.mark.skipif(not LONG, reason="needs RP_LONG=1")
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_draws_a_run(program, folder, tmp_path, width):
    told = {"step": 17, "ledger": [{"source": "w" * 90, **LEDGER}, None], "alerts": [ALERT]}
    engine = FakeEngine(folder, "drawn", stat_of("drawn", **told, **SAVES, ranks=[RANK | WAITS]))
    with Metrics(program, folder) as metrics:
        address = f"http://127.0.0.1:{metrics.port}/"
        shown = browse(address, tmp_path, "light", *TIME, "--dump-dom")
        for piece in SHOWN:
            assert piece in shown, (piece, shown)
        still = re.sub(r"<script>.*</script>", "", shown, flags=re.S)
        assert width_on(still, tmp_path, width) == width
        page = metrics.ask("/")[1]
        live = tmp_path / "live.html"
        live.write_text(page.replace("<script>", f"<script>{LIVE % metrics.ask('/stat.json')[1]}"))
        size = "--window-size=500,900"
        kept = browse(f"file://{live}", tmp_path, "light", size, *TIME, "--dump-dom")
        assert "<title>kept 20" in kept
    engine.stop()


def test_a_port_is_taken_and_bad_arguments(program, folder, served):
    _, _, metrics = served
    for arguments, word in (
        (["--listen", f"127.0.0.1:{metrics.port}"], "another process listens there"),
        (["--listen", "127.0.0.1:65536"], "expected HOST:PORT"),
        (["--listen", "nowhere:1"], "is no address"),
        (["--listen", "192.0.2.1:0"], "--listen"),
        (["--once", "--listen", "1"], "serves nothing"),
        (["a/b"], "run name"),
        (["--run-dir", "/dev/null"], "run directory"),
    ):
        command = [program, "metrics", "--run-dir", str(folder), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 2 and word in done.stderr, done.stderr


def test_once_and_a_closed_pipe(program, served):
    engine, _, _ = served
    command = [program, "metrics", "--once", "--run-dir", str(engine.folder)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    done = subprocess.run([need("promtool"), "check", "metrics"], input=text, text=True)
    assert done.returncode == 0
    parser = pytest.importorskip("prometheus_client.parser")
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert values(families, "ringpack_engine_up") == {(): 1}
    assert values(families, "ringpack_engine_state")[("running",)] == 1
    assert set(values(families, "ringpack_engine_info").values()) == {1}
    stat = ringpack.stat(engine.run, engine.folder)
    assert values(families, "ringpack_tokens") == {(): stat["tokens"]}
    assert families["ringpack_tokens"].type == "counter" and "\n# EOF" not in text
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "standard output" in done.stderr


# ---- engines that end, hang or are false ---------------------------------------------------------


def states(metrics):
    """run -> state, and whether all is well."""
    status, text, _ = metrics.ask("/healthz")
    return dict(re.findall(r"^run `(.*?)`: (\w+):", text, re.M)), status == 200


def check_ended_engines(program, folder):
    FakeEngine(folder, "old", stat_of("old")).kill()  # before anybody watched
    made = {name: FakeEngine(folder, name, stat_of(name)) for name in ("killed", "stopped")}
    made["finished"] = FakeEngine(folder, "finished", stat_of("finished", ended=True))
    with Metrics(program, folder) as metrics:
        assert states(metrics) == (dict.fromkeys(made, "running"), True)
        made["killed"].kill()
        made["stopped"].stop()
        made["finished"].stop()
        wait_until(lambda: states(metrics)[0] == {name: name for name in made})
        assert not states(metrics)[1]
        families = families_of(metrics.ask("/metrics")[1])
        assert [s.value for s in families["ringpack_engine_up"].samples] == [0, 0, 0]
        assert families["ringpack_rows"].samples == []  # old figures are no figures
        assert len(families["ringpack_answer_age_seconds"].samples) == 3


def check_silent_engine(program, folder):
    silent = FakeEngine(folder, "silent", None)
    with Metrics(program, folder) as metrics:
        began = time.monotonic()
        while time.monotonic() < began + 1.3:  # two polls at least
            assert states(metrics) == ({"silent": "silent"}, False)
        assert silent.asked == 1, "an engine that does not answer is asked again and again"
        silent.answer = stat_of("silent")
        silent.reply(silent.kept[0])
        wait_until(lambda: states(metrics) == ({"silent": "running"}, True))
    silent.stop()


def test_engines_end(program, folder):
    check_ended_engines(program, folder)


def test_an_engine_is_silent(program, folder):
    check_silent_engine(program, folder)


def test_engines_lie(program, folder):
    answers = {
        "empty": "",
        "list": "[]",
        "deep": "[" * 100000,
        "magic": b"\1" * 64,
        "short": b"\1",
        "odd": '{"rows": "many", "tokens": [], "ranks": {"a": 1}, "sources": [3, null]}',
        "words": stat_of("words", sources=[{"source": HOSTILE, "tokens": 3}]),
    }
    made = [FakeEngine(folder, name, answer) for name, answer in answers.items()]
    with Metrics(program, folder, *answers, "nobody") as metrics:
        found, well = states(metrics)
        expected = dict.fromkeys(answers, "refused") | {"odd": "running", "words": "running"}
        assert found == {**expected, "nobody": "stopped"} and not well
        families = families_of(metrics.ask("/metrics")[1])
        shown = HOSTILE.replace("\u2028", r"\342\200\250")  # a separator of lines is escaped
        assert values(families, "ringpack_source_tokens") == {(shown,): 3}
        assert [s.labels["run"] for s in families["ringpack_rows"].samples] == ["words"]
    for engine in made:
        engine.stop()


# ---- readers -------------------------------------------------------------------------------------


def connect(metrics, sent=b""):
    connection = socket.create_connection(("127.0.0.1", metrics.port))
    if sent:
        connection.sendall(sent)
    return connection


def check_many_readers(program, folder):
    engine = FakeEngine(folder, "asked", stat_of("asked"))
    with Metrics(program, folder) as metrics:
        began = time.monotonic()
        for _ in range(200):
            assert metrics.ask("/metrics")[0] == 200
        looks = (time.monotonic() - began) / 0.9 + 2
        assert engine.asked <= looks, f"200 readers asked the engine {engine.asked} times"
    engine.stop()


def check_slow_readers(program, folder, patience=PATIENCE):
    """They hold all places, and send a byte now and then; a real reader gets its answer."""
    engine = FakeEngine(folder, "slow", stat_of("slow"))
    with Metrics(program, folder) as metrics, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(metrics, b"GET /metrics HT")) for _ in range(64)]
        began = time.monotonic()
        real = stack.enter_context(connect(metrics, b"GET /healthz HTTP/1.0\r\n\r\n"))
        real.settimeout(0.1)
        answer = None
        while answer is None and time.monotonic() < began + patience:
            for connection in slow:
                with contextlib.suppress(OSError):
                    connection.send(b"T")
            with contextlib.suppress(TimeoutError):
                answer = real.recv(100)
        assert answer and b" 200 " in answer, "slow readers keep others from reading"
    engine.stop()


def test_many_readers_are_one_to_the_engine(program, folder):
    check_many_readers(program, folder)


def test_slow_readers_are_cut_off(program, folder):
    check_slow_readers(program, folder)


def check_slow_readers_soon(program, folder):
    check_slow_readers(program, folder, 2.5)


def test_bad_requests(program, folder):
    engine = FakeEngine(folder, "bad", stat_of("bad"))
    with Metrics(program, folder) as metrics:
        for sent in (
            b"\0" * 100,
            b"GET\r\n\r\n",
            b"GET /metrics HTTP/9.9\r\n\r\n",
            b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\nx",
            b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20000,
            b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00",  # TLS
        ):
            with contextlib.suppress(OSError), connect(metrics, sent) as connection:
                connection.settimeout(0.2)  # half a request is waited for
                assert b" 200 " not in connection.recv(15), sent[:40]
        assert metrics.ask("/metrics")[0] == 200 and metrics.process.poll() is None
        before = engine.asked
        most = 10000 if LONG else 300
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, most + 500), hard))
        with contextlib.ExitStack() as stack:
            for _ in range(min(hard - 200, most)):  # most of them wait for a place
                connection = stack.enter_context(socket.socket())
                connection.setblocking(False)
                connection.connect_ex(("127.0.0.1", metrics.port))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert engine.asked <= before + 1
        assert metrics.ask("/metrics")[0] == 200
    engine.stop()


DEFECTS = {
    "ask_for_each_reader": check_many_readers,
    "ask_silent_engines": check_silent_engine,
    "keep_slow_readers": check_slow_readers_soon,
    "show_ended_engines": check_ended_engines,
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_defects_are_found(broken, folder, defect, monkeypatch):
    monkeypatch.setenv("RP_DEFECT", defect)
    with pytest.raises(AssertionError):
        DEFECTS[defect](broken, folder)


# ---- Prometheus and Grafana ----------------------------------------------------------------------


def need(program):
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"needs {program}: run tools/setup")
    return found


def test_alerts_are_valid_and_fire_once():
    promtool = need("promtool")
    for command in ("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml"):
        done = subprocess.run([promtool, *command], cwd=MONITORING, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    tested = (MONITORING / "alerts_test.yaml").read_text()
    for alert in re.findall(r"alert: (\w+)", (MONITORING / "alerts.yaml").read_text()):
        assert f'alertname="{alert}"' in tested, f"{alert} is not tested"


def test_every_metric_that_is_named_exists(served):
    _, _, metrics = served
    families = families_of(metrics.ask("/metrics")[1])
    parts = ["_bucket", "_count", "_sum"]
    suffixes = {"counter": ["_total"], "info": ["_info"], "histogram": parts}
    samples = {
        name + suffix
        for name, family in families.items()
        for suffix in suffixes.get(family.type, [""])
    }
    json.loads((MONITORING / "grafana-dashboard.json").read_text())
    for name in ("grafana-dashboard.json", "alerts.yaml", "alerts_test.yaml"):
        named = set(re.findall(r"\bringpack_\w+", (MONITORING / name).read_text()))
        assert named and named <= samples, f"{name}: {sorted(named - samples)}"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_a_real_prometheus_scrapes(served, tmp_path):
    engine, ranks, metrics = served
    prometheus, port = need("prometheus"), free_port()
    config = (MONITORING / "prometheus.yml").read_text()
    config = config.replace("127.0.0.1:9690", f"127.0.0.1:{metrics.port}").replace("15s", "200ms")
    (tmp_path / "prometheus.yml").write_text(config)
    shutil.copy(MONITORING / "alerts.yaml", tmp_path)
    command = [prometheus, f"--config.file={tmp_path}/prometheus.yml", "--log.level=warn"]
    command += [f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(path):
        with contextlib.suppress(OSError, KeyError, ValueError):
            url = f"http://127.0.0.1:{port}/api/v1/{path}"
            with urllib.request.urlopen(url, timeout=10) as reply:
                return json.load(reply)["data"]
        return None

    def scraped():
        data = ask("query?query=ringpack_rows_total")
        return data and data["result"]

    try:
        wait_until(scraped, "a scrape")
        (sample,) = scraped()
        assert sample["metric"]["run"] == engine.run
        assert int(sample["value"][1]) == ringpack.stat(engine.run, engine.folder)["rows"]
        (target,) = ask("targets")["activeTargets"]
        assert target["health"] == "up" and not target["lastError"]
        (group,) = ask("rules")["groups"]
        assert len(group["rules"]) == (MONITORING / "alerts.yaml").read_text().count("alert:")
        (about,) = ask("targets/metadata?metric=ringpack_read_bytes")
        assert about["type"] == "counter" and about["unit"] == "bytes"
    finally:
        server.kill()
        server.wait()
