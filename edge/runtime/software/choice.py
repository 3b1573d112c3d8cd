"""Which software runs a command: what the release in question brings, or what is installed.

The first thing that a process of `edge-runtime` does. Standard library only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edge.runtime.software.program import HANDED, environment_of, program_of, value_of
from edge.runtime.software.running import FLAGS, running

if TYPE_CHECKING:
    from edge.device.layout import Layout
    from edge.device.software import Installation

__all__ = ["hand_over", "program_for"]


def hand_over(arguments: Sequence[str]) -> None:
    """Become the software that a command is for; return where that is this one, or where that one is not here.

    `run` and `build` are the software of their release; `agent` and `pull` take turns, and this process stays to see
    how that of a release ends. Whoever judges or goes back is what provision installed. So is whatever root types: root
    runs nothing that another user has unpacked.
    """
    if HANDED in os.environ or running() is not None:
        return
    if (took := _taken_in_turn(arguments)) is not None:
        sys.exit(took)
    program = program_for(arguments)
    if program is not None:
        os.execve(sys.executable, [sys.executable, *FLAGS, program, *arguments], environment_of(program))


def _taken_in_turn(arguments: Sequence[str]) -> int | None:
    """Return how that software has ended whose turn it was; None: it is this one's, or of no command with turns."""
    command = _command(arguments)
    if command == "agent":
        from edge.runtime.software.answering import answer_in_turn

        return answer_in_turn(arguments)
    if command == "pull":
        from edge.runtime.pull.looking import look_in_turn

        return look_in_turn(arguments)
    return None


def program_for(arguments: Sequence[str]) -> str | None:
    """Return what Python is to run for a command line; None: what is installed."""
    command = _command(arguments)
    found = None
    if command == "run" and (path := value_of(arguments, "--release")):
        from edge.device.locate import locate_release

        found = locate_release(Path(path))
    elif command == "build" and (path := value_of(arguments, "--request")):
        found = _asked_for(Path(path))
    if found is None:
        return None
    layout, release = found
    wanted = _wanted(layout, release)
    return None if wanted is None else program_of(layout, wanted)


def _command(arguments: Sequence[str]) -> str | None:
    return next((word for word in arguments if not word.startswith("-")), None)


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
        return None  # whoever reads it next says what is wrong with it
    return None if request is None else (layout, request.release)


def _wanted(layout: Layout, release: str) -> Installation | None:
    from edge.device.device import Device
    from edge.errors import DeployError
    from edge.runtime.software.binding import brought_by, installation_of
    from edge.runtime.trial.trust import is_known

    device = Device(layout)
    try:
        # Whether it may serve at all is said by whoever serves; none of its software runs to say so.
        wanted = installation_of(brought_by(device, release)) if is_known(device, release) else None
    except DeployError:
        return None
    is_whole = wanted is not None and device.software.problem(wanted.name) is None
    return wanted if is_whole else None
