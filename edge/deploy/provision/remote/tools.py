"""Tools that all steps share."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Conflict", "Folder", "Record", "has_group", "has_user", "make_folders", "open_folder", "open_parent", "run"]

Record = dict[str, Any]


class Conflict(Exception):  # noqa: N818 - not a failure of the program: a reason to change nothing
    """Something is there that provision did not write."""


def run(command: list[str]) -> None:
    """Conflict with the command's last words, if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Conflict(f"{' '.join(command[:4])} ended with {done.returncode}: {(done.stderr or done.stdout)[-600:]}")


def has_user(name: str) -> bool:
    return any(user.pw_name == name for user in pwd.getpwall())


def has_group(name: str) -> bool:
    return any(group.gr_name == name for group in grp.getgrall())


_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40  # as the kernel


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

    def mount(self) -> str:
        """Return which mount it lies on; two mounts of one file system differ."""
        with open(f"/proc/self/fdinfo/{self.fd}", encoding="ascii") as file:
            return next(line for line in file if line.startswith("mnt_id:"))

    def _opened(self, name: str) -> Folder:
        path = os.path.join(self.path, name)
        try:
            fd = os.open(name, _FLAGS, dir_fd=self.fd)
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
    fd = os.open("/", _FLAGS)
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
