"""Base of all wire messages."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

__all__ = ["Count", "Instant", "ModelInfo", "Number", "RetainedBytes", "RunInfo", "TopicLevel", "WireMessage"]

TopicLevel = Annotated[str, msgspec.Meta(pattern="^[a-z0-9-]{1,32}$")]
Count = Annotated[int, msgspec.Meta(ge=0)]
Number = Annotated[int, msgspec.Meta(ge=1)]
Instant = Annotated[str, msgspec.Meta(description="RFC 3339, UTC, microseconds, e.g. 2026-11-20T10:15:02.113402Z")]

_encoder = msgspec.json.Encoder()


class WireMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of all messages: `schema` names type and version, `device` the sender.

    `where` is the topic below the device's own level. The broker keeps a retained one for later subscribers; after
    `expiry_s` it is of no use to anybody (None: never).
    """

    where: ClassVar[str]
    is_retained: ClassVar[bool] = True
    expiry_s: ClassVar[int | None] = None
    schema: str
    device: TopicLevel

    @property
    def topic(self) -> str:
        return self.where.format(stream=getattr(self, "stream", ""))

    def encode(self) -> bytes:
        return _encoder.encode(self)


class RetainedBytes(msgspec.Struct, frozen=True):
    """A `TopicMessage` that is none of these; without a payload the broker forgets what it keeps on the topic.

    `is_absolute`: the topic is not below the device.
    """

    topic: str
    payload: bytes = b""
    expiry_s: int | None = None
    is_absolute: bool = False
    is_retained: ClassVar[bool] = True

    def encode(self) -> bytes:
        return self.payload


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Which model found it; `release`, `engine` and `calibration` are digests, null where there is none.

    `calibration` is the first 8 hex digits of the SHA-256 of the calibration table's file.
    """

    name: str
    release: str | None = None
    engine: str | None = None
    calibration: str | None = None
    precision: Literal["int8", "fp16", "fp32"]


class RunInfo(msgspec.Struct, frozen=True):
    """Common part of all numbered messages of one start of the service."""

    epoch: int
    streams: list[str]
    device: str
    labels: list[str]
    model: ModelInfo
