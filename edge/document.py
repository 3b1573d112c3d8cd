"""Plain values of a file that a person wrote, and the line of each: an error points at what it is about."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from edge.errors import EdgeError

__all__ = ["Document", "Location", "spell"]

Location = tuple[str | int, ...]
"""The keys and indices that lead to a value."""

_Misfit = TypeVar("_Misfit", bound=EdgeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(Generic[_Misfit]):
    """Content of a file; `lines` has the root, `()`, at least; where a value does not fit, `misfit` is raised."""

    path: Path
    content: Any
    lines: Mapping[Location, int]
    misfit: type[_Misfit]

    def at(self, location: Location) -> Any:
        """Return the value at `location`, which has to be in the file."""
        value = self.content
        for step in location:
            value = value[step]
        return value

    def error(self, location: Location, problem: str) -> _Misfit:
        """Return an error that points at `location`, or at its nearest parent whose line is known."""
        known = location
        while known not in self.lines:
            known = known[:-1]
        return self.misfit(f"{self.path}:{self.lines[known]}: {spell(location)}{problem}")


def spell(location: Location) -> str:
    """Return a location as a message begins with it: `streams[1].id: `, or nothing for the root."""
    text = "".join(f".{step}" if _is_plain(step) else f"[{step}]" for step in location).lstrip(".")
    return f"{text}: " if text else ""


def _is_plain(step: str | int) -> bool:
    return isinstance(step, str) and re.fullmatch(r"[\w-]+", step) is not None
