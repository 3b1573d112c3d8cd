"""A virtual machine: a device with a kernel, a clock and a page cache of its own, run by qemu without KVM.

What a container cannot stand in for: its clock can be set, its boot id is its own, and when its power is cut everything
is lost that its kernel had not written to the disk. Every instruction is translated, so times say nothing of a Jetson.
"""

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.lab import image
from tests.lab.device import VirtualDevice
from tests.support.wait import wait_until

_DISK_BYTES, _MEMORY_MIB, _CORES = 4 << 30, 3072, 2
# What qemu's network gives its only guest.
_NETWORK = """[Match]
Name=eth0
[Network]
Address=10.0.2.15/24
Gateway=10.0.2.2
"""
_FSTAB = "/dev/vda / ext4 defaults 0 1\n"
_ENABLED = "/etc/systemd/system/multi-user.target.wants/systemd-networkd.service"


@dataclass(frozen=True)
class Board:
    """What an architecture's machine is, in qemu's words; `binfmt` names the emulator of its single programs."""

    emulator: str
    binfmt: str
    options: tuple[str, ...]
    console: str
    environment: str = ""


_BOARDS = {
    # qemu 7.2 computes an AVX2 instruction wrong with which numpy takes the larger of two columns: numpy does without.
    "amd64": Board("qemu-system-x86_64", "qemu-x86_64", ("-cpu", "max"), "ttyS0", "NPY_DISABLE_CPU_FEATURES=X86_V3"),
    # The core that qemu knows next to Orin's Cortex-A78AE: the same dot products, no SVE.
    "arm64": Board("qemu-system-aarch64", "qemu-aarch64", ("-machine", "virt", "-cpu", "cortex-a76"), "ttyAMA0"),
}


def board(architecture: str | None = None) -> Board:
    """Return what machines of an architecture, in Debian's words, are to be; None: of the one asked for."""
    return _BOARDS[architecture or image.debian_architecture()]


class VirtualMachine(VirtualDevice):
    """Boots when made, from a disk that starts as the state of `layers`; `rtc` is what its clock says at each boot."""

    rtc = "utc"

    def boot(self) -> None:
        disk = self.folder / "disk.img"
        if not disk.exists():
            self._write_disk(disk)
        (boot,) = (layer / "boot" for layer in self.layers if (layer / "boot").is_dir())
        (kernel,), (initrd,) = boot.glob("vmlinuz-*"), boot.glob("initrd.img-*")
        command = ["nsenter", f"--net={self.cable.namespace}", board().emulator, *board().options]
        command += ["-accel", "tcg,thread=multi", "-smp", str(_CORES), "-m", str(_MEMORY_MIB)]
        command += ["-display", "none", "-serial", f"file:{self.folder}/console.log", "-rtc", f"base={self.rtc}"]
        command += ["-kernel", str(kernel), "-initrd", str(initrd)]
        command += ["-append", f"root=/dev/vda rw console={board().console} net.ifnames=0 panic=-1 quiet"]
        command += ["-drive", f"file={disk},if=virtio,format=raw"]
        command += ["-netdev", f"user,id=cable,hostfwd=tcp:{self.address}:22-:22"]
        command += ["-device", "virtio-net-pci,netdev=cable"]
        with (self.folder / "qemu.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._write_process()
        wait_until(self._takes_logins, what=f"{self.name} boots; see {self.folder}/console.log", timeout_s=300)

    def _ran(self, words: list[str], content: str | None, timeout_s: float) -> subprocess.CompletedProcess[str]:
        return self.over_ssh(self.admin(), f"sudo -n {shlex.join(words)}", content=content, timeout_s=timeout_s)

    def link_of(self, name: str) -> str | None:
        return self.run(f"readlink /var/lib/edge-deploy/{name}", check=False).stdout.strip() or None

    def text_of(self, name: str) -> str | None:
        return self.run(f"cat /var/lib/edge-deploy/{name}", check=False).stdout or None

    def reboot(self) -> None:
        before = self.boot_id()
        self.run("systemctl --no-block reboot")
        wait_until(
            lambda: self._takes_logins() and self.boot_id() != before, what=f"{self.name} boots again", timeout_s=300
        )

    def freeze(self) -> Path:
        """Raise: what lies on its disk cannot become a layer."""
        raise NotImplementedError

    def _takes_logins(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(f"{self.name} did not boot: {(self.folder / 'qemu.log').read_text()[-800:]}")
        try:
            asked = self.run("systemctl is-active ssh.service", check=False, timeout_s=20.0)
        except subprocess.TimeoutExpired:
            return False
        return asked.stdout.split() == ["active"]

    def _write_disk(self, disk: Path) -> None:
        """Make a disk of what the layers show, with what a machine of its own needs."""
        (self.root / "etc/fstab").write_text(_FSTAB)
        (self.root / "etc/systemd/network/10-lab.network").write_text(_NETWORK)
        (self.root / "etc/systemd/system.conf.d").mkdir(exist_ok=True)
        (self.root / "etc/systemd/system.conf.d/10-lab.conf").write_text(
            f"[Manager]\nDefaultEnvironment={board().environment}\n"
        )
        enabled = self.root / _ENABLED.lstrip("/")
        enabled.unlink(missing_ok=True)
        enabled.parent.mkdir(parents=True, exist_ok=True)
        enabled.symlink_to("/lib/systemd/system/systemd-networkd.service")
        with disk.open("wb") as empty:
            empty.truncate(_DISK_BYTES)
        made = subprocess.run(
            ["mkfs.ext4", "-q", "-d", str(self.root), str(disk)], capture_output=True, text=True, timeout=300
        )
        assert made.returncode == 0, made.stderr
