"""Calibration tables of tiny models: each tensor's own largest value over random pictures, as min-max would find it."""

from pathlib import Path

import numpy as np

from edge.calibrate.table import CalibrationTable, MadeBy, ModelId, TensorRange
from edge.calibrate.table_file import write_table
from edge.model.inspect import inspect_model
from tests.support.qdq import minmax


def table_of(model: Path, /, *, overrides=None, **changes) -> CalibrationTable:
    """A table that fits `model`, or differs from it in the fields that are given."""
    spec = inspect_model(model, overrides=overrides)
    size = spec.preprocess.size
    pixels = np.random.default_rng(3).integers(0, 256, (spec.batch or 1, 3, size.height, size.width))
    feed = {spec.input_name: (pixels * spec.preprocess.scale).astype(np.float32)}
    content = {
        "model": ModelId(name=spec.name, sha256=spec.sha256),
        "preprocess": spec.preprocess.as_json(),
        "preprocess_sha256": spec.preprocess.sha256,
        "dataset": None,
        "method": "minmax",
        "made_by": MadeBy(engine="a test"),
        "tensors": {n: TensorRange(amax=amax, method="minmax") for n, amax in minmax(model, feed).items() if amax > 0},
    }
    return CalibrationTable(**{**content, **changes})


def write_table_of(path: Path, model: Path, /, **changes) -> Path:
    write_table(path, table_of(model, **changes))
    return path
