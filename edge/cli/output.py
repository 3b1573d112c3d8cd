"""How results look: JSON, plain lines or columns on stdout, as wide as the terminal is; prose and bars on stderr."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from edge.untrusted import cleaned

__all__ = [
    "StageBars",
    "aligned",
    "amount",
    "echo_json",
    "echo_lines",
    "echo_pairs",
    "echo_parts",
    "echo_passed_over",
    "echo_result",
    "echo_warnings",
    "folded",
    "pair_lines",
    "progress_bar",
    "shown_width",
    "stderr_console",
]

_GAP = "  "
_LINE_EACH_S = 30
_LEAST_NAME = 16  # characters of a name, below which a whole column goes rather than more of the name
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def amount(value: float) -> str:
    """Return a count in three digits with its prefix: `1.64 M`."""
    for factor, prefix in _PREFIXES:
        if value >= 0.9995 * factor:
            return f"{value / factor:#.3g}".rstrip(".") + f" {prefix}"
    return f"{value:.3g}"


def shown_width() -> int | None:
    """Return None where stdout is no terminal, or closed: then nothing is left out."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def folded(text: str, *, before: str = "", width: int | None = None) -> str:
    """Return a sentence behind `before`, broken between words under itself where a line would be longer than `width`.

    What is so narrow that little would stand in a line is left to the terminal, which breaks inside of words.
    """
    indent = before or " " * (len(text) - len(text.lstrip()) + 2)
    if width is None or len(before) + len(text) <= width or width - len(indent) < _LEAST_NAME:
        return f"{before}{text}"
    return textwrap.fill(
        text.strip() if before else text,
        width,
        initial_indent=before,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )


def aligned(
    rows: Sequence[Sequence[str]],
    *,
    texts: int = 2,
    width: int | None = None,
    spare: Sequence[str] = (),
    is_named: bool = False,
) -> Iterator[str]:
    """Yield rows (the head first) as lines in columns, and one that says which columns are left out.

    The last `texts` columns are aligned to the left; numbers to the right. A line has at most `width` characters:
    columns with heads in `spare` are left out one by one, in this order; then, with `is_named`, names in the last are
    shortened.
    """
    columns = [list(column) for column in zip(*rows, strict=True)]
    numbers = len(columns) - texts
    kept, left_out = list(range(len(columns))), list[str]()
    for head in spare:
        if width is None or _width_of([columns[i] for i in kept], is_named=is_named) <= width:
            break
        kept.remove(rows[0].index(head))
        left_out.append(head)
    if width is not None and is_named:
        before = _width_of([columns[i] for i in kept[:-1]], is_named=False) + len(_GAP)
        columns[-1] = [_shortened(cell, max(width - before, _LEAST_NAME)) for cell in columns[-1]]
    # Cells of many letters, as of a device, take the room of all others.
    while width is not None and (over := _width_of([columns[i] for i in kept], is_named=False) - width) > 0:
        widest = max(kept, key=lambda i: max(map(len, columns[i])))
        longest = max(map(len, columns[widest]))
        if longest <= _LEAST_NAME:
            break
        columns[widest] = [_shortened(cell, max(longest - over, _LEAST_NAME)) for cell in columns[widest]]
    padded = [_padded(columns[i], is_text=i >= numbers) for i in kept]
    yield from (_GAP.join(cells).rstrip() for cells in zip(*padded, strict=True))
    if left_out:
        yield f"not shown for want of width: {', '.join(left_out)}"


def _width_of(columns: Sequence[Sequence[str]], *, is_named: bool) -> int:
    """Return how long the longest line is; with a name at its end: how short it can be made."""
    widths = [max(map(len, column)) for column in columns]
    if is_named:
        widths[-1] = min(widths[-1], _LEAST_NAME)
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _padded(column: Sequence[str], *, is_text: bool) -> list[str]:
    width = max(map(len, column))
    return [cell.ljust(width) if is_text else cell.rjust(width) for cell in column]


def _shortened(name: str, most: int) -> str:
    if len(name) <= most:
        return name
    end = (most - 1) * 2 // 3  # names of layers differ at their ends
    return f"{name[: most - 1 - end]}…{name[-end:]}"


def stderr_console() -> Console:
    return Console(stderr=True, highlight=False)


def echo_json(value: Any) -> None:
    """Print one JSON document; the keys of each kind of document are stable."""
    click.echo(json.dumps(value, indent=2))


def pair_lines(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield names and values, which may be of a file that somebody else has made."""
    rows, across = [(name, cleaned(value)) for name, value in pairs], shown_width()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        yield folded(value, before=f"{name:<{width}}  ", width=across).rstrip()


def echo_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    echo_lines(pair_lines(pairs))


def echo_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def echo_result(content: Any, lines: Iterable[str], *, as_json: bool) -> None:
    if as_json:
        echo_json(content)
    else:
        echo_lines(lines)


def echo_warnings(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        click.echo(f"warning: {sentence}", err=True)


def echo_parts(parts: Iterable[Iterable[str]]) -> None:
    """Print paragraphs of lines, those that are longer than the terminal is wide in several."""
    width = shown_width()
    click.echo("\n\n".join("\n".join(folded(line, width=width) for line in part) for part in parts))


def echo_passed_over(folder: Path) -> None:
    """Say on stderr what stands in a folder of images and is none by its name; nothing where all are."""
    from edge.media.images import passed_over

    if others := passed_over(folder):
        kinds = Counter("folder" if path.is_dir() else path.suffix or "without suffix" for path in others)
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        click.echo(f"{folder}: {len(others)} that are no images by name are passed over ({told})", err=True)


@contextmanager
def progress_bar(label: str, *, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar on stderr, where that is no terminal a line each half minute; give its step."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = stderr_console()
    if not console.is_terminal:
        yield _lines_of(label, total)
        return
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda: progress.advance(task)


def _lines_of(label: str, total: int) -> Callable[[], None]:
    done, told = 0, time.monotonic()

    def step() -> None:
        nonlocal done, told
        done += 1
        if (now := time.monotonic()) - told >= _LINE_EACH_S:
            told = now
            click.echo(f"{label}: {done} of about {total} steps", err=True)

    return step


class StageBars(ExitStack):
    """A bar on stderr for each of several stages; where stderr is no terminal, the name of each stage instead."""

    _step: Callable[[], None] | None = None

    def stage(self, name: str, steps: int) -> None:
        self.close()  # the bar of the stage before
        if not stderr_console().is_terminal:
            click.echo(f"{name}: about {steps} steps", err=True)
        self._step = self.enter_context(progress_bar(name, total=steps))

    def advance(self) -> None:
        if self._step is not None:
            self._step()
