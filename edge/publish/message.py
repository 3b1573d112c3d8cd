"""What all wire messages are made of."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

__all__ = [
    "Count",
    "Instant",
    "ModelInfo",
    "Number",
    "TopicLevel",
    "WireMessage",
]

TopicLevel = Annotated[str, msgspec.Meta(pattern="^[a-z0-9-]{1,32}$")]
Count = Annotated[int, msgspec.Meta(ge=0)]
Number = Annotated[int, msgspec.Meta(ge=1)]
Instant = Annotated[str, msgspec.Meta(description="RFC 3339, UTC, microseconds, e.g. 2026-11-20T10:15:02.113402Z")]

_encoder = msgspec.json.Encoder()


class WireMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What all messages have: `schema` names type and version, `device` the sender."""

    schema: str
    device: TopicLevel

    @property
    def topic(self) -> str:
        """Topic below the device's own level."""
        raise NotImplementedError

    @property
    def is_retained(self) -> bool:
        """Whether the broker keeps the latest one for later subscribers."""
        return True

    @property
    def expiry_s(self) -> int | None:
        """After how long it is of no use to anybody; None: never."""
        return None

    def encode(self) -> bytes:
        """Return the JSON text."""
        return _encoder.encode(self)


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Which model found it; `release`, `engine` and `calibration` are digests, null where there is none.

    `calibration` is the first 8 hex digits of the SHA-256 of the calibration table's file.
    """

    name: str
    release: str | None = None
    engine: str | None = None
    calibration: str | None = None
    precision: Literal["int8", "fp16", "fp32"]
