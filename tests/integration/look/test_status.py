"""`edge-deploy status` says how a device stands: as its service tells subscribers, over a real sshd and agent."""

import json
import subprocess

import pytest

from tests.support.http_client import ask
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(
    "test_a_device_with_a_dead_camera_is_degraded_and_why", reason="further views of a service"
)


@pytest.fixture
def status(tmp_path, deploy, monkeypatch):
    """Run `edge-deploy status gate-01` with more arguments; give what it printed, and said."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "workstation"))

    def run(*arguments):
        done = subprocess.run(deploy("status", *arguments), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    return run


def test_a_device_with_a_dead_camera_is_degraded_and_why(service, status):
    def is_degraded():
        return json.loads(ask(service.port, "/status.json")[2])["state"] == "degraded"

    wait_until(is_degraded, what="the camera is down")
    shown, _ = status("--json")
    assert json.loads(shown)["gate-01"]["device_state"] == {"state": "degraded", "reason": "down: gone"}
    shown, _ = status()
    assert "device    degraded: down: gone\n" in shown
    shown, told = status("--table")
    head, row = shown.splitlines()
    assert row[head.index("DEVICE") :].split()[0] == "degraded"
    assert "gate-01: degraded: down: gone" in told


def test_a_device_whose_service_is_not_there_says_nothing_of_it(status):
    shown, _ = status("--json")
    assert json.loads(shown)["gate-01"]["device_state"] is None
    shown, _ = status()
    assert "device  " not in shown
    head, row = status("--table")[0].splitlines()
    assert row[head.index("DEVICE") :].split()[0] == "-"
