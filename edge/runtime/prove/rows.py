"""Rows of a step, and rows for parts that this machine lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from edge.errors import EdgeError, MissingDependencyError
from edge.roofline.proof import Row, Verdict

__all__ = ["NotHereError", "Rows", "held", "parts", "told"]

Rows = Iterator[Row]


class NotHereError(Exception):
    """The machine lacks what a step, or a part of it, takes; the text says what."""


def told(name: str, detail: str, /, **values: Any) -> Row:
    """Return a fact, or a figure that nothing is held against."""
    return Row(name=name, verdict=Verdict.TOLD, detail=detail, values=values)


def held(name: str, is_good: bool, detail: str, /, *, else_: Verdict = Verdict.FAILS, **values: Any) -> Row:
    """Return what was held against an expectation."""
    return Row(name=name, verdict=Verdict.PROVEN if is_good else else_, detail=detail, values=values)


def parts(*each: tuple[str, Callable[[], Rows]]) -> Rows:
    """Yield the rows of each part in turn; one that cannot be done is a row of its name, and the next one is begun."""
    for name, make in each:
        try:
            yield from make()
        except (NotHereError, MissingDependencyError) as error:
            yield Row(name=name, verdict=Verdict.ABSENT, detail=str(error))
        except EdgeError as error:
            yield Row(name=name, verdict=Verdict.FAILS, detail=str(error))
        except Exception as error:  # a part of a proof that breaks is what it is to find, and not the end
            yield Row(name=name, verdict=Verdict.FAILS, detail=f"{type(error).__name__}: {error}")
