"""Leaves out what the machine cannot infer, step by step, and says so.

Whether the engine can serve what the streams ask for, measured with the engine that serves; with figures, if not.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edge.errors import ConfigError
from edge.media.rate import Caps
from edge.protocols import Engine
from edge.runtime.pipeline.batcher import Batcher
from edge.runtime.pipeline.counters import RunReport, StreamReport
from edge.runtime.pipeline.shares import FEW, TOO_MUCH, FrameCounts, Ladder, Terms, fair_caps
from edge.types import DropReason, StreamId, StreamState

__all__ = [
    "Admission",
    "EngineSpeed",
    "Overload",
    "Relief",
    "judge_admission",
    "measure_engine",
]

_log = logging.getLogger(__name__)
_WINDOW_S = 10.0
_WINDOWS = 3  # in a row: a burst is no overload, and a lull is not its end
_LOST = (DropReason.LATE, DropReason.SUPERSEDED, DropReason.YIELDED, DropReason.STALE)
_STEP_WINDOW_S = 5.0
_NEVER_BUSY_S = 0.01  # an engine that had less to do could do anything
_BESIDE_A_BUILD = 0.5  # of the engine's time: kernels that a build times beside a busy GPU are judged wrongly


class Windows:
    """Cuts the accounts of a run into windows of some seconds; one ends with the first account after its time.

    Frames go on the way in front of a stream's own limit, too: its terms say how many of them it could have wanted.
    A stream that a reload brings is in its first whole window: its account may be of days before it was taken out.
    """

    def __init__(self, window_s: float, batcher: Batcher) -> None:
        self._window_s, self._batcher = window_s, batcher
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
        window_s, terms = now_s - begun_s, self._batcher.terms
        new = {}
        for stream in filter(before.__contains__, counts):
            most_fps = terms.get(stream, Terms()).max_fps
            since = counts[stream].since(before[stream])
            new[stream] = since if most_fps is None else since.up_to(most_fps * window_s)
        return new, window_s, report.engine_busy_s - busy_s


class _Verdict:
    """Whether frames are lost, by windows in a row."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self.is_overloaded = False

    def changes(self, *, inferred: int, lost: int) -> bool:
        """Take a window; return whether it is another verdict now."""
        share = lost / max(1, inferred + lost)
        is_against = share <= FEW if self.is_overloaded else share > TOO_MUCH
        self._in_a_row = self._in_a_row + 1 if is_against else 0
        if self._in_a_row < _WINDOWS:
            return False
        self._in_a_row, self.is_overloaded = 0, not self.is_overloaded
        return True


class Overload:
    """Tells of an overload, in windows of ten seconds. What a stream's own `max_fps` drops is not wanted.
    `tell`: called with what is wrong in one sentence, and with None when it is over. The sentence stands for as long as
    the overload does, so it has no figures: the log has those of its beginning, the metrics those of now.
    """

    def __init__(
        self,
        tell: Callable[[str | None], None],
        tell_stream: Callable[[StreamId, str | None], None],
        batcher: Batcher,
    ) -> None:
        self._tell, self._tell_stream = tell, tell_stream
        self._windows = Windows(_WINDOW_S, batcher)
        self._verdict = _Verdict()
        self._verdicts: defaultdict[StreamId, _Verdict] = defaultdict(_Verdict)

    def tick(self, report: RunReport) -> None:
        window = self._windows.cut(report)
        if window is not None:
            self._judge(window[0], window[1])
            for gone in self._verdicts.keys() - window[0].keys():
                del self._verdicts[gone]
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
                *(stream, wanted_fps, inferred_fps),
            )
            self._tell_stream(stream, "overload: not every frame is inferred")
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
        self._tell("cannot keep up: not every frame is inferred")


class Relief:
    """Drives the ladder (`edge.runtime.pipeline.shares`) on windows of five seconds, and orders what streams leave out.

    Args:
        batcher: knows the streams that are live; the others lose nothing, and wait.
        tell: as that of `Overload`, about what is left out.
        build_runs: whether a build times kernels on the device that serves; the engine leaves it half of the time.
    """

    def __init__(
        self,
        orders: Caps,
        batcher: Batcher,
        *,
        tell: Callable[[str | None], None],
        build_runs: Callable[[], bool],
    ) -> None:
        self._orders, self._batcher, self._tell = orders, batcher, tell
        self._build_runs, self._is_beside = build_runs, False
        self._windows = Windows(_STEP_WINDOW_S, batcher)
        self._ladder = Ladder()

    def tick(self, report: RunReport) -> None:
        window = self._windows.cut(report)
        if window is None:
            return
        new, window_s, busy_s = window
        inferred = sum(one.inferred for one in new.values())
        live, terms = self._batcher.live, self._batcher.terms
        loads = {stream: one for stream, one in new.items() if stream in live}
        is_beside = self._build_runs()
        capacity_fps = (_BESIDE_A_BUILD if is_beside else 1.0) * inferred / max(busy_s, _NEVER_BUSY_S)
        makes_room = is_beside and not self._is_beside and inferred > 0  # an engine that stood still tells no rate
        self._is_beside = is_beside and (self._is_beside or makes_room)
        if makes_room:
            is_new = self._ladder.make_room(loads, terms, window_s=window_s, left_fps=capacity_fps)
        else:
            is_new = self._ladder.judge(loads, terms, window_s=window_s, capacity_fps=capacity_fps)
        if is_new:
            for stream in (*loads, *self._orders.in_force()):
                self._orders.of(stream).max_fps = self._ladder.caps.get(StreamId(stream))
            self._say(sum(one.wanted for one in loads.values()) / window_s)

    def _say(self, wanted_fps: float) -> None:
        caps = self._ladder.caps
        if not caps:
            _log.info("frame rates are no longer capped wanted_fps=%.1f", wanted_fps)
            self._tell(None)
            return
        told = ",".join(f"{stream}:{rate_text(fps)}" for stream, fps in sorted(caps.items()))
        why = "build" if self._is_beside else "overload"
        _log.warning("frame rates are capped wanted_fps=%.1f caps=%s reason=%s", wanted_fps, told, why)
        self._tell(f"{'a build runs; ' if self._is_beside else ''}frame rates are capped: {told}")


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


_MEASURE_S = 0.4
_FEWEST, _MOST = 2, 20  # batches
_TOLERANCE = 1.02  # cameras are not exact


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpeed:
    """Time of a full batch, without decoding."""

    rows: int
    batch_s: float

    @property
    def fps(self) -> float:
        """Frames per second, all streams together."""
        return self.rows / self.batch_s


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionVerdict:
    """Whether all that is wanted can be served, and how it stands in words."""

    is_served: bool
    text: str


def measure_engine(engine: Engine, *, clock_s: Callable[[], float] = time.perf_counter) -> EngineSpeed:
    """Infer a few full batches, one after the other; the engine is warm. Raises `EngineError` if one failed."""
    taken: list[float] = []
    while len(taken) < _FEWEST or (sum(taken) < _MEASURE_S and len(taken) < _MOST):
        begun_s = clock_s()
        engine.start(0, engine.max_batch)
        engine.wait(0)
        taken.append(clock_s() - begun_s)
    return EngineSpeed(rows=engine.max_batch, batch_s=statistics.median(taken))


def judge_admission(speed: EngineSpeed, wanted_fps: Mapping[StreamId, float | None]) -> AdmissionVerdict:
    """`wanted_fps`: of each live stream; None where that is not known."""
    known = {stream: fps for stream, fps in wanted_fps.items() if fps is not None}
    total_fps = sum(known.values())
    how = f"({speed.batch_s * 1e3:.1f} ms for a batch of {speed.rows}, measured)"
    measured = f"{rate_text(speed.fps)} are served {how}"
    left_out = "; decoding is not included"
    if not known:
        return AdmissionVerdict(
            is_served=True, text=f"no stream states its rate; {rate_text(speed.fps)} fps are served {how}{left_out}"
        )
    if len(known) < len(wanted_fps):
        left_out += f", nor are streams whose rate is not stated: {', '.join(sorted(set(wanted_fps) - set(known)))}"
    if total_fps <= speed.fps * _TOLERANCE:
        return AdmissionVerdict(is_served=True, text=f"{rate_text(total_fps)} fps are wanted, {measured}{left_out}")
    limit_fps = min(fair_caps(known, {}, total_fps=speed.fps).values(), default=0.0)
    streams = int(speed.fps * len(known) / total_fps)
    fits = f"max_fps {rate_text(limit_fps)} for each would fit, or {streams} of {len(known)} streams as they are"
    return AdmissionVerdict(
        is_served=False, text=f"{rate_text(total_fps)} fps are wanted, {measured}; {fits}{left_out}"
    )


class Admission:
    """Judges at the start by the rates that are stated, then by those that come, ten seconds after all do. That stands
    until the streams are others or half a minute says otherwise: a camera is set anew, a reload brings other limits.
    `tell`: called with what is wrong in one sentence, None when nothing is.
    """

    def __init__(
        self,
        speed: EngineSpeed,
        batcher: Batcher,
        *,
        tell: Callable[[str | None], None],
    ) -> None:
        self._speed, self._tell, self._batcher = speed, tell, batcher
        self._windows = Windows(_WINDOW_S, batcher)
        self._judged: frozenset[StreamId] = frozenset()
        self._is_served, self._against = True, 0  # as was said, and windows in a row that say otherwise
        _log.info("engine measured batch_ms=%.1f rows=%d fps=%.1f", speed.batch_s * 1e3, speed.rows, speed.fps)

    def at_start(self, stated_fps: Mapping[StreamId, float | None], *, refuses: bool) -> None:
        """Judge by what the pipeline file states. Raises `ConfigError` if it is too much and `refuses`."""
        verdict = judge_admission(self._speed, stated_fps)
        if refuses and not verdict.is_served:
            raise ConfigError(
                f"the engine cannot serve what the streams ask for: {verdict.text}",
                hint="lower max_fps, use int8 or a smaller model, or set overload: {at_start: warn}",
            )
        self._say(verdict)

    def tick(self, report: RunReport) -> None:
        """Streams that a reload brings are judged as well, once all live ones have had a whole window."""
        window = self._windows.cut(report)
        if window is None:
            return
        new, window_s, _ = window
        live = self._batcher.live
        are_up = all(one.state is StreamState.UP for one in report.statuses.values())
        if not live or not are_up or not all(stream in new and new[stream].wanted for stream in live):
            return
        verdict = judge_admission(self._speed, {stream: new[stream].wanted / window_s for stream in live})
        self._against = 0 if verdict.is_served is self._is_served else self._against + 1
        if live != self._judged or self._against >= _WINDOWS:
            self._judged = live
            self._say(verdict)

    def _say(self, verdict: AdmissionVerdict) -> None:
        self._is_served, self._against = verdict.is_served, 0
        if verdict.is_served:
            self._tell(None)
            return
        _log.warning("the engine cannot serve what the streams ask for reason=%s", verdict.text)
        self._tell(f"the engine cannot serve what the streams ask for: {verdict.text}")
