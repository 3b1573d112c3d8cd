"""Steps that are about folders and files."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import stat

from edge.deploy.provision.remote.tools import Conflict, Record, empty, is_bare, put, remove_bare, sha256

__all__ = ["Directory", "File", "Lines", "Step"]


class Step:
    """One thing that has to be so; `record` is what an earlier run noted of it, or None."""

    def __init__(self, values: Record, record: Record | None) -> None:
        self.values, self.record = values, record
        self.path: str = values.get("path", "")

    def check(self) -> list[str]:
        """Return a line for each change that is needed.

        Raises:
            Conflict: if it cannot be made so without harming what somebody else put there.
        """
        raise NotImplementedError

    def apply(self) -> Record:
        """Make it so and return the record."""
        raise NotImplementedError

    def undo(self, *, is_real: bool, purge: bool) -> str:
        """Take back what the record says, if `is_real`; return a line that says what."""
        raise NotImplementedError

    def _ids(self) -> tuple[int, int]:
        return pwd.getpwnam(self.values["owner"]).pw_uid, grp.getgrnam(self.values["group"]).gr_gid

    def _check_rights(self, status: os.stat_result) -> list[str]:
        have, want = stat.S_IMODE(status.st_mode), self.values["mode"]
        lines = []
        if have != want:
            if want & ~have and self.record is None:
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
        """Create it, or set its rights."""
        if not os.path.lexists(self.path):
            return [f"create folder {self.path}"]
        if os.path.islink(self.path) or not os.path.isdir(self.path):
            raise Conflict(f"{self.path} is no folder")
        return [] if self.values["mode"] is None else self._check_rights(os.stat(self.path))

    def apply(self) -> Record:
        """Create it, or set its rights."""
        made = dict(self.record or {"before": None})
        if not os.path.isdir(self.path):
            os.mkdir(self.path)
            made["before"] = None
        elif self.record is None:
            status = os.stat(self.path)
            made["before"] = [stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid]
        if self.values["mode"] is not None:
            os.chown(self.path, *self._ids())
            os.chmod(self.path, self.values["mode"])
        return made

    def undo(self, *, is_real: bool, purge: bool) -> str:
        """Remove it if it was created here and is empty."""
        before = (self.record or {}).get("before")
        if not os.path.isdir(self.path):
            return f"{self.path} is gone already"
        if (purge and self.values.get("is_data")) or self.values["is_volatile"]:
            if is_real:
                empty(self.path)
        elif not is_bare(self.path) and self.values.get("is_data"):
            return f"keep {self.path}: it holds data (--purge removes it)"
        if before is not None:
            if is_real:
                os.chmod(self.path, before[0])
                os.chown(self.path, before[1], before[2])
            return f"give {self.path} its former rights"
        if is_real and not remove_bare(self.path):
            return f"keep {self.path}: it is not empty"
        return f"remove folder {self.path}"


class File(Step):
    """A whole file that is ours; `test` is a command that must accept it before it is moved into place."""

    def check(self) -> list[str]:
        """Write it, replace our own former version, or set its rights."""
        if not os.path.lexists(self.path):
            return [f"write {self.path}"]
        if os.path.islink(self.path) or not os.path.isfile(self.path):
            raise Conflict(f"{self.path} is no regular file")
        have = sha256(self.path)
        if have == hashlib.sha256(self.values["content"].encode()).hexdigest():
            return self._check_rights(os.stat(self.path))
        if self.values.get("is_seed"):
            return []  # a person's from the moment on when it is there
        if self.record is None:
            raise Conflict(f"{self.path} is there and was not written by provision; move it away first")
        if have != self.record["sha256"]:
            raise Conflict(f"{self.path} was changed since provision wrote it; move the change into a file of its own")
        return [f"replace {self.path}"]

    def apply(self) -> Record:
        """Write it beside its place, test it, move it there."""
        put(self.path, self.values["content"].encode(), self.values["mode"], self._ids(), self.values.get("test"))
        return {"sha256": hashlib.sha256(self.values["content"].encode()).hexdigest()}

    def undo(self, *, is_real: bool, purge: bool) -> str:
        """Remove it unless somebody has changed it."""
        if not os.path.isfile(self.path):
            return f"{self.path} is gone already"
        if sha256(self.path) != (self.record or {}).get("sha256") and not purge:
            return f"keep {self.path}: it was changed since (--purge removes it)"
        if is_real:
            os.unlink(self.path)
        return f"remove {self.path}"


class Lines(Step):
    """Lines in a file that may hold others' lines; `entries` pair a line with the key in it.

    A key that is there in another line is somebody's decision: it stays (`on_other` "keep") or ends it ("refuse").
    """

    def check(self) -> list[str]:
        """Add those whose key is not there."""
        if os.path.islink(self.path):
            raise Conflict(f"{self.path} is a link")
        lines = [f"add a line to {self.path}: {line}" for line in self._missing()]
        if os.path.exists(self.path):
            lines += self._check_rights(os.stat(self.path))
        return lines

    def apply(self) -> Record:
        """Add them at the end."""
        made = dict(self.record or {"created": not os.path.exists(self.path), "lines": []})
        missing = self._missing()
        if missing or not os.path.exists(self.path):
            text = "".join(f"{line}\n" for line in self._there() + missing)
            put(self.path, text.encode(), self.values["mode"], self._ids(), None)
        os.chown(self.path, *self._ids())
        os.chmod(self.path, self.values["mode"])
        made["lines"] = made["lines"] + missing
        return made

    def undo(self, *, is_real: bool, purge: bool) -> str:
        """Remove the lines that were added, and the file if it was created for them and no other is left."""
        record = self.record or {"lines": [], "created": False}
        rest = [line for line in self._there() if line not in record["lines"]]
        if is_real and os.path.exists(self.path):
            if rest or not record["created"]:
                put(self.path, "".join(f"{line}\n" for line in rest).encode(), self.values["mode"], self._ids(), None)
            else:
                os.unlink(self.path)
        return f"remove {len(record['lines'])} line(s) from {self.path}"

    def _there(self) -> list[str]:
        if not os.path.exists(self.path):
            return []
        with open(self.path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()

    def _missing(self) -> list[str]:
        missing = []
        for line, key in self.values["entries"]:
            same = [other for other in self._there() if key in other.split() and not other.lstrip().startswith("#")]
            if not same:
                missing.append(line)
            elif line not in same and self.values["on_other"] == "refuse":
                raise Conflict(f"{self.path} lets the key {key[:16]}... in by another line; take that line away first")
        return missing
