"""Fifty devices behind one real sshd, each a folder with the real agent; some of them are broken."""

import getpass
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from edge.config.targets import Target, find_inventory
from edge.delivery.deliverable import DeliveryOptions
from edge.deploy.fleet.journal import Journal
from edge.deploy.fleet.over_ssh import push_over_ssh
from edge.device.lock import PushLock
from tests.support.device_root import DeviceRoot
from tests.support.fleet import Running, wave
from tests.support.ports import free_port
from tests.support.sshd import Sshd

pytestmark = pytest.mark.slow(reason="further pushes over real agents")

COUNT = 50
UNREACHABLE, UNHEALTHY, FULL, LOCKED = ("d-03", "d-17", "d-41"), ("d-08", "d-22"), "d-09", "d-11"
DEADLINE_S = 300.0


class Site:
    """The devices by name, and the targets of the inventory that lists them."""

    def __init__(self, directory: Path, sshd: Sshd) -> None:
        self.devices = {}
        for number in range(COUNT):
            folder = directory / f"d-{number:02}"
            folder.mkdir()
            self.devices[folder.name] = DeviceRoot(folder)
        first = self.devices["d-00"]
        for device in self.devices.values():
            device.layout.allowed_signers.write_text(first.layout.allowed_signers.read_text())
        _allow_each_key_its_device(sshd, self.devices)
        self.targets = _inventory(directory, sshd, self.devices)
        self.bundle = first.bundle("one", model=b"weights" * 100_000)

    def connections(self) -> dict[str, int]:
        """Return when the agent of each device was last started; 0 if never."""
        paths = {name: device.root / "agent.pid" for name, device in self.devices.items()}
        return {name: path.stat().st_mtime_ns if path.exists() else 0 for name, path in paths.items()}


def _allow_each_key_its_device(sshd: Sshd, devices: dict[str, DeviceRoot]) -> None:
    lines = []
    for device in devices.values():
        key = device.directory / "login"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        public = key.with_suffix(".pub").read_text()
        lines.append(f'restrict,command="{shlex.join(device.command)}" {public}')
    (sshd.directory / "authorized_keys").write_text("".join(lines))


def _inventory(directory: Path, sshd: Sshd, devices: dict[str, DeviceRoot]) -> tuple[Target, ...]:
    (directory / "ssh_config").write_text(
        f"Host *\n  UserKnownHostsFile {sshd.known_hosts}\n  GlobalKnownHostsFile /dev/null\n  IdentityAgent none\n"
    )
    nobody = free_port()
    text = f'[defaults]\nuser = "{getpass.getuser()}"\nssh_config = "ssh_config"\n'
    for name in devices:
        port = nobody if name in UNREACHABLE else sshd.port
        text += f'[[target]]\nname = "{name}"\nhost = "127.0.0.1"\nport = {port}\nidentity = "{name}/login"\n'
    (directory / "targets.toml").write_text(text)
    return tuple(find_inventory(directory / "targets.toml").targets.values())


@pytest.fixture
def site(tmp_path):
    with Sshd(tmp_path / "sshd", command=None) as sshd:
        yield Site(tmp_path, sshd)


def test_f25_fifty_targets_some_of_them_broken(site, tmp_path):
    for name in UNHEALTHY:
        site.devices[name].script(trial="refuse")
    toml = site.devices[FULL].layout.device_toml
    working_toml = toml.read_text()
    toml.write_text(working_toml.replace("reserve_bytes = 0", f"reserve_bytes = {10**15}"))
    push = push_over_ssh(site.bundle, DeliveryOptions(who="tester"))
    order = wave(canary=("d-00",), steps=("10%", "100%"), max_failed="5%")

    with PushLock(site.devices[LOCKED].layout).acquire("somebody", "else"), Journal(tmp_path / "j.jsonl") as journal:
        running = Running(site.targets, push, order=order, max_parallel=8, journal=journal)
        first = running.join(timeout_s=DEADLINE_S)

    codes = {outcome.target: outcome.code for outcome in first.outcomes}
    results = running.memory.results()
    assert first.exit_code == 11
    assert len(results) == COUNT
    assert results["d-03"] == "unreachable"
    assert codes["d-09"] == "preflight.space"
    assert codes["d-11"] == "lock.held"
    assert results["d-08"] == "rolled-back"
    assert codes["d-49"] == "fleet.stopped"
    done = {outcome.target for outcome in first.outcomes if outcome.is_done}
    assert {"d-00", "d-01", "d-02", "d-04", "d-05"} <= done

    # What was broken is mended; three are still away.
    for name in UNHEALTHY:
        site.devices[name].script(trial="commit")
    toml.write_text(working_toml)
    before = site.connections()
    with Journal(tmp_path / "j.jsonl") as journal:
        again = push_over_ssh(site.bundle, DeliveryOptions(who="tester", retry_bad=True))
        resumed = Running(site.targets, again, order=order, journal=journal, is_resumed=True)
        second = resumed.join(timeout_s=DEADLINE_S)

    assert {outcome.target for outcome in second.outcomes if not outcome.is_done} == set(UNREACHABLE)
    assert set(resumed.memory.results()) == set(site.devices) - done
    assert {name for name, when in site.connections().items() if when == before[name]} == done | set(UNREACHABLE)
    assert second.exit_code == 11
    release = site.bundle.manifest.release
    assert all(
        device.device.releases.current() == release for name, device in site.devices.items() if name not in UNREACHABLE
    )

    reachable = [target for target in site.targets if target.name not in UNREACHABLE]
    began_s = time.monotonic()
    third = Running(reachable, push).join(timeout_s=DEADLINE_S)
    print(f"unchanged push to {len(reachable)} targets on one machine: {time.monotonic() - began_s:.1f} s")
    assert {outcome.result for outcome in third.outcomes} == {"unchanged"}
    assert sum(outcome.bytes_sent for outcome in third.outcomes) == 0
