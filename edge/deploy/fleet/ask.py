"""One question to each of many targets (status, journal, rollback, confirm), and when each device was last heard of."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from edge.codec import encode
from edge.config.targets import Target
from edge.deadline import Deadline
from edge.delivery.link import LATE, Interrupted, Link
from edge.delivery.outcome import BEGIN, DONE, END, Event, OnEvent, Outcome, now
from edge.delivery.verdict import failed_by, interrupted
from edge.deploy.fleet.journal import state_folder
from edge.deploy.fleet.over_ssh import connect_to
from edge.errors import DeployError
from edge.reading import json_object
from edge.transport.channel import Channel
from edge.untrusted import cleaned_json
from edge.wire.peer import Nothing
from edge.wire.release import LookRequest
from edge.wire.verbs import LOOK, STATUS, StatusAnswer, Verb
from edge.writing import write_whole

__all__ = ["Asked", "AskedStatus", "DeviceState", "ask_one", "last_seen", "note_seen"]

_ASK_S = 20.0  # ConnectTimeout of ssh, and as much again for an answer
_UNREACHABLE = 3
Q = TypeVar("Q")
A = TypeVar("A")


def ask_one(
    target: Target,
    on_event: OnEvent,
    phase: str,
    ask: Callable[[], Any],
    *,
    failed: Callable[[DeployError], Outcome],
) -> Outcome:
    """Return the outcome of one question, with the answer as its evidence; `failed` gives that of an error."""
    on_event(Event(ts=now(), target=target.name, phase=phase, event=BEGIN))
    try:
        evidence = ask()
    except Interrupted:
        return interrupted(target.name, f"{phase!r} was interrupted")
    except DeployError as error:
        return failed(error)
    on_event(Event(ts=now(), target=target.name, phase=phase, event=END))
    return Outcome(target=target.name, release=None, result="unchanged", exit_code=DONE, evidence=evidence)


class Asked(Generic[Q, A]):
    """A `PushOne` that asks a target; the answer's plain values are the evidence of its outcome, then `unchanged`.

    A target that has not answered within 20 s counts as unreachable.
    """

    def __init__(self, verb: Verb[Q, A], request: Q, *, connect: Callable[[Target], Channel] = connect_to) -> None:
        self.answers: dict[str, A] = {}
        self._verb, self._request, self._connect = verb, request, connect

    def __call__(self, target: Target, on_event: OnEvent, stop: threading.Event) -> Outcome:
        def ask() -> Any:
            with closing(Link(self._connect(target), stop, Deadline.after(_ASK_S))) as link:
                answer = link.ask(self._verb, self._request)
                evidence = self._evidence(target, link, answer)
            self.answers[target.name] = answer  # of those alone who were asked all
            return evidence

        return ask_one(target, on_event, self._verb.name, ask, failed=lambda error: self._failed(target, error))

    def _failed(self, target: Target, error: DeployError) -> Outcome:
        if error.code == LATE:
            problem = f"no answer to {self._verb.name!r} within {_ASK_S:g} s"
            error = DeployError("transfer.timeout", problem, hint=f"try it by hand: ssh {target.host}")
        is_away = error.code.startswith("transfer.") and error.exit_code == _UNREACHABLE
        return failed_by(error, target=target.name, result="unreachable" if is_away else "refused")

    def _evidence(self, target: Target, link: Link, answer: A) -> Any:
        """Return the plain values of the answer; `link` is for what it gives reason to ask."""
        return encode(answer)


_MOST_TEXT = 500


@dataclass(frozen=True, slots=True)
class DeviceState:
    """How a device stands, as its service tells subscribers: `online`, or `degraded` with what is wrong."""

    state: str
    reason: str | None


class AskedStatus(Asked[Nothing, StatusAnswer]):
    """Asks for the status; `states` are those of running services, `device_state` (or null) in the evidence."""

    def __init__(self, *, connect: Callable[[Target], Channel] = connect_to) -> None:
        super().__init__(STATUS, Nothing(), connect=connect)
        self.states: dict[str, DeviceState] = {}

    def _evidence(self, target: Target, link: Link, answer: StatusAnswer) -> Any:
        state = None if answer.health is None else _look(link)
        if state is not None:
            self.states[target.name] = state
        return {**encode(answer), "device_state": None if state is None else asdict(state)}


def _look(link: Link) -> DeviceState | None:
    """Return what the service shows on its status page; None where it shows none, or nothing that can be read."""
    try:
        content = link.ask(LOOK, LookRequest(stream="")).content
        told = cleaned_json(json_object(base64.b64decode(content or "", validate=True)), most=_MOST_TEXT)
        state, reason = told["state"], told["reason"]
    except (DeployError, ValueError, KeyError):
        return None
    if not isinstance(state, str) or not isinstance(reason, str | None):
        return None
    return DeviceState(state, reason)


_NAME = "seen.json"
_UNHEARD = ("unreachable", "late", "interrupted")


def last_seen(target: Target) -> str | None:
    """Return when a device answered last (RFC 3339 in UTC); None: never, or under this name another host did."""
    entry = _read().get(target.name)
    return entry.get("at") if isinstance(entry, dict) and entry.get("host") == target.host else None


def note_seen(targets: Iterable[Target], outcomes: Iterable[Outcome]) -> None:
    """Note which targets have answered just now; what cannot be written is left out, because it is only for people."""
    # A code of the fleet is of this machine: a target was not begun, or a push failed here.
    answered = (one for one in outcomes if not (one.code or "").startswith("fleet.") and one.result not in _UNHEARD)
    reached = {outcome.target for outcome in answered}
    at = now().strftime("%Y-%m-%dT%H:%M:%SZ")
    new = {target.name: {"host": target.host, "at": at} for target in targets if target.name in reached}
    if new:
        with suppress(OSError):
            _write({**_read(), **new})


def _read() -> dict[str, object]:
    try:
        found = json.loads((state_folder() / _NAME).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(seen: Mapping[str, object]) -> None:
    path = state_folder() / _NAME
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(path, json.dumps(seen, indent=1, sort_keys=True).encode(), mode=0o600)
