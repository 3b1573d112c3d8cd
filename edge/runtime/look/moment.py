"""What is known of a run at one moment, put together for those who show it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from edge.device.sensors import Sensors
from edge.publish.device_messages import DeployMessage, DeviceState
from edge.publish.messages import InfoMessage
from edge.runtime.pipeline.report import RunReport
from edge.types import StreamId

__all__ = ["Rates", "Snapshot"]

_WINDOW_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A run as of its last account; `release` is None for a pipeline file, `state` what subscribers are told.

    `fps` is what was inferred of each stream in the last seconds, `at_s` the monotonic time of the account.
    """

    info: InfoMessage
    report: RunReport
    at_s: float
    fps: dict[StreamId, float] = field(default_factory=dict)
    state: DeviceState = "online"
    reason: str | None = None
    sensors: Sensors = field(default_factory=Sensors)
    switch: DeployMessage | None = None
    is_on_trial: bool | None = None


class Rates:
    """Frames per second over the last seconds, from accounts at any intervals."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[StreamId, int]]] = deque()

    def of(self, report: RunReport, *, now_s: float | None = None) -> dict[StreamId, float]:
        """Return the rate of each stream now, and remember the account."""
        now_s = time.monotonic() if now_s is None else now_s
        counts = {one.stream: one.inferred for one in report.streams}
        while len(self._seen) > 1 and now_s - self._seen[1][0] >= _WINDOW_S:
            self._seen.popleft()
        then_s, before = self._seen[0] if self._seen else (now_s, counts)
        self._seen.append((now_s, counts))
        span_s = now_s - then_s
        return {name: (n - before.get(name, 0)) / span_s if span_s > 0 else 0.0 for name, n in counts.items()}
