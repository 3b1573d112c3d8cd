"""One connection from its hello to its end: each request to its function, each error to its frame."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from edge.device.audit import Kind
from edge.device.device import Device
from edge.device.units import Units
from edge.errors import DeployError
from edge.runtime.agent.allowed import check_pull_may
from edge.runtime.agent.change import confirm, gc, rollback
from edge.runtime.agent.conversation import SILENCE_S, ConnectionEnded, Conversation, Request
from edge.runtime.agent.look import look
from edge.runtime.agent.offer import plan, put_manifest
from edge.runtime.agent.orphan import lock_or_take_up
from edge.runtime.agent.receive import blob, have
from edge.runtime.agent.release import build, stage, switch
from edge.runtime.agent.reset import reset
from edge.runtime.agent.session import Session, greeting, ping
from edge.runtime.agent.turn import turn
from edge.runtime.agent.watch import facts, logs, status
from edge.transport.channel import Channel
from edge.untrusted import cleaned
from edge.wire import verbs
from edge.wire.peer import PROVISION
from edge.wire.verbs import Verb

__all__ = ["serve"]

Q = TypeVar("Q")
A = TypeVar("A")
Answer = Callable[[Session, Any], object]
Standing = tuple[str | None, bytes | None, bytes | None]


def _by(verb: Verb[Q, A], function: Callable[[Session, Q], A]) -> tuple[str, Answer]:
    """Return an entry of the table; that the function takes and gives what the verb says is checked here."""
    return verb.name, function


_ANSWERS: Mapping[str, Answer] = MappingProxyType(
    dict(
        (
            _by(verbs.PLAN, plan),
            _by(verbs.LOCK, lock_or_take_up),
            _by(verbs.PUT_MANIFEST, put_manifest),
            _by(verbs.HAVE, have),
            _by(verbs.BLOB, blob),
            _by(verbs.STAGE, stage),
            _by(verbs.BUILD, build),
            _by(verbs.SWITCH, switch),
            _by(verbs.STATUS, status),
            _by(verbs.CONFIRM, confirm),
            _by(verbs.ROLLBACK, rollback),
            _by(verbs.RESET, reset),
            _by(verbs.GC, gc),
            _by(verbs.LOGS, logs),
            _by(verbs.LOOK, look),
            _by(verbs.FACTS, facts),
            _by(verbs.PING, ping),
            _by(verbs.TURN, turn),
        )
    )
)
# A line of the audit is a write to the flash: who only looks, or sends a part of what stage then names, leaves none.
_AUDITED = frozenset({"lock", "put-manifest", "stage", "build", "switch", "confirm", "rollback", "reset", "gc"})


def serve(
    channel: Channel,
    device: Device,
    units: Units,
    *,
    origin: str,
    silence_s: float = SILENCE_S,
    is_for_pull: bool = False,
    on_request: Callable[[str], None] = lambda verb: None,
) -> None:
    """Answer one client until it is gone or silent; the push lock is given back then, and the channel closed.

    One that is `is_for_pull` is answered what a pull asks for, and refused all else. `on_request` hears each verb.
    """
    talk = Conversation(channel, silence_s=silence_s)
    session = Session(talk, device, units, origin=origin, is_for_pull=is_for_pull)
    try:
        if _greet(talk, device):
            while not talk.is_gone:
                request = talk.next_request()
                on_request(request.verb)
                _answer(session, request)
    except ConnectionEnded:
        pass  # an end of the client is the usual end of an agent
    finally:
        session.close()
        channel.close()


def _greet(talk: Conversation, device: Device) -> bool:
    try:
        talk.hello(greeting(device))
        talk.meet(talk.next_request())
    except DeployError as error:
        talk.err(error)
        return False
    return True


def _answer(session: Session, request: Request) -> None:
    before = session.device.standing() if request.verb in _AUDITED else None
    try:
        answer = _answer_to(session, request)
        _audit(session, request, "ok", before)
    except DeployError as error:
        _refuse(session, request, error, before)
    except ConnectionEnded:
        _audit(session, request, "the connection ended", before)
        raise
    except Exception as error:  # the border: a client learns that it is our fault, never how our code looks
        traceback.print_exc(file=sys.stderr)
        internal = DeployError(
            "device.internal",
            f"{cleaned(request.verb[:50])}: {type(error).__name__}: {error}",
            hint="report it, with the output of edge-deploy logs",
        )
        _refuse(session, request, internal, before)
    else:
        session.talk.ok(answer)


def _answer_to(session: Session, request: Request) -> object:
    verb = verbs.VERBS.get(request.verb)
    if verb is None:
        raise DeployError("request.verb", f"{cleaned(request.verb[:50])!r} is not known here", hint=PROVISION)
    asked = session.talk.read(verb, request)
    if session.is_for_pull:
        check_pull_may(verb, asked)
    return _ANSWERS[verb.name](session, asked)


def _refuse(session: Session, request: Request, error: DeployError, before: Standing | None) -> None:
    try:
        _audit(session, request, f"{error.code}: {error.problem}", before, otherwise=Kind.REFUSED)
    except DeployError as audit_error:
        error.evidence.setdefault("audit", str(audit_error))
    session.talk.err(error)


def _audit(
    session: Session, request: Request, result: str, before: Standing | None, *, otherwise: Kind = Kind.REQUEST
) -> None:
    """Write the line to the log of changes if one happened, whatever was asked and answered."""
    if before is not None and session.device.standing() != before:
        session.audit(request.verb, result, kind=Kind.CHANGE)
    elif before is not None or otherwise is Kind.REFUSED:
        session.audit(request.verb, result, kind=otherwise)
