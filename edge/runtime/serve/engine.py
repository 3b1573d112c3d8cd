"""The engine of a pipeline that runs: of a release the plan that was built and proven here, else one built now.

The first batch of an engine, before anybody waits for it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from edge.config.pipeline import Pipeline
from edge.device.engines import EngineRecord
from edge.engine.kind import EngineRequest, build_and_load, load_kind
from edge.engine.pipeline_model import max_batch_of
from edge.engine.section import ChosenEngine, choose_engine
from edge.errors import ConfigError, EngineError, MissingDependencyError
from edge.model.suppression import thresholds_in_vain
from edge.model.tasks import boxes_only
from edge.protocols import Engine
from edge.quantize.forms import Forms
from edge.quantize.precision import precision_of
from edge.runtime.build.inputs import require_same_inputs
from edge.runtime.serve.release import Deployed
from edge.runtime.trial.soundness import told_of_better
from edge.types import ModelSpec, Precision

__all__ = ["Running", "start_engine", "warm_up"]

_log = logging.getLogger(__name__)
_KEY_SHOWN = 12


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
