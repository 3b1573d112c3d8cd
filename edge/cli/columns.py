"""Rows in columns, as wide as the terminal is: what matters least is left out, and said to be."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence

__all__ = ["aligned", "shown_width"]

_GAP = "  "
_LEAST_NAME = 16  # characters of a name, below which a whole column goes rather than more of the name


def shown_width() -> int | None:
    """Return how many characters a line of stdout may have; None where it is no terminal: then nothing is left out."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def aligned(
    rows: Sequence[Sequence[str]],
    *,
    texts: int = 2,
    width: int | None = None,
    spare: Sequence[str] = (),
    is_named: bool = False,
) -> Iterator[str]:
    """Yield rows as lines in columns, and one that says which columns are left out.

    Args:
        rows: the head, and what stands under it.
        texts: the last columns, which are aligned to the left; numbers to the right.
        width: characters that a line may have; None: any number.
        spare: heads of columns that are left out one by one, in this order, where a line would be longer.
        is_named: the last column is a name, which is shortened in its middle where that does not suffice.
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
