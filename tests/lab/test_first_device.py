"""docs/first-device.md followed word for word, in its order, against a machine that nobody has provisioned."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import image, releases
from tests.lab.provisioning import ROOT
from tests.support.mosquitto import Mosquitto

PAGE = (ROOT / "docs/first-device.md").read_text(encoding="utf-8")
# What a person does at another place: packages that the image has, and secrets typed at a prompt.
ELSEWHERE = ("sudo apt-get", "gstreamer1.0-", "Host ", "  HostName", "  User")


def commands() -> list[str]:
    """Return the indented lines of the page, without comments, as they are typed."""
    text = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    lines = re.findall(r"^    (\S.*|  (?:HostName|User) .*)$", text, re.MULTILINE)
    return [line.partition("    #")[0].rstrip() for line in lines if not line.startswith(ELSEWHERE)]


@pytest.fixture
def desk(device, tmp_path):
    """A person's home with what the page takes for granted: a model, a table, pictures, and a broker."""
    cameras = releases.draw_cameras(tmp_path / "cameras")
    (tmp_path / "val").mkdir()
    (cameras / "golden/images").rename(tmp_path / "val/images")
    (tmp_path / "yolo11s.onnx").write_bytes(releases.MODEL.read_bytes())
    (tmp_path / "yolo11s.calib.json").write_bytes(releases.TABLE.read_bytes())
    (tmp_path / "east.mp4").write_bytes((cameras / "east.mp4").read_bytes())
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh/config").write_text(ssh_config(device, tmp_path))
    (tmp_path / "bin").mkdir()
    tool(tmp_path / "bin/edge-deploy", f'PYTHONPATH={ROOT} exec {sys.executable} -m edge.cli.edge_deploy "$@"')
    # OpenSSH looks for its configuration in the home of the account, whatever $HOME says.
    tool(tmp_path / "bin/ssh", f'exec /usr/bin/ssh -F {tmp_path}/.ssh/config "$@"')
    pipeline = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert pipeline is not None
    (tmp_path / "gates.yaml").write_text(
        pipeline[1]
        .replace("192.168.1.10\n", f"{device.host_address}\n")
        .replace("rtsp://192.168.1.51/stream1", "east.mp4\n    loop: true\n    realtime: true\n    max_fps: 5")
    )
    with Mosquitto(tmp_path / "broker", host=device.host_address, port=1883):
        yield tmp_path


def ssh_config(device, home: Path) -> str:
    block = re.search(r"^    (Host gate-01\n(?:      .*\n)+)", PAGE, re.MULTILINE)
    assert block is not None
    mine = block[1].replace("192.168.1.40", device.address).replace("ubuntu", image.ADMIN)
    keys = "".join(f"  IdentityFile {key}\n" for key in (device.folder / "ssh/admin", home / ".ssh/id_ed25519"))
    return f"{mine}{keys}  IdentitiesOnly yes\n  UserKnownHostsFile {device.folder}/ssh/known_hosts\n"


def tool(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def typed(line: str, home: Path, device) -> subprocess.CompletedProcess[str]:
    """Run a line of the page in a person's shell; what differs from site to site is put in its place."""
    here = line.replace("192.168.1.10", device.host_address)
    if line.startswith("ssh-keygen"):
        here += f" -q -N '' -f {home}/.ssh/id_ed25519"
    environment = {**os.environ, "HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}"}
    environment.pop("XDG_CONFIG_HOME", None)
    environment["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return subprocess.run(
        ["bash", "-c", here],
        cwd=home,
        env=environment,
        input="user:password\n",
        capture_output=True,
        text=True,
        timeout=400,
    )


def test_the_page_says_what_there_is_to_type():
    assert len(commands()) >= 18
    assert {line.split()[1] for line in commands() if line.startswith("edge-deploy ")} >= {
        "provision", "bundle", "push", "status", "listen", "logs", "rollback",
    }  # fmt: skip


def test_a_new_user_gets_from_a_machine_to_a_served_pipeline_and_back(device, desk):
    told: list[str] = []
    for line in commands():
        done = typed(line, desk, device)
        # A loaded machine proves that it is slow.
        expected = (0, 10) if "deploy prove" in line else (10,) if line.endswith("--plan") else (0,)
        assert done.returncode in expected, f"{line}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        told.append(done.stdout + done.stderr)

    everything = "".join(told)
    for said in re.findall(r"^gate-01: .*$|(?<=`)gate-01: [^`]*", PAGE, re.MULTILINE):
        assert said in everything, said
    assert everything.count("committed") >= 2
    assert "unchanged" in everything
