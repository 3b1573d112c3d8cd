"""A small HTTP server in one thread: bounded in connections, in time, in bytes and in answers per second.

That bounds its cost for the process, whatever the load: one short request per connection, at most
`Listener.per_s` of them a second for each listener, and a connection that is too slow or one too many is closed. It
listens where only this machine, or one group of it, can reach it, and answers its own programs and pages only.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import importlib.resources
import json
import logging
import os
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

__all__ = [
    "LOOPBACK",
    "BadRequestError",
    "HttpRequest",
    "HttpResponse",
    "HttpServer",
    "Listener",
    "bind_port",
    "bind_socket_file",
    "json_response",
    "page_response",
    "picture_of",
    "picture_response",
    "read_http_request",
    "short_name",
    "text_response",
]

_LINE = re.compile(r"([A-Z]{1,16}) (/[!-~]{0,1024}) HTTP/1\.[01]")
# No page of another origin may frame, read or keep what is shown here, and no browser may guess its type.
_ALWAYS = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_OURS = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_PICTURE = re.compile(r"/pictures/([a-z0-9-]{1,32})\.jpg")
LOOPBACK = "127.0.0.1"
_BACKLOG = 256
_log = logging.getLogger(__name__)
_CLOSE_S = 3.0
_BIND_EVERY_S = 10.0
_EARLY_S, _AGAIN_S = 1.0, 0.1


class BadRequestError(Exception):
    """A request that is not answered here; `status` says why in HTTP's words."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """`path` begins with a slash and has no query; the names of `headers` are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """An answer; `headers` come over those that every answer has.
    `is_early`: there may be a better one in a moment; the responder is asked again for a second, and serves others.
    """

    status: int
    kind: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    is_early: bool = False


Responder = Callable[[HttpRequest], HttpResponse]


def text_response(status: int, text: str) -> HttpResponse:
    return HttpResponse(status=status, kind="text/plain; charset=utf-8", body=f"{text}\n".encode())


def json_response(content: Any) -> HttpResponse:
    body = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    return HttpResponse(status=200, kind="application/json", body=body)


def read_http_request(head: bytes) -> HttpRequest:
    """BadRequestError if `head` is no request, or one with a body."""
    lines = head.decode("latin-1").split("\r\n")
    match = _LINE.fullmatch(lines[0])
    if match is None:
        raise BadRequestError(400, "expected a request line of HTTP/1.1 with a path")
    headers: dict[str, str] = {}
    for line in filter(None, lines[1:]):
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip() or name in headers:
            raise BadRequestError(400, "expected headers as NAME: VALUE, each once")
        headers[name] = value.strip()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequestError(413, "a request has no body here")
    return HttpRequest(method=match[1], path=match[2].partition("?")[0], headers=headers)


def wire_bytes(answer: HttpResponse, *, has_body: bool = True) -> bytes:
    """Leave out the body for HEAD."""
    content = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body))}
    headers = {**_ALWAYS, **content, **answer.headers}
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (answer.body if has_body else b"")


def refusal(request: HttpRequest) -> HttpResponse | None:
    """Return why the request is not answered; None where it is.

    A foreign name that leads here (DNS rebinding) shows in Host. A page of another origin shows in Origin,
    and in Sec-Fetch-Site of every browser of these years; it may still link here.
    """
    host = request.headers.get("host")
    if host is None or _OURS.fullmatch(host) is None:
        return text_response(421, "this is served under 127.0.0.1 and localhost only")
    origin = request.headers.get("origin")
    if origin is not None and origin.lower() != f"http://{host.lower()}":
        return text_response(403, "this is not for pages of other origins")
    # A link that a person follows shows the page to that person alone; a frame or a picture would not.
    is_link = (request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest")) == ("navigate", "document")
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not is_link:
        return text_response(403, "this is not for pages of other origins")
    return None


@functools.cache
def page_response() -> HttpResponse:
    """Return the page, with leave for its own script and style and for nothing else."""
    text = (importlib.resources.files("edge.http") / "page.html").read_text("utf-8")
    policy = (
        f"default-src 'none'; script-src '{_digest(text, 'script')}'; style-src '{_digest(text, 'style')}'; "
        "img-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    headers = {"Content-Security-Policy": policy}
    return HttpResponse(status=200, kind="text/html; charset=utf-8", body=text.encode(), headers=headers)


def picture_response(jpeg: bytes | None, *, is_early: bool = False) -> HttpResponse:
    """`jpeg` None: no frame has come for it, yet if it `is_early`."""
    if jpeg is not None:
        return HttpResponse(status=200, kind="image/jpeg", body=jpeg)
    why = text_response(503, "no frame of this stream has come for a picture; ask again, /status.json has its state")
    return replace(why, headers={"Retry-After": "1"}, is_early=is_early)


def picture_of(path: str) -> str | None:
    """Return None where the path asks for something else."""
    match = _PICTURE.fullmatch(path)
    return None if match is None else match[1]


def _digest(text: str, element: str) -> str:
    content = text.partition(f"<{element}>")[2].partition(f"</{element}>")[0]
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def bind_port(port: int) -> socket.socket:
    """Return a socket of the loopback address; port 0 takes a free one. Raises `OSError` if the port is taken."""
    return socket.create_server((LOOPBACK, port), backlog=_BACKLOG)


def bind_socket_file(path: Path) -> socket.socket:
    """Return a listening socket at `path`, for its owner and group; one that was left there is replaced.
    Raises `OSError` if its folder is not there or cannot be written.
    """
    partial = path.with_name(f".{path.name}.part")
    partial.unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC))
        with short_name(partial) as name:
            bound.bind(name)
        bound.listen(_BACKLOG)
        partial.chmod(0o660)  # until now the umask ruled, which lets in fewer
        partial.replace(path)  # a socket that can be found answers
        stack.pop_all()
        return bound


@contextlib.contextmanager
def short_name(path: Path) -> Iterator[str]:
    """Give a name of the socket file that has room in an address, which holds 107 bytes."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listener:
    """Where requests come in: `bind` gives a listening socket or raises OSError, and is tried again until it succeeds.

    `is_tcp`: every user of the machine reaches it, browsers too, so the origin of requests is checked.
    `read_s` is for a whole request, `write_s` for a whole answer.
    """

    name: str
    bind: Callable[[], socket.socket]
    respond: Responder
    is_tcp: bool
    connections: int = 16
    per_s: float = 100.0
    head_bytes: int = 8192
    read_s: float = 5.0
    write_s: float = 10.0


class HttpServer:
    """Serves its listeners in threads of its own from `start` to `close`; nothing else waits for it."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        # One at a time: an answer may encode a picture, and two of them would take two cores from the frames.
        self._workers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="http-answer")
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Begin; a listener that cannot be bound is logged and tried again."""
        self._thread.start()

    def close(self) -> None:
        """End all connections at once, and the thread; at most a few seconds, whatever the others do."""
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_CLOSE_S)
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except Exception:  # the border of the thread: the cameras are served without it
            _log.exception("http server failed")
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        tasks = [asyncio.ensure_future(self._listen(listener)) for listener in self._listeners]
        await self._stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, listener: Listener) -> None:
        with await self._bound(listener) as accepting:
            conversations: dict[asyncio.Task[None], None] = {}  # oldest first
            try:
                while True:
                    connection, _ = await self._accept(accepting)
                    while len(conversations) >= listener.connections:
                        next(iter(conversations)).cancel()  # the one that has had the longest time makes room
                        await asyncio.sleep(0)  # until it has: the next one may be accepted already
                    task = asyncio.ensure_future(self._converse(listener, connection))
                    conversations[task] = None
                    task.add_done_callback(lambda done: conversations.pop(done, None))
                    await asyncio.sleep(1 / listener.per_s)
            finally:
                for task in list(conversations):
                    task.cancel()
                await asyncio.gather(*conversations, return_exceptions=True)

    async def _bound(self, listener: Listener) -> socket.socket:
        is_told = False
        while True:
            try:
                bound = listener.bind()
            except OSError as error:
                if not is_told:
                    _log.warning("http not served at=%s reason=%s", listener.name, error.strerror or error)
                is_told = True
                await asyncio.sleep(_BIND_EVERY_S)
                continue
            bound.setblocking(False)
            return bound

    async def _accept(self, accepting: socket.socket) -> tuple[socket.socket, object]:
        while True:
            try:
                return await self._loop.sock_accept(accepting)
            except OSError as error:  # out of descriptors, or gone before we came to it
                _log.debug("http connection lost reason=%s", error)
                await asyncio.sleep(0.1)

    async def _converse(self, listener: Listener, connection: socket.socket) -> None:
        with connection:
            try:
                await self._answer_one(listener, connection)
            except (OSError, asyncio.TimeoutError, asyncio.CancelledError) as error:
                # The client has gone, or takes too long: what it has not read is thrown away, by the kernel, too.
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if isinstance(error, asyncio.CancelledError):
                    raise

    async def _answer_one(self, listener: Listener, connection: socket.socket) -> None:
        has_body = True
        try:
            head = await asyncio.wait_for(self._read_head(connection, listener.head_bytes), listener.read_s)
            request = read_http_request(head)
            has_body = request.method != "HEAD"
            answer = await self._respond(listener, request)
        except BadRequestError as bad:
            answer = text_response(bad.status, str(bad))
        except asyncio.TimeoutError:
            answer = text_response(408, f"expected a whole request within {listener.read_s:g} s")
        await self._send(connection, wire_bytes(answer, has_body=has_body), listener.write_s)

    async def _respond(self, listener: Listener, request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            raise BadRequestError(405, "only GET and HEAD are answered")
        refused = refusal(request) if listener.is_tcp else None
        if refused is not None:
            return refused
        early_until_s = self._loop.time() + _EARLY_S
        try:
            while True:
                answer = await self._loop.run_in_executor(self._workers, listener.respond, request)
                if not answer.is_early or self._loop.time() >= early_until_s:
                    return answer
                await asyncio.sleep(_AGAIN_S)
        except Exception:  # the border: the client learns that it is our fault, and nothing of our code
            _log.exception("http request failed path=%s", request.path)
            return text_response(500, "internal error")

    async def _read_head(self, connection: socket.socket, most_bytes: int) -> bytes:
        head = b""
        while b"\r\n\r\n" not in head:
            if len(head) >= most_bytes:
                raise BadRequestError(413, f"a request has at most {most_bytes} bytes here")
            more = await self._loop.sock_recv(connection, most_bytes)
            if not more:
                raise ConnectionResetError
            head += more
        return head.partition(b"\r\n\r\n")[0]

    async def _send(self, connection: socket.socket, content: bytes, within_s: float) -> None:
        await asyncio.wait_for(self._loop.sock_sendall(connection, content), within_s)
        # What the other side still sends is thrown away: closing over unread bytes would reset what it has to read.
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._discard(connection), 1.0)

    async def _discard(self, connection: socket.socket) -> None:
        left_bytes = 1 << 20
        while left_bytes > 0:
            more = await self._loop.sock_recv(connection, 1 << 16)
            if not more:
                return
            left_bytes -= len(more)
