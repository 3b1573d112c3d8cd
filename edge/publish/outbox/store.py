"""The store of unsent messages: SQLite, one schema, two places over one connection.

A place is a file in /run, which outlives the process; a file on the disk, which outlives a power cut; or memory, where
there is no folder for the first. The same code opens each, and messages are moved by INSERT ... SELECT. A transaction
writes one place only: SQLite does not commit two files at once when the power goes. WAL with `synchronous=FULL` on the
disk: a transaction is there once it is committed, and costs one sync. Locked for one process, so no shared memory lies
beside a file. SQLite does not see a flipped bit in a message; each row has a CRC-32.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import sqlite3
import stat
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edge.writing import sync_folder

__all__ = ["Place", "PlaceDamagedError", "PlaceUnusableError", "Row", "Store", "StoreError", "remove", "set_aside"]

_log = logging.getLogger(__name__)

_FORMAT = 3
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
_PAGE_BYTES = 4096
_CHECK_S = 2.0
_STEPS_PER_LOOK = 20_000
_WAL_PAGES = 512  # beside the file, and again in it
_MOST = 1 << 62  # tickets and epochs
_COLUMNS = "ticket, start, is_event, at_s, head, body, crc"
_WHICH = {None: "", True: "AND is_event", False: "AND NOT is_event"}
_T = TypeVar("_T", int, float, bytes)


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
def _translated(place: object | None = None) -> Iterator[None]:
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


class Row(msgspec.Struct, frozen=True, gc=False):
    """One message. `start` is the epoch that wrote it, `at_s` when it was accepted, in the store's time."""

    ticket: int
    start: int
    is_event: bool
    at_s: float
    head: bytes
    body: bytes

    @property
    def crc(self) -> int:
        words = f"{self.ticket!r} {self.start!r} {self.is_event:d} {self.at_s!r}".encode()
        return zlib.crc32(self.body, zlib.crc32(self.head, zlib.crc32(words)))


class Store:
    """One connection, to which places are attached; used by one thread at a time."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, timeout=0.0)
        for pragma in ("locking_mode=EXCLUSIVE", f"wal_autocheckpoint={_WAL_PAGES}", "trusted_schema=OFF"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        self._connection.execute("PRAGMA cell_size_check=ON")
        self._names = (f"place{number}" for number in itertools.count(1))

    def open(self, path: Path | None, *, is_durable: bool) -> Place:
        """Return the place at `path`, made where there is none; None: in memory. Raises as `Place` does."""
        with _translated():
            if path is not None:
                if not os.path.lexists(path):
                    _make(path)
                _look_at(path)
            name = next(self._names)
            self._connection.execute(f"ATTACH ? AS {name}", (":memory:" if path is None else str(path),))
        place = Place(self._connection, name, path)
        try:
            place.prepare(is_durable=is_durable)
        except BaseException:
            place.close()
            raise
        return place

    def close(self) -> None:
        """Files keep their content."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()


class Place:
    """One file, or memory, with the tables of the store. Made by `Store.open`.

    Raises (everywhere):
        PlaceUnusableError: when the disk does not do it, or another process has the file.
        PlaceDamagedError: when what was read cannot be, or is none of ours.
    """

    def __init__(self, connection: sqlite3.Connection, name: str, path: Path | None) -> None:
        self.path = path
        self._name = name
        self._connection = connection
        self._identity: tuple[int, int] | None = None
        self._gaps: dict[int, bytes] = {}

    def prepare(self, *, is_durable: bool) -> None:
        """Set it up, look at its content, and lock it."""
        with _translated(self):
            if self.path is None:
                _create(self._connection, self._name)
            else:
                os.chmod(self.path, 0o600)
                self._pragma("journal_mode=WAL")
                self._pragma(f"synchronous={'FULL' if is_durable else 'OFF'}")
                found = self.path.lstat()
                self._identity = found.st_dev, found.st_ino
            if (version := self._number("user_version")) != _FORMAT:
                raise PlaceDamagedError(f"expected format {_FORMAT}, got {version}", self)
            self._check()
            self._gaps = dict(self.gaps())

    @property
    def file_bytes(self) -> int:
        """Bytes of the file, without those on their way into it."""
        return self._number("page_count") * _PAGE_BYTES

    @property
    def used_bytes(self) -> int:
        return (self._number("page_count") - self._number("freelist_count")) * _PAGE_BYTES

    def has_gaps(self, gaps: Mapping[int, bytes]) -> bool:
        """Return whether these are the gap records that it holds."""
        return self._gaps == gaps

    def is_at_path(self) -> bool:
        """Return whether the next start would find at the path what is written here."""
        assert self.path is not None
        with _translated(self):
            try:
                found = self.path.lstat()
            except FileNotFoundError:
                return False
            return (found.st_dev, found.st_ino) == self._identity

    def free_bytes(self) -> int:
        """Return what is free on the disk for who is not root."""
        assert self.path is not None
        with _translated(self):
            room = os.statvfs(self.path.parent)
        return room.f_bavail * room.f_frsize

    def commit(
        self,
        *,
        rows: Iterable[Row] = (),
        moved_from: Place | None = None,
        only_events: bool = False,
        gone: Iterable[int] = (),
        gaps: Mapping[int, bytes] | None = None,
        starts: Mapping[int, bytes] | None = None,
    ) -> None:
        """Do all of it, or, where that raises, nothing.

        Rows are written; messages `moved_from` a place are taken, and stay there until they are deleted; the tickets
        `gone` are deleted. `gaps` are all gap records by identity (None: those before stay), `starts` by epoch what
        they say.
        """
        many = self._connection.executemany
        with _translated(self), self._transaction():
            if moved_from is not None:
                which = f"FROM {moved_from._name}.message {'WHERE is_event' if only_events else ''}"
                self._connection.execute(f"INSERT OR REPLACE INTO {self._name}.message SELECT {_COLUMNS} {which}")
            many(f"DELETE FROM {self._name}.message WHERE ticket = ?", ((ticket,) for ticket in gone))
            many(
                f"INSERT OR REPLACE INTO {self._name}.message VALUES(?, ?, ?, ?, ?, ?, ?)",
                ((row.ticket, row.start, row.is_event, row.at_s, row.head, row.body, row.crc) for row in rows),
            )
            if gaps is not None:
                many(f"DELETE FROM {self._name}.gap WHERE id = ?", ((one,) for one in self._gaps if one not in gaps))
                self._put("gap", {one: payload for one, payload in gaps.items() if self._gaps.get(one) != payload})
            self._put("start", starts or {})
        if gaps is not None:
            self._gaps = dict(gaps)

    def copy_of(self, other: Place) -> None:
        with _translated(self), self._transaction():
            for table in ("message", "gap", "start"):
                self._connection.execute(f"INSERT INTO {self._name}.{table} SELECT * FROM {other._name}.{table}")
        self._gaps = dict(other._gaps)

    def rows(self, first: int, most: int, *, is_event: bool | None = None) -> list[Row]:
        """Return rows from ticket `first` on, in their order."""
        query = f"SELECT {_COLUMNS} FROM {{}}.message WHERE ticket >= ? {_WHICH[is_event]} ORDER BY ticket LIMIT ?"
        return [self._row(found) for found in self._query(query, (first, most))]

    def tickets(self, *, is_event: bool | None = None) -> dict[int, bool]:
        """Return the ticket of each message, and whether it is an event's."""
        found = self._query(f"SELECT ticket, is_event FROM {{}}.message WHERE true {_WHICH[is_event]} ORDER BY ticket")
        return {self._expected(ticket, int): is_one == 1 for ticket, is_one in found}

    def at_s(self) -> float | None:
        """Return the time of the oldest message; None where there is none."""
        found = self._query("SELECT at_s FROM {}.message ORDER BY ticket LIMIT 1")
        return self._expected(found[0][0], float) if found else None

    def gaps(self) -> Iterator[tuple[int, bytes]]:
        """Yield the gap records that wait, each with its identity."""
        return self._records("gap")

    def starts(self) -> Iterator[tuple[int, bytes]]:
        """Yield what each start says of itself, with its epoch, the oldest first."""
        return self._records("start")

    def forget_starts(self, but: int) -> None:
        """Forget the starts before `but` of which no message is here."""
        with _translated(self), self._transaction():
            self._connection.execute(
                f"DELETE FROM {self._name}.start WHERE id < ? AND id NOT IN"
                f" (SELECT DISTINCT start FROM {self._name}.message)",
                (but,),
            )

    def shrink(self) -> None:
        """Give the disk back what the file does not need; cheap where it is empty."""
        with _translated(self):
            self._connection.execute(f"VACUUM {self._name}")
        self.flush()

    def flush(self) -> None:
        """Bring all into the file itself: nothing of it lies beside it then."""
        self._pragma("wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """A file keeps its content."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute(f"DETACH {self._name}")

    def _check(self) -> None:
        """Look at the file for two seconds at most; what is behind that is found when it is read."""
        until_s = time.monotonic() + _CHECK_S
        self._connection.set_progress_handler(lambda: time.monotonic() > until_s, _STEPS_PER_LOOK)
        try:
            found = [str(line) for (line,) in self._connection.execute(f"PRAGMA {self._name}.quick_check(1)")]
        except sqlite3.OperationalError as error:
            if "interrupt" not in str(error):
                raise
            return
        finally:
            self._connection.set_progress_handler(None, 0)
        if found != ["ok"]:
            raise PlaceDamagedError(f"SQLite says: {found[0] if found else 'nothing'}", self)

    def _query(self, text: str, values: tuple[object, ...] = ()) -> list[Any]:
        with _translated(self):
            return self._connection.execute(text.format(self._name), values).fetchall()

    def _pragma(self, text: str) -> list[Any]:
        return self._query(f"PRAGMA {{}}.{text}")

    def _number(self, pragma: str) -> int:
        return int(self._pragma(pragma)[0][0])

    def _put(self, table: str, records: Mapping[int, bytes]) -> None:
        self._connection.executemany(
            f"INSERT OR REPLACE INTO {self._name}.{table} VALUES(?, ?, ?)",
            ((one, payload, _crc(one, payload)) for one, payload in records.items()),
        )

    def _records(self, table: str) -> Iterator[tuple[int, bytes]]:
        for one, payload, crc in self._query(f"SELECT * FROM {{}}.{table} ORDER BY id"):
            if _crc(self._expected(one, int), self._expected(payload, bytes)) != crc:
                raise PlaceDamagedError(f"{table} {one} is damaged", self)
            yield one, payload

    def _row(self, found: tuple[Any, ...]) -> Row:
        """Return what SQLite has found, which has to be what we wrote, of the same types."""
        ticket, start, is_event, at_s, head, body, crc = found
        row = Row(ticket, start, is_event == 1, at_s, head, body)
        with contextlib.suppress(TypeError, ValueError):
            if row.crc == crc:
                return row
        raise PlaceDamagedError(f"message {ticket} is damaged", self)

    def _expected(self, value: Any, kind: type[_T]) -> _T:
        """Return what SQLite has found: it holds a column to no type."""
        if not isinstance(value, kind) or (isinstance(value, int) and not 0 <= value < _MOST):
            raise PlaceDamagedError(f"expected {kind.__name__} in a table, got {type(value).__name__}", self)
        return value

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise


def _crc(one: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(b"%d" % one))


def _look_at(path: Path) -> None:
    """Find what must not be opened: it would be waited for without end, lies elsewhere, or would be taken for empty.

    The head is read before SQLite opens the file: who closes a file lets go of all locks on it. Source:
    sqlite.org/fileformat.html, 1.3.
    """
    for one in (path, *_beside(path)):
        if (kind := _kind_of(one)) not in (None, _PLAIN):
            raise PlaceDamagedError(f"expected {_PLAIN} at {one.name}, got {kind}")
    with path.open("rb") as file:
        header = file.read(20)
    if header[:16] != b"SQLite format 3\0" or header[18:] not in (b"\1\1", b"\2\2"):  # or of a later SQLite
        raise PlaceDamagedError("the head of the file is not what SQLite writes")


def _create(connection: sqlite3.Connection, name: str) -> None:
    """Make the tables in an attached database."""
    connection.execute("BEGIN")
    for table in _TABLES:
        connection.execute(f"CREATE TABLE {name}.{table}")
    connection.execute(f"CREATE INDEX {name}.of_event ON message(ticket) WHERE is_event")
    connection.execute(f"PRAGMA {name}.user_version={_FORMAT}")
    connection.execute("COMMIT")


def _make(path: Path) -> None:
    """Put a store that holds nothing at `path`, by a rename: one that is found without tables was emptied by others."""
    new = path.with_name(f".{path.name}.made")
    remove(new)
    remove(path)  # what lies beside it, of one that is gone: the new one must not get it
    with _translated():
        with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as connection:
            _create(connection, "main")
        sync_folder(path.parent)
        new.replace(path)
        sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove a store that is closed, and what lies beside it, if it is there."""
    with _translated():
        for one in (path, *_beside(path)):
            one.unlink(missing_ok=True)


def set_aside(path: Path, why: StoreError) -> None:
    """Rename what is at `path`, which is closed. A file that was set aside before goes."""
    aside = path.with_name(path.name + _ASIDE)
    if _kind_of(aside) == _FOLDER:
        raise PlaceUnusableError(f"it cannot be set aside: move the folder {aside} away")
    with _translated():
        for beside in _beside(path):  # a new store must not get them; a folder fails here, before the rename
            beside.unlink(missing_ok=True)
        if os.path.lexists(path):
            aside.unlink(missing_ok=True)
            path.rename(aside)
        sync_folder(path.parent)
    _log.error(
        "spool is damaged path=%s error=%s: set aside as %s, what is missing is declared as a gap",
        path,
        why,
        aside.name,
    )


def _beside(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in _BESIDE]


def _kind_of(path: Path) -> str | None:
    """Return what is at `path`, which is not followed, in words; None: nothing."""
    try:
        return _KINDS.get(stat.S_IFMT(path.lstat().st_mode), "a device or a socket")
    except FileNotFoundError:
        return None
