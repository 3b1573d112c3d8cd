"""The users of a device as threads with uids of their own, on a device in a folder: whom the kernel lets do what.

Users, groups and memberships come from the sysusers file that we ship, folders from the steps of `provision` and from
the units. Groups have numbers that are made up; users have those of accounts that every system has and nothing runs
under, because ssh-keygen works for no uid without an account. Nothing of it is there for a process that is not root.
"""

import ctypes
import grp
import json
import os
import platform
import pwd
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edge.deploy.provision import wanted
from edge.device.device import Device
from edge.device.layout import Layout
from tests.support.device_releases import TOML, signer_of
from tests.support.manifests import allow

SYSTEMD = Path(__file__).parents[2] / "systemd"
STRANGER = "a fourth user"
_FIRST_ID = 61000
_LAST_OF_SYSTEM = 100  # on Debian and Ubuntu: accounts that are the same everywhere
_DEADLINE_S = 120  # for what a user does
_CALLS = {
    "setgroups": {"x86_64": 116, "aarch64": 159},
    "setresgid": {"x86_64": 119, "aarch64": 149},
    "setresuid": {"x86_64": 117, "aarch64": 147},
}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be several users at once")
needs_open_clone = pytest.mark.skipif(
    not all(path.stat().st_mode & stat.S_IXOTH for path in Path(__file__).parents),
    reason="needs a clone that other users may enter, to import libraries from",
)


@dataclass(frozen=True)
class People:
    """Numbers by name; `groups_of` are the groups of a user besides its own."""

    uids: dict[str, int]
    gids: dict[str, int]
    groups_of: dict[str, tuple[str, ...]]

    def call(self, user: str, function: Callable[[], Any]) -> Any:
        """Return what `function` returns (plain JSON) on a thread of that user: Linux keeps rights per thread.

        A fork would copy locks that other threads hold at that moment, and wait for those of libraries.
        """
        told: list[tuple[str, int]] = []
        thread = threading.Thread(target=lambda: told.append(self._as(user, function)), daemon=True)
        thread.start()
        thread.join(_DEADLINE_S)
        assert told, f"{user}: no answer in {_DEADLINE_S} s"
        content, code = told[0]
        assert code == 0, f"{user}: {content}"
        return json.loads(content)

    def _as(self, user: str, function: Callable[[], Any]) -> tuple[str, int]:
        before = os.umask(0o022)  # of the process; the rights go with the thread
        try:
            self._become(user)
            return json.dumps(function()), 0
        except BaseException as error:  # the border of the user
            return f"{type(error).__name__}: {error}", 1
        finally:
            os.umask(before)

    def _become(self, user: str) -> None:
        """Make this thread one of that user, for good: `os.setresuid` would make all of them."""
        uid, gid = self.uids[user], self.gids[user]
        others = [self.gids[group] for group in self.groups_of[user]]
        _this_thread("setgroups", len(others), (ctypes.c_uint32 * len(others))(*others))
        _this_thread("setresgid", gid, gid, gid)
        _this_thread("setresuid", uid, uid, uid)


def _this_thread(name: str, *arguments: Any) -> None:
    if ctypes.CDLL(None, use_errno=True).syscall(_CALLS[name][platform.machine()], *arguments):
        raise OSError(ctypes.get_errno(), name)


def people() -> People:
    uids: dict[str, int] = {}
    gids: dict[str, int] = {"root": 0}
    groups: dict[str, list[str]] = {}
    accounts = [one for one in pwd.getpwall() if 0 < one.pw_uid < _LAST_OF_SYSTEM]
    for line in (SYSTEMD / "sysusers.conf").read_text().splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        kind, name = words[0], words[1]
        if kind in ("g", "u"):
            gids.setdefault(name, _FIRST_ID + len(gids))
        if kind == "u":
            uids[name] = accounts.pop().pw_uid
            groups.setdefault(name, [])
        if kind == "m":
            groups[name].append(words[2])
    uids[STRANGER], gids[STRANGER] = accounts.pop().pw_uid, _FIRST_ID + 900
    return People(
        {"root": 0, **uids}, gids, {**{user: tuple(names) for user, names in groups.items()}, STRANGER: (), "root": ()}
    )


def user_of(unit: str) -> str:
    """Return who runs a unit that we ship."""
    return _said_in(unit, "User")


def umask_of(unit: str) -> int:
    return int(_said_in(unit, "UMask"), 8)


def _said_in(unit: str, key: str) -> str:
    found = re.search(rf"^{key}=(.+)$", (SYSTEMD / f"{unit}.service").read_text(), re.MULTILINE)
    assert found, f"{unit} says no {key}, so that it is root's or systemd's"
    return found[1]


@contextmanager
def provisioned_root(crowd: People) -> Iterator[Path]:
    """Give a folder that is to a device's users what `/` is after a provision; pytest's own are closed to them."""
    root = Path(tempfile.mkdtemp(prefix="edge-people-"))
    try:
        root.chmod(0o755)
        layout = Layout(root)
        for step in folder_steps():
            make_folder(root / step["path"].lstrip("/"), step, crowd)
        _of_units(root, crowd)
        layout.device_toml.write_text(TOML)
        key = signer_of(Device(layout))
        allow(layout.allowed_signers, key)
        os.chown(key, crowd.uids["edge-deploy"], 0)  # of the workstation: a test puts a release there by hand
        yield root
    finally:
        shutil.rmtree(root)


def folder_steps() -> list[dict[str, Any]]:
    """Return what `provision` does about folders that belong to a user."""
    return [step for step in wanted._folders() if step["kind"] == "Directory"]


def make_folder(path: Path, step: dict[str, Any], crowd: People) -> None:
    path.mkdir(parents=True, exist_ok=True)
    if step["mode"] is not None:
        os.chown(path, crowd.uids[step["owner"]], crowd.gids[step["group"]])
        path.chmod(step["mode"])


def _of_units(root: Path, crowd: People) -> None:
    """Make what systemd makes when it starts the units."""
    for unit in sorted(SYSTEMD.glob("*.service")):
        said = dict(re.findall(r"^(\w+)=(.+)$", unit.read_text(), re.MULTILINE))
        for key, below in (("StateDirectory", "var/lib"), ("RuntimeDirectory", "run")):
            if key in said:
                rights = {"mode": int(said[f"{key}Mode"], 8), "owner": said["User"], "group": said["Group"]}
                make_folder(root / below / said[key], rights, crowd)


def may_read(path: Path) -> bool:
    """Return whether this process can read a file, or list a folder and enter it."""
    try:
        if path.is_dir():
            os.listdir(path)
            return os.access(path, os.X_OK)
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


def may_write(path: Path) -> bool:
    """Return whether this process can change a file, or what is in a folder; nothing is left changed."""
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            probe = path / ".probe"
            os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            probe.unlink()
        else:
            os.close(os.open(path, os.O_WRONLY | os.O_NOFOLLOW))
    except OSError:
        return False
    return True


NAME, GROUP = "nobody", "nogroup"

_BECOME = "import os\nos.setgroups([])\nos.setresgid({gid}, {gid}, {gid})\nos.setresuid({uid}, {uid}, {uid})\n"
_EXCHANGE = """
import ctypes, os, sys
change = ctypes.CDLL(None, use_errno=True).renameat2
one, other = (os.fsencode(path) for path in sys.argv[1:])
print("begun", flush=True)
while True:
    change(-100, one, -100, other, 2)  # AT_FDCWD, RENAME_EXCHANGE: there is no moment in which a name is missing
"""


def ids() -> tuple[int, int]:
    """Return uid and gid of the other user."""
    return pwd.getpwnam(NAME).pw_uid, grp.getgrnam(GROUP).gr_gid


def start_as_other(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python program as the other user; it has stdin and stdout."""
    uid, gid = ids()
    whole = _BECOME.format(uid=uid, gid=gid) + program
    return subprocess.Popen(
        [sys.executable, "-I", "-c", whole, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        text=True,
    )


@contextmanager
def exchanging(one: Path, other: Path) -> Iterator[None]:
    """Let the other user exchange two names without a pause within the block."""
    process = start_as_other(_EXCHANGE, one, other)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "begun\n"
        yield
    finally:
        process.kill()
        process.communicate()


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Give a folder that every local user can reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="edge-shared-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)  # however deep it is
