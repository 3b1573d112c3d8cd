"""A set of positive integers kept as ranges: small as long as the numbers come in runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

__all__ = ["Ranges"]


class Ranges:
    """Disjoint, sorted, never touching each other; both ends belong to a range."""

    def __init__(self) -> None:
        self._first: list[int] = []
        self._last: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._first, self._last, strict=True))

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._first, number) - 1
        return index >= 0 and number <= self._last[index]

    @property
    def total(self) -> int:
        """How many numbers are in the set."""
        return sum(self._last) - sum(self._first) + len(self._first)

    def add(self, first: int, last: int) -> None:
        """Add `first` to `last`; nothing when that is empty."""
        if first > last:
            return
        low = bisect_right(self._last, first - 2)
        high = bisect_right(self._first, last + 1)
        if low < high:
            first = min(first, self._first[low])
            last = max(last, self._last[high - 1])
        self._first[low:high] = [first]
        self._last[low:high] = [last]

    def remove(self, first: int, last: int) -> int:
        """Take `first` to `last` (nothing when that is empty) out and return how many of them were in."""
        if first > last:
            return 0
        before = self.total
        low = bisect_right(self._last, first - 1)
        high = bisect_right(self._first, last)
        if low >= high:
            return 0
        pieces = [(self._first[low], first - 1), (last + 1, self._last[high - 1])]
        kept = [piece for piece in pieces if piece[0] <= piece[1]]
        self._first[low:high] = [piece[0] for piece in kept]
        self._last[low:high] = [piece[1] for piece in kept]
        return before - self.total
