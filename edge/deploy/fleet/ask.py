"""One question to each of many targets: how are you, what does your journal say, go back, yes this is right."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from edge.config.targets import Target
from edge.deadline import Deadline
from edge.delivery.event import BEGIN, END, Event, OnEvent, now
from edge.delivery.link import LATE, Interrupted, Link
from edge.delivery.outcome import DONE, INTERRUPTED, Outcome
from edge.deploy.fleet.over_ssh import connect_to
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
        on_event(Event(ts=now(), target=target.name, phase=verb, event=BEGIN))
        try:
            answer = self._ask(target, stop)
        except Interrupted:
            return _interrupted(target, verb)
        except DeployError as error:
            return _late(target, verb, self._deadline_s) if error.code == LATE else _refused(target, error)
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

    def _ask(self, target: Target, stop: threading.Event) -> A:
        link = Link(self._connect(target), stop, Deadline.after(self._deadline_s))
        try:
            return link.ask(self._verb, self._request)
        finally:
            link.close()


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
