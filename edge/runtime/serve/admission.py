"""Whether the engine can serve what the streams ask for, measured with the engine that serves; with figures, if not."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edge.errors import ConfigError
from edge.protocols import Engine
from edge.runtime.pipeline.ladder import fair_caps
from edge.runtime.pipeline.report import RunReport
from edge.runtime.serve.overload import Windows, rate_text
from edge.types import StreamId, StreamState

__all__ = ["Admission", "AdmissionVerdict", "EngineSpeed", "judge_admission", "measure_engine"]

_log = logging.getLogger(__name__)
_MEASURE_S = 0.4
_FEWEST, _MOST = 2, 20  # batches
_WINDOW_S = 10.0
_TOLERANCE = 1.02  # cameras are not exact


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpeed:
    """What a full batch takes; decoding is not in it."""

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
    """Infer a few full batches, one after the other as in service; the engine is warm.

    Raises:
        EngineError: if the inference failed.
    """
    taken: list[float] = []
    while len(taken) < _FEWEST or (sum(taken) < _MEASURE_S and len(taken) < _MOST):
        begun_s = clock_s()
        engine.start(0, engine.max_batch)
        engine.wait(0)
        taken.append(clock_s() - begun_s)
    return EngineSpeed(rows=engine.max_batch, batch_s=statistics.median(taken))


def judge_admission(speed: EngineSpeed, wanted_fps: Mapping[StreamId, float | None]) -> AdmissionVerdict:
    """Hold what streams want against what the engine does.

    Args:
        speed: of the engine.
        wanted_fps: of each live stream; None where that is not known.
    """
    known = {stream: fps for stream, fps in wanted_fps.items() if fps is not None}
    total_fps = sum(known.values())
    how = f"({speed.batch_s * 1e3:.1f} ms for a batch of {speed.rows}, measured)"
    measured = f"{rate_text(speed.fps)} are served {how}"
    left_out = "; decoding is not included"
    if wanted_fps and not known:
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
    """Judges at the start by the rates that are stated, and once more by those that come, ten seconds after all do.

    Args:
        speed: of the engine.
        tell: called with what is wrong in one sentence, None when nothing is.
        live: gives the streams that are live.
    """

    def __init__(
        self,
        speed: EngineSpeed,
        *,
        tell: Callable[[str | None], None],
        live: Callable[[], frozenset[StreamId]],
    ) -> None:
        self._speed, self._tell, self._live = speed, tell, live
        self._windows = Windows(_WINDOW_S)
        self._judged: frozenset[StreamId] = frozenset()
        _log.info("engine measured batch_ms=%.1f rows=%d fps=%.1f", speed.batch_s * 1e3, speed.rows, speed.fps)

    def at_start(self, stated_fps: Mapping[StreamId, float | None], *, refuses: bool) -> None:
        """Judge by what the pipeline file states.

        Raises:
            ConfigError: if it is too much and `refuses`.
        """
        verdict = judge_admission(self._speed, stated_fps)
        if refuses and not verdict.is_served:
            raise ConfigError(
                f"the engine cannot serve what the streams ask for: {verdict.text}",
                hint="lower max_fps, use int8 or a smaller model, or set overload: {at_start: warn}",
            )
        self._say(verdict)

    def tick(self, report: RunReport) -> None:
        """Take an account of the run so far; streams that a reload brings are judged as well."""
        window = self._windows.cut(report)
        if window is None:
            return
        new, window_s, _ = window
        live = self._live() & new.keys()
        are_up = all(one.state is StreamState.UP for one in report.statuses.values())
        if live == self._judged or not live or not are_up or not all(new[stream].wanted for stream in live):
            return
        self._judged = live
        self._say(judge_admission(self._speed, {stream: new[stream].wanted / window_s for stream in live}))

    def _say(self, verdict: AdmissionVerdict) -> None:
        if verdict.is_served:
            self._tell(None)
            return
        _log.warning("the engine cannot serve what the streams ask for reason=%s", verdict.text)
        self._tell(f"the engine cannot serve what the streams ask for: {verdict.text}")
