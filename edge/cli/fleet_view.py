"""How a person or a program sees a fleet at work: live rows on a terminal, else lines, or JSON Lines."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from edge.cli.output import stderr_console
from edge.cli.run_command import let_go, tell
from edge.delivery.outcome import BEGIN, END, NOTE, UPLOAD, Event
from edge.untrusted import cleaned

__all__ = [
    "FleetRow",
    "FleetRows",
    "FleetView",
    "JsonLines",
    "LiveRows",
    "PlainLines",
    "choose_view",
    "printable",
    "screen",
    "size_text",
    "waiting_view",
]

_MAX_TEXT = 400
_REFRESH_HZ = 4.0


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

    def take(self, event: Event) -> None:
        if event.is_last:
            note = (event.hint or "").removeprefix(f"{self.target}: ")  # a problem begins with its host
            self.result, self.code, self.note = event.event, event.code, printable(note)
            self.done, self.total = event.bytes, None
            return
        if event.event == BEGIN or event.phase != self.phase:
            self.phase, self.phase_began_at = event.phase, event.ts
            self.done = self.total = None
            self.note = ""
        if event.bytes is not None:
            self.done, self.total = event.bytes, event.total if event.total is not None else self.total
        if event.hint:
            self.note = printable(event.hint)

    @property
    def has_failed(self) -> bool:
        return self.result is not None and self.code is not None

    @property
    def percent(self) -> float | None:
        """How much of the phase is done; None where that is not known."""
        return None if self.done is None or not self.total else min(100.0, 100 * self.done / self.total)


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

    def shown(self) -> Sequence[FleetRow]:
        """Return those at work, then those that failed, the last one first."""
        at_work = [row for row in self._rows.values() if row.result is None]
        return (*at_work, *(row for row in reversed(self._rows.values()) if row.has_failed))

    def counted(self) -> str:
        rows = self._rows.values()
        counts = (
            (sum(row.result is None for row in rows), "at work"),
            (sum(row.has_failed for row in rows), "failed"),
            (sum(row.result is not None and not row.has_failed for row in rows), "done"),
            (self._total - len(rows), "waiting"),
        )
        return ", ".join(f"{count} {what}" for count, what in counts if count)


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


class FleetView(AbstractContextManager["FleetView"]):
    """Shows what happens; a reader that has gone, or a full disk behind stdout, ends the showing and not the work."""

    def __exit__(self, *exc_info: object) -> None:
        """Leave the screen as a person expects it."""

    def on_event(self, event: Event) -> None: ...

    def say(self, text: str) -> None:
        tell(printable(text))


class JsonLines(FleetView):
    """Each event as one line of JSON on stdout; sentences on stderr."""

    def on_event(self, event: Event) -> None:
        values = {
            "ts": event.ts.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "target": event.target,
            "phase": event.phase,
            "event": event.event,
            "bytes": event.bytes,
            "total": event.total,
            "code": event.code,
            "hint": event.hint,
        }
        _write(json.dumps(values, separators=(",", ":")))


class PlainLines(FleetView):
    """One line for each phase of each target on stderr, one for its result on stdout."""

    def __init__(self, targets: tuple[str, ...]) -> None:
        self._rows, self._width = FleetRows(len(targets)), _width(targets)

    def on_event(self, event: Event) -> None:
        """Write a line when a phase has ended, when there is something to know, and at the end."""
        row = self._rows.take(event)
        name = f"{event.target:<{self._width}}"
        if event.is_last:
            _write(f"{name}  {_result_text(row, event)}")
        elif event.event == END:
            tell(f"{name}  {event.phase:<9} {_phase_text(row, event)}".rstrip())
        elif event.event == NOTE:
            tell(f"{name}  {event.phase:<9} {row.note}".rstrip())


class LiveRows(FleetView):
    """All targets counted, and a row for each at work and each that failed, as far as the terminal has room."""

    def __init__(self, targets: tuple[str, ...], *, console: Console | None = None, has_results: bool = True) -> None:
        self._rows, self._width = FleetRows(len(targets)), _width(targets)
        self._results: list[str] = []
        self._has_results = has_results
        self._lock = threading.Lock()  # the screen is drawn by a thread of its own
        self._console = console or stderr_console()
        self._live = Live(
            get_renderable=self._draw, console=self._console, refresh_per_second=_REFRESH_HZ, transient=True
        )

    def __enter__(self) -> FleetView:
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._rows = FleetRows(0)  # rich draws once more, and then without regard to the height
        self._live.stop()
        for line in self._results:
            _write(line)

    def on_event(self, event: Event) -> None:
        with self._lock:
            row = self._rows.take(event)
            if event.is_last and self._has_results:
                self._results.append(f"{event.target:<{self._width}}  {_result_text(row, event)}")

    def say(self, text: str) -> None:
        """Write the sentence above the rows, where it stays."""
        self._console.print(Text(printable(text)))

    def _draw(self) -> RenderableType:
        with self._lock:
            return screen(self._rows)


def choose_view(targets: tuple[str, ...], *, is_json: bool) -> FleetView:
    if is_json:
        return JsonLines()
    return LiveRows(targets) if stderr_console().is_terminal else PlainLines(targets)


def waiting_view(targets: tuple[str, ...]) -> FleetView:
    """Return what shows on a terminal that there is something to wait for, and leaves nothing behind."""
    return LiveRows(targets, has_results=False) if stderr_console().is_terminal else FleetView()


def screen(rows: FleetRows) -> RenderableType:
    """Return a count of all targets, and their rows below it, of which a small terminal leaves the last ones out."""
    return Group(Text(rows.counted(), no_wrap=True, overflow="ellipsis"), _grid(rows.shown()))


def _grid(rows: Sequence[FleetRow]) -> RenderableType:
    grid = Table.grid(padding=(0, 2), expand=True)
    for justify in ("left", "left", "right"):
        grid.add_column(justify=justify, no_wrap=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        style = "red" if row.has_failed else ""
        grid.add_row(*(Text(cell, style=style) for cell in _cells(row)))
    return grid


def _cells(row: FleetRow) -> tuple[str, ...]:
    if row.result is not None:
        return row.target, row.result, "", _reason(row)
    return row.target, row.phase, "" if row.percent is None else f"{row.percent:.0f} %", row.note


def _phase_text(row: FleetRow, event: Event) -> str:
    seconds = (event.ts - (row.phase_began_at or event.ts)).total_seconds()
    size = size_text(row.done) if row.phase == UPLOAD and row.done is not None else ""
    return "  ".join(part for part in (size, f"{seconds:.1f} s") if part)  # notes have had lines of their own


def _result_text(row: FleetRow, event: Event) -> str:
    if row.has_failed:
        return f"{row.result}  {_reason(row)}"
    seconds = (event.ts - row.began_at).total_seconds()
    sent = f", {size_text(event.bytes)} sent" if event.bytes else ""
    return f"{row.result} in {seconds:.1f} s{sent}{f'; {row.note}' if row.note else ''}"


def _reason(row: FleetRow) -> str:
    return ": ".join(part for part in (row.code, row.note) if part)


def _width(targets: tuple[str, ...]) -> int:
    return max((len(name) for name in targets), default=0)


def _write(line: str) -> None:
    """Write a line of a result; where it is no longer read (`| head`), go on in silence."""
    try:
        click.echo(line)
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            let_go(sys.stdout)
