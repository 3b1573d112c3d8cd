"""Whether corners that a person wrote down are the border of a zone."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["polygon_problem"]

Point = tuple[float, float]


def polygon_problem(polygon: Sequence[Point]) -> str | None:
    """Return why this is no zone, None if it is one: its border must not meet itself."""
    count = len(polygon)
    if len(set(polygon)) < count:
        return "a corner is given twice; the border closes by itself, give each corner once"
    sides = [(polygon[i], polygon[(i + 1) % count]) for i in range(count)]
    for i in range(count):
        for j in range(i + 1, count):
            is_neighbour = j == i + 1 or (i == 0 and j == count - 1)
            if not is_neighbour and _meet(*sides[i], *sides[j]):
                return f"its border crosses itself between corners {i} and {j}; give the corners in order around it"
    if abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in sides)) < 1e-6:
        return "it has no area"
    return None


def _meet(a: Point, b: Point, c: Point, d: Point) -> bool:
    """Return whether two sides have a point in common."""

    def turn(o: Point, p: Point, q: Point) -> float:
        return (p[0] - o[0]) * (q[1] - o[1]) - (p[1] - o[1]) * (q[0] - o[0])

    def is_on(o: Point, p: Point, q: Point) -> bool:
        return min(o[0], p[0]) <= q[0] <= max(o[0], p[0]) and min(o[1], p[1]) <= q[1] <= max(o[1], p[1])

    turns = turn(a, b, c), turn(a, b, d), turn(c, d, a), turn(c, d, b)
    if turns[0] * turns[1] < 0 and turns[2] * turns[3] < 0:
        return True
    ends = (a, b, c), (a, b, d), (c, d, a), (c, d, b)
    return any(value == 0 and is_on(*end) for value, end in zip(turns, ends, strict=True))
