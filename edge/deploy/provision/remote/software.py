"""The step that installs the software: a virtual environment of its own per version, and the link to the one in use."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import sys

from edge.deploy.provision.remote.contents import open_file_in, put, read, remove_tree
from edge.deploy.provision.remote.files import Step
from edge.deploy.provision.remote.tools import Conflict, Folder, Record, make_folders, open_folder, open_parent, run

__all__ = ["Software"]

# When a user starts one of our programs, no variable of theirs and no folder of a user's own says what Python loads; no
# bytecode is written, and a crash in native code leaves its stack. A script has room for one argument.
_FLAGS = b"-IBXfaulthandler"


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
        """Install beside what is in use, then switch by one rename; the version in use before stays, older ones go."""
        former = self._former()
        with open_parent(self.path) as (folder, name):
            folder.require_roots()
            if not _is_complete(folder, name):
                make_folders(self.values["store"])
                with open_folder(self.values["store"]) as store:
                    self._stock(store)
                remove_tree(folder, name)
                os.mkdir(name, 0o755, dir_fd=folder.fd)
                with folder.inner(name) as home:
                    self._install(home)
            if former != name:
                self._switch()
            for old in set((self.record or {}).get("names", [])) - {former, name}:
                remove_tree(folder, old)
        return {"names": [each for each in dict.fromkeys([former, name]) if each]}

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
                    remove_tree(folder, each)
            if "store" in self.values:  # an earlier provision kept no wheels
                with contextlib.suppress(FileNotFoundError), open_parent(os.path.dirname(self.values["store"])) as kept:
                    remove_tree(*kept)
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
        with open_parent(self.values["link"]) as (folder, name):
            partial = f"{name}.partial"
            remove_tree(folder, partial)
            os.symlink(os.path.basename(self.path), partial, dir_fd=folder.fd)
            os.rename(partial, name, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
            os.fsync(folder.fd)

    def _install(self, home: Folder) -> None:
        here: str = self.values["store"]
        run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", self.path])
        put(home, "requirements.txt", self.values["requirements"].encode(), mode=0o644, ids=(0, 0))
        locked = os.path.join(self.path, "requirements.txt")
        pip = [os.path.join(self.path, "bin", "python"), os.path.join(here, self.values["pip"], "pip"), "install"]
        pip += ["--no-index", "--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--find-links", here]
        run([*pip, "--require-hashes", "--requirement", locked])
        with home.inner("bin") as programs:
            _isolate(programs)
        put(home, ".complete", b"", mode=0o644, ids=(0, 0))
        os.sync()

    def _stock(self, store: Folder) -> None:
        """Take into root's own folder what was sent, each as its SHA-256 says, and nothing else.

        What is checked is what is installed: the folder that it was sent to is the administrator's.
        """
        store.require_roots()
        for name in set(os.listdir(store.fd)) - set(self.values["wheels"]):
            remove_tree(store, name)
        for name, digest in self.values["wheels"].items():
            if _sha256_of(store, name) != digest:
                self._take(store, name, digest)

    def _take(self, store: Folder, name: str, digest: str) -> None:
        partial = f".{name}.partial"
        remove_tree(store, partial)
        try:
            if self.values["folder"] is not None:
                with contextlib.suppress(FileNotFoundError), open_folder(self.values["folder"]) as sent:
                    _copy(sent, name, store, partial)
            if _sha256_of(store, partial) != digest:
                raise Conflict(f"{name} has not arrived as it was sent")
            os.rename(partial, name, src_dir_fd=store.fd, dst_dir_fd=store.fd)
        finally:
            remove_tree(store, partial)


def _is_complete(folder: Folder, name: str) -> bool:
    try:
        with folder.inner(name) as home:
            return home.lstat(".complete") is not None
    except FileNotFoundError:
        return False


def _sha256_of(folder: Folder, name: str) -> str | None:
    digest = hashlib.sha256()
    with open_file_in(folder, name) as fd:
        if fd is None:
            return None
        with open(fd, "rb", closefd=False) as file:
            while part := file.read(1 << 20):
                digest.update(part)
    return digest.hexdigest()


def _copy(source: Folder, name: str, target: Folder, as_name: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open_file_in(source, name) as fd:
        if fd is not None:
            with (
                open(fd, "rb", closefd=False) as there,
                open(os.open(as_name, flags, 0o644, dir_fd=target.fd), "wb") as here,
            ):
                shutil.copyfileobj(there, here, 1 << 20)


def _isolate(programs: Folder) -> None:
    """Have every script start Python so that it is deaf to its surroundings."""
    for name in os.listdir(programs.fd):
        status = programs.lstat(name)
        if status is None or not stat.S_ISREG(status.st_mode):
            continue
        with open_file_in(programs, name) as fd:
            content = b"" if fd is None else read(fd)
        first, _, rest = content.partition(b"\n")
        if first.startswith(b"#!") and first.endswith(b"/bin/python"):
            content = b"%s %s\n%s" % (first, _FLAGS, rest)
            put(programs, name, content, mode=stat.S_IMODE(status.st_mode), ids=(0, 0))
