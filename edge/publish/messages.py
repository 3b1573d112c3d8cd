"""The wire messages, schema version 1: what consumers of the MQTT topics and of the JSON Lines file read.

A key is never left out; what is not known is null. Additions keep the version, a change of meaning raises it.
How a frame result becomes a message is in `edge.publish.frames`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from edge.publish.message import Count, Instant, ModelInfo, Number, RunInfo, TopicLevel, WireMessage

__all__ = [
    "LIVE_EXPIRY_S",
    "MESSAGE_TYPES",
    "AgesMs",
    "Clock",
    "CountsMessage",
    "DeployMessage",
    "DeployResult",
    "DetectedObject",
    "DetectionsMessage",
    "DeviceState",
    "EngineInfo",
    "EventMessage",
    "GapMessage",
    "GapReason",
    "InfoMessage",
    "LineCounts",
    "NumberedKind",
    "OccupancyMessage",
    "PullMessage",
    "PullResult",
    "StateMessage",
    "StreamStateMessage",
    "recovered_payload",
    "replayed_payload",
]

NumberedKind = Literal["detections", "events"]
GapReason = Literal[
    "spool-bytes", "spool-age", "spool-disk", "oversize", "refused", "crash", "power-loss", "spool-corrupt"
]

DeviceState = Literal["online", "degraded", "stopping", "offline"]
DeployResult = Literal["committed", "rolled-back", "failed"]
PullResult = Literal[
    "unchanged",
    "kept",
    "changed",
    "committed",
    "detached",
    "rolled-back",
    "refused",
    "failed",
    "unreachable",
    "late",
    "interrupted",
]

LIVE_EXPIRY_S = 30  # a live detection is of no use later; a replayed one does not expire


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """Clock of `captured_at`; compare two devices only when both are `synced`."""

    source: Literal["rtcp-sr", "rfc7273", "arrival", "file"]
    synced: bool | None = None
    uncertainty_ms: float | None = None


class AgesMs(msgspec.Struct, frozen=True, kw_only=True):
    """How long the frame spent in each stage, milliseconds."""

    decode: float
    batch_wait: float
    infer: float
    post: float


class DetectedObject(msgspec.Struct, frozen=True):
    """One detection; `bbox` is COCO's [x, y, width, height] in pixels of the source frame, 1 decimal.

    `track_id` is the number of the object, the same in all frames that show it; no other object of the stream and epoch
    gets it. Null where it is not followed, or not yet.
    """

    class_id: Count
    label: str | None
    score: Annotated[float, msgspec.Meta(ge=0, le=1)]
    bbox: Annotated[list[float], msgspec.Meta(min_length=4, max_length=4)]
    track_id: Number | None = None


class DetectionsMessage(WireMessage, frozen=True, kw_only=True):
    """Everything found in one frame; (device, epoch, stream, seq) is its identity.

    `seq` has no holes: a missing number was lost, or is named by a gap message. `frame` is the decoder's count: its
    jumps are frames that were dropped on purpose. `replayed` is true on the topic `replay`, where late messages go.
    `recovered` is true of what a later start found on its disk: it may come behind newer ones.
    """

    where: ClassVar[str] = "streams/{stream}/detections"
    of: ClassVar[NumberedKind] = "detections"
    is_retained: ClassVar[bool] = False
    expiry_s: ClassVar[int | None] = LIVE_EXPIRY_S
    schema: Literal["edge.detections/1"] = "edge.detections/1"
    stream: TopicLevel
    epoch: Number
    seq: Number
    frame: Count
    pts_us: int
    captured_at: Instant
    clock: Clock
    age_ms: AgesMs
    model: ModelInfo
    size: Annotated[list[Number], msgspec.Meta(min_length=2, max_length=2, description="[width, height] of the frame")]
    detections: list[DetectedObject]
    recovered: bool = False
    replayed: bool = False  # the last key: `replayed_payload` counts on it

    @property
    def topic(self) -> str:
        return f"streams/{self.stream}/{'replay' if self.replayed else 'detections'}"


def replayed_payload(payload: bytes) -> bytes:
    """Return the payload of a detections message that is sent late."""
    return payload.removesuffix(b"false}") + b"true}"


def recovered_payload(payload: bytes) -> bytes:
    """Return the payload of a numbered message that a later start has found; older software wrote none of its keys."""
    return msgspec.json.encode(msgspec.json.decode(payload) | {"recovered": True})


class EventMessage(WireMessage, frozen=True, kw_only=True):
    """Event of one object; (device, epoch, stream, seq) is its identity, with numbers of its own, from 1 without holes.

    `enter`, `leave`: over the border of a zone. `appear`, `vanish`: first, last seen inside of one. `dwell`: stayed
    for the zone's `dwell_s`. `cross`: over a line, `forward` from its left to its right. `frame` to `bbox` are of the
    frame in which it took place. `reason` says why an object that vanished is not followed any more.
    `recovered` is true of what a later start found on its disk: it may come behind newer ones.
    """

    where: ClassVar[str] = "streams/{stream}/events"
    of: ClassVar[NumberedKind] = "events"
    is_retained: ClassVar[bool] = False
    schema: Literal["edge.event/1"] = "edge.event/1"
    stream: TopicLevel
    epoch: Number
    seq: Number
    kind: Literal["enter", "appear", "leave", "vanish", "dwell", "cross"]
    zone: TopicLevel | None
    line: TopicLevel | None
    direction: Literal["forward", "backward"] | None
    duration_s: float | None
    reason: Literal["lost", "interrupted", "changed", "stopped"] | None
    track_id: Number
    class_id: Count
    label: str | None
    score: Annotated[float, msgspec.Meta(ge=0, le=1)]
    frame: Count
    pts_us: int
    captured_at: Instant
    clock: Clock
    model: ModelInfo
    size: Annotated[list[Number], msgspec.Meta(min_length=2, max_length=2, description="[width, height] of the frame")]
    bbox: Annotated[list[float], msgspec.Meta(min_length=4, max_length=4)]
    recovered: bool = False


class LineCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many have crossed a line since the start of the service, by label."""

    forward: dict[str, Count]
    backward: dict[str, Count]


class OccupancyMessage(WireMessage, frozen=True, kw_only=True):
    """How many are followed in a stream now (`objects`), are in each zone, and have crossed each line, by label.

    A label that is not there counts 0. `interrupted`: the camera gives no frames, so none is followed; `stopped`: the
    service has ended, or the file. Neither says that somebody left.
    """

    where: ClassVar[str] = "streams/{stream}/occupancy"
    schema: Literal["edge.occupancy/1"] = "edge.occupancy/1"
    stream: TopicLevel
    epoch: Number
    state: Literal["following", "interrupted", "stopped"]
    since: Instant
    objects: dict[str, Count]
    zones: dict[str, dict[str, Count]]
    lines: dict[str, LineCounts]


class CountsMessage(WireMessage, frozen=True, kw_only=True):
    """How many objects of each label the newest frame of a stream shows: a value for subscribers that keep no account.

    Told when it changes, at most once a second. A label stays once it was there, and counts 0 then; those that the
    stream names as its `classes` are there from the first. Null where nothing is known: the camera gives no frames
    (`interrupted`), or the service, or the file, has ended (`stopped`).
    """

    where: ClassVar[str] = "streams/{stream}/counts"
    schema: Literal["edge.counts/1"] = "edge.counts/1"
    stream: TopicLevel
    epoch: Number
    state: Literal["counting", "interrupted", "stopped"]
    since: Instant
    total: Count | None
    objects: dict[str, Count | None]


class GapMessage(WireMessage, frozen=True, kw_only=True):
    """Numbers that will never be sent: `from` to `to` of one stream and epoch; of its detections, or of its events.

    With `exact` false some numbers of the range may have come, or come yet.
    """

    where: ClassVar[str] = "gaps"
    is_retained: ClassVar[bool] = False
    schema: Literal["edge.gap/1"] = "edge.gap/1"
    stream: TopicLevel
    epoch: Number
    from_: Number = msgspec.field(name="from")
    to: Number | None
    count: Count | None
    reason: GapReason
    first_at: Instant | None = None
    last_at: Instant | None = None
    exact: bool = True
    of: NumberedKind = "detections"


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The engine of the model: `kind` as in a pipeline file, `name` with its version.

    `precision` is what it computes in; where that is not what was `asked` for, `why` says what was wrong with that. It
    also says so if another kind would be better by now.
    """

    kind: str
    name: str
    precision: Literal["int8", "fp16", "fp32"]
    asked: Literal["int8", "fp16", "fp32"]
    why: str | None = None


class InfoMessage(WireMessage, frozen=True, kw_only=True):
    """The birth message: what runs on the device."""

    where: ClassVar[str] = "info"
    schema: Literal["edge.info/1"] = "edge.info/1"
    software: str
    epoch: Number
    started_at: Instant
    model: ModelInfo
    labels: list[str]
    streams: list[TopicLevel]
    boot_id: str | None = None
    engine: EngineInfo | None = None
    facts: dict[str, Any] | None = None
    schemas: list[str] = msgspec.field(default_factory=lambda: sorted(MESSAGE_TYPES))

    @property
    def run_info(self) -> RunInfo:
        return RunInfo(self.epoch, self.streams, self.device, self.labels, self.model)


class StateMessage(WireMessage, frozen=True, kw_only=True):
    """Whether the device is there; also its Will.

    Ignore an `offline` whose `session` is not that of the last `online`: it is the late Will of a connection that was
    replaced. `epoch` is that of the start, `session` of the connection; null where no connection carries the message
    (JSON Lines).
    """

    where: ClassVar[str] = "state"
    schema: Literal["edge.state/1"] = "edge.state/1"
    state: DeviceState
    epoch: Number | None = None
    session: Number | None = None
    since: Instant | None
    reason: str | None = None


class DeployMessage(WireMessage, frozen=True, kw_only=True):
    """How the last switch to another release ended; `from` is what served before it, null where nothing did.

    `committed`: `release` is proven. `rolled-back`: `release` was left for the reason given. `failed`: nothing is left
    that the device could do alone. `at` is in seconds, by the device's clock.
    """

    where: ClassVar[str] = "deploy"
    schema: Literal["edge.deploy/1"] = "edge.deploy/1"
    release: str | None
    from_: str | None = msgspec.field(name="from")
    result: DeployResult
    reason: str | None
    at: Annotated[str, msgspec.Meta(description="RFC 3339, UTC, e.g. 2026-11-20T10:15:02Z")]


class PullMessage(WireMessage, frozen=True, kw_only=True):
    """From where a device fetches its releases, and what its last look came to; of a device that does, or once did.

    All are null where it does so no longer, `release` and `result` before its first look. `result` is as that of a
    push, with `code` and `reason` of what went wrong (docs/push-codes.md), or `kept`: what serves goes on, as nothing
    newer is to be had, for the `reason` given. `at` is of the look that first came to this, `looked_at` of the last one
    to which the registry said what the ring has.
    """

    where: ClassVar[str] = "pull"
    schema: Literal["edge.pull/1"] = "edge.pull/1"
    repository: str | None = None
    channel: TopicLevel | None = None
    ring: TopicLevel | None = None
    release: str | None = None
    result: PullResult | None = None
    code: str | None = None
    reason: str | None = None
    at: Annotated[str | None, msgspec.Meta(description="RFC 3339, UTC, e.g. 2026-11-20T10:15:02Z")] = None
    looked_at: Annotated[str | None, msgspec.Meta(description="RFC 3339, UTC, e.g. 2026-11-20T10:15:02Z")] = None


class StreamStateMessage(WireMessage, frozen=True, kw_only=True):
    """Whether one stream delivers frames, and why not.

    `ended`, of a file that was read to its end, comes behind all that was found in it. `degraded`: frames come, and
    more than a tenth of those that are wanted are not inferred; `reason` has the figures.
    `epoch` and `session` as in the device's state: one of an older session is what was known before a connection broke.
    """

    where: ClassVar[str] = "streams/{stream}/state"
    schema: Literal["edge.stream-state/1"] = "edge.stream-state/1"
    stream: TopicLevel
    state: Literal["connecting", "up", "down", "ended", "degraded"]
    epoch: Number | None = None
    session: Number | None = None
    since: Instant | None
    reason: str | None = None


MESSAGE_TYPES: dict[str, type[WireMessage]] = {
    "edge.counts/1": CountsMessage,
    "edge.deploy/1": DeployMessage,
    "edge.detections/1": DetectionsMessage,
    "edge.event/1": EventMessage,
    "edge.gap/1": GapMessage,
    "edge.info/1": InfoMessage,
    "edge.occupancy/1": OccupancyMessage,
    "edge.pull/1": PullMessage,
    "edge.state/1": StateMessage,
    "edge.stream-state/1": StreamStateMessage,
}
