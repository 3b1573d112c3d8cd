"""`look`: what the status page of a device shows right now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from edge.wire.codec import Most

__all__ = ["MOST_BYTES", "LookAnswer", "LookRequest"]

MOST_BYTES = 180 * 1024
"""Of what is shown at once: in base64 it has to fit into a frame."""

_BASE64 = 4 * (MOST_BYTES // 3 + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRequest:
    """The latest picture of a stream; "" for the figures of all."""

    stream: Annotated[str, Most(32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAnswer:
    """A JPEG, or the document `edge.status/1`, in base64; None: there is no picture yet."""

    content: Annotated[str, Most(_BASE64)] | None
