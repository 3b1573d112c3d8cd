"""A part of many: a count, or a share in percent."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["SHARE_PATTERN", "CountOrShare"]

SHARE_PATTERN = r"^(100|[0-9]{1,2}(\.[0-9]{1,2})?)%$"


@dataclass(frozen=True, slots=True)
class CountOrShare:
    """`value` of them, or `value` percent of them. Raises `ValueError` if it is less than none, or more than all."""

    value: Fraction
    is_percent: bool

    def __post_init__(self) -> None:
        if self.value < 0 or (self.is_percent and self.value > 100):
            raise ValueError(f"{self} is no part of anything")

    @classmethod
    def parse(cls, written: str | int) -> CountOrShare:
        """Return what is written as a count (`3`) or as a share (`"10%"`). Raises `ValueError` if it is neither."""
        if isinstance(written, int):
            return cls(Fraction(written), is_percent=False)
        if re.fullmatch(SHARE_PATTERN[1:-1], written) is None:
            raise ValueError(f"expected a count or a share such as '10%', got {written!r}")
        return cls(Fraction(written[:-1]), is_percent=True)

    def of(self, total: int) -> int:
        """Return how many of `total` it is, at most all; a share of some is at least one."""
        exact = self.value * total / 100 if self.is_percent else self.value
        return min(total, math.ceil(exact))

    def is_exceeded_by(self, count: int, total: int) -> bool:
        """Return whether `count` of `total` are more than this; nothing is rounded."""
        return count > (self.value * total / 100 if self.is_percent else self.value)

    def __str__(self) -> str:
        return f"{float(self.value):g}{'%' if self.is_percent else ''}"
