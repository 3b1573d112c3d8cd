"""A Debian root in which a compiler for aarch64 runs at full speed, and what it makes runs emulated."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.pycuda.recipe import DEBIAN

__all__ = ["GCC", "GXX", "MakeError", "Root"]

GCC = "aarch64-linux-gnu-gcc-12"
GXX = "aarch64-linux-gnu-g++-12"
_NATIVE = ("make", "xz-utils", "ca-certificates")
_CROSS = ("gcc-12-aarch64-linux-gnu", "g++-12-aarch64-linux-gnu")
_LIBRARIES = ("libc6-dev", "libstdc++6", "zlib1g-dev", "libffi-dev")
_BINFMT = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")
_STEP_S = 3 * 3600


class MakeError(Exception):
    """Something that has to be there is not, or a command has failed; the text says which and what to do."""


class Root:
    """The root at `path`, made if there is none; commands in it see nothing of this machine's environment."""

    def __init__(self, path: Path, log: Path) -> None:
        self.path, self._log = path, log
        _require_tools()
        if not path.is_dir():
            partial = path.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            self._make(partial)
            partial.rename(path)

    def run(self, command: Sequence[str], *, folder: str = "/", environment: Mapping[str, str] | None = None) -> None:
        """Run a command inside. Raises MakeError if it does not end with 0."""
        self._chroot(self.path, command, folder, environment or {})

    def _make(self, root: Path) -> None:
        self._checked(["debootstrap", "--variant=minbase", f"--include={','.join(_NATIVE)}", DEBIAN, str(root)])
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        is_cross = platform.machine() != "aarch64"
        if is_cross:
            self._chroot(root, ["dpkg", "--add-architecture", "arm64"])
        packages = [*(_CROSS if is_cross else ("gcc-12", "g++-12")), *(f"{name}:arm64" for name in _LIBRARIES)]
        self._chroot(root, ["apt-get", "-qq", "update"])
        self._chroot(root, ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *packages])

    def _chroot(
        self, root: Path, command: Sequence[str], folder: str = "/", environment: Mapping[str, str] | None = None
    ) -> None:
        plain = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        self._checked(["chroot", str(root), "env", "-C", folder, *command], {**plain, **(environment or {})})

    def _checked(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        with self._log.open("ab") as log:
            log.write(f"$ {' '.join(command)}\n".encode())
            log.flush()
            done = subprocess.run(command, stdout=log, stderr=log, env=environment, timeout=_STEP_S, check=False)
        if done.returncode:
            end = self._log.read_text(errors="replace")[-1500:]
            raise MakeError(f"{' '.join(command)[:200]} ended with {done.returncode}; {self._log} ends with:\n{end}")


def _require_tools() -> None:
    if os.geteuid() != 0:
        raise MakeError("debootstrap and chroot need root; or make the wheel on a Jetson: docs/container.md")
    if shutil.which("debootstrap") is None:
        raise MakeError("debootstrap is not installed: sudo apt-get install debootstrap")
    if platform.machine() != "aarch64" and not _BINFMT.exists():
        raise MakeError(
            "programs for aarch64 do not run here: sudo apt-get install qemu-user-static binfmt-support, "
            "and mount binfmt_misc on /proc/sys/fs/binfmt_misc if it is not"
        )
