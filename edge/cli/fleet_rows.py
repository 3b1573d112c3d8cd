"""Rows of a fleet at work: the state of each target, and the ones that a screen has room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from edge.delivery.outcome import BEGIN, PROGRESS, UPLOAD, Event
from edge.untrusted import cleaned

__all__ = ["FleetRow", "FleetRows", "printable", "size_text"]

_MIB = 1024 * 1024
_MAX_TEXT = 400


@dataclass(slots=True, kw_only=True)
class FleetRow:
    """A target that has begun, as its last event left it."""

    target: str
    began_at: datetime
    phase: str = ""
    phase_began_at: datetime | None = None
    done: int | None = None
    total: int | None = None
    note: str = ""
    result: str | None = None
    code: str | None = None
    _first: tuple[datetime, int] | None = field(default=None)
    _last: tuple[datetime, int] | None = field(default=None)

    def take(self, event: Event) -> None:
        if event.is_last:
            self.result, self.code, self.note = event.event, event.code, printable(event.hint)
            self.done, self.total = event.bytes, None
            return
        if event.event == BEGIN or event.phase != self.phase:
            self.phase, self.phase_began_at = event.phase, event.ts
            self.done = self.total = self._first = self._last = None
            self.note = ""
        if event.bytes is not None:
            self.done, self.total = event.bytes, event.total if event.total is not None else self.total
        if event.hint:
            self.note = printable(event.hint)
        if event.event == PROGRESS and event.bytes is not None:
            self._last = (event.ts, event.bytes)
            self._first = self._first or self._last

    @property
    def has_failed(self) -> bool:
        """Whether it ended with a code that says why."""
        return self.result is not None and self.code is not None

    @property
    def percent(self) -> float | None:
        """How much of the phase is done; None where that is not known."""
        return None if self.done is None or not self.total else min(100.0, 100 * self.done / self.total)

    @property
    def bytes_per_s(self) -> float | None:
        """How fast bytes went since the first count of this phase, so that what was there before is not taken in."""
        if self.phase != UPLOAD or self._first is None or self._last is None:
            return None
        seconds = (self._last[0] - self._first[0]).total_seconds()
        return (self._last[1] - self._first[1]) / seconds if seconds > 0 else None

    @property
    def mib_per_s(self) -> float | None:
        speed = self.bytes_per_s
        return None if speed is None else speed / _MIB

    @property
    def eta_s(self) -> float | None:
        speed = self.bytes_per_s
        return (self.total - self.done) / speed if speed and self.total and self.done is not None else None


class FleetRows:
    """All targets of a run; `total` of them will come."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._rows: dict[str, FleetRow] = {}

    def take(self, event: Event) -> FleetRow:
        """Enter an event; return the row that it changed."""
        row = self._rows.setdefault(event.target, FleetRow(target=event.target, began_at=event.ts))
        row.take(event)
        return row

    def fitting(self, lines: int) -> tuple[Sequence[FleetRow], str]:
        """Return rows that fit into `lines`, and a sentence that counts all the others.

        Those at work come first; those that failed have a third of the room, or more where it is free, the last ones.
        """
        at_work = [row for row in self._rows.values() if row.result is None]
        failed = [row for row in self._rows.values() if row.has_failed]
        room = max(lines // 3, lines - len(at_work), 0)
        shown_failed = failed[-room:] if room else []
        shown_at_work = at_work[: max(0, lines - len(shown_failed))]
        counts = (
            (len(at_work) - len(shown_at_work), "more at work"),
            (len(failed) - len(shown_failed), "more failed"),
            (sum(row.result is not None and not row.has_failed for row in self._rows.values()), "done"),
            (self._total - len(self._rows), "waiting"),
        )
        return (*shown_at_work, *shown_failed), ", ".join(f"{count} {what}" for count, what in counts if count)


def printable(text: str | None) -> str:
    """Return a text that came from a device as one line that cannot move the cursor or colour the terminal."""
    line = " ".join(cleaned(text or "").split())
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"


def size_text(count: int) -> str:
    if count < 1000:
        return f"{count} B"
    for unit, scale in (("kB", 1e3), ("MB", 1e6)):
        if count < 999.95 * scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count / 1e9:.1f} GB"
