"""Steps that are about folders and files."""

from __future__ import annotations

import fnmatch
import grp
import hashlib
import os
import pwd
import re
import stat

from edge.deploy.provision.remote.folders import Conflict, Folder, Record, open_parent, read_own

__all__ = ["Directory", "File", "Lines", "Step"]


class Step:
    """One thing that has to be so; `record` is what an earlier run noted of it, or None."""

    def __init__(self, values: Record, record: Record | None) -> None:
        self.values, self.record = values, record
        self.path: str = values.get("path", "")
        self.told: list[str] = []  # what a person has to know of how it was made so

    def check(self) -> list[str]:
        """Return a line for each change; Conflict if it cannot be made without harming what somebody else put there."""
        raise NotImplementedError

    def apply(self) -> Record:
        """Make it so and return the record."""
        raise NotImplementedError

    def undo(self, *, is_real: bool, purge: bool, gone: set[str]) -> str:
        """Take back what the record says, if `is_real`; return a line about it, add the paths removed to `gone`."""
        raise NotImplementedError

    def _ids(self) -> tuple[int, int]:
        return pwd.getpwnam(self.values["owner"]).pw_uid, grp.getgrnam(self.values["group"]).gr_gid

    def _check_rights(self, status: os.stat_result) -> list[str]:
        have, want = stat.S_IMODE(status.st_mode), self.values["mode"]
        lines = []
        if have != want:
            # The setgid bit of a folder opens it to nobody; a file system that was just made has none.
            if want & ~have & ~stat.S_ISGID and self.record is None:
                raise Conflict(f"{self.path} has mode {have:04o}; provision needs {want:04o}, and does not widen it")
            lines.append(f"set mode of {self.path} from {have:04o} to {want:04o}")
        try:
            is_owned = (status.st_uid, status.st_gid) == self._ids()
        except KeyError:
            is_owned = False  # the user is made by a step before this one
        if not is_owned:
            if status.st_uid != 0 and self.record is None:
                raise Conflict(f"{self.path} belongs to user {status.st_uid}, not to root or {self.values['owner']}")
            lines.append(f"give {self.path} to {self.values['owner']}")
        return lines


class Directory(Step):
    """A folder; `mode` None: it only has to be there. `is_data`: what is in it stays unless purged."""

    def check(self) -> list[str]:
        try:
            with open_parent(self.path) as (parent, name), parent.inner(name) as folder:
                return [] if self.values["mode"] is None else self._check_rights(os.fstat(folder.fd))
        except FileNotFoundError:
            return [f"create folder {self.path}"]

    def apply(self) -> Record:
        """Create it, or set its rights: of the folder that was opened, whatever has its name by then."""
        with open_parent(self.path) as (parent, name):
            is_new = parent.lstat(name) is None
            if is_new:
                os.mkdir(name, 0o755 if self.values["mode"] is None else self.values["mode"], dir_fd=parent.fd)
            with parent.inner(name) as folder:
                return self._set_rights(folder, is_new=is_new)

    def _set_rights(self, folder: Folder, *, is_new: bool) -> Record:
        status = os.fstat(folder.fd)
        made = dict(self.record or {"before": None})
        if is_new:
            made["before"] = None
        elif self.record is None:
            made["before"] = [stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid]
        if self.values["mode"] is not None:
            if not is_new or status.st_uid != 0:  # another user may have put a folder of his own in its place
                self._check_rights(status)
            os.fchown(folder.fd, *self._ids())
            os.fchmod(folder.fd, self.values["mode"])
        return made

    def undo(self, *, is_real: bool, purge: bool, gone: set[str]) -> str:
        """Remove it if it was created here and is empty."""
        try:
            with open_parent(self.path) as (parent, name):
                status = parent.lstat(name)
                if status is not None and not stat.S_ISDIR(status.st_mode):
                    kind = "link" if stat.S_ISLNK(status.st_mode) else "file"
                    return self._undo_other(parent, name, kind, is_real=is_real, purge=purge, gone=gone)
                if status is not None:
                    return self._undo_folder(parent, name, is_real=is_real, purge=purge, gone=gone)
        except FileNotFoundError:
            pass
        except Conflict as conflict:  # what stands in the way belongs to the folder above, which is undone after this
            return f"pass over {self.path}: {conflict}"
        return f"{self.path} is gone already"

    def _undo_other(self, parent: Folder, name: str, kind: str, *, is_real: bool, purge: bool, gone: set[str]) -> str:
        if not (purge and self.values["is_data"]):
            return f"keep {self.path}: it is a {kind}, and no folder as it was"
        if is_real:
            os.unlink(name, dir_fd=parent.fd)
        gone.add(self.path)
        return f"remove {kind} {self.path}, which was a folder, and nothing that it leads to"

    def _undo_folder(self, parent: Folder, name: str, *, is_real: bool, purge: bool, gone: set[str]) -> str:
        before = (self.record or {}).get("before")
        is_emptied = (purge and self.values["is_data"]) or self.values["is_volatile"]
        stays: list[str] = []
        with parent.inner(name) as folder:
            if is_emptied and is_real:
                stays = folder.empty()
            elif not is_emptied and self.values["is_data"] and folder.holds_files():
                return f"keep {self.path}: it holds data (--purge removes it)"
            if before is not None:
                if is_real:
                    os.fchown(folder.fd, before[1], before[2])
                    os.fchmod(folder.fd, before[0])
                return f"give {self.path} its former rights"
            if not is_emptied:
                left = [each for each in sorted(os.listdir(folder.fd)) if f"{self.path}/{each}" not in gone]
                stays = [f"it holds {', '.join(left[:9])}"] if left else []
        try:
            if is_real and not stays:
                os.rmdir(name, dir_fd=parent.fd)
        except OSError as error:
            stays = [os.strerror(error.errno or 0)]
        if stays:
            return f"keep {self.path}: {'; '.join(stays)}"
        gone.add(self.path)
        return f"remove folder {self.path}"


class _OwnFile(Step):
    """A file in a folder that only root can change, read and removed there."""

    def _write(self, content: bytes, *, test: list[str] | None = None) -> None:
        with open_parent(self.path) as (folder, name):
            folder.put(name, content, mode=self.values["mode"], ids=self._ids(), test=test)

    def _unlink(self, gone: set[str], *, is_real: bool) -> None:
        gone.add(self.path)
        if is_real:
            with open_parent(self.path) as (folder, name):
                os.unlink(name, dir_fd=folder.fd)


class File(_OwnFile):
    """A whole file that is ours; `test` is a command that must accept it before it is moved into place.

    `is_spare`: the file is left out where another one, or a folder that is not root's, stands in its way.
    """

    def check(self) -> list[str]:
        try:
            return self._changes()
        except (Conflict, OSError):
            if self.values.get("is_spare"):
                return []
            raise

    def _changes(self) -> list[str]:
        found = read_own(self.path)
        if found is None:
            return [f"write {self.path}"]
        have = hashlib.sha256(found[1]).hexdigest()
        if have == hashlib.sha256(self._content()).hexdigest():
            return self._check_rights(found[0])
        if self.values.get("is_seed"):
            return []  # a person's from the moment on when it is there
        if self.record is None:
            raise Conflict(f"{self.path} is there and was not written by provision; move it away first")
        if have != self.record["sha256"]:
            raise Conflict(f"{self.path} was changed since provision wrote it; move the change into a file of its own")
        return [f"replace {self.path}"]

    def apply(self) -> Record:
        self._write(self._content(), test=self.values.get("test"))
        return {"sha256": hashlib.sha256(self._content()).hexdigest()}

    def _content(self) -> bytes:
        return bytes(self.values["content"].encode(errors="surrogateescape"))

    def undo(self, *, is_real: bool, purge: bool, gone: set[str]) -> str:
        """Remove it unless somebody has changed it."""
        try:
            found = read_own(self.path)
        except Conflict as conflict:
            return f"keep {self.path}: {conflict}"
        if found is None:
            return f"{self.path} is gone already"
        if hashlib.sha256(found[1]).hexdigest() != (self.record or {}).get("sha256") and not purge:
            return f"keep {self.path}: it was changed since (--purge removes it)"
        self._unlink(gone, is_real=is_real)
        return f"remove {self.path}"


class Lines(_OwnFile):
    """Lines in a file that may hold others' lines; `entries` pair a line with the key in it.

    A key that is there in another line is somebody's decision: it stays, and what that line does not give is added
    (`on_other` "widen"), or it ends this ("refuse").
    `is_exact`: all other lines go; into the file `moves_to`, where one is named, so that what they stood for is known.
    """

    def check(self) -> list[str]:
        found = read_own(self.path)
        lines = [f"add a line to {self.path}: {line}" for line in self._missing(_lines(found))]
        to = self.values.get("moves_to")
        where = f" (kept in {to})" if to else ""
        lines += [f"take a line from {self.path}{where}: {line}" for line in self._surplus(_lines(found))]
        return lines if found is None else lines + self._check_rights(found[0])

    def apply(self) -> Record:
        found = read_own(self.path)
        made = dict(self.record or {"created": found is None, "lines": []})
        missing, surplus = self._missing(_lines(found)), self._surplus(_lines(found))
        if surplus and self.values.get("moves_to"):  # first, so that a cut in between leaves them in both
            made["moved_to"] = self.values["moves_to"]
            self._former(made["moved_to"])._add(surplus)
        self._write(_text([line for line in _lines(found) if line not in surplus] + missing))
        return {**made, "lines": [line for line in made["lines"] if line not in surplus] + missing}

    def _former(self, path: str) -> Lines:
        return Lines({**self.values, "path": path, "mode": 0o644, "owner": "root", "group": "root"}, None)

    def _add(self, lines: list[str]) -> None:
        there = _lines(read_own(self.path))
        self._write(_text(there + [line for line in lines if line not in there]))

    def undo(self, *, is_real: bool, purge: bool, gone: set[str]) -> str:
        """Remove the lines that were added, and the file if it was created for them and no other is left."""
        record = self.record or {"lines": [], "created": False}
        try:
            found = read_own(self.path)
            if "moved_to" in record and read_own(record["moved_to"]) is not None:
                self._former(record["moved_to"])._unlink(gone, is_real=is_real)
        except Conflict as conflict:
            return f"keep {self.path}: {conflict}"
        rest = [line for line in _lines(found) if line not in record["lines"]]
        if found is not None and record["created"] and not rest:
            self._unlink(gone, is_real=is_real)
        elif found is not None and is_real:
            self._write(_text(rest))
        return f"remove {len(record['lines'])} line(s) from {self.path}"

    def _missing(self, there: list[str]) -> list[str]:
        missing = []
        for line, key in self.values["entries"]:
            same = [other for other in there if key in other.split() and not other.lstrip().startswith("#")]
            if not same or (self.values.get("is_exact") and line not in same):
                missing.append(line)
            elif line not in same and self.values["on_other"] == "refuse":
                raise Conflict(f"{self.path} lets the key {key[:16]}... in by another line; take that line away first")
            elif not any(_gives(other, line) for other in same):
                missing.append(line)
        return missing

    def _surplus(self, there: list[str]) -> list[str]:
        """Return the lines that let others in: not those that are wanted, and not what is for people only."""
        if not self.values.get("is_exact"):
            return []
        wanted = [line for line, _ in self.values["entries"]]
        return [line for line in there if line.strip() and not line.lstrip().startswith("#") and line not in wanted]


def _gives(other: str, line: str) -> bool:
    """Return whether a line of allowed signers lets its key sign all that `line` does (ssh-keygen(1): patterns)."""
    stated = [re.search(r'\bnamespaces="([^"]*)"', one) for one in (other, line)]
    if stated[0] is None or stated[1] is None:
        return stated[0] is None
    patterns, wanted = (one[1].split(",") for one in stated if one)
    return all(any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns) for name in wanted)


def _lines(found: tuple[os.stat_result, bytes] | None) -> list[str]:
    return [] if found is None else found[1].decode(errors="surrogateescape").splitlines()


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")
