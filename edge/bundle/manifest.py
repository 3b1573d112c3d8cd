"""The manifest of a release: the signed list of what it holds and where it may run (`edge.release/1`)."""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, TypeVar

from edge.bundle.checks import (
    canonical,
    check_between,
    check_evidence,
    check_names,
    check_path,
    check_text,
    check_versions,
    read_object,
    read_time,
)
from edge.errors import DeployError

__all__ = [
    "FORMAT",
    "MAX_FILES",
    "MAX_MANIFEST_BYTES",
    "BundledFile",
    "GoldenFrames",
    "GoldenLimits",
    "HealthLimits",
    "Manifest",
    "Role",
    "decode_manifest",
    "encode_manifest",
    "release_name",
]

FORMAT = "edge.release/1"
MAX_MANIFEST_BYTES = 128 * 1024  # in base64 it still fits one frame of the wire
MAX_FILES = 64
_NAME = r"[a-z0-9-]{1,32}"
_MIB = 1024 * 1024
_LISTS = ("compatible", "targets", "tensorrt", "l4t", "secrets", "decoders")
_NOT_CONTENT = ("release", "sequence", "created_at", "expires_at")
_DAY_S = 86_400.0


class Role(str, enum.Enum):
    """Role of a file in a release."""

    PIPELINE = "pipeline"  # exactly one, YAML
    MODEL = "model"  # exactly one, ONNX, float
    CALIBRATION = "calibration"  # at most one, edge.calib/1
    CERTIFICATE = "certificate"  # CA or client certificates; never a private key
    CLIP = "clip"  # a video that a stream of the pipeline plays
    GOLDEN = "golden"  # golden.json, the float model's detections
    GOLDEN_IMAGE = "golden-image"  # one image of the golden set
    SBOM = "sbom"  # CycloneDX: of the release, and of what devices have installed
    SOFTWARE = "software"  # wheels/NAME.whl: edge-deploy's own for devices, and libraries of it


class GoldenFrames(str, enum.Enum):
    """How much the golden frames of a release prove."""

    OUTSIDE = "outside-calibration"  # none of them has calibrated the table, or there is no table
    UNKNOWN = "unknown"  # the table does not say which images it was made from
    NONE = "none"  # there are none: only a device with `allow_unproven = true` takes the release


# A claimed length costs a device space before the bytes prove it.
MAX_BYTES: Mapping[Role, int] = MappingProxyType(
    {
        Role.PIPELINE: _MIB,
        Role.MODEL: 2048 * _MIB,  # what one ONNX file can be
        Role.CALIBRATION: 64 * _MIB,
        Role.CERTIFICATE: _MIB,
        Role.CLIP: 16_384 * _MIB,
        Role.GOLDEN: 16 * _MIB,
        Role.GOLDEN_IMAGE: 64 * _MIB,
        Role.SBOM: 16 * _MIB,
        Role.SOFTWARE: 512 * _MIB,
    }
)
_WHEELS = "wheels/"
_WHEEL = re.compile(_WHEELS + r"[A-Za-z0-9_.+!-]{1,200}\.whl")
_OWN_WHEEL = f"{_WHEELS}edge_deploy-"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledFile:
    """One file: `path` is relative to the release with `/` between its parts; `length_bytes` and `sha256` prove it."""

    path: str
    role: Role
    length_bytes: int
    sha256: str

    def __post_init__(self) -> None:
        check_path(self.path)
        check_between(f"length of {self.path}", self.length_bytes, 0, MAX_BYTES[self.role], whole=True)
        check_text(f"digest of {self.path}", self.sha256, r"[0-9a-f]{64}")

    @property
    def is_own_software(self) -> bool:
        return self.role is Role.SOFTWARE and self.path.startswith(_OWN_WHEEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenLimits:
    """How far the engine built on the device may be from the float model on the golden frames.

    The defaults are measured, see docs/push.md, "Golden frames".
    """

    min_recall: float = 0.95  # share of the float model's sure detections that are found again (IoU and score)
    max_extra: float = 0.05  # sure detections of the device that the float model does not have, per one that it has
    min_iou: float = 0.5  # for two boxes to count as one
    max_score_error: float = 0.1  # mean absolute difference of the scores of those found again

    def __post_init__(self) -> None:
        for one in fields(self):
            check_between(f"golden.{one.name}", getattr(self, one.name), 0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """Limits of a release in its trial; None: judged against the release before, or not at all."""

    hold_s: float = 60.0  # for so long, without interruption
    deadline_s: float = 900.0  # from the switch on
    min_rate_share: float = 0.8  # of each stream's rate before the switch
    infer_p95_ms: float | None = None
    age_p95_ms: float | None = None
    max_slowdown: float = 1.2  # p95 of inference against the release before; only where infer_p95_ms is None
    min_available_bytes: int = 268_435_456  # memory that stays free on the device

    def __post_init__(self) -> None:
        check_between("health.hold_s", self.hold_s, 0, _DAY_S)
        check_between("health.deadline_s", self.deadline_s, self.hold_s, _DAY_S)
        check_between("health.min_rate_share", self.min_rate_share, 0, 1)
        check_between("health.max_slowdown", self.max_slowdown, 1, 1000)
        check_between("health.min_available_bytes", self.min_available_bytes, 0, 2**40, whole=True)
        for name, value in (("infer_p95_ms", self.infer_p95_ms), ("age_p95_ms", self.age_p95_ms)):
            if value is not None:
                check_between(f"health.{name}", value, 0, 1000 * _DAY_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All that a device has to know before it takes a release. One that exists has passed every check but its name's.

    `release`: first 12 hex digits of a SHA-256 over all below except sequence and times: equal content, equal name.
    `channel`, `sequence`: a device never goes back to a lower sequence of a channel on its own.
    `created_at`, `expires_at`: RFC 3339 in UTC, whole seconds; None: never.
    `compatible`: device classes, such as "jetson-orin"; never empty ("any" fits all). `targets`: names; empty: all.
    `downgrade_from`: of a permission to go back, the counter of the channel that it is given for; else None.
    `tensorrt`, `l4t`: inclusive lower and exclusive upper version; None: no bound.
    `engine`: max batch, precision, and what else the build on the device depends on.
    `calibration`: evidence of the table, as `edge-deploy calibrate` wrote it; empty without one.
    `secrets`: names of what the device has to keep for it: logins of cameras and of the broker.
    `decoders`: of its streams, as the pipeline says: `auto`, `software`, `nvmm`, `pyav`. `files`: sorted by path.
    `max_fps`: that the pipeline states, by stream: in its trial a stream is not expected to give more.
    """

    release: str
    pipeline_name: str
    channel: str
    sequence: int
    created_at: str
    expires_at: str | None
    compatible: tuple[str, ...]
    targets: tuple[str, ...] = ()
    downgrade_from: int | None = None
    tensorrt: tuple[str | None, str | None] = (None, None)
    l4t: tuple[str | None, str | None] = (None, None)
    engine: Mapping[str, object] = field(default_factory=dict)
    calibration: Mapping[str, object] = field(default_factory=dict)
    golden: GoldenLimits = GoldenLimits()
    golden_frames: GoldenFrames = GoldenFrames.NONE
    health: HealthLimits = HealthLimits()
    secrets: tuple[str, ...] = ()
    decoders: tuple[str, ...] = ()
    max_fps: Mapping[str, float] = field(default_factory=dict)
    files: tuple[BundledFile, ...] = ()
    made_by: str = ""

    def __post_init__(self) -> None:
        check_text("release", self.release, r"[0-9a-f]{12}")
        check_text("pipeline_name", self.pipeline_name, r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
        check_text("channel", self.channel, _NAME)
        check_between("sequence", self.sequence, 0, 2**53, whole=True)
        if self.downgrade_from is not None:
            check_between("downgrade_from", self.downgrade_from, 0, 2**53 - 1, whole=True)
        check_text("made_by", self.made_by, r"[ -~]{0,100}")
        self._check_times()
        check_names("compatible", self.compatible, r"[a-z0-9-]{1,64}", least=1)
        check_names("targets", self.targets, _NAME)
        check_names("secrets", self.secrets, r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}")
        check_names("decoders", self.decoders, r"[a-z0-9-]{1,32}")
        check_evidence("max_fps", self.max_fps)
        for stream, fps in self.max_fps.items():
            check_between(f"max_fps.{stream[:32]}", fps, 0, 1e6)
        check_versions("tensorrt", self.tensorrt)
        check_versions("l4t", self.l4t)
        for where, evidence in (("engine", self.engine), ("calibration", self.calibration)):
            check_evidence(where, evidence)
        self._check_files()

    def files_of(self, role: Role) -> tuple[BundledFile, ...]:
        return tuple(one for one in self.files if one.role is role)

    def _check_times(self) -> None:
        created = read_time("created_at", self.created_at)
        if self.expires_at is not None and read_time("expires_at", self.expires_at) <= created:
            raise DeployError(
                "verify.manifest.field", f"the manifest expires at {self.expires_at}, made at {self.created_at}"
            )

    def _check_files(self) -> None:
        if len(self.files) > MAX_FILES:
            raise DeployError(
                "verify.manifest.files", f"the manifest lists {len(self.files)} files, at most {MAX_FILES} are taken"
            )
        paths = [one.path for one in self.files]
        folders = {path.rsplit("/", depth)[0] for path in paths for depth in range(1, path.count("/") + 1)}
        if len(set(paths)) != len(paths) or folders & set(paths):
            raise DeployError("verify.manifest.duplicate", "the manifest lists one path twice, or as file and folder")
        if paths != sorted(paths):
            raise DeployError("verify.manifest.files", "the manifest's files are not sorted by path")
        self._check_roles()
        lengths = {one.sha256: one.length_bytes for one in self.files}
        for one in self.files:
            if lengths[one.sha256] != one.length_bytes:
                raise DeployError("verify.manifest.files", f"two lengths for the digest {one.sha256}")

    def _check_roles(self) -> None:
        least_and_most = {Role.PIPELINE: (1, 1), Role.MODEL: (1, 1), Role.CALIBRATION: (0, 1), Role.SBOM: (0, 2)}
        has_golden = self.golden_frames is not GoldenFrames.NONE
        least_and_most[Role.GOLDEN] = (1, 1) if has_golden else (0, 0)
        least_and_most[Role.GOLDEN_IMAGE] = (1, MAX_FILES) if has_golden else (0, 0)
        for role, (least, most) in least_and_most.items():
            count = len(self.files_of(role))
            if not least <= count <= most:
                raise DeployError(
                    "verify.manifest.files",
                    f"the manifest lists {count} files for {role.value}, expected {least} to {most}",
                )
        self._check_software()

    def _check_software(self) -> None:
        wheels = self.files_of(Role.SOFTWARE)
        own = [one for one in wheels if one.is_own_software]
        aside = [one.path for one in self.files if one.role is not Role.SOFTWARE and one.path.startswith(_WHEELS)]
        if aside:
            raise DeployError(
                "verify.manifest.files",
                f"the manifest lists {aside[0]}; {_WHEELS} is for software",
                hint="rename the folder",
            )
        if wheels and (len(own) != 1 or not all(_WHEEL.fullmatch(one.path) for one in wheels)):
            raise DeployError(
                "verify.manifest.files",
                f"the manifest lists {len(wheels)} files for software, {len(own)} of them edge-deploy's own; "
                f"expected one of its own, and {_WHEELS}NAME.whl for all",
            )


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the one spelling, to be signed; DeployError `verify.manifest.size` if devices would not read it."""
    content = canonical(_values(manifest))
    if len(content) > MAX_MANIFEST_BYTES:
        raise DeployError(
            "verify.manifest.size", f"the manifest has {len(content)} bytes, at most {MAX_MANIFEST_BYTES} are read"
        )
    return content


def decode_manifest(content: bytes) -> Manifest:
    """Return the manifest in `content`, whose signature the caller has verified; DeployError `verify.manifest.*`.

    Keys that this version does not know are ignored: they count for the name of the release all the same.
    """
    values = read_object(content, max_bytes=MAX_MANIFEST_BYTES)
    if values.get("format") != FORMAT:
        raise DeployError(
            "verify.manifest.format",
            f"the manifest's format is {str(values.get('format'))[:100]!r}, this version reads {FORMAT!r}",
            hint="use the same edge-deploy on both sides",
        )
    manifest = _manifest(values)
    name = _name_of(values)
    if manifest.release != name:
        raise DeployError(
            "verify.manifest.release", f"the manifest calls its content {manifest.release}, its name would be {name}"
        )
    return manifest


def release_name(manifest: Manifest) -> str:
    """Return the name that the manifest's content gives it, whatever `manifest.release` says."""
    return _name_of(_values(manifest))


def _name_of(values: Mapping[str, Any]) -> str:
    content = {key: value for key, value in values.items() if key not in _NOT_CONTENT}
    return hashlib.sha256(canonical(content)).hexdigest()[:12]


def _values(manifest: Manifest) -> dict[str, Any]:
    values = {"format": FORMAT, **asdict(manifest)}
    for key in ("downgrade_from", "secrets", "decoders", "max_fps"):  # what most releases lack is not said
        if not values[key]:
            del values[key]
    return values


_T = TypeVar("_T")


def _manifest(values: Mapping[str, Any]) -> Manifest:
    try:
        known = _known(Manifest, values)
        lists: dict[str, object] = {key: tuple(_list(known[key])) for key in _LISTS if key in known}
        parts: dict[str, object] = {
            "files": tuple(_part(BundledFile, one, role=Role) for one in _list(known.get("files", []))),
            "golden": _part(GoldenLimits, known.get("golden", {})),
            "health": _part(HealthLimits, known.get("health", {})),
            "golden_frames": GoldenFrames(known.get("golden_frames", GoldenFrames.NONE)),
        }
        return Manifest(**(known | lists | parts))
    except (TypeError, ValueError) as error:
        raise DeployError("verify.manifest.field", f"the manifest cannot be read: {str(error)[:200]}") from None


def _part(kind: Callable[..., _T], values: object, **converted: Callable[[Any], object]) -> _T:
    if not isinstance(values, dict):
        raise TypeError(f"{str(values)[:100]!r} is not an object")
    known = _known(kind, values)
    return kind(**{key: converted[key](value) if key in converted else value for key, value in known.items()})


def _known(kind: Callable[..., object], values: Mapping[str, Any]) -> dict[str, Any]:
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    return {key: value for key, value in values.items() if key in names}


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{str(value)[:100]!r} is not a list")
    if len(value) > 1024:
        raise DeployError("verify.manifest.files", f"a list of {len(value)} entries, at most 1024 are read")
    return value
