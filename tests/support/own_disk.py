"""A real file system of its own, on a loop device: to be filled, frozen, made read-only, without harm to another."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest


class OwnDisk:
    """An ext4 at `folder`, mounted until `remove`; skips the test where nothing can be mounted."""

    def __init__(self, folder: Path, image: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("needs root to mount a disk")
        self.folder, self._is_frozen = folder, False
        folder.mkdir(parents=True, exist_ok=True)
        with image.open("wb") as file:
            file.truncate(32 << 20)
        for words in (["mkfs.ext4", "-q", "-m", "0", image], ["mount", "-o", "loop", image, folder]):
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode != 0:
                pytest.skip(f"cannot mount here: {done.stderr.strip()}")
        (folder / "lost+found").rmdir()

    def freeze(self) -> None:
        """Let nothing that writes to it answer."""
        self._is_frozen = True
        subprocess.run(["fsfreeze", "--freeze", self.folder], check=True)

    def thaw(self) -> None:
        if self._is_frozen:
            subprocess.run(["fsfreeze", "--unfreeze", self.folder], check=True)
            self._is_frozen = False

    def fill(self) -> None:
        """Leave no byte free."""
        ballast = os.open(self.folder / "ballast", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for step_bytes in (1 << 20, 4096, 1):
                with contextlib.suppress(OSError):
                    while os.write(ballast, bytes(step_bytes)):
                        pass
        finally:
            os.close(ballast)

    def unfill(self) -> None:
        (self.folder / "ballast").unlink(missing_ok=True)

    def remount(self, option: str) -> None:
        """Mount it anew, `ro` or `rw`, as a kernel does after an error: also while files are open for writing."""
        flags = "remount,abort" if option == "ro" else "remount,rw"
        subprocess.run(["mount", "-o", flags, self.folder], check=True)

    def close(self) -> None:
        """Unmount it, whoever has files open there."""
        self.thaw()
        subprocess.run(["umount", "-l", self.folder], check=True)
