"""From a pipeline file or a release to a running service that says how it stands.

The signs of life of a running pipeline: what systemd hears, and the health file, both from real progress.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edge.config.pipeline import Pipeline, load_pipeline
from edge.device.health import Health, StreamHealth, write_health
from edge.device.layout import Layout
from edge.device.lock import service_lock
from edge.device.units import Notifier, unit_folder
from edge.runtime.look.status import Rates
from edge.runtime.pipeline.counters import RunReport
from edge.runtime.serve.engine import Deployed, open_release, warm_up
from edge.runtime.serve.overload import Admission, Overload, Relief, measure_engine
from edge.runtime.serve.parts import build_parts
from edge.runtime.serve.service import PipelineParts, Service
from edge.types import StreamState

__all__ = ["Heartbeat", "Serving", "alone", "health_path", "open_serving", "serve_pipeline"]

_log = logging.getLogger(__name__)
_HEALTH_EVERY_S = 1.0
_BEATS_PER_WATCHDOG = 3
_LOADING_STEP_S = 120.0  # for one step of a start; a step that takes longer is stuck


def health_path(given: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return where the health file goes: as given, else into systemd's folder; a run by hand has none.

    Those of the device's service are that service's alone, whoever may write there: by them a release is judged.
    """
    folder = unit_folder("RUNTIME_DIRECTORY", environ)
    return folder / Layout().health.name if given is None and folder is not None else given


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hold the folders that systemd gives a service for its files; ConfigError where another one does.

    Root's run by hand beside the device's service is refused, too: a broker throws one of both out for the other.
    """
    with contextlib.ExitStack() as stack:
        if unit_folder("RUNTIME_DIRECTORY") is None and (of_service := Layout().health.parent).is_dir():
            with service_lock(of_service):
                pass
        for folder in {unit_folder("STATE_DIRECTORY"), unit_folder("RUNTIME_DIRECTORY")}:
            if folder is not None and folder.is_dir():
                stack.enter_context(service_lock(folder))
        yield


class Heartbeat:
    """Tells systemd and the health file how a start and a run go on; never raises.

    `release`: name of the release that runs; "" for a pipeline file.
    """

    def __init__(
        self, notifier: Notifier, *, path: Path | None, release: str = "", clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._notifier = notifier
        self._path = path
        self._release = release
        self._rates, self._clock_s = Rates(), clock_s
        self._beat_s = None if notifier.watchdog_s is None else notifier.watchdog_s / _BEATS_PER_WATCHDOG
        self._beat_due_s = clock_s()
        self._turns = self._batches = 0  # at the last beat
        self._is_broken = False
        self._hanging: tuple[str, ...] = ()
        self._were_hanging: tuple[str, ...] = ()

    @property
    def every_s(self) -> float:
        """How often `tick` wants to be called."""
        return _HEALTH_EVERY_S if self._beat_s is None else min(_HEALTH_EVERY_S, self._beat_s)

    def loading(self, what: str) -> None:
        """A step of the start begins; it may take its time."""
        self._notifier.tell(f"STATUS={what}", f"EXTEND_TIMEOUT_USEC={round(_LOADING_STEP_S * 1e6)}")

    def ready(self) -> None:
        """The engine is loaded and has inferred a batch."""
        self._notifier.tell("READY=1", "STATUS=running")

    def tick(self, report: RunReport) -> None:
        """Say how it stands, and that it is alive if it has got on and nothing hangs."""
        self._name_hanging(report.hanging)
        if self._beat_s is not None and self._clock_s() >= self._beat_due_s and self._has_got_on(report):
            self._beat_due_s = self._clock_s() + self._beat_s
            self._turns, self._batches = report.turns, report.batches
            self._notifier.tell("WATCHDOG=1")
        fps = sum(self._rates.of(report, now_s=self._clock_s()).values())
        self._notifier.tell(f"STATUS={_status(report, fps)}")
        if self._path is not None:
            self._write(self._path, health_from_report(report, release=self._release))

    def stopping(self) -> None:
        """The run ends; what is in flight is still delivered."""
        self._notifier.tell("STOPPING=1", "STATUS=stopping")

    def _has_got_on(self, report: RunReport) -> bool:
        """Return whether nothing hangs, and the loop has turned, and inferred if there was something to.

        A thread that always sends `WATCHDOG=1` would hide the hang that it is for. Cameras that give no frame, for
        however long, are no reason: a thread that hangs while it reads one is named.
        """
        has_inferred = report.batches != self._batches or not report.has_work
        return not report.hanging and report.turns != self._turns and has_inferred

    def _name_hanging(self, names: tuple[str, ...]) -> None:
        # Twice: behind a suspended machine all seem to hang at the first look.
        still = tuple(name for name in names if name in self._were_hanging)
        if still and still != self._hanging:
            _log.error("threads hang, the watchdog is not fed names=%s", ",".join(still))
        self._hanging, self._were_hanging = still, names

    def _write(self, path: Path, health: Health) -> None:
        try:
            write_health(path, health)
        except OSError as error:
            if not self._is_broken:  # once is enough for the journal
                _log.warning("health file cannot be written path=%s reason=%s", path, error.strerror)
            self._is_broken = True
        else:
            self._is_broken = False


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


def _status(report: RunReport, fps: float) -> str:
    up = sum(report.statuses[one.stream].state is StreamState.UP for one in report.streams)
    parts = [f"{up}/{len(report.streams)} streams", f"{fps:.0f} fps"]
    if report.hanging:
        parts.append(f"hanging: {', '.join(report.hanging)}")
    mqtt = report.published.get("mqtt")
    if mqtt is not None:
        parts.append("mqtt ok" if mqtt["connected"] else "mqtt not connected")
    return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A pipeline to run, read and verified; `deployed` is None for a pipeline file.

    `socket_path` is where the status page is served, beside the health file; None: nowhere.
    """

    pipeline: Pipeline
    deployed: Deployed | None
    heartbeat: Heartbeat
    socket_path: Path | None = None

    def build(
        self, *, annotate_dir: Path | None = None, annotate_every_s: float = 1.0, frames_dir: Path | None = None
    ) -> PipelineParts:
        self.heartbeat.loading("loading the engine")
        return build_parts(
            self.pipeline,
            deployed=self.deployed,
            annotate_dir=annotate_dir,
            annotate_every_s=annotate_every_s,
            frames_dir=frames_dir,
            socket_path=self.socket_path,
        )


def open_serving(*, path: Path | None, release_dir: Path | None, health: Path | None) -> Serving:
    """Return what is to run: the pipeline at `path`, or else the release in `release_dir`.

    Args:
        path: a pipeline file; None: the release.
        release_dir: a release's folder on this device, or `current`.
        health: where the health file goes; None: into systemd's folder, if there is one.

    Raises `ConfigError` if the file cannot be used as written, or the release is not what it was.
    """
    notifier = Notifier()
    notifier.tell("STATUS=reading what to run")
    if release_dir is None:
        if path is None:
            raise ValueError("neither a pipeline file nor a release")
        pipeline, deployed = load_pipeline(path), None
    else:
        pipeline, deployed = open_release(release_dir)
    path = health_path(health)
    return Serving(
        pipeline=pipeline,
        deployed=deployed,
        heartbeat=Heartbeat(notifier, path=path, release="" if deployed is None else deployed.release),
        socket_path=None if path is None else path.with_name(Layout().http_socket.name),
    )


def serve_pipeline(
    parts: PipelineParts,
    heartbeat: Heartbeat,
    stop: threading.Event,
    *,
    duration_s: float | None = None,
    reload: threading.Event | None = None,
    on_tick: Callable[[RunReport], None] = lambda report: None,
    on_end: Callable[[RunReport], None] = lambda report: None,
) -> RunReport:
    """Run the parts until `stop` is set, `duration_s` is over or every stream has ended; return the final account.

    Args:
        reload: when set, the streams are taken over from the pipeline file anew.
        on_tick: takes the account so far, about once a second.
        on_end: takes the final account, also where the engine has failed.

    Raises `EngineError` if the engine fails; `ConfigError` if it cannot serve what the streams state, and the pipeline
    file asks to be refused then.
    """
    heartbeat.loading("warming up the engine")
    try:
        warm_up(parts.inference.engine)
        admission = _admission(parts)
    except BaseException:
        parts.inference.engine.close()
        parts.publisher.close()
        raise
    heartbeat.ready()
    alarm, batcher = parts.states.alarm, parts.batcher
    overload = Overload(functools.partial(alarm, about="overload"), parts.states.overload, batcher)
    relief = Relief(parts.orders, batcher, tell=functools.partial(alarm, about="relief"), build_runs=parts.build_runs)

    def tick(report: RunReport) -> None:
        heartbeat.tick(report)
        overload.tick(report)
        alarm(parts.publisher.alarm, about="publisher")
        if parts.overload.adapt:
            relief.tick(report)
        if admission is not None:
            admission.tick(report)
        for tell in parts.tellers:
            tell()
        if parts.status is not None:
            parts.status.tick(report)
        on_tick(report)

    with contextlib.ExitStack() as stack:
        if parts.status is not None:
            parts.status.start()
            stack.callback(parts.status.close)
        return Service(parts, on_stop=heartbeat.stopping).run(
            stop, duration_s=duration_s, on_tick=tick, tick_s=heartbeat.every_s, reload=reload, on_end=on_end
        )


def _admission(parts: PipelineParts) -> Admission | None:
    at_start = parts.overload.at_start
    if at_start == "ignore" or not parts.stated_fps:
        return None
    admission = Admission(
        measure_engine(parts.inference.engine),
        parts.batcher,
        tell=functools.partial(parts.states.alarm, about="admission"),
    )
    admission.at_start(parts.stated_fps, refuses=at_start == "refuse")
    return admission
