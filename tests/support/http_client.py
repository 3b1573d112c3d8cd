"""Raw HTTP for the tests: what is sent is exactly what the test says; and servers of the standard library."""

import contextlib
import dataclasses
import functools
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from edge.http.server import HttpServer, Listener

DEADLINE_S = 60.0


def connect(where: int | Path) -> socket.socket:
    family = socket.AF_INET if isinstance(where, int) else socket.AF_UNIX
    connection = socket.socket(family)
    connection.settimeout(DEADLINE_S)
    try:
        connection.connect(("127.0.0.1", where) if isinstance(where, int) else str(where))
    except BaseException:
        connection.close()
        raise
    return connection


def ask(where: int | Path, path: str, *, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    given = {"Host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    with connect(where) as connection:
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        return parsed(read_all(connection))


def read_all(connection: socket.socket) -> bytes:
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def parsed(content: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = content.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(": ") for line in rest)
    return int(first.split(" ")[1]), {name.lower(): value for name, _, value in pairs}, body


@contextlib.contextmanager
def serving(*listeners: Listener) -> Iterator[list[int | Path]]:
    """Serve the listeners within the block; give the port or the path of each once all are bound."""
    places: dict[str, int | Path] = {}

    def bound(listener: Listener) -> socket.socket:
        at = listener.bind()
        places[listener.name] = at.getsockname()[1] if listener.is_tcp else Path(listener.name)
        return at

    from tests.support.wait import wait_until

    server = HttpServer([dataclasses.replace(one, bind=functools.partial(bound, one)) for one in listeners])
    server.start()
    try:
        wait_until(lambda: len(places) == len(listeners), what="all listeners are bound")
        yield [places[listener.name] for listener in listeners]
    finally:
        server.close()


@contextlib.contextmanager
def handled_by(handler: type[BaseHTTPRequestHandler], **more: Any) -> Iterator[ThreadingHTTPServer]:
    """Serve within the block, by a handler that finds `more` at its `server`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    for name, value in {"daemon_threads": True, "handle_error": lambda *_: None, **more}.items():
        setattr(server, name, value)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
