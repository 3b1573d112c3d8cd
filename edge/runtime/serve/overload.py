"""Says with figures when the machine cannot infer what its cameras send, and when it can again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edge.runtime.pipeline.counters import StreamReport
from edge.runtime.pipeline.report import RunReport
from edge.types import DropReason, StreamId

__all__ = ["Overload"]

_log = logging.getLogger(__name__)
_WINDOW_S = 10.0
_WINDOWS = 3  # in a row: a burst is no overload, and a lull is not its end
_TOO_MUCH, _FEW = 0.10, 0.03  # shares of the wanted frames that are lost; in between it stays as it is
_LOST = (DropReason.LATE, DropReason.SUPERSEDED, DropReason.YIELDED, DropReason.STALE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    inferred: int = 0
    lost: int = 0

    def since(self, before: _Counts) -> _Counts:
        return _Counts(inferred=self.inferred - before.inferred, lost=self.lost - before.lost)


class Overload:
    """Looks at the counts of a run in windows of ten seconds. What a stream's own `max_fps` drops is not wanted.

    Args:
        tell: called with what is wrong in one sentence, and with None when it is over.
    """

    def __init__(self, tell: Callable[[str | None], None]) -> None:
        self._tell = tell
        self._begun_s: float | None = None
        self._before: Mapping[StreamId, _Counts] = {}
        self._in_a_row = 0
        self._is_overloaded = False

    def tick(self, report: RunReport) -> None:
        """Take an account of the run so far; a window ends with the first one after its ten seconds."""
        now_s = report.times.elapsed_s
        counts = {one.stream: _counts(one) for one in report.streams}
        if self._begun_s is None:
            self._begun_s, self._before = now_s, counts
            return
        if now_s - self._begun_s < _WINDOW_S:
            return
        window_s = now_s - self._begun_s
        new = {stream: one.since(self._before.get(stream, _Counts())) for stream, one in counts.items()}
        self._begun_s, self._before = now_s, counts
        self._judge(new, window_s)

    def _judge(self, new: Mapping[StreamId, _Counts], window_s: float) -> None:
        inferred, lost = sum(one.inferred for one in new.values()), sum(one.lost for one in new.values())
        share = lost / max(1, inferred + lost)
        is_against = share <= _FEW if self._is_overloaded else share > _TOO_MUCH
        self._in_a_row = self._in_a_row + 1 if is_against else 0
        if self._in_a_row < _WINDOWS:
            return
        self._in_a_row, self._is_overloaded = 0, not self._is_overloaded
        if not self._is_overloaded:
            _log.info("the machine keeps up again inferred_fps=%.1f", inferred / window_s)
            self._tell(None)
            return
        wanted_fps, inferred_fps = (inferred + lost) / window_s, inferred / window_s
        worst = max(new, key=lambda stream: new[stream].lost)
        _log.warning(
            "the machine cannot keep up wanted_fps=%.1f inferred_fps=%.1f worst=%s", wanted_fps, inferred_fps, worst
        )
        self._tell(
            f"cannot keep up: {inferred_fps:.1f} of {wanted_fps:.1f} fps are inferred; {worst} loses "
            f"{new[worst].lost / window_s:.1f}"
        )


def _counts(stream: StreamReport) -> _Counts:
    return _Counts(inferred=stream.inferred, lost=sum(stream.dropped.get(reason, 0) for reason in _LOST))
