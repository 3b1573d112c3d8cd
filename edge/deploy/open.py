"""The status page of a device on this machine: served here at a secret address, fed over SSH."""

from __future__ import annotations

import base64
import binascii
import secrets
import threading
from collections.abc import Callable

from edge.delivery.link import Interrupted, Link, is_lost
from edge.errors import DeployError
from edge.http.server import (
    LOOPBACK,
    HttpRequest,
    HttpResponse,
    HttpServer,
    Listener,
    bind_port,
    json_response,
    page_response,
    picture_of,
    picture_response,
    text_response,
)
from edge.reading import json_value
from edge.transport.channel import Channel
from edge.untrusted import cleaned_json
from edge.wire.release import LookRequest
from edge.wire.verbs import LOOK

__all__ = ["DevicePage"]

_JPEG = b"\xff\xd8\xff"


class DevicePage:
    """A server on the loopback address of this machine (`port` 0: a free one); every path of it begins with a secret.

    The page is ours. Of the device come JSON, whose texts are cleaned, and pictures that begin as JPEG: a device that
    somebody has taken over gets no script into the browser. `connect` is called again after a connection was lost.
    """

    def __init__(self, connect: Callable[[], Channel], *, port: int = 0) -> None:
        self._connect = connect
        self._stop = threading.Event()
        self._link: Link | None = None
        self._root = f"/{secrets.token_urlsafe(24)}"
        self._port = port
        self._server: HttpServer | None = None

    def open(self) -> str:
        """Ask the device once, serve, return its URL; DeployError `transfer.*`, `device.page`, `request.port`."""
        self._look("")
        try:
            bound = bind_port(self._port)
        except OSError as error:
            problem = f"port {self._port} of this machine: {error.strerror}"
            raise DeployError("request.port", problem, hint="leave --port out, and a free one is taken") from None
        port = bound.getsockname()[1]
        listener = Listener(name=f"{LOOPBACK}:{port}", bind=lambda: bound, respond=self._respond, is_tcp=True)
        self._server = HttpServer([listener])
        self._server.start()
        return f"http://{LOOPBACK}:{port}{self._root}/"

    def close(self) -> None:
        self._stop.set()
        if self._server is not None:
            self._server.close()
        if self._link is not None:
            self._link.close()

    def _respond(self, request: HttpRequest) -> HttpResponse:
        root, slash, rest = request.path[1:].partition("/")
        if not secrets.compare_digest(f"/{root}", self._root):
            return text_response(404, "not here; the whole address was printed by edge-deploy open")
        if not slash:  # or what the page asks for would be looked for above it
            return HttpResponse(status=303, kind="text/plain", body=b"", headers={"Location": f"{self._root}/"})
        try:
            return self._answer(f"/{rest}")
        except Interrupted:
            return text_response(503, "edge-deploy open has ended")
        except DeployError as error:
            return text_response(502, f"{error} ({error.code})")

    def _answer(self, path: str) -> HttpResponse:
        if path == "/":
            return page_response()
        if path == "/status.json":
            try:
                return json_response(cleaned_json(json_value(self._look("") or b"")))
            except ValueError:
                raise DeployError("transfer.protocol", "the device sent a status that is no JSON") from None
        stream = picture_of(path)
        if stream is None:
            return text_response(404, "not here")
        picture = self._look(stream)
        if picture is not None and not picture.startswith(_JPEG):
            raise DeployError("transfer.protocol", "the device sent a picture that is no JPEG")
        return picture_response(picture)

    def _look(self, stream: str) -> bytes | None:
        try:
            return self._ask(stream)
        except DeployError as error:
            # An agent that was asked nothing for half a minute has ended: no page was open.
            self._leave()
            if not is_lost(error):
                raise
            return self._ask(stream)

    def _ask(self, stream: str) -> bytes | None:
        self._link = self._link or Link(self._connect(), self._stop)
        content = self._link.ask(LOOK, LookRequest(stream=stream)).content
        try:
            return None if content is None else base64.b64decode(content, validate=True)
        except binascii.Error:
            raise DeployError("transfer.protocol", "the device sent something that is no base64") from None

    def _leave(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
