"""Precision of an engine: as the model is, or INT8 by a calibration table; one rule for every command."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from edge.calibrate.lint import usable_table
from edge.calibrate.table import CalibrationTable
from edge.config.pipeline import Pipeline
from edge.digest import sha256_of
from edge.errors import CalibrationError, ConfigError
from edge.model.graph import Graph, load_graph
from edge.model.qdq import require_sound_pairs
from edge.types import ModelSpec, Precision

__all__ = ["CALIBRATION_DIGITS", "ComputedPrecision", "computed_precision", "precision_of"]

CALIBRATION_DIGITS = 8  # in every message: enough to tell the tables of a fleet apart


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedPrecision:
    """The precision of an engine, with the table for INT8."""

    precision: Precision  # int8 also where the model carries Q/DQ pairs itself, whatever was asked for
    table: CalibrationTable | None = None  # that INT8 is computed by; None: float, or the model's own pairs
    calibration: str | None = None  # first digits of the SHA-256 of the table's file, where one is used


def computed_precision(
    spec: ModelSpec, *, precision: Precision | None, table: Path | None, graph: Graph | None = None
) -> ComputedPrecision:
    """`precision`: None: int8 with a table, else fp32. A model that carries Q/DQ pairs runs in INT8 whatever is asked.
    `table`: calibration table, for a float model in int8 only. `graph`: the inside of the model; None: its file is read
    where a table has to fit it, or it carries pairs. Raises `ModelError` if the pairs that the model carries give no
    detections; ConfigError if int8 has no table, or a table is given for another precision; CalibrationError if the
    table is not fit for the model, or the model carries pairs already.
    """
    if table is not None:
        if precision not in (None, Precision.INT8):
            raise ConfigError(f"precision {precision.value}: {table} is for int8", hint="leave one of the two out")
        fit = usable_table(table, spec, graph)
        digits = sha256_of(table)[:CALIBRATION_DIGITS]
        return ComputedPrecision(precision=Precision.INT8, table=fit, calibration=digits)
    if spec.is_quantized:
        require_sound_pairs(load_graph(spec.path) if graph is None else graph, spec.path)
        return ComputedPrecision(precision=Precision.INT8)
    if precision is Precision.INT8:
        # Scales that were not measured are random scales: refused, always.
        raise ConfigError(
            f"precision int8: {spec.path} is a float model, and INT8 without a calibration table is never run",
            hint=f"name one with --table; edge-deploy calibrate {shlex.quote(str(spec.path))} makes it",
        )
    return ComputedPrecision(precision=precision or Precision.FP32)


def precision_of(pipeline: Pipeline, spec: ModelSpec, graph: Graph | None = None) -> ComputedPrecision:
    """Return how the model of a pipeline is run; a table that stands there beside a float precision is not read.

    `pipeline`: says what is asked for. `graph`: the inside of that; None: its file is read where a table has to fit it,
    or it carries pairs. Raises `ConfigError` naming file, line and key, if int8 has no table, the table is not fit for
    the model, or the model carries pairs already and a table is given as well; ModelError if the model cannot be read,
    or carries pairs that give no detections.
    """
    model = pipeline.config.model
    precision = Precision.INT8 if spec.is_quantized else Precision(model.precision)
    if precision is not Precision.INT8:
        return computed_precision(spec, precision=precision, table=None)
    if model.calibration is None and not spec.is_quantized:
        problem = (
            f"int8 needs a calibration table, {spec.path} is a float model; add model.calibration, or use fp16 or fp32"
        )
        raise pipeline.error(("model", "precision"), problem)
    table = None if model.calibration is None else pipeline.resolve(model.calibration)
    try:
        return computed_precision(spec, precision=precision, table=table, graph=graph)
    except CalibrationError as error:
        raise pipeline.error(("model", "calibration"), str(error)) from error
