"""Reads one JSON request from standard input, checks, applies or undoes its steps, writes one JSON answer."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

from edge.deploy.provision.remote.files import Directory, File, Lines, Step
from edge.deploy.provision.remote.folders import Conflict, Record, naming, open_folder, open_parent, read_own, run
from edge.deploy.provision.remote.software import Software, stock

__all__ = ["main", "make", "unmake"]


class Accounts(Step):
    """Users and groups of a sysusers file that a step before this one has written."""

    def check(self) -> list[str]:
        lines = [f"create group {name}" for name in self.values["groups"] if not _has_group(name)]
        for name, (home, shell, _) in self.values["users"].items():
            try:
                there = pwd.getpwnam(name)
            except KeyError:
                lines.append(f"create user {name}")
                continue
            if (there.pw_dir, there.pw_shell) != (home, shell):
                raise Conflict(f"user {name} is there with {there.pw_dir} and {there.pw_shell}, not {home} and {shell}")
        for user, group in self.values["members"]:
            if not _has_group(group) or user not in grp.getgrnam(group).gr_mem:
                lines.append(f"add user {user} to group {group}")
        return lines

    def apply(self) -> Record:
        made = dict(self.record or {"users": [], "groups": []})
        users = [name for name in self.values["users"] if not _has_user(name)]
        groups = [name for name in self.values["groups"] if not _has_group(name)]
        run(["systemd-sysusers", self.path])
        for name in users:
            if self.values["users"][name][2]:
                # "!" would lock the account for keys, too, where sshd does not use PAM; no password matches "*".
                run(["usermod", "--password", "*", name])
        return {"users": made["users"] + users, "groups": made["groups"] + groups}

    def undo(self, *, is_real: bool, purge: bool, gone: set[str]) -> str:
        """Remove those that were created here, unless data of theirs stays."""
        record = self.record or {"users": [], "groups": []}
        if not purge and any(map(_holds_data, self.values["data"])):
            return f"keep users {', '.join(record['users'])}: their data stays"
        if is_real:
            for name in filter(_has_user, record["users"]):
                run(["userdel", name])
            for name in filter(_has_group, record["groups"]):
                run(["groupdel", name])
        return f"remove users {', '.join(record['users'])}; groups {', '.join(record['groups'])}"


class Enabled(Step):
    """Units that start at boot."""

    def check(self) -> list[str]:
        return [f"enable {unit}" for unit in self.values["units"] if _said("is-enabled", unit) != "enabled"]

    def apply(self) -> Record:
        run(["systemctl", "daemon-reload"])
        run(["systemctl", "--quiet", "enable", *self.values["units"]])
        return {}

    def undo(self, *, is_real: bool, purge: bool, gone: set[str]) -> str:
        units = self.values["units"] + self.values["stops"]
        if is_real:
            subprocess.run(["systemctl", "stop", *units], capture_output=True, check=False)
            subprocess.run(["systemctl", "--quiet", "disable", *self.values["units"]], capture_output=True, check=False)
            subprocess.run(["systemctl", "reset-failed", *units], capture_output=True, check=False)
        return f"stop and disable {', '.join(units)}"


def _said(verb: str, unit: str) -> str:
    asked = subprocess.run(["systemctl", verb, unit], capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def _has_user(name: str) -> bool:
    return any(user.pw_name == name for user in pwd.getpwall())


def _has_group(name: str) -> bool:
    return any(group.gr_name == name for group in grp.getgrall())


def _holds_data(path: str) -> bool:
    try:
        with open_folder(path) as folder:
            return folder.holds_files()
    except FileNotFoundError:
        return False
    except Conflict:
        return True  # a link or a file in its place is somebody's, too


_UNIT = "edge-software.service"
_WITHIN_S = 600.0
_MOST = 500


class Brought(Step):
    """Software of releases, over `over`. Root starts the unit and reads what that has said; it runs none of it."""

    def check(self) -> list[str]:
        is_done = (self.record or {}).get("over") == self.values["over"]
        return [] if is_done else [f"lay what releases bring over {self.values['over']}"]

    def apply(self) -> Record:
        """Start the unit and wait for it; one that is at work already would do so over what was there before."""
        run(["systemctl", "daemon-reload"])
        try:
            done = subprocess.run(
                ["systemctl", "restart", _UNIT], capture_output=True, text=True, check=False, timeout=_WITHIN_S
            )
        except subprocess.TimeoutExpired:
            self.told.append(
                f"{_UNIT} is still at work after {_WITHIN_S:.0f} s; edge-deploy status says what comes of it"
            )
            return {}  # the next provision waits for it again
        if done.returncode:
            self.told.append(f"{_UNIT} has failed: {done.stderr.strip()[-_MOST:]}; run provision again")
            return {}
        problem = self._problem()
        if problem is not None:
            self.told.append(problem)
        return {"over": self.values["over"]}

    def undo(self, *, is_real: bool, purge: bool, gone: set[str]) -> str:
        """Take nothing back: what lies there is data."""
        return ""

    def _problem(self) -> str | None:
        """Return that the release which serves cannot have its software over what is installed now, and why."""
        try:
            with open_parent(self.values["current"]) as (folder, name):
                release = os.path.basename(os.readlink(name, dir_fd=folder.fd))
            with open_folder(self.path) as folder:
                said = folder.read("said.json")
            problem = None if said is None else json.loads(said[1]).get(release)
        except FileNotFoundError:
            return None  # nothing serves, or nothing was ever said
        except (Conflict, OSError, ValueError, AttributeError, RecursionError) as error:
            return f"what {_UNIT} says cannot be read: {error}"[:_MOST]
        if problem is None:
            return None
        return (
            f"release {release}, which serves, cannot have its software over what is installed now: "
            f"{str(problem)[:_MOST]}; push one that can before the service starts again"
        )


class Started(Step):
    """Starts units; those `serving` only where a release is at `path` and its service is stopped, as by an undo."""

    def check(self) -> list[str]:
        return [f"start {unit}" for unit in (*self._serving(), *self._others())]

    def apply(self) -> Record:
        """Queue what serves as a boot does: their units say who waits for whom, and a trial takes minutes."""
        if serving := self._serving():
            run(["systemctl", "--no-block", "start", *serving])
        if others := self._others():
            run(["systemctl", "start", *others])
        return {}

    def undo(self, *, is_real: bool, purge: bool, gone: set[str]) -> str:
        """Stop nothing: what is enabled is stopped as well."""
        return ""

    def _serving(self) -> list[str]:
        is_stopped = os.path.exists(self.path) and _said("is-active", "edge-runtime.service") == "inactive"
        return list(self.values["serving"]) if is_stopped else []

    def _others(self) -> list[str]:
        return [unit for unit in self.values["units"] if _said("is-active", unit) != "active"]


_ANSWER: Record = {"changes": [], "conflicts": [], "failed": "", "applied": False, "told": []}
RECORD = "/etc/edge-deploy/provisioned.json"
KINDS = {kind.__name__: kind for kind in (Directory, File, Lines, Accounts, Software, Enabled, Brought, Started)}


def make(request: Record) -> Record:
    """Check all steps first; then, unless it is a plan or anything is in the way, apply those that are needed.

    A step is left out where the program that reads what it makes, its `reader`, is not installed.
    """
    notes = _read_record()
    read = [values for values in request["steps"] if "reader" not in values or shutil.which(values["reader"])]
    steps = [KINDS[values["kind"]](values, notes.get(_key(values), {}).get("record")) for values in read]
    changes, conflicts, needed = [], [], []
    for step in steps:
        try:
            with naming(step.path):
                lines = step.check()
                if lines and os.path.isabs(step.path) and _is_read_only(step.path):
                    if not step.values.get("is_spare"):
                        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
                    lines = []
        except Conflict as conflict:
            conflicts.append(str(conflict))
            continue
        changes += lines
        needed += [step] if lines else []
    if request["is_plan"] or conflicts:
        return {"changes": changes, "conflicts": conflicts}
    for done, step in enumerate(needed):
        try:
            with naming(step.path):
                made = step.apply()
        except (Conflict, OSError) as error:
            with contextlib.suppress(Conflict, OSError):  # of what was done before; the first failure is reported
                _tell_the_system(changes)
            _lay_over(changes)
            why = f"{error}; {done} of {len(needed)} steps were done, and run it again when this is mended"
            return {"failed": why}
        notes[_key(step.values)] = {"values": _brief(step.values), "record": made}
        _write_record(notes)
    _tell_the_system(changes)
    return {"changes": changes, "applied": True, "told": [words for step in needed for words in step.told]}


def _is_read_only(path: str) -> bool:
    """Return whether the nearest folder on the way to an absolute path is mounted read-only, which a plan can see."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def unmake(request: Record) -> Record:
    """Take back what the record says, last step first."""
    notes = _read_record()
    is_real = not request["is_plan"]
    kept: dict[str, Record] = {}
    changes: list[str] = []
    gone: set[str] = set()
    for key, note in reversed(list(notes.items())):
        step = KINDS[note["values"]["kind"]](note["values"], note["record"])
        with naming(step.path):
            if step.path == os.path.dirname(RECORD) and not kept:
                gone.add(RECORD)
                if is_real:
                    with open_parent(RECORD) as (folder, name):
                        os.unlink(name, dir_fd=folder.fd)
            line = step.undo(is_real=is_real, purge=request["purge"], gone=gone)
        changes += [line] if line else []
        if line.startswith("keep "):
            kept[key] = note
    if is_real and kept:
        _write_record({key: note for key, note in notes.items() if key in kept})
    if is_real:
        _tell_the_system(changes)
    return {"changes": changes, "applied": is_real}


def _tell_the_system(changes: list[str]) -> None:
    if any("/etc/systemd/" in line for line in changes):
        run(["systemctl", "daemon-reload"])
    if any("/etc/udev/" in line for line in changes) and shutil.which("udevadm"):
        # A container has no udevd; rules count from the next boot at the latest.
        subprocess.run(["udevadm", "control", "--reload"], capture_output=True, check=False)


def _lay_over(changes: list[str]) -> None:
    """Have what releases bring laid over what may be installed now, where a provision ends before it has come to that.

    The service would else begin with nothing of it; the next provision asks again, and waits.
    """
    if any(line.startswith("switch ") for line in changes):
        again = ["systemctl", "restart", "--no-block", "edge-software.service"]
        subprocess.run(again, capture_output=True, check=False)


def _write_record(notes: Record) -> None:
    with naming(RECORD), contextlib.suppress(FileNotFoundError), open_parent(RECORD) as (folder, name):
        folder.put(name, json.dumps(notes, indent=1).encode(), mode=0o644)


def _brief(values: Record) -> Record:
    return {name: value for name, value in values.items() if name not in ("content", "entries", "wheels")}


def _key(values: Record) -> str:
    """Return what names a step in the record: its path, or the link to the version in use, which has many paths."""
    return f"{values['kind']} {values.get('link', values['path'])}"


def _read_record() -> Record:
    found = read_own(RECORD)
    notes: Record = {} if found is None else json.loads(found[1])
    return notes


_LOCK = "/run/edge-provision.lock"


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock of changes; Conflict while another provision, or the rest of one whose connection broke, has it."""
    with open(os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = f"another provision is at work there ({file.read()}); wait for its end, or end that process"
            raise Conflict(held) from None
        file.truncate(0)
        file.write(f"pid {os.getpid()}, since {time.strftime('%Y-%m-%d %H:%M:%S %Z')}")
        file.flush()
        yield


def main() -> None:
    os.umask(0o022)
    request = json.loads(sys.stdin.buffer.readline())
    try:
        with contextlib.nullcontext() if request.get("is_plan") else _alone():
            if "store" in request:
                with naming(request["store"]):
                    answer = stock(request, sys.stdin.buffer)
            else:
                answer = unmake(request) if request["is_undo"] else make(request)
    except (Conflict, OSError) as error:
        answer = {"failed": str(error)}
    sys.stdout.write(json.dumps({**_ANSWER, **answer}) + "\n")


if __name__ == "__main__":
    main()
