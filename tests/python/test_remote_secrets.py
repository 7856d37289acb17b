# SPDX-License-Identifier: Apache-2.0
"""The rights that stores are shown, against a server that checks every request: bearers, HMAC of
Google, SAS of Azure, session tokens. And none of them is in anything that is printed or written."""

import hashlib
import hmac
import json
import re
import ssl
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest
from failure_kit import finish
from refusal_kit import run
from remote_kit import (  # with the fixtures `environment` and `store`
    QUICK,
    answer,
    certificate,
    copy_tape,
    environment,
    make_tape,
    store,
)
from stream_kit import Engine, Ranks

SECRET = "S3CR3T/+="


def signature_is_right(handler, secret, region):
    """AWS's documentation: "Authenticating Requests: Using Query Parameters"."""
    place = urlsplit(handler.path)
    query = dict(parse_qsl(place.query, keep_blank_values=True))
    given = query.pop("X-Amz-Signature", "")
    moment, scope = query.get("X-Amz-Date", ""), query.get("X-Amz-Credential", "/")
    scope = scope.partition("/")[2]
    if scope != f"{moment[:8]}/{region}/s3/aws4_request":
        return False
    pairs = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted(query.items()))
    request = ["GET", place.path, pairs, f"host:{handler.headers['Host']}", "", "host"]
    text = "\n".join([*request, "UNSIGNED-PAYLOAD"])
    digest = hashlib.sha256(text.encode()).hexdigest()
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, digest])
    return hmac.digest(key, text.encode(), "sha256").hex() == given


# ---- the rights: the settings, the URL of a name, and whether a request shows the right ----------


class S3:
    """Keys of the environment, of a session."""

    variables = {
        "AWS_ACCESS_KEY_ID": "KEYID",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": "SESS10N/+=",
        "AWS_REGION": "eu-west-3",
    }
    secrets = [SECRET, "SESS10N", "X-Amz-Signature="]

    def url(self, store, name):
        return f"s3://b/{name}"

    def endpoint(self, store):
        return {"AWS_ENDPOINT_URL": store.base}

    def is_shown(self, handler):
        query = dict(parse_qsl(urlsplit(handler.path).query))
        token = query.get("X-Amz-Security-Token") == "SESS10N/+="
        return token and signature_is_right(handler, SECRET, "eu-west-3")


class GoogleKeys:
    variables = {"GS_ACCESS_KEY_ID": "GOOG1", "GS_SECRET_ACCESS_KEY": SECRET}
    secrets = [SECRET, "X-Amz-Signature="]

    def url(self, store, name):
        return f"gs://b/{name}"

    def endpoint(self, store):
        return {"STORAGE_EMULATOR_HOST": store.base}

    def is_shown(self, handler):
        return signature_is_right(handler, SECRET, "auto")


class GoogleBearer(GoogleKeys):
    variables = {"GOOGLE_OAUTH_ACCESS_TOKEN": "ya29.S3CR3T"}
    secrets = ["ya29.S3CR3T", "Bearer"]

    def is_shown(self, handler):
        return handler.headers.get("Authorization") == "Bearer ya29.S3CR3T"


class GoogleCloudSdk(GoogleBearer):
    variables = {"CLOUDSDK_AUTH_ACCESS_TOKEN": "ya29.S3CR3T"}


class AzureSas:
    """The store is reached as a proxy is, so that it can be called by Azure's name."""

    variables = {"AZURE_STORAGE_SAS_TOKEN": "?sv=2024&sig=S3CR3T%3D"}
    secrets = ["S3CR3T", "sig="]

    def url(self, store, name):
        return f"https://account.blob.core.windows.net/b/{name}"

    def endpoint(self, store):
        key, made = certificate(Path(store.folder).parent, "DNS:account.blob.core.windows.net")
        store.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        store.tls.load_cert_chain(made, key)
        return {"https_proxy": store.base, "AWS_CA_BUNDLE": str(made)}

    def is_shown(self, handler):
        host = handler.headers["Host"] == "account.blob.core.windows.net"
        return host and handler.path.endswith("?sv=2024&sig=S3CR3T%3D")


class AzureQuery(AzureSas):
    """A SAS of the URL is taken before the environment's."""

    variables = {"AZURE_STORAGE_SAS_TOKEN": "sv=2024&sig=0THER"}
    secrets = ["S3CR3T", "sig=", "0THER"]

    def url(self, store, name):
        return super().url(store, name) + "?sv=2024&sig=S3CR3T%3D"


class Hub:
    variables = {"HF_TOKEN": "hf_S3CR3T"}
    secrets = ["hf_S3CR3T", "Bearer"]

    def url(self, store, name):
        return f"{store.base}/b/{name}"

    def endpoint(self, store):
        return {"HF_ENDPOINT": store.base}

    def is_shown(self, handler):
        return handler.headers.get("Authorization") == "Bearer hf_S3CR3T"


class HubFile(Hub):
    """The token file of `hf auth login`."""

    variables = {}

    def endpoint(self, store):
        place = Path(store.folder).parent / "hub"
        place.mkdir(exist_ok=True)
        (place / "token").write_text("hf_S3CR3T\n")
        return {"HF_ENDPOINT": store.base, "HF_HOME": str(place)}


RIGHTS = [S3, GoogleKeys, GoogleBearer, GoogleCloudSdk, AzureSas, AzureQuery, Hub, HubFile]


@pytest.fixture(params=RIGHTS, ids=lambda right: right.__name__)
def right(request, store, monkeypatch):
    """One right, and a store that answers 403 to whoever does not show it."""
    made, serve = request.param(), store.serve
    for name, value in {**made.variables, **made.endpoint(store)}.items():
        monkeypatch.setenv(name, value)
    made.refused = 0

    def look(handler):
        if not made.is_shown(handler):
            made.refused += 1
            return answer(handler, 403, b"<Error><Code>AccessDenied</Code></Error>")
        handler.path = re.sub("^http://[^/]*", "", handler.path)
        return serve(handler)

    store.serve = look
    return made


def test_every_request_shows_the_right(program, folder, store, right):
    tape = make_tape(program, folder)
    copy_tape(tape, store.folder / "b")
    tape.config["sources"] = [right.url(store, Path(tape.path).name)]
    finish(program, folder, tape)
    assert right.refused == 0 and len(store.asked) > 10


def test_a_token_of_the_hub_is_not_sent_in_clear(program, broken, store, monkeypatch):
    """By http it goes to a Hub whose HF_ENDPOINT says http, and to no other."""
    monkeypatch.setenv("HF_TOKEN", "hf_S3CR3T")
    monkeypatch.setenv("http_proxy", store.base)
    monkeypatch.setenv("RINGPACK_OBJECT_PATIENCE", QUICK.format(1))
    shown = []

    def look(handler):
        shown.append(handler.headers.get("Authorization"))
        return answer(handler, 404, b"")

    store.serve = look
    url = "http://huggingface.co/datasets/a/b/resolve/main/x.bin"
    run(program, "inspect", url)
    assert shown and not any(shown)
    monkeypatch.setenv("RP_DEFECT", "send_token_in_clear")
    run(broken, "inspect", url)
    assert any(shown)


def files_with(texts, *folders):
    """Those that have one of the texts, but the test's own."""
    own = "secret.yaml", "e2e.yaml", "token"
    paths = [path for folder in folders for path in Path(folder).rglob("*") if path.is_file()]
    return {path.name for path in paths if path.name not in own
            and any(text.encode() in path.read_bytes() for text in texts)}  # fmt: skip


def test_no_secret_is_shown(program, folder, store, right, monkeypatch, tmp_path):
    """By commands that work and that fail, in logs, in JSON, in the run's files and checkpoints."""
    monkeypatch.setenv("RINGPACK_OBJECT_PATIENCE", QUICK.format(1))
    tape = make_tape(program, folder, checkpoint_dir=str(folder / "saved"))
    copy_tape(tape, store.folder / "b")
    url = right.url(store, Path(tape.path).name)
    gone = right.url(store, "none.bin")
    tape.config["sources"] = [url]
    config = folder / "secret.yaml"
    keys = {**tape.config, "shuffle": "block", "run": "shown", "run_dir": str(folder)}
    config.write_text(json.dumps(keys))
    said = ""
    for arguments in (
        ["inspect", url],
        ["inspect", "--json", "--scan", url],
        ["index", "--index-dir", folder / "sidecars", url],
        ["index", url],
        ["inspect", gone],
        ["inspect", "--column", "x", gone],
        ["plan", "-c", config, "--rows", "2"],
        ["plan", "--json", "-c", config, "--rows", "2"],
        ["doctor", "-c", config],
        ["bench", "--json", "--seconds", "0.05", "-c", config],
        ["serve", "-c", config, f"--source={gone}"],
        ["serve", "-c", config, "--shuffle=document"],
    ):
        done = run(program, *arguments)
        said += done.stdout + done.stderr
    engine = Engine(program, folder, tape.config)
    try:
        with Ranks(engine) as ranks:
            tape.read(ranks, 9)
            engine.checkpoint()
            said += run(program, "stat", "--run-dir", folder, "e2e").stdout
            said += run(program, "stat", "--json", "--run-dir", folder, "e2e").stdout
            for name in store.folder.rglob("tape.bin"):  # and how it ends
                name.unlink()
            with pytest.raises(Exception) as raised:
                tape.read(ranks)
            said += str(raised.value)
    finally:
        engine.kill()
    said += run(program, "checkpoint", "list", folder / "saved").stdout
    said += run(program, "inspect", url).stderr
    store.serve = lambda handler: answer(handler, 403, b"<Error><Code>AccessDenied</Code></Error>")
    said += run(program, "inspect", url).stderr
    assert "tape.bin" in said and "403" in said and "404" in said
    for secret in right.secrets:
        assert secret not in said, secret
    assert files_with(["tape.bin"], folder, tmp_path) != set()
    assert files_with(right.secrets, folder, tmp_path) == set()


# ---- containers of Azure ------------------------------------------------------------------------


def list_blobs(store, keys, per_page):
    """As Azure's documentation of List Blobs has it: pages, and an empty marker in the last."""
    serve = store.serve

    def list_or_serve(handler):
        place = urlsplit(handler.path)
        query = dict(parse_qsl(place.query))
        if query.get("comp") != "list":
            handler.path = unquote(handler.path)
            return serve(handler)
        assert place.path == "/b" and query["restype"] == "container" and "sig" in query
        found = sorted(key for key in keys if key.startswith(query["prefix"]))
        first = int(query.get("marker", "0!")[:-1])
        page = found[first : first + per_page]
        here = "".join(f"<Blob><Name>{escape(key)}</Name></Blob>" for key in page)
        marker = f"{first + per_page}!" if first + per_page < len(found) else ""
        text = f'<EnumerationResults ServiceEndpoint="x" ContainerName="b"><Blobs>{here}</Blobs>'
        text += f"<NextMarker>{marker}</NextMarker></EnumerationResults>"
        return answer(handler, 200, text.encode())

    store.serve = list_or_serve


@pytest.mark.parametrize("given", [AzureSas, AzureQuery], ids=lambda right: right.__name__)
def test_a_container_of_azure_is_listed(program, folder, store, monkeypatch, given):
    """In the order of the URLs, whatever is in the names; none below another slash."""
    right = given()
    for name, value in {**right.variables, **right.endpoint(store)}.items():
        monkeypatch.setenv(name, value)
    tape = make_tape(program, folder, tokens=2000)
    names = ["p-0", "p-1", "p-a b", "p-&'", "p-é"]
    (store.folder / "b" / "d").mkdir(parents=True)
    for name in names:
        for suffix in ".bin", ".idx":
            content = Path(tape.path[:-4] + suffix).read_bytes()
            (store.folder / "b" / "d" / f"{name}{suffix}").write_bytes(content)
    keys = [f"d/{name}{suffix}" for name in names for suffix in (".bin", ".idx")]
    serve = store.serve

    def by_name(handler):
        handler.path = re.sub("^http://[^/]*", "", handler.path)
        return serve(handler)

    store.serve = by_name
    list_blobs(store, [*keys, "d/deep/p-1.bin", "e/p-0.bin"], 3)
    query = "?sv=2024&sig=S3CR3T%3D" if given is AzureQuery else ""
    base = "https://account.blob.core.windows.net/b/d/"
    expected = sorted(base + quote(f"{name}.bin") for name in names)
    for pattern in "p-*.bin", "p-*.idx", "[op]-*", "":
        done = run(program, "inspect", base + pattern + query)
        assert done.returncode == 0, done.stderr
        assert re.findall(r"^https://.*$", done.stdout, re.MULTILINE) == expected, pattern
    for pattern in "p-a%20*.bin", "%70-a%20b.b*":
        done = run(program, "inspect", base + pattern + query)
        assert done.returncode == 0, done.stderr
        assert re.findall(r"^https://.*$", done.stdout, re.MULTILINE) == [base + "p-a%20b.bin"]
    said = run(program, "inspect", base + "x*" + query).stderr
    assert "no object matches" in said
    tape.config["sources"] = [{"path": base + query, "name": "all"}]
    engine = Engine(program, folder, {**tape.config, "shuffle": "block"})
    try:
        with Ranks(engine) as ranks:
            tokens = sum(int(row[2]) for turn in ranks.turns() for b in turn for row in b["rows"])
    finally:
        engine.kill()
    assert tokens == 2000 * len(names)
    assert "S3CR3T" not in said + engine.log()
