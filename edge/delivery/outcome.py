"""How a delivery to one target ended, and the events on its way: a phase begins, how far it is, it ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal, get_args

from edge.delivery.link import OnProgress
from edge.wire.peer import Progress

__all__ = [
    "BEGIN",
    "DONE",
    "END",
    "INTERRUPTED",
    "LAST_PHASE",
    "NOTE",
    "PLANNED",
    "PROGRESS",
    "UPLOAD",
    "Event",
    "OnEvent",
    "Outcome",
    "Report",
    "Result",
    "last_event",
    "now",
]

BEGIN, PROGRESS, END, NOTE = "begin", "progress", "end", "note"
_NAMES = (BEGIN, PROGRESS, END, NOTE)
LAST_PHASE = "result"
UPLOAD = "upload"
"""The phase whose counts are bytes."""
Result = Literal[
    "unchanged",
    "kept",
    "changed",
    "committed",
    "detached",
    "rolled-back",
    "refused",
    "failed",
    "unreachable",
    "late",
    "interrupted",
    "planned",
]
DONE, PLANNED, INTERRUPTED = 0, 10, 130
_WITHOUT_CODE = (DONE, PLANNED, INTERRUPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One step of one target.

    `ts` is UTC; `bytes` of `total` are done: bytes in the phase `upload`, else what the phase counts.
    A push says `begin`, any number of `progress` and `note`, and `end` of each phase. The one event of phase `result`,
    whose `event` is the result of the `Outcome`, is sent by the caller of the push. ValueError if it contradicts
    itself.
    """

    ts: datetime
    target: str
    phase: str
    event: str
    bytes: int | None = None
    total: int | None = None
    code: str | None = None
    hint: str | None = None

    def __post_init__(self) -> None:
        if not self.target or not self.phase or not self.event:
            raise ValueError("an event names its target, its phase and what happened")
        if not self.is_last and self.event not in _NAMES:
            raise ValueError(f"an event within a phase is one of {', '.join(_NAMES)}, got {self.event!r}")
        if self.ts.utcoffset() is None:
            raise ValueError("the time of an event needs a zone")
        if (self.bytes or 0) < 0 or (self.total or 0) < 0:
            raise ValueError(f"{self.bytes} of {self.total} are no counts")

    @property
    def is_last(self) -> bool:
        """Whether nothing follows for this target."""
        return self.phase == LAST_PHASE


OnEvent = Callable[[Event], None]
"""Takes an event; returns soon and raises nothing. Called from the thread of the push."""


def now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it ended for one target; `release` is None where it was never known, `exit_code` for this target alone.

    `code`, `problem`, `hint` are of the `DeployError` that ended it, `evidence` its numbers. ValueError if
    contradictory.
    """

    target: str
    release: str | None
    result: Result
    exit_code: int
    code: str | None = None
    problem: str | None = None
    hint: str | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)
    bytes_sent: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.result not in get_args(Result):
            raise ValueError(f"a result is one of {', '.join(get_args(Result))}, got {self.result!r}")
        if self.code is None and self.exit_code not in _WITHOUT_CODE:
            raise ValueError(f"{self.result} with exit code {self.exit_code} needs a code that says why")
        if self.code is not None and self.exit_code == DONE:
            raise ValueError(f"done, and yet {self.code}")
        if self.bytes_sent < 0 or self.seconds < 0:
            raise ValueError(f"{self.bytes_sent} bytes in {self.seconds} s are no measure")

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do for this target; unknown, so False, for one that goes on alone."""
        return self.exit_code == DONE and self.result != "detached"


def last_event(outcome: Outcome) -> Event:
    return Event(
        ts=now(),
        target=outcome.target,
        phase=LAST_PHASE,
        event=outcome.result,
        bytes=outcome.bytes_sent,
        code=outcome.code,
        hint="; ".join(part for part in (outcome.problem, outcome.hint) if part) or None,
    )


class Report:
    """Tells `on_event` of a push; `moved_at` is the monotonic time at which it last came any further, in seconds."""

    def __init__(self, target: str, on_event: OnEvent) -> None:
        self.target, self._on_event = target, on_event
        self.moved_at = time.monotonic()

    @contextlib.contextmanager
    def phase(self, name: str, *, total: int | None = None) -> Iterator[None]:
        """Tell when a phase begins and, if it does, ends well."""
        self._say(name, BEGIN, total=total)
        yield
        self.moved_at = time.monotonic()
        self._say(name, END, bytes=total, total=total)  # whatever of its progress was passed over on the way

    def note(self, phase: str, text: str, *, code: str | None = None) -> None:
        self._say(phase, NOTE, code=code, hint=text)

    def far(self, phase: str, done: int, total: int | None) -> None:
        self._say(phase, PROGRESS, bytes=max(0, done), total=total)

    def taker(self, phase: str, *, before: int = 0, total: int | None = None) -> OnProgress:
        """Return what tells a device's progress as one of `phase`, `before` of whose `total` were done already."""

        def take(progress: Progress) -> None:
            self.moved_at = time.monotonic()
            of = int(progress.total) if total is None and progress.total is not None else total
            self.far(phase, before + int(progress.done), of)

        return take

    def _say(self, phase: str, event: str, **values: Any) -> None:
        self._on_event(Event(ts=now(), target=self.target, phase=phase, event=event, **values))
