"""Writing a file whole: a reader sees the old content or the new one, never a part. Standard library only.

What a push leaves on a device is written by `edge.device.durable`, whose every step is held against the kernel.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

__all__ = ["remedy", "staged", "sync_folder", "write_together", "write_whole"]

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT)


def write_whole(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Put `content` at `path`; after a power cut, too, there is the old file or the new one.

    Args:
        path: in a folder that is there; a link is replaced, not followed.
        mode: the rights of the new file, less the umask.

    Raises `OSError`, with `path` as its filename, if it cannot be written; `path` is then as it was, and nothing is
    left beside it.
    """
    with staged(path, content, mode=mode) as new:
        new.replace(path)


def write_together(
    files: Mapping[Path, bytes],
    *,
    closed: Collection[Path] = (),
    is_replacing: bool = True,
    check: Callable[[Mapping[Path, Path]], object] = lambda new: None,
) -> None:
    """Put contents that belong together at their paths: all of them, or none; an interrupt comes before or after.

    Only losing power between two renames can leave a new file beside an old one.

    Args:
        closed: those of the paths that their owner alone may read.
        is_replacing: whether what is at the paths gives way; else FileExistsError is raised, also if it came meanwhile.
        check: looks at the new files, by their paths, before any has its name; what it raises ends it.

    Raises `OSError` as `write_whole`.
    """
    with contextlib.ExitStack() as stack:
        new = {
            path: stack.enter_context(staged(path, content, mode=0o600 if path in closed else 0o666))
            for path, content in files.items()
        }
        for path in files:
            if path.is_dir() and not path.is_symlink():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        check(new)
        with _interrupts_wait(), contextlib.ExitStack() as undo:
            for path, one in new.items():
                if is_replacing:
                    old = _second_name(path, stack)
                    one.replace(path)
                    undo.callback(path.unlink if old is None else functools.partial(old.replace, path))
                else:
                    _put_new(one, path)
                    undo.callback(path.unlink)
            undo.pop_all()


def _second_name(path: Path, cleanup: contextlib.ExitStack) -> Path | None:
    """Return another name of what is at `path` until the end of `cleanup`; None where nothing is."""
    if not os.path.lexists(path):
        return None
    other = path.parent / f".{path.name}.{secrets.token_hex(4)}.old"
    cleanup.callback(other.unlink, missing_ok=True)
    try:
        os.link(path, other, follow_symlinks=False)
    except OSError:  # a file system without links, or a file of somebody else
        shutil.copy2(path, other, follow_symlinks=False)
    return other


def _put_new(one: Path, path: Path) -> None:
    try:
        os.link(one, path)
    except OSError as error:
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        one.replace(path)  # a file system without links, such as exFAT


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Let Ctrl-C and what ends as it does wait for what takes a moment; only the main thread is interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    before = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in before:
        signal.signal(number, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


@contextlib.contextmanager
def staged(path: Path, content: bytes, *, mode: int = 0o666) -> Iterator[Path]:
    """Yield a new file beside `path` that holds `content`, on the disk; it goes away unless it was renamed.
    Raises `OSError` if it cannot be written.
    """
    new = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        with os.fdopen(os.open(new, _FLAGS, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield new
    except OSError as error:
        if error.filename in (None, str(new)):  # what is written into a full disk names no file
            error.filename = str(path)
        raise
    finally:
        with contextlib.suppress(OSError):
            new.unlink()


def remedy(error: OSError, otherwise: str = "name a file in a folder of yours") -> str:
    """Return what to do about what could not be written."""
    return "make room, or name a place on another disk" if error.errno in _FULL else otherwise


def sync_folder(folder: Path) -> None:
    """Bring to the disk which names are in a folder: once this returns, a file that was renamed there stays."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
