"""`edge-runtime pull` as its unit runs it: a process, its settings, its credential, its end."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from edge.delivery.link import Link
from edge.runtime.pull.record import PullRecord, Settled, read_pull_record, write_record
from edge.wire.peer import Nothing
from edge.wire.verbs import STATUS
from tests.support.manifests import make_certificates
from tests.support.pulling import put
from tests.support.registry import LOGIN, saying
from tests.support.tcp_proxy import LinkProxy
from tests.support.wait import QuietWatch, wait_until

pytestmark = pytest.mark.slow_but(
    "test_the_command_says_what_it_would_do_and_remembers_nothing_of_it",
    "test_a_record_that_cannot_be_written_is_told_and_stands_in_no_way",
    "test_what_ends_a_pull_before_the_registry_is_asked_is_remembered_and_told_by_status",
    reason="further pulls over real registries",
)


def command(root, *options: str) -> list[str]:
    return [sys.executable, "-I", "-m", "edge.cli.edge_runtime", "pull", "--root", str(root.root), *options]


@pytest.fixture
def settle(root, tmp_path):
    """Write what provision writes, and return the environment that systemd gives."""

    def write(host, ca, login=None):
        (root.layout.etc / "pull.toml").write_text(f'repository = "{host}/farms/gates"\n')
        (root.layout.etc / "registry-ca.pem").write_text(ca.read_text())
        credentials, state = tmp_path / "credentials", tmp_path / "state"
        credentials.mkdir()
        state.mkdir()
        if login is not None:
            (credentials / "registry-login").write_text(f"{login.user}:{login.password}\n")
        return {**os.environ, "CREDENTIALS_DIRECTORY": str(credentials), "STATE_DIRECTORY": str(state)}

    return write


def test_the_command_says_what_it_would_do_and_remembers_nothing_of_it(registry, root, settle, tmp_path):
    bundle = root.bundle("one")
    put(registry, bundle)
    environment = settle(registry.host, registry.certificates.ca, LOGIN)

    done = subprocess.run(command(root, "--plan", "--json"), env=environment, capture_output=True, text=True)

    assert done.returncode == 10, done.stderr
    told = json.loads(done.stdout)
    assert (told["result"], told["release"]) == ("planned", bundle.manifest.release)
    assert "nothing serves; 2 of 2 files to send" in done.stderr
    assert not (tmp_path / "state/pull.json").exists()


def test_without_a_login_the_registry_s_refusal_is_remembered_and_exits_as_such(registry, root, settle, tmp_path):
    environment = settle(registry.host, registry.certificates.ca)

    done = subprocess.run(command(root), env=environment, capture_output=True, text=True)

    assert done.returncode == 12
    assert "there is none (registry.denied)" in done.stderr
    assert json.loads((tmp_path / "state/pull.json").read_text())["code"] == "registry.denied"


@pytest.mark.parametrize("has_last", [True, False])
@pytest.mark.parametrize(
    ("file", "content", "code", "exit_code"),
    [
        ("credentials/registry-login", "no colon", "registry.login", 12),
        ("registry-ca.pem", "no certificate", "registry.tls", 12),
        ("pull.toml", 'repositry = "a.b/c"', "device.settings", 1),
        ("proxy.env", "https_proxy='http", "device.settings", 1),
    ],
)
def test_what_ends_a_pull_before_the_registry_is_asked_is_remembered_and_told_by_status(
    odd, root, settle, file, content, code, exit_code, has_last
):
    environment = {**settle(odd.host, odd.ca), "STATE_DIRECTORY": str(root.layout.pull_record.parent)}
    del environment["CREDENTIALS_DIRECTORY"]
    (root.layout.etc / "credentials").mkdir(exist_ok=True)
    (root.layout.etc / file).write_text(content)
    root.layout.pull_record.parent.mkdir(parents=True)
    settled = Settled(digest="d", release="r", result="committed")
    before = PullRecord(
        reference=f"{odd.host}/farms/gates:stable-all", digest="d", result="committed", at="", settled=settled
    )
    if has_last:
        write_record(root.layout.pull_record, before)

    planned = subprocess.run(command(root, "--plan"), env=environment, capture_output=True, text=True)
    assert read_pull_record(root.layout.pull_record) == (before if has_last else None)
    done = subprocess.run(command(root), env=environment, capture_output=True, text=True)

    assert (planned.returncode, done.returncode) == (exit_code, exit_code), done.stderr
    found = read_pull_record(root.layout.pull_record)
    assert (found.result, found.code, found.settled) == ("failed", code, settled if has_last else None)
    assert file.rpartition("/")[2] in found.problem
    with closing(Link(root.connect(), threading.Event())) as link:
        look = link.ask(STATUS, Nothing()).look
    assert (look.result, look.code, look.problem) == ("failed", code, found.problem)


@pytest.mark.parametrize(("alone", "own", "code"), [(False, False, 10), (True, True, 10), (True, False, 12)])
def test_the_authorities_of_the_system_do_not_count_where_that_of_the_registry_counts_alone(
    odd, root, settle, tmp_path, alone, own, code
):
    odd.take(root.bundle("one"))
    environment = {**settle(odd.host, odd.ca), "SSL_CERT_FILE": str(odd.ca)}
    if alone:
        with (root.layout.etc / "pull.toml").open("a") as file:
            file.write('authorities = "registry-ca"\n')
    if not own:
        other = make_certificates(tmp_path / "other").ca
        (root.layout.etc / "registry-ca.pem").write_text(other.read_text())

    done = subprocess.run(command(root, "--plan"), env=environment, capture_output=True, text=True)

    assert done.returncode == code, done.stderr
    assert ("(registry.tls)" in done.stderr) == (code == 12)


def test_a_record_that_cannot_be_written_is_told_and_stands_in_no_way(registry, root, settle, tmp_path):
    folders = f"{tmp_path}/gone:{tmp_path}/other"
    environment = {**settle(registry.host, registry.certificates.ca), "STATE_DIRECTORY": folders}

    done = subprocess.run(command(root), env=environment, capture_output=True, text=True)

    assert (done.returncode, "(registry.denied)" in done.stderr) == (12, True)
    assert f"WARNING {tmp_path}/gone/pull.json cannot be written" in done.stderr


def test_when_the_registry_said_last_what_the_ring_has_is_told_and_ages_while_it_is_away(odd, root, settle):
    odd.take(root.bundle("one"))
    environment = settle(odd.host, odd.ca)
    root.layout.pull_record.parent.mkdir(parents=True)
    environment["STATE_DIRECTORY"] = str(root.layout.pull_record.parent)
    first = subprocess.run(command(root, "--plan", "--json"), env=environment, capture_output=True, text=True)
    looked_at = json.loads(first.stdout)["looked_at"]
    assert (json.loads(first.stdout)["looked_age_s"] < 60, "what the ring has" in first.stderr) == (True, False)
    record = PullRecord(reference=str(odd.reference()), result="failed", at=looked_at, looked_at="2026-11-20T10:15:02Z")
    write_record(root.layout.pull_record, record)
    odd.meddle = saying(500)

    away = subprocess.run(command(root, "--json"), env=environment, capture_output=True, text=True)

    told = json.loads(away.stdout)
    assert (told["looked_at"], told["looked_age_s"] > 86_400) == ("2026-11-20T10:15:02Z", True)
    assert "was said last at 2026-11-20T10:15:02Z" in away.stderr
    with closing(Link(root.connect(), threading.Event())) as link:
        look = link.ask(STATUS, Nothing()).look
    assert (look.result, look.code, look.looked_at) == ("failed", "registry.failed", "2026-11-20T10:15:02Z")
    assert look.age_s >= told["looked_age_s"]


def test_without_settings_the_file_is_named(root):
    done = subprocess.run(command(root), capture_output=True, text=True)

    assert done.returncode == 1
    assert "pull.toml: there is no such file" in done.stderr
    assert "--pull-from REGISTRY" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_ends_it_at_once_whatever_the_registry_does(odd, root, settle, number):
    gone, asked = threading.Event(), threading.Event()
    odd.meddle = lambda request: bool(asked.set() or gone.wait(600)) or True
    environment = settle(odd.host, odd.ca)
    pulling = subprocess.Popen(command(root), env=environment, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(asked.is_set, what="the registry is asked")
        watch = QuietWatch()
        pulling.send_signal(number)
        _, told = pulling.communicate(timeout=60)
    finally:
        gone.set()
        pulling.kill()

    assert watch.seconds() < 10
    assert (pulling.returncode, told) == (130, "interrupted\n")


def test_a_person_with_sudo_has_the_login_of_the_unit(registry, root, settle):
    put(registry, root.bundle("one"))
    environment = settle(registry.host, registry.certificates.ca)
    del environment["CREDENTIALS_DIRECTORY"]
    kept = root.layout.etc / "credentials"
    kept.mkdir(exist_ok=True)
    (kept / "registry-login").write_text(f"{LOGIN.user}:{LOGIN.password}\n")

    done = subprocess.run(command(root, "--plan"), env=environment, capture_output=True, text=True)

    assert done.returncode == 10, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give root up")
def test_root_becomes_another_user_for_good():
    script = """
import os
from edge.runtime.pull.entry import become
become("nobody")
print(os.getresuid() == (65534,) * 3, 0 in os.getgroups(), 0 in os.getresgid())
os.setuid(0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert done.stdout == "True False False\n"
    assert "PermissionError" in done.stderr


def test_a_person_with_sudo_goes_through_the_proxy_of_the_unit(odd, root, settle):
    odd.take(root.bundle("one"))
    environment = settle(odd.host, odd.ca)
    with LinkProxy(int(odd.host.rpartition(":")[2])) as proxy:
        (root.layout.etc / "proxy.env").write_text(f'https_proxy="http://127.0.0.1:{proxy.port}"\n')

        done = subprocess.run(command(root, "--plan"), env=environment, capture_output=True, text=True)

    # No CONNECT proxy is there, but who speaks TLS: that it was asked is what counts.
    assert (done.returncode, odd.asked) == (12, []), done.stderr
    assert proxy.passed_bytes > 0
