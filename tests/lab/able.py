"""Whether this machine can boot a virtual device, and if not, what is missing."""

import functools
import os
import shutil
from pathlib import Path

from tests.lab import image, machine, network

_NEEDED = ("systemd-nspawn", "debootstrap", "ip", "nsenter", "ssh", "ssh-keygen", "mkfs.ext4")
_EMULATORS = Path("/proc/sys/fs/binfmt_misc")
_CAP_SYS_ADMIN = 1 << 21


@functools.cache
def why_not() -> str | None:
    """Return why no virtual device can run here; None if one can."""
    needed = (*_NEEDED, *([machine.board().emulator] if image.is_machine() else ()))
    missing = [name for name in needed if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if os.geteuid() != 0:
        return "systemd-nspawn needs root"
    if not _capabilities() & _CAP_SYS_ADMIN:
        return "systemd-nspawn needs CAP_SYS_ADMIN"
    return why_no_programs(image.debian_architecture()) or network.why_no_namespaces()


def why_no_programs(architecture: str) -> str | None:
    """Return why programs of an architecture, in Debian's words, do not run here; None if they do."""
    if architecture == image.native_architecture() or (_EMULATORS / machine.board(architecture).binfmt).exists():
        return None
    return f"programs for {architecture} do not run here: install qemu-user-static, mount binfmt_misc"


def _capabilities() -> int:
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    return int(status["CapEff"], 16)
