"""Connection between a push and an agent: frames `u32 length | u8 type | body`, big endian.

Type 0 is one JSON object, type 1 the bytes of a blob; `length` counts the type and the body. A peer that breaks a limit
is not answered: the connection ends.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from edge.errors import DeployError
from edge.reading import json_object

__all__ = ["MAX_BLOB_BYTES", "MAX_JSON_BYTES", "Blob", "Channel", "Frame", "Message", "encode_frame", "read_frame"]

MAX_JSON_BYTES = 256 * 1024
MAX_BLOB_BYTES = 1024 * 1024
_MAX_DIGITS = 1000  # which numbers are fit is for `edge.wire` to say, which names the field
_HEAD = struct.Struct(">IB")
_JSON, _BLOB = 0, 1


@dataclass(frozen=True, slots=True)
class Message:
    """One JSON object; `verb` is its key "verb", `values` are the others."""

    verb: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Blob:
    """Some bytes of the blob that was announced before."""

    content: bytes


Frame = Message | Blob


def encode_frame(frame: Frame) -> bytes:
    """Return the frame as sent; ValueError if larger than the other side takes, or with a number that JSON lacks."""
    if isinstance(frame, Blob):
        kind, body, most = _BLOB, frame.content, MAX_BLOB_BYTES
    else:
        body = json.dumps({"verb": frame.verb, **frame.values}, separators=(",", ":"), allow_nan=False).encode()
        kind, most = _JSON, MAX_JSON_BYTES
    if len(body) > most:
        raise ValueError(f"a frame of {len(body)} bytes; at most {most} are allowed")
    return _HEAD.pack(len(body) + 1, kind) + body


def read_frame(read_exactly: Callable[[int], bytes]) -> Frame:
    """Return the next frame; `read_exactly(n)` returns n bytes or raises. DeployError `transfer.protocol` for none."""
    length, kind = _HEAD.unpack(read_exactly(_HEAD.size))
    most = {_JSON: MAX_JSON_BYTES, _BLOB: MAX_BLOB_BYTES}.get(kind)
    if most is None or not 1 <= length <= most + 1:
        raise _broken(f"a frame of type {kind} with {length} bytes")
    body = read_exactly(length - 1)
    return Blob(body) if kind == _BLOB else _message(body)


def _message(body: bytes) -> Message:
    try:
        values = json_object(body, most_digits=_MAX_DIGITS, is_finite=False)
    except ValueError as error:
        raise _broken(f"a frame that is no JSON: {error}") from None
    verb = values.pop("verb", None)
    if not isinstance(verb, str):
        raise _broken("a JSON frame without a verb")
    return Message(verb, values)


def _broken(what: str) -> DeployError:
    return DeployError(
        "transfer.protocol",
        f"the other side sent {what}, expected frames of edge-deploy",
        hint="check that nothing else prints on the connection (a login banner, a shell profile)",
    )


class Channel(Protocol):
    """A connection that carries whole frames in order, both ways, until one side closes it."""

    def send(self, frame: Frame, *, timeout_s: float = 30.0) -> None:
        """Send a frame; DeployError `transfer.*`, if the other side is gone or does not take it in time."""
        ...

    def receive(self, *, timeout_s: float = 30.0) -> Frame:
        """Return the next frame; DeployError `transfer.closed` at the end, `transfer.timeout`, `transfer.protocol`."""
        ...

    def close(self) -> None:
        """End the connection; the other side reads its end. May be called twice."""
        ...
