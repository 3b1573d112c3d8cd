"""The HTTP of a running service: figures and health for every program of the machine, all for those whom it lets in."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from edge.config.pipeline import Pipeline
from edge.config.schema import HttpConfig, TrackingConfig
from edge.http.exchange import HttpRequest, HttpResponse, json_response, text_response
from edge.http.page import page_response, picture_of, picture_response
from edge.http.prometheus import CONTENT_TYPE, Exposition, Metric
from edge.http.server import HttpServer, Listener
from edge.http.sockets import LOOPBACK, bind_port, bind_socket_file
from edge.publish.messages import InfoMessage
from edge.runtime.look.heat import HeatWatch
from edge.runtime.look.metrics import metrics_of
from edge.runtime.look.moment import Rates, Snapshot
from edge.runtime.look.pictures import Pictures
from edge.runtime.look.status import status_json
from edge.runtime.pipeline.counters import FrameCounters
from edge.runtime.pipeline.report import RunReport
from edge.runtime.serve.last_switch import LastSwitchPublisher
from edge.runtime.serve.stream_states import StreamStates
from edge.types import StreamId

__all__ = ["Shown", "StatusServer", "make_shown"]

_STUCK_S = 60.0  # twice the watchdog of the unit
_FIGURES_S = 1.0  # nobody reads them more often; whoever asks more often gets the same again


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is shown of a run, and where it comes from; `last_switch` only where a release runs.

    `places` gives the zones and lines of each stream that has some, as plain values.
    """

    info: InfoMessage
    counters: FrameCounters
    states: StreamStates
    pictures: Pictures
    places: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
    last_switch: LastSwitchPublisher | None = None


def make_shown(
    what_runs: Callable[[], Pipeline],
    info: InfoMessage,
    *,
    counters: FrameCounters,
    states: StreamStates,
    last_switch: LastSwitchPublisher | None,
) -> Shown:
    """Return what is shown of a pipeline, of which a reload may make another one."""

    def places() -> dict[str, dict[str, Any]]:
        streams = what_runs().config.streams
        return {one.id: _places(one.tracking) for one in streams if one.tracking is not None}

    return Shown(
        info=info,
        counters=counters,
        states=states,
        pictures=Pictures(labels=info.labels),
        places=places,
        last_switch=last_switch,
    )


def _places(tracking: TrackingConfig) -> dict[str, Any]:
    return {
        "zones": [{"id": one.id, "polygon": msgspec.to_builtins(one.polygon)} for one in tracking.zones],
        "lines": [{"id": one.id, "start": list(one.start), "end": list(one.end)} for one in tracking.lines],
    }


class StatusServer:
    """Answers on a port of the loopback address, on a socket file, or on neither; watches the heat in any case.

    Args:
        shown: the run.
        config: the port, and what it shows.
        socket_path: for those whom its folder lets in; None: there is no such folder.
    """

    def __init__(
        self,
        shown: Shown,
        config: HttpConfig,
        *,
        socket_path: Path | None = None,
        heat: HeatWatch | None = None,
        on_bound: Callable[[Listener, socket.socket], None] | None = None,
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
        self._server = HttpServer(listeners, on_bound=on_bound) if listeners else None

    def start(self) -> None:
        """Begin to answer, and to look at the heat."""
        self._heat.start()
        if self._server is not None:
            self._server.start()

    def tick(self, report: RunReport) -> None:
        """Take the account that is shown from now on."""
        if report.turns != self._turns:
            self._turns, self._turned_at_s = report.turns, time.monotonic()
        self._shown.pictures.forget()
        state, reason = self._shown.states.device_state
        switch = self._shown.last_switch
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
        )

    def close(self) -> None:
        """End; whoever is being answered is cut off."""
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
        answers: dict[str, Callable[[], HttpResponse]] = {
            "/metrics": self._metrics,
            "/livez": self._livez,
            "/readyz": self._readyz,
        }
        found = answers.get(request.path)
        return text_response(404, f"not here; there are {', '.join(answers)}") if found is None else found()

    def _all(self, request: HttpRequest) -> HttpResponse:
        if request.path == "/":
            return page_response()
        if request.path == "/status.json":
            moment = self._moment
            return (
                text_response(503, "starting")
                if moment is None
                else json_response(status_json(moment, self._shown.places()))
            )
        stream = picture_of(request.path)
        return self._public(request) if stream is None else self._picture(stream)

    def _picture(self, stream: str) -> HttpResponse:
        known = StreamId(stream) if stream in self._shown.states.statuses() else None
        jpeg = None if known is None else self._shown.pictures.ask(known)
        return text_response(404, "no picture yet") if jpeg is None else picture_response(jpeg)

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

    def _collect(self) -> Iterator[Metric]:
        moment = self._moment
        if moment is not None:
            yield from metrics_of(moment, self._shown.counters)
