"""The step that installs the software: a virtual environment of its own per version, and the link to the one in use."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import stat
import sys
from collections.abc import Iterator
from typing import BinaryIO

from edge.deploy.provision.remote.files import Step
from edge.deploy.provision.remote.folders import Conflict, Folder, Record, make_folders, open_folder, open_parent, run

__all__ = ["Software", "stock"]

# When a user starts one of our programs, no variable of theirs and no folder of a user's own says what Python loads; no
# bytecode is written, and a crash in native code leaves its stack. A script has room for one argument.
_FLAGS = b"-IBXfaulthandler"
_SILENT_S = 900  # for a mebibyte


class Software(Step):
    """An installation in use is never changed: the new version is installed beside it, then the link is switched."""

    def check(self) -> list[str]:
        with open_parent(self.path) as (folder, name):
            folder.require_roots()
            lines = [] if _is_complete(folder, name) else [f"install {self.values['title']} in {self.path}"]
        former = self._former()
        if former != name:
            lines.append(f"switch {self.values['link']} from {former or 'nothing'} to {name}")
        return lines

    def apply(self) -> Record:
        """Install beside what is in use, then switch by one rename.

        The version in use before stays, and older ones that processes still run from; the others go.
        """
        former = self._former()
        with open_parent(self.path) as (folder, name):
            folder.require_roots()
            if not _is_complete(folder, name):
                make_folders(self.values["store"])
                with open_folder(self.values["store"]) as store:
                    self._check_store(store)
                folder.remove(name)
                os.mkdir(name, 0o755, dir_fd=folder.fd)
                with folder.inner(name) as home:
                    self._install(home)
            if former != name:
                self._switch()
            running = _running_from(os.path.dirname(self.path))
            older = [each for each in (self.record or {}).get("names", []) if each not in (former, name)]
            for each in older:
                if each not in running:
                    folder.remove(each)
        self.told += [
            f"what runs from {each} goes on with it until it is started anew: at the next push or boot, or by "
            "systemctl restart edge-runtime"
            for each in (*older, former)
            if each in running and each != name
        ]
        kept = [each for each in older if each in running]
        return {"names": [each for each in dict.fromkeys([*kept, former, name]) if each]}

    def undo(self, *, is_real: bool, purge: bool, gone: set[str]) -> str:
        names = (self.record or {}).get("names", [])
        link = self.values["link"]
        if is_real:
            former = self._former()
            with open_parent(link) as (folder, name):
                if former in names:
                    os.unlink(name, dir_fd=folder.fd)
            with open_parent(self.path) as (folder, _):
                for each in names:
                    folder.remove(each)
            with (
                contextlib.suppress(FileNotFoundError),
                open_parent(os.path.dirname(self.values["store"])) as (above, name),
            ):
                above.remove(name)
        gone |= {link, *(os.path.join(os.path.dirname(self.path), name) for name in names)}
        return f"remove {link} and {', '.join(names)}"

    def _former(self) -> str | None:
        with open_parent(self.values["link"]) as (folder, name):
            folder.require_roots()
            status = folder.lstat(name)
            if status is None:
                return None
            if not stat.S_ISLNK(status.st_mode):
                raise Conflict(f"{self.values['link']} is there and is no link of provision's")
            return os.readlink(name, dir_fd=folder.fd)

    def _switch(self) -> None:
        with open_parent(self.values["link"]) as (folder, name), folder.replacing(name) as partial:
            os.symlink(os.path.basename(self.path), partial, dir_fd=folder.fd)

    def _install(self, home: Folder) -> None:
        here: str = self.values["store"]
        run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", self.path])
        home.put("requirements.txt", self.values["requirements"].encode(), mode=0o644)
        locked = os.path.join(self.path, "requirements.txt")
        pip = [os.path.join(self.path, "bin", "python"), os.path.join(here, self.values["pip"], "pip"), "install"]
        pip += ["--no-index", "--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--find-links", here]
        run([*pip, "--require-hashes", "--requirement", locked])
        with home.inner("bin") as programs:
            _isolate(programs)
        home.put(".complete", b"", mode=0o644)
        os.sync()

    def _check_store(self, store: Folder) -> None:
        """Hold that root's own folder has each wheel as its SHA-256 says; what else is there goes."""
        store.require_roots()
        for name in set(os.listdir(store.fd)) - set(self.values["wheels"]):
            store.remove(name)
        for name, digest in self.values["wheels"].items():
            if _sha256_of(store, name) != digest:
                raise Conflict(f"{name} is not as it was sent; another provision may have replaced it: run it again")


def stock(request: Record, stream: BinaryIO) -> Record:
    """Write the files that come into root's own folder, by name and length, each whole or not at all."""
    make_folders(request["store"])
    with _ending_in_silence(), open_folder(request["store"]) as store:
        store.require_roots()
        for name, length in request["files"].items():
            with store.replacing(name) as partial, open(store.new_file(partial, mode=0o644), "wb") as file:
                while length and (part := stream.read(min(length, 1 << 20))):
                    signal.alarm(_SILENT_S)
                    file.write(part)
                    length -= len(part)
                if length:
                    raise Conflict(f"{name} has not arrived whole")
    return {"applied": True}


@contextlib.contextmanager
def _ending_in_silence() -> Iterator[None]:
    """End the process where nothing comes: a broken connection does not end it, and it holds the lock."""
    signal.alarm(_SILENT_S)
    try:
        yield
    finally:
        signal.alarm(0)


def _running_from(place: str) -> set[str]:
    """Return the names of the installations in a folder from which processes were started."""
    found = set()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            program = os.fsdecode(file.read().partition(b"\0")[0])
            if program.startswith(f"{place}/"):
                found.add(program[len(place) + 1 :].partition("/")[0])
    return found


def _is_complete(folder: Folder, name: str) -> bool:
    try:
        with folder.inner(name) as home:
            return home.lstat(".complete") is not None
    except FileNotFoundError:
        return False


def _sha256_of(folder: Folder, name: str) -> str | None:
    digest = hashlib.sha256()
    with folder.file(name) as fd:
        if fd is None:
            return None
        with open(fd, "rb", closefd=False) as file:
            while part := file.read(1 << 20):
                digest.update(part)
    return digest.hexdigest()


def _isolate(programs: Folder) -> None:
    """Have every script start Python so that it is deaf to its surroundings."""
    for name in os.listdir(programs.fd):
        status = programs.lstat(name)
        found = programs.read(name) if status is not None and stat.S_ISREG(status.st_mode) else None
        if found is None:
            continue
        first, _, rest = found[1].partition(b"\n")
        if first.startswith(b"#!") and first.endswith(b"/bin/python"):
            programs.put(name, b"%s %s\n%s" % (first, _FLAGS, rest), mode=stat.S_IMODE(found[0].st_mode))
