"""How two tables differ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from edge.calibrate.table import CalibrationTable

__all__ = ["RangeChange", "TableDiff", "diff_tables"]

_NO_FACTS = ("preprocess_sha256", "tensors", "float_reasons")  # shown otherwise, or by what they are of


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeChange:
    """One tensor whose scale differs; `ratio` is second to first, NaN where that has no meaning."""

    name: str
    first: float
    second: float

    @property
    def ratio(self) -> float:
        """How many times larger the second is."""
        return self.second / self.first if self.first else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDiff:
    """Differences of two tables; largest in `changed` first; `facts`: name, first and second of what is no range."""

    facts: tuple[tuple[str, str, str], ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    changed: tuple[RangeChange, ...]
    equal: int

    def as_json(self) -> dict[str, Any]:
        """Give null for numbers that JSON has no word for."""
        return {
            "facts": {name: [first, second] for name, first, second in self.facts},
            "only_first": list(self.only_first),
            "only_second": list(self.only_second),
            "changed": [
                {"name": c.name, "first": _number(c.first), "second": _number(c.second), "ratio": _number(c.ratio)}
                for c in self.changed
            ],
            "equal": self.equal,
        }


def diff_tables(first: CalibrationTable, second: CalibrationTable) -> TableDiff:
    """Return what `second` has otherwise than `first`; ranges are equal when their float32 scales are."""
    shared = [name for name in sorted(first.tensors) if name in second.tensors]
    changed = [
        RangeChange(name=name, first=first.tensors[name].amax, second=second.tensors[name].amax)
        for name in shared
        if first.tensors[name].scale != second.tensors[name].scale
    ]
    return TableDiff(
        facts=tuple(_facts(first, second)),
        only_first=tuple(sorted(first.tensors.keys() - second.tensors.keys())),
        only_second=tuple(sorted(second.tensors.keys() - first.tensors.keys())),
        changed=tuple(sorted(changed, key=_size, reverse=True)),
        equal=len(shared) - len(changed),
    )


def _facts(first: CalibrationTable, second: CalibrationTable) -> Iterator[tuple[str, str, str]]:
    for name in (one for one in CalibrationTable.__struct_fields__ if one not in _NO_FACTS):
        mine, theirs = _told(getattr(first, name)), _told(getattr(second, name))
        if mine != theirs:
            yield name, mine, theirs
    if _means(first) != _means(second):
        yield "means", _told_means(first, second), _told_means(second, first)


def _means(table: CalibrationTable) -> dict[str, tuple[float, ...]]:
    return {name: tensor.means for name, tensor in table.tensors.items() if tensor.means}


def _told_means(table: CalibrationTable, other: CalibrationTable) -> str:
    mine, theirs = _means(table), _means(other)
    different = sum(means != theirs.get(name) for name, means in mine.items())
    return f"{len(mine)} tensors, {different} of them not the same"


def _told(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, sorted(value))) or "none"
    names = getattr(value, "__struct_fields__", ())
    fields = value if isinstance(value, dict) else {name: getattr(value, name) for name in names}
    if not fields:
        return "none" if fields is value else str(value)
    return ", ".join(f"{name.rstrip('_')} {_inside(item)}" for name, item in fields.items())


def _inside(value: object) -> str:
    told = _told(value)
    return f"({told})" if ", " in told else told


def _size(change: RangeChange) -> float:
    """Return how large a change is; signs and what is not finite come first."""
    ratio = change.ratio
    return abs(math.log(ratio)) if 0 < ratio < math.inf else math.inf


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
