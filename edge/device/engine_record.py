"""What an engine was built from (`build.json`), the key that follows from it, and whether it still fits this device."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from edge.device.engines import Engines
from edge.errors import DeployError
from edge.reading import json_object
from edge.version import __version__

__all__ = ["BUILD", "GOLDEN", "MAX_PLAN_BYTES", "PLAN", "EngineInputs", "EngineRecord", "decode_record", "read_plan"]
__all__ += ["read_record"]

PLAN = "model.plan"
BUILD = "build.json"
GOLDEN = "golden.json"
_FORMAT = "edge.engine/1"
MAX_PLAN_BYTES = 2 << 30  # no ONNX file is larger, and a plan is about as large as the float weights at most


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInputs:
    """Everything that a plan depends on.

    Attributes:
        onnx_sha256: of the model's file.
        calibration_sha256: of the table's file; None: none was used.
        kind: of engine, by its name in a pipeline file.
        precision: `int8`, `fp16` or `fp32`, as asked for; `EngineRecord.precision` is what runs.
        max_batch: most frames at once.
        preprocess_sha256: of the preprocess that becomes part of the engine, and with it of the input size.
        options: what else the pipeline says of the engine.
        versions: of the software and the machine that build and run it, as the kind says.
        fallback: precision that may run instead; None: none.
        proof: the golden frames by which the two were chosen between; empty without a fallback.
    """

    onnx_sha256: str
    calibration_sha256: str | None
    kind: str
    precision: str
    max_batch: int
    input_size: tuple[int, int]
    preprocess_sha256: str
    options: Mapping[str, object] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    fallback: str | None = None
    proof: str = ""

    @property
    def key(self) -> str:
        """The name of the engine: lower-case hex SHA-256 of all inputs."""
        content = {**asdict(self), "input_size": list(self.input_size)}
        if self.fallback is None:  # engines that were built before there was any keep their names
            del content["fallback"], content["proof"]
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRecord:
    """Of one engine.

    Attributes:
        inputs: what it was built from.
        plan_sha256, plan_bytes: of its plan.
        seconds: how long the build took.
        precision: what runs: that of `inputs`, or its fallback.
        report: how it came about, plain JSON: `route` and `why` of the kind, `account` of its layers where the kind
            knows them, `fallback` where there was a choice.
        software: the edge-deploy that built it.
    """

    inputs: EngineInputs
    plan_sha256: str
    plan_bytes: int
    seconds: float
    precision: str
    report: Mapping[str, object] = field(default_factory=dict)
    software: str = __version__

    @property
    def why(self) -> str:
        """Why this precision and this route, in one line; empty where nothing was said of it."""
        fallback = self.report.get("fallback")
        reason = fallback.get("reason") if isinstance(fallback, dict) else None
        return "; ".join(str(part) for part in (reason, self.report.get("why")) if part)

    @property
    def line(self) -> str:
        """What runs and why, for people: `KIND int8, explicit Q/DQ: this CPU sums INT8 exactly`; then its layers."""
        asked = "" if self.precision == self.inputs.precision else f" instead of {self.inputs.precision}"
        route = self.report.get("route")
        what = f"{self.inputs.kind} {self.precision}{asked}" + (f", {route}" if route else "")
        account = self.report.get("account")
        layers = account.get("line") if isinstance(account, dict) else None
        return (f"{what}: {self.why}" if self.why else what) + (f" ({layers})" if layers else "")

    def encode(self) -> bytes:
        """Return the content of `build.json`."""
        values = {"format": _FORMAT, "key": self.inputs.key, **asdict(self)}
        return json.dumps(values, indent=1, sort_keys=True).encode() + b"\n"


def decode_record(content: bytes) -> EngineRecord:
    """Return what `EngineRecord.encode` was given; ValueError, KeyError or TypeError for anything else."""
    return _record_from_json(json_object(content))


def read_record(engines: Engines, key: str) -> EngineRecord:
    """Return what the engine `key` was built from.

    Raises:
        DeployError: `device.engine.missing`, `device.engine.damaged`.
    """
    if not engines.has(key):
        raise DeployError("device.engine.missing", f"engine {key[:12]} is not here", hint="push the release again")
    try:
        record = decode_record(engines.read(key, BUILD))
    except (DeployError, ValueError, KeyError, TypeError) as error:
        raise _damaged(key, f"{BUILD} cannot be read: {error}") from None
    if record.inputs.key != key:
        raise _damaged(key, f"{BUILD} describes engine {record.inputs.key[:12]}")
    return record


def read_plan(
    engines: Engines, key: str, *, versions_of: Callable[[str], Mapping[str, str]] | None
) -> tuple[EngineRecord, bytes]:
    """Return the engine's record, and its plan, which has the digest that the record states.

    Args:
        engines: of the device.
        key: of the engine.
        versions_of: what an engine of a kind depends on, as of now; None: only other software knows.

    Raises:
        DeployError: `device.engine.missing`, `device.engine.damaged`; `device.engine.changed` if it was built by other
            software than is installed now.
    """
    record = read_record(engines, key)
    here = record.inputs.versions if versions_of is None else versions_of(record.inputs.kind)
    if record.inputs.versions != here:
        told = ", ".join(f"{name} {record.inputs.versions.get(name)} is now {here.get(name)}" for name in sorted(here))
        raise DeployError(
            "device.engine.changed",
            f"engine {key[:12]} was built on another system: {told}",
            hint="it is built again by itself, or: push the release again",
        )
    try:
        plan = engines.read(key, PLAN, most_bytes=min(record.plan_bytes, MAX_PLAN_BYTES))
    except DeployError as error:
        raise _damaged(key, f"{PLAN} cannot be read: {error.problem}") from error
    if hashlib.sha256(plan).hexdigest() != record.plan_sha256:
        raise _damaged(key, f"{PLAN} is not what was built ({len(plan)} bytes, {record.plan_bytes} expected)")
    return record, plan


def _record_from_json(values: Mapping[str, Any]) -> EngineRecord:
    if values["format"] != _FORMAT:
        raise ValueError(f"its format is {str(values['format'])[:40]!r}, expected {_FORMAT!r}")
    inputs = dict(values["inputs"])
    width, height = inputs.pop("input_size")
    return EngineRecord(
        inputs=EngineInputs(
            **{**inputs, "versions": _texts(inputs["versions"]), "kind": str(inputs["kind"])},
            input_size=(width, height),
        ),
        plan_sha256=str(values["plan_sha256"]),
        plan_bytes=int(values["plan_bytes"]),
        seconds=float(values["seconds"]),
        precision=str(values.get("precision", inputs["precision"])),
        report=dict(values.get("report") or {}),
        software=str(values["software"]),
    )


def _texts(values: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in dict(values).items()}


def _damaged(key: str, problem: str) -> DeployError:
    hint = "it is built again by itself, or: push the release again"
    return DeployError("device.engine.damaged", f"engine {key[:12]}: {problem}", hint=hint)
