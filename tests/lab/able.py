"""Whether this machine can boot a virtual device, and if not, what is missing."""

from __future__ import annotations

import functools
import os
import platform
import shutil
from pathlib import Path

from tests.lab import image, network

_NEEDED = ("systemd-nspawn", "debootstrap", "ip", "nsenter", "ssh", "ssh-keygen", "mkfs.ext4")
_CAP_SYS_ADMIN = 1 << 21


@functools.cache
def why_not() -> str | None:
    """Return why no virtual device can run here; None if one can."""
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if os.geteuid() != 0:
        return "systemd-nspawn needs root"
    if not _capabilities() & _CAP_SYS_ADMIN:
        return "systemd-nspawn needs CAP_SYS_ADMIN"
    return _why_no_foreign_code() or network.why_no_namespaces()


def _capabilities() -> int:
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    return int(status["CapEff"], 16)


def _why_no_foreign_code() -> str | None:
    wanted = image.debian_architecture()
    if wanted == {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine()):
        return None
    emulator = {"arm64": "qemu-aarch64"}.get(wanted, f"qemu-{wanted}")
    if not Path(f"/proc/sys/fs/binfmt_misc/{emulator}").exists():
        return f"no binfmt_misc entry {emulator}: install qemu-user-static and mount binfmt_misc"
    return None
