"""Leaves out what the machine cannot infer, step by step, and says with figures how it stands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edge.media.shedding import Orders
from edge.runtime.pipeline.counters import StreamReport
from edge.runtime.pipeline.ladder import Ladder, Level, Load
from edge.runtime.pipeline.report import RunReport
from edge.runtime.pipeline.shares import Terms
from edge.types import DropReason, StreamId

__all__ = ["Counts", "Overload", "Relief", "Windows"]

_log = logging.getLogger(__name__)
_WINDOW_S = 10.0
_WINDOWS = 3  # in a row: a burst is no overload, and a lull is not its end
_TOO_MUCH, _FEW = 0.10, 0.03  # shares of the wanted frames that are lost; in between it stays as it is
_LOST = (DropReason.LATE, DropReason.SUPERSEDED, DropReason.YIELDED, DropReason.STALE)
_STEP_WINDOW_S = 5.0
_NEVER_BUSY_S = 0.01  # an engine that had less to do could do anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Frames of a stream: inferred, lost, and shed (capped or skipped); without those that its own `max_fps` drops."""

    inferred: int = 0
    lost: int = 0
    shed: int = 0

    def since(self, before: Counts) -> Counts:
        """Return what came after `before`."""
        return Counts(
            inferred=self.inferred - before.inferred, lost=self.lost - before.lost, shed=self.shed - before.shed
        )

    @property
    def wanted(self) -> int:
        """All of them."""
        return self.inferred + self.lost + self.shed


class Windows:
    """Cuts the accounts of a run into windows of some seconds; one ends with the first account after its time."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._begun_s: float | None = None
        self._busy_s = 0.0
        self._before: Mapping[StreamId, Counts] = {}

    def cut(self, report: RunReport) -> tuple[Mapping[StreamId, Counts], float, float] | None:
        """Return what happened in a window, its length, and how long of that the engine was at work; None within."""
        now_s = report.times.elapsed_s
        if self._begun_s is not None and now_s - self._begun_s < self._window_s:
            return None
        counts = {one.stream: _counts(one) for one in report.streams}
        begun_s, before, busy_s = self._begun_s, self._before, self._busy_s
        self._begun_s, self._before, self._busy_s = now_s, counts, report.engine_busy_s
        if begun_s is None:
            return None
        new = {stream: one.since(before.get(stream, Counts())) for stream, one in counts.items()}
        return new, now_s - begun_s, report.engine_busy_s - busy_s


class Overload:
    """Tells of an overload, in windows of ten seconds. What a stream's own `max_fps` drops is not wanted.

    Args:
        tell: called with what is wrong in one sentence, and with None when it is over.
    """

    def __init__(self, tell: Callable[[str | None], None]) -> None:
        self._tell = tell
        self._windows = Windows(_WINDOW_S)
        self._in_a_row = 0
        self._is_overloaded = False

    def tick(self, report: RunReport) -> None:
        """Take an account of the run so far."""
        window = self._windows.cut(report)
        if window is not None:
            self._judge(window[0], window[1])

    def _judge(self, new: Mapping[StreamId, Counts], window_s: float) -> None:
        inferred = sum(one.inferred for one in new.values())
        lost = sum(one.lost + one.shed for one in new.values())
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
        worst = max(new, key=lambda stream: new[stream].lost + new[stream].shed)
        _log.warning(
            "the machine cannot keep up wanted_fps=%.1f inferred_fps=%.1f worst=%s", wanted_fps, inferred_fps, worst
        )
        self._tell(
            f"cannot keep up: {inferred_fps:.1f} of {wanted_fps:.1f} fps are inferred; {worst} loses "
            f"{(new[worst].lost + new[worst].shed) / window_s:.1f}"
        )


class Relief:
    """Drives the ladder (`edge.runtime.pipeline.ladder`) on windows of five seconds, and orders what streams leave out.

    Args:
        orders: of the streams.
        live: gives the streams that are live; the others lose nothing, and wait.
        terms: gives what streams may ask for.
        tell: as that of `Overload`, about what is left out.
    """

    def __init__(
        self,
        orders: Orders,
        *,
        live: Callable[[], frozenset[StreamId]],
        terms: Callable[[], Mapping[StreamId, Terms]],
        tell: Callable[[str | None], None],
    ) -> None:
        self._orders, self._live, self._terms, self._tell = orders, live, terms, tell
        self._windows = Windows(_STEP_WINDOW_S)
        self._ladder = Ladder()

    def tick(self, report: RunReport) -> None:
        """Take an account of the run so far."""
        window = self._windows.cut(report)
        if window is None:
            return
        new, window_s, busy_s = window
        inferred = sum(one.inferred for one in new.values())
        live = self._live()
        loads = {
            stream: Load(wanted=one.wanted, inferred=one.inferred, lost=one.lost)
            for stream, one in new.items()
            if stream in live
        }
        before = self._ladder.level
        capacity_fps = inferred / max(busy_s, _NEVER_BUSY_S)
        if self._ladder.judge(loads, self._terms(), window_s=window_s, capacity_fps=capacity_fps):
            for stream in (*loads, *self._orders.in_force()):
                self._orders.of(stream).now = self._ladder.shedding_of(StreamId(stream))
            self._say(before, sum(one.wanted for one in loads.values()) / window_s)

    def _say(self, before: Level, wanted_fps: float) -> None:
        level, caps = self._ladder.level, self._ladder.caps
        if level is Level.FULL:
            _log.info("all frames are taken again wanted_fps=%.1f", wanted_fps)
            self._tell(None)
            return
        told = ",".join(f"{stream}:{fps:.1f}" for stream, fps in sorted(caps.items())) or "none"
        if level is Level.SKIPPING:
            _log.warning("pictures that no other refers to are not decoded wanted_fps=%.1f caps=%s", wanted_fps, told)
        elif before is Level.SKIPPING:
            _log.info("all pictures are decoded again wanted_fps=%.1f caps=%s", wanted_fps, told)
        else:
            _log.warning("frame rates are capped wanted_fps=%.1f caps=%s", wanted_fps, told)
        skipping = "; pictures that no other refers to are not decoded" if level is Level.SKIPPING else ""
        self._tell(f"frame rates are capped: {told}{skipping}")


def _counts(stream: StreamReport) -> Counts:
    dropped = stream.dropped
    return Counts(
        inferred=stream.inferred,
        lost=sum(dropped.get(reason, 0) for reason in _LOST),
        shed=dropped.get(DropReason.CAPPED, 0) + stream.skipped,
    )
