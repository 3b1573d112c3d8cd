"""The file of the spool, as SQLite keeps it: made, looked at, opened, removed, replaced; and what can go wrong with it.

WAL with `synchronous=FULL`: a transaction is on the disk once it is committed, and costs one sync. Measured against
the rollback journals it writes least: batches of ten messages of 630 bytes 2.7 kB each, of a hundred 0.8 kB. Locked for
one process, so no shared memory lies beside it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from edge.writing import sync_folder

__all__ = [
    "PAGE_BYTES",
    "DiskError",
    "SpoolDamagedError",
    "is_plain",
    "open_spool",
    "place_of",
    "remove",
    "replace_damaged",
    "translated",
]

PAGE_BYTES = 4096
_FORMAT = 1
_CHECK_S = 2.0
_STEPS_PER_LOOK = 20_000
_ASIDE = ".damaged"
_BESIDE = ("-wal", "-shm", "-journal")
_WAL_PAGES = 512  # beside the file, and again in it
# What SQLite says of anything but its content (sqlite.org/rescode.html): whatever else it refuses is damage.
_OF_THE_DISK = re.compile(
    "disk I/O|is full|unable to open|readonly|is locked|locking protocol|permission|interrupted|out of memory"
)
_PLAIN, _FOLDER = "a plain file", "a folder"
_KINDS = (
    (stat.S_ISREG, _PLAIN),
    (stat.S_ISDIR, _FOLDER),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)
_SCHEMA = """
CREATE TABLE message(ticket INTEGER PRIMARY KEY, start INTEGER, is_event INTEGER, at_s REAL, head BLOB, body BLOB,
                     crc INTEGER);
CREATE INDEX of_event ON message(ticket) WHERE is_event;
CREATE TABLE gap(payload BLOB, crc INTEGER);
CREATE TABLE start(epoch INTEGER PRIMARY KEY, about BLOB, reached BLOB, is_ended INTEGER, crc INTEGER);
"""


class DiskError(Exception):
    """The disk does not take it now: full, read-only, broken. What was asked for is not done."""


class SpoolDamagedError(Exception):
    """The file is not what we wrote."""


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Tell a disk that does not do it from a file that is damaged."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise (DiskError if _OF_THE_DISK.search(str(error)) else SpoolDamagedError)(str(error)) from error
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where SQLite names what it cannot read
        raise SpoolDamagedError(str(error)) from error
    except OSError as error:
        raise DiskError(error.strerror or str(error)) from error


def open_spool(path: Path) -> sqlite3.Connection:
    """Return a connection to the spool at `path`, made where there is none; no other process can have one then.

    Raises:
        DiskError: when it cannot be opened, or another process has it.
        SpoolDamagedError: when it is none, or damaged.
    """
    with translated():
        if _kind_of(path) is None:
            _make(path)
        _look_at_kinds(path)
        _look_at_header(path)
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.0)
    try:
        with translated():
            os.chmod(path, 0o600)
            _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def remove(path: Path) -> None:
    """Remove a spool that is closed, and what lies beside it, if it is there."""
    with translated():
        for suffix in ("", *_BESIDE):
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def replace_damaged(path: Path, new: Path) -> Path:
    """Put the spool `new`, closed, in the place of what is at `path`, if anything; return where that is now.

    One that was set aside before goes. A cut on the way leaves the damaged one or the new one at `path`; nothing only
    where no plain file was there.
    """
    with translated():
        aside = _free_aside(path)
        if _kind_of(path) == _PLAIN:
            os.link(path, aside)
        elif _kind_of(path) is not None:
            path.rename(aside)
        for suffix in _BESIDE:  # of the damaged one: the new one must not get them
            _take_away(path.with_name(path.name + suffix))
        sync_folder(path.parent)
        new.replace(path)
        sync_folder(path.parent)
    return aside


def is_plain(path: Path) -> bool:
    """Return whether there is a plain file, which can be read without waiting."""
    with translated():
        return _kind_of(path) == _PLAIN


def place_of(path: Path) -> tuple[int, int] | None:
    """Return what tells the file at `path` from all others; None: there is none."""
    with translated():
        try:
            found = path.lstat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino


def _kind_of(path: Path) -> str | None:
    """Return what is at `path`, which is not followed, in words; None: nothing."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return None
    return next((word for is_such, word in _KINDS if is_such(mode)), "a device")


def _free_aside(path: Path) -> Path:
    """Return a name for what is to be set aside, beside folders that were set aside before."""
    for number in range(1, 1000):
        aside = path.with_name(f"{path.name}{_ASIDE}" + (f"-{number}" if number > 1 else ""))
        if _kind_of(aside) != _FOLDER:
            aside.unlink(missing_ok=True)
            return aside
    raise DiskError(f"too many folders beside {path}")


def _take_away(path: Path) -> None:
    if _kind_of(path) == _FOLDER:
        path.rename(_free_aside(path))
    else:
        path.unlink(missing_ok=True)


def _look_at_kinds(path: Path) -> None:
    """Find what cannot be opened without waiting for ever, or lies elsewhere; what lies beside is set aside at once."""
    if (kind := _kind_of(path)) != _PLAIN:
        raise SpoolDamagedError(f"expected {_PLAIN}, got {kind}")
    for suffix in _BESIDE:
        beside = path.with_name(path.name + suffix)
        if (kind := _kind_of(beside)) not in (None, _PLAIN):
            beside.rename(_free_aside(beside))
            raise SpoolDamagedError(f"{beside.name}: expected {_PLAIN}, got {kind}")


def _make(path: Path) -> None:
    """Put a spool that holds nothing at `path`, by a rename: one that is found without tables was emptied by others."""
    new = path.with_name(f".{path.name}.made")
    remove(new)
    remove(path)  # what lies beside it, of one that is gone: the new one must not get it
    with translated():
        with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
            connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version={_FORMAT}; COMMIT;")
        sync_folder(path.parent)
        new.replace(path)
        sync_folder(path.parent)


def _look_at_header(path: Path) -> None:
    """Find what SQLite takes for a new file, or for one of a later SQLite that it must not write.

    Before it is opened: who closes a file lets go of all locks on it. Source: sqlite.org/fileformat.html, 1.3.
    """
    with path.open("rb") as file:
        header = file.read(20)
    if header[:16] != b"SQLite format 3\0" or header[18:] not in (b"\1\1", b"\2\2"):
        raise SpoolDamagedError("the head of the file is not what SQLite writes")


def _prepare(connection: sqlite3.Connection) -> None:
    execute = connection.execute
    execute("PRAGMA locking_mode=EXCLUSIVE")
    execute("PRAGMA journal_mode=WAL").fetchall()
    execute("PRAGMA synchronous=FULL")
    execute(f"PRAGMA wal_autocheckpoint={_WAL_PAGES}").fetchall()
    execute("PRAGMA trusted_schema=OFF")
    execute("PRAGMA cell_size_check=ON")
    (version,) = execute("PRAGMA user_version").fetchone()
    if version != _FORMAT:
        raise SpoolDamagedError(f"expected format {_FORMAT}, got {version}")
    _check(connection)


def _check(connection: sqlite3.Connection) -> None:
    """Look at the file for two seconds at most; what is behind that is found when it is read."""
    until_s = time.monotonic() + _CHECK_S
    connection.set_progress_handler(lambda: time.monotonic() > until_s, _STEPS_PER_LOOK)
    try:
        found = [str(line) for (line,) in connection.execute("PRAGMA quick_check(1)")]
    except sqlite3.OperationalError as error:
        if "interrupt" not in str(error):
            raise
        return
    finally:
        connection.set_progress_handler(None, 0)
    if found != ["ok"]:
        raise SpoolDamagedError(f"SQLite says: {found[0] if found else 'nothing'}")
