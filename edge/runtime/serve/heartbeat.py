"""The signs of life of a running pipeline: what systemd hears, and the health file, both from real progress."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from edge.device.health import Health, StreamHealth, write_health
from edge.device.notify import Notifier
from edge.runtime.pipeline.report import RunReport
from edge.types import StreamState

__all__ = ["Heartbeat", "health_from_report", "health_path"]

_log = logging.getLogger(__name__)
_HEALTH_EVERY_S = 1.0
_BEATS_PER_WATCHDOG = 3
_LOADING_STEP_S = 120.0  # for one step of a start; a step that takes longer is stuck


def health_path(given: Path | None, default: Path, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return where the health file goes: as given, systemd's folder, or `default` where its folder is ours to write."""
    if given is not None:
        return given
    if environ.get("RUNTIME_DIRECTORY"):  # systemd's; several are separated by colons
        return Path(environ["RUNTIME_DIRECTORY"].split(":")[0]) / default.name
    return default if os.access(default.parent, os.W_OK) else None


class Heartbeat:
    """Tells systemd and the health file how a start and a run go on; never raises.

    Args:
        notifier: systemd's socket.
        path: the health file; None: there is none.
        release: name of the release that runs; "" for a pipeline file.
        clock_s: monotonic seconds.
    """

    def __init__(
        self, notifier: Notifier, *, path: Path | None, release: str = "", clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._notifier = notifier
        self._path = path
        self._release = release
        self._watchdog = _Watchdog(notifier.watchdog_s, clock_s)
        self._rate = _Rate(clock_s)
        self._is_broken = False
        self._hanging: tuple[str, ...] = ()

    @property
    def every_s(self) -> float:
        """How often `tick` wants to be called."""
        watchdog_s = self._notifier.watchdog_s
        return _HEALTH_EVERY_S if watchdog_s is None else min(_HEALTH_EVERY_S, watchdog_s / _BEATS_PER_WATCHDOG)

    def loading(self, what: str) -> None:
        """A step of the start begins; it may take its time."""
        self._notifier.tell(f"STATUS={what}", f"EXTEND_TIMEOUT_USEC={round(_LOADING_STEP_S * 1e6)}")

    def ready(self) -> None:
        """The engine is loaded and has inferred a batch."""
        self._notifier.tell("READY=1", "STATUS=running")

    def tick(self, report: RunReport) -> None:
        """Say how it stands, and that it is alive if it has got on and nothing hangs."""
        self._name_hanging(report.hanging)
        if self._watchdog.has_got_on(report):
            self._notifier.tell("WATCHDOG=1")
        self._notifier.tell(f"STATUS={_status(report, self._rate.per_s(report.inferred))}")
        if self._path is not None:
            self._write(self._path, health_from_report(report, release=self._release))

    def stopping(self) -> None:
        """The run ends; what is in flight is still delivered."""
        self._notifier.tell("STOPPING=1", "STATUS=stopping")

    def _name_hanging(self, names: tuple[str, ...]) -> None:
        if names != self._hanging and names:
            _log.error("threads hang, the watchdog is not fed names=%s", ",".join(names))
        self._hanging = names

    def _write(self, path: Path, health: Health) -> None:
        try:
            write_health(path, health)
        except OSError as error:
            if not self._is_broken:  # once is enough for the journal
                _log.warning("health file cannot be written path=%s reason=%s", path, error.strerror)
            self._is_broken = True


def health_from_report(report: RunReport, *, release: str) -> Health:
    """Return what the one who judges a switch has to know of a run, as of now."""
    mqtt = report.published.get("mqtt")
    return Health(
        release=release,
        invocation=os.environ.get("INVOCATION_ID") or str(os.getpid()),
        at_boottime_ns=time.clock_gettime_ns(time.CLOCK_BOOTTIME),
        is_ready=True,
        batches=report.batches,
        infer_p95_ms=report.recent.infer_p95_ms,
        age_p95_ms=report.recent.age_p95_ms,
        mqtt_connected=None if mqtt is None else bool(mqtt["connected"]),
        mqtt_acknowledged=0 if mqtt is None else mqtt["delivered"],
        streams={
            one.stream: StreamHealth(
                state=report.statuses[one.stream].state.value, decoded=one.decoded, inferred=one.inferred
            )
            for one in report.streams
        },
    )


class _Watchdog:
    """Decides when `WATCHDOG=1` may be sent: a thread that always sends it would hide the hang that it is for."""

    def __init__(self, watchdog_s: float | None, clock_s: Callable[[], float]) -> None:
        self._every_s = None if watchdog_s is None else watchdog_s / _BEATS_PER_WATCHDOG
        self._clock_s = clock_s
        self._due_s = clock_s()
        self._turns = self._batches = 0

    def has_got_on(self, report: RunReport) -> bool:
        """Return whether it is time, nothing hangs, and the loop has turned, and inferred if there was something to.

        Cameras that give no frame, for however long, are no reason: whoever hangs while reading one is named.
        """
        now_s = self._clock_s()
        if self._every_s is None or now_s < self._due_s or report.hanging or report.turns == self._turns:
            return False
        if report.batches == self._batches and report.has_work:
            return False
        self._due_s = now_s + self._every_s
        self._turns, self._batches = report.turns, report.batches
        return True


class _Rate:
    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._at_s, self._count = clock_s(), 0

    def per_s(self, count: int) -> float:
        now_s = self._clock_s()
        rate = (count - self._count) / max(now_s - self._at_s, 1e-9)
        self._at_s, self._count = now_s, count
        return rate


def _status(report: RunReport, fps: float) -> str:
    up = sum(report.statuses[one.stream].state is StreamState.UP for one in report.streams)
    parts = [f"{up}/{len(report.streams)} streams", f"{fps:.0f} fps"]
    if report.hanging:
        parts.append(f"hanging: {', '.join(report.hanging)}")
    mqtt = report.published.get("mqtt")
    if mqtt is not None:
        parts.append("mqtt ok" if mqtt["connected"] else "mqtt not connected")
    return ", ".join(parts)
