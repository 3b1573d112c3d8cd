"""Programs of another architecture, run by qemu through binfmt_misc, with the rights that their files have."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from tests.lab.device import VirtualDevice

_ENTRIES = Path("/proc/sys/fs/binfmt_misc")
_LOOSENED = {
    **dict.fromkeys(("edge-build", "edge-recover", "edge-rollback", "edge-trial"), "PrivateNetwork=no"),
    **dict.fromkeys(("edge-runtime", "systemd-tmpfiles-setup"), "LoadCredential=\nSetCredential="),
}
_QEMU_OF = {"arm64": "qemu-aarch64"}


def is_foreign(architecture: str) -> bool:
    """Return whether `architecture` (Debian's name) is not this machine's."""
    return architecture != {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine())


def why_not_emulated(architecture: str) -> str | None:
    """Return why programs of a foreign `architecture` cannot run here; None if they can."""
    entry = _ENTRIES / _QEMU_OF.get(architecture, f"qemu-{architecture}")
    return None if entry.exists() else f"no binfmt_misc entry {entry.name}: install qemu-user-static, mount binfmt_misc"


def keep_setuid(architecture: str) -> None:
    """Register the emulator anew with the flag C, without which sudo in a device would run as its caller."""
    entry = _ENTRIES / _QEMU_OF[architecture]
    text = entry.read_text()
    fields = dict(re.findall(r"^(interpreter|offset|magic|mask) (\S+)$", text, re.MULTILINE))
    (flags,) = re.findall(r"^flags: (\S*)$", text, re.MULTILINE)
    if "C" in flags:
        return
    magic, mask = ("".join(rf"\x{one}" for one in re.findall("..", fields[name])) for name in ("magic", "mask"))
    entry.write_text("-1")
    line = f":{entry.name}:M:{fields['offset']}:{magic}:{mask}:{fields['interpreter']}:{flags}OC"
    (_ENTRIES / "register").write_text(line)


def loosen(device: VirtualDevice) -> None:
    """Take from the units what systemd cannot set up under emulation: networks of their own, and credentials."""
    for unit, lines in _LOOSENED.items():
        _drop_in(device, unit, lines)
    device.run("systemctl daemon-reload")


def have_patience(device: VirtualDevice) -> None:
    """Let systemd wait longer: while an engine is built beside the service, a batch may take half a minute."""
    _drop_in(device, "edge-runtime", "WatchdogSec=300s\nTimeoutStartSec=900s")
    device.run("systemctl daemon-reload")


def _drop_in(device: VirtualDevice, unit: str, lines: str) -> None:
    folder = f"/etc/systemd/system/{unit}.service.d"
    name = lines.partition("=")[0].lower()
    device.run(f"mkdir -p {folder} && cat > {folder}/90-{name}.conf", content=f"[Service]\n{lines}\n")
