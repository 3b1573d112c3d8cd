"""F-5: one call of the file system fails in a push, a rollback or a garbage collection; what has to hold then."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from edge.device.device import Device, collect
from edge.device.durable import Files
from edge.device.recovery import recover
from edge.errors import DeployError
from tests.support.crash import counted, current_of, is_whole, sealed
from tests.support.cut_files import CutFiles, Tree
from tests.support.pushes import device_over, moment, push
from tests.support.scenarios import NEW, OLD, OTHER, SCENARIO_STARTS, asked_back, collected, pushing

CHANGING = {
    "write", "write_at", "allocate", "protect", "append", "sync", "sync_dir", "rename", "symlink",
    "make_dir", "remove", "remove_dir",
}  # fmt: skip
GROWING = {"write", "write_at", "allocate", "append", "symlink", "make_dir"}


class FaultyFiles:
    """Passes each call on to `files`; call number `at` (from 0) raises `number`, and if `lasts` every such call later.

    `which` are the calls that count and can fail; None: all of them.
    """

    def __init__(
        self, files: Files, *, at: int, number: int, lasts: bool = False, which: set[str] | None = None
    ) -> None:
        self._files = files
        self._at = at
        self._number = number
        self._lasts = lasts
        self._which = which
        self.calls = 0
        self.failed = ""

    def __getattr__(self, name: str):
        call = getattr(self._files, name)

        def counted(path: Path, *args, **kwargs):
            if self._which is None or name in self._which:
                self.calls += 1
                if self.calls - 1 == self._at or (self._lasts and self.calls > self._at):
                    self.failed = f"{name} {path}"
                    raise OSError(self._number, os.strerror(self._number), str(path))
            return call(path, *args, **kwargs)

        return counted


CODES = {
    errno.ENOSPC: "device.disk.space",
    errno.EIO: "device.disk.io",
    errno.EROFS: "device.disk.readonly",
    errno.EDQUOT: "device.disk.quota",
    errno.EINTR: "device.disk.io",
}
# What a fault that lasts still lets through: a full disk can be read, synced and tidied up.
_LASTING = {errno.ENOSPC: GROWING, errno.EDQUOT: GROWING, errno.EROFS: CHANGING}


ACTIONS: dict[str, tuple[Tree, Callable[[Device], None]]] = {
    "push": (SCENARIO_STARTS["old"], pushing(NEW, is_healthy=True)),
    "push, unhealthy": (SCENARIO_STARTS["old"], pushing(NEW, is_healthy=False)),
    "rollback": (SCENARIO_STARTS["both"], asked_back),
    "garbage collection": (SCENARIO_STARTS["littered"], collected),
}


def count_calls(name: str) -> int:
    start, action = ACTIONS[name]
    files = FaultyFiles(CutFiles(start), at=-1, number=0)
    action(device_over(files))
    return files.calls


def try_fault(name: str, *, at: int, number: int, lasts: bool = False) -> list[str]:
    """Return what does not hold when call `at` of the action fails with `number`."""
    start, action = ACTIONS[name]
    disk = CutFiles(start)
    which = _LASTING.get(number) if lasts else None
    files = FaultyFiles(disk, at=at, number=number, lasts=lasts, which=which)
    found = []
    try:
        action(device_over(files))
    except DeployError as error:
        if error.code != CODES[number]:
            found.append(f"code {error.code}")
    except OSError as error:
        found.append(f"a raw {error!r}")
    else:
        if lasts and files.failed and number not in _LASTING:
            found.append(f"no error, though {files.failed} failed")
    found += _judge(disk)
    if not found:
        found += _cured(disk)
    return [f"{name}, call {at} ({files.failed}), {errno.errorcode[number]}, lasts={lasts}: {one}" for one in found]


def _judge(disk: CutFiles) -> list[str]:
    tree = dict(disk.tree())
    current = current_of(tree)
    release = next((one for one in (OLD, NEW, OTHER) if one.name == current), None)
    if release is None or not is_whole(tree, release):
        return [f"current is {current}, which is not whole"]
    if not is_whole(tree, OLD):
        return ["the old release is not whole"]
    state = sealed(tree, "state.json")
    proven = {OLD.name, state.get("fallback"), (state.get("last") or {}).get("release"), state.get("target")}
    if current not in proven:
        return [f"{current} is current without being proven or on trial"]
    return []


def _cured(disk: CutFiles) -> list[str]:
    device = device_over(disk)
    recover(device, moment=moment("boot-1"))
    push(device, NEW, now=moment("boot-1"))
    collect(device, now_s=8 * 86400.0)
    tree = dict(disk.tree())
    rest = [path for path in tree if path.endswith((".tmp", ".part", ".damaged"))]
    if rest:
        return [f"garbage collection left {rest}"]
    is_done = current_of(tree) == NEW.name and is_whole(tree, NEW) and counted(tree) == NEW.sequence
    return (
        [] if is_done and sealed(tree, "state.json").get("phase") == "idle" else ["the repeated push did not converge"]
    )
