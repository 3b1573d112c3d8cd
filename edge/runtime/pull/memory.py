"""What pulls of a device remember: what any software has written, and what provision's has found out itself."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from edge.runtime.pull.record import PullRecord, read_pull_record, write_record
from edge.runtime.software.running import running

__all__ = ["OWN_RECORD", "Memory", "lay_aside", "put_back"]

OWN_RECORD = "installed.json"
"""What provision's has found out itself."""

_ASIDE = ".installed.json"


def lay_aside(folder: Path) -> None:
    """Take what provision's has found out itself out of its place: another software looks now, and may write there.

    Raises:
        OSError: if there is none, or it cannot be moved.
    """
    os.replace(folder / OWN_RECORD, folder / _ASIDE)


def put_back(folder: Path) -> None:
    """Put back what was laid aside, also by a look that was killed; what stands in its place is none of provision's."""
    with contextlib.suppress(FileNotFoundError):
        os.replace(folder / _ASIDE, folder / OWN_RECORD)


class Memory:
    """`last` is the record of the last pull, whoever wrote it.

    What provision installed keeps, beside it, what of that is its own. All else is hearsay to it: software that was
    brought may have written a verdict that never was, and the release would not be asked for again. Nobody else looks
    before that is there; so where it is not, all that is remembered is its own.
    """

    def __init__(self, folder: Path) -> None:
        self.path, self._own = folder / "pull.json", folder / OWN_RECORD
        self.is_installed = running() is None
        if self.is_installed:
            put_back(folder)
        self.last = read_pull_record(self.path)
        is_told_apart = self.is_installed and os.path.lexists(self._own)
        self.is_hearsay = is_told_apart and self.last is not None and self.last != read_pull_record(self._own)

    def write(self, record: PullRecord) -> None:
        """Write the record; DeployError `device.disk.*`. What rests on hearsay is passed on as such."""
        is_own = self.is_installed and not (
            self.is_hearsay and self.last is not None and record.settled == self.last.settled
        )
        write_record(self.path, record)
        if is_own:
            write_record(self._own, record)
