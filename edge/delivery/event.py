"""What a push to one target says on its way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

__all__ = ["BEGIN", "END", "LAST_PHASE", "NOTE", "PROGRESS", "UPLOAD", "Event", "OnEvent", "now"]

BEGIN, PROGRESS, END, NOTE = "begin", "progress", "end", "note"
_NAMES = (BEGIN, PROGRESS, END, NOTE)
LAST_PHASE = "result"
UPLOAD = "upload"
"""The phase whose counts are bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One step of one target.

    `ts` is UTC; `bytes` of `total` are done: bytes in the phase `upload`, else what the phase counts.
    A push says `begin`, any number of `progress` and `note`, and `end` of each phase. The one event of phase `result`,
    whose `event` is the result of the `Outcome`, is said by whoever called the push, so that each target has one.

    Raises:
        ValueError: if it contradicts itself.
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
    """Return the time for an event."""
    return datetime.now(timezone.utc)
