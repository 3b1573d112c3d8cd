"""Reading what another program may have written: a file that is something else, or too much, is an error and no wait.

A program that may write into a folder may put there, under any name, a FIFO without a writer, a link to an endless
device, a file that grows as it is read, or one whose lease it holds. Standard library only.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "SMALL_BYTES",
    "UnfitFile",
    "UnfitJson",
    "available_bytes",
    "check_plain",
    "json_object",
    "json_value",
    "open_file",
    "read_file",
    "read_part",
    "text_of",
]

SMALL_BYTES = 4 << 20
"""Limit of a file of state, records or results; ours have some kilobytes."""

_CHUNK_BYTES = 1 << 20
_DEADLINE_S = 30.0
_SLOWEST_BYTES_PER_S = 2 << 20  # of a worn memory card
_MAX_DEPTH = 16  # levels of values; no document of ours has half as many
_MAX_DIGITS = 20  # what 64 bits hold
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
    """No regular file that may be read: of another kind, held by a lease, or too long."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(errno.EINVAL, problem, str(path))


def read_file(
    path: Path,
    *,
    most_bytes: int = SMALL_BYTES,
    follows_links: bool = False,
    owner: int | None = None,
) -> bytes:
    """Return the content of a regular file, read within 30 s, and one more for every 2 MiB that it may have.

    Args:
        most_bytes: what it may have; never more than one byte beyond that is read, whatever length it states.
        follows_links: whether `path` may be a link; only in folders that no other user can write to.
        owner: uid whose file it has to be, under this name alone: in that user's folder a hard link could be to a file
            that only we may read; None: of any user.

    Raises `UnfitFile` if it is no regular file, held by a lease, longer, or not read in time; `OSError` as the
    operating system says.
    """
    within_s = _DEADLINE_S + most_bytes / _SLOWEST_BYTES_PER_S
    descriptor = open_file(path, follows_links=follows_links)
    try:
        status = os.fstat(descriptor)
        if owner is not None and (status.st_uid, status.st_nlink) != (owner, 1):
            raise UnfitFile(path, f"expected a file of user {owner} with one name, got one of user {status.st_uid}")
        return _read_all(descriptor, path, most_bytes, time.monotonic() + within_s)
    finally:
        os.close(descriptor)


def text_of(path: Path) -> str:
    """Return what a file of the system says; empty where it cannot be read."""
    try:
        return read_file(path, follows_links=True).decode("utf-8", "replace")
    except OSError:
        return ""


def open_file(path: Path, *, follows_links: bool = False) -> int:
    """Return a descriptor of a regular file, open for reading; the caller closes it.
    Raises `UnfitFile` if it is no regular file, or held by a lease; `OSError` as the operating system says.
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
    Raises `UnfitFile`, `OSError` as `read_file`.
    """
    descriptor = open_file(path)
    try:
        return os.pread(descriptor, length, offset)
    finally:
        os.close(descriptor)


class UnfitJson(ValueError):  # noqa: N818 - a finding about the text
    """No JSON that may be taken; `kind` is json, size, depth or duplicate."""

    def __init__(self, problem: str, kind: str = "json") -> None:
        super().__init__(problem)
        self.kind = kind


def json_value(
    content: bytes | str,
    *,
    most_bytes: int | None = None,
    most_digits: int = _MAX_DIGITS,
    is_finite: bool = True,
    is_unique: bool = True,
) -> Any:
    """Return what JSON says; not what Python adds to it (NaN, Infinity), nor numbers that no 64 bits hold.

    Args:
        content: UTF-8.
        most_bytes: what it may have; None: its reader has bounded it.
        most_digits: of a whole number; Python's own int() takes seconds for one of 100,000.
        is_finite: False leaves NaN and numbers out of range to the caller, who names their place.
        is_unique: False leaves keys given twice to the caller, who names their place.

    Raises `UnfitJson` for anything else, however deep or long; json.JSONDecodeError where the syntax is wrong.
    """
    if most_bytes is not None and len(content) > most_bytes:
        raise UnfitJson(f"it has {len(content)} bytes, at most {most_bytes} are read", "size")

    def whole(text: str) -> int:
        if len(text) > most_digits:
            raise UnfitJson(f"a whole number has {len(text)} digits, {text[:10]}...")
        return int(text)

    hooks: dict[str, Any] = {"parse_constant": _no_constant, "parse_float": _number} if is_finite else {}
    try:
        text = content if isinstance(content, str) else content.decode("utf-8")
        value = json.loads(text, parse_int=whole, object_pairs_hook=_once if is_unique else None, **hooks)
    except RecursionError:
        raise _too_deep() from None
    _plain_parts(value)
    return value


def json_object(content: bytes | str, **bounds: Any) -> dict[str, Any]:
    """Return a JSON object; for anything else as `json_value`, whose `bounds` these are."""
    value = json_value(content, **bounds)
    if not isinstance(value, dict):
        raise UnfitJson(f"expected a JSON object, got {type(value).__name__}")
    return value


def check_plain(value: object) -> None:
    """Pass if `value` is made of what JSON can carry, in whole characters, not too deep; else UnfitJson."""
    for inner in _plain_parts(value):
        is_plain = inner is None or isinstance(inner, (bool, int, float, str))
        if not is_plain or (isinstance(inner, float) and not math.isfinite(inner)):
            raise UnfitJson(f"{inner!r}, which JSON cannot carry")
        if isinstance(inner, str) and any("\ud800" <= letter <= "\udfff" for letter in inner):
            raise UnfitJson(f"{inner!r}, half a surrogate pair")


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


def _plain_parts(value: object) -> list[object]:
    """Return all names and values within `value` that hold no others."""
    level, depth, plain = [value], 0, []
    while level:  # level by level, so that a deep value costs no recursion
        depth += 1
        if depth > _MAX_DEPTH:
            raise _too_deep()
        outer, level = level, []
        for one in outer:
            if isinstance(one, Mapping):
                level += [*one.keys(), *one.values()]
            elif isinstance(one, (list, tuple)):
                level += one
            else:
                plain.append(one)
    return plain


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in values if keys.count(key) > 1)
        raise UnfitJson(f"it has the key {twice[:100]!r} twice", "duplicate")
    return values


def _no_constant(text: str) -> object:
    raise UnfitJson(f"{text} is no JSON")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise UnfitJson(f"{text[:_MAX_DIGITS]} is out of range")
    return value


def _too_deep() -> UnfitJson:
    return UnfitJson(f"this is nested too deep, more than {_MAX_DEPTH} levels", "depth")


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Return how much memory can be had without swapping; None where the system does not say."""
    try:
        lines = read_file(meminfo).decode("ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found and found[0].isdigit() else None
