"""Many machines without a machine: each a root of its own, laid over this one's by overlayfs, behind one real sshd.

What is run there runs as root, in a chroot, and writes to memory; systemctl works on files, and nothing is started.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.manifests import ssh_key
from tests.support.sshd import Sshd

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
        """Run a command on a device as root; return what it writes."""
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
