"""Frames to an agent on this machine, without SSH."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from edge.transport.child import ChildChannel

__all__ = ["LOCAL_AGENT", "LocalChannel"]

LOCAL_AGENT = (sys.executable, "-I", "-m", "edge.cli.edge_runtime", "agent")


class LocalChannel(ChildChannel):
    """A `Channel` to a process of this machine, by default the agent of this installation."""

    def __init__(self, command: Sequence[str] = LOCAL_AGENT) -> None:
        super().__init__(command, ending=lambda status, lines: None)
