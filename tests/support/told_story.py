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
from edge.device.switch import roll_back
from tests.support.agent_push import AgentPush
from tests.support.faulty_files import CHANGING
from tests.support.pushes import device_over, moment, push
from tests.support.scenarios import NEW, OLD, OTHER, on_trial

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


def _put(device: Device, folder: Path) -> None:
    device.durable.put(Path("/var/lib/edge-deploy/a"), b"1")


def _push_twice(device: Device, folder: Path) -> None:
    push(device, OLD, now=moment("boot-0"))
    push(device, NEW, now=moment("boot-0"))


def _refused(device: Device, folder: Path) -> None:
    push(device, OLD, now=moment("boot-0"))
    push(device, NEW, now=moment("boot-0"), is_healthy=False)


def _back(device: Device, folder: Path) -> None:
    _push_twice(device, folder)
    roll_back(device, "asked for", moment=moment("boot-1"), by_person=True)


def _recovered(device: Device, folder: Path) -> None:
    push(device, OLD, now=moment("boot-0"))
    on_trial(NEW)(device)
    recover(device, moment=moment("boot-1"))
    recover(device, moment=moment("boot-2"))


def _collected(device: Device, folder: Path) -> None:
    for release in (OLD, OTHER, NEW):
        push(device, release, now=moment("boot-0"))
    collect(device, now_s=3e9)


def _pushed_by_the_agent(device: Device, folder: Path) -> None:
    made = AgentPush(folder)
    made.push(device, _nobody, made.old)
    made.push(device, _nobody, made.new, is_healthy=False)


def _nobody() -> None:
    pass


STORIES: dict[str, Callable[[Device, Path], None]] = {
    "put": _put,
    "push": _push_twice,
    "push-refused": _refused,
    "rollback": _back,
    "recovery": _recovered,
    "garbage": _collected,
    "agent": _pushed_by_the_agent,
}


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
    (Path(folder) / "desk").mkdir(exist_ok=True)
    STORIES[story](device_over(files), Path(folder) / "desk")
    print(json.dumps(files.steps))


if __name__ == "__main__":
    main(*sys.argv[1:])
