"""Which software runs a command: what the release in question brings, or what is installed.

The first thing that a process of `edge-runtime` does. Standard library only.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edge.runtime.software.binding import FLAGS, running

if TYPE_CHECKING:
    from edge.device.layout import Layout
    from edge.device.software import Installation

__all__ = ["HANDED", "hand_over", "program_for"]

HANDED = "EDGE_SOFTWARE"
"""Set for software that took over: if it has lost a part of itself, it does not ask for itself again."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def program_of(layout: Layout, wanted: Installation) -> str | None:
    """Return the program of an installation that is here, and that only edge-software could have written."""
    from edge.device.software import LIBRARY, PROGRAM

    folder = layout.software / wanted.name
    try:
        states = [os.lstat(layout.software), os.lstat(folder)]
    except OSError:
        return None
    owner = states[0].st_uid
    is_of_owner = all(stat.S_ISDIR(one.st_mode) and one.st_uid == owner for one in states)
    if not is_of_owner or any(one.st_mode & _OTHERS_WRITE for one in states):
        return None
    if os.geteuid() == 0 and owner != 0:
        return None
    program = folder / PROGRAM
    return str(program) if program.is_file() and (folder / LIBRARY).is_dir() else None


def value_of(arguments: Sequence[str], option: str) -> str | None:
    """Return None where the option is not given."""
    for index, word in enumerate(arguments):
        if word == option and index + 1 < len(arguments):
            return arguments[index + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def hand_over(arguments: Sequence[str]) -> None:
    """Become the software that a command is for; return where that is this one, or where that one is not here.

    `run` and `build` are the software of their release; all others are what provision installed. So is whatever root
    types: root runs nothing that another user has unpacked.
    """
    if HANDED in os.environ or running() is not None:
        return
    program = program_for(arguments)
    if program is not None:
        environment = {**os.environ, HANDED: os.path.basename(os.path.dirname(program))}
        os.execve(sys.executable, [sys.executable, *FLAGS, program, *arguments], environment)


def program_for(arguments: Sequence[str]) -> str | None:
    """Return what Python is to run for a command line; None: what is installed."""
    command = next((word for word in arguments if not word.startswith("-")), None)
    found = None
    if command == "run" and (path := value_of(arguments, "--release")):
        from edge.device.releases import locate_release

        found = locate_release(Path(path))
    elif command == "build" and (path := value_of(arguments, "--request")):
        found = _asked_for(Path(path))
    if found is None:
        return None
    layout, release = found
    wanted = _wanted(layout, release)
    return None if wanted is None else program_of(layout, wanted)


def _asked_for(path: Path) -> tuple[Layout, str] | None:
    from edge.device.layout import Layout
    from edge.errors import DeployError
    from edge.runtime.build.request import read_request

    path = Path(os.path.abspath(path))
    layout = Layout(path.parents[3]) if len(path.parents) > 3 else None
    if layout is None or layout.build_request != path:
        return None
    try:
        request = read_request(path)
    except DeployError:
        return None  # its next reader says what is wrong with it
    return None if request is None else (layout, request.release)


def _wanted(layout: Layout, release: str) -> Installation | None:
    from edge.device.device import Device
    from edge.errors import DeployError
    from edge.runtime.software.binding import brought_by, installation_of
    from edge.runtime.trial.trust import is_known

    device = Device(layout)
    try:
        # The service says whether it may serve at all; none of its software runs to say so.
        wanted = installation_of(brought_by(device, release)) if is_known(device, release) else None
    except DeployError:
        return None
    is_whole = wanted is not None and device.software.problem(wanted.name) is None
    return wanted if is_whole else None
