"""The manifest of a release: the signed list of what it holds and where it may run (`edge.release/1`)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["BundledFile", "GoldenLimits", "HealthLimits", "Manifest", "Role"]


class Role(str, enum.Enum):
    """What a file of a release is for."""

    PIPELINE = "pipeline"  # exactly one, YAML
    MODEL = "model"  # exactly one, ONNX, float
    CALIBRATION = "calibration"  # at most one, edge.calib/1
    CERTIFICATE = "certificate"  # CA or client certificates; never a private key
    CLIP = "clip"  # a video that a stream of the pipeline plays
    GOLDEN = "golden"  # golden.json, the float model's detections
    GOLDEN_IMAGE = "golden-image"  # one image of the golden set
    SBOM = "sbom"  # CycloneDX


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledFile:
    """One file: `path` is relative to the release with `/` between its parts; `length_bytes` and `sha256` prove it."""

    path: str
    role: Role
    length_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenLimits:
    """How far the engine built on the device may be from the float model on the golden frames."""

    min_recall: float = 0.9  # share of the float model's sure detections that are found again (IoU and score)
    max_extra: float = 0.1  # sure detections of the device that the float model does not have, per one that it has
    min_iou: float = 0.5  # for two boxes to count as one
    max_score_error: float = 0.15  # mean absolute difference of the scores of those found again


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """What a release has to hold in its trial; None: judged against the release before, or not at all."""

    hold_s: float = 60.0  # for so long, without interruption
    deadline_s: float = 900.0  # from the switch on
    min_rate_share: float = 0.8  # of each stream's rate before the switch
    infer_p95_ms: float | None = None
    age_p95_ms: float | None = None
    max_slowdown: float = 1.2  # p95 of inference against the release before; only where infer_p95_ms is None
    min_available_bytes: int = 268_435_456  # memory that stays free on the device


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All that a device has to know before it takes a release.

    Attributes:
        release: first 12 hex digits of a SHA-256 over everything below except sequence and times: equal content,
            equal name.
        channel, sequence: a device never goes back to a lower sequence of a channel on its own.
        created_at, expires_at: RFC 3339 in UTC, whole seconds; expires_at None: never.
        compatible: device classes that may take it, such as "jetson-orin"; never empty ("any" fits all).
        targets: device names; empty: all.
        tensorrt, l4t: inclusive lower and exclusive upper version; None: no bound.
        engine: max batch, precision, and what else the build on the device depends on.
        calibration: evidence of the table, as `edge-deploy calibrate` wrote it; empty without one.
        files: sorted by path.
    """

    release: str
    pipeline_name: str
    channel: str
    sequence: int
    created_at: str
    expires_at: str | None
    compatible: tuple[str, ...]
    targets: tuple[str, ...] = ()
    tensorrt: tuple[str | None, str | None] = (None, None)
    l4t: tuple[str | None, str | None] = (None, None)
    engine: Mapping[str, object] = field(default_factory=dict)
    calibration: Mapping[str, object] = field(default_factory=dict)
    golden: GoldenLimits = GoldenLimits()
    health: HealthLimits = HealthLimits()
    files: tuple[BundledFile, ...] = ()
    made_by: str = ""
