"""The wire: `u32 length | u8 type | body`, big endian; type 0 is one JSON object, type 1 the bytes of a blob.

`length` counts the type and the body. A peer that breaks a limit is not answered: the connection ends.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edge.errors import DeployError

__all__ = ["MAX_BLOB_BYTES", "MAX_JSON_BYTES", "Blob", "Frame", "Message", "encode_frame", "read_frame"]

MAX_JSON_BYTES = 256 * 1024
MAX_BLOB_BYTES = 1024 * 1024
MAX_DEPTH = 16
_MAX_DIGITS = 1000  # int() of 100,000 takes seconds; which numbers are fit is for `edge.wire` to say
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
    """Return the frame as it goes over the wire.

    Raises:
        ValueError: if it is larger than the other side takes, or holds a number that JSON does not have.
    """
    if isinstance(frame, Blob):
        kind, body, most = _BLOB, frame.content, MAX_BLOB_BYTES
    else:
        body = json.dumps({"verb": frame.verb, **frame.values}, separators=(",", ":"), allow_nan=False).encode()
        kind, most = _JSON, MAX_JSON_BYTES
    if len(body) > most:
        raise ValueError(f"a frame of {len(body)} bytes; at most {most} are allowed")
    return _HEAD.pack(len(body) + 1, kind) + body


def read_frame(read_exactly: Callable[[int], bytes]) -> Frame:
    """Return the next frame; `read_exactly(n)` returns n bytes or raises.

    Raises:
        DeployError: `transfer.protocol`, if what comes is no frame of ours.
    """
    length, kind = _HEAD.unpack(read_exactly(_HEAD.size))
    most = {_JSON: MAX_JSON_BYTES, _BLOB: MAX_BLOB_BYTES}.get(kind)
    if most is None or not 1 <= length <= most + 1:
        raise _broken(f"a frame of type {kind} with {length} bytes")
    body = read_exactly(length - 1)
    return Blob(body) if kind == _BLOB else _message(body)


def _message(body: bytes) -> Message:
    try:
        values = json.loads(body.decode("utf-8"), parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise _broken(f"a frame that is no JSON: {error}") from None
    if not isinstance(values, dict) or not isinstance(values.get("verb"), str):
        raise _broken("a JSON frame without a verb")
    if _depth(values) > MAX_DEPTH:
        raise _broken(f"a JSON frame deeper than {MAX_DEPTH}")
    verb = values.pop("verb")
    return Message(verb, values)


def _integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _depth(value: object) -> int:
    # Level by level, so that a deep value costs no recursion.
    level, depth = [value], 0
    while level and depth <= MAX_DEPTH:
        depth += 1
        inner = [list(one.values()) if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list))]
        level = [part for parts in inner for part in parts]
    return depth


def _broken(what: str) -> DeployError:
    return DeployError(
        "transfer.protocol",
        f"the other side sent {what}, expected frames of edge-deploy",
        hint="check that nothing else prints on the connection (a login banner, a shell profile)",
    )
