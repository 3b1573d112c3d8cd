"""A real sshd on a free loopback port, with its own keys and a forced command; nobody's ~/.ssh is read."""

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

from edge.transport.ssh import SshAddress
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
