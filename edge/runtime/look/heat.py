"""Whether the machine is held back by heat or power: looked at now and then, said once, taken back when it is over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from edge.device.sensors import Sensors, read_sensors

__all__ = ["HeatAlarm", "HeatWatch"]

_log = logging.getLogger(__name__)
_EVERY_S = 5.0
_CALM_S = 60.0


class HeatAlarm:
    """Decides from one look after the other; a pause between two throttlings is no end of the alarm.

    `text` is what is wrong, for people; None: nothing is.
    """

    def __init__(self, *, calm_s: float = _CALM_S) -> None:
        self._calm_s = calm_s
        self._events: Mapping[str, int] | None = None
        self._throttled_at_s = float("-inf")
        self.text: str | None = None

    def look(self, sensors: Sensors, *, now_s: float) -> None:
        before = sensors.events if self._events is None else self._events
        grown = [kind for kind, count in sensors.events.items() if count > before.get(kind, 0)]
        self._events = sensors.events
        reasons = [*sensors.throttled_by, *grown]
        if reasons:
            self._throttled_at_s = now_s
            self.text = self.text or _sentence(reasons, sensors)
        elif now_s - self._throttled_at_s >= self._calm_s:
            self.text = None


def _sentence(reasons: list[str], sensors: Sensors) -> str:
    measured = {name: zone.celsius for name, zone in sensors.zones.items() if zone.celsius is not None}
    hottest = max(measured, key=lambda name: measured[name] or 0, default=None)
    parts = [f"throttled by {', '.join(reasons)}"]
    if hottest is not None:
        parts.append(f"{hottest} at {measured[hottest]:.1f} °C")
    if sensors.mode is not None:
        parts.append(f"power mode {sensors.mode}")
    return "; ".join(parts)


class HeatWatch:
    """Looks every few seconds in a thread of its own: a sensor that hangs holds up nothing else.
    `on_alarm`: told, in that thread, what is wrong, and None when it is over.
    """

    def __init__(
        self,
        on_alarm: Callable[[str | None], None],
        *,
        read: Callable[[], Sensors] = read_sensors,
        every_s: float = _EVERY_S,
    ) -> None:
        self._on_alarm = on_alarm
        self._read = read
        self._every_s = every_s
        self._alarm = HeatAlarm()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heat", daemon=True)
        self.sensors = Sensors()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """A sensor that hangs is not waited for."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._look()
            self._stop.wait(self._every_s)

    def _look(self) -> None:
        before = self._alarm.text
        self.sensors = self._read()
        self._alarm.look(self.sensors, now_s=time.monotonic())
        now = self._alarm.text
        if now is not None and before is None:
            _log.warning("device throttled reason=%s", now)
        elif now is None and before is not None:
            _log.info("device no longer throttled was=%s", before)
        if now != before:
            self._on_alarm(now)
