"""Calibration tables by ONNX Runtime's activations: on images that lie on the canvas as they are, or on random ones."""

from dataclasses import dataclass
from pathlib import Path

import cv2
import msgspec
import numpy as np

from edge.calibrate.table import CalibrationTable, DatasetId, ModelId, TensorRange, write_table
from edge.engine.kind import QdqForm
from edge.model.inspect import inspect_model
from edge.model.qdq import QdqModel
from edge.quantize.forms import Forms
from edge.types import ColourOrder, ModelSpec
from tests.support.qdq import all_tensors, minmax
from tests.support.values import calibration_table


@dataclass(frozen=True)
class Calibrated:
    """A model, images of its size, every float tensor of it on them (by ONNX Runtime), and its table."""

    spec: ModelSpec
    images: Path
    feed: dict
    tensors: dict
    table: CalibrationTable
    folder: Path

    def table_with(self, *, ranges=None, **changes) -> Path:
        """Write the table with other ranges, or other fields, and return where."""
        tensors = {**self.table.tensors, **{n: TensorRange(amax=a, method="x") for n, a in (ranges or {}).items()}}
        path = self.folder / "table.calib.json"
        write_table(path, msgspec.structs.replace(self.table, tensors=tensors, **changes))
        return path

    def amax(self, name) -> float:
        return self.table.tensors[name].amax


def calibrated(folder: Path, model: Path) -> Calibrated:
    """Return `model` with three images of soft blobs and a minmax table."""
    spec = inspect_model(model)
    size, random = spec.preprocess.size, np.random.default_rng(7)
    (folder / "images").mkdir()
    pictures = []
    for index in range(3):
        coarse = random.integers(0, 256, (12, 12, 3), np.uint8)
        picture = cv2.resize(coarse, (size.width, size.height), interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(folder / "images" / f"{index}.png"), picture)
        pictures.append(picture if spec.preprocess.colour_order is ColourOrder.BGR else picture[..., ::-1])
    planes = np.stack(pictures).transpose(0, 3, 1, 2).astype(np.float32) * np.float32(spec.preprocess.scale)
    runs = [all_tensors(model, {spec.input_name: plane[None]}) for plane in planes]
    tensors = {name: np.concatenate([run[name] for run in runs]) for name in runs[0]}
    table = calibration_table(
        {name: float(np.abs(values).max()) for name, values in tensors.items()},
        preprocess=spec.preprocess,
        model=ModelId(name=spec.name, sha256=spec.sha256),
        dataset=DatasetId(images=3, sha256="0" * 64),
    )
    return Calibrated(
        spec=spec, images=folder / "images", feed={spec.input_name: planes}, tensors=tensors, table=table, folder=folder
    )


def table_of(model: Path, /, *, overrides=None, **changes) -> CalibrationTable:
    """A table that fits `model`, or differs from it in the fields that are given."""
    spec = inspect_model(model, overrides=overrides)
    size = spec.preprocess.size
    pixels = np.random.default_rng(3).integers(0, 256, (spec.batch or 1, 3, size.height, size.width))
    feed = {spec.input_name: (pixels * spec.preprocess.scale).astype(np.float32)}
    ranges = {name: amax for name, amax in minmax(model, feed).items() if amax > 0}
    model_id = ModelId(name=spec.name, sha256=spec.sha256)
    return calibration_table(ranges, preprocess=spec.preprocess, **{"model": model_id, **changes})


def write_table_of(path: Path, model: Path, /, **changes) -> Path:
    write_table(path, table_of(model, **changes))
    return path


def quantized_model(table: CalibrationTable, spec: ModelSpec) -> QdqModel:
    """Return the Q/DQ model that an engine is given by a table."""
    return Forms(spec, table).qdq_model(QdqForm())
