"""One complaint about a table."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Finding", "Severity", "named"]

_SHOWN = 4


class Severity(str, enum.Enum):
    """An error makes INT8 wrong; a warning may be meant."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`code` is stable, for programs; `tensors` are all that it is about."""

    severity: Severity
    code: str
    problem: str
    fix: str
    tensors: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.severity.value}: {self.code}: {self.problem}; {self.fix}"

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable."""
        return {
            "severity": self.severity.value,
            "code": self.code,
            "problem": self.problem,
            "fix": self.fix,
            "tensors": list(self.tensors),
        }


def named(tensors: Sequence[str]) -> str:
    """Return the first of `tensors` in quotes, and how many more there are."""
    shown = ", ".join(f'"{name}"' for name in tensors[:_SHOWN])
    more = len(tensors) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
