"""A real sshd on a free loopback port, with its own keys and a forced command; or many machines behind one."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from edge.transport.ssh import SshAddress
from tests.support.manifests import ssh_key
from tests.support.ports import free_port
from tests.support.wait import wait_until

_SSHD = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")


class Sshd:
    """Started by `with`; whoever logs in gets `command`, whatever he asks for (None: he gets what he asks for)."""

    def __init__(self, directory: Path, *, command: Sequence[str] | None) -> None:
        assert _SSHD is not None, "openssh-server is not installed"
        directory.mkdir(parents=True)
        self.directory = directory
        self.port = free_port()
        for name in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)], check=True)
        self.allow(command)
        public = (directory / "host_key.pub").read_text().split()[:2]
        self.known_hosts = directory / "known_hosts"
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {' '.join(public)}\n")
        self._process: subprocess.Popen | None = None

    def allow(self, command: Sequence[str] | None) -> None:
        """Say what the key may run, from the next login on."""
        options = ""
        if command is not None:
            quoted = shlex.join(command).replace('"', '\\"')
            options = f'restrict,command="{quoted}" '
        keys = self.directory / "authorized_keys"
        keys.write_text(options + (self.directory / "user_key.pub").read_text())
        keys.chmod(0o600)

    def address(self, *, port: int | None = None) -> SshAddress:
        """Return how it is reached, by `port` if something stands between."""
        config = self.directory / f"ssh_config-{port or self.port}"
        config.write_text(
            f"Host device\n  HostName 127.0.0.1\n  Port {port or self.port}\n  User {getpass.getuser()}\n"
            f"  HostKeyAlias [127.0.0.1]:{self.port}\n  UserKnownHostsFile {self.known_hosts}\n"
            f"  GlobalKnownHostsFile /dev/null\n  IdentityFile {self.directory / 'user_key'}\n"
            "  IdentitiesOnly yes\n  IdentityAgent none\n  CheckHostIP no\n"
        )
        return SshAddress(host="device", config=config)

    def __enter__(self) -> Sshd:
        if os.getuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # sshd separates its privileges there
        settings = {
            "ListenAddress": "127.0.0.1",
            "Port": self.port,
            "HostKey": self.directory / "host_key",
            "AuthorizedKeysFile": self.directory / "authorized_keys",
            "PidFile": "none",
            "UsePAM": "no",
            "StrictModes": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "MaxStartups": "100",
            "UseDNS": "no",
        }
        config = self.directory / "sshd_config"
        config.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        with (self.directory / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen([_SSHD, "-D", "-e", "-f", str(config)], stdout=log, stderr=log)
        wait_until(self._is_listening, what=f"sshd listens; see {self.directory}/sshd.log")
        return self

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems: needs root")

_STAND_INS = {
    "systemctl": """#!/bin/sh
echo "$*" >>/systemctl.log
case "$*" in
  *daemon-reload*|start*|stop*|restart*|reset-failed*) exit 0 ;;
esac
exec /usr/bin/systemctl --root=/ "$@"
""",
    "udevadm": "#!/bin/sh\n",
}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class OverlayDevices:
    """Started by `with`; `ssh_config` reaches device `d-00` and so on by their names."""

    def __init__(self, directory: Path, count: int) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.names = [f"d-{number:02}" for number in range(count)]
        self.ssh_config = directory / "ssh_config"
        self._sshd = Sshd(directory / "sshd", command=None)
        self._mounted: list[Path] = []

    def root(self, name: str) -> Path:
        return self.directory / "memory" / name / "root"

    def run(self, name: str, command: str) -> str:
        done = subprocess.run(["chroot", str(self.root(name)), "sh", "-c", command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def __enter__(self) -> OverlayDevices:
        memory = self.directory / "memory"
        memory.mkdir()
        try:
            self._mount(memory, "-t", "tmpfs", "-o", "mode=755", "tmpfs")
            for name in self.names:
                self._make(name)
            self._write_ssh()
            self._sshd.__enter__()
        except BaseException:
            self._unmount()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._sshd.__exit__(*exc_info)
        self._unmount()

    def _make(self, name: str) -> None:
        root = self.root(name)
        upper, work = root.parent / "upper", root.parent / "work"
        for folder in (root, upper, work):
            folder.mkdir(parents=True)
        self._mount(root, "-t", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", "overlay")
        (root / "etc/udev").mkdir(exist_ok=True)  # a machine has these, a container need not
        for tool, script in _STAND_INS.items():
            path = root / "usr/local/bin" / tool
            path.write_text(script)
            path.chmod(0o755)
        self._mount(root / "dev", "--rbind", "/dev")
        self._mount(root / "proc", "-t", "proc", "proc")

    def _write_ssh(self) -> None:
        lines, config = [], ""
        for name in self.names:
            key = ssh_key(self.directory, name)
            inside = shlex.join(["chroot", str(self.root(name)), "/usr/bin/env", "-i", f"PATH={_PATH}", "HOME=/root"])
            command = f'{inside} sh -c \\"$SSH_ORIGINAL_COMMAND\\"'
            lines.append(f'restrict,command="{command}" {key.with_suffix(".pub").read_text()}')
            config += f"Host {name}\n  HostName 127.0.0.1\n  Port {self._sshd.port}\n  IdentityFile {key}\n"
        (self._sshd.directory / "authorized_keys").write_text("".join(lines))
        self.ssh_config.write_text(
            f"{config}Host *\n  User root\n  UserKnownHostsFile {self._sshd.known_hosts}\n"
            "  GlobalKnownHostsFile /dev/null\n  IdentitiesOnly yes\n  IdentityAgent none\n  CheckHostIP no\n"
        )

    def _mount(self, where: Path, *words: str) -> None:
        subprocess.run(["mount", *words, str(where)], check=True, capture_output=True)
        self._mounted.append(where)

    def _unmount(self) -> None:
        while self._mounted:
            subprocess.run(["umount", "--lazy", str(self._mounted.pop())], check=False, capture_output=True)
