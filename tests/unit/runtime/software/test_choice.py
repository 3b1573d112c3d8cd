"""Which software answers a command line."""

import json
import os

import pytest

from edge.runtime.software import choice, running
from edge.runtime.software.choice import hand_over, program_for

KEY, OTHER = "a" * 64, "b" * 64
RELEASE = "0123456789ab"


@pytest.fixture
def root(tmp_path):
    """A device whose release is bound to KEY, which is here; agent and pull are OTHER."""
    var = tmp_path / "var/lib/edge-deploy"
    (var / "releases" / RELEASE).mkdir(parents=True)
    (var / "current").symlink_to(f"releases/{RELEASE}")
    (var / "releases" / RELEASE / "software").symlink_to(f"../../../edge-software/{KEY}")
    (var / "build-request.json").write_text(json.dumps({"release": RELEASE, "id": "1"}))
    for key in (KEY, OTHER):
        lay(tmp_path, key)
    (tmp_path / "var/lib/edge-software/proven").symlink_to(OTHER)
    return tmp_path


def lay(root, key, beside=None):
    folder = root / "var/lib/edge-software" / key
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "edge-runtime").write_text("")
    (folder / "beside").write_text(running.installed() if beside is None else beside)
    return folder


def program(root, key):
    return str(root / "var/lib/edge-software" / key / "edge-runtime")


def current(root):
    return str(root / "var/lib/edge-deploy/current")


def test_the_service_is_the_software_of_the_release_that_it_serves(root):
    assert program_for(["run", "--release", current(root)]) == program(root, KEY)
    assert program_for(["-v", "run", f"--release={current(root)}"]) == program(root, KEY)


def test_the_builder_is_the_software_of_the_release_that_is_asked_for(root):
    request = str(root / "var/lib/edge-deploy/build-request.json")

    assert program_for(["build", "--request", request]) == program(root, KEY)


@pytest.mark.parametrize("command", ["agent", "pull"])
def test_agent_and_pull_are_what_has_proven_itself(root, command):
    assert program_for([command, "--root", str(root)]) == program(root, OTHER)


@pytest.mark.parametrize("command", ["trial", "rollback", "recover", "adopt", "software", "facts", "health"])
def test_who_judges_or_brings_back_is_what_is_installed(root, command):
    assert program_for([command, "--root", str(root), "--release", current(root)]) is None


def test_a_release_that_is_bound_to_nothing_runs_what_is_installed(root):
    (root / "var/lib/edge-deploy/releases" / RELEASE / "software").unlink()

    assert program_for(["run", "--release", current(root)]) is None
    assert program_for(["run", "--pipeline", "gates.yaml"]) is None


def test_provision_has_the_last_word(root):
    lay(root, KEY, beside="/opt/edge-0.0.9-000000000000")

    assert program_for(["run", "--release", current(root)]) is None


@pytest.mark.parametrize("missing", ["beside", "edge-runtime"])
def test_software_that_is_not_whole_is_not_run(root, missing):
    (root / "var/lib/edge-software" / KEY / missing).unlink()

    assert program_for(["run", "--release", current(root)]) is None


@pytest.mark.parametrize(
    "request_", [b"", b"[]", b'{"release": "../../../etc"}', b'{"release": 7}', b"{" * 5000, b'{"release": "no-such"}']
)
def test_a_request_that_cannot_be_read_is_for_who_reads_it_next(root, request_):
    path = root / "var/lib/edge-deploy/build-request.json"
    path.write_bytes(request_)

    assert program_for(["build", "--request", str(path)]) is None


def test_a_request_that_is_a_fifo_is_not_waited_for(root):
    path = root / "var/lib/edge-deploy/build-request.json"
    path.unlink()
    os.mkfifo(path)

    assert program_for(["build", "--request", str(path)]) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder to somebody else")
def test_root_runs_nothing_that_another_user_has_unpacked(root):
    os.chown(root / "var/lib/edge-software" / KEY, 12345, 12345)

    assert program_for(["run", "--release", current(root)]) is None


def test_a_process_becomes_that_software_with_its_arguments(root, monkeypatch):
    started = []
    monkeypatch.setattr(choice.os, "execv", lambda path, words: started.append((path, words)))

    hand_over(["agent", "--root", str(root), "--for-pull"])

    ((path, words),) = started
    assert path == words[0] == choice.sys.executable
    assert words[-4:] == ["agent", "--root", str(root), "--for-pull"]
    assert words[-5] == program(root, OTHER)


def test_who_is_such_software_already_hands_over_to_nobody(root, monkeypatch):
    monkeypatch.setattr(choice, "running_key", lambda: KEY)
    monkeypatch.setattr(choice.os, "execv", lambda *_: pytest.fail("it went on as another"))

    hand_over(["agent", "--root", str(root)])


@pytest.mark.parametrize(
    ("home", "key"),
    [
        (f"/var/lib/edge-software/{KEY}/lib", KEY),
        ("/opt/edge-0.1.0-0123456789ab/lib/python3.11/site-packages", None),
        ("/home/ana/edge-deploy", None),
        (f"/home/{KEY}/edge", None),
    ],
)
def test_a_process_knows_which_software_it_is_by_where_it_lies(home, key):
    assert running.running_key(running.Path(home)) == key
