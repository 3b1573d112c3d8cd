"""`edge-runtime agent`: frames on stdin and stdout, prose on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from edge.device.device import Device
from edge.device.layout import Layout
from edge.device.owner import become_owner
from edge.device.units import SystemctlUnits, Units
from edge.runtime.agent.serve import serve
from edge.runtime.software.answering import agent_turns
from edge.runtime.software.running import running
from edge.transport.pipe import PipeChannel
from edge.transport.ssh import ASK_INSTALLED

__all__ = ["main", "own_stdio"]

_USAGE = 2


def main(argv: Sequence[str], *, units: Units | None = None) -> int:
    """Answer the client at the other end of stdin and stdout.

    `--for-pull`: it is who fetches releases, and may ask for nothing else. `--installed`: what provision installed is
    asked for, by whom it was chosen already. `--root DIR` stands for `/`, for tests.
    """
    is_for_pull = "--for-pull" in argv
    argv = [word for word in argv if word not in ("--for-pull", ASK_INSTALLED)]
    if not (len(argv) == 0 or (len(argv) == 2 and argv[0] == "--root")):
        sys.stderr.write("usage: edge-runtime agent\nIt speaks to edge-deploy on its stdin and stdout.\n")
        return _USAGE
    layout = Layout(Path(argv[1])) if argv else Layout()
    become_owner(layout)
    origin = os.environ.get("SSH_CONNECTION", "local").split(" ")[0]
    serve(
        own_stdio(),
        Device(layout),
        units or SystemctlUnits(),
        origin=origin,
        is_for_pull=is_for_pull,
        on_request=agent_turns(layout).asked if running() is None and not is_for_pull else lambda verb: None,
    )
    return 0


def own_stdio() -> PipeChannel:
    """Return a channel over stdin and stdout, which nothing else can read or write from now on."""
    channel = PipeChannel(os.dup(0), os.dup(1))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # what anyone prints goes to the people, not into a frame
    return channel
