"""Opens, reads, writes and empties folders without ever leaving them, whatever others put there meanwhile."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Conflict", "Folder", "Record", "make_folders", "naming", "open_folder", "open_parent", "read_own", "run"]

Record = dict[str, Any]


class Conflict(Exception):  # noqa: N818 - not a failure of the program: a reason to change nothing
    """Something is there that provision did not write."""


def run(command: list[str]) -> None:
    """Conflict with the command's last words, if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise Conflict(f"{command[0]} cannot be started: {error.strerror}; install it there") from None
    if done.returncode:
        raise Conflict(f"{' '.join(command[:4])} ended with {done.returncode}: {(done.stderr or done.stdout)[-600:]}")


_REMEDIES = {
    errno.ENOENT: "make the folder that is missing",
    errno.EROFS: "mount it to be written",
    errno.ENOSPC: "make room there",
    errno.EACCES: "let root write there",
    errno.EPERM: "let root write there",
}


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Name the path and a remedy in what the system refuses: below an open folder its errors have a bare name."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "the kernel's journal may say why")
        inner = error.filename
        within = "" if inner in (None, path, os.path.basename(path)) else f" ({inner})"
        raise OSError(f"{path}: {error.strerror or error}{within}; {remedy}") from error


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO is not waited for
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40  # as the kernel
_EMPTY_S = 900.0  # somebody may go on writing
_MOST_BYTES = 16 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """An open folder; `is_roots`: only root can put anything else in the place of it or of a name in it."""

    fd: int
    path: str
    is_roots: bool

    def lstat(self, name: str) -> os.stat_result | None:
        """Return None where there is no such name."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def inner(self, name: str) -> Iterator[Folder]:
        """FileNotFoundError if it is missing, Conflict if it is a link or no folder."""
        inner = self._opened(name)
        try:
            yield inner
        finally:
            os.close(inner.fd)

    def require_roots(self) -> None:
        """Raise Conflict if others than root can change names in it, where root would write what it relies on."""
        if not self.is_roots:
            status = os.fstat(self.fd)
            raise Conflict(
                f"{self.path} (mode {stat.S_IMODE(status.st_mode):04o}, user {_name_of(status.st_uid)}), or a folder "
                "on the way to it, can be changed by others than root; expected root's own, writable by root alone"
            )

    @contextlib.contextmanager
    def file(self, name: str) -> Iterator[int | None]:
        """Give a regular file, open for reading; None: it is not there.

        Conflict: if it is a link, has a second name (whose owner could be another), or is no regular file.
        """
        path = os.path.join(self.path, name)
        try:
            fd = os.open(name, _FILE, dir_fd=self.fd)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            raise Conflict(f"{path} is {'a link' if error.errno == errno.ELOOP else 'no regular file'}") from error
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise Conflict(f"{path} is no regular file")
            if status.st_nlink > 1:
                raise Conflict(f"{path} has another name, too (a hard link); remove that one first")
            yield fd
        finally:
            os.close(fd)

    def read(self, name: str) -> tuple[os.stat_result, bytes] | None:
        """Return what a file is and what is in it; None: it is not there.

        Conflict: as `file`, and if it is larger than anything that provision writes.
        """
        with self.file(name) as fd:
            if fd is None:
                return None
            content = bytearray()
            while part := os.pread(fd, 1 << 20, len(content)):
                content += part
                if len(content) > _MOST_BYTES:
                    raise Conflict(f"{os.path.join(self.path, name)} is larger than {_MOST_BYTES} bytes")
            return os.fstat(fd), bytes(content)

    def new_file(self, name: str, *, mode: int) -> int:
        """Return a file that was not there, open for writing; the caller closes it."""
        return os.open(name, _NEW_FILE, mode, dir_fd=self.fd)

    def put(
        self, name: str, content: bytes, *, mode: int, ids: tuple[int, int] = (0, 0), test: Sequence[str] | None = None
    ) -> None:
        """Write a file beside its place, let `test` accept it, move it there; durable when this returns.

        Conflict: if others than root can change names in the folder, or if the test refuses.
        """
        self.require_roots()
        with self.replacing(name) as partial:
            with open(self.new_file(partial, mode=0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fchown(file.fileno(), *ids)
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            if test:
                run([*test, os.path.join(self.path, partial)])

    @contextlib.contextmanager
    def replacing(self, name: str) -> Iterator[str]:
        """Give a name that is free; what it has at the end of the block is moved to `name`, durably."""
        partial = f".{name}.partial"
        self.remove(partial)
        try:
            yield partial
            os.rename(partial, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        finally:
            self.remove(partial)
        os.fsync(self.fd)

    def holds_files(self) -> bool:
        """Return whether it holds anything else than folders."""
        return bool(self._find("!", "-type", "d", "-print", "-quit").stdout)

    def remove(self, name: str) -> None:
        """Remove a folder in it, or whatever has this name; what `empty` leaves stays."""
        if not self._unlink(name):
            with self.inner(name) as inner:
                stays = inner.empty()
            if not stays:
                os.rmdir(name, dir_fd=self.fd)

    def empty(self) -> list[str]:
        """Remove all that is in it; return what stays and why: all of it, where something is mounted in it.

        Conflict: if others write faster into it than this can remove, for a quarter of an hour.
        """
        deadline = time.monotonic() + _EMPTY_S
        while os.listdir(self.fd):
            if mounts := self._mounts():
                return [f"something is mounted at {place}" for place in mounts]
            if time.monotonic() > deadline:
                raise Conflict(f"{self.path} is written to while it is emptied; stop what does")
            done = self._find("-xdev", "-delete")
            if done.returncode and "Directory not empty" not in done.stderr:
                raise Conflict(f"{self.path} cannot be emptied: {done.stderr.strip()[-600:]}")
        return []

    def _mounts(self) -> list[str]:
        """Return where below it something is mounted."""
        path = os.readlink(f"/proc/self/fd/{self.fd}")
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            places = [line.split()[4] for line in file]
        # Spaces and the like stand there as \040.
        plain = [re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), place) for place in places]
        return [place for place in plain if place.startswith(f"{path}/")]

    def _find(self, *expression: str) -> subprocess.CompletedProcess[str]:
        """Run find in it, which follows no link, whatever is exchanged, and goes as deep as anybody can dig."""
        command = ["find", ".", "-ignore_readdir_race", "-mindepth", "1", *expression]
        here, english = f"/proc/self/fd/{self.fd}", {**os.environ, "LC_ALL": "C"}
        return subprocess.run(
            command, cwd=here, env=english, capture_output=True, text=True, errors="replace", check=False
        )

    def _unlink(self, name: str) -> bool:
        """Remove a name that is no folder; return False if it is one."""
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            return False
        return True

    def _opened(self, name: str) -> Folder:
        path = os.path.join(self.path, name)
        try:
            fd = os.open(name, _FOLDER, dir_fd=self.fd)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            status = self.lstat(name)
            is_link = status is not None and stat.S_ISLNK(status.st_mode)
            raise Conflict(f"{path} is {'a link, which is not followed' if is_link else 'no folder'}") from error
        return Folder(fd=fd, path=path, is_roots=self.is_roots and _is_roots(os.fstat(fd)))


@contextlib.contextmanager
def open_folder(path: str) -> Iterator[Folder]:
    """Give the folder at an absolute path; FileNotFoundError if a part of it is missing.

    Conflict: if a part of the path is no folder, or a link that others than root could have made.
    """
    folder = _walk(path)
    try:
        yield folder
    finally:
        os.close(folder.fd)


@contextlib.contextmanager
def open_parent(path: str) -> Iterator[tuple[Folder, str]]:
    """Give the folder that holds the last name of a path, and that name; raises as `open_folder`."""
    with open_folder(os.path.dirname(path)) as folder:
        yield folder, os.path.basename(path)


def read_own(path: str) -> tuple[os.stat_result, bytes] | None:
    """Return what a file is and what is in it, in a folder that only root can change; None: it is not there."""
    try:
        with open_parent(path) as (folder, name):
            folder.require_roots()
            return folder.read(name)
    except FileNotFoundError:
        return None


def make_folders(path: str) -> None:
    """Make a folder of root's, and those above it that are missing.

    Conflict: as `open_folder`, and if others than root can change names in a folder where one is to be made.
    """
    if os.path.dirname(path) != path:
        make_folders(os.path.dirname(path))
        with open_parent(path) as (folder, name):
            if folder.lstat(name) is None:
                folder.require_roots()
                os.mkdir(name, 0o755, dir_fd=folder.fd)


def _walk(path: str) -> Folder:
    folder, rest, links = _top(), path.split("/")[::-1], 0
    try:
        while rest:
            name = rest.pop()
            if name in ("", "."):
                continue
            target = _roots_link(folder, name)
            links += target is not None
            if links > _MOST_LINKS:
                raise Conflict(f"{path} leads over more than {_MOST_LINKS} links")
            rest += [] if target is None else target.split("/")[::-1]
            is_absolute = target is not None and target.startswith("/")
            after = _top() if is_absolute else folder if target is not None else folder._opened(name)
            if after is not folder:
                os.close(folder.fd)
            folder = after
    except BaseException:
        os.close(folder.fd)
        raise
    return folder


def _top() -> Folder:
    fd = os.open("/", _FOLDER)
    return Folder(fd=fd, path="/", is_roots=_is_roots(os.fstat(fd)))


def _roots_link(folder: Folder, name: str) -> str | None:
    status = folder.lstat(name) if folder.is_roots else None
    if status is None or not stat.S_ISLNK(status.st_mode) or status.st_uid != 0:
        return None
    return os.readlink(name, dir_fd=folder.fd)


def _is_roots(status: os.stat_result) -> bool:
    # In a sticky folder such as /tmp no user can take away what is root's; whether a part is, is asked of each part.
    others = status.st_mode & (stat.S_IWOTH | (stat.S_IWGRP if status.st_gid else 0))
    return status.st_uid == 0 and (not others or bool(status.st_mode & stat.S_ISVTX))


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
