"""The numbers that were let go, as runs that become gap records: the lane of an outbox that is never evicted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from edge.publish.messages import GapReason
from edge.publish.outbox.entry import Entry, GapRun, entry_from_message

__all__ = ["Losses"]

# From so many waiting gap records on, new ones are merged over delivered numbers (`exact` false) instead of added.
_MAX_RUNS = 256


class Losses:
    """Not thread-safe: an outbox holds its lock."""

    def __init__(self, *, device: str) -> None:
        self._device = device
        self._records: deque[Entry] = deque()  # made already: they were sent, and came back
        self._runs: deque[GapRun] = deque()
        self._open_runs: dict[tuple[str, str], GapRun] = {}

    def __len__(self) -> int:
        return len(self._records) + len(self._runs)

    @property
    def numbers(self) -> int:
        """How many numbers the waiting records name."""
        return sum(entry.gap_count for entry in self._records) + sum(run.count for run in self._runs)

    def add(self, entry: Entry, reason: GapReason) -> bool:
        """Declare the number of `entry`; return whether that makes one more record."""
        number, is_exact = entry.number, not entry.was_sent
        assert number is not None
        run = self._open_runs.get((number.stream, number.of))
        is_few = len(self._runs) < _MAX_RUNS
        if run is not None and run.takes(number, reason, is_exact=is_exact, is_contiguous_only=is_few):
            return False
        run = GapRun(reason, number, number, is_exact=is_exact)
        self._runs.append(run)
        self._open_runs[number.stream, number.of] = run
        return True

    def take(self) -> Entry | None:
        """Return the next record; None when there is none."""
        if self._records:
            return self._records.popleft()
        if not self._runs:
            return None
        run = self._runs.popleft()
        key = run.first.stream, run.first.of
        if self._open_runs.get(key) is run:
            del self._open_runs[key]
        return entry_from_message(run.message(self._device))

    def put_back(self, entry: Entry) -> None:
        """Return a record to the head."""
        self._records.appendleft(entry)

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add records that were made elsewhere."""
        self._records.extend(entries)

    def payloads(self) -> Iterator[bytes]:
        """Yield what would be sent if all were taken now."""
        yield from (entry.encode() for entry in self._records)
        yield from (run.message(self._device).encode() for run in self._runs)

    def clear(self) -> None:
        """Forget all."""
        self._records.clear()
        self._runs.clear()
        self._open_runs.clear()
