"""Rows in columns, as wide as the terminal is: what matters least is left out, and said to be."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

__all__ = ["aligned", "folded", "shown_width"]

_GAP = "  "
_LEAST_NAME = 16  # characters of a name, below which a whole column goes rather than more of the name


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
