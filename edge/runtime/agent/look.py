"""What the serving runtime shows on its socket file, fetched for a client; nothing of it is believed here."""

from __future__ import annotations

import base64
import socket
from pathlib import Path

from edge.deadline import Deadline
from edge.errors import DeployError
from edge.http.sockets import short_name
from edge.runtime.agent.session import Session
from edge.wire.look import MOST_BYTES, LookAnswer, LookRequest

__all__ = ["look"]

_DEADLINE_S = 8.0
_HEAD_BYTES = 8192


def look(session: Session, request: LookRequest) -> LookAnswer:
    """Return the figures or a picture; DeployError `device.page` where no runtime shows any."""
    path = "/status.json" if request.stream == "" else f"/pictures/{_checked(request.stream)}.jpg"
    try:
        status, body = _fetch(session.device.layout.http_socket, path)
    except OSError as error:
        reason = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise DeployError(
            "device.page",
            f"the service does not show its status page: {reason}",
            hint="look at edge-deploy status and edge-deploy logs",
        ) from None
    if status == 404 and request.stream:
        return LookAnswer(content=None)
    if status != 200:
        raise DeployError("device.page", f"the service answers {status} to {path}", hint="look at edge-deploy logs")
    return LookAnswer(content=base64.b64encode(body).decode("ascii"))


def _checked(stream: str) -> str:
    if not all(one.isascii() and (one.isalnum() or one == "-") for one in stream):
        raise DeployError("request.value", "look.stream: expected the id of a stream")
    return stream


def _fetch(path: Path, what: str) -> tuple[int, bytes]:
    """Return status and body. Raises: OSError."""
    deadline = Deadline.after(_DEADLINE_S)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, short_name(path) as name:
        connection.settimeout(_DEADLINE_S)
        connection.connect(name)
        connection.sendall(f"GET {what} HTTP/1.1\r\n\r\n".encode("ascii"))
        content = b""
        while part := _receive(connection, deadline):
            content += part
            if len(content) > MOST_BYTES + _HEAD_BYTES:
                raise OSError(f"it answers with more than {MOST_BYTES} bytes")
    head, found, body = content.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if not found or len(words) < 3 or not words[1].isdigit() or len(words[1]) != 3:
        raise OSError("what it answers is no HTTP")
    return int(words[1]), body


def _receive(connection: socket.socket, deadline: Deadline) -> bytes:
    connection.settimeout(max(deadline.left_s, 0.001))
    return connection.recv(1 << 16)
