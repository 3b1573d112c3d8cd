"""A virtual device: booted by systemd-nspawn on an overlay, reachable by ssh, without internet.

What it cannot stand in for: a GPU, and what `tests.lab.machine` is there for: a clock of its own (a container has the
host's, and no option of systemd-nspawn changes that; units with a /proc of their own also see the host's boot id), and
what a power cut does to data that was not synced (the host keeps the page cache).
"""

from __future__ import annotations

import atexit
import os
import shlex
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

from edge.transport.ssh import SshAddress, ssh_command
from tests.lab import image, leftovers
from tests.lab.network import Cable, take_cable
from tests.support.wait import wait_until

_BOOT_S = 60.0
# Ubuntu 24.04 starts sshd when somebody knocks.
_HAS_SSHD = "{ systemctl is-active ssh.service || systemctl is-active ssh.socket; }"
_TAKES_LOGINS = f"systemctl is-active systemd-user-sessions.service && {_HAS_SSHD}"


class VirtualDevice:
    """Boots when made; `layers` are states kept by `freeze`, `disk_bytes` bounds /var/lib/edge-deploy."""

    def __init__(self, *, layers: Sequence[Path] = (), disk_bytes: int | None = None, name: str = "gate-01") -> None:
        devices = image.cache() / "devices"
        leftovers.sweep(devices)
        base = image.base_image()
        self.name = name
        self.folder = devices / f"{name}-{uuid.uuid4().hex[:8]}"
        for part in ("upper", "work", "root", "ssh"):
            (self.folder / part).mkdir(parents=True)
        self.cable: Cable = take_cable()
        leftovers.write_owner(self.folder, self.cable)
        atexit.register(self.remove)
        self.layers = [self.folder / "upper", *layers, base]
        lower = ":".join(str(layer) for layer in self.layers[1:])
        options = f"lowerdir={lower},upperdir={self.folder}/upper,workdir={self.folder}/work"
        _run(["mount", "-t", "overlay", "overlay", "-o", options, str(self.root)])
        self._disk = self._mount_disk(disk_bytes) if disk_bytes else None
        self._write_identity()
        self._process: subprocess.Popen[bytes] | None = None
        self.boot()

    @property
    def root(self) -> Path:
        """Its file system, as the host sees it."""
        return self.folder / "root"

    @property
    def data(self) -> Path:
        """What lies in its /var/lib/edge-deploy, as the host sees it."""
        return self._disk or self.root / "var/lib/edge-deploy"

    @property
    def host_address(self) -> str:
        """Where the device finds what runs on the host (a broker)."""
        return self.cable.host_address

    @property
    def address(self) -> str:
        """Where the host finds the device."""
        return self.cable.device_address

    @property
    def ssh_config(self) -> Path:
        """An ssh_config that knows the device by its name, its host key, and the key of `admin` and of `push_key`."""
        return self.folder / "ssh" / "config"

    @property
    def push_key(self) -> Path:
        """A key pair of the lab, the same for all devices; nobody has let it in yet."""
        return push_key()

    def admin(self) -> SshAddress:
        """Return the address of the administrator, who may use sudo."""
        return SshAddress(host=self.name, user=image.ADMIN, config=self.ssh_config)

    def pusher(self) -> SshAddress:
        """Return the address of the user who pushes, with `push_key`."""
        return SshAddress(host=self.name, user="edge-deploy", identity=self.push_key, config=self.ssh_config)

    def boot(self) -> None:
        """Switch it on and wait until it takes logins."""
        command = ["systemd-nspawn", "--quiet", "-D", str(self.root), "--machine", self.folder.name, "--register=no"]
        command += ["--boot", "--console=pipe", f"--network-namespace-path={self.cable.namespace}"]
        command += ["--hostname", self.name, "--resolv-conf=off", "--timezone=off"]
        if not Path("/run/systemd/system").is_dir():
            command.append("--keep-unit")  # no systemd on the host that could make a scope
        if self._disk is not None:
            command.append(f"--bind={self._disk}:/var/lib/edge-deploy")
        with (self.folder / "console.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._in_own_cgroup(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                start_new_session=True,
            )
        self._write_process()
        wait_until(self._takes_logins, what=f"{self.name} boots; see {self.folder}/console.log", timeout_s=_BOOT_S)

    def run(
        self, command: str | Sequence[str], *, check: bool = True, timeout_s: float = 120.0, content: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run as root in the device; a string is given to a shell."""
        words = ["sh", "-c", command] if isinstance(command, str) else list(command)
        done = self._ran(words, content, timeout_s)
        if check and done.returncode:
            raise AssertionError(f"{command!r} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def _ran(self, words: list[str], content: str | None, timeout_s: float) -> subprocess.CompletedProcess[str]:
        line = ["nsenter", "--target", str(self._init()), "--all", "env", "-i", *_PLAIN, *words]
        return subprocess.run(line, input=content, capture_output=True, text=True, timeout=timeout_s)

    def over_ssh(
        self, address: SshAddress, command: str = "", *, content: str | None = None, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run over ssh, as the one who would; bytes of an agent's frames that are no text become U+FFFD."""
        line = ssh_command(address, [command] if command else [])
        return subprocess.run(
            line, input=content or "", capture_output=True, text=True, errors="replace", timeout=timeout_s
        )

    def link_of(self, name: str) -> str | None:
        """Return where a link in /var/lib/edge-deploy points; None if there is none."""
        try:
            return os.readlink(self.data / name)
        except FileNotFoundError:
            return None

    def text_of(self, name: str) -> str | None:
        """Return what a file in /var/lib/edge-deploy holds; None if there is none."""
        try:
            return (self.data / name).read_text()
        except FileNotFoundError:
            return None

    def boot_id(self) -> str:
        """Return the number of this boot."""
        return self.run("cat /proc/sys/kernel/random/boot_id").stdout.strip()

    def reboot(self) -> None:
        """Restart it as `reboot` does, and wait until it takes logins again."""
        before = self._init()
        self.run("systemctl --no-block reboot")
        wait_until(lambda: leftovers.init_pid(self.folder) != before, what=f"{self.name} goes down", timeout_s=100)
        if Path("/run/systemd/system").is_dir():
            wait_until(self._takes_logins, what=f"{self.name} boots again", timeout_s=_BOOT_S)
        elif self._process is not None:
            # Without a scope of its own systemd-nspawn leaves the restart to its caller.
            self._process.wait(60)
            self.boot()

    def power_cut(self) -> None:
        """Take its power away; `boot` gives it back."""
        leftovers.power_off(self.folder)
        if self._process is not None:
            self._process.wait(60)

    def fill_disk(self, *, leave_bytes: int) -> None:
        """Leave `leave_bytes` free in /var/lib/edge-deploy; `empty_disk` ends it."""
        where = self._disk
        if where is None:
            raise ValueError("this device was made without disk_bytes")
        free = os.statvfs(where)
        with (where / "ballast").open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, max(1, free.f_bavail * free.f_frsize - leave_bytes))

    def empty_disk(self) -> None:
        """Take away what `fill_disk` put there."""
        if self._disk is not None:
            (self._disk / "ballast").unlink()

    def freeze(self) -> Path:
        """Switch it off for good and return its state as a layer for other devices, which lasts until `remove`."""
        self.run("sync")
        self.power_cut()
        _run(["umount", str(self.root)])
        return self.folder / "upper"

    def remove(self) -> None:
        """Switch it off and take everything of it away; may be called twice."""
        atexit.unregister(self.remove)
        leftovers.take_away(self.folder, self.cable)
        if self._process is not None:
            self._process.wait(60)

    def __enter__(self) -> VirtualDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _write_process(self) -> None:
        """Have what runs the device be found by whoever takes away what this process leaves behind."""
        if self._process is not None:
            (self.folder / "process.pid").write_text(str(self._process.pid))

    def _init(self) -> int:
        pid = leftovers.init_pid(self.folder)
        if pid is None:
            raise AssertionError(f"{self.name} is off; see {self.folder}/console.log")
        return pid

    def _takes_logins(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(f"{self.name} did not boot: {(self.folder / 'console.log').read_text()[-800:]}")
        if leftovers.init_pid(self.folder) is None:
            return False
        try:
            asked = self.run(_TAKES_LOGINS, check=False, timeout_s=10.0)
        except subprocess.TimeoutExpired:
            return False  # caught on its way down
        return asked.returncode == 0

    def _in_own_cgroup(self, command: list[str]) -> list[str]:
        """Stay apart from other devices: without a manager each of them would use the same folder of cgroups."""
        unified = next((p for p in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")) if _is_cgroup2(p)), None)
        if unified is None or Path("/run/systemd/system").is_dir():
            return command
        own = unified / f"edge-lab-{self.cable.number}"
        own.mkdir(exist_ok=True)
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(own / "cgroup.procs"), *command]

    def _mount_disk(self, length_bytes: int) -> Path:
        image_file, where = self.folder / "disk.img", self.folder / "var"
        where.mkdir()
        with image_file.open("wb") as disk:
            disk.truncate(length_bytes)
        _run(["mkfs.ext4", "-q", "-m", "0", str(image_file)])
        _run(["mount", "-o", "loop", str(image_file), str(where)])
        (where / "lost+found").rmdir()
        return where

    def _write_identity(self) -> None:
        """Name it, and let its administrator in; what was written by a layer is written again."""
        ssh = self.folder / "ssh"
        _make_key(ssh / "admin")
        (self.root / "etc/machine-id").write_text("")
        (self.root / "etc/hostname").write_text(f"{self.name}\n")
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost {self.name}\n{self.host_address} workstation\n")
        home = self.root / "home" / image.ADMIN
        owner = home.stat()
        (home / ".ssh").mkdir(mode=0o700, exist_ok=True)
        (home / ".ssh/authorized_keys").write_text((ssh / "admin.pub").read_text())
        for path in (home / ".ssh", home / ".ssh/authorized_keys"):
            os.chown(path, owner.st_uid, owner.st_gid)
        host_key = (self.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()
        (ssh / "known_hosts").write_text(f"{self.address} {host_key[0]} {host_key[1]}\n")
        self.ssh_config.write_text(
            f"Host {self.name}\n  HostName {self.address}\n  Port 22\n  UserKnownHostsFile {ssh}/known_hosts\n"
            f"  GlobalKnownHostsFile /dev/null\n  IdentityFile {ssh}/admin\n  IdentitiesOnly yes\n"
            f"Match host {self.address} user edge-deploy\n  IdentityFile {self.push_key}\n"
        )


def push_key() -> Path:
    """Return the key pair of the lab that may push and sign; made when first asked for."""
    return _make_key(image.cache() / "keys" / "push")


_PLAIN = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/root")


def _make_key(path: Path) -> Path:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{path.name}@lab", "-f", str(path)])
    return path


def _is_cgroup2(path: Path) -> bool:
    return (path / "cgroup.controllers").is_file()


def _run(command: Sequence[str], *, timeout_s: float = 60.0) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} ended with {done.returncode}: {done.stderr}")
