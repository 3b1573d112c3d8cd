"""How results look: JSON or plain lines on stdout, prose and bars on stderr."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from edge.cli.columns import folded, shown_width
from edge.untrusted import cleaned

__all__ = [
    "echo_json",
    "echo_pairs",
    "echo_parts",
    "echo_passed_over",
    "make_table",
    "progress_bar",
    "stage_bars",
    "stderr_console",
]


def stderr_console() -> Console:
    """Return the console for everything that is not a result."""
    return Console(stderr=True, highlight=False)


def echo_json(value: Any) -> None:
    """Print one JSON document; the keys of each kind of document are stable."""
    click.echo(json.dumps(value, indent=2))


def echo_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values, which may be of a file that somebody else has made."""
    rows, across = [(name, cleaned(value)) for name, value in pairs], shown_width()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(folded(value, before=f"{name:<{width}}  ", width=across).rstrip())


def echo_parts(parts: Iterable[Iterable[str]]) -> None:
    """Print paragraphs of lines, those that are longer than the terminal is wide in several."""
    width = shown_width()
    click.echo("\n\n".join("\n".join(folded(line, width=width) for line in part) for part in parts))


def echo_passed_over(folder: Path) -> None:
    """Say on stderr what stands in a folder of images and is none by its name; nothing where all are."""
    from edge.media.stills import passed_over

    if others := passed_over(folder):
        kinds = Counter("folder" if path.is_dir() else path.suffix or "without suffix" for path in others)
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        click.echo(f"{folder}: {len(others)} that are no images by name are passed over ({told})", err=True)


def make_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Align columns after the first to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    return table


class _Bar:
    def __init__(self, progress: Progress, task: Any) -> None:
        self._progress, self._task = progress, task

    def advance(self) -> None:
        self._progress.advance(self._task)


class progress_bar(AbstractContextManager["_Bar"]):  # noqa: N801 - reads as the function that it is to its users
    """A bar on stderr for anything that takes over a second; nothing where stderr is no terminal."""

    def __init__(self, label: str, *, total: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = stderr_console()
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._label, self._total = label, total

    def __enter__(self) -> _Bar:
        self._progress.start()
        return _Bar(self._progress, self._progress.add_task(self._label, total=self._total))

    def __exit__(self, *exc_info: object) -> None:
        self._progress.stop()


class stage_bars(AbstractContextManager["stage_bars"]):  # noqa: N801 - as above
    """A bar on stderr for each of several stages; where stderr is no terminal, the name of each stage instead."""

    def __init__(self) -> None:
        self._bar: progress_bar | None = None
        self._current: _Bar | None = None

    def __enter__(self) -> stage_bars:
        return self

    def stage(self, name: str, steps: int) -> None:
        self._end()
        if not stderr_console().is_terminal:
            click.echo(f"{name}: about {steps} steps", err=True)
        self._bar = progress_bar(name, total=steps)
        self._current = self._bar.__enter__()

    def advance(self) -> None:
        if self._current is not None:
            self._current.advance()

    def __exit__(self, *exc_info: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.__exit__()
            self._bar = None
