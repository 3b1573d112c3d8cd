"""The file of the spool: messages on the disk, by SQLite. One thread at a time; the only module that knows sqlite3.

WAL with `synchronous=FULL`: a transaction is on the disk once `commit` returns, and costs one sync. Measured against
the rollback journals it writes least: batches of ten messages of 630 bytes 2.7 kB each, of a hundred 0.8 kB. Locked for
one process, so no shared memory lies beside it. SQLite does not see a flipped bit in a message; each row has a CRC-32.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edge.writing import sync_folder

__all__ = [
    "Disk",
    "DiskError",
    "Row",
    "SpoolDamagedError",
    "Start",
    "remove",
    "replace_damaged",
    "salvaged",
    "salvaged_starts",
]

_FORMAT = 1
_PAGE_BYTES = 4096
_WAL_PAGES = 512  # beside the file, and again in it
_CHECK_S = 2.0
_STEPS_PER_LOOK = 20_000
_ASIDE = ".damaged"
_MOST = 1 << 62  # tickets and epochs
_SCHEMA = """
CREATE TABLE message(ticket INTEGER PRIMARY KEY, start INTEGER, is_event INTEGER, at_s REAL, head BLOB, body BLOB,
                     crc INTEGER);
CREATE INDEX of_event ON message(ticket) WHERE is_event;
CREATE TABLE gap(payload BLOB, crc INTEGER);
CREATE TABLE start(epoch INTEGER PRIMARY KEY, about BLOB, reached BLOB, is_ended INTEGER, crc INTEGER);
"""
_T = TypeVar("_T", int, float, bytes)
_COLUMNS = "ticket, start, is_event, at_s, head, body, crc"


class DiskError(Exception):
    """The disk does not take it now: full, read-only, broken. What was asked for is not done."""


class SpoolDamagedError(Exception):
    """The file is not what we wrote."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """One message. `start` is the epoch of the start that wrote it, `at_s` when that was accepted, since 1970."""

    ticket: int
    start: int
    is_event: bool
    at_s: float
    head: bytes
    body: bytes

    @property
    def crc(self) -> int:
        """What tells a damaged row."""
        words = f"{self.ticket} {self.start} {self.is_event:d} {self.at_s!r}".encode()
        return zlib.crc32(self.body, zlib.crc32(self.head, zlib.crc32(words)))


class Start(msgspec.Struct, frozen=True):
    """What a start says of itself: `about` and `reached` in JSON; `is_ended`: nothing of it is left to be declared."""

    epoch: int
    about: bytes
    reached: bytes
    is_ended: bool

    @property
    def crc(self) -> int:
        """What tells a damaged row; whether it has ended may change alone."""
        return zlib.crc32(self.reached, zlib.crc32(self.about, zlib.crc32(b"%d" % self.epoch)))


class Disk:
    """Made by `open`.

    Raises (everywhere):
        DiskError: when the disk does not do it.
        SpoolDamagedError: when what was read cannot be.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> Disk:
        """Return the spool at `path`, made where there is none.

        Raises:
            DiskError: when it cannot be opened, or another process has it.
            SpoolDamagedError: when it is none, or damaged.
        """
        is_new = not path.exists()
        with _translated():
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.0)
        try:
            with _translated():
                os.chmod(path, 0o600)
                _prepare(connection, is_new=is_new)
                if is_new:
                    sync_folder(path.parent)
        except BaseException:
            connection.close()
            raise
        return cls(path, connection)

    @property
    def file_bytes(self) -> int:
        """What the file takes, without what is on its way into it."""
        return self._pragma("page_count") * _PAGE_BYTES

    @property
    def used_bytes(self) -> int:
        """What of the file holds something."""
        return (self._pragma("page_count") - self._pragma("freelist_count")) * _PAGE_BYTES

    def free_bytes(self) -> int:
        """Return what is free on the disk for who is not root."""
        with _translated():
            room = os.statvfs(self.path.parent)
        return room.f_bavail * room.f_frsize

    def commit(
        self,
        *,
        rows: Iterable[Row] = (),
        gone: Iterable[int] = (),
        gaps: Iterable[bytes] | None = None,
        start: Start | None = None,
        ended: Iterable[int] = (),
    ) -> None:
        """Bring all of this to the disk at once.

        Args:
            rows: new ones, or others in their place.
            gone: tickets of rows that go.
            gaps: all gap records that wait.
            start: what a start says of itself.
            ended: epochs of starts that are accounted for.
        """
        with _translated(), self._transaction():
            self._connection.executemany("DELETE FROM message WHERE ticket = ?", ((ticket,) for ticket in gone))
            self._connection.executemany(
                f"INSERT OR REPLACE INTO message({_COLUMNS}) VALUES(?, ?, ?, ?, ?, ?, ?)",
                ((row.ticket, row.start, row.is_event, row.at_s, row.head, row.body, row.crc) for row in rows),
            )
            if gaps is not None:
                self._connection.execute("DELETE FROM gap")
                self._connection.executemany("INSERT INTO gap VALUES(?, ?)", ((one, zlib.crc32(one)) for one in gaps))
            if start is not None:
                self._connection.execute(
                    "INSERT OR REPLACE INTO start VALUES(?, ?, ?, ?, ?)",
                    (start.epoch, start.about, start.reached, start.is_ended, start.crc),
                )
            self._connection.executemany("UPDATE start SET is_ended = 1 WHERE epoch = ?", ((epoch,) for epoch in ended))

    def rows(self, first: int, most: int, *, is_event: bool | None = None) -> tuple[list[Row], list[int]]:
        """Return rows from a ticket on, in their order, and the tickets of those among them that are damaged."""
        which = "" if is_event is None else "AND is_event" if is_event else "AND NOT is_event"
        query = f"SELECT {_COLUMNS} FROM message WHERE ticket >= ? {which} ORDER BY ticket LIMIT ?"
        whole: list[Row] = []
        damaged: list[int] = []
        with _translated():
            for ticket, start, is_one, at_s, head, body, crc in self._connection.execute(query, (first, most)):
                row = _row(ticket, start, is_one, at_s, head, body)
                if row is None or row.crc != crc:
                    damaged.append(ticket)
                else:
                    whole.append(row)
        return whole, damaged

    def tickets(self) -> Iterator[tuple[int, bool, float]]:
        """Yield ticket, whether it is an event's, and the time, of each row."""
        with _translated():
            for ticket, is_event, at_s in self._connection.execute(
                "SELECT ticket, is_event, at_s FROM message ORDER BY ticket"
            ):
                yield _expected(ticket, int), bool(_expected(is_event, int)), _expected(at_s, float)

    def oldest_at_s(self) -> float | None:
        """Return the time of the oldest row; None where there is none."""
        with _translated():
            found = self._connection.execute("SELECT at_s FROM message ORDER BY ticket LIMIT 1").fetchone()
        return None if found is None else _expected(found[0], float)

    def gaps(self) -> list[bytes]:
        """Return the gap records that wait."""
        with _translated():
            found = list(self._connection.execute("SELECT payload, crc FROM gap ORDER BY rowid"))
        for payload, crc in found:
            if zlib.crc32(_expected(payload, bytes)) != crc:
                raise SpoolDamagedError("a gap record is damaged")
        return [payload for payload, _ in found]

    def starts(self) -> list[Start]:
        """Return the starts, the oldest first."""
        with _translated():
            return _starts(self._connection)

    def forget_starts(self, but: int) -> None:
        """Forget the starts before `but` of which no message is here."""
        with _translated(), self._transaction():
            self._connection.execute(
                "DELETE FROM start WHERE epoch < ? AND epoch NOT IN (SELECT DISTINCT start FROM message)", (but,)
            )

    def shrink(self) -> None:
        """Give the disk back what the file does not need; cheap where it is empty."""
        with _translated():
            self._connection.execute("VACUUM")
        self.flush()

    def flush(self) -> None:
        """Bring all into the file itself: nothing of it lies beside it then."""
        with _translated():
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close it; what is in it stays."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _pragma(self, name: str) -> int:
        with _translated():
            (value,) = self._connection.execute(f"PRAGMA {name}").fetchone()
        return int(value)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise


def remove(path: Path) -> None:
    """Remove a spool that is closed, and what lies beside it, if it is there."""
    with _translated():
        for suffix in ("", "-wal", "-shm", "-journal"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def replace_damaged(path: Path, new: Path) -> Path:
    """Put the spool `new`, closed, in the place of a damaged one; return where that is now.

    One that was set aside before goes. A cut on the way leaves the damaged one or the new one at `path`.
    """
    aside = path.with_name(path.name + _ASIDE)
    with _translated():
        aside.unlink(missing_ok=True)
        os.link(path, aside)
        for suffix in ("-wal", "-shm", "-journal"):  # of the damaged one: the new one must not get them
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        sync_folder(path.parent)
        new.replace(path)
        sync_folder(path.parent)
    return aside


def salvaged(path: Path, most: int = 1 << 20) -> Iterator[Row]:
    """Yield what can be read of a damaged spool, as it goes."""
    try:
        connection = sqlite3.connect(path, isolation_level=None)
    except sqlite3.Error:
        return
    with contextlib.closing(connection):
        yield from _salvaged(connection, most)


def salvaged_starts(path: Path) -> list[Start]:
    """Return the starts of a damaged spool, as far as they can be read."""
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            return _starts(connection)
    except (sqlite3.Error, SpoolDamagedError):
        return []


def _starts(connection: sqlite3.Connection) -> list[Start]:
    starts: list[Start] = []
    for epoch, about, reached, is_ended, crc in connection.execute("SELECT * FROM start ORDER BY epoch"):
        start = Start(_expected(epoch, int), _expected(about, bytes), _expected(reached, bytes), is_ended == 1)
        if start.crc != crc:
            raise SpoolDamagedError(f"what start {epoch} says of itself is damaged")
        starts.append(start)
    return starts


def _salvaged(connection: sqlite3.Connection, most: int) -> Iterator[Row]:
    try:
        for ticket, start, is_event, at_s, head, body, crc in connection.execute(
            f"SELECT {_COLUMNS} FROM message NOT INDEXED LIMIT ?", (most,)
        ):
            row = _row(ticket, start, is_event, at_s, head, body)
            if row is not None and row.crc == crc:
                yield row
    except sqlite3.Error:  # the rest is behind a page that cannot be read
        return


def _expected(value: Any, kind: type[_T]) -> _T:
    """Return what SQLite has found: it holds a column to no type."""
    if type(value) is not kind or (isinstance(value, int) and not 0 <= value < _MOST):
        raise SpoolDamagedError(f"expected {kind.__name__} in a table, got {type(value).__name__}")
    found: _T = value
    return found


def _row(ticket: object, start: object, is_event: object, at_s: object, head: object, body: object) -> Row | None:
    """Return the row, if its values are of the types that we write."""
    if not isinstance(ticket, int) or not isinstance(start, int) or is_event not in (0, 1):
        return None
    if not isinstance(at_s, float) or not isinstance(head, bytes) or not isinstance(body, bytes):
        return None
    return Row(ticket, start, bool(is_event), at_s, head, body)


def _prepare(connection: sqlite3.Connection, *, is_new: bool) -> None:
    execute = connection.execute
    if is_new:
        execute(f"PRAGMA page_size={_PAGE_BYTES}")
    execute("PRAGMA locking_mode=EXCLUSIVE")
    execute("PRAGMA journal_mode=WAL").fetchall()
    execute("PRAGMA synchronous=FULL")
    execute(f"PRAGMA wal_autocheckpoint={_WAL_PAGES}").fetchall()
    execute("PRAGMA trusted_schema=OFF")
    execute("PRAGMA cell_size_check=ON")
    execute("BEGIN IMMEDIATE")
    (version,) = execute("PRAGMA user_version").fetchone()
    (tables,) = execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if version == 0 and tables == 0:
        for statement in _SCHEMA.split(";"):
            execute(statement)
        execute(f"PRAGMA user_version={_FORMAT}")
    execute("COMMIT")
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


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Tell a disk that does not do it from a file that is damaged."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise (SpoolDamagedError if "malformed" in str(error) or "no such" in str(error) else DiskError)(
            str(error)
        ) from error
    except sqlite3.Error as error:
        raise SpoolDamagedError(str(error)) from error
    except OSError as error:
        raise DiskError(error.strerror or str(error)) from error
