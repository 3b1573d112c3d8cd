"""What the spool holds: messages, gap records and starts in SQLite's tables. One thread at a time.

SQLite does not see a flipped bit in a message; each row has a CRC-32. With `file`, the only module that knows sqlite3.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edge.publish.outbox.file import PAGE_BYTES, SpoolDamagedError, is_plain, open_spool, place_of, translated

__all__ = ["Disk", "SpoolRow", "Start", "salvaged", "salvaged_starts"]

_MOST = 1 << 62  # tickets and epochs
_COPY_PAGES = 256
_T = TypeVar("_T", int, float, bytes)
_COLUMNS = "ticket, start, is_event, at_s, head, body, crc"


class SpoolRow(msgspec.Struct, frozen=True, gc=False):
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
        self._log_path = path.with_name(f"{path.name}-wal")
        self._place = place_of(path)
        self._log_place: tuple[int, int] | None = None

    @classmethod
    def open(cls, path: Path) -> Disk:
        """Return the spool at `path`, made where there is none.

        Raises:
            DiskError: when it cannot be opened, or another process has it.
            SpoolDamagedError: when it is none, or damaged.
        """
        return cls(path, open_spool(path))

    @property
    def file_bytes(self) -> int:
        """What the file takes, without what is on its way into it."""
        return self._pragma("page_count") * PAGE_BYTES

    @property
    def used_bytes(self) -> int:
        """What of the file holds something."""
        return (self._pragma("page_count") - self._pragma("freelist_count")) * PAGE_BYTES

    def is_in_place(self) -> bool:
        """Return whether the next start would find at the path what is written here: nobody took it away."""
        if self._log_place is None:
            self._log_place = place_of(self._log_path)
        return self.is_at_path() and place_of(self._log_path) == self._log_place

    def is_at_path(self) -> bool:
        """Return whether the file at the path is this one, whatever lies beside it."""
        return place_of(self.path) == self._place

    def copy_to(self, path: Path, on_step: Callable[[], None]) -> None:
        """Write all of it into another file, of which there is none yet; `on_step` hears of each part."""
        with translated(), contextlib.closing(sqlite3.connect(path, isolation_level=None)) as copy:
            self._connection.backup(copy, pages=_COPY_PAGES, progress=lambda *_: on_step())

    def free_bytes(self) -> int:
        """Return what is free on the disk for who is not root."""
        with translated():
            room = os.statvfs(self.path.parent)
        return room.f_bavail * room.f_frsize

    def commit(
        self,
        *,
        rows: Iterable[SpoolRow] = (),
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
        with translated(), self._transaction():
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

    def rows(self, first: int, most: int, *, is_event: bool | None = None) -> tuple[list[SpoolRow], list[int]]:
        """Return rows from a ticket on, in their order, and the tickets of those among them that are damaged."""
        which = "" if is_event is None else "AND is_event" if is_event else "AND NOT is_event"
        query = f"SELECT {_COLUMNS} FROM message WHERE ticket >= ? {which} ORDER BY ticket LIMIT ?"
        whole: list[SpoolRow] = []
        damaged: list[int] = []
        with translated():
            for ticket, start, is_one, at_s, head, body, crc in self._connection.execute(query, (first, most)):
                row = _row(ticket, start, is_one, at_s, head, body)
                if row is None or row.crc != crc:
                    damaged.append(ticket)
                else:
                    whole.append(row)
        return whole, damaged

    def tickets(self) -> Iterator[tuple[int, bool, float]]:
        """Yield ticket, whether it is an event's, and the time, of each row."""
        with translated():
            for ticket, is_event, at_s in self._connection.execute(
                "SELECT ticket, is_event, at_s FROM message ORDER BY ticket"
            ):
                yield _expected(ticket, int), bool(_expected(is_event, int)), _expected(at_s, float)

    def oldest_at_s(self) -> float | None:
        """Return the time of the oldest row; None where there is none."""
        with translated():
            found = self._connection.execute("SELECT at_s FROM message ORDER BY ticket LIMIT 1").fetchone()
        return None if found is None else _expected(found[0], float)

    def gaps(self) -> list[bytes]:
        """Return the gap records that wait."""
        with translated():
            found = list(self._connection.execute("SELECT payload, crc FROM gap ORDER BY rowid"))
        for payload, crc in found:
            if zlib.crc32(_expected(payload, bytes)) != crc:
                raise SpoolDamagedError("a gap record is damaged")
        return [payload for payload, _ in found]

    def starts(self) -> list[Start]:
        """Return the starts, the oldest first."""
        with translated():
            return _starts(self._connection)

    def forget_starts(self, but: int) -> None:
        """Forget the starts before `but` of which no message is here."""
        with translated(), self._transaction():
            self._connection.execute(
                "DELETE FROM start WHERE epoch < ? AND epoch NOT IN (SELECT DISTINCT start FROM message)", (but,)
            )

    def shrink(self) -> None:
        """Give the disk back what the file does not need; cheap where it is empty."""
        with translated():
            self._connection.execute("VACUUM")
        self.flush()

    def flush(self) -> None:
        """Bring all into the file itself: nothing of it lies beside it then."""
        with translated():
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close it; what is in it stays."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _pragma(self, name: str) -> int:
        with translated():
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


def salvaged(path: Path, most: int = 1 << 20) -> Iterator[SpoolRow]:
    """Yield what can be read of a damaged spool, as it goes."""
    if not is_plain(path):
        return
    try:
        connection = sqlite3.connect(path, isolation_level=None)
    except sqlite3.Error:
        return
    with contextlib.closing(connection):
        yield from _salvaged(connection, most)


def salvaged_starts(path: Path) -> list[Start]:
    """Return the starts of a damaged spool, as far as they can be read."""
    if not is_plain(path):
        return []
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            return _starts(connection)
    except (sqlite3.Error, SpoolDamagedError, UnicodeDecodeError):
        return []


def _starts(connection: sqlite3.Connection) -> list[Start]:
    starts: list[Start] = []
    for epoch, about, reached, is_ended, crc in connection.execute("SELECT * FROM start ORDER BY epoch"):
        start = Start(_expected(epoch, int), _expected(about, bytes), _expected(reached, bytes), is_ended == 1)
        if start.crc != crc:
            raise SpoolDamagedError(f"what start {epoch} says of itself is damaged")
        starts.append(start)
    return starts


def _salvaged(connection: sqlite3.Connection, most: int) -> Iterator[SpoolRow]:
    try:
        for ticket, start, is_event, at_s, head, body, crc in connection.execute(
            f"SELECT {_COLUMNS} FROM message NOT INDEXED LIMIT ?", (most,)
        ):
            row = _row(ticket, start, is_event, at_s, head, body)
            if row is not None and row.crc == crc:
                yield row
    except (sqlite3.Error, UnicodeDecodeError):  # the rest is behind a page that cannot be read
        return


def _expected(value: Any, kind: type[_T]) -> _T:
    """Return what SQLite has found: it holds a column to no type."""
    if type(value) is not kind or (isinstance(value, int) and not 0 <= value < _MOST):
        raise SpoolDamagedError(f"expected {kind.__name__} in a table, got {type(value).__name__}")
    found: _T = value
    return found


def _row(ticket: object, start: object, is_event: object, at_s: object, head: object, body: object) -> SpoolRow | None:
    """Return the row, if its values are of the types that we write."""
    if not isinstance(ticket, int) or not isinstance(start, int) or is_event not in (0, 1):
        return None
    if not isinstance(at_s, float) or not isinstance(head, bytes) or not isinstance(body, bytes):
        return None
    return SpoolRow(ticket, start, bool(is_event), at_s, head, body)
