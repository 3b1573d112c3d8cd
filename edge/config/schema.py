"""Every key of a pipeline file, its type and its default. `pipelines/reference.yaml` documents them one by one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from edge.config.credentials import SECRET_NAME

__all__ = [
    "BatchConfig",
    "CameraTlsConfig",
    "HttpConfig",
    "IgnoreConfig",
    "LineConfig",
    "MaskConfig",
    "ModelConfig",
    "MqttConfig",
    "OverloadConfig",
    "PipelineConfig",
    "PlaceConfig",
    "PublishConfig",
    "StreamConfig",
    "SpoolConfig",
    "Strict",
    "TlsConfig",
    "TrackingConfig",
    "ZoneConfig",
]

# Every number has an upper bound, so that infinity, which YAML can write, is refused where it stands.
Rate = Annotated[float, msgspec.Meta(gt=0, le=1000)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
# "$" alone would also match before a line break at the end.
TopicLevel = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]{1,32}(?!\n)$")]
Host = Annotated[
    str,
    msgspec.Meta(pattern=r"^([A-Za-z0-9._-]+|[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9._-]+)?)(?!\n)$"),
]
InputSize = Annotated[list[Annotated[int, msgspec.Meta(ge=32, le=8192)]], msgspec.Meta(min_length=2, max_length=2)]
Point = Annotated[list[Share], msgspec.Meta(min_length=2, max_length=2)]
Polygon = Annotated[list[Point], msgspec.Meta(min_length=3, max_length=64)]
Labels = Annotated[list[str], msgspec.Meta(min_length=1)]
TopicPrefix = Annotated[str, msgspec.Meta(pattern=r"^(?!\$)[^+#/\x00-\x1f]+(/[^+#/\x00-\x1f]+)*(?!\n)$")]
DiscoveryPrefix = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*(?!\n)$")]
Fingerprint = Annotated[str, msgspec.Meta(pattern=r"^sha256:([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}(?!\n)$")]
SecretName = Annotated[str, msgspec.Meta(pattern=SECRET_NAME)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Unknown keys are refused."""


class ModelConfig(Strict, frozen=True, kw_only=True):
    """The model file and how its detections are filtered. What is not stated is read from the ONNX.

    `fallback` is what runs instead of int8 where that does not find what the float model finds, or is not faster.
    `license` is the model's, for the SBOM of a bundle.
    """

    onnx: str
    calibration: str | None = None
    precision: Literal["int8", "fp16", "fp32"] = "fp32"
    fallback: Literal["fp16", "fp32"] | None = None
    score_threshold: Share = 0.25
    iou_threshold: Share = 0.45
    max_detections: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 300
    family: Literal["yolov5", "yolov8", "yolov10", "yolox"] | None = None
    labels: list[str] | None = None
    input_size: InputSize | None = None
    license: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None


class BatchConfig(Strict, frozen=True, kw_only=True):
    """A batch is closed when it is full or its first frame has waited `max_wait_ms`; earlier for an idle engine."""

    max_frames: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    max_wait_ms: Annotated[float, msgspec.Meta(ge=0, le=60_000)] = 20


class MaskConfig(Strict, frozen=True, kw_only=True):
    """A part of the picture, by its corners in order."""

    polygon: Polygon


class IgnoreConfig(MaskConfig, frozen=True, kw_only=True):
    """Detections of some classes whose centre lies there are left out; null: of all classes."""

    classes: Labels | None = None


class PlaceConfig(Strict, frozen=True, kw_only=True):
    """Somewhere on the picture, for objects of some classes; null: of all."""

    id: TopicLevel
    classes: Labels | None = None


class ZoneConfig(PlaceConfig, frozen=True, kw_only=True):
    """A part of the picture, by its corners in order; `dwell_s` null: no object stays too long."""

    polygon: Polygon
    dwell_s: Seconds | None = None


class LineConfig(PlaceConfig, frozen=True, kw_only=True):
    """A line to be crossed; forward is from its left to its right, for who goes from `start` to `end`."""

    start: Point
    end: Point


class TrackingConfig(Strict, frozen=True, kw_only=True):
    """Objects are followed over frames, and make events at zones and lines."""

    zones: Annotated[list[ZoneConfig], msgspec.Meta(max_length=64)] = []
    lines: Annotated[list[LineConfig], msgspec.Meta(max_length=64)] = []
    anchor: Literal["bottom", "centre"] = "bottom"
    settle_s: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.3
    lost_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 1.0
    start_score: Share = 0.5


class CameraTlsConfig(Strict, frozen=True, kw_only=True):
    """Trust in a camera's certificate instead of the system's authorities: one of the two."""

    ca: str | None = None
    fingerprint: Fingerprint | None = None


class StreamConfig(Strict, frozen=True, kw_only=True):
    """One camera or file. `realtime` plays a file at its own pace, as a camera would deliver it.

    Where there are more streams than rows in a batch and not every frame can be inferred, a stream's share is in
    proportion to `priority`. Frames that are older than `max_age_ms` are dropped instead of inferred.

    Attributes:
        ignore: where detections are left out; the model and every picture still show what is there.
        black: parts of the picture that are black before the model or a person sees them.
    """

    id: TopicLevel
    uri: str
    credential: SecretName | None = None
    tls: CameraTlsConfig | None = None
    max_fps: Rate | None = None
    classes: Labels | None = None
    loop: bool = False
    realtime: bool = False
    decoder: Literal["auto", "software", "nvmm", "pyav"] = "auto"
    latency_ms: Annotated[int, msgspec.Meta(ge=0, le=60_000)] = 200
    stall_s: Seconds = 3.0
    tracking: TrackingConfig | None = None
    priority: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    max_age_ms: Annotated[float, msgspec.Meta(gt=0, le=3_600_000)] | None = None
    ignore: Annotated[list[IgnoreConfig], msgspec.Meta(max_length=64)] = []
    black: Annotated[list[MaskConfig], msgspec.Meta(max_length=64)] = []


class TlsConfig(Strict, frozen=True, kw_only=True):
    """TLS of the broker connection; an empty mapping means the system's authorities and a checked host name."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None


class SpoolConfig(Strict, frozen=True, kw_only=True):
    """Bounds of messages that wait on the disk; the oldest frames go first, events last, and are declared.

    Attributes:
        max_mib: the size of the file.
        max_age_h: what has waited longer is let go.
        free_mib: disk that is left to others; below it frames wait in memory only.
    """

    max_mib: Annotated[int, msgspec.Meta(ge=16, le=1 << 20)] = 256
    max_age_h: Annotated[float, msgspec.Meta(gt=0, le=8760)] = 72
    free_mib: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] = 1024


class MqttConfig(Strict, frozen=True, kw_only=True):
    """The broker. TLS is on unless `tls: false` asks for plain text. `auto` falls back from MQTT v5 to v3.1.1.

    `memory_mib` is how much may wait for the broker in memory; what no longer fits waits on the disk (`spool`), or is
    let go, the oldest first, and declared.
    """

    host: Host
    port: Port | None = None
    site: TopicLevel = "default"
    prefix: TopicPrefix = "edge/v1"
    tls: TlsConfig | bool = True
    credential: SecretName | None = None
    client_id: str | None = None
    keepalive_s: Annotated[int, msgspec.Meta(ge=5, le=3600)] = 10
    protocol: Literal["auto", "v5", "v3.1.1"] = "auto"
    memory_mib: Annotated[int, msgspec.Meta(ge=4, le=1024)] = 16
    spool: SpoolConfig | bool = True
    home_assistant: bool | DiscoveryPrefix = False


class PublishConfig(Strict, frozen=True, kw_only=True):
    """Which frames become messages: all, those with detections, or those where something changed, plus a heartbeat.

    `counts`: how many of each label a stream shows is retained, too. `pictures_s`: the newest picture of each stream is
    retained so often; null: none leaves the device.
    """

    mode: Literal["all", "nonempty", "change"] = "change"
    heartbeat_s: Seconds = 1.0
    counts: bool = True
    pictures_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] | None = None
    jsonl: str | None = None


class HttpConfig(Strict, frozen=True, kw_only=True):
    """Figures and state over HTTP on 127.0.0.1. `page`: also the status page, with pictures for every user there."""

    port: Port | None = None
    page: bool = False


class OverloadConfig(Strict, frozen=True, kw_only=True):
    """Rules for a machine that cannot infer all frames: `adapt` leaves some out before they cost anything.

    `at_start` says what happens where the streams state more frames than the engine, measured, can infer.
    """

    adapt: bool = True
    at_start: Literal["warn", "refuse", "ignore"] = "warn"


class PipelineConfig(Strict, frozen=True, kw_only=True):
    """A whole pipeline file. `engine` is decoded by `edge.engine.section`: each kind of engine has keys of its own."""

    version: Literal[1]
    model: ModelConfig
    streams: Annotated[list[StreamConfig], msgspec.Meta(min_length=1)]
    device: TopicLevel | None = None
    engine: dict[str, Any] = msgspec.field(default_factory=dict)
    batch: BatchConfig = msgspec.field(default_factory=BatchConfig)
    mqtt: MqttConfig | None = None
    publish: PublishConfig = msgspec.field(default_factory=PublishConfig)
    overload: OverloadConfig = msgspec.field(default_factory=OverloadConfig)
    http: HttpConfig = msgspec.field(default_factory=HttpConfig)
