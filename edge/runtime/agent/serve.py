"""One connection from its hello to its end: each request to its function, each error to its frame."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from edge.device.device import Device
from edge.device.units import Units
from edge.errors import DeployError
from edge.runtime.agent.change import confirm, gc, rollback
from edge.runtime.agent.conversation import SILENCE_S, ConnectionEnded, Conversation, Request
from edge.runtime.agent.offer import plan, put_manifest
from edge.runtime.agent.orphan import lock_or_take_up
from edge.runtime.agent.receive import blob, have
from edge.runtime.agent.release import build, stage, switch
from edge.runtime.agent.session import Session, greeting, ping
from edge.runtime.agent.watch import facts, logs, status
from edge.transport.channel import Channel
from edge.transport.frames import PROTOCOL

__all__ = ["serve"]

Answer = Callable[[Session, Request], Mapping[str, Any]]

_VERBS: Mapping[str, Answer] = MappingProxyType(
    {
        "plan": plan,
        "lock": lock_or_take_up,
        "put-manifest": put_manifest,
        "have": have,
        "blob": blob,
        "stage": stage,
        "build": build,
        "switch": switch,
        "status": status,
        "confirm": confirm,
        "rollback": rollback,
        "gc": gc,
        "logs": logs,
        "facts": facts,
        "ping": ping,
    }
)
# A line of the audit is a write to the flash: who only looks, or sends a part of what stage then names, leaves none.
_AUDITED = frozenset({"lock", "put-manifest", "stage", "build", "switch", "confirm", "rollback", "gc"})


def serve(channel: Channel, device: Device, units: Units, *, origin: str, silence_s: float = SILENCE_S) -> None:
    """Answer one client until it is gone or silent; the push lock is given back then, and the channel closed."""
    talk = Conversation(channel, silence_s=silence_s)
    session = Session(talk, device, units, origin=origin)
    try:
        if _greet(talk, device):
            while not talk.is_gone:
                _answer(session, talk.next_request())
    except ConnectionEnded:
        pass  # an end of the client is the usual end of an agent
    finally:
        session.close()
        channel.close()


def _greet(talk: Conversation, device: Device) -> bool:
    try:
        talk.hello(greeting(device))
    except DeployError as error:
        talk.err(error)
        return False
    request = talk.next_request()
    if request.verb == "hello" and request.values.get("protocol") == PROTOCOL:
        return True
    theirs = str(request.values.get("protocol", "none"))[:20]
    talk.err(
        DeployError(
            "transfer.version",
            f"the device speaks protocol {PROTOCOL}, the client {theirs}",
            hint="run: edge-deploy provision, with the same edge-deploy that pushes",
        )
    )
    return False


def _answer(session: Session, request: Request) -> None:
    try:
        values = _function_of(request)(session, request)
        _audit(session, request, "ok")
    except DeployError as error:
        _refuse(session, request, error)
    except ConnectionEnded:
        _audit(session, request, "the connection ended")
        raise
    except Exception as error:  # the border: a client learns that it is our fault, never how our code looks
        traceback.print_exc(file=sys.stderr)
        internal = DeployError(
            "device.internal",
            f"{request.verb[:50]}: {type(error).__name__}: {error}",
            hint="report it, with the output of edge-deploy logs",
        )
        _refuse(session, request, internal)
    else:
        session.talk.ok(values)


def _function_of(request: Request) -> Answer:
    function = _VERBS.get(request.verb)
    if function is None:
        raise DeployError(
            "request.verb", f"{request.verb[:50]!r} is not known here", hint="update the device's software"
        )
    return function


def _refuse(session: Session, request: Request, error: DeployError) -> None:
    try:
        _audit(session, request, f"{error.code}: {error.problem}", is_refused=True)
    except DeployError as audit_error:
        error.evidence.setdefault("audit", str(audit_error))
    session.talk.err(error)


def _audit(session: Session, request: Request, result: str, *, is_refused: bool = False) -> None:
    if request.verb in _AUDITED or is_refused:
        session.audit(request.verb, result)
