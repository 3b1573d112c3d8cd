"""Who belongs to whom: the pairs of rows and columns with the largest sum of weights, exactly."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["assign"]

_Edge = tuple[int, float]


def assign(weight: NDArray[np.floating], *, minimum: float) -> list[tuple[int, int]]:
    """Return pairs (row, column), each row and column in one at most, with the largest sum of `weight - minimum`.

    Args:
        weight: (R, C); pairs at or below `minimum` are never made.
        minimum: least weight of a pair.
    """
    flat = weight.ravel()
    found = (flat > minimum).nonzero()[0]
    if not len(found):
        return []
    gains: list[float] = (flat.take(found) - minimum).tolist()
    edges: dict[int, list[_Edge]] = {}
    rivals: dict[int, int] = {}
    for index, gain in zip(found.tolist(), gains, strict=True):
        row, column = divmod(index, weight.shape[1])
        edges.setdefault(row, []).append((column, gain))
        rivals[column] = rivals.get(column, 0) + 1
    # Most objects are alone: they have one candidate, which is nobody else's.
    pairs = [(row, own[0][0]) for row, own in edges.items() if len(own) == 1 and rivals[own[0][0]] == 1]
    settled = {row for row, _ in pairs}
    contested = {row: own for row, own in edges.items() if row not in settled}
    return [*pairs, *_Matching(contested).pairs()] if contested else pairs


class _Matching:
    """Maximum weight matching by shortest augmenting paths, one row after the other.

    Row price + column price >= gain holds for every edge, and = for the pairs; who has no pair has the price 0. That
    proves that no other pairs have a larger sum (duality of linear programs).
    """

    def __init__(self, edges: dict[int, list[_Edge]]) -> None:
        self._edges = edges
        self._row_price = {row: max(gain for _, gain in own) for row, own in edges.items()}
        self._column_price = {column: 0.0 for own in edges.values() for column, _ in own}
        self._row_of: dict[int, int] = {}
        self._column_of: dict[int, int] = {}

    def pairs(self) -> Iterable[tuple[int, int]]:
        """Return them."""
        for row in self._edges:
            self._settle(row)
        return self._column_of.items()

    def _settle(self, start: int) -> None:
        """Make the cheapest change that pairs `start`: it ends at a free column, or at a row that goes without."""
        row, length = start, 0.0
        row_ways, column_ways = {start: 0.0}, dict[int, float]()
        source: dict[int, int] = {}
        heap: list[tuple[float, int, int]] = []
        best, loser = self._row_price[start], start
        while True:
            for column, gain in self._edges[row]:
                step = self._row_price[row] + self._column_price[column] - gain
                heapq.heappush(heap, (length + step, column, row))
            while heap and heap[0][1] in column_ways:
                heapq.heappop(heap)
            if not heap or heap[0][0] >= best:
                end = self._column_of.pop(loser, None)
                break
            length, end, source[end] = heapq.heappop(heap)
            column_ways[end] = length
            if end not in self._row_of:
                best = length
                break
            row = self._row_of[end]
            row_ways[row] = length
            if length + self._row_price[row] < best:
                best, loser = length + self._row_price[row], row
        for each, way in row_ways.items():
            self._row_price[each] -= best - way
        for each, way in column_ways.items():
            self._column_price[each] += best - way
        self._take_over(end, source)

    def _take_over(self, column: int | None, source: dict[int, int]) -> None:
        """Give `column` to the row that reached it, the column of that row to the one before, and so on."""
        while column is not None:
            row = source[column]
            before = self._column_of.get(row)
            self._row_of[column], self._column_of[row] = row, column
            column = before
