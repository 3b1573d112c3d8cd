"""`edge-runtime agent`: frames on stdin and stdout, each request to its function, each error to its frame.

A pull may ask for what brings a release here, and for nothing that a person decides.
"""

from __future__ import annotations

import base64
import os
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from edge.deadline import Deadline
from edge.device.device import Device, Kind
from edge.device.facts import gather_facts, this_moment
from edge.device.health import read_health
from edge.device.layout import Layout, become_owner_of
from edge.device.releases import check_sha256
from edge.device.state import Phase, State
from edge.device.switch import switch_to
from edge.device.units import RUNTIME_UNIT, TRIAL_UNIT, SystemctlUnits, Units
from edge.errors import DeployError
from edge.http.server import short_name
from edge.runtime.agent.offer import plan, put_manifest, ring, trust
from edge.runtime.agent.release import build, confirm, gc, restart_runtime, rollback, stage, switch
from edge.runtime.agent.session import SILENCE_S, ConnectionEnded, Conversation, Session, lock, ping
from edge.runtime.agent.watch import facts, logs, status
from edge.runtime.trial.trust import Signed
from edge.transport.channel import Channel, Message, PipeChannel
from edge.untrusted import cleaned
from edge.wire import verbs
from edge.wire.peer import PROVISION, DeviceHello, Nothing
from edge.wire.release import MOST_BYTES, BlobRequest, HaveAnswer, HaveRequest, LockRequest, LookAnswer, LookRequest
from edge.wire.verbs import BLOB, HAVE, Verb

__all__ = ["blob", "check_pull_may", "have", "lock_or_take_up", "look", "main", "own_stdio", "serve"]

_OF_A_PULL = frozenset(
    verb.name
    for verb in (
        *(verbs.PLAN, verbs.LOCK, verbs.PUT_MANIFEST, verbs.HAVE, verbs.BLOB, verbs.STAGE, verbs.BUILD),
        *(verbs.SWITCH, verbs.STATUS, verbs.GC, verbs.PING, verbs.RING, verbs.TRUST),
    )
)
_DEADLINE_S = 8.0
_HEAD_BYTES = 8192
_ROLLBACK_UNIT = "edge-rollback.service"
_AGE_S = 15.0  # a judge that was asked for a moment ago may not be there yet
_START_S = 30.0
Q = TypeVar("Q")
A = TypeVar("A")
Answer = Callable[[Session, Any], object]
Standing = tuple[str | None, bytes | None, bytes | None]


def check_pull_may(verb: Verb[Any, Any], request: object) -> None:
    """Raise DeployError `request.forbidden` unless a pull needs it: no way back, no word of other programs.

    The lock in a trial is for a person who wants to go back, too.
    """
    what = verb.name
    if what in _OF_A_PULL:
        if not isinstance(request, LockRequest) or not request.in_trial:
            return
        what = f"{what} in a trial"
    raise DeployError(
        "request.forbidden",
        f"{what}: who fetches releases may not ask for it",
        hint="ask as the user edge-deploy: over SSH, or on the device by sudo edge-runtime rollback",
    )


def look(session: Session, request: LookRequest) -> LookAnswer:
    """Return the figures or a picture; DeployError `device.page` where no runtime shows any."""
    path = "/status.json" if request.stream == "" else f"/pictures/{_checked(request.stream)}.jpg"
    try:
        status, body = _fetch(session.device.layout.http_socket, path)
    except OSError as error:
        reason = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise DeployError(
            "device.page",
            f"the service does not show its status page: {reason}",
            hint="look at edge-deploy status and edge-deploy logs",
        ) from None
    if status in (404, 503) and request.stream:
        return LookAnswer(content=None)
    if status != 200:
        raise DeployError("device.page", f"the service answers {status} to {path}", hint="look at edge-deploy logs")
    return LookAnswer(content=base64.b64encode(body).decode("ascii"))


def _checked(stream: str) -> str:
    if not all(one.isascii() and (one.isalnum() or one == "-") for one in stream):
        raise DeployError("request.value", "look.stream: expected the id of a stream")
    return stream


def _fetch(path: Path, what: str) -> tuple[int, bytes]:
    """Status and body. Raises OSError."""
    deadline = Deadline.after(_DEADLINE_S)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, short_name(path) as name:
        connection.settimeout(_DEADLINE_S)
        connection.connect(name)
        connection.sendall(f"GET {what} HTTP/1.1\r\n\r\n".encode("ascii"))
        content = b""
        while part := _receive(connection, deadline):
            content += part
            if len(content) > MOST_BYTES + _HEAD_BYTES:
                raise OSError(f"it answers with more than {MOST_BYTES} bytes")
    head, found, body = content.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if not found or len(words) < 3 or not words[1].isdigit() or len(words[1]) != 3:
        raise OSError("what it answers is no HTTP")
    return int(words[1]), body


def _receive(connection: socket.socket, deadline: Deadline) -> bytes:
    connection.settimeout(max(deadline.left_s, 0.001))
    return connection.recv(1 << 16)


def have(session: Session, request: HaveRequest) -> HaveAnswer:
    """Return the offset to go on from for each of the asked blobs that is not here."""
    offer = _offer(session, HAVE)
    asked = {one: _length_of(offer, one) for one in request.sha256}
    return HaveAnswer(missing=session.device.store.missing(asked))


def blob(session: Session, request: BlobRequest) -> Nothing:
    """Take the rest of a blob from `offset` on; each part that is in its file is acknowledged by a progress."""
    offer = _offer(session, BLOB)
    sha256, offset = check_sha256(request.sha256), request.offset
    length = _length_of(offer, sha256)
    store = session.device.store
    if store.has(sha256):
        return Nothing()
    _check_agreed(request, store.begin(sha256, length), length)
    while offset < length:
        content = session.talk.next_blob()
        if len(content) > length - offset:
            raise DeployError(
                "transfer.length", f"blob {sha256[:12]}: more than the {length} bytes of the manifest came"
            )
        store.write(sha256, offset, content)
        offset += len(content)
        session.talk.progress("blob", offset, length)
    session.talk.while_doing(lambda: store.finish(sha256, length), phase="hash", total_s=None)
    return Nothing()


def _offer(session: Session, verb: Verb[Any, Any]) -> Signed:
    session.check_receives(verb)
    if session.offer is None:
        raise DeployError("request.order", f"{verb.name}: no release has been offered")
    return session.offer


def _length_of(offer: Signed, sha256: str) -> int:
    length = offer.lengths.get(sha256)
    if length is None:
        raise DeployError("request.blob", f"{sha256[:12]} is no file of release {offer.manifest.release}")
    return length


def _check_agreed(request: BlobRequest, here: int, length: int) -> None:
    if request.length != length - request.offset or request.offset != here:
        raise DeployError(
            "transfer.offset",
            f"blob {request.sha256[:12]}: {here} of {length} bytes are here, the sender goes on from {request.offset}",
            evidence={"offset": here},
        )


def lock_or_take_up(session: Session, request: LockRequest) -> Nothing:
    """Answer a request for the lock; where a trial without a judge is in its way, give it one first.

    Without that it would last until the next boot: each push would wait for a verdict that never comes.
    """
    try:
        return lock(session, request)
    except DeployError as error:
        if error.code == "lock.trial":
            _take_up(session, request)
        raise


def _take_up(session: Session, request: LockRequest) -> None:
    # With the lock held: a switch at this moment holds it, and then nothing is orphaned.
    lock(session, replace(request, in_trial=True))
    try:
        state = session.device.state()
        if state.phase is Phase.TRIAL and state.target is not None and _is_orphaned(session, state):
            session.talk.go_on_alone()
            _finish(session, state.target)
    finally:
        session.close()


def _is_orphaned(session: Session, state: State) -> bool:
    moment = this_moment()
    is_fresh = state.boot_id == moment.boot_id and (moment.boottime_ns - state.started_boottime_ns) / 1e9 < _AGE_S
    units = (TRIAL_UNIT, _ROLLBACK_UNIT)
    return not is_fresh and all(session.units.state(unit).active in ("inactive", "failed") for unit in units)


def _finish(session: Session, release: str) -> None:
    _begin_again(session.device)
    switch_to(session.device, release)
    health = read_health(session.device.layout.health)
    if session.units.state(RUNTIME_UNIT).active != "active" or health is None or health.release != release:
        restart_runtime(session)
    session.units.start(TRIAL_UNIT, wait=False, timeout_s=_START_S)


def _begin_again(device: Device) -> None:
    # The time without a judge does not count against the release.
    moment = this_moment()
    with device.locked():
        state = device.state()
        if state.phase is Phase.TRIAL:
            begun = replace(state, boot_id=moment.boot_id, started_at=moment.at, started_boottime_ns=moment.boottime_ns)
            device.write_state(begun)


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
            _by(verbs.GC, gc),
            _by(verbs.LOGS, logs),
            _by(verbs.LOOK, look),
            _by(verbs.FACTS, facts),
            _by(verbs.PING, ping),
            _by(verbs.RING, ring),
            _by(verbs.TRUST, trust),
        )
    )
)
# A line of the audit is a write to the flash: what only reads, or sends a part of what stage then names, leaves none.
_AUDITED = frozenset({"lock", "put-manifest", "stage", "build", "switch", "confirm", "rollback", "gc"})


def serve(channel: Channel, device: Device, units: Units, *, origin: str, silence_s: float = SILENCE_S) -> None:
    """Answer one client until it is gone or silent; the push lock is given back then, and the channel closed.

    Where the device `is_for_pull`, it is answered what a pull asks for, and refused all else.
    """
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
        talk.hello(DeviceHello(facts=gather_facts(device.layout), current=device.releases.current()))
        talk.meet(talk.next_request())
    except DeployError as error:
        talk.err(error)
        return False
    return True


def _answer(session: Session, request: Message) -> None:
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


def _answer_to(session: Session, request: Message) -> object:
    verb = verbs.VERBS.get(request.verb)
    if verb is None:
        raise DeployError("request.verb", f"{cleaned(request.verb[:50])!r} is not known here", hint=PROVISION)
    asked = session.talk.read(verb, request)
    if session.device.is_for_pull:
        check_pull_may(verb, asked)
    return _ANSWERS[verb.name](session, asked)


def _refuse(session: Session, request: Message, error: DeployError, before: Standing | None) -> None:
    try:
        _audit(session, request, f"{error.code}: {error.problem}", before, otherwise=Kind.REFUSED)
    except DeployError as audit_error:
        error.evidence.setdefault("audit", str(audit_error))
    session.talk.err(error)


def _audit(
    session: Session, request: Message, result: str, before: Standing | None, *, otherwise: Kind = Kind.REQUEST
) -> None:
    """Write the line to the log of changes if one happened, whatever was asked and answered."""
    if before is not None and session.device.standing() != before:
        session.audit(request.verb, result, kind=Kind.CHANGE)
    elif before is not None or otherwise is Kind.REFUSED:
        session.audit(request.verb, result, kind=otherwise)


def main(root: Path, *, is_for_pull: bool, units: Units | None = None) -> None:
    """Answer the client at the other end of stdin and stdout.

    Args:
        root: stands for `/`, for tests.
        is_for_pull: the client is a pull, and may ask for nothing else.
    """
    layout = Layout(root)
    become_owner_of(layout.var)
    origin = os.environ.get("SSH_CONNECTION", "local").split(" ")[0]
    serve(own_stdio(), Device(layout, is_for_pull=is_for_pull), units or SystemctlUnits(), origin=origin)


def own_stdio() -> PipeChannel:
    """Return a channel over stdin and stdout, which nothing else can read or write from now on."""
    channel = PipeChannel(os.dup(0), os.dup(1))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # what anyone prints goes to the people, not into a frame
    return channel
