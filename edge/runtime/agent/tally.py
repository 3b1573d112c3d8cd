"""What one connection leaves in the audit logs: each thing once, and how often it was repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from edge.device.audit import Kind

__all__ = ["Tally", "Told"]

# A line is a write to the flash, and costs whoever asks in a loop nothing. A push says about ten different things.
_MOST_LINES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A line of an audit log, save its time and where it comes from."""

    who: str
    what: str
    release: str | None
    result: str
    kind: Kind


class Tally:
    """Lines of one connection; `write` takes one, and how often it came.

    What changed something is always written. Of everything else the first is written at once; repeats, and whatever
    comes after 64 different lines, are counted, and `close` writes the counts. An agent that is killed loses them.
    """

    def __init__(self, write: Callable[[Told, int], None]) -> None:
        self._write = write
        self._seen: set[Told] = set()
        self._repeats: Counter[Told] = Counter()

    def tell(self, told: Told) -> None:
        """Write the line, or count it; DeployError `device.disk.*`."""
        if told.kind is Kind.CHANGE:
            self._write(told, 1)
        elif told in self._seen:
            self._repeats[told] += 1
        elif len(self._seen) < _MOST_LINES:
            self._seen.add(told)
            self._write(told, 1)
        else:
            self._repeats[_further(told.kind)] += 1

    def close(self) -> None:
        """Write the counts; DeployError `device.disk.*`."""
        for told, times in self._repeats.items():
            self._write(told, times)
        self._repeats.clear()


def _further(kind: Kind) -> Told:
    return Told(who="", what="others", release=None, result=f"more than {_MOST_LINES} different ones", kind=kind)
