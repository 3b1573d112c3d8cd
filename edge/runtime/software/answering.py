"""`edge-runtime agent`: provision's answers, or that of the release which serves, in turns (docs/adr/0046).

Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from edge.device.device import Device
from edge.device.layout import Layout
from edge.device.settings import read_settings
from edge.device.software import Installation
from edge.errors import DeployError
from edge.reading import read_file
from edge.runtime.software.between import Patience, between
from edge.runtime.software.followed import followed
from edge.runtime.software.program import environment_of, program_of, value_of
from edge.runtime.software.running import FLAGS
from edge.runtime.software.turns import PLAN, Turns
from edge.transport.ssh import AGENT, ASK_INSTALLED

__all__ = ["agent_turns", "answer_in_turn"]

_SILENCE_S = 90.0  # a client pings each few seconds, an agent reports each second
_REST_S = 60.0
_SWITCH_S = 900.0  # a switch restarts the service; a way back has software installed before
_LONGEST_BUILD_S = 6 * 3600.0


def answer_in_turn(arguments: Sequence[str]) -> int | None:
    """Have the software of the release that serves answer whoever is at stdin and stdout, if it is its turn.

    Return its exit status; None: it is the turn of what provision installed, which has not said a word yet.
    """
    layout = Layout(Path(value_of(arguments, "--root") or "/"))
    if _is_root_of_another(layout.var):
        return None
    device = Device(layout)
    turns = None if "--for-pull" in arguments else agent_turns(layout)
    try:
        program = _program_of_look(device) if turns is None else _program_in_turn(device, turns, arguments)
    except Exception as error:  # the border: whatever is wrong with it, what is installed answers
        sys.stderr.write(f"software of the release cannot answer: {type(error).__name__}: {error}\n")
        program = None
    if program is not None:
        return _run(program, arguments, device, turns)
    if turns is not None:
        turns.begun()
    return None


def agent_turns(layout: Layout) -> Turns:
    """Return the turns of whoever answers a push."""
    return Turns(layout.agent_turn)


def _is_root_of_another(folder: Path) -> bool:
    """Return whether this is root, and what it is about belongs to another user: root hands over to nobody."""
    try:
        return os.geteuid() == 0 and os.lstat(folder).st_uid != 0
    except OSError:
        return True


def _whole_program(device: Device, wanted: Installation) -> str | None:
    """Return the program of an installation that is here and whole; None: it is not, which is said."""
    problem = device.software.problem(wanted.name)
    program = None if problem is not None else program_of(device.layout, wanted)
    if program is None:
        sys.stderr.write(f"software {wanted.key[:12]} {problem or 'is not its own'}; what is installed goes on alone\n")
    return program


def _program_in_turn(device: Device, turns: Turns, arguments: Sequence[str]) -> str | None:
    wanted = None if _is_installed_asked_for(arguments) else followed(device)
    return None if wanted is None or turns.take() is None else _whole_program(device, wanted)


def _program_of_look(device: Device) -> str | None:
    """Return the program of the software that looks at the registry now: a look is wholly of one software."""
    try:
        looks = read_file(device.layout.pull_by, most_bytes=100).decode("ascii")
    except (OSError, ValueError):
        return None
    wanted = followed(device, may_be_busy=True)
    return None if wanted is None or wanted.name != looks else _whole_program(device, wanted)


def _is_installed_asked_for(arguments: Sequence[str]) -> bool:
    """Return whether a person wants what provision installed; sshd tells what was asked for beside what it runs."""
    return "--installed" in arguments or os.environ.get("SSH_ORIGINAL_COMMAND") == " ".join((*AGENT, ASK_INSTALLED))


def _run(program: str, arguments: Sequence[str], device: Device, turns: Turns | None = None) -> int:
    before, command = device.standing(), [sys.executable, *FLAGS, program, *arguments]
    # Where this fails, too, the turn is gone, and the next one is provision's.
    status, account = between(command, environment_of(program), client=(0, 1), patience=_patience(device.layout))
    owed = account.owed(status)
    if owed is None and account.is_taken and device.standing() == before:
        owed = PLAN  # it has said so, and nothing was switched
    if turns is not None:  # before any word: who would read it may be gone, and stderr closed
        turns.end_well() if owed is None else turns.owe(owed)
    if owed is not None:
        name = os.path.basename(os.path.dirname(program))[:12]
        with contextlib.suppress(OSError):
            sys.stderr.write(
                f"software {name} was not done with {owed!r}, ended with {status}; what is installed is next\n"
            )
    return status if status >= 0 else 128 - status


def _patience(layout: Layout) -> Patience:
    try:
        settings = read_settings(layout.device_toml)
        build_s = 2.0 * (settings.build_deadline_s + settings.golden_deadline_s)
    except DeployError:
        build_s = _LONGEST_BUILD_S
    alone = {"switch": _SWITCH_S, "rollback": _SWITCH_S, "build": min(build_s, _LONGEST_BUILD_S) + _SWITCH_S}
    return Patience(silence_s=_SILENCE_S, rest_s=_REST_S, alone_s=alone)
