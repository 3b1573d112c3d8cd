"""The files of the store: made, looked at, set aside; and what can go wrong with them."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from edge.writing import sync_folder

__all__ = [
    "FORMAT",
    "PlaceDamagedError",
    "PlaceUnusableError",
    "StoreError",
    "create",
    "look_at",
    "make",
    "remove",
    "set_aside",
    "translated",
]

_log = logging.getLogger(__name__)

FORMAT = 3
_ASIDE = ".damaged"
_BESIDE = ("-wal", "-shm", "-journal")
# What SQLite says of anything but its content (sqlite.org/rescode.html): whatever else it refuses is damage.
_OF_THE_DISK = re.compile(
    "disk I/O|is full|unable to open|readonly|is locked|locking protocol|permission|interrupted|out of memory"
)
_PLAIN, _FOLDER = "a plain file", "a folder"
_KINDS = {stat.S_IFREG: _PLAIN, stat.S_IFDIR: _FOLDER, stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe"}
_TABLES = (
    "message(ticket INTEGER PRIMARY KEY, start INTEGER, is_event INTEGER, at_s REAL, head BLOB, body BLOB,"
    " crc INTEGER)",
    "gap(id INTEGER PRIMARY KEY, payload BLOB, crc INTEGER)",
    "start(id INTEGER PRIMARY KEY, payload BLOB, crc INTEGER)",
)


class StoreError(Exception):
    """A place did not do it, and nothing of it is done. `place` is None where it is not open."""

    def __init__(self, problem: str, place: object | None = None) -> None:
        super().__init__(problem)
        self.place = place


class PlaceUnusableError(StoreError):
    """The disk does not take it now: full, read-only, broken."""


class PlaceDamagedError(StoreError):
    """The file is not what we wrote."""


@contextlib.contextmanager
def translated(place: object | None = None) -> Iterator[None]:
    """Tell a disk that does not do it from a file that is damaged."""
    try:
        yield
    except sqlite3.OperationalError as error:
        is_of_disk = _OF_THE_DISK.search(str(error))
        raise (PlaceUnusableError if is_of_disk else PlaceDamagedError)(str(error), place) from error
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where SQLite names what it cannot read
        raise PlaceDamagedError(str(error), place) from error
    except OSError as error:
        raise PlaceUnusableError(error.strerror or str(error), place) from error


def look_at(path: Path) -> None:
    """Find what must not be opened: it would be waited for without end, lies elsewhere, or would be taken for empty.

    What lies beside the file and is none is set aside at once. The head is read before SQLite opens the file: who
    closes a file lets go of all locks on it. Source: sqlite.org/fileformat.html, 1.3.
    """
    if (kind := _kind_of(path)) != _PLAIN:
        raise PlaceDamagedError(f"expected {_PLAIN}, got {kind}")
    for beside in _beside(path):
        if (kind := _kind_of(beside)) not in (None, _PLAIN):
            aside = _free_aside(beside)
            beside.rename(aside)
            _log.error("spool is damaged path=%s error=got %s: set aside as %s", beside, kind, aside.name)
    with path.open("rb") as file:
        header = file.read(20)
    if header[:16] != b"SQLite format 3\0" or header[18:] not in (b"\1\1", b"\2\2"):  # or of a later SQLite
        raise PlaceDamagedError("the head of the file is not what SQLite writes")


def create(connection: sqlite3.Connection, name: str) -> None:
    """Make the tables in an attached database."""
    connection.execute("BEGIN")
    for table in _TABLES:
        connection.execute(f"CREATE TABLE {name}.{table}")
    connection.execute(f"CREATE INDEX {name}.of_event ON message(ticket) WHERE is_event")
    connection.execute(f"PRAGMA {name}.user_version={FORMAT}")
    connection.execute("COMMIT")


def make(path: Path) -> None:
    """Put a store that holds nothing at `path`, by a rename: one that is found without tables was emptied by others."""
    new = path.with_name(f".{path.name}.made")
    remove(new)
    remove(path)  # what lies beside it, of one that is gone: the new one must not get it
    with translated():
        with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as connection:
            create(connection, "main")
        sync_folder(path.parent)
        new.replace(path)
        sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove a store that is closed, and what lies beside it, if it is there."""
    with translated():
        for one in (path, *_beside(path)):
            one.unlink(missing_ok=True)


def set_aside(path: Path) -> Path:
    """Rename what is at `path`, which is closed; return where it is. One that was set aside before goes."""
    with translated():
        aside = _free_aside(path)
        if os.path.lexists(path):
            path.rename(aside)
        for beside in _beside(path):  # the next one must not get them
            if _kind_of(beside) == _FOLDER:
                beside.rename(_free_aside(beside))
            else:
                beside.unlink(missing_ok=True)
        sync_folder(path.parent)
    return aside


def _beside(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in _BESIDE]


def _kind_of(path: Path) -> str | None:
    """Return what is at `path`, which is not followed, in words; None: nothing."""
    try:
        return _KINDS.get(stat.S_IFMT(path.lstat().st_mode), "a device or a socket")
    except FileNotFoundError:
        return None


def _free_aside(path: Path) -> Path:
    """Return a name for what is to be set aside, beside folders that were set aside before."""
    for number in range(1, 1000):
        aside = path.with_name(f"{path.name}{_ASIDE}" + (f"-{number}" if number > 1 else ""))
        if _kind_of(aside) != _FOLDER:
            aside.unlink(missing_ok=True)
            return aside
    raise PlaceUnusableError(f"too many folders beside {path}")
