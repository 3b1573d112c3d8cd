"""Which edge-deploy answers here, and which may look at the registry."""

from __future__ import annotations

from edge.device.device import Device
from edge.runtime.agent.session import Session
from edge.runtime.software.answering import agent_turns
from edge.runtime.software.followed import followed
from edge.runtime.software.running import installed_version, running
from edge.version import __version__
from edge.wire.ending import Nothing
from edge.wire.software import AgentReport, TurnAnswer

__all__ = ["answering", "turn"]

_SHOWN = 12


def answering(device: Device) -> AgentReport:
    """Return who answers."""
    name = running()
    origin = None if name is None else device.software.origin(name)
    return AgentReport(
        version=__version__,
        software=None if name is None else (name if origin is None else origin.key)[:_SHOWN],
        installed=installed_version(),
        owed=agent_turns(device.layout).owed,
    )


def turn(session: Session, request: Nothing) -> TurnAnswer:
    """Say which software may look at the registry; it is for who looks to see that it is whole."""
    wanted = followed(session.device)
    return TurnAnswer(software=None if wanted is None else wanted.name)
