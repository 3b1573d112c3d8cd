"""`edge-runtime pull`: provision's looks at the registry, or that of the release which serves, in turns (ADR 46).

A look, and the agent that it speaks to, are of one software. How that of a release ends is seen by what provision
installed; what ends well and is wrong all the same (nothing new, for ever) is not. So each sixteenth look is its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from edge.deadline import Deadline
from edge.delivery.link import Interrupted, Link
from edge.device.device import Device
from edge.device.layout import Layout
from edge.errors import DeployError
from edge.reading import read_file
from edge.runtime.pull import entry
from edge.runtime.pull.memory import OWN_RECORD, lay_aside, put_back
from edge.runtime.pull.record import decode_pull_record
from edge.runtime.software.program import environment_of, program_of, value_of
from edge.runtime.software.running import FLAGS
from edge.runtime.software.turns import Turns
from edge.wire.ending import Nothing
from edge.wire.verbs import TURN

__all__ = ["LOOKS", "look_in_turn"]

LOOKS = 15
"""After each look of provision's so many may be those of what was brought."""

_ASK_S = 30.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def look_in_turn(arguments: Sequence[str]) -> int | None:
    """Have the software of the release that serves look at the registry, if it is its turn; return its exit status.

    None: it is the turn of what provision installed. A look that root has started is, always.
    """
    layout = Layout(Path(value_of(arguments, "--root") or "/"))
    device = Device(layout)
    if os.geteuid() == 0 and layout.root == Path("/"):
        return None
    turns, folder = Turns(layout.pull_turn), entry.state_folder(layout.root)
    try:
        layout.pull_by.unlink(missing_ok=True)  # of a look that was killed; who answers now is what is installed
        put_back(folder)
        left = turns.take() if (folder / OWN_RECORD).is_file() else None
        program = None if left is None or not device.software.names() else _program(device)
        if program is not None:
            lay_aside(folder)
    except Exception as error:  # the border: whatever is wrong with it, what is installed looks
        sys.stderr.write(f"software of the release cannot look: {type(error).__name__}: {error}\n")
        left = program = None
    if left is None or program is None:
        turns.give(LOOKS)
        return None
    with _told(layout.pull_by, os.path.basename(os.path.dirname(program))):
        before = _record(folder)
        try:
            status = _run([sys.executable, *FLAGS, program, *arguments], environment_of(program))
        finally:
            put_back(folder)
    after = _record(folder)
    is_well = status == 0 and after not in (None, before) and decode_pull_record(after or b"") is not None
    turns.give(left - 1 if is_well else 0)
    return status if status >= 0 else 128 - status


def _program(device: Device) -> str | None:
    """Return the program that may look now: what provision's agent names, whole, and edge-software's own."""
    try:
        link = Link(entry.connector_of(device.layout.root)(), threading.Event(), Deadline.after(_ASK_S))
        try:
            name = link.ask(TURN, Nothing()).software
        finally:
            link.close()
        if name is None or device.software.problem(name) is not None:
            return None
        wanted = device.software.origin(name)
    except (DeployError, Interrupted, OSError, ValueError):
        return None
    return None if wanted is None or wanted.name != name else program_of(device.layout, wanted)


@contextlib.contextmanager
def _told(path: Path, name: str) -> Iterator[None]:
    """Tell agents which software looks, within the block; one that cannot be told is provision's."""
    with contextlib.suppress(OSError):
        path.write_text(name)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _record(folder: Path) -> bytes | None:
    try:
        return read_file(folder / "pull.json")
    except OSError:
        return None


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    with subprocess.Popen(list(command), env=environment) as child:
        for number in _SIGNALS:
            signal.signal(number, lambda received, _frame: child.send_signal(received))
        return child.wait()
