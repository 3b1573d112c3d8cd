"""How a person or a program sees a fleet at work: live rows on a terminal, else lines, or JSON Lines."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import click

from edge.cli.fleet_rows import FleetRow, FleetRows, printable, size_text
from edge.cli.output import stderr_console
from edge.cli.run_command import tell
from edge.delivery.outcome import END, NOTE, UPLOAD, Event

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["FleetView", "JsonLines", "LiveRows", "PlainLines", "choose_view", "screen", "waiting_view"]

_OTHER_LINES = 3  # the count below the rows, the line of the cursor, and one of what was said before
_REFRESH_HZ = 4.0


class FleetView(AbstractContextManager["FleetView"]):
    """Shows what happens; a reader that has gone, or a full disk behind stdout, ends the showing and not the work."""

    def __enter__(self) -> FleetView:
        return self

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
    """A row for each target at work and for each that failed, as far as the terminal has room; the rest is counted."""

    def __init__(self, targets: tuple[str, ...], *, console: Console | None = None, has_results: bool = True) -> None:
        from rich.live import Live

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
        from rich.text import Text

        self._console.print(Text(printable(text)))

    def _draw(self) -> RenderableType:
        with self._lock:
            return screen(self._rows, height=self._console.height)


def choose_view(targets: tuple[str, ...], *, is_json: bool) -> FleetView:
    if is_json:
        return JsonLines()
    return LiveRows(targets) if stderr_console().is_terminal else PlainLines(targets)


def waiting_view(targets: tuple[str, ...]) -> FleetView:
    """Return what shows on a terminal that there is something to wait for, and leaves nothing behind."""
    return LiveRows(targets, has_results=False) if stderr_console().is_terminal else FleetView()


def screen(rows: FleetRows, *, height: int) -> RenderableType:
    """Return what fits into a terminal of `height` lines: rows, and below them a count of all the others."""
    from rich.console import Group
    from rich.text import Text

    shown, others = rows.fitting(max(1, height - _OTHER_LINES))
    return Group(_grid(shown), Text(others, no_wrap=True, overflow="ellipsis"))


def _grid(rows: Sequence[FleetRow]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2), expand=True)
    for justify in ("left", "left", "right", "right", "right"):
        grid.add_column(justify=justify, no_wrap=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        style = "red" if row.has_failed else ""
        grid.add_row(*(Text(cell, style=style) for cell in _cells(row)))
    return grid


def _cells(row: FleetRow) -> tuple[str, ...]:
    if row.result is not None:
        return row.target, row.result, "", "", "", _reason(row)
    percent, speed, eta_s = row.percent, row.mib_per_s, row.eta_s
    return (
        row.target,
        row.phase,
        "" if percent is None else f"{percent:.0f} %",
        "" if speed is None else f"{speed:.1f} MiB/s",
        "" if eta_s is None else f"{eta_s:.0f} s left",
        row.note,
    )


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
            # What is still buffered has to go somewhere, or Python complains when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
