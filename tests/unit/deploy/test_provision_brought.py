"""What provision reads of what edge-software has said: a file of another user, of which nothing is believed."""

import json
import os
import subprocess

import pytest

from edge.deploy.provision.remote import main
from edge.deploy.provision.remote.main import Brought

RELEASE = "3f9a1c07b2de"


@pytest.fixture
def device(tmp_path, monkeypatch):
    (tmp_path / "software").mkdir()
    (tmp_path / "current").symlink_to(f"releases/{RELEASE}")
    monkeypatch.setattr(main, "run", lambda command: None)
    monkeypatch.setattr(main.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0))
    return tmp_path


def step(device, record=None):
    values = {"path": str(device / "software"), "current": str(device / "current"), "over": "/opt/edge-2"}
    return Brought(values, record)


def told(device):
    one = step(device)
    assert one.apply() == {"over": "/opt/edge-2"}
    return one.told


def test_what_cannot_run_the_release_that_serves_is_told(device):
    (device / "software/said.json").write_text(json.dumps({RELEASE: "it needs numpy>=3", "aaaaaaaaaaaa": "no matter"}))

    (words,) = told(device)

    assert f"release {RELEASE}, which serves, cannot have its software over what is installed now: it needs" in words
    assert "no matter" not in words


@pytest.mark.parametrize("said", [None, {}, {"aaaaaaaaaaaa": "no matter"}, {RELEASE: "it needs numpy>=3"}])
def test_where_nothing_is_said_of_what_serves_or_nothing_serves_nothing_is_told(device, said):
    if said is not None:
        (device / "software/said.json").write_text(json.dumps(said))
    if said and RELEASE in said:
        (device / "current").unlink()

    assert told(device) == []


@pytest.mark.parametrize("content", [b"[" * 100_000, b"[]", b"{", b"\xff", b" " * (17 << 20)])
def test_what_is_no_account_is_told_and_ends_nothing(device, content):
    (device / "software/said.json").write_bytes(content)

    (words,) = told(device)

    assert words.startswith("what edge-software.service says cannot be read")
    assert len(words) < 1000


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_no_link_is_followed_and_no_fifo_waited_for(device, kind):
    path = device / "software/said.json"
    path.symlink_to("/etc/passwd") if kind == "link" else os.mkfifo(path)

    (words,) = told(device)

    assert "cannot be read" in words


def test_a_unit_that_does_not_end_is_told_and_asked_again_by_the_next_provision(device, monkeypatch):
    def hang(command, **_):
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(main.subprocess, "run", hang)
    one = step(device)

    record = one.apply()

    assert "is still at work" in one.told[0]
    assert step(device, record).check() == ["lay what releases bring over /opt/edge-2"]


def test_what_was_laid_over_another_installation_is_laid_over_this_one(device):
    assert step(device, {"over": "/opt/edge-1"}).check() == ["lay what releases bring over /opt/edge-2"]
    assert step(device, {"over": "/opt/edge-2"}).check() == []
