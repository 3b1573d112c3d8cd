"""What a pipeline runs on: a release on this device, each part verified a moment before, and the engine.

The engine of a release is the plan that was built and proven here; that of a pipeline file is built now. Its
inputs, and with them its key, are the same when it is built and when it is run.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, fields, replace
from pathlib import Path

import msgspec

from edge.bundle.manifest import Manifest, Role
from edge.config.pipeline import Pipeline, load_pipeline
from edge.device.device import Device
from edge.device.engines import EngineInputs, EngineRecord
from edge.device.facts import read_settings
from edge.device.layout import Layout
from edge.device.releases import locate_release
from edge.engine.kind import EngineRequest, build_and_load, load_kind
from edge.engine.section import ChosenEngine, choose_engine, max_batch_of
from edge.errors import ConfigError, DeployError, EngineError, MissingDependencyError
from edge.model.tasks import boxes_only, thresholds_in_vain
from edge.protocols import Engine
from edge.quantize.forms import Forms
from edge.quantize.precision import CALIBRATION_DIGITS, precision_of
from edge.runtime.software.binding import require_software
from edge.runtime.trial.soundness import require_engine, require_files, told_of_better
from edge.runtime.trial.trust import require_known
from edge.types import ModelSpec, Precision

__all__ = [
    "Deployed",
    "Running",
    "device_of_release",
    "engine_inputs",
    "open_release",
    "require_same_inputs",
    "start_engine",
    "warm_up",
]

_log = logging.getLogger(__name__)
_KEY_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A verified release.

    Attributes:
        model_name: what the messages call the model: the name of the pipeline that was bundled.
        device: the name of this device in its device.toml, for pipelines that state none; None: it has none.
        record, plan: of the engine.
    """

    release: str
    model_name: str
    layout: Layout
    device: str | None
    record: EngineRecord
    plan: bytes

    @property
    def precision(self) -> Precision:
        """The precision that runs, which a fallback may have decided."""
        return Precision(self.record.precision)

    @property
    def calibration(self) -> str | None:
        """First digits of the SHA-256 of the calibration table's file, where it has a part in what runs."""
        sha256 = self.record.inputs.calibration_sha256
        return sha256[:CALIBRATION_DIGITS] if sha256 is not None and self.precision is Precision.INT8 else None


def device_of_release(folder: Path) -> tuple[Device, str]:
    """`folder` may be `current`. Raises `ConfigError` if no release of a device is there."""
    # `current` is read once: if the switch moves while this runs, all files are still of one release.
    found = locate_release(folder)
    if found is None or not found[0].release(found[1]).is_dir():
        raise ConfigError(
            f"--release {folder}: expected a release of this device, /var/lib/edge-deploy/current or releases/NAME",
            hint="push one: edge-deploy push",
        )
    return Device(found[0]), found[1]


def open_release(folder: Path) -> tuple[Pipeline, Deployed]:
    """Return the pipeline of a release, and what is run of it. Raises `ConfigError` if there is no release, it was
    changed, no trusted key has signed it, or its engine is damaged or was built by other software.
    """
    device, release = device_of_release(folder)
    try:
        require_software(device, release)
        manifest = _verified(device, release)
        record, plan = require_engine(device, release)
    except DeployError as error:
        raise ConfigError(f"{error.problem} ({error.code})", hint=error.hint) from error
    pipeline = load_pipeline(device.layout.release(release) / manifest.files_of(Role.PIPELINE)[0].path)
    return pipeline, Deployed(
        release=release,
        model_name=manifest.pipeline_name,
        layout=device.layout,
        device=_name_of(device) if pipeline.config.device is None else None,
        record=record,
        plan=plan,
    )


def _verified(device: Device, release: str) -> Manifest:
    try:
        signed = require_known(device, release)
    except DeployError as problem:
        if problem.code.startswith("verify."):
            raise
        # No ssh-keygen, no list of signers: what was verified when it came goes on (docs/adr/0016).
        _log.error("release is served though its signature cannot be verified release=%s reason=%s", release, problem)
        return require_files(device, release, has_clips=True)
    if signed.withdrawn is not None:
        _log.warning("release is served though its signer is not trusted any more release=%s", release)
    return require_files(device, release, signed.manifest, has_clips=True)


def _name_of(device: Device) -> str | None:
    try:
        return read_settings(device.layout.device_toml).name
    except DeployError as error:  # a device on a mast serves on, under another topic
        _log.error("device name cannot be read, topics have the host name reason=%s", error)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An engine that is loaded.

    Attributes:
        kind: by its name in a pipeline file.
        precision: what it computes in; another one than was asked for where a fallback took its place.
        why: of the two, in words; empty where nothing is to be said.
        calibration: first digits of the SHA-256 of the calibration table's file, where it has a part in it.
    """

    engine: Engine
    kind: str
    precision: Precision
    asked: Precision
    why: str = ""
    calibration: str | None = None


def start_engine(pipeline: Pipeline, spec: ModelSpec, deployed: Deployed | None) -> Running:
    """Return the engine of a pipeline, or of the release that it is of.
    Raises `ConfigError` if the release's engine does not belong to it, or the calibration table cannot be used;
    `EngineError` if the engine cannot be built or loaded here.
    """
    _tell_of(pipeline, spec)
    return _build(pipeline, spec) if deployed is None else _load(pipeline, spec, deployed)


def _tell_of(pipeline: Pipeline, spec: ModelSpec) -> None:
    """Log what is not to be had of the model, though the pipeline or somebody may expect it."""
    if (told := boxes_only(spec)) is not None:
        _log.info("only boxes are used model=%s task=%s", spec.name, told)
    stated = pipeline.document.at(("model",))
    if in_vain := thresholds_in_vain(spec.suppression, pipeline.config.model, stated=stated):
        _log.warning("NMS is inside the model model=%s reason=%s", spec.name, "; ".join(in_vain))


def _build(pipeline: Pipeline, spec: ModelSpec) -> Running:
    computed, chosen = precision_of(pipeline, spec), choose_engine(pipeline)
    _log.info("engine kind=%s reason=%s", chosen.kind, chosen.reason)
    request = _request(pipeline, computed.precision, chosen)
    return Running(
        engine=build_and_load(load_kind(chosen.kind), Forms(spec, computed.table), request),
        kind=chosen.kind,
        precision=computed.precision,
        asked=computed.precision,
        calibration=computed.calibration,
    )


def _load(pipeline: Pipeline, spec: ModelSpec, deployed: Deployed) -> Running:
    record = deployed.record
    chosen, note = _chosen_before(pipeline, record)
    require_same_inputs(record.inputs, pipeline, spec, chosen)
    request = _request(pipeline, deployed.precision, chosen)
    try:
        engine = load_kind(record.inputs.kind).load(deployed.plan, spec, request)
    except (EngineError, MissingDependencyError) as error:
        raise _unusable(record, error.problem) from error
    return Running(
        engine=engine,
        kind=record.inputs.kind,
        precision=deployed.precision,
        asked=Precision(record.inputs.precision),
        why="; ".join(part for part in (record.why, note) if part),
        calibration=deployed.calibration,
    )


def _request(pipeline: Pipeline, precision: Precision, chosen: ChosenEngine) -> EngineRequest:
    return EngineRequest(
        precision=precision,
        max_batch=max_batch_of(pipeline),
        options=chosen.options,
        score_threshold=pipeline.config.model.score_threshold,
    )


def _chosen_before(pipeline: Pipeline, record: EngineRecord) -> tuple[ChosenEngine, str]:
    """Return the kind that the engine was built for, and a note if another one would be chosen by now."""
    built, best = record.inputs.kind, choose_engine(pipeline)
    if best.kind == built:
        return best, ""
    try:
        chosen = choose_engine(pipeline, kind=built)
    except (ConfigError, EngineError):  # no configuration is wrong: another engine has to be built
        raise _unusable(record, f"it is of {built}, here runs {best.reason}") from None
    note = told_of_better(best.kind, built)
    _log.warning("a better engine kind is available key=%s note=%s", record.inputs.key[:_KEY_SHOWN], note)
    return chosen, note


def _unusable(record: EngineRecord, why: str) -> EngineError:
    """Return the error that lets the service ask for a new engine (`edge.runtime.trial.rollback`)."""
    return EngineError(
        f"engine {record.inputs.key[:_KEY_SHOWN]} cannot be loaded: {why}",
        hint="it is built again by itself, or: push the release again",
    )


def warm_up(engine: Engine) -> None:
    """Infer one full batch of each canvas as it is: memory is touched, kernels are chosen, and a broken engine shows.
    Raises `EngineError` if the inference failed.
    """
    for index in range(len(engine.canvases)):
        engine.start(index, engine.max_batch)
        engine.wait(index)


def engine_inputs(pipeline: Pipeline, spec: ModelSpec, chosen: ChosenEngine, *, proof: str = "") -> EngineInputs:
    """Return the inputs of the engine that this pipeline gets on this machine.

    `proof`: what the golden frames are, for a pipeline with a fallback: by them its precision is chosen.
    """
    config = pipeline.config
    precision = Precision.INT8 if spec.is_quantized else Precision(config.model.precision)
    size, fallback = spec.preprocess.size, config.model.fallback
    table = config.model.calibration if precision is Precision.INT8 else None
    return EngineInputs(
        onnx_sha256=spec.sha256,
        calibration_sha256=None if table is None else hashlib.sha256(pipeline.resolve(table).read_bytes()).hexdigest(),
        kind=chosen.kind,
        precision=precision.value,
        max_batch=max_batch_of(pipeline),
        input_size=(size.width, size.height),
        preprocess_sha256=spec.preprocess.sha256,
        options=msgspec.to_builtins(chosen.options),
        versions=chosen.versions,
        fallback=fallback,
        proof="" if fallback is None else proof,
    )


def require_same_inputs(built: EngineInputs, pipeline: Pipeline, spec: ModelSpec, chosen: ChosenEngine) -> None:
    """Raises `ConfigError` naming what differs from what would be built now."""
    now = replace(
        engine_inputs(pipeline, spec, chosen), proof=built.proof
    )  # which golden frames, only its build has to know
    if now.key != built.key:
        pairs = ((one.name, getattr(built, one.name), getattr(now, one.name)) for one in fields(EngineInputs))
        told = "; ".join(f"{name}: built with {was}, now {now}" for name, was, now in pairs if was != now)
        raise ConfigError(
            f"{pipeline.path}: engine {built.key[:12]} does not belong to this release here ({told})",
            hint="it is built again by itself, or: push the release again",
        )
