import getpass
import sys

import pytest

from tests.support.showing import chromium, showing
from tests.support.sshd import Sshd

TRACKING = {
    "zones": [{"id": "forecourt", "polygon": [[0.1, 0.5], [0.9, 0.5], [0.5, 1.0]]}],
    "lost_s": 2.5,
    "lines": [{"id": "gate", "start": [0.0, 0.6], "end": [1.0, 0.6]}],
}
HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.fixture
def device(root):
    return root


@pytest.fixture
def service(tmp_path, model, clip, device, monkeypatch):
    """A service of two cameras that run and one that is not there, on a device; its reason holds HTML."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    streams = [
        {"id": "east", "uri": str(clip), "loop": True, "realtime": True, "tracking": TRACKING},
        {"id": "west", "uri": str(clip), "loop": True, "realtime": True},
        {"id": "gone", "uri": f"rtsp://127.0.0.1:9/{HOSTILE.replace(' ', '%20')}"},
    ]
    content = {"model": {"onnx": str(model)}}
    with showing(tmp_path, streams=streams, health=device.layout.health, **content) as one:
        yield one


@pytest.fixture(scope="module")
def browser():
    with chromium() as one:
        yield one


@pytest.fixture
def deploy(tmp_path, device):
    """The words of an `edge-deploy` command about gate-01, which is the device behind a real sshd."""
    with Sshd(tmp_path / "sshd", command=device.command) as sshd:
        inventory = tmp_path / "targets.toml"
        inventory.write_text(
            f'[defaults]\nssh_config = "{sshd.address().config}"\nuser = "{getpass.getuser()}"\n'
            f'[[target]]\nname = "gate-01"\nhost = "device"\n'
        )

        def words(command, *arguments):
            program = [sys.executable, "-m", "edge.cli.edge_deploy", command, "gate-01"]
            return [*program, "--targets", str(inventory), *arguments]

        yield words
