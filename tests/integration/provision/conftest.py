"""Machines behind a real sshd, and a person who provisions them with little wheels."""

import pytest
from click.testing import CliRunner

from edge.cli.commands.provision import provision
from edge.deploy.provision import wheels as gathering
from tests.support.manifests import ssh_key
from tests.support.sshd import OverlayDevices
from tests.support.wheels import little_lock, little_wheel, real_pip


@pytest.fixture
def software(tmp_path, monkeypatch):
    """Have little wheels stand for the libraries; the pip that installs them is a real one."""
    folder, own = tmp_path / "cache/edge-deploy/wheels", tmp_path / "own"
    folder.mkdir(parents=True)
    own.mkdir()
    little_wheel(folder, "numpy", "2.0")
    real_pip(folder)
    ours = [little_wheel(own, "edge-deploy", "0.1.0", "numpy>=1.24").read_bytes()]
    lock = little_lock(folder.glob("*.whl"))
    monkeypatch.setattr(gathering, "read_lock", lambda: lock)
    monkeypatch.setattr(gathering, "own_wheel", lambda: ours[0])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def newer() -> None:
        ours[0] = little_wheel(own, "edge-deploy", "0.1.0", "numpy>=1.25").read_bytes()

    return newer


@pytest.fixture
def person(tmp_path, software):
    """Return what runs the command for targets of an inventory, and tells its exit code and both outputs."""
    own = (f"{ssh_key(tmp_path)}.pub",)

    def person(devices: OverlayDevices, *words: object, wave="canary = []", missing=(), keys=own):
        text = f'[defaults]\nmax_parallel = 8\nssh_config = "{devices.ssh_config}"\n[wave]\n{wave}\n'
        for name in [*devices.names, *missing]:
            text += f'[[target]]\nname = "{name}"\nhost = "{name}"\nlabels = {{ site = "north" }}\n'
        (tmp_path / "targets.toml").write_text(text)
        named = [] if "--undo" in words else [word for key in keys for word in ("--key", key, "--signer", key)]
        whole = map(str, ["--targets", tmp_path / "targets.toml", *named, *words])
        return CliRunner().invoke(provision, [*whole], standalone_mode=False, catch_exceptions=False)

    return person
