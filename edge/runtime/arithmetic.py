"""What a pipeline's engine is to compute: in INT8, by its calibration table or by the pairs that its model carries."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from edge.calibrate.apply import usable_table
from edge.calibrate.table import CalibrationTable
from edge.config.load import Pipeline
from edge.errors import CalibrationError
from edge.types import ModelSpec, Precision

__all__ = ["CALIBRATION_DIGITS", "Arithmetic", "choose_arithmetic"]

CALIBRATION_DIGITS = 8  # in every message: enough to tell the tables of a fleet apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """What is asked for.

    Attributes:
        precision: int8 also where the model carries Q/DQ pairs itself, whatever was asked for.
        table: that INT8 is computed by; None: float, or the model's own pairs.
        calibration: first digits of the SHA-256 of the table's file, where one is used.
    """

    precision: Precision
    table: CalibrationTable | None = None
    calibration: str | None = None


def choose_arithmetic(pipeline: Pipeline, spec: ModelSpec) -> Arithmetic:
    """Return how the pipeline's model is to be run.

    Raises:
        ConfigError: naming file, line and key, if int8 has no table, the table is not fit for the model, or the model
            carries pairs already and a table is given as well.
        ModelError: if the model cannot be read.
    """
    model = pipeline.config.model
    precision = Precision.INT8 if spec.is_quantized else Precision(model.precision)
    if precision is not Precision.INT8:
        return Arithmetic(precision=precision)
    if model.calibration is not None:
        return _by_table(pipeline, spec, model.calibration)
    if not spec.is_quantized:
        # Scales that nobody measured are random scales: refused, always.
        problem = f"int8 needs a calibration table, {spec.path} is a float model; add model.calibration, or use fp32"
        raise pipeline.error(("model", "precision"), problem)
    return Arithmetic(precision=precision)


def _by_table(pipeline: Pipeline, spec: ModelSpec, calibration: str) -> Arithmetic:
    path = pipeline.resolve(calibration)
    try:
        table = usable_table(path, spec)
    except CalibrationError as error:
        raise pipeline.error(("model", "calibration"), str(error)) from error
    digits = hashlib.sha256(path.read_bytes()).hexdigest()[:CALIBRATION_DIGITS]
    return Arithmetic(precision=Precision.INT8, table=table, calibration=digits)
