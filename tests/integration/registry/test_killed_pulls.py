"""`edge-runtime pull` killed anywhere: nothing half, no verdict twice, and nobody overruled by the next look."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow(reason="further pulls over real registries")]

PROCESS = Path(__file__).parents[2] / "support/pull_process.py"


@pytest.fixture
def pulling(root, odd, tmp_path):
    """Return what starts a pull from the odd registry as its unit does."""
    (root.layout.etc / "pull.toml").write_text(f'repository = "{odd.host}/farms/gates"\n')
    (root.layout.etc / "registry-ca.pem").write_text(odd.ca.read_text())
    state = tmp_path / "state"
    state.mkdir()
    environment = {**os.environ, "STATE_DIRECTORY": str(state)}

    def start(*options: str) -> subprocess.Popen:
        command = [sys.executable, str(PROCESS), str(root.root), *options]
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    return start


def ends(process: subprocess.Popen) -> tuple[int, str]:
    _, told = process.communicate(timeout=120)
    return process.returncode, told


@pytest.mark.parametrize("is_named", [False, True])
def test_who_goes_back_by_hand_from_what_a_killed_pull_has_brought_is_not_overruled(root, odd, pulling, is_named):
    old, new = root.bundle("old"), root.bundle("new", sequence=2)
    odd.take(old)
    assert ends(pulling())[0] == 0
    odd.take(new)
    root.script(trial_s=1.0)
    killed = pulling()
    device = root.device
    wait_until(lambda: device.releases.current() == new.manifest.release, what="the new release is on trial")
    killed.kill()
    ends(killed)
    wait_until(lambda: getattr(device.state().last, "release", None) == new.manifest.release, what="its verdict")
    wait_until(lambda: not root.device.state().target, what="the trial has ended")
    root.script()
    root.go_back(old.manifest.release if is_named else None)

    code, told = ends(pulling())

    assert device.releases.current() == old.manifest.release, told
    assert code == 0
    assert ends(pulling())[0] == 0
    assert device.releases.current() == old.manifest.release
