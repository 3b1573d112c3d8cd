"""A story over the operating system's files, told call by call: what the crash enumeration takes a device to have done.

    python -m tests.support.told_story STORY FOLDER [WITHOUT]

prints the calls of `Files` that changed something below FOLDER/disk as JSON. WITHOUT leaves out `fsync` of files, of
folders, or both, as if somebody had deleted the line: what listens has to notice.
"""

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge.device.device import Device, collect
from edge.device.durable import Files
from edge.device.recovery import recover
from tests.support.agent_push import AgentPush
from tests.support.crash import nobody
from tests.support.faults import CHANGING
from tests.support.pushes import device_over, moment
from tests.support.scenarios import NEW, OLD, OTHER, asked_back, on_trial, pushed, pushing

_WORDS = {"write_at": "write", "append": "write", "allocate": "write", "sync_dir": "sync"}
_UNTOLD = {"protect"}  # permissions: no matter of a power cut


class ToldFiles:
    """The operating system's files below `root`, known as `/`; `steps` are the calls that changed something."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files = Files()
        self.steps: list[tuple[str, ...]] = []

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._files, name)

        def told(*arguments: Any, **options: Any) -> Any:
            paths = [one for one in arguments if isinstance(one, Path)]
            result = call(*(self._real(one) if isinstance(one, Path) else one for one in arguments), **options)
            if name in CHANGING - _UNTOLD:
                self.steps.append((_WORDS.get(name, name), *(str(one.relative_to("/")) for one in paths)))
            return result

        return told

    def _real(self, path: Path) -> Path:
        return self._root / path.relative_to("/")


def _put(device: Device) -> None:
    device.durable.put(Path("/var/lib/edge-deploy/a"), b"1")


def _recovered(device: Device) -> None:
    for boot in ("boot-1", "boot-2"):
        recover(device, moment=moment(boot))


STORIES: dict[str, tuple[Callable[[Device], object], ...]] = {
    "put": (_put,),
    "push": (pushed(OLD), pushed(NEW)),
    "push-refused": (pushed(OLD), pushing(NEW, is_healthy=False)),
    "rollback": (pushed(OLD), pushed(NEW), asked_back),
    "recovery": (pushed(OLD), on_trial(NEW), _recovered),
    "garbage": (pushed(OLD), pushed(OTHER), pushed(NEW), lambda device: collect(device, now_s=3e9)),
    "agent": (),
}


def _pushed_by_the_agent(device: Device, folder: Path) -> None:
    made = AgentPush(folder)
    made.push(device, nobody, made.old)
    made.push(device, nobody, made.new, is_healthy=False)


def _leave_out(what: str) -> None:
    flush = os.fsync

    def some(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        if what != ("folders" if is_folder else "files"):
            flush(descriptor)

    os.fsync = some


def main(story: str, folder: str, *without: str) -> None:
    """Tell a story; see above."""
    for what in without:
        _leave_out(what)
    root = Path(folder) / "disk"
    (root / "var/lib/edge-deploy").mkdir(parents=True, exist_ok=True)
    files = ToldFiles(root)
    device = device_over(files)
    for step in STORIES[story]:
        step(device)
    if story == "agent":
        (Path(folder) / "desk").mkdir()
        _pushed_by_the_agent(device, Path(folder) / "desk")
    print(json.dumps(files.steps))


if __name__ == "__main__":
    main(*sys.argv[1:])
