"""Engines that were built on this device, one folder per key, and what each was built from (`build.json`)."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from edge.codec import decode_known
from edge.device.durable import Durable, temporary, typed
from edge.device.layout import Layout
from edge.errors import DeployError
from edge.reading import SMALL_BYTES, json_object
from edge.version import __version__

__all__ = [
    "BUILD",
    "GOLDEN",
    "MAX_PLAN_BYTES",
    "PLAN",
    "EngineInputs",
    "EngineRecord",
    "Engines",
    "check_key",
    "decode_record",
    "read_plan",
    "read_record",
]

PLAN = "model.plan"
BUILD = "build.json"
GOLDEN = "golden.json"
_FORMAT = "edge.engine/1"
MAX_PLAN_BYTES = 2 << 30  # no ONNX file is larger, and a plan is about as large as the float weights at most


def check_key(key: str) -> str:
    """Return `key` if it is an engine's, so that it may become a file name; DeployError `request.engine`."""
    if not 8 <= len(key) <= 64 or set(key) - set("0123456789abcdef"):
        raise DeployError("request.engine", f"{key[:80]!r} is no engine key: expected 8 to 64 lower-case hex digits")
    return key


class Engines:
    """The engines of a device; one that has its name was finished and is on the disk."""

    def __init__(self, layout: Layout, durable: Durable) -> None:
        self._layout = layout
        self._durable = durable
        self._files = durable.files

    def has(self, key: str) -> bool:
        return self._files.is_dir(self._layout.engine(check_key(key)))

    @typed
    def names(self) -> list[str]:
        if not self._files.is_dir(self._layout.engines):
            return []
        return [name for name in self._files.names(self._layout.engines) if not name.startswith(".")]

    @typed
    def take(self, key: str, files: Mapping[str, bytes], *, replaces: bool) -> None:
        """Make an engine of `files`; one that is here stays unless `replaces`. DeployError `device.disk.*`."""
        if self.has(key) and not replaces:
            return
        if self.has(key):
            self.quarantine(key)
        folder = temporary(self._layout.engine(key))
        self._durable.make_dirs(folder.parent)
        if self._files.is_dir(folder):  # of one that was killed
            self._durable.remove_tree(folder)
        self._files.make_dir(folder)
        try:
            for name, content in files.items():
                self._files.write(folder / name, content)
            self._durable.adopt_tree(folder, self._layout.engine(key))
        except (DeployError, OSError):
            with contextlib.suppress(DeployError, OSError):
                self._durable.remove_tree(folder)
            raise

    @typed
    def read(self, key: str, file: str, *, most_bytes: int = SMALL_BYTES) -> bytes:
        return self._files.read(self._layout.engine(check_key(key)) / file, most_bytes=most_bytes)

    @typed
    def quarantine(self, key: str) -> None:
        """Take a damaged engine away, so that the next build makes it again."""
        self._durable.remove_tree(self._layout.engine(check_key(key)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInputs:
    """Everything that a plan depends on.

    `calibration_sha256` None: no table was used. `kind`: by its name in a pipeline file. `precision`: as asked for
    (`int8`, `fp16`, `fp32`), `fallback`: may run instead; `EngineRecord.precision` is what runs. `preprocess_sha256`:
    of the preprocess that becomes part of the engine, and with it of the input size. `options`: what else the pipeline
    says of the engine. `versions`: of software and machine that build and run it, as the kind says. `proof`: the golden
    frames by which the two precisions were chosen between; empty without a fallback.
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
        """Lower-case hex SHA-256 of all inputs."""
        content = {**asdict(self), "input_size": list(self.input_size)}
        if self.fallback is None:  # engines that were built before there was any keep their names
            del content["fallback"], content["proof"]
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRecord:
    """The record of one engine; `precision` is what runs, `software` the edge-deploy that built it in `seconds`.

    `report` is plain JSON: `route` and `why` of the kind, `account` of its layers where the kind knows them, `fallback`
    where there was a choice.
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
        """One line about the engine: `KIND int8, explicit Q/DQ: this CPU sums INT8 exactly`; then its layers."""
        asked = "" if self.precision == self.inputs.precision else f" instead of {self.inputs.precision}"
        route = self.report.get("route")
        what = f"{self.inputs.kind} {self.precision}{asked}" + (f", {route}" if route else "")
        account = self.report.get("account")
        layers = account.get("line") if isinstance(account, dict) else None
        return (f"{what}: {self.why}" if self.why else what) + (f" ({layers})" if layers else "")

    def encode(self) -> bytes:
        values = {"format": _FORMAT, "key": self.inputs.key, **asdict(self)}
        return json.dumps(values, indent=1, sort_keys=True).encode() + b"\n"


def decode_record(content: bytes) -> EngineRecord:
    """ValueError for anything else than what `EngineRecord.encode` gives."""
    values = json_object(content)
    if values.get("format") != _FORMAT:
        raise ValueError(f"its format is {str(values.get('format'))[:40]!r}, expected {_FORMAT!r}")
    return decode_known(EngineRecord, values, where="engine")


def read_record(engines: Engines, key: str) -> EngineRecord:
    """DeployError `device.engine.missing`, `device.engine.damaged`."""
    if not engines.has(key):
        raise DeployError("device.engine.missing", f"engine {key[:12]} is not here", hint="push the release again")
    try:
        record = decode_record(engines.read(key, BUILD))
    except (DeployError, ValueError) as error:
        raise _damaged(key, f"{BUILD} cannot be read: {error}") from None
    if record.inputs.key != key:
        raise _damaged(key, f"{BUILD} describes engine {record.inputs.key[:12]}")
    return record


def read_plan(
    engines: Engines, key: str, *, versions_of: Callable[[str], Mapping[str, str]] | None
) -> tuple[EngineRecord, bytes]:
    """Return the engine's record, and its plan, which has the digest that the record states.

    `versions_of`: what an engine of a kind depends on, as of now; None: only other software knows.
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


def _damaged(key: str, problem: str) -> DeployError:
    hint = "it is built again by itself, or: push the release again"
    return DeployError("device.engine.damaged", f"engine {key[:12]}: {problem}", hint=hint)
