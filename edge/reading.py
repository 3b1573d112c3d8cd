"""Reading what another program may have written: a file that is something else, or too much, is an error and no wait.

Whoever may write into a folder may put there, under any name, a FIFO that nobody writes to, a link to an endless
device, a file that grows as it is read, or one whose lease he holds. Standard library only.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import time
from pathlib import Path
from typing import Any

__all__ = ["SMALL_BYTES", "UnfitFile", "json_object", "json_value", "open_file", "read_file", "read_part"]

SMALL_BYTES = 4 << 20
"""What a file of state, records or results may have; ours have some kilobytes."""

_CHUNK_BYTES = 1 << 20
_DEADLINE_S = 30.0
_SLOWEST_BYTES_PER_S = 2 << 20  # of a worn memory card
_MAX_DIGITS = 20  # of a whole number; Python's own int() takes seconds for one of 100,000
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_MEANING = {
    errno.ELOOP: "got a link",
    errno.ENXIO: "got a socket",
    errno.EWOULDBLOCK: "got one that another process holds (a lease)",
}


class UnfitFile(OSError):  # noqa: N818 - a finding about the file
    """What is there is no regular file that may be read: of another kind, held by somebody, or too long."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(errno.EINVAL, problem, str(path))


def read_file(
    path: Path,
    *,
    most_bytes: int = SMALL_BYTES,
    follows_links: bool = False,
    deadline_s: float | None = None,
    owner: int | None = None,
) -> bytes:
    """Return the content of a regular file.

    Args:
        path: the file.
        most_bytes: what it may have; never more than one byte beyond that is read, whatever length it states.
        follows_links: whether `path` may be a link; only in folders that nobody else can write to.
        deadline_s: for all of it; None: 30 s, and one more for every 2 MiB that it may have.
        owner: uid whose file it has to be, under this name alone: in that user's folder a hard link could be to a file
            that only we may read; None: of anybody.

    Raises:
        UnfitFile: if it is no regular file, held by a lease, longer, or not read in time.
        OSError: as the operating system says.
    """
    within_s = _DEADLINE_S + most_bytes / _SLOWEST_BYTES_PER_S if deadline_s is None else deadline_s
    descriptor = open_file(path, follows_links=follows_links)
    try:
        status = os.fstat(descriptor)
        if owner is not None and (status.st_uid, status.st_nlink) != (owner, 1):
            raise UnfitFile(path, f"expected a file of user {owner} with one name, got one of user {status.st_uid}")
        return _read_all(descriptor, path, most_bytes, time.monotonic() + within_s)
    finally:
        os.close(descriptor)


def open_file(path: Path, *, follows_links: bool = False) -> int:
    """Return a descriptor of a regular file, open for reading; the caller closes it.

    Raises:
        UnfitFile: if it is no regular file, or held by a lease.
        OSError: as the operating system says.
    """
    # O_NONBLOCK: neither a FIFO without a writer nor a lease makes us wait.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if follows_links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in _MEANING:
            raise UnfitFile(path, f"expected a regular file, {_MEANING[error.errno]}") from error
        raise
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise UnfitFile(path, f"expected a regular file, got {_KINDS.get(kind, 'something else')}")
    return descriptor


def read_part(path: Path, offset: int, length: int) -> bytes:
    """Return up to `length` bytes of a regular file from `offset` on; fewer at its end.

    Raises:
        UnfitFile, OSError: as `read_file`.
    """
    descriptor = open_file(path)
    try:
        return os.pread(descriptor, length, offset)
    finally:
        os.close(descriptor)


def json_value(content: bytes) -> Any:
    """Return what JSON says; not what Python adds to it (NaN, Infinity), nor numbers that no 64 bits hold.

    Raises:
        ValueError: for anything else, however deep or long.
    """
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_no_constant, parse_int=_integer, parse_float=_number)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def json_object(content: bytes) -> dict[str, Any]:
    """Return a JSON object; ValueError for anything else, as `json_value`."""
    value = json_value(content)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    return value


def _read_all(descriptor: int, path: Path, most_bytes: int, deadline: float) -> bytes:
    # The length that a file states is no help: those of /proc state 0, and another process may change it meanwhile.
    if os.fstat(descriptor).st_size > most_bytes:
        raise UnfitFile(path, f"expected at most {most_bytes} bytes, it has {os.fstat(descriptor).st_size}")
    pieces, length = [], 0
    while piece := os.read(descriptor, min(_CHUNK_BYTES, most_bytes + 1 - length)):
        pieces.append(piece)
        length += len(piece)
        if length > most_bytes:
            raise UnfitFile(path, f"expected at most {most_bytes} bytes, it grows as it is read")
        if time.monotonic() > deadline:
            raise UnfitFile(path, f"only {length} bytes could be read in time")
    return b"".join(pieces)


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is no JSON")


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:_MAX_DIGITS]} is out of range")
    return value
