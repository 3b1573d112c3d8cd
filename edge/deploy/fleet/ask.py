"""One question to each of many targets: how are you, what does your journal say, go back, yes this is right."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from edge.config.targets import Target
from edge.deploy.fleet.over_ssh import connect_to
from edge.deploy.push.event import BEGIN, END, Event, OnEvent, now
from edge.deploy.push.link import Interrupted, Link
from edge.deploy.push.outcome import DONE, INTERRUPTED, Outcome, PushOne
from edge.errors import DeployError
from edge.transport.channel import Channel

__all__ = ["ASK_S", "ask_each"]

ASK_S = 20.0  # ConnectTimeout of ssh, and as much again for an answer

_UNREACHABLE = 3


def ask_each(
    verb: str,
    values: Mapping[str, Any] | None = None,
    *,
    deadline_s: float = ASK_S,
    connect: Callable[[Target], Channel] = connect_to,
) -> PushOne:
    """Return what asks a target `verb`; the answer is the evidence of its outcome, whose result is then `unchanged`.

    A target that has not answered after `deadline_s` counts as unreachable.
    """

    def ask_one(target: Target, on_event: OnEvent, stop: threading.Event) -> Outcome:
        began_s = time.monotonic()
        until = _Until(stop, began_s + deadline_s)
        on_event(Event(ts=now(), target=target.name, phase=verb, event=BEGIN))
        try:
            answer = _ask(connect, target, verb, values, until)
        except Interrupted:
            return _interrupted(target, verb) if stop.is_set() else _late(target, verb, deadline_s)
        except DeployError as error:
            return _refused(target, error)
        on_event(Event(ts=now(), target=target.name, phase=verb, event=END))
        return Outcome(
            target=target.name,
            release=answer.get("current"),
            result="unchanged",
            exit_code=DONE,
            evidence=answer,
            seconds=round(time.monotonic() - began_s, 3),
        )

    return ask_one


class _Until(threading.Event):
    """Set once `stop` is, or the monotonic time `deadline_s` has come."""

    def __init__(self, stop: threading.Event, deadline_s: float) -> None:
        super().__init__()
        self._given, self._deadline_s = stop, deadline_s

    def is_set(self) -> bool:
        return self._given.is_set() or time.monotonic() >= self._deadline_s


def _ask(
    connect: Callable[[Target], Channel],
    target: Target,
    verb: str,
    values: Mapping[str, Any] | None,
    until: threading.Event,
) -> Mapping[str, Any]:
    link = Link(connect(target), until)
    try:
        answer: Mapping[str, Any] = link.ask(verb, values)
        return {key: value for key, value in answer.items() if key != "id"}
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
