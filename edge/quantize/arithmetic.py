"""How a model is measured: as it is, or by a calibration table; what runs is what a pipeline would run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge.calibrate.apply import quantized_model, usable_table
from edge.errors import ConfigError
from edge.model.graph import load_graph
from edge.model.qdq.share import int8_mac_share
from edge.types import ModelSpec, Precision

__all__ = ["Arithmetic", "choose_arithmetic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """What an engine is to compute.

    Attributes:
        model: the Q/DQ model to run instead of the file; None: the file.
        int8_mac_share: multiply-accumulates in INT8, of all; None in float.
    """

    precision: Precision
    model: bytes | None = None
    int8_mac_share: float | None = None


def choose_arithmetic(spec: ModelSpec, *, precision: Precision | None, table: Path | None) -> Arithmetic:
    """Return how the model of `spec` is run.

    Args:
        precision: None: int8 with a table, else fp32. A model that carries Q/DQ pairs runs in INT8 whatever is asked.
        table: calibration table, for a float model in int8 only.

    Raises:
        ConfigError: if int8 has no table, or a table is given for another precision.
        CalibrationError: if the table is not fit for the model, or the model carries pairs already.
    """
    if table is not None:
        if precision not in (None, Precision.INT8):
            raise ConfigError(f"precision {precision.value}: {table} is for int8", hint="leave one of the two out")
        made = quantized_model(usable_table(table, spec), spec)
        return Arithmetic(precision=Precision.INT8, model=made.model, int8_mac_share=made.mac_share_int8)
    if spec.is_quantized:
        return Arithmetic(precision=Precision.INT8, int8_mac_share=int8_mac_share(load_graph(spec.path), spec))
    if precision is Precision.INT8:
        raise ConfigError(
            f"precision int8: {spec.path} is a float model, and INT8 without a calibration table is never run",
            hint=f"name one with --table; edge-deploy calibrate {spec.path} makes it",
        )
    return Arithmetic(precision=precision or Precision.FP32)
