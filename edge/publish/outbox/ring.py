"""Messages in a file of /run that is mapped into memory: they outlive the process, also when it is killed.

The file is cut into segments; a record is appended to the current one and marked when it is settled, and a segment
whose records are all settled is used again. Every change is a store into shared memory, so no order of system calls
matters: a record counts from its last store on, the one of its mark. Beside the segments there are two places for
notes, written in turns, so that one of them is always whole.

    header     magic, bytes of a segment, number of segments
    notes      two times: version, length, CRC-32, text
    segments   each: the order of its first record, then records
    record     mark, head length, body length, order, CRC-32 of order and body, head, payload; padded to 8 bytes
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Record", "Ring", "RingError", "RingSlot"]

_MAGIC = b"edge.ring/1\n"
_HEADER = struct.Struct("<12sII")
_NOTES_AT, _NOTES_BYTES = 4096, 256 << 10
_NOTES = struct.Struct("<QII")
_SEGMENTS_AT = _NOTES_AT + 2 * _NOTES_BYTES
_BASE = struct.Struct("<Q")
_RECORD = struct.Struct("<IIIQI4x")  # mark, head length, body length, order, checksum
_ORDER = struct.Struct("<Q")
_END = bytes(4)
_NONE, _WAITING, _SENT, _SETTLED = 0, 1, 2, 3
_MIN_SEGMENTS = 8
_MAX_SEGMENT_BYTES = 1 << 20


class RingError(Exception):
    """The file cannot be used; nothing is wrong with the disk or the caller."""


@dataclass(frozen=True, slots=True)
class Record:
    """What was found at the start; `was_sent` says that it was on its way when the process ended."""

    order: int
    head: bytes
    payload: bytes
    was_sent: bool


class RingSlot:
    """One record in the ring; of the thread that holds the outbox's lock."""

    __slots__ = ("_at", "_end", "_ring", "_segment", "_start")

    def __init__(self, ring: Ring, segment: int, at: int, start: int, end: int) -> None:
        self._ring, self._segment, self._at, self._start, self._end = ring, segment, at, start, end

    def read_head(self) -> bytes:
        """Return the head."""
        return self._ring.memory[self._at + _RECORD.size : self._start]

    def read(self) -> bytes:
        """Return the payload."""
        return self._ring.memory[self._start : self._end]

    def mark_sent(self) -> None:
        """Remember over the process that the message is on its way."""
        self._ring.memory[self._at] = _SENT

    def settle(self) -> None:
        """Give the room back; the slot is of no use then."""
        self._ring.memory[self._at] = _SETTLED
        self._ring.release(self._segment)


class Ring:
    """Made by `create`; what an older process left is read by `records` and `notes` before that.

    Not thread-safe. `append` is a few microseconds and allocates nothing that stays.
    """

    def __init__(self, descriptor: int, memory: mmap.mmap, segment_bytes: int, segments: int) -> None:
        self._descriptor = descriptor
        self.memory = memory
        self._segment_bytes = segment_bytes
        self._live = [0] * segments
        self._free = list(range(segments - 1, 0, -1))
        self._current = 0
        self._order = 1
        self._version = 0
        self._begin(0)

    @classmethod
    def create(cls, path: Path, max_bytes: int) -> Ring:
        """Return an empty ring of about `max_bytes` at `path`, which is made or emptied; locked until `close`.

        Raises:
            RingError: when another process uses it.
            OSError: when there is no room for all of it, or the file cannot be made.
        """
        segment_bytes = min(_MAX_SEGMENT_BYTES, max(4096, max_bytes // _MIN_SEGMENTS // 4096 * 4096))
        segments = max(_MIN_SEGMENTS, max_bytes // segment_bytes)
        size = _SEGMENTS_AT + segments * segment_bytes
        descriptor = _open_locked(path, os.O_RDWR | os.O_CREAT)
        try:
            os.ftruncate(descriptor, 0)
            os.posix_fallocate(descriptor, 0, size)  # a page that is missing later would end the process
            memory = mmap.mmap(descriptor, size)
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        _HEADER.pack_into(memory, 0, _MAGIC, segment_bytes, segments)
        return cls(descriptor, memory, segment_bytes, segments)

    def could_hold(self, size_bytes: int) -> bool:
        """Return whether head and payload of so many bytes fit, once there is room."""
        return _RECORD.size + size_bytes + 7 <= self._segment_bytes - _BASE.size

    def append(self, head: bytes, payload: bytes, order: int | None = None) -> RingSlot | None:
        """Keep a message; None when it does not fit, now or ever.

        `order` has to be higher than those before; None: the next.
        """
        order = self._order if order is None else order
        body_bytes = len(head) + len(payload)
        size = (_RECORD.size + body_bytes + 7) & ~7
        if order < self._order:
            raise ValueError(f"expected order {self._order} or more, got {order}")
        if self._at + size > self._end and not self._turn(size):
            return None
        memory, at = self.memory, self._at
        memory[at] = _NONE
        if at + size + len(_END) <= self._end:
            memory[at + size : at + size + len(_END)] = _END  # nothing of an older use is taken for the next record
        start = at + _RECORD.size + len(head)
        memory[start - len(head) : start + len(payload)] = head + payload
        check = zlib.crc32(payload, zlib.crc32(head, zlib.crc32(_ORDER.pack(order))))
        _RECORD.pack_into(memory, at, _NONE, len(head), body_bytes, order, check)
        memory[at] = _WAITING
        self._order = order + 1
        self._at += size
        self._live[self._current] += 1
        return RingSlot(self, self._current, at, start, start + len(payload))

    def release(self, segment: int) -> None:
        """Count a settled record; its segment may be used again after the last one."""
        self._live[segment] -= 1
        if not self._live[segment] and segment != self._current:
            self._free.append(segment)

    def note(self, text: bytes) -> bool:
        """Keep a text that replaces the one before as a whole; return whether it fits."""
        if len(text) > _NOTES_BYTES - _NOTES.size:
            return False
        self._version += 1
        at = _NOTES_AT + self._version % 2 * _NOTES_BYTES
        _NOTES.pack_into(self.memory, at, 0, 0, 0)
        self.memory[at + _NOTES.size : at + _NOTES.size + len(text)] = text
        _NOTES.pack_into(self.memory, at, self._version, len(text), zlib.crc32(text))
        return True

    def close(self) -> None:
        """Let another process use the file; what is in it stays."""
        self.memory.close()
        os.close(self._descriptor)

    def _turn(self, size: int) -> bool:
        """Begin another segment, if the record fits in one and one is free."""
        if size > self._segment_bytes - _BASE.size:
            return False
        if self._live[self._current]:
            if not self._free:
                return False
            self._current = self._free.pop()
        self._begin(self._current)
        return True

    def _begin(self, segment: int) -> None:
        start = _SEGMENTS_AT + segment * self._segment_bytes
        _BASE.pack_into(self.memory, start, self._order)  # records of an older use are below it
        self._at, self._end = start + _BASE.size, start + self._segment_bytes


def _open_locked(path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise RingError("another process uses it") from error
    return descriptor


class RecoveredRing:
    """What an older process left at `path`.

    Attributes:
        notes: the text that was noted last; empty where there is none, or none that is whole.
        records: what was not settled, in its order.
        is_damaged: whether there is more that cannot be read.

    Raises:
        RingError: when another process uses it.
        OSError: when it cannot be read, or is not there.
    """

    def __init__(self, path: Path) -> None:
        descriptor = _open_locked(path, os.O_RDONLY)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read()
        self.is_damaged = False
        self.notes = b""
        self.records: list[Record] = []
        if not self._has_sizes(content):
            self.is_damaged = True
            return
        self.notes = _newest_note(content)
        _, segment_bytes, segments = _HEADER.unpack_from(content, 0)
        for segment in range(segments):
            start = _SEGMENTS_AT + segment * segment_bytes
            self.records += self._segment(content[start : start + segment_bytes])
        self.records.sort(key=lambda record: record.order)

    @staticmethod
    def _has_sizes(content: bytes) -> bool:
        if len(content) < _SEGMENTS_AT:
            return False
        magic, segment_bytes, segments = _HEADER.unpack_from(content, 0)
        size: int = _SEGMENTS_AT + segments * segment_bytes
        return bool(magic == _MAGIC) and segment_bytes > _BASE.size and len(content) == size

    def _segment(self, segment: bytes) -> Iterator[Record]:
        (base,) = _BASE.unpack_from(segment)
        at = _BASE.size
        while base and at + _RECORD.size <= len(segment):
            mark, head_bytes, body_bytes, order, check = _RECORD.unpack_from(segment, at)
            if mark == _NONE or order < base:
                return
            body = segment[at + _RECORD.size : at + _RECORD.size + body_bytes]
            is_whole = mark <= _SETTLED and head_bytes <= body_bytes == len(body)
            if not is_whole or zlib.crc32(body, zlib.crc32(_ORDER.pack(order))) != check:
                self.is_damaged = True
                return
            if mark != _SETTLED:
                yield Record(order, body[:head_bytes], body[head_bytes:], mark == _SENT)
            at += (_RECORD.size + body_bytes + 7) & ~7


def _newest_note(content: bytes) -> bytes:
    found: list[tuple[int, bytes]] = []
    for at in (_NOTES_AT, _NOTES_AT + _NOTES_BYTES):
        version, length, check = _NOTES.unpack_from(content, at)
        text = content[at + _NOTES.size : at + _NOTES.size + min(length, _NOTES_BYTES)]
        if version and zlib.crc32(text) == check:
            found.append((version, text))
    return max(found, default=(0, b""))[1]
