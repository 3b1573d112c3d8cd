"""One question to each of many targets: how are you, what does your journal say, go back, yes this is right."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from edge.config.targets import Target
from edge.deploy.fleet.over_ssh import connect_to
from edge.deploy.push.event import BEGIN, END, Event, OnEvent, now
from edge.deploy.push.link import Interrupted, Link
from edge.deploy.push.outcome import DONE, INTERRUPTED, Outcome
from edge.errors import DeployError
from edge.transport.channel import Channel
from edge.wire.codec import encode
from edge.wire.verbs import Verb

__all__ = ["ASK_S", "Asked"]

ASK_S = 20.0  # ConnectTimeout of ssh, and as much again for an answer

_UNREACHABLE = 3


Q = TypeVar("Q")
A = TypeVar("A")


class Asked(Generic[Q, A]):
    """A `PushOne` that asks a target; the answer's plain values are the evidence of its outcome, then `unchanged`.

    A target that has not answered after `deadline_s` counts as unreachable. `answers` are by the names of targets.
    """

    def __init__(
        self,
        verb: Verb[Q, A],
        request: Q,
        *,
        deadline_s: float = ASK_S,
        connect: Callable[[Target], Channel] = connect_to,
    ) -> None:
        self.answers: dict[str, A] = {}
        self._verb, self._request, self._deadline_s, self._connect = verb, request, deadline_s, connect

    def __call__(self, target: Target, on_event: OnEvent, stop: threading.Event) -> Outcome:
        """Ask one target."""
        began_s, verb = time.monotonic(), self._verb.name
        until = _Until(stop, began_s + self._deadline_s)
        on_event(Event(ts=now(), target=target.name, phase=verb, event=BEGIN))
        try:
            answer = self._ask(target, until)
        except Interrupted:
            return _interrupted(target, verb) if stop.is_set() else _late(target, verb, self._deadline_s)
        except DeployError as error:
            return _refused(target, error)
        on_event(Event(ts=now(), target=target.name, phase=verb, event=END))
        self.answers[target.name] = answer
        return Outcome(
            target=target.name,
            release=None,
            result="unchanged",
            exit_code=DONE,
            evidence=encode(answer),
            seconds=round(time.monotonic() - began_s, 3),
        )

    def _ask(self, target: Target, until: threading.Event) -> A:
        link = Link(self._connect(target), until)
        try:
            return link.ask(self._verb, self._request)
        finally:
            link.close()


class _Until(threading.Event):
    """Set once `stop` is, or the monotonic time `deadline_s` has come."""

    def __init__(self, stop: threading.Event, deadline_s: float) -> None:
        super().__init__()
        self._given, self._deadline_s = stop, deadline_s

    def is_set(self) -> bool:
        return self._given.is_set() or time.monotonic() >= self._deadline_s


def _refused(target: Target, error: DeployError) -> Outcome:
    is_away = error.code.startswith("transfer.") and error.exit_code == _UNREACHABLE
    return Outcome(
        target=target.name,
        release=None,
        result="unreachable" if is_away else "refused",
        exit_code=error.exit_code,
        code=error.code,
        problem=error.problem,
        hint=error.hint,
        evidence=error.evidence,
    )


def _late(target: Target, verb: str, deadline_s: float) -> Outcome:
    problem = f"no answer to {verb!r} within {deadline_s:g} s"
    return _refused(target, DeployError("transfer.timeout", problem, hint=f"try it by hand: ssh {target.host}"))


def _interrupted(target: Target, verb: str) -> Outcome:
    return Outcome(
        target=target.name,
        release=None,
        result="interrupted",
        exit_code=INTERRUPTED,
        code="fleet.interrupted",
        problem=f"{verb!r} was interrupted",
    )
