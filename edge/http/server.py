"""A small HTTP server in one thread: bounded in connections, in time, in bytes and in answers per second.

What it costs the process is bounded by that, whoever asks and however often: one short request per connection, at most
`HttpLimits.per_s` of them a second for each listener, and a connection that is too slow or one too many is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from edge.http.exchange import BadRequestError, HttpRequest, HttpResponse, read_http_request, text_response, wire_bytes
from edge.http.guard import refusal

__all__ = ["HttpLimits", "HttpServer", "Listener", "Responder"]

_log = logging.getLogger(__name__)
_CLOSE_S = 3.0
_BIND_EVERY_S = 10.0

Responder = Callable[[HttpRequest], HttpResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """What one listener does at most. `read_s` is for a whole request, `write_s` for a whole answer."""

    connections: int = 16
    per_s: float = 100.0
    head_bytes: int = 8192
    read_s: float = 5.0
    write_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listener:
    """Where requests come in: `bind` gives a listening socket or raises OSError, and is tried again until it succeeds.

    `is_tcp`: everybody on the machine reaches it, browsers among them, so requests are checked for whom they come from.
    """

    name: str
    bind: Callable[[], socket.socket]
    respond: Responder
    is_tcp: bool
    limits: HttpLimits = field(default_factory=HttpLimits)


class HttpServer:
    """Serves its listeners in threads of its own from `start` to `close`; nobody waits for it but those who ask."""

    def __init__(
        self, listeners: Sequence[Listener], *, on_bound: Callable[[Listener, socket.socket], None] | None = None
    ) -> None:
        self._listeners = listeners
        self._on_bound = on_bound
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
                    if len(conversations) >= listener.limits.connections:
                        next(iter(conversations)).cancel()  # the one that has had the longest time makes room
                    task = asyncio.ensure_future(self._converse(listener, connection))
                    conversations[task] = None
                    task.add_done_callback(lambda done: conversations.pop(done, None))
                    await asyncio.sleep(1 / listener.limits.per_s)
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
            if self._on_bound is not None:
                self._on_bound(listener, bound)
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
            connection.setblocking(False)
            try:
                await self._answer_one(listener, connection)
            except (OSError, asyncio.TimeoutError, asyncio.CancelledError) as error:
                # Whoever asked has gone, or takes too long: what he has not read is thrown away, by the kernel, too.
                with contextlib.suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if isinstance(error, asyncio.CancelledError):
                    raise

    async def _answer_one(self, listener: Listener, connection: socket.socket) -> None:
        limits = listener.limits
        has_body = True
        try:
            head = await asyncio.wait_for(self._read_head(connection, limits.head_bytes), limits.read_s)
            request = read_http_request(head)
            has_body = request.method != "HEAD"
            answer = await self._respond(listener, request)
        except BadRequestError as bad:
            answer = text_response(bad.status, str(bad))
        except asyncio.TimeoutError:
            answer = text_response(408, f"expected a whole request within {limits.read_s:g} s")
        await self._send(connection, wire_bytes(answer, has_body=has_body), limits.write_s)

    async def _respond(self, listener: Listener, request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            raise BadRequestError(405, "only GET and HEAD are answered")
        refused = refusal(request) if listener.is_tcp else None
        if refused is not None:
            return refused
        try:
            return await self._loop.run_in_executor(self._workers, listener.respond, request)
        except Exception:  # the border: whoever asked learns that it is our fault, and nothing of how our code looks
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
