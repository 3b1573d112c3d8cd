"""JSON laid out so that a diff can be read: what there is many of has a line each."""

from __future__ import annotations

import json
from collections.abc import Iterable

__all__ = ["block", "one_line"]


def one_line(value: object) -> str:
    """Return `value` as JSON; names stay readable, and there is no word for NaN and infinity."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def block(brackets: str, rows: Iterable[str]) -> str:
    """Return rows of JSON between `brackets`, {} or [], one per line."""
    body = ",\n  ".join(rows)
    return f"{brackets[0]}\n  {body}\n {brackets[1]}" if body else brackets
