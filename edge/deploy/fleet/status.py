"""Asks devices how they are: what the agent knows, and how the running service says that the device stands."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from edge.config.targets import Target
from edge.deadline import Deadline
from edge.delivery.event import OnEvent
from edge.delivery.link import Link
from edge.delivery.outcome import Outcome
from edge.deploy.fleet.ask import ASK_S, Asked
from edge.deploy.fleet.over_ssh import connect_to
from edge.errors import DeployError
from edge.reading import json_object
from edge.transport.channel import Channel
from edge.untrusted import cleaned
from edge.wire.ending import Nothing
from edge.wire.look import LookRequest
from edge.wire.status import StatusAnswer
from edge.wire.verbs import LOOK, STATUS

__all__ = ["AskedStatus", "DeviceState"]

_MOST_TEXT = 500


@dataclass(frozen=True, slots=True)
class DeviceState:
    """How a device stands, as its service tells subscribers: `online`, or `degraded` with what is wrong."""

    state: str
    reason: str | None


class AskedStatus(Asked[Nothing, StatusAnswer]):
    """Asks for the status; `states` are by the names of targets, of those whose service runs and says it.

    In the evidence of an outcome that is `device_state`, null where it is not known.
    """

    def __init__(self, *, deadline_s: float = ASK_S, connect: Callable[[Target], Channel] = connect_to) -> None:
        super().__init__(STATUS, Nothing(), deadline_s=deadline_s, connect=connect)
        self.states: dict[str, DeviceState] = {}

    def __call__(self, target: Target, on_event: OnEvent, stop: threading.Event) -> Outcome:
        """Ask one target."""
        outcome = super().__call__(target, on_event, stop)
        if not outcome.is_done:
            return outcome
        state = self.states.get(target.name)
        return replace(outcome, evidence={**outcome.evidence, "device_state": None if state is None else asdict(state)})

    def _ask(self, target: Target, stop: threading.Event) -> StatusAnswer:
        link = Link(self._connect(target), stop, Deadline.after(self._deadline_s))
        try:
            answer = link.ask(STATUS, Nothing())
            state = None if answer.health is None else _look(link)
            if state is not None:
                self.states[target.name] = state
            return answer
        finally:
            link.close()


def _look(link: Link) -> DeviceState | None:
    """Return what the service shows on its status page; None where it shows none, or nothing that can be read."""
    try:
        content = link.ask(LOOK, LookRequest(stream="")).content
        told = json_object(base64.b64decode(content or "", validate=True))
        state, reason = told["state"], told["reason"]
    except (DeployError, ValueError, KeyError):
        return None
    if not isinstance(state, str) or not isinstance(reason, str | None):
        return None
    return DeviceState(cleaned(state)[:_MOST_TEXT], None if reason is None else cleaned(reason)[:_MOST_TEXT])
