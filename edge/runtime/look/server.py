"""The HTTP of a running service: figures and health for every program of the machine, all for those whom it lets in.

Whether the machine is held back by heat or power: looked at now and then, said once, taken back when it is over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edge.config.pipeline import Pipeline
from edge.config.schema import HttpConfig, StreamConfig
from edge.device.sensors import Sensors, read_sensors
from edge.http.prometheus import CONTENT_TYPE, Exposition
from edge.http.server import (
    LOOPBACK,
    HttpRequest,
    HttpResponse,
    HttpServer,
    Listener,
    bind_port,
    bind_socket_file,
    json_response,
    page_response,
    picture_of,
    picture_response,
    text_response,
)
from edge.publish.messages import EventMessage, InfoMessage
from edge.runtime.look.pictures import Pictures
from edge.runtime.look.status import Rates, Snapshot, metrics_of, status_json
from edge.runtime.pipeline.counters import FrameCounters, RunReport
from edge.runtime.serve.publishing import LastLook, LastSwitchPublisher
from edge.runtime.serve.streams import StreamStates
from edge.types import StreamId, StreamState

__all__ = ["HeatWatch", "Shown", "StatusServer", "places_of"]

_log = logging.getLogger(__name__)
_HEAT_EVERY_S = 5.0
_CALM_S = 60.0
_STUCK_S = 60.0  # twice the watchdog of the unit
_FIGURES_S = 1.0  # asked more often, it gives the same again


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Sources of the status page; `last_switch` and `last_look` only where a release runs.

    `places` gives what `places_of` does, of a pipeline of which a reload may make another one.
    """

    info: InfoMessage
    counters: FrameCounters
    states: StreamStates
    pictures: Pictures
    places: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
    recent_events: Callable[[], Sequence[EventMessage]] = list
    last_switch: LastSwitchPublisher | None = None
    last_look: LastLook | None = None


def places_of(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """Return what a pipeline file draws on the picture of each stream, as plain values under its keys."""
    return {one.id: _places(one) for one in pipeline.config.streams}


def _places(stream: StreamConfig) -> dict[str, Any]:
    shown = {"tracking": stream.tracking, "ignore": stream.ignore, "black": stream.black}
    return {key: _stated(value) for key, value in shown.items()}


def _stated(value: Any) -> Any:
    """Return a part of a pipeline file as plain values, without what is a default anyway."""
    if isinstance(value, list):
        return [_stated(one) for one in value]
    if not isinstance(value, msgspec.Struct):
        return value
    stated = ((one.name, getattr(value, one.name), one.default) for one in msgspec.structs.fields(value))
    return {name: _stated(held) for name, held, default in stated if held != default and held != []}


class HeatWatch:
    """Looks every few seconds in a thread of its own: a sensor that hangs holds up nothing else.

    A pause between two throttlings is no end of the alarm. `on_alarm`: told, in that thread, what is wrong, for people,
    and None when it is over.
    """

    def __init__(
        self,
        on_alarm: Callable[[str | None], None],
        *,
        read: Callable[[], Sensors] = read_sensors,
        every_s: float = _HEAT_EVERY_S,
    ) -> None:
        self._on_alarm = on_alarm
        self._read = read
        self._every_s = every_s
        self._events: Mapping[str, int] = {}  # also of those that cannot be read just now
        self._throttled_at_s = float("-inf")
        self._text: str | None = None
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
            self.look(now_s=time.monotonic())
            self._stop.wait(self._every_s)

    def look(self, *, now_s: float) -> None:
        before = self._text
        self.sensors = self._read()
        self._text = now = self._judged(self.sensors, now_s)
        if now is not None and before is None:
            _log.warning("device throttled reason=%s%s", now, _where(self.sensors))
        elif now is None and before is not None:
            _log.info("device no longer throttled was=%s", before)
        if now != before:
            self._on_alarm(now)

    def _judged(self, sensors: Sensors, now_s: float) -> str | None:
        grown = [kind for kind, count in sensors.events.items() if count > self._events.get(kind, count)]
        self._events = {**self._events, **sensors.events}
        reasons = [*sensors.throttled_by, *grown]
        if reasons:
            self._throttled_at_s = now_s
            return self._text or f"throttled by {', '.join(reasons)}"
        return None if now_s - self._throttled_at_s >= _CALM_S else self._text


def _where(sensors: Sensors) -> str:
    measured = {name: zone.celsius for name, zone in sensors.zones.items() if zone.celsius is not None}
    hottest = max(measured, key=lambda name: measured[name] or 0, default=None)
    heat = "" if hottest is None else f"; {hottest} at {measured[hottest]:.1f} °C"
    return heat if sensors.mode is None else f"{heat}; power mode {sensors.mode}"


class StatusServer:
    """Answers on a port of the loopback address, on a socket file, or on neither; watches the heat in any case.
    `socket_path`: for those whom its folder lets in; None: there is no such folder.
    """

    def __init__(
        self,
        shown: Shown,
        config: HttpConfig,
        *,
        socket_path: Path | None = None,
        heat: HeatWatch | None = None,
    ) -> None:
        self._shown = shown
        self._config = config
        self._heat = heat or HeatWatch(shown.states.alarm)
        self._rates = Rates()
        self._moment: Snapshot | None = None
        self._turns = -1
        self._turned_at_s = time.monotonic()
        self._exposition: Exposition | None = None
        self._figures = (float("-inf"), b"")
        listeners = list(self._listeners(socket_path))
        self._server = HttpServer(listeners) if listeners else None

    def start(self) -> None:
        self._heat.start()
        if self._server is not None:
            self._server.start()

    def tick(self, report: RunReport) -> None:
        if report.turns != self._turns:
            self._turns, self._turned_at_s = report.turns, time.monotonic()
        self._shown.pictures.forget()
        state, reason = self._shown.states.device_state
        switch, look = self._shown.last_switch, self._shown.last_look
        self._moment = Snapshot(
            info=self._shown.info,
            report=report,
            at_s=time.monotonic(),
            fps=self._rates.of(report),
            state=state,
            reason=reason,
            sensors=self._heat.sensors,
            switch=None if switch is None else switch.said,
            is_on_trial=None if switch is None else switch.is_on_trial,
            look=None if look is None else look.said,
        )

    def close(self) -> None:
        """An answer that is under way is cut off."""
        self._heat.close()
        if self._server is not None:
            self._server.close()

    def _listeners(self, socket_path: Path | None) -> Iterator[Listener]:
        port = self._config.port
        if port is not None:
            respond = self._all if self._config.page else self._public
            yield Listener(name=f"{LOOPBACK}:{port}", bind=lambda: bind_port(port), respond=respond, is_tcp=True)
        if socket_path is not None:
            bind = lambda: bind_socket_file(socket_path)  # noqa: E731 - the twin of the one above
            yield Listener(name=str(socket_path), bind=bind, respond=self._all, is_tcp=False)

    def _public(self, request: HttpRequest) -> HttpResponse:
        return self._answer(request.path, {})

    def _all(self, request: HttpRequest) -> HttpResponse:
        stream = picture_of(request.path)
        if stream is not None:
            return self._picture(stream)
        return self._answer(request.path, {"/": page_response, "/status.json": self._status})

    def _answer(self, path: str, pages: Mapping[str, Callable[[], HttpResponse]]) -> HttpResponse:
        figures = {"/metrics": self._metrics, "/livez": self._livez, "/readyz": self._readyz}
        answers = {**figures, **pages}
        if path in answers:
            return answers[path]()
        there = [*answers, *(["/pictures/STREAM.jpg"] if pages else [])]
        return text_response(404, f"not here; there are {', '.join(there)}")

    def _status(self) -> HttpResponse:
        moment = self._moment
        if moment is None:
            return text_response(503, "starting")
        return json_response(status_json(moment, self._shown.places(), self._shown.recent_events()))

    def _picture(self, stream: str) -> HttpResponse:
        statuses = self._shown.states.statuses()
        status = statuses.get(StreamId(stream))
        if status is None:
            return text_response(404, f"no stream of that name; there are {', '.join(statuses)}")
        return picture_response(self._shown.pictures.ask(StreamId(stream)), is_early=status.state is StreamState.UP)

    def _livez(self) -> HttpResponse:
        stuck_s = time.monotonic() - self._turned_at_s
        if stuck_s <= _STUCK_S:
            return text_response(200, "alive")
        return text_response(503, f"the inference loop has not turned for {stuck_s:.0f} s")

    def _readyz(self) -> HttpResponse:
        moment = self._moment
        if moment is None:
            return text_response(503, "starting")
        return text_response(200, "ready" if moment.reason is None else f"{moment.state}: {moment.reason}")

    def _metrics(self) -> HttpResponse:
        made_at_s, text = self._figures
        if time.monotonic() - made_at_s >= _FIGURES_S:
            self._exposition = self._exposition or Exposition(self._collect)
            text = self._exposition.text()
            self._figures = (time.monotonic(), text)
        return HttpResponse(status=200, kind=CONTENT_TYPE, body=text)

    def _collect(self) -> Iterator[Any]:
        moment = self._moment
        if moment is not None:
            yield from metrics_of(moment, self._shown.counters)
