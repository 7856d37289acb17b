# SPDX-License-Identifier: Apache-2.0
"""Whose rights are used: each row of the table in tools/python/docs/remote.md. A right that is
configured and cannot be used is an error by name, and no broader one is used in its place: an
instance's endpoint waits behind each of them, and must not get a request."""

import json
import os
import re
import signal
import subprocess
import time
from urllib.parse import parse_qsl

import pytest
from failure_kit import finish
from refusal_kit import assert_refusal, refused, run
from remote_kit import (  # with the fixtures `environment` and `store`
    QUICK,
    Store,
    answer,
    copy_tape,
    environment,
    make_tape,
    output_of,
    store,
)
from stream_kit import Engine, Ranks, wait_until

URL = "s3://b/tape.bin"
KEYS_OF = '{"Version":1,"AccessKeyId":"%s","SecretAccessKey":"S","SessionToken":"T"%s}'


class World:
    """A bucket that notes whose keys each request shows, and an instance whose keys may do all."""

    def __init__(self, program, folder, store, monkeypatch, home):
        copy_tape(make_tape(program, folder, indexed=True), store.folder / "b")
        self.program, self.store, self.patch, self.aws = program, store, monkeypatch, home / ".aws"
        self.aws.mkdir()
        self.shown, self.sts_asked, serve = set(), [], store.serve

        def note(handler):
            found = re.search(r"X-Amz-Credential=(\w+)%2F", handler.path)
            self.shown.add(found[1] if found else None)
            return serve(handler)

        store.serve = note
        self.instance = Store(store.folder)
        self.instance.serve = self.give_keys
        self.set(
            AWS_ENDPOINT_URL_S3=store.base,
            AWS_EC2_METADATA_SERVICE_ENDPOINT=self.instance.base,
            AWS_ENDPOINT_URL_STS=self.instance.base + "/sts",
            RINGPACK_OBJECT_PATIENCE=QUICK.format(1),
        )
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")

    def set(self, **variables):
        for name, value in variables.items():
            self.patch.setenv(name, str(value))

    def give_keys(self, handler):
        if handler.path == "/sts":
            form = handler.rfile.read(int(handler.headers["Content-Length"])).decode()
            self.sts_asked.append(dict(parse_qsl(form)))
            body = "".join(
                f"<{name}>{value}</{name}>"
                for name, value in (
                    ("AccessKeyId", "WEB"),
                    ("SecretAccessKey", "S/+="),
                    ("SessionToken", "T/+="),
                    ("Expiration", "2099-01-01T00:00:00Z"),
                )
            )
            return answer(handler, 200, f"<A><Credentials>{body}</Credentials></A>".encode())
        if handler.command == "PUT":
            return answer(handler, 200, b"T")
        keys = (KEYS_OF % ("INSTANCE", "")).encode()
        return answer(handler, 200, keys if handler.path.endswith("/role") else b"role")

    def profile(self, text, file="config"):
        (self.aws / file).write_text(text)

    def inspect(self):
        self.shown.clear()
        return run(self.program, "inspect", URL)

    def reads_with(self, whose):
        done = self.inspect()
        assert done.returncode == 0, done.stderr
        assert self.shown == {whose}

    def is_refused(self, *texts):
        done = self.inspect()
        assert_refusal(done.returncode, done.stderr, *texts)
        assert not self.shown, "a request was sent"
        return done.stderr


@pytest.fixture
def world(program, folder, store, monkeypatch, tmp_path):
    made = World(program, folder, store, monkeypatch, tmp_path)
    made.store.folder.joinpath("token").write_text("W3B-T0KEN\n")
    # the program reads POST by the handler of PUT and GET
    made.instance.server.RequestHandlerClass.do_POST = (
        made.instance.server.RequestHandlerClass.do_GET
    )
    yield made
    made.instance.close()


def test_no_right_but_the_instance(world):
    """The control: without another right, it is the instance's."""
    world.reads_with("INSTANCE")


@pytest.mark.parametrize("word", ["1", "true", "YES", "on"])
def test_unsigned_where_it_says_so(world, word):
    world.set(AWS_NO_SIGN_REQUEST=word, AWS_ACCESS_KEY_ID="ENV", AWS_SECRET_ACCESS_KEY="S")
    world.reads_with(None)


@pytest.mark.parametrize("word", ["0", "false", "NO", "off"])
def test_signed_where_it_says_no(world, word):
    world.set(AWS_NO_SIGN_REQUEST=word, AWS_ACCESS_KEY_ID="ENV", AWS_SECRET_ACCESS_KEY="S")
    world.reads_with("ENV")


@pytest.mark.parametrize("name", ["AWS_NO_SIGN_REQUEST", "AWS_EC2_METADATA_DISABLED"])
def test_a_word_that_is_neither(world, name):
    world.set(**{name: "perhaps"})
    world.is_refused(f"{name}: expected true or false, found `perhaps`")


def test_an_instance_that_is_not_to_be_asked(world):
    world.set(AWS_EC2_METADATA_DISABLED="1")
    world.reads_with(None)


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_half_of_the_keys_of_the_environment(world, name):
    world.set(**{name: "S3CR3T"})
    assert "S3CR3T" not in world.is_refused(f"found only {name}")


STATIC = "aws_access_key_id = FILE\naws_secret_access_key = S\n"
REFUSED = {
    "role_arn": "role_arn = arn:aws:iam::1:role/r\nsource_profile = base\n",
    "role_arn of the machine": "role_arn = r\ncredential_source = Ec2InstanceMetadata\n",
    "role_arn beside keys": STATIC + "role_arn = arn:aws:iam::1:role/r\nsource_profile = mine\n",
    "sso_session": "sso_session = corp\nsso_account_id = 1\n",
    "sso_start_url": "sso_start_url = https://x\n",
    "SSO_ACCOUNT_ID": "SSO_ACCOUNT_ID: 1\n",
    "login_session": "login_session = arn:aws:iam::1:user/u\n",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_rights_that_only_the_tools_of_aws_can_get(world, kind):
    world.profile(f"[profile mine]\nregion = eu-west-1\n{REFUSED[kind]}[profile base]\n{STATIC}")
    world.set(AWS_PROFILE="mine")
    line = "credential_process = aws configure export-credentials --profile mine --format process"
    world.is_refused(kind.split()[0].lower(), "no other right is used", line)


def test_the_line_of_a_refusal_works(world, tmp_path):
    """`aws` is a program of ours here."""
    tool = tmp_path / "bin" / "aws"
    tool.parent.mkdir()
    keys = KEYS_OF % ("FROM_SSO", "")
    tool.write_text(f"#!/bin/sh\n[ \"$*\" = 'configure export-credentials --profile mine "
                    f"--format process' ] && echo '{keys}'\n")  # fmt: skip
    tool.chmod(0o755)
    world.profile("[profile mine]\nsso_session = corp\n")
    world.set(AWS_PROFILE="mine", PATH=f"{tool.parent}:{os.environ['PATH']}")
    line = re.search(r"`(credential_process = .*?)`", world.is_refused("sso_session"))[1]
    world.profile(f"[profile mine]\nsso_session = corp\n[profile ringpack]\n{line}\n")
    world.set(AWS_PROFILE="ringpack")
    world.reads_with("FROM_SSO")


def test_a_web_identity_of_the_environment(world):
    """As EKS gives it to a pod. The token is read when it is needed."""
    file = world.store.folder / "token"
    world.set(AWS_ROLE_ARN="arn:aws:iam::1:role/r", AWS_WEB_IDENTITY_TOKEN_FILE=file)
    world.reads_with("WEB")
    asked = world.sts_asked[0]
    assert asked["Action"] == "AssumeRoleWithWebIdentity"
    assert asked["WebIdentityToken"] == "W3B-T0KEN"
    assert asked["RoleArn"] == "arn:aws:iam::1:role/r"


def test_a_web_identity_of_a_profile(world):
    file = world.store.folder / "token"
    world.profile(f"[default]\nrole_arn = r\nweb_identity_token_file = {file}\n")
    world.reads_with("WEB")


@pytest.mark.parametrize("name", ["AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"])
def test_half_of_a_web_identity(world, name):
    world.set(**{name: world.store.folder / "token"})
    world.is_refused(f"found only {name}")


def test_a_web_identity_that_sts_refuses(world):
    world.set(AWS_ROLE_ARN="r", AWS_WEB_IDENTITY_TOKEN_FILE=world.store.folder / "token")
    body = b"<E><Error><Code>InvalidIdentityToken</Code><M>W3B-T0KEN</M></Error></E>"
    world.instance.serve = lambda handler: answer(handler, 400, body)
    assert "W3B-T0KEN" not in world.is_refused("HTTP status 400 InvalidIdentityToken")


def test_a_web_identity_whose_sts_is_not_named(world):
    """The endpoint of a store is not to get the token."""
    world.patch.delenv("AWS_ENDPOINT_URL_STS")
    world.set(AWS_ENDPOINT_URL=world.store.base)
    world.set(AWS_ROLE_ARN="r", AWS_WEB_IDENTITY_TOKEN_FILE=world.store.folder / "token")
    world.is_refused("AWS_ENDPOINT_URL_STS")


def test_keys_of_a_profile_in_any_spelling(world):
    world.profile('[ profile "my own" ]\nAWS_Access_Key_Id: FILE\naws_secret_access_key=S=:\n')
    world.set(AWS_PROFILE="my own")
    world.reads_with("FILE")
    world.patch.delenv("AWS_PROFILE")
    world.set(AWS_DEFAULT_PROFILE="my own")
    world.reads_with("FILE")


def test_keys_of_two_files_are_not_mixed(world):
    world.profile("[default]\naws_access_key_id = FILE\n", "credentials")
    world.profile("[default]\naws_secret_access_key = S\n")
    world.is_refused("found only one of them")
    world.profile(f"[default]\n{STATIC}", "credentials")
    world.profile("[default]\naws_session_token = OTHERS\n")
    world.reads_with("FILE")
    assert not any("Security-Token" in path for path in world.store.asked)


def test_profiles_that_are_not_clear(world):
    world.profile(f"[profile one]\n{STATIC}")
    world.set(AWS_PROFILE="one", AWS_DEFAULT_PROFILE="two")
    world.is_refused("AWS_PROFILE is `one`, and AWS_DEFAULT_PROFILE is `two`")
    world.patch.delenv("AWS_DEFAULT_PROFILE")
    world.set(AWS_PROFILE="none")
    world.is_refused("none, which is no profile")


def test_files_that_cannot_be_read(world):
    """Their content is not known: a role, perhaps."""
    (world.aws / "config").mkdir()
    world.is_refused(".aws/config")


def test_a_container_of_another_host(world):
    world.set(AWS_CONTAINER_CREDENTIALS_FULL_URI="http://keys.invalid/role")
    world.is_refused("an http URL of another host")


def test_a_container_that_gives_none(world):
    world.set(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{world.store.base}/none")
    done = world.inspect()
    assert done.returncode != 0 and "container's endpoint gave none" in done.stderr


# ---- commands that give keys --------------------------------------------------------------------


def hanging(world, tmp_path):
    """A command that hangs, with a child of its own."""
    world.profile(f"[default]\ncredential_process = echo $$ >> {tmp_path}/pids; sleep 1000 & "
                  f"echo $! >> {tmp_path}/pids; wait\n")  # fmt: skip


def alive(tmp_path):
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}/stat")
            and " Z " not in open(f"/proc/{pid}/stat").read()]  # fmt: skip


def test_a_command_that_hangs_is_killed(world, tmp_path):
    hanging(world, tmp_path)
    done = world.inspect()
    assert done.returncode != 0 and "credential_process had not ended after 3 s" in done.stderr
    wait_until(lambda: not alive(tmp_path))


@pytest.mark.parametrize("verb", ["inspect", "index", "convert", "serve"])
def test_a_stop_does_not_wait_for_a_command(world, broken, folder, tmp_path, verb):
    """Control: the defect in a build that has it."""
    world.set(RINGPACK_OBJECT_PATIENCE="5,50,600,200")
    hanging(world, tmp_path)
    arguments = {
        "inspect": ["inspect", URL],
        "index": ["index", "--index-dir", folder / "sidecars", URL],
        "convert": ["convert", "-o", folder / "out", "s3://b/x.txt"],
        "serve": ["serve", "--run-dir", folder, "--source", URL, "--seq-len", "64",
                  "--batch-size", "2", "--shuffle", "block"],
    }[verb]  # fmt: skip
    for program, defect in ((world.program, None), (broken, "wait_for_key_command")):
        (tmp_path / "pids").unlink(missing_ok=True)
        variables = {**os.environ, **({"RP_DEFECT": defect} if defect else {})}
        command = [program, *map(str, arguments)]
        process = subprocess.Popen(command, env=variables, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: (tmp_path / "pids").exists()
                       and len((tmp_path / "pids").read_text().split()) == 2)  # fmt: skip
            process.send_signal(signal.SIGTERM)
            if defect is None:
                assert process.wait(30) != 0
                wait_until(lambda: not alive(tmp_path))
            else:
                time.sleep(0.5)
                assert process.poll() is None, "the control ended"
        finally:
            process.kill()
            process.wait()
            for pid in alive(tmp_path):
                os.kill(pid, signal.SIGKILL)
        if verb != "inspect":
            break  # one control is enough


def soon(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def test_keys_that_are_still_good_are_used_while_no_new_ones_come(program, folder, world, tmp_path):
    """A command that gives keys once, and hangs from then on: the run reads on with those."""
    keys = tmp_path / "keys.json"
    keys.write_text(KEYS_OF % ("PROCESS", f',"Expiration":"{soon(200)}"'))
    line = f"cat {keys} && rm {keys} || exec sleep 1000"
    world.profile(f"[default]\ncredential_process = {line}\n")
    tape = make_tape(program, folder, indexed=True)
    tape.config["sources"] = [URL]
    log = finish(program, folder, tape)
    assert "last keys are used" in log and world.shown == {"PROCESS"}


@pytest.mark.skipif(not os.environ.get("RP_LONG"), reason="RP_LONG: keys last ten seconds at least")
def test_a_stop_of_a_run_does_not_wait_for_a_command(program, folder, world, tmp_path):
    """In mid-run, when the store says that the keys are over."""
    world.set(RINGPACK_OBJECT_PATIENCE="5,50,600,200")
    keys, pids = tmp_path / "keys.json", tmp_path / "pids"
    keys.write_text(KEYS_OF % ("PROCESS", ""))
    line = f"cat {keys} && rm {keys} || (echo $$ >> {pids}; exec sleep 1000)"
    world.profile(f"[default]\ncredential_process = {line}\n")
    tape = make_tape(program, folder, indexed=True)
    tape.config["sources"] = [URL]
    serve, seen, end = world.store.serve, [], time.monotonic() + 11

    def expire(handler):
        seen.append(handler.path)
        if len(seen) < 12:
            return serve(handler)
        if time.monotonic() < end:
            return answer(handler, 503)
        return answer(handler, 400, b"<Error><Code>ExpiredToken</Code></Error>")

    world.store.serve = expire
    engine = Engine(program, folder, {**tape.config, "shuffle": "block", "block_documents": 2})
    try:
        wait_until(pids.exists)
        engine.process.send_signal(signal.SIGTERM)
        assert engine.process.wait(60) is not None
        wait_until(lambda: not alive(tmp_path))
    finally:
        engine.kill()


# ---- Google -------------------------------------------------------------------------------------


@pytest.fixture
def google(program, folder, store, monkeypatch):
    """A bucket that notes each bearer, and refuses those that are over."""
    copy_tape(make_tape(program, folder, indexed=True), store.folder / "b")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", store.base)
    store.shown, store.over, serve = set(), set(), store.serve

    def note(handler):
        bearer = handler.headers.get("Authorization")
        store.shown.add(bearer)
        if bearer in store.over:
            return answer(handler, 401, b"<Error><Code>AuthenticationRequired</Code></Error>")
        return serve(handler)

    store.serve = note
    return store


def test_a_token_of_google_in_a_file_is_read_again(program, google, monkeypatch, tmp_path):
    file = tmp_path / "token"
    monkeypatch.setenv("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", str(file))
    refused(program, "inspect", "gs://b/tape.bin", texts=["CLOUDSDK_AUTH_ACCESS_TOKEN_FILE"])
    file.write_text("\n")
    monkeypatch.setenv("RINGPACK_OBJECT_PATIENCE", QUICK.format(1))
    done = run(program, "inspect", "gs://b/tape.bin")
    assert done.returncode != 0 and "found an empty file" in done.stderr
    file.write_text("OLD\n")
    google.over.add("Bearer OLD")
    serve = google.serve

    def renew(handler):  # the next token is written while the run waits for its answer
        file.write_text("NEW")
        return serve(handler)

    google.serve = renew
    assert "tape.bin" in output_of(program, "inspect", "gs://b/tape.bin")
    assert google.shown == {"Bearer OLD", "Bearer NEW"}


def test_a_token_of_google_by_a_command(program, google, monkeypatch, tmp_path):
    command = f"echo x >> {tmp_path}/runs; echo ' T0KEN '"
    monkeypatch.setenv("RINGPACK_GOOGLE_TOKEN_COMMAND", command)
    assert "tape.bin" in output_of(program, "inspect", "gs://b/tape.bin")
    assert google.shown == {"Bearer T0KEN"}
    assert (tmp_path / "runs").read_text() == "x\n", "it is run once, and its token kept"
    monkeypatch.setenv("RINGPACK_GOOGLE_TOKEN_COMMAND", "exit 3")
    refused(program, "inspect", "gs://b/tape.bin", texts=["failed (status 3)"])


def test_rights_of_google_that_are_not_read(program, google, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/keys.json")
    texts = ["GOOGLE_APPLICATION_CREDENTIALS", "gcloud auth application-default print-access-token"]
    refused(program, "inspect", "gs://b/tape.bin", texts=texts)
    monkeypatch.setenv("GS_ACCESS_KEY_ID", "HALF")
    refused(program, "inspect", "gs://b/tape.bin", texts=["found only one of them"])
    assert not google.shown
