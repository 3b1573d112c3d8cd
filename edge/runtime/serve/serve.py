"""From a pipeline file or a release to a running service that says how it stands."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edge.config.load import load_pipeline
from edge.config.pipeline import Pipeline
from edge.device.layout import Layout
from edge.device.notify import Notifier
from edge.runtime.pipeline.report import RunReport
from edge.runtime.serve.admission import Admission, measure_engine
from edge.runtime.serve.heartbeat import Heartbeat, health_path
from edge.runtime.serve.overload import Overload, Relief
from edge.runtime.serve.parts import build_parts
from edge.runtime.serve.release import Deployed, open_release
from edge.runtime.serve.service import PipelineParts, Service
from edge.runtime.serve.warm_up import warm_up

__all__ = ["Serving", "open_serving", "serve_pipeline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What is to run, read and verified; `deployed` is None for a pipeline file.

    `socket_path` is where the status page is served, beside the health file; None: nowhere.
    """

    pipeline: Pipeline
    deployed: Deployed | None
    heartbeat: Heartbeat
    socket_path: Path | None = None

    def build(
        self, *, annotate_dir: Path | None = None, annotate_every_s: float = 1.0, frames_dir: Path | None = None
    ) -> PipelineParts:
        """Return its parts, as `build_parts` does."""
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
        health: where the health file goes; None: to the place where a device has it, if there is one.

    Raises:
        ConfigError: if the file cannot be used as written, or the release is not what it was.
    """
    notifier = Notifier()
    notifier.tell("STATUS=reading what to run")
    if release_dir is None:
        if path is None:
            raise ValueError("neither a pipeline file nor a release")
        pipeline, deployed = load_pipeline(path), None
    else:
        pipeline, deployed = open_release(release_dir)
    path = health_path(health, Layout().health)
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
        parts: of the pipeline.
        heartbeat: hears how it goes on.
        stop: ends it.
        duration_s: ends it, too.
        reload: when set, the streams are taken over from the pipeline file anew.
        on_tick: takes the account so far, about once a second.
        on_end: takes the final account, also where the engine has failed.

    Raises:
        EngineError: if the engine fails.
        ConfigError: if it cannot serve what the streams state, and the pipeline file asks to be refused then.
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
    overload = Overload(lambda what: parts.states.alarm(what, about="overload"), parts.states.overload)
    relief = _relief(parts)

    def tick(report: RunReport) -> None:
        heartbeat.tick(report)
        overload.tick(report)
        parts.states.alarm(parts.publisher.alarm, about="disk", is_wording_news=True)
        if relief is not None:
            relief.tick(report)
        if admission is not None:
            admission.tick(report)
        if parts.last_switch is not None:
            parts.last_switch.tick()
        if parts.last_look is not None:
            parts.last_look.tick()
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


def _relief(parts: PipelineParts) -> Relief | None:
    if not parts.relief.config.adapt:
        return None
    return Relief(
        parts.relief.orders,
        live=lambda: parts.batcher.live,
        terms=lambda: parts.batcher.terms,
        tell=lambda what: parts.states.alarm(what, about="relief"),
    )


def _admission(parts: PipelineParts) -> Admission | None:
    at_start = parts.relief.config.at_start
    if at_start == "ignore" or not parts.relief.stated_fps:
        return None
    admission = Admission(
        measure_engine(parts.inference.engine),
        tell=lambda what: parts.states.alarm(what, about="admission"),
        live=lambda: parts.batcher.live,
    )
    admission.at_start(parts.relief.stated_fps, refuses=at_start == "refuse")
    return admission
