"""The form of a model that a route feeds to TensorRT's parser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge.engine.kind import ModelForms
from edge.engine.tensorrt.routes import ChosenRoute, Route
from edge.errors import CalibrationError
from edge.model.qdq.insert import QdqModel
from edge.types import Precision

__all__ = ["Source", "source_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is parsed, and its scales: inside a Q/DQ model, else beside the file, by tensor (largest absolute value)."""

    content: bytes
    qdq: QdqModel | None = None
    ranges: Mapping[str, float] = field(default_factory=dict)


def source_of(model: ModelForms, chosen: ChosenRoute, precision: Precision) -> Source:
    """Return the model as `chosen` wants it.

    Raises:
        CalibrationError: if there is no table, and the route needs one.
        ModelError: if the model cannot be converted.
    """
    route = chosen.route
    if route.is_explicit:
        made = model.qdq_model(chosen.form)
        return Source(content=made.model, qdq=made)
    if route.is_implicit:
        if model.ranges is None:
            raise CalibrationError(
                f"precision int8: {model.spec.name} is a float model; INT8 without a calibration table is never run",
                hint="name a table (edge-deploy calibrate), or use fp16",
            )
        return Source(content=model.float_model(), ranges=model.ranges)
    is_float16 = route is Route.FLOAT_STRONG and precision is Precision.FP16
    return Source(content=model.float_model(is_float16=is_float16))
