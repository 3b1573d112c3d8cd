"""Leaves out what the machine cannot infer, step by step, and says with figures how it stands."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edge.media.shedding import Orders
from edge.runtime.pipeline.counters import StreamReport
from edge.runtime.pipeline.ladder import Ladder, Level, StreamLoad
from edge.runtime.pipeline.report import RunReport
from edge.runtime.pipeline.shares import Terms
from edge.types import DropReason, StreamId

__all__ = ["FrameCounts", "Overload", "Relief", "Windows", "rate_text"]

_log = logging.getLogger(__name__)
_WINDOW_S = 10.0
_WINDOWS = 3  # in a row: a burst is no overload, and a lull is not its end
_TOO_MUCH, _FEW = 0.10, 0.03  # shares of the wanted frames that are lost; in between it stays as it is
_LOST = (DropReason.LATE, DropReason.SUPERSEDED, DropReason.YIELDED, DropReason.STALE)
_STEP_WINDOW_S = 5.0
_NEVER_BUSY_S = 0.01  # an engine that had less to do could do anything


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameCounts:
    """Frames of a stream: inferred, lost, and shed (capped or skipped); without those that its own `max_fps` drops."""

    inferred: int = 0
    lost: int = 0
    shed: int = 0

    def since(self, before: FrameCounts) -> FrameCounts:
        """Return what came after `before`."""
        return FrameCounts(
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
        self._before: Mapping[StreamId, FrameCounts] = {}

    def cut(self, report: RunReport) -> tuple[Mapping[StreamId, FrameCounts], float, float] | None:
        """Return what happened in a window, its length, and how long of that the engine was at work; None within."""
        now_s = report.times.elapsed_s
        if self._begun_s is not None and now_s - self._begun_s < self._window_s:
            return None
        counts = {one.stream: _counts(one) for one in report.streams}
        begun_s, before, busy_s = self._begun_s, self._before, self._busy_s
        self._begun_s, self._before, self._busy_s = now_s, counts, report.engine_busy_s
        if begun_s is None:
            return None
        new = {stream: one.since(before.get(stream, FrameCounts())) for stream, one in counts.items()}
        return new, now_s - begun_s, report.engine_busy_s - busy_s


class _Verdict:
    """Whether frames are lost, by windows in a row."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self.is_overloaded = False

    def changes(self, *, inferred: int, lost: int) -> bool:
        """Take a window; return whether it is another verdict now."""
        share = lost / max(1, inferred + lost)
        is_against = share <= _FEW if self.is_overloaded else share > _TOO_MUCH
        self._in_a_row = self._in_a_row + 1 if is_against else 0
        if self._in_a_row < _WINDOWS:
            return False
        self._in_a_row, self.is_overloaded = 0, not self.is_overloaded
        return True


class Overload:
    """Tells of an overload, in windows of ten seconds. What a stream's own `max_fps` drops is not wanted.

    Args:
        tell: called with what is wrong in one sentence, and with None when it is over.
        tell_stream: the same of one stream.
    """

    def __init__(
        self,
        tell: Callable[[str | None], None],
        tell_stream: Callable[[StreamId, str | None], None],
    ) -> None:
        self._tell, self._tell_stream = tell, tell_stream
        self._windows = Windows(_WINDOW_S)
        self._verdict = _Verdict()
        self._verdicts: defaultdict[StreamId, _Verdict] = defaultdict(_Verdict)

    def tick(self, report: RunReport) -> None:
        """Take an account of the run so far."""
        window = self._windows.cut(report)
        if window is not None:
            self._judge(window[0], window[1])
            for stream, counts in window[0].items():
                self._judge_stream(stream, counts, window[1])

    def _judge_stream(self, stream: StreamId, new: FrameCounts, window_s: float) -> None:
        verdict = self._verdicts[stream]
        if not verdict.changes(inferred=new.inferred, lost=new.lost + new.shed):
            return
        inferred_fps, wanted_fps = new.inferred / window_s, new.wanted / window_s
        if verdict.is_overloaded:
            _log.warning(
                "frames of a stream are not inferred stream=%s wanted_fps=%.2f inferred_fps=%.2f",
                stream,
                wanted_fps,
                inferred_fps,
            )
            self._tell_stream(
                stream, f"overload: {rate_text(inferred_fps)} of {rate_text(wanted_fps)} fps are inferred"
            )
        else:
            _log.info("frames of a stream are inferred again stream=%s inferred_fps=%.2f", stream, inferred_fps)
            self._tell_stream(stream, None)

    def _judge(self, new: Mapping[StreamId, FrameCounts], window_s: float) -> None:
        inferred = sum(one.inferred for one in new.values())
        lost = sum(one.lost + one.shed for one in new.values())
        if not self._verdict.changes(inferred=inferred, lost=lost):
            return
        if not self._verdict.is_overloaded:
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
            stream: StreamLoad(wanted=one.wanted, inferred=one.inferred, lost=one.lost)
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
        told = ",".join(f"{stream}:{rate_text(fps)}" for stream, fps in sorted(caps.items())) or "none"
        if level is Level.SKIPPING:
            _log.warning("pictures that no other refers to are not decoded wanted_fps=%.1f caps=%s", wanted_fps, told)
        elif before is Level.SKIPPING:
            _log.info("all pictures are decoded again wanted_fps=%.1f caps=%s", wanted_fps, told)
        else:
            _log.warning("frame rates are capped wanted_fps=%.1f caps=%s", wanted_fps, told)
        skipping = "; pictures that no other refers to are not decoded" if level is Level.SKIPPING else ""
        self._tell(f"frame rates are capped: {told}{skipping}")


def rate_text(fps: float) -> str:
    """Return e.g. `24.9`, and of a rate below one two digits, which count below a tenth: `0.20`, `0.0042`."""
    if fps >= 1:
        return f"{fps:.1f}"
    return f"{fps:.2f}" if fps >= 0.1 or fps == 0 else f"{fps:.2g}"


def _counts(stream: StreamReport) -> FrameCounts:
    dropped = stream.dropped
    return FrameCounts(
        inferred=stream.inferred,
        lost=sum(dropped.get(reason, 0) for reason in _LOST),
        shed=dropped.get(DropReason.CAPPED, 0) + stream.skipped,
    )
