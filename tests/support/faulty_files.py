"""Files of which the n-th call fails, once or from then on."""

import os
from pathlib import Path

from edge.device.durable import Files

CHANGING = {
    "write", "write_at", "allocate", "protect", "append", "sync", "sync_dir", "rename", "symlink",
    "make_dir", "remove", "remove_dir",
}  # fmt: skip
GROWING = {"write", "write_at", "allocate", "append", "symlink", "make_dir"}


class FaultyFiles:
    """Passes each call on to `files`; call number `at` (from 0) raises `number`, and if `lasts` every such call later.

    `which` are the calls that count and can fail; None: all of them.
    """

    def __init__(
        self, files: Files, *, at: int, number: int, lasts: bool = False, which: set[str] | None = None
    ) -> None:
        self._files = files
        self._at = at
        self._number = number
        self._lasts = lasts
        self._which = which
        self.calls = 0
        self.failed = ""

    def __getattr__(self, name: str):
        call = getattr(self._files, name)

        def counted(path: Path, *args, **kwargs):
            if self._which is None or name in self._which:
                self.calls += 1
                if self.calls - 1 == self._at or (self._lasts and self.calls > self._at):
                    self.failed = f"{name} {path}"
                    raise OSError(self._number, os.strerror(self._number), str(path))
            return call(path, *args, **kwargs)

        return counted
